"""`census` of a program whose blocks are known: containers, structures with a magic number, texts, and what they point to.

Files: analysis/census/block.py, analysis/census/registry.py, analysis/census/find.py, report/census_text.py.
"""

from pathlib import Path
from typing import Any, Dict, List, Sequence

import pytest

from gdbheapx.analysis.census import find, rust
from gdbheapx.analysis.census.world import SHAPE
from gdbheapx.inferior.target import open_elf_target
from gdbheapx.session import Session
from tests.support.jemallocs import preloads
from tests.support.processes import Process, Stage, by_turns
from tests.support.tool import alone, heapx

pytestmark = pytest.mark.image  # the containers are those of its C++ library

MANY, FEW = 5000, 300
NODE, STRING, VECTOR = "node of a map or set", "string {block, length, capacity}", "vector {begin, end, capacity}"


def kinds(stage: Stage, way: str = "glibc", flags: Sequence[str] = ()) -> Process:
    """The program at rest."""
    return stage.spawn_ready([str(stage.builder.build_by("g++", "-O1", *flags, name="kinds.cpp"))], env=preloads(way))


def counted(rows: List[Dict[str, Any]], name: str) -> int:
    """Blocks of a signature."""
    return sum(row["blocks"] for row in rows if row["signature"] == name)


def check(data: Any) -> None:
    """Every kind with its number; each block counts once."""
    rows = data["rows"]
    assert counted(rows, NODE) == 2 * MANY
    assert counted(rows, STRING) == MANY
    assert counted(rows, VECTOR) == FEW
    assert counted(rows, "node of an unordered map or set") == 2 * MANY and counted(rows, "table of an unordered map or set") == 2
    assert counted(rows, "node of a list") == MANY + 3 * FEW
    assert (counted(rows, "map of a deque"), counted(rows, "buffer of a deque")) == (FEW, 8 * FEW)
    assert sum(row["blocks"] for row in rows if row["sure"] == "exact") == FEW  # the control blocks of shared pointers are a class
    assert counted(rows, "magic 'Task'") == FEW
    assert counted(rows, "magic 'Task'+0x8") == FEW
    for name, others in (("lines", ("text", "data")), ("blanks", ("zeros", "data"))):
        assert sum(counted(rows, one) for one in (name, *others)) >= FEW
    assert sum(row["blocks"] for row in rows) == data["used"]["blocks"]
    assert sum(row["bytes"] for row in rows) == data["used"]["bytes"]
    assert all(row["sure"] in ("exact", "shape", "place", "content") if row["signature"] else row["size_bytes"] for row in rows)


@by_turns("way", ["glibc", "jemalloc"])
def test_numbers_are_those_of_the_program(stage: Stage, way: str, kind: str) -> None:
    """Maps, sets, strings, vectors and structures are all found, and nothing else is taken for one."""
    process = kinds(stage, way)
    target = process.target(kind)
    outcome = heapx(target, "census", "--json")
    assert outcome.code == 0, outcome.stderr
    check(outcome.data)
    used = sum(row["used_bytes"] for row in heapx(target, "arenas", "--json").data["arenas"]) if way == "jemalloc" else None
    assert used is None or abs(outcome.data["used"]["bytes"] - used) <= used // 25


def test_nothing_but_the_core(stage: Stage) -> None:
    """Without symbols and files the same is found; variables are then told as data of their module."""
    process = kinds(stage, flags=("-s",))
    check(alone(process.target("core"), "census", "--json").data)


@pytest.mark.once
@pytest.mark.parametrize("way", ["glibc", "jemalloc"])
def test_containers_of_rust_in_a_program_in_cplusplus(stage: Stage, way: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where a library in Rust is loaded beside C++, the containers of C++ are told as before, and no block is taken for one of Rust."""
    session = Session(open_elf_target(pid=kinds(stage, way).pid))
    session.prepare()
    monkeypatch.setattr(rust, "has_rust", lambda world: True)
    rows = find.find_census(session).rows
    found = {name: sum(row.blocks for row in rows if row.signature == name) for name in (NODE, STRING, VECTOR)}
    assert found == {NODE: 2 * MANY, STRING: MANY, VECTOR: FEW}
    assert not [row for row in rows if row.sure == SHAPE and (row.signature or "").startswith(("dyn ", "Vec ", "Rc or Arc", "node of a BTree", "table of a Hash"))]


def test_without_room_for_a_graph(stage: Stage, core: str) -> None:
    """What is in use is as much as with it; blocks that only the graph names are a row without a name."""
    process = kinds(stage)
    options = process.target(core)
    whole = heapx(options, "census", "--json").data
    swept = heapx(options, "census", "--json", env={"GDBHEAPX_MEMORY": "1"})
    assert swept.code == 4 and [one["code"] for one in swept.envelope["problems"] if one["code"] != "not-copied"] == ["graph-too-large"]
    less = swept.envelope["data"]
    assert less["used"] == whole["used"] and sum(row["blocks"] for row in less["rows"]) == less["used"]["blocks"]
    assert sum(row["blocks"] for row in less["rows"] if row["signature"] is None) > 4 * MANY


SAME, TEXTS, NUMBERS, DENSE, BLANKS, PLACED, OTHERS = 1000, 300, 200, 100, 64, 2000, 400
"""See contents.c."""


@by_turns("way", ["glibc", "jemalloc"])
def test_contents(stage: Stage, way: str, kind: str) -> None:
    """What nobody names is told by its content; contents that blocks share are counted, whoever holds the blocks; random bytes are nothing."""
    target = stage.start("contents", env=preloads(way)).target(kind)
    outcome = heapx(target, "census", "--json")
    assert outcome.code == 0, outcome.stderr
    rows, copies = outcome.data["rows"], outcome.data["copies"]
    # a register or the stack may still lead to a few of those that are placed: nobody alone holds them then
    same = [row["blocks"] for row in rows if row["signature"] == "the same content" and row["size_bytes"] >= 2000]
    assert (same, counted(rows, "the same text")) == ([SAME], TEXTS)
    assert (counted(rows, "numbers (double)"), counted(rows, "mostly pointers"), counted(rows, "zeros")) == (NUMBERS, DENSE, BLANKS)
    assert all(row["sure"] == "content" for row in rows if row["signature"] in ("the same content", "numbers (double)", "mostly pointers"))
    assert (copies["contents"], copies["blocks"]) == (3, SAME + TEXTS + PLACED)
    assert copies["spare_bytes"] == copies["bytes"] - sum(same["size_bytes"] for same in copies["largest"])
    placed = [(same["signature"], same["blocks"]) for same in copies["largest"]]
    assert placed[1:] == [("the same content", SAME), ("the same text", TEXTS)]
    assert placed[0] in (("placed", PLACED), ("the same content", PLACED))  # as the first of them is called
    assert all(same["bytes"] == same["blocks"] * same["size_bytes"] for same in copies["largest"])
    text = heapx(target, "census").stdout.decode()
    assert "Duplicates: 3,300 blocks" in text and "share 3 distinct contents; keeping one copy of each would save" in text


@by_turns("way", ["glibc", "jemalloc"], "core")
def test_copies(stage: Stage, way: str, kind: str) -> None:
    """Each content that the program has many times, with its blocks, most to save first; zeros apart; texts only where asked for."""
    target = stage.start("contents", env=preloads(way)).target(kind)
    found = heapx(target, "census", "--copies", "--json").data
    sizes = {row["blocks"]: row["size_bytes"] for row in found["rows"]}
    assert [row["blocks"] for row in found["rows"]] == [PLACED, SAME, TEXTS]
    assert all(least <= sizes[blocks] < least * 1.25 + 16 for blocks, least in ((SAME, 2000), (TEXTS, 1500), (PLACED, 1024)))
    assert all(row["spare_bytes"] == (row["blocks"] - 1) * row["size_bytes"] for row in found["rows"])
    sums = {name: sum(row[name] for row in found["rows"]) for name in ("blocks", "bytes", "spare_bytes")}
    assert found["copies"] == {"contents": 3, **sums}
    assert {name: sum(row[name] for row in found["classes"]) for name in ("contents", *sums)} == found["copies"]
    assert found["zeros"]["blocks"] >= BLANKS and found["zeros"]["bytes"] >= BLANKS * 8192 and found["unlike_blocks"] == 0
    assert "samples" not in found
    text = heapx(target, "census", "--copies", "--limit", "1", "--show-data").stdout.decode()
    assert "2 more rows: gdbheapx -" in text and "contain only zeros" in text and "q" * 60 not in text
    assert '"%s"' % ("q" * 60) in heapx(target, "census", "--copies", "--show-data").stdout.decode()
    texts = heapx(target, "census", "--copies", "--like", "the same text", "--json").data
    assert [row["blocks"] for row in texts["rows"]] == [TEXTS] and len(texts["classes"]) == 1 and texts["copies"] == found["copies"]


@pytest.mark.once
def test_copies_refused(stage: Stage, core: str, folder: Path) -> None:
    """Nothing is compared of a snapshot; with too little memory; or by another option."""
    target = kinds(stage).target(core)
    heapx(target, "snapshot", str(folder / "snap"))
    refused = heapx(["--snapshot", str(folder / "snap")], "census", "--copies", "--json")
    assert (refused.code, refused.envelope["error"]["code"]) == (1, "not-in-snapshot")
    refused = heapx(target, "census", "--copies", "--json", env={"GDBHEAPX_MEMORY": "1"})
    assert (refused.code, refused.envelope["error"]["code"]) == (1, "out-of-memory")
    assert heapx(target, "census", "--copies", "--by", "module").code != 0
