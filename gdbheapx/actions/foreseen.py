"""What a dry run says besides its prediction: why the call itself would be refused here, whatever the threads are doing at the moment."""

import shutil
from typing import Any, Callable, Dict, FrozenSet, Hashable, List, Optional, Sequence, Tuple

from gdbheapx import problems
from gdbheapx.actions import call, preflight
from gdbheapx.actions.seccomp import Sandbox, threads_of
from gdbheapx.allocators.heap import Heap
from gdbheapx.errors import HeapxError, Refusal
from gdbheapx.inferior.live.seccomp import DISABLED, rules
from gdbheapx.session import Session

PLANS: Dict[str, Tuple[Any, ...]] = {"trim": (0,), "purge": (None, "purge"), "cure": ()}
"""What each capability is asked for a plan with."""


def advisable(session: Session, heap: Heap) -> FrozenSet[str]:
    """Those of the heap's capabilities that change a process and may be advised: here is a process, a gdb for the call, and nothing that is
    known of its allocator forbids them. What its sandbox and the threads allow is asked when it is done."""
    target = session.target
    if target.kind != "live" or (target.debugger_version is None and shutil.which("gdb") is None):
        return frozenset()
    found = (name for name, words in PLANS.items() if name in heap.capabilities and _forbidden(session, heap, name, words) is None)
    return frozenset(found)


def _once(session: Session, key: Hashable, check: Callable[[], Any]) -> Any:
    """What a check gives or raises, found out before the process is stopped: it reads symbol tables and other files."""
    if key not in session.constants:
        try:
            session.constants[key] = check()
        except HeapxError as error:
            session.constants[key] = error
    return session.constants[key]


def _forbidden(session: Session, heap: Heap, name: str, words: Tuple[Any, ...]) -> Optional[HeapxError]:
    """What the allocator's build forbids, whatever the process does."""

    def check() -> None:
        preflight.callable_here(session.target)
        heap.capabilities[name](*words).check()

    found: Optional[HeapxError] = _once(session, (_forbidden, heap.info.id, name, words), check)
    return found


def _confined(pid: int) -> List[Tuple[int, str]]:
    """The threads of a process of which at least one is under seccomp."""
    threads = threads_of(pid)
    return threads if any(rules(lwp).mode != DISABLED for lwp, _ in threads) else []


def _sandbox(heap: Heap, kind: call.Kind, words: Tuple[Any, ...], accepted: bool) -> Sandbox:
    """Asked before the process is stopped: a plan looks up symbols."""
    plan = heap.capabilities[kind.capability](*words)
    return Sandbox(plan.target, plan.system_calls, plan.shown, accepted)


def is_refused(session: Session, kind: call.Kind, heap: Heap, words: Sequence[Any], accepted: bool) -> bool:
    """Whether it would be; a note says why. `words`: what the capability gets for a plan; `accepted`: --accept-seccomp."""
    refusal = _refusal(session, kind, heap, tuple(words), accepted)
    if refusal is not None:
        session.problem(
            problems.CALL_REFUSED, None, "%s would be refused here: %s" % (kind.capability, refusal.message), refusal.hint, False
        )
    return refusal is not None


def _refusal(session: Session, kind: call.Kind, heap: Heap, words: Tuple[Any, ...], accepted: bool) -> Optional[Refusal]:
    target = session.target
    if target.kind in ("core", "snapshot"):
        return None
    try:
        if target.debugger_version is not None:  # who predicts without gdb may have one for the call
            preflight.require_live(session, kind.done, "")
        pid = target.pid or 0
        threads = _once(session, (_confined, pid), lambda: _confined(pid))
        writable = _once(session, preflight.require_writable, lambda: preflight.require_writable(pid))
        for found in (_forbidden(session, heap, kind.capability, words), writable, threads):
            if isinstance(found, HeapxError):
                raise found
        key = (Sandbox, heap.info.id, kind.capability, words)
        sandbox = _once(session, key, lambda: _sandbox(heap, kind, words, accepted)) if threads else None
        preflight.in_ram(target, lambda: heap.capabilities[kind.capability](*words).predict())
        if isinstance(sandbox, Sandbox):
            sandbox.check(threads)
    except Refusal as refusal:
        return refusal
    except HeapxError:
        return None  # what is not known beforehand
    return None
