"""A jemalloc that names nothing, read by its structure: arenas, layout, bins and radix tree found in memory, then proven as any other.

jemalloc's options without symbols: their names stand in mallctl's tree; the code of each leaf shows where its variable lies.

A row is ctl_named_node_t {node.named, name, nchildren, children, ctl} (ctl.h), the same in every release of 5. A leaf of `opt` copies its
variable (ctl.c: CTL_RO_NL_GEN): the first place in .data or .bss that its code reads relative to itself. Names alone where arch/ does not
decode it.

How much longer an extent is than the large allocation in it (sz_large_pad), where no variable says it: a page in cache-oblivious builds.

From 5.3.1 on the usable size is the extent's less this. In a cache-oblivious build the allocation begins at a random cache line of the
first page.

The root of the radix tree, where no symbol names it: from 5.3.0 every arena does, before that look-ups of slabs find it.

A tree is never walked before that: with a wrong root or shape a walk takes minutes.
"""

from array import array
from itertools import islice
from typing import Dict, Iterable, Iterator, List, NamedTuple, Optional, Sequence, Set, Tuple

from gdbheapx import kernel as kernels
from gdbheapx.errors import Unreadable
from gdbheapx.inferior.base import Module, Symbol, Target, ThreadLocal, TypeSet
from gdbheapx.jemalloc.detection import calibrate, fingerprint, layouts, tables, traces, tsd_place, unlisted
from gdbheapx.jemalloc.detection.calibrate import Calibration
from gdbheapx.jemalloc.detection.fingerprint import Arenas
from gdbheapx.jemalloc.detection.geometry import BinInfo, Geometry, RtreeShape, assemble, read_bin_infos, rtree_shape
from gdbheapx.jemalloc.detection.symbols import Symbols
from gdbheapx.jemalloc.detection.tables import Table
from gdbheapx.jemalloc.detection.traces import Bins, Thread, Traces, own_memory
from gdbheapx.layout.view import read_view

SLABS_LOOKED_UP = 4
MOST_TRIED = 1 << 15
"""Words of the object's memory that may be the root's element above one slab."""
NODE_ALIGNMENT = 64
"""Nodes are whole cache lines of base memory (base.c)."""

Root = Tuple[int, RtreeShape]
MOST_LEAVES = 4
MOST_EXTENTS = 256
ENOUGH = 8
"""So many that all begin with a page are no chance: one of 64 does in a cache-oblivious build."""
ROW_BYTES = 40
MOST_ROWS = 200
NAMED = (1).to_bytes(8, "little")
"""node.named of a row with a name."""
FIRST, SECOND = "version", "epoch"
"""Names of the root's first children in every release."""
MOST_CODE_BYTES = 512
VARIABLES = {"zero_realloc": "opt_zero_realloc_action", "prof_time_resolution": "opt_prof_time_res"}
"""Options whose variable is called otherwise."""
LEAST_LARGE_PAGES = 4
"""SC_LARGE_MINCLASS."""
FOUND_BY = "probe"
"""Where its addresses come from, in the envelope's word."""


def find_roots(
    target: Target,
    module: Module,
    types: TypeSet,
    geometry: Geometry,
    shapes: Sequence[RtreeShape],
    arenas: Sequence[int],
    slabs: Iterable[Tuple[int, int]],
    memory: Sequence[Tuple[int, bytes]],
) -> List[Root]:
    """Every root and shape that may be it, to be proven. `slabs`: (extent, first address)."""
    place, emap = types.place("emap_s", "rtree.root"), types.place("arena_s", "pa_shard.emap")
    if place is not None and emap is not None:
        return [(root + place.offset, shape) for root in _named(target, arenas, emap.offset) for shape in shapes]
    known = list(islice(slabs, SLABS_LOOKED_UP))
    return list(_by_look_up(target, module, geometry, shapes, known, memory)) if known else []


def _named(target: Target, arenas: Sequence[int], offset: int) -> List[int]:
    """What most arenas name as arena_emap_global."""
    votes: Dict[int, int] = {}
    for arena in arenas:
        word = int.from_bytes(target.read_prefix(arena + offset, 8), "little")
        votes[word] = votes.get(word, 0) + 1
    best = max(votes, key=lambda word: votes[word], default=0)
    return [best] if best else []


def _by_look_up(
    target: Target,
    module: Module,
    geometry: Geometry,
    shapes: Sequence[RtreeShape],
    slabs: Sequence[Tuple[int, int]],
    memory: Sequence[Tuple[int, bytes]],
) -> Iterator[Root]:
    """Each word of the object's memory is tried as the root's element above the first slab; the others must then be found as well."""
    spans = [(start, end) for start, _, end in target.writable_segments(module)]
    words = kernels.load().find_addresses(memory, traces.writable_ranges(target), NODE_ALIGNMENT - 1)
    slab, begin = slabs[0]
    for shape in shapes:
        key, left = begin >> shape.lg_vaddr - shape.levels[0] & (1 << shape.levels[0]) - 1, MOST_TRIED
        root_bytes = geometry.word_bytes << shape.levels[0]
        for address, _ in words:
            root = address - geometry.word_bytes * key
            if left <= 0 or not any(start <= root and root + root_bytes <= end for start, end in spans):
                continue
            left -= 1
            if _leads(target, geometry, root, shape, slab, begin) and _others(target, geometry, root, shape, slabs):
                yield root, shape


def _leads(target: Target, geometry: Geometry, root: int, shape: RtreeShape, slab: int, begin: int) -> bool:
    try:
        return calibrate.look_up(target, geometry._replace(rtree_root=root, rtree=shape), begin) == slab
    except Unreadable:
        return False


def _others(target: Target, geometry: Geometry, root: int, shape: RtreeShape, slabs: Sequence[Tuple[int, int]]) -> bool:
    held = sum(_leads(target, geometry, root, shape, slab, begin) for slab, begin in slabs)
    return 2 * held > len(slabs)


def is_plausible(target: Target, geometry: Geometry) -> bool:
    """Where no slab proves it: the root has elements, and each stands for addresses at which something is mapped."""
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


def find_padding(target: Target, types: TypeSet, geometry: Geometry, near: Sequence[int]) -> int:
    """sz_large_pad, by large allocations in the parts of the radix tree that have these addresses; that of most builds if there are few."""
    padding = seen_padding(target, types, geometry, near)
    return geometry.page_bytes if padding is None else padding


def seen_padding(target: Target, types: TypeSet, geometry: Geometry, near: Sequence[int]) -> Optional[int]:
    """The same; None if there are too few to tell."""
    aligned = 0
    for extent in _extents(target, geometry, near):
        try:
            view = read_view(target, types, geometry.extent_struct, extent)
        except Unreadable:
            continue
        bits, fields = view["e_bits"], geometry.fields
        is_large = not fields["slab"].of(bits) and fields["state"].of(bits) == geometry.states.active
        if is_large and geometry.nbins <= fields["szind"].of(bits) < len(geometry.size_classes):
            if view["e_addr"] % geometry.page_bytes:
                return geometry.page_bytes
            aligned += 1
    return 0 if aligned >= ENOUGH else None


def _extents(target: Target, geometry: Geometry, near: Sequence[int]) -> Iterator[int]:
    """Extents that the leaves above these addresses name."""
    shape = geometry.rtree
    seen: Set[int] = set()
    leaves: Set[int] = set()
    mask = (1 << shape.lg_vaddr) - 1 & ~((1 << geometry.leaf_low_bits) - 1)
    width = 1 if shape.compact else 2
    for address in near:
        try:
            leaf = calibrate.leaf_of(target, geometry, address)
        except Unreadable:
            leaf = 0
        if leaf in leaves or len(leaves) >= MOST_LEAVES:
            continue
        leaves.add(leaf)
        data = target.read_prefix(leaf, width * geometry.word_bytes << shape.levels[-1]) if leaf else b""
        elements: Set[int] = set(array("Q", data[: len(data) & -8])[::width])
        for element in sorted(elements):
            extent = element & mask if shape.compact else element
            if extent and extent not in seen and len(seen) < MOST_EXTENTS:
                seen.add(extent)
                yield extent


class Leaf(NamedTuple):
    """One option."""

    name: str
    """Without `opt.`."""
    variable: Optional[int]
    """Address of what it is read from; None where the code is not here, or does not tell."""


def find_options_tree(target: Target, module: Module, memory: Sequence[Tuple[int, bytes]]) -> List[Leaf]:
    """Every option of this build; empty where the tree is not there."""
    root = next(_roots(target, memory), None)
    rows = {name: (count, children) for name, count, children, _ in _rows(target, root, MOST_ROWS)} if root is not None else {}
    if "opt" not in rows:
        return []
    leaves = [(name, code) for name, count, _, code in _rows(target, rows["opt"][1], min(rows["opt"][0], MOST_ROWS)) if not count]
    starts, spans = sorted({code for _, code in leaves if code}), target.writable_segments(module)
    return [Leaf(name, _variable(target, code, starts, spans) if code else None) for name, code in leaves]


def _roots(target: Target, memory: Sequence[Tuple[int, bytes]]) -> Iterator[int]:
    """Addresses of the row `version` that the row `epoch` follows."""
    texts: Dict[int, Optional[str]] = {}
    for address, data in memory:
        at = data.find(NAMED)
        while at >= 0:
            pair = [] if address + at & 7 else array("Q", data[at : (at + 2 * ROW_BYTES) if at + 2 * ROW_BYTES <= len(data) else at])
            if len(pair) == 10 and pair[5] == 1 and not pair[2] and pair[1] > 4096 and pair[4]:
                for pointer in (pair[1], pair[6]):
                    if pointer not in texts:
                        texts[pointer] = target.text_at(pointer, 16)
                if texts[pair[1]] == FIRST and texts[pair[6]] == SECOND:
                    yield address + at
            at = data.find(NAMED, at + 1)


def _rows(target: Target, start: int, most: int) -> Iterator[Tuple[str, int, int, int]]:
    """(name, number of children, children, code) of the rows from here on."""
    data = target.read_prefix(start, most * ROW_BYTES)
    for at in range(0, len(data) - ROW_BYTES + 1, ROW_BYTES):
        named, name, count, children, code = array("Q", data[at : at + ROW_BYTES])
        text = target.text_at(name, 64) if named & 0xFF == 1 and name else None
        if not text:
            return
        yield text, count, children, code


def _variable(target: Target, code: int, starts: Sequence[int], spans: Sequence[Tuple[int, int, int]]) -> Optional[int]:
    """The first place in writable memory that the function reads relative to itself."""
    end = next((start for start in starts if start > code), code + MOST_CODE_BYTES)
    reads = target.arch.relative_reads
    body = target.read_prefix(code, min(end - code, MOST_CODE_BYTES)) if reads is not None else b""
    places = reads(code, body, lambda address: int.from_bytes(target.read_prefix(address, 8), "little")) if reads is not None else ()
    return next((place for place in places if any(start <= place < end for start, _, end in spans)), None)


class StructureSymbols(Symbols):
    """The few variables that memory itself tells the places of; None for all others.

    Its public functions are exported as those of any library, unless it is linked into a stripped program.
    """

    def __init__(self, target: Target, module: Module, places: Dict[str, int]) -> None:
        super().__init__(target, module, "", None)
        self._places = places
        self.option_names: Sequence[str] = ()
        """`opt_NAME` of every option that mallctl knows, whether or not its variable is known."""

    @property
    def by_structure(self) -> bool:
        return True

    def add(self, name: str, place: Optional[int]) -> None:
        """Another variable, if it was found."""
        if place is not None:
            self._places[name] = place

    def options(self, leaves: Sequence[Leaf]) -> None:
        """The options of this build, with the places of those whose code told them."""
        self.option_names = ["opt_" + leaf.name for leaf in leaves]
        known = {leaf.name: leaf.variable for leaf in leaves}
        for name in known:
            self._places.update({VARIABLES.get(name, "opt_" + name): place for place in [known[name]] if place is not None})

    def find(self, name: str) -> Optional[Symbol]:
        place = self._places.get(name)
        return None if place is None else Symbol(name, place, self.module, FOUND_BY)

    def near(self, function: Optional[str] = None) -> Optional[Symbol]:
        return None

    def size_bytes(self, name: str) -> Optional[int]:
        return None

    def thread_local_bytes(self, name: str) -> Optional[int]:
        return None

    def constant(self, name: str) -> Optional[int]:
        return None

    def names(self, start: str) -> List[str]:
        return []  # of what no table knows the width is not known either

    def thread_local(self, name: str) -> Optional[ThreadLocal]:
        return self._tsds_by_structure(name)

    def prepare(self) -> None:
        self._target.prepare_thread_local_at(self.module)
        _ = self.texts, self.public_names


class StructureMatch(NamedTuple):
    """One that was found so."""

    symbols: StructureSymbols
    types: TypeSet
    version: layouts.Version
    geometry: Geometry
    proof: Calibration
    table: Optional[str]
    """Name of the table that fits; None where none does, and only what every build from 5.3.0 on says of itself is read."""


class NotLocated(NamedTuple):
    """What was seen of one that cannot be read."""

    arenas: Optional[Arenas]
    evidence: str


def locate(target: Target, module: Module, seen: Traces) -> "StructureMatch | NotLocated":
    """The jemalloc whose traces were found in this object."""
    memory = list(own_memory(target, module))
    arenas = fingerprint.find_in(target, module, memory, seen.bins.page_bytes if seen.bins is not None else tables.PAGE_BYTES)
    if arenas is None:
        return NotLocated(None, "no arenas were found")
    fitting = fingerprint.fitting(target, arenas, seen.bins.nbins if seen.bins is not None else None)
    wrong: List[str] = [] if fitting else ["no known layout fits its arenas"]
    for table in _of_one_tsd(target, module, fitting, arenas, memory, seen.thread):
        made = _with_table(target, module, table, arenas, memory, seen)
        if isinstance(made, StructureMatch):
            return made
        wrong.append(made)
    partly = _without_table(target, module, arenas, memory, seen)
    if isinstance(partly, StructureMatch):
        return partly
    wrong.append(partly)
    return NotLocated(arenas, "; ".join(dict.fromkeys(wrong)))


def _of_one_tsd(
    target: Target, module: Module, fitting: Sequence[Table], arenas: Arenas, memory: Sequence[Tuple[int, bytes]], thread: Optional[Thread]
) -> List[Table]:
    """One of each kind of arena and bins: the one whose tsd_s the threads have."""
    kinds: Dict[Tuple[int, int], List[Table]] = {}
    for table in fitting:
        kinds.setdefault((table.arena_bytes, table.nbins), []).append(table)
    one_of_each = []
    for same in kinds.values():
        chosen = tsd_place.choose(target, module, same, arenas, memory, thread) if len(same) > 1 else same[0]
        one_of_each.append(chosen if chosen is not None else same[0]._replace(types=_without_tsd(same[0].types)))
    return one_of_each


def _without_tsd(types: TypeSet) -> TypeSet:
    """The types of a release with several kinds of tsd_s, none of which is proven."""
    return TypeSet({name: struct for name, struct in types.structs.items() if name not in ("te_data_s",)})


def _with_table(
    target: Target, module: Module, table: Table, arenas: Arenas, memory: Sequence[Tuple[int, bytes]], seen: Traces
) -> "StructureMatch | str":
    """What this layout makes of it, proven; else why it does not hold."""
    sizes = tables.size_classes(table.quantum_bytes)
    version, types = layouts.of_first_threads(table.version, table.types, target.thread_local_image(module))
    bins = _bins(target, table, sizes, seen.bins)
    base = assemble(target, types, version, sizes, tables.page_classes(sizes, table.page_bytes), bins)
    if base is None:
        return "its bins do not match"
    base = base._replace(narenas=arenas.highest + 1)
    symbols = StructureSymbols(target, module, {"arenas": arenas.address})
    symbols.tell(lambda: tsd_place.Finder(target, module, types, sorted(arenas.pointers.values()), seen.thread))
    shapes = [shape for bits in target.arch.address_bits for shape in [rtree_shape(bits, base.lg_page, len(sizes))] if shape is not None]
    slabs = _slabs(target, symbols, types, base, arenas)
    proven: List[Tuple[Geometry, Calibration]] = []
    why = "its radix tree was not found"
    for root, shape in find_roots(target, module, types, base, shapes, list(arenas.pointers.values()), slabs, memory):
        geometry = base._replace(rtree_root=root, rtree=shape)
        proof = calibrate.check(target, symbols, types, geometry, False)
        if proof.wrong is None and (proof.slabs or is_plausible(target, geometry)):
            proven.append((geometry, proof))
        else:
            why = proof.wrong or why
    if not proven:
        return "%s: %s" % (table.name, why)
    geometry, proof = max(proven, key=lambda pair: pair[1].slabs)
    if layouts.has_extent_sizes(version):
        near = [begin for _, begin in _slabs(target, symbols, types, base, arenas)]
        geometry = geometry._replace(size_from_extent=True, large_pad_bytes=find_padding(target, types, geometry, near))
    symbols.add("tcaches", tsd_place.explicit_caches(target, types, memory))
    symbols.options(find_options_tree(target, module, memory))
    return StructureMatch(symbols, types, version, _with_kinds(target, symbols, geometry), proof, table.name)


def _without_table(
    target: Target, module: Module, arenas: Arenas, memory: Sequence[Tuple[int, bytes]], seen: Traces
) -> "StructureMatch | str":
    """What it says of itself where no layout fits: its extents alone."""
    made = unlisted.read(target, module, arenas, seen.bins)
    if isinstance(made, str):
        return made
    symbols = StructureSymbols(target, module, {"arenas": arenas.address})
    symbols.options(find_options_tree(target, module, memory))
    option = calibrate.scalar(target, symbols, "opt_cache_oblivious", 1)
    told = None if option not in (0, 1) else option * made.geometry.page_bytes
    padding = seen_padding(target, made.types, made.geometry, made.proof.addresses)
    pad = padding or (padding if told is None else told)
    if pad is None:
        return "how long its large allocations are is not known"
    geometry = _with_kinds(target, symbols, made.geometry._replace(large_pad_bytes=pad))
    proof = Calibration(None, made.proof.slabs, len(arenas.pointers))
    return StructureMatch(symbols, made.types, unlisted.FIRST, geometry, proof, None)


def _with_kinds(target: Target, symbols: Symbols, geometry: Geometry) -> Geometry:
    """opt.narenas is the number of automatic arenas once jemalloc runs; the huge one comes behind them if there is one, then the program's
    own (jemalloc.c: malloc_init_narenas, arena.c: arena_init_huge)."""
    automatic = calibrate.scalar(target, symbols, "opt_narenas", 4)
    threshold = calibrate.scalar(target, symbols, "opt_oversize_threshold", geometry.word_bytes)
    if not automatic or automatic > traces.ARENA_POINTERS:
        return geometry
    has_huge = threshold is not None and LEAST_LARGE_PAGES * geometry.page_bytes <= threshold <= geometry.size_classes[-1]
    return geometry._replace(manual_arena_base=automatic + has_huge, huge_arena=automatic if has_huge else None)


def _bins(target: Target, table: Table, sizes: Sequence[int], seen: Optional[Bins]) -> List[BinInfo]:
    """As memory has them, where opt.slab_sizes and opt.bin_shards may have changed them; as the releases before 5.2 make them, which keep
    them among constants."""
    classes = sizes[: table.nbins]
    computed = [BinInfo(size, slab, slab // size, 1) for size in classes for slab in [tables.slab_bytes(size, table.page_bytes)]]
    if seen is None or not layouts.changes_bins(table.version):
        return computed
    try:
        return read_bin_infos(target, table.types, seen.address, table.nbins)
    except Unreadable:
        return computed


def _slabs(target: Target, symbols: Symbols, types: TypeSet, geometry: Geometry, arenas: Arenas) -> Iterator[Tuple[int, int]]:
    """(extent, first address) of slabs that bins name and whose own fields hold."""
    for index, arena in arenas.pointers.items():
        try:
            for szind, place in calibrate.current_slabs(target, symbols, types, geometry, arena):
                slab = calibrate.words(target, place, 1)[0]
                begin = calibrate.slab_begin(target, types, geometry, index, szind, slab)
                if begin:
                    yield slab, begin
        except Unreadable:
            continue
