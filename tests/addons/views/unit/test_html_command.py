"""Pages, in the shell: what is asked of the look, and where the file goes.

Where the parts of pictures stand.

Files: app/invocation.py, command/output.py.
"""

import os
import random
import socket
import stat
from pathlib import Path
from typing import List, Sequence

import pytest

from gdbheapx.addons.views.html import command
from gdbheapx.addons.views.html.geometry import Box, ChartBranch, count_levels, draw_grid, draw_icicle, draw_nested_treemap, draw_treemap
from gdbheapx.app import invocation
from gdbheapx.command.output import CannotWrite, OutputFile
from gdbheapx.common.errors import HeapxError
from gdbheapx.common.global_options import split_words


def understood(words: List[str]) -> invocation.Invocation:
    """The command line; it asks for a page where it has the option for one."""
    return invocation.understand_words(*split_words(words))


@pytest.mark.parametrize(
    "words, plain",
    [
        (["report", "--html", "p"], ["report"]),
        (["--html=p"], []),
        (["diff", "a", "b", "--html=p"], ["diff", "a", "b"]),
        (["report", "--deep", "--html", "p", "--json"], ["report", "--deep"]),
        (["report", "--html", "p", "-o", "x", "--json", "--max-seconds", "3"], ["report", "--max-seconds", "3"]),
        (["report", "-ox", "--html=p", "--output=x", "--json"], ["report"]),
    ],
)
def test_what_the_look_is_asked_for(words: List[str], plain: List[str]) -> None:
    """The same command without the page's own options, as a document with what the page needs."""
    asked_for = understood(words)
    assert asked_for.options.html == "p"
    look, same = command.look_of(asked_for), understood([*plain, "--json", *["--page"] * ("diff" not in words)])
    assert look.options == same.options and look.command == same.command and look.renderer is None


@pytest.mark.parametrize("words", [["report", "--deep"], ["trim", "--pad", "64K", "--yes"], ["diff", "a", "b\udcff", "--json"], ["whatis", "0x10"]])
def test_gdb_is_handed_what_was_understood(words: List[str]) -> None:
    """Command and options come out of the environment's text as they went in."""
    asked_for = understood(words)
    assert invocation.handed_over(asked_for.handed_on()) == asked_for.parsed


@pytest.mark.parametrize(
    "words",
    [
        ["report"],
        ["diff", "a", "b"],
        ["report", "--help", "--html", "p"],
    ],
)
def test_no_page_is_asked_for(words: List[str]) -> None:
    """The command answers itself, or its help is shown."""
    assert understood(words).renderer is None


def fails(words: List[str]) -> List[str]:
    """What is said on standard error; no look is taken."""
    said: List[str] = []
    def look(given: invocation.Invocation) -> int:
        raise AssertionError(given)

    def failed(error: HeapxError, has_document: bool) -> int:
        said.append(error.line())
        return error.exit_code

    assert command.make(understood(words), invocation.Shell(look, lambda text: 0, said.append, failed)) in (1, 2)
    return said


def test_refusals_come_before_the_look(tmp_path: Path) -> None:
    """A file that cannot be written, and -o without a document, are told before a process is stopped."""
    pytest.importorskip("jinja2", reason="pages require Jinja2")
    assert "--html" in fails(["report", "--html", str(tmp_path / "no" / "page.html")])[0]
    assert "not a regular file" in fails(["report", "--html", str(tmp_path)])[0]
    assert "add --json" in fails(["report", "--html", str(tmp_path / "page.html"), "-o", "x"])[0]
    assert not list(tmp_path.iterdir())


def test_without_jinja2(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One line with the next step, and no file."""
    import sys

    monkeypatch.setitem(sys.modules, "jinja2", None)
    line = fails(["report", "--html", str(tmp_path / "page.html")])[0]
    assert "Jinja2" in line and "gdbheapx[html]" in line and not list(tmp_path.iterdir())


def test_the_file_appears_whole(tmp_path: Path) -> None:
    """With mode 0600 in the place of the old one, which is there until then; dropped, it leaves nothing."""
    path = tmp_path / "page.html"
    path.write_text("old")
    path.chmod(0o644)
    made = OutputFile(str(path), "--html")
    assert path.read_text() == "old"
    made.finish(b"new")
    assert path.read_text() == "new" and stat.S_IMODE(path.stat().st_mode) == 0o600
    OutputFile(str(path), "--html").drop()
    assert list(tmp_path.iterdir()) == [path] and path.read_text() == "new"


def test_what_is_no_file_stays(tmp_path: Path) -> None:
    """A FIFO, a socket, a folder, a device: refused without being opened. A link of one's own leads to its file."""
    fifo, plug, link, target = (tmp_path / name for name in ("fifo", "socket", "link", "target"))
    os.mkfifo(fifo)
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(plug))
    for path in (fifo, plug, tmp_path, Path("/dev/null")):
        with pytest.raises(HeapxError, match="not a regular file"):
            OutputFile(str(path), "--html")
    target.write_text("old")
    link.symlink_to(target)
    OutputFile(str(link), "--html").finish(b"new")
    assert link.is_symlink() and target.read_text() == "new"
    link.unlink()
    link.symlink_to(fifo)
    with pytest.raises(HeapxError, match="not a regular file"):
        OutputFile(str(link), "--html")
    with pytest.raises(CannotWrite, match="choose another"):
        raise_line(tmp_path / "no" / "page")


def raise_line(path: Path) -> None:
    """CannotWrite with the whole line as its message."""
    try:
        OutputFile(str(path), "--html")
    except CannotWrite as error:
        raise CannotWrite(error.line(), OSError(0, "choose another"), None)


@pytest.mark.skipif(os.geteuid() != 0, reason="gives files to another user")
def test_files_of_others_stay(tmp_path: Path) -> None:
    """Neither another user's file is replaced nor his link followed."""
    path, link = tmp_path / "page.html", tmp_path / "link"
    path.write_text("old")
    os.chown(path, 65534, 65534)
    link.symlink_to(tmp_path / "elsewhere")
    os.chown(link, 65534, 65534, follow_symlinks=False)
    for one in (path, link):
        with pytest.raises(HeapxError, match="another user"):
            OutputFile(str(one), "--html")
    assert path.read_text() == "old"


def overlap(boxes: Sequence[Box]) -> bool:
    """Two of them share more than an edge."""
    small = 1e-6
    for place, one in enumerate(boxes):
        for two in boxes[place + 1 :]:
            across = min(one.x + one.width, two.x + two.width) - max(one.x, two.x)
            down = min(one.y + one.height, two.y + two.height) - max(one.y, two.y)
            if across > small and down > small:
                return True
    return False


@pytest.mark.parametrize("seed", range(12))
def test_treemap_fills_the_rectangle(seed: int) -> None:
    """Areas are as the figures, nothing overlaps, nothing lies outside."""
    chance = random.Random(seed)
    figures = [int(10 ** chance.uniform(2, 5)) for _ in range(chance.randrange(1, 40))]
    boxes = draw_treemap(figures, 1000, 400)
    assert sum(box.width * box.height for box in boxes) == pytest.approx(1000 * 400, rel=1e-3)
    assert all(box.width * box.height == pytest.approx(400000 * figures[box.place] / sum(figures), rel=1e-6) for box in boxes)
    assert all(box.x > -1e-6 and box.y > -1e-6 and box.x + box.width < 1000.01 and box.y + box.height < 400.01 for box in boxes)
    assert not overlap(boxes)
    assert draw_treemap([], 10, 10) == draw_treemap([None, 0, -1], 10, 10) == []


@pytest.mark.parametrize("seed", range(12))
def test_a_treemap_of_two_levels(seed: int) -> None:
    """Every area is its share of the whole to 1 %; parts of a figure fill its rectangle, and touch no other."""
    chance = random.Random(seed)
    tree, figures = [], {}
    for _ in range(chance.randrange(1, 12)):
        parts = [int(10 ** chance.uniform(4, 7)) for _ in range(chance.choice((0, 1, 30)))]
        branch = ChartBranch(len(figures), sum(parts) or int(10 ** chance.uniform(4, 7)), [ChartBranch(len(figures) + 1 + at, size) for at, size in enumerate(parts)])
        for one in (branch, *branch.children):
            figures[one.place] = one.size
        tree.append(branch)
    levels, whole = draw_nested_treemap(tree, 1000, 440), sum(branch.size for branch in tree)
    assert sorted(level.place for level in levels) == sorted(figures)
    assert all(level.width * level.height == pytest.approx(440000 * figures[level.place] / whole, rel=0.01) for level in levels)
    assert not overlap([level for level in levels if not level.depth]) and not overlap([level for level in levels if level.depth])
    boxes = {level.place: level for level in levels}
    for branch in tree:
        over = boxes[branch.place]
        for one in (boxes[child.place] for child in branch.children):
            assert one.x > over.x - 1e-6 and one.x + one.width < over.x + over.width + 1e-6
            assert one.y > over.y - 1e-6 and one.y + one.height < over.y + over.height + 1e-6
    assert draw_nested_treemap([], 10, 10) == draw_nested_treemap([ChartBranch(0, 0)], 10, 10) == []


def test_icicle() -> None:
    """Children lie below their parent and within it, also where they claim more than it has."""
    tree = [ChartBranch(0, 60, [ChartBranch(1, 45, [ChartBranch(2, 10**9)]), ChartBranch(3, 15)]), ChartBranch(4, 20)]
    levels = draw_icicle(tree, 100, 10, 100)
    assert [(one.place, round(one.x), round(one.width), one.depth) for one in levels] == [
        (0, 0, 60, 0),
        (1, 0, 45, 1),
        (2, 0, 45, 2),
        (3, 45, 15, 1),
        (4, 60, 20, 0),
    ]
    assert count_levels(levels) == 3 and count_levels([]) == 0 and draw_icicle([ChartBranch(0, 0)], 100, 10) == []


def test_grid() -> None:
    """One path for each state; cells stand row by row, and are divided from left to right; a cell that is not full has a gap."""
    assert draw_grid([[2, 0], [1, 1], [None, 3]], 2, 10, 2) == ["M0 0h8v8h-8zM10 0h4v8h-4z", "M14 0h4v8h-4zM0 10h8v8h-8z"]
    assert draw_grid([[1, 1]], 2, 10, 2, 4) == ["M0 0h2v8h-2z", "M2 0h2v8h-2z"]
    assert draw_grid([], 2, 10, 2) == []
