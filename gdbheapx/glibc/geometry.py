"""Arithmetic of chunks and bins; knows no memory. Names as in malloc.c."""

from functools import cache
from typing import Optional, Tuple

from gdbheapx.arch import named
from gdbheapx.kernel.glibc.records import Geometry

NBINS = 128


def make_geometry(word_bytes: int, alignment_bytes: int, page_bytes: int, little_endian: bool) -> Geometry:
    """The geometry of a build; MINSIZE is 4 words rounded up to the alignment, a struct malloc_chunk has 6 words."""
    minimum = -(-4 * word_bytes // alignment_bytes) * alignment_bytes
    return Geometry(word_bytes, alignment_bytes, minimum, 6 * word_bytes, page_bytes, little_endian)


def default_alignment(word_bytes: int, machine: str, version: Optional[Tuple[int, ...]]) -> int:
    """MALLOC_ALIGNMENT: 2 words, but 16 where long double has 16 bytes, or a release has raised it."""
    since = named(machine).aligns_16_since
    return 16 if word_bytes == 8 or since is not None and (version is None or version >= since) else 8


def align_chunk(address: int, geometry: Geometry) -> int:
    """The lowest address not below `address` where a chunk can stand: its mem is aligned."""
    header = 2 * geometry.word_bytes
    return -(-(address + header) // geometry.alignment_bytes) * geometry.alignment_bytes - header


def usable_bytes(size_bytes: int, geometry: Geometry, mmapped: bool = False, mmapped_trailer: bool = False) -> int:
    """What the caller of malloc may use of a chunk: its successor's prev_size belongs to it, a mapped chunk has no successor."""
    return size_bytes - (2 if mmapped and not mmapped_trailer else 1) * geometry.word_bytes


def small_bin_correction(geometry: Geometry) -> int:
    """SMALLBIN_CORRECTION (malloc.c)."""
    return 1 if geometry.alignment_bytes > 2 * geometry.word_bytes else 0


def min_large_size(geometry: Geometry) -> int:
    """MIN_LARGE_SIZE (malloc.c)."""
    return (64 - small_bin_correction(geometry)) * geometry.alignment_bytes


def bin_index(size_bytes: int, geometry: Geometry) -> int:
    """bin_index(sz) (malloc.c): the bin of a free chunk, 2 to 126."""
    if size_bytes < min_large_size(geometry):
        return size_bytes // geometry.alignment_bytes + small_bin_correction(geometry)
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
