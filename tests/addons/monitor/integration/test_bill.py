"""`bill`: a memory cgroup of processes with known parts; each part is a line of its size, all lines add up to what the kernel charges.

Files: addons/monitor/commands/bill.py, addons/monitor/bill.py.
"""

import json
import os
import sys
import time
from pathlib import Path
from typing import Any, Dict, Iterator, List

import pytest

from tests.support import memory_group
from tests.support.processes import Builder, Process, Stage
from tests.support.tool import heapx
from tests.support.unchanged import unchanged

pytestmark = pytest.mark.once  # the kernel counts; what is read of heaps is proved in the images by the other modules
MIB = 1 << 20
PROGRAM = """
import ctypes, mmap, os, socket, sys, threading
MIB, libc = 1 << 20, ctypes.CDLL(None)
libc.malloc.restype, libc.malloc.argtypes, libc.free.argtypes = ctypes.c_void_p, [ctypes.c_size_t], [ctypes.c_void_p]
folder, used, freed = sys.argv[1], [], []
for number in range(40 * 16):  # 40 MiB in use, in the heap
    used.append(libc.malloc(65000)); ctypes.memset(used[-1], 1, 65000)
for number in range(24 * 16):  # 24 MiB above them that are free; a block in use keeps the end of the heap
    freed.append(libc.malloc(65000)); ctypes.memset(freed[-1], 1, 65000)
last = libc.malloc(65000); ctypes.memset(last, 1, 65000)
for block in freed: libc.free(block)
with open("/dev/shm/gdbheapx-bill-%d" % os.getpid(), "wb") as file: file.write(bytes(10 * MIB))
with open(folder + "/cache", "wb") as file:
    file.write(bytes(16 * MIB)); file.flush(); os.fsync(file.fileno())
shared = os.memfd_create("three")
os.ftruncate(shared, 12 * MIB)
view = mmap.mmap(shared, 12 * MIB)
view[:] = bytes(12 * MIB)
sparse = mmap.mmap(-1, 4 << 30, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | 0x4000)  # MAP_NORESERVE
libc.madvise.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
place = ctypes.addressof(ctypes.c_char.from_buffer(sparse))
libc.madvise(place, 4 << 30, 15)  # no huge pages: 512 of 8 MiB apart are 512 page tables
for number in range(512): sparse[number << 23] = 1
stop = threading.Event()
for _ in range(64): threading.Thread(target=stop.wait, daemon=True).start()
pairs = [socket.socketpair() for _ in range(20)]
for one, _ in pairs:
    one.setblocking(False)
    try:
        while True: one.send(bytes(4096))
    except BlockingIOError: pass
for _ in range(2):
    if os.fork() == 0:
        total = sum(view[at] for at in range(0, 12 * MIB, 4096))
        os.write(1, b"r"); os.read(0, 1); os._exit(0)
os.write(1, b"r"); os.read(0, 1)
os.unlink("/dev/shm/gdbheapx-bill-%d" % os.getpid())
"""


class Made:
    """A group with three processes, at rest."""

    def __init__(self, folder: Path, process: Process) -> None:
        self.folder, self.process = folder, process

    def bill(self, *words: str) -> Dict[str, Any]:
        """The document's data."""
        outcome = heapx([], "bill", str(self.process.pid), *words, "--json", seconds=120)
        assert outcome.code == 0, outcome.stderr
        return dict(outcome.envelope["data"], problems=outcome.envelope["problems"])


@pytest.fixture(scope="module")
def made(builder: Builder) -> Iterator[Made]:
    """All of one module read it."""
    stage = Stage(builder)
    try:
        with memory_group.limited(256 * MIB) as folder:
            process = stage.spawn(memory_group.entering(folder, sys.executable, "-c", PROGRAM, str(stage.folder())))
            try:
                process.wait_ready(b"rrr")
                time.sleep(2.1)  # the kernel adds its counters up every two seconds
                yield Made(folder, process)
            finally:
                process.popen.communicate(b"xxx")
    except memory_group.NoGroup as none:
        pytest.skip(str(none))
    finally:
        stage.close()


def size(data: Dict[str, Any], *words: str) -> int:
    """Of the lines whose names have all of these words."""
    return sum(line["bytes"] for line in data["lines"] if all(word in line["name"] for word in words))


def near(value: int, truth: int, percent: float = 2.0) -> bool:
    """So close."""
    return abs(value - truth) * 100 <= percent * truth


def test_every_part_has_its_line(made: Made) -> None:
    """What the program did is there, in each line as much as it took; the sum is what the kernel charges, and at most 1 % of it is not
    explained or found in no process."""
    data = made.bill("--top", "3")
    group, current = data["group"], data["group"]["current_bytes"]
    told = json.dumps(data["lines"], indent=1)
    assert sum(line["bytes"] for line in data["lines"]) == current
    assert abs(data["not_explained_bytes"]) <= max(current // 100, group["batch_bytes"]), told
    assert abs(data["not_attributed_bytes"]) <= max(current // 100, group["batch_bytes"]), told
    assert near(size(data, "malloc", "can be returned") + size(data, "glibc", "can be returned"), 24 * MIB, 10), told
    assert near(size(data, "in use"), 42 * MIB, 12), told
    assert near(size(data, "memfd three"), 12 * MIB), "three that map it have it once: " + told
    (three,) = [line for line in data["lines"] if "memfd three" in line["name"]]
    assert three["processes"] == 3
    assert near(size(data, "no process of the group maps"), 10 * MIB), told
    assert size(data, "files that were read or written") >= 15 * MIB, told
    assert size(data, "page tables") >= 3 * 512 * 4096 - MIB, told  # a fork copies those of private memory
    assert size(data, "kernel stacks") >= 64 * 8192, told
    if group["cgroup_version"] == 2:
        assert size(data, "slab", "cannot") >= MIB, told  # the buffers of Unix sockets
    assert group["limit_bytes"] == 256 * MIB and data["reclaimable_bytes"] >= 15 * MIB
    parent = data["processes"][0]
    assert len(data["processes"]) == 3 and parent["threads"] in (1, 65) and data["unreadable"] == data["lost"] == 0


def test_what_is_shared_by_a_fork_counts_once(made: Made) -> None:
    """64 MiB of heap in three processes are 64 MiB of the group."""
    data = made.bill()
    private = sum(process["private_bytes"] for process in data["processes"])
    assert near(private, data["group"]["stat"]["anon"], 3)
    assert private < 110 * MIB


def test_the_others_are_said(made: Made) -> None:
    """With --top 1 two are not looked into: a note says so, their memory is there."""
    data = made.bill("--top", "1")
    assert [process["is_looked_into"] for process in data["processes"]].count(True) == 1
    assert [problem["code"] for problem in data["problems"]] == ["no-answer"]
    assert size(data, "not looked into") > 20 * MIB and sum(line["bytes"] for line in data["lines"]) == data["group"]["current_bytes"]
    (shallow, *_) = [process for process in data["processes"] if not process["is_looked_into"]]
    assert shallow["used_bytes"] is None and shallow["kept_bytes"] is None


def test_it_is_quick(made: Made) -> None:
    """A second for looks, and what the kernel takes for its files."""
    took = min(made.bill()["took_s"] for _ in range(2))
    assert took < 6, took  # two on a machine that has nothing else to do


def test_nothing_is_changed(stage: Stage) -> None:
    """A sleeping process has the same page tables, swap, Rss and page faults before and after."""
    process = stage.start("asleep")
    process.command(b"w")
    process.words()
    with unchanged(process.pid):
        outcome = heapx([], "bill", str(process.pid), "--top", "9", "--json")
        assert outcome.code == 0, outcome.stderr
        assert {row["pid"]: row["is_looked_into"] for row in outcome.envelope["data"]["processes"]}[process.pid]


def test_the_kernel_counts_the_same_pages(made: Made) -> None:
    """By page frame: the private pages of the three are as many as their lines say, each frame once."""
    if os.geteuid():
        pytest.skip("frames are shown to root alone")
    frames: Dict[int, None] = {}
    data = made.bill("--top", "3")
    for process in data["processes"]:
        for start, end in private(process["pid"]):
            with open("/proc/%d/pagemap" % process["pid"], "rb", buffering=0) as file:
                words = os.pread(file.fileno(), (end - start) // 4096 * 8, start // 4096 * 8)
            for at in range(0, len(words), 8):
                entry = int.from_bytes(words[at : at + 8], "little")
                if entry >> 63 and not entry >> 61 & 1 and entry & (1 << 55) - 1:
                    frames[entry & (1 << 55) - 1] = None
    assert near(sum(process["private_bytes"] for process in data["processes"]), len(frames) * 4096)


def private(pid: int) -> List["tuple[int, int]"]:
    """Its mappings with private memory, the sparse one left out of which most was never touched."""
    ranges = []
    for line in Path("/proc/%d/maps" % pid).read_text().splitlines():
        fields = line.split()
        start, end = (int(part, 16) for part in fields[0].split("-"))
        if fields[1][3] == "p" and not line.endswith(("[vvar]", "[vdso]", "[vsyscall]", "[vvar_vclock]")) and end - start <= 5 << 30:
            ranges.append((start, end))
    return ranges


@pytest.mark.parametrize(
    "words, code, told",
    [
        (["999999999"], 1, "no such process"),
        (["/no/such/group"], 1, "no memory cgroup has the path"),
        (["feedfacefeedface"], 1, "no memory cgroup, pod or container is called"),
        (["a\x1b[31m\nb"], 1, "no memory cgroup"),
        ([], 2, "WHICH"),
    ],
)
def test_what_is_no_group(words: List[str], code: int, told: str) -> None:
    """One line with a next step; what the user typed drives no terminal."""
    outcome = heapx([], "bill", *words)
    assert outcome.code == code and told in outcome.stderr and "; " in outcome.stderr, outcome.stderr
    assert len(outcome.stderr.splitlines()) == 1 and "\x1b" not in outcome.stderr


def test_the_kernel_reclaims_what_was_foretold(made: Made) -> None:
    """The last of this module: the page cache is taken, and nothing else but a little slab."""
    data = made.bill("--top", "0")
    used = "memory.current" if data["group"]["cgroup_version"] == 2 else "memory.usage_in_bytes"
    before = int((made.folder / used).read_text())
    try:
        if data["group"]["cgroup_version"] == 2:
            (made.folder / "memory.reclaim").write_text("%d swappiness=0" % data["reclaimable_bytes"])
        else:
            (made.folder / "memory.force_empty").write_text("0")
    except OSError:
        pass  # it could not take as much as it was asked for
    fell = before - int((made.folder / used).read_text())
    assert abs(fell - data["reclaimable_bytes"]) <= data["reclaimable_bytes"] // 20 + data["group"]["batch_bytes"]
