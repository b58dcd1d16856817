"""Which containers lie in memory that is made word by word, and which only look so.

Files: analysis/census/containers.py, analysis/reachability/dominance.py.
"""

import random
import struct
from types import SimpleNamespace
from typing import Any, Dict, List, Optional, Sequence, Tuple

import pytest

from gdbheapx.analysis.census import containers
from gdbheapx.analysis.reachability.owners import describe_containers

pytestmark = pytest.mark.once  # pure functions
HERE, TABLE, NODES, MORE = 0x500000, 0x600000, 0x610000, 0x700000
LOAD = struct.unpack("<I", struct.pack("<f", 1.0))[0]
NONE = (1 << 64) - 1


class Memory:
    """A target and a world in one: words, and blocks by their begins."""

    word_bytes, little_endian = 8, True
    target = property(lambda self: self)

    def __init__(self) -> None:
        self._words: Dict[int, int] = {}
        self._blocks: List[Tuple[int, int]] = []

    def put(self, address: int, *values: int) -> None:
        self._words.update({address + 8 * place: value & NONE for place, value in enumerate(values)})

    def block(self, address: int, size_bytes: int, *values: int) -> int:
        self._blocks.append((address, size_bytes))
        self.put(address, *values)
        return address

    def modules(self) -> Sequence[Any]:
        return [SimpleNamespace(file_name="server libstdc++.so.6")]

    def read(self, address: int, size_bytes: int) -> bytes:
        first = address & -8
        values = [self._words.get(at, 0) for at in range(first, address + size_bytes, 8)]
        return struct.pack("<%dQ" % len(values), *values)[address - first :][:size_bytes]

    def words_in(self, data: bytes) -> List[int]:
        return list(struct.unpack("<%dQ" % (len(data) // 8), data))

    def words(self, address: int, count: int) -> Tuple[int, ...]:
        return tuple(self.words_in(self.read(address, 8 * count)))

    def find(self, address: int) -> Optional[Tuple[int, int]]:
        for node, (start, size_bytes) in enumerate(self._blocks):
            if start <= address < start + size_bytes:
                return node, address - start
        return None

    def reach(self) -> Any:
        """What leads where: nothing but the blocks is known."""
        graph = SimpleNamespace(find=self.find, blocks=lambda ids: [self._blocks[one] for one in ids])
        return SimpleNamespace(graph=graph, numbers=SimpleNamespace(blocks=len(self._blocks)))


@pytest.fixture(autouse=True)
def is_rust(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(containers.rust, "has_rust", lambda world: True)


def told(memory: Memory, end: int = HERE + 256) -> str:
    world: Any = memory
    return describe_containers(containers.ContainerFinder(world, memory.reach()).within(HERE, end))


def hashed(memory: Memory, count: int, load: int = LOAD, told_count: Optional[int] = None) -> None:
    """A std::unordered_map as libstdc++ has it."""
    for number in range(count):
        memory.block(NODES + 64 * number, 56, NODES + 64 * (number + 1) if number + 1 < count else 0)
    memory.block(TABLE, 8 * 13, HERE + 16)
    memory.put(HERE, TABLE, 13, NODES, count if told_count is None else told_count, load, 13, 0)


def test_an_unordered_map() -> None:
    """Its table, load factor and chain of nodes agree."""
    memory = Memory()
    hashed(memory, 9)
    assert told(memory) == "unordered map or set of 9 entries"


@pytest.mark.parametrize("load, count", [(0, 9), (LOAD, 8), (LOAD, 10), (0x7F800000, 9), (0x7FC00000, 9)])
def test_what_only_looks_like_an_unordered_map(load: int, count: int) -> None:
    """A load factor that is none, or a number that its chain does not have: nothing is told."""
    memory = Memory()
    hashed(memory, 9, load, count)
    assert "unordered" not in told(memory)


@pytest.mark.parametrize("buckets, spare", [(1 << 17, " with 1023.9 KiB of unused capacity"), (1 << 10, ""), (20, "")])
def test_a_table_that_outlived_its_entries(buckets: int, spare: str) -> None:
    """erase() leaves the table as it was; a small one, or one that is used, is not worth a word."""
    memory = Memory()
    hashed(memory, 9)
    memory.block(MORE, 8 * buckets, HERE + 16)
    memory.put(HERE, MORE, buckets, NODES, 9, LOAD, buckets, 0)
    assert told(memory) == "unordered map or set of 9 entries" + spare


def environment(memory: Memory, text: bytes = b"CURRENT=1\0", color: int = 0, at: int = HERE) -> None:
    """What setenv() keeps: two nodes of tsearch(3), each with a text."""
    for number in range(2):
        memory.block(TABLE + 64 * number, 40, int.from_bytes(text[:8], "little"), int.from_bytes(text[8:], "little"))
    memory.block(NODES + 64, 24, TABLE + 64, 0, 0)
    memory.block(NODES, 24, TABLE, (NODES + 64) | color, 0)
    memory.put(at, NODES)


def test_what_setenv_keeps() -> None:
    """By its form: a red root, a text that is no setting, or a word of a block that leads there is none."""
    memory, red, other, inside = Memory(), Memory(), Memory(), Memory()
    environment(memory)
    environment(red, color=1)
    environment(other, b"1CURRENT\0")
    environment(inside, at=inside.block(HERE, 64))
    assert [told(one) for one in (memory, red, other, inside)] == ["environment values (setenv() frees none)", "", "", ""]


def test_a_map_of_libcxx() -> None:
    """First node, root, number."""
    memory = Memory()
    memory.block(NODES, 56, 0, 0, HERE + 8)
    memory.put(HERE, NODES, NODES, 1)
    assert told(memory) == "map or set of 1 entry"


def test_a_deque() -> None:
    """How large an element is nothing says: the bytes are told."""
    memory = Memory()
    buffers = [memory.block(NODES + 1024 * number, 512) for number in range(3)]
    memory.block(TABLE, 64, 0, *buffers)
    first, last = buffers[0], buffers[2]
    memory.put(HERE, TABLE, 8, first + 16, first, first + 512, TABLE + 8, last + 100, last, last + 512, TABLE + 24)
    assert told(memory) == "deque of 1.1 KiB"  # two buffers and 100 bytes without the first 16
    memory.put(HERE + 24, first + 8)
    assert "deque" not in told(memory)


def swiss(memory: Memory, full: int, said: int, swapped: bool) -> None:
    """hashbrown's table of 32 places for elements of 8 bytes."""
    control = TABLE + 8 * 32
    memory.block(TABLE, 8 * 32 + 32 + 16)
    bytes_ = bytes(5 if place < full else 0xFF for place in range(32))
    memory.put(control, *struct.unpack("<4Q", bytes_), *struct.unpack("<2Q", bytes_[:16]))
    memory.put(HERE, *((31, control) if swapped else (control, 31)), 28 - said, said)


@pytest.mark.parametrize("swapped", [False, True])
def test_a_table_of_rust(swapped: bool) -> None:
    """As many control bytes say so as there are elements, in both orders of its words."""
    memory, other = Memory(), Memory()
    swiss(memory, 20, 20, swapped)
    swiss(other, 20, 21, swapped)
    assert told(memory) == "HashMap or HashSet of 20 entries" and told(other) == ""


def test_damaged_memory() -> None:
    """Words of all kinds at random give no error, and an end before the begin gives nothing."""
    chance = random.Random(7)
    memory = Memory()
    some = [HERE, HERE + 16, TABLE, NODES, NODES + 8, 0, 1, 3, 31, NONE, 1 << 63, LOAD]
    memory.block(TABLE, 104)
    memory.block(NODES, 56)
    for _ in range(3000):
        memory.put(HERE, *(chance.choice(some) for _ in range(14)))
        memory.put(NODES, *(chance.choice(some) for _ in range(4)))
        memory.put(TABLE, *(chance.choice(some) for _ in range(4)))
        told(memory, HERE + 14 * 8)
    assert told(memory, HERE) == told(memory, HERE - 8) == ""
