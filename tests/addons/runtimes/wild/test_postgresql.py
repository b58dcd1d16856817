"""A backend of PostgreSQL: census by memory context, against the server's own view."""

import glob
import os
import shutil
import subprocess
from pathlib import Path
from typing import Dict, Iterator, List

import pytest

from tests.support.processes import Stage
from tests.support.tool import heapx

pytestmark = pytest.mark.wild  # a server that may not be here

USER = "nobody"
VIEW = "select name || '|' || sum(total_bytes) from pg_backend_memory_contexts group by name having sum(total_bytes) > 40000"
LARGE_BYTES, SLACK = 60000, 0.03


class Server:
    """A server of its own with one client."""

    def __init__(self, folder: Path) -> None:
        programs = sorted(glob.glob("/usr/lib/postgresql/*/bin")) + [""]
        self.bin, self.folder = programs[-2] if len(programs) > 1 else "", folder
        if not self.bin or not shutil.which("psql") or not shutil.which("setpriv"):
            pytest.skip("postgresql is not installed")
        self.prefix = ["setpriv", "--reuid=" + USER, "--clear-groups", "--inh-caps=-all"] if os.geteuid() == 0 else []
        folder.chmod(0o777)
        for parent in folder.parents:
            if os.access(parent, os.W_OK) and parent != Path("/") and parent != Path("/tmp"):
                parent.chmod(parent.stat().st_mode | 0o055)
        self.run("initdb", "-D", str(folder / "data"))
        self.run(
            "pg_ctl", "-D", str(folder / "data"), "-w", "-l", str(folder / "log"), "-o", "-k %s -c listen_addresses=" % folder, "start"
        )
        words = [*self.prefix, "psql", "-XAtq", "-h", str(folder), "postgres"]
        self.client = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def run(self, *words: str) -> None:
        """One of its programs."""
        subprocess.run([*self.prefix, self.bin + "/" + words[0], *words[1:]], check=True, stdout=subprocess.DEVNULL, cwd=self.folder)

    def ask(self, statement: str) -> List[str]:
        """Its lines."""
        self.client.stdin.write(statement + ";\n\\echo over\n")
        self.client.stdin.flush()
        return list(iter(lambda: self.client.stdout.readline().rstrip("\n"), "over"))  # type: ignore[union-attr]


@pytest.fixture
def server(stage: Stage) -> Iterator[Server]:
    """It runs for one test."""
    made = Server(stage.folder())
    yield made
    made.client.kill()
    made.client.communicate()
    made.run("pg_ctl", "-D", str(made.folder / "data"), "-m", "immediate", "stop")


def test_memory_contexts(server: Server, stage: Stage) -> None:
    """The bytes of each large context equal the view's within 3 % (malloc rounds up), live and in a core of gdb; nothing is told as another's."""
    server.ask("do $x$ begin for i in 1..100 loop execute format('create table t%s (a int primary key)', i); end loop; end $x$")
    server.ask("do $x$ declare r int; begin for i in 1..100 loop execute format('select count(*) from t%s', i) into r; end loop; end $x$")
    server.ask("begin; declare c cursor for select * from generate_series(1, 100000) g order by random(); fetch 1 from c")
    truth = {name: int(total) for name, total in (line.split("|") for line in server.ask(VIEW))}
    pid = server.ask("select pg_backend_pid()")[0]
    folder = stage.folder()
    subprocess.run(["gcore", "-o", str(folder / "core"), pid], check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    core = folder / ("core." + pid)
    for target in (["--pid", pid], ["--core", str(core)]):
        rows = heapx(target, "census", "--json").data
        told: Dict[str, int] = {}
        for row in rows["rows"]:
            if row["module"] == "postgres" and row["sure"] == "exact":
                told[row["signature"].replace("memory context ", "")] = row["bytes"]
        for name in ("CacheMemoryContext", "ExecutorState", "index info"):
            assert abs(told[name] - truth[name]) <= SLACK * truth[name], (name, told[name], truth[name])
        assert {name for name, total in told.items() if total > LARGE_BYTES} <= set(truth)
        assert rows["named_bytes"] > 0.9 * rows["used"]["bytes"]
        table = next(one for one in heapx(target, "report", "--deep", "--json").data["runtimes"] if one["name"] == "PostgreSQL")
        assert table["sum_bytes"] == sum(row["bytes"] for row in table["rows"])
        lines = {row["name"].replace("malloc: memory context ", ""): row["bytes"] for row in table["rows"] if row["kind"] == "malloc-owned"}
        assert {name: lines[name] for name in told if told[name] > LARGE_BYTES} == {
            name: told[name] for name in told if told[name] > LARGE_BYTES
        }
        assert table["remainder_bytes"] <= table["sum_bytes"] // 20
