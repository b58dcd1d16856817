"""What systrim would give back of the main top, and what the settings in force mean.

Files: glibc/survey.py, glibc/text.py.
"""

from typing import Any, Dict, NamedTuple, Optional, Tuple

import pytest

from gdbheapx.errors import UnreadableMemory
from gdbheapx.glibc import layouts, survey, text

TOP, BREAK = 0x100000, 0x110000
"""A top of 64 KiB that ends at the program break."""


class Geometry(NamedTuple):
    """Of x86-64."""

    page_bytes: int = 4096
    min_chunk_bytes: int = 32


class Arena(NamedTuple):
    """The main one."""

    top: int = TOP
    is_main: bool = True


class Total(NamedTuple):
    """What a walk tells of the top."""

    top_bytes: int = BREAK - TOP
    top_run_start: Optional[int] = None


class Glibc(NamedTuple):
    """One whose break is known."""

    at: Optional[int] = BREAK
    mp: Optional[Dict[str, int]] = {}
    geometry: Geometry = Geometry()

    def break_address(self, target: Any) -> Optional[int]:
        return self.at

    def read_mp(self, target: Any) -> Dict[str, int]:
        if self.mp is None:
            raise UnreadableMemory(0x2000)
        return self.mp


class Around(NamedTuple):
    """Context and walk at once."""

    glibc: Glibc = Glibc()
    target: Any = None
    arena: Arena = Arena()
    counted: Total = Total()

    def total(self) -> Total:
        return self.counted


def systrim(glibc: Glibc, total: Total, pad: int = 0) -> Optional[Tuple[int, int]]:
    around = Around(glibc, counted=total)
    return survey.predict_systrim(around, around, pad)  # type: ignore[arg-type]


def test_whole_pages_at_the_end_of_top_go() -> None:
    """But for MINSIZE and one byte, as systrim computes it: the first page stays."""
    assert systrim(Glibc(), Total()) == (TOP + 4096, BREAK)


def test_pad_stays() -> None:
    """With MINSIZE and one byte, rounded up to whole pages; with too much of it nothing goes."""
    assert systrim(Glibc(), Total(), 5000) == (TOP + 2 * 4096, BREAK)
    assert systrim(Glibc(), Total(), 1 << 20) is None


def test_free_chunks_below_top_are_merged_first() -> None:
    """malloc_consolidate runs before: the run that borders top begins lower."""
    assert systrim(Glibc(), Total(top_run_start=TOP - 8192)) == (TOP - 4096, BREAK)


def test_huge_pages_make_larger_steps() -> None:
    """With glibc.malloc.hugetlb=1 brk moves by thp_pagesize."""
    assert systrim(Glibc(mp={"thp_pagesize": 1 << 15}), Total()) == (BREAK - (1 << 15), BREAK)


@pytest.mark.parametrize("glibc, total", [(Glibc(at=BREAK + 4096), Total()), (Glibc(at=None), Total()), (Glibc(), Total(0)), (Glibc(mp=None), Total())])
def test_nothing_goes_where_the_rule_does_not_hold(glibc: Glibc, total: Total) -> None:
    """Somebody else has moved the break, nobody knows it, there is no top, or mp_ cannot be read."""
    assert systrim(glibc, total) is None


class Record(Dict[str, int]):
    """malloc_par as it was read."""


def test_a_name_that_depends_on_an_unknown_release_is_null() -> None:
    """2.42 renamed tcache_bins: where both may be, neither is said, and the meaning has both."""
    others = layouts.other_names(layouts.MALLOC_PAR, [(2, 42), (2, 41)])
    assert others == dict.fromkeys(("tcache_bins", "tcache_small_bins"), ("tcache_small_bins", "tcache_bins"))
    assert not layouts.other_names(layouts.MALLOC_PAR, [(2, 41)])
    (row, last) = text.read_glibc_tunables(Record({"tcache_small_bins": 64, "tcache_count": 7}), others)  # type: ignore[arg-type]
    assert (row.name, row.value, last.name) == (None, 64, "tcache_count")
    assert row.meaning.endswith("called tcache_small_bins or tcache_bins, by the release")
