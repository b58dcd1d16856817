"""Names that try to be something else, planted in a real program: its file, a thread, a mapped file, a class and a variable, in every page."""

import os
import signal
import subprocess
from pathlib import Path
from typing import List

import pytest

from tests.support import pages
from tests.support.hidden import hidden
from tests.support.processes import Process, Stage, by_turns
from tests.support.tool import heapx, tool_command, tool_environment

pytest.importorskip("jinja2", reason="pages require Jinja2")
pytestmark = pytest.mark.once  # what the tool makes of names, whatever machine they are from

CLASS, VARIABLE = b"Planted_class_name_that_a_test_will_overwrite_", b"planted_variable_that_a_test_will_overwrite____"
"""As planted.cpp has them: nothing else in the compiled file is so called."""
ANY = b"=cmd|</svg><script>;\n\x1b[31m\xff\"'"
"""What a file may be called, and a symbol."""
PRINTABLE = b"=cmd|</svg><script>alert(1)</script>;\"'"
"""What a type_info may say: others are no name."""
OF_THREAD = b"</s>\n\x1b=;\xff\"'"


def planted(stage: Stage, objects: int, *flags: str) -> Process:
    """The program with these names. With -fno-rtti the class is called as its vtable's symbol, which may have any byte."""
    folder = stage.folder()
    program, file = (folder / os.fsdecode(ANY.replace(b"</", b"<%d" % place)) for place in (1, 2))
    data = stage.builder.build("planted", *flags).read_bytes()
    assert CLASS in data and VARIABLE in data
    of_class = ANY if flags else PRINTABLE
    program.write_bytes(data.replace(CLASS, of_class.ljust(len(CLASS), b"C")).replace(VARIABLE, ANY.ljust(len(VARIABLE), b"V")))
    program.chmod(0o700)
    file.write_bytes(bytes(8 << 20))
    made = stage.spawn_ready([str(program), str(folder / "record"), os.fsdecode(OF_THREAD), str(objects), str(file)], folder)
    return made


def shown(page: Path) -> str:
    """The text of a page that is as strict as one must be."""
    text = page.read_text(encoding="utf-8")
    assert "\x1b" not in text and "<script" not in text
    return "".join(pages.check(text).text)


WRITTEN = ("=cmd|<1svg><script>;\\n\\x1b[31m\\xff\"'", "=cmd|<2svg><script>;\\n\\x1b[31m\\xff\"'", "</s>\\n\\x1b=;")
"""Of the program's file, of the mapped one, of the thread: as people read them."""
OF_CLASS = {(): PRINTABLE.decode(), ("-fno-rtti",): "=cmd|</svg><script>;\\n\\x1b[31m"}
OF_VARIABLE = "=cmd|</svg><script>;\\n\\x1b[31m"


@by_turns("flags", sorted(OF_CLASS))
def test_the_page_of_a_look(stage: Stage, kind: str, flags: List[str]) -> None:
    """All of them are there to be read, and none is anything else; from a snapshot, too."""
    if hidden("symbols", "classes and variables have no names"):
        pytest.skip("no names to show")
    process = planted(stage, 4000, *flags)
    page, snapshot = process.folder / "page.html", str(process.folder / "snap")
    assert heapx(process.target(kind), "snapshot", snapshot).code == 0
    for target, words in ((process.target(kind), ["--deep"]), (["--snapshot", snapshot], [])):
        assert heapx(target, "report", *words, "--html", str(page)).code in (0, 4)
        text = shown(page)
        assert OF_CLASS[tuple(flags)] in text and OF_VARIABLE + "\ufffd\"'VVV" in text, target
        assert WRITTEN[0] in text or kind == "core", target
        assert kind == "core" or (WRITTEN[1] in text and WRITTEN[2] in text), target


def test_a_snapshot_without_names(stage: Stage, live: str) -> None:
    """No part of them is in a file without names, also not as tables write them; its page shows numbers."""
    process = planted(stage, 4000, "-fno-rtti")
    snapshot, page = str(process.folder / "snap"), process.folder / "page.html"
    assert heapx(process.target(live), "snapshot", snapshot, "--no-names").code == 0
    texts = heapx([], "snapshot", "--show", snapshot).stdout.decode()
    assert heapx(["--snapshot", snapshot], "report", "--html", str(page)).code == 0
    for part in ("svg", "x1b", "=cmd", "VVV", "CCC"):
        assert part not in texts and part not in shown(page).split("Skip to the content")[1], part


def test_the_page_of_two_looks(stage: Stage, live: str) -> None:
    """Classes and owners that grew, the programs, and the files that were compared."""
    if hidden("symbols", "classes and variables have no names"):
        pytest.skip("no names to show")
    small, large = planted(stage, 100, "-fno-rtti"), planted(stage, 4000, "-fno-rtti")
    page = small.folder / "page.html"
    files = [str(one.folder / os.fsdecode(b"snap " + ANY.replace(b"/", b""))) for one in (small, large)]
    for one, file in zip((small, large), files):
        assert heapx(one.target(live), "snapshot", file).code == 0
    outcome = heapx([], "diff", *files, "--html", str(page), "--json")
    data = outcome.data
    assert 3900 in [row["diff_count"] for row in data["classes"] if "script" in row["what"]]
    text = shown(page)
    for name in (OF_CLASS["-fno-rtti",], OF_VARIABLE + "\ufffd\"'VVV", WRITTEN[0], "snap =cmd|<svg><script>;\\n\\x1b[31m\\xff\"'"):
        assert name in text, name
    lines = pages.check(page.read_text(encoding="utf-8")).lines
    assert lines and all(line.isprintable() for line in lines)
    found = subprocess.run(["bash", "-c", "gdbheapx() { printf '%s\\0' \"$@\"; }; " + lines[0]], capture_output=True).stdout.split(b"\0")
    assert found == [b"--snapshot", os.fsencode(files[1]), b"owners", b""]


def test_the_page_of_a_watch(stage: Stage, live: str) -> None:
    """What the program calls itself: the end of its path, as long as the kernel keeps it."""
    process = planted(stage, 100)
    page, lines = process.folder / "page.html", process.folder / os.fsdecode(b"lines " + ANY.replace(b"/", b""))
    command = [*tool_command(), *process.target(live), "watch", "--every", "0.05", "--html", str(page), "--jsonl", str(lines)]
    with subprocess.Popen(command, env=tool_environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE) as watch:
        while b"MiB" not in watch.stdout.readline():
            pass
        watch.send_signal(signal.SIGTERM)
        watch.communicate(timeout=60)
    assert watch.returncode == 0
    texts = [shown(page)]
    assert heapx([], "watch", "--from", str(lines), "--html", str(page)).code == 0
    texts.append(shown(page))
    assert all("=cmd|<1svg><scr" in text for text in texts) and "lines =cmd|<svg><script>;\\n\\x1b[31m\\xff\"'" in texts[1]
