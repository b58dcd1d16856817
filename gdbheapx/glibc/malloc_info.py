"""malloc_info(0, fp)'s XML made from memory, byte for byte (malloc.c: __malloc_info).

mallinfo2's ten fields, malloc_stats' figures, from the totals of the arenas, and its text (malloc.c: int_mallinfo, __malloc_stats).
"""

from functools import partial
from typing import Any, Dict, Iterator, List, NamedTuple, Sequence, Tuple

from gdbheapx.errors import HeapxError, UnreadableMemory
from gdbheapx.glibc import bins, codes
from gdbheapx.glibc.arenas import Arena, heaps_of, read_ring
from gdbheapx.glibc.context import Context
from gdbheapx.glibc.detect import heap_max_bytes
from gdbheapx.glibc.records import ArenaTotals
from gdbheapx.hints import hint_command
from gdbheapx.layout.view import LayoutView
from gdbheapx.problems import MEMORY_UNREADABLE


class _Sums(NamedTuple):

    fast_chunks: int
    fast_bytes: int
    rest_chunks: int
    rest_bytes: int
    system_bytes: int
    max_system_bytes: int
    aspace_bytes: int
    mprotect_bytes: int


def write_malloc_info(context: Context) -> str:
    """The document. What cannot be followed is reported; a row then counts what stands before the damage."""
    target, glibc = context.target, context.glibc
    arenas = read_ring(target, glibc, context.report, context.budget)
    if not arenas:
        raise HeapxError(
            "cannot read main_arena",
            "use `%s` to see what is still readable" % hint_command("arenas"),
            glibc.main_arena.address,
            MEMORY_UNREADABLE,
        )
    heap_max = heap_max_bytes(target, glibc, [arena.address for arena in arenas if not arena.is_main])
    known = bins.each_arena(context, arenas, partial(_write_heap, heap_max=heap_max))
    lines = ['<malloc version="1">']
    for number, (rows, _) in known.items():
        lines += ['<heap nr="%d">' % number, *rows]
    sums = [sum_of for _, sum_of in known.values()]
    total = _Sums(*[sum(column) for column in zip(*sums)])
    if arenas[0].state.has("fastbinsY"):
        lines.append('<total type="fast" count="%d" size="%d"/>' % (total.fast_chunks, total.fast_bytes))
    mp = glibc.read_mp(target)
    lines += [
        '<total type="rest" count="%d" size="%d"/>' % (total.rest_chunks, total.rest_bytes),
        '<total type="mmap" count="%d" size="%d"/>' % (mp["n_mmaps"], mp["mmapped_mem"]),
        '<system type="current" size="%d"/>' % total.system_bytes,
        '<system type="max" size="%d"/>' % total.max_system_bytes,
        '<aspace type="total" size="%d"/>' % total.aspace_bytes,
        '<aspace type="mprotect" size="%d"/>' % total.mprotect_bytes,
        "</malloc>",
    ]
    return "\n".join(lines) + "\n"


def _write_heap(
    context: Context, arena: Arena, fast: Sequence[bins.FastList], others: Sequence[bins.Bin], heap_max: int
) -> "tuple[List[str], _Sums]":
    glibc = context.glibc
    lines = ["<sizes>"]
    fast_rows, fast_chunks, fast_bytes = _fast_rows(context, fast)
    lines += fast_rows
    row = '<%s from="%d" to="%d" total="%d" count="%d"/>'
    sized = [item for item in others if item.index != bins.UNSORTED and item.chunks]
    unsorted = [item for item in others if item.index == bins.UNSORTED and item.chunks]
    for name, prefix, items in (("size", glibc.traits.info_size_prefix, sized), ("unsorted", glibc.traits.info_unsorted_prefix, unsorted)):
        lines += [prefix + row % (name, item.raw_min, item.raw_max, item.raw_bytes, item.chunks) for item in items]
    lines.append("</sizes>")
    top = _top_size(context, arena) if glibc.traits.info_counts_top else 0
    rest_chunks = sum(item.chunks for item in others) + (1 if glibc.traits.info_counts_top else 0)
    rest_bytes = sum(item.raw_bytes for item in others) + top
    system, highest = arena.state["system_mem"], arena.state["max_system_mem"]
    if arena.state.has("fastbinsY"):
        lines.append('<total type="fast" count="%d" size="%d"/>' % (fast_chunks, fast_bytes))
    lines += [
        '<total type="rest" count="%d" size="%d"/>' % (rest_chunks, rest_bytes),
        '<system type="current" size="%d"/>' % system,
        '<system type="max" size="%d"/>' % highest,
    ]
    aspace, writable, heaps = _sum_aspace(context, arena, heap_max)
    lines += ['<aspace type="total" size="%d"/>' % aspace, '<aspace type="mprotect" size="%d"/>' % writable]
    if not arena.is_main and glibc.traits.info_subheaps:
        lines.append('<aspace type="subheaps" size="%d"/>' % heaps)
    lines.append("</heap>")
    return lines, _Sums(fast_chunks, fast_bytes, rest_chunks, rest_bytes, system, highest, aspace, writable)


def _fast_rows(context: Context, fast: Sequence[bins.FastList]) -> "tuple[List[str], int, int]":
    """Rows of the fastbins; a row's size is that of its first chunk."""
    geometry, prefix = context.glibc.geometry, context.glibc.traits.info_size_prefix
    lines, chunks, total = [], 0, 0
    for item in fast:
        if not item.chunks:
            continue
        try:
            size = context.target.read_word(item.first + geometry.word_bytes) & ~7
        except UnreadableMemory as problem:
            context.report(codes.CHUNK_UNREADABLE, problem.address, "fastbin %d: cannot read its first chunk" % item.index, None)
            continue
        count = item.chunks
        values = (size - (geometry.alignment_bytes - 1), size, size * count, count)
        lines.append(prefix + '<size from="%d" to="%d" total="%d" count="%d"/>' % values)
        chunks += count
        total += size * count
    return lines, chunks, total


def _top_size(context: Context, arena: Arena) -> int:
    """chunksize(top); an arena that was never used has an initial top of size 0."""
    if not arena.top:
        return 0
    try:
        return context.target.read_word(arena.top + context.glibc.geometry.word_bytes) & ~7
    except UnreadableMemory as problem:
        context.report(codes.TOP_UNREADABLE, problem.address, "cannot read the top chunk of %s" % arena.title, None)
        return 0


def _sum_aspace(context: Context, arena: Arena, heap_max: int) -> "tuple[int, int, int]":
    """(total, mprotect, number of heaps): the main arena's system_mem twice, else sums over the heaps."""
    if arena.is_main:
        system = arena.state["system_mem"]
        return system, system, 1
    heaps = heaps_of(context.target, context.glibc, arena, heap_max, context.report, context.budget)
    if not context.glibc.traits.info_subheaps:
        heaps = heaps[:1]
    return sum(heap.size_bytes for heap in heaps), sum(heap.mprotect_size_bytes for heap in heaps), len(heaps)


class Mallinfo2(NamedTuple):
    """struct mallinfo2, field by field."""

    arena: int
    """Bytes from brk and in thread arenas: the sum of system_mem."""
    ordblks: int
    """Free chunks in bins, and one top for each arena."""
    smblks: int
    """Chunks in fastbins."""
    hblks: int
    """Mapped chunks."""
    hblkhd: int
    """Bytes in them."""
    usmblks: int
    """Always 0."""
    fsmblks: int
    """Bytes in fastbins."""
    uordblks: int
    """arena - fordblks: thread caches and overhead count as used here."""
    fordblks: int
    """Bytes free: bins, fastbins and tops."""
    keepcost: int
    """The main arena's top."""


class StatsArena(NamedTuple):
    """An arena's block of malloc_stats."""

    index: int  # type: ignore[assignment]  # hides tuple.index, which nobody calls on a record
    system_bytes: int
    in_use_bytes: int


def sum_fordblks(row: ArenaTotals) -> int:
    """fordblks of one arena."""
    return (row.free_bytes or 0) + (row.fast_bytes or 0) + (row.top_bytes or 0)


def compute_mallinfo2(rows: Sequence[ArenaTotals], mp: LayoutView) -> Mallinfo2:
    """The ten fields for all arenas."""
    system = sum(row.system_bytes or 0 for row in rows)
    free = sum(sum_fordblks(row) for row in rows)
    return Mallinfo2(
        arena=system,
        ordblks=sum((row.free_chunks or 0) + 1 for row in rows),
        smblks=sum(row.fast_chunks or 0 for row in rows),
        hblks=mp["n_mmaps"],
        hblkhd=mp["mmapped_mem"],
        usmblks=0,
        fsmblks=sum(row.fast_bytes or 0 for row in rows),
        uordblks=system - free,
        fordblks=free,
        keepcost=sum(row.top_bytes or 0 for row in rows if row.kind == "main"),
    )


def malloc_stats(rows: Sequence[ArenaTotals], mp: LayoutView) -> Tuple[List[StatsArena], StatsArena]:
    """malloc_stats(3)'s figures without its 32-bit overflow: one entry per arena, and the total including mmapped chunks."""
    arenas = [StatsArena(row.index, row.system_bytes or 0, (row.system_bytes or 0) - sum_fordblks(row)) for row in rows]
    mapped = mp["mmapped_mem"]
    total = StatsArena(-1, mapped + sum(a.system_bytes for a in arenas), mapped + sum(a.in_use_bytes for a in arenas))
    return arenas, total


class NativeStats(NamedTuple):
    """Figures of malloc_stats(3) and mallinfo2."""

    fields: Mallinfo2
    arenas: Sequence[StatsArena]
    total: StatsArena
    max_regions: int
    max_bytes: int

    @property
    def held_bytes(self) -> int:
        """Return the bytes taken from the kernel."""
        return self.total.system_bytes

    def data(self) -> Dict[str, Any]:
        """mallinfo2's ten fields."""
        return self.fields._asdict()

    def lines(self) -> Iterator[str]:
        """malloc_stats(3)'s text."""
        for arena in self.arenas:
            yield "Arena %d:" % arena.index
            yield "system bytes     = %10d" % arena.system_bytes
            yield "in use bytes     = %10d" % arena.in_use_bytes
        yield "Total (incl. mmap):"
        yield "system bytes     = %10d" % self.total.system_bytes
        yield "in use bytes     = %10d" % self.total.in_use_bytes
        yield "max mmap regions = %10d" % self.max_regions
        yield "max mmap bytes   = %10d" % self.max_bytes
