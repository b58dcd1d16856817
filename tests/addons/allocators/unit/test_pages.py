"""Segments and page maps as bytes, of each line of releases: what is found in them, and what damage does."""

from typing import Any, Dict, List, Optional, Tuple

import pytest

from gdbheapx.addons.allocators.mimalloc import detect
from gdbheapx.addons.allocators.mimalloc import entry as own_text
from gdbheapx.addons.allocators.mimalloc.layouts import (
    PLAIN,
    SLICE_BYTES,
    FieldPlace,
    MimallocForm,
    encode_form,
    find_first_block,
    list_forms,
)
from gdbheapx.addons.allocators.mimalloc.records import MI_METADATA, MI_RETURNED, MI_SPAN, MimallocArena

KEY = 0x1234567890ABCDEF
SEGMENT = 0x20000000000
THREAD = 0x7F0000001000
BLOCK, CAPACITY, USED = 64, 100, 40
SEGMENTED = [form for line in (1, 2) for form in list_forms(line)]
MAPPED = list_forms(3)
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


def reserved(form: MimallocForm) -> int:
    """How many blocks a page of one slice has room for."""
    return (SLICE_BYTES - find_first_block(form, BLOCK)) // BLOCK


def put_page(memory: Memory, form: MimallocForm, at: int, start: int, thread: int = 0) -> None:
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


def segment(form: MimallocForm) -> Tuple[Memory, int]:
    """A segment with one page, and where that begins."""
    memory, places = Memory(), form.segment
    assert places is not None
    memory.add(SEGMENT, 1 << 17)
    for offset, value in ((places.cookie, SEGMENT ^ KEY), (places.thread_id, THREAD), (places.used, 1)):
        memory.put(SEGMENT + offset, value)
    if places.page_shift is not None:
        at, begin = places.pages + form.page.bytes, SEGMENT + SLICE_BYTES
        for offset, value in ((places.size, 1 << 22), (places.info, 0x1000), (places.entries, 64), (places.page_shift, 16)):
            memory.put(SEGMENT + offset, value)
        memory.put(SEGMENT + at + 1, 1, 1)
        start = begin
    else:
        at, begin = places.pages + form.page.bytes, SEGMENT + SLICE_BYTES
        for offset, value in ((places.size, places.slices), (places.info, 1), (places.entries, places.slices)):
            memory.put(SEGMENT + offset, value)
        memory.put(SEGMENT + at, 1, 4)
        memory.put(SEGMENT + places.pages + 2 * form.page.bytes, places.slices - 2, 4)
        start = begin + find_first_block(form, BLOCK)
    put_page(memory, form, SEGMENT + at, start)
    return memory, SEGMENT + at


def read(memory: Memory, form: MimallocForm) -> detect.MimallocPages:
    target: Any = memory
    return detect.read_segments(target, form, KEY, [SEGMENT])


@pytest.mark.parametrize("form", SEGMENTED, ids=lambda form: form.name)
def test_a_segment_is_read(form: MimallocForm) -> None:
    """Its page with its counts and owner; all its memory is in a page or a piece."""
    memory, at = segment(form)
    found = read(memory, form)
    (page,) = found.pages
    assert (page.address, page.block_bytes, page.capacity, page.reserved, page.used) == (at, BLOCK, CAPACITY, reserved(form), USED)
    assert page.thread == THREAD and page.end == SEGMENT + 2 * SLICE_BYTES and not found.broken
    held = sorted([(page.memory, page.end), *((piece.start, piece.end) for piece in found.pieces)])
    assert held[0][0] == SEGMENT and {piece.kind for piece in found.pieces} <= {MI_METADATA, MI_SPAN, MI_RETURNED}
    ((start, end),) = found.reserved
    assert sum(last - first for first, last in held) == end - start


@pytest.mark.parametrize("form", SEGMENTED, ids=lambda form: form.name)
def test_a_damaged_page_is_told_and_left_out(form: MimallocForm) -> None:
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
        memory.put(at + form.page.free, SEGMENT + SLICE_BYTES + 1)
        assert not read(memory, form).pages


def test_slices_that_do_not_add_up_end_a_segment() -> None:
    """A count of 0 in the middle, or one beyond the end: what lies before is there."""
    form = next(form for form in PLAIN if form.line == 2)
    assert form.segment is not None
    for count in (0, form.segment.slices - 1, 0xFFFFFFFF):
        memory, _ = segment(form)
        memory.put(SEGMENT + form.segment.pages + 2 * form.page.bytes, count, 4)
        found = read(memory, form)
        assert len(found.pages) == 1 and [one.code for one in found.broken] == ["segment-slices"]


def test_a_segment_without_pages_is_kept_memory() -> None:
    """One that was given up counts as a free span of nobody's, as long as its head is there."""
    form = next(form for form in PLAIN if form.line == 2)
    assert form.segment is not None
    memory, _ = segment(form)
    memory.put(SEGMENT + form.segment.used, 0)
    found = read(memory, form)
    assert not found.pages and [(piece.kind, piece.thread) for piece in found.pieces] == [(MI_SPAN, None)]


def mapped(form: MimallocForm) -> Memory:
    """A page map with one page of an arena."""
    memory, places = Memory(), form.arena
    assert places is not None and form.page.memid is not None
    for address, size in ((MAP, 1 << 21), (PART, 1 << 16), (ARENA, 1 << 16), (SUBPROC, 1 << 14), (STRUCTS, 1 << 12)):
        memory.add(address, size)
    memory.put(MAP, MAP + (1 << 21))
    memory.put(MAP + 8, PART)
    at = STRUCTS if places.pages is None else ARENA + 2 * SLICE_BYTES
    memory.add(ARENA + 2 * SLICE_BYTES, 1 << 12)
    memory.put(PART, at)
    put_page(memory, form, at, ARENA + 2 * SLICE_BYTES, THREAD | 2)
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
def test_a_page_map_is_read(form: MimallocForm) -> None:
    """The page with its owner, and what its arena has besides: its own slices, one to be purged, the rest returned."""
    target: Any = mapped(form)
    found = detect.read_page_map(target, form, MAP)
    (page,) = found.pages
    assert (page.memory, page.end, page.thread, page.has_aligned) == (ARENA + 2 * SLICE_BYTES, ARENA + 3 * SLICE_BYTES, THREAD, True)
    assert not found.broken
    kinds = {(piece.kind, (piece.start - ARENA) // SLICE_BYTES, (piece.end - ARENA) // SLICE_BYTES) for piece in found.pieces}
    assert kinds == {(MI_METADATA, 0, 1), (MI_SPAN, 1, 2), (MI_METADATA, 3, 4), (MI_RETURNED, 4, 512)}
    assert (ARENA, ARENA + 512 * SLICE_BYTES) in found.reserved


@pytest.mark.parametrize("form", MAPPED, ids=lambda form: form.name)
def test_a_guard_page_ends_a_page_of_a_secure_build(form: MimallocForm) -> None:
    """Its blocks end 4096 bytes earlier; where lists are not encoded there is none, and the count is wrong."""
    target: Any = mapped(form)
    at = ARENA + 2 * SLICE_BYTES if form.arena is not None and form.arena.pages is not None else STRUCTS
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
    at, freed = ARENA + 2 * SLICE_BYTES, ARENA + 4 * SLICE_BYTES
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
    for form in PLAIN:
        made, is_first = encode_form(form), form.releases in ("2.0.6", "2.0.7")
        assert made.page.bytes == form.page.bytes + 16 and made.page.xthread_free - form.page.xthread_free == (16 if form.line < 3 else 0)
        assert made.is_padded and made.page.free == form.page.free
        assert made.page.used == FieldPlace(form.page.used.offset + 16 * is_first, form.page.used.bytes)
    secure = [form for form in list_forms(2) if form.is_encoded and not form.is_padded]
    assert [form.releases for form in secure] == ["2.0.6", "2.0.7", "2.0.9"] and secure[2].heap == encode_form(secure[2], False).heap
    debug = next(form for form in list_forms(2) if form.releases == "2.0.9" and form.is_padded)
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
