"""`make soak ONLY=looks-redis` and `looks-java`: a service answers while it is looked at a thousand times, with and without --short-stop.

Every look must answer (exit code 0, 3 or 4; what is partial says why), and so must the service, rightly. Beside it stands how late it was.
"""

import socket
import time
from collections import Counter
from pathlib import Path
from typing import Any, Callable, Dict, List, Tuple

from tabulate import tabulate

from bench.looks import answer
from bench.stops import short_stop
from tests.support import victims
from tests.support.processes import Process, Stage
from tests.support.servers import Redis, redis_asker, until

LOOKS = ("arenas", "leaks", "census")
EVERY = 50
"""A line of progress after so many looks."""
QUIET_SECONDS = 20
KEYS = 200_000
JAVA = Path(__file__).with_name("Churn.java")


class Timed:
    """A client's question, and how long each answer took."""

    def __init__(self, ask: Callable[[int], bool]) -> None:
        self._ask = ask
        self.took_ms: List[float] = []

    def __call__(self, number: int) -> bool:
        began = time.perf_counter()
        right = self._ask(number)
        self.took_ms.append((time.perf_counter() - began) * 1000)
        return right


def redis(stage: Stage) -> Tuple[Process, Callable[[int], bool]]:
    """redis-server with keys in it."""
    served = Redis(stage)
    served.fill(KEYS)
    return served.process, redis_asker(served)


def java(stage: Stage) -> Tuple[Process, Callable[[int], bool]]:
    """A program of Java's that takes native memory for each request, and keeps the last ones'."""
    folder = stage.folder()
    process = stage.spawn(["java", "-Xmx256m", str(JAVA), str(folder / "port")], folder)
    port = until("java", process, lambda: int((folder / "port").read_text() or 0) or no_port())
    connection = socket.create_connection(("127.0.0.1", port), victims.SECONDS)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    lines = connection.makefile("rb")

    def ask(number: int) -> bool:
        connection.sendall(b"%d\n" % number)
        line = lines.readline()
        if not line:
            raise OSError("the program closed the connection")
        return int(line) == number * 7

    return process, ask


def no_port() -> int:
    """It listens to none yet."""
    raise OSError("no port yet")


SERVICES = {"looks-redis": redis, "looks-java": java}


def rank(values: List[float], share: float) -> float:
    """The value below which so much of them is."""
    return sorted(values)[min(len(values) - 1, int(share * len(values)))]


def row(name: str, took_ms: List[float], looks: int, partial: int, stops_ms: List[float]) -> List[str]:
    """One line of the table."""
    stops = "%.1f / %.1f" % (rank(stops_ms, 0.5), max(stops_ms)) if stops_ms else "-"
    late = ["%.2f" % value for value in (rank(took_ms, 0.5), rank(took_ms, 0.99), rank(took_ms, 0.999), max(took_ms))]
    return [name, str(looks), str(partial), stops, str(len(took_ms)), *late]


def look_at(pid: int, count: int, words: Dict[str, Tuple[str, ...]], check: Callable[[], None]) -> Tuple["Counter[str]", List[float]]:
    """COUNT looks, each of which answers: why some are partial, and how long the process stood still for each."""
    partial: Counter[str] = Counter()
    stops_ms: List[float] = []
    for number in range(count):
        command = LOOKS[number % len(LOOKS)]
        envelope, why = answer(pid, " ".join([command, *words[command]]))
        assert envelope is not None, "look %d, %s, did not answer: %s" % (number + 1, command, why)
        problems: Any = envelope["problems"]
        if envelope["partial"]:
            assert problems, "look %d, %s, is partial, and does not say why" % (number + 1, command)
            partial[problems[0]["code"]] += 1
        target: Any = envelope["target"]
        stops_ms.append(target["stopped_ms"] or 0.0)
        check()
        if (number + 1) % EVERY == 0:
            print("%d of %d looks, %d partial %s" % (number + 1, count, sum(partial.values()), dict(partial)), flush=True)
    return partial, stops_ms


def run(name: str, stage: Stage, count: int) -> int:
    """The service without looks, with them, with those of --short-stop; the table; exit code 1 if anybody was harmed."""
    process, ask = SERVICES[name](stage)
    timed = Timed(ask)
    client = victims.Client(timed)
    client.start()
    rows = []

    def check() -> None:
        victims.check_free(process)
        client.check(process)

    try:
        time.sleep(QUIET_SECONDS)
        rows.append(row("no looks", timed.took_ms[:], 0, 0, []))
        ways: Dict[str, Dict[str, Tuple[str, ...]]] = {"looks": dict.fromkeys(LOOKS, ())}
        if any(short_stop(command) for command in LOOKS):
            ways["looks --short-stop"] = {command: short_stop(command) for command in LOOKS}
        else:
            print("no command has --short-stop: that part is left out", flush=True)
        for way, words in ways.items():
            first = len(timed.took_ms)
            partial, stops_ms = look_at(process.pid, count, words, check)
            rows.append(row(way, timed.took_ms[first:], count, sum(partial.values()), stops_ms))
        client.stop()
    except AssertionError as harm:
        print("%s: HARM: %s" % (name, harm), flush=True)
        return 1
    finally:
        heads = ["%s" % name, "looks", "partial", "stop ms, median / longest", "requests", "p50 ms", "p99 ms", "p99.9 ms", "longest ms"]
        print(tabulate(rows, headers=heads, tablefmt="github", disable_numparse=True), flush=True)
    print("%d requests answered, %d wrong" % (client.answers, client.wrong))
    return 0
