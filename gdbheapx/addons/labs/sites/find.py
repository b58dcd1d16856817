"""Entry for commands: the functions that may have allocated the blocks of some rows of the census."""

from typing import Optional, Sequence

from gdbheapx.addons.labs.sites.code import Read, import_capstone, read_object_code
from gdbheapx.addons.labs.sites.join import join_sites
from gdbheapx.addons.labs.sites.scan import scan_code
from gdbheapx.analysis.addon_answers import Joined
from gdbheapx.analysis.census.find import CensusRow, LabelSet
from gdbheapx.analysis.census.world import World
from gdbheapx.budget import allowed_bytes
from gdbheapx.errors import HeapxError
from gdbheapx.hints import hint_again
from gdbheapx.problems import NOT_COPIED, NOT_IN_SNAPSHOT
from gdbheapx.session import Session


def require_code_reader(session: Session) -> None:
    """Before a process is stopped for it: HeapxError where there can be no answer."""
    if not session.target.has_memory:
        raise HeapxError("a snapshot has no code", "ask the process or its core: %s" % hint_again(), code=NOT_IN_SNAPSHOT)
    import_capstone()


def find_sites(session: Session, rows: Sequence[CensusRow], labels: Optional[LabelSet], world: World) -> Joined:
    """Return the functions that may have allocated the blocks of these rows. All is read from the copy of the process that was made
    during its stop, while the process runs on. `labels`: the labels of its blocks; None where there was no room for them. HeapxError where
    there is no copy, since reading code takes longer than the process may be paused, or no room for code.
    """
    target = session.target
    if target.kind == "live" and not (target.is_kept or target.held_by_caller or getattr(target, "held_by_gdb", True)):
        what = "there was no room for a copy of the process, and reading its code would pause it for too long"
        raise HeapxError(what, "allow more memory here, or ask of a core of it (gcore PID)", code=NOT_COPIED)
    return join_sites(rows, labels, world, scan_code(target, session.budget, world.constant(_read_code_of)))


def _read_code_of(world: World) -> Read:
    return read_object_code(world.target, allowed_bytes() - world.session.copied_bytes)
