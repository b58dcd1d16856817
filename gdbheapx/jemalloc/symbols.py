"""One jemalloc of a target: its variables by jemalloc's own names, its types and constants, and the proof on its slabs that these are those
of this build."""

import itertools
import os
from collections import Counter
from functools import cached_property
from typing import Callable, Dict, List, NamedTuple, Optional, Sequence, Tuple, Union

from gdbheapx.common.errors import UnreadableMemory
from gdbheapx.common.model import AllocatorInfo
from gdbheapx.inferior.base import Module, Symbol, Target, ThreadLocal, TypeSet
from gdbheapx.jemalloc import layouts
from gdbheapx.jemalloc.layouts import JemallocGeometry, Version
from gdbheapx.jemalloc.records import PublicNames
from gdbheapx.jemalloc.traces import ObjectTexts, read_object_texts
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
FOUND_BY = "probe"
"""Where addresses come from that memory alone shows, in the envelope's word."""


class JemallocSymbols:
    """Looks names up in the one object that holds this jemalloc.

    External names carry the private prefix (`je_arenas`), file-static ones never do (`narenas_total`), link-time optimisation may
    add `.lto_priv.0`. In an object without symbols or a pack only the `places` that memory itself shows are known, and public functions,
    which are exported as those of any library, unless it is linked into a stripped program.
    """

    def __init__(self, target: Target, module: Module, prefix: str, pack: Optional[Pack], places: Optional[Dict[str, int]] = None) -> None:
        self.target, self.module, self.prefix, self.pack, self.places = target, module, prefix, pack, places
        self.option_names: Sequence[str] = ()
        """`opt_NAME` of every option that mallctl knows, whether or not its variable is known, in builds without symbols."""
        self.find_tsds: Optional[Callable[[], Optional[ThreadLocal]]] = None
        """Search for tsd_tls without names, as far as threads show it by now."""
        self._found: Dict[str, Optional[Symbol]] = {}
        self._sizes: Dict[str, Optional[int]] = {}

    @property
    def by_structure(self) -> bool:
        """Return whether only memory shows the places: no name of a variable or of a function that is not exported."""
        return self.places is not None

    def find(self, name: str) -> Optional[Symbol]:
        """The variable `name`; None if this build has none, or has lost it."""
        if self.places is not None:
            return Symbol(name, self.places[name], self.module, FOUND_BY) if name in self.places else None
        if name not in self._found:
            self._found[name] = self._look_up(name)
        return self._found[name]

    def _look_up(self, name: str) -> Optional[Symbol]:
        is_public = name in PUBLIC_VARIABLES
        if is_public:  # malloc_conf is weak: where the object exports it, the program may have one of its own, which then is in force
            prefix = self.public_names.prefix
            if prefix is not None and self.target.exported(self.module, prefix + name) is not None:
                return self.target.dynamic_symbol(prefix + name)
        if self.pack is not None:
            place = self.pack.symbols.get(name)
            return None if place is None else Symbol(name, self.module.base + place[0], self.module, "pack")
        if is_public:
            return self.public(name)
        for candidate in (self.prefix + name, name, name + ".lto_priv.0", self.prefix + name + ".lto_priv.0"):
            symbol = self.target.module_symbol(self.module, candidate)
            if symbol is not None:
                return symbol
        return None

    def read_variable(self, name: str, size_bytes: int = 0, signed: bool = False) -> Optional[int]:
        """The integer in the variable `name` (a word unless size_bytes says otherwise); None if this build has none or it cannot be
        read."""
        symbol, size = self.find(name), size_bytes or self.target.word_bytes
        data = self.target.read_prefix(symbol.address, size) if symbol is not None else b""
        return int.from_bytes(data, self.target.byte_order, signed=signed) if len(data) == size else None

    @cached_property
    def main_unit(self) -> Optional[Symbol]:
        """A function of jemalloc.c, which includes almost every header, as debug information has it; None without debug information."""
        if self.by_structure:
            return None
        for name in IN_JEMALLOC_C:
            function = self.target.function(self.module, self.prefix + name)
            if function is not None:
                return function
        named = self.target.find_static(self.prefix + "arenas")
        return next((symbol for symbol in named if symbol.module.base == self.module.base and symbol.source == "debug-info"), None)

    def size_bytes(self, name: str) -> Optional[int]:
        """sizeof the variable, by the symbol table."""
        if self.pack is not None:
            return self.pack.symbols[name][1] if name in self.pack.symbols else None
        if self.by_structure:
            return None
        if name not in self._sizes:
            symbol = self.find(name)
            self._sizes[name] = self.target.symbol_bytes(symbol) if symbol is not None else None
        return self._sizes[name]

    @property
    def tsd_bytes(self) -> Optional[int]:
        """sizeof the thread-local tsd_tls, by the symbol table."""
        if self.pack is not None:
            return self.pack.thread_locals["tsd_tls"][1] if "tsd_tls" in self.pack.thread_locals else None
        return self.target.thread_local_bytes(self.module, self.prefix + "tsd_tls") or self.target.thread_local_bytes(
            self.module, "tsd_tls"
        )

    def constant(self, name: str) -> Optional[int]:
        """Return the value that the compiler fixed for a const variable without a place in memory (`config_prof`); None if unknown."""
        if self.pack is not None:
            return self.pack.constants.get(name)
        return self.target.constant(name, self.main_unit) if self.main_unit is not None else None

    def names(self, start: str) -> List[str]:
        """Names without prefix that begin with `start` (`opt_`), sorted; of what only memory shows the width is unknown: none."""
        if self.pack is not None:
            return sorted(name for name in self.pack.symbols if name.startswith(start))
        if self.by_structure:
            return []
        return [name[len(self.prefix) :] for name in self.target.names_starting(self.module, self.prefix + start)]

    def find_thread_locals(self) -> Optional[ThreadLocal]:
        """Find each thread's tsd_tls by its place in the object's block, else by what storage holds: a core without the object's file
        has none of the relocations that lead to the block."""
        named = None
        if self.pack is not None:
            place = self.pack.thread_locals.get("tsd_tls")
            named = None if place is None else self.target.thread_local_at(self.module, place[0])
        elif not self.by_structure:
            near = self.find("arenas")
            if near is not None:
                named = self.target.thread_local(self.prefix + "tsd_tls", near) or self.target.thread_local("tsd_tls", near)
        return named or (self.find_tsds() if self.find_tsds is not None else None)

    def prepare(self) -> None:
        """Look up, before the process is stopped, what is needed then."""
        if self.by_structure:
            self.target.prepare_thread_local_at(self.module)
            _ = self.texts, self.public_names
            return
        near = self.find("arenas")
        if near is not None and self.pack is None:
            self.target.prepare_thread_local((self.prefix + "tsd_tls", "tsd_tls"), near)
        for name in PREPARED + PUBLIC_VARIABLES:
            self.find(name)
        if self.constant("config_prof") is None:
            _ = self.texts, self.size_bytes(PROFILER)

    @cached_property
    def texts(self) -> ObjectTexts:
        """Return the texts in the object's constant data."""
        return read_object_texts(self.target, self.module)

    @cached_property
    def public_names(self) -> PublicNames:
        """The public names: by the build's pack, else by its symbol table, else by the name of its environment variable."""
        if self.pack is not None:
            return PublicNames(self.pack.public_prefix, self.pack.public_prefix.upper() + CONF_VARIABLE)
        # before a name that ends in mallctl; of several the one that has most in common with the private prefix, then the shortest
        found = {name[: -len(MALLCTL)] for name, _ in self.target.names_ending(MALLCTL, self.module)}
        prefixes = [one for one in found if self.target.module_symbol(self.module, one + "malloc") is not None]
        prefix = min(prefixes, key=lambda one: (-len(os.path.commonprefix([one, self.prefix])), len(one), one), default=None)
        variables = self.texts.conf_variables
        if prefix is None and len(variables) == 1:
            prefix = variables[0][: -len(CONF_VARIABLE)].lower()
        conf_name = None if prefix is None else prefix.upper() + CONF_VARIABLE
        if len(variables) == 1 and conf_name not in (None, variables[0]):
            conf_name = variables[0]
        return PublicNames(prefix, conf_name)

    def public(self, name: str) -> Optional[Symbol]:
        """A function or variable of the public interface (`mallctl`) in this object, under the prefix that its build gave those."""
        prefix = self.public_names.prefix
        if prefix is None:
            return None
        return self.target.exported(self.module, prefix + name) or self.target.module_symbol(self.module, prefix + name)


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


class Jemalloc(NamedTuple):
    """An instance of jemalloc in the target, with everything constant about it."""

    target: Target
    symbols: JemallocSymbols
    types: TypeSet
    version: Version
    """The release its types belong to."""
    geometry: JemallocGeometry
    id: str = "jemalloc"
    version_text: Optional[str] = None
    """The string it was built with, such as `5.3.0-0-g54ead...`; None if it has none to read."""
    layout_source: str = "table"
    address_source: str = FOUND_BY
    owns_malloc: Optional[bool] = None
    calibrated_slabs: int = 0
    """Slabs on which types and constants were proven; 0 where no bin has one yet."""
    named_arenas: int = 0
    """Arenas that name their own index where these types have it."""
    fitting: Optional[str] = None
    """The layout that was found to fit, if neither debug information nor a pack of this build has it."""

    @property
    def module(self) -> Module:
        """The object that holds it."""
        return self.symbols.module

    @property
    def is_partial(self) -> bool:
        """No layout is its: only its extents are read, by what every build from 5.3.0 on has in common."""
        return self.symbols.by_structure and self.fitting is None

    @property
    def version_name(self) -> str:
        """Return the release for people, with commits and hash for a snapshot between releases; without a version text the release of
        its types."""
        if self.is_partial and layouts.parse_jemalloc_release(self.version_text) is None:
            return "5.3.0 or newer"
        return layouts.name_release(self.version, self.version_text)

    @property
    def unlisted(self) -> Optional[str]:
        """Return a warning for a build that was never tried; None for a listed one."""
        if layouts.was_tried(self.version, self.version_text) or (self.fitting is not None and self.version_text is None):
            return None  # a core without the file has no text: the table of the build that was tried fits
        return "jemalloc %s is newer than 5.3.1, the newest tested: gdbheapx reads it by the fields that it has" % (
            self.version_text or "of unknown version"
        )

    def info(self) -> AllocatorInfo:
        """The entry of the envelope."""
        name = self.module.file_name
        return AllocatorInfo(
            self.id, "jemalloc", self.version_name, name, self.module.build_id, self.layout_source, self.address_source, self.owns_malloc
        )

    def view(self, struct: str, address: int) -> LayoutView:
        """The struct at `address`. Unreadable if a byte of it is missing."""
        return read_view(self.target, self.types, struct, address)

    @property
    def bin_struct(self) -> str:
        """`bin_s`, in 5.0.x `arena_bin_s`."""
        return "bin_s" if "bin_s" in self.types.structs else "arena_bin_s"

    def read_arena_pointers(self) -> List[int]:
        """arenas[0..narenas): 0 where there is none. Unreadable if the array is."""
        anchor = self.symbols.find("arenas")
        return read_words(self.target, anchor.address, self.geometry.narenas) if anchor is not None else []

    def read_own_index(self, address: int) -> Optional[int]:
        """arena_s.ind (from 5.3), or that of its base (base_s.ind); None if neither can be read."""
        try:
            for struct, path in (("arena_s", "ind"), ("arena_s", "base"), ("base_s", "ind")):
                place = self.types.place(struct, path)
                if place is not None:
                    value = int.from_bytes(self.target.read(address + place.offset, place.size_bytes), self.target.byte_order)
                    if path == "ind":
                        return value
                    address = value
        except UnreadableMemory:
            pass
        return None

    def find_bin_addresses(self, arena: LayoutView) -> List[List[int]]:
        """Find the addresses of an arena's bins, by szind and shard. Unreadable if the pointers to them are.

        Up to 5.1 they are members of arena_s; in 5.2 arena_s.bins[i].bin_shards points to an array; from 5.3 they follow arena_s at
        arena_bin_offsets[i], all shards of each in a row (arena.c: arena_boot).
        """
        bins, offsets = self.geometry.bins, self.symbols.find("arena_bin_offsets")
        behind = self.types.place("arena_s", self.types.first("arena_s", "all_bins", "bins") or "bins")
        if offsets is not None:
            starts = [arena.address + offset for offset in read_words(self.target, offsets.address, len(bins), 4)]
        elif arena.has("bins[0].bin_shards"):
            starts = [arena["bins[%d].bin_shards" % i] for i in range(len(bins))]
        elif behind is not None and not behind.count:
            size, first = self.types.size_bytes("bin_s"), arena.address + behind.offset
            starts = [first + number * size for number in itertools.accumulate((info.shards for info in bins[:-1]), initial=0)]
        else:
            return [[arena.address_of("bins[%d]" % i)] for i in range(len(bins))]
        size = self.types.size_bytes("bin_s")
        return [[start + shard * size for shard in range(info.shards)] for start, info in zip(starts, bins)]

    def find_current_slabs(self, address: int) -> List[Tuple[int, int]]:
        """List (szind, address of a pointer to a slab) of an arena's bins: the current one, and the first of those with a free region.
        Empty if no type shows the layout of bins."""
        struct = self.bin_struct
        if struct not in self.types.structs:
            return []
        members = [self.types.place(struct, path) for path in ("slabcur", self.types.first(struct, *_NONFULL) or "slabcur")]
        offsets = sorted({member.offset for member in members if member is not None})
        places = []
        for szind, shards in enumerate(self.find_bin_addresses(self.view("arena_s", address))):
            for shard in shards:
                places += [(szind, shard + offset) for offset in offsets if self.target.read_word(shard + offset)]
        return places

    def check_slab(self, arena: int, szind: int, slab: int) -> Tuple[Optional[str], int]:
        """Return what in a slab's own fields says that it is none of this bin and arena, and its e_addr; 0 where there is such a fault."""
        geometry, extent = self.geometry, self.view(self.geometry.extent_struct, slab)
        bits, info = extent["e_bits"], geometry.bins[szind]
        for name, value in (("slab", 1), ("state", geometry.states.active), ("szind", szind), ("arena", arena)):
            seen = geometry.fields[name].of(bits)
            if seen != value:
                return "e_bits 0x%x has %s %d, not %d" % (bits, name, seen, value), 0
        nfree = geometry.fields["nfree"].of(bits)
        if nfree > info.nregs:
            return "e_bits 0x%x has nfree %d of %d regions" % (bits, nfree, info.nregs), 0
        if extent["e_size_esn"] & -geometry.page_bytes != info.slab_size_bytes:
            return "e_size_esn 0x%x is not its bin's slab size %d" % (extent["e_size_esn"], info.slab_size_bytes), 0
        return None, extent["e_addr"]

    def find_leaf(self, address: int) -> int:
        """The leaf node that has the element of this address; 0 if there is none. Unreadable where a node above is."""
        node, shift = self.geometry.rtree_root, self.geometry.rtree.lg_vaddr
        key = address & (1 << shift) - 1
        for bits in self.geometry.rtree.levels[:-1]:
            shift -= bits
            node = self.target.read_word(node + (key >> shift & (1 << bits) - 1) * self.geometry.word_bytes)
            if not node:
                return 0
        return node

    def look_up_extent(self, address: int) -> Optional[int]:
        """The extent that the radix tree has for this address; None if it has none. Unreadable where a node is."""
        node, geometry, shape = self.find_leaf(address), self.geometry, self.geometry.rtree
        if not node:
            return None
        place = (address & (1 << shape.lg_vaddr) - 1) >> shape.lg_vaddr - sum(shape.levels) & (1 << shape.levels[-1]) - 1
        extent = self.target.read_word(node + place * (1 if shape.compact else 2) * geometry.word_bytes)
        if shape.compact:
            extent &= (1 << shape.lg_vaddr) - 1 & ~((1 << geometry.leaf_low_bits) - 1)
            if geometry.sign_extend and extent >> shape.lg_vaddr - 1:
                extent |= (1 << 64) - (1 << shape.lg_vaddr)
        return extent or None


def prove_layout(jemalloc: Jemalloc, is_own: bool = True) -> Union[Jemalloc, str]:
    """Prove that arenas name their index, current slabs read as slabs of their bin and arena, and the radix tree leads to them; return
    the instance with the counts of both, else the contradiction in words. Both counts may be 0: no bin has a slab yet, or the radix tree
    above all of them cannot be read; these types do not have the index.

    With a layout that is not this build's nearly all of them fail. A few that do are damage, or were taken while they were being
    made: most must hold, and of the arenas that have slabs not more than half may be without any that holds. `is_own`: the types are
    those of this very build, so that an arena with another index is damaged as long as slabs hold; else it is the layout that is wrong.
    """
    geometry = jemalloc.geometry
    for info, size in zip(geometry.bins, geometry.size_classes):  # this holds also if opt.slab_sizes or opt.bin_shards changed it
        is_slab = 0 < info.slab_size_bytes <= MAX_SLAB_BYTES and info.slab_size_bytes % geometry.page_bytes == 0
        if info.reg_size_bytes != size or not is_slab or info.nregs != info.slab_size_bytes // size or not 0 < info.shards <= MAX_SHARDS:
            return "bin_infos does not match the size classes"
    try:
        arenas = jemalloc.read_arena_pointers()
    except UnreadableMemory as problem:
        return problem.message
    known: List[Tuple[int, int]] = []
    for index, address in enumerate(arenas):
        own = jemalloc.read_own_index(address) if address and len(known) < ARENAS_TRIED else None
        if own is not None:
            known.append((index, own))
    misnamed = [pair for pair in known if pair[0] != pair[1]]
    counts: Counter[str] = Counter()
    lost = sound = 0
    alien = wrong = unreadable = None
    for index, address in enumerate(arenas):
        if not address or counts["held"] + counts["failed"] + counts["unled"] >= SLABS_TRIED:
            continue
        try:
            slabs = jemalloc.find_current_slabs(address)[:SLABS_TRIED]
        except UnreadableMemory as problem:
            unreadable = unreadable or problem.message
            continue
        proofs = [_prove_slab(jemalloc, index, szind, place) for szind, place in slabs]
        kinds = Counter(kind for kind, _ in proofs)
        first = dict(reversed(proofs))
        if kinds["failed"] and not kinds["held"] + kinds["unled"]:
            lost, alien = lost + 1, alien or first["failed"]
        else:
            counts.update(kinds)
            sound += bool(kinds["held"] + kinds["unled"])
            wrong, unreadable = wrong or first.get("failed"), unreadable or first.get("unreadable")
    good = counts["held"] + counts["unled"]
    if 2 * len(misnamed) > len(known) and not (is_own and good):
        return "arenas[%d] points to a struct that says it is arena %d" % misnamed[0]
    if lost > sound or good < HELD_PER_FAILED * counts["failed"]:
        return wrong or alien or ""
    if not good and (not arenas or not arenas[0]):  # the first thing that initialisation makes, and never destroyed
        return "arena 0 not found"
    if not good and unreadable is not None:
        return unreadable
    return jemalloc._replace(calibrated_slabs=counts["held"], named_arenas=len(known) - len(misnamed))


def _prove_slab(jemalloc: Jemalloc, arena: int, szind: int, place: int) -> Tuple[str, Optional[str]]:
    """The proof on the slab that the pointer at `place` names now: `held`, `failed`, `none`, `unreadable`, or `unled` below a node of the
    tree that cannot be read; and why. Of a process that runs the slab may be given back between two reads, and another be current."""
    text = ""
    for _ in range(LOOKS):
        try:
            slab = jemalloc.target.read_word(place)
            if not slab:
                return "none", None
            wrong, begin = jemalloc.check_slab(arena, szind, slab)
        except UnreadableMemory as problem:
            return "unreadable", problem.message
        if wrong is None:
            try:
                led = jemalloc.look_up_extent(begin)
            except UnreadableMemory:
                return "unled", None
            if led == slab:
                return "held", None
            wrong = "the radix tree leads from 0x%x to 0x%x" % (begin, led or 0)
        text = "the slab 0x%x of bin %d in arena %d: %s" % (slab, szind, arena, wrong)
    return "failed", text
