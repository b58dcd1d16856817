"""Memory that the kernel only reserves and the limit of a look, in a process of its own, whose limit it is.

Files: kernel/common/memory.c common/budget.py
"""

import os
import resource
import subprocess
import sys
from typing import List

import pytest

from gdbheapx.common import budget

pytestmark = [
    pytest.mark.skipif(resource.getrlimit(resource.RLIMIT_DATA)[1] != resource.RLIM_INFINITY, reason="its data is limited already"),
    pytest.mark.skipif("HEAPX_TEST_LIBRARY" in os.environ, reason="a sanitizer reserves more than any limit"),
]
RESERVED_BYTES = 1 << 30
PROGRAM = """
import os, resource, sys
from gdbheapx.common import budget
from gdbheapx.kernel import binding
from gdbheapx.inferior.base import PageTable
from gdbheapx.kernel.common.copy import Copy
budget._allowed_bytes = lambda: 256 << 20
if sys.argv[1] == "look":
    budget.limit_look()
else:
    resource.setrlimit(resource.RLIMIT_DATA, (512 << 20, -1))
limit = lambda: resource.getrlimit(resource.RLIMIT_DATA)[0]
before, copy = limit(), Copy(binding.open_kernel(sys.argv[2]).library, PageTable(os.getpid(), False, False, -1, ()))
try:
    copy.set([(1 << 40, (1 << 40) + %d, 0)])
    print("reserved", limit() >= before + %d, list(budget._of_process()))
except MemoryError:
    print("refused", limit() == before)
try:
    bytearray(800 << 20)
except MemoryError:
    print("limited")
del copy
print(limit() == before)
""" % (RESERVED_BYTES, RESERVED_BYTES)


def said(who: str, library: str) -> List[str]:
    """What the program prints whose limit is of a look, or somebody else's."""
    names = {name: value for name, value in os.environ.items() if name != budget.LIMITED}
    words = [sys.executable, "-c", PROGRAM, who, library]
    return subprocess.run(words, env=names, check=True, stdout=subprocess.PIPE, text=True, timeout=120).stdout.splitlines()


def test_a_reserve_is_not_for_the_limit_of_a_look(c_library: str) -> None:
    """So a process of a third of what is left can be copied; what is used at once stays limited."""
    assert said("look", c_library) == ["reserved True []", "limited", "True"]


def test_a_limit_of_somebody_else_stays(c_library: str) -> None:
    """What the kernel reserves is refused beyond it."""
    assert said("other", c_library) == ["refused True", "limited", "True"]
