"""glibc's layouts by release, and packs of a glibc without symbols: one that is wrong is not believed.

Files: glibc/layouts.py, layout/view.py, glibc/detect.py, glibc/arenas.py.
"""

from types import SimpleNamespace
from typing import Any, Sequence, Tuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gdbheapx import packs
from gdbheapx.common.errors import HeapxError
from gdbheapx.glibc import detect, layouts
from gdbheapx.glibc.arenas import Glibc
from gdbheapx.glibc.layouts import align_chunk, bin_index, bin_range, make_geometry, min_large_size
from gdbheapx.inferior.base import Symbol, TypeSet
from gdbheapx.kernel.glibc.records import Geometry
from gdbheapx.layout import pack
from gdbheapx.layout.view import Shape, Struct, Version, lay_out_struct, take_struct
from tests.support.builders.process import BY_TURNS, LIBC, WORLDS, Fake, GlibcMachine, make
from tools import make_packs

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
    assert tuple(lay_out_struct(struct, version, LP64).size_bytes for struct in STRUCTS) == SIZES[version]


@pytest.mark.parametrize("minor", range(12, layouts.NEWEST_READ[1] + 1))
def test_each_release_has_the_layouts_of_its_row(minor: int) -> None:
    """A release that is skipped in ROWS has the layouts of the next one that is there: each row is the newest with its layouts."""
    version = (2, minor)
    row = layouts.find_version_row(version)
    assert [lay_out_struct(struct, version, LP64) for struct in STRUCTS] == [lay_out_struct(struct, row, LP64) for struct in STRUCTS], row


def test_offsets_on_i386() -> None:
    """On i386 2.36 bins lie at 64, there are 11 fastbins, mp_ has 76 bytes, heap_info 24."""
    state = lay_out_struct(layouts.MALLOC_STATE, (2, 36), I386)
    assert state.members["bins"].offset == 64 and state.members["fastbinsY"].count == 11 and state.size_bytes == 1116
    assert lay_out_struct(layouts.MALLOC_PAR, (2, 36), I386).size_bytes == 76
    assert lay_out_struct(layouts.HEAP_INFO, (2, 36), I386).size_bytes == 24


def test_heap_info_keeps_chunks_aligned() -> None:
    """sizeof(heap_info) plus two words is a multiple of the alignment, in every release and geometry (arena.c)."""
    for version in ((2, 23), (2, 31), (2, 35), (2, 43)):
        for shape in (LP64, I386, Shape(4, 8)):
            assert (lay_out_struct(layouts.HEAP_INFO, version, shape).size_bytes + 2 * shape.word_bytes) % shape.alignment_bytes == 0


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


def test_traits_change_where_the_sources_do() -> None:
    """Safe-linking from 2.32, top in malloc_info from 2.31, the trailer of mapped chunks from 2.43."""
    assert [layouts.find_release_traits(version).safe_linking for version in ((2, 31), (2, 32))] == [False, True]
    assert [layouts.find_release_traits(version).info_counts_top for version in ((2, 30), (2, 31))] == [False, True]
    assert [layouts.find_release_traits(version).mmapped_trailer for version in ((2, 42), (2, 43))] == [False, True]
    assert [layouts.find_release_traits(version).heap_max_follows_hugepages for version in ((2, 34), (2, 35), (2, 41), (2, 42))] == [False, True, True, False]


@pytest.mark.parametrize("struct, needed", [*detect.NEEDED, (layouts.TCACHE, ("entries",))], ids=lambda one: getattr(one, "name", ""))
@pytest.mark.parametrize("row", layouts.ROWS)
def test_what_debug_information_says_is_not_there_comes_from_no_table(struct: Struct, needed: Sequence[str], row: Version) -> None:
    """Whatever member of a struct it lacks beside one that is needed: none but that is taken all the same."""
    whole = lay_out_struct(struct, row, LP64)
    for name in whole.members:
        own = whole._replace(members={other: at for other, at in whole.members.items() if other not in (name, needed[-1])})
        types = TypeSet()
        if own.members and take_struct(types, struct, needed, TypeSet({struct.name: own}), row, LP64) is not None:
            assert set(types.structs[struct.name].members) <= {*own.members, *needed}


def test_a_release_that_is_newer_than_the_tables_has_the_members_of_its_debug_information() -> None:
    """Though its symbols come from a table of them alone. mp_ of the next release ends at tcache_count: behind it lies something else."""
    structs = {struct.name: lay_out_struct(struct, layouts.NEWEST_READ, LP64) for struct in STRUCTS}
    del structs["malloc_par"].members["tcache_unsorted_limit"]
    module: Any = SimpleNamespace(name="libc.so.6", build_id=None)
    near = Symbol("malloc", 1, module, "debug-info")
    target: Any = SimpleNamespace(function=lambda module, name: near, types=lambda symbol, *names, **options: TypeSet(structs) if symbol is near else None)
    arena = Symbol("main_arena", 0, module, "symbol")
    next_release = (layouts.NEWEST_READ[0], layouts.NEWEST_READ[1] + 1)
    types, all_own = detect._choose_layouts(target, arena, None, next_release, LP64)
    assert all_own and "tcache_unsorted_limit" not in types.structs["malloc_par"].members
    types, all_own = detect._choose_layouts(target, arena, None, layouts.NEWEST_READ, LP64)
    assert not all_own and "tcache_unsorted_limit" in types.structs["malloc_par"].members


NAMES = ("main_arena", "mp_", "__curbrk")


def stripped(world: GlibcMachine, monkeypatch: pytest.MonkeyPatch, **moved: int) -> Tuple[Fake, Glibc]:
    """(a process without symbols whose libc has a bundled pack, that libc as its symbols tell). `moved`: bytes by which a symbol is off."""
    fake = make(world)
    (known,) = detect.find_glibc_copies(fake.target)
    places = {name: (fake.target.symbols[name] + moved.get(name, 0), 8) for name in NAMES}
    made = pack.Pack(
        allocator="glibc",
        version_text=known.version_text,
        build_id=str(LIBC.build_id),
        machine=world.machine,
        word_bytes=world.word_bytes,
        prefix="",
        public_prefix="",
        symbols=places,
        thread_locals={"tcache": (72, 8), "thread_arena": (88, 8)},
        types=known.types,
        constants={},
        made_from="a test",
        exactness="",
    )
    monkeypatch.setattr(packs, "EMBEDDED", {"%s.json" % made.build_id: make_packs.dump(made)})
    fake.target.symbols.clear()
    return fake, known


@pytest.mark.parametrize("world", WORLDS, ids=str)
def test_by_its_pack(world: GlibcMachine, monkeypatch: pytest.MonkeyPatch) -> None:
    """Addresses, layouts and release are those that symbols and tables tell."""
    fake, known = stripped(world, monkeypatch)
    (found,) = detect.find_glibc_copies(fake.target)
    assert (found.layout_source, found.main_arena.source, found.version) == ("pack", "pack", known.version)
    assert (found.main_arena.address, found.mp.address) == (known.main_arena.address, known.mp.address)
    assert {name: found.types.structs[name] for name in known.types.structs} == known.types.structs
    assert found.curbrk is not None and known.curbrk is not None and found.curbrk.address == known.curbrk.address


@pytest.mark.parametrize("moved", [{"main_arena": 8}, {"main_arena": -4096}, {"mp_": 64}, {"mp_": -512}], ids=str)
@pytest.mark.parametrize("world", BY_TURNS, ids=str)
def test_wrong_addresses(world: GlibcMachine, moved: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """A pack whose addresses are off is refused with the reason."""
    fake, _ = stripped(world, monkeypatch, **moved)
    with pytest.raises(HeapxError) as caught:
        detect.find_glibc_copies(fake.target)
    assert "its memory does not match its layout" in caught.value.message


@pytest.mark.parametrize("world", BY_TURNS, ids=str)
def test_a_damaged_heap(world: GlibcMachine, monkeypatch: pytest.MonkeyPatch) -> None:
    """Some bins that lead nowhere are damage of the heap: the pack is believed, and what is read with it tells the rest."""
    fake, known = stripped(world, monkeypatch)
    place = known.malloc_state.members["bins"]
    for number in (2, 9, 40):
        fake.target.put_word(known.main_arena.address + place.offset + number * place.size_bytes, 0x1234560)
    assert [one.layout_source for one in detect.find_glibc_copies(fake.target)] == ["pack"]
