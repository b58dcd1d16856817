"""A jemalloc that names nothing, read by its structure: arenas, layout, bins and radix tree found in memory, then proven as any other."""

from typing import Dict, Iterator, List, NamedTuple, Optional, Sequence, Tuple

from gdbheapx.errors import Unreadable
from gdbheapx.inferior.base import Module, Symbol, Target, ThreadLocal
from gdbheapx.inferior.types import TypeSet
from gdbheapx.jemalloc.detection import (
    calibrate,
    fingerprint,
    layouts,
    options_tree,
    padding,
    roots,
    signatures,
    tables,
    tsd_place,
    unlisted,
)
from gdbheapx.jemalloc.detection.calibrate import Calibration
from gdbheapx.jemalloc.detection.fingerprint import Arenas
from gdbheapx.jemalloc.detection.geometry import BinInfo, Geometry, assemble
from gdbheapx.jemalloc.detection.options_tree import Leaf
from gdbheapx.jemalloc.detection.rtree_shapes import rtree_shape
from gdbheapx.jemalloc.detection.symbols import Symbols
from gdbheapx.jemalloc.detection.tables import Table
from gdbheapx.jemalloc.detection.traces import Bins, Thread, Traces, own_memory
from gdbheapx.layout.view import read_view

VARIABLES = {"zero_realloc": "opt_zero_realloc_action", "prof_time_resolution": "opt_prof_time_res"}
"""Options whose variable is called otherwise."""
LEAST_LARGE_BYTES = 16384
"""SC_LARGE_MINCLASS with pages of 4 KiB."""
FOUND_BY = "probe"
"""Where its addresses come from, in the envelope's word."""


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

    def near(self, function: str = "") -> Optional[Symbol]:
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


def locate(target: Target, module: Module, found: Traces) -> "StructureMatch | NotLocated":
    """The jemalloc whose traces were found in this object."""
    memory = list(own_memory(target, module))
    arenas = fingerprint.find_in(target, module, memory)
    if arenas is None:
        return NotLocated(None, "no arenas were found")
    fitting = fingerprint.fitting(target, arenas, found.bins.nbins if found.bins is not None else None)
    wrong: List[str] = [] if fitting else ["no known layout fits its arenas"]
    for table in _of_one_tsd(target, module, fitting, arenas, memory, found.thread):
        made = _with_table(target, module, table, arenas, memory, found)
        if isinstance(made, StructureMatch):
            return made
        wrong.append(made)
    partly = _without_table(target, module, arenas, memory, found)
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
    found = []
    for same in kinds.values():
        chosen = tsd_place.choose(target, module, same, arenas, memory, thread) if len(same) > 1 else same[0]
        found.append(chosen if chosen is not None else same[0]._replace(types=_without_tsd(same[0].types)))
    return found


def _without_tsd(types: TypeSet) -> TypeSet:
    """The types of a release with several kinds of tsd_s, none of which is proven."""
    return TypeSet({name: one for name, one in types.structs.items() if name not in ("te_data_s",)})


def _with_table(
    target: Target, module: Module, table: Table, arenas: Arenas, memory: Sequence[Tuple[int, bytes]], found: Traces
) -> "StructureMatch | str":
    """What this layout makes of it, proven; else why it does not hold."""
    sizes = tables.size_classes(table.quantum_bytes)
    version, types = layouts.of_first_threads(table.version, table.types, target.thread_local_image(module))
    bins = _bins(target, table, sizes, found.bins)
    base = assemble(target, types, version, sizes, tables.page_classes(sizes, tables.PAGE_BYTES), bins)
    if base is None:
        return "its bins do not match"
    base = base._replace(narenas=arenas.highest + 1)
    symbols = StructureSymbols(target, module, {"arenas": arenas.address})
    symbols.tell(lambda: tsd_place.Finder(target, module, types, sorted(arenas.pointers.values()), found.thread))
    shapes = [shape for bits in target.arch.address_bits for shape in [rtree_shape(bits, base.lg_page, len(sizes))] if shape is not None]
    slabs = _slabs(target, symbols, types, base, arenas)
    proven: List[Tuple[Geometry, Calibration]] = []
    why = "its radix tree was not found"
    for root, shape in roots.find(target, module, types, base, shapes, list(arenas.pointers.values()), slabs, memory):
        geometry = base._replace(rtree_root=root, rtree=shape)
        proof = calibrate.check(target, symbols, types, geometry, False)
        if proof.wrong is None and (proof.slabs or roots.is_plausible(target, geometry)):
            proven.append((geometry, proof))
        else:
            why = proof.wrong or why
    if not proven:
        return "%s: %s" % (table.name, why)
    geometry, proof = max(proven, key=lambda one: one[1].slabs)
    if layouts.has_extent_sizes(version):
        near = [begin for _, begin in _slabs(target, symbols, types, base, arenas)]
        geometry = geometry._replace(size_from_extent=True, large_pad_bytes=padding.find(target, types, geometry, near))
    symbols.add("tcaches", tsd_place.explicit_caches(target, types, memory))
    symbols.options(options_tree.find(target, module, memory))
    return StructureMatch(symbols, types, version, _with_kinds(target, symbols, geometry), proof, table.name)


def _without_table(
    target: Target, module: Module, arenas: Arenas, memory: Sequence[Tuple[int, bytes]], found: Traces
) -> "StructureMatch | str":
    """What it says of itself where no layout fits: its extents alone."""
    made = unlisted.read(target, module, arenas, found.bins)
    if isinstance(made, str):
        return made
    symbols = StructureSymbols(target, module, {"arenas": arenas.address})
    symbols.options(options_tree.find(target, module, memory))
    option = calibrate.scalar(target, symbols, "opt_cache_oblivious", 1)
    told = None if option not in (0, 1) else option * made.geometry.page_bytes
    seen = padding.seen(target, made.types, made.geometry, made.proof.addresses)
    pad = seen or (seen if told is None else told)
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
    if not automatic or automatic > signatures.ARENA_POINTERS:
        return geometry
    has_huge = threshold is not None and LEAST_LARGE_BYTES <= threshold <= geometry.size_classes[-1]
    return geometry._replace(manual_arena_base=automatic + has_huge, huge_arena=automatic if has_huge else None)


def _bins(target: Target, table: Table, sizes: Sequence[int], seen: Optional[Bins]) -> List[BinInfo]:
    """As memory has them, where opt.slab_sizes and opt.bin_shards may have changed them; as the releases before 5.2 make them, which keep
    them among constants."""
    wanted = sizes[: table.nbins]
    computed = [BinInfo(size, slab, slab // size, 1) for size in wanted for slab in [tables.slab_bytes(size, tables.PAGE_BYTES)]]
    if seen is None or not layouts.changes_bins(table.version):
        return computed
    types, stride = table.types, table.types.size_bytes("bin_info_s")
    try:
        rows = [read_view(target, types, "bin_info_s", seen.address + number * stride) for number in range(table.nbins)]
    except Unreadable:
        return computed
    return [BinInfo(row["reg_size"], row["slab_size"], row["nregs"], row.get("n_shards") or 1) for row in rows]


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
