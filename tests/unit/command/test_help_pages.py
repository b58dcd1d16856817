"""What help shows on 24 lines of 80 columns, what completes a line at gdb's prompt, and commands in texts for the place where they are read.

Files: common/catalogue.py, command/help_pages.py.
"""

import ast
import re
import shlex
from pathlib import Path
from typing import Iterator, List, Tuple

import pytest

from gdbheapx import command
from gdbheapx.app import place
from gdbheapx.command import help_pages
from gdbheapx.common import catalogue, hints
from gdbheapx.common.errors import HeapxError
from gdbheapx.common.model import Finding, StepAdvice
from gdbheapx.common.units import SentenceSize, make_sentence
from gdbheapx.report import encodings
from gdbheapx.report.text import format_on_screen
from tests.support.addons import require_command, require_every_addon
from tests.support.paths import ROOT

command.load_commands()
SHOWN = [help_pages.SHELL, help_pages.ELSEWHERE]
"""The programs that show it."""


@pytest.mark.parametrize("program", SHOWN)
def test_the_first_help_fits_a_terminal(program: str) -> None:
    """24 lines with the next prompt, 80 columns, three examples; internals and older names are only in --help-all, shell's own not in gdb."""
    lines = help_pages.render_overview(program).splitlines()
    assert len(lines) < 24 and max(map(len, lines)) <= 80
    assert len([line for line in lines if line.startswith("  " + program)]) == 3
    listed = set(re.findall(r"[a-z][a-z-]*", "\n".join(lines).partition("examples:")[0].partition("\n\n")[2]))
    every = help_pages.render_everything(program)
    for name in command.command_names():
        offered = program == help_pages.SHELL or not command.COMMANDS[name].in_shell
        assert (name in listed) == (offered and name not in catalogue.INTERNALS[1]), name
        assert bool(re.search("^  %s  " % name, every, re.MULTILINE)) == offered, name
    assert max(map(len, every.splitlines())) <= 80


@pytest.mark.parametrize("name", command.command_names())
def test_the_help_of_a_command_is_short(name: str) -> None:
    """Usage, one sentence, its own options, examples that can be parsed, the rest by name; gdb lists it in one line, by that sentence."""
    declared = command.COMMANDS[name]
    text = help_pages.of_command(declared, "gdbheapx")
    usage, sentence, *parts = text.split("\n\n")
    lines = text.splitlines()
    assert usage.startswith("usage: gdbheapx ") and "\n" not in usage + sentence and len(lines) <= 38 and max(map(len, lines)) <= 80
    assert len("heapx %s -- %s" % (name, sentence)) <= 80 and sentence.endswith(".")
    assert [part.partition(":")[0] for part in parts][-2:] == ["examples", "also"]
    assert help_pages.in_gdb(declared).startswith(sentence + "\n\nusage: heapx %s" % name)
    whole = help_pages.of_command(declared, "gdbheapx", True)
    assert all(flag in whole for one in declared.arguments for flag in one.flags if flag.startswith("-") and one.options["help"] != command.OLDER)


@pytest.mark.parametrize("older", sorted(catalogue.ALIASES))
def test_an_older_name_is_the_newer_form(older: str) -> None:
    """It runs the same function with the same options, and its help says what it is called now."""
    newer, given = catalogue.ALIASES[older]
    require_command(newer)
    words = {"table": ["x"], "refs": ["16"]}.get(older, [])
    asked = [command.parse_command([*line, *words], "gdbheapx") for line in ([older], [newer, *help_pages.newer_flags(older)])]
    assert vars(asked[0].options) == vars(asked[1].options) and asked[0].command.run is asked[1].command.run
    assert "The older name of `%s --" % newer in help_pages.of_command(asked[0].command, "gdbheapx")
    assert catalogue.file_of(older) == newer and command.is_command(older) and older not in command.command_names()


def test_examples_are_command_lines() -> None:
    """Each begins, behind the target, with the command's name, and is understood."""
    import shlex

    require_every_addon()
    for name in command.command_names():
        for words in command.COMMANDS[name].examples:
            line = shlex.split(help_pages.TARGET.sub("", words))
            assert line[0] == name or words.endswith("snap report"), words
            command.parse_command(line, "gdbheapx")


command.load_commands()
KNOWN = {"--allocator": ["glibc", "jemalloc", "jemalloc#2"], "--arena": ["0", "1", "12"]}


def complete(line: str) -> help_pages.Completion:
    """What the last word of a line may become."""
    name, _, text = line.partition(" ")
    declared = command.find_command(name)
    assert declared is not None
    return help_pages.complete_word(declared, text, KNOWN.__getitem__)


@pytest.mark.parametrize(
    "line, words",
    [
        ("census --by s", ["signature", "size"]),
        ("census --by=s", ["--by=signature", "--by=size"]),
        ("chunks --sort ", ["size", "address"]),
        ("arenas --allocator j", ["jemalloc", "jemalloc#2"]),
        ("arenas --json --allocator g", ["glibc"]),
        ("purge --arena 1", ["1", "12"]),
        ("arenas --allo", ["--allocator"]),
        ("arenas --json --by", ["--bytes"]),
        ("arenas ", []),
        ("census --like ", []),
    ],
)
def test_words(line: str, words: List[str]) -> None:
    """Choices, ids and indices after their option, positional choices; nothing where any text will do."""
    assert complete(line) == words


def test_files_behind_other_words(tmp_path: Path) -> None:
    """As a shell does: folders with a slash, hidden ones only when asked for."""
    for name in ("old.snap", "other.snap", ".hidden"):
        (tmp_path / name).write_text("")
    (tmp_path / "out").mkdir()
    assert complete("arenas -o %s/o" % tmp_path) == ["%s/%s" % (tmp_path, name) for name in ("old.snap", "other.snap", "out/")]
    assert complete("arenas --output=%s/ol" % tmp_path) == ["--output=%s/old.snap" % tmp_path]
    assert complete("diff old.snap %s/.h" % tmp_path) == ["%s/.hidden" % tmp_path]
    assert complete("diff old.snap new.snap %s/o" % tmp_path) == [] and complete("arenas -o /nowhere/x") == []


def test_names_are_quoted() -> None:
    """A shell reads them as they are, and no line ends early."""
    assert hints.strip_targets(hints.hint_command("owners --of %s", "a b")) == "owners --of 'a b'" and hints.quote_word("a\nb") == "$'a\\x0ab'"
    assert hints.words_of(hints.hint_command("owners")) == "owners" and hints.words_of("jcmd 7 GC.heap_info") is None


def written() -> Iterator[Tuple[str, bool]]:
    """The words of every ask() and run() in the sources, those that are filled in with values that would do; True: they name all themselves."""
    for path in sorted([*(ROOT / "gdbheapx").rglob("*.py"), *(ROOT / "commands").glob("*.py")]):
        for node in ast.walk(ast.parse(path.read_text())):
            if not isinstance(node, ast.Call) or not node.args or path.name == "hints.py":
                continue
            of = getattr(getattr(node.func, "value", None), "id", "")
            name = getattr(node.func, "id", getattr(node.func, "attr", "") if of == "hints" else "")
            first = node.args[-1 if name == "about" else 0]
            text = first.left if isinstance(first, ast.BinOp) and isinstance(first.op, ast.Mod) else first
            if name in ("ask", "run", "about") and isinstance(text, ast.Constant) and isinstance(text.value, str):
                words = text.value.replace("0x%x", "0x10").replace("chunks %s", "chunks --status used").replace("query %s", "query 1")
                yield words.replace("refs %s", "refs 0x10").replace("whatis %s", "whatis 0x10").replace("%s", "x"), name == "run"


def test_each_command_is_understood() -> None:
    """By the parser that will read it: no hint ends with exit code 2."""
    for words, is_alone in sorted(set(written()) - {("x --dry-run", False), ("bill PID", True), ("bill PID", False)}):
        typed = shlex.split(words)
        command.load_commands(command.name_in(typed))
        assert command.parse_command(typed, "gdbheapx").help is None, words
        assert is_alone or command.COMMANDS[command.name_in(typed)] is not None, words


PLACES = {
    "shell": (place.of_options(["-p", "4711"]), "gdbheapx -p 4711 owners"),
    "core": (place.of_options(["--core", "my core", "--exe", "prog"]), "gdbheapx --core 'my core' --exe prog owners"),
    "snapshot": (place.of_target({"kind": "snapshot", "snapshot": "now.snap"}), "gdbheapx --snapshot now.snap owners"),
    "gdb": (place.of_target({"kind": "live", "pid": 7}, door="heapx"), "heapx owners"),
    "nothing": (place.HintPlace(), "gdbheapx owners"),
}


@pytest.mark.parametrize("name", sorted(PLACES))
def test_a_command_is_whole_where_it_is_read(name: str) -> None:
    """In sentences, errors, records and JSON, on screens and with sizes beside it."""
    where, line = PLACES[name]
    sentence = make_sentence("%s are held: %s", SentenceSize(2048), hints.hint_command("owners"))
    assert hints.write_commands(sentence, where.line) == "2.0 KiB are held: " + line
    assert format_on_screen(command.TextStyle(True, False, command_line=where.line), sentence.plain) == "2048 bytes are held: %s\n" % line
    error = HeapxError("nothing", "see " + hints.hint_command("owners"))
    assert error.line() == "nothing; see gdbheapx owners"
    error.write(where.line)
    assert error.hint == "see " + line and error.document()["hint"] == "see " + line
    finding = Finding(sentence, "", None)
    assert hints.in_records([finding], where.line)[0].what == "2.0 KiB are held: " + line
    assert hints.in_records((1, None), where.line) == (1, None)
    assert encodings.encode_json(StepAdvice(hints.hint_command("owners"), "why"), where.line).startswith('{"command": "%s"' % line)


def test_what_a_shell_or_another_target_answers_is_written_for_it() -> None:
    """Inside gdb a shell's command names the process; what no snapshot answers, asks what it was taken of; files name themselves."""
    require_every_addon()
    in_gdb, snapshot = PLACES["gdb"][0], place.of_target({"kind": "snapshot", "snapshot": "a.snap", "pid": 7, "taken_of": "live"})
    assert in_gdb.line("watch") == "gdbheapx -p 7 watch" and in_gdb.line("report --html a.html") == "gdbheapx -p 7 report --html a.html"
    assert snapshot.line("chunks") == "gdbheapx -p 7 chunks" and snapshot.line("owners") == "gdbheapx --snapshot a.snap owners"
    for where, _ in PLACES.values():
        assert hints.write_commands(hints.hint_about("core", "the core", "report"), where.line) == "gdbheapx --core 'the core' report"
    assert hints.write_commands(hints.hint_run("owners --help"), in_gdb.line) == "heapx owners --help"


def test_the_command_that_is_answered_is_written_once_more() -> None:
    """With what it was asked for and a longer table; what a snapshot has no answer for is asked of what it was taken of."""
    command.load_commands("leaks")
    declared = command.parse_command(["leaks", "--list", "--limit", "2", "--weak"], "gdbheapx")

    def asked(more: str) -> str:
        return place.type_words(declared.command, declared.options, more)

    longer, elsewhere = hints.hint_again("--limit %d", 467), hints.hint_again()
    snapshot = place.of_target({"kind": "snapshot", "snapshot": "a.snap", "pid": 7, "taken_of": "live"})._replace(asked=asked)
    assert hints.write_commands(longer, PLACES["shell"][0]._replace(asked=asked).line) == "gdbheapx -p 4711 leaks --list --weak --limit 467"
    assert hints.write_commands(longer, PLACES["gdb"][0]._replace(asked=asked).line) == "heapx leaks --list --weak --limit 467"
    assert hints.write_commands(elsewhere, snapshot.line) == "gdbheapx -p 7 leaks --list --limit 2 --weak"
    command.load_commands("chunks")
    declared = command.parse_command(["chunks", "--status", "used", "--status", "mmapped", "--min-size", "1M"], "gdbheapx")
    chunks = "gdbheapx -p 4711 chunks --status used --status mmapped --min-size 1048576 --limit 467"
    assert hints.write_commands(longer, PLACES["shell"][0]._replace(asked=asked).line) == chunks
    assert hints.write_commands(longer) == "--limit 467" and hints.write_commands(elsewhere, PLACES["snapshot"][0].line) == "--pid N or --core FILE"


def test_what_would_be_refused_is_known() -> None:
    """By the declarations: what changes or watches a process, what a snapshot has no answer for."""
    require_every_addon()
    refused = {
        name: [words for words in ("trim", "trim --dry-run", "watch", "cold --for 60", "chunks", "owners") if where.refuses(words)]
        for name, (where, _) in PLACES.items()
    }
    assert refused["shell"] == refused["gdb"] == refused["nothing"] == []
    assert refused["core"] == ["trim", "watch", "cold --for 60"] and "owners" not in refused["snapshot"] and "chunks" in refused["snapshot"]
