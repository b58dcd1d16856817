"""Arenas that contradict themselves because a thread was in the middle of a change: read again at another moment, and not called damaged.

An arena is whole by itself: its figures, with those of all thread caches, come from one stop. Different arenas may come from different
stops. malloc.c changes an arena under its mutex, but for a process of one thread (SINGLE_THREAD_P), and thread caches without any.
"""

from typing import Any, Dict, List, Optional, Sequence, Tuple

from gdbheapx.attempts import Contradictions
from gdbheapx.glibc import codes
from gdbheapx.glibc.arenas import Arena
from gdbheapx.glibc.context import Context
from gdbheapx.problems import Code, Diagnostic, Report

LOCKED_ONCE = "its mutex is held: a thread was changing this arena, so this may not be damage"
LOOK_AGAIN = "retry; if it persists, `thread apply all backtrace` in gdb shows which thread is inside malloc"


class Moments:
    """One look at one glibc for one purpose. `purpose` tells apart what is kept of an arena."""

    def __init__(self, context: Context, purpose: str, keep: bool = True) -> None:
        self._context, self._purpose, self._keep = context, purpose, keep
        self._found: Dict[int, List[Diagnostic]] = {}

    def kept(self, arena: Arena) -> Any:
        """What an earlier look has found whole of this arena; None if it must be read."""
        return self._context.attempts.kept.get(self._part(arena.address)) if self._keep else None

    def report(self, arena: Arena) -> Report:
        """Collects what does not add up in this arena."""
        return collector(self._found.setdefault(arena.address, []))

    def settle(self, arena: Arena, made: Any, keep: bool = True) -> None:
        """The arena was read: keep what was made of it, unless it contradicts itself."""
        found, attempts = self._found.get(arena.address, []), self._context.attempts
        if found:
            attempts.contradicts(self._part(arena.address), found, lambda seen: self._tell(arena, found, seen), bool(arena.state["mutex"]))
        elif self._keep and keep:
            attempts.keep(self._part(arena.address), made)

    def _part(self, address: int) -> Tuple[str, str, int]:
        return (self._context.glibc.id, self._purpose, address)

    def _tell(self, arena: Arena, found: List[Diagnostic], seen: Contradictions) -> None:
        context, count, is_locked = self._context, self._context.attempts.count, bool(arena.state["mutex"])
        stays = seen.stays(count)
        if (is_locked and context.target.kind == "live") or (count > 1 and not stays):
            held, often = ": a thread holds its mutex" if is_locked else "", " at each of %d looks" % count if count > 1 else ""
            context.report(
                codes.ARENA_CHANGING, arena.address, "%s is in the middle of a change%s%s" % (arena.title, often, held), LOOK_AGAIN
            )
            return
        for code, address, what, hint, _ in found:
            if count == 1 or (code, address, what) in stays:
                context.report(code, address, what, LOCKED_ONCE if is_locked else hint)


def collector(found: List[Diagnostic]) -> Report:
    """A report that collects."""

    def report(code: Code, address: Optional[int], what: str, hint: Optional[str], is_passing: bool = False) -> None:
        found.append(Diagnostic(code, address, what, hint, is_passing))

    return report


def passing_by(code: Code, what: str) -> Diagnostic:
    """What is said of all that another look did not show again."""
    return Diagnostic(code, None, what, LOOK_AGAIN)


def tell_if_it_stays(
    context: Context, part: str, found: List[Diagnostic], otherwise: Optional[Diagnostic], slight: Sequence[Diagnostic] = ()
) -> None:
    """For what belongs to no arena: told as it is if it was so at every look, else as `otherwise`, or not at all where that is None.

    `slight`: those that a living process shows now and then; one look at it proves nothing.
    """
    attempts = context.attempts
    if not found:
        return

    def tell(seen: Contradictions) -> None:
        once = attempts.count == 1
        stays = [
            one
            for one in found
            if (not (one in slight and context.target.kind == "live") if once else one[:3] in seen.stays(attempts.count))
        ]
        for one in stays:
            context.report(*one)
        if not stays and not once and otherwise is not None:
            context.report(*otherwise)

    attempts.contradicts((context.glibc.id, part), found, tell)
