"""Owners of two snapshots side by side: one that moved in the list is neither new nor gone, and what it holds is told before and after.

Files: snapshot/diff.py, snapshot/diff.py.
"""

import random
from typing import Dict, List, Optional, Sequence

import pytest

from gdbheapx.analysis.census.find import CensusRow
from gdbheapx.analysis.census.owned import OwnerRows
from gdbheapx.analysis.reachability.owners import LinkedContainer, OwnedMemory, Owners
from gdbheapx.command import TextStyle
from gdbheapx.kernel.blocks.graph import NativeSum
from gdbheapx.report import analysis_text
from gdbheapx.snapshot import container
from gdbheapx.snapshot.diff import OTHERS, DiffChange, OwnedGraph, describe_content_change, diff_snapshots
from gdbheapx.snapshot.record import OWNERS_KEPT, SnapshotHead, SnapshotRecord

pytestmark = pytest.mark.once  # pure functions


def looked(rows: Sequence[OwnedMemory] = (), taken: str = "now") -> SnapshotRecord:
    """A snapshot with these owners."""
    head = SnapshotHead("1", taken, "live", 5, "/bin/x", None, None, None, True, [], [], [])
    return SnapshotRecord(head, {}, {"owners": container.encode_value(Owners([], list(rows), NativeSum(1, 10), NativeSum(0, 0), 0))})


def owner(name: str, size: int, kind: str = "global", what: Optional[str] = None, path: Optional[str] = None) -> OwnedMemory:
    """One row."""
    return OwnedMemory(name, kind, None, size, 1.0, 2, None, None, signature=what, path=path)


def owners(old: List[OwnedMemory], new: List[OwnedMemory]) -> Dict[str, DiffChange]:
    """How each of them changed, by name."""
    found = diff_snapshots(looked(old), looked(new), ("a", "b")).owners
    assert found is not None
    return {row.what: row for row in found}


@pytest.mark.parametrize("seed", range(20))
def test_lists_that_end_tell_no_owner_as_new_or_gone(seed: int) -> None:
    """Each side lists its largest: growth that is told is never more than what there was, in the right direction, and nothing is `only`."""
    draw = random.Random(seed)
    sizes = [{"v%d" % number: draw.randint(1, 1 << 20) for number in range(3 * OWNERS_KEPT)} for _ in range(2)]
    lists = [
        sorted((owner(name, size) for name, size in side.items()), key=lambda row: -row.retained_bytes)[:OWNERS_KEPT] for side in sizes
    ]
    rows = owners(*lists)
    assert len(rows) > OWNERS_KEPT and not [row for row in rows.values() if row.only] and any(row.at_most for row in rows.values())
    for name, row in rows.items():
        true = sizes[1][name] - sizes[0][name]
        assert 0 < row.diff_bytes <= true if row.diff_bytes > 0 else true <= row.diff_bytes < 0, name


def test_whole_lists_tell_what_is_new() -> None:
    """A list that is shorter than it may be has all owners; blocks without a name are no owners to compare, those with a path are."""
    rows = owners([owner("v", 5), owner("0x5", 9, "block")], [owner("w", 7), owner("shop._cache", 4, "shared", path="shop._cache")])
    assert {name: row.only for name, row in rows.items()} == {"v": "old", "w": "new", "shop._cache": "new"}


@pytest.mark.parametrize(
    "old, new, said",
    [
        ("dict of 20,000 entries", "dict of 50,000 entries", "dict of 20,000 -> 50,000 entries"),
        ("dict of 1 entry", "dict of 2 entries", "dict of 1 entry -> dict of 2 entries"),
        ("list of 5, beside a list of 6", "list of 7, beside a list of 6", "list of 5 -> 7, beside a list of 6"),
        ("dict of 2 entries", "dict of 2 entries", "dict of 2 entries"),
        (None, "dict of 2 entries", "dict of 2 entries"),
        (None, None, None),
    ],
)
def test_what_an_owner_holds(old: Optional[str], new: Optional[str], said: Optional[str]) -> None:
    """Numbers side by side where nothing else differs."""
    assert describe_content_change(old, new) == said


def row(name: Optional[str], size: int) -> CensusRow:
    """Of a class."""
    return CensusRow(name, "", "", None, 1, size, 1.0, None)


def test_classes_of_owners() -> None:
    """By owner and class; blocks that no name owns alone are one owner; what has a name is found where the list has it not."""
    before = OwnerRows(
        [owner("c", 100, what="dict of 10 entries"), owner("0x1", 9, "shared")], {0: [row("str", 60), row(None, 40)], 1: [row("str", 9)]}
    )
    after = OwnerRows(
        [owner("c", 300, what="dict of 30 entries"), owner("d", 50)],
        {0: [row("str", 260), row(None, 40)], 1: [row("list", 50)], -1: [row("str", 1)]},
    )
    graphs = OwnedGraph(before, None, {"d": (20, 1)}), OwnedGraph(after, None, {})
    found = diff_snapshots(looked(), looked(), ("a", "b"), graphs=graphs)
    assert found.held is not None and found.owners is not None
    assert [(one.what, one.whose, one.diff_bytes) for one in found.held] == [("str", "c", 200), ("list", "d", 50), ("str", OTHERS, -8)]
    assert [(one.what, one.diff_bytes, one.old_bytes) for one in found.owners] == [("c", 200, 100), ("d", 30, 20)]
    text = "\n".join(analysis_text.format_diff(TextStyle(plain_bytes=True, color=False), found, None))
    assert "c, dict of 10 -> 30 entries" in text and "str of c" in text
    lacking = diff_snapshots(looked(), looked(), ("a", "b"), graphs=(OwnedGraph(before, None), OwnedGraph(None, "no room")))
    assert lacking.held is None and [(one.side, one.why) for one in lacking.missing if one.what == "held"] == [("new", "no room")]


def test_time_between() -> None:
    """Of two looks whose time is known; the wrong order shows."""
    at = [looked(taken=time) for time in ("2026-11-30T12:00:00Z", "2026-11-30T14:10:00Z")]
    unknown = [looked(), looked()]
    for records, between, said in ((at, 7800, "2 h 10 min later"), (at[::-1], -7800, "2 h 10 min EARLIER"), (unknown, None, None)):
        found = diff_snapshots(records[0], records[1], ("a", "b"))
        text = "\n".join(analysis_text.format_diff(TextStyle(plain_bytes=True, color=False), found, None))
        assert found.between_s == between and (said in text if said else "later" not in text)


def test_containers_are_matched_by_what_holds_them() -> None:
    """Kind and number of elements are told before and after; a list that two variables hold has their names, one of blocks has none."""

    def linked(name: str, elements: int, size: int, kind: str = "global", holders: Sequence[str] = ()) -> OwnedMemory:
        return owner(name, size, kind)._replace(container=LinkedContainer("list", elements, 88, 88 * elements), holders=holders, has_names=name[:5] != "block")

    shared = "g_lru and g_index"
    old = [linked("g_queue", 800, 80), linked(shared, 5, 9, "shared", ("g_lru", "g_index")), linked("block 0x10 (8 bytes) -> +0x0", 5, 9, "shared", ("block 0x10 (8 bytes) -> +0x0", "g_index"))]
    new = [linked("g_queue", 3007, 300), linked(shared, 6, 12, "shared", ("g_lru", "g_index")), linked("block 0x20 (8 bytes) -> +0x0", 5, 9, "shared", ("block 0x20 (8 bytes) -> +0x0", "g_index"))]
    rows = owners(old, new)
    assert set(rows) == {"g_queue", shared}
    assert rows["g_queue"].contents == "list of 800 -> 3,007 elements of 88 bytes"
    assert rows[shared].contents == "list of 5 -> 6 elements of 88 bytes"
