"""Damaged jemalloc heaps: a partial answer, exit code 4, address and rule named, the undamaged rest still counted to the byte; never a hang."""

from typing import Any, Callable, List, Optional, Sequence, Set, Tuple

import pytest

from gdbheapx.jemalloc import threads
from gdbheapx.jemalloc.extents import CACHED_DAMAGE, EXTENT_DAMAGE
from gdbheapx.jemalloc.layouts import has_short_ncached_max
from gdbheapx.jemalloc.symbols import read_words
from gdbheapx.kernel.jemalloc import records as kernel_api
from tests.support.damaged_jemalloc import COMMANDS, PAGE, Extent, Patient, arenas_of, rows_of, sums
from tests.support.tool import Asked, heapx

pytestmark = pytest.mark.once  # the rules by which damage is told are the tool's own

HANG_SECONDS = 60
OTHER_ARENA = 2
"""Damage is done in it, or by its thread."""


MET: Set[str] = set()
"""Codes of damage that every command was asked about by now."""


def check_all_commands(patient: Patient, code: str) -> bool:
    """Every command answers as JSON and as text, with the same code and without an internal error; False where that is known of this damage."""
    if code in MET:
        return False
    MET.add(code)
    for words in COMMANDS:
        first = patient.ask(*words)
        second = patient.ask(*words, as_json=False)
        refused = words == ("profile",)  # this process does not sample
        assert first.code == second.code and first.code in ((1,) if refused else (0, 4)), (words, first.code, second.code, first.line)
        assert "internal error" not in (first.line or ""), first.line
        if not refused:
            assert first.envelope["partial"] is (first.code == 4)
    return True


def check_counted(patient: Patient, asked: Asked, blocks: List[Any], lost: Sequence[Tuple[int, int]]) -> None:
    """`arenas` (asked) and `chunks` count exactly these blocks, and each arena lacks exactly its extents in these ranges."""
    listed = patient.ask("chunks")
    assert listed.code == 4
    found, wanted = set(rows_of(listed)), set(blocks)
    assert found == wanted, "missing: %s, not there before: %s" % (sorted(wanted - found)[:5], sorted(found - wanted)[:5])
    rows = arenas_of(asked)
    for index in patient.rows:
        for status in ("used", "cached"):
            count, size = sums(blocks, index, status)
            row = rows.get(index, {})
            assert row.get(status + "_bytes", 0) in (size, None) and row.get(status + "_blocks", 0) in (count, None), (index, status, row)
        total = sums(blocks, index, "used")[1] + sums(blocks, index, "cached")[1]
        assert rows.get(index, {}).get("allocated_bytes", 0) == total, index
        gone = [one for one in patient.extents if one.arena == index and any(begin <= one.begin < end for begin, end in lost)]
        assert rows[index]["unparsed_bytes"] == sum(one.end - one.begin for one in gone), index


def check_damage(patient: Patient, code: str, where: int, lost: Sequence[Tuple[int, int]] = (), blocks: Optional[List[Any]] = None) -> Asked:
    """The code is told with that address, and all but the extents in `lost` is counted; all commands answer, and the shell's command says the same.

    blocks: what there is besides, where that is not what there was. All commands are asked for the first damage of each code.
    """
    asked = patient.ask("arenas")
    assert asked.code == 4, (asked.code, asked.line)
    places = {one["where"] for one in asked.envelope["problems"] if one["code"] == code}
    assert "0x%x" % where in places, (code, hex(where), asked.envelope["problems"])
    check_counted(patient, asked, patient.blocks_outside(*lost) if blocks is None else blocks, lost)
    if check_all_commands(patient, code):
        outcome = heapx(["--core", str(patient.path)], "arenas", "--json", "--allocator", "jemalloc", seconds=HANG_SECONDS)
        assert outcome.code == 4 and outcome.envelope["data"] == asked.envelope["data"]
    return asked


def test_undamaged_core_is_whole(patient: Patient) -> None:
    """The same core without damage gives a whole answer everywhere, and its listing adds up to its arenas."""
    assert patient.ask("arenas").code == 0
    for index, row in patient.rows.items():
        assert sums(patient.blocks, index, "used") == (row["used_blocks"], row["used_bytes"])
    for words in COMMANDS:
        assert patient.ask(*words).code == (1 if words == ("profile",) else 0), words


# ---------------------------------------------------------------------------------------------------- the radix tree


def test_leaf_node_unreadable(patient: Patient) -> None:
    """The node's page in the root, and what lies below it is missing; all under other nodes is counted."""
    index, node = patient.leaves()[0]
    patient.cut(node, node + patient.leaf_bytes)
    lost = index * patient.leaf_pages * PAGE, (index + 1) * patient.leaf_pages * PAGE
    check_damage(patient, EXTENT_DAMAGE[kernel_api.EXTENT_NODE_UNREADABLE][0], node, [lost])


def test_page_of_a_leaf_node_unreadable(patient: Patient) -> None:
    """Of the pages whose elements lie in one page of a node nothing is known; extents that begin before it and end in it are counted, the rest too."""
    middle = patient.larges(OTHER_ARENA, 3)[0]
    page = patient.element(middle.begin) & -PAGE
    first = middle.begin - (patient.element(middle.begin) - page) // patient.element_bytes * PAGE
    patient.cut(page, page + PAGE)
    hole = first, first + PAGE // patient.element_bytes * PAGE
    lost = [one.range for one in patient.extents if hole[0] <= one.begin < hole[1]]
    assert lost
    node = max(place for _, place in patient.leaves() if place <= patient.element(middle.begin))
    check_damage(patient, EXTENT_DAMAGE[kernel_api.EXTENT_NODE_HOLE][0], max(page, node), lost)  # the page may begin before the node


# ---------------------------------------------------------------------------------------------------- extents


def size_place(patient: Patient, extent: Extent) -> int:
    return extent.struct + patient.place(patient.geometry.extent_struct, "e_size_esn")


def slab(patient: Patient) -> Extent:
    """One with used and free regions, and no region in a cache, between other extents."""
    return patient.slabs(OTHER_ARENA)[3]


def large(patient: Patient) -> Extent:
    """One of several pages, with another extent right behind it."""
    begins = {one.begin for one in patient.extents}
    return next(one for one in patient.larges(OTHER_ARENA, 6) if one.end in begins)


SIZES = (
    ("slab a page longer", slab, 1, None),
    ("large a page shorter", large, -1, kernel_api.EXTENT_LAST_PAGE),
    ("large a page longer", large, 1, kernel_api.EXTENT_OVERLAP),
    ("large a GiB longer", large, 1 << 18, kernel_api.EXTENT_OVERLAP),
)


@pytest.mark.parametrize("choose, pages, code", [row[1:] for row in SIZES], ids=[row[0] for row in SIZES])
def test_extent_of_a_wrong_size(patient: Patient, choose: Callable[[Patient], Extent], pages: int, code: Optional[int]) -> None:
    """A wrong number of pages: the next extent, or the leaf element of the last page, tells; only this extent is missing."""
    hurt = choose(patient)
    patient.put(size_place(patient, hurt), hurt.end - hurt.begin + pages * PAGE)
    if code is None:
        code = kernel_api.EXTENT_OVERLAP if any(one.begin == hurt.end for one in patient.extents) else kernel_api.EXTENT_SLAB_SIZE
        codes = (kernel_api.EXTENT_SLAB_SIZE, code)
        code = next(one for one in codes if EXTENT_DAMAGE[one][0] in {told["code"] for told in patient.ask("arenas").envelope["problems"]})
    check_damage(patient, EXTENT_DAMAGE[code][0], hurt.begin, [hurt.range])


FIELDS = (
    ("arena index beyond narenas", slab, "arena", lambda patient: patient.geometry.narenas, kernel_api.EXTENT_ARENA),
    ("arena index of the field's width", large, "arena", lambda patient: 4094, kernel_api.EXTENT_ARENA),
    ("state", large, "state", lambda patient: (1 << patient.geometry.fields["state"].width) - 1, kernel_api.EXTENT_STATE),
    ("slab szind", slab, "szind", lambda patient: patient.geometry.nbins, kernel_api.EXTENT_SZIND),
    ("large szind", large, "szind", lambda patient: len(patient.geometry.size_classes) + 1, kernel_api.EXTENT_SZIND),
    ("nfree", slab, "nfree", lambda patient: 0, kernel_api.EXTENT_BITMAP),
    ("nfree of the field's width", slab, "nfree", lambda patient: 1023, kernel_api.EXTENT_BITMAP),
)


@pytest.mark.parametrize("choose, field, value, code", [row[1:] for row in FIELDS], ids=[row[0] for row in FIELDS])
def test_field_of_e_bits_out_of_range(patient: Patient, choose: Any, field: str, value: Callable[[Patient], int], code: int) -> None:
    """An extent with a field that cannot be: named with its first page and its structure, its bytes unparsed, the rest counted."""
    hurt = choose(patient)
    if field == "state" and patient.geometry.states.highest >= value(patient):
        pytest.skip("every value of the field is a state in this release")
    patient.put_field(hurt, field, value(patient))
    asked = check_damage(patient, EXTENT_DAMAGE[code][0], hurt.begin, [hurt.range])
    assert "0x%x" % hurt.struct in asked.problem(EXTENT_DAMAGE[code][0])["what"]
    rows = {(row["arena"], row["index"], row["kind"]): row for row in patient.ask("bins").envelope["data"]["bins"]}
    key = (hurt.arena, hurt.szind, "small" if hurt.is_slab else "large")
    before = {(row["arena"], row["index"], row["kind"]): row for row in patient.bins}
    assert {other: row for other, row in rows.items() if other != key and other[1] is not None} == {
        other: row for other, row in before.items() if other != key and other[1] is not None
    }
    unit = "slabs" if hurt.is_slab else "extents"
    assert rows.get(key, {unit: 0})[unit] == before[key][unit] - 1


def test_extent_structure_unreadable(patient: Patient) -> None:
    """The page with the structures of some extents is not in the core."""
    hurt = slab(patient)
    page = hurt.struct & -PAGE
    lost = [
        one.range
        for one in patient.extents
        if one.struct < page + PAGE and page < one.struct + patient.types.size_bytes(patient.geometry.extent_struct)
    ]
    patient.cut(page, page + PAGE)
    check_damage(patient, EXTENT_DAMAGE[kernel_api.EXTENT_UNREADABLE][0], min(lost)[0], lost)


# ---------------------------------------------------------------------------------------------------- thread caches


def test_what_caches_hold_at_most(patient: Patient) -> None:
    """The limits of each size class that jemalloc has, for every thread and every cache that the program made."""
    context = patient.malloc.context
    pointer, classes = context.variable("tcache_bin_info"), context.variable("nhbins", 4)
    if not pointer or not classes:
        pytest.skip("from 5.3.1 on each cache has limits of its own")
    limits = read_words(context.target, pointer, classes, 2 if has_short_ncached_max(context.types) else 4)
    caches = len(context.target.threads()) + (context.variable("tcaches_past", 4) or 0)
    assert threads.limit_cached_bytes(context) == caches * sum(most * size for most, size in zip(limits, patient.geometry.size_classes))


def stack_of(patient: Patient) -> Tuple[Any, Any]:
    """A small bin of a thread's cache with several blocks: (cache, stack)."""
    for cache in patient.malloc.tcaches().caches:
        for stack in cache.counted:
            if cache.tsd is not None and cache.tsd.arena_index == OTHER_ARENA and stack.count >= 3 and 3 < stack.szind < 20:
                return cache, stack
    raise AssertionError("no such cache")


def with_status(blocks: List[Any], address: int, status: str) -> List[Any]:
    return [(row[0], row[1], status, row[3]) if row[0] == address else row for row in blocks]


def lost_pointer(patient: Patient, value: Callable[[Patient, int], int]) -> Tuple[int, int]:
    """Puts another pointer in the place of a cached one; (what stands there now, the block that is in no cache now)."""
    _, stack = stack_of(patient)
    before = patient.get(stack.start)
    now = value(patient, before)
    patient.put(stack.start, now)
    return now, before


def a_free_region(patient: Patient) -> int:
    return next(address for address, size, status, arena in patient.blocks if (status, arena) == ("free", OTHER_ARENA))


POINTERS = (
    ("nowhere", lambda patient, before: 0x1230, kernel_api.CACHED_OUTSIDE),
    ("unused pages", lambda patient, before: next(row[0] for row in patient.blocks if row[2] == "dirty"), kernel_api.CACHED_OUTSIDE),
    ("inside a region", lambda patient, before: before + 8, kernel_api.CACHED_NOT_START),
    ("inside a large one", lambda patient, before: large(patient).begin + PAGE, kernel_api.CACHED_NOT_START),
    ("a free region", lambda patient, before: a_free_region(patient), kernel_api.CACHED_FREE),
    ("twice", lambda patient, before: patient.get(stack_of(patient)[1].start + 8), kernel_api.CACHED_TWICE),
)


@pytest.mark.parametrize("value, reason", [row[1:] for row in POINTERS], ids=[row[0] for row in POINTERS])
def test_pointer_in_a_cache_that_cannot_be(patient: Patient, value: Any, reason: int) -> None:
    """It is named; the block whose place it took counts as used, all other cached blocks as cached."""
    now, before = lost_pointer(patient, value)
    check_damage(patient, CACHED_DAMAGE[reason][0], now, blocks=with_status(patient.blocks, before, "used"))


def test_count_of_a_cache_bin_too_large(patient: Patient) -> None:
    """More blocks than a bin may hold: its blocks count as used, cached sums are not known, all other bins are read."""
    cache, stack = stack_of(patient)
    if patient.types.place("tcache_s", "bins_small") is not None:  # up to 5.2
        patient.put(cache.address + patient.place("tcache_s", "bins_small[%d].ncached" % stack.szind), 5000, 4)
    else:
        place = cache.address + patient.place("tcache_s", "bins[%d].low_bits_empty" % stack.szind)
        patient.put(place, patient.get(place, 2) + 8 * 5000, 2)
    blocks = patient.blocks
    for number in range(stack.count):
        blocks = with_status(blocks, patient.get(stack.start + 8 * number), "used")
    asked = check_damage(patient, "thread-cache-bin-wrong", cache.address, blocks=blocks)
    assert all(row["cached_bytes"] is None and row["used_bytes"] is None for row in arenas_of(asked).values())


def test_stack_of_a_cache_unreadable(patient: Patient) -> None:
    """The pages with a cache's pointers are not in the core."""
    _, stack = stack_of(patient)
    page = stack.start & -PAGE
    lost = {
        patient.get(one.start + 8 * number)
        for cache in patient.malloc.tcaches().caches
        for one in cache.stacks
        for number in range(one.count)
        if page <= one.start + 8 * number < page + PAGE
    }
    blocks = [(row[0], row[1], "used", row[3]) if row[0] in lost else row for row in patient.blocks]
    patient.cut(page, page + PAGE)
    asked = patient.ask("arenas")
    assert asked.code == 4 and "cannot read the blocks of size class" in asked.text
    check_counted(patient, asked, blocks, ())
    check_all_commands(patient, "stack-unreadable")


# ---------------------------------------------------------------------------------------------------- arenas


ARENAS = (
    ("wild", lambda patient: 0x123456789000, "arena-unreadable"),
    ("another arena", lambda patient: patient.arenas[0], "arena-wrong"),
    ("no arena", lambda patient: large(patient).begin, "arena-wrong"),
)


@pytest.mark.parametrize("value, code", [row[1:] for row in ARENAS], ids=[row[0] for row in ARENAS])
def test_pointer_to_an_arena_is_wrong(patient: Patient, value: Callable[[Patient], int], code: str) -> None:
    """Its counters are null and the reason is named; its extents are counted all the same, the other arenas as before."""
    address = value(patient)
    patient.put(patient.symbol("arenas") + 8 * OTHER_ARENA, address)
    asked = patient.ask("arenas")
    assert asked.code == 4, (asked.code, asked.line)
    found = asked.problem(code)
    assert int(found["where"], 16) >= address and "%d" % OTHER_ARENA in found["what"]
    check_arena_lost(patient, asked, code)


def test_arena_unreadable(patient: Patient) -> None:
    """The pages of arena_s are not in the core: the same."""
    start_ = patient.arenas[OTHER_ARENA]
    patient.cut(start_ & -PAGE, (start_ & -PAGE) + PAGE)
    asked = patient.ask("arenas")
    assert asked.code == 4, (asked.code, asked.line)
    assert asked.problem("arena-unreadable")["where"] == "0x%x" % start_
    check_arena_lost(patient, asked, "arena-unreadable")


def check_arena_lost(patient: Patient, asked: Asked, code: str) -> None:
    """One arena_s is gone."""
    rows = arenas_of(asked)
    assert set(rows) == set(patient.rows)
    for index, row in patient.rows.items():
        for column in (
            "allocated_bytes",
            "used_bytes",
            "used_blocks",
            "cached_bytes",
            "active_bytes",
            "dirty_bytes",
            "muzzy_bytes",
            "retained_bytes",
        ):
            assert rows[index][column] in (row[column], None), (index, column)
        assert rows[index]["allocated_bytes"] == row["allocated_bytes"]
        if index == OTHER_ARENA:
            assert {rows[index][column] for column in ("address", "kind", "metadata_bytes", "threads", "mapped_bytes")} == {None}
        else:
            assert rows[index]["metadata_bytes"] == row["metadata_bytes"] and rows[index]["threads"] == row["threads"]
    assert rows_of(patient.ask("chunks", "--status", "used", "--status", "free")) == [row for row in patient.blocks if row[2] in ("used", "free")]
    check_all_commands(patient, code)


def base_block(patient: Patient) -> int:
    """The newest base block of the arena."""
    arena = patient.view("arena_s", patient.arenas[0])
    return patient.view("base_s", arena["base"])["blocks"]


BASES = (
    ("cycle", lambda patient, block: block, "base-broken"),
    ("no page", lambda patient, block: block + 8, "base-broken"),
    ("wild", lambda patient, block: 0x123456789000, "base-unreadable"),
)


@pytest.mark.parametrize("value, code", [row[1:] for row in BASES], ids=[row[0] for row in BASES])
def test_list_of_base_blocks(patient: Patient, value: Any, code: str) -> None:
    """Where it breaks is named; what came before is listed, and every block outside metadata as before."""
    block = base_block(patient)
    address = value(patient, block)
    patient.put(block + patient.place("base_block_s", "next"), address)
    asked = patient.ask("chunks")
    assert asked.code == 4 and asked.problem(code)["where"] == "0x%x" % address
    found, wanted = rows_of(asked), [row for row in patient.blocks if row[2] != "metadata"]
    assert [row for row in found if row[2] != "metadata"] == wanted
    mine = [row[0] for row in found if (row[2], row[3]) == ("metadata", 0)]
    assert mine == [block]
    check_all_commands(patient, code)


@pytest.mark.parametrize("size", [0, 12345, 1 << 60])
def test_size_of_a_base_block(patient: Patient, size: int) -> None:
    """A size that is none, or that is larger than its mapping: named."""
    block = base_block(patient)
    patient.put(block + patient.place("base_block_s", "size"), size)
    asked = patient.ask("chunks")
    assert asked.code == 4 and asked.problem("base-broken")["where"] == "0x%x" % block
    check_all_commands(patient, "base-size-wrong")


# ---------------------------------------------------------------------------------------------------- constants


def test_narenas_huge(patient: Patient) -> None:
    """narenas_total beyond any limit is cut to jemalloc's own, said, and no arena is lost or invented."""
    patient.put(patient.symbol("narenas_total"), 0xFFFFFFF0, 4)
    asked = patient.ask("arenas")
    rows = arenas_of(asked)
    assert asked.code == 4 and asked.problem("narenas-wrong")["where"] == "0x%x" % patient.symbol("narenas_total")
    for index, row in patient.rows.items():
        assert rows[index]["used_bytes"] == row["used_bytes"] and rows[index]["threads"] == row["threads"]
    assert set(rows) == set(patient.rows)
    check_all_commands(patient, "narenas-wrong")


CONSTANTS = (
    ("bin_infos", "bin_info_s", "reg_size"),
    ("bin_infos", "bin_info_s", "slab_size"),
    ("bin_infos", "bin_info_s", "nregs"),
    ("bin_infos", "bin_info_s", "n_shards"),
    ("sz_index2size_tab", None, None),
    ("sz_pind2sz_tab", None, None),
)


@pytest.mark.parametrize("name, struct, member", CONSTANTS)
def test_constants_damaged(patient: Patient, name: str, struct: Optional[str], member: Optional[str]) -> None:
    """Nothing is believed that does not calibrate: one line with cause and next step, exit code 1."""
    if struct is not None and patient.types.place(struct, member) is None:
        pytest.skip("this release's %s has no %s" % (struct, member))
    offset = 0 if struct is None else patient.place(struct, str(member))
    patient.put(patient.symbol(name) + offset, 0x1234567, 4)
    for words in (("arenas",), ("report",), ("chunks",), ("tickers",)):
        asked = patient.ask(*words)
        assert asked.code == 1 and asked.line is not None, (words, asked)
        assert "jemalloc" in asked.line and "\n" not in asked.line and "internal error" not in asked.line
    outcome = heapx(["--core", str(patient.path)], "arenas", "--allocator", "jemalloc", seconds=HANG_SECONDS)
    assert outcome.code == 1 and not outcome.stdout and len(outcome.stderr.strip().splitlines()) == 1, outcome
    assert "--debug-dir" in outcome.stderr or "debuginfod" in outcome.stderr or "core" in outcome.stderr
