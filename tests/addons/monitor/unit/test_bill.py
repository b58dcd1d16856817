"""The bill of a group that was made up: every byte of memory.current once, in either version of cgroups; what is left is a line of its own.

Files: addons/monitor/bill.py.
"""

from typing import Any, Dict, List, Optional, Sequence, Tuple

import pytest

from gdbheapx.addons.monitor import bill
from gdbheapx.addons.monitor.memory_group import GroupBelow, GroupMemory, GroupProcess
from gdbheapx.allocators.session import Session
from gdbheapx.command import TextStyle
from gdbheapx.common.errors import HeapxError
from gdbheapx.inferior.base import Mapping, MappingUse
from gdbheapx.report.text import escape_line, format_page

MIB = 1 << 20
STAT = {
    "anon": 60 * MIB,
    "file": 36 * MIB,
    "shmem": 8 * MIB,
    "file_mapped": 10 * MIB,
    "file_dirty": 2 * MIB,
    "inactive_file": 20 * MIB,
    "active_file": 8 * MIB,
    "kernel": 12 * MIB,
    "kernel_stack": MIB,
    "pagetables": 2 * MIB,
    "slab_reclaimable": 4 * MIB,
    "slab_unreclaimable": 3 * MIB,
    "percpu": MIB // 2,
    "vmalloc": MIB // 4,
    "zswap": MIB // 8,
    "sock": 3 * MIB,
}


def memory(current: int = 112 * MIB, version: int = 2, stat: Optional[Dict[str, int]] = None, **more: Any) -> GroupMemory:
    """Counters of a group."""
    made = GroupMemory("/a\x1b[31m", version, current, STAT if stat is None else stat, 128 * MIB, "/", None, 0, None, 0, {}, False, 16 << 10, MIB)
    return made._replace(**more)


def use(name: str, size: int, anonymous: int = 0, pss: Optional[int] = None, **more: Any) -> MappingUse:
    """A mapping."""
    is_file = name.startswith("/")
    mapping = Mapping(4096, 4096 + (1 << 30), True, True, False, False, name, None, 0, "00:01" if is_file else "00:00", 7 if is_file else 0)
    return MappingUse(mapping, size, pss_bytes=size if pss is None else pss, anonymous_bytes=anonymous)._replace(**more)


def process(pid: int, uses: Optional[Sequence[MappingUse]], anonymous: int = 0, **more: Any) -> GroupProcess:
    """One of the group."""
    return GroupProcess(pid, "p%d" % pid, anonymous, 0, 4, 256 << 10, 0, 0, uses, {})._replace(**more)


class Group:
    """Told by a test; `later`: what it has at the end."""

    groups = 0

    def __init__(self, told: GroupMemory, processes: List[GroupProcess], later: Optional[GroupMemory] = None) -> None:
        self._told, self._processes, self._later, self._asked = told, processes, later or told, 0

    def memory(self) -> GroupMemory:
        self._asked += 1
        return self._told if self._asked < 3 else self._later

    def below(self) -> Sequence[GroupBelow]:
        return [GroupBelow("/a/%d\x1b" % number, MIB << number, None if number else 9 * MIB, number) for number in range(self.groups)]

    def processes(self) -> Tuple[Sequence[GroupProcess], int]:
        return self._processes, 1


class Told(Session):
    """A session whose processes have ended when they are looked into."""

    def __init__(self, group: Group) -> None:
        super().__init__(None)
        self._group = group

    def of_process(self, pid: int) -> Session:
        raise HeapxError("it has ended")


def made(*processes: GroupProcess, told: Optional[GroupMemory] = None, later: Optional[GroupMemory] = None) -> Tuple[bill.Bill, Told]:
    """The bill, and what was noted."""
    session = Told(Group(told or memory(), list(processes), later))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(bill, "find_memory_group", lambda which: session._group)
        return bill.make_bill(session, "x"), session


def sizes(of: bill.Bill) -> Dict[str, int]:
    """By kind."""
    found: Dict[str, int] = {}
    for line in of.lines:
        found[line.kind] = found.get(line.kind, 0) + line.bytes
    return found


THREE = (
    process(1, [use("", 40 * MIB, 40 * MIB), use("/dev/shm/x", 6 * MIB, 0, 2 * MIB), use("/lib/c.so", 3 * MIB, MIB)], 41 * MIB),
    process(2, [use("", 18 * MIB, 18 * MIB), use("/dev/shm/x", 6 * MIB, 0, 4 * MIB)], 18 * MIB),
)


def test_every_byte_once() -> None:
    """Lines add up to memory.current; private memory is the processes', files and the kernel are the group's; nothing is left here but what
    the kernel charges and names nowhere."""
    found, session = made(*THREE)
    assert sum(line.bytes for line in found.lines) == found.group.current_bytes
    kinds = sizes(found)
    assert kinds["anonymous"] == 58 * MIB and kinds["private-file"] == MIB and kinds["unowned"] == MIB == found.not_attributed_bytes
    assert kinds["shared-memory"] == 8 * MIB and kinds["page-cache"] == 28 * MIB and kinds["kernel"] == 12 * MIB and kinds["sockets"] == 3 * MIB
    assert kinds["not-explained"] == MIB == found.not_explained_bytes and found.lines[-1].kind == "not-explained"
    assert found.reclaimable_bytes == 30 * MIB and found.working_set_bytes == 92 * MIB and found.swappable_bytes == 0 and found.returnable_bytes is None
    assert [(row.pid, row.private_bytes, row.shared_bytes, row.used_bytes) for row in found.processes] == [(1, 41 * MIB, 2 * MIB, None), (2, 18 * MIB, 4 * MIB, None)]
    assert not session.partial and [problem.code for problem in session.problems] == ["no-answer"]


@pytest.mark.parametrize("read_s, look_s, looked", [(0.25, 0.125, 11), (0.25, 0.625, 2), (1.5, 0.25, 1), (5.0, 0.125, 1)])
def test_looks_end_in_time(monkeypatch: pytest.MonkeyPatch, read_s: float, look_s: float, looked: int) -> None:
    """Another one begins only where it is over in time if it takes as long as the longest before; one is looked into however long reading took."""
    now = read_s

    def deep(session: Session, process: GroupProcess, seconds: float) -> bill.BillReading:
        nonlocal now
        now += look_s
        return bill.BillReading([], is_deep=True)

    monkeypatch.setattr(bill.time, "monotonic", lambda: now)
    monkeypatch.setattr(bill, "_read_heaps", deep)
    processes = [process(number, [use("", MIB, MIB)], MIB) for number in range(20, 40)]
    looks = bill._read_processes(Told(Group(memory(), processes)), processes, None, bill.UNTIL_S)
    assert sum(look.is_deep for look in looks) == looked and (looked == 1 or now <= bill.UNTIL_S)


def test_version_1_has_one_sum_of_the_kernel() -> None:
    """Page tables and stacks are told by the processes; the rest is one line. Swap counts, sockets have a limit of their own."""
    stat = {key: STAT[key] for key in ("anon", "file", "shmem", "file_mapped", "file_dirty", "inactive_file", "active_file", "kernel")}
    found, _ = made(*THREE, told=memory(109 * MIB, 1, stat))
    names = {line.name: line.bytes for line in found.lines if line.kind == "kernel"}
    assert names == {"page tables": 512 << 10, "kernel stacks of threads": 8 * (16 << 10), "slab and other memory of the kernel": 12 * MIB - (640 << 10)}
    assert sum(line.bytes for line in found.lines) == 109 * MIB


@pytest.mark.parametrize("anon, kind, size", [(70, "unowned", 11 * MIB), (50, "charged-elsewhere", -9 * MIB)])
def test_what_processes_have_and_the_group_is_charged_for_may_differ(anon: int, kind: str, size: int) -> None:
    """A process that moved is charged where it was: a line says so, in either direction."""
    found, _ = made(*THREE, told=memory(stat={**STAT, "anon": anon * MIB}))
    assert sizes(found)[kind] == size == found.not_attributed_bytes and sum(line.bytes for line in found.lines) == 112 * MIB


def test_shared_memory_of_other_groups() -> None:
    """What these map and another group made."""
    found, _ = made(*THREE, told=memory(stat={**STAT, "shmem": 5 * MIB}))
    assert [line.bytes for line in found.lines if line.name == "of shared memory charged to other groups"] == [-MIB]
    assert sum(line.bytes for line in found.lines) == 112 * MIB


@pytest.mark.parametrize("cached, told, left", [(4, 3, 0), (1, 1, 2)])
def test_pages_in_the_swap_cache_count_once(cached: int, told: int, left: int) -> None:
    """They are in `file`, and in `anon` where they are mapped: the bill has no more of them than is left."""
    stat = {**STAT, "file": STAT["file"] + cached * MIB, "swapcached": cached * MIB}
    found, _ = made(*THREE, told=memory(114 * MIB, stat=stat))
    kinds = sizes(found)
    assert kinds["swap-cache"] == told * MIB and kinds.get("not-explained", 0) == left * MIB and sum(kinds.values()) == 114 * MIB


def test_who_may_not_be_read() -> None:
    """Their private memory is a line of its own, and the answer is partial."""
    found, session = made(*THREE, process(3, None, 4 * MIB), told=memory(stat={**STAT, "anon": 63 * MIB}))
    assert sizes(found)["anonymous"] == 62 * MIB and found.unreadable == 1 and found.lost == 1
    assert session.partial and session.problems[0].code == "not-permitted" and "1 of 3 processes" in session.problems[0].what
    assert {row.pid: row.files_bytes for row in found.processes}[3] is None


def test_devices_and_huge_pages() -> None:
    """Device memory and hugetlbfs are said of the process, and are in no line unless the group is charged for huge pages."""
    device, huge = use("/dev/nvidia0", 9 * MIB), use("/anon_hugepage (deleted)", 0, hugetlb_bytes=4 * MIB)
    one = process(1, [*(THREE[0].uses or ()), device, huge], 41 * MIB, pinned_bytes=2 * MIB, locked_bytes=3 * MIB, gpu_bytes={"vram": 5 * MIB})
    found, _ = made(one, THREE[1])
    row = found.processes[0]
    assert (row.device_bytes, row.hugetlb_bytes, row.pinned_bytes, row.locked_bytes) == (9 * MIB, 4 * MIB, 2 * MIB, 3 * MIB)
    assert "device" not in sizes(found) and "hugetlb" not in sizes(found)
    charged, _ = made(one, THREE[1], told=memory(116 * MIB, stat={**STAT, "hugetlb": 4 * MIB}))
    assert sizes(charged)["hugetlb"] == 4 * MIB and charged.not_explained_bytes == MIB


@pytest.mark.parametrize("free, most, swapped, room", [(0, None, 0, 0), (200 * MIB, None, 0, 68 * MIB), (200 * MIB, 30 * MIB, 10 * MIB, 20 * MIB)])
def test_how_much_may_be_swapped(free: int, most: Optional[int], swapped: int, room: int) -> None:
    """By the machine's swap and the group's limit; no more than there is to swap."""
    found, _ = made(*THREE, told=memory(swap_free_bytes=free, swap_max_bytes=most, swapped_bytes=swapped))
    assert found.swappable_bytes == room


def test_a_group_that_grows_meanwhile() -> None:
    """Said where it is more than 1 % and more than the kernel's batches."""
    assert "several-moments" in [problem.code for problem in made(*THREE, later=memory(120 * MIB))[1].problems]
    assert "several-moments" not in [problem.code for problem in made(*THREE, later=memory(113 * MIB))[1].problems]


def text(found: bill.Bill, top: int = 10) -> str:
    """As it is shown."""
    return "\n".join(escape_line(line) for line in format_page(TextStyle(False, False), bill.bill_page(found, top)))


def test_many_lines_become_one() -> None:
    """The smallest together; negative ones are not lost, and the rest stays last."""
    many = [use("/dev/shm/%d" % number, (number + 1) << 14) for number in range(40)]
    found, _ = made(process(1, many), told=memory(stat={**STAT, "anon": 0}))
    shown = text(found)
    assert "smaller lines: --json" in shown and shown.index("smaller lines") < shown.rindex("not explained")
    assert len([line for line in shown.splitlines() if "/dev/shm" in line]) < 20


def test_shared_memory_has_one_name() -> None:
    """The one that a runtime was found for counts for processes that were not looked into as well; of two none is chosen."""
    plain, zero = "shared memory: memfd x", "shared memory: anonymous (/dev/zero)"
    names = {plain, zero, zero + ", PostgreSQL: shared_buffers", plain + ", A: a", plain + ", B: b"}
    assert bill._known_as(names) == {zero: zero + ", PostgreSQL: shared_buffers"}


def test_groups_below(monkeypatch: pytest.MonkeyPatch) -> None:
    """A pod's containers, with limits and kills; the first ten in text."""
    monkeypatch.setattr(Group, "groups", 12)
    found, _ = made(*THREE)
    shown = text(found)
    assert len(found.below) == 12 and found.below[0].limit_bytes == 9 * MIB and sum(line.bytes for line in found.lines) == 112 * MIB
    assert "and 2 groups: --json" in shown and "killed for memory" in shown and "\x1b" not in shown


def test_a_group_without_processes() -> None:
    """All of its private memory is found in no process."""
    found, session = made()
    assert sizes(found)["unowned"] == 60 * MIB and found.processes == [] and session.problems == []
    assert "in use by 0 processes" in text(found)


class Heap:
    """An allocator's heap, as far as the bill asks."""

    def __init__(self, reading: object = None) -> None:
        self.capabilities = {} if reading is None else {"meter": lambda: reading}

    def facts(self) -> None:
        raise AssertionError("it changes: nothing is walked")


class Meter:
    """Counters that may fail."""

    def __init__(self, used: Optional[int]) -> None:
        self._used = used

    def read(self, walk_seconds: float) -> Any:
        if self._used is None:
            raise HeapxError("it went away")
        return type("Reading", (), {"used_bytes": self._used})


@pytest.mark.parametrize("heap, used", [(Heap(Meter(5)), 5), (Heap(Meter(None)), None), (Heap(), None)])
def test_a_heap_that_changes_is_told_by_its_counters(heap: Any, used: Optional[int]) -> None:
    """Or it is unknown; never zero."""
    assert bill._measure_free(heap, False, 1.0) == (None, used)
