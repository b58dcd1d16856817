"""Cures threads: one byte of each is reset, in which it is wrong. Nothing is called."""

from typing import TYPE_CHECKING, Any, Dict, List, NamedTuple, Optional

from gdbheapx import problems
from gdbheapx.actions import call, inside, preflight, waiting
from gdbheapx.actions.seccomp import Objection, Sandbox
from gdbheapx.allocators.heap import Heap
from gdbheapx.allocators.plan import CurePlan
from gdbheapx.command import Options
from gdbheapx.errors import Busy, Refusal
from gdbheapx.session import Session
from gdbheapx.units import plural

if TYPE_CHECKING:
    from gdbheapx.inferior.gdb.call import Control

CURE = call.Kind("cure", "cured", None)


class Cured(NamedTuple):
    """What became of one thread."""

    lwp: Optional[int]
    name: Optional[str]
    cured: bool
    why: str


class Cure:
    """One look at every thread, one byte for each that needs it and stands outside the allocator."""

    def __init__(self, control: "Control", plan: CurePlan, only: Optional[int], sandbox: Sandbox) -> None:
        self.control, self.plan, self.only, self.sandbox = control, plan, only, sandbox
        self.inside = inside.Inside(control.target, plan.spans() + inside.forks(control.target))
        self.done: Dict[int, Cured] = {}
        self.report: Any = None

    def now(self, tries: waiting.Tries) -> List[Cured]:
        """Cure those that can be cured at this moment; Busy while one stands inside the allocator."""
        if any(one.cured for one in self.done.values()):
            self.control.commit()  # some are cured: the answer is theirs, and few are left
        is_done = self.only is not None and self.only in self.done and self.done[self.only].cured
        suspects = [] if is_done else self.plan.look(self.only)
        standing = {one.lwp: one for one in self.control.threads()}
        busy: List[str] = []
        forbidden: List[Objection] = []
        for one in suspects:
            thread = standing.get(one.lwp or 0)
            if thread is None or one.address is None:
                continue
            reason = self.inside.why(thread)
            if reason is not None:
                busy.append(reason)
                self.done[thread.lwp] = Cured(thread.lwp, thread.name, False, reason)
                continue
            objection = self.sandbox.against(thread.lwp, thread.who)
            if objection is not None:
                forbidden.append(objection)
                self.done[thread.lwp] = Cured(thread.lwp, thread.name, False, objection.reason)
                continue
            if self.control.is_late and any(one.cured for one in self.done.values()):
                busy.append("the process stood still for --max-stop")
                self.done[thread.lwp] = Cured(thread.lwp, thread.name, False, busy[-1])
                continue
            self._write(one.address)
            self.done[thread.lwp] = Cured(thread.lwp, thread.name, True, self.plan.done)
        if busy:
            raise Busy(busy[0])
        if forbidden and not any(one.cured for one in self.done.values()):
            raise Refusal(forbidden[0].reason, forbidden[0].hint, code=problems.SECCOMP)
        self.report = self.plan.report()
        return list(self.done.values())

    def last(self, tries: waiting.Tries) -> List[Cured]:
        """What could not be cured in time is told, thread by thread."""
        self.report = self.plan.report()
        if not any(one.cured for one in self.done.values()):
            raise Refusal("%s (stopped %s)" % (tries.reasons[-1], plural(tries.count, "time")), "retry, or wait longer with --wait N")
        return list(self.done.values())

    def _write(self, address: int) -> None:
        """The byte, which must be the wrong one before."""
        if self.control.target.read_prefix(address, 1) != self.plan.before:
            raise Refusal("%s at 0x%x is not %d" % (self.plan.byte, address, self.plan.before[0]), "retry")
        if not any(one.cured for one in self.done.values()):
            waiting.begin(self.control)
        self.control.write(address, self.plan.after)


def run(session: Session, options: Options) -> Any:
    """Cure the threads, and the answer as it is now; Refusal says why not."""
    target = preflight.require_live(session, CURE.done, "tickers without --cure shows which threads were blind")
    from gdbheapx.inferior.gdb.call import Control  # without gdb there is no such module, and the refusal was said
    from gdbheapx.inferior.gdb.target import setting

    preflight.require_permitted(setting, call=False)
    heap: Heap = call.in_use(session, CURE)
    plan: CurePlan = heap.capabilities[CURE.capability]()
    control = Control(target)
    preflight.vfork_child(control.pid)
    preflight.require_writable(control.pid)
    preflight.in_ram(target, plan.report)
    sandbox = Sandbox(target, plan.system_calls, "a thread that ticks again", options.accept_seccomp)
    cure = Cure(control, plan, options.thread, sandbox)
    which = "thread %d" % options.thread if options.thread else "every blind thread"
    preflight.require_confirmed(options, "reset %s of %s in process %d (%s)?" % (plan.byte, which, control.pid, target.executable))
    control.prepare()
    rows = waiting.attempt(control, options.wait, session.budget, cure.now, cure.last)
    return plan.answer(heap.info, cure.report, rows, round(control.stopped_ms, 1) if control.ours else None)
