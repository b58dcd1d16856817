"""Elements of containers: what leads to one in few steps, and containers of two looks side by side.

Files: analysis/reachability/refs.py, analysis/reachability/dominance.py, analysis/reachability/leaks.py, analysis/census/find.py,
snapshot/diff.py, commands/whatis.py.
"""

import re
from pathlib import Path

import pytest

from gdbheapx.allocators.session import Session
from gdbheapx.analysis.census import find
from gdbheapx.analysis.reachability import dominance
from gdbheapx.inferior.target import open_elf_target
from tests.support.censuses import where
from tests.support.owned import in_order
from tests.support.processes import Stage
from tests.support.tool import heapx

pytestmark = pytest.mark.once  # what is made of a graph, which is the same on all images


def test_an_element_is_told_by_its_list(stage: Stage, kind: str) -> None:
    """A run of links is one step; the way goes on at what holds the list, and those that only use the element come last."""
    process = stage.start("ten_containers", "2000", "8")
    data = heapx(process.target(kind), "whatis", "g_queue[1500]", "--json").envelope["data"]
    refs = data["refs"]
    assert refs["element"] == data["held_by"]["element"] == "element 1,500 of the list g_queue"
    assert data["held_by"]["root"].startswith("g_queue") and data["held_by"]["steps"] == 2
    assert refs["chains"][0][0]["element"] in ("element 1,499 of the list g_queue", "element 1,501 of the list g_queue")
    text = heapx(process.target(kind), "whatis", refs["address"], "--chains").stdout.decode()
    assert "It is element 1,500 of the list g_queue" in text and "<- g_queue" in text and len(text.split("\n")) < 20


def test_elements_come_in_the_order_of_their_links(stage: Stage, kind: str) -> None:
    """Each element of a list has its number from the head that holds it, whichever end was built first, wherever links stand in it."""
    process = stage.start("ten_containers", "500", "8")
    session = Session(open_elf_target(**where(process, kind)))
    session.prepare()
    told = find.label_blocks(session, lambda graph: None, is_cut=True)
    tallied = dominance.tally_owners(session, told.reach, told.called, told.paths)
    for name, addresses in in_order(process.record_path).items():
        place = tallied.graph.find(addresses[0])
        number = tallied.tree.container_of(place[0]) if place is not None else None
        assert number is not None, name
        members = tallied.graph.members(tallied.tree, number)
        assert [address for address, _ in tallied.graph.blocks(members)] == addresses, name
    assert len(in_order(process.record_path)) == 7


def test_users_of_an_element_come_last(stage: Stage, live: str) -> None:
    """Who works on an element is told as a user, behind the list that owns it."""
    process = stage.start("ten_containers", "2000", "8")
    table = heapx(process.target("live"), "owners", "--of", "g_in_work", "--json").data["owners"][0]["children"][0]["address"]
    place = int(table, 16)
    with open("/proc/%d/mem" % process.pid, "rb") as memory:
        memory.seek(place)
        words = memory.read(8 * 60)
    shown = []
    for at in range(96, len(words), 120):
        element = int.from_bytes(words[at : at + 8], "little")
        shown += [heapx(process.target("live"), "whatis", "0x%x" % element, "--chains").stdout.decode()] if element else []
    told = [text for text in shown if "\nIt is " in text]
    assert len(told) >= 2
    for text in told:
        assert text.index("\nIt is ") < text.index("<- g_") < text.index("<- user: block %s" % table), text


def test_two_looks_at_the_same_have_no_row(stage: Stage, live: str) -> None:
    """Owners of a program that does not change are the same in each look."""
    process = stage.start("ten_containers", "2000", "8")
    assert heapx([], "diff", str(process.pid), str(process.pid), "--json").data["owners"] == []


def test_a_container_that_grew_is_one_row(stage: Stage, live: str, tmp_path: Path) -> None:
    """It is matched by what holds it, in processes that have no address in common."""
    paths = [str(tmp_path / name) for name in ("old", "new")]
    for elements, path in zip(("2000", "3000"), paths):
        process = stage.start("ten_containers", elements, "0")
        assert heapx(process.target("live"), "snapshot", path).code == 0
        process.end()
    rows = {row["what"].split(" in ")[0]: row for row in heapx([], "diff", *paths, "--json").data["owners"]}
    row = rows["g_queue"]
    assert row["contents"] == "list of 2,000 -> 3,000 elements of 88 bytes" and row["only"] is None and row["diff_bytes"] > 0


def test_census_names_elements_by_their_container(stage: Stage, kind: str) -> None:
    """Whoever works on elements: all of a list have one row, and so has what one of their fields points to."""
    process = stage.start("ten_containers", "2000", "8")
    data = heapx(process.target(kind), "census", "--json").data
    rows = {row["signature"]: row for row in data["rows"]}
    for name in ("list g_queue", "list g_tailq", "list g_null_list", "tree g_tree", "LRU list g_lru -> +0x18"):
        assert (rows["element of the " + name]["blocks"], rows["element of the " + name]["sure"]) == (2000, "place")
    assert rows["+0x8 of elements of the list g_queue"]["blocks"] == rows["+0x20 of elements of the tree g_tree"]["blocks"] == 2000
    unnamed = sum(row["bytes"] for row in data["rows"] if row["signature"] is None or row["signature"].startswith("the same"))
    assert unnamed <= 0.01 * data["used"]["bytes"]


def test_a_lost_container_is_one_row(stage: Stage, kind: str, tmp_path: Path) -> None:
    """Whichever of its elements know each other, and whatever lost objects point into it: what it is, how many elements, and all its bytes."""
    process = stage.start("lost_containers", "1500", flags=["-s"])
    lost = []
    for how, shape, size, elements, _ in map(str.split, process.record_path.read_text().splitlines()):
        lost += [(shape, int(elements, 16), int(size))] if how == "lost" else []
    answers = [heapx(process.target(kind), "leaks", "--json").data]
    if kind == "live":
        assert heapx(process.target(kind), "snapshot", str(tmp_path / "look")).code == 0
        answers.append(heapx([], str(tmp_path / "look"), "leaks", "--json").data)
    for data in answers:
        groups, leaked = data["groups"], data["classes"]["leaked"]
        rows = [row for row in groups if row["container"] is not None]
        found = [(row["container"]["kind"], row["container"]["elements"], row["bytes"] + row["behind_bytes"]) for row in rows]
        assert sorted(found) == sorted(lost) and len(lost) == 6
        assert [row["kind"] for row in groups].count("cycle") == 3 and leaked["roots"] == sum(row["blocks"] for row in groups) == 9
        assert leaked["bytes"] == sum(row["bytes"] + row["behind_bytes"] for row in groups)
        assert leaked["blocks"] == sum(row["blocks"] + row["behind_blocks"] for row in groups)
    text = heapx(process.target(kind), "leaks").stdout.decode()
    assert re.findall(r"\nlist of 1,500 elements +\w+ +\d+ B +1,500 ", text)[2:] and "\nholds a hash table of 1,500 elements " in text
