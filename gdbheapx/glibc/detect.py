"""Detection of glibc mallocs in the target: main_arena, mp_, the thread caches, layouts and constants. A layout is verified against
memory: where no version can be read, every rule that malloc itself keeps must hold; for a pack, enough of them. Also finds debug files of
a distribution's own libc.
"""

import re
from typing import TYPE_CHECKING, Iterator, List, Optional, Sequence, Set, Tuple

from gdbheapx.common.errors import HeapxError, UnreadableMemory
from gdbheapx.common.problems import ALLOCATOR_UNREAD
from gdbheapx.glibc import layouts
from gdbheapx.glibc.arenas import Glibc
from gdbheapx.glibc.layouts import LIBRARY, default_alignment, make_geometry
from gdbheapx.inferior.base import DebugHint, Module, Symbol, Target, TypeSet
from gdbheapx.layout import pack as packs
from gdbheapx.layout.pack import Pack
from gdbheapx.layout.view import Shape, read_view, take_struct

if TYPE_CHECKING:
    from gdbheapx.glibc.structure_search import ArenaPlace, ThreadLocalOffsets

BANNER = re.compile(rb"GNU C Library [^\n]{0,80}? release version (\d+\.\d+)")
"""What `libc.so.6` prints when it is run (csu/version.c)."""
FILE = re.compile(r"libc-(\d+\.\d+)\.so")
"""Name of the library's file up to 2.33 (Makerules)."""
NEEDED = (
    (layouts.MALLOC_STATE, ("mutex", "flags", "top", "bins", "next", "system_mem", "max_system_mem")),
    (layouts.MALLOC_PAR, ("n_mmaps", "mmapped_mem", "sbrk_base")),
    (layouts.HEAP_INFO, ("ar_ptr", "prev", "size", "mprotect_size")),
)
STRUCTS = (*(struct.name for struct, _ in NEEDED), layouts.TCACHE.name)
"""By their tags."""
MOST_WRONG_BINS = 12
"""Of 127, in a main_arena that is one: with another build's layout hardly any holds."""
DISTRIBUTED = re.compile(r"(?!.*/lib(32|x32)/).*/(libc[.-]|libc_malloc_debug|ld-linux)")
"""Objects of which the packages have debug files: Debian has none for lib32."""
PACKAGES = (
    (("debian", "ubuntu"), "apt-get install libc6-dbg"),
    (("fedora", "rhel", "centos"), "dnf debuginfo-install glibc"),
    (("suse", "opensuse"), "zypper install glibc-debuginfo"),
)
"""What gets its debug information, by ID or ID_LIKE of os-release."""


class NoLayout(HeapxError):
    """A copy was found, and the layout of its structs is not known: structure search may find it."""

    code = ALLOCATOR_UNREAD

    def __init__(self, module: Module, message: str, hint: Optional[str] = None) -> None:
        super().__init__(message, hint)
        self.module = module


class WrongPack(NoLayout):
    """A pack does not fit, which its maker must know."""


def find_glibc_copies(target: Target) -> List[Glibc]:
    """Return every copy of glibc malloc whose main_arena and mp_ are known to a symbol table or a pack, in the dynamic linker's order; then
    those that are found by structure.

    Raises NoLayout if a copy was found but its layout is not known, or does not fit its memory.
    """
    partners = target.find_static("mp_")
    known: List[Tuple[Symbol, Symbol, Optional[Pack]]] = []
    for arena in target.find_static("main_arena"):
        partner = next((symbol for symbol in partners if symbol.module == arena.module), None)
        if partner is not None:
            known.append((arena, partner, None))
    known += _in_packs(target, {arena.module.base for arena, _, _ in known})
    order = {module.base: place for place, module in enumerate(target.modules())}
    copies: List[Glibc] = []
    failed: List[NoLayout] = []
    for arena, partner, pack in sorted(known, key=lambda pair: order.get(pair[0].module.base, len(order))):
        try:
            named = _describe_copy(target, arena, partner, len(copies), pack)
            copies.append(_settle_by_structure(target, named, len(copies)) or _with_locals(target, named))
        except WrongPack:
            raise
        except NoLayout as error:
            failed.append(error)
    bases = {copy.module.base for copy in copies}
    places: Sequence[ArenaPlace] = ()
    # where there are known copies, only an object with a libc's name may have one more
    if not bases or any(LIBRARY.match(module.file_name) for module in target.modules() if module.base not in bases):
        from gdbheapx.glibc import structure_search as structure

        places = structure.find_arena_places(target, bases)
    for place in places:
        text = _version_in_file(target, place.module) or _known_version(place.module)
        copies.append(_by_structure(target, place, len(copies), text))
    for lacking in failed:
        if not any(copy.module.base == lacking.module.base for copy in copies):
            raise lacking
    return _with_owner(target, copies)


def _settle_by_structure(target: Target, named: Glibc, number: int) -> Optional[Glibc]:
    """Redetect the copy by its structure, thread caches included, where a core lacks the library: its structs alone fit more than one
    release. Return None where the layout source is not a probe, the target is no core, or its main_arena is not found.
    """
    if named.layout_source != "probe" or target.kind != "core":
        return None
    from gdbheapx.glibc import structure_search as structure

    others = {module.base for module in target.modules()} - {named.module.base}
    places = structure.find_arena_places(target, others)
    place = next((place for place in places if place.main_arena == named.main_arena.address), None)
    return _by_structure(target, place, number, None) if place is not None else None


def _known_version(module: Module) -> Optional[str]:
    """The release by the pack of this build, where there is one."""
    pack = packs.find_pack(module.build_id, "glibc") if module.build_id else None
    return pack.version_text if pack is not None else None


def _with_locals(target: Target, glibc: Glibc) -> Glibc:
    """Add thread-local variables found by structure, where the object's relocations do not give them, as in a core without the file."""
    names = ("tcache", "thread_arena") if glibc.tcache is not None else ("thread_arena",)
    is_known = all(glibc.named_local(target, name) is not None for name in names)
    if is_known or not any(thread.thread_pointer for thread in target.threads()):
        return glibc._replace(locals=None, is_untouched=False)
    from gdbheapx.glibc import structure_search as structure

    local = structure.locals_of(target, glibc.main_arena.address, glibc.types)
    return glibc._replace(locals=None if local is None else _complete_offsets(local, glibc.pack), is_untouched=local is None)


def _complete_offsets(own: "ThreadLocalOffsets", pack: Optional[Pack]) -> "Optional[ThreadLocalOffsets]":
    """Fill in the thread-local variable that was not found, by the distance between the two in the pack. Return None where the offsets
    contradict the pack.
    """
    places = pack.thread_locals if pack is not None else {}
    if "tcache" not in places or "thread_arena" not in places:
        return own
    apart = places["thread_arena"][0] - places["tcache"][0]
    tcache = own.tcache if own.tcache is not None or own.thread_arena is None else own.thread_arena - apart
    arena = own.thread_arena if own.thread_arena is not None or tcache is None else tcache + apart
    return own._replace(tcache=tcache, thread_arena=arena) if tcache is not None and arena == tcache + apart else None


def _in_packs(target: Target, known: Set[int]) -> Iterator[Tuple[Symbol, Symbol, Pack]]:
    """Copies without these symbols, of which a pack has the addresses: in the C library, or linked into the executable."""
    for module in target.modules():
        if module.base in known or not module.build_id or not (module.is_executable or LIBRARY.match(module.file_name)):
            continue
        pack = packs.find_pack(module.build_id, "glibc")
        if pack is not None and "main_arena" in pack.symbols and "mp_" in pack.symbols:
            arena, partner = (Symbol(name, module.base + pack.symbols[name][0], module, "pack") for name in ("main_arena", "mp_"))
            yield arena, partner, pack


def _with_owner(target: Target, copies: Sequence[Glibc]) -> List[Glibc]:
    """Says of each copy whether the process's malloc calls go to it.

    libc_malloc_debug.so defines malloc but hands the calls on to libc unless a check is switched on (malloc-debug.c): where it is
    the one called and its own arena was never used, the owner is the libc.
    """
    owner = target.dynamic_symbol("malloc")
    if owner is None:
        alone = len(copies) == 1 and copies[0].module.is_executable and target.knows_objects()
        return [glibc._replace(owns_malloc=True if alone else None) for glibc in copies]
    chosen = next((glibc for glibc in copies if glibc.module == owner.module), None)
    if chosen is not None and len(copies) > 1 and not _is_used(target, chosen):
        chosen = next((glibc for glibc in copies if glibc is not chosen and _is_used(target, glibc)), chosen)
    return [glibc._replace(owns_malloc=glibc is chosen) for glibc in copies]


def _is_used(target: Target, glibc: Glibc) -> bool:
    """Its main arena has memory."""
    field = glibc.malloc_state.members["system_mem"]
    try:
        return target.read_word(glibc.main_arena.address + field.offset) != 0
    except UnreadableMemory:
        return True


def _describe_copy(target: Target, arena: Symbol, partner: Symbol, number: int, pack: Optional[Pack]) -> Glibc:
    text = pack.version_text if pack is not None else _version_text(target, arena) or _known_version(arena.module)
    version = layouts.parse_version(text)
    probed = version is None and arena.source == "symbol"
    if probed:
        version = _probe_version(target, arena, partner)
    shape = Shape(target.word_bytes, default_alignment(target.word_bytes, target.machine, version))
    types, all_own = _choose_layouts(target, arena, pack, version, shape)
    wrong = find_build_contradiction(target, types, arena, partner) if pack is not None else None
    if wrong is not None:
        name = "%s (build-id %s)" % (arena.module.name, arena.module.build_id)
        raise WrongPack(arena.module, "%s: its memory does not match its layout (pack): %s" % (name, wrong))
    source = "probe" if probed and version is not None else "table"
    if all_own:
        source = "pack" if pack is not None else "debug-info"
    return _make_glibc(target, number, (arena, partner), version, text, types, source, pack)


def _make_glibc(
    target: Target,
    number: int,
    symbols: Sequence[Symbol],
    version: Optional[Tuple[int, int]],
    text: Optional[str],
    types: TypeSet,
    source: str,
    pack: Optional[Pack] = None,
) -> Glibc:
    """`symbols`: main_arena and mp_."""
    (arena, partner), module = symbols, symbols[0].module
    alignment = default_alignment(target.word_bytes, target.machine, version)
    # builds with memory tagging have this variable since 2.34 (glibc.mem.tagging); tags matter only where the processor ignores them
    enabled = target.module_symbol(module, "mtag_enabled") if target.ignored_bits else None
    is_tagged = enabled is not None and target.read_prefix(enabled.address, 1) == b"\1"
    # a libc exports it, and a static executable has it among its other symbols
    curbrk = target.dynamic_symbol("__curbrk") or next(iter(target.find_static("__curbrk")), None)
    if curbrk is None and pack is not None and "__curbrk" in pack.symbols:
        curbrk = Symbol("__curbrk", module.base + pack.symbols["__curbrk"][0], module, "pack")
    return Glibc(
        id="glibc" if number == 0 else "glibc#%d" % (number + 1),
        module=module,
        version=version,
        version_text=text,
        main_arena=arena,
        mp=partner,
        geometry=make_geometry(target.word_bytes, alignment, target.page_bytes, target.little_endian, is_tagged),
        traits=layouts.find_release_traits(version or _version_by_fields(types)),
        types=types,
        layout_source=source,
        curbrk=curbrk,
        owns_malloc=None,
        pack=pack,
    )


def _by_structure(target: Target, place: "ArenaPlace", number: int, text: Optional[str]) -> Glibc:
    told = layouts.parse_version(text)
    named = place.of_release(target, told) if told is not None else None
    place = named or place
    by_lists = layouts.release_by_lists(place.rows[0], place.locals.safe_linking, place.locals.has_key)
    version = told if told is not None and named else by_lists
    symbols = [Symbol(name, at, place.module, "probe") for name, at in (("main_arena", place.main_arena), ("mp_", place.mp))]
    glibc = _make_glibc(target, number, symbols, version, text if named else None, place.types, "table")
    curbrk = Symbol("__curbrk", place.curbrk, place.module, "probe") if place.curbrk else None
    return glibc._replace(place=place, curbrk=glibc.curbrk or curbrk)


def _version_in_file(target: Target, module: Module) -> Optional[str]:
    """The release by the file's name, else by its banner, where its constants are here; None otherwise."""
    named = FILE.match(module.file_name)
    if named is not None:
        return named.group(1)
    for data in target.constant_data(module):
        banner = BANNER.search(data)
        if banner is not None:
            return banner.group(1).decode()
    return None


def _choose_layouts(
    target: Target, arena: Symbol, pack: Optional[Pack], version: Optional[Tuple[int, int]], shape: Shape
) -> Tuple[TypeSet, bool]:
    """(the structs, whether all come from the pack or debug information of this build). NoLayout where one is not known."""
    own = pack.types if pack is not None else None
    if arena.source == "debug-info":
        own = target.types(arena, STRUCTS, (), (), "")
    elif pack is None and layouts.is_newer(version, layouts.NEWEST_READ):  # tables are quicker, and do not know it
        near = target.function(arena.module, "malloc")
        own = target.types(near, STRUCTS, (), (), "") if near is not None else None
    types, all_own = TypeSet(), True
    for struct, members in NEEDED:
        is_own = take_struct(types, struct, members, own, version, shape)
        if is_own is None:
            release = "%d.%d" % version if version is not None else "of unknown version"
            raise NoLayout(
                arena.module,
                "the layout of struct %s in %s is unknown (glibc %s)" % (struct.name, arena.module.name, release),
                "install the debug symbols of this libc (build-id %s; Debian: libc6-dbg)" % (arena.module.build_id or "unknown"),
            )
        all_own = all_own and is_own
    par = types.structs[layouts.MALLOC_PAR.name].members
    if "tcache_bins" in par or "tcache_small_bins" in par:
        take_struct(types, layouts.TCACHE, ("entries",), own, version, shape)
    if own is not None:  # what these contain by value
        types.update(TypeSet({name: struct for name, struct in own.structs.items() if name not in STRUCTS}, own.enums))
    return types, all_own


def _version_text(target: Target, arena: Symbol) -> Optional[str]:
    """Return the version text of libc: its static `__libc_version` (version.c) or `nptl_version`, else that of any libc in the process.
    libc_malloc_debug.so is built with its libc and has no version string of its own.
    """
    for name in ("__libc_version", "nptl_version", "__nptl_version"):
        for symbol in sorted(target.find_static(name), key=lambda symbol: symbol.module != arena.module):
            text = target.text_at(symbol.address, 32)
            if layouts.parse_version(text):
                return text
    return None


def _probe_version(target: Target, arena: Symbol, partner: Symbol) -> Optional[Tuple[int, int]]:
    """Return a release whose layouts fit the bytes of this copy."""
    from gdbheapx.glibc.structure_search import fit_version

    local = target.thread_local("tcache", arena)
    places = [address for address in local.addresses.values() if address] if local is not None else []
    pointers = [int.from_bytes(target.read_prefix(address, target.word_bytes), target.byte_order) for address in places]
    version = fit_version(target, arena.address, partner.address, pointers)
    return (version[0], version[1]) if version is not None else None


def _version_by_fields(types: TypeSet) -> Tuple[int, int]:
    """The oldest release that has the fields found: enough for the traits where no version string can be read."""
    if types.place(layouts.MALLOC_STATE.name, "fastbinsY") is None:
        return (2, 43)
    if types.place(layouts.TCACHE.name, "num_slots") is not None:
        return (2, 42)
    if types.place(layouts.MALLOC_PAR.name, "thp_pagesize") is not None:
        return (2, 35)
    counts = types.place(layouts.TCACHE.name, "counts")
    if counts is not None and counts.size_bytes == 2:
        return (2, 31)
    return (2, 27) if types.place(layouts.MALLOC_STATE.name, "have_fastchunks") is not None else (2, 23)


def heap_max_bytes(target: Target, glibc: Glibc, arenas: Sequence[int]) -> int:
    """HEAP_MAX_SIZE of this process (arena.c: heap_max_size), proven on a thread arena where there is one.

    The first heap's malloc_state follows its heap_info directly, so arena & (size - 1) == sizeof(heap_info).
    """
    usual = 64 << 20 if glibc.geometry.word_bytes == 8 else 1 << 20
    candidates = [usual]
    if glibc.traits.heap_max_follows_hugepages:
        try:
            hugepage = glibc.read_mp(target).get("hp_pagesize") or 0
        except UnreadableMemory:
            hugepage = 0
        if hugepage >= glibc.geometry.page_bytes and not hugepage & (hugepage - 1):
            candidates.insert(0, 4 * hugepage)
    for size in candidates:
        if arenas and all(address & (size - 1) == glibc.heap_info.size_bytes for address in arenas):
            return size
    return candidates[0]


def find_build_contradiction(target: Target, types: TypeSet, arena: Symbol, mp: Symbol) -> Optional[str]:
    """Return why types and addresses must be those of another build, or None. Less strict than fit_version(): if the heap is damaged or its
    process runs, some bins do not hold.
    """
    try:
        state = read_view(target, types, layouts.MALLOC_STATE.name, arena.address)
        par = read_view(target, types, layouts.MALLOC_PAR.name, mp.address)
    except UnreadableMemory as problem:
        return problem.message
    is_one = state["mutex"] in (0, 1, 2) and not state["flags"] & ~7 and state["system_mem"] <= state["max_system_mem"]
    if not is_one or not state["next"]:  # of a program that never called malloc, `next` is all that is not 0
        return "there is no malloc_state at 0x%x" % arena.address
    from gdbheapx.glibc.structure_search import BINS, wrong_bins

    wrong = wrong_bins(target, state, BINS) if any(state.array("bins")) else int(state["top"] != 0)
    if wrong > MOST_WRONG_BINS or (wrong and not any(state.array("bins"))):
        return "%d bins of main_arena at 0x%x do not point back to it" % (wrong, arena.address)
    settings = [par.get(name) for name in ("trim_threshold", "mmap_threshold", "n_mmaps_max", "arena_test")]
    is_main_used = state["system_mem"] != 0 and not state["flags"] & 2
    if not any(settings) or par["n_mmaps"] < 0 or (par["n_mmaps"] == 0) != (par["mmapped_mem"] == 0):
        return "there is no malloc_par at 0x%x" % mp.address
    if is_main_used and not par["sbrk_base"] <= state["top"] <= par["sbrk_base"] + state["system_mem"]:
        return "main_arena at 0x%x and mp_ at 0x%x do not belong together" % (arena.address, mp.address)
    return None


def debug_hint(target: Target, module: Module) -> DebugHint:
    """Return how to get the debug information of a libc."""
    return target.debug_hint(module, PACKAGES if DISTRIBUTED.match(module.name) else ())
