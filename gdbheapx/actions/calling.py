"""Make one call into the process: stop it, check all preconditions, choose the thread, call; or let it run and stop again.

The thread is in a system call, outside the allocator, on a stack of its own with room left. Whether it is inside an allocator or in a fork
is decided by the addresses of its frames, so that stripped objects are judged as well. The number of stops is bounded.

A cure calls nothing: one byte of each thread is reset, in which it is wrong.
"""

import re
import time
from typing import TYPE_CHECKING, Any, Callable, Dict, List, NamedTuple, NoReturn, Optional, Sequence, Tuple, TypeVar

from gdbheapx.actions import preflight
from gdbheapx.actions.finisher import Standby, kept_alive
from gdbheapx.actions.preflight import Objection, Sandbox, measure_process
from gdbheapx.allocators.plan import Acted, Caller, CurePlan, Plan, Predicted, Span, in_time
from gdbheapx.common import problems
from gdbheapx.common.budget import Budget
from gdbheapx.common.errors import Busy, HeapxError, OutOfTime, Refusal, StopOver
from gdbheapx.common.hints import hint_command
from gdbheapx.common.problems import STOP_LIMIT
from gdbheapx.common.units import count_noun, format_number
from gdbheapx.inferior.base import CallOutcome, Mapping, Module, StoppedThread
from gdbheapx.inferior.target import ElfTarget

if TYPE_CHECKING:
    from gdbheapx.actions.gdb_control import GdbControl


FORKS = ("fork", "__fork", "__libc_fork", "_Fork", "vfork", "__vfork", "posix_spawn", "posix_spawnp", "_dl_runtime_profile")
MAX_STACK_BYTES = 16 << 20


class ForbiddenCode:
    """Knows the code in which no thread may be."""

    def __init__(self, target: ElfTarget, spans: Sequence[Span]) -> None:
        self.target = target
        self.spans = sorted(spans)

    def what(self, address: int) -> Optional[str]:
        """Describe the owner of the code at this address; None if it is neither the allocator's nor a fork."""
        return next((span.what for span in self.spans if span.start <= address < span.end), None)

    def why(self, thread: StoppedThread) -> Optional[str]:
        """Return one sentence if the thread is inside, or if that is not known; None if it surely is outside."""
        for frame in thread.frames:
            for at in (frame.pc, frame.pc - 1):
                whose = self.what(at)
                if whose is not None:
                    return "%s is inside %s%s" % (thread.who, whose, " (%s)" % frame.name if frame.name else "")
        return None if thread.whole else self._by_stack(thread)

    def _by_stack(self, thread: StoppedThread) -> Optional[str]:
        """A stack that cannot be unwound: any return address into the allocator on it counts."""
        span = next((mapping for mapping in self.target.mappings() if mapping.start <= thread.sp < mapping.end), None)
        if span is None or span.end - thread.sp > MAX_STACK_BYTES:
            return "%s: cannot unwind or search its stack" % thread.who
        data = self.target.read_prefix(thread.sp & -8, span.end - (thread.sp & -8))
        for word in memoryview(data[: len(data) // 8 * 8]).cast("Q"):
            word &= self.target.arch.return_mask
            whose = self.what(word - 1)
            if whose is not None and self._is_call(word):
                return "%s may be inside %s (its stack cannot be unwound, and contains a return address into it)" % (thread.who, whose)
        return None

    def _is_call(self, after: int) -> bool:
        """A call instruction ends at this address, or may."""
        machine = self.target.arch.calling
        return machine is None or machine.ends_call(self.target.read_prefix(after - machine.call_bytes, machine.call_bytes))


def find_fork_spans(target: ElfTarget) -> List[Span]:
    """fork and its like in every loaded object: their handlers hold the allocator's locks."""
    spans = []
    for module in target.modules():
        if re.match(r"(libc|libpthread|ld-linux)[.-]", module.file_name) or module.is_executable:
            for name in FORKS:
                symbol = target.module_symbol(module, name)
                size = target.symbol_bytes(symbol) if symbol is not None else None
                if symbol is not None and size:
                    spans.append(Span(symbol.address, symbol.address + size, name.strip("_")))
    return spans


ROOM_BYTES = 32 << 10
"""What must be left of a thread's stack; malloc_trim and purging take a few kilobytes."""
LOADER = ("ld-linux", "ld-2", "ld-musl", "ld.so", "ld64")
LIBC = re.compile(r"(libc|libpthread)[.-]")


def choose_caller(
    threads: Sequence[StoppedThread],
    inside: ForbiddenCode,
    mappings: Sequence[Mapping],
    pointers: Sequence[Tuple[int, Optional[int]]],
    pid: int,
    suits: Callable[[StoppedThread], Optional[str]],
    system_call_only: bool,
) -> Tuple[Optional[StoppedThread], Sequence[str]]:
    """The best thread: the main thread in a system call, another in one, one that runs the program's own code.

    pointers: (lwp, thread pointer). suits: what the allocator says against a thread. system_call_only: the last is not enough.
    """
    ranked: List[Tuple[int, StoppedThread]] = []
    reasons = []
    known = dict(pointers)
    for thread in threads:
        reason = inside.why(thread) or _find_objection(thread, mappings, known.get(thread.lwp), pid, system_call_only) or suits(thread)
        if reason is not None:
            reasons.append(reason)
        else:
            ranked.append(((0 if thread.lwp == pid else 1) if thread.in_system_call else 2, thread))
    return min(ranked, key=lambda one: one[0])[1] if ranked else None, reasons


def _find_objection(
    thread: StoppedThread, mappings: Sequence[Mapping], pointer: Optional[int], pid: int, system_call_only: bool
) -> Optional[str]:
    if system_call_only and not thread.in_system_call:
        return "%s is not in a system call" % thread.who
    if any(frame.is_signal for frame in thread.frames):
        return "%s is handling a signal, and the interrupted code is unknown" % thread.who
    if not thread.in_system_call and not thread.whole:
        return "%s runs code that gdb cannot unwind" % thread.who
    for frame in thread.frames:
        place = next((mapping for mapping in mappings if mapping.start <= frame.pc < mapping.end), None)
        if place is not None and place.name.rsplit("/", 1)[-1].startswith(LOADER):
            return "%s is in the dynamic linker" % thread.who
    span = next((mapping for mapping in mappings if mapping.start <= thread.sp < mapping.end), None)
    if span is None:
        return "the stack pointer of %s is in no mapping" % thread.who
    if span.name == "[stack]" and thread.lwp == pid:
        return None
    # a pthread's thread pointer is above its stack in one mapping, to which the kernel may have joined what was mapped behind it
    if thread.lwp == pid or pointer is None or not span.start <= thread.sp < pointer < span.end:
        return "%s runs on a stack that is not its own (a coroutine or a signal stack)" % thread.who
    if thread.sp - span.start < ROOM_BYTES:
        return "%s has only %d bytes of its stack left" % (thread.who, thread.sp - span.start)
    return None


def _is_libc(module: Module) -> bool:
    return LIBC.match(module.file_name) is not None


def against_registers(control: "GdbControl", thread: StoppedThread) -> List[str]:
    """Return the reason why the call may not be made with the general registers alone on this thread; empty if there is none. Its
    innermost frame must be a function of the C library that uses no vector register and was entered by an ordinary call: there the ABI
    lets the callee change all of them, so that the caller keeps nothing there. A system call that a compiler put into the program itself
    may have values in them.
    """
    who, target = thread.who, control.target
    if len(thread.frames) < 2 or any(frame.is_signal for frame in thread.frames):
        return ["%s: the caller of its system call is unknown" % who]
    modules = [target.module_at(frame.pc) for frame in thread.frames]
    first, outer = modules[0], next((module for module in modules if module is None or not _is_libc(module)), None)
    if first is None or not _is_libc(first):
        return ["%s: its system call is not in the C library: vector registers may hold live values" % who]
    if outer is None:
        return ["%s: its system call was not called from a loaded object" % who]
    span = control.function_span(first, thread.frames[0])
    code = control.disassemble(*span) if span is not None else None
    if code is None:
        return ["%s: the bounds of the function with its system call are unknown" % who]
    if any(re.search(control.machine.vector_operand, line) for line in code):
        return ["%s: the function with its system call uses vector registers" % who]
    return []


Done = TypeVar("Done")
PAUSES_S = (0.003, 0.007, 0.013, 0.023, 0.041)
"""Between two stops; of different length, so that what is periodic is not met at the same place again."""


class Tries(NamedTuple):
    """Record of the attempts until it could be done."""

    count: int  # type: ignore[assignment]  # hides tuple.count, which nobody calls on a record
    reasons: Sequence[str]


def attempt_action(control: "GdbControl", waits: int, budget: Budget, act: Callable[[Tries], Done], last: Callable[[Tries], Done]) -> Done:
    """Hold the process and act; `act` raises Busy where it cannot be done now. `last` has its turn when all waiting was in vain.

    The process runs on after every outcome. OutOfTime where Ctrl-C or --max-seconds comes while it waits, or where it has stood still for
    --max-stop before anything was begun.
    """
    reasons: List[str] = []
    try:
        for count in range(waits + 1):
            control.hold()
            tries = Tries(count + 1, list(reasons))
            try:
                return act(tries)
            except Busy as busy:
                reasons.append(busy.message)
                if not control.ours:
                    raise Refusal(busy.message, "continue the process for a moment, stop it again, then retry")
                if count == waits:
                    return last(Tries(count + 1, list(reasons)))
                control.let_go()
            in_time(budget)
            time.sleep(PAUSES_S[count % len(PAUSES_S)])
    except StopOver:
        raise make_out_of_time(control)
    except HeapxError as error:
        if error.code == STOP_LIMIT or control.is_cut:  # what it says may be for lack of what was not read any more
            raise make_out_of_time(control)
        raise
    finally:
        control.let_go()
    raise AssertionError


def refuse_as_busy(tries: Tries) -> NoReturn:
    """Raise the Refusal of a process in which all waiting was in vain."""
    what = "the process is too busy: %s (stopped %s)" % (tries.reasons[-1], count_noun(tries.count, "time"))
    raise Refusal(what, "retry, or wait longer with --wait N", code=problems.BUSY)


def begin_action(control: "GdbControl") -> None:
    """Something is about to be called or written: the last moment at which it is still left undone for --max-stop."""
    if control.is_late:
        raise make_out_of_time(control)
    control.commit()


def make_out_of_time(control: "GdbControl") -> OutOfTime:
    """The process stood still for as long as it may."""
    limit_s = control.target.max_stop_s or 0.0
    what = "process %d was let go after --max-stop %g, before everything was checked: nothing was changed" % (control.pid, limit_s)
    return OutOfTime(what, "allow more with --max-stop %d" % max(1, round(2 * limit_s + 0.5)), code=STOP_LIMIT)


BOUND_S = 10.0
BYTES_A_SECOND = 100 << 20
"""What the kernel takes back in a second at least, several times over."""


class Call:
    """The way of one call from the first stop to the last figure."""

    def __init__(self, control: "GdbControl", plan: Plan, sandbox: Sandbox) -> None:
        self.control, self.plan, self.target, self.sandbox = control, plan, control.target, sandbox
        self._forbidden: Dict[int, str] = {}
        """By lwp: what its seccomp rules say against a call on it."""
        self.inside = ForbiddenCode(self.target, plan.spans() + find_fork_spans(self.target))

    def run(self, waits: int) -> Acted:
        """Do it, or raise a Refusal; the process runs on in either case."""
        preflight.callable_here(self.target)  # once more: the user may have been asked for long
        done = attempt_action(self.control, waits, self.plan.budget, self.now, refuse_as_busy)
        return done._replace(stopped_ms=round(self.control.stopped_ms, 1) if self.control.ours else None)

    def now(self, tries: Tries) -> Acted:
        """Check everything with the process held, then call. Raises Busy if it cannot be done at this moment."""
        threads = self.look()
        chosen, reasons = self.choose(threads, system_call_only=False)
        if chosen is None:
            raise Busy("no thread can make the call: %s" % _pick_first_reason(reasons))
        broken = self.control.probe(chosen.lwp)
        if broken is None:
            return self.call(chosen, "system call" if chosen.in_system_call else "program", tries, "gdb-call")
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
            verb = " is" if len(held) == 2 else " are"
            more = ", and %s%s held" % (count_noun(len(held) - 1, "more lock"), verb) if len(held) > 1 else ""
            raise Busy(held[0].sentence(threads) + more)
        return threads

    def _ask_sandbox(self, threads: Sequence[StoppedThread]) -> None:
        ordered = sorted(threads, key=lambda thread: thread.lwp != self.control.pid)
        self._forbidden = self.sandbox.check([(thread.lwp, thread.who) for thread in ordered])

    def _find_objection(self, thread: StoppedThread) -> Optional[str]:
        return self._forbidden.get(thread.lwp) or self.plan.suits(thread) or self.control.against(thread)

    def choose(self, threads: Sequence[StoppedThread], system_call_only: bool) -> Tuple[Optional[StoppedThread], Sequence[str]]:
        """The thread that makes the call."""
        pointers: List[Tuple[int, Optional[int]]] = [(thread.lwp, thread.thread_pointer) for thread in self.target.threads()]
        mappings, pid = self.target.mappings(), self.control.pid
        return choose_caller(threads, self.inside, mappings, pointers, pid, self._find_objection, system_call_only)

    def by_registers(self, threads: Sequence[StoppedThread], broken: str, tries: Tries) -> Acted:
        """Call with the general registers alone, from a system call that keeps nothing in the others, where gdb cannot write all
        registers.
        """
        reasons: List[str] = []
        for thread in threads:
            against = list(self.choose([thread], system_call_only=True)[1]) or against_registers(self.control, thread)
            if not against:
                return self.call(thread, "system call", tries, "register-call")._replace(way_reason=broken)
            reasons += against
        what = "gdb cannot write this CPU's registers (%s), and no thread can make the call without that: %s"
        raise Busy(what % (broken, _pick_first_reason(reasons)))

    def call(self, thread: StoppedThread, place: str, tries: Tries, way: str) -> Acted:
        """The call itself, with what is measured before and after it."""
        plan, control = self.plan, self.control
        predicted = self.predict()
        begin_action(control)
        with kept_alive(), Standby(control.pid, thread.lwp, control.breakpoints(), self.target.mappings(), control.entry) as self._standby:
            self.try_out(thread, way)
            if plan.warming is not None:
                self.warm(thread, way)
            bound = BOUND_S + (predicted.bytes or 0) / BYTES_A_SECOND
            before = measure_process(control.pid)
            begin_action(control)  # what was tried may have taken long
            outcome = self.made(thread, way, plan.text, bound)
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

    def made(self, thread: StoppedThread, way: str, text: Optional[bytes], bound: float) -> CallOutcome:
        """The function is called in this way, with this string."""
        plan = self.plan
        self.control.calling = plan.shown.split("(")[0]
        with self._standby.calling():
            if way == "gdb-call":
                return self.control.call(thread.lwp, plan.address, plan.arguments, text, bound)
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
        outcome = self.made(thread, way, self.plan.warming, BOUND_S)
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


def _pick_first_reason(reasons: Sequence[str]) -> str:
    more = " (and %s more)" % format_number(len(reasons) - 1) if len(reasons) > 1 else ""
    return (reasons[0] if reasons else "it has no threads") + more


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
        self.inside = ForbiddenCode(control.target, plan.spans() + find_fork_spans(control.target))
        self.done: Dict[int, Cured] = {}
        self.report: Any = None

    @property
    def has_cured(self) -> bool:
        """A byte was written."""
        return any(one.cured for one in self.done.values())

    def now(self, tries: Tries) -> List[Cured]:
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
            elif self.control.target.read_prefix(suspect.address, 1) != self.plan.before:
                raise Refusal("%s at 0x%x is not %d" % (self.plan.byte, suspect.address, self.plan.before[0]), "retry")
            else:
                if not self.has_cured:
                    begin_action(self.control)
                self.control.write(suspect.address, self.plan.after)
            self.done[thread.lwp] = Cured(thread.lwp, thread.name, reason is None, reason or self.plan.done)
        if busy:
            raise Busy(busy[0])
        if forbidden and not self.has_cured:
            raise Refusal(forbidden[0].reason, forbidden[0].hint, code=problems.SECCOMP)
        self.report = self.plan.read()
        return list(self.done.values())

    def last(self, tries: Tries) -> List[Cured]:
        """Return the outcome for each thread, also for those that could not be cured in time; Refusal if no thread was cured."""
        self.report = self.plan.read()
        if not self.has_cured:
            refuse_as_busy(tries)
        return list(self.done.values())
