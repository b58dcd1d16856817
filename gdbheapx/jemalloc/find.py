"""Find every jemalloc in a target: object, prefix, release, types, constants; explain those that cannot be read."""

import re
from functools import partial
from typing import Iterator, List, NamedTuple, Optional, Sequence, Tuple

from gdbheapx.allocators.records import Instances
from gdbheapx.errors import HeapxError, UnreadableMemory
from gdbheapx.inferior.base import Module, Symbol, Target, TypeSet
from gdbheapx.jemalloc.layouts import (
    ENUMERATORS,
    MAX_ARENAS,
    NEWEST_KNOWN,
    PAGE_BYTES,
    STRUCTS,
    TYPE_UNITS,
    TYPES_ELSEWHERE,
    JemallocGeometry,
    StructTable,
    Version,
    add_pack_variables,
    assemble_geometry,
    count_commits_after,
    find_version,
    is_read,
    list_rtree_shapes,
    may_differ,
    parse_jemalloc_release,
    read_bin_infos,
    text_has_ticker_bug,
    was_tried,
)
from gdbheapx.jemalloc.structure import (
    FOUND_BY,
    StructureMatch,
    TsdFinder,
    find_fitting_tables,
    locate_structure,
)
from gdbheapx.jemalloc.symbols import JemallocSymbols, prove_layout, read_scalar, read_words
from gdbheapx.jemalloc.traces import (
    BIN_STRIDES,
    JemallocSuspect,
    JemallocTraces,
    find_thread_image,
    find_traces,
    read_arena_table,
    read_object_texts,
)
from gdbheapx.kernel.jemalloc.records import BinLayout
from gdbheapx.layout import pack as packs
from gdbheapx.model import AllocatorInfo
from gdbheapx.problems import ALLOCATOR_UNREAD

DISTRIBUTED = re.compile(r"/(usr/)?lib(64|/[^/]+)?/libjemalloc\.so\.2$")
PACKAGES = (
    (("ubuntu",), "apt-get install libjemalloc2-dbgsym (from Ubuntu's archive ddebs)"),
    (("debian",), "apt-get install libjemalloc2-dbgsym (from Debian's archive debian-debug)"),
    (("fedora", "rhel", "centos"), "dnf debuginfo-install jemalloc"),
    (("suse", "opensuse"), "zypper install libjemalloc2-debuginfo"),
)
"""What gets them, by ID or ID_LIKE of os-release."""
STRIPPED = "stripped"
"""No symbols, and no pack for its build-id."""
NO_LAYOUT = "no-layout"
"""Symbols, but no debug information, and no pack's layouts are its."""
SNAPSHOT = "snapshot"
"""Made between two releases: a release's layout that nothing proves is not believed."""
WRONG_LAYOUT = "wrong-layout"
"""What its types or its pack promise does not hold in memory."""
OTHER_RELEASE = "other-release"
"""Before 5."""
UNREADABLE = "unreadable"
"""Not initialised yet, or its memory cannot be read."""
HASH_DIGITS = 12


class UnreadJemalloc(NamedTuple):
    """A jemalloc that is present and cannot be read."""

    module: Module
    what: str
    """One sentence for people: which, where, why not, and what its release means."""
    hint: Optional[str]
    why: str = UNREADABLE
    """`stripped`, `no-layout`, `snapshot`, `wrong-layout`, `other-release` or `unreadable`."""
    version_text: Optional[str] = None
    page_bytes: Optional[int] = None
    """jemalloc's own page."""
    has_ticker_bug: Optional[bool] = None
    """By its version text; None if the text does not show it."""


class NotReadable(HeapxError):
    """Raised with the reason why a candidate cannot be read."""

    def __init__(self, why: str, evidence: str = "") -> None:
        super().__init__(evidence or why)
        self.why = why
        self.evidence = evidence
        """In parentheses after the sentence; or, where it is unreadable, the sentence itself."""


def make_unread(
    target: Target, module: Module, reason: NotReadable, text: Optional[str], page_bytes: Optional[int], release: Optional[str] = None
) -> UnreadJemalloc:
    """Make the record of a jemalloc that cannot be read. `release`: by its traces, where there is no version text."""
    told = text or release
    bug = text_has_ticker_bug(told)
    what = _describe_unread(module, reason, told)
    if page_bytes is not None:
        what += "; its pages are %d bytes" % page_bytes
    if bug is not None:
        what += "; its release %s the bug that makes threads blind" % ("has" if bug else "does not have")
    return UnreadJemalloc(module, what, suggest_file(target, module, reason.why), reason.why, text, page_bytes, bug)


def shorten_version(text: Optional[str]) -> str:
    """A version text with a hash that people can compare; a release without one."""
    if text is None:
        return ""
    if count_commits_after(text) == 0 and parse_jemalloc_release(text) is not None:
        return text.split("-")[0]
    head, _, digits = text.partition("-g")
    return "%s-g%s" % (head, digits[:HASH_DIGITS]) if digits else text


def _describe_unread(module: Module, reason: NotReadable, text: Optional[str]) -> str:
    name = ("jemalloc %s" % shorten_version(text)).rstrip() + " in %s" % module.name
    evidence = " (%s)" % reason.evidence if reason.evidence else ""
    if reason.why == STRIPPED:
        what = "cannot read %s: it has no symbols, and its build is not among the bundled packs (build-id %s)"
        return what % (name, module.build_id or "none") + ("; by its structure: %s" % reason.evidence if reason.evidence else "")
    if reason.why == NO_LAYOUT:
        return "cannot read %s: it has symbols but no debug information, and no pack has its layouts%s" % (name, evidence)
    if reason.why == SNAPSHOT:
        release = parse_jemalloc_release(text)
        between = "it does not state its release"
        if release is not None:
            between = "it was made %d commits after %d.%d.%d" % (count_commits_after(text), *release)
        return "cannot read %s: %s, and no layout could be verified for it%s" % (name, between, evidence)
    if reason.why == WRONG_LAYOUT:
        return "cannot read %s: its memory does not match its layout%s" % (name, evidence)
    if reason.why == OTHER_RELEASE:
        return "cannot read %s: only jemalloc 5 is supported" % name
    return "cannot read %s: %s" % (name, reason.evidence)


def suggest_file(target: Target, module: Module, why: str) -> Optional[str]:
    """Suggest the file or command that would make it readable."""
    if why == UNREADABLE:
        return None
    if why == OTHER_RELEASE:
        return "use malloc_stats_print in the program"
    if not module.is_executable:
        return target.debug_hint(module, PACKAGES if DISTRIBUTED.match(module.name) else ())[0]
    if why != STRIPPED:
        return "build it with debug information (Rust: debug = true in its profile)"
    keep = "build it unstripped and with debug information (Rust: strip = false, debug = true)"
    if module.build_id:
        keep += "; or keep its unstripped file as DIR/.build-id/%s/%s.debug and give --debug-dir DIR"
        keep %= module.build_id[:2], module.build_id[2:]
    return keep


TypeSource = Tuple[TypeSet, str, Optional[StructTable]]
"""Types; `debug-info`, `pack` (of this very build) or `table` (of another build with the same structs); the table."""
ANCHOR = "arenas"


def iterate_geometries(target: Target, symbols: JemallocSymbols, types: TypeSet, version: Version) -> Iterator[JemallocGeometry]:
    """Every geometry that the constants allow, the likeliest first; they differ in the radix tree. HeapxError if constants are
    unreadable."""
    try:
        base = _read_geometry(target, symbols, types, version)
    except UnreadableMemory as problem:
        hint = "a core must include the data and bss of %s" % symbols.module.name
        raise HeapxError("cannot read its constants: %s" % problem.message, hint, code=problem.code)
    if base is None:
        return
    root, elements = _find_rtree_root(target, symbols, types)
    if not root or not elements:
        return
    leaf = types.structs.get("rtree_leaf_elm_s")
    typed = types.place("rtree_s", "root")
    compact = "le_bits" in leaf.members if leaf is not None and typed is not None and elements == typed.count else None
    for shape in list_rtree_shapes(elements, base.lg_page, len(base.size_classes), compact, base.word_bytes):
        yield base._replace(rtree_root=root, rtree=shape)


def _find_rtree_root(target: Target, symbols: JemallocSymbols, types: TypeSet) -> Tuple[int, int]:
    """Address and number of elements of rtree_s.root; by the variable's own size, as configure may have given it another one than the
    types'."""
    for name, struct, path in (("arena_emap_global", "emap_s", "rtree.root"), ("extents_rtree", "rtree_s", "root")):
        symbol, place = symbols.find(name), types.place(struct, path)
        if symbol is not None and place is not None:
            size = symbols.size_bytes(name)
            elements = place.count if not size else 1 << max(0, ((size - place.offset) // target.word_bytes).bit_length() - 1)
            return symbol.address + place.offset, elements
    return 0, 0


def _read_geometry(target: Target, symbols: JemallocSymbols, types: TypeSet, version: Version) -> Optional[JemallocGeometry]:
    """Everything but the radix tree; None if what is there cannot be jemalloc's."""
    sizes, pages = _read_size_table(target, symbols, types, "sz_index2size_tab"), _read_size_table(target, symbols, types, "sz_pind2sz_tab")
    if not sizes or not pages:
        return None
    if not any(sizes):
        what = "it is not initialised, because the process has not called it yet"
        raise HeapxError(what, "retry after the first call", code=ALLOCATOR_UNREAD)
    bins = _read_bins(target, symbols, types)
    narenas = read_scalar(target, symbols, "narenas_total", 4)
    huge = read_scalar(target, symbols, "huge_arena_ind", 4)
    threshold = read_scalar(target, symbols, "oversize_threshold", target.word_bytes)
    made = assemble_geometry(target, types, version, sizes, pages[:-1], bins)
    return made and made._replace(
        narenas=min(MAX_ARENAS, narenas) if narenas is not None else MAX_ARENAS,
        manual_arena_base=read_scalar(target, symbols, "manual_arena_base", 4),
        huge_arena=huge if huge and threshold else None,
        large_pad_bytes=read_scalar(target, symbols, "sz_large_pad", target.word_bytes) or 0,
        size_from_extent=bool(read_scalar(target, symbols, "opt_disable_large_size_classes", 1)),
    )


def _read_size_table(target: Target, symbols: JemallocSymbols, types: TypeSet, name: str) -> List[int]:
    """A table of size_t; empty if this build has none."""
    symbol, typed = symbols.find(name), types.variables.get(name)
    size = symbols.size_bytes(name)
    count = size // target.word_bytes if size else typed.count if typed is not None else 0
    return read_words(target, symbol.address, count) if symbol is not None and 0 < count <= 4096 else []


def _read_bins(target: Target, symbols: JemallocSymbols, types: TypeSet) -> List[BinLayout]:
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
    """An instance of jemalloc in the target, with everything constant about it."""

    id: str
    module: Module
    version: Version
    """The release its types belong to."""
    version_text: Optional[str]
    """The string it was built with, such as `5.3.0-0-g54ead...`; None if it has none to read."""
    symbols: JemallocSymbols
    types: TypeSet
    geometry: JemallocGeometry
    layout_source: str
    address_source: str
    owns_malloc: Optional[bool]
    calibrated_slabs: int
    """Slabs on which types and constants were proven; 0 where no bin has one yet."""
    named_arenas: int
    """Arenas that name their own index where these types have it."""
    fitting: Optional[str] = None
    """The layout that was found to fit, if neither debug information nor a pack of this build has it."""

    @property
    def is_partial(self) -> bool:
        """No layout is its: only its extents are read, by what every build from 5.3.0 on has in common."""
        return self.symbols.by_structure and self.fitting is None

    @property
    def version_name(self) -> str:
        """Return the release for people, with commits and hash for a snapshot between releases; without a version text the release of
        its types."""
        release = parse_jemalloc_release(self.version_text)
        if release is not None:
            return shorten_version(self.version_text) if may_differ(self.version_text) else "%d.%d.%d" % release
        newest = "5.3.1 or newer" if self.version > NEWEST_KNOWN else "%d.%d.%d" % self.version
        return "5.3.0 or newer" if self.is_partial else newest

    @property
    def unlisted(self) -> Optional[str]:
        """Return a warning for a build that was never tried; None for a listed one."""
        if was_tried(self.version, self.version_text) or (self.fitting is not None and self.version_text is None):
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


def find_jemallocs(target: Target, suspects: Sequence[JemallocSuspect]) -> Instances:
    """Every jemalloc of these, and those that are there but are not read, each with the reason."""
    read: List[Jemalloc] = []
    not_read: List[UnreadJemalloc] = []
    for suspect in suspects:
        own_id = "jemalloc#%d" % (len(read) + 1) if read else "jemalloc"
        is_named = suspect.prefix is not None or suspect.pack is not None
        candidate = _read_named(target, suspect, own_id) if is_named else _read_nameless(target, suspect.module, suspect.traces, own_id)
        if isinstance(candidate, Jemalloc):
            read.append(candidate)
        else:
            not_read.append(candidate)
    return Instances(read, not_read)


def _read_named(target: Target, suspect: JemallocSuspect, own_id: str) -> "Jemalloc | UnreadJemalloc":
    """A jemalloc in an object with its symbols, or of which there is a pack."""
    module, pack = suspect.module, suspect.pack
    symbols = JemallocSymbols(target, module, pack.prefix if pack is not None else suspect.prefix or "", pack)
    try:
        return _describe_named(target, module, symbols, own_id)
    except HeapxError as problem:
        reason = problem if isinstance(problem, NotReadable) else NotReadable(UNREADABLE, problem.message)
        if reason.why in (SNAPSHOT, NO_LAYOUT):
            left = _read_nameless(target, module, find_traces(target, module), own_id)
            if isinstance(left, Jemalloc) and left.is_partial:
                return left
        made = make_unread(target, module, reason, read_version_text(symbols), _read_page_bytes(target, symbols))
        return made if made.hint else made._replace(hint=problem.hint)


def _read_nameless(target: Target, module: Module, seen: Optional[JemallocTraces], own_id: str) -> "Jemalloc | UnreadJemalloc":
    """A jemalloc in an object without its symbols: it exports mallctl, or its traces were found. It is read by its structure, or named."""
    text = (seen.constants if seen is not None else read_object_texts(target, module)).version_text
    located = locate_structure(target, module, seen) if seen is not None and is_read(text) else None
    if isinstance(located, StructureMatch):
        if located.proof.slabs or not _may_be_another(text, located.table):
            found = (located.version, text, located.symbols, located.types, located.geometry, "table", FOUND_BY)
            owns, proof = _owns_malloc(target, module), located.proof
            return Jemalloc(own_id, module, *found, owns, proof.slabs, proof.named, located.table)
        located = "no slab confirms the layout of %s" % located.table
    release = seen.release if seen is not None else None
    bins = seen.bins if seen is not None else None
    reason = NotReadable(STRIPPED, located or "") if is_read(text) else NotReadable(OTHER_RELEASE)
    return make_unread(target, module, reason, text, bins.page_bytes if bins is not None else None, release)


def _may_be_another(text: Optional[str], table: Optional[str]) -> bool:
    """A build with this version text may not be what the table is of, though it fits: only slabs prove it."""
    return may_differ(text) and not (table is not None and "-g" in table and (text or "").startswith(table))


def _owns_malloc(target: Target, module: Module) -> Optional[bool]:
    owner = target.dynamic_symbol("malloc")
    return owner.module.base == module.base if owner is not None else None


def _read_page_bytes(target: Target, symbols: JemallocSymbols) -> Optional[int]:
    """The first page size class, if jemalloc has filled its table."""
    size = read_scalar(target, symbols, "sz_pind2sz_tab", target.word_bytes)
    return size if size and size in BIN_STRIDES else None


def _describe_named(target: Target, module: Module, symbols: JemallocSymbols, own_id: str) -> Jemalloc:
    """Types, release and constants of one candidate. NotRead, with what was seen, if it is not to be read."""
    anchor = symbols.find(ANCHOR)
    text = read_version_text(symbols)
    if not is_read(text):
        raise NotReadable(OTHER_RELEASE)
    if anchor is None:
        raise NotReadable(NO_LAYOUT, "the address of its arenas is unknown")
    tried: List[Tuple[str, str]] = []  # where types came from, and what does not hold with them
    for types, source, table in _find_type_sources(target, symbols, anchor, text):
        version = table.version if table is not None else find_version(types, symbols.find("opt_confirm_conf") is not None)
        if version is None:
            tried.append((source, "not a layout of jemalloc 5"))
            continue
        is_own, name = source != "table", table.name if table is not None else None
        made = list(iterate_geometries(target, symbols, types, version))
        proofs = [prove_layout(target, symbols, types, geometry, is_own) for geometry in made]
        if not is_own and _may_be_another(text, name):
            layout = name or "%d.%d.%d" % version
            proofs = [
                proof if proof.slabs or proof.wrong else proof._replace(wrong="no slab confirms the layout of %s" % layout)
                for proof in proofs
            ]
        held = [(geometry, proof) for geometry, proof in zip(made, proofs) if proof.wrong is None]
        if held:
            geometry, proof = max(held, key=lambda pair: bool(pair[1].slabs))
            symbols.tell(partial(make_tsd_finder, target, module, types, anchor.address, geometry.page_bytes))
            places = "debug-info" if source == "debug-info" else anchor.source
            owns = _owns_malloc(target, module)
            own = (own_id, module, version, text, symbols, types, geometry, source, places, owns)
            return Jemalloc(*own, proof.slabs, proof.named, name)
        tried += [(source, str(proof.wrong)) for proof in proofs]
        if not proofs:
            tried.append((source, "its page size or radix tree does not match any known build"))
    told = "; ".join(dict.fromkeys("%s: %s" % pair for pair in tried))
    if may_differ(text) and all(source == "table" for source, _ in tried):
        raise NotReadable(SNAPSHOT, told)
    if not tried:
        raise NotReadable(NO_LAYOUT)
    raise NotReadable(WRONG_LAYOUT, told)


def make_tsd_finder(target: Target, module: Module, types: TypeSet, arenas: int, page_bytes: int) -> TsdFinder:
    """The search for thread-local storage by structure."""
    pointers = sorted(read_arena_table(target, arenas, page_bytes).pointers.values())
    return TsdFinder(target, module, types, pointers, find_thread_image(target.thread_local_image(module))[0])


def _find_type_sources(target: Target, symbols: JemallocSymbols, anchor: Symbol, text: Optional[str]) -> List[TypeSource]:
    """List the sources of types, best first: debug information, its own pack, packs of the same release whose sizes agree."""
    if symbols.pack is not None:
        return [(symbols.pack.types, "pack", None)]
    types = _read_debug_types(target, symbols, text)
    if types is not None and "arena_s" in types.structs and "tsd_s" in types.structs:
        return [(types, "debug-info", None)]
    alike = (pack.types for pack in packs.shipped_packs() if _has_same_sizes(symbols, pack, text))
    return _find_fitting_types(target, symbols, anchor) or [(types, "table", None) for types in alike]


def _find_fitting_types(target: Target, symbols: JemallocSymbols, anchor: Symbol) -> List[TypeSource]:
    """List the tables that its arenas have; one without types if they have none."""
    page = _read_page_bytes(target, symbols) or PAGE_BYTES
    arenas = read_arena_table(target, anchor.address, page)
    if not arenas.pointers:
        return []
    rows, tsd_bytes = symbols.size_bytes("bin_infos"), symbols.thread_local_bytes("tsd_tls")
    nbins = rows // BIN_STRIDES[page] if rows else None
    fitting = find_fitting_tables(target, arenas, nbins, tsd_bytes)
    return [(add_pack_variables(table), "table", table) for table in fitting] or [(TypeSet(), "table", None)]


def _read_debug_types(target: Target, symbols: JemallocSymbols, text: Optional[str]) -> Optional[TypeSet]:
    """The types in the unit of one function of jemalloc.c, which has nearly all; the few others from a pack of the same release.

    Where there is no such pack, from the units that use them: with a build's -g3, gdb takes seconds to read one more.
    """
    near = symbols.near()
    types = target.types(near, STRUCTS, (), ENUMERATORS, symbols.prefix) if near is not None else None
    if types is None or "arena_s" not in types.structs:
        return None
    table = None if may_differ(text) else next((pack for pack in packs.shipped_packs() if _has_same_sizes(symbols, pack, text)), None)
    if table is not None:
        types.update(TypeSet({name: table.types.structs[name] for name in TYPES_ELSEWHERE if name in table.types.structs}))
        return types
    for function, wanted in TYPE_UNITS.items():
        names = [name for name in wanted if name not in types.structs]
        near = symbols.near(function) if names else None
        more = target.types(near, names, (), (), symbols.prefix) if near is not None else None
        if more is not None:
            types.update(more)
    return types


def _has_same_sizes(symbols: JemallocSymbols, pack: packs.Pack, text: Optional[str]) -> bool:
    """A build without debug information has the same structs as the pack's: same release, same sizes of what depends on them."""
    release = parse_jemalloc_release(text)
    if pack.allocator != "jemalloc" or (release is not None and release != parse_jemalloc_release(pack.version_text)):
        return False
    names = [name for name in ("bin_infos", "sz_index2size_tab", "arenas") if name in pack.symbols]
    pairs = [(symbols.size_bytes(name), pack.symbols[name][1]) for name in names]
    pairs.append((symbols.thread_local_bytes("tsd_tls"), pack.thread_locals.get("tsd_tls", (0, 0))[1]))
    known = [(mine, theirs) for mine, theirs in pairs if mine and theirs]
    return len(known) >= 2 and all(mine == theirs for mine, theirs in known)


def read_version_text(symbols: JemallocSymbols) -> Optional[str]:
    """JEMALLOC_VERSION, which no symbol names: as the build's pack or the object's constant data has it."""
    if symbols.pack is not None and symbols.pack.version_text:
        return symbols.pack.version_text
    return symbols.texts.version_text


def is_initialized(target: Target, jemalloc: Jemalloc) -> Optional[bool]:
    """malloc_init_state is malloc_init_initialized (0); None if it is not known."""
    state = read_scalar(target, jemalloc.symbols, "malloc_init_state", 4)
    return None if state is None else state == 0
