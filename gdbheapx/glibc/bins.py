"""Free lists of an arena: fastbins (singly linked) and bins 1 to 126 (doubly linked): unsorted, small, large.

Free lists of a process followed in one call, whatever their kind: what they cost together is far less than one by one. What they show
are chunks that look used in memory and are not: members of thread caches and fastbins, and the thread caches' own structs.
"""

from array import array
from bisect import bisect_left, bisect_right
from typing import Any, Callable, Dict, FrozenSet, List, NamedTuple, Optional, Sequence

from gdbheapx.glibc import codes
from gdbheapx.glibc.arenas import Arena, Glibc
from gdbheapx.glibc.context import ArenaReports, ArenaWalk, Context, anonymous_ranges
from gdbheapx.glibc.layouts import NBINS, NSMALLBINS, bin_range, fast_size
from gdbheapx.glibc.records import BinRow
from gdbheapx.hints import hint_command
from gdbheapx.kernel.common.library import ADDRESS_MASK
from gdbheapx.kernel.glibc.lists import (
    BACK_LINK,
    BIN,
    CUT,
    FAST,
    UNREAD,
    UNREADABLE,
    NativeFollowedList,
    NativeFreeLists,
    NativeRules,
    describe_damage,
)
from gdbheapx.problems import PartialSink
from gdbheapx.ranges import Range
from gdbheapx.units import count_noun

KIND_BITS = 7
MAX_REPORTED = 8
"""Chunks on two lists that are named; the rest is counted."""
UNSORTED = 1


class FreeLists:
    """Lists to follow. Whoever adds some keeps the number of the first."""

    def __init__(self, context: Context) -> None:
        self.context = context
        self.lists = NativeFreeLists()

    def add(self, kind: int, heads: Sequence[int], limit: int) -> int:
        """Add lists of one kind, as NativeFreeLists.add does, and return the number of the first one."""
        first = len(self.lists)
        self.lists.add(kind, heads, limit)
        return first

    def follow(self, collect: bool = False) -> NativeFollowedList:
        """Follow them all. Where time ran out that is reported, and the lists count as far as they were followed."""
        context = self.context
        most = sum(end - start for start, end in anonymous_ranges(context.target)) // context.glibc.geometry.min_chunk_bytes
        followed = context.walker.follow(self.lists, NativeRules(context.glibc.traits.safe_linking, collect, most))
        if followed.cut:
            context.report(
                codes.LISTS_CUT,
                None,
                "the walk of the free lists did not finish: %s" % context.budget.reason,
                "the chunks reached so far are counted",
            )
        return self._told_apart(followed) if UNREADABLE in followed.problems else followed

    def _told_apart(self, followed: NativeFollowedList) -> NativeFollowedList:
        """A link that leads to where chunks may lie is not damaged because they were not read: they are in swap, or not in the core."""
        ranges = anonymous_ranges(self.context.target)
        pairs = zip(followed.problems, followed.ats)
        return followed._replace(problems=[UNREAD if problem == UNREADABLE and is_within(ranges, at) else problem for problem, at in pairs])


def is_within(ranges: Sequence[Range], address: int) -> bool:
    """Return whether one of these sorted ranges covers the address."""
    place = bisect_right(ranges, (address, ADDRESS_MASK)) - 1
    return place >= 0 and address < ranges[place][1]


class CachedChunks(NamedTuple):
    """Chunks that look used and are free: those of fastbins and thread caches."""

    chunks: Sequence[int]
    """array('Q') of chunk | SPECIAL_x, sorted, each chunk once."""
    mapped: FrozenSet[int]
    """Mapped chunks in thread caches: in no arena (2.43)."""

    def between(self, low: int, high: int) -> Sequence[int]:
        """array('Q') of the chunk addresses in [low, high)."""
        part = self.chunks[bisect_left(self.chunks, low) : bisect_left(self.chunks, high)]
        return array("Q", [item & ~KIND_BITS for item in part])


def gather_free_lists(followed: NativeFollowedList, about: Callable[[int], Optional[PartialSink]]) -> CachedChunks:
    """The special chunks, sorted; a chunk that stands on two lists (a double free) is reported and kept once.

    `about`: whom to report what is wrong with a chunk; None where nobody wants to know.
    """
    told = [(chunk, report) for chunk in followed.twice for report in [about(chunk)] if report is not None]
    for chunk, report in told[:MAX_REPORTED]:
        report(codes.LISTED_TWICE, chunk, "chunk is on two free lists (freed twice, or a list is damaged)", None)
    if len(told) > MAX_REPORTED:
        told[-1][1](codes.LISTED_TWICE, None, "%s on two free lists" % count_noun(len(told) - MAX_REPORTED, "more chunk"), None)
    return CachedChunks(followed.members, frozenset(followed.mapped))


class FastList(NamedTuple):
    """A fastbin that is not empty."""

    index: int  # type: ignore[assignment]  # hides tuple.index, which nobody calls on a record
    chunks: int
    first: int
    """Address of its first chunk."""
    cut: bool
    """Time ran out before its end: there are more chunks than these."""


class Bin(NamedTuple):
    """A bin that is not empty."""

    index: int  # type: ignore[assignment]  # hides tuple.index, which nobody calls on a record
    chunks: int
    bytes: int
    raw_bytes: int
    """Sum of the size fields with their flag bits, as the next two have them: malloc_info prints these."""
    raw_min: int
    raw_max: int
    cut: bool
    """As of FastList."""

    @property
    def kind(self) -> str:
        """`unsorted`, `small` or `large`."""
        return "unsorted" if self.index == UNSORTED else "small" if self.index < NSMALLBINS else "large"


def most_chunks(arena: Arena, glibc: Glibc) -> int:
    """No list of the arena can be longer than this: its size over MINSIZE."""
    return max(arena.state["system_mem"], arena.state["max_system_mem"]) % (1 << 48) // glibc.geometry.min_chunk_bytes + 1


class AskedFast(NamedTuple):
    """The fastbins of one arena among the lists asked for."""

    arena: Arena
    first: int
    heads: Sequence[int]


def ask_fast(lists: FreeLists, arena: Arena) -> AskedFast:
    """Adds the arena's fastbins, empty ones too; none where this release has no fastbins (2.43)."""
    heads = arena.state.numbers("fastbinsY") if arena.state.has("fastbinsY") else array("Q")
    return AskedFast(arena, lists.add(FAST, heads, most_chunks(arena, lists.context.glibc)), heads)


def fast_lists(glibc: Glibc, asked: AskedFast, followed: NativeFollowedList, report: PartialSink) -> List[FastList]:
    """The non-empty fastbins; a broken one is reported and counts up to where it breaks."""
    lists = []
    for index, head in enumerate(asked.heads):
        number = asked.first + index
        if not head:
            continue
        what = describe_damage(followed, number)
        if what is not None:
            holder = followed.lasts[number] or asked.arena.state.address_of("fastbinsY") + index * glibc.geometry.word_bytes
            code = codes.LIST_UNREAD if followed.problems[number] == UNREAD else codes.FASTBIN_BROKEN
            report(code, holder, "fastbin %d of %s: %s" % (index, asked.arena.title, what), "the chunks after it count as used")
        lists.append(FastList(index, followed.counts[number], head, followed.problems[number] == CUT))
    return lists


def list_bin_headers(arena: Arena, glibc: Glibc) -> Any:
    """bin_at(m, i) for bins 1 to 127: the addresses that stand for the bins as if they were chunks (malloc.c)."""
    word = glibc.geometry.word_bytes
    first = arena.state.address_of("bins") - 2 * word
    return array("Q", range(first, first + 2 * word * (NBINS - 1), 2 * word))


class AskedBins(NamedTuple):
    """The bins of one arena that are not empty, among the lists asked for."""

    arena: Arena
    first: int
    used: Sequence[int]
    """Numbers of the bins."""


def ask_bins(lists: FreeLists, arena: Arena) -> AskedBins:
    """Adds the arena's bins that are not empty. Before the first malloc (up to 2.41) bins are all 0: none."""
    own, heads = list_bin_headers(arena, lists.context.glibc), arena.state.numbers("bins")[0::2]
    used = [] if heads == own else [index for index, head, header in zip(range(1, NBINS), heads, own) if head not in (0, header)]
    first = lists.add(BIN, [own[index - 1] for index in used], most_chunks(arena, lists.context.glibc))
    return AskedBins(arena, first, used)


def collect_bins(context: Context, asked: AskedBins, followed: NativeFollowedList, report: Optional[PartialSink]) -> List[Bin]:
    """The bins that are not empty; a broken one is reported, unless `report` is None, and counts up to where it breaks."""
    lists = []
    for number, index in enumerate(asked.used, asked.first):
        what = describe_damage(followed, number)
        if what is not None and report is not None:
            header = list_bin_headers(asked.arena, context.glibc)[index - 1]
            where = followed.ats[number] if followed.problems[number] == BACK_LINK else followed.lasts[number] or header
            code = codes.LIST_UNREAD if followed.problems[number] == UNREAD else codes.BIN_BROKEN
            report(
                code,
                where,
                "bin %d of %s: %s" % (index, asked.arena.title, what),
                "`%s` counts the chunks before it" % hint_command("bins"),
            )
        figures = (followed.counts, followed.bytes, followed.raw_bytes, followed.raw_mins, followed.raw_maxs)
        lists.append(Bin._make([index, *[column[number] for column in figures], followed.problems[number] == CUT]))
    return lists


def walk_bins(context: Context, arenas: Sequence[Arena], report: Optional[PartialSink]) -> Dict[int, List[Bin]]:
    """The bins of some arenas, by arena index."""
    lists = FreeLists(context)
    asked = [ask_bins(lists, arena) for arena in arenas]
    followed = lists.follow()
    return {arena_bins.arena.index: collect_bins(context, arena_bins, followed, report) for arena_bins in asked}


def each_arena(context: Context, arenas: Sequence[Arena], make: Callable[..., Any]) -> Dict[int, Any]:
    """Return, by arena index, what `make` returns for (context, arena, its fastbins, its bins)."""
    lists, reports, made = FreeLists(context), ArenaReports(context), {}
    asked = [(arena, ask_fast(lists, arena), ask_bins(lists, arena)) for arena in arenas]
    followed = lists.follow()
    for arena, fast, others in asked:
        own = context._replace(report=reports.collect_for(arena))
        fastbins = fast_lists(context.glibc, fast, followed, own.report)
        made[arena.index] = make(own, arena, fastbins, collect_bins(own, others, followed, own.report))
        reports.tell(arena)
    return made


def collect_bin_members(context: Context, walk: ArenaWalk) -> Sequence[int]:
    """Chunk addresses in the arena's bins, sorted: places where a chain can be joined again after damage."""
    if walk.members is None:
        lists = FreeLists(context)
        ask_bins(lists, walk.arena)
        walk.members = lists.follow(collect=True).members
    return walk.members


def links_agree(arena: Arena, glibc: Glibc, free_sum: int, fd_sum: int, bk_sum: int) -> bool:
    """The bins hold exactly the free chunks, as far as sums can tell: each node is the fd of one node and the bk of one.

    Sums over the free chunks come from the walk; the bin headers are added here. Any single wrong link shows.
    """
    if not arena.top:
        return True
    words = arena.state.numbers("bins")
    mask = (1 << 64) - 1
    nodes = (free_sum + sum(list_bin_headers(arena, glibc))) & mask
    return bool(nodes == (fd_sum + sum(words[0::2])) & mask == (bk_sum + sum(words[1::2])) & mask)


def make_arena_bin_rows(context: Context, arena: Arena, fast: Sequence[FastList], others: Sequence[Bin]) -> List[BinRow]:
    """Return the rows of `bins` for one arena."""
    glibc, shown = context.glibc, []
    for item in fast:
        size = fast_size(item.index, glibc.geometry)
        chunks, bytes_ = (None, None) if item.cut else (item.chunks, size * item.chunks)
        shown.append(BinRow(glibc.id, arena.index, "fast", item.index, size, size, chunks, bytes_))
    for entry in others:
        low, high = (None, None) if entry.index == UNSORTED else bin_range(entry.index, glibc.geometry)
        chunks, bytes_ = (None, None) if entry.cut else (entry.chunks, entry.bytes)
        shown.append(BinRow(glibc.id, arena.index, entry.kind, entry.index, low, high, chunks, bytes_))
    return shown
