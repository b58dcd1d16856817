"""A build from 5.3.0 on whose layout no table has, as far as it describes itself: its extents, and nothing of counters and threads.

From 5.3.0 to the newest build seen, what stands around the last two pointers of an arena to its base is the same (arena.h, pa.h): pa_shard
{ind, ..., emap, base}, ind, base. The arena's emap leads to the radix tree, and edata_t, base_block_t and bin_info_t have never changed.
Nothing of it is believed before extents in the tree hold.
"""

from array import array
from typing import Dict, Iterator, List, NamedTuple, Optional, Sequence, Set, Tuple

from gdbheapx.errors import Unreadable
from gdbheapx.inferior.base import Member, Module, StructType, Target, TypeSet
from gdbheapx.jemalloc.detection import fingerprint, layouts, tables, traces
from gdbheapx.jemalloc.detection.fingerprint import Arenas
from gdbheapx.jemalloc.detection.geometry import Geometry, assemble, read_bin_infos, rtree_shape
from gdbheapx.jemalloc.detection.tables import Table
from gdbheapx.jemalloc.detection.traces import Bins
from gdbheapx.layout.view import read_view

FIRST: layouts.Version = (5, 3, 0)
"""The first release with edata_t and arena_emap_global."""
MOST_NODES = 64
"""Elements of the root and of nodes above the leaves that are followed for the proof."""
MOST_LEAF_BYTES = 4 << 20
MOST_EXTENTS = 512
HELD_PER_FAILED = 4
ENTRIES_BETWEEN = 12
"""Words between the last two pointers to the base, at most."""
WORD = 8
TAIL_BYTES = WORD
"""Behind the base pointer nothing is known."""
SHARD_IND = 32
"""pa_shard.ind stands so far before pa_shard.base, and pa_shard.emap one word before it; arena_s.ind one word before base."""
MOST_BLOCKS = 4096
KEPT = ("edata_s", "slab_data_s", "base_block_s", "bin_info_s", "bitmap_info_s", "bitmap_level_s", "ehooks_s")
"""Structs that are the same in all builds from 5.3.0 on that have the same page."""


class Ends(NamedTuple):
    """How an arena ends."""

    shard_base: int
    base: int
    """Offsets of pa_shard.base and of base in arena_s."""
    emap: int
    """Address of arena_emap_global, as most arenas say."""


class Proof(NamedTuple):
    """What extents in the radix tree say."""

    slabs: int
    """That hold: in all that is known of them, their bitmap too."""
    larges: int
    failed: int
    addresses: Sequence[int]
    """Where those that hold begin."""

    @property
    def holds(self) -> bool:
        """One slab at least, and most of what was looked at."""
        return bool(self.slabs) and self.slabs + self.larges >= HELD_PER_FAILED * self.failed


class Unlisted(NamedTuple):
    """One that is read so."""

    types: TypeSet
    geometry: Geometry
    proof: Proof


def read(target: Target, module: Module, arenas: Arenas, bins: Optional[Bins]) -> "Unlisted | str":
    """What can be told of it, proven; else why not."""
    if bins is None or not bins.is_sharded:
        return "its bins were not found"
    quantum = tables.quantum_of(bins.nbins, bins.page_bytes)
    ends = find_ends(target, module, arenas)
    if quantum is None or ends is None:
        return "its arenas do not end as those of jemalloc 5.3"
    likely = newest(arenas.page_bytes, target.arch.mutex_bytes)
    table = next((table for table in likely if _has_blocks(target, table, arenas)), None)
    if table is None:
        return "its arenas' metadata is not as in jemalloc 5.3"
    types, sizes = types_of(ends, table), tables.size_classes(quantum)
    try:
        infos = read_bin_infos(target, types, bins.address, bins.nbins)
    except Unreadable:
        return "its bins cannot be read"
    base = assemble(target, types, FIRST, sizes, tables.page_classes(sizes, bins.page_bytes), infos)
    if base is None or [info.reg_size_bytes for info in infos] != list(sizes[: len(infos)]):
        return "its bins do not match"
    known = layouts.states(types, layouts.UNRELEASED)._replace(pinned=None)  # up to 5.3.1 the same number is another state
    root = ends.emap + _offset(table, "emap_s", "rtree.root")
    base = base._replace(narenas=arenas.highest + 1, rtree_root=root, states=known, size_from_extent=True)
    held: List[Tuple[Geometry, Proof]] = []
    for bits in target.arch.address_bits:
        shape = rtree_shape(bits, base.lg_page, len(sizes))
        if shape is not None and _within(target, module, base.rtree_root, WORD << shape.levels[0]):
            geometry = base._replace(rtree=shape)
            proof = prove(target, types, geometry, set(arenas.pointers))
            if proof.holds:
                held.append((geometry, proof))
    if not held:
        return "its radix tree does not hold"
    geometry, proof = max(held, key=lambda pair: pair[1].slabs)
    return Unlisted(types, geometry, proof)


def _within(target: Target, module: Module, start: int, size_bytes: int) -> bool:
    return any(low <= start and start + size_bytes <= high for low, _, high in target.writable_segments(module))


def find_ends(target: Target, module: Module, arenas: Arenas) -> Optional[Ends]:
    """Where most arenas have the last two pointers to their base, and the emap that they share; None where they do not agree."""
    votes: Dict[Ends, int] = {}
    blocks = fingerprint.Blocks(target, arenas.page_bytes)
    tried = list(arenas.pointers.items())[: fingerprint.ARENAS_TRIED]
    for index, arena in tried:
        for ends in set(_ends(target, module, index, arena, blocks.base_of(arena) or 0)):
            votes[ends] = votes.get(ends, 0) + 1
    best = max(votes, key=lambda ends: votes[ends], default=None)
    return best if best is not None and 2 * votes[best] > len(tried) else None


def _ends(target: Target, module: Module, index: int, arena: int, base: int) -> Iterator[Ends]:
    places = fingerprint.base_places(target, arena, base)
    for first, second in zip(places, places[1:]):
        if not WORD < second - first <= ENTRIES_BETWEEN * WORD or first < SHARD_IND:
            continue
        emap = _number(target, arena + first - WORD, WORD)
        is_one = _number(target, arena + second - WORD, 4) == index == _number(target, arena + first - SHARD_IND, 4)
        if is_one and not emap % WORD and _within(target, module, emap, WORD):
            yield Ends(first, second, emap)


def _number(target: Target, address: int, size_bytes: int) -> int:
    return int.from_bytes(target.read_prefix(address, size_bytes).ljust(size_bytes, b"\xff"), "little")


def newest(page_bytes: int, mutex_bytes: Sequence[int]) -> Sequence[Table]:
    """The last table of each mutex that the machine may have."""
    return list({table.mutex_bytes: table for table in tables.of(page_bytes, mutex_bytes) if "emap_s" in table.types.structs}.values())


def types_of(ends: Ends, table: Table) -> TypeSet:
    """The structs as far as they are known; `table`: the newest of its page and machine."""
    structs = {name: table.types.structs[name] for name in KEPT if name in table.types.structs}
    shard = StructType(
        ends.shard_base + WORD,
        {
            "ind": Member(ends.shard_base - SHARD_IND, 4, 1, "uint"),
            "emap": Member(ends.shard_base - WORD, WORD, 1, "pointer"),
            "base": Member(ends.shard_base, WORD, 1, "pointer"),
        },
    )
    arena = {
        "pa_shard": Member(0, shard.size_bytes, 1, "struct pa_shard_s"),
        "ind": Member(ends.base - WORD, 4, 1, "uint"),
        "base": Member(ends.base, WORD, 1, "pointer"),
    }
    structs["pa_shard_s"] = shard
    structs["arena_s"] = StructType(ends.base + TAIL_BYTES, arena)
    blocks = _offset(table, "base_s", "blocks")
    base = {"ehooks": Member(0, 16, 1, "struct ehooks_s"), "blocks": Member(blocks, WORD, 1, "pointer")}
    structs["base_s"] = StructType(blocks + WORD, base)
    return TypeSet(structs)


def _offset(table: Table, struct: str, path: str) -> int:
    """Of what every build from 5.3.0 on has; the mutex in front of it has another size on other machines."""
    place = table.types.place(struct, path)
    assert place is not None
    return place.offset


def _has_blocks(target: Target, table: Table, arenas: Arenas) -> bool:
    """In most arenas the base's list of blocks ends with the block that the base itself lies in."""
    blocks, place = fingerprint.Blocks(target, arenas.page_bytes), _offset(table, "base_s", "blocks")
    bases = [blocks.base_of(arena) for arena in arenas.pointers.values()]
    held = sum(1 for base in bases if base and _ends_with_own(target, base, place))
    return 2 * held > len(arenas.pointers)


def _ends_with_own(target: Target, base: int, blocks_offset: int) -> bool:
    block, last, left = _number(target, base + blocks_offset, WORD), 0, MOST_BLOCKS
    while block and left and not block % fingerprint.PIECE_BYTES:
        last, block, left = block, _number(target, block + WORD, WORD), left - 1
    return not block and base - last in traces.BASE_OFFSETS.values()


# ---------------------------------------------------------------------------------------------------- the proof


def prove(target: Target, types: TypeSet, geometry: Geometry, arenas: Set[int]) -> Proof:
    """Whether what the radix tree leads to are extents of these arenas that contain the address that led there."""
    slabs, larges, failed = 0, 0, 0
    addresses: List[int] = []
    seen: Set[int] = set()
    for address, extent in _elements(target, geometry):
        if extent in seen:
            continue
        seen.add(extent)
        if len(seen) > MOST_EXTENTS:
            break
        kind = _kind(target, types, geometry, arenas, address, extent)
        slabs, larges, failed = slabs + (kind == "slab"), larges + (kind == "large"), failed + (kind == "")
        if kind:
            addresses.append(address)
    return Proof(slabs, larges, failed, addresses)


def _kind(target: Target, types: TypeSet, geometry: Geometry, arenas: Set[int], address: int, extent: int) -> str:
    """`slab`, `large` or `unused`: an extent that contains the address, with nothing in it that contradicts; else nothing."""
    try:
        view = read_view(target, types, geometry.extent_struct, extent)
    except Unreadable:
        return ""
    of = {name: field.of(view["e_bits"]) for name, field in geometry.fields.items()}
    size, begin = view["e_size_esn"] & -geometry.page_bytes, view["e_addr"] & -geometry.page_bytes
    if not begin <= address < begin + size or of["arena"] not in arenas or of["state"] > geometry.states.highest:
        return ""
    if of["state"] != geometry.states.active:
        return "unused"
    if not of["slab"]:
        return "large"  # of the size class nothing is asked: pages that wait to be used again may have none
    if of["szind"] >= geometry.nbins or of["nfree"] > geometry.bins[of["szind"]].nregs:
        return ""
    info = geometry.bins[of["szind"]]
    bitmap = int.from_bytes(view.bytes_of("e_slab_data")[: (info.nregs + 63) // 64 * WORD], "little")
    return "slab" if size == info.slab_size_bytes and bin(bitmap).count("1") == of["nfree"] else ""


def _elements(target: Target, geometry: Geometry) -> Iterator[Tuple[int, int]]:
    """(address, extent) of leaf elements, of pages that are there."""
    shape, left = geometry.rtree, MOST_LEAF_BYTES
    width = WORD if shape.compact else 2 * WORD
    mask = (1 << shape.lg_vaddr) - 1 & ~((1 << geometry.leaf_low_bits) - 1)
    for key, leaf in _leaves(target, geometry):
        for low, high in target.present_ranges(leaf, leaf + (width << shape.levels[-1])):
            data = target.read_prefix(low, min(high - low, left))
            left -= len(data)
            words = array("Q", data[: len(data) & -width])[:: width // WORD]
            for number, word in enumerate(words):
                extent = word & mask if shape.compact else word
                if extent:
                    yield (key << shape.levels[-1] | (low - leaf) // width + number) << geometry.lg_page, extent


def _leaves(target: Target, geometry: Geometry) -> Iterator[Tuple[int, int]]:
    """(the key above it, address) of leaf nodes."""
    nodes, shape = [(0, geometry.rtree_root)], geometry.rtree
    for bits in shape.levels[:-1]:
        following: List[Tuple[int, int]] = []
        for key, node in nodes:
            for low, high in target.present_ranges(node, node + (WORD << bits)):
                words = array("Q", target.read_prefix(low, high - low & -WORD))
                following += [(key << bits | (low - node) // WORD + number, word) for number, word in enumerate(words) if word]
        nodes = [pair for pair in following if not pair[1] % 64][:MOST_NODES]
    yield from nodes
