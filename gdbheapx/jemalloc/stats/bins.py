"""What each bin of an arena counts: bin_s.stats, over the shards of a bin together."""

from typing import Any, Dict, List, Optional, Sequence

from gdbheapx.errors import Unreadable
from gdbheapx.jemalloc import codes
from gdbheapx.jemalloc.context import Context
from gdbheapx.jemalloc.detection import calibrate
from gdbheapx.jemalloc.heap import mutexes
from gdbheapx.layout.view import View

COUNTERS = (
    ("nmalloc", "nmalloc"),
    ("ndalloc", "ndalloc"),
    ("curregs", "curregs"),
    ("nrequests", "nrequests"),
    ("nfills", "nfills"),
    ("nflushes", "nflushes"),
    ("nreslabs", "reslabs"),
    ("curslabs", "curslabs"),
    ("nonfull_slabs", "nonfull_slabs"),
    ("nslabs", "nslabs"),
)
"""Key of malloc_stats_print -> member of bin_stats_s; `nslabs` stands in its text alone."""
GAP_BYTES = 1 << 16
"""Bins closer than this are read at once with what lies between them."""

Row = Dict[str, Any]


def read(context: Context, arena: View) -> List[Row]:
    """One row per bin, by szind. Unreadable if the bins cannot be found; one that cannot be read is reported, its figures None."""
    addresses = calibrate.bin_addresses(context.target, context.symbols, context.types, context.geometry.bins, arena)
    struct = calibrate.bin_struct(context.types)
    views = _views(context, struct, sorted(one for shards in addresses for one in shards))
    lock = "lock" if context.types.place(struct, "lock") is not None else "mtx"
    found = []
    for szind, shards in enumerate(addresses):
        known = [views.get(one) for one in shards]
        if None in known:
            context.report(
                codes.STATISTICS_UNREADABLE,
                shards[known.index(None)],
                "cannot read bin %d of the arena at 0x%x" % (szind, arena.address),
                "its figures are missing here",
            )
        found.append(_row([one for one in known if one is not None] if None not in known else [], lock))
    return found


def _row(shards: Sequence[View], lock: str) -> Row:
    row: Row = {}
    for key, member in COUNTERS:
        if shards and not shards[0].has("stats." + member):
            continue  # nonfull_slabs came with 5.2.0
        row[key] = sum(one["stats." + member] for one in shards) if shards else None
    row["mutex"] = mutexes.merged(mutexes.counters(one, lock) for one in shards) if shards else {key: None for key, _ in mutexes.COUNTERS}
    return row


def _views(context: Context, struct: str, addresses: Sequence[int]) -> Dict[int, View]:
    """The structs at these sorted addresses; those that cannot be read are missing."""
    size, found = context.types.size_bytes(struct), {}
    at = 0
    while at < len(addresses):
        end = at
        while end + 1 < len(addresses) and addresses[end + 1] - addresses[end] <= GAP_BYTES:
            end += 1
        data = _read(context, addresses[at], addresses[end] + size - addresses[at])
        for one in addresses[at : end + 1]:
            part = data[one - addresses[at] : one - addresses[at] + size]
            if len(part) == size:
                found[one] = View(context.types, struct, one, part, context.geometry.little_endian)
        at = end + 1
    return found


def _read(context: Context, address: int, size_bytes: int) -> bytes:
    try:
        return context.target.read(address, size_bytes)
    except Unreadable:
        return context.target.read_prefix(address, size_bytes)


def total(rows: Sequence[Row], key: str) -> Optional[int]:
    """Sum over all bins; None if one is not known or this build counts no such thing."""
    values = [row.get(key) for row in rows]
    return None if None in values or not values else sum(values)  # type: ignore[arg-type]
