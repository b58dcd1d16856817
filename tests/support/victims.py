"""Processes that notice when they are harmed: what they say of themselves, requests that check every answer, and rounds of the tool.

victim.c checks its own data, registers, return values and times; victim_parked.c waits in a state in which nobody may call into it.
"""

import contextlib
import json
import os
import signal
import socket
import struct
import threading
import time
from collections import Counter
from pathlib import Path
from typing import Any, Callable, Dict, List, NamedTuple, Optional, Sequence

import pytest

from tests.support.processes import Process, Stage
from tests.support.tool import Outcome, heapx

ACCOUNT = struct.Struct("<16sQQQQqq")
ROUNDS = 4
"""Of one action on one process; each image of the matrix adds its own, and `make soak` does a thousand."""
NICE = 10
"""Who hammers malloc for as long as it lives takes what the tests beside it leave of the CPUs: it is as likely inside malloc when it is stopped."""
SECONDS = 120
"""Who has not gone on by then hangs."""
QUEUED = signal.SIGRTMIN
"""The signal that victim.c counts; queued, so none is merged with another."""


class Account(NamedTuple):
    """What one thread of victim.c says."""

    name: str
    lwp: int
    rounds: int
    wrong: int
    interrupted: int
    line: int
    value: int


class Victim:
    """victim.c, whichever its state."""

    def __init__(self, process: Process) -> None:
        self.process = process
        self.pid = process.pid
        be_nice(self.pid)

    def accounts(self) -> Dict[str, Account]:
        """By thread."""
        data = self.process.record()
        count = struct.unpack_from("<Q", data)[0]
        rows = [ACCOUNT.unpack_from(data, 16 + number * ACCOUNT.size) for number in range(count)]
        return {row[0].rstrip(b"\0").decode(): Account(row[0].rstrip(b"\0").decode(), *row[1:]) for row in rows}

    def signals(self) -> int:
        """How many signals arrived."""
        return int(struct.unpack_from("<Q", self.process.record(), 8)[0])

    def check_well(self) -> None:
        """It lives, nobody traces or stops it, no answer was wrong, and every thread goes on working."""
        check_free(self.process)
        before = self.accounts()
        idle = {"server"}  # it waits for requests

        def all_went_on() -> bool:
            after = self.accounts()
            return all(after[name].rounds > before[name].rounds for name in before if name not in idle)

        until(all_went_on, lambda: "hangs: %s" % [name for name, one in self.accounts().items() if one.rounds == before[name].rounds], self.process)
        wrong = [one for one in self.accounts().values() if one.wrong]
        assert not wrong, "wrong answers: %s" % wrong

    def interrupted(self) -> int:
        """EINTR of epoll_wait and nanosleep, which any attach gives."""
        return sum(one.interrupted for one in self.accounts().values())


def be_nice(pid: int) -> None:
    """Each thread that it has leaves the CPUs to others."""
    for task in os.listdir("/proc/%d/task" % pid):
        with contextlib.suppress(ProcessLookupError):
            os.setpriority(os.PRIO_PROCESS, int(task), NICE)


def status(pid: int, key: str) -> str:
    """A line of /proc/PID/status."""
    for line in Path("/proc/%d/status" % pid).read_text().splitlines():
        if line.startswith(key + ":"):
            return line.split(":", 1)[1].strip()
    raise KeyError(key)


def check_free(process: Process) -> None:
    """The process lives, is traced by nobody and not stopped."""
    assert process.popen.poll() is None, "the process ended with %s: %s" % (process.popen.returncode, process.stderr_path.read_text()[-1000:])
    for task in os.listdir("/proc/%d/task" % process.pid):
        state = status(int(task), "State")
        assert state[0] not in "tTZX", "thread %s is in state %s" % (task, state)
    assert status(process.pid, "TracerPid") == "0"


def until(condition: Callable[[], bool], what: Callable[[], str], process: Process) -> None:
    """Wait for what the process does by itself; fails after SECONDS or when the process ends."""
    end = time.monotonic() + SECONDS
    while not condition():
        assert process.popen.poll() is None, "the process ended with %s" % process.popen.returncode
        assert time.monotonic() < end, what()
        time.sleep(0.005)


# ---------------------------------------------------------------------------------------------------- clients


class Client(threading.Thread):
    """Asks for as long as it is not stopped and checks every answer; the sender of counted signals too."""

    def __init__(self, ask: Callable[[int], bool], pid: Optional[int] = None) -> None:
        super().__init__(daemon=True)
        self._ask = ask
        self._pid = pid
        self._ended = threading.Event()
        self.answers = 0
        self.wrong = 0
        self.sent = 0
        self.failure = None  # type: Optional[BaseException]

    def run(self) -> None:
        """Until stop."""
        number = 0
        try:
            while not self._ended.is_set():
                number += 1
                if self._ask(number):
                    self.answers += 1
                else:
                    self.wrong += 1
                if self._pid and number % 4 == 0:
                    os.kill(self._pid, QUEUED)
                    self.sent += 1
                self._ended.wait(0.002)
        except BaseException as failure:
            self.failure = failure

    def check(self, process: Process) -> None:
        """It gets answers now, and none was ever wrong."""
        before = self.answers
        until(lambda: self.answers > before + 1 or self.wrong > 0 or self.failure is not None, lambda: "the server answers no more", process)
        assert self.failure is None, "the server broke off: %r" % self.failure
        assert self.wrong == 0, "%d of %d answers were wrong" % (self.wrong, self.answers)

    def stop(self) -> None:
        """Ask no more."""
        self._ended.set()
        self.join(SECONDS)
        assert not self.is_alive(), "the server does not answer the last request"


def numbers(seed: int, count: int) -> bytes:
    """The answer that victim.c must give: xorshift64*."""
    words = []
    for _ in range(count):
        seed ^= seed >> 12
        seed = (seed ^ seed << 25) & (1 << 64) - 1
        seed ^= seed >> 27
        words.append(seed * 0x2545F4914F6CDD1D & (1 << 64) - 1)
    return struct.pack("<%dQ" % count, *words)


def asker(path: str) -> Callable[[int], bool]:
    """Requests to victim.c's socket, over one connection."""
    connection = socket.socket(socket.AF_UNIX)
    connection.settimeout(SECONDS)
    end = time.monotonic() + SECONDS
    while True:
        try:
            connection.connect(path)
            break
        except OSError:
            assert time.monotonic() < end, "the server does not listen"
            time.sleep(0.01)

    def ask(number: int) -> bool:
        seed, count = number * 2654435761 + 1, 1 + number * 7919 % 600
        connection.sendall(struct.pack("<2Q", seed, count))
        answer = b""
        while len(answer) < 8 * count:
            piece = connection.recv(8 * count - len(answer))
            if not piece:
                raise OSError("the server closed the connection")
            answer += piece
        return answer == numbers(seed, count)

    return ask


class Server(NamedTuple):
    """victim.c as a server under load, and its client."""

    victim: Victim
    client: Client

    def check_well(self) -> None:
        """Nobody was harmed so far."""
        self.victim.check_well()
        self.client.check(self.victim.process)

    def end(self) -> None:
        """No request was lost, and every signal arrived once."""
        self.client.stop()
        until(
            lambda: self.victim.signals() >= self.client.sent,
            lambda: "%d signals sent, %d arrived" % (self.client.sent, self.victim.signals()),
            self.victim.process,
        )
        assert self.victim.signals() == self.client.sent
        self.victim.check_well()


def server(stage: Stage, env: Optional[Dict[str, str]] = None) -> Server:
    """Start victim.c as a server, and a client and sender of signals for it."""
    path = str(stage.folder() / "socket")
    victim = Victim(stage.start("victim", "server", path, env=env))
    client = Client(asker(path), victim.pid)
    client.start()
    return Server(victim, client)


# ---------------------------------------------------------------------------------------------------- rounds


class Rounds:
    """What became of a number of rounds."""

    def __init__(self) -> None:
        self.done = 0
        self.waited = 0
        self.refused = Counter()  # type: Counter[str]
        self.ways = Counter()  # type: Counter[str]
        self.places = Counter()  # type: Counter[str]
        self.tries = 0
        self.stopped_ms = []  # type: List[float]
        self.given_back_bytes = 0

    def count(self, outcome: Outcome) -> None:
        """One run of trim or purge with --json; anything but done or refused in one line is a failure."""
        lines = outcome.stderr.strip().splitlines()
        assert outcome.code in (0, 1), "exit code %d: %s" % (outcome.code, outcome.stderr[-1000:])
        envelope = outcome.envelope
        if outcome.code == 1:
            assert envelope["data"] is None
            assert lines and lines[-1].startswith("gdbheapx: "), outcome.stderr[-1000:]
            self.refused[reason(lines[-1])] += 1
            return
        self.note(envelope["data"])

    def note(self, data: Dict[str, Any]) -> None:
        """What came of one call."""
        assert data["way"] in ("gdb-call", "register-call"), data
        assert data["returned"] is not None and data["trouble"] is None, data
        self.done += 1
        self.waited += data["tries"] > 1
        self.tries += data["tries"]
        self.places[data["thread"]["place"] if isinstance(data["thread"], dict) else data["thread"][2]] += 1
        self.ways[data["way"] + (" (%s)" % data["way_reason"] if data["way_reason"] else "")] += 1
        self.stopped_ms.append(data["stopped_ms"])
        self.given_back_bytes -= data["anonymous_diff_bytes"] or 0

    def table(self) -> List[List[str]]:
        """done, waited, refused by reason."""
        rows = [["done", str(self.done)], ["  of these after waiting", str(self.waited)]]
        rows += [["  by " + way, str(number)] for way, number in sorted(self.ways.items())]
        rows += [["  on a thread in: " + place, str(number)] for place, number in sorted(self.places.items())]
        rows.append(["refused", str(sum(self.refused.values()))])
        return rows + [["  " + why, str(number)] for why, number in self.refused.most_common()]


def reason(line: str) -> str:
    """A refusal without what differs from round to round."""
    words = []
    for word in line[len("gdbheapx: ") :].split(";")[0].split():
        bare = word.strip("(),.:")
        words.append(word.replace(bare, "N") if bare.isdigit() or bare.startswith("0x") else word)
    return " ".join(words)


def rounds(count: int, target: Sequence[str], words: Sequence[str], check: Callable[[], None], table: Optional[Rounds] = None) -> Rounds:
    """COUNT times: the tool attaches, acts, detaches; then nobody was harmed."""
    table = table or Rounds()
    for _ in range(count):
        table.count(heapx(target, *words, "--yes", "--json"))
        check()
    return table


# ---------------------------------------------------------------------------------------------------- parked


class Parked:
    """victim_parked.c in one of its states."""

    def __init__(self, process: Process) -> None:
        self.process = process
        self.pid = process.pid

    def _words(self) -> Sequence[int]:
        return self.process.words()

    @property
    def lwp(self) -> int:
        """The thread in question."""
        return int(self._words()[1])

    @property
    def child(self) -> int:
        """The vfork child."""
        return int(self._words()[5])

    @property
    def pending(self) -> int:
        """Signals that came once they were unblocked: SIGUSR1 counts 1, a queued one 1,000."""
        return int(self._words()[4])

    def go(self) -> None:
        """Leave the state, and serve: it does, and nothing was wrong."""
        self.go_later()
        self.check_serves()

    def go_later(self) -> None:
        """Leave the state as soon as it can run."""
        with open(self.process.record_path, "r+b") as record:
            record.write(struct.pack("<Q", 1))

    def check_serves(self) -> None:
        """It serves, after whatever happened."""
        served = self._words()[2]
        until(lambda: self._words()[2] > served + 3, lambda: "serves no more", self.process)
        check_free(self.process)
        assert self._words()[3] == 0, "%d answers were wrong" % self._words()[3]


def start_parked(stage: Stage, state: str) -> Any:
    """victim_parked in a state; skips where the kernel's page guards are not permitted."""
    try:
        return stage.start("victim_parked", state)
    except AssertionError as failure:
        if "no userfaultfd" in str(failure):
            pytest.skip("userfaultfd is not permitted here, so no thread can be held inside malloc")
        raise


def refusal(outcome: Outcome) -> str:
    """The one line of a refusal, exit code 1, without a thing on standard output; fails on anything else."""
    assert outcome.code == 1, "exit code %d, %r, %s" % (outcome.code, outcome.stdout[-500:], outcome.stderr[-1000:])
    if outcome.stdout:
        assert json.loads(outcome.stdout)["data"] is None
    lines = [line for line in outcome.stderr.splitlines() if line.startswith("gdbheapx: ")]
    assert len(lines) == 1, outcome.stderr[-1000:]
    return lines[0]


def pending_of(pid: int) -> Dict[str, Any]:
    """Signals that wait: for the process, and for each thread."""
    tasks = sorted(int(task) for task in os.listdir("/proc/%d/task" % pid))
    return {"process": status(pid, "ShdPnd"), "threads": {task: status(task, "SigPnd") for task in tasks}, "blocked": status(pid, "SigBlk")}
