"""Which of a jemalloc's locks are held: pthread mutexes, which have an owner."""

from typing import Dict, List, Sequence, Tuple

from gdbheapx.allocators.plan import Held
from gdbheapx.errors import Unreadable
from gdbheapx.inferior.base import TypeSet
from gdbheapx.jemalloc.context import Context
from gdbheapx.jemalloc.detection import calibrate
from gdbheapx.jemalloc.heap.arenas import Arena
from gdbheapx.layout.view import View

GLOBAL = (
    *("ctl_mtx", "arenas_lock", "init_lock", "tsd_nominal_tsds_lock", "background_thread_lock", "tcaches_mtx", "bt2gctx_mtx"),
    *("tdatas_mtx", "prof_dump_mtx", "extents_rtree", "arena_emap_global", "extent_mutex_pool", "b0"),
)
"""Variables that are locks or contain some."""
MUTEX = "malloc_mutex_s"
OWNER_END = 12
"""Where the owner of a pthread_mutex_t ends (libc: struct __pthread_mutex_s)."""
MAX_LOCKS = 4096
"""Of one struct: more than an arena's bins have."""


def held(context: Context, arenas: Sequence[Arena]) -> List[Held]:
    """Every malloc_mutex_s in the global variables, the arenas, their bins and bases that is held."""
    locks = [lock for name in GLOBAL for lock in _variable(context, name)]
    return locks + [lock for arena in arenas for lock in of_arena(context, arena)]


def of_arena(context: Context, arena: Arena) -> List[Held]:
    """Those of one arena, its bins and its base."""
    locks = _at(context, "arena_s", arena.address, "arena %d" % arena.index)
    try:
        view = arena.read()
    except Unreadable:
        return locks
    locks += _bins(context, arena, view)
    base = view.get("base")
    return locks + (_at(context, "base_s", base, "base of arena %d" % arena.index) if base else [])


def _variable(context: Context, name: str) -> List[Held]:
    symbol, known = context.symbols.find(name), context.types.variables.get(name)
    if symbol is None or known is not None and (known.kind == "pointer" or known.struct is None):
        return []
    if known is None or known.struct is None:
        return _at(context, MUTEX, symbol.address, name) if name.endswith(("_mtx", "_lock")) else []
    addresses = [symbol.address + at * known.size_bytes for at in range(min(max(1, known.count), MAX_LOCKS))]
    return [lock for address in addresses for lock in _at(context, known.struct, address, name)]


def _bins(context: Context, arena: Arena, view: View) -> List[Held]:
    """The locks of its bins, all shards."""
    struct = calibrate.bin_struct(context.types)
    try:
        addresses = calibrate.bin_addresses(context.target, context.symbols, context.types, context.geometry.bins, view)
    except Unreadable:
        return [Held("arena %d: its bins, which cannot be read" % arena.index, None)]
    labelled = [("arena %d: bin %d" % (arena.index, szind), address) for szind, shards in enumerate(addresses) for address in shards]
    return [lock for label, address in labelled for lock in _at(context, struct, address, label)]


def _at(context: Context, struct: str, address: int, label: str) -> List[Held]:
    """The held locks in one struct. What cannot be read counts as held: nobody knows."""
    places = mutexes(context.types, struct) if struct in context.types.structs else []
    if not places:
        return []
    first, last = min(places)[0], max(places)[0] + OWNER_END
    try:  # from lock to lock: a radix tree is megabytes, most of them never touched, with one lock
        data = context.target.read(address + first, last - first)
    except Unreadable:
        return [Held("%s, which cannot be read" % label, None)]
    locks, order = [], context.target.byte_order
    for offset, path in places:
        state, owner = (int.from_bytes(data[offset - first + at : offset - first + at + 4], order) for at in (0, 8))
        if state:
            locks.append(Held("%s: %s" % (label, path) if path else label, owner or None))
    return locks


def mutexes(types: TypeSet, struct: str) -> List[Tuple[int, str]]:
    """(offset of its pthread_mutex_t, path) of every lock that `struct` contains by value."""
    lock = types.place(MUTEX, "lock")
    if lock is None:
        return []
    return [(offset + lock.offset, path) for offset, path in _visit(types, struct, {})[:MAX_LOCKS]]


def _visit(types: TypeSet, struct: str, seen: Dict[str, List[Tuple[int, str]]]) -> List[Tuple[int, str]]:
    """(offset, path) of each MUTEX below; a struct is visited once, whatever arrays of it there are."""
    if struct == MUTEX:
        return [(0, "")]
    if struct not in seen:
        seen[struct] = []
        places: List[Tuple[int, str]] = []
        for name, member in types.structs[struct].members.items():
            inner = _visit(types, member.struct, seen) if member.struct is not None and member.struct in types.structs else []
            for at in range(min(member.count, MAX_LOCKS) if inner else 0):
                step = "%s[%d]" % (name, at) if member.count > 1 else name
                places += [(member.offset + at * member.size_bytes + offset, step + "." + path if path else step) for offset, path in inner]
        seen[struct] = places
    return seen[struct]
