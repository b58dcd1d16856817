"""jemalloc's extents as both kernels walk them: whole and damaged rtrees, heaps and rings, up to the first contradiction.

Files: kernel/jemalloc/records.py, kernel/common/library.py, kernel/jemalloc/walkers.py.
"""

import ctypes
import mmap
import os
import random
from array import array
from typing import Any, Callable, List, Tuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gdbheapx.common.budget import Budget
from gdbheapx.inferior.base import BytesSource, PageTable
from gdbheapx.kernel.blocks.stream import BlockFilter
from gdbheapx.kernel.common.library import STOP_END, STOP_TIME, Kernel
from gdbheapx.kernel.jemalloc import records as api
from gdbheapx.kernel.jemalloc.records import BlockSizes
from gdbheapx.kernel.jemalloc.walkers import ExtentWalker
from tests.support import reference_walk
from tests.support.builders import rtree, rtree_truth
from tests.support.builders.call_source import call_source
from tests.support.builders.extent_cases import PADDED, PAGE, cached_in, damaged, heaps, listed, rows_of, some_heap, walk
from tests.support.builders.rtree import ACTIVE, BINS, DIRTY, MUZZY, RETAINED, Built, Spec, Variant
from tests.support.searches import search

FAST = search(120)


@FAST
@given(data=st.data())
def test_a_walk_counts_what_was_built(kernel: Kernel, data: Any) -> None:
    """Every field of the result follows from the list of extents, for every shape of tree, release, page size, word and byte order."""
    built = data.draw(heaps())
    cached = data.draw(cached_in(built))
    assert walk(kernel, built, cached) == rtree_truth.expected(built, cached)


@FAST
@given(data=st.data())
def test_what_is_not_in_memory_belongs_to_a_block(kernel: Kernel, data: Any) -> None:
    """Pages that a core lacks are charged to what lies on them, to the byte: blocks in use, cached and free ones, and what no block has."""
    built = data.draw(heaps())
    cached, page = data.draw(cached_in(built)), 1 << built.rtree.lg_page
    first, last = (built.placed[0][1] // page, built.placed[-1][2] // page) if built.placed else (0, 1)
    edges = data.draw(st.lists(st.integers(first, min(last, first + 60)), max_size=8, unique=True))
    runs = [page * edge for edge in sorted(edges)[: len(edges) // 2 * 2]]
    found = walk(kernel, built, cached, runs=runs)
    assert {arena.arena: arena.absent for arena in found.arenas} == rtree_truth.absent(built, cached, runs)


@FAST
@given(data=st.data())
def test_a_listing_gives_the_blocks_that_were_built(kernel: Kernel, data: Any) -> None:
    """Regions, large allocations and unused extents in address order with their sizes and statuses; filters only leave out."""
    built = data.draw(heaps())
    cached = data.draw(cached_in(built))
    sizes = data.draw(st.sampled_from((BlockSizes(True, 0), BlockSizes(False, 0), BlockSizes(True, 1))))
    rows, end = listed(kernel, built, cached, sizes)
    wanted = rtree_truth.blocks(built, cached, sizes)
    assert rows == wanted
    assert end.stop == STOP_END
    page = 1 << built.rtree.lg_page
    few, _ = listed(kernel, built, cached, sizes, BlockFilter({api.BLOCK_FREE, api.BLOCK_USED, api.BLOCK_DIRTY}, page // 8, 9 * page), 1)
    chosen = (api.BLOCK_FREE, api.BLOCK_USED, api.BLOCK_DIRTY)
    assert few == [row for row in wanted if row[3] == 1 and row[2] in chosen and page // 8 <= row[1] <= 9 * page]


@pytest.mark.parametrize("variant", [Variant(), Variant((15, 15, 15), compact=False, release="5.1"), Variant((16, 16), 16)])
def test_trees_of_real_size(kernel: Kernel, variant: Variant) -> None:
    """Nodes of 2 MiB and of 512 KiB, read in several blocks, with slabs and large extents across the blocks' ends."""
    numbers = random.Random(5)
    made = []
    for _ in range(2500):
        arena, gap = numbers.randrange(5), numbers.choice((0, 0, 0, 7, 3000)) if numbers.random() < 0.02 else 0
        if numbers.random() < 0.7:
            made.append(Spec(0, ACTIVE, arena, numbers.randrange(BINS), numbers.getrandbits(300), gap))
        else:
            made.append(Spec(numbers.choice((1, 4, 30, 900)), numbers.choice((ACTIVE, ACTIVE, DIRTY, RETAINED)), arena, BINS + 1, None, gap))
    built = rtree.build(made, variant)
    cached = numbers.sample(rtree_truth.allocated(built), 2000)
    assert walk(kernel, built, cached) == rtree_truth.expected(built, cached)
    rows, _ = listed(kernel, built, cached)
    assert rows == rtree_truth.blocks(built, cached, PADDED)


def test_ctrl_c_in_a_read_gives_what_is_there(kernel: Kernel) -> None:
    """Ctrl-C while gdb reads: it is not done, and has what was counted before it."""
    built = some_heap(extra=30)
    reads = 0
    while True:
        budget = Budget()
        result = ExtentWalker(kernel, call_source(built.source, reads), built.heap(), budget).walk(array("Q"))
        if result.summary.done:
            break
        assert budget.reason == "stopped by Ctrl-C"
        assert result.summary.extents < 36
        reads += 1
    assert reads >= 3
    assert result == walk(kernel, built)


def test_ctrl_c_ends_a_listing(kernel: Kernel) -> None:
    """The rows before it are given."""
    built = some_heap(extra=30)
    budget = Budget()
    listing = ExtentWalker(kernel, call_source(built.source, 2), built.heap(), budget).blocks(array("Q"))
    rows = rows_of(listing)
    assert listing.result is not None and listing.result.stop == STOP_TIME
    assert budget.reason == "stopped by Ctrl-C"
    assert rows == rtree_truth.blocks(built, (), PADDED)[: len(rows)]


@pytest.mark.parametrize(
    "part, changes",
    [
        ("rtree", {"level_bits": (5, 9, 0)}),
        ("rtree", {"height": 0}),
        ("rtree", {"root": 0}),
        ("rtree", {"leaf_bytes": 4}),
        ("extent", {"bitmap_offset": 100}),
        ("extent", {"word_bytes": 2}),
        ("extent", {"nfree": api.BitField(60, 8)}),
    ],
)
def test_layouts_that_cannot_be_are_refused(kernel: Kernel, part: str, changes: Any) -> None:
    """The kernels rely on their layouts: ValueError, not a wild read."""
    built = some_heap()
    wrong = built._replace(**{part: getattr(built, part)._replace(**changes)})
    with pytest.raises(ValueError, match="jemalloc"):
        walk(kernel, wrong)


def test_pages_of_each_state_that_are_in_memory(kernel: Kernel) -> None:
    """By the page table: touched pages count, pages never touched and pages only read do not; without one nothing is known."""
    if os.geteuid() != 0:
        pytest.skip("telling the zero page without PAGEMAP_SCAN needs root")
    if mmap.PAGESIZE != PAGE:
        pytest.skip("this machine's pages are not those of the heap that is built here")
    built = rtree.build([Spec(10, DIRTY), Spec(10, MUZZY), Spec(5), Spec(5, RETAINED)], Variant())
    begin, length = built.placed[0][1], 30 * PAGE
    libc = ctypes.CDLL(None)
    libc.mmap.restype = ctypes.c_void_p
    libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long]
    libc.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
    place = libc.mmap(begin, length, mmap.PROT_READ | mmap.PROT_WRITE, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS, -1, 0)
    try:
        if place != begin:
            pytest.skip("the kernel gives no memory at this address")
        libc.madvise(ctypes.c_void_p(begin), ctypes.c_size_t(length), 15)  # MADV_NOHUGEPAGE
        for page in (0, 3, 9, 10, 11, 22, 27):
            ctypes.memset(begin + page * PAGE, 1, 1)
        assert ctypes.string_at(begin + 5 * PAGE, 1) == b"\0"
        with open("/proc/kpageflags", "rb") as flags:
            result = walk(kernel, built, pages=PageTable(os.getpid(), False, False, flags.fileno(), ()))
    finally:
        libc.munmap(place, length)
    (arena,) = result.arenas
    states = (arena.dirty, arena.muzzy, arena.active, arena.retained)
    assert [state.residency.resident_bytes for state in states if state.residency] == [3 * PAGE, 2 * PAGE, PAGE, PAGE]
    assert walk(kernel, built).arenas[0].dirty.residency is None


MANY = search(400)


def codes(result: api.ExtentsResult) -> List[int]:
    assert [result.problem_counts[code] for code in range(api.EXTENT_CODES)] == [
        sum(problem.code == code for problem in result.problems) for code in range(api.EXTENT_CODES)
    ]
    return [problem.code for problem in result.problems]


def test_more_nodes_than_memory(kernel: Kernel) -> None:
    """The bound on all nodes together ends the walk, and says at which."""
    built = some_heap()
    result = ExtentWalker(kernel, built.source, built.heap()._replace(mapped_bytes=32 * 8 + 2047), Budget()).walk(())
    assert codes(result) == [api.EXTENT_TOO_MANY_NODES]
    assert (result.summary.extents, result.summary.nodes) == (0, 1)


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
    rows = rows_of(ExtentWalker(kernel, source, built.heap(), Budget()).blocks(array("Q", sorted(cached))))
    assert rows == reference_walk.list_extents(source, built.heap(), cached)
    names = ("active", "dirty", "muzzy", "retained", "pinned", "other")
    states = [getattr(arena, name) for arena in result.arenas for name in names]
    assert sum(state.extents for state in states) == result.summary.extents
    assert sum(end - begin for begin, end in result.ranges) == sum(state.bytes for state in states)


NEXT, PREVIOUS, CHILD, RING_NEXT, RING_PREVIOUS = 24, 32, 40, 48, 56
COUNT = 12
VARIANTS = [Variant(), Variant((6, 7), compact=False, little=False), Variant((6, 7), compact=False, word=4, little=False)]


def make(variant: Variant) -> Tuple[Built, List[int]]:
    """Unused extents of two pages: the first is the root, 1 to 3 its children, 4 and 5 those of 2, 6 to 11 wait beside the root."""
    built = rtree.build([Spec(2, DIRTY, arena=1, gap=1) for _ in range(COUNT)], variant)
    at, word = [built.structs + number * built.extent.size_bytes for number in range(COUNT)], variant.word

    def chain(before: int, members: List[int], first: int) -> None:
        for number in members:
            built.put(at[before] + first, at[number], word)
            built.put(at[number] + PREVIOUS, at[before], word)
            before, first = number, NEXT

    chain(0, [1, 2, 3], CHILD)
    chain(2, [4, 5], CHILD)
    chain(0, [6, 7, 8, 9, 10, 11], NEXT)
    for number in range(COUNT):
        built.put(at[number] + RING_NEXT, at[(number + 1) % COUNT], word)
        built.put(at[number] + RING_PREVIOUS, at[number - 1], word)
    return built, at


def followed(kernel: Kernel, built: Built, head: int, is_ring: bool = False, most: int = COUNT, **other: int) -> api.NativeLinked:
    """What is along the list."""
    offsets = (RING_NEXT, RING_PREVIOUS, api.NO_LINK) if is_ring else (NEXT, PREVIOUS, CHILD)
    row = api.LinkedList(head, *offsets, arena=1, state=DIRTY, szind=api.ANY, is_nonfull=False, most=most)._replace(**other)
    (found,) = ExtentWalker(kernel, built.source, built.heap(), Budget()).follow([row])
    return found


@pytest.mark.parametrize("variant", VARIANTS)
def test_every_member_is_met(kernel: Kernel, variant: Variant) -> None:
    """In a heap each once by the children and the list beside the root, in a ring each once around; an empty one has none."""
    built, at = make(variant)
    page = 1 << variant.lg_page
    for is_ring in (False, True):
        found = followed(kernel, built, at[0], is_ring)
        assert (found.members, found.bytes, found.problem) == (COUNT, 2 * page * COUNT, api.LINKED_GOOD)
        assert followed(kernel, built, 0, is_ring) == api.NativeLinked(0, 0, api.LINKED_GOOD, 0, 0)


DAMAGES: List[Tuple[str, int, int, Callable[[List[int]], int], int, int]] = [
    ("wild next", 7, NEXT, lambda at: 0x12345678, 0, api.LINKED_UNREADABLE),
    ("next that is no address of a struct", 7, NEXT, lambda at: at[9] + 1, 0, api.LINKED_UNREADABLE),
    ("child of another", 5, CHILD, lambda at: at[8], 0, api.LINKED_BACK),
    ("previous", 9, PREVIOUS, lambda at: at[1], 0, api.LINKED_BACK),
    ("ring's next", 4, RING_NEXT, lambda at: at[7], 1, api.LINKED_BACK),
    ("ring's null", 4, RING_NEXT, lambda at: 0, 1, api.LINKED_UNREADABLE),
    ("ring's previous", 4, RING_PREVIOUS, lambda at: 0, 1, api.LINKED_BACK),
]


@pytest.mark.parametrize("name, number, offset, value, is_ring, problem", DAMAGES, ids=[row[0] for row in DAMAGES])
def test_the_first_contradiction_ends_a_list(
    kernel: Kernel, name: str, number: int, offset: int, value: Callable[[List[int]], int], is_ring: int, problem: int
) -> None:
    """With the member at which it was met and the one before it."""
    built, at = make(Variant())
    built.put(at[number] + offset, value(at), 8)
    found = followed(kernel, built, at[0], bool(is_ring))
    assert found.problem == problem and found.members < COUNT, found


def test_members_say_where_they_belong(kernel: Kernel) -> None:
    """Another arena, state or size class; more than there can be; a slab without a free region."""
    built, at = make(Variant())
    assert followed(kernel, built, at[0], arena=2).problem == api.LINKED_ALIEN
    assert followed(kernel, built, at[0], state=MUZZY).problem == api.LINKED_ALIEN
    assert followed(kernel, built, at[0], szind=3).problem == api.LINKED_ALIEN
    assert followed(kernel, built, at[0], most=COUNT - 1).problem == api.LINKED_CYCLE
    slabs = rtree.build([Spec(0, arena=1, szind=1, free=free) for free in (0, 5, (1 << 256) - 1)], Variant())
    problems = [followed(kernel, slabs, slabs.structs + 128 * number, state=0, is_nonfull=True).problem for number in range(3)]
    assert problems == [api.LINKED_FULL, api.LINKED_GOOD, api.LINKED_FULL]
