"""musl's groups and slots as both kernels walk them: every class and mask, nested and donated groups, offsets, and each kind of damage."""

import random
from array import array
from typing import Any, Dict, List, Tuple

import pytest

from gdbheapx.addons.allocators.musl import records
from gdbheapx.addons.allocators.musl import records as api
from gdbheapx.addons.allocators.musl.records import MUSL_CLASSES, UNIT_BYTES, MuslGroups, count_slot_units, find_most_bytes
from gdbheapx.common.budget import Budget
from gdbheapx.kernel.blocks.slots import SLOT_OWN, SlotTallies
from gdbheapx.kernel.common.library import Kernel
from tests.support.builders.musl import MuslHeap, Request

MACHINES = [(8, True), (8, False), (4, True)]


def look(kernel: Kernel, heap: MuslHeap, with_rows: bool = True) -> MuslGroups:
    """All groups."""
    return records.read_groups(kernel, heap.source(), heap.layout(), heap.memory(), with_rows, Budget())


def check_sums(groups: MuslGroups, tallies: SlotTallies) -> None:
    """By class the masks of the groups say what a walk over every slot finds; what groups hold is slots and the rest beside them."""
    for one, tally in zip(groups.classes, tallies.tallies):
        assert (one.used_slots, one.free_slots, one.slot_bytes, one.free_bytes) == tally[:2] + (tally.slot_bytes, tally.free_bytes)
        assert one.used_bytes >= tally.used_bytes
    sums = groups.sums
    assert sums.groups == sum(one.groups for one in groups.classes) == sum(not problem for problem in groups.column("problem"))
    assert sums.own_bytes + sums.lost_bytes == sum(one.slot_bytes for one in groups.classes) + sums.rest_bytes
    assert sums.own_bytes == sum(end - start for start, end in groups.ranges("held"))


def blocks(kernel: Kernel, heap: MuslHeap, groups: MuslGroups) -> Tuple[Dict[int, int], List[int], Any]:
    """Blocks in use, free slots, and the sums."""
    walker = records.make_musl_slot_walker(kernel, heap.source(), groups.runs, Budget())
    rows = [row for batch in walker.blocks() for row in zip(*batch)]
    assert rows == sorted(rows)
    used = {address: usable for address, usable, _, kind, _ in rows if kind == api.MUSL_USED}
    return used, [row[0] for row in rows if row[3] == api.MUSL_FREE], walker.tally()


def check(kernel: Kernel, heap: MuslHeap) -> MuslGroups:
    """Everything is as it was built."""
    groups = look(kernel, heap)
    assert not groups.problems and groups.is_whole and list(groups.areas) == heap.areas
    used, free, tallies = blocks(kernel, heap, groups)
    check_sums(groups, tallies)
    assert look(kernel, heap, with_rows=False) == groups._replace(groups=array("Q"), runs=array("Q"))
    assert used == heap.used and free == sorted(heap.free)
    assert not tallies.problems and tallies.is_whole
    assert sum(row.used_bytes for row in tallies.tallies[: api.HEAD_LABEL]) == sum(heap.used.values())
    return groups


def some(rng: random.Random, size_class: int, slots: int) -> List[Request]:
    """Blocks of this class, in some slots, in some places of them."""
    requests = []
    for slot in range(slots):
        if rng.random() < 0.6:
            room = find_most_bytes(size_class)
            units = rng.randrange(min(room // UNIT_BYTES, 255) + 1)
            left = room - units * UNIT_BYTES
            requests.append(Request(slot, left - min(left, rng.choice((0, 1, 3, 4, 5, 9, 200))), units))
    return requests


@pytest.mark.parametrize("machine", MACHINES, ids=str)
def test_each_class_with_masks_and_offsets(kernel: Kernel, machine: Tuple[int, bool]) -> None:
    """Groups of each class, of 1 to 32 slots, free in either mask: each block with its exact address and size."""
    rng, heap = random.Random(1), MuslHeap(*machine)
    for size_class in range(MUSL_CLASSES):
        for slots in (2, rng.randrange(2, 32), 32) if size_class < 30 else (2,):
            heap.group(size_class, slots, some(rng, size_class, slots), freed=rng.getrandbits(32))
    heap.own(131053)
    heap.own(5_000_000, 255)
    heap.group(20, 1, [Request(0, 2000)], pages=1)  # one slot in a mapping: as long as that
    heap.add_area()
    assert len(heap.areas) > 1
    groups = check(kernel, heap)
    assert set(groups.column("place")) == {api.PLACE_MAPPED}


def nested(heap: MuslHeap, depth: int, units: int) -> List[Tuple[int, int]]:
    """Groups, each in a slot of the one before; address and meta of each."""
    size_class, made = 40, []
    address, meta = heap.group(size_class, 4, [Request(0, 9), Request(3, 9)], in_use=4)
    made.append((address, meta))
    for _ in range(depth):
        stride = count_slot_units(size_class) * UNIT_BYTES
        start = address + UNIT_BYTES + 2 * stride
        size_class -= 10
        at = heap.block(address, start, stride, Request(2, 40, units), mark=6)
        address, meta = heap.group(size_class, 4, [Request(0, 5, units // 2), Request(3, 12)], pages=0, at=at, in_use=4 if _ + 1 < depth else 0)
        made.append((address, meta))
    return made


@pytest.mark.parametrize("depth, units", [(1, 0), (1, 3), (3, 0), (3, 2)])
def test_groups_in_slots(kernel: Kernel, depth: int, units: int) -> None:
    """A slot that holds a group is no block; its own slots come in its place."""
    heap = MuslHeap()
    made = nested(heap, depth, units)
    groups = check(kernel, heap)
    assert list(groups.column("nested_slots")) == [1] * depth + [0]
    assert list(groups.column("address")) == [address for address, _ in made]


def test_donated_groups_and_far_alignment(kernel: Kernel) -> None:
    """What the dynamic linker gave is in no mapping of its own; blocks aligned so far that 16 bits do not hold the way are exact, too."""
    heap = MuslHeap()
    heap.group(0, 7, [Request(0, 12), Request(6, 1)], pages=0, freeable=False)
    heap.own(100, 0x10001)
    heap.own(100, 0x20000)
    heap.own(1000, 0xFFFF)
    groups = check(kernel, heap)
    assert sorted(groups.column("place")).count(api.PLACE_DONATED) == 1


def damaged(kernel: Kernel, heap: MuslHeap) -> List[Tuple[int, int]]:
    """(code, address) of what is wrong with groups."""
    return [(problem.code, problem.address) for problem in look(kernel, heap).problems]


def test_damage_to_metas_and_groups_is_told_one_by_one(kernel: Kernel) -> None:
    """Each rule, with the address; everything else is read as before."""
    heap = MuslHeap()
    good = heap.group(5, 8, [Request(1, 80)])
    word = heap.word
    at = [heap.group(5, 8) for _ in range(8)]
    heap.put(at[0][1] + 3 * word, 0xFF, 4)
    heap.put(at[0][1] + 3 * word + 4, 1, 4)
    heap.put(at[1][1] + 3 * word, 0x1FF, 4)
    heap.put(at[2][1] + 3 * word + 8, 7 | 1 << 5 | 50 << 6 | 1 << 12, word)
    heap.put(at[3][1] + 3 * word + 8, 31 | 1 << 5 | 20 << 6 | 1 << 12, word)
    heap.put(at[4][0], good[1], word)
    heap.put(at[5][1] + 2 * word, at[5][0] + 0x500_0000, word)
    heap.put(at[6][1] + 2 * word, at[6][0] + 8, word)
    heap.put(at[7][1] + 3 * word + 8, 7 | 1 << 5 | 5 << 6 | 40 << 12, word)
    expected = [
        (api.GROUP_MASKS, at[0][0]),
        (api.GROUP_MASKS, at[1][0]),
        (api.GROUP_CLASS, at[2][0]),
        (api.GROUP_PLACE, at[3][0]),
        (api.GROUP_UNMAPPED, at[5][0] + 0x500_0000),
        (api.GROUP_PLACE, at[6][0] + 8),
        (api.GROUP_PLACE, at[7][0]),
    ]
    assert sorted(damaged(kernel, heap)) == sorted(expected)
    used, _, tallies = blocks(kernel, heap, look(kernel, heap))
    assert used == {good[0] + UNIT_BYTES + 96 : 80}
    assert [(problem.code, problem.address) for problem in tallies.problems] == [(api.HEAD_BACK, at[4][0])]


def test_damage_to_the_list_of_areas(kernel: Kernel) -> None:
    """Another first word, a list that comes back, and an area that is not there end the list; what was read before stays."""
    for code, spoil in (
        (api.GROUP_AREA_CHECK, lambda heap: heap.put(heap.areas[1], 5, 8)),
        (api.GROUP_AREA_AGAIN, lambda heap: heap.put(heap.areas[1] + 8, heap.areas[0], 8)),
        (api.GROUP_AREA_UNREADABLE, lambda heap: heap.put(heap.areas[0] + 8, 0x4000, 8)),
    ):
        heap = MuslHeap()
        heap.group(3, 4, [Request(2, 60)])
        heap.add_area()
        spoil(heap)
        groups = look(kernel, heap)
        assert [problem.code for problem in groups.problems] == [code]
        assert blocks(kernel, heap, groups)[0] == heap.used


def test_groups_that_cannot_lie_where_they_lie(kernel: Kernel) -> None:
    """In a free slot, in one that is not marked, across two slots, and a group of a slot in no group. What a thread makes, or gives up with
    its last block, is none of these."""
    heap = MuslHeap()
    (outer, meta), (inner, inner_meta) = nested(heap, 1, 0)
    heap.put(meta + 3 * heap.word, 0b110, 4)
    heap.put(inner_meta + 3 * heap.word, 0b0111, 4)
    assert damaged(kernel, heap) == [(api.GROUP_MAKING, inner)]
    for pages in (0, 1):
        heap = MuslHeap()
        group, at = heap.group(5, 8)
        heap.put(at + 3 * heap.word + 8, pages << 12, heap.word)
        assert damaged(kernel, heap) == [(api.GROUP_MAKING, group)]
    heap = MuslHeap()
    (outer, meta), (inner, _) = nested(heap, 1, 0)
    heap.put(inner - 3, 2 | 3 << 5, 1)
    assert not damaged(kernel, heap)
    problems = blocks(kernel, heap, look(kernel, heap))[2].problems
    assert [(problem.code, problem.address) for problem in problems] == [(api.HEAD_MARK, inner)]
    heap = MuslHeap()
    (outer, meta), (inner, _) = nested(heap, 1, 0)
    heap.put(meta + 3 * heap.word, 0b110, 4)
    assert (api.GROUP_OVERLAP, inner) in damaged(kernel, heap)
    heap = MuslHeap()
    (outer, meta), (inner, _) = nested(heap, 1, 0)
    heap.put(meta + 2 * heap.word, 0, heap.word)
    assert damaged(kernel, heap) == [(api.GROUP_OUTSIDE, inner)]


SPOILS = {
    "index": (api.HEADER_INDEX, lambda heap, at, end: heap.put(at - 3, 9 | 5 << 5, 1)),
    "offset": (api.HEADER_OFFSET, lambda heap, at, end: heap.put(at - 2, 77, 2)),
    "zero in the header": (api.HEADER_ZERO, lambda heap, at, end: heap.put(at - 4, 9, 1)),
    "one byte too many": (api.HEADER_ZERO, lambda heap, at, end: heap.put(at + 40, 0x41, 1)),
    "the end of the slot": (api.HEADER_ZERO, lambda heap, at, end: heap.put(end, 1, 1)),
    "more left than there is": (api.HEADER_SLACK, lambda heap, at, end: heap.put(end - 4, 5000, 4)),
    "less left than the mark says": (api.HEADER_SLACK, lambda heap, at, end: heap.put(end - 4, 4, 4)),
    "a mark of a group": (api.HEADER_HALF, lambda heap, at, end: heap.put(at - 3, 2 | 6 << 5, 1)),
    "only its offset": (api.HEADER_HALF, lambda heap, at, end: heap.put(at - 3, 0, 1)),
    "further on, and nothing there": (api.HEADER_HALF, lambda heap, at, end: (heap.put(at - 3, 7 << 5, 1), heap.put(at - 2, 1, 2))),
    "further on than the slot goes": (api.HEADER_HALF, lambda heap, at, end: heap.put(at - 3, 7 << 5, 1)),
    "freed, but for its offset": (api.HEADER_STALE, lambda heap, at, end: heap.put(at - 3, 255, 1)),
    "freed": (api.HEADER_STALE, lambda heap, at, end: (heap.put(at - 3, 255, 1), heap.put(at - 2, 0, 2))),
}


@pytest.mark.parametrize("spoil", SPOILS)
def test_damage_to_a_block_in_use_is_told_and_it_counts_as_its_slot(kernel: Kernel, spoil: str) -> None:
    """Masks say that it is in use; what its header says is not believed then, unless only what lies behind the block was overwritten."""
    heap = MuslHeap()
    group, _ = heap.group(9, 8, [Request(2, 40), Request(5, 30, 1)])
    at, stride = group + UNIT_BYTES + 2 * 160, 160
    code, change = SPOILS[spoil]
    change(heap, at, at + stride - 4)
    used, _, tallies = blocks(kernel, heap, look(kernel, heap))
    assert [(problem.code, problem.address) for problem in tallies.problems] == [(code, at)]
    assert used[at] == (40 if spoil in ("one byte too many", "the end of the slot") else stride - 4) and len(used) == 2
    assert api.HEADER_INDEX == SLOT_OWN


@pytest.mark.parametrize("seed", range(6))
def test_sums_are_those_of_the_rows_whatever_is_damaged(kernel: Kernel, seed: int) -> None:
    """Whatever bytes are changed, it ends, and groups, runs and blocks agree."""
    rng = random.Random(seed)
    heap = MuslHeap()
    nested(heap, 3, 2)
    for _ in range(10):
        size_class = rng.randrange(30)
        heap.group(size_class, 6, some(rng, size_class, 6), freed=rng.getrandbits(6))
    heap.own(200_000, 5)
    for _ in range(60):
        changed = heap
        start = rng.choice(sorted(changed.pieces))
        data = changed.pieces[start]
        place = rng.randrange(min(len(data), 1200))
        before, data[place] = data[place], rng.choice((0, 1, 255, rng.randrange(256)))
        groups = look(kernel, changed)
        check_sums(groups, blocks(kernel, changed, groups)[2])
        if rng.random() < 0.7:
            data[place] = before
