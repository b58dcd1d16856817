"""Threads whose decay ticker was never made and which therefore never purge: the decision table, row by row.

Up to 5.2.1 a thread has an array of tickers, one for each arena, which arena_tdata_get_hard (jemalloc.c) makes unless
arenas_tdata_bypass is set. A thread whose first call is free() becomes minimal_initialized, and tsd_data_init_nocleanup (tsd.c) sets
the bypass; the first malloc makes the thread nominal and leaves the bypass as it is. From 5.3.0 on the ticker is a member of the tsd.
"""

from typing import List, NamedTuple, Optional, Sequence, Tuple

from gdbheapx.inferior.base import Thread
from gdbheapx.jemalloc import codes
from gdbheapx.jemalloc.context import Context
from gdbheapx.jemalloc.detection import layouts
from gdbheapx.jemalloc.detection.traces import BACKGROUND_NAME
from gdbheapx.jemalloc.purging.background import Background
from gdbheapx.jemalloc.threads.tsd import Tsd, Tsds
from gdbheapx.units import plural

NOT_STARTED, AT_RISK, NOT_APPLICABLE = "not-started", "at-risk", "not-applicable"
TICKING, BLIND, UNKNOWN = "ticking", "blind", "unknown"
VERDICTS = (BLIND, AT_RISK, UNKNOWN, TICKING, NOT_STARTED, NOT_APPLICABLE)
"""The most pressing first."""

AGAIN = "retry"
GROWTH = "arena_tdata_get_hard"
UNTOLD_ROW = 9
"""Of the table: nothing contradicts row 8, and the code that would is not known."""
STACK_BYTES = 64 << 10
"""How much of a stack is searched for return addresses; jemalloc's own frames take a few kilobytes."""
NEAR_WORDS = 64
"""Where no symbol tells functions apart: words next to the stack pointer that show who called into the C library."""


class Facts(NamedTuple):
    """What the decision needs beside the tsd itself."""

    affected: bool
    """The build has the bug."""
    not_ready: Optional[str]
    """Why no tsd of this process can be judged: jemalloc is still being initialised. None if it is not."""
    counts: Optional[bool]
    """config_stats."""
    is_background: bool
    """One of jemalloc's own threads."""
    grows: Optional[bool]
    """It may be inside arena_tdata_get_hard, which sets the bypass for as long as it allocates; False: it surely is not; None: the code of
    that function is not known, so that nothing tells."""
    lacking: Optional[str] = None
    """Why that is so, and the file that would tell."""
    runs: bool = True
    """It runs on, so that another look may tell more."""


class Judgement(NamedTuple):
    """What the table says of one thread."""

    verdict: str
    row: int
    """Which row of the table decided; -1 for builds without the bug."""
    why: str
    hint: Optional[str] = None


def judge(tsd: Tsd, facts: Facts) -> Judgement:
    """The decision table: the first row that matches."""
    if not facts.affected:
        return Judgement(NOT_APPLICABLE, -1, "this build does not have the bug: its ticker is part of the thread's tsd")
    if tsd.state is None or facts.not_ready is not None:
        return Judgement(UNKNOWN, 0, tsd.trouble or facts.not_ready or "cannot read its tsd")
    if tsd.state == "uninitialized":
        return Judgement(NOT_STARTED, 1, "it has not called jemalloc yet; it becomes blind if its first call is free()")
    if tsd.state == "minimal_initialized":
        freed = " (%d bytes)" % tsd.thread_deallocated_bytes if tsd.thread_deallocated_bytes else ""
        return Judgement(AT_RISK, 2, "it has only called free()%s: it has no ticker now, and becomes blind at its first malloc()" % freed)
    if not tsd.is_nominal:
        what = "it is a background thread of jemalloc's own" if facts.is_background else "it is exiting"
        return Judgement(NOT_APPLICABLE, 3, "%s (state %s)" % (what, tsd.state))
    if tsd.arenas_tdata_bypass is None or tsd.arenas_tdata is None:
        return Judgement(UNKNOWN, 0, "arenas_tdata_bypass is neither 0 nor 1: its tsd is damaged")
    if not tsd.arenas_tdata_bypass:
        return _ticking(tsd)
    if tsd.arenas_tdata:
        return Judgement(
            UNKNOWN,
            6,
            "it has tickers although arenas_tdata_bypass is set; jemalloc never does that, so its tsd is damaged",
            AGAIN if facts.runs else None,
        )
    doubt = _in_transition(tsd, facts)
    if doubt is not None:
        return Judgement(UNKNOWN, 7, doubt, AGAIN if facts.runs else None)
    if facts.grows is None:
        return Judgement(UNKNOWN, UNTOLD_ROW, "it has no ticker, and it is unknown whether it is creating one (%s)" % GROWTH, facts.lacking)
    return Judgement(BLIND, 8, "its first call was free(), so it never got a decay ticker and never returns pages")


def _ticking(tsd: Tsd) -> Judgement:
    if not tsd.arenas_tdata:
        return Judgement(TICKING, 4, "it has not needed a ticker yet; the next slow operation creates one")
    if tsd.ticker is None:
        return Judgement(TICKING, 5, "it has tickers, but none for its arena yet")
    return Judgement(TICKING, 5, "it has tickers; the one for its arena is at %d of %d" % tsd.ticker)


def _in_transition(tsd: Tsd, facts: Facts) -> Optional[str]:
    """Why a set bypass without tickers may be there for a moment only; None if it is there to stay."""
    if (tsd.reentrancy_level or 0) != 0:
        return "it is inside jemalloc (reentrancy_level %d)" % (tsd.reentrancy_level or 0)
    if not tsd.arena and not tsd.iarena:
        return "it is bound to no arena: it is just starting or exiting"
    if tsd.narenas_tdata:
        return "its tickers (%d) are gone: it is exiting" % tsd.narenas_tdata
    if facts.grows:
        return "it may be creating its tickers at this moment (%s)" % GROWTH
    if facts.counts and tsd.thread_deallocated_bytes == 0:
        return "it has freed nothing, so its first call was not free(): it is just starting"
    if tsd.tcache_enabled and not tsd.tcache_arena:
        return "its cache is being set up: it is just starting"
    return None


# ---------------------------------------------------------------------------------------------------- facts about each thread


def judge_all(context: Context, tsds: Tsds, background: Background, counts: Optional[bool]) -> List[Judgement]:
    """One judgement for each record of tsds."""
    affected = layouts.has_ticker_bug(context.types, context.jemalloc.version)
    not_ready = _not_ready(context)
    own = [one.pthread for one in background.running if one.pthread]
    scan = _Scan(context)
    judgements = []
    for tsd in tsds.records:
        is_background = tsd.thread is not None and (tsd.thread.name == BACKGROUND_NAME or tsd.thread.thread_pointer in own)
        in_doubt = affected and tsd.is_nominal and bool(tsd.arenas_tdata_bypass) and not tsd.arenas_tdata
        grows = scan.grows(tsd) if in_doubt else False
        lacking = _lacking(context) if grows is None else None
        judgements.append(judge(tsd, Facts(affected, not_ready, counts, is_background, grows, lacking, context.target.kind == "live")))
    untold = sum(one.row == UNTOLD_ROW for one in judgements)
    if untold:
        what = "%s: nothing tells whether a thread without a ticker is blind or is creating one" % plural(untold, "thread")
        context.report(codes.TICKER_UNTOLD, None, what, _lacking(context))
    return judgements


def _lacking(context: Context) -> str:
    """The file that tells where the code of arena_tdata_get_hard is."""
    module = context.jemalloc.module
    option = "--exe FILE" if module.is_executable and context.target.kind == "core" else "--sysroot DIR"
    if context.target.kind == "core" and context.target.module_file(module) is None:
        return "give %s of the machine that wrote the core with %s" % (module.file_name, option)
    build_id = " (build-id %s)" % module.build_id if module.build_id else ""
    return "%s%s is stripped: give its unstripped file or debug file with --debug-dir DIR" % (module.file_name, build_id)


def _not_ready(context: Context) -> Optional[str]:
    booted, state = context.variable("tsd_booted", 1), context.variable("malloc_init_state", 4)
    if booted == 0:
        return "jemalloc is not initialised yet (tsd_booted)"
    ready = context.types.enumerator("malloc_init_initialized") or 0
    return "jemalloc is not initialised yet (malloc_init_state %d)" % state if state is not None and state != ready else None


class _Scan:
    """Tells whether a thread may be inside arena_tdata_get_hard, from what is known of its past and from its stack.

    A thread makes its tickers when it starts, before its first free() is counted and before its cache has an arena; and anew when it
    first meets an arena that came later. That only the first thread does, which began when there was one arena, unless the
    program has made arenas of its own.
    """

    def __init__(self, context: Context) -> None:
        self.context = context
        base = context.geometry.manual_arena_base
        self.later_arenas = base is None or context.geometry.narenas > base
        self._code: Optional[Sequence[Tuple[int, int]]] = None
        self._exact = False

    def grows(self, tsd: Tsd) -> Optional[bool]:
        """False if it surely is not, None where nothing tells."""
        is_past_start = bool(tsd.thread_deallocated_bytes) or (tsd.tcache_enabled and bool(tsd.tcache_arena))
        is_first = tsd.thread is None or self.context.target.pid in (None, tsd.thread.lwp)
        if is_past_start and not is_first and not self.later_arenas:
            return False
        return True if tsd.thread is None else self._on_stack(tsd.thread)

    def _on_stack(self, thread: Thread) -> Optional[bool]:
        """A return address into that function stands on the stack, or the thread runs in it; where it has no symbol, into any code of the
        object, which on a core is None: there may be much else, and no other look."""
        code, runs = self.code(), self.context.target.kind == "live"
        if thread.pc is None or thread.stack_pointer is None or not code:
            return True if runs else None
        is_near = self._is_near(thread.pc, thread.stack_pointer, code)
        return True if is_near and (self._exact or runs) else None if is_near else False

    def _is_near(self, pc: int, stack_pointer: int, code: Sequence[Tuple[int, int]]) -> bool:
        if _inside(code, pc):
            return True
        word = self.context.geometry.word_bytes
        data = self.context.target.read_prefix(stack_pointer & -word, STACK_BYTES if self._exact else NEAR_WORDS * word)
        return any(_inside(code, value - 1) for value in self.context.target.words_in(data))

    def code(self) -> Sequence[Tuple[int, int]]:
        """The function's addresses, or all of the object's code where no symbol has it."""
        if self._code is None:
            symbols = self.context.symbols
            function, size = symbols.find(GROWTH), symbols.size_bytes(GROWTH)
            self._exact = function is not None and bool(size)
            if function is not None and size:
                self._code = [(function.address, function.address + size)]
            else:
                mapped = self.context.target.mappings()
                self._code = [(one.start, one.end) for one in mapped if one.executable and one.name == self.context.jemalloc.module.name]
        return self._code


def _inside(spans: Sequence[Tuple[int, int]], address: int) -> bool:
    return any(start <= address < end for start, end in spans)
