"""How many libraries were unloaded, by the dynamic linker's own count, at whatever place its release has it.

Files: analysis/memory_verdict.py.
"""

import struct
from types import SimpleNamespace
from typing import Any, List, Optional, Sequence

import pytest

from gdbheapx.analysis import memory_verdict
from gdbheapx.analysis.reachability.leaks import LeakGroup, Leaks
from gdbheapx.kernel.blocks.graph import NativeSum
from gdbheapx.model import TargetAddress
from gdbheapx.report import reach_text

pytestmark = pytest.mark.once  # pure functions
MUTEX = [0, 0, 1, 0, 0]


def session(words: Sequence[int], symbol: bool = True, size: Optional[int] = None) -> Any:
    """Of a process whose _rtld_global has these words."""
    data = struct.pack("<%dQ" % len(words), *words)
    target = SimpleNamespace(
        word_bytes=8,
        little_endian=True,
        dynamic_symbol=lambda name: SimpleNamespace(address=0x7F0000000000) if symbol else None,
        symbol_bytes=lambda found: len(data) if size is None else size,
        read_prefix=lambda address, size_bytes: data[:size_bytes],
    )
    return SimpleNamespace(target=target, kept=lambda name, kind, make: make())


def state(mutexes: int = 3, adds: int = 44, loaded: int = 4, namespaces: int = 1, lock: Sequence[int] = MUTEX) -> List[int]:
    """One namespace, entries of the others, the mutexes and the counter."""
    return [0x7F00000052E0, loaded, 0x7F00000055B8, *MUTEX, 0, 7, namespaces, *lock, *(MUTEX * (mutexes - 1)), adds, 0, 0x7F0000001000]


@pytest.mark.parametrize("mutexes", [2, 3], ids=["before 2.35", "since"])
@pytest.mark.parametrize("adds, loaded, gone", [(44, 4, 40), (4, 4, 0), (3, 4, None), (1 << 40, 4, None)])
def test_loads_that_are_gone(mutexes: int, adds: int, loaded: int, gone: Optional[int]) -> None:
    """All that were counted, without those that are there; a count that cannot be is none."""
    assert memory_verdict.count_unloaded(session(state(mutexes, adds, loaded))) == gone


def test_what_is_not_known() -> None:
    """A program without a dynamic linker, one in the middle of a load, more namespaces than one, a state that is cut off."""
    cases = [session(state(), symbol=False), session(state(lock=[1, 4711, 1, 0, 0])), session(state(namespaces=2)), session(state()[:20]), session([]), session(state(), size=1 << 20)]
    assert [memory_verdict.count_unloaded(case) for case in cases] == [None] * len(cases)


@pytest.mark.parametrize("blocks, gone, named", [((40, 80, 7), 40, 2), ((7, 41), 40, 0), ((2,), 2, 0), ((40,), None, 0), ((40,), 0, 0)])
def test_leaks_name_what_agrees(blocks: Sequence[int], gone: Optional[int], named: int) -> None:
    """The sizes of which as many are lost as libraries are gone; of few libraries nothing, for chance has it too."""
    groups = [LeakGroup(None, "root", 1 << 20 + place, count, count << 20 + place, 0, 0, [TargetAddress(0x1000)]) for place, count in enumerate(blocks)]
    answer = Leaks(NativeSum(0, 0), NativeSum(0, 0), {}, NativeSum(100, 100 << 20), sum(blocks), groups, unloaded_libraries=gone)
    said = [str(line) for line in reach_text.make_leaks_page(answer, None) if "unloaded" in str(line)]
    assert [line.count("MiB") for line in said] == [named][: named > 0]
    assert reach_text.make_leaks_data(answer, None, None)["unloaded_libraries"] == gone
