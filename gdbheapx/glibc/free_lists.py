"""Free lists of a process followed in one call, whatever their kind: what they cost together is far less than one by one. What they show
are chunks that look used in memory and are not: members of thread caches and fastbins, and the thread caches' own structs."""

from array import array
from bisect import bisect_left, bisect_right
from typing import Callable, FrozenSet, List, NamedTuple, Optional, Sequence

from gdbheapx.glibc import codes
from gdbheapx.glibc.arenas import Arena
from gdbheapx.glibc.context import Context
from gdbheapx.glibc.memory import anonymous_ranges, below_stacks
from gdbheapx.kernel.common.records import ADDRESS_MASK
from gdbheapx.kernel.glibc.list_records import UNREAD, UNREADABLE, Followed, Lists, Rules
from gdbheapx.problems import Report
from gdbheapx.ranges import Range, subtract


class FreeLists:
    """Lists to follow. Whoever adds some keeps the number of the first."""

    def __init__(self, context: Context) -> None:
        self.context = context
        self.lists = Lists()
        self._largest_bytes = 0

    def add(self, kind: int, heads: Sequence[int], limit: int, largest_bytes: int = 0) -> int:
        """Adds lists of one kind, as in list_records.Lists; `largest_bytes`: of their chunks, where they are singly linked. Gives the first
        one's number."""
        first = len(self.lists)
        self.lists.add(kind, heads, limit)
        self._largest_bytes = max(self._largest_bytes, largest_bytes)
        return first

    def follow(self, arenas: Sequence[Arena], collect: bool = False) -> Followed:
        """Follows them all. Where time ran out that is reported, and the lists count as far as they were followed."""
        context = self.context
        rules = Rules(context.glibc.traits.safe_linking, self._largest_bytes, collect)
        ranges = anonymous_ranges(context.target)
        unused = sorted([*tops(context, arenas), *below_stacks(context.target, ranges, context.glibc.geometry.page_bytes)])
        ranges = subtract(ranges, unused)
        found = context.walker.follow(self.lists, rules, ranges)
        if found.cut:
            context.report(
                codes.LISTS_CUT,
                None,
                "the walk of the free lists did not finish: %s" % context.budget.reason,
                "the chunks reached so far are counted",
            )
        return self._told_apart(found) if UNREADABLE in found.problems else found

    def _told_apart(self, found: Followed) -> Followed:
        """A link that leads to where chunks may lie is not damaged because they were not read: they are in swap, or not in the core."""
        ranges = anonymous_ranges(self.context.target)
        pairs = zip(found.problems, found.ats)
        return found._replace(problems=[UNREAD if one == UNREADABLE and is_within(ranges, at) else one for one, at in pairs])


def is_within(ranges: Sequence[Range], address: int) -> bool:
    """One of these sorted ranges has the address."""
    place = bisect_right(ranges, (address, ADDRESS_MASK)) - 1
    return place >= 0 and address < ranges[place][1]


def tops(context: Context, arenas: Sequence[Arena]) -> List[Range]:
    """The whole pages of the top chunks, sorted: no list has anything there, and much of it was often never touched."""
    page, word = context.glibc.geometry.page_bytes, context.glibc.geometry.word_bytes
    found = []
    for arena in arenas:
        field = context.target.read_prefix(arena.top + word, word) if arena.top else b""
        size = int.from_bytes(field, context.target.byte_order) & ~7
        start, end = -(-(arena.top + 4 * word) // page) * page, (arena.top + size) // page * page
        if start < end and size <= arena.state["system_mem"]:
            found.append((start, end))
    return sorted(found)


KIND_BITS = 7

MAX_REPORTED = 8
"""Chunks on two lists that are named; the rest is counted."""


class CachedChunks(NamedTuple):
    """All special chunks of one glibc, as the kernel takes them."""

    chunks: Sequence[int]
    """array('Q') of chunk | SPECIAL_x, sorted, each chunk once."""
    mapped: FrozenSet[int]
    """Mapped chunks in thread caches: in no arena (2.43)."""

    def between(self, low: int, high: int) -> Sequence[int]:
        """array('Q') of the chunk addresses in [low, high)."""
        part = self.chunks[bisect_left(self.chunks, low) : bisect_left(self.chunks, high)]
        return array("Q", [item & ~KIND_BITS for item in part])


def gather(found: Followed, about: Callable[[int], Optional[Report]]) -> CachedChunks:
    """The special chunks, sorted; a chunk that stands on two lists (a double free) is reported and kept once.

    `about`: whom to report what is wrong with a chunk; None where nobody wants to know.
    """
    told = [(chunk, report) for chunk in found.twice for report in [about(chunk)] if report is not None]
    for chunk, report in told[:MAX_REPORTED]:
        report(codes.LISTED_TWICE, chunk, "chunk is on two free lists (freed twice, or a list is damaged)", None)
    if len(told) > MAX_REPORTED:
        told[-1][1](codes.LISTED_TWICE, None, "%d more chunks are on two free lists" % (len(told) - MAX_REPORTED), None)
    return CachedChunks(found.members, frozenset(found.mapped))
