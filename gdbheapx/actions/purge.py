"""jemalloc's mallctl("arena.<i>.purge") or "arena.<i>.decay" in a living process."""

from typing import Any, List, Optional, Sequence

from gdbheapx.actions import hooks, inside, locks, preflight
from gdbheapx.actions.calling import Plan, Predicted, act
from gdbheapx.actions.refusal import Refusal
from gdbheapx.actions.troubles import Troubles
from gdbheapx.analysis.acted import Acted, Pages, pages_of, total
from gdbheapx.jemalloc.allocator import JemallocMalloc
from gdbheapx.jemalloc.detect import Jemalloc
from gdbheapx.jemalloc.tickers import BACKGROUND_NAME, BLIND, UNKNOWN
from gdbheapx.session import Session
from gdbheapx.target.gdb_target import GdbTarget, setting
from gdbheapx.target.standing import Standing

ALL = 4096
"""MALLCTL_ARENAS_ALL (jemalloc_macros.h.in), the same in every release of 5."""

WAITS = (202, 219)
"""futex, and its restart: what a background thread sleeps in between two rounds (x86-64)."""


class Purge(Plan):
    """One mallctl call of one jemalloc."""

    allocator = "jemalloc"
    warming = b"version\0"
    """CTL_RO_NL_GEN (ctl.c): takes no lock and bears null for what it would fill, which others, such as arenas.narenas up to 5.2.1, do not."""

    def __init__(self, session: Session, target: GdbTarget, found: Jemalloc, arena: Optional[int], what: str) -> None:
        self.session, self.target, self.found, self.arena, self.what = session, target, found, arena, what
        name = "arena.%d.%s" % (ALL if arena is None else arena, what)
        function = found.symbols.public("mallctl")
        if function is None:
            raise Refusal("mallctl not found in %s" % found.module.name, "see `gdbheapx doctor`")
        self.address = function.address
        self.shown = '%s("%s", 0, 0, 0, 0)' % (function.name, name)
        self.text, self.arguments = name.encode() + b"\0", [0, 0, 0, 0]
        entry = found.symbols.public("malloc")
        self.entries = [entry.address] if entry is not None else []
        self._read()

    def _read(self) -> None:
        """Everything anew: the process ran meanwhile."""
        self.troubles = Troubles()
        self.malloc = JemallocMalloc(self.target, self.found, self.session.kernel, self.session.budget, self.troubles.report)

    def spans(self) -> List[inside.Span]:
        found = inside.of_jemalloc(self.target, self.found.module, self.found.symbols.prefix, self.found.symbols.public_names.prefix)
        if found is None:
            raise Refusal("jemalloc's functions in %s were not found, so gdbheapx cannot determine whether a thread is inside one" % self.found.module.name)
        return found

    def locks(self) -> List[locks.Held]:
        self._read()
        held = locks.jemalloc_locks(self.malloc.context, self.malloc.arena_list())
        return held + [locks.Held("an arena (%s)" % one, None) for one in self.troubles.found]

    def predict(self) -> Predicted:
        rows = [row for row in self.malloc.arenas() if self.arena in (None, row.index)]
        preflight.in_time(self.session.budget)
        if self.arena is not None and not rows:
            raise Refusal("arena %d not found" % self.arena, "see `gdbheapx arenas`")
        if self.troubles.found:
            raise Refusal("jemalloc's structures are damaged, and a call could crash the process (%s)" % self.troubles.found[0], "see `gdbheapx arenas`")
        hooks.check(self.found, self.malloc, {row.index for row in rows})
        resident, exclusive = total([row.reclaimable_resident_bytes for row in rows]), total([row.reclaimable_exclusive_bytes for row in rows])
        return Predicted(sum(row.reclaimable_bytes or 0 for row in rows), resident, exclusive, self._pages(rows))

    def pages(self) -> Optional[Pages]:
        self._read()
        return self._pages([row for row in self.malloc.arenas() if self.arena in (None, row.index)])

    def _pages(self, rows: Sequence[Any]) -> Pages:
        return pages_of(rows, self.malloc.context.geometry.page_bytes)

    def waits_inside(self, thread: Standing) -> bool:
        return thread.name == BACKGROUND_NAME and thread.system_call in WAITS

    def suits(self, thread: Standing) -> Optional[str]:
        """Only a thread that jemalloc knows and that ticks: calling on one that only ever freed would make it blind."""
        seen = self.malloc.seen()
        for tsd, judgement in zip(seen.tsds.records, seen.judgements):
            if tsd.lwp != thread.lwp:
                continue
            if not tsd.is_nominal:
                return "%s does not use jemalloc like an ordinary thread (its tsd is %s)" % (thread.who, tsd.state or "unknown")
            if tsd.reentrancy_level:
                return "%s is inside jemalloc (reentrancy_level %d)" % (thread.who, tsd.reentrancy_level)
            if judgement.verdict in (BLIND, UNKNOWN):
                return "%s is %s" % (thread.who, judgement.verdict)
            return None
        return "%s has no readable tsd" % thread.who


def in_use(session: Session) -> Jemalloc:
    """The jemalloc that owns malloc, or the one that --allocator names; Refusal where there is none."""
    found = session.jemallocs()
    known = [one for one in found.jemallocs if session.allocator_id in (None, one.id)]
    if not known:
        for one in found.unread:
            raise Refusal(one.what, one.hint)
        owner = session.owner
        name = owner.allocator or "an unknown allocator" if owner is not None else "glibc"
        raise Refusal("no jemalloc in this process: %s owns malloc" % name, "use trim" if name == "glibc" else "use that allocator's own interface")
    return next((one for one in known if one.info().owns_malloc), known[0])


def run(session: Session, options: Any) -> Acted:
    """Purge; Refusal says why not."""
    target = preflight.live(session, "purged", "purge --dry-run predicts what a purge would return")
    preflight.permitted(setting, call=True)
    found = in_use(session)
    return act(Purge(session, target, found, options.arena, "decay" if options.decay else "purge"), options)
