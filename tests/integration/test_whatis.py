"""whatis: each block of a program at its own address, with the neighbours that the listing has; and what is no block.

Files: analysis/census/block.py, glibc/survey.py, jemalloc/extents.py, report/analysis_text.py.
"""

import re
from pathlib import Path
from typing import Any, Dict, List

import pytest

from tests.support import jemallocs
from tests.support.processes import Stage
from tests.support.tool import alone, answers, heapx

pytestmark = pytest.mark.once  # it stands on walks that the images test


def ask(process: Any, kind: str, addresses: List[int]) -> List[Dict[str, Any]]:
    """One gdb for all."""
    envelopes = answers(process.target(kind), process.folder, *["whatis 0x%x" % address for address in addresses])
    return [envelope["data"] for envelope in envelopes]


def samples(rows: List[Dict[str, Any]]) -> List[Dict[str, Any]]:
    """Three of each status."""
    found: Dict[str, List[Dict[str, Any]]] = {}
    for row in rows:
        found.setdefault(row["status"], []).append(row)
    return [row for own in found.values() for row in (own[0], own[len(own) // 2], own[-1])]


def check_blocks(process: Any, kind: str, allocator: str) -> None:
    """Block, size, status and arena are those of the listing."""
    rows = [row for row in heapx(process.target(kind), "chunks", "--json").data["chunks"] if row["allocator"] == allocator]
    picked = samples(rows)
    for row, found in zip(picked, ask(process, kind, [int(row["address"], 16) + 5 for row in picked])):
        assert len(found["places"]) == 1, (row, found)
        place = found["places"][0]
        block = place["block"]
        assert (block["address"], block["usable_bytes"], block["status"], place["arena"]) == (row["address"], row["usable_bytes"], row["status"], row["arena"])
        assert place["offset"] == 5 and place["chunk"] == row["chunk"] and found["mapping"] is not None


def test_glibc(stage: Stage, kind: str) -> None:
    """Chunks of every kind, in each arena, mapped ones among them."""
    check_blocks(stage.start("damage", "rich"), kind, "glibc")


def test_jemalloc(stage: Stage, kind: str) -> None:
    """Regions, large allocations, unused extents, metadata."""
    check_blocks(jemallocs.start(stage, "preload", "recorder", "park", "4", "2"), kind, "jemalloc")


def test_neighbours_and_lists(stage: Stage, kind: str) -> None:
    """A free chunk names its bin, a cached one its thread's cache; neighbours are those of the listing."""
    process = stage.start("damage", "rich")
    rows = sorted(heapx(process.target(kind), "chunks", "--arena", "0", "--json").data["chunks"], key=lambda row: int(row["address"], 16))
    picked = [next(at for at, row in enumerate(rows) if row["status"] == status and at > 3) for status in ("free", "tcache", "fast")]
    for at, found in zip(picked, ask(process, kind, [int(rows[at]["address"], 16) for at in picked])):
        place = found["places"][0]
        for name, row in (("previous", rows[at - 1]), ("next", rows[at + 1])):
            assert (place[name]["address"], place[name]["status"]) == (row["address"], row["status"])
        assert place["parts"][0]["kind"] == ("cache" if rows[at]["status"] == "tcache" else "bin")


def test_what_is_no_block(stage: Stage, live: str) -> None:
    """A stack, code with its symbol, nothing; the same without gdb; a bad address is wrong usage, an unknown name is not."""
    process = stage.start("damage", "none")
    maps = Path("/proc/%d/maps" % process.pid).read_text()
    stack = int(re.search(r"-([0-9a-f]+) .*\[stack\]", maps)[1], 16) - 64  # type: ignore[index]
    code = int(re.search(r"^([0-9a-f]+)-\S+ r-xp .*damage", maps, re.MULTILINE)[1], 16)  # type: ignore[index]
    first, second, third = ask(process, "live", [stack, code + 0x300, 4096])
    assert first["thread"]["what"] == "stack" and first["places"] == [] and first["mapping"]["name"] == "[stack]"
    assert second["named"]["module"].endswith("damage") and second["mapping"]["permissions"] == "r-xp"
    assert third["mapping"] is None and third["named"] is None
    assert alone(process.target("live"), "whatis", str(stack), "--json").data == first
    assert "nothing is mapped" in alone(process.target("live"), "whatis", "4096").stdout.decode()
    unknown = alone(process.target("live"), "whatis", "zz")  # a name may be any text: it is no wrong usage that nothing is called so
    assert unknown.code == 1 and " owners` lists the names" in unknown.stderr
    for wrong in ("0x", "-5", "0x10000000000000000"):
        assert alone(process.target("live"), "whatis", wrong).code == 2


def test_program_started_by_a_link(stage: Stage) -> None:
    """What execve was given names the program, as the process calls itself, live, in a core and in a snapshot; where there is memory its
    file's name is taken, too."""
    folder = stage.folder()
    (folder / "gateway").symlink_to(stage.builder.build("names"))
    process = stage.spawn_ready([str(folder / "gateway"), str(folder / "record"), "--", "one"], folder)
    file = str(folder / "snapshot")
    assert alone(process.target("live"), "snapshot", file).code == 0
    for kind in ("live", "core", "snapshot"):
        target = process.target(kind) if kind != "snapshot" else ["--snapshot", file]
        rows = [row["owner"] for row in alone(target, "owners", "--json").data["owners"]]
        assert "holding in gateway" in rows and not any(row.endswith(" in names") for row in rows)
        for said in ("holding in gateway", "holding in names")[: 1 + (kind != "snapshot")]:
            assert alone(target, "owners", "--of", said, "--json").data["owners"]
