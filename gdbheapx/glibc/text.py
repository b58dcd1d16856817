"""Write what one glibc malloc says: the pages of `arenas`, `bins` and `tunables`, checks of `doctor`, malloc_info(0, fp)'s XML byte for
byte, mallinfo2's fields and malloc_stats(3)'s text.
"""

from types import MappingProxyType
from typing import Any, Dict, Iterator, List, Mapping, NamedTuple, Optional, Sequence, Tuple

from gdbheapx.allocators.records import Page
from gdbheapx.common.columns import COUNT, TEXT, Column, ColumnsTable, columns_of, sum_columns
from gdbheapx.common.errors import HeapxError, UnreadableMemory
from gdbheapx.common.hints import hint_command
from gdbheapx.common.model import Check
from gdbheapx.common.problems import MEMORY_UNREADABLE
from gdbheapx.common.units import UNKNOWN, SentenceSize, count_noun, format_number, make_cells
from gdbheapx.glibc import codes
from gdbheapx.glibc.arenas import Arena, Context, Glibc, heaps_of, read_ring
from gdbheapx.glibc.detect import heap_max_bytes
from gdbheapx.glibc.freelists import Bin, each_arena
from gdbheapx.glibc.layouts import NBINS, releases_of
from gdbheapx.glibc.records import ArenaTotals, BinRow, MmappedTotals
from gdbheapx.inferior.base import Target
from gdbheapx.layout.view import LayoutView


def sum_glibc_arenas(rows: Sequence[ArenaTotals], mapped: MmappedTotals) -> Dict[str, Optional[int]]:
    """The sums over its arenas, and its mapped chunks; unknown where not even main_arena could be read."""
    return {
        **sum_columns(ArenaTotals, rows, must_exist=True),
        "arenas": len(rows) or None,
        "mmapped_chunks": mapped.chunks,
        "mmapped_bytes": mapped.bytes,
    }


def make_glibc_arenas_page(rows: Sequence[ArenaTotals], totals: Mapping[str, Optional[int]]) -> Page:
    """Yield one line for each arena, their sums and the mmapped chunks."""
    shown = [{**row._asdict(), "index": "%d%s" % (row.index, " (locked)" if row.locked else "")} for row in rows]
    system = totals["system_bytes"]
    free = sum(totals[key] or 0 for key in ("free_bytes", "fast_bytes", "top_bytes"))
    percent = 100.0 * free / system if system else None
    yield ColumnsTable(columns_of(ArenaTotals), shown, {**totals, "index": "total", "kind": "", "free_percent": percent})
    yield make_cells("mmapped chunks: %s, %s", format_number(totals["mmapped_chunks"]), SentenceSize(totals["mmapped_bytes"]))


def make_glibc_bins_page(rows: Sequence[BinRow]) -> Page:
    """The non-empty bins."""
    shown = []
    for row in rows:
        low, high, size = row.min_size_bytes, row.max_size_bytes, row.min_size_bytes  # type: Any, Any, Any
        if low is None:
            size = "any"
        elif high is None:
            size = make_cells("%s-", SentenceSize(low))
        elif high != low:
            size = make_cells("%s-%s", SentenceSize(low), SentenceSize(high))
        shown.append({**row._asdict(), "min_size_bytes": size})
    yield ColumnsTable(columns_of(BinRow), shown)
    if not rows:
        yield "all bins are empty"


def list_glibc_checks(target: Target, glibc: Glibc) -> List[Check]:
    """Return what proves a malloc that was found by structure, and whether thread caches were found."""
    checks, place = [], glibc.place
    if place is not None:
        release = "" if glibc.version_text else "; its layouts are those of glibc %s" % releases_of(place.rows)
        text, is_whole = "main_arena as its file has it, next to mp_: malloc was never used%s" % release, False
        if place.bins:
            is_whole = place.bins == NBINS - 1 and place.is_closed
            ring = " that comes back" if place.is_closed else ", damaged there"
            text = "main_arena by %d of 127 bins and a ring of %s%s, next to mp_%s"
            text %= (place.bins, count_noun(place.arenas, "arena"), ring, release)
        checks.append(Check("by structure", is_whole or None, text, None))
    if glibc.tcache is None:
        return checks
    threads, local = target.threads(), glibc.thread_local(target, "tcache")
    if local is None:
        hint = "chunks in thread caches count as used"
        return [*checks, Check("thread caches", False, "thread-local storage of %s not found" % glibc.module.name, hint)]
    known, way = sum(1 for address in local.addresses.values() if address is not None), local.way
    if glibc.is_untouched:
        known, way = len(threads), "its main arena: malloc was never used"
    elif glibc.locals is not None:
        way = "structure, as the relocations that point there are not at hand"
    text = "glibc's tcache found for %s of %s, by %s" % (format_number(known), count_noun(len(threads), "thread"), way)
    return [*checks, Check("thread caches", known == len(threads), text, None)]


_DEFAULT_THRESHOLD = 128 << 10
_MEANINGS = (
    ("trim_threshold", "bytes", "free() returns the main top to the OS (by brk) when it grows to this size"),
    ("top_pad", "bytes", "extra bytes requested at each brk; an automatic trim keeps as much"),
    ("mmap_threshold", "bytes", "requests of this size or larger get their own mapping"),
    ("arena_test", None, "up to this number of arenas no limit is checked"),
    ("arena_max", None, "maximum number of arenas; 0: 8 per core (2 on 32-bit)"),
    ("thp_mode", None, "huge pages: 1 malloc asks the kernel for them, else not (0: it always gives them, 2: never, 3: not known yet)"),
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


def write_malloc_info(context: Context) -> str:
    """Return the document. What cannot be followed is reported; a row then counts what is before the damage."""
    target, glibc = context.target, context.glibc
    arenas = read_ring(target, glibc, context.report, context.budget)
    if not arenas:
        hint = "use `%s` to see what is still readable" % hint_command("arenas")
        raise HeapxError("cannot read main_arena", hint, glibc.main_arena.address, MEMORY_UNREADABLE)
    heap_max = heap_max_bytes(target, glibc, [arena.address for arena in arenas if not arena.is_main])
    lines, figures = ['<malloc version="1">'], []
    for own, arena, bins in each_arena(context, arenas):
        rows, sums = _write_heap(own, arena, bins, heap_max)
        lines += ['<heap nr="%d">' % arena.index, *rows]
        figures.append(sums)
    fast, fast_bytes, rest, rest_bytes, system, highest, aspace, writable = map(sum, zip(*figures))
    mp = glibc.read_mp(target)
    lines += _write_totals(arenas[0], fast, fast_bytes, rest, rest_bytes)
    lines.append('<total type="mmap" count="%d" size="%d"/>' % (mp["n_mmaps"], mp["mmapped_mem"]))
    lines += [*_write_system(system, highest, aspace, writable), "</malloc>"]
    return "\n".join(lines) + "\n"


def _write_totals(arena: Arena, fast_chunks: int, fast_bytes: int, rest_chunks: int, rest_bytes: int) -> Iterator[str]:
    if arena.state.has("fastbinsY"):
        yield '<total type="fast" count="%d" size="%d"/>' % (fast_chunks, fast_bytes)
    yield '<total type="rest" count="%d" size="%d"/>' % (rest_chunks, rest_bytes)


def _write_system(system: int, highest: int, aspace: int, writable: int) -> Iterator[str]:
    yield '<system type="current" size="%d"/>' % system
    yield '<system type="max" size="%d"/>' % highest
    yield '<aspace type="total" size="%d"/>' % aspace
    yield '<aspace type="mprotect" size="%d"/>' % writable


def _write_heap(context: Context, arena: Arena, bins: Sequence[Bin], heap_max: int) -> Tuple[List[str], Tuple[int, ...]]:
    """Return the lines of one arena, and the figures that the document's totals add up."""
    traits, lines, fast_chunks, fast_bytes = context.glibc.traits, ["<sizes>"], 0, 0
    row = '<%s from="%d" to="%d" total="%d" count="%d"/>'
    others = [item for item in bins if item.kind != "fast"]
    for item in bins:
        if item.kind != "fast" or not item.chunks:
            continue
        head, count = arena.state.numbers("fastbinsY")[item.index], item.chunks
        try:
            size = context.target.read_word(head + context.glibc.geometry.word_bytes) & ~7  # of its first chunk
        except UnreadableMemory as problem:
            context.report(codes.CHUNK_UNREADABLE, problem.address, "fastbin %d: cannot read its first chunk" % item.index, None)
            continue
        first = size - (context.glibc.geometry.alignment_bytes - 1)
        lines.append(traits.info_size_prefix + row % ("size", first, size, size * count, count))
        fast_chunks, fast_bytes = fast_chunks + count, fast_bytes + size * count
    for name, prefix in (("size", traits.info_size_prefix), ("unsorted", traits.info_unsorted_prefix)):
        sized = [item for item in others if item.chunks and (item.kind == "unsorted") == (name == "unsorted")]
        lines += [prefix + row % (name, item.raw_min, item.raw_max, item.raw_bytes, item.chunks) for item in sized]
    rest, rest_bytes = sum(item.chunks for item in others), sum(item.raw_bytes for item in others)
    if traits.info_counts_top:
        rest += 1
        try:
            rest_bytes += arena.read_top_size(context.target, context.glibc)
        except UnreadableMemory as problem:
            context.report(codes.TOP_UNREADABLE, problem.address, "cannot read the top chunk of %s" % arena.title, None)
    system, highest = arena.state["system_mem"], arena.state["max_system_mem"]
    aspace, writable, heaps = system, system, 1
    if not arena.is_main:
        chain = heaps_of(context.target, context.glibc, arena, heap_max, context.report, context.budget)
        chain = chain if traits.info_subheaps else chain[:1]
        aspace, writable, heaps = sum(heap.size_bytes for heap in chain), sum(heap.mprotect_size_bytes for heap in chain), len(chain)
    lines += [
        "</sizes>",
        *_write_totals(arena, fast_chunks, fast_bytes, rest, rest_bytes),
        *_write_system(system, highest, aspace, writable),
    ]
    if not arena.is_main and traits.info_subheaps:
        lines.append('<aspace type="subheaps" size="%d"/>' % heaps)
    return [*lines, "</heap>"], (fast_chunks, fast_bytes, rest, rest_bytes, system, highest, aspace, writable)


class NativeStats:
    """Figures of malloc_stats(3) and mallinfo2, without the 32-bit overflow of the first (malloc.c: int_mallinfo, __malloc_stats)."""

    def __init__(self, rows: Sequence[ArenaTotals], mp: LayoutView) -> None:
        self._rows, self._mp = rows, mp
        self._free = [sum(part or 0 for part in (row.free_bytes, row.fast_bytes, row.top_bytes)) for row in rows]
        """fordblks of each arena: bins, fastbins and tops."""
        self._system_bytes = sum(row.system_bytes or 0 for row in rows)

    @property
    def held_bytes(self) -> int:
        """Return the bytes taken from the kernel."""
        return self._system_bytes + self._mp["mmapped_mem"]

    def data(self) -> Dict[str, Any]:
        """Return mallinfo2's ten fields."""
        rows = self._rows
        return {
            "arena": self._system_bytes,  # from brk and in thread arenas: the sum of system_mem
            "ordblks": sum((row.free_chunks or 0) + 1 for row in rows),  # free chunks in bins, and one top for each arena
            "smblks": sum(row.fast_chunks or 0 for row in rows),
            "hblks": self._mp["n_mmaps"],
            "hblkhd": self._mp["mmapped_mem"],
            "usmblks": 0,
            "fsmblks": sum(row.fast_bytes or 0 for row in rows),
            "uordblks": self._system_bytes - sum(self._free),  # thread caches and overhead count as used here
            "fordblks": sum(self._free),
            "keepcost": sum(row.top_bytes or 0 for row in rows if row.kind == "main"),
        }

    def lines(self) -> Iterator[str]:
        """Yield malloc_stats(3)'s text."""
        used = self.held_bytes - sum(self._free)
        for row, free in zip(self._rows, self._free):
            yield from _write_stats("Arena %d:" % row.index, row.system_bytes or 0, (row.system_bytes or 0) - free)
        yield from _write_stats("Total (incl. mmap):", self.held_bytes, used)
        yield "max mmap regions = %10d" % self._mp["max_n_mmaps"]
        yield "max mmap bytes   = %10d" % self._mp["max_mmapped_mem"]


def _write_stats(title: str, system_bytes: int, used_bytes: int) -> Iterator[str]:
    yield title
    yield "system bytes     = %10d" % system_bytes
    yield "in use bytes     = %10d" % used_bytes
