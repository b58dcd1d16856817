"""What a terminal changes: tables are as wide as it is, headings are bold, whoever answers."""

import os
from pathlib import Path
from typing import List

import pytest

from gdbheapx.report.text import wrap_sentence
from tests.support.paths import GDB
from tests.support.processes import Lasting, Stage, by_turns
from tests.support.tool import heapx, on_terminal
from tests.support.unchanged import EVERY

pytestmark = pytest.mark.image  # its Python, its gdb and its terminal

RECORDER = ("recorder", "9", "1000", "3")
WIDTHS = 80, 120, 200
PLAIN = {"NO_COLOR": "1"}


def table_lines(text: str) -> List[str]:
    """The lines of tables: from a heading to what follows the rows, which have gaps of two spaces."""
    return [line for line in text.splitlines() if "  " in line.strip()]


@by_turns("width", WIDTHS)
def test_tables_fit(lasting: Lasting, kind: str, width: int) -> None:
    """`arenas`, `bins` and `tcache` on a terminal of 80, 120 and 200 columns; with --wide all columns are there."""
    target = lasting.of(kind, Stage.start, *RECORDER).target(kind)
    for command in ("arenas", "bins", "tcache"):
        narrow = on_terminal(width, [*target, command], PLAIN)
        assert max(map(len, narrow.splitlines())) <= width, narrow
    wide = on_terminal(width, [*target, "arenas", "--wide"], PLAIN)
    assert "overhead" in wide.splitlines()[0] and "Hidden" not in wide
    assert ("Hidden: " in on_terminal(width, [*target, "arenas"])) == (max(map(len, wide.splitlines())) > width)


SENTENCES = [words for words in EVERY if words.split()[0] not in ("doctor", "export", "malloc-info", "malloc-stats", "snapshot", "watch")]
"""Commands whose text is for people alone; doctor asks gdb, see below."""


def test_sentences_fit(lasting: Lasting, kind: str) -> None:
    """No line of any command is longer than 80 columns, but for what cannot be broken; with --wide and in a pipe each sentence is one line."""
    target = lasting.of(kind, Stage.start, *RECORDER).target(kind)
    texts = {words: on_terminal(80, [*target, *words.split()], PLAIN) for words in SENTENCES}
    longer = [line for text in texts.values() for line in text.splitlines() if len(line) > 80 and len(wrap_sentence(line, 80)) > 1]
    assert not longer, longer
    for text in (heapx(target, "report", env={"COLUMNS": "80"}).stdout.decode(), on_terminal(80, [*target, "report", "--wide"], PLAIN)):
        assert any(len(line) > 80 and "  " not in line.strip() for line in text.splitlines()), text


def test_colors(lasting: Lasting, core: str, tmp_path: Path) -> None:
    """Headings are bold on a terminal; not with NO_COLOR, --color never, in a pipe, a file or JSON. --color always colours a pipe."""
    words = [*lasting.of(core, Stage.start, *RECORDER).target(core), "arenas"]
    assert on_terminal(100, words).startswith("\x1b[1marena ")
    path = tmp_path / "answer"
    on_terminal(100, [*words, "--color", "always", "-o", str(path)])
    plain = [on_terminal(100, words, {"NO_COLOR": "1"}), on_terminal(100, [*words, "--color", "never"]), on_terminal(100, [*words, "--json"])]
    assert not any("\x1b" in text for text in [*plain, path.read_text(), heapx(words[:2], "arenas").stdout.decode()])
    assert heapx(words[:2], "arenas", "--color", "always", "--bytes").stdout.startswith(b"\x1b[1marena ")


@pytest.mark.skipif(GDB is None, reason="no gdb")
def test_inside_gdb(lasting: Lasting, kind: str) -> None:
    """gdb has no standard output of the tool's own: the terminal's width reaches it all the same."""
    target = lasting.of(kind, Stage.start, *RECORDER).target(kind)
    assert GDB is not None
    text = on_terminal(80, [*target, "--gdb", GDB, "arenas"], PLAIN)
    assert max(map(len, text.splitlines())) <= 80 and "Hidden: " in text
    lines = on_terminal(80, [*target, "doctor"], PLAIN).splitlines()
    assert len(lines) > 8 and max(map(len, lines)) <= 80


def test_pipes_and_files(lasting: Lasting, core: str, tmp_path: Path) -> None:
    """Without a terminal a line has 120 characters, or COLUMNS; a file that is written from a terminal, too."""
    target = lasting.of(core, Stage.start, *RECORDER).target(core)
    piped = heapx(target, "arenas").stdout.decode()
    assert 80 < max(map(len, table_lines(piped))) <= 120
    narrow = heapx(target, "arenas", env={"COLUMNS": "80"}).stdout.decode()
    assert max(map(len, table_lines(narrow))) <= 80
    path = os.path.join(tmp_path, "answer")
    on_terminal(60, [*target, "arenas", "-o", path])
    with open(path) as file:
        assert file.read() == piped
