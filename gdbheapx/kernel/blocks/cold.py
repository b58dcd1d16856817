"""Pages of each sort under blocks, by owner and class: request to the native library, and its result."""

from array import array
from typing import Any, List, NamedTuple, Optional, Sequence, Tuple

from gdbheapx.kernel.blocks.graph import Graph
from gdbheapx.kernel.common.library import address_of, native_job, take_rows

COLD_RESIDENT, COLD_SWAPPED, COLD_STALE, COLD_KNOWN, COLD_LOCKED, COLD_SEEN = 1, 2, 4, 8, 16, 32
"""Bits of a page: it is in RAM, in swap, was not touched while it was watched; whether it was touched is known; mlock keeps it in RAM;
whether it is in RAM or in swap is known."""


class ColdSum(NamedTuple):
    """Blocks of one owner and one class."""

    owner: int
    label: int
    blocks: int
    bytes: int
    cold_blocks: int
    cold_bytes: int
    """Of blocks all of whose pages are stale or in swap."""
    partly_bytes: int
    """On such pages, of the other blocks."""
    known_bytes: int
    """On pages of which it is known whether they were touched: those in swap count, too."""
    resident_bytes: int
    swapped_bytes: int
    locked_bytes: int
    unseen_bytes: int
    """On pages of which that is not known."""


Span = Tuple[int, int, bytes]
"""Start and end of whole pages, and the bits of each."""


def sum_cold(
    library: Any, graph: Graph, owners: "Optional[array[int]]", labels: "Optional[array[int]]", spans: Sequence[Span], page_bytes: int
) -> List[ColdSum]:
    """array('I') of a number for each block; None: all have 0. `spans`: ascending, without overlap. Where the graph's budget expires, of
    the first blocks alone. MemoryError."""
    blocks = graph.numbers().blocks
    if any(some is not None and len(some) < blocks for some in (owners, labels)):
        raise ValueError("a number for each block")
    if page_bytes & (page_bytes - 1):
        raise ValueError("a page is a power of two")
    bounds, kinds = array("Q"), bytearray()
    for start, end, some in spans:
        if len(some) * page_bytes != end - start or (bounds and start < bounds[-2]):
            raise ValueError("the bits of each page of ascending spans")
        bounds.extend((start, end, len(kinds)))
        kinds += some
    places = [None if some is None else address_of(some) for some in (owners, labels)]
    told = array("B", kinds)
    work = library.heapx_cold_new(graph.handle, *places, address_of(bounds), len(spans), address_of(told), page_bytes)
    with native_job(work, library.heapx_cold_free):
        graph.run(lambda seconds: library.heapx_cold_slice(work, seconds), lambda: int(library.heapx_cold_done(work)), blocks)
        width = len(ColdSum._fields)
        out = take_rows(lambda where, room: library.heapx_cold_found(work, where, room), width)
        return [ColdSum(*out[first : first + width]) for first in range(0, len(out), width)]
