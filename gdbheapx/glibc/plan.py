"""Plan a malloc_trim: malloc's code, its locks, the prediction, and what free memory stays (malloc.c: mtrim, systrim)."""

import re
from typing import Any, List, Optional, Sequence

from gdbheapx.allocators.answers import ENDED_ARENA, FAST_LIST, FOREIGN_BREAK, MAIN_TOP, THREAD_TOP, USUAL, ArenaKeeps, Keeping, Term
from gdbheapx.allocators.plan import FUTEX, DryRun, Held, Plan, Portion, Predicted, Span, SystemCall, Troubles, whole_code
from gdbheapx.common.columns import ColumnsTable, add_values, columns_of
from gdbheapx.common.errors import Refusal
from gdbheapx.common.hints import hint_command
from gdbheapx.glibc.arenas import ArenaWalk, Glibc, read_ring
from gdbheapx.glibc.detect import debug_hint
from gdbheapx.glibc.help import TRIM
from gdbheapx.glibc.records import ArenaTotals
from gdbheapx.glibc.survey import ArenaTrim, Survey, predict_systrim
from gdbheapx.inferior.base import Module, StackCopy, Target
from gdbheapx.kernel.blocks.pages import LISTED, PinShape
from gdbheapx.kernel.blocks.stream import BlockShape
from gdbheapx.kernel.glibc.records import STATUS_FAST

PUBLIC = (
    *("malloc", "free", "realloc", "calloc", "memalign", "aligned_alloc", "posix_memalign", "valloc", "pvalloc"),
    *("malloc_trim", "malloc_usable_size", "mallinfo", "mallinfo2", "malloc_stats", "malloc_info", "mallopt"),
)
"""Exported functions of glibc's malloc.o, which the linker keeps together."""
BELOW, ABOVE = 0x3800, 0x1000
"""malloc.o's static functions lie below its exported ones: within 0x2c00 bytes in Debian's 2.31 to 2.43, farther in others (INNER)."""
INNER = re.compile(r"_int_|sysmalloc|systrim|malloc_consolidate|unlink_chunk|m(un|re)map_chunk|tcache_|arena_get|(new|grow|shrink)_heap")
"""Static functions of malloc.o, by the begin of their names."""
SIGABRT = 6
ABORT_STACK_BYTES = 64 << 10
"""More than lies between abort() and the function of malloc that led to it."""


def find_glibc_code_spans(target: Target, module: Module) -> Optional[List[Span]]:
    """The code of glibc's malloc in this object; None if its functions cannot be found."""
    named = {name: target.module_symbol(module, name) for name in PUBLIC}
    addresses = {name: symbol.address for name, symbol in named.items() if symbol is not None}
    if "malloc" not in addresses or "free" not in addresses:
        return None
    functions, start, end = target.functions(module), addresses["malloc"] - 0x10000, addresses["malloc"] + 0x10000  # all of malloc.o
    near = [address for address in addresses.values() if start < address < end]
    inner = [function.start for function in functions if start < function.start < end and INNER.match(function.name)]
    low, high = min([min(near) - BELOW, *inner]), max(near) + ABOVE
    found = [Span(low, high, "malloc")]
    parts = {function.name for function in functions if low <= function.start < high}
    cold = [function for function in functions if ".cold" in function.name and function.name.split(".cold")[0] in parts]
    found += [Span(function.start, function.end, "malloc") for function in cold]
    for other in target.modules():
        if other.file_name.startswith("libc_malloc_debug"):
            found += whole_code(target, other, "malloc")
    return found


def has_aborted(target: Target, module: Module) -> bool:
    """A core of a process that ended by abort(), called by malloc: as it does where it finds its heap damaged."""
    thread = next(iter(target.threads()), None)
    if thread is None or thread.signal != SIGABRT or thread.pc is None or thread.stack_pointer is None:
        return False
    data = target.read_prefix(thread.stack_pointer, ABORT_STACK_BYTES)
    calls = target.calls(StackCopy(thread.stack_pointer, thread.pc, target.register_words(thread), data))
    ours = find_glibc_code_spans(target, module) or []
    return any(span.start <= call.pc - call.is_return < span.end for call in calls for span in ours)


def predict_malloc_trim(arenas: Sequence[ArenaTrim], is_live: bool, dumped_bytes: Optional[int]) -> DryRun:
    """Return the prediction for all arenas together. `dumped_bytes`: what of it a core has; None if that is not known."""
    resident, exclusive = add_values(row.resident_bytes for row in arenas), add_values(row.exclusive_bytes for row in arenas)
    predicted = Predicted(sum(row.bytes for row in arenas), resident, exclusive)
    columns = [column for column in columns_of(ArenaTrim) if resident is not None or column.field != "resident_bytes"]
    return DryRun(TRIM, predicted, arenas, ColumnsTable(columns, arenas), is_live, also=(), dumped_bytes=dumped_bytes)


class Trim(Plan):
    """malloc_trim(pad) of one glibc."""

    system_calls = (SystemCall("madvise", (None, None, 4)), SystemCall("brk"), *FUTEX)
    """mtrim (4: MADV_DONTNEED) and systrim (malloc.c). sbrk does not bear that brk fails: it takes the error for the new break."""
    damaged = ("the heap", "malloc_trim would abort the process", "see `%s` and `%s`" % (hint_command("arenas"), hint_command("chunks")))

    def __init__(self, around: Any, anew: Any, portion: Portion, glibc: Glibc) -> None:
        super().__init__(around, anew, portion, glibc.module, "malloc_trim")
        self.glibc, self.arguments = glibc, [portion.pad_bytes]
        self.shown = "malloc_trim(%d)" % portion.pad_bytes

    def spans(self) -> List[Span]:
        if self.glibc.pack is not None or self.glibc.place is not None:
            module, source, lacks = self.glibc.module, "structure", "does not tell where malloc's functions and all its locks are"
            if self.glibc.pack is not None:
                source, lacks = "a pack", "does not include malloc's functions"
            debug = debug_hint(self.target, module)[0]
            fetched = "get its debug file: %s; or name its folder" % debug if debug else "give its debug file"
            raise Refusal(
                "%s (build-id %s) is read by %s, which %s, so gdbheapx cannot determine whether a thread is inside one"
                % (module.name, module.build_id or "unknown", source, lacks),
                fetched + ": --debug-dir DIR; trim --dry-run predicts what malloc_trim would return",
            )
        return self.known(find_glibc_code_spans(self.target, self.glibc.module), "malloc")

    def locks(self) -> List[Held]:
        """Arena mutexes and the locks of the lists of arenas that are not 0. An arena's mutex has no owner (lowlevellock)."""
        broken = Troubles()
        ring = read_ring(self.target, self.glibc, broken.report)
        held = [Held("the lock of %s" % arena.title, None) for arena in ring if arena.state["mutex"]]
        for name in ("list_lock", "free_list_lock"):  # static ints of arena.c; fork's handlers hold the first
            symbol = self.target.module_symbol(self.glibc.module, name)
            data = self.target.read_prefix(symbol.address, 4) if symbol is not None else b""
            if data.strip(b"\0"):
                held.append(Held(name, None))
        return held + [Held("the ring of arenas (%s)" % trouble, None) for trouble in broken.found]

    def look(self, heap: Any) -> Predicted:
        predicted = super().look(heap)
        heap.bins()
        return predicted


def explain_keeping(done: Survey, rows: List[ArenaTotals], blocks: BlockShape) -> Keeping:
    """Return why free memory stays, from the survey that made the rows."""
    geometry = done.context.glibc.geometry
    shape = PinShape(
        page_bytes=geometry.page_bytes,
        head_bytes=geometry.chunk_struct_bytes,
        lead_bytes=blocks.header_bytes or 0,
        overheads=blocks.overheads,
        listed_kinds=frozenset((STATUS_FAST,)),
        apart=[row.index for row in rows if row.kind == "thread" and _has_ended(row)],
    )
    by_index = {row.index: row for row in rows}
    arenas = [_explain_arena(done, walk, by_index[walk.arena.index]) for walk in done.walks]
    if done.remnant is not None:
        arenas.append(ArenaKeeps(0, None, MAIN_TOP))
    sums = [sum(getattr(row, name) or 0 for row in rows) for name in ("free_bytes", "fast_bytes", "top_bytes", "reclaimable_bytes")]
    terms = [Term(name, value) for name, value in zip(("free", "fast", "top"), sums)] + [Term("reclaimable", sums[-1], is_taken_off=True)]
    return Keeping(shape, arenas, terms, {**USUAL, LISTED: FAST_LIST}, sums[-1])


def _has_ended(row: ArenaTotals) -> bool:
    """No thread is attached any more."""
    return (row.attached_threads if row.attached_threads is not None else row.threads) == 0


def _explain_arena(done: Survey, walk: ArenaWalk, row: ArenaTotals) -> ArenaKeeps:
    parts = (row.free_bytes, row.fast_bytes, row.top_bytes, row.reclaimable_bytes)
    free, fast, top, given = (part or 0 for part in parts)
    kept = None if None in parts else free + fast + top - given
    if not walk.arena.is_main:  # freeing the block below the end returns nothing, unless a further heap goes with it
        is_ended = _has_ended(row)
        return ArenaKeeps(row.index, kept, ENDED_ARENA if is_ended else THREAD_TOP, not is_ended and (row.heaps or 1) > 1)
    end = predict_systrim(done.context, walk)
    is_foreign = done.context.glibc.break_address(done.context.target) != walk.arena.top + top
    return ArenaKeeps(row.index, kept, FOREIGN_BREAK if is_foreign else MAIN_TOP, False, end[1] - end[0] if end is not None else 0)
