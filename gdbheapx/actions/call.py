"""Choose the heap to change, foresee refusals, and return memory: once, by every allocator, or again and again; cure threads."""

import time
from typing import TYPE_CHECKING, Any, Callable, Dict, FrozenSet, Iterator, List, Optional, Sequence, Tuple, TypeVar, Union

from gdbheapx import allocators
from gdbheapx.actions import preflight
from gdbheapx.actions.preflight import Sandbox, measure_process
from gdbheapx.allocators.discovery import FoundInstance
from gdbheapx.allocators.heap import AllocatorInstance
from gdbheapx.allocators.plan import ALL, Acted, Change, DryRun, Portion, Predicted, require_returning, say_resident
from gdbheapx.allocators.records import Answered, Returning
from gdbheapx.allocators.session import Session
from gdbheapx.command import Options
from gdbheapx.common import problems
from gdbheapx.common.child_python import find_program
from gdbheapx.common.errors import HeapxError, Refusal
from gdbheapx.common.problems import CALL_REFUSED
from gdbheapx.common.stops import Reads, format_lasting
from gdbheapx.common.units import SentenceSize, make_cells
from gdbheapx.inferior.live import procfs

if TYPE_CHECKING:
    from gdbheapx.actions.gdb_control import GdbControl

OWN_INTERFACE = "use that allocator's own interface"
GDB_MS = 200.0
"""What gdb needs of the pauses: it attaches, tries a call that changes nothing, and lets go."""
Seen = TypeVar("Seen")


def find_returning(session: Session, command: str) -> Optional[Returning]:
    """Return this command's capability to return memory, from any allocator that has it; None if the command does not return memory."""
    ways = [one.returning for one in session.discovery.with_capability(command)]
    return next((way for way in ways if way is not None and way.command == command), None)


def return_heap_memory(session: Session, options: Options, command: str, portion: Portion) -> Acted:
    """Return memory; Refusal says why not."""
    way, hint = find_returning(session, command), "%s --dry-run predicts what a %s would return" % (command, command)
    assert way is not None
    control, _, plan, sandbox = begin_change(
        session,
        options,
        command,
        (way.done, hint),
        lambda heap: require_returning(heap, portion).return_plan(portion),
        lambda plan: "run %s" % plan.shown,
        lambda plan: describe_outlook(session, plan, hint),
    )
    from gdbheapx.actions.calling import Call  # without gdb there is no such module, and the refusal was said

    done = Call(control, plan, sandbox).run(options.wait)
    if done.trouble is not None:
        session.problem(problems.CALL_LEFT, None, done.trouble, "check the state of the process before you try anything else")
    return done


def describe_outlook(session: Session, plan: Any, otherwise: str) -> str:
    """Describe the memory that the call would return, as a dry run predicts it, and the pause; return `otherwise` if the heap changes
    under the walk.
    """
    try:
        predicted: Predicted = plan.predict()
    except HeapxError:
        return " (%s)" % otherwise
    more = say_resident(predicted.resident_bytes, predicted.exclusive_bytes)
    reads_ms = session.stop_for(Reads.TOTALS)
    pause = "" if reads_ms is None else " and pause the process for about %s" % format_lasting(reads_ms + GDB_MS)
    return make_cells(" It would return %s to the OS%s%s.", SentenceSize(predicted.bytes), more, pause)


def begin_change(
    session: Session,
    options: Options,
    capability: str,
    said: Tuple[str, str],
    plan: Callable[[AllocatorInstance], Any],
    question: Callable[[Any], str],
    outlook: Callable[[Any], str] = lambda change: "",
) -> "Tuple[GdbControl, AllocatorInstance, Any, Sandbox]":
    """Check everything that may forbid a change while the process runs, then ask the user; a Refusal says why not. `said`: participle for
    the change, such as `trimmed`, and a hint for a target without a process. `outlook`: text that explains the question.
    """
    control = require_control(session, *said)
    heap = session.heaps.open(choose_target_heap(session, capability))
    change: Change = plan(heap)
    preflight.vfork_child(control.pid)
    sandbox = preflight.check_beforehand(change, options.accept_seccomp)
    preflight.ensure_in_ram(control.target, change.read)
    if not options.yes:
        asked = "%s in process %d (%s)?%s" % (question(change), control.pid, control.target.executable, outlook(change))
        preflight.require_confirmed(options, asked)
    control.prepare()
    return control, heap, change, sandbox


def require_control(session: Session, done: str, hint: str) -> "GdbControl":
    """The process, to be held and changed; Refusal where there is none that can be."""
    target = preflight.require_live(session, done, hint)
    from gdbheapx.actions.gdb_control import GdbControl  # without gdb there is no such module, and the refusal was said

    return GdbControl(target)


def probe_registers(session: Session, look: Callable[[], Seen]) -> Tuple[bool, Seen]:
    """Return whether gdb can write this process's registers and set them back: tried on one bit of a vector register, which is set back
    at once; also return the result of `look`, called while the process is still held. A failure to write is reported; raises Refusal if
    no process can be tried.
    """
    control = require_control(session, "probed", "trim --dry-run predicts what malloc_trim would return")
    preflight.require_permitted(is_call=False)
    preflight.callable_here(control.target)
    control.prepare()
    try:
        control.hold()
        threads = control.threads()
        thread = next((thread for thread in threads if thread.in_system_call), threads[0])
        broken = control.probe(thread.lwp)
        seen = look()
    finally:
        control.let_go()
    if broken is not None:
        what = "gdb cannot write and restore registers here: %s" % broken
        hint = "use gdb 16 or newer; with this gdb, trim calls with general registers only, or refuses"
        session.problem(problems.NO_REGISTER_CALLS, None, what, hint, partial=False)
    return broken is None, seen


def choose_target_heap(session: Session, capability: str) -> FoundInstance:
    """The copy that is meant: --allocator's, else that of the malloc that the program calls, else the first; Refusal where none has the
    capability."""
    discovery, owner = session.discovery, session.discovery.owner
    copies = [one for one in discovery.copies() if session.allocator_id in (None, one.located.id)]
    able = [one for one in copies if one.allocator.can(capability)]
    names = [one.name for one in discovery.with_capability(capability)]
    way = find_returning(session, capability)
    is_owners = way is not None and way.is_owners
    if session.allocator_id is None and way is not None and is_owners:
        if owner is not None and owner.allocator not in names:
            what = "%s owns malloc here (%s): %s would do nothing for it"
            raise Refusal(what % (owner.allocator or "another allocator", owner.file, way.call), hint_other_command([owner.allocator]))
        others = sorted({one.allocator.name for one in copies} - set(names))
        if owner is None and others:
            what = "%s is present, and gdbheapx cannot determine which allocator owns malloc" % " and ".join(others)
            raise Refusal(what, "select one: --allocator %s, or %s" % (names[0], hint_other_command(others)))
    if able:
        return next((one for one in able if one.located.owns_malloc), able[0])
    for unread in session.heaps.unread_with_capability(capability):
        raise Refusal(unread.what, unread.hint)
    if is_owners:
        raise session.heaps.none_has(capability)
    owns = ": %s owns malloc" % (owner.allocator or "an unknown allocator") if owner is not None else ""
    known = [owner.allocator] if owner is not None else [one.allocator.name for one in copies]
    raise Refusal("no %s in this process%s" % (" or ".join(names), owns), hint_other_command(known))


def hint_other_command(names: Sequence[Optional[str]]) -> str:
    """Return a hint that names the commands that release memory for these allocators."""
    known = allocators.by_name()
    there = [known[name] for name in names if name is not None and name in known]
    ways = ["use %s" % allocator.returning.command for allocator in there if allocator.returning is not None]
    return next(iter([*ways, *(allocator.never_returns.hint for allocator in there if allocator.never_returns is not None)]), OWN_INTERFACE)


def find_advisable(session: Session, heap: AllocatorInstance) -> FrozenSet[str]:
    """Commands and capabilities that change the process, or say what that would return, and may be advised for this heap: nothing that can
    be known forbids them. Where its threads are is checked when it is done."""
    target, dry_run = session.target, session.heaps.dry_run(heap)
    made = {dry_run} if dry_run is not None else set()
    if target.kind == "live" and (target.debugger_version is not None or find_program("gdb") is not None):
        changes: Dict[str, Callable[[], Change]] = {"cure": heap.capabilities["cure"]} if "cure" in heap.capabilities else {}
        if heap.returning is not None:
            changes[heap.returning.command] = lambda: heap.return_plan(ALL)
        for name, change in changes.items():
            try:
                _check_refused(session, heap, name, change)
                made.add(name)
            except HeapxError:
                continue
    return frozenset(made)


def find_blind_tickers(session: Session) -> Answered:
    """Return the threads that never return pages, without advice that would be refused."""
    report = session.heaps.together("tickers")
    heaps = session.heaps.with_capability("tickers") if report.found else ()  # none of the sort is an answer, and no error
    known = {heap.info.id: find_advisable(session, heap) for heap in heaps}
    ways = [(name, capability) for name in known for capability in ("cure", "purge")]
    return report.without([(name, capability) for name, capability in ways if capability not in known[name]])


def _check_refused(
    session: Session, heap: AllocatorInstance, name: str, change: Callable[[], Change], portion: Portion = ALL, is_accepted: bool = False
) -> None:
    """Raises what forbids it: found out before the process is stopped, except the filters of its threads, which only then can be read."""
    key = (_check_refused, heap.info.id, name, portion, is_accepted)
    if key not in session.constants:
        try:
            choose_target_heap(session, name)
            session.constants[key] = preflight.check_beforehand(change(), is_accepted)
        except HeapxError as error:
            session.constants[key] = error
    known = session.constants[key]
    if isinstance(known, HeapxError):
        raise known
    known.check_all()


def make_heap_dry_run(session: Session, command: str, portion: Portion, is_accepted: bool) -> Callable[[], DryRun]:
    """Return the function that makes the dry run, for the heap that the command is for."""
    return would_return(session, session.heaps.returning(command, portion), portion, is_accepted)


def would_return(session: Session, heap: AllocatorInstance, portion: Portion, is_accepted: bool) -> Callable[[], DryRun]:
    """Return the function that makes the dry run. Whether the call would be refused here is found out at once; a note says why.
    `is_accepted`: --accept-seccomp.
    """
    assert heap.returning is not None
    refusal = _find_refusal(session, heap.returning, heap, portion, is_accepted)
    if refusal is not None:
        what = "%s would be refused here: %s" % (heap.returning.command, refusal.message)
        session.problem(problems.CALL_REFUSED, None, what, refusal.hint, False)
    return lambda: heap.would_return(portion)._replace(is_refused=refusal is not None)


def _find_refusal(session: Session, way: Returning, heap: AllocatorInstance, portion: Portion, is_accepted: bool) -> Optional[Refusal]:
    target = session.target
    if not target.has_memory:
        return None
    try:
        if target.kind == "core":  # of a process that may be asked later, on a machine of its kind
            target.arch.to_call()
            return None
        if target.debugger_version is not None:  # who predicts without gdb may have one for the call
            preflight.require_live(session, way.done, "")
        _check_refused(session, heap, way.command, lambda: heap.return_plan(portion), portion, is_accepted)
        preflight.ensure_in_ram(target, lambda: heap.return_plan(portion).predict())
    except Refusal as refusal:
        return refusal
    except HeapxError:
        pass  # what is not known beforehand
    return None


ReleasePart = Tuple[str, str, Union[Acted, DryRun]]
"""One allocator, the command that does it alone, and what was done or predicted."""


def find_return_ways(session: Session) -> List[Tuple[AllocatorInstance, str]]:
    """The heaps that return memory when they are asked, and the command that asks them; Refusal where there is none."""
    owner, able = session.heaps.one(), []
    for heap in session.heaps.all():
        way = heap.returning
        if way is not None and (heap.info.owns_malloc or not owner.info.owns_malloc or not way.is_owners):
            able.append((heap, way.command))
    if not able:
        raise Refusal("%s owns malloc here, and returns nothing when it is asked" % owner.kind, hint_other_command([owner.info.name]))
    return able


def predict_release(session: Session, is_accepted: bool) -> List[ReleasePart]:
    """The dry run."""
    looks = [(heap, command, would_return(session, heap, ALL, is_accepted)) for heap, command in find_return_ways(session)]
    return [(heap.info.id, command, look()) for heap, command, look in looks]


def release_memory(session: Session, options: Options) -> List[ReleasePart]:
    """Ask one allocator after the other. What is refused is a problem next to what was done; Refusal where nothing was done."""
    parts: List[ReleasePart] = []
    refused: List[HeapxError] = []
    found = [(heap.info.id, command) for heap, command in find_return_ways(session)]
    for allocator, command in found:
        asked = session if not parts else session.again()
        asked.allocator_id = allocator if len(found) > 1 else session.allocator_id
        try:
            parts.append((allocator, command, return_heap_memory(asked, options, command, ALL)))
        except Refusal as error:
            refused.append(error)
    if not parts:
        raise refused[0]
    for refusal in refused:
        session.problem(CALL_REFUSED, None, refusal.message, refusal.hint, partial=False)
    return parts


NOTHING = "trimmed: nothing free was in RAM"
NAP_S = 0.2
"""How soon Ctrl-C is heeded."""


def run_rounds(
    session: Session, options: Any, fresh: Callable[[], Session], sleep: Callable[[float], None] = time.sleep
) -> Iterator[Dict[str, Any]]:
    """Yield one entry for each period, until --times is reached or the process ends. `fresh` returns a session without any knowledge of
    the previous one. Times are milliseconds, sizes bytes. Below --above the process is not attached to and not called. It ends as the
    last round would by itself: if that was refused, with its refusal.
    """
    preflight.require_gdb(session.target, "trimmed")
    pid, left = session.target.pid or 0, options.times
    while left is None or left > 0:
        began = time.monotonic()
        if has_process_ended(pid):
            yield {"message": "process %d crashed or exited" % pid, "periodMs": round(options.every * 1000)}
            return
        row, error = one_round(session, options, pid)
        yield row
        left = None if left is None else left - 1
        until = began + options.every
        while left != 0 and time.monotonic() < until and not session.budget.expired():
            sleep(max(0.0, min(NAP_S, until - time.monotonic())))
        if left == 0 or session.budget.expired():
            if error is not None and not has_process_ended(pid):
                raise Refusal(error.message, error.hint, error.address, error.code)
            return
        try:
            session = session if has_process_ended(pid) else fresh()
        except HeapxError:
            if not has_process_ended(pid):
                raise


def has_process_ended(pid: int) -> bool:
    """Return True if there is no such process, or only a zombie that waits to be reaped."""
    return procfs.read_process_status(pid).get("State", "X")[:1] in ("Z", "X")


def gave_nothing(done: Acted) -> bool:
    """No page went, and none was predicted to: the next rounds will be the same until the program frees more."""
    before, after = done.before.anonymous_bytes, done.after.anonymous_bytes
    return not done.predicted.resident_bytes and before is not None and after is not None and after >= before


def one_round(session: Session, options: Any, pid: int) -> Tuple[Dict[str, Any], Optional[HeapxError]]:
    """Run one period: return its entry, and the reason if the action was due and not done."""
    began = time.monotonic()
    now = measure_process(pid)
    done: Optional[Acted] = None
    refusal: Optional[HeapxError] = None
    if now.rss_bytes is None:
        message = "cannot read resident memory"
    elif now.rss_bytes <= options.above:
        message = "below the limit"
    else:
        try:
            done = return_heap_memory(session, options, "trim", Portion(options.pad))
            message = done.trouble or (NOTHING if gave_nothing(done) else "trimmed")
        except HeapxError as error:
            message, refusal = error.line(), error
    before, after = (done.before, done.after) if done is not None else (now, now)
    grown = None if before.rss_bytes is None or after.rss_bytes is None else after.rss_bytes - before.rss_bytes
    row: Dict[str, Any] = {
        "message": message,
        "periodMs": round(options.every * 1000),
        "elapsedMs": round((time.monotonic() - began) * 1000),
        "rss.before": before.rss_bytes,
        "rss.after": after.rss_bytes,
        "rss.diff": grown,
        **(done.data if done is not None else {}),
    }
    return row, refusal


def cure_threads(session: Session, options: Options) -> Any:
    """Cure the threads, and the answer as it is now; Refusal says why not."""
    threads = "thread %d" % options.thread if options.thread else "every blind thread"
    control, heap, plan, sandbox = begin_change(
        session,
        options,
        "cure",
        ("cured", "tickers without --cure shows which threads were blind"),
        lambda heap: heap.capabilities["cure"](),
        lambda plan: "reset %s of %s" % (plan.byte, threads),
    )
    from gdbheapx.actions import calling  # without gdb there is no such module, and the refusal was said

    cure = calling.Cure(control, plan, options.thread, sandbox)
    rows = calling.attempt_action(control, options.wait, session.budget, cure.now, cure.last)
    return plan.answer(heap.info, cure.report, rows, round(control.stopped_ms, 1) if control.ours else None)
