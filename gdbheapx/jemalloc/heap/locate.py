"""Which extent and block hold an address: by the radix tree, without a walk."""

from bisect import bisect_left
from typing import Iterator, List, NamedTuple, Optional, Sequence

from gdbheapx.allocators.places import Neighbour, Part, Place
from gdbheapx.errors import Unreadable
from gdbheapx.jemalloc.context import Context, pointers_in
from gdbheapx.jemalloc.detection.calibrate import leaf_of, look_up
from gdbheapx.jemalloc.heap import base
from gdbheapx.jemalloc.heap.arenas import EXTENT_STATES, Arena
from gdbheapx.jemalloc.threads.tcache import Caches
from gdbheapx.model import Address

MOST_LEAVES = 256
"""Leaf nodes that are searched backwards for the first page of a large extent."""


class Extent(NamedTuple):
    """One extent, as its structure has it."""

    struct: int
    begin: int
    end: int
    address: int
    arena: int
    state: int
    szind: int
    is_slab: bool
    free: int
    """A slab's bitmap: a set bit for each free region."""


def extent_at(context: Context, address: int) -> Optional[Extent]:
    """The extent that holds the address; None if there is none."""
    try:
        struct = look_up(context.target, context.geometry, address) or _named_before(context, address)
    except Unreadable:
        return None
    extent = _read(context, struct) if struct else None
    return extent if extent is not None and extent.begin <= address < extent.end else None


def _read(context: Context, struct: int) -> Optional[Extent]:
    geometry = context.geometry
    try:
        view = context.view(geometry.extent_struct, struct)
    except Unreadable:
        return None
    of = {name: field.of(view["e_bits"]) for name, field in geometry.fields.items()}
    begin = view["e_addr"] & -geometry.page_bytes
    is_slab = bool(of["slab"]) and of["state"] == geometry.states.active and of["szind"] < geometry.nbins
    free = 0
    if is_slab:
        place = context.types.place(geometry.extent_struct, "e_slab_data")
        nregs, word = geometry.bins[of["szind"]].nregs, geometry.word_bytes
        used = -(-nregs // (8 * word)) * word
        try:
            data = context.target.read(struct + (place.offset if place is not None else 0), used)
        except Unreadable:
            return None
        groups = enumerate(context.target.words_in(data))
        free = sum(group << 8 * word * number for number, group in groups) & (1 << nregs) - 1
    end = begin + (view["e_size_esn"] & -geometry.page_bytes)
    return Extent(struct, begin, end, view["e_addr"], of["arena"], of["state"], of["szind"], is_slab, free)


def _named_before(context: Context, address: int) -> Optional[int]:
    """The extent that the last leaf element before this page names: of a large one only the first and the last page have one."""
    geometry, shape = context.geometry, context.geometry.rtree
    bits, width = shape.levels[-1], geometry.word_bytes * (1 if shape.compact else 2)
    page = (address & (1 << shape.lg_vaddr) - 1) >> geometry.lg_page
    for _ in range(MOST_LEAVES):
        node, index = leaf_of(context.target, geometry, page << geometry.lg_page), page & (1 << bits) - 1
        data = context.target.read_prefix(node, (index + 1) * width) if node else b""
        column = pointers_in(context, data[: len(data) // width * width])
        last = next((number for number in range(len(column) - 1, -1, -1) if column[number]), None)
        if last is not None:
            element = last // (width // geometry.word_bytes)
            base_page = page - index + element
            return look_up(context.target, geometry, base_page << geometry.lg_page)
        page = page - index - 1
        if page < 0:
            return None
    return None


def find(context: Context, arenas: Sequence[Arena], caches: Caches, address: int) -> Optional[Place]:
    """Where it lies; None if it is in no memory of jemalloc's."""
    extent = extent_at(context, address)
    if extent is None:
        return _metadata(context, arenas, address)
    kind = "slab" if extent.is_slab else "extent"
    name = "%s of %d bytes, structure at 0x%x" % (kind, extent.end - extent.begin, extent.struct)
    parts = [Part(kind, name, Address(extent.begin), Address(extent.end))]
    block, previous, after = _in_slab(context, caches, extent, address) if extent.is_slab else _whole(context, caches, extent)
    if block is not None and block.status == "cached":
        parts = [*_caches_of(caches, block.address), *parts]
    offset = address - block.address if block is not None else None
    return Place(context.jemalloc.id, extent.arena, block, None, offset, previous, after, parts)


def _in_slab(context: Context, caches: Caches, extent: Extent, address: int) -> "tuple[Optional[Neighbour], ...]":
    info = context.geometry.bins[extent.szind]
    size, number = info.reg_size_bytes, (address - extent.begin) // info.reg_size_bytes
    cached = set(caches.pointers[_below(caches, extent.begin) : _below(caches, extent.end)])

    def region(index: int) -> Optional[Neighbour]:
        if not 0 <= index < info.nregs:
            return None
        start = extent.begin + index * size
        status = "free" if extent.free >> index & 1 else "cached" if start in cached else "used"
        return Neighbour(Address(start), size, size, status)

    return region(number), region(number - 1) if region(number) else None, region(number + 1)


def _below(caches: Caches, address: int) -> int:
    return bisect_left(caches.pointers, address)


def _whole(context: Context, caches: Caches, extent: Extent) -> "tuple[Optional[Neighbour], ...]":
    """An extent that is one block; its neighbours are the extents beside it."""
    before, after = extent_at(context, extent.begin - 1), extent_at(context, extent.end)
    return _block(context, caches, extent), _beside(context, caches, before), _beside(context, caches, after)


def _beside(context: Context, caches: Caches, extent: Optional[Extent]) -> Optional[Neighbour]:
    if extent is not None and extent.is_slab:
        return Neighbour(Address(extent.begin), extent.end - extent.begin, extent.end - extent.begin, "slab")
    return _block(context, caches, extent) if extent is not None else None


def _block(context: Context, caches: Caches, extent: Extent) -> Neighbour:
    geometry, size = context.geometry, extent.end - extent.begin
    names = {getattr(geometry.states, state): state for state in EXTENT_STATES}
    if extent.state != geometry.states.active or extent.szind >= len(geometry.size_classes):
        return Neighbour(Address(extent.begin), size, size, names.get(extent.state, "metadata"))
    if geometry.size_from_extent and extent.szind >= geometry.nbins:
        size -= geometry.large_pad_bytes
    else:
        size = geometry.size_classes[extent.szind]
    place = _below(caches, extent.address)
    is_cached = place < len(caches.pointers) and caches.pointers[place] == extent.address
    return Neighbour(Address(extent.address), size, size, "cached" if is_cached else "used")


def _caches_of(caches: Caches, address: int) -> Iterator[Part]:
    for cache in caches.caches:
        if address in cache.pointers:
            lwp = cache.tsd.lwp if cache.tsd is not None else None
            owner = "thread %d" % lwp if lwp is not None else "explicit cache %s" % cache.explicit
            yield Part("cache", "thread cache of %s" % owner, Address(cache.address))


def _metadata(context: Context, arenas: Sequence[Arena], address: int) -> Optional[Place]:
    """A block of an arena's base."""
    places: List[Place] = []
    for arena in arenas:
        for block in base.blocks(context, arena):
            if block.address <= address < block.address + block.size_bytes:
                part = Part("base", "metadata of arena %d" % arena.index, Address(block.address), Address(block.address + block.size_bytes))
                own = Neighbour(Address(block.address), block.size_bytes, block.size_bytes, "metadata")
                places.append(Place(context.jemalloc.id, arena.index, own, None, address - block.address, None, None, [part]))
    return places[0] if places else None
