"""What completes a line at gdb's prompt: options, their values, files."""

from pathlib import Path
from typing import List

import pytest

from gdbheapx import command, help_pages

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
