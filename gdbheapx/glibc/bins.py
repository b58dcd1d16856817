"""Free lists of an arena: fastbins (singly linked) and bins 1 to 126 (doubly linked): unsorted, small, large."""

from typing import List, NamedTuple, Optional, Sequence, Set, Tuple

from gdbheapx.glibc.arenas import Arena, Report
from gdbheapx.glibc.detect import Glibc
from gdbheapx.glibc.geometry import NBINS, bin_range, fast_size
from gdbheapx.kernel.api import BinResult, ListResult
from gdbheapx.kernel.base import Kernel
from gdbheapx.model import BinRow
from gdbheapx.target.base import BulkSource

UNSORTED = 1
FIRST_LARGE = 64


class FastList(NamedTuple):
    """One non-empty fastbin."""

    index: int  # type: ignore[assignment]  # hides tuple.index, which nobody calls on a record
    members: Sequence[int]
    """Chunk addresses."""


class Bin(NamedTuple):
    """One non-empty bin."""

    index: int  # type: ignore[assignment]  # hides tuple.index, which nobody calls on a record
    found: BinResult

    @property
    def kind(self) -> str:
        """`unsorted`, `small` or `large`."""
        return "unsorted" if self.index == UNSORTED else "small" if self.index < FIRST_LARGE else "large"


def most_chunks(arena: Arena, glibc: Glibc) -> int:
    """No list of the arena can be longer than this: its size over MINSIZE."""
    return max(arena.state["system_mem"], arena.state["max_system_mem"]) % (1 << 48) // glibc.geometry.min_chunk_bytes + 1


def fast_lists(glibc: Glibc, kernel: Kernel, source: BulkSource, arena: Arena, report: Report) -> List[FastList]:
    """The non-empty fastbins; none where this release has no fastbins (2.43)."""
    if not arena.state.has("fastbinsY"):
        return []
    header = 2 * glibc.geometry.word_bytes
    lists = []
    for index, head in enumerate(arena.state.array("fastbinsY")):
        if head:
            result = kernel.collect_list(
                source, glibc.geometry, head, header, glibc.traits.safe_linking, most_chunks(arena, glibc), header
            )
            if result.problem:
                where, what = broken_link(result, arena.state.address_of("fastbinsY") + index * glibc.geometry.word_bytes)
                report(where, "fastbin %d of %s: %s" % (index, arena.title, what), "the chunks behind it count as used")
            lists.append(FastList(index, result.entries))
    return lists


def broken_link(result: ListResult, head: int) -> Tuple[int, str]:
    """(address of the entry that holds the bad link, what is wrong with it); `head`: where the first link stands."""
    holder = result.entries[-1] if len(result.entries) else head
    if result.problem != "too long":
        return holder, "the link leads to 0x%x, which is %s" % (result.at, result.problem)
    seen: Set[int] = set()
    for before, entry in zip([head, *result.entries], result.entries):
        if entry in seen:
            return before, "the list does not end: the link leads back to 0x%x" % entry
        seen.add(entry)
    return holder, "the list is longer than it can be"


def heads_used(arena: Arena, glibc: Glibc) -> List[int]:
    """Numbers of the bins that are not empty. Before the first malloc (up to 2.41) bins are all 0: none."""
    words = arena.state.array("bins")
    return [index for index in range(1, NBINS) if words[2 * index - 2] not in (0, header_of(arena, glibc, index))]


def header_of(arena: Arena, glibc: Glibc, index: int) -> int:
    """bin_at(m, i): the address that stands for bin i as if it were a chunk (malloc.c)."""
    word = glibc.geometry.word_bytes
    return arena.state.address_of("bins") + 2 * (index - 1) * word - 2 * word


def walk_bins(glibc: Glibc, kernel: Kernel, source: BulkSource, arena: Arena, report: Optional[Report], members: bool = False) -> List[Bin]:
    """Every non-empty bin followed along fd. Costs a random read per member: totals do not need it."""
    bins = []
    for index in heads_used(arena, glibc):
        result = kernel.walk_bin(source, glibc.geometry, header_of(arena, glibc, index), most_chunks(arena, glibc), members)
        if result.problem and report is not None:
            where, what = _broken_bin(glibc, kernel, source, arena, index)
            report(where, "bin %d of %s: %s" % (index, arena.title, what), "`heapx bins` counts what stands before it")
        bins.append(Bin(index, result))
    return bins


def _broken_bin(glibc: Glibc, kernel: Kernel, source: BulkSource, arena: Arena, index: int) -> Tuple[int, str]:
    """(address of the chunk with the bad link, what is wrong with it)."""
    header = header_of(arena, glibc, index)
    result = kernel.walk_bin(source, glibc.geometry, header, most_chunks(arena, glibc), want_members=True)
    members = result.members or ()
    if result.problem in ("unaligned", "unreadable"):
        return (members[-1] if len(members) else header), "fd leads to 0x%x, which is %s" % (result.at, result.problem)
    if result.problem == "too long":
        where, what = broken_link(ListResult(members, "too long", result.at), header)
        return where, what
    return result.at, "corrupted double-linked list: %s" % result.problem


def links_agree(arena: Arena, glibc: Glibc, free_sum: int, fd_sum: int, bk_sum: int) -> bool:
    """The bins hold exactly the free chunks, as far as sums can tell: each node is the fd of one node and the bk of one.

    Sums over the free chunks come from the walk; the bin headers are added here. Any single wrong link shows.
    """
    if not arena.top:
        return True
    words = arena.state.array("bins")
    headers = sum(header_of(arena, glibc, index) for index in range(1, NBINS))
    mask = (1 << 64) - 1
    nodes = (free_sum + headers) & mask
    return nodes == (fd_sum + sum(words[0::2])) & mask == (bk_sum + sum(words[1::2])) & mask


def rows(glibc: Glibc, arena: Arena, fast: Sequence[FastList], bins: Sequence[Bin]) -> List[BinRow]:
    """What `bins` shows of one arena."""
    found = []
    for item in fast:
        size = fast_size(item.index, glibc.geometry)
        found.append(BinRow(glibc.id, arena.index, item.index, "fast", size, size, len(item.members), size * len(item.members)))
    for entry in bins:
        low, high = (None, None) if entry.index == UNSORTED else bin_range(entry.index, glibc.geometry)
        found.append(BinRow(glibc.id, arena.index, entry.index, entry.kind, low, high, entry.found.chunks, entry.found.bytes))
    return found
