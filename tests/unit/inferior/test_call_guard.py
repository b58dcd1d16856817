"""gdbheapx/inferior/live/tracer.py without gdb: signals that come in the middle of a call."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
SECONDS = 60
NESTED = """
import os, signal
from gdbheapx.budget import Interrupts
from gdbheapx.inferior.live.tracer import DeferredSignals
heard = []
number = int(signal.%s)
with Interrupts(heard.append) as command:
    for _ in range(2):
        with DeferredSignals():
            pass
    with DeferredSignals():
        os.kill(os.getpid(), number)
        assert not heard
    assert command.heard == [number], command.heard
print("ended", len(heard))
"""


@pytest.mark.parametrize("name", ["SIGTERM", "SIGHUP"])
def test_a_signal_in_the_middle_of_a_call_is_heard_once_after_it(name: str) -> None:
    """By the command's own handler, which is in its place again; a handler that sent it to itself would never end."""
    done = subprocess.run([sys.executable, "-c", NESTED % name], cwd=ROOT, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=SECONDS)
    assert done.stdout == "ended 1\n", done.stderr
