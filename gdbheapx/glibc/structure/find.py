"""Copies of glibc's malloc by structure: main_arena, its mp_, their layout, and each thread's variables, each with its proof."""

from typing import Dict, List, NamedTuple, Optional, Sequence, Set

from gdbheapx.errors import Unreadable
from gdbheapx.glibc import layouts
from gdbheapx.glibc.structure import arena as arenas
from gdbheapx.glibc.structure import par, threads
from gdbheapx.glibc.structure.arena import Area
from gdbheapx.glibc.structure.threads import ThreadLocalOffsets
from gdbheapx.inferior.base import Module, Target, TypeSet
from gdbheapx.layout.view import Version, read_view

WITHOUT_CACHES = "libc_malloc_debug"
"""It is built without thread caches (malloc-debug.c: USE_TCACHE 0)."""


class ArenaPlace(NamedTuple):
    """One copy, and what proves it."""

    module: Module
    main_arena: int
    mp: int
    row: Version
    """A release with its layouts."""
    types: TypeSet
    locals: ThreadLocalOffsets
    bins: int
    """Of 127, how many lead back; 0: malloc was never used."""
    arenas: int
    """In the ring."""
    is_closed: bool
    """The ring comes back."""
    score: int
    rows: Sequence[Version]
    """All whose layouts fit: more than one where no thread has a cache."""
    curbrk: Optional[int] = None
    """`__curbrk`."""

    @property
    def releases(self) -> str:
        """Those that have these layouts."""
        return layouts.releases_of(self.rows)

    def of_release(self, target: Target, version: Version) -> Optional["ArenaPlace"]:
        """With the layouts of a release that is known from elsewhere; None if they do not fit."""
        row = layouts.row_of(version)
        if row not in self.rows:
            return None
        own = arenas.types_of(target, row).structs
        return self._replace(row=row, types=TypeSet({name: own[name] for name in self.types.structs}), rows=(row,))


def find_arena_places(target: Target, known: Set[int]) -> List[ArenaPlace]:
    """Every copy in an object that is not among `known` (bases of those of which symbols or a pack tell). Of those equally good all."""
    for modules in arenas.list_searched_areas(target, known):
        copies = _in_areas(target, list(arenas.of_modules(target, modules)))
        if copies:
            return copies
    for of_files in () if known else (True, False):
        copies = _in_areas(target, list(arenas.of_mappings(target, target.modules(), of_files)))
        if copies:
            return copies
    return []


def _in_areas(target: Target, searched: Sequence[Area]) -> List[ArenaPlace]:
    """The copies whose arena and mp_ are both there: the used ones, else those never used."""
    by_arena: Dict[int, List[par.Par]] = {}
    for candidate in arenas.find_candidates(target, searched, arenas.candidate_rows(target)):
        fitting = par.find_par(target, candidate, searched)
        if fitting is not None and (fitting.has_caches or not _wants_caches(fitting)):
            by_arena.setdefault(candidate.address, []).append(fitting)
    by_bins = {fit.arena.state.address_of("bins"): fit.arena.is_closed for pars in by_arena.values() for fit in pars if fit.arena.is_closed}
    for address in [at for at, pars in by_arena.items() if not pars[0].arena.is_closed]:
        if by_arena[address][0].arena.state.address_of("bins") in by_bins:
            del by_arena[address]
    best = [max(pars, key=lambda fit: (fit.score, fit.has_caches, fit.arena.row.version)) for pars in by_arena.values()]
    return [_settled(target, fit)._replace(curbrk=par.find_break(target, fit, searched)) for fit in best]


def _wants_caches(fit: par.Par) -> bool:
    """Its layout has thread caches, and its object is built with them."""
    is_without = fit.arena.module.file_name.startswith(WITHOUT_CACHES)
    return "tcache_max_bytes" in fit.arena.row.types.structs[layouts.MALLOC_PAR.name].members and not is_without


def _settled(target: Target, fit: par.Par) -> ArenaPlace:
    """With the variables of each thread, whose caches tell releases apart that have the same malloc_state and malloc_par."""
    own = fit.arena.row
    same = [layout for layout in arenas.candidate_rows(target) if _places(layout) == _places(own)]  # whatever fields are called
    arena = fit.arena
    has_caches = _wants_caches(fit) and (arena.is_used or len(arena.ring) > 1)  # none before the first malloc
    structs = {layout.types.size_bytes(layouts.TCACHE.name): layout for layout in reversed(same)} if has_caches else {}
    places = threads.find_thread_locals(target, arena.ring, [layout.types.structs[layouts.TCACHE.name] for layout in structs.values()])
    row = structs.get(places.tcache_bytes or 0)
    rows = [layout.version for layout in same] if row is None else [row.version]
    types = TypeSet(dict((row or own).types.structs))
    if not has_caches:
        del types.structs[layouts.TCACHE.name]
    return ArenaPlace(
        module=arena.module,
        main_arena=arena.address,
        mp=fit.address,
        row=(row or own).version,
        types=types,
        locals=places,
        bins=arena.good_bins,
        arenas=len(arena.ring),
        is_closed=arena.is_closed,
        score=fit.score,
        rows=rows,
    )


def locals_of(target: Target, main_arena: int, types: TypeSet) -> Optional[ThreadLocalOffsets]:
    """The variables of each thread beside its thread pointer, for a copy whose arenas and layouts are known from elsewhere; None where it
    was never used, so that no thread has any."""
    ring, is_closed = arenas.ring_of(target, arenas.ArenaLayout(layouts.NEWEST_KNOWN, types), main_arena)
    try:
        is_used = bool(read_view(target, types, layouts.MALLOC_STATE.name, main_arena)["system_mem"])
    except Unreadable:
        return threads.NOTHING
    if not is_used and is_closed and len(ring) == 1:
        return None
    cache = types.structs.get(layouts.TCACHE.name)
    return threads.find_thread_locals(target, ring, [cache] if cache is not None else [])


def _places(row: arenas.ArenaLayout) -> List[List[int]]:
    """Where the members of both structs lie, and how long each is."""
    both = [row.types.structs[name] for name in (layouts.MALLOC_STATE.name, layouts.MALLOC_PAR.name)]
    return [[*(member.offset for member in struct.members.values()), struct.size_bytes] for struct in both]
