"""Which jemallocs are in the target: object, prefix, release, types, addresses, constants; each calibrated before it is believed.

The geometries that a build's own constants allow, read from its variables.
"""

from typing import Callable, Iterator, List, NamedTuple, Optional, Sequence, Tuple

from gdbheapx.allocators.records import Instances
from gdbheapx.errors import HeapxError, Unreadable
from gdbheapx.inferior.base import Module, Symbol, Target, TypeSet
from gdbheapx.jemalloc.detection import calibrate, fingerprint, layouts, structure, tables, traces, tsd_place, unread
from gdbheapx.jemalloc.detection.calibrate import scalar, words
from gdbheapx.jemalloc.detection.geometry import MAX_ARENAS, BinInfo, Geometry, TypeSources, assemble, read_bin_infos, rtree_shapes
from gdbheapx.jemalloc.detection.symbols import Symbols
from gdbheapx.jemalloc.detection.unread import NotRead, Unread
from gdbheapx.layout import pack as packs
from gdbheapx.model import AllocatorInfo
from gdbheapx.problems import ALLOCATOR_UNREAD

ANCHOR = "arenas"
SLABS_CONFIRMED = 8


def geometries(target: Target, symbols: Symbols, types: TypeSet, version: layouts.Version) -> Iterator[Geometry]:
    """Every geometry that the constants allow, the likeliest first; they differ in the radix tree. HeapxError if constants are
    unreadable."""
    try:
        base = _constants(target, symbols, types, version)
    except Unreadable as problem:
        hint = "a core must include the data and bss of %s" % symbols.module.name
        raise HeapxError("cannot read its constants: %s" % problem.message, hint, code=problem.code)
    if base is None:
        return
    root, elements = _rtree_root(target, symbols, types)
    if not root or not elements:
        return
    leaf = types.structs.get("rtree_leaf_elm_s")
    compact = "le_bits" in leaf.members if leaf is not None and elements == _typed_elements(types) else None
    for shape in rtree_shapes(elements, base.lg_page, len(base.size_classes), compact, base.word_bytes):
        yield base._replace(rtree_root=root, rtree=shape)


def _typed_elements(types: TypeSet) -> Optional[int]:
    place = types.place("rtree_s", "root")
    return place.count if place is not None else None


def _rtree_root(target: Target, symbols: Symbols, types: TypeSet) -> Tuple[int, int]:
    """Address and number of elements of rtree_s.root; by the variable's own size, as configure may have given it another one than the
    types'."""
    for name, struct, path in (("arena_emap_global", "emap_s", "rtree.root"), ("extents_rtree", "rtree_s", "root")):
        symbol, place = symbols.find(name), types.place(struct, path)
        if symbol is not None and place is not None:
            size = symbols.size_bytes(name)
            elements = place.count if not size else 1 << max(0, ((size - place.offset) // target.word_bytes).bit_length() - 1)
            return symbol.address + place.offset, elements
    return 0, 0


def _constants(target: Target, symbols: Symbols, types: TypeSet, version: layouts.Version) -> Optional[Geometry]:
    """Everything but the radix tree; None if what is there cannot be jemalloc's."""
    sizes, pages = _table(target, symbols, types, "sz_index2size_tab"), _table(target, symbols, types, "sz_pind2sz_tab")
    if not sizes or not pages:
        return None
    if not any(sizes):
        raise HeapxError(
            "it is not initialised, because the process has not called it yet", "retry after the first call", code=ALLOCATOR_UNREAD
        )
    bins = _bins(target, symbols, types)
    narenas = scalar(target, symbols, "narenas_total", 4)
    huge = scalar(target, symbols, "huge_arena_ind", 4)
    threshold = scalar(target, symbols, "oversize_threshold", target.word_bytes)
    made = assemble(target, types, version, sizes, pages[:-1], bins)
    return made and made._replace(
        narenas=min(MAX_ARENAS, narenas) if narenas is not None else MAX_ARENAS,
        manual_arena_base=scalar(target, symbols, "manual_arena_base", 4),
        huge_arena=huge if huge and threshold else None,
        large_pad_bytes=scalar(target, symbols, "sz_large_pad", target.word_bytes) or 0,
        size_from_extent=bool(scalar(target, symbols, "opt_disable_large_size_classes", 1)),
    )


def _table(target: Target, symbols: Symbols, types: TypeSet, name: str) -> List[int]:
    """A table of size_t; empty if this build has none."""
    symbol, typed = symbols.find(name), types.variables.get(name)
    size = symbols.size_bytes(name)
    count = size // target.word_bytes if size else typed.count if typed is not None else 0
    return words(target, symbol.address, count) if symbol is not None and 0 < count <= 4096 else []


def _bins(target: Target, symbols: Symbols, types: TypeSet) -> List[BinInfo]:
    for name, struct in (("bin_infos", "bin_info_s"), ("arena_bin_info", "arena_bin_info_s")):
        symbol = symbols.find(name)
        struct = struct if struct in types.structs else "bin_info_s"
        if symbol is None or struct not in types.structs:
            continue
        size, typed = symbols.size_bytes(name), types.variables.get(name)
        count = size // types.size_bytes(struct) if size else typed.count if typed is not None else 0
        if not 0 < count <= 256:
            return []
        return read_bin_infos(target, types, symbol.address, count, struct)
    return []


class Jemalloc(NamedTuple):
    """One jemalloc in the target and all that is constant about it."""

    id: str
    module: Module
    version: layouts.Version
    """The release its types belong to."""
    version_text: Optional[str]
    """The string it was built with, such as `5.3.0-0-g54ead...`; None if it has none to read."""
    symbols: Symbols
    types: TypeSet
    geometry: Geometry
    layout_source: str
    address_source: str
    owns_malloc: Optional[bool]
    calibrated_slabs: int
    """Slabs on which types and constants were proven; 0 where no bin has one yet."""
    named_arenas: int
    """Arenas that name their own index where these types have it."""
    fitting: Optional[str] = None
    """The layout that was found to fit, where neither debug information nor a pack of this build tells it."""

    @property
    def is_partial(self) -> bool:
        """No layout is its: only its extents are read, by what every build from 5.3.0 on has in common."""
        return self.symbols.by_structure and self.fitting is None

    @property
    def version_name(self) -> str:
        """For people: the string's release, with commits and hash for a snapshot between releases; without a string the one its types
        belong to."""
        release = layouts.release_of(self.version_text)
        if release is not None:
            return unread.shortened(self.version_text) if layouts.may_differ(self.version_text) else "%d.%d.%d" % release
        newest = "5.3.1 or newer" if self.version > layouts.NEWEST_KNOWN else "%d.%d.%d" % self.version
        return "5.3.0 or newer" if self.is_partial else newest

    @property
    def unlisted(self) -> Optional[str]:
        """What to mind about a build that was never tried; None for a listed one."""
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


def find(target: Target, suspects: Sequence[traces.Suspect]) -> Instances:
    """Every jemalloc of these, and those that are there but are not read, each with the reason."""
    read: List[Jemalloc] = []
    not_read: List[Unread] = []
    for suspect in suspects:
        candidate = _named(target, suspect, len(read)) if suspect.is_named else _nameless(target, suspect.module, suspect.traces, len(read))
        if isinstance(candidate, Jemalloc):
            read.append(candidate)
        else:
            not_read.append(candidate)
    return Instances(read, not_read)


def _named(target: Target, suspect: traces.Suspect, number: int) -> "Jemalloc | Unread":
    """A jemalloc in an object with its symbols, or of which there is a pack."""
    module, pack = suspect.module, suspect.pack
    symbols = Symbols(target, module, pack.prefix if pack is not None else suspect.prefix or "", pack)
    try:
        return _describe(target, module, symbols, number)
    except HeapxError as problem:
        reason = problem if isinstance(problem, NotRead) else NotRead(unread.UNREADABLE, problem.message)
        if reason.why in (unread.SNAPSHOT, unread.NO_LAYOUT):
            left = _nameless(target, module, traces.look(target, module), number)
            if isinstance(left, Jemalloc) and left.is_partial:
                return left
        made = unread.make(target, module, reason, version_text(symbols), _page_bytes(target, symbols))
        return made if made.hint else made._replace(hint=problem.hint)


def _nameless(target: Target, module: Module, seen: Optional[traces.Traces], number: int) -> "Jemalloc | Unread":
    """A jemalloc in an object without its symbols: it exports mallctl, or its traces were found. It is read by its structure, or named."""
    text = (seen.constants if seen is not None else traces.read_constants(target, module)).version_text
    located = structure.locate(target, module, seen) if seen is not None and layouts.is_read(text) else None
    if isinstance(located, structure.StructureMatch):
        if located.proof.slabs or not _is_other(text, located.table):
            return _by_structure(target, module, located, text, number)
        located = structure.NotLocated(None, "no slab confirms the layout of %s" % located.table)
    release = seen.release if seen is not None else None
    bins = seen.bins if seen is not None else None
    reason = (
        NotRead(unread.STRIPPED, located.evidence if located is not None else "")
        if layouts.is_read(text)
        else NotRead(unread.OTHER_RELEASE)
    )
    return unread.make(target, module, reason, text, bins.page_bytes if bins is not None else None, release)


def _by_structure(target: Target, module: Module, match: structure.StructureMatch, text: Optional[str], number: int) -> Jemalloc:
    return Jemalloc(
        _id(number),
        module,
        match.version,
        text,
        match.symbols,
        match.types,
        match.geometry,
        "table",
        structure.FOUND_BY,
        _owns_malloc(target, module),
        match.proof.slabs,
        match.proof.named,
        match.table,
    )


def _is_other(text: Optional[str], table: Optional[str]) -> bool:
    """A build with this version text may not be what the table is of, though it fits: only slabs prove it."""
    return layouts.may_differ(text) and not (table is not None and "-g" in table and (text or "").startswith(table))


def _id(number: int) -> str:
    return "jemalloc" if number == 0 else "jemalloc#%d" % (number + 1)


def _owns_malloc(target: Target, module: Module) -> Optional[bool]:
    owner = target.dynamic_symbol("malloc")
    return owner.module.base == module.base if owner is not None else None


def _page_bytes(target: Target, symbols: Symbols) -> Optional[int]:
    """The first page size class, if jemalloc has filled its table."""
    size = calibrate.scalar(target, symbols, "sz_pind2sz_tab", target.word_bytes)
    return size if size and size in traces.BIN_STRIDES else None


def _describe(target: Target, module: Module, symbols: Symbols, number: int) -> Jemalloc:
    """Types, release and constants of one candidate. NotRead, with what was seen, if it is not to be read."""
    anchor = symbols.find(ANCHOR)
    text = version_text(symbols)
    if not layouts.is_read(text):
        raise NotRead(unread.OTHER_RELEASE)
    if anchor is None:
        raise NotRead(unread.NO_LAYOUT, "the address of its arenas is unknown")
    tried: List[Tuple[str, str]] = []  # where types came from, and what does not hold with them
    for sources in _type_sources(target, symbols, anchor, text):
        version = sources.version or layouts.version_of(sources.types, symbols.find("opt_confirm_conf") is not None)
        if version is None:
            tried.append((sources.source, "not a layout of jemalloc 5"))
            continue
        is_own = sources.source != "table"
        made = list(geometries(target, symbols, sources.types, version))
        proofs = [calibrate.check(target, symbols, sources.types, geometry, is_own) for geometry in made]
        if not is_own and _is_other(text, sources.name):
            layout = sources.name or "%d.%d.%d" % version
            proofs = [
                proof if proof.slabs or proof.wrong else proof._replace(wrong="no slab confirms the layout of %s" % layout)
                for proof in proofs
            ]
        held = [(geometry, proof) for geometry, proof in zip(made, proofs) if proof.wrong is None]
        if held:
            geometry, proof = max(held, key=lambda pair: bool(pair[1].slabs))
            symbols.tell(_tsds(target, module, sources.types, anchor.address, geometry.page_bytes))
            source = "debug-info" if sources.source == "debug-info" else anchor.source
            return Jemalloc(
                _id(number),
                module,
                version,
                text,
                symbols,
                sources.types,
                geometry,
                sources.source,
                source,
                _owns_malloc(target, module),
                proof.slabs,
                proof.named,
                sources.name,
            )
        tried += [(sources.source, str(proof.wrong)) for proof in proofs]
        if not proofs:
            tried.append((sources.source, "its page size or radix tree does not match any known build"))
    told = "; ".join(dict.fromkeys("%s: %s" % pair for pair in tried))
    if layouts.may_differ(text) and all(source == "table" for source, _ in tried):
        raise NotRead(unread.SNAPSHOT, told)
    if not tried:
        raise NotRead(unread.NO_LAYOUT)
    raise NotRead(unread.WRONG_LAYOUT, told)


def _tsds(target: Target, module: Module, types: TypeSet, arenas: int, page_bytes: int) -> Callable[[], tsd_place.Finder]:
    """What finds thread-local storage by structure; made when it is asked for."""

    def make() -> tsd_place.Finder:
        pointers = sorted(fingerprint.look(target, arenas, page_bytes).pointers.values())
        return tsd_place.Finder(target, module, types, pointers, traces.find_thread(target.thread_local_image(module)))

    return make


def _type_sources(target: Target, symbols: Symbols, anchor: Symbol, text: Optional[str]) -> List[TypeSources]:
    """Where the types may come from, best first: debug information, its own pack, packs of the same release whose sizes agree."""
    if symbols.pack is not None:
        return [TypeSources(symbols.pack.types, "pack")]
    types = _debug_types(target, symbols, text)
    if types is not None and "arena_s" in types.structs and "tsd_s" in types.structs:
        return [TypeSources(types, "debug-info")]
    return _fitting(target, symbols, anchor) or [
        TypeSources(pack.types, "table") for pack in packs.shipped() if _same_sizes(symbols, pack, text)
    ]


def _fitting(target: Target, symbols: Symbols, anchor: Symbol) -> List[TypeSources]:
    """The tables that its arenas have, and a release to name where it has none yet."""
    page = _page_bytes(target, symbols) or tables.PAGE_BYTES
    arenas = fingerprint.look(target, anchor.address, page)
    if not arenas.pointers:
        return []
    rows, tsd_bytes = symbols.size_bytes("bin_infos"), symbols.thread_local_bytes("tsd_tls")
    nbins = rows // traces.BIN_STRIDES[page] if rows else None
    sources = [
        TypeSources(tables.with_variables(table), "table", table.version, table.name)
        for table in fingerprint.fitting(target, arenas, nbins, tsd_bytes)
    ]
    return sources or [TypeSources(TypeSet(), "table")]


def _debug_types(target: Target, symbols: Symbols, text: Optional[str]) -> Optional[TypeSet]:
    """The types in the unit of one function of jemalloc.c, which has nearly all; the few others from a pack of the same release.

    Where there is no such pack, from the units that use them: with a build's -g3, gdb takes seconds to read one more.
    """
    near = symbols.near()
    types = target.types(near, layouts.STRUCTS, (), layouts.ENUMERATORS, symbols.prefix) if near is not None else None
    if types is None or "arena_s" not in types.structs:
        return None
    table = None if layouts.may_differ(text) else next((pack for pack in packs.shipped() if _same_sizes(symbols, pack, text)), None)
    if table is not None:
        types.update(TypeSet({name: table.types.structs[name] for name in layouts.ELSEWHERE if name in table.types.structs}))
        return types
    for function, wanted in layouts.UNITS.items():
        names = [name for name in wanted if name not in types.structs]
        near = symbols.near(function) if names else None
        more = target.types(near, names, (), (), symbols.prefix) if near is not None else None
        if more is not None:
            types.update(more)
    return types


def _same_sizes(symbols: Symbols, pack: packs.Pack, text: Optional[str]) -> bool:
    """A build without debug information has the same structs as the pack's: same release, same sizes of what depends on them."""
    release = layouts.release_of(text)
    if pack.allocator != "jemalloc" or (release is not None and release != layouts.release_of(pack.version_text)):
        return False
    names = [name for name in ("bin_infos", "sz_index2size_tab", "arenas") if name in pack.symbols]
    pairs = [(symbols.size_bytes(name), pack.symbols[name][1]) for name in names]
    pairs.append((symbols.thread_local_bytes("tsd_tls"), pack.thread_locals.get("tsd_tls", (0, 0))[1]))
    known = [(mine, theirs) for mine, theirs in pairs if mine and theirs]
    return len(known) >= 2 and all(mine == theirs for mine, theirs in known)


def version_text(symbols: Symbols) -> Optional[str]:
    """JEMALLOC_VERSION, which no symbol names: as the build's pack or the object's constant data has it."""
    if symbols.pack is not None and symbols.pack.version_text:
        return symbols.pack.version_text
    return symbols.texts.version_text


def is_initialized(target: Target, jemalloc: Jemalloc) -> Optional[bool]:
    """malloc_init_state is malloc_init_initialized (0); None if it is not known."""
    state = jemalloc.symbols.find("malloc_init_state")
    if state is None:
        return None
    try:
        return target.read(state.address, 4) == bytes(4)
    except Unreadable:
        return None
