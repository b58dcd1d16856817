"""Choose the heap to change, check whether a call may be tried at all, and make the call that returns its memory."""

from typing import TYPE_CHECKING, Any, Callable, Optional, Sequence, Tuple, TypeVar

from gdbheapx import allocators, problems
from gdbheapx.actions import preflight
from gdbheapx.actions.seccomp import Sandbox
from gdbheapx.allocators.discovery import FoundInstance
from gdbheapx.allocators.heap import AllocatorInstance
from gdbheapx.allocators.plan import Change
from gdbheapx.allocators.records import Returning
from gdbheapx.allocators.returning import Acted, Portion, Predicted, require_returning, say_resident
from gdbheapx.command import Options
from gdbheapx.errors import HeapxError, Refusal
from gdbheapx.session import Session
from gdbheapx.stops import Reads, format_lasting
from gdbheapx.units import SentenceSize, make_cells

if TYPE_CHECKING:
    from gdbheapx.inferior.gdb.call import GdbControl

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
    from gdbheapx.inferior.gdb.call import GdbControl  # without gdb there is no such module, and the refusal was said

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
