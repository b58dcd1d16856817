"""A snapshot as a target: it answers commands from what was kept, and says which need memory."""

import functools
from typing import AbstractSet, Any, Dict, List, Optional, Sequence

from gdbheapx import command, loader, parse, problems
from gdbheapx.analysis.census import find
from gdbheapx.analysis.reach import look
from gdbheapx.errors import HeapxError
from gdbheapx.model import AllocatorInfo
from gdbheapx.problems import NOT_IN_SNAPSHOT, Code, Complaint
from gdbheapx.session import Session
from gdbheapx.snapshot import graph
from gdbheapx.snapshot.record import OF_GRAPH, Reading, Record, Recorded, opened
from gdbheapx.snapshot.take import BY_ONE_LOOK, STANDING

FREE = {
    "census": {"by", "like", "limit"},
    "pins": {"limit", "no_owners"},
    "leaks": {"limit", "fail_on_leak"},
    "owners": {"of", "depth", "limit"},
    "export": {"format", "of"},
}
"""Options of commands whose answer is made again: any value will do. Others must be as they were when the snapshot was taken."""
BY_GRAPH = {
    **{name: FREE[name] for name in ("owners", "export")},
    "leaks": FREE["leaks"] | {"list", "weak", "interior_holds"},
    "refs": {"address", "depth", "limit"},
    "whatis": {"address", "holders"},
}
"""The same where the snapshot has the graph of all blocks."""
ALONE = ("refs", "whatis")
"""Of them, those that are not run when a snapshot is taken."""
ALSO = {"report": {"deep", "page", "html"}}
"""Options of other commands that ask for no more than there is: it is looked at every block when a snapshot is taken."""
ASKED_FOR = {"report": ("page",)}
"""Members of an answer that are there only with the option of that name."""
MODELS = {"export": "census"}
"""Commands that are not run when a snapshot is taken, and whose model they show."""
OF_OTHERS = ("query",)
"""Commands that ask others for what they show."""
COMMON = {"json", "bytes", "output", "max_seconds", "max_stop", "traceback"}
ELSEWHERE = "ask the process or its core: --pid N or --core FILE"


class Infos:
    """Stands for the discovery of allocators."""

    def __init__(self, found: Sequence[AllocatorInfo]) -> None:
        self._found = found

    def infos(self) -> Sequence[AllocatorInfo]:
        """As the envelope shows them."""
        return self._found

    def confirm(self) -> bool:
        """Nothing has changed."""
        return True


class Replay:
    """What the runner asks of a target, of a file. Everything else is memory, and there is none."""

    kind = "snapshot"
    debugger_version: Optional[str] = None
    held_by_gdb = True
    core_path: Optional[str] = None
    stop = still = None
    """It cannot be stopped."""

    def __init__(self, path: str) -> None:
        self.record: Record = opened(path)
        head = self.record.head
        self.snapshot = path
        self.pid, self.executable = head.pid, head.executable
        self.taken, self.taken_of = head.taken, head.kind
        self.stopped_ms, self.stops = head.stopped_ms, head.stops
        self.discovery = Infos(head.allocators)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        raise HeapxError("a snapshot has no memory, and this needs some", ELSEWHERE, code=NOT_IN_SNAPSHOT)

    def problems(self) -> List[Complaint]:
        """What was wrong stands in the answers."""
        return []

    def let_go(self) -> None:
        """Nothing is held."""

    def has_ended(self) -> bool:
        """A file does not."""
        return False

    def swapped_in_bytes(self) -> Optional[int]:
        """Nothing is read."""
        return None

    def answer(self, asked: command.Command, session: Session, options: command.Options) -> command.Answer:
        """What the command said, or says of the models. HeapxError where it needs memory, or said so itself."""
        if asked.name in OF_OTHERS:
            return asked.run(session, options)
        by_graph = asked.name in BY_GRAPH and graph.MODEL in self.record.models
        found = self.record.answers.get(MODELS.get(asked.name, asked.name))
        if found is None and by_graph:
            found = Recorded()
        if found is None:
            raise HeapxError("a snapshot does not answer `%s`: it has no memory" % asked.name, ELSEWHERE, code=NOT_IN_SNAPSHOT)
        free = free_of(asked.name, by_graph)
        if asked.name not in ALONE:
            _check(asked, options, free)
        if found.error is not None and not (by_graph and asked.name in OF_GRAPH):
            raise HeapxError(found.error, found.hint, code=Code.of(found.code or problems.NO_ANSWER))
        for one in found.problems if found.error is None else ():
            session.problem(Code.of(one.code), one.where, one.what, one.hint, partial=found.partial)
        if free:
            session.store = Reading(self.record.models, functools.partial(self._told, session) if by_graph else None)
            return asked.run(session, options)
        return command.Answer(
            lambda: _without(found.data, [name for name in ASKED_FOR.get(asked.name, ()) if not getattr(options, name)]),
            lambda style: found.plain if style.plain_bytes else found.lines,
            finding=found.finding,
            read=True,
            document=found.document,
        )

    def told(self, session: Session) -> Optional[find.Told]:
        """All blocks in use with their graph; None where the snapshot has none."""
        return graph.told(session, self.record, self.snapshot) if graph.MODEL in self.record.models else None

    def _told(self, session: Session) -> Dict[str, Any]:
        """What commands share that need the graph."""
        told = graph.told(session, self.record, self.snapshot)
        return {find.TOLD: told, look.REACH: told.reach}


def free_of(name: str, has_graph: bool) -> AbstractSet[str]:
    """Options of a command that may have any value."""
    found: Dict[str, AbstractSet[str]] = {**FREE, **(BY_GRAPH if has_graph else {})}
    return found.get(name, frozenset())


def _without(data: Any, members: Sequence[str]) -> Any:
    return {name: one for name, one in data.items() if name not in members} if members and isinstance(data, dict) else data


def _check(asked: command.Command, options: command.Options, any_value: AbstractSet[str]) -> None:
    """HeapxError for options that would give another answer."""
    as_taken = taken_with(MODELS.get(asked.name, asked.name))
    for name, value in vars(options).items():
        free = name in any_value or name in ALSO.get(asked.name, ()) or name in COMMON
        if free or value == as_taken.get(name):
            continue
        flag = "--" + name.replace("_", "-")
        if value in (None, False, []):
            raise HeapxError("a snapshot answers `%s` only with %s" % (asked.name, flag), "add it; or " + ELSEWHERE, code=NOT_IN_SNAPSHOT)
        if name == "allocator":
            raise HeapxError("a snapshot has the allocators together", "take it with --allocator; or " + ELSEWHERE, code=NOT_IN_SNAPSHOT)
        raise HeapxError("a snapshot does not answer `%s` with %s" % (asked.name, flag), "omit it; or " + ELSEWHERE, code=NOT_IN_SNAPSHOT)


def is_answered(line: str) -> bool:
    """A snapshot answers this command line, unless it was taken where that could not be."""
    try:
        parsed = parse.parse(line.split(), "gdbheapx")
        if parsed.command.name in ALONE:
            return True
        if MODELS.get(parsed.command.name, parsed.command.name) not in {run.words[0] for run in (*STANDING, *BY_ONE_LOOK)}:
            return False
        _check(parsed.command, parsed.options, free_of(parsed.command.name, True))
    except HeapxError:
        return False
    return True


def taken_with(name: str) -> Dict[str, Any]:
    """Options of a command when a snapshot is taken."""
    run = next(one for one in (*STANDING, *BY_ONE_LOOK) if one.words[0] == name)
    loader.load_commands(name)
    return dict(vars(parse.parse(run.words, "gdbheapx").options))
