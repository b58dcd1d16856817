"""Commands in texts are written for the place where they are read."""

import pytest

from gdbheapx import command, hints, place
from gdbheapx.errors import HeapxError
from gdbheapx.model import Finding, StepAdvice
from gdbheapx.report import encodings
from gdbheapx.report.text import format_on_screen
from gdbheapx.units import SentenceSize, make_sentence
from tests.support.addons import require_every_addon

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
