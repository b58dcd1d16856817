"""Servers that nobody here wrote: redis-server, also under load; waiting until one answers."""

import shutil
import socket
import time
from typing import Any, Callable, Dict

import pytest

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
        told = []  # type: List[Dict[str, int]]
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
    held = {}  # type: Dict[int, str]

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
