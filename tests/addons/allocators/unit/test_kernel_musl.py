"""musl's groups and slots as both kernels walk them: every class and mask, nested and donated groups, offsets, and each kind of damage.

musl's malloc of made-up memory: found by its secret, its sums, what is told of damage, its meter and its verdicts.
"""

import random
from array import array
from typing import Any, Dict, Iterator, List, NamedTuple, Optional, Sequence, Tuple

import pytest

from gdbheapx.addons.allocators.musl import codes, detect, records
from gdbheapx.addons.allocators.musl import records as api
from gdbheapx.addons.allocators.musl.entry import ALLOCATOR
from gdbheapx.addons.allocators.musl.heap import MuslMalloc
from gdbheapx.allocators.records import Surroundings
from gdbheapx.common import verdict
from gdbheapx.common.budget import Budget
from gdbheapx.common.problems import ProblemCode
from gdbheapx.inferior.base import Module, Thread
from gdbheapx.kernel.blocks.slots import SLOT_OWN, SlotTallies
from gdbheapx.kernel.common.library import Kernel
from tests.support.builders.musl import CONTEXT, PROGRAM, MuslHeap, MuslTarget, Request
from tests.support.heap_contexts import heap_context

MACHINES = [(8, True), (8, False), (4, True)]


def look(kernel: Kernel, heap: MuslHeap, with_rows: bool = True) -> records.MuslGroups:
    """All groups."""
    return records.read_groups(kernel, heap.source(), heap.layout(), heap.memory(), with_rows, Budget())


def check_sums(groups: records.MuslGroups, tallies: SlotTallies) -> None:
    """By class the masks of the groups say what a walk over every slot finds; what groups hold is slots and the rest beside them."""
    for one, tally in zip(groups.classes, tallies.tallies):
        assert (one.used_slots, one.free_slots, one.slot_bytes, one.free_bytes) == tally[:2] + (tally.slot_bytes, tally.free_bytes)
        assert one.used_bytes >= tally.used_bytes
    sums = groups.sums
    assert sums.groups == sum(one.groups for one in groups.classes) == sum(not problem for problem in groups.column("problem"))
    assert sums.own_bytes + sums.lost_bytes == sum(one.slot_bytes for one in groups.classes) + sums.rest_bytes
    assert sums.own_bytes == sum(end - start for start, end in groups.ranges("held"))


def blocks(kernel: Kernel, heap: MuslHeap, groups: records.MuslGroups) -> Tuple[Dict[int, int], List[int], Any]:
    """Blocks in use, free slots, and the sums."""
    walker = records.make_musl_slot_walker(kernel, heap.source(), groups.runs, Budget())
    rows = [row for batch in walker.blocks() for row in zip(*batch)]
    assert rows == sorted(rows)
    used = {address: usable for address, usable, _, kind, _ in rows if kind == api.MUSL_USED}
    return used, [row[0] for row in rows if row[3] == api.MUSL_FREE], walker.tally()


def check(kernel: Kernel, heap: MuslHeap) -> records.MuslGroups:
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
            room = records.find_most_bytes(size_class)
            units = rng.randrange(min(room // records.UNIT_BYTES, 255) + 1)
            left = room - units * records.UNIT_BYTES
            requests.append(Request(slot, left - min(left, rng.choice((0, 1, 3, 4, 5, 9, 200))), units))
    return requests


@pytest.mark.parametrize("machine", MACHINES, ids=str)
def test_each_class_with_masks_and_offsets(kernel: Kernel, machine: Tuple[int, bool]) -> None:
    """Groups of each class, of 1 to 32 slots, free in either mask: each block with its exact address and size."""
    rng, heap = random.Random(1), MuslHeap(*machine)
    for size_class in range(records.MUSL_CLASSES):
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
        stride = records.count_slot_units(size_class) * records.UNIT_BYTES
        start = address + records.UNIT_BYTES + 2 * stride
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
    assert used == {good[0] + records.UNIT_BYTES + 96 : 80}
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
    at, stride = group + records.UNIT_BYTES + 2 * 160, 160
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

MIB = 1 << 20


class Opened(NamedTuple):
    """A heap, and the codes that it reports."""

    malloc: MuslMalloc
    codes: List[ProblemCode]


def opened(target: MuslTarget, kernel: Kernel) -> Opened:
    """By its secret."""
    told: List[ProblemCode] = []
    (found,) = ALLOCATOR.find(target).located
    around = heap_context(target, kernel, Budget(), lambda code, *rest, **more: told.append(code))
    malloc = ALLOCATOR.open(found, around)
    assert isinstance(malloc, MuslMalloc)
    return Opened(malloc, told)


def made(word: int = 8, little_endian: bool = True) -> MuslHeap:
    """Groups of several classes, a donated one, and a block with a mapping of its own."""
    heap = MuslHeap(word, little_endian)
    heap.group(3, 10, [Request(0, 60), Request(4, 50), Request(9, 30, 1)], freed=0xF0)
    heap.group(20, 4, [Request(1, 1100)])
    heap.group(1, 5, [Request(2, 20)], pages=0, freeable=False)
    heap.own(200_000)
    return heap


@pytest.mark.parametrize("has_page_size", [False, True])
@pytest.mark.parametrize("word, little_endian", [(8, True), (8, False), (4, True)])
def test_a_context_is_found_by_its_secret(word: int, little_endian: bool, has_page_size: bool) -> None:
    """Whatever the word size and order, and whether or not the page size is a constant of the machine."""
    target = MuslTarget(made(word, little_endian), has_page_size)
    (found,) = detect.find_musls(target).located
    assert (found.context, found.offsets) == (CONTEXT, detect.find_offsets(word, has_page_size))
    target.heap.put(target.heap.areas[0], 1, 8)
    assert not detect.find_musls(target).located


def test_words_that_only_look_so_are_no_context() -> None:
    """Another secret, an area with another number of metas, or none at all."""
    heap = made()
    target = MuslTarget(heap)
    for address, value in ((CONTEXT, 77), (heap.areas[0] + 16, 100), (CONTEXT + target.where.init_done, 0), (CONTEXT + target.where.first_area, 0)):
        before = target.read_prefix(address, 8)
        heap.put(address, value, 8 if not value else 4)
        assert not detect.find_musls(target).located
        heap.put(address, int.from_bytes(before, "little"), 8)
    assert detect.find_musls(target).located


def test_sums_are_equal_by_mappings_and_by_slots(kernel: Kernel) -> None:
    """system = used + free + overhead; classes and histogram have the same used and free bytes."""
    target = MuslTarget(made())
    malloc, told = opened(target, kernel)
    (row,) = malloc.arenas()
    assert malloc.survey().is_whole and malloc.is_whole() and told == []
    own = next(iter(malloc.counted().ranges("alone")))
    assert row.used_bytes == 3 * 60 + 1148 + 28 + own[1] - own[0] - 20 and row.used_blocks == 6 and row.free_slots == 7 + 3 + 4
    assert row.system_bytes == (row.used_bytes or 0) + (row.free_bytes or 0) + (row.overhead_bytes or 0)
    assert row.donated_bytes == 16 + 5 * 32 and row.unparsed_bytes == 0
    assert sum(one.used_bytes for one in malloc.bins()) == 60 + 50 + 30 + 1100 + 20 + 200_000
    assert sum(one.used_bytes + one.slack_bytes - 4 * one.used_slots for one in malloc.bins()) == row.used_bytes
    assert sum(one.used_bytes for one in malloc.histogram()) == row.used_bytes
    assert sum(one.free_bytes for one in malloc.histogram()) == row.free_bytes
    claimed = sum(claim.end - claim.start for claim in malloc.claims())
    assert claimed == row.system_bytes
    assert malloc.facts().arenas == malloc.arenas()
    assert [list(malloc.kept().shape.spans)[at::3] for at in (0, 1)] == [list(column) for column in zip(*own_groups(malloc))]
    kept = malloc.kept()
    assert kept is not None and kept.kept_bytes == row.free_bytes and kept.returnable_bytes == 0


def own_groups(malloc: MuslMalloc) -> List[Tuple[int, int]]:
    """Begin and end of each that lies in no slot: what a block keeps from being returned."""
    rows = zip(*(malloc.groups().column(name) for name in ("address", "bytes", "place")))
    return [(at, at + size) for at, size, place in rows if place != api.PLACE_NESTED]


@pytest.mark.parametrize("kind", ["live", "core"])
def test_sums_of_a_living_process_need_no_page_of_its_heap(kernel: Kernel, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """It stands still meanwhile. Of a core the slots are looked at, too, as they tell a mask that is wrong."""
    target = MuslTarget(made())
    meta = target.heap.areas[0] + target.heap.first
    target.heap.put(meta + 3 * target.heap.word, 0x11E, 4)  # slot 4 is in use
    monkeypatch.setattr(MuslTarget, "kind", kind)
    malloc, told = opened(target, kernel)
    if kind == "live":
        monkeypatch.setattr(MuslMalloc, "survey", None)
    assert malloc.facts().is_whole == (kind == "live") and malloc.claims() and malloc.exact_reading()
    assert (codes.HEADER_BROKEN in told) == (kind == "core")


def spoil_group(heap: MuslHeap) -> None:
    heap.put(sorted(start for start in heap.pieces if start >= 0x7100_0000_0000)[0], 3, 8)


def spoil_block(heap: MuslHeap) -> None:
    heap.put(sorted(heap.used)[2] + 30, 0x41, 1)


def cut_area(heap: MuslHeap) -> None:
    heap.put(heap.areas[0] + 8, 0x1000, 8)


def stretch(heap: MuslHeap) -> None:
    own = max(start for start in heap.pieces if start >= 0x7100_0000_0000)
    meta = heap.areas[0] + heap.first + 3 * heap.meta_bytes
    heap.put(meta + 32, 0 | 1 << 5 | 63 << 6 | (len(heap.pieces[own]) // 4096 + 9) << 12, 8)

DAMAGE = {
    codes.GROUP_BACK: spoil_group,
    codes.BLOCK_OVERRUN: spoil_block,
    codes.AREA_UNREADABLE: cut_area,
    codes.GROUP_UNMAPPED: stretch,
}


@pytest.mark.parametrize("code", DAMAGE)
def test_damage_is_told_with_its_place(kernel: Kernel, code: ProblemCode) -> None:
    """Once each; the answer is not whole, and `check` has what is damage, with the block that was written past."""
    target = MuslTarget(made())
    DAMAGE[code](target.heap)
    malloc, told = opened(target, kernel)
    malloc.survey()
    assert (malloc.group_damage or malloc.slot_damage) and code in told
    rows = list(malloc.rules())
    assert (code in [row.code for row in rows]) == (code.nature.name == "DAMAGE")
    if code is codes.BLOCK_OVERRUN:
        (row,) = rows
        assert row.suspect is not None and (row.suspect.address, row.suspect.size_bytes) == (sorted(target.heap.used)[2], 30)
        assert row.address == row.suspect.address - 16 and row.abort
    (arena,) = malloc.arenas()
    parts = [arena.used_bytes, arena.free_bytes, arena.overhead_bytes, arena.unparsed_bytes]
    assert arena.system_bytes == sum(part or 0 for part in parts)


@pytest.mark.parametrize("pc, code", [(0x5550_0000, codes.SLOT_CHANGING), (0x5550_0042, codes.HEADER_BROKEN), (None, codes.HEADER_BROKEN)])
def test_a_half_written_header_is_damage_where_no_thread_writes(kernel: Kernel, pc: Optional[int], code: ProblemCode, monkeypatch: pytest.MonkeyPatch) -> None:
    """A thread in the code of malloc's object may be in the middle of it, but for one that waits in a system call."""
    target = MuslTarget(made())
    target.heap.pieces[0x5550_0000] = bytearray(0x40) + b"\x0f\x05" + bytes(0xFBE)
    target.heap.put(sorted(target.heap.used)[1] - 3, 0, 1)
    monkeypatch.setattr(target, "threads", lambda: [Thread(1, None, None, None, pc)])
    monkeypatch.setattr(target, "code_ranges", lambda module: [(0x5550_0000, 0x5550_1000)], raising=False)
    malloc, told = opened(target, kernel)
    malloc.survey()
    assert (malloc.group_damage or malloc.slot_damage) and told == [code]
    assert [row.code for row in malloc.rules()] == [code] * (code is codes.HEADER_BROKEN)


def test_slots_that_musl_counts_are_checked(kernel: Kernel) -> None:
    """usage_by_class is of all groups but donated ones; class 63 is not counted."""
    heap = made()
    target = MuslTarget(heap)
    assert list(opened(target, kernel).malloc.rules()) == []
    heap.put(CONTEXT + target.where.usage + 20 * 8, 5, 8)
    malloc, told = opened(target, kernel)
    assert list(malloc.rules()) == [] and told == [codes.USAGE_WRONG]  # a group may be in the making


def facts(used: int, free: int, overhead: int, own: Sequence[Tuple[int, int]] = ()) -> records.MuslFacts:
    """Of a heap with these parts."""
    system = used + free + overhead
    row: Any = dict.fromkeys(records.MuslArena._fields)
    row.update(allocator="musl", index=0, groups=1, system_bytes=system, used_bytes=used, free_bytes=free, overhead_bytes=overhead)
    info = detect.Musl("musl", MuslTarget(made()).modules()[0], 0, detect.find_offsets(8, False), 1, None, True).info()
    return records.MuslFacts(info, [records.MuslArena(**row)], {}, (), (), own_mappings=own)


def test_large_blocks_that_were_never_written_to_decide_nothing() -> None:
    """They are in use, and take no memory: the verdict is on the rest."""
    around = Surroundings(1, [], None, taken_bytes={"musl": 100 * MIB}, taken=lambda ranges: 10 * MIB)
    (judged,) = ALLOCATOR.judge([facts(1015 * MIB, 70 * MIB, 5 * MIB, own=[(0, 1000 * MIB)])], around)
    assert judged.verdict.kind == verdict.FRAGMENTED and "never written" in str(judged.verdict.lines[0].details)
    assert judged.held_bytes == 100 * MIB


def test_no_group_lies_beside_memory(kernel: Kernel) -> None:
    """A rest that is longer than a page means that numbers are damaged."""
    heap = made()
    target = MuslTarget(heap)
    assert not opened(target, kernel).malloc.counted().problem_count
    assert api.MUSL_LABELS == 65

LIBC = Module("/lib/ld-musl-x86_64.so.1", 0x7F00_0000_0000, False, None, None)

BY_RELEASE = {
    "1.1.24": ("unread", "cannot be read"),
    "1.2.0": ("unread", "cannot be read"),
    "1.2.1": ("unused", "never used"),
    "1.2.5": ("unused", "never used"),
}


class Shared(MuslTarget):
    """A program with musl's libc, whose malloc has no context in use."""

    release = "1.2.5"

    def modules(self) -> Sequence[Module]:
        return [PROGRAM, LIBC]

    def writable_segments(self, module: Module) -> Sequence[Tuple[int, int, int]]:
        return []

    def constant_data(self, module: Module) -> Iterator[bytes]:
        yield b"\0musl libc (\0Dynamic Program Loader\0" + self.release.encode() + b"\0"


@pytest.mark.parametrize("release", BY_RELEASE)
def test_a_libc_without_a_context_is_told_by_its_release(release: str) -> None:
    """Up to 1.2.0 another malloc is there, which cannot be read; from then on it was not used yet."""
    target = Shared(made())
    target.release = release
    found = ALLOCATOR.find(target)
    member, text = BY_RELEASE[release]
    (told,) = getattr(found, member)
    assert not found.located and text in told.what and told.hint and told.module == LIBC


class Static(MuslTarget):
    """A static program without symbols, whose malloc has no context in use."""

    constants = b""

    def modules(self) -> Sequence[Module]:
        return [PROGRAM]

    def module_symbol(self, module: Module, name: str) -> None:
        return None

    def writable_segments(self, module: Module) -> Sequence[Tuple[int, int, int]]:
        return []

    def constant_data(self, module: Module) -> Iterator[bytes]:
        yield b"\0No error information\0" + self.constants


@pytest.mark.parametrize("constants, member", [(b"", "unread"), (b"mimalloc: error: \0mimalloc: warning: ", "unused")])
def test_a_malloc_that_another_replaces_is_not_read(constants: bytes, member: str) -> None:
    """A static program with an allocator of its own: musl's malloc has nothing, and the answer is not partial."""
    target = Static(made())
    target.constants = constants
    found = ALLOCATOR.find(target)
    assert [len(rows) for rows in (found.located, found.unread, found.unused)] == [0, member == "unread", member == "unused"]


def test_a_block_is_found_by_its_group(kernel: Kernel) -> None:
    """whatis: the block, its group, or the area of metas; None elsewhere."""
    target = MuslTarget(made())
    malloc = opened(target, kernel).malloc
    for address, size in target.heap.used.items():
        place = malloc.block_at(address)
        assert place is not None and place.block is not None and (place.block.address, place.block.usable_bytes) == (address, size)
        assert [part.kind for part in place.parts] == ["group"]
    free = malloc.block_at(target.heap.free[0])
    assert free is not None and free.block is not None and free.block.status == "free"
    area = malloc.block_at(target.heap.areas[0] + 100)
    assert area is not None and [part.kind for part in area.parts] == ["metas"]
    assert malloc.block_at(0x1234) is None
