"""Find every jemalloc in a target: object, prefix, release, types, constants; explain those that cannot be read."""

import re
from typing import Iterator, List, NamedTuple, Optional, Sequence, Tuple, Union

from gdbheapx.allocators.records import Instances
from gdbheapx.common.errors import HeapxError, UnreadableMemory
from gdbheapx.common.problems import ALLOCATOR_UNREAD
from gdbheapx.inferior.base import Module, Target, TypeSet
from gdbheapx.jemalloc import layouts
from gdbheapx.jemalloc.layouts import JemallocGeometry, StructTable, Version, parse_jemalloc_release
from gdbheapx.jemalloc.structure import TsdFinder, find_fitting_tables, locate_structure
from gdbheapx.jemalloc.symbols import Jemalloc, JemallocSymbols, prove_layout, read_words
from gdbheapx.jemalloc.traces import BIN_STRIDES, JemallocSuspect, JemallocTraces, find_traces, read_arena_table, read_object_texts
from gdbheapx.kernel.jemalloc.records import BinLayout
from gdbheapx.layout import pack as packs

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
    bug = layouts.text_has_ticker_bug(told)
    what = _describe_unread(module, reason, told)
    if page_bytes is not None:
        what += "; its pages are %d bytes" % page_bytes
    if bug is not None:
        what += "; its release %s the bug that makes threads blind" % ("has" if bug else "does not have")
    return UnreadJemalloc(module, what, suggest_file(target, module, reason.why), reason.why, text, page_bytes, bug)


def _describe_unread(module: Module, reason: NotReadable, text: Optional[str]) -> str:
    name = ("jemalloc %s" % layouts.shorten_version(text)).rstrip() + " in %s" % module.name
    evidence = " (%s)" % reason.evidence if reason.evidence else ""
    release, by_structure = parse_jemalloc_release(text), "; by its structure: %s" % reason.evidence if reason.evidence else ""
    between = "it does not state its release"
    if release is not None:
        between = "it was made %d commits after %d.%d.%d" % (layouts.count_commits_after(text), *release)
    stripped = "it has no symbols, and its build is not among the bundled packs (build-id %s)" % (module.build_id or "none")
    sentences = {
        STRIPPED: stripped + by_structure,
        NO_LAYOUT: "it has symbols but no debug information, and no pack has its layouts" + evidence,
        SNAPSHOT: "%s, and no layout could be verified for it%s" % (between, evidence),
        WRONG_LAYOUT: "its memory does not match its layout" + evidence,
        OTHER_RELEASE: "only jemalloc 5 is supported",
    }
    return "cannot read %s: %s" % (name, sentences.get(reason.why, reason.evidence))


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


def iterate_geometries(symbols: JemallocSymbols, types: TypeSet, version: Version) -> Iterator[JemallocGeometry]:
    """Every geometry that the constants allow, the likeliest first; they differ in the radix tree. HeapxError if constants are
    unreadable."""
    try:
        base = _read_geometry(symbols, types, version)
    except UnreadableMemory as problem:
        hint = "a core must include the data and bss of %s" % symbols.module.name
        raise HeapxError("cannot read its constants: %s" % problem.message, hint, code=problem.code)
    for name, struct, path in (("arena_emap_global", "emap_s", "rtree.root"), ("extents_rtree", "rtree_s", "root")):
        symbol, place = symbols.find(name), types.place(struct, path)
        if base is None or symbol is None or place is None:
            continue
        # by the variable's own size, as configure may have given rtree_s.root another one than the types'
        size, elements = symbols.size_bytes(name), place.count
        if size:
            elements = 1 << max(0, ((size - place.offset) // base.word_bytes).bit_length() - 1)
        leaf, typed = types.structs.get("rtree_leaf_elm_s"), types.place("rtree_s", "root")
        compact = "le_bits" in leaf.members if leaf is not None and typed is not None and elements == typed.count else None
        for shape in layouts.list_rtree_shapes(elements, base.lg_page, len(base.size_classes), compact, base.word_bytes):
            yield base._replace(rtree_root=symbol.address + place.offset, rtree=shape)
        return


def _read_geometry(symbols: JemallocSymbols, types: TypeSet, version: Version) -> Optional[JemallocGeometry]:
    """Everything but the radix tree; None if what is there cannot be jemalloc's."""
    target, tables = symbols.target, []
    for name in ("sz_index2size_tab", "sz_pind2sz_tab"):
        symbol, count = symbols.find(name), _count_elements(symbols, types, name, target.word_bytes)
        if symbol is None or not 0 < count <= 4096:
            return None
        tables.append(read_words(target, symbol.address, count))
    sizes, pages = tables
    if not any(sizes):
        what = "it is not initialised, because the process has not called it yet"
        raise HeapxError(what, "retry after the first call", code=ALLOCATOR_UNREAD)
    made = layouts.assemble_geometry(target, types, version, sizes, pages[:-1], _read_bins(symbols, types))
    narenas, huge = symbols.read_variable("narenas_total", 4), symbols.read_variable("huge_arena_ind", 4)
    return made and made._replace(
        narenas=min(layouts.MAX_ARENAS, narenas) if narenas is not None else layouts.MAX_ARENAS,
        manual_arena_base=symbols.read_variable("manual_arena_base", 4),
        huge_arena=huge if huge and symbols.read_variable("oversize_threshold") else None,
        large_pad_bytes=symbols.read_variable("sz_large_pad") or 0,
        size_from_extent=bool(symbols.read_variable("opt_disable_large_size_classes", 1)),
    )


def _read_bins(symbols: JemallocSymbols, types: TypeSet) -> List[BinLayout]:
    for name, struct in (("bin_infos", "bin_info_s"), ("arena_bin_info", "arena_bin_info_s")):
        symbol = symbols.find(name)
        struct = struct if struct in types.structs else "bin_info_s"
        if symbol is not None and struct in types.structs:
            count = _count_elements(symbols, types, name, types.size_bytes(struct))
            return layouts.read_bin_infos(symbols.target, types, symbol.address, count, struct) if 0 < count <= 256 else []
    return []


def _count_elements(symbols: JemallocSymbols, types: TypeSet, name: str, element_bytes: int) -> int:
    """Elements of the array `name`, by the symbol table, else by its type; 0 if this build has none."""
    size, typed = symbols.size_bytes(name), types.variables.get(name)
    return size // element_bytes if size and element_bytes > 0 else typed.count if typed is not None else 0


def find_jemallocs(target: Target, suspects: Sequence[JemallocSuspect]) -> Instances:
    """Every jemalloc of these, and those that are there but are not read, each with the reason."""
    read: List[Jemalloc] = []
    not_read: List[UnreadJemalloc] = []
    for suspect in suspects:
        is_named = suspect.prefix is not None or suspect.pack is not None
        candidate = _read_named(target, suspect) if is_named else _read_nameless(target, suspect.module, suspect.traces)
        if isinstance(candidate, UnreadJemalloc):
            not_read.append(candidate)
            continue
        owner = target.dynamic_symbol("malloc")
        owns_malloc = owner.module.base == suspect.module.base if owner is not None else None
        own_id = "jemalloc#%d" % (len(read) + 1) if read else "jemalloc"
        read.append(candidate._replace(id=own_id, owns_malloc=owns_malloc))
    return Instances(read, not_read)


def _read_named(target: Target, suspect: JemallocSuspect) -> Union[Jemalloc, UnreadJemalloc]:
    """A jemalloc in an object with its symbols, or of which there is a pack."""
    module, pack = suspect.module, suspect.pack
    symbols = JemallocSymbols(target, module, pack.prefix if pack is not None else suspect.prefix or "", pack)
    try:
        return _describe_named(symbols)
    except HeapxError as problem:
        reason = problem if isinstance(problem, NotReadable) else NotReadable(UNREADABLE, problem.message)
        if reason.why in (SNAPSHOT, NO_LAYOUT):
            left = _read_nameless(target, module, find_traces(target, module))
            if isinstance(left, Jemalloc) and left.is_partial:
                return left
        made = make_unread(target, module, reason, read_version_text(symbols), _read_page_bytes(symbols))
        return made if made.hint else made._replace(hint=problem.hint)


def _read_nameless(target: Target, module: Module, seen: Optional[JemallocTraces]) -> Union[Jemalloc, UnreadJemalloc]:
    """A jemalloc in an object without its symbols: it exports mallctl, or its traces were found. It is read by its structure, or named."""
    text = (seen.constants if seen is not None else read_object_texts(target, module)).version_text
    located = locate_structure(target, module, seen) if seen is not None and layouts.is_read(text) else ""
    if isinstance(located, Jemalloc):
        if located.calibrated_slabs or not _may_be_another(text, located.fitting):
            return located._replace(version_text=text)
        located = "no slab confirms the layout of %s" % located.fitting
    reason = NotReadable(STRIPPED, located) if layouts.is_read(text) else NotReadable(OTHER_RELEASE)
    page_bytes = seen.bins.page_bytes if seen is not None and seen.bins is not None else None
    return make_unread(target, module, reason, text, page_bytes, seen.release if seen is not None else None)


def _may_be_another(text: Optional[str], table: Optional[str]) -> bool:
    """A build with this version text may not be what the table is of, though it fits: only slabs prove it."""
    return layouts.may_differ(text) and not (table is not None and "-g" in table and (text or "").startswith(table))


def _read_page_bytes(symbols: JemallocSymbols) -> Optional[int]:
    """The first page size class, if jemalloc has filled its table."""
    size = symbols.read_variable("sz_pind2sz_tab")
    return size if size in BIN_STRIDES else None


def _describe_named(symbols: JemallocSymbols) -> Jemalloc:
    """Types, release and constants of one candidate. NotReadable, with what was seen, if it is not to be read."""
    target, anchor, text = symbols.target, symbols.find("arenas"), read_version_text(symbols)
    if not layouts.is_read(text):
        raise NotReadable(OTHER_RELEASE)
    if anchor is None:
        raise NotReadable(NO_LAYOUT, "the address of its arenas is unknown")
    tried: List[Tuple[str, str]] = []  # where types came from, and what does not hold with them
    for types, source, table in _find_type_sources(symbols, anchor.address, text):
        has_confirm_conf = symbols.find("opt_confirm_conf") is not None
        version = table.version if table is not None else layouts.find_version(types, has_confirm_conf)
        if version is None:
            tried.append((source, "not a layout of jemalloc 5"))
            continue
        places, name = source if source == "debug-info" else anchor.source, table.name if table is not None else None
        proven: List[Jemalloc] = []
        wrong: List[str] = []
        for geometry in iterate_geometries(symbols, types, version):
            made = Jemalloc(target, symbols, types, version, geometry, "", text, source, places, fitting=name)
            proof = prove_layout(made, is_own=source != "table")
            if isinstance(proof, str):
                wrong.append(proof)
            elif source == "table" and not proof.calibrated_slabs and _may_be_another(text, name):
                wrong.append("no slab confirms the layout of %s" % (name or "%d.%d.%d" % version))
            else:
                proven.append(proof)
        if proven:
            best = max(proven, key=lambda proof: bool(proof.calibrated_slabs))
            symbols.find_tsds = TsdFinder(symbols, types, best.geometry.page_bytes).find
            return best
        wrong = wrong or ["its page size or radix tree does not match any known build"]
        tried += [(source, one) for one in wrong]
    told = "; ".join(dict.fromkeys("%s: %s" % pair for pair in tried))
    if layouts.may_differ(text) and all(source == "table" for source, _ in tried):
        raise NotReadable(SNAPSHOT, told)
    raise NotReadable(WRONG_LAYOUT if tried else NO_LAYOUT, told)


TypeSource = Tuple[TypeSet, str, Optional[StructTable]]
"""Types; `debug-info`, `pack` (of this very build) or `table` (of another build with the same structs); the table."""


def _find_type_sources(symbols: JemallocSymbols, arenas: int, text: Optional[str]) -> List[TypeSource]:
    """List the sources of types, best first: debug information, its own pack, the tables that its arenas have, one without types if they
    have none, packs of the same release whose sizes agree."""
    if symbols.pack is not None:
        return [(symbols.pack.types, "pack", None)]
    types = _read_debug_types(symbols, text)
    if types is not None and "tsd_s" in types.structs:
        return [(types, "debug-info", None)]
    page = _read_page_bytes(symbols) or layouts.PAGE_BYTES
    table = read_arena_table(symbols.target, arenas, page)
    if not table.pointers:
        return [(pack.types, "table", None) for pack in packs.shipped_packs() if _has_same_sizes(symbols, pack, text)]
    rows = symbols.size_bytes("bin_infos")
    fitting = find_fitting_tables(symbols.target, table, rows // BIN_STRIDES[page] if rows else None, symbols.tsd_bytes)
    return [(layouts.add_pack_variables(one), "table", one) for one in fitting] or [(TypeSet(), "table", None)]


def _read_debug_types(symbols: JemallocSymbols, text: Optional[str]) -> Optional[TypeSet]:
    """The types in the unit of one function of jemalloc.c, which has nearly all; the few others from a pack of the same release.

    Where there is no such pack, from the units that use them: with a build's -g3, gdb takes seconds to read one more.
    """
    target, near = symbols.target, symbols.main_unit
    types = target.types(near, layouts.STRUCTS, (), layouts.ENUMERATORS, symbols.prefix) if near is not None else None
    if types is None or "arena_s" not in types.structs:
        return None
    alike = () if layouts.may_differ(text) else (pack for pack in packs.shipped_packs() if _has_same_sizes(symbols, pack, text))
    for pack in alike:
        types.update(TypeSet({name: pack.types.structs[name] for name in layouts.TYPES_ELSEWHERE if name in pack.types.structs}))
        return types
    for function, wanted in layouts.TYPE_UNITS.items():
        names = [name for name in wanted if name not in types.structs]
        near = target.function(symbols.module, symbols.prefix + function) if names else None
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
    pairs.append((symbols.tsd_bytes, pack.thread_locals.get("tsd_tls", (0, 0))[1]))
    known = [(mine, theirs) for mine, theirs in pairs if mine and theirs]
    return len(known) >= 2 and all(mine == theirs for mine, theirs in known)


def read_version_text(symbols: JemallocSymbols) -> Optional[str]:
    """JEMALLOC_VERSION, which no symbol names: as the build's pack or the object's constant data has it."""
    return (symbols.pack.version_text if symbols.pack is not None else None) or symbols.texts.version_text
