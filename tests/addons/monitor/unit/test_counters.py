"""What the kernel counts for a process, read again and again."""

import os
import subprocess
import sys

import pytest

from gdbheapx.addons.monitor.watch.counters import Counters

PAGE = os.sysconf("SC_PAGESIZE")


def test_of_this_process() -> None:
    """RSS, anonymous memory and threads are those of /proc; the pages are counted too."""
    counters = Counters(os.getpid())
    found, pages = counters.read(), counters.pages()
    assert found is not None and found.threads is not None and found.threads >= 1
    assert 0 < found.anonymous_bytes < found.resident_bytes and found.resident_bytes % PAGE == 0
    if pages is not None:
        assert pages.resident_bytes and abs(pages.resident_bytes - found.resident_bytes) < max(found.resident_bytes // 2, 8 << 20)


@pytest.mark.parametrize("is_reaped", [False, True])
def test_a_process_that_has_ended(is_reaped: bool) -> None:
    """None, also while it waits to be reaped; the folder that was opened belongs to it alone."""
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    counters = Counters(child.pid)
    assert counters.read() is not None
    assert child.stdin is not None
    child.stdin.close()
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
    if is_reaped:
        child.wait()
    assert counters.read() is None and counters.pages() is None
    child.wait()


@pytest.mark.parametrize("name", [b"a\nThreads:\t99", b"\x1b[31m", b"\xff\xfe", b"=1+1"])
def test_a_name_is_data(name: bytes) -> None:
    """A program that calls itself a line of status changes no figure; bytes that are no UTF-8 are replaced."""
    program = "import ctypes, sys; ctypes.CDLL(None).prctl(15, bytes.fromhex(sys.argv[1]), 0, 0, 0); print(1, flush=True); input()"
    child = subprocess.Popen([sys.executable, "-c", program, name.hex()], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert child.stdout is not None and child.stdin is not None
    child.stdout.readline()
    counters = Counters(child.pid)
    found = counters.read()
    assert found is not None and found.threads == 1
    assert counters.name() == name[:15].decode("utf-8", "replace")
    child.stdin.close()
    child.wait()
    child.stdout.close()
