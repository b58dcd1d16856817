"""Make one call into the process, after checking all its preconditions while the process is stopped."""

from typing import Dict, List, Optional, Sequence, Tuple

from gdbheapx import problems
from gdbheapx.actions import caller, preflight, waiting
from gdbheapx.actions.finisher import Standby, kept_alive
from gdbheapx.actions.inside import ThreadsInside, find_fork_spans
from gdbheapx.actions.preflight import measure_process
from gdbheapx.actions.seccomp import Sandbox
from gdbheapx.allocators.plan import Plan
from gdbheapx.allocators.returning import Acted, Caller, Predicted
from gdbheapx.errors import Busy, HeapxError, OutOfTime, Refusal
from gdbheapx.hints import hint_command
from gdbheapx.inferior.gdb.call import GdbControl
from gdbheapx.inferior.standing import CallOutcome, StoppedThread
from gdbheapx.units import count_noun, format_number

BOUND_S = 10.0
BYTES_A_SECOND = 100 << 20
"""What the kernel takes back in a second at least, several times over."""
ENTRIES, ENTRY_S = 8, 2.0
"""How often, and how long, to wait for a thread to enter the allocator."""


class Call:
    """The way of one call from the first stop to the last figure."""

    def __init__(self, control: GdbControl, plan: Plan, sandbox: Sandbox) -> None:
        self.control, self.plan, self.target, self.sandbox = control, plan, control.target, sandbox
        self._forbidden: Dict[int, str] = {}
        """By lwp: what its seccomp rules say against a call on it."""
        self.inside = ThreadsInside(self.target, plan.spans() + find_fork_spans(self.target))

    def run(self, waits: int) -> Acted:
        """Do it, or raise a Refusal; the process runs on in either case."""
        preflight.callable_here(self.target)  # once more: the user may have been asked for long
        done = waiting.attempt_action(self.control, waits, self.plan.budget, self.now, self.at_entry)
        return done._replace(stopped_ms=round(self.control.stopped_ms, 1) if self.control.ours else None)

    def now(self, tries: waiting.Tries) -> Acted:
        """Check everything with the process held, then call. Raises Busy if it cannot be done at this moment."""
        threads = self.look()
        choice = self.choose(threads, system_call_only=False)
        if choice.thread is None:
            raise Busy("no thread can make the call: %s" % _pick_first_reason(choice.reasons))
        broken = self.control.probe(choice.thread.lwp)
        if broken is None:
            return self.call(choice.thread, "system call" if choice.thread.in_system_call else "program", tries, "gdb-call")
        return self.by_registers(threads, broken, tries)

    def look(self) -> List[StoppedThread]:
        """Every thread, none of them inside, no lock held."""
        threads = self.control.threads()
        self._ask_sandbox(threads)
        for thread in threads:
            reason = self.inside.why(thread)
            if reason is not None and not self.plan.waits_inside(thread):
                raise Busy(reason)
        held = self.plan.locks()
        if held:
            more = (
                "" if len(held) == 1 else ", and %s held" % (count_noun(len(held) - 1, "more lock") + (" is" if len(held) == 2 else " are"))
            )
            raise Busy(held[0].sentence(threads) + more)
        return threads

    def _ask_sandbox(self, threads: Sequence[StoppedThread]) -> None:
        ordered = sorted(threads, key=lambda thread: thread.lwp != self.control.pid)
        self._forbidden = self.sandbox.check([(thread.lwp, thread.who) for thread in ordered])

    def _find_objection(self, thread: StoppedThread) -> Optional[str]:
        return self._forbidden.get(thread.lwp) or self.plan.suits(thread) or self.control.against(thread)

    def choose(self, threads: Sequence[StoppedThread], system_call_only: bool) -> caller.Choice:
        """The thread that makes the call."""
        pointers: List[Tuple[int, Optional[int]]] = [(thread.lwp, thread.thread_pointer) for thread in self.target.threads()]
        return caller.choose_caller(
            threads, self.inside, self.target.mappings(), pointers, self.control.pid, self._find_objection, system_call_only
        )

    def by_registers(self, threads: Sequence[StoppedThread], broken: str, tries: waiting.Tries) -> Acted:
        """Call with the general registers alone, from a system call that keeps nothing in the others, where gdb cannot write all
        registers.
        """
        reasons: List[str] = []
        for thread in threads:
            against = list(self.choose([thread], system_call_only=True).reasons) or caller.against_registers(self.control, thread)
            if not against:
                return self.call(thread, "system call", tries, "register-call")._replace(way_reason=broken)
            reasons += against
        what = "gdb cannot write this CPU's registers (%s), and no thread can make the call without that: %s"
        raise Busy(what % (broken, _pick_first_reason(reasons)))

    def call(
        self, thread: StoppedThread, place: str, tries: waiting.Tries, way: str, alone: bool = True, known: Optional[Predicted] = None
    ) -> Acted:
        """The call itself, with what is measured before and after it."""
        plan, control = self.plan, self.control
        predicted = known or self.predict()
        waiting.begin_action(control)
        with kept_alive(), Standby(control.pid, thread.lwp, control.breakpoints(), self.target.mappings(), control.entry) as self._standby:
            self.try_out(thread, way)
            if plan.warming is not None and alone:
                self.warm(thread, way)
            bound = BOUND_S + (predicted.bytes or 0) / BYTES_A_SECOND
            before = measure_process(control.pid)
            waiting.begin_action(control)  # what was tried may have taken long
            outcome = self.made(thread, way, plan.text, alone, bound)
            after = measure_process(control.pid)
        return Acted(
            call=plan.shown,
            way=way,
            returned=outcome.returned,
            trouble=None if outcome.trouble is None else self.state(outcome),
            predicted=predicted,
            before=before,
            after=after,
            elapsed_ms=outcome.elapsed_ms,
            stopped_ms=None,
            caller=Caller(thread.lwp, thread.name, place),
            tries=tries.count,
            waited_for=tries.reasons,
            kept_after=plan.kept(),
        )

    def predict(self) -> Predicted:
        """Predict the memory that the call will give back; everything that it touches was read, and so is in RAM."""
        try:
            return self.plan.predict()
        finally:
            preflight.left_in_swap(self.target)

    def made(self, thread: StoppedThread, way: str, text: Optional[bytes], alone: bool, bound: float) -> CallOutcome:
        """The function is called in this way, with this string."""
        plan = self.plan
        self.control.calling = plan.shown.split("(")[0]
        with self._standby.calling():
            if way == "gdb-call":
                return self.control.call(thread.lwp, plan.address, plan.arguments, text, alone, bound)
            return self.control.call_by_registers(thread.lwp, plan.address, plan.arguments, text, bound)

    def try_out(self, thread: StoppedThread, way: str) -> None:
        """Calls work here: one that does nothing comes back."""
        harmless = self.target.dynamic_symbol("labs")
        if harmless is None:
            return
        with self._standby.calling():
            trouble = self.control.trial(thread.lwp, harmless.address, way == "register-call")
        if trouble is not None:
            raise Refusal("function calls do not work here: %s" % trouble, "see " + hint_command("doctor"))

    def warm(self, thread: StoppedThread, way: str) -> None:
        """Make the function set up its one-time state before anything is measured."""
        outcome = self.made(thread, way, self.plan.warming, True, BOUND_S)
        if outcome.trouble is not None:
            raise Refusal("a harmless read-only test call failed, so the real call was not made: %s" % self.state(outcome))

    def state(self, outcome: CallOutcome) -> str:
        """Describe the state in which a failed call has left the process."""
        text = "the call did not return normally: %s" % outcome.trouble
        if outcome.finished:
            return text + "; it did complete, so the process is in the same state as after a normal call"
        held = self.plan.locks()
        if held:
            return text + "; the call was aborted and %s is still locked: the next thread that needs it will hang" % held[0].name
        return text + "; the call was aborted, and no lock is held"

    def at_entry(self, tries: waiting.Tries) -> Acted:
        """Too busy to be met with everybody outside: meet a thread that has just entered the allocator, which holds none of its locks."""
        reasons = [tries.reasons[-1]]
        threads = self.control.threads()
        broken = self.control.probe(threads[0].lwp) if threads else "no thread"
        for _ in range(ENTRIES if broken is None else 0):
            try:
                lwp = self.control.meet(self.plan.entries, ENTRY_S)
            except HeapxError as problem:
                reasons.append(problem.message)
                break
            if lwp is None:
                break
            there = self.control.threads()
            met = next((thread for thread in there if thread.lwp == lwp), None)
            if met is None:
                continue
            self._ask_sandbox(there)
            outside = met._replace(frames=met.frames[1:])
            choice = self.choose([outside], system_call_only=False)
            if choice.thread is None:
                reasons += choice.reasons
                continue
            try:
                predicted = self.predict()  # a walk without a fault, though others stand inside: nothing is half done
            except OutOfTime:
                raise
            except Refusal as refusal:
                reasons.append(refusal.message)
                continue
            return self.call(outside, "entry of malloc", tries, "gdb-call", False, predicted)
        last = reasons[0] if len(reasons) == 1 else "%s; at the entry of malloc: %s" % (reasons[0], reasons[-1])
        what = "the process is too busy: %s (stopped %s)" % (last, count_noun(tries.count, "time"))
        raise Refusal(what, "retry, or wait longer with --wait N", code=problems.BUSY)


def _pick_first_reason(reasons: Sequence[str]) -> str:
    return (reasons[0] if reasons else "it has no threads") + (
        " (and %s more)" % format_number(len(reasons) - 1) if len(reasons) > 1 else ""
    )
