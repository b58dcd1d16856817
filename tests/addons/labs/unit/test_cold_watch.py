"""The ages of pages, watched and joined with what is in RAM.

Files: addons/labs/cold/find.py, addons/labs/commands/cold.py.
"""

import argparse
import json
import os
import subprocess
from array import array
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Dict, List, Optional, Tuple

import pytest

from gdbheapx.addons.labs.cold import find, watch
from gdbheapx.addons.labs.cold.find import COLD_RESIDENT, COLD_SEEN, COLD_SWAPPED, KNOWN, STALE, ColdSum
from gdbheapx.addons.labs.short_stop import stop, userfaultfd
from gdbheapx.common.errors import HeapxError
from gdbheapx.common.problems import NO_PROCESS
from gdbheapx.inferior.live.usage import PRESENT
from gdbheapx.kernel.common.copy import KIND_RESIDENT, KIND_SWAPPED
from gdbheapx.snapshot import container

PAGE = os.sysconf("SC_PAGESIZE")
FRAMES = [640, 641, 700, 0, 64, 1024, 1025, 1026]
"""Of eight pages; one is not in RAM, the last three are of one huge page."""
FLAGS = {640: watch.LRU, 641: watch.LRU, 700: 0, 64: watch.LRU, 1024: watch.LRU | watch.HEAD, 1025: watch.TAIL, 1026: watch.TAIL}
RANGES = [(16 * PAGE, 24 * PAGE)]
HEADS = {640: 640, 641: 641, 64: 64, 1024: 1024, 1025: 1024, 1026: 1024}


def words(path: Path, known: Dict[int, int], count: int) -> str:
    """A file of so many words."""
    path.write_bytes(array("Q", [known.get(number, 0) for number in range(count)]).tobytes())
    return str(path)


@pytest.fixture
def files(tmp_path: Path) -> watch.AgingFiles:
    """A machine of 2,048 pages without marks, and without DAMON."""
    bitmap, flags = words(tmp_path / "bitmap", {}, 32), words(tmp_path / "flags", FLAGS, 2048)
    return watch.AgingFiles(bitmap, flags, str(tmp_path / "damon" / "*"), str(tmp_path / "modules" / "*"), *(str(tmp_path / name) for name in ("generations", "events")))


@pytest.fixture
def session(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Of a process with FRAMES at page 16."""
    monkeypatch.setattr(watch, "read_page_frames", lambda pagemap, start, end: array("Q", FRAMES))
    return SimpleNamespace(target=SimpleNamespace(pid=os.getpid()), budget=SimpleNamespace(reason=None))


def options(**more: Any) -> argparse.Namespace:
    """Of the command."""
    return argparse.Namespace(**{"for_s": 1.0, "accept_mark_loss": False, "accept_thp_split": False, "reads": False, "yes": True, "age": None, **more})


def touch(files: watch.AgingFiles, *numbers: int) -> watch.Wait:
    """What happens meanwhile: the kernel takes these marks away."""

    def wait(session: Any, seconds: float, pagemap: int, check: watch.Check) -> None:
        marks = array("Q", Path(files.bitmap).read_bytes())
        for number in numbers:
            marks[number // 64] &= ~(1 << number % 64)
        Path(files.bitmap).write_bytes(marks.tobytes())

    return wait


def test_a_huge_page_has_one_age(session: Any, files: watch.AgingFiles) -> None:
    """The mark of its first page counts for all of it."""
    found = watch.watch_idle_pages(session, RANGES, files, options(), touch(files, 1024))
    assert list(found.ranges[0][2])[-4:] == [KNOWN | STALE, *[KNOWN] * 3]


def test_only_its_own_pages_are_marked(session: Any, files: watch.AgingFiles) -> None:
    """And of a huge page the first."""
    watch.watch_idle_pages(session, RANGES, files, options(), touch(files))
    marks = array("Q", Path(files.bitmap).read_bytes())
    assert [number for number in range(2048) if marks[number // 64] >> number % 64 & 1] == sorted(set(HEADS.values()))


def test_marks_of_others_are_not_taken(session: Any, files: watch.AgingFiles) -> None:
    """Unless that is accepted."""
    watch.watch_idle_pages(session, RANGES, files, options(), touch(files))
    with pytest.raises(HeapxError):
        watch.watch_idle_pages(session, RANGES, files, options(), touch(files))
    assert watch.watch_idle_pages(session, RANGES, files, options(accept_mark_loss=True), touch(files, 640)).ranges[0][2][0] == KNOWN


def test_the_tail_of_a_huge_page_whose_head_is_elsewhere_is_not_known(tmp_path: Path) -> None:
    """Its age would be that of a page that is not the process's."""
    with open(words(tmp_path / "flags", {**FLAGS, 1023: watch.LRU}, 2048), "rb") as flags:
        assert watch.map_tracked_frames(flags.fileno(), [1025, 1026]) == {}
        assert watch.map_tracked_frames(flags.fileno(), [1023, 1026]) == {1023: 1023}
        assert watch.map_tracked_frames(flags.fileno(), sorted(number for number in FRAMES if number)) == HEADS


def test_damon_is_not_disturbed(tmp_path: Path, files: watch.AgingFiles) -> None:
    """Where it samples, idle page tracking is refused; where it is off, not."""
    (tmp_path / "damon").mkdir()
    for state, is_on in ((b"off\n", False), (b"on\n", True)):
        (tmp_path / "damon" / "state").write_bytes(state)
        assert watch.damon_is_on(files) == is_on
    with pytest.raises(HeapxError):
        watch.check_idle(None, files, options())  # type: ignore[arg-type]
    (tmp_path / "damon" / "state").unlink()
    watch.check_idle(None, files, options())  # type: ignore[arg-type]
    (tmp_path / "modules").mkdir()
    (tmp_path / "modules" / "enabled").write_bytes(b"Y\n")
    assert watch.damon_is_on(files)


def test_a_kernel_without_the_bitmap_is_told(tmp_path: Path, files: watch.AgingFiles) -> None:
    """And by default the other means is used there."""
    lacking = files._replace(bitmap=str(tmp_path / "none"))
    assert (watch.means_here(files), watch.means_here(lacking)) == ("idle", "written")
    with pytest.raises(HeapxError):
        watch.check_idle(None, lacking, options())  # type: ignore[arg-type]


def test_a_page_that_moves_meanwhile_is_not_known(monkeypatch: pytest.MonkeyPatch, session: Any, files: watch.AgingFiles) -> None:
    """What is looked at then may be another's."""
    answers = iter([FRAMES, FRAMES, FRAMES, [*FRAMES[:1], 642, *FRAMES[2:]]])
    monkeypatch.setattr(watch, "read_page_frames", lambda pagemap, start, end: array("Q", next(answers)))
    assert list(watch.watch_idle_pages(session, RANGES, files, options(), touch(files)).ranges[0][2][:2]) == [KNOWN | STALE, 0]


def test_generations_make_the_other_means_the_default(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, files: watch.AgingFiles) -> None:
    """Any reclaim would end the watch in an error; unless the kernel has no other."""
    monkeypatch.setattr(watch.stop, "is_by_marks", lambda: False)
    for lacking, enabled, means in ((None, b"0x0007\n", "written"), ("none", b"0x0007\n", "idle"), (None, b"0x0000\n", "idle"), (None, b"\n", "idle")):
        monkeypatch.setattr(userfaultfd, "find_lacking_injection", lambda lacking=lacking: lacking)
        (tmp_path / "generations").write_bytes(enabled)
        assert watch.means_here(files) == means


@pytest.mark.parametrize("enabled, is_refused", [(b"0x0000\n", False), (b"0x0007\n", True)])
def test_reclaim_by_generations_is_told(tmp_path: Path, session: Any, files: watch.AgingFiles, enabled: bytes, is_refused: bool) -> None:
    """It takes accesses away, so that pages in use look idle. That of a memory cgroup is counted by sort of page alone."""
    (tmp_path / "generations").write_bytes(enabled)
    (tmp_path / "events").write_bytes(b"pgscan_kswapd 5\npgscan_direct 7\npgscan_anon 9\npgscan_file 3\n")

    def wait(session: Any, seconds: float, pagemap: int, check: watch.Check) -> None:
        (tmp_path / "events").write_bytes(b"pgscan_kswapd 5\npgscan_direct 7\npgscan_anon 10\npgscan_file 3\n")

    if is_refused:
        with pytest.raises(HeapxError):
            watch.watch_idle_pages(session, RANGES, files, options(), wait)
    else:
        assert watch.watch_idle_pages(session, RANGES, files, options(), wait).ranges


def test_the_end_of_the_process_ends_the_wait() -> None:
    """So does what it executes: the memory that was watched is no more."""
    session: Any = SimpleNamespace(target=SimpleNamespace(pid=1), budget=SimpleNamespace(reason=None))
    for then in ("exec sleep 60", "exit 0"):
        child = subprocess.Popen(["sh", "-c", "read line; " + then], stdin=subprocess.PIPE)
        try:
            with watch.pagemap_of(child.pid) as pagemap:
                watch.wait_for_accesses(session, 0.0, pagemap)
                child.stdin.write(b"\n")
                child.stdin.close()
                with pytest.raises(HeapxError) as raised:
                    watch.wait_for_accesses(session, 20.0, pagemap)
                assert raised.value.code == NO_PROCESS
        finally:
            child.kill()
            child.wait()


def test_a_watch_in_vain_ends_at_once(tmp_path: Path, files: watch.AgingFiles) -> None:
    """Where something was reclaimed by generations, and not after its time."""
    (tmp_path / "generations").write_bytes(b"0x0007\n")
    (tmp_path / "events").write_bytes(b"pgscan_anon 9\n")
    check, session = watch.reclaim_check(files), SimpleNamespace(target=SimpleNamespace(pid=os.getpid()), budget=SimpleNamespace(reason=None))
    with watch.pagemap_of(os.getpid()) as pagemap:
        watch.wait_for_accesses(session, 0.0, pagemap, check)  # type: ignore[arg-type]
        (tmp_path / "events").write_bytes(b"pgscan_anon 10\n")
        with pytest.raises(HeapxError):
            watch.wait_for_accesses(session, 600.0, pagemap, check)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "accessed_pages, kinds, read_pages",
    [
        (1, [KNOWN, KNOWN | STALE, KNOWN | STALE, 0], 0),
        (2, [KNOWN, KNOWN | STALE, KNOWN | STALE, 0], 1),
        (3, [KNOWN, KNOWN, KNOWN, 0], 0),
        (4, [KNOWN, KNOWN, KNOWN, 0], 0),
    ],
)
def test_reads_by_mapping(accessed_pages: int, kinds: List[int], read_pages: int) -> None:
    """None of what was not written to was read, some of it, or all, although it was looked at in parts; mappings that nobody watched count
    for nothing."""
    watched = [(4 * PAGE, 5 * PAGE, bytes([KNOWN])), (5 * PAGE, 8 * PAGE, bytes([KNOWN | STALE, KNOWN | STALE, 0]))]
    accessed = [(0, 4 * PAGE, 4 * PAGE), (4 * PAGE, 8 * PAGE, accessed_pages * PAGE), (8 * PAGE, 9 * PAGE, PAGE)]
    made, read_bytes = watch.without_read(watched, accessed)
    assert (made, read_bytes) == ([(4 * PAGE, 8 * PAGE, bytes(kinds))], read_pages * PAGE)


def test_reads_of_a_mapping_that_has_grown() -> None:
    """Its fresh pages may be those that were read: it is not known where there are enough of them, and else so much may have been."""
    watched = [(4 * PAGE, 8 * PAGE, bytes([KNOWN, *[KNOWN | STALE] * 3]))]
    assert watch.without_read(watched, [(4 * PAGE, 9 * PAGE, 2 * PAGE)]) == (watched, PAGE)
    assert watch.without_read(watched, [(4 * PAGE, 9 * PAGE, 4 * PAGE)]) == ([(4 * PAGE, 8 * PAGE, bytes([KNOWN, 0, 0, 0]))], 0)
    assert watch.without_read(watched, [(2 * PAGE, 6 * PAGE, PAGE), (6 * PAGE, 8 * PAGE, PAGE)]) == (watched, PAGE)


def test_accesses_are_those_of_smaps() -> None:
    """This process's own: each mapping of it once."""
    found = watch.read_referenced(os.getpid())
    assert len(found) > 10 and found == sorted(found) and any(touched for _, _, touched in found)


def test_pages_without_a_mark_of_a_write_are_stale(monkeypatch: pytest.MonkeyPatch) -> None:
    """On kernels that have such marks. What moved has lost its own, so that it is not known."""
    after = array("Q", [PRESENT | 5, PRESENT | 6 | stop.MARKED, PRESENT | 8, 0, PRESENT | 9, PRESENT | 11 | stop.MARKED])
    monkeypatch.setattr(watch, "read_page_frames", lambda pagemap, start, end: array("Q", [5, 6, 7, 0, 0, 10]))
    monkeypatch.setattr(watch, "read_page_entries", lambda pagemap, start, end: after)
    cleared: List[int] = []
    monkeypatch.setattr(stop, "clear_marks", cleared.append)
    monkeypatch.setattr(watch.stop, "is_by_marks", lambda: True)
    session: Any = SimpleNamespace(target=SimpleNamespace(pid=os.getpid()))
    found = watch.watch_written_pages(session, [(0, 6 * PAGE)], watch.AgingFiles(), options(), lambda *told: None)
    assert list(found.ranges[0][2]) == [KNOWN | STALE, KNOWN, 0, 0, 0, KNOWN] and cleared == [os.getpid()] and found.read_bytes is None


SYSTEM_PAGE = 4096
IN_RAM = COLD_SEEN | COLD_RESIDENT
FOUND = ColdSum(1, 1, 2, 5100, 1, 100, 900, 5000, 5100, 0, 0, 0)


def test_ages_are_laid_over_what_is_in_ram() -> None:
    """Where they reach; ranges that were watched may begin and end elsewhere than mappings do now."""
    ages = find.Ages(find.IDLE, 60.0, SYSTEM_PAGE, [(0, 3 * SYSTEM_PAGE, bytes([KNOWN, KNOWN | STALE, KNOWN])), (5 * SYSTEM_PAGE, 7 * SYSTEM_PAGE, bytes([KNOWN | STALE, 0]))])
    found = find.apply_ages(SYSTEM_PAGE, 6 * SYSTEM_PAGE, bytes([IN_RAM] * 5), ages)
    assert list(found) == [IN_RAM | KNOWN | STALE, IN_RAM | KNOWN, IN_RAM, IN_RAM, IN_RAM | KNOWN | STALE]
    assert find.apply_ages(8 * SYSTEM_PAGE, 9 * SYSTEM_PAGE, b"\1", ages) == b"\1"


def test_a_row_says_what_is_known() -> None:
    """Cold in whole and in part, and what is neither warm nor cold."""
    row = find.make_cold_row(FOUND, "Session", "shop._cache")
    assert (row.cold_bytes, row.cold_blocks, row.partly_cold_bytes, row.unknown_bytes) == (100, 1, 900, 100)
    assert (row.blocks, row.bytes, row.resident_bytes, row.swapped_bytes) == (2, 5100, 5100, 0)


def test_what_was_not_seen_is_none() -> None:
    """Never 0."""
    row = find.make_cold_row(FOUND._replace(known_bytes=0, unseen_bytes=8), None, None)
    assert {row.cold_bytes, row.cold_blocks, row.partly_cold_bytes, row.swapped_bytes, row.resident_bytes, row.locked_bytes} == {None}
    assert find.make_cold_row(FOUND._replace(unseen_bytes=8), None, None).cold_bytes == 100


@pytest.mark.parametrize(
    "by, rows",
    [
        (find.BOTH, [("Session", "shop._cache", 100), ("str", "shop._cache", 100), (None, None, 50)]),
        (find.CLASS, [("Session", None, 100), ("str", None, 100), (None, None, 50)]),
        (find.OWNER, [(None, "shop._cache", 200), (None, None, 50)]),
    ],
)
def test_rows_are_what_a_snapshot_keeps_added_up(by: str, rows: List[Tuple[Optional[str], Optional[str], int]]) -> None:
    """By class, by owner or by both; nothing is read anew, and the sum is that of all."""
    some = [("Session", "shop._cache", FOUND), ("str", "shop._cache", FOUND), (None, None, FOUND._replace(cold_bytes=50))]
    parts = [find.ColdPart(*one) for one in some]
    told = container.decode_value(List[find.ColdPart], json.loads(json.dumps(container.encode_value(parts))))
    session: Any = SimpleNamespace(constants={}, kept=lambda name, kind, make: told)
    found = find.find_cold(session, by)
    assert [(row.signature, row.owner, row.cold_bytes) for row in found.rows] == rows
    assert (found.totals.cold_bytes, found.totals.bytes, found.means, found.by) == (250, 3 * FOUND.bytes, None, by)


def mapping(start: int, resident: int, swapped: int) -> Any:
    """Of two pages, and what smaps says of it."""
    return SimpleNamespace(mapping=SimpleNamespace(start=start, end=start + 2 * SYSTEM_PAGE), resident_bytes=resident, swapped_bytes=swapped, flags=())


def test_a_snapshot_keeps_pages_where_something_is_in_swap(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of mappings that have any in memory; None where nothing is in swap, or where that is not known."""
    table = SimpleNamespace(told=lambda start, end: bytes([KIND_SWAPPED, KIND_RESIDENT]))
    monkeypatch.setattr(find.owned, "read_page_states", lambda session: table)

    def standing(*uses: Any) -> Any:
        use = SimpleNamespace(mappings=uses) if uses else None
        session: Any = SimpleNamespace(target=SimpleNamespace(memory_use=lambda: use, page_bytes=SYSTEM_PAGE))
        return find.find_stopped_spans(session)

    kept = standing(mapping(0, SYSTEM_PAGE, SYSTEM_PAGE), mapping(4 * SYSTEM_PAGE, 0, 0))
    assert kept == [(0, 2 * SYSTEM_PAGE, bytes([COLD_SEEN | COLD_SWAPPED, COLD_SEEN | COLD_RESIDENT]))]
    assert standing(mapping(0, SYSTEM_PAGE, 0)) is None and standing() is None
