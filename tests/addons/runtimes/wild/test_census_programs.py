"""`census` of large third-party programs: what the largest rows say is what the programs say of themselves.

Files: addons/runtimes/block_headers.py.
"""

import shutil
import socket
import subprocess
from pathlib import Path
from typing import Any, Dict

import pytest

from tests.support.gcores import gcore
from tests.support.processes import Process, Stage
from tests.support.runtimes import wait_for
from tests.support.tool import alone

pytestmark = pytest.mark.wild  # Debian: redis-server, sqlite3, nginx-light

KEYS, MORE = 1_000_000, 20_000
FILL = """for i = 1, %d do
redis.call("HSET", "h" .. i, "a", i) redis.call("ZADD", "z", i, "m" .. i) redis.call("SADD", "s", i .. "x")
redis.call("SET", "n" .. i, i + 100000) redis.call("SET", "long" .. i, string.rep("y", 100)) end return redis.call("DBSIZE")"""
ROWS = "with recursive n(i) as (select 1 union all select i + 1 from n where i < 200000) insert into t select i, 'text of row ' || i, i * 0.5 from n;"
DATABASE = "create table t(a integer primary key, b text, c real); %s create index ib on t(b);" % ROWS
COMMANDS = (DATABASE, ".output pages", "select page_count from pragma_page_count;", ".output", "select 'ready';")
NGINX = """daemon off; master_process off; error_log stderr; pid %(folder)s/pid; events { worker_connections 1024; }
http { access_log off; %(paths)s server { listen unix:%(folder)s/socket; location / { return 200 ok; } } }"""
CONNECTIONS, HALF = 300, 100


def rows(process: Process, kind: str) -> Any:
    """(Rows by signature, the answer)."""
    target = process.target("live") if kind == "live" else ["--core", str(gcore(process))]
    data = alone(target, "census", "--json").envelope["data"]
    found: Dict[str, Any] = {row["signature"]: row for row in data["rows"]}
    return found, data


def needs(name: str) -> str:
    """The program's path."""
    path = shutil.which(name) or shutil.which(name, path="/usr/sbin:/usr/local/sbin")
    if path is None:
        pytest.skip("%s is not installed" % name)
    return path


def test_redis(stage: Stage, kind: str) -> None:
    """A million keys: entries, keys and values are as many as there are, and nearly all bytes have a name."""
    server, folder = needs("redis-server"), stage.folder()
    ask = ["redis-cli", "-s", str(folder / "socket")]
    command = [server, "--port", "0", "--unixsocket", str(folder / "socket"), "--save", "", "--enable-debug-command", "yes"]
    process = stage.spawn(command, folder)
    wait_for(lambda: subprocess.run([*ask, "ping"], capture_output=True, text=True).stdout == "PONG\n")
    subprocess.run([*ask, "debug", "populate", str(KEYS), "key", "20"], check=True, capture_output=True)
    size = int(subprocess.run([*ask, "eval", FILL % MORE, "0"], check=True, capture_output=True, text=True).stdout)
    found, data = rows(process, kind)
    assert size == KEYS + 3 * MORE + 2
    assert size + 2 * MORE <= found["dict entry"]["blocks"] <= size + 2 * MORE + 5000  # with those of commands
    assert KEYS <= found["string object with its bytes"]["blocks"] <= KEYS + 1000
    assert size <= found["key (sds)"]["blocks"] <= size + 2 * MORE + 5000
    assert MORE <= found["value (sds)"]["blocks"] <= MORE + 1000
    assert MORE <= found["hash object (listpack)"]["blocks"] <= MORE + 100
    assert data["named_bytes"] >= 0.95 * data["used"]["bytes"]


def test_sqlite(stage: Stage, kind: str) -> None:
    """A database in memory: a block for each of its pages."""
    folder = stage.folder()
    process = stage.spawn_ready([needs("sqlite3"), *(word for command in COMMANDS for word in ("-cmd", command)), ":memory:"], folder)
    pages = int((folder / "pages").read_text())
    found, data = rows(process, kind)
    assert pages <= found["page of 4096 bytes in SQLite's cache"]["blocks"] <= pages + 20
    assert data["named_bytes"] >= 0.95 * data["used"]["bytes"]


def test_nginx(stage: Stage, kind: str) -> None:
    """Pools: one for each connection, one for each request that has begun."""
    server, folder = needs("nginx"), stage.folder()
    paths = "".join("%s_temp_path %s/%s; " % (name, folder, name) for name in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi"))
    (folder / "nginx.conf").write_text(NGINX % {"folder": folder, "paths": paths})
    process = stage.spawn([server, "-c", str(folder / "nginx.conf")], folder)
    wait_for((folder / "socket").exists)
    held = [opened(folder / "socket", b"GET / HTTP/1.1\r\nHost: x\r\n" if number < HALF else b"") for number in range(CONNECTIONS)]
    wait_for(lambda: rows(process, "live")[0].get("ngx_pool_t", {"blocks": 0})["blocks"] >= CONNECTIONS + HALF)
    found, _ = rows(process, kind)
    assert CONNECTIONS + HALF <= found["ngx_pool_t"]["blocks"] <= CONNECTIONS + HALF + 5
    for one in held:
        one.close()


def opened(path: Path, text: bytes) -> socket.socket:
    """A connection, with the begin of a request."""
    made = socket.socket(socket.AF_UNIX)
    made.connect(str(path))
    made.sendall(text)
    return made
