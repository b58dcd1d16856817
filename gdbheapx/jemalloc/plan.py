"""Plan a purge or the cure of blind threads: code, locks, extent hooks, the prediction."""

from typing import Any, Callable, Dict, Iterable, List, Mapping, Optional, Sequence, Tuple

from gdbheapx.allocators.plan import (
    FUTEX,
    Change,
    CurePlan,
    DryRun,
    Held,
    Plan,
    Portion,
    Predicted,
    Span,
    Suspect,
    SystemCall,
    Troubles,
    in_time,
    whole_code,
)
from gdbheapx.allocators.records import HeapContext
from gdbheapx.common.columns import BYTES, TEXT, Column, ColumnsTable, add_values
from gdbheapx.common.errors import HeapxError, Refusal, UnreadableMemory
from gdbheapx.common.hints import hint_command
from gdbheapx.common.model import AllocatorInfo
from gdbheapx.common.problems import NOT_FOUND, PartialSink
from gdbheapx.inferior.base import Function, StoppedThread, TypeSet
from gdbheapx.jemalloc.arenas import ArenaHandle, JemallocContext
from gdbheapx.jemalloc.decay import BLIND, UNKNOWN
from gdbheapx.jemalloc.help import PURGE
from gdbheapx.jemalloc.layouts import has_ticker_bug
from gdbheapx.jemalloc.records import JemallocArena, TickerReport
from gdbheapx.jemalloc.symbols import Jemalloc
from gdbheapx.jemalloc.text import TickersAnswer
from gdbheapx.jemalloc.traces import BACKGROUND_NAME
from gdbheapx.jemalloc.verdict import huge_dirty_hint

PUBLIC_FUNCTIONS = frozenset(
    (
        *("malloc", "free", "calloc", "realloc", "memalign", "valloc", "pvalloc", "aligned_alloc", "posix_memalign"),
        *("malloc_usable_size", "free_sized", "free_aligned_sized", "mallctl", "mallctlnametomib", "mallctlbymib", "malloc_stats_print"),
        *("mallocx", "rallocx", "xallocx", "sallocx", "dallocx", "sdallocx", "nallocx", "smallocx", "__libc_malloc", "__libc_free"),
        *("__libc_calloc", "__libc_realloc", "__libc_memalign", "__libc_valloc", "__libc_pvalloc", "__posix_memalign"),
    )
)
"""Functions with the public prefix (jemalloc.h, jemalloc.c)."""
OPERATORS = ("_Znw", "_Zna", "_Zdl", "_Zda")
"""C++'s new and delete (jemalloc_cpp.cpp), in every form."""
MARGIN_BYTES = 0x400
"""Before and after jemalloc's own functions, where its static ones may begin or go on."""
GAP_BYTES = 256 << 10
"""Functions of a linked-in jemalloc that lie closer than this enclose others of it: the static ones of ctl.c alone take 200 KiB."""


def is_jemalloc_library(exported: Iterable[str], prefix: str, public: str) -> bool:
    """An object that is nothing but a jemalloc, whatever its file is called: every function that it offers to others is jemalloc's."""
    names, starts = set(exported), (*OPERATORS, *([prefix] if prefix else []))
    others = (name for name in names if not name.startswith(starts) and name not in ("_init", "_fini"))
    return public + "mallctl" in names and all(_is_public(name, public) for name in others)


def _is_public(name: str, public: str) -> bool:
    return name.startswith(public) and name[len(public) :] in PUBLIC_FUNCTIONS


def enclose_functions(functions: Sequence[Function], prefix: str, public: Optional[str]) -> List[Span]:
    """Return the spans that functions with one of jemalloc's names enclose; `functions` by address.

    Between two of them lie static ones, which have no prefix. A function that others may call and that has none is not jemalloc's, nor is
    one with a name that a C++ or Rust compiler made: no span reaches over it.
    """
    spans: List[Span] = []
    barrier, before = 0, 0
    """End of the last function that is not jemalloc's; of those before the span at hand."""
    for function in functions:
        name = function.name.split(".")[0]
        last, is_open = (spans[-1], barrier <= spans[-1].end) if spans else (None, False)
        if name.startswith(prefix) or public is not None and _is_public(name, public):
            if last is not None and is_open and function.start - last.end < GAP_BYTES:
                spans[-1] = last._replace(end=max(function.end, last.end))
            else:
                before = barrier
                spans.append(Span(max(function.start - MARGIN_BYTES, before), function.end, "jemalloc"))
        elif not function.local or name.startswith(("_Z", "_R")):
            if last is not None and is_open:
                spans[-1] = last._replace(end=max(last.end, min(function.start, last.end + MARGIN_BYTES)))
            barrier = max(barrier, function.end)
    if spans and barrier <= spans[-1].end:
        spans[-1] = spans[-1]._replace(end=spans[-1].end + MARGIN_BYTES)
    return spans


GLOBAL_LOCKS = (
    *("ctl_mtx", "arenas_lock", "init_lock", "tsd_nominal_tsds_lock", "background_thread_lock", "tcaches_mtx", "bt2gctx_mtx"),
    *("tdatas_mtx", "prof_dump_mtx", "extents_rtree", "arena_emap_global", "extent_mutex_pool", "b0"),
)
"""Variables that are locks or contain some."""
MUTEX_STRUCT = "malloc_mutex_s"
OWNER_END = 12
"""Where the owner of a pthread_mutex_t ends (libc: struct __pthread_mutex_s)."""
MAX_LOCKS = 4096
"""Of one struct: more than an arena's bins have."""


def find_arena_locks(context: JemallocContext, arena: ArenaHandle) -> List[Held]:
    """Find the held locks of one arena, its bins and its base."""
    locks = _read_locks(context, "arena_s", arena.address, "arena %d" % arena.index)
    try:
        view = arena.read()
    except UnreadableMemory:
        return locks
    struct = context.jemalloc.bin_struct
    try:
        addresses = context.jemalloc.find_bin_addresses(view)
    except UnreadableMemory:
        addresses = []
        locks.append(Held("arena %d: its bins, which cannot be read" % arena.index, None))
    for szind, shards in enumerate(addresses):
        for address in shards:
            locks += _read_locks(context, struct, address, "arena %d: bin %d" % (arena.index, szind))
    base = view.get("base")
    return locks + (_read_locks(context, "base_s", base, "base of arena %d" % arena.index) if base else [])


def _find_variable_locks(context: JemallocContext, name: str) -> List[Held]:
    symbol, known = context.symbols.find(name), context.types.variables.get(name)
    if symbol is None or known is not None and (known.kind == "pointer" or known.struct is None):
        return []
    if known is None or known.struct is None:
        return _read_locks(context, MUTEX_STRUCT, symbol.address, name) if name.endswith(("_mtx", "_lock")) else []
    addresses = [symbol.address + at * known.size_bytes for at in range(min(max(1, known.count), MAX_LOCKS))]
    return [lock for address in addresses for lock in _read_locks(context, known.struct, address, name)]


def _read_locks(context: JemallocContext, struct: str, address: int, label: str) -> List[Held]:
    places = find_mutexes(context.types, struct) if struct in context.types.structs else []
    if not places:
        return []
    first, last = min(places)[0], max(places)[0] + OWNER_END
    try:  # from lock to lock: a radix tree is megabytes, most of them never touched, with one lock
        data = context.target.read(address + first, last - first)
    except UnreadableMemory:
        return [Held("%s, which cannot be read" % label, None)]
    locks, order = [], context.target.byte_order
    for offset, path in places:
        state, owner = (int.from_bytes(data[offset - first + at : offset - first + at + 4], order) for at in (0, 8))
        if state:
            locks.append(Held("%s: %s" % (label, path) if path else label, owner or None))
    return locks


def find_mutexes(types: TypeSet, struct: str) -> List[Tuple[int, str]]:
    """(offset of its pthread_mutex_t, path) of every lock that `struct` contains by value."""
    lock = types.place(MUTEX_STRUCT, "lock")
    if lock is None:
        return []
    return [(offset + lock.offset, path) for offset, path in _visit_struct(types, struct, {})[:MAX_LOCKS]]


def _visit_struct(types: TypeSet, struct: str, seen: Dict[str, List[Tuple[int, str]]]) -> List[Tuple[int, str]]:
    """(offset, path) of each MUTEX below; a struct is visited once, whatever arrays of it there are."""
    if struct == MUTEX_STRUCT:
        return [(0, "")]
    if struct not in seen:
        seen[struct] = []
        places: List[Tuple[int, str]] = []
        for name, member in types.structs[struct].members.items():
            inner = _visit_struct(types, member.struct, seen) if member.struct is not None and member.struct in types.structs else []
            for at in range(min(member.count, MAX_LOCKS) if inner else 0):
                step = "%s[%d]" % (name, at) if member.count > 1 else name
                places += [(member.offset + at * member.size_bytes + offset, step + "." + path if path else step) for offset, path in inner]
        seen[struct] = places
    return seen[struct]


PREDICTED_KEYS = (
    *("allocator", "index", "huge_dirty_bytes", "dirty_bytes", "muzzy_bytes"),
    *("reclaimable_bytes", "reclaimable_resident_bytes", "reclaimable_exclusive_bytes"),
)
_COLUMNS = (
    Column("arena", TEXT, field="index"),
    Column("dirty", BYTES, field="dirty_bytes"),
    Column("muzzy", BYTES, field="muzzy_bytes"),
    Column("resident", BYTES, field="reclaimable_resident_bytes"),
)
DEFAULT_HOOKS = ("ehooks_default_extent_hooks", "extent_hooks_default")
"""jemalloc's own: from 5.3.0 in ehooks.c, before in extent.c."""
ARENAS_ALL = 4096
"""MALLCTL_ARENAS_ALL (jemalloc_macros.h.in), the same in every release of 5."""
WAIT_CALLS = ("futex", "restart_syscall")
"""What a background thread sleeps in between two rounds."""
BYPASS = "arenas_tdata_bypass"

DONTNEED, FREE, OTHER_ADVICE = 4, 8, (14, 15, 16, 17)
"""MADV_...: HUGEPAGE, NOHUGEPAGE, DONTDUMP and DODUMP only tune."""
SYSTEM_CALLS = (
    *(SystemCall("madvise", (None, None, advice)) for advice in (DONTNEED, FREE)),
    *(SystemCall("madvise", (None, None, advice), may_fail=True) for advice in OTHER_ADVICE),
    SystemCall("munmap"),
    *(SystemCall(name, may_fail=True) for name in ("mmap", "mprotect", "sched_yield")),
    SystemCall("clock_gettime"),
    *FUTEX,
)
"""What pages.c, mutex.c, nstime.c and spin.h may make for a purge: extents are merged, their records come from new pages; the time comes
from the kernel only where the vDSO has none."""

OpenHeap = Callable[[PartialSink], Any]
"""Gives a JemallocMalloc that has read nothing yet: the process ran meanwhile."""


def predict_jemalloc_purge(
    rows: Sequence[JemallocArena], arena: Optional[int], page_bytes: int, is_live: bool, dirty_mult: Optional[int] = None
) -> DryRun:
    """Predict what a purge of one arena, or of all, would give back; HeapxError if there is no such arena. `dirty_mult`:
    opt.hpa_dirty_mult."""
    purged = [row for row in rows if arena in (None, row.index)]
    if not purged:
        raise HeapxError("arena %s not found" % arena, "see " + hint_command("arenas"), code=NOT_FOUND)
    shown = [row for row in purged if row.reclaimable_bytes or row.reclaimable_bytes is None]
    table = ColumnsTable(_COLUMNS, shown) if shown else None
    made = DryRun(
        PURGE, sum_unused(purged, page_bytes), [{key: getattr(row, key) for key in PREDICTED_KEYS} for row in purged], table, is_live
    )
    huge = sum(row.huge_dirty_bytes or 0 for row in purged)
    return made._replace(unreached=huge_dirty_hint(huge, dirty_mult) if huge else None)


def sum_unused(rows: Sequence[JemallocArena], page_bytes: int) -> Predicted:
    """The unused pages of these arenas, dirty and muzzy ones, which a purge gives back."""
    dirty, muzzy, size, resident, exclusive = (add_values(getattr(row, name) for row in rows) for name in PREDICTED_KEYS[3:])
    dirty_pages, muzzy_pages = (None if part is None else part // page_bytes for part in (dirty, muzzy))
    return Predicted(size, resident, exclusive, {"dirty_pages": dirty_pages, "muzzy_pages": muzzy_pages})


def check_extent_hooks(context: JemallocContext, arenas: Sequence[ArenaHandle], only: Optional[int]) -> None:
    """Refuse unless all of these arenas, or the only one that is meant, have jemalloc's own hooks: a purge calls them, and the side
    effects and
    locks of others are unknown. Unknown ones are not believed to be its own."""
    own = [symbol.address for symbol in map(context.symbols.find, DEFAULT_HOOKS) if symbol is not None]
    for arena in arenas:
        if only not in (None, arena.index):
            continue
        base = arena.read().get("base")
        hooks = context.view("base_s", base).get("ehooks.ptr", "extent_hooks") if base else None
        if not own or not hooks:
            raise Refusal("cannot determine whether arena %d uses custom extent hooks" % arena.index, "see " + hint_command("doctor"))
        if hooks not in own:
            what = "arena %d uses custom extent hooks; their side effects are unknown" % arena.index
            raise Refusal(what, "purge another arena with --arena I")


class JemallocChange(Change):
    """A change of one jemalloc whose code and locks are known."""

    system_calls = SYSTEM_CALLS
    jemalloc: Jemalloc

    def of(self, jemalloc: Jemalloc) -> None:
        """Refusal if its global locks cannot be seen: a call could wait for ever for one that a stopped thread holds."""
        self.jemalloc, self.module = jemalloc, jemalloc.module
        if jemalloc.symbols.by_structure:
            raise Refusal(
                "jemalloc in %s was found by its structure alone, which does not show its global locks" % jemalloc.module.name,
                "give its debug file (--debug-dir DIR); where there is none, as for most wheels, "
                "only the program itself can purge, and jemalloc does so over time by its decay",
            )

    def spans(self) -> List[Span]:
        target, module, prefix, names = self.target, self.module, self.jemalloc.symbols.prefix, self.jemalloc.symbols.public_names
        if not module.is_executable and is_jemalloc_library(target.exported_functions(module), prefix, names.prefix or ""):
            spans = whole_code(target, module, "jemalloc")
        else:  # where it is linked into another object, what its own functions enclose
            spans = enclose_functions(target.functions(module), prefix, names.prefix) if prefix else []
        call = names.call('"arena.%d.purge", NULL, NULL, NULL, 0' % ARENAS_ALL)
        return self.known(
            spans or None, "jemalloc", "only the program itself can purge, with %s; jemalloc does so over time by its decay" % call
        )


class JemallocPurge(JemallocChange, Plan):
    """mallctl("arena.<i>.purge") or "arena.<i>.decay" of one arena or of all."""

    warming = b"version\0"
    """CTL_RO_NL_GEN (ctl.c): takes no lock and bears null for what it would fill, which others, such as arenas.narenas up to 5.2.1, do
    not."""
    arguments = (0, 0, 0, 0)
    damaged = ("jemalloc's heap", "a call could crash the process", "see " + hint_command("arenas"))

    def __init__(self, around: HeapContext, anew: OpenHeap, portion: Portion, jemalloc: Jemalloc) -> None:
        self.of(jemalloc)
        super().__init__(around, anew, portion, jemalloc.module, "mallctl", jemalloc.symbols.public)
        name = "arena.%d.%s" % (ARENAS_ALL if portion.arena is None else portion.arena, "decay" if portion.is_decayed else "purge")
        self.shown = '%s("%s", 0, 0, 0, 0)' % (self.shown[:-2], name)
        self.text = name.encode() + b"\0"
        self.malloc: Any = anew(_discard_report)

    def check(self) -> None:
        super().check()
        self._check_hooks(self.anew(_discard_report))

    def _check_hooks(self, malloc: Any) -> None:
        check_extent_hooks(malloc.context, malloc.arena_list(), self.portion.arena)

    def locks(self) -> List[Held]:
        troubles = Troubles()
        self.malloc = self.anew(troubles.report)
        context, arenas = self.malloc.context, self.malloc.arena_list()
        held = [lock for name in GLOBAL_LOCKS for lock in _find_variable_locks(context, name)]
        held += [lock for arena in arenas for lock in find_arena_locks(context, arena)]
        return held + [Held("an arena (%s)" % line, None) for line in troubles.found]

    def predict(self) -> Predicted:
        predicted = super().predict()
        self._check_hooks(self.anew(_discard_report))
        return predicted

    def look(self, heap: Any) -> Predicted:
        predicted = self._sum_unused(heap)
        in_time(self.budget)
        if self.portion.arena not in (None, *(row.index for row in heap.arenas())):
            raise Refusal("arena %s not found" % self.portion.arena, "see " + hint_command("arenas"), code=NOT_FOUND)
        return predicted

    def kept(self) -> Optional[Mapping[str, Optional[int]]]:
        return self._sum_unused(self.anew(_discard_report)).kept

    def _sum_unused(self, heap: Any) -> Predicted:
        return sum_unused([row for row in heap.arenas() if self.portion.arena in (None, row.index)], heap.context.geometry.page_bytes)

    def waits_inside(self, thread: StoppedThread) -> bool:
        calls = self.target.arch.system_calls
        numbers = [calls.numbers[name] for name in WAIT_CALLS] if calls is not None else []
        return thread.name == BACKGROUND_NAME and thread.system_call in numbers

    def suits(self, thread: StoppedThread) -> Optional[str]:
        """Refuse threads that jemalloc does not know or that do not tick: a call on one that only ever freed would make it blind."""
        seen = self.malloc.seen()
        for tsd, row in zip(seen.tsds.records, seen.threads):
            if tsd.lwp != thread.lwp:
                continue
            if not tsd.is_nominal:
                return "%s does not use jemalloc like an ordinary thread (its tsd is %s)" % (thread.who, tsd.state or "unknown")
            if tsd.reentrancy_level:
                return "%s is inside jemalloc (reentrancy_level %d)" % (thread.who, tsd.reentrancy_level)
            if row.verdict in (BLIND, UNKNOWN):
                return "%s is %s" % (thread.who, row.verdict)
            return None
        return "%s has no readable tsd" % thread.who


class JemallocCure(JemallocChange, CurePlan):
    """arenas_tdata_bypass of each blind thread is reset; the next tick makes the ticker. Nothing is called."""

    byte = BYPASS
    done = "%s was set and is 0 now; the next tick creates its ticker" % BYPASS

    def __init__(self, around: HeapContext, anew: OpenHeap, jemalloc: Jemalloc) -> None:
        if not has_ticker_bug(jemalloc.types, jemalloc.version):
            what = "jemalloc %s does not have this bug: no thread can be blind" % jemalloc.version_name
            raise Refusal(what, "see " + hint_command("decay"))
        self.of(jemalloc)
        self.target, self.anew = around.target, anew

    def look(self, only: Optional[int]) -> List[Suspect]:
        malloc = self.anew(_discard_report)
        place = malloc.context.types.place("tsd_s", BYPASS)
        if place is None or place.size_bytes != 1:
            raise Refusal("this build's tsd has no %s: nothing to cure" % BYPASS)
        rows = malloc.seen().threads
        if only is not None:
            rows = [row for row in rows if row.lwp == only]
            if not rows:
                raise Refusal("thread %d not found" % only, "see " + hint_command("tickers"), code=NOT_FOUND)
            if rows[0].verdict != BLIND:
                what = "thread %d is not blind (%s: %s)" % (only, rows[0].verdict, rows[0].why)
                raise Refusal(what, "see " + hint_command("tickers"))
        blind = [row for row in rows if row.verdict == BLIND]
        return [Suspect(row.lwp, row.tsd + place.offset if row.tsd is not None else None) for row in blind]

    def read(self) -> TickerReport:
        report: TickerReport = self.anew(_discard_report).tickers()
        return report

    def answer(self, info: AllocatorInfo, report: TickerReport, cured: Sequence[Any], stopped_ms: Optional[float]) -> TickersAnswer:
        return TickersAnswer([(info, report)] if report is not None else [], (), cured, stopped_ms)


def _discard_report(*complaint: Any, **more: Any) -> None:
    """Drop a complaint: an unreadable thread has no verdict and is not touched."""
