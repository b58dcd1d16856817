"""A damaged rtree: what contradicts is named with its address, the rest is counted, and both kernels say the same."""

from array import array
from typing import Any, List, Tuple

import pytest
from hypothesis import given

from gdbheapx.budget import Budget
from gdbheapx.inferior.base import BytesSource
from gdbheapx.kernel.common.library import Kernel
from gdbheapx.kernel.jemalloc import records as api
from gdbheapx.kernel.jemalloc.walkers import extent_walker
from tests.support import reference_walk
from tests.support.builders import rtree
from tests.support.builders.extent_cases import PAGE, damaged, listed, rows_of, some_heap, walk
from tests.support.builders.rtree import Spec, Variant
from tests.support.searches import search

MANY = search(400)


def codes(result: api.ExtentsResult) -> List[int]:
    assert [result.problem_counts[code] for code in range(api.EXTENT_CODES)] == [
        sum(problem.code == code for problem in result.problems) for code in range(api.EXTENT_CODES)
    ]
    return [problem.code for problem in result.problems]


def set_bits(built: rtree.Built, number: int, field: Any, value: int) -> None:
    place = built.struct_of(number)
    bits = built.get(place, 8) & ~(((1 << field.width) - 1) << field.shift)
    built.put(place, bits | value << field.shift, 8)


@pytest.mark.parametrize("number", [2, 4])
def test_an_extent_on_its_way_is_no_problem(kernel: Kernel, number: int) -> None:
    """Active without a size class, be the slab bit left over or not: neither allocated nor damage, and none of its pages are blocks in use."""
    built = some_heap()
    set_bits(built, number, built.extent.szind, len(built.size_classes))
    result = walk(kernel, built)
    _, begin, end = built.placed[number]
    assert (result.extents, result.problems, result.unparsed_bytes) == (6, (), 0)
    assert result.arenas[0].other == api.StateTotals(1, end - begin, None)
    assert [row for row in listed(kernel, built)[0] if begin <= row[0] < end] == [(begin, end - begin, api.BLOCK_OTHER, 0)]


def test_a_first_page_that_names_nothing_is_said_once(kernel: Kernel) -> None:
    """The other pages of a slab name it: one problem, and its bytes from there on are unparsed."""
    built = some_heap()
    _, begin, end = built.placed[2]
    built.put(built.leaf[begin], 0, 8)
    result = walk(kernel, built)
    assert result.problems == (api.ExtentProblem(api.EXTENT_FIRST_PAGE, begin + PAGE, built.struct_of(2)),)
    assert (result.extents, result.unparsed_bytes) == (5, end - begin - PAGE)


def test_nodes_that_cannot_be(kernel: Kernel) -> None:
    """A node twice, one at an odd address, one at the end of the address space, one that cannot be read: each is named, the rest is whole."""
    built = some_heap()
    whole = walk(kernel, built)
    root = built.rtree.root
    child = next(built.get(root + 8 * place, 8) for place in range(32) if built.get(root + 8 * place, 8))
    for place, value in ((20, child), (21, child + 1), (22, (1 << 64) - 64), (23, 0x3F0000), (24, 0x3F0000)):
        built.put(root + 8 * place, value, 8)
    result = walk(kernel, built)
    twice, odd = api.EXTENT_NODE_TWICE, api.EXTENT_NODE_MISALIGNED
    assert codes(result) == [twice, odd, odd, api.EXTENT_NODE_UNREADABLE, twice]
    assert [problem.page for problem in result.problems] == [child, child + 1, (1 << 64) - 64, 0x3F0000, 0x3F0000]
    assert (result.arenas, result.leaf_nodes) == (whole.arenas, whole.leaf_nodes)
    assert result.unreadable_bytes == 8 << 8


def test_more_nodes_than_memory(kernel: Kernel) -> None:
    """The bound on all nodes together ends the walk, and says at which."""
    built = some_heap()
    result = extent_walker(kernel, built.source, built.heap()._replace(mapped_bytes=32 * 8 + 2047), Budget()).walk(())
    assert codes(result) == [api.EXTENT_TOO_MANY_NODES]
    assert (result.extents, result.nodes) == (0, 1)


def test_only_the_first_problems_are_listed(kernel: Kernel) -> None:
    """All are counted; the list is bounded."""
    built = rtree.build([Spec(1, szind=99)] * 100, Variant((5, 8)))
    result = walk(kernel, built, [1000 + 8 * place for place in range(90)])
    assert (len(result.problems), result.problem_counts[api.EXTENT_SZIND]) == (api.MOST_PROBLEMS, 100)
    assert (len(result.cached_problems), result.cached_problem_counts[api.CACHED_OUTSIDE]) == (api.MOST_PROBLEMS, 90)


@MANY
@given(case=damaged())
def test_damage_is_the_same_to_the_reference_walk(kernel: Kernel, case: Tuple[rtree.Built, BytesSource, List[int]]) -> None:
    """Overwritten words in nodes and structures, wrong pointers and holes: equal in every field, walk and listing."""
    built, source, cached = case
    result = walk(kernel, built, cached, source)
    assert result == reference_walk.walk_extents(source, built.heap(), cached)
    rows = rows_of(extent_walker(kernel, source, built.heap(), Budget()).blocks(array("Q", sorted(cached))))
    assert rows == reference_walk.list_extents(source, built.heap(), cached)
    total = sum(state.extents for arena in result.arenas for state in (arena.active, arena.dirty, arena.muzzy, arena.retained, arena.pinned, arena.other))
    assert total == result.extents
    assert sum(end - begin for begin, end in result.ranges) == sum(
        state.bytes for arena in result.arenas for state in (arena.active, arena.dirty, arena.muzzy, arena.retained, arena.pinned, arena.other)
    )
