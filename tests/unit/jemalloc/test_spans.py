"""Which code is jemalloc's, by the symbol table of the object that it is linked into.

Files: jemalloc/plan.py.
"""

from typing import List, Tuple

import pytest

from gdbheapx.inferior.base import Function
from gdbheapx.jemalloc import plan
from gdbheapx.jemalloc.plan import GAP_BYTES, MARGIN_BYTES

PREFIX, PUBLIC = "xy_je_", "xy_"
BASE = 0x400000


def spans(*functions: Tuple[int, int, str, bool]) -> List[Tuple[int, int]]:
    """What is enclosed, relative to BASE."""
    listed = sorted(Function(BASE + start, BASE + end, name, local) for start, end, name, local in functions)
    return [(one.start - BASE, one.end - BASE) for one in plan.enclose_functions(listed, PREFIX, PUBLIC)]


def test_static_functions_lie_between_named_ones() -> None:
    """A gap as large as ctl.c's static functions is closed, a larger one is not."""
    near = (
        (0x10000, 0x10100, "xy_je_arena_new", True),
        (0x30000, 0x30100, "arena_i_purge_ctl", True),
        (0x40000, 0x40100, "xy_je_tsd_fetch", True),
    )
    assert spans(*near) == [(0x10000 - MARGIN_BYTES, 0x40100 + MARGIN_BYTES)]
    far = 0x10100 + GAP_BYTES
    assert len(spans(near[0], (far, far + 16, "xy_je_tsd_fetch", True))) == 2


@pytest.mark.parametrize("name, local", [("main", False), ("worker", False), ("_ZN5arrow6BufferD0Ev", True), ("_RNvCs1_4main4main", True)])
def test_no_span_reaches_over_the_programs_own(name: str, local: bool) -> None:
    """main between jemalloc's cold functions and the others: a thread that waits in it is outside."""
    found = spans((0x1000, 0x1100, "xy_je_malloc_default.cold", True), (0x1200, 0x1300, name, local), (0x1400, 0x1500, "xy_malloc", False))
    assert found == [(0x1000 - MARGIN_BYTES, 0x1200), (0x1300, 0x1500 + MARGIN_BYTES)]


def test_public_functions_are_jemallocs_own() -> None:
    """They carry the public prefix alone; another function with it is the program's."""
    assert spans((0x1000, 0x1100, "xy_mallctl", False), (0x1200, 0x1300, "xy_je_arena_new", True)) == [
        (0x1000 - MARGIN_BYTES, 0x1300 + MARGIN_BYTES)
    ]
    assert spans((0x1000, 0x1100, "xy_start", False)) == []


@pytest.mark.parametrize(
    "names, is_one",
    [
        (["malloc", "free", "mallctl", "_Znwm", "_ZdlPvmSt11align_val_t", "_init"], True),
        (["malloc", "free"], False),
        (["malloc", "free", "mallctl", "rocksdb_open"], False),
        ([], False),
    ],
)
def test_a_library_is_known_by_what_it_offers(names: List[str], is_one: bool) -> None:
    """All that it offers is jemalloc's, and mallctl is among it; its file may have any name."""
    assert plan.is_jemalloc_library(iter(names), "", "") == is_one
    assert (
        plan.is_jemalloc_library(iter("xy_" + name if name in ("malloc", "free", "mallctl") else name for name in names), "xy_je_", "xy_") == is_one
    )
