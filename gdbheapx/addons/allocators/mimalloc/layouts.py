"""Layouts of mimalloc's structs in each line of releases, on 64-bit little-endian machines (include/mimalloc/types.h), as tables. A
release is recognised by the layout that fits memory alone: no symbol and no version text is needed. A member that a line lacks is None.
"""

from functools import cache
from typing import List, NamedTuple, Optional, Sequence, Tuple

SLICE_BYTES = 64 << 10
SEGMENT_BYTES = {1: 4 << 20, 2: 32 << 20}
"""By line: segments begin at multiples of this (those of 2.0.7 and older at every second one)."""
ENCODED_BYTES = 16
"""What keys[2] takes in a page of a build that encodes its lists."""
WORD, HALF, SHORT, BYTE = 8, 4, 2, 1


class FieldPlace(NamedTuple):
    """Offset and size of a member in its struct."""

    offset: int
    bytes: int = WORD


class PagePlaces(NamedTuple):
    """struct mi_page_s."""

    bytes: int
    """sizeof; from one to the next in an array."""
    capacity: int
    """u16, as the next."""
    reserved: int
    flags: int
    """A byte, or the low bits of a word."""
    free: int
    local_free: int
    used: FieldPlace
    block_bytes: FieldPlace
    xthread_free: int
    heap: int
    """Of the thread that owns the page."""
    keys: int
    """Offset of keys[2] in builds that encode lists: what is at or beyond moves by ENCODED_BYTES."""
    start: Optional[int] = None
    """Pointer to the first block; None: by a rule."""
    start_words: Optional[int] = None
    """The same as u32, in words from the page."""
    owner: Optional[int] = None
    """Thread id with flags in its low bits; else the segment has it."""
    memid: Optional[int] = None


class SegmentPlaces(NamedTuple):
    """struct mi_segment_s."""

    cookie: int
    thread_id: int
    size: int
    """In bytes, or in slices."""
    info: int
    """What is its own, in the same unit."""
    entries: int
    """Of the array of pages that are in use."""
    used: int
    abandoned: int
    pages: int
    kind: Optional[int] = None
    """u32: 1 of a segment that is one page; None: pages are of one size."""
    commit_mask: Optional[int] = None
    purge_mask: Optional[int] = None
    page_shift: Optional[int] = None
    """Of pages of one size; None: pages are made of slices."""
    allow_purge: Optional[int] = None
    """A byte."""
    has_memid: bool = False
    """It begins with MEMID_BLOCK_INDEX and so on."""
    slices: int = 512
    """At most, of a segment that is not one huge page; the bits of its masks."""


class HeapPlaces(NamedTuple):
    """struct mi_heap_s, since 3.2 mi_theap_s: what one thread allocates from."""

    page_count: int
    tld: int = 0
    thread_delayed_free: Optional[int] = None
    """A list of blocks of any of its pages; None: there is none."""
    cookie: int = 0
    keys: int = 0


class ArenaPlaces(NamedTuple):
    """struct mi_arena_s of release 3."""

    slice_count: int
    info_slices: int = 0
    subproc: int = 0
    subproc_arenas: int = 0
    """Of mi_subproc_s: its array of arenas."""
    slices_free: int = 0
    free_chunks: int = 0
    """From the begin of that bitmap to its chunks."""
    slices_committed: int = 0
    slices_dirty: int = 0
    slices_purge: int = 0
    pages: Optional[int] = None
    """Bitmap of the slices that a page begins at, in releases whose page map keeps leading to pages that are freed; None: it does not."""


class MimallocForm(NamedTuple):
    """The layout of one line of releases."""

    releases: str
    line: int
    page: PagePlaces
    segment: Optional[SegmentPlaces] = None
    heap: Optional[HeapPlaces] = None
    arena: Optional[ArenaPlaces] = None
    starts: Sequence[Tuple[int, int, int]] = ()
    """Where the first block begins, where no member says it: (largest block, multiple of the block, bytes) from the page's memory on, for
    blocks up to that size, in ascending order; 0 beyond."""
    aligns_first: bool = False
    """The first page of a segment begins its blocks at a multiple of their size."""
    is_encoded: bool = False
    """Lists are encoded (MI_SECURE, MI_DEBUG)."""
    is_padded: bool = False
    """The last word of a block is the allocator's (MI_PADDING): what was asked for ends before it."""

    @property
    def name(self) -> str:
        """Name the form for messages."""
        return self.releases + (", encoded lists" if self.is_encoded else "") + (", padded" if self.is_padded else "")


OLD_PAGE = PagePlaces(
    bytes=80, capacity=10, reserved=12, flags=14, free=16, used=FieldPlace(24, HALF), block_bytes=FieldPlace(28, HALF),
    local_free=32, keys=40, xthread_free=40, heap=48,
)  # fmt: skip
NEW_PAGE = PagePlaces(
    bytes=96, capacity=10, reserved=12, flags=14, free=16, local_free=24, used=FieldPlace(32, SHORT), block_bytes=FieldPlace(40),
    start=48, keys=56, xthread_free=56, heap=64,
)  # fmt: skip
FIRST_PAGE = PagePlaces(
    bytes=64, capacity=2, reserved=4, flags=6, free=8, used=FieldPlace(16, HALF), block_bytes=FieldPlace(20, HALF),
    local_free=24, keys=32, xthread_free=32, heap=40,
)  # fmt: skip
LATER_FIRST_PAGE = PagePlaces(
    bytes=80, capacity=2, reserved=4, flags=6, free=8, local_free=16, used=FieldPlace(24, SHORT), block_bytes=FieldPlace(32),
    start=40, keys=48, xthread_free=48, heap=56,
)  # fmt: skip
MAPPED_PAGE = PagePlaces(
    bytes=120, capacity=18, reserved=20, flags=0, free=8, used=FieldPlace(16, SHORT), local_free=24, xthread_free=32,
    block_bytes=FieldPlace(40), start=48, keys=56, heap=56, owner=0, memid=96,
)  # fmt: skip
FIRST_MAPPED_PAGE = MAPPED_PAGE._replace(keys=64, heap=64)
LAST_PAGE = MAPPED_PAGE._replace(bytes=112, start=None, start_words=48, memid=88)

MEMID_BLOCK_INDEX, MEMID_KIND, IN_ARENA = 0, 20, 6
"""Of mi_memid_s, which a segment begins with: where it lies in an arena (u32 kind), so many blocks as large as a segment are before it."""
SLICED = SegmentPlaces(
    cookie=216, thread_id=256, size=224, info=232, entries=248, used=208, abandoned=192, pages=264, kind=240, commit_mask=112,
    purge_mask=48,
)  # fmt: skip
FIRST_SLICED = SegmentPlaces(
    cookie=320, thread_id=352, size=328, info=336, entries=360, used=312, abandoned=296, pages=368, kind=344, commit_mask=152,
    purge_mask=24, slices=1024,
)  # fmt: skip
LATER_SLICED = SegmentPlaces(
    cookie=224, thread_id=280, size=248, info=256, entries=272, used=216, abandoned=200, pages=288, kind=264, commit_mask=120,
    purge_mask=56, allow_purge=25, has_memid=True,
)  # fmt: skip
ONE_KIND = SegmentPlaces(
    cookie=104, thread_id=120, size=32, info=96, entries=88, used=80, abandoned=64, pages=136, page_shift=112,
)  # fmt: skip
OLD_HEAP = HeapPlaces(page_count=3024, thread_delayed_free=2840, cookie=2864, keys=2872)
NEW_HEAP = HeapPlaces(page_count=192, thread_delayed_free=8, cookie=32, keys=40)
FIRST_HEAP = HeapPlaces(page_count=3016, thread_delayed_free=2840, cookie=2856, keys=2864)
FIRST_FIXED = ((1024, 0, 128),)
FIXED = ((1024, 0, 384),)
BY_SIZE = ((64, 3, 0), (512, 1, 0))
MAPPED_ARENA = ArenaPlaces(
    subproc=24, subproc_arenas=8, slice_count=32, info_slices=40, slices_free=80, free_chunks=384, slices_committed=88,
    slices_dirty=96, slices_purge=104,
)  # fmt: skip
FIRST_MAPPED_ARENA = MAPPED_ARENA._replace(
    slices_free=64, free_chunks=640, slices_committed=72, slices_dirty=80, slices_purge=88, pages=96,
)  # fmt: skip
SHARED_ARENA = ArenaPlaces(
    subproc=24, subproc_arenas=32, slice_count=40, info_slices=48, slices_free=88, free_chunks=448, slices_committed=96,
    slices_dirty=104, slices_purge=112,
)  # fmt: skip
LAST_ARENA = SHARED_ARENA._replace(slices_free=104, slices_committed=112, slices_dirty=120, slices_purge=128)

UNPADDED = ("2.0.6", "2.0.7", "2.0.9")
"""Their secure builds encode lists without a word after each block; debug builds have both, as all builds of other lines that encode."""
PLAIN: Tuple[MimallocForm, ...] = (
    MimallocForm("1.8.0 to 1.8.6", 1, FIRST_PAGE, ONE_KIND, OLD_HEAP, aligns_first=True),
    MimallocForm("1.8.7 to 1.8.9", 1, LATER_FIRST_PAGE, ONE_KIND._replace(thread_id=112, page_shift=120), NEW_HEAP),
    MimallocForm(
        "1.9",
        1,
        LATER_FIRST_PAGE,
        SegmentPlaces(cookie=112, thread_id=136, size=32, info=104, entries=96, used=88, abandoned=72, pages=160, page_shift=144),
        NEW_HEAP,
    ),
    MimallocForm("2.0.6", 2, OLD_PAGE._replace(keys=24), FIRST_SLICED, FIRST_HEAP, starts=FIRST_FIXED),
    MimallocForm("2.0.7", 2, OLD_PAGE._replace(keys=24), FIRST_SLICED, OLD_HEAP, starts=FIRST_FIXED),
    MimallocForm("2.0.9", 2, OLD_PAGE, SLICED, OLD_HEAP, starts=FIXED),
    MimallocForm("2.1.0 to 2.1.4", 2, OLD_PAGE, SLICED._replace(allow_purge=25, has_memid=True), OLD_HEAP, starts=BY_SIZE),
    MimallocForm(
        "2.1.2 of free-threaded CPython 3.13",  # a list node and a goal behind each page, for what waits until no thread looks at it
        2,
        OLD_PAGE._replace(bytes=96),
        SLICED._replace(allow_purge=25, has_memid=True),
        OLD_HEAP,
        starts=BY_SIZE,
    ),
    MimallocForm("2.1.7 to 2.1.9", 2, NEW_PAGE, SLICED._replace(allow_purge=25, has_memid=True), NEW_HEAP),
    MimallocForm("2.2 to 2.4", 2, NEW_PAGE, LATER_SLICED, NEW_HEAP),
    # Where the free bitmap alone differs, the one that begins later stands first: the other reads zeros there, which contradict nothing.
    MimallocForm("3.0.1, 3.0.7 to 3.0.12", 3, FIRST_MAPPED_PAGE, heap=HeapPlaces(page_count=160), arena=FIRST_MAPPED_ARENA),
    MimallocForm(
        "3.0.2", 3, FIRST_MAPPED_PAGE, heap=HeapPlaces(page_count=168), arena=FIRST_MAPPED_ARENA._replace(free_chunks=384, pages=None)
    ),
    MimallocForm("3.1.6", 3, FIRST_MAPPED_PAGE, heap=HeapPlaces(page_count=168), arena=MAPPED_ARENA._replace(free_chunks=448)),
    MimallocForm("3.0.3, 3.1", 3, FIRST_MAPPED_PAGE, heap=HeapPlaces(page_count=168), arena=MAPPED_ARENA),
    MimallocForm("3.2", 3, MAPPED_PAGE, heap=HeapPlaces(page_count=168), arena=SHARED_ARENA),
    MimallocForm("3.3", 3, MAPPED_PAGE, heap=HeapPlaces(page_count=176), arena=LAST_ARENA),
    MimallocForm("3.4", 3, LAST_PAGE, heap=HeapPlaces(page_count=184), arena=LAST_ARENA),
)


def encode_form(form: MimallocForm, is_padded: bool = True) -> MimallocForm:
    """Return the form of a build with encoded lists; a heap of a padded older build has another word before its other members."""
    page, keys = form.page, form.page.keys
    heap = form.heap
    if heap in (OLD_HEAP, FIRST_HEAP) and heap is not None and is_padded:
        later = {name: getattr(heap, name) + WORD for name in ("page_count", "thread_delayed_free", "cookie", "keys")}
        heap = heap._replace(**later)

    def shift_offset(value: Optional[int]) -> Optional[int]:
        return value + ENCODED_BYTES if value is not None and value >= keys else value

    places = page._replace(
        bytes=page.bytes + ENCODED_BYTES,
        local_free=shift_offset(page.local_free) or 0,
        used=page.used._replace(offset=shift_offset(page.used.offset) or 0),
        block_bytes=page.block_bytes._replace(offset=shift_offset(page.block_bytes.offset) or 0),
        xthread_free=shift_offset(page.xthread_free) or 0,
        heap=shift_offset(page.heap) or 0,
        memid=shift_offset(page.memid),
    )
    return form._replace(page=places, heap=heap, is_encoded=True, is_padded=is_padded)


@cache
def list_forms(line: int) -> List[MimallocForm]:
    """Return the forms of a line of releases, plain builds first."""
    plain = [form for form in PLAIN if form.line == line]
    return plain + [encode_form(form, False) for form in plain if form.releases in UNPADDED] + [encode_form(form) for form in plain]


def find_first_block(form: MimallocForm, block_bytes: int) -> int:
    """Return the offset of the first block in a page's memory, for forms without a member that has it."""
    for largest, times, fixed in form.starts:
        if 8 <= block_bytes <= largest:
            return times * block_bytes + fixed
    return 0
