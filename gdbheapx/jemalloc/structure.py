"""Read a jemalloc that names nothing by its structure: find arenas, layout, bins, radix tree, options and tsd in memory, and prove them."""

from array import array
from functools import cached_property
from itertools import islice
from typing import Callable, Dict, Iterable, Iterator, List, Optional, Sequence, Set, Tuple, Union

from gdbheapx import kernel as kernels
from gdbheapx.common.errors import UnreadableMemory
from gdbheapx.common.ranges import unite_ranges
from gdbheapx.inferior.base import Member, Module, StructType, Target, ThreadLocal, TypeSet
from gdbheapx.jemalloc import layouts, traces
from gdbheapx.jemalloc.layouts import JemallocGeometry, RtreeShape, StructTable, Version
from gdbheapx.jemalloc.symbols import HELD_PER_FAILED, Jemalloc, JemallocSymbols, prove_layout
from gdbheapx.jemalloc.traces import PAGE_BYTES, ArenaTable, BaseBlocks, JemallocTraces, find_base_pointers
from gdbheapx.kernel.jemalloc.records import BinLayout

ARENAS_TRIED = 8
"""Arenas that are asked for the places of their base pointer."""


def find_fitting_tables(
    target: Target, arenas: ArenaTable, nbins: Optional[int] = None, tsd_bytes: Optional[int] = None
) -> List[StructTable]:
    """The tables whose layout most of the arenas have; of those with that many bins and a tsd of that size, where these are known."""
    blocks, votes = BaseBlocks(target, arenas.page_bytes), {}  # type: BaseBlocks, Dict[str, int]
    likely = layouts.find_struct_tables(arenas.page_bytes, target.arch.mutex_bytes)
    tried = list(arenas.pointers.values())[:ARENAS_TRIED]
    for arena in tried:
        places = find_base_pointers(target, arena, blocks.base_of(arena) or 0)
        for table in likely:
            if table.fits(places):
                votes[table.name] = votes.get(table.name, 0) + 1
    fits = [table for table in likely if 2 * votes.get(table.name, 0) > len(tried)]
    return [table for table in fits if nbins in (None, table.nbins) and tsd_bytes in (None, table.tsd_bytes)]


TSD_LINKS = ("tsd_link", "tcache.tsd_link")
"""Where tsd_nominal_tsds links its members: from 5.3.0 on, in 5.2."""
MOST_TLS_BYTES = 1 << 18
"""Of one thread's block that is searched; tsd_s has 2 to 6 KB."""
MOST_THREADS = 64
"""Threads that are asked for the place, which is the same in all."""
MOST_POINTERS = 1 << 16
"""Words that are tried as the head of a list."""
ENTRIES_TRIED = 4
MOST_BESIDE_BYTES = 1 << 16
"""Below a thread pointer, or above it where the machine has static blocks there, if no file shows which object has its block where: static
blocks are a few KB, and a stack follows."""
MEMORY_PAGE_BYTES = 4096
NOMINAL_STATES = 3
"""tsd_state_nominal to nominal_recompute; before 5.2.0 one fewer."""


def _find_tsd_offset(types: TypeSet, *paths: str) -> Optional[int]:
    """The offset in tsd_s of the first of these members that this build has."""
    return next((place.offset for place in (types.place("tsd_s", path) for path in paths) if place is not None), None)


def _holds_tsd(types: TypeSet, read: Callable[[int, int], int], address: int, arenas: Sequence[int]) -> bool:
    """A thread that uses jemalloc has its tsd here: state, arenas, and what its cache says of itself."""
    state, arena, enabled = (_find_tsd_offset(types, path) for path in ("state", "arena", "tcache_enabled"))
    if state is None or arena is None or enabled is None or read(address + state, 1) >= NOMINAL_STATES:
        return False
    if read(address + arena, 8) not in arenas or read(address + enabled, 1) > 1:
        return False
    cache = _find_tsd_offset(types, "tcache")
    return not read(address + enabled, 1) or (cache is not None and is_tcache(types, read, address + cache, arenas))


def _counts_events(types: TypeSet, read: Callable[[int, int], int], address: int) -> bool:
    """Return whether the thread's allocated bytes lie between two events, and both copies of the next event agree (thread_event.h)."""
    names = ("thread_allocated_last_event", "thread_allocated", "thread_allocated_next_event", "thread_allocated_next_event_fast")
    places = [_find_tsd_offset(types, name) for name in names]
    last, allocated, following, fast = (read(address + place, 8) if place is not None else 0 for place in places)
    return last <= allocated <= following and fast in (following, 0) and bool(following)


def choose_tsd_table(
    target: Target,
    module: Module,
    tables: Sequence[StructTable],
    arenas: ArenaTable,
    memory: Sequence[Tuple[int, bytes]],
    rtree_ctx: Optional[int],
) -> Optional[StructTable]:
    """Choose among builds that differ in tsd_s alone the one that the threads have; None if none shows."""
    read, known = _make_reader(target), sorted(arenas.pointers.values())
    words = _find_pointers(target, memory)
    has_registers = any(one.thread_pointer for one in target.threads())
    votes = {table.name: 0 for table in tables}
    rings: Dict[int, List[int]] = {}
    for table in tables:
        types, link = table.types, _find_tsd_offset(table.types, *TSD_LINKS)
        if link is not None and link not in rings:
            rings[link] = list(_follow_rings(words, link, read))
        addresses = set(rings[link] if link is not None else _follow_descriptors(types, known, read))
        context = _find_tsd_offset(types, "rtree_ctx")
        if rtree_ctx is not None and context is not None and has_registers:  # those at the place in the thread-local image
            local = target.thread_local_at(module, rtree_ctx - context)
            addresses.update(address for address in (local.addresses.values() if local is not None else ()) if address is not None)
        tsds = [address for address in addresses if _holds_tsd(types, read, address, (0, *known))]
        votes[table.name] = sum(_counts_events(types, read, address) for address in tsds)
    best = max(tables, key=lambda table: votes[table.name])
    return best if votes[best.name] and list(votes.values()).count(votes[best.name]) == 1 else None


def find_explicit_caches(target: Target, types: TypeSet, memory: Sequence[Tuple[int, bytes]]) -> Optional[int]:
    """Find the variable `tcaches`, which leads to the array of caches that tcache.create made; None if there never was one.

    One of the first entries leads to a cache that names itself, so it is found also in builds without statistics, which put caches on no
    list.
    """
    read = _make_reader(target)
    first = _find_pointers(target, memory)
    for pointer in first:
        for entry in range(pointer, pointer + 8 * ENTRIES_TRIED, 8):
            if is_tcache(types, read, read(entry, 8)):
                return first[pointer]
    return None


def is_tcache(types: TypeSet, read: Callable[[int, int], int], cache: int, arenas: Sequence[int] = ()) -> bool:
    """Return whether a tcache_t lies here: tcache_slow_t from 5.3.0, its descriptor in 5.1 and 5.2 point back; in 5.0 it names an arena."""
    if not cache or cache & 7 or cache >> 56:
        return False
    forth, back = types.place("tcache_s", "tcache_slow"), types.place("tcache_slow_s", "tcache")
    if forth is not None and back is not None:
        slow = read(cache + forth.offset, 8)
        return not slow & 7 and not slow >> 56 and read(slow + back.offset, 8) == cache
    inner, small = types.place("tcache_s", "cache_bin_array_descriptor.bins_small"), types.place("tcache_s", "bins_small")
    if inner is not None and small is not None:
        return read(cache + inner.offset, 8) == cache + small.offset
    owner = types.place("tcache_s", "arena")
    return owner is not None and read(cache + owner.offset, 8) in arenas


def _make_reader(target: Target) -> Callable[[int, int], int]:
    """A reader of numbers out of memory, each page read once. They never cross a page; one that cannot be read is all ones."""
    known: Dict[int, bytes] = {}

    def read_number(address: int, size_bytes: int) -> int:
        page, at = address & -MEMORY_PAGE_BYTES, address & MEMORY_PAGE_BYTES - 1
        if page not in known:
            known[page] = target.read_prefix(page, MEMORY_PAGE_BYTES)
        return int.from_bytes(known[page][at : at + size_bytes].ljust(size_bytes, b"\xff"), "little")

    return read_number


def _find_pointers(target: Target, memory: Sequence[Tuple[int, bytes]]) -> Dict[int, int]:
    """The words of the object's memory that lead into anonymous memory or a stack, where threads have their blocks, in ascending order, and
    where each is first."""
    spans = unite_ranges([(mapping.start, mapping.end) for mapping in target.mappings() if mapping.writable and not mapping.is_file])
    first: Dict[int, int] = {}
    for address, word in kernels.load_native_library().find_addresses(memory, spans, 7):
        first.setdefault(word, address)
    return dict(sorted(first.items())[:MOST_POINTERS])


def _follow_rings(words: Iterable[int], link: int, read: Callable[[int, int], int]) -> Iterator[int]:
    """Members of circular lists whose head is one of these words: each leads to the next, and back."""
    for word in words:
        members, following = [word], read(word + link, 8)
        while following != word and not (following >> 56 or following & 7) and len(members) < MOST_THREADS:
            if read(following + link + 8, 8) != members[-1]:
                break
            members.append(following)
            following = read(following + link, 8)
        if len(members) >= MOST_THREADS or (following == word and read(word + link + 8, 8) == members[-1]):
            yield from members


def _follow_descriptors(types: TypeSet, arenas: Sequence[int], read: Callable[[int, int], int]) -> Iterator[int]:
    """Find the tsds around the descriptors of automatic caches, on the arenas' lists: after 5.3.1 there is no list of tsds. In builds
    without statistics these are empty."""
    head = types.place("arena_s", "cache_bin_array_descriptor_ql.qlh_first")
    link = types.place("cache_bin_array_descriptor_s", "link.qre_next")
    own = types.place("tsd_s", "tcache_slow.cache_bin_array_descriptor")
    if head is None or link is None or own is None:
        return
    for arena in arenas:
        first = at = read(arena + head.offset, 8)
        for _ in range(MOST_THREADS):
            if not at or at & 7 or at >> 56:
                break
            yield at - own.offset
            at = read(at + link.offset, 8)
            if at == first:
                break


class TsdFinder:
    """The place in every thread; looked for once, when the threads' registers are known."""

    def __init__(self, symbols: JemallocSymbols, types: TypeSet, page_bytes: int) -> None:
        self._symbols, self._types, self._page_bytes = symbols, types, page_bytes
        self._target, self._module = symbols.target, symbols.module
        self._offset: Optional[int] = None
        self._distance: Optional[int] = None

    @cached_property
    def _arenas(self) -> Sequence[int]:
        anchor = self._symbols.find("arenas")
        return (
            sorted(traces.read_arena_table(self._target, anchor.address, self._page_bytes).pointers.values()) if anchor is not None else ()
        )

    def find(self) -> Optional[ThreadLocal]:
        """Find each thread's tsd; None if its place is unknown."""
        if "te_data" in self._types.structs["tsd_s"].members and "te_data_s" not in self._types.structs:
            return None  # it is one of several kinds of a release, none of which is proven
        if self._distance is None and self._target.thread_local_at(self._module, 0) is None:
            self._distance = self._search_beside()
        if self._distance is not None:
            return self._target.beside_thread_pointer(self._distance)
        if self._offset is None:
            context = _find_tsd_offset(self._types, "rtree_ctx")
            rtree_ctx = traces.find_thread_image(self._target.thread_local_image(self._module))[0]
            self._offset = self._search_offset() if rtree_ctx is None or context is None else rtree_ctx - context
        return self._target.thread_local_at(self._module, self._offset) if self._offset is not None else None

    def _search_beside(self) -> Optional[int]:
        """Find the distance from the thread pointer at which most threads have a tsd, if the file with the relocations that show the
        object's block is not here. None if two distances have as many."""
        arena, internal = _find_tsd_offset(self._types, "arena"), _find_tsd_offset(self._types, "iarena")
        storage = self._target.arch.storage
        if arena is None or internal is None or storage.tcb_bytes is storage.self_words is None:
            return None
        votes: Dict[int, int] = {}
        for thread in list(self._target.threads())[:MOST_THREADS]:
            pointer = thread.thread_pointer or 0
            mapping = next((mapping for mapping in self._target.mappings() if mapping.start <= pointer < mapping.end), None)
            if mapping is None:
                continue
            start, end = max(pointer - MOST_BESIDE_BYTES, mapping.start), pointer
            if storage.tcb_bytes is not None:
                start, end = pointer + storage.tcb_bytes, min(pointer + MOST_BESIDE_BYTES, mapping.end)
            data = self._target.read_prefix(start, end - start)
            for offset in self._find_within(start, data, arena):
                pair = int.from_bytes(data[offset + internal : offset + internal + 8], "little")
                if pair in self._arenas:  # a stack may hold one pointer
                    distance = start + offset - pointer
                    votes[distance] = votes.get(distance, 0) + 1
        most = [distance for distance, count in votes.items() if count == max(votes.values())]
        return most[0] if len(most) == 1 else None

    def _search_offset(self) -> Optional[int]:
        """The offset in the object's block at which most threads have what is a tsd."""
        blocks = self._target.thread_local_at(self._module, 0)
        arena, pair = _find_tsd_offset(self._types, "arena"), _find_tsd_offset(self._types, "iarena")
        if blocks is None or arena is None or pair is None:
            return None
        pointers = {thread.lwp: thread.thread_pointer for thread in self._target.threads()}
        votes: Dict[int, int] = {}
        for lwp, block in list(blocks.addresses.items())[:MOST_THREADS]:
            if block is None:
                continue
            below = (pointers.get(lwp) or 0) - block
            size_bytes = min(below, MOST_TLS_BYTES) if below > 0 and blocks.way == "static-tls" else MOST_TLS_BYTES // 8
            for offset in self._find_within(block, self._target.read_prefix(block, size_bytes), arena):
                votes[offset] = votes.get(offset, 0) + 1
        return max(votes, key=lambda offset: (votes[offset], -offset)) if votes else None

    def _find_within(self, block: int, data: bytes, arena: int) -> Iterator[int]:
        known = set(self._arenas)

        def read_part(address: int, size_bytes: int) -> int:
            part = data[address - block : address - block + size_bytes] if address >= block else b""
            return int.from_bytes(part.ljust(size_bytes, b"\xff"), "little")

        for number, word in enumerate(array("Q", data[: len(data) & -8])):
            offset = 8 * number - arena
            if word in known and offset >= 0 and _holds_tsd(self._types, read_part, block + offset, self._arenas):
                yield offset


FIRST_UNLISTED: Version = (5, 3, 0)
"""The first release with edata_t and arena_emap_global."""
MOST_NODES = 64
"""Elements of the root and of nodes above the leaves that are followed for the proof."""
MOST_LEAF_BYTES = 4 << 20
MOST_PROOF_EXTENTS = 512
ENTRIES_BETWEEN = 12
"""Words between the last two pointers to the base, at most."""
WORD = 8
UNREADABLE_WORD = (1 << 64) - 1
TAIL_BYTES = WORD
"""Nothing is known after the base pointer."""
SHARD_IND = 32
"""Distance from pa_shard.ind to pa_shard.base; pa_shard.emap lies one word before it, and arena_s.ind one word before arena_s.base."""
MOST_BLOCKS = 4096
KEPT_STRUCTS = ("edata_s", "slab_data_s", "base_block_s", "bin_info_s", "bitmap_info_s", "bitmap_level_s", "ehooks_s")
"""Structs that are the same in all builds from 5.3.0 on that have the same page."""


def _lies_within(target: Target, module: Module, start: int, size_bytes: int) -> bool:
    return any(low <= start and start + size_bytes <= high for low, _, high in target.writable_segments(module))


def find_arena_ends(target: Target, module: Module, arenas: ArenaTable) -> Optional[Tuple[int, int, int]]:
    """Find the last two base pointers and the shared emap that most arenas have; None if they disagree.

    Gives the offsets of pa_shard.base and of base in arena_s, and the address of arena_emap_global.
    """
    votes: Dict[Tuple[int, int, int], int] = {}
    blocks = BaseBlocks(target, arenas.page_bytes)
    tried = list(arenas.pointers.items())[:ARENAS_TRIED]
    for index, arena in tried:
        places, seen = find_base_pointers(target, arena, blocks.base_of(arena) or 0), set()
        for first, second in zip(places, places[1:]):
            if not WORD < second - first <= ENTRIES_BETWEEN * WORD or first < SHARD_IND:
                continue
            emap = read_sized_word(target, arena + first - WORD, WORD)
            is_one = read_sized_word(target, arena + second - WORD, 4) == index == read_sized_word(target, arena + first - SHARD_IND, 4)
            if is_one and not emap % WORD and _lies_within(target, module, emap, WORD):
                seen.add((first, second, emap))
        for ends in seen:
            votes[ends] = votes.get(ends, 0) + 1
    best = max(votes, key=lambda ends: votes[ends], default=None)
    return best if best is not None and 2 * votes[best] > len(tried) else None


def read_sized_word(target: Target, address: int, size_bytes: int) -> int:
    """Read a number; all ones if unreadable."""
    return int.from_bytes(target.read_prefix(address, size_bytes).ljust(size_bytes, b"\xff"), "little")


def find_newest_tables(page_bytes: int, mutex_bytes: Sequence[int]) -> Sequence[StructTable]:
    """The last table of each mutex that the machine may have."""
    return list(
        {
            table.mutex_bytes: table for table in layouts.find_struct_tables(page_bytes, mutex_bytes) if "emap_s" in table.types.structs
        }.values()
    )


def make_partial_types(shard_base: int, arena_base: int, table: StructTable) -> TypeSet:
    """The structs as far as they are known; `table`: the newest of its page and machine."""
    structs = {name: table.types.structs[name] for name in KEPT_STRUCTS if name in table.types.structs}
    shard = {
        "ind": Member(shard_base - SHARD_IND, 4, 1, "uint"),
        "emap": Member(shard_base - WORD, WORD, 1, "pointer"),
        "base": Member(shard_base, WORD, 1, "pointer"),
    }
    arena = {
        "pa_shard": Member(0, shard_base + WORD, 1, "struct pa_shard_s"),
        "ind": Member(arena_base - WORD, 4, 1, "uint"),
        "base": Member(arena_base, WORD, 1, "pointer"),
    }
    structs["pa_shard_s"] = StructType(shard_base + WORD, shard)
    structs["arena_s"] = StructType(arena_base + TAIL_BYTES, arena)
    blocks = _find_offset(table, "base_s", "blocks")
    base = {"ehooks": Member(0, 16, 1, "struct ehooks_s"), "blocks": Member(blocks, WORD, 1, "pointer")}
    structs["base_s"] = StructType(blocks + WORD, base)
    return TypeSet(structs)


def _find_offset(table: StructTable, struct: str, path: str) -> int:
    """Return an offset that every build from 5.3.0 on has; it depends on the machine's mutex."""
    place = table.types.place(struct, path)
    assert place is not None
    return place.offset


def _has_own_blocks(target: Target, table: StructTable, arenas: ArenaTable) -> bool:
    """Return whether in most arenas the base's list of blocks ends with the base's own block."""
    blocks, place, held = BaseBlocks(target, arenas.page_bytes), _find_offset(table, "base_s", "blocks"), 0
    for arena in arenas.pointers.values():
        base = blocks.base_of(arena)
        if not base:
            continue
        block, last, left = read_sized_word(target, base + place, WORD), 0, MOST_BLOCKS
        while block and left and not block % traces.PIECE_BYTES:
            last, block, left = block, read_sized_word(target, block + WORD, WORD), left - 1
        held += not block and base - last in traces.BASE_OFFSETS.values()
    return 2 * held > len(arenas.pointers)


# ---------------------------------------------------------------------------------------------------- the proof


def prove_extents(jemalloc: Jemalloc, arenas: Set[int]) -> int:
    """Return the slabs that prove that the radix tree leads to extents of these arenas which contain the addresses looked up; 0 if most
    extents do not."""
    kinds = [_classify_extent(jemalloc, arenas, *pair) for pair in islice(_iterate_extents(jemalloc), MOST_PROOF_EXTENTS)]
    slabs = kinds.count("slab")
    return slabs if slabs + kinds.count("large") >= HELD_PER_FAILED * kinds.count("") else 0


def _classify_extent(jemalloc: Jemalloc, arenas: Set[int], address: int, extent: int) -> str:
    """`slab`, `large` or `unused`: an extent that contains the address, with nothing in it that contradicts; else nothing."""
    geometry = jemalloc.geometry
    try:
        view = jemalloc.view(geometry.extent_struct, extent)
    except UnreadableMemory:
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


def _iterate_extents(jemalloc: Jemalloc) -> Iterator[Tuple[int, int]]:
    """Iterate over (address, extent) of leaf elements in pages that are there, each extent once."""
    target, geometry, shape, left = jemalloc.target, jemalloc.geometry, jemalloc.geometry.rtree, MOST_LEAF_BYTES
    seen: Set[int] = set()
    width = WORD if shape.compact else 2 * WORD
    mask = (1 << shape.lg_vaddr) - 1 & ~((1 << geometry.leaf_low_bits) - 1)
    nodes = [(0, geometry.rtree_root)]  # (the key above it, address)
    for bits in shape.levels[:-1]:
        following: List[Tuple[int, int]] = []
        for key, node in nodes:
            for low, high in target.present_ranges(node, node + (WORD << bits)):
                words = array("Q", target.read_prefix(low, high - low & -WORD))
                following += [(key << bits | (low - node) // WORD + number, word) for number, word in enumerate(words) if word]
        nodes = [pair for pair in following if not pair[1] % 64][:MOST_NODES]
    for key, leaf in nodes:
        for low, high in target.present_ranges(leaf, leaf + (width << shape.levels[-1])):
            data = target.read_prefix(low, min(high - low, left))
            left -= len(data)
            words = array("Q", data[: len(data) & -width])[:: width // WORD]
            for number, word in enumerate(words):
                extent = word & mask if shape.compact else word
                if extent and extent not in seen:
                    seen.add(extent)
                    yield (key << shape.levels[-1] | (low - leaf) // width + number) << geometry.lg_page, extent


SLABS_LOOKED_UP = 4
MOST_TRIED = 1 << 15
"""Words of the object's memory that may be the root's element above one slab."""
NODE_ALIGNMENT = 64
"""Nodes are whole cache lines of base memory (base.c)."""

ENOUGH_ALIGNED = 8
"""So many that all begin with a page are no chance: one of 64 does in a cache-oblivious build."""
ROW_BYTES = 40
MOST_ROWS = 200
NAMED_NODE = (1).to_bytes(8, "little")
"""node.named of a row with a name."""
FIRST_NAME, SECOND_NAME = "version", "epoch"
"""Names of the root's first children in every release."""
MOST_CODE_BYTES = 512
OPTION_VARIABLES = {"zero_realloc": "opt_zero_realloc_action", "prof_time_resolution": "opt_prof_time_res"}
"""Options whose variable is called otherwise."""
LEAST_LARGE_PAGES = 4
"""SC_LARGE_MINCLASS."""


def is_plausible_root(target: Target, geometry: JemallocGeometry) -> bool:
    """Return whether a root that no slab proves has elements, all of them for mapped addresses."""
    shape, word = geometry.rtree, geometry.word_bytes
    shift = shape.lg_vaddr - shape.levels[0]
    data = target.read_prefix(geometry.rtree_root, word << shape.levels[0])
    used = [number for number, element in enumerate(array("Q", data[: len(data) & -8])) if element]
    mapped = {
        piece
        for mapping in target.mappings()
        for piece in range(mapping.start >> shift, min((mapping.end - 1 >> shift) + 1, (mapping.start >> shift) + 4096))
    }
    return bool(used) and all(number in mapped for number in used)


def measure_padding(jemalloc: Jemalloc) -> Optional[int]:
    """Measure sz_large_pad by large allocations; None if there are too few."""
    aligned, geometry = 0, jemalloc.geometry
    for _, extent in islice(_iterate_extents(jemalloc), MOST_PROOF_EXTENTS):
        try:
            view = jemalloc.view(geometry.extent_struct, extent)
        except UnreadableMemory:
            continue
        bits, fields = view["e_bits"], geometry.fields
        is_large = not fields["slab"].of(bits) and fields["state"].of(bits) == geometry.states.active
        if is_large and geometry.nbins <= fields["szind"].of(bits) < len(geometry.size_classes):
            if view["e_addr"] % geometry.page_bytes:
                return geometry.page_bytes
            aligned += 1
    return 0 if aligned >= ENOUGH_ALIGNED else None


def find_option_leaves(target: Target, module: Module, memory: Sequence[Tuple[int, bytes]]) -> Dict[str, Optional[int]]:
    """Find every option of mallctl's tree, without `opt.`, with the address of its variable; None where the code is not here or unclear."""
    root = next(_find_tree_roots(target, memory), None)
    rows = {name: (count, children) for name, count, children, _ in _read_tree_rows(target, root, MOST_ROWS)} if root is not None else {}
    if "opt" not in rows:
        return {}
    leaves = [(name, code) for name, count, _, code in _read_tree_rows(target, rows["opt"][1], min(rows["opt"][0], MOST_ROWS)) if not count]
    starts, spans = sorted({code for _, code in leaves if code}), target.writable_segments(module)
    return {name: _find_variable(target, code, starts, spans) if code else None for name, code in leaves}


def _find_tree_roots(target: Target, memory: Sequence[Tuple[int, bytes]]) -> Iterator[int]:
    """Addresses of the row `version` that the row `epoch` follows."""
    texts: Dict[int, Optional[str]] = {}
    for address, data in memory:
        at = data.find(NAMED_NODE)
        while at >= 0:
            pair = [] if address + at & 7 else array("Q", data[at : (at + 2 * ROW_BYTES) if at + 2 * ROW_BYTES <= len(data) else at])
            if len(pair) == 10 and pair[5] == 1 and not pair[2] and pair[1] > 4096 and pair[4]:
                for pointer in (pair[1], pair[6]):
                    if pointer not in texts:
                        texts[pointer] = target.text_at(pointer, 16)
                if texts[pair[1]] == FIRST_NAME and texts[pair[6]] == SECOND_NAME:
                    yield address + at
            at = data.find(NAMED_NODE, at + 1)


def _read_tree_rows(target: Target, start: int, most: int) -> Iterator[Tuple[str, int, int, int]]:
    """(name, number of children, children, code) of the rows from here on."""
    data = target.read_prefix(start, most * ROW_BYTES)
    for at in range(0, len(data) - ROW_BYTES + 1, ROW_BYTES):
        named, name, count, children, code = array("Q", data[at : at + ROW_BYTES])
        text = target.text_at(name, 64) if named & 0xFF == 1 and name else None
        if not text:
            return
        yield text, count, children, code


def _find_variable(target: Target, code: int, starts: Sequence[int], spans: Sequence[Tuple[int, int, int]]) -> Optional[int]:
    """The first place in writable memory that the function reads relative to itself."""
    end = next((start for start in starts if start > code), code + MOST_CODE_BYTES)
    reads = target.arch.relative_reads
    body = target.read_prefix(code, min(end - code, MOST_CODE_BYTES)) if reads is not None else b""
    places = reads(code, body, lambda address: int.from_bytes(target.read_prefix(address, 8), "little")) if reads is not None else ()
    return next((place for place in places if any(start <= place < end for start, _, end in spans)), None)


def locate_structure(target: Target, module: Module, seen: JemallocTraces) -> Union[Jemalloc, str]:
    """Read the jemalloc whose traces were found in this object; else return the reason why it cannot be read."""
    memory = list(traces.read_own_memory(target, module))
    arenas = traces.find_arena_table(target, memory, seen.bins.page_bytes if seen.bins is not None else PAGE_BYTES)
    if arenas is None or not _lies_within(target, module, arenas.address, 1):
        return "no arenas were found"
    search = _StructureSearch(target, module, seen, memory, arenas)
    fitting = find_fitting_tables(target, arenas, seen.bins.nbins if seen.bins is not None else None)
    wrong: List[str] = [] if fitting else ["no known layout fits its arenas"]
    for table in (*search.choose_tables(fitting), None):
        made = search.match_table(table) if table is not None else search.match_unlisted()
        if isinstance(made, Jemalloc):
            return made
        wrong.append(made)
    return "; ".join(dict.fromkeys(wrong))


class _StructureSearch:
    """The search for the layout of a jemalloc whose arenas were found."""

    def __init__(
        self, target: Target, module: Module, seen: JemallocTraces, memory: Sequence[Tuple[int, bytes]], arenas: ArenaTable
    ) -> None:
        self.target, self.module, self.seen, self.memory, self.arenas = target, module, seen, memory, arenas
        self.symbols = JemallocSymbols(target, module, "", None, {"arenas": arenas.address})

    def choose_tables(self, fitting: Sequence[StructTable]) -> List[StructTable]:
        """Choose a table for each kind of arena and bins: the one whose tsd_s the threads have."""
        kinds: Dict[Tuple[int, int], List[StructTable]] = {}
        for table in fitting:
            kinds.setdefault((table.arena_bytes, table.nbins), []).append(table)
        one_of_each = []
        for first, *others in kinds.values():
            chosen: Optional[StructTable] = first
            if others:
                chosen = choose_tsd_table(self.target, self.module, [first, *others], self.arenas, self.memory, self.seen.rtree_ctx)
            if chosen is None:  # its tsd_s is one of several kinds, none of which is proven
                chosen = first._replace(types=TypeSet({name: one for name, one in first.types.structs.items() if name != "te_data_s"}))
            one_of_each.append(chosen)
        return one_of_each

    def match_table(self, table: StructTable) -> Union[Jemalloc, str]:
        """Prove this layout; else return why it does not hold."""
        sizes = layouts.compute_size_classes(table.quantum_bytes)
        version, types = layouts.split_first_release(table.version, table.types, self.target.thread_local_image(self.module))
        pages, bins = layouts.select_page_classes(sizes, table.page_bytes), self._find_bin_infos(table, sizes)
        base = layouts.assemble_geometry(self.target, types, version, sizes, pages, bins)
        if base is None:
            return "its bins do not match"
        self.symbols.find_tsds = TsdFinder(self.symbols, types, self.arenas.page_bytes).find
        base = base._replace(narenas=max(self.arenas.pointers) + 1)
        candidate = Jemalloc(self.target, self.symbols, types, version, base, fitting=table.name)
        proven: List[Jemalloc] = []
        why = "its radix tree was not found"
        for root, shape in self._find_rtree_roots(candidate):
            made = prove_layout(candidate._replace(geometry=base._replace(rtree_root=root, rtree=shape)), is_own=False)
            if isinstance(made, str):
                why = made
            elif made.calibrated_slabs or is_plausible_root(self.target, made.geometry):
                proven.append(made)
        if not proven:
            return "%s: %s" % (table.name, why)
        best = max(proven, key=lambda made: made.calibrated_slabs)
        geometry = best.geometry
        if layouts.has_extent_sizes(version):
            padding = measure_padding(best)
            pad_bytes = geometry.page_bytes if padding is None else padding  # that of most builds
            geometry = geometry._replace(size_from_extent=True, large_pad_bytes=pad_bytes)
        self._add_variables({"tcaches": find_explicit_caches(self.target, types, self.memory)})
        return best._replace(geometry=self._add_arena_kinds(geometry))

    def _find_bin_infos(self, table: StructTable, sizes: Sequence[int]) -> List[BinLayout]:
        """Read the bins from memory, where opt.slab_sizes and opt.bin_shards may have changed them; compute those of releases before 5.2,
        which keep them among constants."""
        pairs = ((size, layouts.compute_slab_bytes(size, table.page_bytes)) for size in sizes[: table.nbins])
        computed = [BinLayout(size, slab, slab // size, 1) for size, slab in pairs]
        if self.seen.bins is None or not layouts.changes_bins(table.version):
            return computed
        try:
            return layouts.read_bin_infos(self.target, table.types, self.seen.bins.address, table.nbins)
        except UnreadableMemory:
            return computed

    def _list_shapes(self, geometry: JemallocGeometry) -> List[RtreeShape]:
        sizes = len(geometry.size_classes)
        shapes = (layouts.make_rtree_shape(bits, geometry.lg_page, sizes) for bits in self.target.arch.address_bits)
        return [shape for shape in shapes if shape is not None]

    def _find_rtree_roots(self, candidate: Jemalloc) -> List[Tuple[int, RtreeShape]]:
        """Find every root and shape that may be it, to be proven."""
        shapes, types = self._list_shapes(candidate.geometry), candidate.types
        place, emap = types.place("emap_s", "rtree.root"), types.place("arena_s", "pa_shard.emap")
        if place is not None and emap is not None:
            words = [read_sized_word(self.target, arena + emap.offset, WORD) for arena in self.arenas.pointers.values()]
            best = max(dict.fromkeys(words), key=words.count)  # the arena_emap_global that most arenas name
            return [(best + place.offset, shape) for shape in shapes] if best not in (0, UNREADABLE_WORD) else []
        slabs = list(islice(self._iterate_slabs(candidate), SLABS_LOOKED_UP))
        return [(root, shape) for shape in shapes for root in self._search_roots(candidate, shape, slabs)] if slabs else []

    def _iterate_slabs(self, candidate: Jemalloc) -> Iterator[Tuple[int, int]]:
        """(extent, first address) of slabs that bins name and whose own fields hold."""
        for index, arena in self.arenas.pointers.items():
            try:
                for szind, place in candidate.find_current_slabs(arena):
                    slab = self.target.read_word(place)
                    begin = candidate.check_slab(index, szind, slab)[1] if slab else 0
                    if begin:
                        yield slab, begin
            except UnreadableMemory:
                continue

    def _search_roots(self, candidate: Jemalloc, shape: RtreeShape, slabs: Sequence[Tuple[int, int]]) -> Iterator[int]:
        """Try each word of the object's memory as the root's element above the first slab; most other slabs must be found as well."""
        spans = [(start, end) for start, _, end in self.target.writable_segments(self.module)]
        begin, left = slabs[0][1], MOST_TRIED
        key, root_bytes = begin >> shape.lg_vaddr - shape.levels[0] & (1 << shape.levels[0]) - 1, WORD << shape.levels[0]
        library, heaps = kernels.load_native_library(), traces.list_writable_ranges(self.target)
        for address, _ in library.find_addresses(self.memory, heaps, NODE_ALIGNMENT - 1):
            root = address - WORD * key
            if left <= 0 or not any(start <= root and root + root_bytes <= end for start, end in spans):
                continue
            left -= 1
            tried = candidate._replace(geometry=candidate.geometry._replace(rtree_root=root, rtree=shape))
            if self._leads_to(tried, *slabs[0]) and 2 * sum(self._leads_to(tried, *pair) for pair in slabs) > len(slabs):
                yield root

    def _leads_to(self, tried: Jemalloc, slab: int, begin: int) -> bool:
        try:
            return tried.look_up_extent(begin) == slab
        except UnreadableMemory:
            return False

    def match_unlisted(self) -> Union[Jemalloc, str]:
        """Read extents alone of a build that no table fits, proven by slabs; else return why it is not proven."""
        target, arenas, seen, symbols = self.target, self.arenas, self.seen.bins, self.symbols
        if seen is None or not seen.is_sharded:
            return "its bins were not found"
        quantum, ends = layouts.find_quantum(seen.nbins, seen.page_bytes), find_arena_ends(target, self.module, arenas)
        if quantum is None or ends is None:
            return "its arenas do not end as those of jemalloc 5.3"
        likely = find_newest_tables(arenas.page_bytes, target.arch.mutex_bytes)
        table = next((table for table in likely if _has_own_blocks(target, table, arenas)), None)
        if table is None:
            return "its arenas' metadata is not as in jemalloc 5.3"
        shard_base, arena_base, emap = ends
        types, sizes = make_partial_types(shard_base, arena_base, table), layouts.compute_size_classes(quantum)
        try:
            infos = layouts.read_bin_infos(target, types, seen.address, seen.nbins)
        except UnreadableMemory:
            return "its bins cannot be read"
        pages = layouts.select_page_classes(sizes, seen.page_bytes)
        base = layouts.assemble_geometry(target, types, FIRST_UNLISTED, sizes, pages, infos)
        if base is None or [info.reg_size_bytes for info in infos] != list(sizes[: len(infos)]):
            return "its bins do not match"
        known = layouts.read_extent_states(types, layouts.UNRELEASED)._replace(pinned=None)  # up to 5.3.1 the same number is another state
        root = emap + _find_offset(table, "emap_s", "rtree.root")
        base = base._replace(narenas=max(arenas.pointers) + 1, rtree_root=root, states=known, size_from_extent=True)
        shapes = [shape for shape in self._list_shapes(base) if _lies_within(target, self.module, root, WORD << shape.levels[0])]
        made = [Jemalloc(target, symbols, types, FIRST_UNLISTED, base._replace(rtree=shape)) for shape in shapes]
        counts = [prove_extents(one, set(arenas.pointers)) for one in made]
        if not any(counts):
            return "its radix tree does not hold"
        best = made[counts.index(max(counts))]
        symbols.find_tsds = None
        self._add_variables({})
        option = symbols.read_variable("opt_cache_oblivious", 1)
        asked = None if option not in (0, 1) else option * base.page_bytes
        padding = measure_padding(best)
        pad_bytes = padding or (padding if asked is None else asked)
        if pad_bytes is None:
            return "how long its large allocations are is not known"
        geometry = self._add_arena_kinds(best.geometry._replace(large_pad_bytes=pad_bytes))
        return best._replace(geometry=geometry, calibrated_slabs=max(counts), named_arenas=len(arenas.pointers))

    def _add_variables(self, places: Dict[str, Optional[int]]) -> None:
        """Add these variables and the options of this build, as far as their places are known."""
        leaves = find_option_leaves(self.target, self.module, self.memory)
        self.symbols.option_names = ["opt_" + name for name in leaves]
        places = {**places, **{OPTION_VARIABLES.get(name, "opt_" + name): place for name, place in leaves.items()}}
        known = {name: place for name, place in places.items() if place is not None}
        self.symbols.places = {"arenas": self.arenas.address, **known}

    def _add_arena_kinds(self, geometry: JemallocGeometry) -> JemallocGeometry:
        """Add which arenas are automatic: opt.narenas of them once jemalloc runs, then the huge one if there is one, then the program's own
        (jemalloc.c: malloc_init_narenas, arena.c: arena_init_huge)."""
        automatic = self.symbols.read_variable("opt_narenas", 4)
        threshold = self.symbols.read_variable("opt_oversize_threshold")
        if not automatic or automatic > traces.ARENA_POINTERS:
            return geometry
        has_huge = threshold is not None and LEAST_LARGE_PAGES * geometry.page_bytes <= threshold <= geometry.size_classes[-1]
        return geometry._replace(manual_arena_base=automatic + has_huge, huge_arena=automatic if has_huge else None)
