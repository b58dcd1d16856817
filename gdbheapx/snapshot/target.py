"""A snapshot as a target: it has models and the graph of all blocks, and no memory."""

from typing import Any, Dict, Optional, Sequence

from gdbheapx import command
from gdbheapx.errors import HeapxError
from gdbheapx.inferior.base import Identity, Process, Usage, program_name
from gdbheapx.model import AllocatorInfo
from gdbheapx.problems import NOT_IN_SNAPSHOT
from gdbheapx.session import Session
from gdbheapx.snapshot.record import ELSEWHERE, Outcome, Reading, Record, opened


class WithoutMemory:
    """Has nothing but what it was given: everything else would be read from memory."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        raise HeapxError("a snapshot has no memory, and this needs some", ELSEWHERE, code=NOT_IN_SNAPSHOT)


class Infos(WithoutMemory):
    """Stands for the discovery of allocators."""

    def __init__(self, infos: Sequence[AllocatorInfo]) -> None:
        self._found = infos

    def infos(self) -> Sequence[AllocatorInfo]:
        """As the envelope shows them."""
        return self._found


class Snapshot(Usage, Process, WithoutMemory):
    """What the runner asks of a target, of a file."""

    kind = "snapshot"
    has_memory = False
    debugger_version: Optional[str] = None
    held_by_gdb, held_by_caller = True, False
    stop = still = None
    """It cannot be stopped."""

    def __init__(self, path: str, record: Optional[Record] = None) -> None:
        """`record`: what the file of this name has, where it was read before."""
        self.record: Record = record if record is not None else opened(path)
        head = self.record.head
        self.snapshot: str = path
        self.pid, self.executable = head.pid, head.executable
        self.ignored_bits = head.ignored_bits
        self.stopped_ms, self.stops = head.stopped_ms, head.stops
        self.discovery = Infos(head.allocators)

    def identity(self) -> Identity:
        """As it was when memory was read."""
        head = self.record.head
        program = head.program or program_name(None, "", head.executable)
        return Identity(program, head.command_line, head.host, head.as_of, head.uptime_s)

    def facts(self) -> Dict[str, Any]:
        """With when it was taken, and of what."""
        return {**Process.facts(self), "taken": self.record.head.taken, "taken_of": self.record.head.kind}

    def prepare(self, asked: command.Command, session: Session, options: command.Options) -> None:
        """The session for a command. HeapxError for one that needs memory."""
        check(asked, options)
        session.store = session.store or Reading(self.record, session, lambda: self.unpacked(session))
        self.record.outcomes.get(asked.name, Outcome()).tell(session)

    def unpacked(self, session: Session) -> Dict[str, Any]:
        """What commands share that need the graph. What was wrong with the look at all blocks was wrong with it."""
        from gdbheapx.analysis.census import find
        from gdbheapx.analysis.reachability import heap_graph
        from gdbheapx.snapshot import graph

        self.record.outcomes.get("census", Outcome()).tell(session)
        told = graph.told(session, self.record, self.snapshot)
        return {find.TOLD: told, heap_graph.REACH: told.reach}


def check(asked: command.Command, options: command.Options) -> None:
    """HeapxError for a command, or options of it, that no snapshot answers."""
    if not asked.snapshot:
        raise HeapxError("a snapshot does not answer `%s`: it has no memory" % asked.name, ELSEWHERE, code=NOT_IN_SNAPSHOT)
    if isinstance(asked.snapshot, str) and not getattr(options, asked.snapshot):
        raise HeapxError(
            "a snapshot answers `%s` only with --%s" % (asked.name, asked.snapshot), "add it; or " + ELSEWHERE, code=NOT_IN_SNAPSHOT
        )
    if asked.acts is not None and asked.acts(options):
        raise HeapxError("a snapshot is no process: nothing can be changed", "ask the process: --pid N", code=NOT_IN_SNAPSHOT)
    if options.allocator is not None:
        raise HeapxError("a snapshot has the allocators together", "take it with --allocator; or " + ELSEWHERE, code=NOT_IN_SNAPSHOT)
