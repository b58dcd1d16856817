"""Servers that nobody here wrote: redis-server, also under load, and named; waiting until one answers."""

import shutil
import signal
import socket
import struct
import time
from typing import Any, Callable, Dict, Tuple

import pytest

from tests.support import at_rest, programs
from tests.support.processes import READY_SECONDS, Process, Stage
from tests.support.victims import Client


def until(what: str, process: Process, attempt: Callable[[], Any]) -> Any:
    """Ask a server that says nothing when it is ready, until it answers."""
    end = time.monotonic() + READY_SECONDS
    while time.monotonic() < end:
        if process.popen.poll() is not None:
            raise AssertionError("%s ended with %s: %s" % (what, process.popen.returncode, process.stderr_path.read_text()[-2000:]))
        try:
            return attempt()
        except OSError:
            time.sleep(0.05)
    raise AssertionError("%s does not answer" % what)


class Redis:
    """redis-server of this system, which Debian links with libjemalloc2."""

    def __init__(self, stage: Stage, conf: str = "", *more: str) -> None:
        program = shutil.which("redis-check-rdb") or pytest.skip("redis-server is not installed (redis-tools)")
        folder = stage.folder()
        (folder / "redis-server").symlink_to(str(program))  # one program, which goes by its name
        self.socket = folder / "socket"
        options = ["--port", "0", "--unixsocket", str(self.socket), "--save", "", "--logfile", str(folder / "log"), "--dir", str(folder), *more]
        self.process = stage.spawn([str(folder / "redis-server"), *options], folder, {"MALLOC_CONF": conf})
        assert until("redis-server", self.process, lambda: self.ask("PING")) == b"+PONG\r\n"
        at_rest.wait(self.process.pid)  # its own threads have begun, too
        if b"jemalloc" not in self.ask("INFO", "memory"):
            pytest.skip("this redis-server is built without jemalloc")

    def ask(self, *words: str) -> bytes:
        """One request's answer."""
        with socket.socket(socket.AF_UNIX) as connection:
            connection.settimeout(READY_SECONDS)
            connection.connect(str(self.socket))
            connection.sendall(request(*words))
            return reply(connection)

    def fill(self, keys: int) -> None:
        """KEYS values of many sizes, every third of them deleted again."""
        with socket.socket(socket.AF_UNIX) as connection:
            connection.settimeout(READY_SECONDS)
            connection.connect(str(self.socket))
            for first in range(0, keys, 500):
                batch = [request("SET", "key:%d" % number, "x" * (1 + number * 7919 % 3000)) for number in range(first, first + 500)]
                batch += [request("DEL", "key:%d" % number) for number in range(first, first + 500, 3)]
                connection.sendall(b"".join(batch))
                for _ in batch:
                    reply(connection)

    def drop(self, keys: int) -> None:
        """The first KEYS of them are gone."""
        assert self.ask("DEL", *("key:%d" % number for number in range(keys))).startswith(b":")

    def memory(self) -> Dict[str, int]:
        """What jemalloc told redis of itself; redis asks only now and then, so until it has and nothing changes any more."""
        told = []  # type: list[dict[str, int]]
        while len(told) < 3 or told[-1]["allocator_allocated"] - told[-3]["allocator_allocated"]:
            lines = (line.split(":") for line in self.ask("INFO", "memory").decode().splitlines() if line.startswith("allocator_"))
            told.append({name: int(value) for name, value in lines if value.isdigit()})
            if len(told) >= 200:
                pytest.skip("redis-server does not come to rest: what it says of its allocator changes from one question to the next")
            time.sleep(0.17)
        return told[-1]


def request(*words: str) -> bytes:
    """A request as redis reads it."""
    return b"*%d\r\n" % len(words) + b"".join(b"$%d\r\n%s\r\n" % (len(word), word.encode()) for word in words)


def reply(connection: socket.socket) -> bytes:
    """One reply: a line, or a text of which the line says the length."""
    line = b""
    while not line.endswith(b"\r\n"):
        line += connection.recv(1)
    if not line.startswith(b"$") or line == b"$-1\r\n":
        return line
    text, length = b"", int(line[1:]) + 2
    while len(text) < length:
        text += connection.recv(length - len(text))
    return text


def redis_asker(redis: Any) -> Any:
    """Sets, reads back and deletes values of many sizes, over one connection; every reply is checked."""
    connection = socket.socket(socket.AF_UNIX)
    connection.settimeout(READY_SECONDS)
    connection.connect(str(redis.socket))
    held = {}  # type: dict[int, str]

    def exchange(*words: str) -> bytes:
        connection.sendall(request(*words))
        return bytes(reply(connection))

    def ask(number: int) -> bool:
        key, size = number % 500, 1 + number * 7919 % 20000
        right = True
        if key in held:
            value = held.pop(key)
            right = exchange("GET", "checked:%d" % key) == value.encode() + b"\r\n"
            right = exchange("DEL", "checked:%d" % key) == b":1\r\n" and right
        held[key] = chr(97 + number % 26) * size
        return exchange("SET", "checked:%d" % key, held[key]) == b"+OK\r\n" and right

    return ask


def redis_under_load(stage: Stage) -> "tuple[Any, Client]":
    """redis-server with keys in it, and a client that checks every reply."""
    redis = Redis(stage)
    redis.fill(20000)
    client = Client(redis_asker(redis))
    client.start()
    return redis, client


NAMED_CONF = """
options {
    directory "%(folder)s"; pid-file "%(folder)s/pid"; session-keyfile "%(folder)s/key"; managed-keys-directory "%(folder)s";
    listen-on port %(port)d { 127.0.0.1; }; listen-on-v6 { none; }; recursion no; dnssec-validation no; notify no;
};
controls { };
zone "example.test" { type primary; file "%(folder)s/zone"; };
"""

ZONE_HEAD = """$TTL 60
@ IN SOA ns.example.test. nobody.example.test. %d 60 60 60 60
@ IN NS ns.example.test.
ns IN A 127.0.0.1
"""


class Named:
    """named of this system, with a zone of so many names."""

    def __init__(self, stage: Stage, names: int = 20000) -> None:
        program = shutil.which("named", path="/usr/sbin") or programs.found("named")
        if program is None:
            pytest.skip("named is not installed (bind9), or not built with jemalloc on this system")
        folder = stage.folder()
        folder.chmod(0o755)
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        (folder / "conf").write_text(NAMED_CONF % {"folder": folder, "port": self.port})
        self.zone = folder / "zone"
        self.write(names)
        self.process = stage.spawn([program, "-g", "-n", "3", "-c", str(folder / "conf")], folder)
        until("named", self.process, lambda: self.address(names - 1))

    def write(self, names: int) -> None:
        """The zone's file, of hosts with an address each."""
        hosts = ("host%d IN A 10.%d.%d.%d\n" % (number, number >> 16, number >> 8 & 255, number & 255) for number in range(names))
        self.zone.write_text(ZONE_HEAD % names + "".join(hosts))

    def load(self, names: int) -> None:
        """The zone grows to so many names; named reads it again, and answers for the last."""
        self.write(names)
        self.process.popen.send_signal(signal.SIGHUP)
        until("named", self.process, lambda: self.address(names - 1))

    def address(self, number: int) -> Tuple[int, ...]:
        """The address of a host, asked over UDP."""
        name = b"".join(bytes([len(label)]) + label for label in (b"host%d" % number, b"example", b"test")) + b"\0"
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as connection:
            connection.settimeout(2)
            connection.connect(("127.0.0.1", self.port))
            connection.send(struct.pack(">6H", number & 0xFFFF, 0x0100, 1, 0, 0, 0) + name + struct.pack(">2H", 1, 1))
            message = connection.recv(4096)
        identity, flags, _, count = struct.unpack_from(">4H", message)
        if flags & 15 or not count:
            raise OSError("the zone is not loaded yet")
        assert identity == number & 0xFFFF
        start = 12 + len(name) + 4 + 12  # the question, then a compressed name, type, class, ttl and length
        return tuple(message[start : start + 4])
