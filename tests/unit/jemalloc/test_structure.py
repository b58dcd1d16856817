"""jemalloc found by its structure, and whether a layout is that of the build at hand.

Files: jemalloc/structure.py, jemalloc/layouts.py, layout/view.py, jemalloc/symbols.py.
"""

import random
from typing import Any, Dict, List, Sequence, Tuple, Union

import pytest

from gdbheapx.inferior.base import Module, Thread, ThreadLocal, TypeSet
from gdbheapx.jemalloc import layouts, structure, traces
from gdbheapx.jemalloc import layouts as detection_geometry
from gdbheapx.jemalloc.layouts import BinLayout, assemble_geometry
from gdbheapx.jemalloc.symbols import Jemalloc, JemallocSymbols, prove_layout
from gdbheapx.layout import pack
from tests.support.builders.jemalloc import LIBRARY, NBINS, FakeMemory, JemallocMemory

BSS = 0x7F0000100000
BSS_BYTES = 1 << 20
BLOCKS = 0x7E0000000000
BLOCK_BYTES = 2 << 20
ARENAS = BSS + 0x4000
A0 = ARENAS - 128

PLACES: Dict[str, Tuple[int, ...]] = {
    "5.0.1": (25832,),
    "5.1.0": (25848,),
    "5.2.0": (26328,),
    "5.2.1": (29480,),
    "5.0.1 quantum 8": (26624,),
    "5.1.0 quantum 8": (26640,),
    "5.2.0 quantum 8": (26352,),
    "5.2.1 quantum 8": (29504,),
    "5.3.0": (69048, 78880, 78920, 78936),
    "5.3.0 quantum 8": (69048, 78880, 78920, 78936),
    "5.3.0-196-ga25b9b8b": (69064, 78904, 78944, 78960),
    "5.3.1": (70672, 80584, 80624, 80648),
    "5.3.1-47": (90144, 100552, 100592, 100616),
    "5.3.0 64 KiB pages": (63624, 73456, 73496, 73512),
    "5.3.1 64 KiB pages": (65120, 75016, 75056, 75080),
    "5.3.0 aarch64 64 KiB pages": (63664, 73552, 73592, 73608),
}
"""Where an arena points to its base, as it was seen in memory."""


def page_of(name: str) -> int:
    """Of a table, by its name."""
    return next((page for page in traces.BASE_OFFSETS if " %d KiB pages" % (page >> 10) in name), 4096)


def bins_of(name: str) -> int:
    """How many bins it has."""
    return (39 if "quantum 8" in name else 36) + {4096: 0, 16384: 8, 65536: 16}[page_of(name)]


OTHERS = {"5.3.0 --enable-debug": (69608, 80000, 80040, 80056), "4.5.0": ()}
"""Builds of which no table is."""


class Process(FakeMemory):
    """One object with .bss, and blocks of metadata with an arena in each."""

    def __init__(self, places: Sequence[int], count: int = 4, page_bytes: int = 4096, machine: str = "") -> None:
        super().__init__()
        self.machine, self.page = machine or self.machine, page_bytes
        self.pieces[BSS] = bytearray(BSS_BYTES)
        self.arenas: List[int] = []
        for index in range(count):
            block = BLOCKS + 2 * index * BLOCK_BYTES
            self.pieces[block] = bytearray(BLOCK_BYTES)
            self.word(block, BLOCK_BYTES)
            base, arena = block + traces.BASE_OFFSETS[page_bytes], block + 0x1000
            self.write(base, index.to_bytes(4, "little"))
            for place in places:
                self.word(arena + place, base)
            self.word(ARENAS + 8 * index, arena)
            self.arenas.append(arena)
        for arena in self.arenas[:1]:
            self.word(A0, arena)

    def word(self, address: int, value: int) -> None:
        """Write one."""
        self.write(address, value.to_bytes(8, "little"))

    def writable_segments(self, module: Module) -> Sequence[Tuple[int, int, int]]:
        return [(BSS, BSS, BSS + BSS_BYTES)]

    def present_ranges(self, start: int, end: int) -> Sequence[Tuple[int, int]]:
        return [(start, end)]

    def memory(self) -> List[Tuple[int, bytes]]:
        """As a search reads it."""
        return [(BSS, bytes(self.pieces[BSS]))]

    def found(self) -> Any:
        """arenas[]."""
        return traces.find_arena_table(self, self.memory(), self.page)


def process_of(name: str) -> Process:
    """With the arenas of a build."""
    return Process(PLACES[name], page_bytes=page_of(name), machine="aarch64" if "aarch64" in name else "")


# ---------------------------------------------------------------------------------------------------- layouts as data


def test_every_release_is_there() -> None:
    """5.0.1 to 5.3.1, both quanta where they were built, four kinds of tsd_s each from 5.3.1 on, and two snapshots; of aarch64 and of larger
    pages those that are in use."""
    names = [table.name for table in layouts.read_struct_tables()]
    assert {name.replace(" quantum 8", "").split(" ")[0] for name in names} == {
        "5.0.1", "5.1.0", "5.2.0", "5.2.1", "5.3.0", "5.3.0-196-ga25b9b8b", "5.3.1", "5.3.1-47",
    }  # fmt: skip
    assert len(names) == len(set(names)) and len(layouts.find_struct_tables(4096, (40,))) == 27
    assert {(table.page_bytes, table.mutex_bytes) for table in layouts.read_struct_tables()} == {(page, mutex) for page in traces.BASE_OFFSETS for mutex in (40, 48)}
    for table in layouts.read_struct_tables():
        header = table.types.size_bytes("base_block_s")
        assert -(-header // 64) * 64 == traces.BASE_OFFSETS[table.page_bytes] and table.quantum_bytes == (8 if "quantum 8" in table.name else 16)
        assert table.types.size_bytes("pthread_mutex_t") == table.mutex_bytes
        assert (table.types.size_bytes("bin_info_s") if table.version > (5, 2, 0) else 40) in (40, traces.BIN_STRIDES[table.page_bytes]), table.name
    sizes = {table.name: table.tsd_bytes for table in layouts.read_struct_tables()}
    assert [sizes["5.3.1 " + kind] for kind in ("prof stats", "stats", "prof", "neither")] == [1976, 1968, 1960, 1952]
    assert sizes["5.3.1-47 stats"] == 1928 and sizes["5.3.1-47 quantum 8 stats"] == 2008 and sizes["5.3.0"] == 2632 and sizes["5.3.0 quantum 8"] == 2720 and sizes["5.2.1"] == 6216


def test_tables_are_those_of_the_packs() -> None:
    """Debian's builds have the structs of the table of their release, and its sizes and pages."""
    for one in pack.shipped_packs():
        if one.allocator != "jemalloc":
            continue
        release = layouts.parse_jemalloc_release(one.version_text)
        page_bytes, nbins = (65536, 52) if one.machine == "aarch64" else (4096, 36)
        assert one.constants.get("lg_page", 12) == page_bytes.bit_length() - 1
        same = [table for table in layouts.find_struct_tables(page_bytes, (40, 48)) if table.version == release and table.tsd_bytes == one.thread_locals["tsd_tls"][1]]
        assert any(table.arena_bytes == one.types.size_bytes("arena_s") and table.nbins == nbins for table in same), one.build_id
        assert one.symbols["sz_index2size_tab"][1] == 8 * len(layouts.compute_size_classes(16))
        assert one.symbols["sz_pind2sz_tab"][1] == 8 * (len(layouts.select_page_classes(layouts.compute_size_classes(16), page_bytes)) + 1)


def test_computed_sizes_and_slabs() -> None:
    """As sc.c makes them: four classes per doubling; a slab is the least whole number of pages and of regions."""
    for quantum in (8, 16):
        sizes = layouts.compute_size_classes(quantum)
        assert len(sizes) == layouts.NSIZES_BY_QUANTUM[quantum] and sizes[-1] == 7 << 60 and list(sizes) == sorted(set(sizes))
    pages = [layouts.compute_slab_bytes(size, 4096) // 4096 for size in layouts.compute_size_classes(16)[:36]]
    assert pages == [1, 1, 1, 3, 1, 5, 3, 7, 1, 5, 3, 7, 1, 5, 3, 7, 1, 5, 3, 7, 1, 5, 3, 7, 1, 5, 3, 7, 1, 5, 3, 7, 2, 5, 3, 7]


# ---------------------------------------------------------------------------------------------------- arenas and releases


@pytest.mark.parametrize("name", PLACES)
def test_the_release_by_the_places_of_the_base(name: str) -> None:
    """Each release has places of its own; the number of bins tells the quantum where they are the same."""
    process = process_of(name)
    arenas = process.found()
    assert arenas.address == ARENAS and arenas.pointers == dict(enumerate(process.arenas)) and arenas.others == 0
    fitting = [table.name for table in structure.find_fitting_tables(process, arenas, bins_of(name))]
    assert fitting and all(one == name or one.startswith(name + " ") and "quantum" not in one[len(name) :] for one in fitting), fitting


@pytest.mark.parametrize("name", OTHERS)
def test_other_layouts_fit_none(name: str) -> None:
    """A build for debugging and a release before 5 have places of their own, or none."""
    process = Process(OTHERS[name])
    assert structure.find_fitting_tables(process, process.found()) == []


def test_a0_is_not_taken_for_it() -> None:
    """The static a0 leads to arena 0 too, and stands before arenas[]; with one arena alone the words behind it tell."""
    process = Process(PLACES["5.3.0"], 1)
    process.word(A0 + 8, 0x12345)
    assert process.found().address == ARENAS


@pytest.mark.parametrize("seed", range(20))
def test_a_damaged_entry_does_not_hide_it(seed: int) -> None:
    """Words of arenas[] that lead nowhere are counted, not demanded to be none."""
    process, numbers = Process(PLACES["5.2.1"], 6), random.Random(seed)
    process.word(ARENAS + 8 * numbers.randrange(6), numbers.getrandbits(64) | 1)
    found = process.found()
    assert found.address == ARENAS and len(found.pointers) == 5 and found.others == 1
    assert [table.name for table in structure.find_fitting_tables(process, found)] == ["5.2.1"]


def test_nothing_is_found_in_nothing() -> None:
    """Zeros, noise, and pointers into memory that has no block of metadata."""
    process = Process((), 0)
    process.pieces[BSS][:] = bytes(BSS_BYTES)
    assert process.found() is None
    numbers = random.Random(1)
    process.pieces[BSS][:65536] = bytes(numbers.getrandbits(8) for _ in range(65536))
    assert process.found() is None


# ---------------------------------------------------------------------------------------------------- threads


@pytest.mark.parametrize("name", ["5.3.1 prof stats", "5.3.1 stats", "5.3.1 prof", "5.3.1 neither"])
def test_which_of_four_kinds_of_tsd(name: str) -> None:
    """They differ in the length of a member in the middle: jemalloc's own ring of threads, and what each counts, tells."""
    process = Process(PLACES["5.3.1"])
    table = next(one for one in layouts.read_struct_tables() if one.name == name)
    same = [one for one in layouts.find_struct_tables(4096, (40,)) if one.name.startswith("5.3.1") and one.nbins == 36]
    arenas, tsds = process.found(), [BLOCKS + 0x100000000, BLOCKS + 0x100010000, BLOCKS + 0x100020000]
    for number, address in enumerate(tsds):
        process.pieces[address] = bytearray(8192)
        put_tsd(process, table, address, process.arenas[number], tsds[(number + 1) % 3], tsds[number - 1])
    process.word(BSS + 0x100, tsds[0])
    chosen = structure.choose_tsd_table(process, LIBRARY, same, arenas, process.memory(), None)
    assert chosen is not None and chosen.name == name
    process.word(BSS + 0x100, 0)
    assert structure.choose_tsd_table(process, LIBRARY, same, arenas, process.memory(), None) is None, "without a thread nothing is said"


def put_tsd(process: Process, table: layouts.StructTable, address: int, arena: int, following: int, before: int) -> None:
    """A thread that uses its cache."""

    def place(path: str) -> int:
        found = table.types.place("tsd_s", path)
        assert found is not None
        return address + found.offset

    back = table.types.place("tcache_slow_s", "tcache")
    assert back is not None
    process.write(place("tcache_enabled"), b"\1")
    process.write(place("state"), b"\0")
    words = {"arena": arena, "iarena": arena, "tcache": place("tcache_slow"), "tsd_link": following}
    words.update({"thread_allocated_last_event": 1000, "thread_allocated": 1500, "thread_allocated_next_event": 9000, "thread_allocated_next_event_fast": 9000})
    for path, value in words.items():
        process.word(place(path), value)
    process.word(place("tsd_link") + 8, before)
    process.word(place("tcache_slow") + back.offset, place("tcache"))


class WithoutFiles(Process):
    """No relocation tells which object has its thread-local block where."""

    def thread_local_at(self, module: Module, offset: int) -> None:
        return None

    def beside_thread_pointer(self, distance: int) -> ThreadLocal:
        return ThreadLocal({one.lwp: (one.thread_pointer or 0) + distance for one in self.threads_known}, "static-tls")


@pytest.mark.parametrize("machine, side", [("i386:x86-64", -1), ("aarch64", 1)])
def test_threads_of_an_object_whose_block_is_unknown(machine: str, side: int) -> None:
    """What is a tsd at one distance from the thread pointers is it, though a stack has another in one thread; two such distances prove none."""
    process, table = WithoutFiles(PLACES["5.3.0"]), next(one for one in layouts.read_struct_tables() if one.name == "5.3.0")
    starts = [BLOCKS + 0x100000000 + 0x100000 * number for number in range(3)]
    for number, start in enumerate(starts):
        process.pieces[start] = bytearray(0x20000)
        process.threads_known.append(Thread(100 + number, None, start + 0x10000, None, None))
        put_tsd(process, table, start + 0x10000 + side * 4096, process.arenas[number], start, start)
    put_tsd(process, table, starts[0] + 0x10000 + side * 0x8000, process.arenas[0], starts[0], starts[0])
    process.machine = machine

    def found() -> Any:
        symbols = JemallocSymbols(process, LIBRARY, "", None, {"arenas": ARENAS})
        return structure.TsdFinder(symbols, table.types, 4096).find()

    assert list(found().addresses.values()) == [start + 0x10000 + side * 4096 for start in starts]
    for start in starts[1:]:
        put_tsd(process, table, start + 0x10000 + side * 0x8000, process.arenas[1], start, start)
    assert found() is None
    process.machine = "s390:64-bit"
    assert found() is None, "where blocks lie there nobody has seen"


def test_the_first_release_by_its_threads_state() -> None:
    """5.0.0 has the structs of 5.0.1: the state that threads begin in tells them apart."""
    types = next(one.types for one in layouts.read_struct_tables() if one.name == "5.0.1")
    assert layouts.split_first_release((5, 0, 1), types, b"\4\1\0\0")[0] == (5, 0, 0)
    assert layouts.split_first_release((5, 0, 1), types, b"\5\1\0\0")[0] == (5, 0, 1)
    version, first = layouts.split_first_release((5, 0, 1), types, b"\4")
    assert layouts.read_tsd_states(first, version) == {0: "nominal", 1: "nominal_slow", 2: "purgatory", 3: "reincarnated", 4: "uninitialized"}


# ---------------------------------------------------------------------------------------------------- the radix tree


def test_a_root_without_slabs_must_be_plausible() -> None:
    """Elements of the root stand for addresses at which something is mapped; noise, and an empty root, do not."""
    process = Process(PLACES["5.3.0"])
    table = next(one for one in layouts.read_struct_tables() if one.name == "5.3.0")
    sizes = layouts.compute_size_classes(16)
    bins = [BinLayout(size, slab, slab // size, 1) for size in sizes[:36] for slab in [layouts.compute_slab_bytes(size, 4096)]]
    base = assemble_geometry(process, table.types, table.version, sizes, layouts.select_page_classes(sizes, 4096), bins)
    shape = detection_geometry.make_rtree_shape(57, 12, 232)
    assert base is not None and shape is not None
    geometry = base._replace(rtree_root=BSS + 0x20000, rtree=shape)
    assert not structure.is_plausible_root(process, geometry), "an empty one"
    key = BLOCKS >> 57 - shape.levels[0]
    process.word(geometry.rtree_root + 8 * key, BLOCKS + 64)
    assert structure.is_plausible_root(process, geometry)
    process.word(geometry.rtree_root + 8 * 17, BLOCKS + 64)
    assert not structure.is_plausible_root(process, geometry), "an element for memory that is not there"


def test_symbols_by_structure_know_nothing_else() -> None:
    """Only what memory shows has an address; nothing is guessed."""
    symbols = JemallocSymbols(FakeMemory(), LIBRARY, "", None, {"arenas": ARENAS})
    found = symbols.find("arenas")
    assert symbols.by_structure and found is not None and (found.address, found.source) == (ARENAS, "probe")
    assert symbols.find("narenas_total") is None and symbols.names("opt_") == [] and symbols.find_thread_locals() is None
    assert symbols.size_bytes("arenas") is None and symbols.constant("config_prof") is None and symbols.main_unit is None


# ---------------------------------------------------------------------------------------------------- a build of no known layout


@pytest.mark.parametrize("name", [name for name in PLACES if len(PLACES[name]) > 1])
def test_how_an_arena_ends(name: str) -> None:
    """Every build from 5.3.0 on shows where its index and the way to the radix tree stand, without its layout."""
    process, places = process_of(name), PLACES[name]
    emap = BSS + 0x20000
    for index, arena in enumerate(process.arenas):
        process.word(arena + places[-1] - 8, index)
        process.word(arena + places[-2] - 8, emap)
        process.word(arena + places[-2] - 32, index)
    ends = structure.find_arena_ends(process, LIBRARY, process.found())
    assert ends == (places[-2], places[-1], emap)
    (newest,) = structure.find_newest_tables(process.page, process.arch.mutex_bytes[:1])
    types, known = structure.make_partial_types(*ends[:2], newest), next(one for one in layouts.read_struct_tables() if one.name.startswith(name)).types
    for struct, path in (("arena_s", "ind"), ("arena_s", "base"), ("arena_s", "pa_shard.emap"), ("arena_s", "pa_shard.ind"), ("base_s", "blocks")):
        here, there = types.place(struct, path), known.place(struct, path)
        assert here is not None and there is not None and here.offset == there.offset, path
    assert known.place("emap_s", "rtree.root").offset == newest.types.place("emap_s", "rtree.root").offset  # type: ignore[union-attr]


def test_arenas_that_disagree_have_no_end() -> None:
    """An index or an emap that only one arena has is chance."""
    process, places = Process(PLACES["5.3.1"]), PLACES["5.3.1"]
    for index, arena in enumerate(process.arenas):
        process.word(arena + places[-1] - 8, index)
        process.word(arena + places[-2] - 8, BSS + 0x20000 + 64 * index)
        process.word(arena + places[-2] - 32, index)
    assert structure.find_arena_ends(process, LIBRARY, process.found()) is None


def test_structs_of_an_unknown_layout_have_never_changed() -> None:
    """What is taken from the newest table is the same in every table from 5.3.0 on."""
    later = [one for one in layouts.read_struct_tables() if one.version >= structure.FIRST_UNLISTED]
    for page in traces.BASE_OFFSETS:
        for name in structure.KEPT_STRUCTS:
            assert len({repr(one.types.structs.get(name)) for one in later if one.page_bytes == page}) == 1, (page, name)


# ---------------------------------------------------------------------------------------------------- after 5.3.1


def after_5_3_1() -> layouts.StructTable:
    return next(table for table in layouts.read_struct_tables() if table.name == "5.3.1-47 stats")


@pytest.mark.parametrize("following, found", [(0x7000, [0x6000, 0x7000]), (0x6000, [0x6000]), (0, [0x6000]), (0x7001, [0x6000]), (1 << 60, [0x6000])])
def test_tsds_around_the_descriptors(following: int, found: List[int]) -> None:
    """No list of tsds leads there any more; each descriptor on an arena's list lies in one. A link that leads nowhere ends the list."""
    types, arena = after_5_3_1().types, 0x10000
    places = [
        types.place(*where)
        for where in (
            ("arena_s", "cache_bin_array_descriptor_ql.qlh_first"),
            ("cache_bin_array_descriptor_s", "link.qre_next"),
            ("tsd_s", "tcache_slow.cache_bin_array_descriptor"),
        )
    ]
    head, link, own = (place.offset for place in places if place is not None)
    memory = {arena + head: 0x6000 + own, 0x6000 + own + link: following and following + own, 0x7000 + own + link: 0x6000 + own}
    assert list(structure._follow_descriptors(types, [arena], lambda address, size: memory.get(address, 0))) == found


def test_an_endless_list_of_descriptors_ends() -> None:
    """One that never leads back to its first member is followed so far and no further."""
    types = after_5_3_1().types
    assert len(list(structure._follow_descriptors(types, [0x10000], lambda address, size: address + 8 & -8))) == structure.MOST_THREADS


def test_the_state_of_pinned_extents() -> None:
    """By the release where no enum tells it; up to 5.3.1, and where no layout is known, there is none."""
    types = after_5_3_1().types
    assert layouts.read_extent_states(types, layouts.UNRELEASED).pinned == 4 and layouts.read_extent_states(types, layouts.UNRELEASED).highest == 6
    assert layouts.read_extent_states(types, (5, 3, 1)).pinned is None
    own = TypeSet({}, {"": {"extent_state_active": 0, "extent_state_pinned": 3, "extent_state_retained": 4, "extent_state_max": 6}})
    assert layouts.read_extent_states(own, layouts.UNRELEASED).pinned == 3
    old = TypeSet({}, {"": {"extent_state_active": 0, "extent_state_dirty": 1, "extent_state_muzzy": 2, "extent_state_retained": 3, "extent_state_max": 5}})
    assert layouts.read_extent_states(old, layouts.UNRELEASED).pinned is None


def test_which_builds_were_tried() -> None:
    """Releases, and of what came after the last one a single commit."""
    texts = ("5.3.1-47-g295e4894", "5.3.1-48-gabcdef01", "0.0.0-0-g0", None)
    assert [layouts.was_tried(layouts.UNRELEASED, text) for text in texts] == [True, False, False, False]
    assert layouts.was_tried((5, 3, 1), None)


NEW = ((5, 3, 0), (5, 3, 1))


def world(version: Any, names: List[int]) -> JemallocMemory:
    """Arenas that say they are these; no bin of theirs has a slab."""
    made = JemallocMemory(version, len(names))
    for arena, name in zip(made.arenas, names):
        made.put("arena_s", arena.address, ind=name)
    made.symbols.places["arenas"] = (made.bytes(b"".join(arena.address.to_bytes(8, "little") for arena in made.arenas)), 8 * len(names))
    made.symbols.places["arena_bin_offsets"] = (made.bytes(b"".join((4 * 8 * number).to_bytes(4, "little") for number in range(NBINS))), 4 * NBINS)
    return made


def check(made: JemallocMemory, is_own: bool) -> Union[Jemalloc, str]:
    """The proof."""
    bins = tuple(info._replace(nregs=info.slab_size_bytes // info.reg_size_bytes) for info in made.geometry.bins)
    return prove_layout(made.context.jemalloc._replace(geometry=made.geometry._replace(bins=bins)), is_own)


@pytest.mark.parametrize("version", NEW)
@pytest.mark.parametrize("is_own", [True, False])
def test_arenas_that_name_themselves(version: Any, is_own: bool) -> None:
    """Without a slab this much is proven."""
    found = check(world(version, [0, 1, 2]), is_own)
    assert isinstance(found, Jemalloc) and (found.calibrated_slabs, found.named_arenas) == (0, 3)


@pytest.mark.parametrize("version", NEW)
@pytest.mark.parametrize("is_own", [True, False])
def test_arenas_that_name_others_refute_a_layout(version: Any, is_own: bool) -> None:
    """Nothing else holds, so that nothing is believed: an arena index of another build's layout is whatever stands there."""
    found = check(world(version, [3454013632, 7, 2]), is_own)
    assert found == "arenas[0] points to a struct that says it is arena 3454013632"


@pytest.mark.parametrize("version", NEW)
def test_one_damaged_arena_of_several_refutes_nothing(version: Any) -> None:
    """Most decide: that one is left out when arenas are read."""
    found = check(world(version, [0, 1, 99]), False)
    assert isinstance(found, Jemalloc) and found.named_arenas == 2


def test_an_arena_that_cannot_be_asked_is_no_proof() -> None:
    """Neither for nor against."""
    made = world((5, 3, 0), [0])
    assert made.context.jemalloc.read_own_index(0x123000) is None
    made.symbols.places["arenas"] = (made.bytes((0x123000).to_bytes(8, "little")), 8)
    found = check(made, False)
    assert isinstance(found, str) and "0x123000" in found
