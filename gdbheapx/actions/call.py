"""A call that gives memory back: which heap, whether it may be tried at all, then the call."""

from typing import Callable, NamedTuple, Optional, Sequence

from gdbheapx import allocators
from gdbheapx.actions import preflight
from gdbheapx.allocators.heap import Heap
from gdbheapx.allocators.plan import Plan
from gdbheapx.analysis.acted import Acted
from gdbheapx.command import Options
from gdbheapx.errors import Refusal
from gdbheapx.session import Session

OWN_INTERFACE = "use that allocator's own interface"


class Kind(NamedTuple):
    """One command that calls."""

    capability: str
    """The command, and the capability of heaps that has it."""
    done: str
    """For sentences: `trimmed`."""
    function: Optional[str]
    """Named where it would do nothing, because it serves only the malloc that the program calls; None: any heap of the sort will do."""


TRIM = Kind("trim", "trimmed", "malloc_trim")
PURGE = Kind("purge", "purged", None)
EVERY = (TRIM, PURGE)


def run(session: Session, options: Options, kind: Kind, plan: Callable[[Heap], Plan]) -> Acted:
    """Do it; Refusal says why not."""
    preflight.require_live(session, kind.done, "%s --dry-run predicts what a %s would return" % (kind.capability, kind.capability))
    from gdbheapx.actions.calling import act  # without gdb there is no such module, and the refusal was said
    from gdbheapx.inferior.gdb.target import setting

    preflight.require_permitted(setting, call=True)
    return act(session, plan(in_use(session, kind)), options)


def in_use(session: Session, kind: Kind) -> Heap:
    """The heap that is meant: --allocator's, else that of the malloc that the program calls, else the first; Refusal where none has the
    capability."""
    discovery, owner = session.discovery, session.discovery.owner
    copies = [one for one in discovery.copies() if session.allocator_id in (None, one.located.id)]
    able = [one for one in copies if kind.capability in one.allocator.known_capabilities]
    if session.allocator_id is None and kind.function is not None:
        sort = [one.name for one in discovery.with_capability(kind.capability)]
        if owner is not None and owner.allocator not in sort:
            name = owner.allocator or "another allocator"
            raise Refusal(
                "%s owns malloc here (%s): %s would do nothing for it" % (name, owner.file, kind.function), instead([owner.allocator])
            )
        others = sorted({one.allocator.name for one in copies} - set(sort))
        if owner is None and others:
            what = "%s is present, and gdbheapx cannot determine which allocator owns malloc" % " and ".join(others)
            raise Refusal(what, "select one: --allocator %s, or %s" % (sort[0], instead(others)))
    if not able:
        for unread in session.heaps.unread_with_capability(kind.capability):
            raise Refusal(unread.what, unread.hint)
        if kind.function is None:
            sort = [one.name for one in discovery.with_capability(kind.capability)]
            owns = ": %s owns malloc" % (owner.allocator or "an unknown allocator") if owner is not None else ""
            known = [owner.allocator] if owner is not None else [one.allocator.name for one in copies]
            raise Refusal("no %s in this process%s" % (" or ".join(sort), owns), instead(known))
        return session.heaps.one_with_capability(kind.capability)
    return session.heaps.open(next((one for one in able if one.located.owns_malloc), able[0]))


def instead(names: Sequence[Optional[str]]) -> str:
    """What there is for these allocators."""
    known = allocators.by_name()
    known_capabilities = [
        kind.capability
        for name in names
        if name is not None and name in known
        for kind in EVERY
        if kind.capability in known[name].known_capabilities
    ]
    return "use %s" % known_capabilities[0] if known_capabilities else OWN_INTERFACE
