"""Pages, in the shell: what is asked of the look, and where the file goes.

Files: app/invocation.py, command/output.py.
"""

import os
import socket
import stat
from pathlib import Path
from typing import List

import pytest

from gdbheapx.addons.views.html import command
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
