"""gdbheapx/app/runner.py, gdbheapx/command and report/: from a command line to an answer, without gdb."""

import json
import os
import stat
from pathlib import Path
from typing import Any, Iterator, List, Tuple

import pytest

from gdbheapx import command
from gdbheapx.app import runner
from gdbheapx.command import CommandAnswer, JsonLines, output
from gdbheapx.common import budget, global_options
from gdbheapx.common.budget import WORK, TooMuchWork, WorkCounter
from gdbheapx.common.errors import Busy, HeapxError, UnreadableMemory, UsageError
from gdbheapx.common.model import Problem, TargetAddress
from gdbheapx.common.problems import BUSY, CUT, MEMORY_UNREADABLE, WORK_LIMIT
from gdbheapx.report import text


@pytest.fixture
def declare(monkeypatch: pytest.MonkeyPatch) -> Any:
    """declare(function): a command `probe` with one option that runs the function."""

    def make(run: Any, **how: Any) -> None:
        command.load_commands()  # into the table that stays
        monkeypatch.setattr(command, "COMMANDS", {})
        number = command.declare_argument("--number", type=int, default=0, help="a number")
        command.declare_command("probe", [number], needs_target=False, help="A probe.", **how)(run)

    return make


def ask(*words: str, refuse: Any = None) -> Tuple[runner.CommandEnd, str]:
    """Run a command line with a host of lists."""
    out: List[str] = []

    def opened() -> None:
        if refuse is not None:
            raise refuse

    ended = runner.run_command_line(words, runner.Host("heapx", out.append, out.append, opened, runner.Settings()))
    return ended, "".join(out)


def test_text_and_json(declare: Any) -> None:
    """The same answer comes as lines of text, or as one envelope; records become objects, addresses hex strings, unknown null."""
    declare(
        lambda session, options: CommandAnswer(
            lambda: {"number": options.number, "at": TargetAddress(255), "row": Problem(CUT, None, "w", None)}, lambda style: ["one", "two"]
        )
    )
    assert ask("probe") == (runner.CommandEnd(0), "one\ntwo\n")
    ended, text_ = ask("probe", "--number", "7", "--json")
    envelope = json.loads(text_)
    assert ended.code == 0 and envelope["data"] == {"number": 7, "at": "0xff", "row": {"code": "stopped-early", "where": None, "what": "w", "hint": None}}
    assert {"schema", "command", "tool", "target", "allocators", "partial", "problems"} <= set(envelope)


@pytest.mark.parametrize("words", [("probe",), ("probe", "--json")], ids=" ".join)
def test_an_answer_does_not_stand_behind_its_progress(declare: Any, monkeypatch: pytest.MonkeyPatch, words: Tuple[str, ...]) -> None:
    """What is written while the terminal shows how far the answer is begins in a line that is empty, each time."""
    out: List[str] = []
    monkeypatch.setattr(budget, "terminal_line", lambda: out.append)
    monkeypatch.setattr(budget, "FIRST_SECONDS", 0)
    monkeypatch.setattr(budget, "REDRAW_S", 0)

    def run(session: Any, options: Any) -> CommandAnswer:
        def rows() -> Iterator[str]:
            for number in range(3):
                session.budget.progress.stage = "reading"
                session.budget.progress.tick()
                yield "%d" % number

        return CommandAnswer(lambda: {"rows": JsonLines(rows())}, lambda style: rows())

    declare(run)
    assert runner.run_command_line(words, runner.Host("heapx", out.append, out.append, lambda: None, runner.Settings())).code == 0
    told = [place for place, text in enumerate(out) if text.startswith("reading, ")]
    assert told and all(out[place + 1] == "" or out[place + 1].startswith("reading, ") for place in told)


@pytest.mark.parametrize("how, count", [({}, 3), ({"exact": True}, 1), ({"document": True}, 1), ({"live": True}, 1)], ids=str)
def test_whose_lines_a_terminal_breaks(declare: Any, how: Any, count: int) -> None:
    """Those of people: not what another program would write, reads, or gets line by line."""
    out: List[str] = []
    declare(lambda session, options: CommandAnswer(lambda: 0, lambda style: ["seven " * 20], **how))
    host = runner.Host("heapx", out.append, out.append, lambda: None, runner.Settings(), screen=output.Screen(50, True, wraps=True))
    assert runner.run_command_line(["probe"], host).code == 0 and len("".join(out).splitlines()) == count


def test_a_refusal_is_one_line(declare: Any) -> None:
    """An error is one line with exit code 1; with --json the envelope has data null."""

    def run(session: Any, options: Any) -> CommandAnswer:
        raise HeapxError("it is broken.", "mend it", code=BUSY)

    declare(run)
    ended, text_ = ask("probe")
    assert (ended.code, ended.line, text_) == (1, "it is broken; mend it", "")
    ended, text_ = ask("probe", "--json")
    assert ended.code == 1 and json.loads(text_)["data"] is None
    assert json.loads(text_)["error"] == {"code": "busy", "message": "it is broken", "hint": "mend it"}


def failing(error: BaseException) -> Any:
    """A command that ends so."""

    def run(session: Any, options: Any) -> CommandAnswer:
        raise error

    return run


@pytest.mark.parametrize(
    "error, code",
    [
        (ZeroDivisionError("x"), "internal-error"),
        (MemoryError(), "out-of-memory"),
        (KeyboardInterrupt(), "interrupted"),
        (UsageError("wrong", "right"), "usage"),
        (Busy("busy"), "busy"),
        (UnreadableMemory(16), "memory-unreadable"),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, BaseException) else "",
)
def test_every_failure_has_a_code(declare: Any, tmp_path: Path, error: BaseException, code: str) -> None:
    """Whatever ends a command: one envelope with an error, on standard output or in the file of -o."""
    declare(failing(error))
    ended, text_ = ask("probe", "--json")
    assert ended.error is not None and json.loads(text_)["error"]["code"] == ended.error.code == code
    path = tmp_path / "answer"
    again, text_ = ask("probe", "--json", "-o", str(path))
    assert again.code == ended.code and text_ == "" and json.loads(path.read_text())["error"]["code"] == code


def test_a_file_that_cannot_be_written(declare: Any, tmp_path: Path) -> None:
    """Before or while it is written: the envelope goes to standard output instead."""
    declare(lambda session, options: CommandAnswer(lambda: ["x" * 10] * 10_000, lambda style: []))
    for path in (str(tmp_path / "no" / "folder"), "/dev/full"):
        ended, text_ = ask("probe", "--json", "-o", path)
        assert ended.code == 1 and json.loads(text_)["error"]["code"] == "cannot-write", path


def test_wrong_words_have_an_envelope() -> None:
    """Also where the command line cannot be understood; and nothing where no JSON is asked for."""
    for words in (["probe", "--nothing"], ["no-such-command"]):
        ended, text_ = ask(*words, "--json")
        assert ended.code == 2 and json.loads(text_)["error"]["code"] == "usage" and json.loads(text_)["command"] == words[0]
        assert ask(*words)[1] == ""


def test_an_internal_error_is_one_line(declare: Any) -> None:
    """An exception nobody expected is one line; the traceback comes only when asked for."""
    declare(lambda session, options: 1 // 0)
    ended, shown = ask("probe")
    assert ended.code == 1 and ended.line and ended.line.startswith("internal error: ZeroDivisionError") and not shown
    assert "Traceback" in ask("probe", "--traceback")[1]


@pytest.mark.parametrize(
    "words",
    [("nosuch",), ("probe", "--nosuch"), ("probe", "--number", "x"), ("probe", "--numb", "3"), ("probe", "extra"), ("probe", "--max-seconds", "-1")],
    ids=" ".join,
)
def test_wrong_usage(declare: Any, words: Tuple[str, ...]) -> None:
    """Wrong usage is exit code 2 and one line with the next step; nothing is opened. Options are not abbreviated."""
    declare(lambda session, options: CommandAnswer(lambda: 0, lambda style: []))
    ended, shown = ask(*words, refuse=HeapxError("opened"))
    assert ended.code == 2 and ended.line and "\n" not in ended.line and not shown


def test_partial_and_finding(declare: Any) -> None:
    """A problem makes 4 and is told after the text; a finding is 3 and wins."""

    def run(session: Any, options: Any) -> CommandAnswer:
        session.problem(MEMORY_UNREADABLE, "0x10", "a bad size", "look there")
        session.problem(CUT, "0x10", "a bad size", "look there")  # what is told already
        return CommandAnswer(lambda: 0, lambda style: ["body"], finding=bool(options.number))

    declare(run)
    assert ask("probe") == (runner.CommandEnd(4), "body\n\nPartial answer, because:\n  0x10: a bad size; look there\n")
    assert ask("probe", "--number", "1")[0].code == 3
    assert json.loads(ask("probe", "--json")[1])["problems"] == [{"code": "memory-unreadable", "where": "0x10", "what": "a bad size", "hint": "look there"}]


def test_a_file_that_costs_too_much_is_one_line(declare: Any) -> None:
    """The answer is there and partial, with the file's name; the time of the command ends parsing, and the next command begins anew."""

    def run(session: Any, options: Any) -> CommandAnswer:
        assert not WORK.exceeded and WORK.steps == 0
        for name in ("bad.so", "good.so"):
            try:
                WorkCounter(name, 10).spend(11 if name == "bad.so" else 10)
            except TooMuchWork:
                pass
        session.budget.interrupt()
        assert WORK.is_over()
        session.budget.heed()
        return CommandAnswer(lambda: 0, lambda style: ["body"])

    declare(run)
    ended, shown = ask("probe", "--json")
    (problem,) = json.loads(shown)["problems"]
    assert ended.code == 4 and (problem["code"], problem["where"]) == (WORK_LIMIT, "bad.so") and not WORK.is_over()
    assert ask("probe")[1].startswith("body\n\nPartial answer, because:\n  bad.so: ")
    WORK.exceeded.clear()


def test_a_stream_that_breaks_off_is_valid_json(declare: Any) -> None:
    """A list that is streamed ends as valid JSON, marked partial, when reading fails or Ctrl-C comes in the middle."""
    for error in (HeapxError("unreadable", address=16), KeyboardInterrupt()):

        def entries(error: BaseException = error) -> Iterator[str]:
            yield "1"
            yield "2"
            raise error

        declare(lambda session, options, entries=entries: CommandAnswer(lambda: {"chunks": JsonLines(entries()), "count": lambda: 2}, lambda style: []))
        ended, shown = ask("probe", "--json")
        envelope = json.loads(shown)
        assert ended.code == 4 and envelope["data"] == {"chunks": [1, 2], "count": 2} and envelope["partial"] is True


def test_a_closed_pipe_ends_quietly(declare: Any) -> None:
    """A reader that goes away is no error."""
    declare(lambda session, options: CommandAnswer(lambda: 0, lambda style: ["x"] * 10))

    def write(text_: str) -> None:
        raise BrokenPipeError

    assert runner.run_command_line(["probe"], runner.Host("heapx", write, write, lambda: None, runner.Settings())) == runner.CommandEnd(0)


def test_output_file_is_private(declare: Any, tmp_path: Path) -> None:
    """-o gives a file of mode 0600, also where a more open one was before; nothing is printed."""
    declare(lambda session, options: CommandAnswer(lambda: 0, lambda style: ["x"]))
    path = tmp_path / "o"
    path.write_text("something longer from before")
    path.chmod(0o644)
    assert ask("probe", "-o", str(path)) == (runner.CommandEnd(0), "")
    assert path.read_text() == "x\n" and stat.S_IMODE(path.stat().st_mode) == 0o600


def test_foreign_links_are_not_followed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A symbolic link of another user is refused."""
    link = tmp_path / "link"
    link.symlink_to(tmp_path / "victim")
    owner = os.lstat(link).st_uid
    monkeypatch.setattr(output.os, "geteuid", lambda: owner + 1)
    if owner == 0:
        os.chown(link, 12345, -1, follow_symlinks=False)
    with pytest.raises(HeapxError, match="symbolic link owned by another user"):
        output.OutputFile(str(link), takes_any=True)
    assert not (tmp_path / "victim").exists()


def test_spool_keeps_order_beyond_memory() -> None:
    """What a spool takes in comes out unchanged, also when it went to disk; surrogates of odd file names survive."""
    spool = output.Spool()
    pieces = ["%d\udcff\n" % number * 50 for number in range(20000)]
    for piece in pieces:
        spool.write(piece)
    found: List[str] = []
    spool.hand_on(found.append)
    assert "".join(found) == "".join(pieces)


def test_global_options_stand_anywhere() -> None:
    """Global options are found before and behind the command, with `=` or without."""
    for words in (["--core", "c", "arenas", "--json"], ["arenas", "--core=c", "--json"], ["arenas", "--json", "--core", "c"]):
        found, rest = global_options.split_words(words)
        assert found.core == "c" and rest == ["arenas", "--json"]
    found = global_options.split_words(["--debug-dir", "a", "--debug-dir=b", "--no-debug-info", "--pid", "5"])[0]
    assert (found.debug_dirs, found.no_debug_info, found.pid) == (["a", "b"], True, 5)
    assert global_options.split_words(found.words())[0] == found


@pytest.mark.parametrize("option", [one.flags for one in command.COMMON], ids=lambda one: one[-1])
def test_options_of_every_command_stand_before_it_too(option: Tuple[str, ...]) -> None:
    """Each by each of its names: behind the command it is one of that command."""
    declared_ = next(one.options for one in command.COMMON if one.flags == option)
    for flag in option:
        value = [] if declared_.get("action") else ["5"]
        given = ["--pid", "1", flag, *value, "leaks", "--json"]
        assert global_options.split_words(given)[1] == ["leaks", flag, *value, "--json"]
        if value and flag.startswith("--"):
            assert global_options.split_words([flag + "=5", "leaks"])[1] == ["leaks", flag + "=5"]
    assert global_options.command_first([*option[:1], *(["5"] if not declared_.get("action") else [])])[0] == option[0]  # of report


def test_another_option_before_its_command_is_told_where_it_belongs() -> None:
    """Not that `leaks` were a word that report does not know."""
    command.load_commands()
    with pytest.raises(UsageError, match="options of leaks stand behind its name"):
        command.parse_command(global_options.command_first(["--json", "--weak", "leaks"]), "gdbheapx")
    with pytest.raises(UsageError, match="^report: unrecognized arguments: --no-such$"):
        command.parse_command(["--no-such"], "gdbheapx")


@pytest.mark.parametrize("words", [["--pid"], ["--pid", "0"], ["--pid", "-3"], ["--pid", "1", "--core", "c"]], ids=" ".join)
def test_wrong_global_options(words: List[str]) -> None:
    """A global option without a sensible value is wrong usage."""
    with pytest.raises(global_options.Wrong):
        global_options.split_words(words)


def test_words_survive_the_environment() -> None:
    """Whatever a word contains comes through the environment unchanged."""
    words = ["", "a,b", "-o", "x\ny", "\udcff", "$(no)"]
    assert global_options.unpack_words(global_options.pack_words(words)) == words


def test_lines_are_escaped_whole() -> None:
    """Every kind of line end and escape code; a document keeps letters beyond ASCII, which paths may need."""
    assert text.escape_line("a\x1b[1m\n\r\x0b\u2028\x9b\u00e9\udcff") == "a\\x1b[1m\\n\\r\\x0b\\u2028\\x9b\\xe9\\udcff"
    assert text.escape_line("a\x1b\n\u2028\u00e9", document=True) == "a\\033\\012\\20050\u00e9"
