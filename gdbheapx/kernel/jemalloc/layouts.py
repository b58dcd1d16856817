"""Layouts of jemalloc that the native library takes."""

from typing import Sequence

from gdbheapx.kernel.jemalloc.records import (
    LEAF_COMPACT,
    LEAF_COMPACT_STATE,
    LEAF_FIELDS,
    LEAF_METADATA,
    LEAF_UNKNOWN,
    MOST_EXTENT_BYTES,
    MOST_REGIONS,
    ExtentLayout,
    HeapLayout,
    RtreeLayout,
)


def check_layout(heap: HeapLayout) -> None:
    """Raises ValueError for numbers that no jemalloc has: the C code relies on these."""
    rtree, extent = heap.rtree, heap.extent
    for what, good in (("rtree", _good_rtree(rtree, extent.word_bytes)), ("extent", _good_extent(extent))):
        if not good:
            raise ValueError("no %s of jemalloc: %r" % (what, (rtree, extent)))
    most_regions = min(8 * extent.bitmap_bytes, MOST_REGIONS)
    good_bins = all(row.reg_size_bytes > 0 and 0 < row.nregs <= most_regions and row.slab_size_bytes > 0 for row in heap.bins)
    if len(heap.bins) > len(heap.size_classes) or not good_bins:
        raise ValueError("no bins of jemalloc: %r" % (heap.bins,))
    if not 0 <= heap.narenas <= 1 << extent.arena.width or heap.mapped_bytes < 0:
        raise ValueError("no bounds: %r" % ((heap.narenas, heap.mapped_bytes),))


def _good_rtree(rtree: RtreeLayout, word_bytes: int) -> bool:
    word_bits = 8 * word_bytes
    return (
        1 <= len(rtree.levels) <= 3
        and all(1 <= bits <= 30 for bits in rtree.levels)
        and sum(rtree.levels) == rtree.lg_vaddr - rtree.lg_page
        and 10 <= rtree.lg_page <= 24
        and rtree.lg_vaddr <= word_bits
        and word_bytes <= rtree.leaf_bytes <= 64
        and (not rtree.compact or (rtree.leaf_bytes == word_bytes == 8 and 0 <= rtree.extent_low_bits <= 12))
        and 0 < rtree.root < 1 << word_bits
        and rtree.leaf_kind in _leaf_kinds(rtree, word_bytes)
        and rtree.root % word_bytes == 0
    )


def _leaf_kinds(rtree: RtreeLayout, word_bytes: int) -> Sequence[int]:
    if rtree.compact:
        return LEAF_UNKNOWN, LEAF_COMPACT, LEAF_COMPACT_STATE
    room = rtree.leaf_bytes - word_bytes
    return [LEAF_UNKNOWN] + [LEAF_METADATA] * (room >= 4) + [LEAF_FIELDS] * (room >= 5)


def _good_extent(extent: ExtentLayout) -> bool:
    word = extent.word_bytes
    fields = (extent.arena, extent.slab, extent.state, extent.szind, extent.nfree)
    shard = extent.binshard
    places = (
        (extent.bits_offset, 8),
        (extent.addr_offset, word),
        (extent.size_offset, word),
        (extent.bitmap_offset, extent.bitmap_bytes),
    )
    return (
        word in (4, 8)
        and 0 < extent.size_bytes <= MOST_EXTENT_BYTES
        and all(offset >= 0 and size > 0 and offset + size <= extent.size_bytes for offset, size in places)
        and extent.bitmap_bytes % word == 0
        and all(field.shift >= 0 and 1 <= field.width <= 16 and field.shift + field.width <= 64 for field in fields)
        and 0 < extent.states <= 1 << extent.state.width
        and (shard.shift >= 0 and 0 <= shard.width <= 16 and shard.shift + shard.width <= 64)
    )
