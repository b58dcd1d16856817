"""The tables give the offsets that were measured on real builds, and the arithmetic is malloc.c's.

Files: glibc/layouts.py, layout/view.py.
"""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gdbheapx.glibc import layouts
from gdbheapx.glibc.layouts import align_chunk, bin_index, bin_range, default_alignment, make_geometry, min_large_size
from gdbheapx.kernel.glibc.records import Geometry
from gdbheapx.layout.view import Shape, Version, place

LP64, I386 = Shape(8, 16), Shape(4, 16)
GEOMETRIES = [make_geometry(8, 16, 4096, True), make_geometry(4, 16, 4096, True), make_geometry(4, 8, 4096, True)]

SIZES = {
    # release: malloc_state, malloc_par, heap_info, tcache_perthread_struct of Debian's amd64 builds
    (2, 31): (2200, 112, 32, 640),
    (2, 36): (2200, 136, 48, 640),
    (2, 41): (2200, 136, 48, 640),
    (2, 43): (2112, 144, 48, 760),
}
STRUCTS = (layouts.MALLOC_STATE, layouts.MALLOC_PAR, layouts.HEAP_INFO, layouts.TCACHE)


@pytest.mark.parametrize("version", SIZES)
def test_sizes_of_real_builds(version: Version) -> None:
    """sizeof of the four structs as debug information of Debian's builds tells it."""
    assert tuple(place(struct, version, LP64).size_bytes for struct in STRUCTS) == SIZES[version]


def test_offsets_on_i386() -> None:
    """On i386 2.36 bins lie at 64, there are 11 fastbins, mp_ has 76 bytes, heap_info 24."""
    state = place(layouts.MALLOC_STATE, (2, 36), I386)
    assert state.members["bins"].offset == 64 and state.members["fastbinsY"].count == 11 and state.size_bytes == 1116
    assert place(layouts.MALLOC_PAR, (2, 36), I386).size_bytes == 76
    assert place(layouts.HEAP_INFO, (2, 36), I386).size_bytes == 24


def test_heap_info_keeps_chunks_aligned() -> None:
    """sizeof(heap_info) plus two words is a multiple of the alignment, in every release and geometry (arena.c)."""
    for version in ((2, 23), (2, 31), (2, 35), (2, 43)):
        for shape in (LP64, I386, Shape(4, 8)):
            assert (place(layouts.HEAP_INFO, version, shape).size_bytes + 2 * shape.word_bytes) % shape.alignment_bytes == 0


def test_alignment_by_machine() -> None:
    """16 on 64 bits and on i386 since 2.26, 8 on armhf and on older i386."""
    assert [default_alignment(8, "aarch64", None), default_alignment(4, "i386", (2, 36)), default_alignment(4, "i386", (2, 25)), default_alignment(4, "arm", (2, 36))] == [16, 16, 8, 8]


def test_known_bins() -> None:
    """bin_index(4096) is 99 and bin_index(65536) is 121 on 64 bits; 1024 is the first large size there, 1008 on i386."""
    assert (bin_index(4096, GEOMETRIES[0]), bin_index(65536, GEOMETRIES[0])) == (99, 121)
    assert [min_large_size(geometry) for geometry in GEOMETRIES] == [1024, 1008, 512]


@given(st.sampled_from(GEOMETRIES), st.integers(2, 1 << 20))
def test_every_size_lies_in_the_range_of_its_bin(geometry: Geometry, units: int) -> None:
    """bin_range inverts bin_index."""
    size = max(geometry.min_chunk_bytes, units * geometry.alignment_bytes)
    low, high = bin_range(bin_index(size, geometry), geometry)
    assert low <= size and (high is None or size <= high)


@given(st.sampled_from(GEOMETRIES), st.integers(1, 1 << 47))
def test_chunk_alignment(geometry: Geometry, address: int) -> None:
    """align_chunk gives the next place whose mem is aligned, never one further."""
    found = align_chunk(address, geometry)
    assert (found + 2 * geometry.word_bytes) % geometry.alignment_bytes == 0 and 0 <= found - address < geometry.alignment_bytes


def test_versions() -> None:
    """Versions are tuples; nonsense is None."""
    assert layouts.parse_version("2.36") == (2, 36) and layouts.parse_version("2.43.9000") == (2, 43)
    assert layouts.parse_version("stable") is None and layouts.parse_version(None) is None and layouts.parse_version("2") is None


def test_traits_change_where_the_sources_do() -> None:
    """Safe-linking from 2.32, top in malloc_info from 2.31, the trailer of mapped chunks from 2.43."""
    assert [layouts.traits(version).safe_linking for version in ((2, 31), (2, 32))] == [False, True]
    assert [layouts.traits(version).info_counts_top for version in ((2, 30), (2, 31))] == [False, True]
    assert [layouts.traits(version).mmapped_trailer for version in ((2, 42), (2, 43))] == [False, True]
    assert [layouts.traits(version).heap_max_follows_hugepages for version in ((2, 34), (2, 35), (2, 41), (2, 42))] == [False, True, True, False]
