"""Which copies of glibc malloc are in the target, and where: main_arena, mp_, the thread caches, layouts and constants."""

from typing import List, NamedTuple, Optional, Sequence, Tuple

from gdbheapx.errors import HeapxError, Unreadable
from gdbheapx.glibc import layouts
from gdbheapx.glibc.geometry import default_alignment, make_geometry
from gdbheapx.kernel.api import Geometry
from gdbheapx.layout.resolve import Needed, take
from gdbheapx.layout.struct import Shape
from gdbheapx.layout.view import View, read_view
from gdbheapx.model import AllocatorInfo
from gdbheapx.target.base import Module, Symbol, Target
from gdbheapx.target.types import StructType, TypeSet

NEEDED = (
    Needed(layouts.MALLOC_STATE, ("mutex", "flags", "top", "bins", "next", "system_mem", "max_system_mem")),
    Needed(layouts.MALLOC_PAR, ("n_mmaps", "mmapped_mem", "sbrk_base")),
    Needed(layouts.HEAP_INFO, ("ar_ptr", "prev", "size", "mprotect_size")),
)
CACHE = Needed(layouts.TCACHE, ("entries",))
STRUCTS = tuple(one.struct.name for one in (*NEEDED, CACHE))
"""By their tags."""


class Glibc(NamedTuple):
    """One copy of glibc malloc in the target and all that is constant about it."""

    id: str
    module: Module
    version: Optional[Tuple[int, int]]
    version_text: Optional[str]
    main_arena: Symbol
    mp: Symbol
    geometry: Geometry
    traits: layouts.Traits
    types: TypeSet
    """The structs of layouts.py, by their tags; tcache_perthread_struct is left out if this build has no thread cache."""
    layout_source: str
    curbrk: Optional[Symbol]
    """`__curbrk`, the break as libc knows it."""
    owns_malloc: Optional[bool]
    is_provisional: bool = False
    """Its release was guessed from a process that ran: to be told again when that stands still."""

    @property
    def malloc_state(self) -> StructType:
        """struct malloc_state: an arena."""
        return self.types.structs[layouts.MALLOC_STATE.name]

    @property
    def malloc_par(self) -> StructType:
        """struct malloc_par: mp_."""
        return self.types.structs[layouts.MALLOC_PAR.name]

    @property
    def heap_info(self) -> StructType:
        """struct _heap_info: the head of a thread arena's heap."""
        return self.types.structs[layouts.HEAP_INFO.name]

    @property
    def tcache(self) -> Optional[StructType]:
        """struct tcache_perthread_struct; None if this build has no thread cache."""
        return self.types.structs.get(layouts.TCACHE.name)

    @property
    def unlisted(self) -> Optional[str]:
        """What to mind about a release newer than any that was tried; None for a listed one."""
        if self.version is None or self.version <= layouts.NEWEST_KNOWN:
            return None
        newest = "%d.%d" % layouts.NEWEST_KNOWN
        return "glibc %s is newer than %s, the newest tested: where debug information is missing, gdbheapx assumes that nothing has changed" % (self.version_text, newest)

    def info(self) -> AllocatorInfo:
        """The entry of the envelope."""
        name = self.module.name.rsplit("/", 1)[-1]
        return AllocatorInfo(
            self.id, "glibc", self.version_text, name, self.module.build_id, self.layout_source, self.main_arena.source, self.owns_malloc
        )

    def break_address(self, target: Target) -> Optional[int]:
        """The program break as libc knows it (`__curbrk`); None if it is not known."""
        try:
            return target.read_word(self.curbrk.address) if self.curbrk is not None else None
        except Unreadable:
            return None

    def read_mp(self, target: Target) -> View:
        """`mp_` as it is now. Unreadable if it cannot be read."""
        return read_view(target, self.types, layouts.MALLOC_PAR.name, self.mp.address)


def find(target: Target) -> List[Glibc]:
    """Every copy of glibc malloc whose main_arena and mp_ are known to a symbol table, in the dynamic linker's order.

    Raises HeapxError where a copy was found but its layout could not be told.
    """
    partners = target.find_static("mp_")
    found: List[Glibc] = []
    for arena in target.find_static("main_arena"):
        partner = next((symbol for symbol in partners if symbol.module == arena.module), None)
        if partner is not None:
            found.append(_describe(target, arena, partner, len(found)))
    return _with_owner(target, found)


def _with_owner(target: Target, found: Sequence[Glibc]) -> List[Glibc]:
    """Says of each copy whether the process's malloc calls go to it.

    libc_malloc_debug.so defines malloc but hands the calls on to libc unless a check is switched on (malloc-debug.c): where it is
    the one called and its own arena was never used, the owner is the libc.
    """
    owner = target.dynamic_symbol("malloc")
    if owner is None:
        alone = len(found) == 1 and found[0].module.is_executable
        return [glibc._replace(owns_malloc=True if alone else None) for glibc in found]
    chosen = next((glibc for glibc in found if glibc.module == owner.module), None)
    if chosen is not None and len(found) > 1 and not _is_used(target, chosen):
        chosen = next((glibc for glibc in found if glibc is not chosen and _is_used(target, glibc)), chosen)
    return [glibc._replace(owns_malloc=glibc is chosen) for glibc in found]


def _is_used(target: Target, glibc: Glibc) -> bool:
    """Its main arena has memory."""
    field = glibc.malloc_state.members["system_mem"]
    try:
        return target.read_word(glibc.main_arena.address + field.offset) != 0
    except Unreadable:
        return True


def _describe(target: Target, arena: Symbol, partner: Symbol, number: int) -> Glibc:
    text = _version_text(target, arena)
    version = layouts.parse_version(text)
    probed = certain = False
    if version is None and arena.source == "symbol":
        version, certain = _probe_version(target, arena, partner)
        probed = version is not None
    alignment = default_alignment(target.word_bytes, target.machine, version)
    shape = Shape(target.word_bytes, alignment)
    own = target.types(arena, STRUCTS, (), (), "", thorough=False) if arena.source == "debug-info" else None
    types, sources = TypeSet(), set()
    for needed in NEEDED:
        is_own = take(types, needed, own, version, shape)
        if is_own is None:
            raise HeapxError(
                "the layout of struct %s in %s is unknown (glibc %s)" % (needed.struct.name, arena.module.name, text or "of unknown version"),
                "install the debug symbols of this libc (build-id %s; Debian: libc6-dbg)" % (arena.module.build_id or "unknown"),
            )
        sources.add("debug-info" if is_own else "table")
    par = types.structs[layouts.MALLOC_PAR.name].members
    if "tcache_bins" in par or "tcache_small_bins" in par:
        take(types, CACHE, own, version, shape)
    curbrk = target.dynamic_symbol("__curbrk") or next(iter(target.find_static("__curbrk")), None)
    return Glibc(
        id="glibc" if number == 0 else "glibc#%d" % (number + 1),
        module=arena.module,
        version=version,
        version_text=text,
        main_arena=arena,
        mp=partner,
        geometry=make_geometry(target.word_bytes, alignment, target.page_bytes, target.little_endian),
        traits=layouts.traits(version or _version_by_fields(types)),
        types=types,
        layout_source="debug-info" if sources == {"debug-info"} else "probe" if probed else "table",
        curbrk=curbrk,
        owns_malloc=None,
        is_provisional=probed and not certain,
    )


def _version_text(target: Target, arena: Symbol) -> Optional[str]:
    """What the libc calls itself: its own static `__libc_version` (version.c) or `nptl_version`, else that of any libc in the process.

    libc_malloc_debug.so is built with its libc and has no version string of its own.
    """
    for name in ("__libc_version", "nptl_version", "__nptl_version"):
        known = target.find_static(name)
        ordered = [symbol for symbol in known if symbol.module == arena.module] + [symbol for symbol in known if symbol.module != arena.module]
        for symbol in ordered:
            text = target.text_at(symbol.address, 32)
            if layouts.parse_version(text):
                return text
    return None


def _probe_version(target: Target, arena: Symbol, partner: Symbol) -> Tuple[Optional[Tuple[int, int]], bool]:
    """A release whose layouts fit the bytes of this copy, and whether thread caches were held against them: a running process shows none of them."""
    from gdbheapx.glibc.calibrate import fitting_version

    alignment = default_alignment(target.word_bytes, target.machine, None)
    local = target.thread_local("tcache", arena)
    pointers: List[int] = []
    for address in local.addresses.values() if local is not None else ():
        data = target.read_prefix(address, target.word_bytes) if address else b""
        pointers.append(int.from_bytes(data, "little" if target.little_endian else "big"))
    return fitting_version(target, arena, partner, Shape(target.word_bytes, alignment), pointers), target.kind != "live" or local is not None


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
        except Unreadable:
            hugepage = 0
        if hugepage >= glibc.geometry.page_bytes and not hugepage & (hugepage - 1):
            candidates.insert(0, 4 * hugepage)
    for size in candidates:
        if arenas and all(address & (size - 1) == glibc.heap_info.size_bytes for address in arenas):
            return size
    return candidates[0]
