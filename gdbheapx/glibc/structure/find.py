"""Copies of glibc's malloc by structure: main_arena, its mp_, their layout, and each thread's variables, each with its proof."""

from typing import Dict, List, NamedTuple, Optional, Sequence, Set

from gdbheapx.errors import Unreadable
from gdbheapx.glibc import layouts
from gdbheapx.glibc.structure import areas, par, threads
from gdbheapx.glibc.structure import arena as arenas
from gdbheapx.glibc.structure.areas import Area, file_name
from gdbheapx.glibc.structure.threads import NOTHING, Locals
from gdbheapx.inferior.base import Module, Target
from gdbheapx.inferior.types import TypeSet
from gdbheapx.layout.struct import Version
from gdbheapx.layout.view import read_view

WITHOUT_CACHES = "libc_malloc_debug"
"""It is built without thread caches (malloc-debug.c: USE_TCACHE 0)."""


class Place(NamedTuple):
    """One copy, and what proves it."""

    module: Module
    main_arena: int
    mp: int
    row: Version
    """A release with its layouts."""
    types: TypeSet
    locals: Locals
    bins: int
    """Of 127, how many lead back; 0: malloc was never used."""
    arenas: int
    """In the ring, which comes back."""
    score: int

    @property
    def releases(self) -> str:
        """Those that have these layouts."""
        return layouts.releases_of(self.row)


def find(target: Target, known: Set[int]) -> List[Place]:
    """Every copy in an object that is not among `known` (bases of those of which symbols or a pack tell). Of those equally good all."""
    for modules in areas.searched(target, known):
        found = _in_areas(target, list(areas.of_modules(target, modules)))
        if found:
            return found
    return [] if known else _in_areas(target, list(areas.of_mappings(target, target.modules())))


def _in_areas(target: Target, searched: Sequence[Area]) -> List[Place]:
    """The copies whose arena and mp_ are both there: the used ones, else those never used."""
    by_arena: Dict[int, List[par.Par]] = {}
    for candidate in arenas.find(target, searched, arenas.rows(target)):
        found = par.find(target, candidate, searched)
        if found is not None and (found.has_caches or not _wants_caches(found)):
            by_arena.setdefault(candidate.address, []).append(found)
    return [_settled(target, max(every, key=lambda one: (one.score, one.has_caches, one.arena.row.version))) for every in by_arena.values()]


def _wants_caches(found: par.Par) -> bool:
    """Its layout has thread caches, and its object is built with them."""
    is_without = file_name(found.arena.module).startswith(WITHOUT_CACHES)
    return "tcache_max_bytes" in found.arena.row.types.structs[layouts.MALLOC_PAR.name].members and not is_without


def _settled(target: Target, found: par.Par) -> Place:
    """With the variables of each thread, whose caches tell releases apart that have the same malloc_state and malloc_par."""
    own = found.arena.row
    same = [one for one in arenas.rows(target) if _has_same(one, own)] if _wants_caches(found) else []
    structs = {one.types.size_bytes(layouts.TCACHE.name): one for one in reversed(same)}
    places = threads.find(target, found.arena.ring, [one.types.structs[layouts.TCACHE.name] for one in structs.values()])
    row = structs.get(places.tcache_bytes or 0, own)
    types = TypeSet(dict(row.types.structs))
    if not _wants_caches(found):
        del types.structs[layouts.TCACHE.name]
    arena = found.arena
    return Place(arena.module, arena.address, found.address, row.version, types, places, arena.good_bins, len(arena.ring), found.score)


def _has_same(one: arenas.Row, other: arenas.Row) -> bool:
    """Both structs lie alike, whatever their fields are called."""
    pairs = [(row.types.structs[name] for row in (one, other)) for name in (layouts.MALLOC_STATE.name, layouts.MALLOC_PAR.name)]
    return all(
        first.size_bytes == second.size_bytes and [place.offset for place in first.members.values()] == [place.offset for place in second.members.values()]
        for first, second in pairs
    )


def confirm(target: Target, place: Place) -> Optional[Place]:
    """The same proof once more, where the process stands still, and what only then can be told: the variables of its threads. None: it does
    not hold any more, so that it must be searched anew."""
    for row in arenas.rows(target):
        if row.version == place.row:
            try:
                state = read_view(target, row.types, layouts.MALLOC_STATE.name, place.main_arena)
                view = read_view(target, row.types, layouts.MALLOC_PAR.name, place.mp)
            except Unreadable:
                return None
            good = arenas.BINS - arenas.wrong_bins(target, state) if any(state.array("bins")) else 0
            ring = arenas.ring_of(target, row, place.main_arena)
            score = par.rate(view, target, par.heap_start(target, state))
            if not ring or good < min(place.bins, arenas.BINS - arenas.MOST_WRONG) or score < par.LEAST_SCORE or not arenas.is_sane(state, target.page_bytes):
                return None
            candidate = arenas.Candidate(place.module, place.main_arena, row, state, ring, good)
            return _settled(target, par.Par(candidate, place.mp, score, par.has_caches(view)))
    return None


def is_told_by_threads(target: Target) -> bool:
    """Registers can be read: it stands still, or is a core."""
    return any(one.thread_pointer for one in target.threads())


__all__ = ["NOTHING", "Place", "confirm", "find", "is_told_by_threads"]
