"""Memory contexts, tasks and loops of BIND, built with the offsets that a C compiler gives each release's structures.

Files: addons/runtimes/bind.py, report/analysis_text.py.
"""

from typing import Any, Dict, List, NamedTuple, Optional, Sequence, Tuple, cast

import pytest

from gdbheapx.addons.runtimes import bind as bind_books
from gdbheapx.addons.runtimes.bind import Books
from gdbheapx.inferior.arch import architecture_named

pytestmark = pytest.mark.once  # pure functions

STATIC, HEAP = 0x555500000000, 0x7F0000000000
MANAGER, LOOPS, TASK_AT, LOOP_AT, STATS = HEAP + 0x100000, HEAP + 0x101000, HEAP + 0x110000, HEAP + 0x180000, HEAP + 0x200000
POOLS_AT = HEAP + 0x300000
NAMES = ("main", "cache", "zonemgr\x1b[2J", "cache")


class Layout(NamedTuple):
    """offsetof() in struct isc_mem of one release; None: it has no such member."""

    stats: Optional[int]
    malloced: Optional[int]
    references: int
    name: int
    inuse: int
    hi_water: int
    poolcnt: int
    link: int
    max_size: Optional[int] = None


CONTEXTS = {
    "9.16": Layout(96, 160, 104, 112, 144, 176, 232, 296, 80),
    "9.16 with lines": Layout(96, 160, 104, 112, 144, 176, 232, 312, 80),
    "9.18.0": Layout(56, 8312, 8264, 8272, 8296, 8352, 8384, 8392),
    "9.18.19": Layout(64, 8320, 8272, 8280, 8304, 8360, 8392, 8400),
    "9.18.19 with lines": Layout(64, 8320, 8272, 8280, 8304, 8360, 8392, 8416),
    "9.20": Layout(None, None, 72, 80, 96, 112, 144, 152),
    "9.20 with lines": Layout(None, None, 72, 80, 96, 112, 144, 168),
}
ELSEWHERE = {
    ("i386:x86-64", 4): Layout(None, None, 68, 72, 88, 104, 136, 144),
    ("aarch64", 8): Layout(None, None, 80, 88, 104, 120, 152, 160),
    ("aarch64", 4): Layout(None, None, 76, 80, 96, 112, 144, 152),
}
"""9.20 where uint_fast32_t has 4 bytes, and where a mutex has 48."""
TASKS = {"9.16": (104, 124, 168, 176, 208), "9.16.17": (120, 140, 176, 64, 88), "9.18": (112, 132, 168, 64, 88)}
"""Of struct isc_task: nevents, name, link; of isc_taskmgr: tasks_count, tasks."""


class Memory:
    """A process with named's variables and what they point to."""

    word_bytes, little_endian = 8, True

    def __init__(self) -> None:
        self.bytes: Dict[int, int] = {}
        self.target = self.session = self.budget = self
        self.is_expired = False
        self.arch = architecture_named("i386:x86-64")
        self.put(STATIC, 0, 64)

    def put(self, address: int, value: int, size: int = 8) -> None:
        """A number."""
        self.raw(address, value.to_bytes(size, "little"))

    def raw(self, address: int, data: bytes) -> None:
        """Bytes."""
        self.bytes.update(zip(range(address, address + len(data)), data))

    def read(self, address: int, size_bytes: int) -> bytes:
        """See CensusTarget."""
        return bytes(self.bytes.get(address + place, 0) for place in range(size_bytes)) if address in self.bytes else b""

    def expired(self) -> bool:
        """See Budget."""
        return self.is_expired

    def modules(self) -> List[Any]:
        """See CensusTarget."""
        return [Module("libisc-9.20.so")]

    def file_ranges(self) -> Sequence[Tuple[int, int]]:
        """See Target."""
        return [(STATIC, STATIC + 4096)]

    def writable_segments(self, module: Any) -> Sequence[Tuple[int, int, int]]:
        """See Target."""
        return [(STATIC, STATIC, STATIC + 64)]


class Module(NamedTuple):
    """As far as it is asked for."""

    file_name: str


def contexts(memory: Memory, layout: Layout, names: Sequence[str] = NAMES) -> None:
    """One of each name, each with 1,000 bytes more in use than the one before; the list's variables are the second and third word."""
    places = [HEAP + number * 0x4000 for number in range(len(names))]
    for number, (at, name) in enumerate(zip(places, names)):
        memory.put(at, 0x4D656D43, 4)
        memory.put(at + layout.references, 3)
        memory.raw(at + layout.name, name.encode().ljust(16, b"\0"))
        memory.put(at + layout.inuse, 1000 * (number + 1))
        memory.put(at + layout.hi_water, 1 << 30)
        memory.put(at + layout.poolcnt, number, 4)
        memory.put(at + layout.link, places[number - 1] if number else 0)
        memory.put(at + layout.link + 8, places[number + 1] if number + 1 < len(places) else 0)
        if layout.malloced is not None:
            memory.put(at + layout.malloced, 1000 * (number + 1) + 100)
            memory.put(at + layout.malloced + 8, 9000)
        if layout.max_size is not None:
            memory.put(at + layout.max_size, 1100)
            memory.put(at + layout.stats, STATS + number * 0x10000)  # type: ignore[operator]
            memory.put(STATS + number * 0x10000, 0)
            memory.put(STATS + number * 0x10000 + 5 * 32, 7 + number)
            memory.put(STATS + number * 0x10000 + 1100 * 32, 1)
        elif layout.stats is not None:
            memory.put(at + layout.stats + 3 * 16, 7 + number)
            memory.put(at + layout.stats + 512 * 16, 1)
            memory.put(at + layout.stats + 3 * 16 + 8, 99999)
        pools(memory, at, at + layout.poolcnt - 16, number, 16 if layout.max_size is not None else 8)
    memory.put(STATIC + 8, places[0])
    memory.put(STATIC + 16, places[-1])


def pools(memory: Memory, context: int, list_at: int, count: int, mctx: int) -> None:
    """So many pools of a context, each with 3 elements of 100 bytes to give out again. `mctx`: offsetof() in struct isc_mempool."""
    places = [POOLS_AT + (context - HEAP) + number * 128 for number in range(count)]
    for number, at in enumerate(places):
        memory.raw(at, bytes(128))
        memory.put(at, 0x4D454D70, 4)
        memory.put(at + mctx, context)
        memory.put(at + mctx + 8, places[number - 1] if number else 0)
        memory.put(at + mctx + 16, places[number + 1] if number + 1 < count else 0)
        memory.put(at + mctx + 32, 100)
        memory.put(at + mctx + 48, 3, 4)
        memory.put(at + mctx + 52, 4096, 4)
    if places:
        memory.put(list_at, places[0])
        memory.put(list_at + 8, places[-1])


def books(memory: Memory) -> Optional[Books]:
    """What is found."""
    return bind_books.read_books(cast(Any, memory), 20000)


@pytest.mark.parametrize("release", CONTEXTS)
def test_contexts_of_each_release(release: str) -> None:
    """Each figure of each context, the largest first; what a release does not keep is unknown, not 0."""
    memory, layout = Memory(), CONTEXTS[release]
    contexts(memory, layout)
    told = books(memory)
    keeps = layout.malloced is not None
    assert [tuple(row[1:]) for row in told.contexts] == [
        (
            NAMES[number],
            1000 * (number + 1),
            1000 * (number + 1) + 100 if keeps else None,
            9000 if keeps else None,
            1 << 30,
            8 + number if keeps else None,
            number,
            3,
            300 * number,
        )
        for number in (3, 2, 1, 0)
    ]
    assert told.contexts[0].address == HEAP + 3 * 0x4000
    assert told.sum_bytes == (10400 if keeps else 10000) and told.used_bytes == 20000


@pytest.mark.parametrize("machine, fast_bytes", ELSEWHERE)
def test_contexts_elsewhere(machine: str, fast_bytes: int) -> None:
    """The same figures where types of the C library have other sizes."""
    memory = Memory()
    memory.arch = architecture_named(machine)
    contexts(memory, ELSEWHERE[machine, fast_bytes])
    told = books(memory)
    assert [tuple(row[1:]) for row in told.contexts] == [
        (NAMES[number], 1000 * (number + 1), None, None, 1 << 30, None, number, 3, 300 * number) for number in (3, 2, 1, 0)
    ]


@pytest.mark.parametrize("damage", ["next", "prev", "tail", "magic", "references", "name", "one"])
def test_a_list_that_does_not_close_is_not_told(damage: str) -> None:
    """Any broken link, foreign number, count that cannot be, or name without an end: nothing is told. A list of one closes anywhere."""
    memory, layout = Memory(), CONTEXTS["9.20"]
    contexts(memory, layout, NAMES[:1] if damage == "one" else NAMES)
    second = HEAP + 0x4000
    if damage == "next":
        memory.put(second + layout.link + 8, HEAP)
    elif damage == "prev":
        memory.put(second + layout.link, second)
    elif damage == "tail":
        memory.put(STATIC + 16, second)
    elif damage == "magic":
        memory.put(second, 0x4D656D44, 4)
    elif damage == "references":
        memory.put(second + layout.references, 0)
    elif damage == "name":
        memory.raw(second + layout.name, b"x" * 16)
    assert books(memory) is None


def tasks(memory: Memory, release: str, names: Sequence[str]) -> None:
    """A manager and its tasks; each waits for its number of events."""
    nevents, name_at, link, count, list_at = TASKS[release]
    memory.raw(MANAGER, bytes(256))
    memory.put(MANAGER, 0x54534B4D, 4)
    memory.put(MANAGER + count, len(names))
    places = [TASK_AT + number * 256 for number in range(len(names))]
    for number, (at, name) in enumerate(zip(places, names)):
        memory.raw(at, bytes(256))
        memory.put(at, 0x5441534B, 4)
        memory.put(at + 8, MANAGER)
        memory.put(at + nevents, number, 4)
        memory.raw(at + name_at, name.encode())
        memory.put(at + link, places[number - 1] if number else 0)
        memory.put(at + link + 8, places[number + 1] if number + 1 < len(places) else 0)
    memory.put(MANAGER + list_at, places[0])
    memory.put(MANAGER + list_at + 8, places[-1])
    memory.put(STATIC + 32, MANAGER)


@pytest.mark.parametrize("release", TASKS)
def test_tasks_of_each_release(release: str) -> None:
    """How many of each name, the most first, and the events that wait in them."""
    memory = Memory()
    contexts(memory, CONTEXTS["9.18.19"])
    tasks(memory, release, ("zone", "client", "client", "server"))
    told = books(memory)
    assert [tuple(row) for row in told.queues] == [("task", "client", 2, 3), ("task", "server", 1, 3), ("task", "zone", 1, 0)]


@pytest.mark.parametrize("count, step, at", [(3, 1888, 312), (1, 1888, 248), (2, 2176, 320)])
def test_loops(count: int, step: int, at: int) -> None:
    """Of any size, and wherever the manager has them: with the handles of each."""
    memory = Memory()
    contexts(memory, CONTEXTS["9.20"])
    memory.raw(LOOPS, bytes(600))
    memory.put(LOOPS, 0x4C6F6F4D, 4)
    memory.put(LOOPS + 16, count)
    memory.put(LOOPS + at, LOOP_AT)
    memory.raw(LOOP_AT, bytes(step * count))
    for number in range(count):
        memory.put(LOOP_AT + number * step, 0x4C4F4F50, 4)
        memory.put(LOOP_AT + number * step + 24, LOOPS)
        memory.put(LOOP_AT + number * step + 40, 7 + number, 4)
    memory.put(STATIC + 40, LOOPS)
    told = books(memory)
    assert [tuple(row) for row in told.queues] == [("loop", "loop %d" % number, 7 + number, None) for number in range(count)]
    memory.put(LOOP_AT + (count - 1) * step + 24, 0)
    told = books(memory)
    assert told is not None and not told.queues
