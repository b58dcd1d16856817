"""What systrim would give back of the main top, and what the settings in force mean and would save.

Files: glibc/survey.py, glibc/text.py.
"""

from types import MappingProxyType, SimpleNamespace
from typing import Any, Dict, Optional, Tuple

import pytest

from gdbheapx.allocators.answers import four_to_a_doubling
from gdbheapx.common.errors import UnreadableMemory
from gdbheapx.common.model import HistogramRow
from gdbheapx.glibc import layouts, survey, text
from gdbheapx.glibc import verdict as what_if

TOP, BREAK = 0x100000, 0x110000
"""A top of 64 KiB that ends at the program break."""


def systrim(
    pad: int = 0, at: Optional[int] = BREAK, top_bytes: int = BREAK - TOP, run: int = 0, mp: Optional[Dict[str, int]] = MappingProxyType({})  # type: ignore[assignment]
) -> Optional[Tuple[int, int]]:
    """What goes of the main arena's top. `at`: the break; `run`: where free chunks below top begin; `mp`: None where it cannot be read."""

    def read_mp(target: Any) -> Dict[str, int]:
        if mp is None:
            raise UnreadableMemory(0x2000)
        return mp

    glibc = SimpleNamespace(geometry=layouts.make_geometry(8, 16, 4096, True), break_address=lambda target: at, read_mp=read_mp)
    total = SimpleNamespace(top_bytes=top_bytes, top_run_start=run)
    walk: Any = SimpleNamespace(arena=SimpleNamespace(top=TOP, is_main=True), total=lambda: total)
    return survey.predict_systrim(SimpleNamespace(glibc=glibc, target=None), walk, pad)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "state, start",
    [
        ({}, TOP + 4096),  # MINSIZE and one byte stay, and so the first page
        ({"pad": 5000}, TOP + 2 * 4096),
        ({"pad": 1 << 20}, None),
        ({"run": TOP - 8192}, TOP - 4096),  # malloc_consolidate merges what borders top
        ({"mp": {"thp_pagesize": 1 << 15}}, BREAK - (1 << 15)),  # glibc.malloc.hugetlb=1
        ({"at": BREAK + 4096}, None),  # somebody else has moved the break
        ({"at": None}, None),
        ({"top_bytes": 0}, None),
        ({"mp": None}, None),
    ],
)
def test_whole_pages_at_the_end_of_top_go(state: Dict[str, Any], start: Optional[int]) -> None:
    """From where systrim computes it up to the break, or nothing."""
    assert systrim(**state) == (None if start is None else (start, BREAK))


def test_a_name_that_depends_on_an_unknown_release_is_null() -> None:
    """2.42 renamed tcache_bins: where both may be, neither is said, and the meaning has both."""
    others = layouts.other_names(layouts.MALLOC_PAR, [(2, 42), (2, 41)])
    assert others == dict.fromkeys(("tcache_bins", "tcache_small_bins"), ("tcache_small_bins", "tcache_bins"))
    assert not layouts.other_names(layouts.MALLOC_PAR, [(2, 41)])
    (row, last) = text.read_glibc_tunables({"tcache_small_bins": 64, "tcache_count": 7}, others)  # type: ignore[arg-type]
    assert (row.name, row.value, last.name) == (None, 64, "tcache_count")
    assert row.meaning.endswith("called tcache_small_bins or tcache_bins, by the release")


ARENA: Any = SimpleNamespace(
    held_bytes=10 << 20, free_bytes=5 << 20, fast_bytes=0, tcache_bytes=1 << 20, top_bytes=2 << 20, free_chunks=50, tcache_chunks=4, attached_threads=1
)
MP = {"arena_max": 0, "no_dyn_threshold": 0, "trim_threshold": 1 << 18, "mmap_threshold": 1 << 17, "tcache_count": 7}
FIXED = {**MP, "no_dyn_threshold": 1, "trim_threshold": 1 << 20, "mmap_threshold": 1 << 19}
CODES = ("arenas", "trim-threshold", "mmap-threshold", "thread-caches")


def told(mp: Dict[str, int], *arenas: Any, variables: Any = ()) -> Dict[str, Any]:
    sums = what_if.sum_glibc_free(arenas), what_if.beside_largest_bytes(arenas), what_if.kept_apart_bytes(arenas)
    has = what_if.GlibcSettingFigures(len(arenas), *sums, 0, 0, 2 << 20, 0, 3)
    return {one.code: one for one in what_if.list_glibc_effects(mp, has, 4096, variables)}  # type: ignore[arg-type]


def test_no_setting_saves_more_than_is_free() -> None:
    """Of two arenas whose threads may come in another order; the thresholds at least what is above them at the main top, less a page for each
    large block."""
    found = told(MP, ARENA, ARENA)
    assert {found[code].most_bytes for code in CODES} == {16 << 20} == {found["restart"].acts_on_bytes}
    assert found["trim-threshold"].least_bytes == (2 << 20) - what_if.LEFT_AT_TOP_BYTES - 3 * 4096


def test_a_heap_tells_more_where_its_thresholds_stayed() -> None:
    """One arena keeps what the largest has; caches keep what is beside their blocks, where no thread took its cache along."""
    found = told(FIXED, ARENA, SimpleNamespace(**{**vars(ARENA), "held_bytes": 3 << 20}))
    beside = (2 << 20) + 2 * 8 * (10 << 20) // 100
    assert [found[code].most_bytes for code in CODES] == [3 << 20, 16 << 20, 16 << 20, beside]
    assert what_if.kept_apart_bytes([SimpleNamespace(**{**vars(ARENA), "attached_threads": 0})]) is None  # type: ignore[list-item]
    assert what_if.kept_apart_bytes([SimpleNamespace(**{**vars(ARENA), "free_bytes": None})]) is None  # type: ignore[list-item]


def test_what_keeps_the_memory_is_what_a_setting_acts_on() -> None:
    """Of 8 MiB free in thread arenas fastbins keep 3 and raised thresholds 4: fewer arenas act on the last."""
    has = what_if.GlibcSettingFigures(9, 9 << 20, 8 << 20, 0, 8 << 20, 0, 0, 0, 0, large_free_bytes=4 << 20, unmerged_bytes=3 << 20, fast_bytes=1, no_fastbins="F=0")
    found = {one.code: (one.acts_on_bytes or 0) >> 20 for one in what_if.list_glibc_effects(MP, has, 4096, ())}  # type: ignore[arg-type]
    assert [found[code] for code in ("mmap-threshold", "fastbins", "arenas")] == [4, 3, 1]


def test_thresholds_that_never_moved_are_as_good_as_fixed() -> None:
    """Nothing would be different so far."""
    found = told({**MP, "trim_threshold": 1 << 17}, ARENA)
    assert found["trim-threshold"].is_in_force and found["mmap-threshold"].is_in_force


@pytest.mark.parametrize("variables, is_told", [((), True), (("MALLOC_ARENA_MAX", "MALLOC_TOP_PAD_"), False), (("GLIBC_TUNABLES",), False), (None, False)])
def test_what_the_program_sets_itself_no_variable_changes(variables: Any, is_told: bool) -> None:
    """A setting that is there, and no variable that made it: on a core that is not known."""
    found = told({**FIXED, "arena_max": 2}, ARENA, ARENA, variables=variables)
    assert {"mallopt()" in found[code].why and found[code].setting.startswith("mallopt(M_") for code in CODES[:3]} == {is_told}
    assert found["thread-caches"].setting.endswith(" (added to its present value)") == (variables == ("GLIBC_TUNABLES",))


@pytest.mark.parametrize("mode, why", [(None, "malloc asks for huge pages"), (1, "malloc asks for huge pages"), (0, "the machine's setting decides alone")])
def test_who_asks_for_huge_pages(mode: Optional[int], why: str) -> None:
    """Up to 2.42 malloc does where thp_pagesize is set; 2.43 sets it on aarch64 whether it asks or not (thp_init, madvise_thp)."""
    found = told({**MP, "thp_pagesize": 2 << 20, **({} if mode is None else {"thp_mode": mode})}, ARENA)["malloc-huge-pages"]
    assert (found.is_in_force, found.why) == (True, why)


def test_what_is_in_force_is_told() -> None:
    """One arena, fixed thresholds, no thread caches."""
    found = told({**FIXED, "trim_threshold": 1 << 17, "mmap_threshold": 1 << 17, "tcache_count": 0}, ARENA)
    assert {code for code, one in found.items() if not one.is_in_force} == {"restart"} and len(found) == 5


def test_blocks_of_another_allocator() -> None:
    """A chunk of 32 bytes is a request of 9 to 24; of a class of chunks the sum of all requests is known to 24 bytes a block."""
    assert [four_to_a_doubling(size) for size in (1, 8, 9, 24, 128, 129, 160, 161, 4097)] == [8, 8, 16, 32, 128, 160, 160, 192, 5120]
    rows = [HistogramRow(32, 32, 10, 320, 0, 0, 0), HistogramRow(1040, 1280, 2, 2400, 0, 0, 0)]
    assert what_if.make_glibc_requests(rows, 8, 4096) == [(10, 320, 80, 9, 24), (2, 2400, 2352, 1017, 1272)]


def test_a_release_without_thread_caches_has_no_setting_for_them() -> None:
    """And what is not known of an arena is not known of the sum."""
    mp = {name: value for name, value in MP.items() if name != "tcache_count"}
    found = told(mp, ARENA, SimpleNamespace(**{**vars(ARENA), "free_bytes": None}))
    assert "thread-caches" not in found and found["arenas"].most_bytes is None
