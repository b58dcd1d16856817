"""More servers that fork: a worker of php-fpm, a backend of PostgreSQL. What trim foretells leaves the RSS, and of it what is the process's own the machine."""

import os
import shutil
import socket
import struct
from pathlib import Path

import pytest

from tests.support import forked
from tests.support.forked import MIB
from tests.support.processes import Stage
from tests.support.runtimes import children, daemon, postgres, wait_for

pytestmark = pytest.mark.wild  # PHP, PostgreSQL

PHP = """<?php $k = []; for ($i = 0; $i < 3000; $i++) { $k[] = str_repeat('x', 600 + $i * 7919 % 30000); if ($i % 8 == 0) preg_match('/a' . $i . 'b+/', ''); }
unset($k); echo getmypid();"""
"""Compiled patterns outlive the request: they lie between what was freed with it."""


def fastcgi(path: Path, script: Path) -> bytes:
    """The answer of one FastCGI request to a script, headers included."""

    def record(kind: int, content: bytes) -> bytes:
        return struct.pack(">BBHHBB", 1, kind, 1, len(content), 0, 0) + content

    values = {b"SCRIPT_FILENAME": bytes(script), b"REQUEST_METHOD": b"GET"}
    pairs = b"".join(bytes((len(name), len(value))) + name + value for name, value in values.items())
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(60)
        connection.connect(str(path))
        connection.sendall(record(1, struct.pack(">HB5x", 1, 0)) + record(4, pairs) + record(4, b"") + record(5, b""))
        with connection.makefile("rb") as answer:
            got = b""
            while True:
                _, kind, _, length, padding, _ = struct.unpack(">BBHHBB", answer.read(8))
                content = answer.read(length + padding)[:length]
                if kind == 3:
                    return got
                got += content if kind == 6 else b""


def test_php_fpm_worker(stage: Stage, live: str) -> None:
    """Its requests' memory is malloc's with USE_ZEND_ALLOC=0; the other worker and the master, which share what was there before, keep theirs."""
    program = next((name for name in ("php-fpm", *("php-fpm8.%d" % n for n in range(9))) if shutil.which(name)), None)
    if program is None or os.geteuid() != 0:
        pytest.skip("php-fpm is not installed, or this is not root")
    folder = stage.folder()
    folder.chmod(0o755)
    (folder / "big.php").write_text(PHP)
    (folder / "f.conf").write_text(
        "[global]\nerror_log=%s/err\ndaemonize=no\n[w]\nuser=www-data\nlisten=%s/s\nlisten.mode=0666\npm=static\npm.max_children=2\n" % (folder, folder)
    )
    server = daemon(stage, program, [program, "-y", str(folder / "f.conf")], folder, {"USE_ZEND_ALLOC": "0"})
    wait_for(lambda: len(children(server.pid)) == 2 and (folder / "s").exists())
    worker = int(fastcgi(folder / "s", folder / "big.php").rpartition(b"\r\n\r\n")[2])
    family = forked.descendants(server.pid)
    assert worker in family[1:]
    for pid in (worker, *[one for one in family if one != worker]):
        taken = forked.act(pid, family, "trim")
        forked.check(taken)
        assert pid != worker or taken.foretold_exclusive > 20 * MIB, taken
    assert fastcgi(folder / "s", folder / "big.php")


def test_postgres_backend(stage: Stage, live: str) -> None:
    """A backend's memory after a large query is its own; the postmaster's free pages are shared with every backend, and no part of exclusive."""
    folder, server, client = postgres(stage)
    session = stage.spawn(client, folder)
    query = "set work_mem='400MB'; select pg_backend_pid() from (select i, repeat('x', 80) from generate_series(1, 200000) i order by md5(i::text)) t limit 1;\n"
    query += "do $$ declare a text[]; begin for i in 1..20000 loop a[i] := repeat('y', 5000); end loop; end $$; select 42;\n"
    assert session.popen.stdin and session.popen.stdout
    session.popen.stdin.write(query.encode())
    session.popen.stdin.flush()
    backend = int(session.popen.stdout.readline())
    assert session.popen.stdout.readline() == b"42\n"
    postmaster = int((folder / "d" / "postmaster.pid").read_text().split()[0])
    family = forked.descendants(postmaster)
    inherited = forked.predicted(postmaster, "trim")
    assert inherited["resident"] > inherited["exclusive"]
    taken = forked.act(backend, family, "trim")
    forked.check(taken)
    assert taken.foretold > 2 * MIB, taken
    session.popen.stdin.write(b"select 6*7;\n")
    session.popen.stdin.flush()
    assert session.popen.stdout.readline() == b"42\n", "the backend serves on"
    server.popen.terminate()
    server.popen.wait()
