"""mp_'s values now in force, what each means, and their page (malloc.c: struct malloc_par; mallopt(3) and the glibc.malloc tunables)."""

from types import MappingProxyType
from typing import List, Mapping, NamedTuple, Optional, Sequence

from gdbheapx.allocators.records import Page
from gdbheapx.columns import COUNT, TEXT, Column, ColumnsTable
from gdbheapx.layout.view import LayoutView
from gdbheapx.units import UNKNOWN, SentenceSize, make_cells

_DEFAULT_THRESHOLD = 128 << 10
_MEANINGS = (
    ("trim_threshold", "bytes", "free() returns the main top to the OS (by brk) when it grows to this size"),
    ("top_pad", "bytes", "extra bytes requested at each brk; an automatic trim keeps as much"),
    ("mmap_threshold", "bytes", "requests of this size or larger get their own mapping"),
    ("arena_test", None, "up to this number of arenas no limit is checked"),
    ("arena_max", None, "maximum number of arenas; 0: 8 per core (2 on 32-bit)"),
    ("thp_mode", None, "huge pages: 1 malloc asks the kernel for them; else it does not (0 at start; 2, 3: set to never, not known)"),
    ("thp_pagesize", "bytes", "with glibc.malloc.hugetlb=1, or by default: brk grows and shrinks in these steps; 0: off"),
    ("hp_pagesize", "bytes", "with glibc.malloc.hugetlb=2: page size of mapped memory; 0: off"),
    ("hp_flags", None, "mmap flags for hp_pagesize"),
    ("n_mmaps", None, "number of mmapped chunks now"),
    ("n_mmaps_max", None, "maximum number of mmapped chunks; beyond it, large requests come from the arenas"),
    ("max_n_mmaps", None, "highest number of mmapped chunks so far"),
    ("no_dyn_threshold", None, "1: mmap_threshold and trim_threshold were set and stay fixed; 0: freeing an mmapped chunk raises them"),
    ("mmapped_mem", "bytes", "bytes in mmapped chunks now"),
    ("max_mmapped_mem", "bytes", "highest number of bytes in mmapped chunks so far"),
    ("tcache_bins", None, "number of thread cache bins in use"),
    ("tcache_small_bins", None, "number of small thread cache bins in use"),
    ("tcache_max_bytes", "bytes", "largest request size that a thread cache keeps"),
    ("tcache_count", None, "maximum number of chunks per bin of a thread cache; 0: no thread cache"),
    ("tcache_unsorted_limit", None, "chunks of the unsorted bin examined to fill a thread cache; 0: no limit"),
)
_COLUMNS = (Column("name", TEXT, field="name"), Column("value", COUNT, field="value"), Column("meaning", TEXT, field="meaning"))


class Tunable(NamedTuple):
    """A setting in force."""

    name: Optional[str]
    """As the struct's member is called; None where releases that may be this one call it otherwise."""
    value: int
    unit: Optional[str]
    """`bytes` or None."""
    meaning: str
    """What it does, and what its value says here."""


class GlibcTunables(NamedTuple):
    """Settings in force."""

    tunables: List[Tunable]


def read_glibc_tunables(mp: LayoutView, other_names: Mapping[str, Sequence[str]] = MappingProxyType({})) -> List[Tunable]:
    """Every setting that this release has, in the order of the struct. `other_names`: of settings whose name depends on a release that is
    not known, all their names."""
    rows = []
    for name, unit, meaning in _MEANINGS:
        value = mp.get(name)
        if value is not None:
            names = other_names.get(name)
            called = "; called %s, by the release" % " or ".join(names) if names else ""
            rows.append(Tunable(None if names else name, value, unit, meaning + called + _make_remark(name, value, mp)))
    return rows


def _make_remark(name: str, value: int, mp: LayoutView) -> str:
    """Return a remark on a value that differs from the one a process starts with, else an empty text."""
    if name == "mmap_threshold" and value != _DEFAULT_THRESHOLD and not mp["no_dyn_threshold"]:
        return "; raised by freeing an mmapped chunk of that size"
    if name == "trim_threshold" and value != _DEFAULT_THRESHOLD:
        return (
            "; set by the program or the environment"
            if mp["no_dyn_threshold"]
            else "; raised to twice mmap_threshold: top may keep that much"
        )
    if name == "arena_max" and value:
        return "; limited here"
    if name == "tcache_count" and value == 0:
        return "; disabled here"
    return ""


def make_glibc_tunables_page(answer: GlibcTunables) -> Page:
    """Yield one line for each setting."""
    told = [(row, make_cells("%s", SentenceSize(row.value)) if row.unit else row.value) for row in answer.tunables]
    yield ColumnsTable(_COLUMNS, [{**row._asdict(), "name": row.name or UNKNOWN, "value": value} for row, value in told])
