"""What a dry run says besides its prediction: why the call itself would be refused here, whatever the threads are doing at the moment."""

import shutil
from typing import Any, Callable, Dict, FrozenSet, Optional, Sequence, Tuple, Union

from gdbheapx import problems
from gdbheapx.actions import call, preflight
from gdbheapx.actions.seccomp import Sandbox, threads_of
from gdbheapx.allocators.heap import Heap
from gdbheapx.allocators.plan import CurePlan, Plan
from gdbheapx.errors import HeapxError, Refusal
from gdbheapx.session import Session

PLANS: Dict[str, Tuple[Any, ...]] = {"trim": (0,), "purge": (None, "purge"), "cure": ()}
"""What each offer is asked for a plan with."""


def advisable(session: Session, heap: Heap) -> FrozenSet[str]:
    """Those of the heap's offers that change a process and may be advised: here is a process, a gdb for the call, and nothing that is known
    of its allocator forbids them. What its sandbox and the threads allow is asked when it is done."""
    target = session.target
    if target.kind != "live" or (target.debugger_version is None and shutil.which("gdb") is None):
        return frozenset()
    return frozenset(name for name, words in PLANS.items() if name in heap.offers and _is_possible(session, heap.offers[name], words))


def _is_possible(session: Session, plan: Callable[..., Union[Plan, CurePlan]], words: Sequence[Any]) -> bool:
    try:
        preflight.callable_here(session.target)
        plan(*words).check()
    except HeapxError:
        return False
    return True


def is_refused(session: Session, kind: call.Kind, heap: Heap, plan: Callable[[Heap], Plan], accepted: bool) -> bool:
    """Whether it would be; a note says why. `accepted`: --accept-seccomp."""
    refusal = _refusal(session, kind, heap, plan, accepted)
    if refusal is not None:
        session.problem(problems.CALL_REFUSED, None, "%s would be refused here: %s" % (kind.offer, refusal.message), refusal.hint, False)
    return refusal is not None


def _refusal(session: Session, kind: call.Kind, heap: Heap, plan: Callable[[Heap], Plan], accepted: bool) -> Optional[Refusal]:
    target = session.target
    if target.kind in ("core", "snapshot"):
        return None
    try:
        if target.debugger_version is not None:  # who predicts without gdb may have one for the call
            preflight.live(session, kind.done, "")
        preflight.callable_here(target)
        made, pid = plan(heap), target.pid or 0
        made.check()
        preflight.writable(pid)
        preflight.in_ram(target, made.predict)
        Sandbox(made.target, made.system_calls, made.shown, accepted).check(threads_of(pid))
    except Refusal as refusal:
        return refusal
    except HeapxError:
        return None  # what is not known beforehand
    return None
