"""Free lists of a process followed in one call, whatever their kind: what they cost together is far less than one by one."""

from bisect import bisect_right
from typing import List, Sequence

from gdbheapx.glibc import codes
from gdbheapx.glibc.arenas import Arena
from gdbheapx.glibc.context import Context
from gdbheapx.glibc.memory import Range, anonymous_ranges, below_stacks, without
from gdbheapx.kernel.common.records import ADDRESS_MASK
from gdbheapx.kernel.glibc.list_records import UNREAD, UNREADABLE, Followed, Lists, Rules


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
        ranges = without(ranges, unused)
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
        size = int.from_bytes(field, "little" if context.glibc.geometry.little_endian else "big") & ~7
        start, end = -(-(arena.top + 4 * word) // page) * page, (arena.top + size) // page * page
        if start < end and size <= arena.state["system_mem"]:
            found.append((start, end))
    return sorted(found)
