"""gdbheapx/budget.py, each case in a Python of its own."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SECONDS = 60
HEAD = """
import os, signal, time
from gdbheapx.budget import SAME_S, Interrupts
heard, number = [], int(signal.%s)
def send():
    os.kill(os.getpid(), number)
"""
TWICE_AT_ONCE = """
with Interrupts(heard.append) as interrupts:
    send(); send()
print(len(heard), len(interrupts.heard))
"""
TWICE = """
try:
    with Interrupts(heard.append) as interrupts:
        send(); time.sleep(SAME_S * 1.1); send()
except KeyboardInterrupt:
    print(len(heard), len(interrupts.heard))
"""
AFTERWARDS = """
with Interrupts(heard.append, restores=False) as interrupts:
    send()
send()
print(len(heard), len(interrupts.heard))
"""
RESTORED = """
signal.signal(number, lambda number, frame: print("mine", end=" "))
with Interrupts(heard.append) as interrupts:
    send()
send()
print(len(heard), len(interrupts.heard))
"""
NONE_CAME = """
before = signal.getsignal(number)
with Interrupts(heard.append, restores=False) as interrupts:
    pass
print(signal.getsignal(number) == before)
"""


@pytest.mark.parametrize("name", ["SIGINT", "SIGTERM", "SIGHUP"])
@pytest.mark.parametrize(
    "code, printed",
    [(TWICE_AT_ONCE, "1 1"), (TWICE, "1 2"), (AFTERWARDS, "1 1"), (RESTORED, "mine 1 1"), (NONE_CAME, "True")],
    ids=["twice at once", "twice", "afterwards", "restored", "none came"],
)
def test_what_is_heard(name: str, code: str, printed: str) -> None:
    """The first asks; the same once more at once is the same; a later one stops; after a command that ends its process it takes nothing away."""
    words = [sys.executable, "-c", HEAD % name + code]
    done = subprocess.run(words, cwd=ROOT, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=SECONDS)
    assert done.stdout == printed + "\n", done.stderr
