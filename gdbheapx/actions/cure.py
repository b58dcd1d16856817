"""Cures threads: one byte of each is reset, in which it is wrong. Nothing is called."""

from typing import TYPE_CHECKING, Any, Dict, List, NamedTuple, Optional

from gdbheapx import problems
from gdbheapx.actions import call, calling
from gdbheapx.actions.preflight import Objection, Sandbox
from gdbheapx.allocators.plan import CurePlan
from gdbheapx.command import Options
from gdbheapx.errors import Busy, Refusal
from gdbheapx.session import Session
from gdbheapx.units import count_noun

if TYPE_CHECKING:
    from gdbheapx.actions.gdb_control import GdbControl


class Cured(NamedTuple):
    """Outcome of the cure for one thread."""

    lwp: Optional[int]
    name: Optional[str]
    cured: bool
    why: str


class Cure:
    """Cure of all threads in one stop: one look at every thread, one byte written for each that needs it and is outside the allocator."""

    def __init__(self, control: "GdbControl", plan: CurePlan, only: Optional[int], sandbox: Sandbox) -> None:
        self.control, self.plan, self.only, self.sandbox = control, plan, only, sandbox
        self.inside = calling.ForbiddenCode(control.target, plan.spans() + calling.find_fork_spans(control.target))
        self.done: Dict[int, Cured] = {}
        self.report: Any = None

    @property
    def has_cured(self) -> bool:
        """A byte was written."""
        return any(one.cured for one in self.done.values())

    def now(self, tries: calling.Tries) -> List[Cured]:
        """Cure those that can be cured at this moment; Busy while one is inside the allocator."""
        if self.has_cured:
            self.control.commit()  # some are cured: the answer is theirs, and few are left
        is_done = self.only is not None and self.only in self.done and self.done[self.only].cured
        suspects = [] if is_done else self.plan.look(self.only)
        standing = {one.lwp: one for one in self.control.threads()}
        busy: List[str] = []
        forbidden: List[Objection] = []
        for suspect in suspects:
            thread = standing.get(suspect.lwp or 0)
            if thread is None or suspect.address is None:
                continue
            reason, objection = self.inside.why(thread), None
            if reason is None:
                objection = self.sandbox.against(thread.lwp, thread.who)
                if objection is None and self.control.is_late and self.has_cured:
                    reason = "the process was paused for as long as --max-stop allows"
            if reason is not None:
                busy.append(reason)
            elif objection is not None:
                forbidden.append(objection)
                reason = objection.reason
            else:
                self._write_byte(suspect.address)
            self.done[thread.lwp] = Cured(thread.lwp, thread.name, reason is None, reason or self.plan.done)
        if busy:
            raise Busy(busy[0])
        if forbidden and not self.has_cured:
            raise Refusal(forbidden[0].reason, forbidden[0].hint, code=problems.SECCOMP)
        self.report = self.plan.read()
        return list(self.done.values())

    def last(self, tries: calling.Tries) -> List[Cured]:
        """Return the outcome for each thread, also for those that could not be cured in time; Refusal if no thread was cured."""
        self.report = self.plan.read()
        if not self.has_cured:
            raise Refusal("%s (stopped %s)" % (tries.reasons[-1], count_noun(tries.count, "time")), "retry, or wait longer with --wait N")
        return list(self.done.values())

    def _write_byte(self, address: int) -> None:
        """The byte, which must be the wrong one before."""
        if self.control.target.read_prefix(address, 1) != self.plan.before:
            raise Refusal("%s at 0x%x is not %d" % (self.plan.byte, address, self.plan.before[0]), "retry")
        if not self.has_cured:
            calling.begin_action(self.control)
        self.control.write(address, self.plan.after)


def cure_threads(session: Session, options: Options) -> Any:
    """Cure the threads, and the answer as it is now; Refusal says why not."""
    threads = "thread %d" % options.thread if options.thread else "every blind thread"
    control, heap, plan, sandbox = call.begin_change(
        session,
        options,
        "cure",
        ("cured", "tickers without --cure shows which threads were blind"),
        lambda heap: heap.capabilities["cure"](),
        lambda plan: "reset %s of %s" % (plan.byte, threads),
    )
    cure = Cure(control, plan, options.thread, sandbox)
    rows = calling.attempt_action(control, options.wait, session.budget, cure.now, cure.last)
    return plan.answer(heap.info, cure.report, rows, round(control.stopped_ms, 1) if control.ours else None)
