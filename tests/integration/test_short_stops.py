"""Between stop and release nothing is opened, imported or looked up that could have been before; after it nothing of the process is read.

What looks into blocks stops a process only to copy it, or says before the stop that there is no room for a copy.

Files: app/stopping.py, inferior/elf/link_map.py.
"""

import json
import re
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Callable, Dict, Iterator, List

import pytest

import gdbheapx
from gdbheapx.allocators.session import Session
from gdbheapx.app import runner
from gdbheapx.command import CommandAnswer, Options, load_commands
from gdbheapx.common import stops
from gdbheapx.inferior import target as elf_target
from gdbheapx.inferior.elf import file as elf
from gdbheapx.inferior.elf import link_map
from gdbheapx.inferior.live import source, stopper
from tests.support.jemallocs import start
from tests.support.processes import Lasting, Process, Stage
from tests.support.tool import alone

pytestmark = pytest.mark.image  # what its Python imports when

COMMANDS = (
    "report", "doctor", "arenas", "chunks --histogram", "chunks --limit 10", "chunks", "bins", "tcache", "malloc-info", "malloc-stats",
    "tunables", "trim --dry-run", "tickers", "decay", "purge --dry-run", "census", "pins", "pins --no-owners", "leaks", "leaks --weak",
    "owners", "refs 4096", "watch --every 0.01 --times 2 --exact", "export --format folded", "export --format pprof -o /dev/null",
    "export --format folded --of census", "export --format csv", "export --format csv --of census",
)

PAIRS = [
    (command, program, ("text", "json")[(number + turn) % 2])
    for number, command in enumerate(COMMANDS)
    for turn, program in enumerate(("glibc", "jemalloc"))
]
"""Each command of each allocator and in each form; both allocators have both forms."""

LOOKUPS = ((elf.ElfFile, "symbols"), (elf.ElfFile, "names_ending"), (elf.ElfFile, "names_starting"), (elf.ElfFile, "every_symbol"), (link_map.Loaded, "lookup"))
"""Every way into a symbol table."""


class Watch:
    """Notes what happens while a process stands still."""

    def __init__(self) -> None:
        self.is_armed = self.is_over = False
        self.seen: List[str] = []
        sys.addaudithook(self._hook)

    def _hook(self, event: str, arguments: Any) -> None:
        if not self.is_armed:
            return
        if event == "open" and not re.match(r"/proc/(self|\d+)/", str(arguments[0])):
            self.seen.append("open %s" % (arguments[0],))
        elif event == "import" and arguments[0] not in sys.modules:
            self.seen.append("import %s" % arguments[0])

    def note_reading(self, original: Callable[..., Any]) -> Callable[..., Any]:
        """The method, with a note when it is called after the process was let go: what it reads is of another moment, and not of the copy."""

        def noted(*arguments: Any, **named: Any) -> Any:
            if self.is_over:
                self.seen.append("read after the stop %s" % (arguments[1:],))
            return original(*arguments, **named)

        return noted

    def note(self, name: str, original: Callable[..., Any]) -> Callable[..., Any]:
        """The method, with a note each time it is called."""

        def noted(*arguments: Any, **named: Any) -> Any:
            if self.is_armed:
                self.seen.append("%s %s" % (name, arguments[1:]))
            return original(*arguments, **named)

        return noted

WATCH: "List[Watch]" = []
"""One for the life of this interpreter: an audit hook cannot be taken away."""


@pytest.fixture
def watch(monkeypatch: pytest.MonkeyPatch) -> Iterator[Watch]:
    """Armed while a process is stopped."""
    if not WATCH:
        WATCH.append(Watch())
    one = WATCH[0]
    one.seen, one.is_armed, one.is_over = [], False, False
    monkeypatch.setattr(source.LiveMemory, "_read_living", one.note_reading(source.LiveMemory._read_living))
    for kind, name in LOOKUPS:
        monkeypatch.setattr(kind, name, one.note(name, getattr(kind, name)))
    stop, let_go = stopper.Stopper.stop, stopper.Stopper.let_go

    def armed(self: stopper.Stopper) -> None:
        stop(self)
        one.seen = [what for what in one.seen if not what.startswith("read after")]  # for this look, which reads all of it again
        one.is_armed, one.is_over = True, False

    def disarmed(self: stopper.Stopper) -> None:
        one.is_armed, one.is_over = False, True
        let_go(self)

    monkeypatch.setattr(stopper.Stopper, "stop", armed)
    monkeypatch.setattr(stopper.Stopper, "let_go", disarmed)
    yield one
    one.is_armed = one.is_over = False


def ask(pid: int, words: List[str]) -> runner.CommandEnd:
    """One command on the process, in this interpreter and without gdb."""
    load_commands()
    host = runner.Host("gdbheapx", lambda text: None, lambda line: None, lambda: elf_target.open_elf_target(pid=pid), runner.Settings())
    return runner.run_command_line([*words, "--max-stop", "60"], host)  # what is noted takes time


@pytest.mark.parametrize("program", ["glibc", "jemalloc"])
def test_nor_for_tables(lasting: Lasting, watch: Watch, live: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, program: str) -> None:
    """The same of the look that `query` takes, with every table that there is; one takes a library that takes code apart."""
    table_rows = pytest.importorskip("gdbheapx.addons.views.query.table_rows", reason="the add-on views was deleted")
    tables = [table.name for table in table_rows.TABLES if table.name != table_rows.SITES or find_spec("capstone") is not None]
    process = lasting.of(live, start, "preload", "shapes", "leak") if program == "jemalloc" else lasting.of(live, Stage.start, "recorder", "9", "20000", "3")
    with open(tmp_path / "rows", "w+b") as rows, open(tmp_path / "signed", "w+b") as signed:
        wanted = table_rows.LookRequest(tables, rows.fileno(), signed.fileno())
        monkeypatch.setenv(table_rows.VARIABLE, table_rows.encode_request(wanted))
        ended = ask(process.pid, ["query", "--json"])
    assert ended.code in (0, 4), ended
    assert watch.seen == [] and (tmp_path / "rows").stat().st_size > 10_000


@pytest.mark.parametrize("program", ["glibc", "jemalloc"])
def test_check_opens_and_imports_nothing(lasting: Lasting, watch: Watch, live: str, program: str) -> None:
    """Of a check that its stop must not wait for a file either; symbols, whose tables are there by then, are looked up by threads' frames."""
    process = lasting.of(live, start, "preload", "shapes", "leak") if program == "jemalloc" else lasting.of(live, Stage.start, "recorder", "9", "20000", "3")
    ended = ask(process.pid, ["check"])
    assert ended.code in (0, 4) and "internal error" not in (ended.line or ""), ended
    assert [what for what in watch.seen if what.startswith(("open", "import"))] == []


@pytest.mark.parametrize("command, program, form", PAIRS)
def test_nothing_is_looked_for_in_a_stop(lasting: Lasting, watch: Watch, live: str, tmp_path: Path, program: str, command: str, form: str) -> None:
    """No file but those of processes and threads in /proc is opened, no module imported, no symbol looked up."""
    process = lasting.of(live, start, "preload", "shapes", "leak") if program == "jemalloc" else lasting.of(live, Stage.start, "recorder", "9", "20000", "3")
    ended = ask(process.pid, [*command.split(), *(["--json"] if form == "json" else [])])
    assert ended.code in (0, 1, 4) and "internal error" not in (ended.line or ""), ended
    assert watch.seen == []


def test_memory_beyond_a_mapping(lasting: Lasting, watch: Watch, live: str) -> None:
    """A read over the end of a mapping ends there, and asks nothing of the process that runs on."""
    process = lasting.of(live, Stage.start, "recorder", "9", "20000", "3")

    def read_over_the_end(session: Session, options: Options) -> CommandAnswer:
        end = next(mapping.end for mapping in session.target.mappings() if mapping.name == "[heap]")
        count = len(session.target.read_prefix(end - 100, 4096))
        return CommandAnswer(lambda: count, lambda style: [], read=True)

    assert gdbheapx.open(pid=process.pid).look("over-the-end", stops.Reads.CENSUS, read_over_the_end).data == 100
    assert watch.seen == []

LOOKS = ("leaks", "owners", "census", "pins", "check")
NO_ROOM = {"GDBHEAPX_MEMORY": "24000000"}
"""Enough for what each of these makes of a small heap, too little for a copy of it as well."""


def looked(process: Process, live: str, words: str, env: Dict[str, str]) -> Any:
    """The envelope, and the lines of errors, without those that say how far a look is that takes long."""
    outcome = alone(process.target(live), words, "--json", "--max-stop", "10", env=env)
    assert outcome.code in (0, 3), (outcome.stdout[-1500:], outcome.stderr)
    return json.loads(outcome.stdout), [line for line in outcome.stderr.splitlines() if " so far" not in line]


def codes(envelope: Any) -> List[str]:
    """Of what it notes."""
    return [one["code"] for one in envelope["problems"]]


@pytest.mark.parametrize("words", LOOKS)
def test_the_copy_answers_as_the_process(lasting: Lasting, live: str, words: str) -> None:
    """Both ways see the same of a process that does nothing meanwhile; only the one without a copy says so, before the stop and in the answer."""
    process = lasting.of(live, Stage.start, "recorder", "2", "50000", "5")
    copied, nothing = looked(process, live, words, {})
    stood, said = looked(process, live, words, NO_ROOM)
    assert copied["data"] == stood["data"]
    assert "not-copied" not in codes(copied) and not nothing
    assert "not-copied" in codes(stood) and len(said) == 1 and "no room for a copy" in said[0]
    assert stood["partial"] == copied["partial"]


def test_totals_make_none(lasting: Lasting, live: str) -> None:
    """`arenas` needs no room, and says nothing of it."""
    process = lasting.of(live, Stage.start, "recorder", "2", "50000", "5")
    told, said = looked(process, live, "arenas", NO_ROOM)
    assert "not-copied" not in codes(told) and not said
