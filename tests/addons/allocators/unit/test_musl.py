"""musl's malloc of made-up memory: found by its secret, its sums, what is told of damage, its meter and its verdicts."""

from typing import Any, Iterator, List, NamedTuple, Optional, Sequence, Tuple

import pytest

from gdbheapx.addons.allocators.musl import codes, detect
from gdbheapx.addons.allocators.musl import records as api
from gdbheapx.addons.allocators.musl.entry import ALLOCATOR
from gdbheapx.addons.allocators.musl.heap import MuslMalloc
from gdbheapx.addons.allocators.musl.records import MuslArena, MuslFacts
from gdbheapx.allocators.records import Surroundings, heap_context
from gdbheapx.common import verdict
from gdbheapx.common.budget import Budget
from gdbheapx.common.problems import ProblemCode
from gdbheapx.inferior.base import Module, Thread
from gdbheapx.kernel.common.library import Kernel
from tests.support.builders.musl import CONTEXT, PROGRAM, MuslHeap, MuslTarget, Request

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


def facts(used: int, free: int, overhead: int, own: Sequence[Tuple[int, int]] = ()) -> MuslFacts:
    """Of a heap with these parts."""
    system = used + free + overhead
    row: Any = dict.fromkeys(MuslArena._fields)
    row.update(allocator="musl", index=0, groups=1, system_bytes=system, used_bytes=used, free_bytes=free, overhead_bytes=overhead)
    info = detect.Musl("musl", MuslTarget(made()).modules()[0], 0, detect.find_offsets(8, False), 1, None, True).info()
    return MuslFacts(info, [MuslArena(**row)], {}, (), (), own_mappings=own)


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
