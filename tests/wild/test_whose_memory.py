"""The split and the verdict of programs nobody here wrote: the parts add up to the kernel's sums, and what is large is named."""

import os
import shutil
import subprocess
from pathlib import Path
from typing import Any, Dict, List

import pytest

from tests.support.processes import Stage
from tests.support.runtimes import GO, PROGRAMS, RUBY, Program, children, daemon, postgres, start, wait_for
from tests.support.tool import heapx

pytestmark = pytest.mark.wild  # Java, node, Ruby, Erlang, PHP, PostgreSQL, MariaDB

MIB = 1 << 20


def report(pid: int) -> Dict[str, Any]:
    """`report --json` of a live process, held against its smaps_rollup."""
    data = heapx(["--pid", str(pid)], "report", "--json").envelope["data"]
    rollup = {line.split(":")[0]: int(line.split()[1]) * 1024 for line in Path("/proc/%d/smaps_rollup" % pid).read_text().splitlines()[1:]}
    parts = data["split"]
    rounding = 1024 * len(Path("/proc/%d/maps" % pid).read_text().splitlines())  # of Pss, which smaps gives in whole KiB for each mapping
    ours = rollup["Pss_File"]  # gdb and Python have libraries in common with it while they look, and so take a share of their pages
    for key, name, slack in (("resident_bytes", "Rss", 0), ("pss_bytes", "Pss", rounding + ours)):
        assert abs(sum(part[key] for part in parts) - rollup[name]) <= rollup[name] // 100 + slack, name
    return data  # type: ignore[no-any-return]


def judged(data: Dict[str, Any], program: str, kind: str, sure: str) -> None:
    """The verdict is on the largest part, which is that program's."""
    largest = data["split"][0]
    assert (largest["program"], largest["kind"], largest["sure"]) == (program, kind, sure), largest
    assert (data["verdict"]["kind_1_0"], data["verdict"]["code"]) == ("not-malloc", "mostly-" + kind)
    assert not any(line["code"] == "in-use" for line in data["verdict"]["lines"]) or data["memory"]["allocator_bytes"] * 10 >= data["memory"]["total_bytes"]
    assert data["next"] and all(step["why"] for step in data["next"])


@pytest.mark.parametrize("name", sorted(PROGRAMS))
def test_a_runtime_is_named(stage: Stage, live: str, name: str) -> None:
    """Its heap is one line, the largest, and the verdict; next steps are that program's own."""
    program = PROGRAMS[name]
    judged(report(start(stage, program).pid), program.owner, program.kind, program.sure)


@pytest.mark.parametrize("name", ["node", "python", "php", "erlang"])
def test_a_runtime_is_named_in_a_core(stage: Stage, core: str, name: str) -> None:
    """By how its mappings lie, without the kernel's flags."""
    program = PROGRAMS[name]
    process = start(stage, program)
    data = heapx(["--core", str(process.core())], "report", "--json").envelope["data"]
    assert data["split"][0]["program"] == program.owner and data["verdict"]["code"] == "mostly-" + program.kind
    assert data["split"][0]["resident_bytes"] is None and data["split"][0]["dumped_bytes"] > 10 * MIB


def test_ruby(stage: Stage, live: str) -> None:
    """Object heap and malloc each hold much; both are spoken of."""
    data = report(start(stage, Program("ruby", ("ruby", "big.rb"), ("big.rb", RUBY), "", "", "")).pid)
    assert any(part["program"] == "Ruby" and part["name"].endswith("object heap") for part in data["split"])


def test_go(stage: Stage, live: str) -> None:
    """With cgo, so that there is an allocator that is read: the heap is the largest part, wherever it lies."""
    if not shutil.which("go") or not shutil.which("gcc"):
        pytest.skip("go or gcc is not installed")
    folder = stage.folder()
    (folder / "main.go").write_text(GO.replace("package main", 'package main\n// #include <stdlib.h>\nimport "C"').replace("func main() {", "func main() { C.free(C.malloc(100));"))
    (folder / "go.mod").write_text("module big\ngo 1.19\n")
    subprocess.run(["go", "build", "-o", "big", "."], cwd=folder, check=True, env={**os.environ, "CGO_ENABLED": "1"})
    process = stage.spawn_ready([str(folder / "big")], folder)
    judged(report(process.pid), "Go", "runtime", "likely")


def test_the_compiler(stage: Stage, live: str) -> None:
    """cc1plus in the middle of a large file: its own heap, by guess."""
    compiler = shutil.which("g++")
    path = subprocess.run([compiler, "-print-prog-name=cc1plus"], capture_output=True, text=True).stdout.strip() if compiler else ""
    if not os.path.isabs(path):
        pytest.skip("g++ is not installed")
    folder = stage.folder()
    lines = ["#include <map>\n#include <string>\n#include <vector>\n#include <algorithm>"]
    lines += ["struct S%d{int a;std::string b;};int f%d(std::vector<S%d>&v){std::map<int,S%d>m;for(auto&x:v)m[x.a]=x;return m.size();}" % (4 * (n,)) for n in range(4000)]
    (folder / "big.cc").write_text("\n".join(lines))
    process = stage.spawn([path, "-quiet", "-O1", "-g", "-imultiarch", "x86_64-linux-gnu", "big.cc", "-o", "/dev/null"], folder)
    wait_for(lambda: resident(process.pid) > 300 * MIB or process.popen.poll() is not None)
    data = heapx(["--pid", str(process.pid)], "report", "--json").envelope["data"]
    assert (data["split"][0]["program"], data["split"][0]["sure"]) == ("GCC", "guess")


def resident(pid: int) -> int:
    fields = Path("/proc/%d/statm" % pid).read_text().split()
    return int(fields[1]) * os.sysconf("SC_PAGESIZE") if len(fields) > 1 else 0


def test_gunicorn_prefork(stage: Stage, live: str) -> None:
    """What the workers inherited is shared: RSS has it in each, PSS once."""
    folder = stage.folder()
    (folder / "app.py").write_text("data=[{'k%d'%i:[i,str(i)]} for i in range(200000)]\ndef app(e,s):\n    s('200 OK',[]); return [b'x']\n")
    server = daemon(stage, "gunicorn", ["gunicorn", "--preload", "-w", "2", "-b", "unix:%s/socket" % folder, "app:app"], folder)
    wait_for(lambda: len(children(server.pid)) == 2 and resident(children(server.pid)[1]) > 20 * MIB)
    worker = children(server.pid)[0]
    wait_for((folder / "socket").exists)
    data = report(worker)
    judged(data, "CPython", "runtime", "certain")
    assert 2 * data["memory"]["pss_bytes"] < data["memory"]["total_bytes"]
    assert "shared-pages" in [finding["code"] for finding in data["findings"]]


def test_postgres_with_loaded_shared_buffers(stage: Stage, live: str) -> None:
    """The shared memory is told as that, not as files, and the verdict on a backend speaks of it."""
    folder, server, client = postgres(stage, "shared_buffers=512MB")
    subprocess.run([*client, "-c", "create table t as select i, repeat('x',100) w from generate_series(1,400000) i"], check=True)
    query = "select count(*) from t where w like 'x%'; select count(*) from t; select pg_backend_pid(); select pg_sleep(1000)"
    session = stage.spawn([*client, *[word for one in query.split("; ") for word in ("-c", one)]], folder)
    output: List[bytes] = []
    wait_for(lambda: output.append(os.read(session.popen.stdout.fileno(), 100)) or b"".join(output).count(b"\n") >= 3)  # type: ignore[union-attr]
    data = report(int(b"".join(output).split()[2]))
    judged(data, "PostgreSQL", "shared-memory", "likely")
    assert data["memory"]["shared_memory_bytes"] > 40 * MIB > data["memory"]["file_bytes"]
    server.popen.terminate()
    server.popen.wait()


def test_mariadb(stage: Stage, live: str) -> None:
    """The buffer pool is memory that the server has mapped for itself."""
    if os.geteuid() != 0 or not shutil.which("mariadb-install-db"):
        pytest.skip("mariadb-server is not installed, or this is not root")
    folder = stage.folder()
    shutil.chown(folder, "mysql")
    subprocess.run(["mariadb-install-db", "--user=mysql", "--datadir=%s" % (folder / "d")], check=True, capture_output=True)
    options = ["--no-defaults", "--user=mysql", "--datadir=%s" % (folder / "d"), "--socket=%s" % (folder / "s"), "--skip-networking", "--innodb-buffer-pool-size=256M"]
    server = daemon(stage, "mariadbd", ["mariadbd", *options], folder)
    client = ["mariadb", "-S", str(folder / "s"), "-u", "root", "-e"]
    wait_for(lambda: subprocess.run([*client, "select 1"], capture_output=True).returncode == 0)
    text = "create database d; use d; create table t(id int primary key auto_increment, v varchar(200)); insert into t(v) select repeat('x',180) from seq_1_to_400000;"
    subprocess.run([*client, text], check=True)
    data = report(server.pid)
    judged(data, "MariaDB", "runtime", "guess")
    assert any(part["kind"] == "device" and "io_uring" in part["name"] for part in data["split"]) or data["memory"]["device_bytes"] == 0


def test_php_fpm_worker(stage: Stage, live: str) -> None:
    """opcache's shared memory is told apart from files."""
    program = next((name for name in ("php-fpm", *("php-fpm8.%d" % n for n in range(9))) if shutil.which(name)), None)
    if program is None or os.geteuid() != 0:
        pytest.skip("php-fpm is not installed, or this is not root")
    folder = stage.folder()
    (folder / "f.conf").write_text("[global]\nerror_log=%s/err\ndaemonize=no\n[w]\nuser=www-data\nlisten=%s/s\npm=static\npm.max_children=2\n" % (folder, folder))
    server = daemon(stage, program, [program, "-y", str(folder / "f.conf"), "-d", "opcache.enable=1"], folder)
    wait_for(lambda: len(children(server.pid)) == 2)
    data = report(children(server.pid)[0])
    assert any(part["kind"] == "shared-memory" and "opcache" in part["name"] for part in data["split"])


def test_redis_and_nginx(stage: Stage, live: str) -> None:
    """Small servers: their parts add up as well."""
    folder = stage.folder()
    redis = daemon(stage, "redis-server", ["redis-server", "--port", "0", "--unixsocket", str(folder / "r"), "--save", ""], folder)
    wait_for((folder / "r").exists)
    assert "jemalloc" in report(redis.pid)["memory"]["allocators"]
    (folder / "n.conf").write_text(
        "daemon off;pid %s/pid;error_log %s/err;events{}http{access_log off;limit_req_zone $uri zone=a:32m rate=9r/s;server{listen unix:%s/n;}}" % (folder, folder, folder)
    )
    nginx = daemon(stage, "nginx", ["nginx", "-c", str(folder / "n.conf")], folder)
    wait_for(lambda: len(children(nginx.pid)) == 1)
    assert any("shared zones" in part["name"] for part in report(nginx.pid)["split"])
