"""A damaged rtree: what contradicts is named with its address, the rest is counted, and both kernels say the same."""

from array import array
from typing import Any, List, Tuple

import pytest
from hypothesis import given

from gdbheapx.budget import Budget
from gdbheapx.inferior.base import BytesSource
from gdbheapx.kernel.common.library import Kernel
from gdbheapx.kernel.common.records import STOP_END
from gdbheapx.kernel.jemalloc import records as api
from gdbheapx.kernel.jemalloc.walkers import extent_walker
from tests.support import reference_walk
from tests.support.builders import rtree, rtree_truth
from tests.support.builders.extent_cases import PADDED, PAGE, damaged, listed, rows_of, some_heap, walk
from tests.support.builders.rtree import BINS, UNASSOCIATED, Spec, Variant
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


@pytest.mark.parametrize(
    "number, field, value, code",
    [
        (0, "arena", 5, api.EXTENT_ARENA),
        (3, "state", 6, api.EXTENT_STATE),
        (1, "szind", 13, api.EXTENT_SZIND),
        (1, "szind", BINS, api.EXTENT_SZIND),
        (4, "szind", 13, api.EXTENT_SZIND),
        (1, "szind", 1, api.EXTENT_SLAB_SIZE),
        (2, "nfree", 7, api.EXTENT_BITMAP),
        (2, "nfree", 300, api.EXTENT_BITMAP),
    ],
)
def test_a_wrong_field_is_named(kernel: Kernel, number: int, field: str, value: int, code: int) -> None:
    """One extent with a field that cannot be: its page and its structure are named, its bytes are unparsed, all others are counted."""
    built = some_heap()
    set_bits(built, number, getattr(built.extent, field), value)
    result = walk(kernel, built)
    _, begin, end = built.placed[number]
    assert result.problems == (api.ExtentProblem(code, begin, built.struct_of(number)),)
    assert (result.extents, result.unparsed_bytes, result.stop) == (5, end - begin, STOP_END)
    whole = rtree_truth.expected(built)
    assert sum(area.active.bytes + area.dirty.bytes + area.retained.bytes for area in result.arenas) == sum(
        area.active.bytes + area.dirty.bytes + area.retained.bytes for area in whole.arenas
    ) - (end - begin)
    assert len(listed(kernel, built)[0]) < len(rtree_truth.blocks(built, (), PADDED))


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


def test_an_extent_of_no_arena_is_no_problem(kernel: Kernel) -> None:
    """All bits of the arena index set: left out, not complained of."""
    built = some_heap()
    set_bits(built, 4, built.extent.arena, UNASSOCIATED)
    result = walk(kernel, built)
    assert (result.extents, result.unassociated_extents, result.problems, result.unparsed_bytes) == (5, 1, (), 0)


@pytest.mark.parametrize(
    "size, code, unparsed",
    [
        (0, api.EXTENT_SIZE, 0),
        (1 << 40, api.EXTENT_SIZE, 0),
        (5 * PAGE, api.EXTENT_LAST_PAGE, 5 * PAGE),
        (7 * PAGE, api.EXTENT_LAST_PAGE, 7 * PAGE),
        (8 * PAGE, api.EXTENT_OVERLAP, 7 * PAGE),
    ],
)
def test_a_wrong_size_is_found_by_the_last_page(kernel: Kernel, size: int, code: int, unparsed: int) -> None:
    """A size that is not the extent's leads to a leaf element that does not name it, or to another extent."""
    built = some_heap()
    built.put(built.struct_of(4) + built.extent.size_offset, size | 5, 8)
    result = walk(kernel, built)
    assert codes(result) == [code]
    assert result.problems[0][1:] == (built.placed[4][1], built.struct_of(4))
    assert (result.extents, result.unparsed_bytes) == (5, unparsed)


def test_the_low_bits_of_the_size_are_another_field(kernel: Kernel) -> None:
    """e_size_esn: whatever stands below the page size changes nothing."""
    built = some_heap()
    before = walk(kernel, built)
    built.put(built.struct_of(4) + built.extent.size_offset, 6 * PAGE | 0xABC, 8)
    assert walk(kernel, built) == before


def test_an_extent_elsewhere_is_stale(kernel: Kernel) -> None:
    """A leaf element that names an extent which lies elsewhere is said once, and the extent is counted where it lies."""
    built = some_heap()
    page = built.placed[4][1] + 2 * PAGE    # inside a large extent
    rest = built.rtree.leaf_bytes * 2
    built.put(built.leaf[built.placed[4][1]] + rest, built.struct_of(5), 8)
    result = walk(kernel, built)
    assert result.problems == (api.ExtentProblem(api.EXTENT_STALE, page, built.struct_of(5)),)
    assert result._replace(problems=(), problem_counts=(0,) * api.EXTENT_CODES) == rtree_truth.expected(built)


def test_a_first_page_that_names_nothing_is_said_once(kernel: Kernel) -> None:
    """The other pages of a slab name it: one problem, and its bytes from there on are unparsed."""
    built = some_heap()
    _, begin, end = built.placed[2]
    built.put(built.leaf[begin], 0, 8)
    result = walk(kernel, built)
    assert result.problems == (api.ExtentProblem(api.EXTENT_FIRST_PAGE, begin + PAGE, built.struct_of(2)),)
    assert (result.extents, result.unparsed_bytes) == (5, end - begin - PAGE)


def test_an_unreadable_structure_is_said_once(kernel: Kernel) -> None:
    """All three pages of a slab name a structure that cannot be read: one problem, nothing known of its size."""
    built = some_heap()
    for page in range(built.placed[2][1], built.placed[2][2], PAGE):
        built.put(built.leaf[page], 0x300000, 8)
    result = walk(kernel, built)
    assert result.problems == (api.ExtentProblem(api.EXTENT_UNREADABLE, built.placed[2][1], 0x300000),)
    assert (result.extents, result.unparsed_bytes) == (5, 0)


def test_a_compact_word_without_extent_is_nothing(kernel: Kernel) -> None:
    """Deregistering leaves the number of size classes in the word: no extent, no problem."""
    built = some_heap()
    before = walk(kernel, built)
    built.put(built.leaf[built.placed[4][1]] + 3 * built.rtree.leaf_bytes, 232 << built.rtree.lg_vaddr, 8)
    assert walk(kernel, built) == before


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


@pytest.mark.parametrize("variant", [Variant((5, 12)), Variant((5, 12), compact=False, word=4)])
def test_a_hole_in_a_node(kernel: Kernel, variant: Variant) -> None:
    """Pages of a leaf node that were not dumped: the hole is named, what is behind it is counted, what reaches into it is believed."""
    page = 1 << variant.lg_page
    built = rtree.build([Spec(1), Spec(700), Spec(800), Spec(1, gap=600), Spec(1, gap=100)], variant)
    first = built.leaf[built.placed[0][1]]
    node = max(begin for begin in built.pieces if begin <= first)
    element = built.rtree.leaf_bytes
    # the hole takes the last element of the second extent and both of the third
    hole = (node + element * 300 | 4095) + 1
    assert hole <= built.leaf[built.placed[1][2] - page]
    end = (built.leaf[built.placed[2][2] - page] | 4095) + 1
    data = built.pieces[node]
    built.pieces[node], built.pieces[end] = data[: hole - node], data[end - node :]
    cached = [built.placed[0][1], built.placed[2][1], built.placed[4][1] + 5 * page]
    result = walk(kernel, built, cached)
    assert codes(result) == [api.EXTENT_NODE_HOLE]
    assert hole - element < result.problems[0].page <= hole
    lost = (end - result.problems[0].page) // element * element
    assert lost <= result.unreadable_bytes < lost + 2 * element
    assert (result.extents, result.arenas[0].active.bytes) == (4, (1 + 700 + 1 + 1) * page)
    assert result.cached_problems == (
        api.CachedProblem(built.placed[2][1], api.CACHED_UNKNOWN),
        api.CachedProblem(built.placed[4][1] + 5 * page, api.CACHED_OUTSIDE),
    )


def test_cached_pointers_that_are_no_blocks(kernel: Kernel) -> None:
    """Outside, beside a region's start, free in the bitmap, given twice, in a damaged extent: each is named, none is counted."""
    built = some_heap()
    set_bits(built, 1, built.extent.szind, BINS)
    slab = [address for address, free in rtree_truth.regions(built, 2) if not free]
    free = [address for address, free in rtree_truth.regions(built, 2) if free]
    shape = built.bins[1]
    beyond = built.placed[2][1] + shape.nregs * shape.reg_size_bytes
    wanted = [
        (built.placed[0][1] + 16, api.CACHED_NOT_START),
        (built.placed[1][1], api.CACHED_UNKNOWN),
        (built.placed[2][1] - 16, api.CACHED_OUTSIDE),
        (free[0], api.CACHED_FREE),
        (slab[0] + 8, api.CACHED_NOT_START),
        (slab[1], api.CACHED_TWICE),
        (built.placed[3][1], api.CACHED_OUTSIDE),
        ((1 << 64) - 8, api.CACHED_OUTSIDE),
    ]
    assert beyond == built.placed[2][2]
    result = walk(kernel, built, [address for address, _ in wanted] + [slab[1], slab[2], built.placed[4][1]])
    assert list(result.cached_problems) == sorted(wanted)
    assert result.cached_problem_counts == (3, 2, 1, 1, 1)
    assert [row.cached_regions for row in result.arenas[0].bins] == [2]
    assert [(row.cached_extents, row.cached_bytes) for row in result.arenas[0].larges] == [(0, 0), (1, 6 * PAGE)]


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
