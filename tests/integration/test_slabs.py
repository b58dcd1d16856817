"""A program that cuts up large blocks of malloc itself is said to: of slabs with objects of several classes or sizes, and of no arrays.

Files: analysis/census/find.py.
"""

from typing import Dict, Tuple

import pytest

from tests.support.processes import Process, Stage, by_turns
from tests.support.tool import heapx

pytestmark = pytest.mark.image  # its compiler and its allocator lay out what is looked at

SLAB_BYTES = 65536
CLASSES = ("ast::Call", "ast::Literal", "ast::Parm")


def started(stage: Stage, way: str, *flags: str) -> Tuple[Process, Dict[str, int]]:
    """The program, and what it has made; skips without a C++ compiler."""
    made, folder = stage.builder.build_by("g++", "-O1", "-s", *flags, name="slabs.cpp"), stage.folder()
    process = stage.spawn_ready([str(made), str(folder / "record"), way], folder)
    lines = [line.split(" ", 1) for line in (folder / "record").read_text().splitlines()]
    return process, {name: int(count) for count, name in lines}


@by_turns("way", ["mixed", "tree"])
def test_slabs_are_told(stage: Stage, kind: str, way: str) -> None:
    """As many as the program has, in `census` and `report`; no slab is said to be an object of the class at its start."""
    process, record = started(stage, way)
    data = heapx(process.target(kind), "census", "--json").data
    found = data["own_allocator"]
    assert record["slabs"] >= 10 and found["blocks"] == record["slabs"]
    assert len(found["sizes_bytes"]) == 1 and 0 <= found["sizes_bytes"][0] - SLAB_BYTES < 64 and found["share_percent"] > 90
    rows = {row["signature"]: row for row in data["rows"] if row["module"] == "slabs"}
    assert not [name for name in rows if name in CLASSES or name.endswith("[]")]
    if way == "mixed":
        assert rows["slab of %s" % ", ".join(CLASSES)]["blocks"] == record["slabs"]
    for words in (("census",), ("report", "--deep")):
        assert "This program has its own allocator: about %d blocks of malloc" % record["slabs"] in heapx(process.target(kind), *words).stdout.decode()


def test_slabs_without_type_info(stage: Stage, kind: str) -> None:
    """-fno-rtti, as LLVM is built: no slab is said to be an object of the class at its start; objects of malloc's own are."""
    process, record = started(stage, "mixed", "-fno-rtti")
    rows = {row["signature"]: row["blocks"] for row in heapx(process.target(kind), "census", "--json").data["rows"] if row["module"] == "slabs"}
    assert sum(rows.values()) == record["slabs"] and all(name.startswith("slab of CLASS@") and name.count("CLASS@") == 3 for name in rows)
    process, record = started(stage, "plain", "-fno-rtti")
    rows = {row["signature"]: row["blocks"] for row in heapx(process.target(kind), "census", "--json").data["rows"] if row["module"] == "slabs"}
    assert sorted(rows.values()) == sorted(record[name] for name in CLASSES) and all(name.startswith("CLASS@") for name in rows)


@by_turns("way, blocks", [("plain", 10000), ("arrays", 20), ("runs", 1)])
def test_no_array_is_a_slab(stage: Stage, kind: str, way: str, blocks: int) -> None:
    """Objects of malloc's own, arrays as large as slabs whose elements lead to one another, and what cannot be told from these."""
    process, record = started(stage, way)
    data = heapx(process.target(kind), "census", "--json").data
    assert data["own_allocator"] is None and "own allocator" not in heapx(process.target(kind), "census").stdout.decode()
    rows = {row["signature"]: row["blocks"] for row in data["rows"]}
    if way == "plain":
        assert {name: rows[name] for name in CLASSES} == {name: record[name] for name in CLASSES}
    else:
        assert rows["ast::Call[]"] >= blocks and not set(rows) & set(CLASSES)
