"""A jemalloc in an object without symbols: found by its texts, its thread-local image, its bins or its arenas, in this order, the cheap
ones first.

Nothing is searched in an object that has no room for jemalloc's arenas[]; files are read before memory, and of memory only pages that are
there.
"""

from array import array
from typing import Dict, Iterator, NamedTuple, Optional, Tuple

from gdbheapx.inferior.base import Module, Target
from gdbheapx.jemalloc.detection import constants, signatures
from gdbheapx.jemalloc.detection.constants import Constants
from gdbheapx.jemalloc.detection.signatures import TsdImage

MOST_SEARCHED_BYTES = 16 << 20
"""Of one object's memory; jemalloc's own .bss is 0.3 to 3 MiB."""


class Thread(NamedTuple):
    """tsd_s in the thread-local image."""

    rtree_ctx: int
    """Offset of tsd_s.rtree_ctx in the object's block."""
    image: Optional[TsdImage]
    """The release whose tsd_s it is; None for one that is not known."""


class Bins(NamedTuple):
    """bin_infos[] in memory or in constant data."""

    address: int
    page_bytes: int
    nbins: int
    is_sharded: bool
    """It has n_shards: 5.2.0 and later; before, that place is padding."""


class Traces(NamedTuple):
    """What shows that an object holds a jemalloc."""

    constants: Constants
    thread: Optional[Thread]
    bins: Optional[Bins]
    arena: Optional[int]
    """Address of the word that leads to an arena, where nothing else was to be had."""

    @property
    def release(self) -> Optional[str]:
        """Its version text, else what the thread-local image tells."""
        image = self.thread.image if self.thread is not None else None
        return self.constants.version_text or (image.release if image is not None else None)


def look(target: Target, module: Module) -> Optional[Traces]:
    """The traces of a jemalloc in this object; None if it holds none that could be recognised. 64-bit little-endian targets."""
    if target.word_bytes != 8 or not target.little_endian:
        return None
    has_room = has_room_for_arenas(target, module)
    if not has_room and not module.is_executable:
        return None
    told = constants.read(target, module)
    thread = find_thread(target.thread_local_image(module)) if has_room else None
    is_proven = told.is_jemalloc or thread is not None
    if not has_room or (told.is_known and not is_proven):
        return Traces(told, None, None, None) if told.is_jemalloc else None
    bins = find_bins(target, module)
    is_proven = is_proven or (bins is not None and bins.is_sharded)
    arena = None if is_proven else find_arena(target, module)
    return Traces(told, thread, bins, arena) if is_proven or arena is not None else None


def has_room_for_arenas(target: Target, module: Module) -> bool:
    """Its .bss could hold arenas[]."""
    return any(end - file_end >= signatures.ARENA_POINTERS * target.word_bytes for _, file_end, end in target.writable_segments(module))


def find_thread(image: bytes) -> Optional[Thread]:
    """tsd_s in a thread-local image, from 5.3.0 on; None if rtree_ctx is not there exactly once."""
    at = image.find(signatures.RTREE_CTX)
    behind = at + len(signatures.RTREE_CTX)
    if at < 0 or image.find(signatures.RTREE_CTX, at + 1) >= 0:
        return None
    state = image[behind] if behind < len(image) else None
    tickers = {
        place
        for one in signatures.TSD_IMAGES
        for place in one.ticker_offsets
        if image[max(0, at + place) : at + place + 8] == signatures.TICKER
    }
    known = (one for one in signatures.TSD_IMAGES if one.state == state and tickers.intersection(one.ticker_offsets))
    return Thread(at, next(known, None))


def find_bins(target: Target, module: Module) -> Optional[Bins]:
    """bin_infos[] in the object's writable memory."""
    return next((found for address, data in own_memory(target, module) for found in [bins_in(data, address)] if found is not None), None)


def own_memory(target: Target, module: Module) -> Iterator[Tuple[int, bytes]]:
    """(address, bytes) of the object's writable memory, of which only pages that are there are read."""
    left = MOST_SEARCHED_BYTES
    for start, _, end in target.writable_segments(module):
        for low, high in target.present_ranges(start, end):
            size_bytes = min(high - low, left)
            left -= size_bytes
            if size_bytes:
                yield low, target.read_prefix(low, size_bytes)


def bins_in(data: bytes, address: int) -> Optional[Bins]:
    """bin_infos[] in these bytes, which lie at `address`: rows whose sizes, slabs and region counts agree."""
    for page in signatures.PAGE_BYTES:
        first = signatures.SMALLEST_CLASS_BYTES
        head = first.to_bytes(8, "little") + page.to_bytes(8, "little") + (page // first).to_bytes(4, "little")
        at = data.find(head)
        while at >= 0:
            for stride in signatures.BIN_STRIDES:
                shards = list(_rows(data, at, stride, page))
                if len(shards) >= signatures.LEAST_BINS:
                    return Bins(address + at, page, len(shards), all(shards))
            at = data.find(head, at + 8)
    return None


def _rows(data: bytes, at: int, stride: int, page: int) -> Iterator[int]:
    """n_shards of each row of bin_infos[] from `at` on: {reg_size, slab_size, nregs, n_shards, {nbits, ...}}."""
    before = 0
    while at + stride <= len(data):
        reg, slab, nbits = (int.from_bytes(data[at + place : at + place + 8], "little") for place in (0, 8, 24))
        nregs, shards = (int.from_bytes(data[at + place : at + place + 4], "little") for place in (16, 20))
        if not before < reg <= slab or slab % page or nregs != slab // reg or nbits != nregs or shards > signatures.MOST_SHARDS:
            return
        yield shards
        before, at = reg, at + stride


def find_arena(target: Target, module: Module) -> Optional[int]:
    """The first word of the object's memory that leads to an arena: as arenas[] does, into the arena's own first block of metadata."""
    seen: Dict[int, Tuple[int, ...]] = {}
    for address, data in own_memory(target, module):
        first = -address & 7
        words = array("Q", data[first : first + (len(data) - first & -8)])
        for number, word in enumerate(words):
            block = word & -signatures.BLOCK_BYTES
            if not block or word & 63 or word == block:
                continue
            if block not in seen:
                seen[block] = _bases(target, block)
            if any(word > base and _names(target, word, base) for base in seen[block]):
                return address + first + 8 * number
    return None


def _bases(target: Target, block: int) -> Tuple[int, ...]:
    """Where base_t may lie, if a block of metadata begins here: base_block_s {size, next, ...}."""
    head = target.read_prefix(block, 16)
    size, following = int.from_bytes(head[:8], "little"), int.from_bytes(head[8:], "little")
    if len(head) < 16 or not 0 < size <= signatures.MOST_BLOCK_BYTES or size % signatures.BLOCK_BYTES or following % signatures.BLOCK_BYTES:
        return ()
    return tuple(block + offset for offset in signatures.BASE_OFFSETS)


def _names(target: Target, arena: int, base: int) -> bool:
    """An arena at this address has a pointer to that base."""
    return base.to_bytes(8, "little") in target.read_prefix(arena, signatures.ARENA_BYTES)
