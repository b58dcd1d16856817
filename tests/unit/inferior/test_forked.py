"""Memory of a forked process beside its parent's.

Files: inferior/live/usage.py.
"""

import subprocess
import sys
from typing import List, Optional

import pytest

from gdbheapx.inferior.base import ParentPages
from gdbheapx.inferior.live import procfs, usage

PARENT = """
import os, subprocess, sys
memory = bytearray(os.urandom(24 << 20))
if not os.fork():
    for page in range(0, len(memory), 4096):
        %s
    if "exec" in sys.argv:
        os.execv("/proc/self/exe", [sys.executable, "-c", "import os; a = bytearray(os.urandom(24 << 20)); print(os.getpid(), flush=True); os.read(0, 1)"])
    print(os.getpid(), flush=True)
sys.stdin.read()
"""
READ = "memory[page]"
SAME = "memory[page] = memory[page]"
COUNT = "memory[page] ^= 1"
ZERO = "memory[page:page + 4096] = bytes(4096)"
OTHER = "memory[page:page + 4096] = os.urandom(4096)"


def compare(text: str, *words: str) -> Optional[ParentPages]:
    """Of a child that has done this to each page of 24 MiB."""
    with subprocess.Popen([sys.executable, "-c", PARENT % text, *words], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as parent:
        assert parent.stdout is not None
        child, found = int(parent.stdout.readline()), None
        use, header = usage.make_smaps_usage(*usage.read_smaps_texts(child)), procfs.executable_header(child)
        assert use is not None and header is not None
        found = usage.compare_with_parent(child, use.mappings, procfs.read_process_auxv(child, header))
        assert found is None or found.parent == parent.pid
        assert usage.read_parent(child, use.mappings[0].mapping.start, 4) == b"\x7fELF"
        return found


def counts(found: Optional[ParentPages]) -> List[bool]:
    """Whether most pages are the same, near, and so by their counts."""
    assert found is not None and 24 << 20 <= found.private_bytes < 40 << 20
    return [10 * pages > 8 * found.compared_pages for pages in (found.same_pages, found.near_pages, found.counting_pages)]


def test_what_was_written_decides() -> None:
    """The same again, a few words, all of it: only the first two are copies of what the parent has."""
    same, counted, other = compare(SAME), compare(COUNT), compare(OTHER)
    assert counts(same) == [True, False, False] and counts(counted) == [False, True, True] and counts(other) == [False, False, False]
    assert same is not None and same.copied_bytes > 20 << 20
    assert other is not None and other.copied_bytes < 8 << 20


def test_zeros_are_no_copies() -> None:
    """They are the same in any memory."""
    assert counts(compare(ZERO))[0] is False


@pytest.mark.parametrize("text, words", [(READ, ()), (READ, ("exec",))], ids=["nothing was copied", "another program"])
def test_no_copies(text: str, words: List[str]) -> None:
    """Pages that both share, and a process that has run a program since, even the same one."""
    assert compare(text, *words) is None
