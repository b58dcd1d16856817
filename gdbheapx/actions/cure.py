"""Cures blind threads: one byte in the tsd of each is reset, and the next tick makes the ticker. Nothing is called."""

from typing import Any, Dict, List, NamedTuple, Optional, Sequence

from gdbheapx.actions import inside, preflight, waiting
from gdbheapx.actions.purge import in_use
from gdbheapx.actions.refusal import Busy, Refusal
from gdbheapx.jemalloc import layouts
from gdbheapx.jemalloc.allocator import JemallocMalloc
from gdbheapx.jemalloc.detect import Jemalloc
from gdbheapx.jemalloc.tickers import BLIND
from gdbheapx.model import AllocatorInfo, TickerReport
from gdbheapx.session import Session
from gdbheapx.target.gdb_call import Control
from gdbheapx.target.gdb_target import setting

BYPASS = "arenas_tdata_bypass"


class Cured(NamedTuple):
    """What became of one blind thread."""

    lwp: Optional[int]
    name: Optional[str]
    cured: bool
    why: str


class Cure:
    """One look at every thread, one byte for each that is blind and stands outside jemalloc."""

    def __init__(self, session: Session, control: Control, found: Jemalloc, only: Optional[int]) -> None:
        self.session, self.control, self.found, self.only = session, control, found, only
        spans = inside.of_jemalloc(control.target, found.module, found.symbols.prefix, found.symbols.public_names.prefix)
        if spans is None:
            raise Refusal("jemalloc's functions in %s were not found, so gdbheapx cannot determine whether a thread is inside one" % found.module.name)
        self.inside = inside.Inside(control.target, spans + inside.forks(control.target))
        self.done: Dict[int, Cured] = {}
        self.report: Optional[TickerReport] = None

    def now(self, tries: waiting.Tries) -> List[Cured]:
        """Cure those that can be cured at this moment; Busy while one stands inside jemalloc."""
        malloc = self._look()
        place = malloc.context.types.place("tsd_s", BYPASS)
        if place is None or place.size_bytes != 1:
            raise Refusal("this build's tsd has no %s: nothing to cure" % BYPASS)
        standing = {one.lwp: one for one in self.control.threads()}
        busy: List[str] = []
        for tsd, verdict in self._blind(malloc):
            thread = standing.get(tsd.lwp or 0)
            if thread is None or tsd.address is None:
                continue
            reason = self.inside.why(thread) or (verdict if verdict != BLIND else None)
            if reason is not None:
                busy.append(reason)
                self.done[thread.lwp] = Cured(thread.lwp, thread.name, False, reason)
                continue
            self._write(malloc, tsd.address + place.offset)
            self.done[thread.lwp] = Cured(thread.lwp, thread.name, True, "%s was set and is 0 now; the next tick creates its ticker" % BYPASS)
        if busy:
            raise Busy(busy[0])
        self.report = self._look().tickers(True, True)
        return list(self.done.values())

    def last(self, tries: waiting.Tries) -> List[Cured]:
        """What could not be cured in time is told, thread by thread."""
        self.report = self._look().tickers(True, True)
        if not any(one.cured for one in self.done.values()):
            raise Refusal("%s (stopped %d times)" % (tries.reasons[-1], tries.count), "retry, or wait longer with --wait N")
        return list(self.done.values())

    def _look(self) -> JemallocMalloc:
        return JemallocMalloc(self.control.target, self.found, self.session.kernel, self.session.budget, lambda *complaint: None)

    def _blind(self, malloc: JemallocMalloc) -> Sequence[Any]:
        """(tsd, verdict) of the threads that are to be cured; Refusal where --thread names none of them."""
        seen = malloc.seen()
        pairs = [(tsd, judgement) for tsd, judgement in zip(seen.tsds.records, seen.judgements)]
        if self.only is None:
            return [(tsd, judgement.verdict) for tsd, judgement in pairs if judgement.verdict == BLIND]
        named = [(tsd, judgement) for tsd, judgement in pairs if tsd.lwp == self.only]
        if not named:
            raise Refusal("thread %d not found" % self.only, "see `gdbheapx tickers`")
        if self.only in self.done and self.done[self.only].cured:
            return []
        tsd, judgement = named[0]
        if judgement.verdict != BLIND:
            raise Refusal("thread %d is not blind (%s: %s)" % (self.only, judgement.verdict, judgement.why), "see `gdbheapx tickers`")
        return [(tsd, judgement.verdict)]

    def _write(self, malloc: JemallocMalloc, address: int) -> None:
        """The byte, which must be 1 before and 0 after."""
        target = self.control.target
        if target.read_prefix(address, 1) != b"\x01":
            raise Refusal("%s at 0x%x is not 1" % (BYPASS, address), "retry")
        self.control.write(address, b"\0")


class Cures(NamedTuple):
    """What was done, and how it stands now."""

    threads: Sequence[Cured]
    info: AllocatorInfo
    report: Optional[TickerReport]
    stopped_ms: Optional[float]


def run(session: Session, options: Any) -> Cures:
    """Cure the blind threads; Refusal says why not."""
    target = preflight.live(session, "cured", "tickers without --cure shows which threads were blind")
    preflight.permitted(setting, call=False)
    found = in_use(session)
    if not layouts.has_ticker_bug(found.types, found.version):
        raise Refusal("jemalloc %s does not have this bug: no thread can be blind" % found.version_name, "see `gdbheapx decay`")
    control = Control(target)
    preflight.vfork_child(control.pid)
    cure = Cure(session, control, found, options.thread)
    preflight.confirmed(options, "reset %s of %s in process %d (%s)?" % (BYPASS, "thread %d" % options.thread if options.thread else "every blind thread", control.pid, target.executable))
    control.prepare()
    rows = waiting.attempt(control, options.wait, session.budget, cure.now, cure.last)
    return Cures(rows, found.info(), cure.report, round(control.stopped_ms, 1) if control.ours else None)

