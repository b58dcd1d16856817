"""Single chunks against their neighbours, their bin, their list and their arena: what the kernel's pass over them found, named."""

from typing import Dict, List, NamedTuple, Optional, Sequence, Set

from gdbheapx.allocators.rules import Suspect
from gdbheapx.glibc.bins import CachedChunks
from gdbheapx.glibc.check.findings import Findings
from gdbheapx.glibc.context import ArenaWalk, Context
from gdbheapx.glibc.layouts import align_chunk
from gdbheapx.kernel.glibc import check_binding  # noqa: F401  (before a process is stopped for it)
from gdbheapx.kernel.glibc import check_records as api
from gdbheapx.kernel.glibc.records import STATUS_FAST, STATUS_TCACHE, STATUS_TCACHE_STRUCT, STATUS_USED
from gdbheapx.model import Address

WORDS = {STATUS_USED: "used", STATUS_TCACHE: "tcache", STATUS_FAST: "fast", STATUS_TCACHE_STRUCT: "overhead"}
"""Statuses of chunks into which somebody writes, or wrote."""


class Binned(NamedTuple):
    """What the bins hold."""

    members: Sequence[int]
    """Of all arenas, sorted."""
    known: Set[int]
    """Indexes of arenas whose bins are whole."""
    unsorted: Set[int]
    """Chunks in unsorted bins; filled where something is wrong with a chunk."""


class Rows(NamedTuple):
    """What the pass found."""

    rows: Sequence[api.Broken]
    stops: Dict[int, api.Broken]
    """Where each region ended."""
    counts: Sequence[int]


def regions(context: Context, walks: Sequence[ArenaWalk], known: Set[int]) -> List[api.Checked]:
    """Every run of chunks that was walked."""
    found = []
    for walk in walks:
        firsts = {heap.region(context.glibc, 0).begin for heap in walk.heaps} or {_first_of_main(context)}
        own = api.REGION_MAIN * walk.arena.is_main | api.REGION_BINS_KNOWN * (walk.arena.index in known)
        found += [api.Checked(region, own | api.REGION_FIRST * (region.begin in firsts)) for region, _ in walk.runs]
    return found


def _first_of_main(context: Context) -> int:
    return align_chunk(context.glibc.read_mp(context.target)["sbrk_base"], context.glibc.geometry)


def look(context: Context, walks: Sequence[ArenaWalk], listed: CachedChunks, binned: Binned) -> Rows:
    """One pass over all chunks."""
    found = context.walker.check(regions(context, walks, binned.known), listed.chunks, binned.members)
    stops = {row.address: row for row in found.rows if row.rule == api.BROKEN_STOP}
    return Rows([row for row in found.rows if row.rule != api.BROKEN_STOP], stops, found.counts)


def suspect(context: Context, row: Optional[api.Broken]) -> Optional[Suspect]:
    """The block before the damaged header, if it is one that somebody writes into."""
    if row is None or not row.previous or row.previous_status not in WORDS:
        return None
    address = Address(row.previous + 2 * context.glibc.geometry.word_bytes)
    return Suspect(address, row.address - row.previous, WORDS[row.previous_status])


def _itself(context: Context, row: api.Broken, status: str) -> Suspect:
    """The header behind the chunk is damaged: the chunk is the one that ends there."""
    return Suspect(Address(row.address + 2 * context.glibc.geometry.word_bytes), row.value, status)


def tell(context: Context, found: Findings, rows: Rows, binned: Binned) -> None:
    """Each row as a broken rule."""
    for row in rows.rows:
        before, is_unsorted = suspect(context, row), row.address in binned.unsorted
        at = row.address
        if row.rule == api.BROKEN_PREV_SIZE:
            what = "a free chunk of this size must have it repeated behind it; 0x%x is there" % row.value
            found.add("unsorted-prev-size" if is_unsorted else "prev-size", at, what, before)
        elif row.rule == api.BROKEN_FREE_NEIGHBOURS:
            found.add("free-neighbours", at, "a free chunk directly follows the free chunk at 0x%x" % row.value, None)
        elif row.rule == api.BROKEN_NOT_BINNED:
            what = "the next chunk says that this chunk is free, but no bin holds it"
            found.add("free-not-in-bin", at, what, _itself(context, row, "used"))
        elif row.rule == api.BROKEN_BINNED_USED:
            what = "a bin holds this chunk, but the next chunk says that it is in use"
            found.add("unsorted-prev-inuse" if is_unsorted else "bin-entry-in-use", at, what, None)
        elif row.rule == api.BROKEN_BINNED_ASTRAY:
            found.add("bin-entry-not-a-chunk", at, "a bin holds this address, but no chunk begins here", None)
        elif row.rule == api.BROKEN_LISTED_FREE:
            what = "this chunk is on a thread cache's or fastbin's list, but the next chunk says that it is free: freed twice, or overrun"
            found.add("double-free", at, what, _itself(context, row, "tcache"), is_cache=True)
        elif row.rule == api.BROKEN_LISTED_ASTRAY:
            what = "a thread cache or fastbin holds this address, but no chunk begins here"
            found.add("listed-not-a-chunk", at, what, None, is_cache=True)
        elif row.rule == api.BROKEN_NON_MAIN:
            wrong = "has" if row.value & 4 else "lacks"
            found.add("arena-bit", at, "the size field 0x%x %s the bit NON_MAIN_ARENA, against its arena" % (row.value, wrong), before)
        elif row.rule == api.BROKEN_FREE_FLAGS:
            found.add("free-arena-bit", at, "the size field 0x%x of a free chunk has the bit NON_MAIN_ARENA" % row.value, before)
        elif row.rule == api.BROKEN_FIRST:
            found.add("first-chunk", at, "the first chunk of a heap says that the chunk before it is free", None)
