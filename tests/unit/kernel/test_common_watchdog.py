"""A process that Python does not end is ended: whatever the main thread is in, unless it changes another process."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

WATCH = """
import os, re, signal, sys, time
from gdbheapx.kernel.common import watchdog
from gdbheapx import kernel
def heed(number, frame): pass
for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
    signal.signal(number, heed)
watchdog.start_watching(kernel.load_native_library().library, float(sys.argv[1]) or None, lambda error: '{"code": "%s"}' % error.code)
def ready(): os.write(1, b"ready\\n")
"""
REGEX = "ready(); re.match('(a|a)*b', 'a' * 60)"
ASLEEP = "ready(); os.read(os.pipe()[0], 1)"
ONLY_KILL = """
os.mkfifo(sys.argv[2])
ready()
os.posix_spawn("/bin/true", ["true"], {}, file_actions=[(os.POSIX_SPAWN_OPEN, 0, sys.argv[2], os.O_RDONLY, 0)])
"""
HELD = """
watchdog.hold_off()
ready()
until = time.monotonic() + 3
while time.monotonic() < until:
    pass
os.write(1, b"changed\\n")
watchdog.end_hold_off()
while True:
    pass
"""
BOUND_S = 60.0


def program(body: str, seconds: float, *more: str) -> "subprocess.Popen[bytes]":
    """Python with a watchdog, which then does this."""
    words = [sys.executable, "-c", WATCH + body, str(seconds), *more]
    return subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE)


def ended(process: "subprocess.Popen[bytes]", number: int = 0) -> "tuple[str, str]":
    """What it wrote once it was ended, by this signal or its deadline."""
    assert process.stdout is not None
    assert process.stdout.readline() == b"ready\n"
    if number:
        process.send_signal(number)
    out, error = process.communicate(timeout=BOUND_S)
    assert process.returncode == 1
    return out.decode(), error.decode()


@pytest.mark.parametrize("number, name", [(signal.SIGTERM, "SIGTERM"), (signal.SIGINT, "Ctrl-C"), (signal.SIGHUP, "SIGHUP")])
def test_a_signal_ends_who_sleeps(number: int, name: str) -> None:
    """A system call that nobody interrupts: one line, and the document."""
    out, error = ended(program(ASLEEP, 0), number)
    assert (out, error) == ('{"code": "interrupted"}', "gdbheapx: interrupted by %s; no result\n" % name)


def test_the_deadline_ends_who_sleeps() -> None:
    """So does --max-seconds."""
    out, error = ended(program(ASLEEP, 0.1))
    assert out == '{"code": "stopped-early"}' and "--max-seconds 0.1" in error


def test_a_signal_ends_who_holds_the_lock_of_python() -> None:
    """A regular expression lets no other thread of Python run."""
    out, error = ended(program(REGEX, 0), signal.SIGTERM)
    assert "SIGTERM" in error and out == '{"code": "interrupted"}'


def test_a_signal_ends_who_hears_only_sigkill(tmp_path: Path) -> None:
    """The main thread waits for a child before its exec, with all signals blocked; the child waits for a FIFO."""
    fifo = tmp_path / "fifo"
    process = program(ONLY_KILL, 0, str(fifo))
    assert process.stdout is not None
    process.stdout.readline()
    until = time.monotonic() + BOUND_S
    try:
        while state(process.pid) != "D" and time.monotonic() < until:
            time.sleep(0.02)
        process.send_signal(signal.SIGTERM)
        assert process.wait(BOUND_S) == 1
    finally:
        process.kill()
        os.close(os.open(fifo, os.O_RDWR | os.O_NONBLOCK))  # the child goes on, and ends
        process.communicate(timeout=BOUND_S)


def state(pid: int) -> str:
    """The letter of its first thread."""
    return Path("/proc/%d/stat" % pid).read_text().rpartition(")")[2].split()[0]


def test_who_changes_a_process_is_not_ended() -> None:
    """Until it has changed it: then it is."""
    out, error = ended(program(HELD, 0), signal.SIGTERM)
    assert out.startswith("changed\n") and "SIGTERM" in error


def test_files_are_removed(tmp_path: Path) -> None:
    """Those that are not whole; and nothing follows what was written of an answer."""
    half, whole = tmp_path / "half", tmp_path / "whole"
    half.touch()
    whole.touch()
    body = "watchdog.remove_at_end(sys.argv[2]); watchdog.forget_written_file(watchdog.remove_at_end(sys.argv[3])); watchdog.mark_begun()\n" + ASLEEP
    out, _ = ended(program(body, 0, str(half), str(whole)), signal.SIGTERM)
    assert out == "" and not half.exists() and whole.exists()


def test_the_reader_of_an_answer_has_time() -> None:
    """Once all is read, --max-seconds ends nothing."""
    process = program("watchdog.mark_answered(); ready(); time.sleep(4); os.write(1, b'all')", 0.1)
    began = time.monotonic()
    out, error = process.communicate(timeout=BOUND_S)
    assert (process.returncode, out, error) == (0, b"ready\nall", b"") and time.monotonic() - began > 3


def test_python_may_end_by_itself() -> None:
    """A partial answer within a second is left alone."""
    body = "ready(); signal.sigwait([signal.SIGUSR1]) if False else time.sleep(0.1); os.write(1, b'partial'); os._exit(4)"
    process = program(body, 0)
    out, _ = process.communicate(timeout=BOUND_S)
    assert (process.returncode, out) == (4, b"ready\npartial")
