"""The second look for weak pointers: what it finds is what its definition gives, whatever the number of threads.

Files: kernel/blocks/graph.py.
"""

import random
from typing import Dict, List, NamedTuple, Sequence, Set, Tuple

import pytest

from gdbheapx.inferior.base import BytesSource
from gdbheapx.kernel.binding import CKernel
from gdbheapx.kernel.blocks.graph import LEAKED, MANGLED, MASKED, UNALIGNED, GraphShape
from gdbheapx.kernel.blocks.stream import CLASS_USED
from tests.support.worlds import DATA, HEAP, World, build, roots_from, word

GUARD, TURN = 0x1234567890ABCDEF, 17
ALL = (1 << 64) - 1
THREADS = (1, 2, 3, 8)


class Made(NamedTuple):
    """A heap of which `held` blocks have all their bytes at random, and what they say of the others."""

    world: World
    held: List[Tuple[int, bytes]]
    lost: List[int]


def mangled(address: int) -> int:
    """As the C library writes it."""
    value = address ^ GUARD
    return (value << TURN | value >> 64 - TURN) & ALL


def junk(rng: random.Random, lost: Sequence[int]) -> bytes:
    """Bytes among which addresses stand in every weak way, and nearly do: most of a block's in one way only."""
    kind = rng.randrange(9)
    target = rng.choice((lost[kind // 2 :: 5] if rng.random() < 0.995 else []) or lost) + rng.choice((0, 0, 0, 0, 1, 8))
    plain = target.to_bytes(8, "little")
    kinds = (
        lambda: ((rng.randrange(1, 1 << 16) << 48 | target) & ALL).to_bytes(8, "little"),
        lambda: (target << 16 & ALL | rng.randrange(1 << 16)).to_bytes(8, "little"),
        lambda: bytes(8 * rng.randrange(1, 4)),
        lambda: mangled(target).to_bytes(8, "little"),
        lambda: bytes(rng.randrange(1, 8)) + plain,
        lambda: rng.randbytes(rng.randrange(8)) + plain + rng.randbytes(rng.randrange(8)),
        lambda: plain[: rng.randrange(5, 8)] + rng.randbytes(3),
        lambda: rng.randbytes(8),
        lambda: b"U" * rng.randrange(1, 20),
    )
    return kinds[kind]()


def made(seed: int, rooms: Sequence[int]) -> Made:
    """Blocks one behind the other, a third of which nothing leads to; a root has the addresses of the others."""
    rng = random.Random(seed)
    blocks: List[Tuple[int, int]] = []
    lost: List[Tuple[int, int]] = []
    for room in rooms:
        at = room
        for _ in range(rng.choice((4, 150, 400))):
            size = rng.choice((24, 56, 136, 1000, 4))
            (lost if rng.random() < 0.3 or not lost else blocks).append((at, size))
            at += size + 8 + 15 & ~15
    places = [address for address, _ in lost]
    held = []
    for address, size in blocks:
        data = b""
        while len(data) < size:
            data += junk(rng, places)
            data += bytes(-len(data) % 8) if rng.random() < 0.4 else b""
        kept = data[:size]
        words = [kept[place : place + 8] for place in range(0, size, 8)]    # no pointer that the first look sees
        strong = [len(one) == 8 and any(address <= int.from_bytes(one, "little") <= address + 2048 for address in places) for one in words]
        held.append((address, b"".join(bytes(len(one)) if is_strong else one for one, is_strong in zip(words, strong))))
    pieces: Dict[int, bytes] = dict(held)
    pieces.update({address: bytes(size) for address, size in lost})
    root = b"".join(word(address, 8, "little") for address, _ in held)
    pieces[DATA] = root or bytes(8)
    rows = [(address, size, CLASS_USED, 0, 0) for address, size in sorted(blocks + lost)]
    heaps = [(room, room + 0x200000) for room in rooms]
    shape = GraphShape(heaps, [], 8, True, 16, False)
    roots = [(DATA, DATA + len(pieces[DATA]))]
    return Made(World(BytesSource(tuple(sorted(pieces.items()))), shape, rows, roots, "little"), held, places)


def expected(one: Made) -> Dict[int, int]:
    """By the definition: the strongest way in which a held block has the begin of one of the others."""
    found: Dict[int, int] = {}
    lost = set(one.lost)

    def hit(value: int, kind: int) -> None:
        if value in lost:
            found[value] = min(kind, found.get(value, LEAKED))

    for _, data in one.held:
        for place in range(0, len(data) - 7, 8):
            value = int.from_bytes(data[place : place + 8], "little")
            low = value & (1 << 48) - 1
            if low != value:
                hit(low & ~7, MASKED)
            hit(value >> 16, MASKED)
            hit((value >> TURN | value << 64 - TURN) & ALL ^ GUARD, MANGLED)
            for odd in range(place + 1, min(place + 8, len(data) - 7)):
                hit(int.from_bytes(data[odd : odd + 8], "little"), UNALIGNED)
    return found


ROOMS = (
    (HEAP,),
    (0x555500000000,),
    (0x555500000000, 0x7E0000000000),
    (0x910000000000,),
    (0x1A30000, 0x7E0000000000),
    (0x2A300000, 0x555500000000, 0x910000000000),
)


@pytest.mark.parametrize("rooms", ROOMS)
def test_any_number_of_threads_finds_what_the_definition_gives(c_kernel: CKernel, rooms: Sequence[int]) -> None:
    """Heaps of one sixth byte, of many, of one that is none of a program's; of addresses with fewer bytes; in three places."""
    seen: Set[int] = set()
    for seed in range(12):
        one = made(seed, rooms)
        wanted = expected(one)
        seen.update(wanted.values())
        for threads in THREADS:
            graph = build(c_kernel, one.world)
            graph.mark(roots_from(graph, one.world))
            assert {address for node, (address, _) in enumerate(graph.blocks(range(graph.numbers().blocks))) if graph.evidence(node) == LEAKED} == set(
                one.lost
            )
            sums = graph.look_again([], (GUARD, TURN), threads)
            evidence = {address: graph.evidence(graph.find(address)[0]) for address in one.lost}  # type: ignore[index]
            assert {address: kind for address, kind in evidence.items() if kind != LEAKED} == wanted
            assert sums[LEAKED].blocks == len(one.lost) - len(wanted)
    assert seen == {MASKED, UNALIGNED, MANGLED}


def test_a_look_in_many_slices_forgets_no_part(c_kernel: CKernel) -> None:
    """Threads that stop at each slice's end go on in the next."""
    one = made(3, (0x555500000000,))
    graph = build(c_kernel, one.world)
    graph.mark(roots_from(graph, one.world))
    library, slices = graph.library, 0
    job = library.heapx_weak_new(graph.handle, GUARD, TURN, 0, 3)
    while library.heapx_weak_blocks(job, -1.0) == 1:
        slices += 1
    while library.heapx_weak_settle(job, 1e-9) == 1:
        slices += 1
    assert not library.heapx_weak_settle(job, 0.0)
    library.heapx_weak_free(job)
    assert slices < 10000 and {address for address in one.lost if graph.evidence(graph.find(address)[0]) != LEAKED} == set(expected(one))  # type: ignore[index]
