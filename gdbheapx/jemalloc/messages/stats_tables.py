"""The tables of malloc_stats_print's text: one function each, with its columns' names and widths (stats.c)."""

from typing import Any, Callable, Dict, Iterator, List, NamedTuple, Optional, Sequence, Tuple

from gdbheapx.columns import add
from gdbheapx.jemalloc.records import PrintForm
from gdbheapx.jemalloc.stats.arena import MEMORY

Figures = Dict[str, Any]
Cells = Sequence[Tuple[Any, int]]
"""(value, width); a negative width stands to the left."""

GAP = " " * 21 + "---"
"""Stands for rows in which nothing is."""
RATE = "(#/sec)"


def line(cells: Cells) -> str:
    """One row."""
    parts = []
    for value, width in cells:
        text = "-" if value is None else str(value)
        parts.append(text.ljust(-width) if width < 0 else text.rjust(width))
    return "".join(parts)


def rate(value: Optional[int], uptime_ns: Optional[int]) -> Optional[int]:
    """Per second of uptime, as rate_per_second rounds; None where the uptime is not known."""
    if value is None or uptime_ns is None:
        return None
    if uptime_ns == 0 or value == 0:
        return 0
    return value if uptime_ns < 10**9 else value // (uptime_ns // 10**9)


class Column(NamedTuple):
    """One column, and its rate behind it."""

    key: str
    """Of the figure."""
    width: int
    rate_width: int = 0
    """0: there is no rate."""
    title: Optional[str] = None
    """None: as the key."""


NAME = Column("name", -21, title="")
MUTEX_COLUMNS = (
    Column("num_ops", 16, 8, "n_lock_ops"),
    Column("num_wait", 16, 8, "n_waiting"),
    Column("num_spin_acq", 16, 8, "n_spin_acq"),
    Column("num_owner_switch", 16, 8, "n_owner_switch"),
    Column("total_wait_time", 16, 10, "total_wait_ns"),
    Column("max_wait_time", 16, title="max_wait_ns"),
    Column("max_num_thds", 12, title="max_n_thds"),
)


def _line(columns: Sequence[Column], figure: Callable[[Column], Any], rate_of: Callable[[Column], Any]) -> str:
    cells: List[Tuple[Any, int]] = []
    for column in columns:
        cells += [(figure(column), column.width), *([(rate_of(column), column.rate_width)] if column.rate_width else ())]
    return line(cells)


def _header(columns: Sequence[Column]) -> str:
    return _line(columns, lambda column: column.key if column.title is None else column.title, lambda column: RATE)


def _row(columns: Sequence[Column], row: Figures, uptime_ns: Optional[int] = None) -> str:
    return _line(columns, lambda column: row[column.key], lambda column: rate(row[column.key], uptime_ns))


def mutexes(found: Dict[str, Figures], uptime_ns: Optional[int]) -> Iterator[str]:
    """Locks by name."""
    columns = (NAME, *MUTEX_COLUMNS)
    yield _header(columns)
    for name, row in found.items():
        yield _row(columns, {**row, "name": name}, uptime_ns)


def decaying(arena: Figures) -> Iterator[str]:
    """`decaying:  time  npages  sweeps  madvises  purged`."""
    yield line([("decaying:", 9), ("time", 6), ("npages", 13), ("sweeps", 13), ("madvises", 13), ("purged", 13)])
    for state in ("dirty", "muzzy"):
        time = arena["%s_decay_ms" % state]
        shown = "N/A" if time is not None and time < 0 else time
        rest = [(arena["%s_%s" % (state, key)], 13) for key in ("npurge", "nmadvise", "purged")]
        yield line([(state + ":", 9), (shown, 6), (arena["p" + state], 13), *rest])


def counts(arena: Figures, uptime_ns: Optional[int], rate_width: int) -> Iterator[str]:
    """Small and large allocations and their sum."""
    columns = (
        *(NAME, Column("allocated", 16), Column("nmalloc", 16, rate_width), Column("ndalloc", 16, rate_width)),
        *(Column("nrequests", 16, 10), Column("nfills", 16, 10, "nfill"), Column("nflushes", 16, 10, "nflush")),
    )
    yield _header(columns)
    both = {key: add(arena[kind][key] for kind in ("small", "large")) for key in arena["small"]}
    for name, row in (("small:", arena["small"]), ("large:", arena["large"]), ("total:", both)):
        yield _row(columns, {**row, "name": name}, uptime_ns)


def memory(arena: Figures, page: int) -> Iterator[str]:
    """Bytes by kind."""
    active = arena["pactive"]
    yield line([("", -21), ("", 16)])
    yield line([("active:", -21), (None if active is None else active * page, 16)])
    for key in MEMORY:
        if key in arena:
            yield line([(key + ":", -21), (arena[key], 16)])


def utilization(used: Optional[int], available: Optional[int]) -> Optional[str]:
    """Share of regions in use: cut, not rounded, to three digits (get_rate_str)."""
    if used is None or available is None:
        return None
    if available == 0:
        return "1"
    if used > available:
        return " race"
    thousandths = used * 1000 // available
    return "1" if thousandths >= 1000 else "0.%03d" % thousandths


PROF_COLUMNS = (
    *(Column("prof_live_requested", 21), Column("prof_live_count", 17)),
    *(Column("prof_accum_requested", 21), Column("prof_accum_count", 17)),
)


def _profiled(rows: Sequence[Figures]) -> Sequence[Column]:
    return PROF_COLUMNS if rows and "prof_live_count" in rows[0] else ()


def _with_gaps(title: str, columns: Sequence[Column], rows: Iterator[Tuple[bool, str]], skip: bool = True) -> Iterator[str]:
    """A header, then (empty, row): a run of empty rows shows as a dashed line, behind it; with `skip` without the rows."""
    yield title + _header(columns)[len(title) :]
    empty = False
    for is_empty, row in rows:
        if empty and not is_empty:
            yield GAP
        empty = is_empty
        if not (empty and skip):
            yield row
    if empty:
        yield GAP


SIZE = (Column("size", 20), Column("ind", 4))


def bins(rows: Sequence[Figures], infos: Sequence[Figures], page: int, uptime_ns: Optional[int], form: PrintForm) -> Iterator[str]:
    """`bins:`: one row per small size class."""
    width = form.bin_width
    columns = (
        *(*SIZE, Column("allocated", width), Column("nmalloc", width, 8), Column("ndalloc", width, 8)),
        *(Column("nrequests", width if width == 13 else width + 1, 10), *_profiled(rows)),
        *(Column("nshards", 9), Column("curregs", 13), Column("curslabs", 13), Column("nonfull_slabs", 15)),
        *(Column("regs", 5), Column("pgs", 4), Column("util", 7), Column("nfills", 13, 8), Column("nflushes", 13, 8)),
        *(Column("nslabs", 13), Column("nreslabs", 13, 8), *MUTEX_COLUMNS),
    )

    def cells(szind: int, row: Figures, info: Figures) -> str:
        regions, slabs, size = row["curregs"], row["curslabs"], info["size"]
        more = {
            "size": size,
            "ind": szind,
            "allocated": None if regions is None else regions * size,
            "nshards": info.get("nshards", 1),
            "nonfull_slabs": row.get("nonfull_slabs"),
            "regs": info["nregs"],
            "pgs": info["slab_size"] // page,
            "util": utilization(regions, None if slabs is None else slabs * info["nregs"]),
        }
        return _row(columns, {**row, **more, **row["mutex"]}, uptime_ns)

    classes = enumerate(zip(rows, infos))
    lines = ((row["nslabs"] == 0 and not row.get("prof_accum_count"), cells(szind, row, info)) for szind, (row, info) in classes)
    yield from _with_gaps("bins:", columns, lines, form.skips_unused_bins)


def large(rows: Sequence[Figures], sizes: Sequence[Figures], nbins: int, uptime_ns: Optional[int]) -> Iterator[str]:
    """`large:`: one row per large size class that was ever asked for."""
    counted = (Column(name, 13, 8) for name in ("nmalloc", "ndalloc", "nrequests"))
    columns = (*SIZE, Column("allocated", 13), *counted, *_profiled(rows), Column("curlextents", 13))

    def cells(place: int, row: Figures, size: int) -> Tuple[bool, str]:
        extents = row["curlextents"]
        more = {"size": size, "ind": nbins + place, "allocated": None if extents is None else extents * size}
        return row["nrequests"] == 0, _row(columns, {**row, **more}, uptime_ns)

    yield from _with_gaps("large:", columns, (cells(place, row, info["size"]) for place, (row, info) in enumerate(zip(rows, sizes))))


def extents(rows: Sequence[Figures], sizes: Sequence[int]) -> Iterator[str]:
    """`extents:`: unused extents by page size class."""
    states = [state for state in ("dirty", "muzzy", "retained", "pinned") if rows and "n" + state in rows[0]]
    pairs = ((Column("n" + state, 13), Column(state + "_bytes", 13, title=state)) for state in (*states, "total"))
    columns = (*SIZE, *(one for pair in pairs for one in pair))

    def cells(place: int, row: Figures, size: int) -> Tuple[bool, str]:
        sums = {what % "total": add(row[what % state] for state in states) for what in ("n%s", "%s_bytes")}
        return sums["ntotal"] == 0, _row(columns, {**row, **sums, "size": size, "ind": place})

    yield from _with_gaps("extents:", columns, (cells(place, row, size) for place, (row, size) in enumerate(zip(rows, sizes))))


SLABS = ("npageslabs", "nactive", "ndirty")


def retained(row: Figures, pages_per_slab: Optional[int]) -> Optional[int]:
    """Pages of slabs that are no huge pages and neither active nor dirty."""
    values = [row["npageslabs_nonhuge"], row["nactive_nonhuge"], row["ndirty_nonhuge"]]
    if None in values or (pages_per_slab is None and values[0]):
        return None
    return int(values[0] * (pages_per_slab or 0) - values[1] - values[2])


def nonfull_slabs(rows: Sequence[Figures], sizes: Sequence[int], pages_per_slab: Optional[int]) -> Iterator[str]:
    """Page slabs by the size class of their largest free run."""
    kinds = [Column("%s_%s" % (name, kind), width) for kind, width in (("huge", 16), ("nonhuge", 20)) for name in SLABS]
    columns = (*SIZE, *kinds, Column("nretained_nonhuge", 20))

    def cells(place: int, row: Figures, size: int) -> Tuple[bool, str]:
        more = {"size": size, "ind": place, "nretained_nonhuge": retained(row, pages_per_slab)}
        return row["npageslabs_huge"] == 0 and row["npageslabs_nonhuge"] == 0, _row(columns, {**row, **more})

    yield from _with_gaps("", columns, (cells(place, row, size) for place, (row, size) in enumerate(zip(rows, sizes))))
