"""Pages are marked as idle and looked at again, in files that stand for the kernel's; what nobody may use together is refused."""

import argparse
import mmap
import os
from array import array
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Callable, Dict, List, Tuple

import pytest

from gdbheapx.actions import aging
from gdbheapx.analysis.cold import KNOWN, STALE
from gdbheapx.errors import HeapxError
from gdbheapx.inferior.live.page_table import PRESENT

PAGE = os.sysconf("SC_PAGESIZE")
FRAMES = [640, 641, 700, 0, 64, 1024, 1025, 1026]
"""Of eight pages; one is not in RAM, the last three are of one huge page."""
FLAGS = {640: aging.LRU, 641: aging.LRU, 700: 0, 64: aging.LRU, 1024: aging.LRU | aging.HEAD, 1025: aging.TAIL, 1026: aging.TAIL}
HEADS = {640: 640, 641: 641, 64: 64, 1024: 1024, 1025: 1024, 1026: 1024}


def words(path: Path, known: Dict[int, int], count: int) -> str:
    """A file of so many words."""
    path.write_bytes(array("Q", [known.get(number, 0) for number in range(count)]).tobytes())
    return str(path)


@pytest.fixture
def files(tmp_path: Path) -> aging.Files:
    """A machine of 2,048 pages without marks, and without DAMON."""
    bitmap, flags = words(tmp_path / "bitmap", {}, 32), words(tmp_path / "flags", FLAGS, 2048)
    return aging.Files(bitmap, flags, str(tmp_path / "damon" / "*"), str(tmp_path / "modules" / "*"))


@pytest.fixture
def session(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Of a process with FRAMES at page 16."""
    monkeypatch.setattr(aging, "frames", lambda pid, ranges: iter([((16 * PAGE, 24 * PAGE), array("Q", FRAMES))]))
    return SimpleNamespace(target=SimpleNamespace(pid=1))


def options(**more: Any) -> argparse.Namespace:
    """Of the command."""
    return argparse.Namespace(**{"for_s": 1.0, "accept_mark_loss": False, "accept_thp_split": False, "yes": True, "age": None, **more})


def touch(files: aging.Files, *numbers: int) -> Callable[[Any, float], None]:
    """What happens meanwhile: the kernel takes these marks away."""

    def wait(session: Any, seconds: float) -> None:
        marks = array("Q", Path(files.bitmap).read_bytes())
        for number in numbers:
            marks[number // 64] &= ~(1 << number % 64)
        Path(files.bitmap).write_bytes(marks.tobytes())

    return wait


def test_touched_pages_are_warm_and_others_stale(session: Any, files: aging.Files) -> None:
    """What the kernel does not track, and what is not in RAM, is not known."""
    found = aging.idle(session, [], files, options(), touch(files, 641))
    assert list(found.ranges[0][2]) == [KNOWN | STALE, KNOWN, 0, 0, *[KNOWN | STALE] * 4]


def test_a_huge_page_has_one_age(session: Any, files: aging.Files) -> None:
    """The mark of its first page counts for all of it."""
    found = aging.idle(session, [], files, options(), touch(files, 1024))
    assert list(found.ranges[0][2])[-4:] == [KNOWN | STALE, *[KNOWN] * 3]


def test_only_its_own_pages_are_marked(session: Any, files: aging.Files) -> None:
    """And of a huge page the first."""
    aging.idle(session, [], files, options(), touch(files))
    marks = array("Q", Path(files.bitmap).read_bytes())
    assert [number for number in range(2048) if marks[number // 64] >> number % 64 & 1] == sorted(set(HEADS.values()))


def test_marks_of_others_are_not_taken(session: Any, files: aging.Files) -> None:
    """Unless that is accepted."""
    aging.idle(session, [], files, options(), touch(files))
    with pytest.raises(HeapxError):
        aging.idle(session, [], files, options(), touch(files))
    assert aging.idle(session, [], files, options(accept_mark_loss=True), touch(files, 640)).ranges[0][2][0] == KNOWN


def test_the_tail_of_a_huge_page_whose_head_is_elsewhere_is_not_known(tmp_path: Path) -> None:
    """Its age would be that of a page that is not the process's."""
    with open(words(tmp_path / "flags", {**FLAGS, 1023: aging.LRU}, 2048), "rb") as flags:
        assert aging.tracked(flags.fileno(), [1025, 1026]) == {}
        assert aging.tracked(flags.fileno(), [1023, 1026]) == {1023: 1023}
        assert aging.tracked(flags.fileno(), sorted(number for number in FRAMES if number)) == HEADS


def test_damon_is_not_disturbed(tmp_path: Path, files: aging.Files) -> None:
    """Where it samples, idle page tracking is refused; where it is off, not."""
    (tmp_path / "damon").mkdir()
    for state, is_on in ((b"off\n", False), (b"on\n", True)):
        (tmp_path / "damon" / "state").write_bytes(state)
        assert aging.damon_is_on(files) == is_on
    with pytest.raises(HeapxError):
        aging.check_idle(None, files, options())  # type: ignore[arg-type]
    (tmp_path / "damon" / "state").unlink()
    aging.check_idle(None, files, options())  # type: ignore[arg-type]
    (tmp_path / "modules").mkdir()
    (tmp_path / "modules" / "enabled").write_bytes(b"Y\n")
    assert aging.damon_is_on(files)


def test_a_kernel_without_the_bitmap_is_told(tmp_path: Path, files: aging.Files) -> None:
    """And by default the other means is used there."""
    lacking = files._replace(bitmap=str(tmp_path / "none"))
    assert (aging.means_here(files), aging.means_here(lacking)) == ("idle", "written")
    with pytest.raises(HeapxError):
        aging.check_idle(None, lacking, options())  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "numbers, found",
    [([], []), ([5], [(5, 6)]), ([1, 2, 3, 7, 8], [(1, 4), (7, 9)]), ([0, 2, 4], [(0, 1), (2, 3), (4, 5)])],
)
def test_neighbours_are_read_at_once(numbers: List[int], found: List[Tuple[int, int]]) -> None:
    """Runs of ascending numbers."""
    assert list(aging.runs(numbers)) == found


def test_frames_are_those_of_pages_in_ram() -> None:
    """Of this process: a page that was never touched has none."""
    with mmap.mmap(-1, 2 * PAGE, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS) as pages:
        pages[0] = 1
        import ctypes

        start = ctypes.addressof(ctypes.c_char.from_buffer(pages))
        with open("/proc/self/pagemap", "rb", buffering=0) as file:
            entry = array("Q", os.pread(file.fileno(), 8, start // PAGE * 8))[0]
        if not entry & aging.FRAME:
            with pytest.raises(HeapxError):
                list(aging.frames(os.getpid(), [(start, start + PAGE)]))
            return
        found = list(aging.frames(os.getpid(), [(start, start + 2 * PAGE)]))
        assert entry & PRESENT and found == [((start, start + 2 * PAGE), array("Q", [entry & aging.FRAME, 0]))]
