"""The page of `report --html`: of processes and of their cores, made of the document that is printed with it.

Names that try to be something else, planted in a real program: its file, a thread, a mapped file, a class and a variable, in every page.

Files: analysis/inside.py.
"""

import os
import signal
import stat
import subprocess
from pathlib import Path
from typing import Dict, List

import pytest

from tests.support import pages
from tests.support.hidden import hidden
from tests.support.processes import Process, Stage, by_turns
from tests.support.tool import alone, heapx, in_gdb, tool_command, tool_environment

pytest.importorskip("jinja2", reason="pages require Jinja2")
pytestmark = pytest.mark.once  # what the tool makes of figures that test_accounts holds


def test_the_page_of_a_look(stage: Stage, kind: str) -> None:
    """It has the figures of the document that is printed with it; nobody else may read the file."""
    process = stage.start("leaker")
    path = process.folder / "page.html"
    outcome = heapx(process.target(kind), "report", "--deep", "--html", str(path), "--json")
    data = outcome.data
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    read = pages.check(path.read_text())
    assert data["memory"]["total_bytes"] == read.values["split"][0]
    assert [data["page"]["census"]["bytes"], data["page"]["census"]["blocks"]] == read.values["use"][:2]
    assert {row["used_bytes"] for row in data["page"]["histogram"][0]["rows"]} <= set(read.values["sizes"])
    flame = data["page"]["flame"]
    assert sum(frame["bytes"] for frame in flame) == data["page"]["census"]["bytes"]
    assert {frame["bytes"] for frame in flame} <= set(read.values["owners"]) and "flame-t" in read.ids()
    sums = data["page"]["map"][0]["sums"]
    assert {sums["used_bytes"], sums["pinned_bytes"]} <= set(read.values["map"])
    assert any(line.startswith("gdbheapx -%s " % ("p" if kind == "live" else "-core")) for line in read.lines)


def test_the_flame_graph_is_what_exports_have(stage: Stage, kind: str) -> None:
    """Of each outermost frame the bytes that `export --format folded` has; from a snapshot, too."""
    process = stage.start("owning", "300", "0")
    target, snapshot = process.target(kind), str(process.folder / "one.snap")
    stacks = heapx(target, "export", "--format", "folded", "--json").data["stacks"]
    outermost: Dict[str, int] = {}
    for stack in stacks:
        name = stack["frames"][0]["name"]
        outermost[name] = outermost.get(name, 0) + stack["bytes"]
    assert heapx(target, "snapshot", snapshot).code == 0
    for words in ([*target, "report", "--deep"], ["--snapshot", snapshot, "report"]):
        flame = heapx([], *words, "--page", "--json").data["page"]["flame"]
        named = [frame["bytes"] for frame in flame if not frame["others"]]
        assert named and set(named) <= set(outermost.values())
        assert sum(frame["bytes"] for frame in flame) == sum(outermost.values())
    assert {frame["owner"] for frame in flame if not frame["others"]} & set(outermost)


def test_the_map_is_the_heap(stage: Stage, kind: str) -> None:
    """Its pages are those of the arenas and mapped blocks; what is wholly free is what a trim would return, in RAM and at all."""
    process = stage.start("recorder", "4", "2000", "3")
    data = heapx(process.target(kind), "report", "--page", "--json").data
    found, totals = data["page"]["map"][0], data["totals"]["glibc"]
    assert found["allocator"] == "glibc" and len(found["cells"]) <= 2000
    fields = ("used_bytes", "pinned_bytes", "cached_bytes", "own_bytes", "free_bytes", "returned_bytes")
    for field in fields:
        assert sum(cell[field] for cell in found["cells"]) == found["sums"][field]
    pages_bytes = sum(found["sums"][field] for field in fields)
    held = totals["system_bytes"] + totals["mmapped_bytes"]
    assert held <= pages_bytes <= held + 2 * found["page_bytes"] * (totals["heaps"] + 1)
    assert totals["reclaimable_bytes"] <= found["sums"]["free_bytes"]
    if kind == "live":
        assert found["sums"]["free_resident_bytes"] >= totals["reclaimable_resident_bytes"]
    else:
        assert found["sums"]["free_resident_bytes"] is None


def test_the_page_of_two_looks(stage: Stage, live: str) -> None:
    """`diff --html`: of a snapshot and a process; the figures of the document that is printed with it, its exit code, nobody else's file."""
    small, large = stage.start("owning", "10", "0"), stage.start("owning", "4000", "0")
    old, path = str(small.folder / "old.snap"), small.folder / "page.html"
    assert heapx(small.target(live), "snapshot", old).code == 0
    words = ["diff", old, str(large.pid), "--html", str(path), "--fail-on-growth"]
    outcome = heapx([], *words, "1K", "--json")
    assert outcome.code == 3 and stat.S_IMODE(path.stat().st_mode) == 0o600
    data, read = outcome.envelope["data"], pages.check(path.read_text())
    assert read.values["verdict"] == [data["growth_bytes"]] and data["verdict"]["what"] in "".join(read.text)
    for name in ("states", "arenas", "classes", "owners", "leaks"):
        fields = ("old_bytes", "new_bytes", "diff_bytes", "diff_count")
        wanted = [row[field] for row in data[name] for field in fields if row[field] is not None]
        shown = read.values.get(name, [])
        assert shown[len(shown) - len(wanted) :] == wanted, name
    assert read.lines and all(line.startswith("gdbheapx -p %d " % large.pid) for line in read.lines)
    assert heapx([], *words, "1G").stdout.decode() == "the page is in %s\n" % path
    outcome = heapx([], "diff", old, "/nowhere", "--html", str(path))
    assert outcome.code == 1 and outcome.stderr.count("\n") == 1 and pages.check(path.read_text()).values == read.values


def test_without_gdb(stage: Stage, core: str) -> None:
    """The page is the same one, but for who has read."""
    process = stage.start("leaker")
    texts = []
    for run in (heapx, alone):
        path = process.folder / "page.html"
        outcome = run(process.target(core), "report", "--html", str(path))
        assert outcome.code == 0 and outcome.stdout.decode() == "the page is in %s\n" % path
        read = pages.check(path.read_text())
        texts.append(read.values)
    assert texts[0] == texts[1]


def test_no_answer_is_no_page(stage: Stage, live: str) -> None:
    """Where there is no answer the old page stays, and the line says why; inside gdb one line says where pages are made."""
    process = stage.start("leaker")
    path = process.folder / "page.html"
    path.write_text("old")
    outcome = heapx(["--core", str(path)], "report", "--html", str(path))
    assert outcome.code == 1 and outcome.stderr.count("\n") == 1 and path.read_text() == "old"
    assert sorted(one.name for one in process.folder.glob("page*")) == ["page.html"]
    outcome = in_gdb(process.target(live), ["heapx report --html %s" % path])
    assert "is for the shell" in outcome.stderr and path.read_text() == "old"
    outcome = heapx(process.target(live), "report", "--page")
    assert outcome.code == 2 and "--json" in outcome.stderr


def test_a_partial_look(stage: Stage, core: str) -> None:
    """Its page is written, says what is missing, and the exit code stays 4."""
    process = stage.start("leaker")
    whole = process.target(core)[1]
    path, cut = process.folder / "page.html", process.folder / "cut"
    with open(whole, "rb") as file:
        cut.write_bytes(file.read()[:-20000])
    outcome = heapx(["--core", str(cut)], "report", "--html", str(path))
    assert outcome.code == 4 and "This look is partial" in path.read_text()
    pages.check(path.read_text())

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
def test_planted_names_in_a_look(stage: Stage, kind: str, flags: List[str]) -> None:
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


def test_planted_names_in_two_looks(stage: Stage, live: str) -> None:
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
