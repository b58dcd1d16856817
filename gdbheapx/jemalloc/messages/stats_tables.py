"""The tables of malloc_stats_print's text: one function each, with its columns' names and widths (stats.c)."""

from typing import Any, Dict, Iterator, List, Optional, Sequence, Tuple

from gdbheapx.jemalloc.records import PrintForm

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


MUTEX_COLUMNS = (
    ("num_ops", "n_lock_ops", 16, 8),
    ("num_wait", "n_waiting", 16, 8),
    ("num_spin_acq", "n_spin_acq", 16, 8),
    ("num_owner_switch", "n_owner_switch", 16, 8),
    ("total_wait_time", "total_wait_ns", 16, 10),
    ("max_wait_time", "max_wait_ns", 16, 0),
    ("max_num_thds", "max_n_thds", 12, 0),
)
"""Key, title, width, width of the rate behind it."""


def _mutex_header() -> List[Tuple[Any, int]]:
    cells: List[Tuple[Any, int]] = []
    for _, title, width, rate_width in MUTEX_COLUMNS:
        cells += [(title, width), (RATE, rate_width)] if rate_width else [(title, width)]
    return cells


def _mutex_cells(row: Figures, uptime_ns: Optional[int]) -> List[Tuple[Any, int]]:
    cells: List[Tuple[Any, int]] = []
    for key, _, width, rate_width in MUTEX_COLUMNS:
        cells += [(row[key], width), (rate(row[key], uptime_ns), rate_width)] if rate_width else [(row[key], width)]
    return cells


def mutexes(found: Dict[str, Figures], uptime_ns: Optional[int]) -> Iterator[str]:
    """Locks by name."""
    yield line([("", -21), *_mutex_header()])
    for name, row in found.items():
        yield line([(name, -21), *_mutex_cells(row, uptime_ns)])


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
        ("nmalloc", "nmalloc", rate_width),
        ("ndalloc", "ndalloc", rate_width),
        ("nrequests", "nrequests", 10),
        ("nfill", "nfills", 10),
        ("nflush", "nflushes", 10),
    )
    header: List[Tuple[Any, int]] = [("", -21), ("allocated", 16)]
    for title, _, width in columns:
        header += [(title, 16), (RATE, width)]
    yield line(header)
    both = {key: _sum(arena[kind][key] for kind in ("small", "large")) for key in arena["small"]}
    for name, row in (("small:", arena["small"]), ("large:", arena["large"]), ("total:", both)):
        cells: List[Tuple[Any, int]] = [(name, -21), (row["allocated"], 16)]
        for _, key, width in columns:
            cells += [(row[key], 16), (rate(row[key], uptime_ns), width)]
        yield line(cells)


def _sum(values: Any) -> Optional[int]:
    known = list(values)
    return None if None in known else sum(known)


MEMORY = (
    "mapped",
    "retained",
    "base",
    "internal",
    "metadata_edata",
    "metadata_rtree",
    "metadata_thp",
    "tcache_bytes",
    "tcache_stashed_bytes",
    "resident",
    "abandoned_vm",
    "extent_avail",
)


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


PROF_COLUMNS = (("prof_live_requested", 21), ("prof_live_count", 17), ("prof_accum_requested", 21), ("prof_accum_count", 17))


def _profiled(rows: Sequence[Figures]) -> Sequence[Tuple[str, int]]:
    return PROF_COLUMNS if rows and "prof_live_count" in rows[0] else ()


def _with_gaps(title: str, header: Cells, rows: Iterator[Tuple[bool, str]], skip: bool = True) -> Iterator[str]:
    """A header, then (empty, row): a run of empty rows shows as a dashed line, behind it; with `skip` without the rows."""
    yield title + line(header)
    empty = False
    for is_empty, row in rows:
        if empty and not is_empty:
            yield GAP
        empty = is_empty
        if not (empty and skip):
            yield row
    if empty:
        yield GAP


def bins(rows: Sequence[Figures], infos: Sequence[Figures], page: int, uptime_ns: Optional[int], form: PrintForm) -> Iterator[str]:
    """`bins:`: one row per small size class."""
    width, request_width = form.bin_width, form.bin_width if form.bin_width == 13 else form.bin_width + 1
    extra = _profiled(rows)
    header: List[Tuple[Any, int]] = [
        ("size", 15),
        ("ind", 4),
        ("allocated", width),
        ("nmalloc", width),
        (RATE, 8),
        ("ndalloc", width),
        (RATE, 8),
    ]
    header += [
        ("nrequests", request_width),
        (RATE, 10),
        *extra,
        ("nshards", 9),
        ("curregs", 13),
        ("curslabs", 13),
        ("nonfull_slabs", 15),
        ("regs", 5),
        ("pgs", 4),
    ]
    header += [
        (" ", 1),
        ("util", 6),
        ("nfills", 13),
        (RATE, 8),
        ("nflushes", 13),
        (RATE, 8),
        ("nslabs", 13),
        ("nreslabs", 13),
        (RATE, 8),
        *_mutex_header(),
    ]

    def cells(szind: int, row: Figures, info: Figures) -> Cells:
        current, slabs = row["curregs"], row["curslabs"]
        found: List[Tuple[Any, int]] = [(info["size"], 20), (szind, 4), (None if current is None else current * info["size"], width)]
        for key, one, rate_width in (("nmalloc", width, 8), ("ndalloc", width, 8), ("nrequests", request_width, 10)):
            found += [(row[key], one), (rate(row[key], uptime_ns), rate_width)]
        found += [(row[key], one) for key, one in extra]
        found += [
            (info.get("nshards", 1), 9),
            (current, 13),
            (slabs, 13),
            (row.get("nonfull_slabs"), 15),
            (info["nregs"], 5),
            (info["slab_size"] // page, 4),
        ]
        available = None if slabs is None else slabs * info["nregs"]
        found += [(" ", 1), (utilization(current, available), 6)]
        for key in ("nfills", "nflushes"):
            found += [(row[key], 13), (rate(row[key], uptime_ns), 8)]
        found += [(row["nslabs"], 13), (row["nreslabs"], 13), (rate(row["nreslabs"], uptime_ns), 8)]
        return found + _mutex_cells(row["mutex"], uptime_ns)

    every = enumerate(zip(rows, infos))
    lines = ((row["nslabs"] == 0 and not row.get("prof_accum_count"), line(cells(szind, row, info))) for szind, (row, info) in every)
    yield from _with_gaps("bins:", header, lines, form.skips_unused_bins)


def large(rows: Sequence[Figures], sizes: Sequence[Figures], nbins: int, uptime_ns: Optional[int]) -> Iterator[str]:
    """`large:`: one row per large size class that was ever asked for."""
    extra = _profiled(rows)
    header: List[Tuple[Any, int]] = [("size", 14), ("ind", 4), ("allocated", 13)]
    for name in ("nmalloc", "ndalloc", "nrequests"):
        header += [(name, 13), (RATE, 8)]
    header += [*extra, ("curlextents", 13)]

    def cells(place: int, row: Figures, size: int) -> Cells:
        current = row["curlextents"]
        found: List[Tuple[Any, int]] = [(size, 20), (nbins + place, 4), (None if current is None else current * size, 13)]
        for name in ("nmalloc", "ndalloc", "nrequests"):
            found += [(row[name], 13), (rate(row[name], uptime_ns), 8)]
        return [*found, *((row[key], one) for key, one in extra), (current, 13)]

    every = enumerate(zip(rows, sizes))
    yield from _with_gaps(
        "large:", header, ((row["nrequests"] == 0, line(cells(place, row, size["size"]))) for place, (row, size) in every)
    )


def extents(rows: Sequence[Figures], sizes: Sequence[int]) -> Iterator[str]:
    """`extents:`: unused extents by page size class."""
    header: List[Tuple[Any, int]] = [("size", 12), ("ind", 4)]
    for state in ("dirty", "muzzy", "retained", "total"):
        header += [("n" + state, 13), (state, 13)]

    def cells(place: int, row: Figures, size: int) -> Tuple[bool, str]:
        states = ("dirty", "muzzy", "retained")
        total, total_bytes = _sum(row["n" + state] for state in states), _sum(row[state + "_bytes"] for state in states)
        found: List[Tuple[Any, int]] = [(size, 20), (place, 4)]
        for state in states:
            found += [(row["n" + state], 13), (row[state + "_bytes"], 13)]
        return total == 0, line([*found, (total, 13), (total_bytes, 13)])

    yield from _with_gaps("extents:", header, (cells(place, row, size) for place, (row, size) in enumerate(zip(rows, sizes))))


SLAB_COLUMNS = (
    ("npageslabs_huge", 16),
    ("nactive_huge", 16),
    ("ndirty_huge", 16),
    ("npageslabs_nonhuge", 20),
    ("nactive_nonhuge", 20),
    ("ndirty_nonhuge", 20),
)


def retained(row: Figures, pages_per_slab: Optional[int]) -> Optional[int]:
    """Pages of slabs that are no huge pages and neither active nor dirty."""
    values = [row["npageslabs_nonhuge"], row["nactive_nonhuge"], row["ndirty_nonhuge"]]
    if None in values or (pages_per_slab is None and values[0]):
        return None
    return int(values[0] * (pages_per_slab or 0) - values[1] - values[2])


def nonfull_slabs(rows: Sequence[Figures], sizes: Sequence[int], pages_per_slab: Optional[int]) -> Iterator[str]:
    """Page slabs by the size class of their largest free run."""
    header: Cells = [("size", 20), ("ind", 4), *SLAB_COLUMNS, ("nretained_nonhuge", 20)]

    def cells(place: int, row: Figures, size: int) -> Tuple[bool, str]:
        found = [(size, 20), (place, 4), *((row[key], width) for key, width in SLAB_COLUMNS), (retained(row, pages_per_slab), 20)]
        return row["npageslabs_huge"] == 0 and row["npageslabs_nonhuge"] == 0, line(found)

    yield from _with_gaps("", header, (cells(place, row, size) for place, (row, size) in enumerate(zip(rows, sizes))))
