"""A process, a core or a snapshot, asked from Python: gdbheapx.open(), and gdbheapx.current() in gdb. The command line uses the same.

Answers are records: their fields are those of JSON, with units in their names, addresses are numbers, and None is unknown. Errors are
HeapxError, whose line() has the cause and the next step. docs/reference/python-api.md says what stays the same.
"""

import logging
import os
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Callable, Dict, Generic, Iterator, List, Mapping, NamedTuple, Optional, Sequence, Set, TypeVar

from gdbheapx import command
from gdbheapx.allocators.session import Session
from gdbheapx.analysis.census.block import Block, Blocks
from gdbheapx.app import direct, runner
from gdbheapx.app.invocation import prepare_core
from gdbheapx.app.place import IN_GDB
from gdbheapx.common.errors import HeapxError, UsageError
from gdbheapx.common.global_options import GlobalOptions
from gdbheapx.common.model import AllocatorInfo, HistogramRow, Problem, ThreadCache
from gdbheapx.common.problems import NO_TARGET, SHELL_ONLY
from gdbheapx.common.stops import Reads
from gdbheapx.inferior.base import Target

if TYPE_CHECKING:
    from gdbheapx.allocators.records import HeapArenas
    from gdbheapx.analysis.census.block import Location
    from gdbheapx.analysis.census.find import Census
    from gdbheapx.analysis.overview import Overview
    from gdbheapx.analysis.pins import PinsAnswer
    from gdbheapx.analysis.reachability.leaks import Leaks
    from gdbheapx.analysis.reachability.owners import Owners
    from gdbheapx.analysis.reachability.refs import Refs
    from gdbheapx.snapshot.diff import Diff

__all__ = ["Answer", "Block", "Blocks", "Heap", "HeapxError", "Problem", "UsageError", "ask", "blocks", "current", "open"]

Data = TypeVar("Data")
NAME = "heap"
"""As errors name who asks."""
log = logging.getLogger("gdbheapx")
"""What a command line says on standard error: that a process will be stopped for long, and why."""
_RUNNING: Set[int] = set()
"""Those of processes that run which were asked, and are not closed: one process holds for all of them."""
NO_ANSWER = command.CommandAnswer(lambda: None, lambda style: [], read=True)
ROWS = ("split", "rows", "groups", "owners", "chains", "classes", "places", "suspects", "threads", "checks")
"""Fields with the rows that an answer is mainly about, the first that there is."""


class Rows(NamedTuple):
    """Result of an SQL query: column names and rows."""

    types: Mapping[str, str]
    """The columns, in DuckDB's words."""
    rows: Sequence[Mapping[str, Any]]


class Answer(Generic[Data]):
    """Result of one question: its records, and the problems that make it partial."""

    def __init__(self, found: runner.Found, is_finding: bool) -> None:
        self.data: Data = found.data
        """The answer itself: a record, a list of records, or the columns of blocks."""
        self.is_partial: bool = found.is_partial
        """Something is missing in it: `problems` says what and why."""
        self.is_finding: bool = is_finding
        """The command would end with exit code 3: a broken rule, a blind thread, more leaked than allowed."""
        self.problems: Sequence[Problem] = found.problems
        self.allocators: Sequence[AllocatorInfo] = found.allocators
        """Which allocators were found, with version and build-id."""
        self.target: Mapping[str, Any] = found.target
        """What was asked: kind, pid, program, host, time; core, snapshot; for how long it paused."""
        self.tool: Mapping[str, Any] = found.tool
        self._found = found

    @property
    def stopped_ms(self) -> Optional[float]:
        """Return the longest pause of the process in milliseconds: 0 if it was never stopped, None for a core."""
        told: Optional[float] = self.target["stopped_ms"]
        return told

    @property
    def rows(self) -> Sequence[Any]:
        """The records that it is mainly about: arenas, classes, groups of leaked blocks, owners."""
        data: Any = self.data
        if isinstance(data, Blocks):
            return data
        members = data if isinstance(data, Mapping) else data._asdict() if hasattr(data, "_fields") else {"rows": data}
        rows = next((members[name] for name in ROWS if isinstance(members.get(name), (list, tuple))), [data])
        return [row for heap in rows for row in heap.rows] if rows and hasattr(rows[0], "totals") else rows

    def document(self) -> Any:
        """The whole in the types that json knows, as --json has it: addresses are hex texts."""
        from gdbheapx.report.encodings import make_jsonable

        data: Any = self.data
        told = list(data) if isinstance(data, Blocks) else data
        parts = {"partial": self.is_partial, "problems": self.problems, "target": self.target, "allocators": self.allocators}
        return make_jsonable({"data": told, **parts, "tool": self.tool})

    def text(self, plain_bytes: bool = False) -> str:
        """Return the text of the command line. HeapxError for a listing, which is read while it is shown."""
        if not self._found.answer.read:
            raise UsageError("this answer has no text: it is read while it is shown", "use the command line, or `data`", code=SHELL_ONLY)
        answer, style = self._found.answer, command.TextStyle(plain_bytes, False)
        lines = [*answer.text(style), *("%s; %s" % (one.what, one.hint) if one.hint else one.what for one in self.problems)]
        return "\n".join([*lines, *(answer.ends(style, len(lines)) if answer.ends is not None else ())])

    def to_arrow(self) -> Any:
        """A pyarrow.Table of the rows. HeapxError where pyarrow is not installed."""
        from gdbheapx.report import encodings

        return encodings.make_arrow(self.rows)

    def to_pandas(self) -> Any:
        """A pandas.DataFrame of the rows. HeapxError where pandas is not installed."""
        from gdbheapx.report import encodings

        return encodings.make_pandas(self.rows)

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
        """Export the rows as an Arrow stream, for polars, DuckDB and others."""
        return self.to_arrow().__arrow_c_stream__(requested_schema)

    def _repr_html_(self) -> str:
        """Return a table of the rows for notebooks, or the text if the rows are no table."""
        from gdbheapx.report import encodings

        rows, suspects = self.rows, getattr(self.data, "suspects", ())
        if not encodings.is_table(rows):
            return encodings.wrap_pre(self.text())
        if suspects:
            from gdbheapx.report import reach_text

            suspects = [reach_text.describe_suspicion(suspect) for suspect in suspects]
        return encodings.make_html_table(rows, [one.what for one in self.problems], self.is_partial, suspects)

    def __repr__(self) -> str:
        about = "%d rows" % len(self.rows) + (", partial" if self.is_partial else "")
        return "<%s: %s>" % (type(self).__name__, about)


class Heap:
    """A process, core or snapshot. Nothing is read, and no process stopped, before it is asked something; each answer says how long the
    process stood still for it."""

    def __init__(
        self,
        opener: Callable[[], Optional[Target]],
        settings: runner.Settings = runner.Settings(),  # noqa: B008
        words: Sequence[str] = (),
        names: bool = True,
        short_stop: bool = False,
        name: str = NAME,
        runs: bool = False,
        path: Optional[str] = None,
        about: Sequence[str] = (),
        label: str = "the target of gdb",
    ) -> None:
        """Made by open() and current(). `runs`: it is a process that runs meanwhile; `path`: the snapshot's file; `about`: the options of
        a command line that asks the same; `label`: what it is."""
        self._opener, self._settings, self._words, self._name = opener, settings, list(words), name
        self._names, self._short_stop, self._runs, self._path = names, short_stop, runs, path
        self._about, self._label, self._allocators = about, label, ""
        self._target: Optional[Target] = None
        self._is_stopped = False
        self._told: List[Problem] = []
        """What was wrong with the stop."""

    def __repr__(self) -> str:
        """Name the target, and its allocators once they are known."""
        return "<%s of %s%s>" % (type(self).__name__, self._label, self._allocators)

    def __enter__(self) -> "Heap":
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        """Let go of files and, with the last one of a process that runs, of what holds others stopped. It can be asked again."""
        self._target = None
        if id(self) in _RUNNING:
            _RUNNING.discard(id(self))
            if not _RUNNING:
                from gdbheapx.inferior.live import keeper

                keeper.end_current_keeper()

    def report(self, deep: Optional[bool] = None) -> "Answer[Overview]":
        """Return the split of memory by owner, a verdict with its evidence, arenas and next steps. `deep`: read every used block
        (default: of cores with up to 2 GiB of heap).
        """
        return self._ask("report", *([] if deep is None else ["--deep" if deep else "--no-deep"]))

    def arenas(self) -> "Answer[List[HeapArenas]]":
        """Totals of each arena, by allocator: used, cached, free, and what a trim or purge would return."""
        return self._ask("arenas")

    def bins(self) -> Answer[List[Any]]:
        """Return free and used memory by bin or size class, under the allocator's own names."""
        return self._ask("bins")

    def tcache(self) -> Answer[List[ThreadCache]]:
        """Return the contents of each thread's cache."""
        return self._ask("tcache")

    def histogram(self) -> Answer[List[HistogramRow]]:
        """Blocks by size class."""
        return self._ask("chunks", "--histogram")

    def blocks(self, status: Optional[str] = None) -> Answer[Blocks]:
        """Every block of malloc's as columns (arrays), or those with this status (`used`, `free`, ..., as in `chunks`). A snapshot has
        those in use. Objects in a runtime's own pools (CPython's) are in census() and in `held_blocks` of query()."""
        from gdbheapx.analysis.census import block as model

        def run(session: Session, options: command.Options) -> command.CommandAnswer:
            found = model.read_blocks(session, status)
            return command.CommandAnswer(lambda: found, lambda style: [], read=True)

        return self.look("blocks", Reads.BLOCKS, run)

    def census(self, by: str = "signature", like: Optional[str] = None) -> "Answer[Census]":
        """Count blocks in use by class. `by`: `signature`, `size`, `owner`; `like`: only classes whose name contains this text."""
        return self._ask("census", "--by", by, *([] if like is None else ["--like", like]))

    def leaks(self) -> "Answer[Leaks]":
        """Return the blocks in use that no root reaches, and totals of those that are reached."""
        return self._ask("leaks")

    def owners(self, of: Optional[Any] = None, depth: int = 1, limit: int = 20) -> "Answer[Owners]":
        """Return the owners of used memory with retained and reachable bytes. `of`: a block's address, a global variable or a path."""
        words = ["--depth", str(depth), "--limit", str(limit)]
        return self._ask("owners", *([] if of is None else ["--of", _make_place(of)]), *words)

    def refs(self, address: int) -> "Answer[Refs]":
        """Return the chains of pointers from roots to a block, and its path if a runtime or symbols name one."""
        return self._ask("refs", _make_place(address))

    def whatis(self, address: int) -> "Answer[Location]":
        """Describe an address: its block, mapping, thread or variable."""
        return self._ask("whatis", _make_place(address))

    def pins(self) -> "Answer[PinsAnswer]":
        """Return the blocks in use that keep free memory from being returned to the system."""
        return self._ask("pins")

    def check(self) -> Answer[List[Any]]:
        """Broken rules of the allocator's structures; none is what one wants."""
        return self._ask("check")

    def query(self, sql: str) -> Answer[Rows]:
        """Run one SELECT over blocks, owners, arenas, classes, threads and leaks with DuckDB; not available inside gdb."""
        if self._name == IN_GDB:
            raise HeapxError("query is answered outside gdb", "gdbheapx.open(pid=...) or open(core=...) there", code=SHELL_ONLY)
        from gdbheapx.common import addon_loader

        asking = addon_loader.load_capability("rows", "query")
        found: List[runner.Found] = []

        def look(request: Any) -> Dict[str, Any]:
            def run(session: Session, options: command.Options) -> command.CommandAnswer:
                session.without_names = not self._names
                tables = asking.find_table_rows(session, request)
                return command.CommandAnswer(lambda: tables, lambda style: [], read=True)

            answer: Answer[Dict[str, Any]] = self.look("query", Reads.CENSUS, run)
            found.append(answer._found)
            return answer.data or {}

        question = _make_question("query", Reads.CENSUS, lambda session, options: NO_ANSWER)
        rows = asking.ask(sql, look, command.parser_of(question, self._name).parse_args(self._words).max_seconds)
        nothing = runner.Found(NO_ANSWER, None, False, [], runner.NOBODY["target"], [], runner.tool_member(None))
        return Answer((found[0] if found else nothing)._replace(data=rows), False)

    def diff(self, newer: "Heap") -> "Answer[Diff]":
        """Return the growth from this target to a newer one; both may be a snapshot, a core or a process."""
        with _as_file(self) as old:
            if newer._path is not None:
                return Heap(lambda: None, name=self._name)._ask("diff", old, newer._path)
            return newer._ask("diff", old)

    def snapshot(self, path: str) -> Answer[Any]:
        """Write a file that answers most questions without the process: open(snapshot=path). Readable only by you."""
        return self._ask("snapshot", os.fspath(path))

    def ask(self, name: str, *options: str) -> Answer[Any]:
        """Return the answer of any command in the types of JSON: ask("chunks", "--min-size", "64K")."""
        return self._ask(name, *options, as_json=True)

    def look(self, name: str, reads: Reads, run: Callable[[Session, command.Options], command.CommandAnswer]) -> Answer[Any]:
        """Run a function of this package on the session of one reading."""
        return self._perform(_make_question(name, reads, run))

    @contextmanager
    def stopped(self, max_s: float = 2.0) -> Iterator["Heap"]:
        """Ask several questions of one moment. The process is copied in one stop of at most `max_s` seconds and runs on, where there is
        room for a copy; else it is stopped until the block ends, at most for so long. What is read later is missing in its answer."""
        if not self._runs or self._is_stopped:  # it never runs, or stands still by now
            yield self
            return
        target = self._opener()
        assert target is not None
        _RUNNING.add(id(self))
        asked = _make_question("stopped", Reads.CENSUS, lambda session, options: NO_ANSWER)
        options = command.parser_of(asked, self._name).parse_args([*self._own_words(), "--max-stop", "%g" % max_s])
        try:
            run = runner.CommandRun(command.ParsedCommand(asked, options, None), self._host(lambda: target))
            self._told = list(run.hold(target).problems)
            self._target, self._is_stopped = target, True
            yield self
        finally:
            target.held_by_caller = False
            target.let_go()
            target.forget()
            self._target, self._is_stopped, self._told = None, False, []

    def _host(self, opener: Callable[[], Optional[Target]], keep: Any = None) -> runner.Host:
        def nowhere(text: str) -> None:
            pass

        about = self._about
        return runner.Host(self._name, nowhere, log.warning, opener, self._settings, keep=keep, tell=log.info, options=about)

    def _opened(self) -> Optional[Target]:
        """A core or snapshot is opened once, a process that runs again for each question: what is loaded may change."""
        if self._runs:
            _RUNNING.add(id(self))
        if self._target is None or (self._runs and not self._is_stopped) or self._name == IN_GDB:
            self._target = self._opener()
        return self._target

    def _ask(self, name: str, *options: str, as_json: bool = False) -> Answer[Any]:
        """The answer of a declared command."""
        command.load_commands(name)
        words = [name, *options]
        declared = command.find_command(name)
        if declared is not None:
            flags = {flag for argument in declared.arguments for flag in argument.flags}
            words += ["--no-names"] if "--no-names" in flags and not self._names else []
            words += self._own_words() if "--short-stop" in flags else self._words
        parsed = command.parse_command(words, self._name, _evaluate_in_gdb if self._name == IN_GDB else None)
        if parsed.help is not None or command.has_flag(words, "-o", "--output"):
            raise UsageError("%s: neither --help nor -o FILE is for scripts" % name, "read `data` of the answer")
        if parsed.command.repeats or parsed.command.renders is not None and parsed.command.renders(parsed.options):
            raise UsageError("%s is for the command line" % name, "run: gdbheapx %s" % name, code=SHELL_ONLY)
        return self._perform(parsed.command, parsed.options, as_json)

    def _own_words(self) -> List[str]:
        """The options of each question, and for a process that runs the consent to --short-stop."""
        return self._words + ["--short-stop", "--yes"] * (self._short_stop and self._runs and not self._is_stopped)

    def _perform(self, declared: command.Command, options: Any = None, as_json: bool = False) -> Answer[Any]:
        """Have the runner answer."""
        if options is None:
            options = command.parser_of(declared, self._name).parse_args(self._own_words())
        found: List[runner.Found] = []
        run = declared.run
        if as_json:
            declared = declared._replace(run=lambda session, given: _as_json(run(session, given)))
        ended = runner.run_parsed(command.ParsedCommand(declared, options, None), self._host(self._opened, found.append))
        if ended.error is not None:
            raise ended.error
        told = found[0]
        names = ["%s %s" % (one.name, one.version) if one.version else one.name for one in told.allocators]
        self._allocators = ", " + " + ".join(names) if names else self._allocators
        problems = [*self._told, *(one for one in told.problems if one not in self._told)]
        return Answer(told._replace(problems=problems, is_partial=told.is_partial), ended.code == runner.FINDING)


def open(
    *,
    pid: Optional[int] = None,
    core: Optional[str] = None,
    snapshot: Optional[str] = None,
    exe: Optional[str] = None,
    sysroot: Optional[str] = None,
    debug_dirs: Sequence[str] = (),
    debug_info: bool = True,
    names: bool = True,
    allocator: Optional[str] = None,
    short_stop: bool = False,
    max_stop_s: Optional[float] = None,
    max_seconds: Optional[float] = None,
    read_swap: bool = False,
) -> Heap:
    """Open a process, a core (also a compressed one) or a snapshot without gdb. Options are those of the command line; `short_stop`
    agrees to the two system calls that a process then makes. No process is stopped or read before the first question.
    """
    given = [name for name, value in (("pid", pid), ("core", core), ("snapshot", snapshot)) if value is not None]
    if len(given) != 1:
        cause = "%s cannot be combined" % " and ".join(given) if given else "open() requires a process, a core or a snapshot"
        raise UsageError(cause, "give one of pid=N, core=FILE, snapshot=FILE", code=NO_TARGET)
    paths = [None if path is None else os.fspath(path) for path in (core, snapshot, exe, sysroot)]
    asked = GlobalOptions(pid, paths[0], paths[1], paths[2], None, paths[3], list(debug_dirs), not debug_info, False)
    words: List[str] = []
    for flag, value in (("--allocator", allocator), ("--max-stop", max_stop_s), ("--max-seconds", max_seconds)):
        words += [] if value is None else [flag, str(value)]
    words += ["--read-swap"] if read_swap else []

    def opener() -> Optional[Target]:
        refused = prepare_core(asked.core) if asked.core is not None else None
        if refused is not None:
            raise refused
        return direct.open_any(asked)

    label = "process %d" % pid if pid is not None else "%s %s" % (("core", core) if core is not None else ("snapshot", snapshot))
    made = Heap(
        opener,
        runner.Settings(debug_directories=asked.debug_dirs),
        words,
        names,
        short_stop,
        NAME,
        pid is not None,
        paths[1],
        asked.of_target(),
        label,
    )
    if pid is None:
        made._opened()  # what is no core or snapshot is told now
    else:
        from gdbheapx.inferior.live import procfs

        procfs.check_alive(pid)
        made._label += " (%s)" % (procfs.thread_name(pid, pid) or "?")
    return made


def current() -> Heap:
    """The process or core that gdb has selected, in gdb's own Python. The process must be stopped, as gdb leaves it."""
    return Heap(lambda: _selected_target(True), name=IN_GDB)


def ask(command: str, *options: str) -> Answer[Any]:
    """Inside gdb, return the answer of `heapx COMMAND OPTIONS --json`, as current().ask() does; also for commands that need no process."""
    return Heap(lambda: _selected_target(False), name=IN_GDB).ask(command, *options)


def allocators_found() -> List[str]:
    """Inside gdb, return the ids of the allocators in the target without walking a heap."""
    heap = Heap(lambda: _selected_target(True), name=IN_GDB)
    return [info.id for info in heap.look("allocators", Reads.STATE, lambda session, options: NO_ANSWER).allocators]


def blocks(status: Optional[str] = None, allocator: Optional[str] = None) -> Iterator[Block]:
    """Inside gdb, yield every block, or those with one status, by address in each allocator. HeapxError if anything could not be read."""
    words = [] if allocator is None else ["--allocator", allocator]
    answer = Heap(lambda: _selected_target(True), words=words, name=IN_GDB).blocks(status)
    yield from answer.data
    for problem in answer.problems if answer.is_partial else ():
        raise HeapxError("not all blocks could be read: " + problem.what, problem.hint, code=problem.code)


def _make_question(name: str, reads: Reads, run: Callable[[Session, command.Options], command.CommandAnswer]) -> command.Command:
    """A question that no command line asks."""
    return command.Command(name, command.SHORT_STOP, run, name, True, True, reads=lambda options: reads, snapshot=True)


def _as_json(answer: command.CommandAnswer) -> command.CommandAnswer:
    import json

    from gdbheapx.report import encodings as documents

    return answer._replace(record=lambda: json.loads(documents.format_json(answer.data())))


def _make_place(place: Any) -> str:
    return "0x%x" % place if isinstance(place, int) else str(place)


@contextmanager
def _as_file(heap: Heap) -> Iterator[str]:
    """A file that `diff` takes: the snapshot itself, or one that is taken now."""
    if heap._path is not None:
        yield heap._path
        return
    import tempfile

    with tempfile.TemporaryDirectory(prefix="gdbheapx-") as folder:
        path = os.path.join(folder, "old.snap")
        heap.snapshot(path)
        yield path


def _evaluate_in_gdb(expression: str) -> int:
    """gdb's."""
    from gdbheapx.inferior.gdb import target as expressions

    return expressions.resolve_expression(expression)


def _selected_target(needs_target: bool = True) -> Any:
    """gdb's target; None without one for a command that needs none."""
    try:
        from gdbheapx.inferior.gdb import target
    except ImportError:
        raise HeapxError("this Python does not run inside gdb", "outside gdb: gdbheapx.open(core=FILE) or open(pid=N)", code=NO_TARGET)
    runner.set_debugger_version(target.read_gdb_version())
    try:
        return target.open_selected_target()
    except target.NoTarget:
        if needs_target:
            raise
        return None
