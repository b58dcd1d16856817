"""Foresee refusals: a command that acts is advised only where it would not be refused, and a dry run says why it would be."""

from typing import Callable, Dict, FrozenSet, Optional

from gdbheapx import problems
from gdbheapx.actions import call, preflight
from gdbheapx.allocators.heap import AllocatorInstance
from gdbheapx.allocators.plan import Change
from gdbheapx.allocators.records import Answered, Returning
from gdbheapx.allocators.returning import ALL, DryRun, Portion
from gdbheapx.child_python import find_program
from gdbheapx.errors import HeapxError, Refusal
from gdbheapx.session import Session


def find_advisable(session: Session, heap: AllocatorInstance) -> FrozenSet[str]:
    """Commands and capabilities that change the process, or say what that would return, and may be advised for this heap: nothing that can
    be known forbids them. Where its threads stand is asked when it is done."""
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
    refused = [
        (name, capability) for name, capabilities in known.items() for capability in ("cure", "purge") if capability not in capabilities
    ]
    return report.without(refused)


def _check_refused(
    session: Session, heap: AllocatorInstance, name: str, change: Callable[[], Change], portion: Portion = ALL, is_accepted: bool = False
) -> None:
    """Raises what forbids it: found out before the process is stopped, but for the filters of its threads, which only then can be read."""
    key = (_check_refused, heap.info.id, name, portion, is_accepted)
    if key not in session.constants:
        try:
            call.choose_target_heap(session, name)
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
        session.problem(
            problems.CALL_REFUSED, None, "%s would be refused here: %s" % (heap.returning.command, refusal.message), refusal.hint, False
        )
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
        return None  # what is not known beforehand
    return None
