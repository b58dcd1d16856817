"""Look up one build's variables by jemalloc's own names, and prove on its slabs that types and constants are those of this build."""

import itertools
import os
from collections import Counter
from typing import Callable, Dict, List, NamedTuple, Optional, Protocol, Sequence, Tuple

from gdbheapx.errors import UnreadableMemory
from gdbheapx.inferior.base import Module, Symbol, Target, ThreadLocal, TypeSet
from gdbheapx.jemalloc.layouts import JemallocGeometry
from gdbheapx.jemalloc.records import PublicNames
from gdbheapx.jemalloc.traces import ObjectTexts, read_object_texts
from gdbheapx.kernel.jemalloc.records import BinLayout
from gdbheapx.layout.pack import Pack
from gdbheapx.layout.view import LayoutView, read_view

MALLCTL = "mallctl"
"""The public function that every build has; the rest of the name is the public prefix."""
CONF_VARIABLE = "MALLOC_CONF"
PUBLIC_VARIABLES = ("malloc_conf", "malloc_conf_2_conf_harder", "malloc_message")
"""Variables that carry the public prefix, not the private one (jemalloc.h)."""

PROFILER = "prof_backtrace"
"""A function that has no code in builds without --enable-prof (prof.c, prof_sys.c)."""

IN_JEMALLOC_C = ("malloc_default", "arena_choose_hard")
"""Functions of jemalloc.c: the first from 5.2 on, the other up to 5.3.1."""
PREPARED = (
    *("tsd_booted", "tsd_nominal_tsds", "malloc_init_state", "opt_percpu_arena", "ncpus", "background_thread_info"),
    *("n_background_threads", "background_thread_enabled_state", "max_background_threads", "arena_tdata_get_hard", "nhbins"),
    *("disabled_bin", "tcache_bin_info", "tcaches", "tcaches_past"),
)
"""Variables that are asked for while a process is stopped; detection has found the others by then."""


class TsdSearch(Protocol):
    """Search for thread-local storage without names."""

    def find(self) -> Optional[ThreadLocal]:
        """Return the place of tsd_tls, as far as threads show it by now."""


class JemallocSymbols:
    """Looks names up in the one object that holds this jemalloc.

    External names carry the private prefix (`je_arenas`), file-static ones never do (`narenas_total`), link-time optimisation may
    add `.lto_priv.0`.
    """

    def __init__(self, target: Target, module: Module, prefix: str, pack: Optional[Pack]) -> None:
        self.module = module
        self.prefix = prefix
        self.pack = pack
        self._target = target
        self._found: Dict[str, Optional[Symbol]] = {}
        self._sizes: Dict[str, Optional[int]] = {}
        self._names: Optional[PublicNames] = None
        self._texts: Optional[ObjectTexts] = None
        self._near: List[Optional[Symbol]] = []
        self._make_tsds: Optional[Callable[[], TsdSearch]] = None
        self._tsds: Optional[TsdSearch] = None

    def tell(self, tsds: Callable[[], TsdSearch]) -> None:
        """Set the factory of the search for thread-local storage without names."""
        self._make_tsds, self._tsds = tsds, None

    def _tsds_by_structure(self, name: str) -> Optional[ThreadLocal]:
        if name != "tsd_tls" or self._make_tsds is None:
            return None
        self._tsds = self._tsds or self._make_tsds()
        return self._tsds.find()

    @property
    def by_structure(self) -> bool:
        """Return whether only memory shows the places: no name of a variable or of a function that is not exported."""
        return False

    option_names: Sequence[str] = ()
    """`opt_NAME` of every option that mallctl knows, whether or not its variable is known, in builds without symbols."""

    def find(self, name: str) -> Optional[Symbol]:
        """The variable `name`; None if this build has none, or has lost it."""
        if name not in self._found:
            self._found[name] = self._look_up(name)
        return self._found[name]

    def _look_up(self, name: str) -> Optional[Symbol]:
        is_public = name in PUBLIC_VARIABLES
        if is_public:  # malloc_conf is weak: where the object exports it, the program may have one of its own, which then is in force
            prefix = self.public_names.prefix
            if prefix is not None and self._target.exported(self.module, prefix + name) is not None:
                return self._target.dynamic_symbol(prefix + name)
        if self.pack is not None:
            place = self.pack.symbols.get(name)
            return None if place is None else Symbol(name, self.module.base + place[0], self.module, "pack")
        if is_public:
            return self.public(name)
        for candidate in (self.prefix + name, name, name + ".lto_priv.0", self.prefix + name + ".lto_priv.0"):
            symbol = self._target.module_symbol(self.module, candidate)
            if symbol is not None:
                return symbol
        return None

    def near(self, function: Optional[str] = None) -> Optional[Symbol]:
        """A function as debug information has it, in whose unit types are found; None without debug information.

        Without a name one of jemalloc.c, which includes almost every header.
        """
        names = IN_JEMALLOC_C if function is None else (function,)
        found = (self._target.function(self.module, self.prefix + name) for name in names)
        near = next((symbol for symbol in found if symbol is not None), None)
        if near is None and function is None:
            named = self._target.find_static(self.prefix + "arenas")
            near = next((symbol for symbol in named if symbol.module.base == self.module.base and symbol.source == "debug-info"), None)
        return near

    def size_bytes(self, name: str) -> Optional[int]:
        """sizeof the variable, by the symbol table."""
        if self.pack is not None:
            place = self.pack.symbols.get(name)
            return place[1] if place is not None else None
        if name not in self._sizes:
            symbol = self.find(name)
            self._sizes[name] = self._target.symbol_bytes(symbol) if symbol is not None else None
        return self._sizes[name]

    def thread_local_bytes(self, name: str) -> Optional[int]:
        """sizeof the thread-local variable, by the symbol table."""
        if self.pack is not None:
            place = self.pack.thread_locals.get(name)
            return place[1] if place is not None else None
        return self._target.thread_local_bytes(self.module, self.prefix + name) or self._target.thread_local_bytes(self.module, name)

    def constant(self, name: str) -> Optional[int]:
        """Return the value that the compiler fixed for a const variable without a place in memory (`config_prof`); None if unknown."""
        if self.pack is not None:
            return self.pack.constants.get(name)
        if not self._near:
            self._near.append(self.near())
        near = self._near[0]
        return self._target.constant(name, near) if near is not None else None

    def names(self, start: str) -> List[str]:
        """Names without prefix that begin with `start` (`opt_`), sorted."""
        if self.pack is not None:
            return sorted(name for name in self.pack.symbols if name.startswith(start))
        return [name[len(self.prefix) :] for name in self._target.names_starting(self.module, self.prefix + start)]

    def thread_local(self, name: str) -> Optional[ThreadLocal]:
        """Find each thread's copy of the thread-local `name` by its place in the object's block, else by what storage holds: a core
        without the object's file has none of the relocations that lead to the block."""
        return self._named_local(name) or self._tsds_by_structure(name)

    def _named_local(self, name: str) -> Optional[ThreadLocal]:
        if self.pack is not None:
            place = self.pack.thread_locals.get(name)
            return None if place is None else self._target.thread_local_at(self.module, place[0])
        near = self.find("arenas")
        if near is None:
            return None
        return self._target.thread_local(self.prefix + name, near) or self._target.thread_local(name, near)

    def prepare(self) -> None:
        """Look up, before the process is stopped, what is needed then."""
        near = self.find("arenas")
        if near is not None and self.pack is None:
            self._target.prepare_thread_local((self.prefix + "tsd_tls", "tsd_tls"), near)
        for name in PREPARED + PUBLIC_VARIABLES:
            self.find(name)
        if self.constant("config_prof") is None:
            _ = self.texts, self.size_bytes(PROFILER)

    @property
    def texts(self) -> ObjectTexts:
        """Return the texts in the object's constant data."""
        if self._texts is None:
            self._texts = read_object_texts(self._target, self.module)
        return self._texts

    @property
    def public_names(self) -> PublicNames:
        """The public names: by the build's pack, else by its symbol table, else by the name of its environment variable."""
        if self._names is None:
            self._names = self._find_names()
        return self._names

    def _find_names(self) -> PublicNames:
        if self.pack is not None:
            return PublicNames(self.pack.public_prefix, self.pack.public_prefix.upper() + CONF_VARIABLE)
        # before a name that ends in mallctl; of several the one that has most in common with the private prefix, then the shortest
        found = {name[: -len(MALLCTL)] for name, _ in self._target.names_ending(MALLCTL, self.module)}
        prefixes = [one for one in found if self._target.module_symbol(self.module, one + "malloc") is not None]
        prefix = min(prefixes, key=lambda one: (-len(os.path.commonprefix([one, self.prefix])), len(one), one), default=None)
        variables = self.texts.conf_variables
        if prefix is None and len(variables) == 1:
            prefix = variables[0][: -len(CONF_VARIABLE)].lower()
        conf_name = None if prefix is None else prefix.upper() + CONF_VARIABLE
        if conf_name is None or conf_name in variables or not variables:
            return PublicNames(prefix, conf_name)
        return PublicNames(prefix, variables[0] if len(variables) == 1 else conf_name)

    def public(self, name: str) -> Optional[Symbol]:
        """A function or variable of the public interface (`mallctl`) in this object, under the prefix that its build gave those."""
        prefix = self.public_names.prefix
        if prefix is None:
            return None
        return self._target.exported(self.module, prefix + name) or self._target.module_symbol(self.module, prefix + name)


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


def read_words(target: Target, address: int, count: int, size_bytes: int = 0) -> List[int]:
    """`count` unsigned integers from `address`. Unreadable if one is missing."""
    size = size_bytes or target.word_bytes
    data = target.read(address, count * size)
    return [int.from_bytes(data[at : at + size], target.byte_order) for at in range(0, len(data), size)]


def read_scalar(target: Target, symbols: JemallocSymbols, name: str, size_bytes: int) -> Optional[int]:
    """The value of an unsigned variable; None if this build has none or it cannot be read."""
    symbol = symbols.find(name)
    if symbol is None:
        return None
    try:
        return read_words(target, symbol.address, 1, size_bytes)[0]
    except UnreadableMemory:
        return None


def find_bin_addresses(
    target: Target, symbols: JemallocSymbols, types: TypeSet, bins: Sequence[BinLayout], arena: LayoutView
) -> List[List[int]]:
    """Find the addresses of an arena's bins, by szind and shard. Unreadable if the pointers to them are.

    Up to 5.1 they are members of arena_s; in 5.2 arena_s.bins[i].bin_shards points to an array; from 5.3 they follow arena_s at
    arena_bin_offsets[i], all shards of each in a row (arena.c: arena_boot).
    """
    offsets = symbols.find("arena_bin_offsets")
    if offsets is not None:
        size = types.size_bytes("bin_s")
        starts = read_words(target, offsets.address, len(bins), 4)
        return [[arena.address + starts[i] + shard * size for shard in range(info.shards)] for i, info in enumerate(bins)]
    if arena.has("bins[0].bin_shards"):
        size = types.size_bytes("bin_s")
        starts = [arena["bins[%d].bin_shards" % i] for i in range(len(bins))]
        return [[start + shard * size for shard in range(info.shards)] for start, info in zip(starts, bins)]
    behind = types.place("arena_s", types.first("arena_s", "all_bins", "bins") or "bins")
    if behind is not None and not behind.count:
        size, start = types.size_bytes("bin_s"), arena.address + behind.offset
        firsts = itertools.accumulate((info.shards for info in bins), initial=0)
        return [[start + (first + shard) * size for shard in range(info.shards)] for first, info in zip(firsts, bins)]
    return [[arena.address_of("bins[%d]" % i)] for i in range(len(bins))]


def name_bin_struct(types: TypeSet) -> str:
    """`bin_s`, in 5.0.x `arena_bin_s`."""
    return "bin_s" if "bin_s" in types.structs else "arena_bin_s"


def read_arena_pointers(target: Target, symbols: JemallocSymbols, narenas: int) -> List[int]:
    """arenas[0..narenas): 0 where there is none. Unreadable if the array is."""
    anchor = symbols.find("arenas")
    return read_words(target, anchor.address, narenas) if anchor is not None else []


class LayoutProof(NamedTuple):
    """The result of the proof."""

    wrong: Optional[str]
    """The contradiction in words; None if there is none, or only what looks like damage in a heap of this layout."""
    slabs: int
    """Current slabs that were tried and hold; 0 where no bin has one yet, or the radix tree above all of them cannot be read."""
    named: int = 0
    """Arenas that name their own index where these types have it; 0 where none can be asked."""


def prove_layout(
    target: Target, symbols: JemallocSymbols, types: TypeSet, geometry: JemallocGeometry, is_own: bool = True, most: int = SLABS_TRIED
) -> LayoutProof:
    """Prove that arenas name their index, current slabs read as slabs of their bin and arena, and the radix tree leads to them.

    With a layout that is not this build's nearly all of them fail. A few that do are damage, or were taken while they were being
    made: most must hold, and of the arenas that have slabs not more than half may be without any that holds. `is_own`: the types are
    those of this very build, so that an arena with another index is damaged as long as slabs hold; else it is the layout that is wrong.
    """
    if not all(_is_bin_info(info, size, geometry.page_bytes) for info, size in zip(geometry.bins, geometry.size_classes)):
        return LayoutProof("bin_infos does not match the size classes", 0)
    try:
        arenas = read_arena_pointers(target, symbols, geometry.narenas)
    except UnreadableMemory as problem:
        return LayoutProof(problem.message, 0)
    named = misnamed = lost = sound = 0
    misnomer = alien = wrong = unreadable = None
    for index, address in enumerate(arenas):
        if address and named + misnamed < ARENAS_TRIED:
            own = read_own_index(target, types, address)
            named, misnamed = named + (own == index), misnamed + (own not in (None, index))
            if own not in (None, index) and misnomer is None:
                misnomer = "arenas[%d] points to a struct that says it is arena %d" % (index, own or 0)
    slabs: Counter[str] = Counter()
    for index, address in enumerate(arenas):
        if not address or slabs["held"] + slabs["failed"] + slabs["unled"] >= most:
            continue
        proof, first_wrong, first_unreadable = _prove_arena(target, symbols, types, geometry, index, address, most)
        if proof["failed"] and not proof["held"] + proof["unled"]:
            lost, alien = lost + 1, alien or first_wrong
        else:
            slabs.update(proof)
            sound += bool(proof["held"] + proof["unled"])
            wrong, unreadable = wrong or first_wrong, unreadable or first_unreadable
    good = slabs["held"] + slabs["unled"]
    if misnomer is not None and misnamed > named and not (is_own and good):
        return LayoutProof(misnomer, slabs["held"])
    if lost > sound or good < HELD_PER_FAILED * slabs["failed"]:
        return LayoutProof(wrong or alien, slabs["held"])
    if not good and (not arenas or not arenas[0]):  # the first thing that initialisation makes, and never destroyed
        return LayoutProof("arena 0 not found", 0)
    return LayoutProof(None if good else unreadable, slabs["held"], named)


def read_own_index(target: Target, types: TypeSet, address: int) -> Optional[int]:
    """arena_s.ind (from 5.3), or that of its base (base_s.ind); None if neither can be read."""
    try:
        for struct, path in (("arena_s", "ind"), ("arena_s", "base"), ("base_s", "ind")):
            place = types.place(struct, path)
            if place is not None:
                value = int.from_bytes(target.read(address + place.offset, place.size_bytes), target.byte_order)
                if path == "ind":
                    return value
                address = value
    except UnreadableMemory:
        pass
    return None


def _is_bin_info(info: BinLayout, size_bytes: int, page_bytes: int) -> bool:
    """Check what holds for every bin_info_t, also if opt.slab_sizes or opt.bin_shards changed it."""
    if info.reg_size_bytes != size_bytes or not 0 < info.slab_size_bytes <= MAX_SLAB_BYTES or info.slab_size_bytes % page_bytes:
        return False
    return info.nregs == info.slab_size_bytes // size_bytes and 0 < info.shards <= MAX_SHARDS


def _prove_arena(
    target: Target, symbols: JemallocSymbols, types: TypeSet, geometry: JemallocGeometry, index: int, address: int, most: int
) -> Tuple["Counter[str]", Optional[str], Optional[str]]:
    """The proof on the current slabs of one arena: how many held, failed, or are below a node of the tree that cannot be read (`unled`),
    the first that does not hold, and the first that cannot be read."""
    counts: Counter[str] = Counter()
    first: Dict[str, Optional[str]] = {}
    try:
        slabs = find_current_slabs(target, symbols, types, geometry, address)
    except UnreadableMemory as problem:
        return counts, None, problem.message
    for szind, place in slabs[:most]:
        for _ in range(LOOKS):  # of a process that runs: the slab may have been given back between two reads, and another be current
            kind, text = _prove_slab(target, types, geometry, index, szind, place)
            if kind != "failed":
                break
        counts[kind] += 1
        first.setdefault(kind, text)
    return counts, first.get("failed"), first.get("unreadable")


def _prove_slab(
    target: Target, types: TypeSet, geometry: JemallocGeometry, index: int, szind: int, place: int
) -> Tuple[str, Optional[str]]:
    """The proof on the slab that the pointer at `place` names now: what became of it, and why."""
    try:
        slab = read_words(target, place, 1)[0]
        if not slab:
            return "none", None
        wrong, begin = _find_slab_fault(target, types, geometry, index, szind, slab)
    except UnreadableMemory as problem:
        return "unreadable", problem.message
    if wrong is None:
        try:
            led = look_up_extent(target, geometry, begin)
        except UnreadableMemory:
            return "unled", None
        if led == slab:
            return "held", None
        wrong = "the radix tree leads from 0x%x to 0x%x" % (begin, led or 0)
    return "failed", "the slab 0x%x of bin %d in arena %d: %s" % (slab, szind, index, wrong)


def find_current_slabs(
    target: Target, symbols: JemallocSymbols, types: TypeSet, geometry: JemallocGeometry, address: int
) -> List[Tuple[int, int]]:
    """List (szind, address of a pointer to a slab) of the arena's bins: the current one, and the first of those with a free region. Empty
    if
    no type shows the layout of bins."""
    if name_bin_struct(types) not in types.structs:
        return []
    arena = read_view(target, types, "arena_s", address)
    struct = name_bin_struct(types)
    members = [types.place(struct, path) for path in ("slabcur", types.first(struct, *_NONFULL) or "slabcur")]
    offsets = sorted({member.offset for member in members if member is not None})
    places = []
    for szind, shards in enumerate(find_bin_addresses(target, symbols, types, geometry.bins, arena)):
        for shard in shards:
            places += [(szind, shard + offset) for offset in offsets if read_words(target, shard + offset, 1)[0]]
    return places


def read_slab_begin(target: Target, types: TypeSet, geometry: JemallocGeometry, arena: int, szind: int, slab: int) -> int:
    """The first address of this slab, if its own fields say that it is one of this bin and arena; else 0."""
    wrong, begin = _find_slab_fault(target, types, geometry, arena, szind, slab) if slab else ("", 0)
    return begin if wrong is None else 0


def _find_slab_fault(
    target: Target, types: TypeSet, geometry: JemallocGeometry, arena: int, szind: int, slab: int
) -> Tuple[Optional[str], int]:
    """Return the first fault in the slab's own fields, and its e_addr."""
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


def find_leaf(target: Target, geometry: JemallocGeometry, address: int) -> int:
    """The leaf node that has the element of this address; 0 if there is none. Unreadable where a node above is."""
    node, shift = geometry.rtree_root, geometry.rtree.lg_vaddr
    key = address & (1 << shift) - 1
    for bits in geometry.rtree.levels[:-1]:
        shift -= bits
        node = read_words(target, node + (key >> shift & (1 << bits) - 1) * geometry.word_bytes, 1)[0]
        if not node:
            return 0
    return node


def look_up_extent(target: Target, geometry: JemallocGeometry, address: int) -> Optional[int]:
    """The extent that the radix tree has for this address; None if it has none. Unreadable where a node is."""
    node, shape = find_leaf(target, geometry, address), geometry.rtree
    if not node:
        return None
    place = (address & (1 << shape.lg_vaddr) - 1) >> shape.lg_vaddr - sum(shape.levels) & (1 << shape.levels[-1]) - 1
    extent = read_words(target, node + place * (1 if shape.compact else 2) * geometry.word_bytes, 1)[0]
    if shape.compact:
        extent &= (1 << shape.lg_vaddr) - 1 & ~((1 << geometry.leaf_low_bits) - 1)
        if geometry.sign_extend and extent >> shape.lg_vaddr - 1:
            extent |= (1 << 64) - (1 << shape.lg_vaddr)
    return extent or None
