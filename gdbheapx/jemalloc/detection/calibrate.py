"""The proof on slabs that types and constants are those of this build, and the arenas and bins on which it rests."""

import itertools
from typing import List, NamedTuple, Optional, Sequence, Tuple

from gdbheapx.errors import Unreadable
from gdbheapx.inferior.base import Target, TypeSet
from gdbheapx.jemalloc.detection.geometry import BinInfo, Geometry
from gdbheapx.jemalloc.detection.symbols import Symbols
from gdbheapx.layout.view import View, read_view

MAX_SLAB_BYTES = 1 << 30
MAX_SHARDS = 64
"""BIN_SHARDS_MAX in every release that has shards."""
SLABS_TRIED = ARENAS_TRIED = 64
_NONFULL = ("slabs_nonfull.ph.root", "slabs_nonfull.ph_root")
"""The root of the heap of slabs with free regions (ph.h); a bin that was filled in batches may have no current slab."""
LOOKS = 4
"""At one bin, while its slab changes under the eyes."""
HELD_PER_FAILED = 4
"""So many slabs must hold for each that does not."""


def words(target: Target, address: int, count: int, size_bytes: int = 0) -> List[int]:
    """`count` unsigned integers from `address`. Unreadable if one is missing."""
    size = size_bytes or target.word_bytes
    data = target.read(address, count * size)
    return [int.from_bytes(data[at : at + size], target.byte_order) for at in range(0, len(data), size)]


def scalar(target: Target, symbols: Symbols, name: str, size_bytes: int) -> Optional[int]:
    """The value of an unsigned variable; None if this build has none or it cannot be read."""
    symbol = symbols.find(name)
    if symbol is None:
        return None
    try:
        return words(target, symbol.address, 1, size_bytes)[0]
    except Unreadable:
        return None


def bin_addresses(target: Target, symbols: Symbols, types: TypeSet, bins: Sequence[BinInfo], arena: View) -> List[List[int]]:
    """Addresses of an arena's bins, by szind and shard. Unreadable where the pointers to them cannot be read.

    Up to 5.1 they stand in arena_s; in 5.2 arena_s.bins[i].bin_shards points to an array; from 5.3 they follow arena_s at
    arena_bin_offsets[i], one behind the other, all shards of each (arena.c: arena_boot).
    """
    offsets = symbols.find("arena_bin_offsets")
    if offsets is not None:
        size = types.size_bytes("bin_s")
        starts = words(target, offsets.address, len(bins), 4)
        return [[arena.address + starts[i] + shard * size for shard in range(info.n_shards)] for i, info in enumerate(bins)]
    if arena.has("bins[0].bin_shards"):
        size = types.size_bytes("bin_s")
        starts = [arena["bins[%d].bin_shards" % i] for i in range(len(bins))]
        return [[start + shard * size for shard in range(info.n_shards)] for start, info in zip(starts, bins)]
    behind = types.place("arena_s", types.first("arena_s", "all_bins", "bins") or "bins")
    if behind is not None and not behind.count:
        size, start = types.size_bytes("bin_s"), arena.address + behind.offset
        firsts = itertools.accumulate((info.n_shards for info in bins), initial=0)
        return [[start + (first + shard) * size for shard in range(info.n_shards)] for first, info in zip(firsts, bins)]
    return [[arena.address_of("bins[%d]" % i)] for i in range(len(bins))]


def bin_struct(types: TypeSet) -> str:
    """`bin_s`, in 5.0.x `arena_bin_s`."""
    return "bin_s" if "bin_s" in types.structs else "arena_bin_s"


def arena_pointers(target: Target, symbols: Symbols, narenas: int) -> List[int]:
    """arenas[0..narenas): 0 where there is none. Unreadable if the array is."""
    anchor = symbols.find("arenas")
    return words(target, anchor.address, narenas) if anchor is not None else []


class Calibration(NamedTuple):
    """What became of the proof."""

    wrong: Optional[str]
    """What does not hold, in words; None if what was tried does, but for what looks like damage in a heap of this layout."""
    slabs: int
    """Current slabs that were tried and hold; 0 where no bin has one yet, or the radix tree above all of them cannot be read."""
    named: int = 0
    """Arenas that name their own index where these types have it; 0 where none can be asked."""


class _Proof:
    """What the current slabs of some arenas say."""

    def __init__(self) -> None:
        self.held = self.failed = self.unled = 0
        self.wrong: Optional[str] = None
        """The first that does not hold."""
        self.unreadable: Optional[str] = None

    def add(self, other: "_Proof") -> None:
        self.held, self.failed, self.unled = self.held + other.held, self.failed + other.failed, self.unled + other.unled
        self.wrong, self.unreadable = self.wrong or other.wrong, self.unreadable or other.unreadable

    @property
    def tried(self) -> int:
        return self.held + self.failed + self.unled


def check(
    target: Target, symbols: Symbols, types: TypeSet, geometry: Geometry, is_own: bool = True, most: int = SLABS_TRIED
) -> Calibration:
    """Whether arenas name their index, current slabs read as slabs of their bin and arena, and the radix tree leads to them.

    With a layout that is not this build's nearly all of them fail. A few that do are damage, or were taken while they were being
    made: most must hold, and of the arenas that have slabs not more than half may be without any that holds. `is_own`: the types are
    those of this very build, so that an arena with another index is damaged as long as slabs hold; else it is the layout that is wrong.
    """
    if not all(_is_bin(info, size, geometry.page_bytes) for info, size in zip(geometry.bins, geometry.size_classes)):
        return Calibration("bin_infos does not match the size classes", 0)
    try:
        arenas = arena_pointers(target, symbols, geometry.narenas)
    except Unreadable as problem:
        return Calibration(problem.message, 0)
    names = _names(target, types, arenas)
    total, alien, lost, sound = _Proof(), _Proof(), 0, 0
    for index, address in enumerate(arenas):
        if not address or total.tried >= most:
            continue
        proof = _try_arena(target, symbols, types, geometry, index, address, most)
        is_alien = bool(proof.failed) and not proof.held + proof.unled
        (alien if is_alien else total).add(proof)
        lost, sound = lost + is_alien, sound + bool(proof.held + proof.unled)
    good = total.held + total.unled
    if names.wrong is not None and names.failed > names.held and not (is_own and good):
        return Calibration(names.wrong, total.held)
    if lost > sound or good < HELD_PER_FAILED * total.failed:
        return Calibration(total.wrong or alien.wrong, total.held)
    if not good and (not arenas or not arenas[0]):  # the first thing that initialisation makes, and never destroyed
        return Calibration("arena 0 not found", 0)
    return Calibration(None if good else total.unreadable, total.held, names.held)


def _names(target: Target, types: TypeSet, arenas: Sequence[int]) -> _Proof:
    """Which arenas name the index under which they stand in arenas[]."""
    proof = _Proof()
    for index, address in enumerate(arenas):
        if address and proof.tried < ARENAS_TRIED:
            own = own_index(target, types, address)
            proof.held, proof.failed = proof.held + (own == index), proof.failed + (own is not None and own != index)
            if own is not None and own != index and proof.wrong is None:
                proof.wrong = "arenas[%d] points to a struct that says it is arena %d" % (index, own)
    return proof


def own_index(target: Target, types: TypeSet, address: int) -> Optional[int]:
    """arena_s.ind (from 5.3), or that of its base (base_s.ind); None if neither can be read."""
    try:
        for struct, path in (("arena_s", "ind"), ("arena_s", "base"), ("base_s", "ind")):
            place = types.place(struct, path)
            if place is not None:
                value = int.from_bytes(target.read(address + place.offset, place.size_bytes), target.byte_order)
                if path == "ind":
                    return value
                address = value
    except Unreadable:
        pass
    return None


def _is_bin(info: BinInfo, size_bytes: int, page_bytes: int) -> bool:
    """What holds for every bin_info_t, also where opt.slab_sizes and opt.bin_shards changed it."""
    if info.reg_size_bytes != size_bytes or not 0 < info.slab_size_bytes <= MAX_SLAB_BYTES or info.slab_size_bytes % page_bytes:
        return False
    return info.nregs == info.slab_size_bytes // size_bytes and 0 < info.n_shards <= MAX_SHARDS


def _try_arena(target: Target, symbols: Symbols, types: TypeSet, geometry: Geometry, index: int, address: int, most: int) -> _Proof:
    """The proof on the current slabs of one arena."""
    proof = _Proof()
    try:
        slabs = current_slabs(target, symbols, types, geometry, address)
    except Unreadable as problem:
        proof.unreadable = problem.message
        return proof
    for szind, place in slabs[:most]:
        for _ in range(LOOKS):  # of a process that runs: the slab may have been given back between two reads, and another be current
            tried = _try_slab(target, types, geometry, index, szind, place)
            if not tried.failed:
                break
        proof.add(tried)
    return proof


def _try_slab(target: Target, types: TypeSet, geometry: Geometry, index: int, szind: int, place: int) -> _Proof:
    """The proof on the slab that the pointer at `place` names now."""
    proof = _Proof()
    try:
        slab = words(target, place, 1)[0]
        if not slab:
            return proof
        wrong, begin = _wrong_slab(target, types, geometry, index, szind, slab)
    except Unreadable as problem:
        proof.unreadable = problem.message
        return proof
    try:
        led = look_up(target, geometry, begin) if wrong is None else None
    except Unreadable:
        proof.unled = 1
        return proof
    if wrong is None and led != slab:
        wrong = "the radix tree leads from 0x%x to 0x%x" % (begin, led or 0)
    if wrong is not None:
        proof.failed, proof.wrong = 1, "the slab 0x%x of bin %d in arena %d: %s" % (slab, szind, index, wrong)
    else:
        proof.held = 1
    return proof


def current_slabs(target: Target, symbols: Symbols, types: TypeSet, geometry: Geometry, address: int) -> List[Tuple[int, int]]:
    """(szind, address of a pointer to a slab) of the arena's bins: the current one, and the first of those with a free region. None where
    no type tells how bins are laid out."""
    if bin_struct(types) not in types.structs:
        return []
    arena = read_view(target, types, "arena_s", address)
    struct = bin_struct(types)
    members = [types.place(struct, path) for path in ("slabcur", types.first(struct, *_NONFULL) or "slabcur")]
    offsets = sorted({member.offset for member in members if member is not None})
    places = []
    for szind, shards in enumerate(bin_addresses(target, symbols, types, geometry.bins, arena)):
        for shard in shards:
            places += [(szind, shard + offset) for offset in offsets if words(target, shard + offset, 1)[0]]
    return places


def slab_begin(target: Target, types: TypeSet, geometry: Geometry, arena: int, szind: int, slab: int) -> int:
    """The first address of this slab, if its own fields say that it is one of this bin and arena; else 0."""
    wrong, begin = _wrong_slab(target, types, geometry, arena, szind, slab) if slab else ("", 0)
    return begin if wrong is None else 0


def _wrong_slab(target: Target, types: TypeSet, geometry: Geometry, arena: int, szind: int, slab: int) -> Tuple[Optional[str], int]:
    """What is wrong with the slab's own fields, and its e_addr."""
    extent = read_view(target, types, geometry.extent_struct, slab)
    bits, fields = extent["e_bits"], geometry.fields
    seen = {name: fields[name].of(bits) for name in ("slab", "state", "szind", "arena", "nfree")}
    expected = {"slab": 1, "state": geometry.states.active, "szind": szind, "arena": arena}
    for name, value in expected.items():
        if seen[name] != value:
            return "e_bits 0x%x has %s %d, not %d" % (bits, name, seen[name], value), 0
    info = geometry.bins[szind]
    if seen["nfree"] > info.nregs:
        return "e_bits 0x%x has nfree %d of %d regions" % (bits, seen["nfree"], info.nregs), 0
    page = geometry.page_bytes
    if extent["e_size_esn"] & -page != info.slab_size_bytes:
        return "e_size_esn 0x%x is not its bin's slab size %d" % (extent["e_size_esn"], info.slab_size_bytes), 0
    return None, extent["e_addr"]


def leaf_of(target: Target, geometry: Geometry, address: int) -> int:
    """The leaf node that has the element of this address; 0 if there is none. Unreadable where a node above is."""
    node, shift = geometry.rtree_root, geometry.rtree.lg_vaddr
    key = address & (1 << shift) - 1
    for bits in geometry.rtree.levels[:-1]:
        shift -= bits
        node = words(target, node + (key >> shift & (1 << bits) - 1) * geometry.word_bytes, 1)[0]
        if not node:
            return 0
    return node


def look_up(target: Target, geometry: Geometry, address: int) -> Optional[int]:
    """The extent that the radix tree has for this address; None if it has none. Unreadable where a node is."""
    node, shape = leaf_of(target, geometry, address), geometry.rtree
    if not node:
        return None
    place = (address & (1 << shape.lg_vaddr) - 1) >> shape.lg_vaddr - sum(shape.levels) & (1 << shape.levels[-1]) - 1
    extent = words(target, node + place * (1 if shape.compact else 2) * geometry.word_bytes, 1)[0]
    if shape.compact:
        extent &= (1 << shape.lg_vaddr) - 1 & ~((1 << geometry.leaf_low_bits) - 1)
        if geometry.sign_extend and extent >> shape.lg_vaddr - 1:
            extent |= (1 << 64) - (1 << shape.lg_vaddr)
    return extent or None
