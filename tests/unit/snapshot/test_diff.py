"""What grew between two snapshots.

Files: report/analysis_text.py, snapshot/diff.py, snapshot/take.py.
"""

import re
import shlex
from typing import Any, Dict, List, Optional, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gdbheapx.allocators.records import HeapArenas
from gdbheapx.analysis.addon_answers import Books, MemoryContext
from gdbheapx.analysis.census.find import Census, CensusRow, Managed
from gdbheapx.analysis.reachability.owners import OwnedMemory, Owners
from gdbheapx.command import TextStyle
from gdbheapx.common.hints import BEGIN, write_commands
from gdbheapx.common.model import AllocatorInfo, HeapSum, TargetAddress
from gdbheapx.glibc.records import ArenaTotals
from gdbheapx.kernel.blocks.graph import NativeSum
from gdbheapx.report import analysis_text
from gdbheapx.snapshot import container
from gdbheapx.snapshot.diff import (
    ALL,
    BOTH_GREW,
    ELSEWHERE_GREW,
    FELL,
    IN_USE,
    KEPT_GREW,
    MALLOC,
    RSS,
    SAME,
    USED_GREW,
    ComparedReport,
    diff_snapshots,
    drop_unchanged,
    make_growth,
)
from gdbheapx.snapshot.record import RecordedOutcome, SnapshotHead, SnapshotRecord
from tests.support.addons import require_addon
from tests.support.builders.records import glibc_arena, part, split

pytestmark = pytest.mark.once  # pure functions

MB = 1 << 20


def looked(
    used: int, kept: int, classes: Dict[str, int], owners: Sequence[OwnedMemory] = (), rss: Optional[int] = None, names: bool = True
) -> SnapshotRecord:
    """A snapshot with these sums."""
    head = SnapshotHead("1", "now", "live", 5, "/bin/x", None, None, rss, names, [], [HeapSum("a", used + kept, used)], [])
    rows = [CensusRow(name, "app", "exact", None, size // 10, size, 1.0, None) for name, size in classes.items()]
    models: Dict[str, Any] = {
        "census": container.encode_value(Census(rows, 1, used, 0, 0, [], False)),
        "owners": container.encode_value(Owners([], list(owners), NativeSum(1, used), NativeSum(0, 0), 0)),
    }
    totals = {"used_bytes": used, "free_bytes": kept, "largest_free_bytes": 1, "reclaimable_resident_bytes": None}
    rows = [glibc_arena(0, allocator="a", used_bytes=used, used_chunks=used // 10), glibc_arena(1, allocator="a", used_bytes=None)]
    return SnapshotRecord(head, {}, {**models, "arenas": arenas(heap("a", rows, **totals))})


def heap(name: str, rows: Sequence[ArenaTotals], **totals: Optional[int]) -> HeapArenas:
    """One heap's."""
    return HeapArenas(AllocatorInfo(name, "glibc", None, "x", None, None, None, True), rows, totals)


def arenas(*heaps: HeapArenas) -> Any:
    """As a snapshot has them."""
    return container.encode_value(heaps)


@pytest.mark.parametrize(
    "used, kept, code",
    [
        (100 * MB, 50 * MB, SAME),
        (101 * MB, 51 * MB, SAME),
        (140 * MB, 50 * MB, USED_GREW),
        (100 * MB, 90 * MB, KEPT_GREW),
        (140 * MB, 90 * MB, BOTH_GREW),
        (60 * MB, 50 * MB, FELL),
        (60 * MB, 90 * MB, KEPT_GREW),
    ],
)
def test_states_come_first(used: int, kept: int, code: str) -> None:
    """The verdict says which of the two grew; a hundredth is no growth."""
    found = diff_snapshots(looked(100 * MB, 50 * MB, {}), looked(used, kept, {}), ("a", "b"))
    assert found.verdict.code == code and found.growth_bytes == used - 100 * MB
    assert next(one for one in found.states if one.what == IN_USE)[2:5] == (used - 100 * MB, 100 * MB, used)
    assert not [one for one in found.states if "largest" in one.what or "resident" in one.what]


def pooled(record: SnapshotRecord, used: int, free: int) -> SnapshotRecord:
    """The same, of a Python whose pools have so much."""
    pools = Managed("python", "pools", used + free, used, free, 0)
    return record._replace(models={**record.models, "census": container.encode_value(Census([], 1, 0, 0, 0, [pools], False))})


def test_objects_in_pools_are_in_use() -> None:
    """They have lines of their own and a part in the sentence, and who keeps them is next; also where the pools had room."""
    require_addon("runtimes")
    old, new = looked(5 * MB, MB, {}), looked(5 * MB, MB, {})
    found = diff_snapshots(pooled(old, 45 * MB, 15 * MB), pooled(new, 58 * MB, 2 * MB), ("a", "b"))
    assert "CPython's objects +13.0 MiB (45.0 MiB -> 58.0 MiB)" in found.verdict.what and found.verdict.kind == "growing" and found.verdict.code == ELSEWHERE_GREW
    assert [one[1:5] for one in found.states if one.whose == "CPython"] == [("CPython", 13 * MB, 45 * MB, 58 * MB), ("CPython", -13 * MB, 15 * MB, 2 * MB)]
    assert [step.command for step in found.next] == ["owners", "census", "leaks"] and found.growth_bytes == 0
    assert "CPython" not in diff_snapshots(pooled(old, 45 * MB, 0), new, ("a", "b")).verdict.what, "one side did not look at them"


def test_classes_and_owners_are_matched_by_name() -> None:
    """What is new, gone or changed, the largest change first; two rows of one variable are one; blocks are not compared."""

    def owner(name: str, kind: str, size: int) -> OwnedMemory:
        return OwnedMemory(name, kind, None, size, 1.0, 2, None, None)

    old = looked(
        10, 0, {"Order": 500, "Session": 100, "Same": 7}, [owner("v", "global", 10), owner("v", "global", 5), owner("0x5", "block", 1)]
    )
    new = looked(10, 0, {"Order": 200, "Cache": 900, "Same": 7}, [owner("v", "global", 40), owner("0x6", "block", 2)])
    found = diff_snapshots(old, new, ("a", "b"))
    assert found.classes is not None and found.owners is not None
    assert [(one.what, one.diff_bytes, one.diff_count) for one in found.classes] == [
        ("Cache", 900, 90),
        ("Order", -300, -30),
        ("Session", -100, -10),
    ]
    assert [(one.what, one.old_bytes, one.new_bytes, one.old_count) for one in found.owners] == [("v", 15, 40, 4)]
    assert [one.only for one in found.classes] == ["new", None, "old"]


SIZES = st.dictionaries(st.sampled_from("ABCDEFGH"), st.sampled_from([0, 0, 10, 500]))


@given(SIZES, SIZES)
def test_new_and_gone_by_presence(old: Dict[str, int], new: Dict[str, int]) -> None:
    """A row is only on one side where the other does not have it, whatever its size, 0 too; and all such rows are there, in text as well."""
    found = diff_snapshots(looked(10, 0, old), looked(10, 0, new), ("a", "b"))
    assert found.classes is not None
    rows = {one.what: one.only for one in found.classes}
    assert {what for what, only in rows.items() if only == "new"} == set(new) - set(old)
    assert {what for what, only in rows.items() if only == "old"} == set(old) - set(new)
    assert {what for what, only in rows.items() if only is None} == {what for what in set(old) & set(new) if old[what] != new[what]}
    text = "\n".join(analysis_text.format_diff(TextStyle(plain_bytes=False, color=False), found, 20))
    assert text.count(", only in new") == len(set(new) - set(old)) and text.count(", only in old") == len(set(old) - set(new))


def test_what_one_side_does_not_count_is_unknown() -> None:
    """Blocks that one release counts and the other does not are no growth of blocks; those of a row that is only there are."""
    answer = diff_snapshots(with_books(looked(MB, 0, {}), {"main": [1]}, None), with_books(looked(MB, 0, {}), {"main": [3], "more": [4]}), ("old", "new"))
    assert answer.contexts is not None
    assert [(row.what, row.diff_count, row.old_count, row.only) for row in answer.contexts] == [("more", 7, 0, "new"), ("main", None, None, None)]


@pytest.mark.parametrize(
    "used, kept, commands",
    [
        (140, 50, ["owners", "census", "leaks"]),
        (100, 90, ["report", "pins"]),
        (140, 90, ["owners", "census", "leaks", "report", "pins"]),
        (60, 50, []),
    ],
)
def test_what_to_ask_next(used: int, kept: int, commands: List[str]) -> None:
    """The later side is asked what holds the memory, or what keeps it, by the option that it was named for."""
    for form, option in (("snapshot", "--snapshot"), ("core", "--core"), ("process", "-p")):
        found = diff_snapshots(looked(100 * MB, 50 * MB, {}), looked(used * MB, kept * MB, {}), ("a", "it's"), ("snapshot", form))
        assert [(one.side, one.command) for one in found.next] == [("new", command) for command in commands]
        text = list(analysis_text.format_diff(TextStyle(plain_bytes=False, color=False), found, None))
        lines = [write_commands(line).split() for line in text if line.startswith("  " + BEGIN)]
        assert [line[:4] for line in lines] == [["gdbheapx", option, shlex.quote("it's"), command] for command in commands]


def test_what_one_of_them_lacks_is_not_known() -> None:
    """Numbers instead of names mean nothing elsewhere; RSS of a core is not known."""
    found = diff_snapshots(looked(10, 0, {}, names=False), looked(10, 0, {"A": 5}, rss=7), ("a", "b"))
    assert found.classes is None and found.owners is None and found.leaks is None
    assert not [one for one in found.states if one.what == "RSS"]
    assert [(one.what, one.side) for one in found.missing if one.what != "held"] == [("classes", "old"), ("owners", "old"), ("leaks", "old"), ("leaks", "new")]
    assert "--no-names" in found.missing[0].why and "--no-names" not in found.missing[2].why
    text = "\n".join(analysis_text.format_diff(TextStyle(plain_bytes=False, color=False), found, None))
    assert ("By class: unknown (old: it was taken with --no-names, " in text and "Leaked: unknown (old: " in text and "; new: " in text)
    found = diff_snapshots(looked(10, 0, {}, rss=5), looked(10, 0, {}, rss=7), ("a", "b"))
    assert "By " not in "\n".join(analysis_text.format_diff(TextStyle(plain_bytes=False, color=False), found._replace(leaks=[], held=[], missing=[]), None))
    assert found.states[0][:5] == ("RSS", "", 2, 5, 7)


def test_what_is_unknown_is_no_growth() -> None:
    """A core does not tell what is in RAM, a process does: that is no growth from 0. An allocator that was not there is one."""
    old, new = looked(100, 20, {}), looked(100, 20, {})
    new.models["arenas"][0]["totals"]["reclaimable_resident_bytes"] = 5 * MB
    new.models["arenas"][0]["rows"][1]["used_bytes"] = 7
    new.models["arenas"] += arenas(heap("b", [], used_bytes=3, free_bytes=None))
    for found in (diff_snapshots(old, new, ("a", "b")), diff_snapshots(new, old, ("a", "b"))):
        assert not [one for one in found.states if "resident" in one.what] and not found.arenas
        assert [(one.what, one.only is None) for one in found.states if one.whose == "b"] == [("used", False)]


def parted(
    sizes: Dict[str, int], used: int = 10 * MB, measure: str = "resident", beside: Optional[Dict[str, int]] = None, **head: Any
) -> SnapshotRecord:
    """A snapshot with a split of the memory; the part that is called `a` is the allocator's."""
    made = looked(used, 0, {}, rss=sum(sizes.values()) if measure == "resident" else None)
    rows = [
        part(
            "allocator" if name == "a" else "runtime",
            size if measure == "resident" else None,
            name=name,
            allocator="a" if name == "a" else None,
            dumped_bytes=None if measure == "resident" else size,
            swapped_bytes=(beside or {}).get(name, 0),
        )
        for name, size in sizes.items()
    ]
    memory = split([]).memory._replace(measure=measure, total_bytes=sum(sizes.values()))
    made.models["report"] = container.encode_value(ComparedReport(memory, rows))
    return made._replace(head=made.head._replace(**head))


def test_growth_outside_malloc_is_growth() -> None:
    """An interpreter's pools, its mappings: named by part, first in the verdict; malloc's share stands beside it."""
    old, new = (
        parted({"a": 12 * MB, "pools": 20 * MB, "files": 8 * MB}),
        parted({"a": 19 * MB, "pools": 42 * MB, "files": 8 * MB}, used=17 * MB),
    )
    found = diff_snapshots(old, new, ("a", "b"))
    assert found.verdict.code == ELSEWHERE_GREW
    assert "RSS grew 29.0 MiB: 22.0 MiB in pools, 7.0 MiB in a" in "; ".join(found.verdict.details)
    grown = found.growth
    assert (grown.measure, grown.all_bytes, grown.malloc_bytes, grown.rss_bytes) == ("resident", 29 * MB, 7 * MB, 29 * MB)
    assert [(one.what, one.diff_bytes, one.used_diff_bytes) for one in grown.parts] == [("pools", 22 * MB, None), ("a", 7 * MB, 7 * MB)]
    assert [one.command for one in found.next] == ["report"], "no pool was looked into"
    none = [made._replace(head=made.head._replace(heaps=[])) for made in (old, new)]
    assert not any("memory in use" in line for line in diff_snapshots(none[0], none[1], ("a", "b")).verdict.details), "where none was read what is in use is not known, and not 0"
    some = diff_snapshots(pooled(old, 10 * MB, MB), pooled(new, 13 * MB, MB), ("a", "b"))
    assert [one.command for one in some.next] == ["report", "census"]


def test_each_way_of_growth_counts() -> None:
    """What fell does not hide what grew; in use and not in RAM, in swap and not in RAM are growth; RSS is net."""
    old = parted({"a": 50 * MB, "pools": 20 * MB})
    fell = make_growth(old, parted({"a": 20 * MB, "pools": 45 * MB}))
    assert (fell.of(ALL), fell.of(RSS), fell.of(MALLOC)) == (25 * MB, -5 * MB, 0)
    untouched = make_growth(old, parted({"a": 50 * MB, "pools": 20 * MB}, used=80 * MB))
    assert (untouched.of(ALL), untouched.of(RSS), untouched.of(MALLOC)) == (70 * MB, 0, 70 * MB)
    swapped = make_growth(old, parted({"a": 50 * MB, "pools": 10 * MB}, beside={"pools": 40 * MB}))
    assert (swapped.of(ALL), swapped.of(RSS)) == (30 * MB, -10 * MB)
    same = diff_snapshots(old, old, ("a", "b"))
    assert same.growth.parts == [] and not drop_unchanged(same.states) and (same.growth.of(ALL), same.growth.of(RSS)) == (0, 0)
    text = list(analysis_text.format_diff(TextStyle(plain_bytes=False, color=False), same._replace(missing=[], owners=[], classes=[], leaks=[]), None))
    assert not [line for line in text if line.startswith("  ")], "no rows of zeros"


def test_unknown_growth_is_not_none() -> None:
    """A snapshot without a split, a core against a process, an allocator that could not be read: unknown, and why; what is certain counts."""
    whole, bare = parted({"a": 20 * MB}), looked(50 * MB, 0, {})
    for old, new in ((whole, bare), (bare, whole), (parted({"a": 1}, measure="dumped"), whole)):
        found = make_growth(old, new)
        assert found.of(ALL) is None and found.of(RSS) is None and found.lacking and found.measure is None
    found = make_growth(whole, bare)
    assert found.of(MALLOC) == 40 * MB == found.at_least(ALL) and found.at_least(RSS) == 0
    cores = make_growth(parted({"a": 5}, measure="dumped"), parted({"a": 9}, measure="dumped"))
    assert (cores.measure, cores.of(ALL), cores.of(RSS), cores.lacking) == ("dumped", 4, 4, [])
    unread = AllocatorInfo("b", "b", None, "x", None, None, None, True)
    found = make_growth(whole, parted({"a": 25 * MB}, allocators=[unread]))
    assert found.of(MALLOC) is None and found.of(ALL) == 5 * MB and "b could not be read" in found.lacking[0]
    found = make_growth(whole, parted({"a": 25 * MB}, heaps=[]))
    assert found.of(MALLOC) is None and found.of(ALL) == 5 * MB, "a program without an allocator has memory all the same"
    cut = parted({"a": 25 * MB})
    cut.outcomes["arenas"] = RecordedOutcome(partial=True)
    assert make_growth(whole, cut).of(MALLOC) is None


def test_names_that_are_numbers_are_compared_by_kind() -> None:
    """With --no-names on one side a part's name means nothing to the other."""
    found = make_growth(parted({"a": 5, "pools": 7, "jit": 3}), parted({"a": 5, "name-1": 9, "name-2": 3}, has_names=False))
    assert [(one.what, one.old_bytes, one.new_bytes) for one in found.parts] == [("runtime", 10, 12)]


def test_a_core_is_as_old_as_its_file() -> None:
    """Of a core the time of reading says nothing; one of which its file's time is unknown has none."""
    live = looked(1, 0, {})
    core = live._replace(head=live.head._replace(kind="core", core_written="2026-01-02T03:04:05Z"))
    found = diff_snapshots(live, core, ("a", "b"))
    assert (found.old.taken, found.new.taken) == ("now", "2026-01-02T03:04:05Z")
    text = "\n".join(analysis_text.format_diff(TextStyle(plain_bytes=False, color=False), found, None))
    assert "process 5, now)" in text and "core written 2026-01-02T03:04:05Z)" in text
    unknown = diff_snapshots(live, core._replace(head=core.head._replace(core_written=None)), ("a", "b"))
    assert unknown.new.taken is None
    assert "unknown when it was written" in "\n".join(analysis_text.format_diff(TextStyle(plain_bytes=False, color=False), unknown, None))


def with_books(record: SnapshotRecord, sizes: Dict[str, Sequence[int]], blocks: Optional[int] = 7) -> SnapshotRecord:
    """The same of BIND's server, with contexts of these names."""
    rows = [MemoryContext(TargetAddress(64), name, size, None, None, 0, blocks, 0, 1, 0) for name, each in sizes.items() for size in each]
    report = {"memory": None, "split": None, "books": container.encode_value(Books("BIND", rows, [], 0, 0))}
    return record._replace(models={**record.models, "report": report})


def test_memory_contexts_are_matched_by_name() -> None:
    """All of one name together; the largest change first, what did not change is left out."""
    old = with_books(looked(MB, 0, {}), {"main": [100, 50], "cache": [70], "gone": [5]})
    new = with_books(looked(MB, 0, {}), {"main": [100, 90, 10], "cache": [70]})
    answer = diff_snapshots(old, new, ("old", "new"))
    assert answer.contexts is not None
    assert [(row.what, row.diff_bytes, row.old_bytes, row.new_bytes, row.diff_count, row.only) for row in answer.contexts] == [
        ("main", 50, 150, 200, 7, None),
        ("gone", -5, 5, 0, -7, "old"),
    ]
    text = "\n".join(analysis_text.format_diff(TextStyle(False, False), answer, None))
    assert re.search(r"  memory context, in use\n.*\n *\+50 B +150 -> 200 B +\+7  main\n", text)
    uncounted = diff_snapshots(with_books(old, {"main": [1]}, None), with_books(new, {"main": [3]}, None), ("old", "new")).contexts
    assert uncounted is not None and uncounted[0].diff_count is None
