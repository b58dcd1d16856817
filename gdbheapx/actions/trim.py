"""malloc_trim in a living process."""

from typing import Any, List, Optional

from gdbheapx.actions import inside, locks, preflight
from gdbheapx.actions.calling import Plan, Predicted, act
from gdbheapx.actions.refusal import Refusal
from gdbheapx.actions.troubles import Troubles
from gdbheapx.analysis.acted import Acted, Pages, total
from gdbheapx.glibc.allocator import GlibcMalloc
from gdbheapx.glibc.detect import Glibc
from gdbheapx.session import Session
from gdbheapx.target.gdb_target import GdbTarget, setting


class Trim(Plan):
    """malloc_trim(pad) of one glibc."""

    allocator = "glibc"

    def __init__(self, session: Session, target: GdbTarget, glibc: Glibc, pad: int) -> None:
        self.session, self.target, self.glibc, self.pad = session, target, glibc, pad
        self.shown, self.arguments = "malloc_trim(%d)" % pad, [pad]
        function = target.module_symbol(glibc.module, "malloc_trim")
        if function is None:
            raise Refusal("malloc_trim not found in %s" % glibc.module.name, "see `gdbheapx doctor`")
        self.address = function.address
        entry = target.module_symbol(glibc.module, "malloc")
        self.entries = [entry.address] if entry is not None else []

    def spans(self) -> List[inside.Span]:
        if self.glibc.pack is not None:
            what = "%s is read by a pack, which does not include malloc's functions" % self.glibc.module.name
            why = "so gdbheapx cannot determine whether a thread is inside one"
            raise Refusal("%s, %s" % (what, why), "trim --dry-run predicts what malloc_trim would return")
        found = inside.of_glibc(self.target, self.glibc.module)
        if found is None:
            raise Refusal("malloc's functions in %s were not found, so gdbheapx cannot determine whether a thread is inside one" % self.glibc.module.name)
        return found

    def locks(self) -> List[locks.Held]:
        return locks.glibc_locks(self.target, self.glibc)

    def predict(self) -> Predicted:
        troubles = Troubles()
        malloc = GlibcMalloc(self.target, self.glibc, self.session.kernel, self.session.budget, troubles.report)
        found = [one for _, one in malloc.predictions(self.pad)]
        malloc.bins()
        preflight.in_time(self.session.budget)
        if troubles.found:
            raise Refusal("the heap is damaged, and malloc_trim would abort the process (%s)" % troubles.found[0], "see `gdbheapx arenas` and `gdbheapx chunks`")
        return Predicted(sum(one.bytes for one in found), total([one.resident_bytes for one in found]), total([one.exclusive_bytes for one in found]))

    def pages(self) -> Optional[Pages]:
        return None


def run(session: Session, options: Any) -> Acted:
    """Trim the process; Refusal says why not."""
    target = preflight.live(session, "trimmed", "trim --dry-run predicts what malloc_trim would return")
    if options.pad < 0:
        raise Refusal("--pad requires a number of bytes, 0 or more")
    preflight.permitted(setting, call=True)
    return act(Trim(session, target, glibc_in_use(session), options.pad), options)


def glibc_in_use(session: Session) -> Glibc:
    """The glibc whose malloc the program calls, or the one that --allocator names."""
    owner = session.owner
    if session.allocator_id is None and owner is not None and owner.allocator != "glibc":
        if owner.allocator == "jemalloc":
            raise Refusal("jemalloc owns malloc here (%s): malloc_trim would do nothing for it" % owner.file, "use purge")
        raise Refusal("%s owns malloc here (%s): malloc_trim would do nothing for it" % (owner.allocator or "another allocator", owner.file), "use that allocator's own interface")
    if session.jemallocs().jemallocs and owner is None and session.allocator_id is None:
        raise Refusal("a jemalloc is present, and gdbheapx cannot determine which allocator owns malloc", "select one: --allocator glibc, or use purge")
    return session.glibc_malloc().glibc
