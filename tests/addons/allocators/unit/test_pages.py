"""Segments and page maps as bytes, of each line of releases: what is found in them, and what damage does.

mimalloc's free lists and tcmalloc's page map as they are walked.
"""

import random
import struct
from array import array
from typing import Any, Dict, List, Optional, Sequence, Tuple

import pytest

from gdbheapx import kernel as kernels
from gdbheapx.addons.allocators.mimalloc import detect, layouts
from gdbheapx.addons.allocators.mimalloc import entry as own_text
from gdbheapx.addons.allocators.mimalloc.records import (
    LIST_GOOD,
    LIST_LONG,
    LIST_STRAY,
    LIST_UNREADABLE,
    MI_FREE,
    MI_METADATA,
    MI_REMOTE,
    MI_RETURNED,
    MI_SPAN,
    FreeBlocks,
    MiFreeList,
    MiListEnd,
    MiListPage,
    MimallocArena,
    follow_free_lists,
)
from gdbheapx.addons.allocators.tcmalloc import records
from gdbheapx.addons.allocators.tcmalloc import records as api
from gdbheapx.addons.allocators.tcmalloc.records import PageLeaf, SpanLayout, TcFreeList
from gdbheapx.common.budget import Budget
from gdbheapx.inferior.base import BytesSource
from gdbheapx.kernel.binding import CKernel
from gdbheapx.kernel.blocks.slots import SlotRun, SlotWalker

KEY = 0x1234567890ABCDEF
SEGMENT = 0x20000000000
THREAD = 0x7F0000001000
BLOCK, CAPACITY, USED = 64, 100, 40
SEGMENTED = [form for line in (1, 2) for form in layouts.list_forms(line)]
MAPPED = layouts.list_forms(3)
MAP, PART, ARENA, SUBPROC, STRUCTS = 0x30000000000, 0x30000400000, 0x40000000000, 0x50000000000, 0x3FFFFFF0000


class Memory:
    """Bytes by address."""

    kind, word_bytes, little_endian, page_bytes = "core", 8, True, 4096

    def mappings(self) -> List[Any]:
        return []

    def __init__(self) -> None:
        self.pieces: Dict[int, bytearray] = {}

    def add(self, address: int, size: int) -> None:
        self.pieces[address] = bytearray(size)

    def put(self, address: int, value: int, size: int = 8) -> None:
        start, data = next((start, data) for start, data in self.pieces.items() if start <= address < start + len(data))
        data[address - start : address - start + size] = value.to_bytes(size, "little")

    def read_prefix(self, address: int, size: int) -> bytes:
        for start, data in self.pieces.items():
            if start <= address < start + len(data):
                return bytes(data[address - start : address - start + size])
        return b""

    def touched_ranges(self, start: int, end: int) -> List[Tuple[int, int]]:
        return sorted((max(start, low), min(end, low + len(data))) for low, data in self.pieces.items() if low < end and start < low + len(data))


def reserved(form: layouts.MimallocForm) -> int:
    """How many blocks a page of one slice has room for."""
    return (layouts.SLICE_BYTES - layouts.find_first_block(form, BLOCK)) // BLOCK


def put_page(memory: Memory, form: layouts.MimallocForm, at: int, start: int, thread: int = 0) -> None:
    """One page of blocks, with an empty list of each sort."""
    places = form.page
    for offset, value in ((places.capacity, CAPACITY), (places.reserved, reserved(form))):
        memory.put(at + offset, value, 2)
    memory.put(at + places.used.offset, USED, places.used.bytes)
    memory.put(at + places.block_bytes.offset, BLOCK, places.block_bytes.bytes)
    if places.start is not None:
        memory.put(at + places.start, start)
    if places.start_words is not None:
        memory.put(at + places.start_words, (start - at) // 8, 4)
    if places.owner is not None:
        memory.put(at + places.owner, thread)
        memory.put(at + places.xthread_free, 1)


def segment(form: layouts.MimallocForm) -> Tuple[Memory, int]:
    """A segment with one page, and where that begins."""
    memory, places = Memory(), form.segment
    memory.add(SEGMENT, 1 << 17)
    for offset, value in ((places.cookie, SEGMENT ^ KEY), (places.thread_id, THREAD), (places.used, 1)):
        memory.put(SEGMENT + offset, value)
    if places.page_shift is not None:
        at, begin = places.pages + form.page.bytes, SEGMENT + layouts.SLICE_BYTES
        for offset, value in ((places.size, 1 << 22), (places.info, 0x1000), (places.entries, 64), (places.page_shift, 16)):
            memory.put(SEGMENT + offset, value)
        memory.put(SEGMENT + at + 1, 1, 1)
        start = begin
    else:
        at, begin = places.pages + form.page.bytes, SEGMENT + layouts.SLICE_BYTES
        for offset, value in ((places.size, places.slices), (places.info, 1), (places.entries, places.slices)):
            memory.put(SEGMENT + offset, value)
        memory.put(SEGMENT + at, 1, 4)
        memory.put(SEGMENT + places.pages + 2 * form.page.bytes, places.slices - 2, 4)
        start = begin + layouts.find_first_block(form, BLOCK)
    put_page(memory, form, SEGMENT + at, start)
    return memory, SEGMENT + at


def read(memory: Memory, form: layouts.MimallocForm) -> detect.MimallocPages:
    target: Any = memory
    return detect.read_segments(target, form, KEY, [SEGMENT])


@pytest.mark.parametrize("form", SEGMENTED, ids=lambda form: form.name)
def test_a_segment_is_read(form: layouts.MimallocForm) -> None:
    """Its page with its counts and owner; all its memory is in a page or a piece."""
    memory, at = segment(form)
    found = read(memory, form)
    (page,) = found.pages
    assert (page.address, page.block_bytes, page.capacity, page.reserved, page.used) == (at, BLOCK, CAPACITY, reserved(form), USED)
    assert page.thread == THREAD and page.end == SEGMENT + 2 * layouts.SLICE_BYTES and not found.broken
    held = sorted([(page.memory, page.end), *((piece.start, piece.end) for piece in found.pieces)])
    assert held[0][0] == SEGMENT and {piece.kind for piece in found.pieces} <= {MI_METADATA, MI_SPAN, MI_RETURNED}
    ((start, end),) = found.reserved
    assert sum(last - first for first, last in held) == end - start


@pytest.mark.parametrize("form", SEGMENTED, ids=lambda form: form.name)
def test_a_damaged_page_is_told_and_left_out(form: layouts.MimallocForm) -> None:
    """More blocks in use than were handed out, a list outside, a size that is none: one code, and the rest stays."""
    for offset, value, size in (
        (form.page.used.offset, CAPACITY + 1, 2),
        (form.page.block_bytes.offset, BLOCK + 3, 4),
        (form.page.reserved, 0xFFFF, 2),
    ):
        memory, at = segment(form)
        memory.put(at + offset, value, size)
        found = read(memory, form)
        assert not found.pages and [one.code for one in found.broken] == ["page-wrong"]
    if not form.is_encoded:
        memory, at = segment(form)
        memory.put(at + form.page.free, SEGMENT + layouts.SLICE_BYTES + 1)
        assert not read(memory, form).pages


def test_slices_that_do_not_add_up_end_a_segment() -> None:
    """A count of 0 in the middle, or one beyond the end: what lies before is there."""
    form = next(form for form in layouts.PLAIN if form.line == 2)
    for count in (0, form.segment.slices - 1, 0xFFFFFFFF):
        memory, _ = segment(form)
        memory.put(SEGMENT + form.segment.pages + 2 * form.page.bytes, count, 4)
        found = read(memory, form)
        assert len(found.pages) == 1 and [one.code for one in found.broken] == ["segment-slices"]


def test_a_segment_without_pages_is_kept_memory() -> None:
    """One that was given up counts as a free span of nobody's, as long as its head is there."""
    form = next(form for form in layouts.PLAIN if form.line == 2)
    memory, _ = segment(form)
    memory.put(SEGMENT + form.segment.used, 0)
    found = read(memory, form)
    assert not found.pages and [(piece.kind, piece.thread) for piece in found.pieces] == [(MI_SPAN, None)]


def mapped(form: layouts.MimallocForm) -> Memory:
    """A page map with one page of an arena."""
    memory, places = Memory(), form.arena
    assert places is not None and form.page.memid is not None
    for address, size in ((MAP, 1 << 21), (PART, 1 << 16), (ARENA, 1 << 16), (SUBPROC, 1 << 14), (STRUCTS, 1 << 12)):
        memory.add(address, size)
    memory.put(MAP, MAP + (1 << 21))
    memory.put(MAP + 8, PART)
    at = STRUCTS if places.pages is None else ARENA + 2 * layouts.SLICE_BYTES
    memory.add(ARENA + 2 * layouts.SLICE_BYTES, 1 << 12)
    memory.put(PART, at)
    put_page(memory, form, at, ARENA + 2 * layouts.SLICE_BYTES, THREAD | 2)
    memid = at + form.page.memid
    for offset, value in ((0, ARENA), (8, 2 | 1 << 32), (16, 7)):
        memory.put(memid + offset, value)
    for offset, value in ((places.slice_count, 512), (places.info_slices, 1), (places.subproc, SUBPROC)):
        memory.put(ARENA + offset, value)
    memory.put(SUBPROC + places.subproc_arenas, ARENA)
    for number, offset in enumerate((places.slices_free, places.slices_committed, places.slices_dirty, places.slices_purge)):
        memory.put(ARENA + offset, ARENA + 0x1000 * (number + 1))
        chunks = places.free_chunks if number == 0 else 128
        value = ((1 << 512) - 1) & ~0b1101 if number == 0 else (1 << 512) - 1 if number < 3 else 0b10
        memory.put(ARENA + 0x1000 * (number + 1), 1)
        memory.put(ARENA + 0x1000 * (number + 1) + chunks, value, 64)
    if places.pages is not None:
        memory.put(ARENA + places.pages, ARENA + 0x5000)
        memory.put(ARENA + 0x5000, 1)
        memory.put(ARENA + 0x5000 + 128, 0b100, 64)
    return memory


@pytest.mark.parametrize("form", MAPPED, ids=lambda form: form.name)
def test_a_page_map_is_read(form: layouts.MimallocForm) -> None:
    """The page with its owner, and what its arena has besides: its own slices, one to be purged, the rest returned."""
    target: Any = mapped(form)
    found = detect.read_page_map(target, form, MAP)
    (page,) = found.pages
    assert (page.memory - ARENA, page.end - ARENA) == (2 * layouts.SLICE_BYTES, 3 * layouts.SLICE_BYTES)
    assert (page.thread, page.has_aligned) == (THREAD, True)
    assert not found.broken
    kinds = {(piece.kind, *((at - ARENA) // layouts.SLICE_BYTES for at in (piece.start, piece.end))) for piece in found.pieces}
    assert kinds == {(MI_METADATA, 0, 1), (MI_SPAN, 1, 2), (MI_METADATA, 3, 4), (MI_RETURNED, 4, 512)}
    assert (ARENA, ARENA + 512 * layouts.SLICE_BYTES) in found.reserved


@pytest.mark.parametrize("form", MAPPED, ids=lambda form: form.name)
def test_a_guard_page_ends_a_page_of_a_secure_build(form: layouts.MimallocForm) -> None:
    """Its blocks end 4096 bytes earlier; where lists are not encoded there is none, and the count is wrong."""
    target: Any = mapped(form)
    at = ARENA + 2 * layouts.SLICE_BYTES if form.arena is not None and form.arena.pages is not None else STRUCTS
    target.put(at + form.page.reserved, reserved(form) - 4096 // BLOCK, 2)
    if form.is_encoded:
        target.put(at + form.page.keys, KEY)
        target.put(at + form.page.keys + 8, KEY + 1)
    found = detect.read_page_map(target, form, MAP)
    assert [one.code for one in found.broken] == ([] if form.is_encoded else ["page-wrong"]) and len(found.pages) == form.is_encoded


def test_a_page_map_that_leads_nowhere_is_told() -> None:
    """A word without a page behind it is unread; a page with memory of no kind is wrong."""
    form = next(form for form in MAPPED if form.arena is not None and form.arena.pages is None)
    target: Any = mapped(form)
    target.put(PART + 8, STRUCTS + 0x100000)
    target.put(STRUCTS + (form.page.memid or 0) + 16, 99)
    found = detect.read_page_map(target, form, MAP)
    assert sorted(one.code for one in found.broken) == ["page-unreadable", "page-wrong"] and not found.pages


def test_words_of_freed_pages_are_left_out() -> None:
    """Release 3.0.1 never clears them: one of an arena is told by the arena's bitmap, one of the OS's memory by what is there now. Its word
    for address 0 leads to an empty page. A page that stands in the bitmap and is damaged is told as in every release."""
    form = next(form for form in MAPPED if form.arena is not None and form.arena.pages is not None)
    target: Any = mapped(form)
    at, freed = ARENA + 2 * layouts.SLICE_BYTES, ARENA + 4 * layouts.SLICE_BYTES
    target.add(freed, 1 << 12)
    target.pieces[freed][:] = target.pieces[at]
    target.put(freed + (form.page.memid or 0) + 8, 4 | 1 << 32)
    for place, stale in enumerate((freed, STRUCTS, STRUCTS + 0x100000), 1):
        target.put(PART + 8 * place, stale)
    target.add(MAP + (1 << 21), 1 << 16)
    target.put(MAP + (1 << 21), STRUCTS + 0x200000)
    found = detect.read_page_map(target, form, MAP)
    assert [page.address for page in found.pages] == [at] and not found.broken
    target.put(at + form.page.used.offset, CAPACITY + 1, 2)
    found = detect.read_page_map(target, form, MAP)
    assert not found.pages and [one.code for one in found.broken] == ["page-wrong"]


@pytest.mark.parametrize(
    "version, text",
    [(209, "2.0.9"), (182, "1.8.2"), (315, "3.1.5"), (3208, "3.2.8"), (30403, "3.4.3"), (20302, "2.3.2"), (0, None), (1 << 31, None)],
)
def test_a_release_is_spelled(version: int, text: Optional[str]) -> None:
    """As mi_version counts: three digits, four, five."""
    assert detect.spell_release(version) == text


def test_encoded_builds_move_what_is_behind_their_keys() -> None:
    """A page is two words longer; each block has a word of the allocator's behind it, but for secure builds of 2.0."""
    for form in layouts.PLAIN:
        made, is_first = layouts.encode_form(form), form.releases in ("2.0.6", "2.0.7")
        assert made.page.bytes == form.page.bytes + 16 and made.page.xthread_free - form.page.xthread_free == (16 if form.line < 3 else 0)
        assert made.is_padded and made.page.free == form.page.free
        assert made.page.used == layouts.FieldPlace(form.page.used.offset + 16 * is_first, form.page.used.bytes)
    secure = [form for form in layouts.list_forms(2) if form.is_encoded and not form.is_padded]
    assert [form.releases for form in secure] == ["2.0.6", "2.0.7", "2.0.9"]
    assert secure[2].heap == layouts.encode_form(secure[2], False).heap
    debug = next(form for form in layouts.list_forms(2) if form.releases == "2.0.9" and form.is_padded)
    assert debug.heap is not None and secure[2].heap is not None and debug.heap.cookie == secure[2].heap.cookie + 8


@pytest.mark.parametrize("in_ram, told", [(1 << 20, "1.0 MiB in RAM"), (None, "28.0 MiB (how much is in RAM is unknown)")])
def test_what_a_collection_returns_is_in_ram(in_ram: Optional[int], told: str) -> None:
    """Spans that were never touched are address space."""
    row: Any = MimallocArena(**dict.fromkeys(MimallocArena._fields, 0))
    totals = {"collectable_bytes": 28 << 20, "collectable_resident_bytes": in_ram}
    assert any(told in str(line) for line in own_text.ALLOCATOR.arenas_page([row], totals))


@pytest.mark.parametrize("length", [0, 7, 4096])
def test_short_memory_ends_nothing(length: int) -> None:
    """Any prefix of a segment is read without an error."""
    for form in SEGMENTED:
        memory, _ = segment(form)
        memory.pieces[SEGMENT] = memory.pieces[SEGMENT][:length]
        read(memory, form)

BASE, SIZE, COUNT = 0x10000, 48, 200
PAGES = [MiListPage(BASE, SIZE, COUNT), MiListPage(BASE + 0x10000, 16, 50)]
MASK = (1 << 64) - 1


def turned(value: int, by: int) -> int:
    return (value << by | value >> (64 - by)) & MASK if by else value


def written(links: Sequence[Sequence[int]], null: int = 0, key: int = 0, turn: int = 0) -> BytesSource:
    """Memory in which these addresses are linked."""
    data = bytearray(0x20000)
    for members in links:
        for address, following in zip(members, [*members[1:], null]):
            value = (turned(following ^ turn, key & 63) + key) & MASK if key else following
            data[address - BASE : address - BASE + 8] = value.to_bytes(8, "little")
    return BytesSource(((BASE, bytes(data)),))


def followed(source: Any, rows: List[MiFreeList]) -> FreeBlocks:
    """All of them, to their ends."""
    told = follow_free_lists(kernels.load_native_library(), source, rows, PAGES, Budget(None))
    assert told.is_whole and sum(end.members for end in told.ends) == len(told.addresses) == len(told.kinds)
    assert list(told.addresses) == sorted(told.addresses)
    return told


def plain(head: int, page: int, kind: int = MI_FREE) -> MiFreeList:
    return MiFreeList(head, page, kind, 0, False, 0, 0)


def test_members_are_told_by_address() -> None:
    """In whatever order the list has them, with their kinds; a list of all pages counts by page."""
    numbers = random.Random(7).sample(range(COUNT - 1), 60)
    first = [BASE + SIZE * number for number in numbers]
    mixed = [BASE + SIZE * 199, BASE + 0x10000 + 16 * 3, BASE + 0x10000]
    rows = [plain(first[0], 0), plain(mixed[0], 2, MI_REMOTE), plain(0, 1)]
    told = followed(written([first, mixed]), rows)
    assert list(told.addresses) == sorted([*first, *mixed]) and list(told.shared) == [1, 2]
    assert [end.problem for end in told.ends] == [LIST_GOOD] * 3 and [end.members for end in told.ends] == [60, 3, 0]


def test_a_ring_ends() -> None:
    """A list with more members than there are blocks comes back."""
    ring = [BASE, BASE + SIZE, BASE + 2 * SIZE, BASE]
    source = written([ring[:3]], null=BASE)
    (end,) = followed(source, [plain(BASE, 0)]).ends
    assert (end.problem, end.members) == (LIST_LONG, COUNT)


@pytest.mark.parametrize("address", [BASE + 4, BASE - SIZE, BASE + SIZE * COUNT, MASK, 8])
def test_what_is_no_block_ends_a_list(address: int) -> None:
    """Inside a block, before and behind the page, at no address."""
    told = followed(written([[BASE + SIZE]], null=address), [plain(BASE + SIZE, 0)])
    assert told.ends == [MiListEnd(1, LIST_STRAY, address)]


def test_memory_that_is_missing_ends_a_list() -> None:
    """What came before is told."""
    source = BytesSource(((BASE, (BASE + SIZE * 150).to_bytes(8, "little") + bytes(100)),))
    (end,) = followed(source, [plain(BASE, 0)]).ends
    assert end == MiListEnd(1, LIST_UNREADABLE, BASE + SIZE * 150)


def test_blocks_on_two_lists_are_counted() -> None:
    """The address stands there twice."""
    told = followed(written([[BASE, BASE + SIZE]]), [plain(BASE, 0), plain(BASE + SIZE, 0, MI_REMOTE)])
    assert told.twice == 1 and list(told.addresses) == [BASE, BASE + SIZE, BASE + SIZE]


@pytest.mark.parametrize("key", [0x123456789ABCDE40, 0xFEDCBA9876543217])
def test_encoded_lists(key: int) -> None:
    """Two keys; the page's own address stands for the end, also with a turn by nothing."""
    null, turn = 0x7000, 0x5555AAAA12345678
    members = [BASE + SIZE * number for number in (5, 1, 9)]
    told = followed(written([members], null, key, turn), [MiFreeList(members[0], 0, MI_FREE, null, True, key, turn)])
    assert list(told.addresses) == sorted(members) and told.ends[0].problem == LIST_GOOD

LEAF_BITS, SHIFT = 8, 13
LAYOUT = SpanLayout(1, SHIFT, LEAF_BITS, 12)
SIZES = [0, 8, 16, 48, 1000, 9000] + [0] * (api.SIZE_CLASSES - 6)
LEAVES, WALKED = 0x1000_0000, 0x2000_0000


def memory(rng: random.Random) -> Dict[int, bytearray]:
    """Three leaves with spans, some of them wrong, words of no span between them."""
    pieces = {LEAVES + 0x10000 * number: bytearray(8 << LEAF_BITS) for number in range(3)}
    pieces[WALKED] = bytearray(api.SPAN_BYTES * 400)
    if rng.random() < 0.3:
        del pieces[LEAVES + 0x20000][5 * rng.randrange(300) :]
    page, number = rng.randrange(20), 0
    while page < 3 << LEAF_BITS and number < 400:
        pages, at = rng.choice((1, 1, 2, 3, 30)), WALKED + api.SPAN_BYTES * number
        size_class, location = rng.choice((0, 0, 1, 2, 3, 4, 5, 6, 200)), rng.choice((0, 0, 0, 1, 2, 3))
        start = page if rng.random() < 0.9 else page + 1
        fields = (start, pages if rng.random() < 0.95 else rng.choice((0, 1 << 40)), 0, 0, rng.randrange(1 << 40), 5, size_class, location | 4 * (number & 1))
        pieces[WALKED][api.SPAN_BYTES * number : api.SPAN_BYTES * (number + 1)] = struct.pack("<QQQQQHBB", *fields)
        for inner in range(page, min(page + pages, 3 << LEAF_BITS)):
            leaf, place = pieces[LEAVES + 0x10000 * (inner >> LEAF_BITS)], 8 * (inner & (1 << LEAF_BITS) - 1)
            if place + 8 <= len(leaf) and rng.random() < 0.9:
                word = at if rng.random() < 0.95 else rng.choice((3, 0x3000_0000, WALKED + api.SPAN_BYTES * rng.randrange(400)))
                leaf[place : place + 8] = struct.pack("<Q", word)
        page, number = page + pages + rng.choice((0, 0, 1)), number + 1
    return pieces


@pytest.mark.parametrize("seed", range(30))
def test_spans_are_what_their_pages_name(c_kernel: CKernel, seed: int) -> None:
    """In address order, without overlap, each as its structure says; their runs fill them, and what is wrong was written so."""
    pieces = memory(random.Random(seed))
    source = BytesSource(tuple((start, bytes(data)) for start, data in sorted(pieces.items())))
    leaves = [PageLeaf(number, LEAVES + 0x10000 * number) for number in range(3)]
    one = records.read_spans(c_kernel, source, LAYOUT, leaves, SIZES, Budget())
    assert one.is_whole
    starts, sizes = one.column("start"), one.column("bytes")
    assert all(start + size <= following for start, size, following in zip(starts, sizes, starts[1:]))
    for address, start, size in zip(one.column("address"), starts, sizes):
        written = pieces[WALKED][address - WALKED : address - WALKED + 16] if address < WALKED + api.SPAN_BYTES * 400 else b""
        assert struct.unpack("<QQ", written) == (start >> SHIFT, size >> SHIFT)
    width = len(SlotRun._fields)
    runs = [SlotRun._make(one.runs[at : at + width]) for at in range(0, len(one.runs), width)]
    assert sum(run.slots * run.slot_bytes for run in runs) == sum(sizes) == sum(tally.bytes for tally in one.tallies)
    _, _, nothing = records.follow_objects(c_kernel, source, True, array("Q"), 0, Budget())
    assert SlotWalker(c_kernel, source, one.runs, records.TC_CLASS_OF, records.TC_LABELS, Budget(), nothing).tally().is_whole


def test_lists_end(c_kernel: CKernel) -> None:
    """To the end, to the limit of one list and of all, around a ring, to what is no address and to what cannot be read."""
    at = 0x5000_0000
    words = bytearray(8 * 1000)

    def link(place: int, value: int) -> None:
        words[8 * place : 8 * place + 8] = struct.pack("<Q", value)

    for place in range(100):
        link(place, at + 8 * (place + 1) if place < 99 else 0)
    link(200, at + 8 * 201)
    link(201, at + 8 * 200)
    link(300, 0x4141414141414141)
    link(301, 7)
    link(302, 0x7777_0000)
    lists = [(at, 1000), (at, 50), (at + 1600, 10), (at + 2400, 10), (at + 2408, 10), (at + 2416, 10), (0, 10), (at + 3, 1)]
    numbers = array("Q", [number for place, (head, most) in enumerate(lists) for number in TcFreeList(head, most, place % 4, at if place % 2 else 0)])
    source = BytesSource(((at, bytes(words)),))
    for most in (10_000, 120):
        is_whole, ends, frees = records.follow_objects(c_kernel, source, True, numbers, most, Budget())
        assert is_whole and len(ends) == len(lists) and sum(end.count for end in ends) == len(frees.addresses)
        if most == 10_000:
            assert [end.count for end in ends] == [100, 50, 10, 1, 1, 1, 0, 0]
            expected = [api.LIST_GOOD, api.LIST_LONG, api.LIST_LONG, api.LIST_MISALIGNED, api.LIST_MISALIGNED, api.LIST_UNREADABLE, api.LIST_GOOD]
            assert [end.problem for end in ends] == [*expected, api.LIST_MISALIGNED]
        assert list(frees.addresses) == sorted(frees.addresses) and set(frees.kinds) <= set(range(4))
