"""Heaps of jemalloc for the tests of the walk over its extents: any that can be, and damaged ones."""

from array import array
from typing import Any, List, Optional, Tuple

from hypothesis import strategies as st

from gdbheapx.common.budget import Budget
from gdbheapx.inferior.base import BytesSource, PageTable
from gdbheapx.kernel.blocks.stream import (
    CLASS_CACHED,
    CLASS_FREE,
    CLASS_OVERHEAD,
    CLASS_RETURNED,
    CLASS_USED,
    EVERYTHING,
    BlockFilter,
    BlockStream,
)
from gdbheapx.kernel.common.library import Kernel
from gdbheapx.kernel.jemalloc import records as api
from gdbheapx.kernel.jemalloc.records import BlockSizes
from gdbheapx.kernel.jemalloc.walkers import ExtentWalker
from tests.support.builders import rtree, rtree_truth
from tests.support.builders.rtree import ACTIVE, BINS, DIRTY, MUZZY, OTHER, RETAINED, UNASSOCIATED, Spec, Variant

PADDED = BlockSizes(True, 0)
PAGE = 4096
CLASS_OF = {
    api.BLOCK_USED: CLASS_USED,
    api.BLOCK_CACHED: CLASS_CACHED,
    api.BLOCK_FREE: CLASS_FREE,
    api.BLOCK_DIRTY: CLASS_RETURNED,
    api.BLOCK_MUZZY: CLASS_RETURNED,
    api.BLOCK_RETAINED: CLASS_RETURNED,
    api.BLOCK_OTHER: CLASS_OVERHEAD,
    api.BLOCK_PINNED: CLASS_RETURNED,
}


@st.composite
def specs(draw: Any, variant: Variant) -> Spec:
    """Any extent that can be."""
    page = 1 << variant.lg_page
    arena = draw(st.sampled_from((0, 0, 1, 4, UNASSOCIATED)))
    gap = draw(st.sampled_from((0, 0, 0, 1, 9, 100)))
    kind = draw(st.sampled_from(("slab", "slab", "large", "sampled", "free")))
    pages = draw(st.sampled_from((1, 2, 3, 5, 12, 40)))
    if kind == "slab":
        return Spec(0, ACTIVE, arena, draw(st.integers(0, BINS - 1)), draw(st.integers(0, (1 << 320) - 1)), gap)
    if kind == "free":
        state = draw(st.sampled_from((DIRTY, MUZZY, RETAINED, *([OTHER, 5] if variant.release == "5.3" else []), *([6] if variant.has_pinned else []))))
        # szind is stale where nothing is active
        return Spec(pages, state, arena, draw(st.integers(0, 255)), None, gap)
    # as many as there are classes: none
    szind = draw(st.integers(0, BINS - 1)) if kind == "sampled" else draw(st.integers(BINS, len(rtree.size_classes(page))))
    return Spec(pages, ACTIVE, arena, szind, None, gap, draw(st.sampled_from((0, 0, 64, page - 64))))


@st.composite
def heaps(draw: Any) -> rtree.Built:
    """Any heap."""
    variant = draw(st.sampled_from(rtree.VARIANTS))
    return rtree.build(draw(st.lists(specs(variant), max_size=30)), variant)


@st.composite
def cached_in(draw: Any, built: rtree.Built) -> List[int]:
    """Some of its allocated blocks."""
    allocated = rtree_truth.allocated(built)
    return sorted(set(draw(st.lists(st.sampled_from(allocated), max_size=20)))) if allocated else []


def walk(
    kernel: Kernel, built: rtree.Built, cached: Any = (), source: Any = None, budget: Optional[Budget] = None, pages: Optional[PageTable] = None, runs: Any = None
) -> api.ExtentsResult:
    return ExtentWalker(kernel, source or built.source, built.heap(), budget or Budget()).walk(array("Q", sorted(cached)), pages, runs)


def listed(
    kernel: Kernel, built: rtree.Built, cached: Any = (), sizes: BlockSizes = PADDED, wanted: BlockFilter = EVERYTHING, arena: Optional[int] = None
) -> Tuple[Any, Any]:
    """(address, size, status, arena) of each block, and how it ended."""
    stream = ExtentWalker(kernel, built.source, built.heap(sizes), Budget()).blocks(array("Q", sorted(cached)), wanted, arena)
    return rows_of(stream), stream.result


def rows_of(stream: BlockStream) -> List[Tuple[int, int, int, int]]:
    """(address, size, status, arena) of each block."""
    rows = [row for blocks in stream for row in zip(*blocks)]
    assert all(class_ == CLASS_OF[kind] for _, _, class_, kind, _ in rows)
    return [(address, size, kind, arena) for address, size, _, kind, arena in rows]


def some_heap(extra: int = 0) -> rtree.Built:
    """Slabs and large extents: a slab of three pages is number 2, a large extent of six pages number 4."""
    made = [Spec(4), Spec(0, szind=0, free=0xFF), Spec(0, szind=1, free=0xF0F0, gap=2), Spec(3, DIRTY), Spec(6, szind=BINS + 2), Spec(2, RETAINED, gap=1)]
    return rtree.build(made + [Spec(1)] * extra, Variant((5, 8)))


@st.composite
def damaged(draw: Any) -> Tuple[rtree.Built, BytesSource, List[int]]:
    """A heap with some words overwritten, pointers that may be wrong, and maybe a hole."""
    built = draw(heaps())
    areas = sorted(built.pieces)
    word = built.extent.word_bytes
    pointers = st.sampled_from([built.struct_of(number) for number in range(len(built.placed) + 1)] + areas + list(built.leaf) or [0])
    values = st.one_of(st.integers(0, 80), st.integers(0, (1 << 8 * word) - 1), pointers.map(lambda value: value & (1 << 8 * word) - 1))
    for _ in range(draw(st.integers(0, 6))):
        area = draw(st.sampled_from(areas))
        used = [place - area for place in (*built.leaf.values(), built.structs) if area <= place < area + len(built.pieces[area])] or [0]
        place = draw(st.one_of(st.sampled_from(used), st.integers(0, len(built.pieces[area]) - word)))
        built.put(area + min(place // word * word, len(built.pieces[area]) - word), draw(values), word)
    pieces = list(built.source.pieces)
    if draw(st.booleans()):
        number = draw(st.integers(0, len(pieces) - 1))
        address, data = pieces[number]
        begin = draw(st.integers(0, len(data)))
        end = draw(st.integers(begin, len(data)))
        pieces[number : number + 1] = [(address, data[:begin]), (address + end, data[end:])]
    wrong = draw(st.lists(st.sampled_from([page + extra for page in built.leaf or [0] for extra in (0, 0, 16, 64, 1 << built.rtree.lg_page)]), max_size=8))
    return built, BytesSource(tuple(piece for piece in pieces if piece[1])), sorted([*wrong, *draw(cached_in(built))])
