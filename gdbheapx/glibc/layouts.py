"""Every field of glibc malloc's structs that we read, with the releases that have it.

Written for the newest release; `until` names the first one that lacks a field again. Sources are files of the glibc tree at the
tag of the release named in since or until.

Arithmetic of chunks and bins, named as in malloc.c. Only follows_heap_info() reads memory.
"""

import re
from functools import cache
from typing import Callable, Dict, NamedTuple, Optional, Sequence, Tuple

from gdbheapx.common.errors import UnreadableMemory
from gdbheapx.inferior.arch import architecture_named
from gdbheapx.inferior.base import StructType, Target
from gdbheapx.kernel.glibc.records import Geometry
from gdbheapx.layout.view import CHAR, INT, U16, UINT, WORD, Field, Shape, Struct, Version, release_has

LIBRARY = re.compile(r"libc[.-]|libc_malloc_debug")
"""Base names of the objects that have glibc's malloc (Makefiles of glibc: libc.so, malloc/Makefile)."""
NBINS = 128
"""malloc.c: NBINS; bins[] has 2 * NBINS - 2 words."""
NSMALLBINS = 64
"""malloc.c: NSMALLBINS; bins from here on hold chunks of several sizes."""
TCACHE_SMALL_BINS, TCACHE_LARGE_BINS = 64, 12
"""malloc.c, 2.42; before that the small ones are all there are. Large bins hold chunks of several sizes."""
TCACHE_BINS = TCACHE_SMALL_BINS + TCACHE_LARGE_BINS
MAX_TCACHE_COUNT = 65535
"""malloc.c: counts[] and num_slots[] are uint16_t, so no list is longer."""
MAX_TCACHE_BYTES = 8 << 20
"""No mp_.tcache_max_bytes is larger (2.42: 4 MiB)."""
THP_MADVISE = 1
"""mp_.thp_mode: malloc_thp_mode_madvise (malloc-hugepages.h)."""
MALLOC_PAR = Struct(
    "malloc_par",
    (
        Field("trim_threshold", WORD, source="malloc/malloc.c: struct malloc_par"),
        Field("top_pad", WORD),
        Field("mmap_threshold", WORD),
        Field("arena_test", WORD),
        Field("arena_max", WORD),
        Field("thp_mode", INT, since=(2, 43), source="malloc/malloc.c, glibc 2.43"),
        Field("thp_pagesize", WORD, since=(2, 35), source="malloc/malloc.c, glibc 2.35"),
        Field("hp_pagesize", WORD, since=(2, 35)),
        Field("hp_flags", INT, since=(2, 35)),
        Field("n_mmaps", INT),
        Field("n_mmaps_max", INT),
        Field("max_n_mmaps", INT),
        Field("no_dyn_threshold", INT),
        Field("pagesize", UINT, until=(2, 16), source="malloc/malloc.c; 2.12 has it, 2.17 has not"),
        Field("mmapped_mem", WORD),
        Field("max_mmapped_mem", WORD),
        Field("max_total_mem", WORD, until=(2, 24), source="malloc/malloc.c, removed in glibc 2.24"),
        Field("sbrk_base", WORD),
        Field("tcache_bins", WORD, since=(2, 26), until=(2, 42), source="malloc/malloc.c, glibc 2.26"),
        Field("tcache_small_bins", WORD, since=(2, 42), source="malloc/malloc.c, glibc 2.42"),
        Field("tcache_max_bytes", WORD, since=(2, 26)),
        Field("tcache_count", WORD, since=(2, 26)),
        Field("tcache_unsorted_limit", WORD, since=(2, 26)),
    ),
)
TCACHE = Struct(
    "tcache_perthread_struct",
    (
        Field("counts", CHAR, TCACHE_SMALL_BINS, since=(2, 26), until=(2, 30), source="malloc/malloc.c, glibc 2.26"),
        Field("counts", U16, TCACHE_SMALL_BINS, since=(2, 30), until=(2, 42), source="malloc/malloc.c, glibc 2.30"),
        Field("num_slots", U16, TCACHE_BINS, since=(2, 42), source="malloc/malloc.c, glibc 2.42: counts down from mp_.tcache_count"),
        Field("entries", WORD, TCACHE_SMALL_BINS, since=(2, 26), until=(2, 42)),
        Field("entries", WORD, TCACHE_BINS, since=(2, 42)),
    ),
)
NEWEST_READ = (2, 43)
"""The newest release whose malloc.c and arena.c the tables here were compared with: of a newer one its debug information counts first."""
NEWEST_TRIED = (2, 43)
"""The newest release that the tests ran on, in an image of docker/matrix.py: a newer one is read with a warning."""
ROWS = ((2, 43), (2, 42), (2, 41), (2, 34), (2, 29), (2, 26), (2, 25), (2, 23), (2, 22), (2, 15))
"""One release for each layout that differs, newest first: the newest that has it. (2.17 of Red Hat 7 has that of 2.23.)"""


def count_fastbins(shape: Shape) -> int:
    """NFASTBINS: fastbin_index(request2size(MAX_FAST_SIZE)) + 1 (malloc.c)."""
    word, align = shape.word_bytes, shape.alignment_bytes
    largest = (80 * word // 4 + word + align - 1) & -align
    return (largest >> (4 if word == 8 else 3)) - 2 + 1


def _heap_info_pad(words: int) -> Callable[[Shape], int]:
    """Bytes of heap_info.pad after that many words: they keep (sizeof + 2 words) aligned (arena.c)."""
    return lambda shape: -(words + 2) * shape.word_bytes & (shape.alignment_bytes - 1)


MALLOC_STATE = Struct(
    "malloc_state",
    (
        Field("mutex", INT, source="malloc/malloc.c: struct malloc_state; __libc_lock_t is an int lock on Linux"),
        Field("flags", INT),
        Field("have_fastchunks", INT, since=(2, 27), until=(2, 43), source="malloc/malloc.c, glibc 2.27"),
        Field("fastbinsY", WORD, count_fastbins, until=(2, 43), source="malloc/malloc.c; fastbins were removed in 2.43"),
        Field("top", WORD),
        Field("last_remainder", WORD),
        Field("bins", WORD, NBINS * 2 - 2),
        Field("binmap", UINT, 4),
        Field("next", WORD),
        Field("next_free", WORD),
        Field("attached_threads", WORD, since=(2, 23), source="malloc/malloc.c, glibc 2.23"),
        Field("system_mem", WORD),
        Field("max_system_mem", WORD),
    ),
)

HEAP_INFO = Struct(
    "_heap_info",
    (
        Field("ar_ptr", WORD, source="malloc/arena.c: struct _heap_info"),
        Field("prev", WORD),
        Field("size", WORD),
        Field("mprotect_size", WORD),
        Field("pagesize", WORD, since=(2, 35), source="malloc/arena.c, glibc 2.35"),
        Field("pad", CHAR, _heap_info_pad(4), until=(2, 35)),
        Field("pad", CHAR, _heap_info_pad(5), since=(2, 35)),
    ),
)


class Traits(NamedTuple):
    """Behaviour of a release that no field shows."""

    safe_linking: bool
    """tcache `next` and fastbin `fd` are stored xor-ed with their own address >> 12 (2.32)."""
    tcache_key: bool
    """The second word of what a thread cache holds is the cache's address, or from 2.34 on a number that all caches share (2.29)."""
    size_before_flags: bool
    """free() looks at a chunk's size first, so thread caches take a mapped one whose size is small (2.42)."""
    mmapped_trailer: bool
    """An mmapped chunk's size leaves out 2 words at the end of the mapping (2.43)."""
    info_counts_top: bool
    """malloc_info's `rest` counts top (2.31)."""
    info_subheaps: bool
    """malloc_info sums all heaps of an arena and prints their number (2.27)."""
    info_size_prefix: str
    """What malloc_info prints before `<size`: an accident of a line continuation inside the string."""
    info_unsorted_prefix: str
    heap_max_follows_hugepages: bool
    """heap_max_size() is 4 * mp_.hp_pagesize where that is set (2.35 to 2.41)."""


def is_newer(version: Optional[Version], than: Version) -> bool:
    """Return True if a release is known to be newer than another."""
    return version is not None and version > than


def find_version_row(version: Version) -> Version:
    """The row that has a release's layouts."""
    return min((row for row in ROWS if row >= version), default=ROWS[0])


def release_by_lists(row: Version, safe_linking: Optional[bool], has_tcache_key: Optional[bool]) -> Tuple[int, int]:
    """Return a release of the row that behaves as its free lists do; the row's own if no list shows it.

    `safe_linking`: links are stored xor-ed (2.32). `has_tcache_key`: the second word of a cached chunk is the address of its cache
    (2.29 to 2.33), not a random number (2.34).
    """
    if (2, 30) <= row <= (2, 34):
        return (2, 31) if safe_linking is False else (2, 33) if has_tcache_key else (2, 34)
    if (2, 27) <= row < (2, 30) and has_tcache_key is False:
        return (2, 28)
    return row[0], row[1]


def releases_of(rows: Sequence[Version]) -> str:
    """The releases that have the layouts of one of these rows, which follow each other, for people."""
    newest, oldest = max(rows), min(rows)
    below = next((row for row in ROWS if row < oldest), None)
    first = "2.12" if below is None else "%d.%d" % (below[0], below[1] + 1)
    last = "%d.%d" % (newest[0], newest[1])
    return "%s or newer" % first if newest == ROWS[0] else last if first == last else "%s to %s" % (first, last)


def other_names(struct: Struct, rows: Sequence[Version]) -> Dict[str, Tuple[str, ...]]:
    """Members that lie alike in all these releases and have not one name in them: each name -> all names of that member."""
    names_by_row = [[field.name for field in struct.fields if release_has(field, row)] for row in rows]
    return {name: names for names in (tuple(dict.fromkeys(column)) for column in zip(*names_by_row)) if len(names) > 1 for name in names}


def find_release_traits(version: Version) -> Traits:
    """The traits of a release; a newer one than we know is taken to behave like the newest."""
    return Traits(
        safe_linking=version >= (2, 32),
        tcache_key=version >= (2, 29),
        size_before_flags=version >= (2, 42),
        mmapped_trailer=version >= (2, 43),
        info_counts_top=version >= (2, 31),
        info_subheaps=version >= (2, 27),
        info_size_prefix="  " if version >= (2, 31) else "\t" * 7 + " " * (8 if version >= (2, 20) else 6) if version >= (2, 19) else "",
        info_unsorted_prefix="  " if version >= (2, 20) else "",
        heap_max_follows_hugepages=(2, 35) <= version < (2, 42),
    )


def no_fastbins(version: Optional[Tuple[int, int]]) -> str:
    """Return the setting that disables fastbins at the next start: a tunable from 2.31 on."""
    from gdbheapx.allocators.measured import MXFAST

    return "mallopt(M_MXFAST, 0)" if version is not None and version < (2, 31) else MXFAST.text


def parse_version(text: Optional[str]) -> Optional[Tuple[int, int]]:
    """`2.36` or `2.36.9000` as (2, 36); None if the text is no version."""
    parts = (text or "").split(".")
    if len(parts) < 2 or not parts[0].isdigit() or not parts[1].isdigit():
        return None
    return int(parts[0]), int(parts[1])


def make_geometry(word_bytes: int, alignment_bytes: int, page_bytes: int, little_endian: bool, is_tagged: bool = False) -> Geometry:
    """The geometry of a build; MINSIZE is 4 words rounded up to the alignment, a struct malloc_chunk has 6 words."""
    minimum = -(-4 * word_bytes // alignment_bytes) * alignment_bytes
    return Geometry(word_bytes, alignment_bytes, minimum, 6 * word_bytes, page_bytes, little_endian, is_tagged)


def default_alignment(word_bytes: int, machine: str, version: Optional[Tuple[int, ...]]) -> int:
    """MALLOC_ALIGNMENT: 2 words, but 16 where long double has 16 bytes, or a release has raised it."""
    since = architecture_named(machine).aligns_16_since
    return 16 if word_bytes == 8 or since is not None and (version is None or version >= since) else 8


def align_chunk(address: int, geometry: Geometry) -> int:
    """Return the lowest address not below `address` that a chunk can have: its mem is aligned."""
    header = 2 * geometry.word_bytes
    return -(-(address + header) // geometry.alignment_bytes) * geometry.alignment_bytes - header


def usable_bytes(size_bytes: int, geometry: Geometry, mmapped: bool = False, mmapped_trailer: bool = False) -> int:
    """Return malloc_usable_size of a chunk: its successor's prev_size belongs to it, and an mmapped chunk has no successor."""
    return size_bytes - (2 * geometry.word_bytes if mmapped and not mmapped_trailer else geometry.overhead_bytes)


def min_large_size(geometry: Geometry) -> int:
    """MIN_LARGE_SIZE (malloc.c)."""
    return (63 if geometry.alignment_bytes > 2 * geometry.word_bytes else 64) * geometry.alignment_bytes


def bin_index(size_bytes: int, geometry: Geometry) -> int:
    """bin_index(sz) (malloc.c): the bin of a free chunk, 2 to 126."""
    if size_bytes < min_large_size(geometry):
        return size_bytes // geometry.alignment_bytes + (geometry.alignment_bytes > 2 * geometry.word_bytes)  # SMALLBIN_CORRECTION
    if geometry.word_bytes == 8:
        first, base = 48, 48
    elif geometry.alignment_bytes == 16:
        first, base = 45, 49
    else:
        first, base = 38, 56
    if size_bytes >> 6 <= first:
        return base + (size_bytes >> 6)
    for shift, limit, start in ((9, 20, 91), (12, 10, 110), (15, 4, 119), (18, 2, 124)):
        if size_bytes >> shift <= limit:
            return start + (size_bytes >> shift)
    return 126


@cache
def bin_range(index: int, geometry: Geometry) -> Tuple[int, Optional[int]]:
    """(smallest, largest) chunk size of bin `index` >= 2; largest None for the last."""
    align = geometry.alignment_bytes
    low = geometry.min_chunk_bytes

    def first_of(number: int) -> int:
        below, above = low // align - 1, (1 << 22) // align
        while above - below > 1:
            middle = (below + above) // 2
            if bin_index(middle * align, geometry) >= number:
                above = middle
            else:
                below = middle
        return above * align

    start = first_of(index)
    return (start, None) if index >= 126 else (start, first_of(index + 1) - align)


def fast_size(index: int, geometry: Geometry) -> int:
    """Chunk size of fastbin `index`: fastbin_index inverted (malloc.c)."""
    return (index + 2) << (4 if geometry.word_bytes == 8 else 3)


def tcache_size(index: int, geometry: Geometry) -> int:
    """Chunk size of the small tcache bin `index`: tidx2csize (malloc.c)."""
    return geometry.min_chunk_bytes + index * geometry.alignment_bytes


def tcache_range(index: int, geometry: Geometry) -> Tuple[int, int]:
    """Return the smallest and largest chunk size of tcache bin `index`; a large one (2.42) ends below the next power of two."""
    if index < TCACHE_SMALL_BINS:
        size = tcache_size(index, geometry)
        return size, size
    smallest = 1024 << index - TCACHE_SMALL_BINS
    return smallest, 2 * smallest - 1


def is_tcache_chunk(size_bytes: int, struct: StructType, word_bytes: int, alignment_bytes: int) -> bool:
    """Return whether tcache_init's request for its struct gives a chunk of that size.

    What malloc does not split off is smaller than MINSIZE; _int_memalign, from which releases with num_slots take it, leaves several of it.
    """
    minimum = -(-4 * word_bytes // alignment_bytes) * alignment_bytes
    least = -(-(struct.size_bytes + word_bytes) // alignment_bytes) * alignment_bytes
    rest = 4 * minimum if "num_slots" in struct.members else max(minimum - alignment_bytes, alignment_bytes)
    return least <= size_bytes <= least + rest


def follows_heap_info(target: Target, heap_info: StructType, address: int) -> bool:
    """Return whether the heap_info of a first heap, whose ar_ptr is the arena's address, ends at an arena (arena.c: _int_new_arena)."""
    try:
        heap = address - heap_info.size_bytes
        return address % target.word_bytes == 0 and target.read_word(heap + heap_info.members["ar_ptr"].offset) == address
    except UnreadableMemory:
        return False
