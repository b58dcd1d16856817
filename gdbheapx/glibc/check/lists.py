"""Bins, fastbins and thread caches: their links, and what their members say of themselves; single chunks against their neighbours, their
bin, their list and their arena.
"""

from bisect import bisect_left
from collections import Counter
from typing import Any, Dict, Iterator, List, NamedTuple, Optional, Sequence, Set, Tuple

from gdbheapx.allocators.answers import RuleSuspect
from gdbheapx.glibc import bins, codes
from gdbheapx.glibc.arenas import Arena
from gdbheapx.glibc.bins import CachedChunks, FreeLists
from gdbheapx.glibc.check.findings import Findings
from gdbheapx.glibc.context import ArenaWalk, Context
from gdbheapx.glibc.layouts import NSMALLBINS, align_chunk, bin_range, fast_size, tcache_range
from gdbheapx.glibc.survey import Singles
from gdbheapx.kernel.common.library import ADDRESS_MASK
from gdbheapx.kernel.glibc import check  # noqa: F401  (before a process is stopped for it)
from gdbheapx.kernel.glibc import check as api
from gdbheapx.kernel.glibc.lists import (
    BACK_LINK,
    BIN,
    CUT,
    CYCLE,
    FAST,
    TCACHE,
    TCACHE_SIZED,
    UNALIGNED,
    UNREAD,
    NativeFollowedList,
    describe_damage,
)
from gdbheapx.kernel.glibc.records import STATUS_FAST, STATUS_TCACHE, STATUS_TCACHE_STRUCT, STATUS_USED
from gdbheapx.model import TargetAddress
from gdbheapx.units import count_noun

WORDS = {STATUS_USED: "used", STATUS_TCACHE: "tcache", STATUS_FAST: "fast", STATUS_TCACHE_STRUCT: "overhead"}
"""Statuses of chunks into which somebody writes, or wrote."""
KEY_SAMPLES, KEYS_OF_A_LIST = 64, 4
NOT_CHECKED = "the chunks after it were not checked"
FLAGS = 7


class Binned(NamedTuple):
    """Members of bins."""

    members: Sequence[int]
    """Of all arenas, sorted."""
    known: Set[int]
    """Indexes of arenas whose bins are whole."""
    unsorted: Set[int]
    """Chunks in unsorted bins; filled where something is wrong with a chunk."""


class ChunkContradictions(NamedTuple):
    """Contradictions of single chunks, from one pass."""

    rows: Sequence[api.NativeBroken]
    stops: Dict[int, api.NativeBroken]
    """Where each region ended."""
    counts: Sequence[int]


def list_checked_regions(context: Context, walks: Sequence[ArenaWalk], known: Set[int]) -> List[api.Checked]:
    """Every run of chunks that was walked."""
    checked = []
    for walk in walks:
        firsts = {heap.region(context.glibc, 0).begin for heap in walk.heaps}
        if not firsts:
            firsts = {align_chunk(context.glibc.read_mp(context.target)["sbrk_base"], context.glibc.geometry)}
        own = api.REGION_MAIN * walk.arena.is_main | api.REGION_BINS_KNOWN * (walk.arena.index in known)
        checked += [api.Checked(region, own | api.REGION_FIRST * (region.begin in firsts)) for region, _ in walk.runs]
    return checked


def check_single_chunks(context: Context, walks: Sequence[ArenaWalk], listed: CachedChunks, binned: Binned) -> ChunkContradictions:
    """Check every chunk in one pass."""
    passed = context.walker.check(list_checked_regions(context, walks, binned.known), listed.chunks, binned.members)
    stops = {row.address: row for row in passed.rows if row.rule == api.BROKEN_STOP}
    return ChunkContradictions([row for row in passed.rows if row.rule != api.BROKEN_STOP], stops, passed.counts)


def find_chunk_suspect(context: Context, row: Optional[api.NativeBroken]) -> Optional[RuleSuspect]:
    """The block before the damaged header, if it is one that somebody writes into."""
    if row is None or not row.previous or row.previous_status not in WORDS:
        return None
    address = TargetAddress(row.previous + 2 * context.glibc.geometry.word_bytes)
    return RuleSuspect(address, row.address - row.previous, WORDS[row.previous_status])


def _make_own_suspect(context: Context, row: api.NativeBroken, status: str) -> RuleSuspect:
    """The header behind the chunk is damaged: the chunk is the one that ends there."""
    return RuleSuspect(TargetAddress(row.address + 2 * context.glibc.geometry.word_bytes), row.value, status)


def add_chunk_findings(context: Context, findings: Findings, rows: ChunkContradictions, binned: Binned) -> None:
    """Add each row to the findings as a broken rule."""
    for row in rows.rows:
        before, is_unsorted = find_chunk_suspect(context, row), row.address in binned.unsorted
        at = row.address
        if row.rule == api.BROKEN_PREV_SIZE:
            what = "a free chunk of this size must have it repeated behind it; 0x%x is there" % row.value
            findings.add("unsorted-prev-size" if is_unsorted else "prev-size", at, what, before)
        elif row.rule == api.BROKEN_FREE_NEIGHBOURS:
            findings.add("free-neighbours", at, "a free chunk directly follows the free chunk at 0x%x" % row.value, None)
        elif row.rule == api.BROKEN_NOT_BINNED:
            what = "the next chunk says that this chunk is free, but no bin holds it"
            findings.add("free-not-in-bin", at, what, _make_own_suspect(context, row, "used"))
        elif row.rule == api.BROKEN_BINNED_USED:
            what = "a bin holds this chunk, but the next chunk says that it is in use"
            findings.add("unsorted-prev-inuse" if is_unsorted else "bin-entry-in-use", at, what, None)
        elif row.rule == api.BROKEN_BINNED_ASTRAY:
            findings.add("bin-entry-not-a-chunk", at, "a bin holds this address, but no chunk begins here", None)
        elif row.rule == api.BROKEN_LISTED_FREE:
            what = "this chunk is on a thread cache's or fastbin's list, but the next chunk says that it is free: freed twice, or overrun"
            findings.add("double-free", at, what, _make_own_suspect(context, row, "tcache"), is_cache=True)
        elif row.rule == api.BROKEN_LISTED_ASTRAY:
            what = "a thread cache or fastbin holds this address, but no chunk begins here"
            findings.add("listed-not-a-chunk", at, what, None, is_cache=True)
        elif row.rule == api.BROKEN_NON_MAIN:
            wrong = "has" if row.value & 4 else "lacks"
            findings.add("arena-bit", at, "the size field 0x%x %s the bit NON_MAIN_ARENA, against its arena" % (row.value, wrong), before)
        elif row.rule == api.BROKEN_FREE_FLAGS:
            findings.add("free-arena-bit", at, "the size field 0x%x of a free chunk has the bit NON_MAIN_ARENA" % row.value, before)
        elif row.rule == api.BROKEN_FIRST:
            findings.add("first-chunk", at, "the first chunk of a heap says that the chunk before it is free", None)


class Doubles(NamedTuple):
    """Bins, followed."""

    asked: Sequence[bins.AskedBins]
    followed: NativeFollowedList


def follow_bins(context: Context, arenas: Sequence[Arena]) -> Doubles:
    """The bins of all arenas, with their members."""
    lists = FreeLists(context)
    asked = [bins.ask_bins(lists, arena) for arena in arenas]
    return Doubles(asked, lists.follow(collect=True))


def collect_binned(doubles: Doubles) -> Binned:
    """Return the members of bins, and the arenas whose bins are whole."""
    known: Set[int] = set()
    for arena_bins in doubles.asked:
        if not any(doubles.followed.problems[arena_bins.first : arena_bins.first + len(arena_bins.used)]):
            known.add(arena_bins.arena.index)
    return Binned(doubles.followed.members, known, set())


def add_unsorted(context: Context, arenas: Sequence[Arena], held: Binned) -> None:
    """Members of the unsorted bins: malloc looks at these first, and says other things of them."""
    lists = FreeLists(context)
    for arena in arenas:
        header = bins.list_bin_headers(arena, context.glibc)[0]
        if arena.state.numbers("bins")[0] not in (0, header):
            lists.add(BIN, [header], bins.most_chunks(arena, context.glibc))
    held.unsorted.update(lists.follow(collect=True).members if len(lists.lists) else ())


# ---------------------------------------------------------------------------------------------------- links


def tell_bins(context: Context, findings: Findings, doubles: Doubles) -> None:
    """Bins whose links do not hold."""
    followed = doubles.followed
    for arena_bins in doubles.asked:
        own, words = bins.list_bin_headers(arena_bins.arena, context.glibc), arena_bins.arena.state.numbers("bins")
        for number, index in enumerate(arena_bins.used, arena_bins.first):
            what = describe_damage(followed, number)
            if what is None:
                continue
            if followed.problems[number] == UNREAD:
                name = "bin %d of %s" % (index, arena_bins.arena.title)
                context.report(codes.LIST_UNREAD, followed.lasts[number] or own[index - 1], "%s: %s" % (name, what), NOT_CHECKED)
                continue
            header = own[index - 1]
            kind = "unsorted" if index == bins.UNSORTED else "smallbin" if index < NSMALLBINS else "largebin"
            at_header = followed.problems[number] == BACK_LINK and followed.ats[number] == header or not followed.lasts[number]
            where = followed.ats[number] if followed.problems[number] == BACK_LINK else followed.lasts[number] or header
            rule = "%s-%s" % (kind, "head" if at_header else "links")
            findings.add(rule, where, "bin %d of %s: %s" % (index, arena_bins.arena.title, what))
        for index, (head, tail, header) in enumerate(zip(words[0::2], words[1::2], own), 1):
            if head == header != tail:
                kind = "unsorted" if index == bins.UNSORTED else "smallbin" if index < NSMALLBINS else "largebin"
                what = "bin %d of %s is empty by fd, but its bk is 0x%x" % (index, arena_bins.arena.title, tail)
                findings.add("%s-head" % kind, header, what)


def tell_singles(context: Context, findings: Findings, singles: Singles) -> None:
    """Thread caches and fastbins whose links or counts do not hold."""
    followed = singles.followed
    for fastbins in singles.fast:
        for index, head in enumerate(fastbins.heads):
            what = describe_damage(followed, fastbins.first + index) if head else None
            if what is not None and followed.problems[fastbins.first + index] != UNREAD:
                place = fastbins.arena.state.address_of("fastbinsY") + index * context.glibc.geometry.word_bytes
                where = followed.lasts[fastbins.first + index] or place
                name = {UNALIGNED: "fastbin-unaligned", CYCLE: "fastbin-double-free"}.get(
                    followed.problems[fastbins.first + index], "fastbin-link"
                )
                findings.add(name, where, "fastbin %d of %s: %s" % (index, fastbins.arena.title, what))
    limit = context.glibc.read_mp(context.target).get("tcache_count")
    for cache in singles.caches.caches:
        for index, number in enumerate(singles.caches.lists(cache)):
            if followed.problems[number] or followed.counts[number] or (singles.caches.expected and singles.caches.expected[number]):
                _tell_cache(findings, singles, (cache.address or 0, cache.thread.lwp), index, number, limit)


def _tell_cache(findings: Findings, singles: Singles, cache: Tuple[int, int], index: int, number: int, limit: Optional[int]) -> None:
    followed, name = singles.followed, "tcache bin %d of thread %d" % (index, cache[1])
    what, count, expected = describe_damage(followed, number), followed.counts[number], singles.caches.expected
    if what is not None and followed.problems[number] != UNREAD:
        names = {UNALIGNED: "tcache-unaligned", CYCLE: "tcache-double-free"}
        rule = names.get(followed.problems[number], "tcache-link")
        findings.add(rule, followed.lasts[number] or cache[0], "%s: %s" % (name, what), is_cache=True)
        return
    if followed.problems[number] in (CUT, UNREAD):
        return
    if limit is not None and count > limit:
        what = "%s lists %s, more than %d" % (name, count_noun(count, "chunk"), limit)
        findings.add("tcache-too-many", followed.lasts[number], what, is_cache=True)
    if expected and expected[number] != count:
        told = "%s counts %s but lists %d" % (name, count_noun(expected[number], "chunk"), count)
        findings.add("tcache-count", followed.lasts[number] or cache[0], told, is_cache=True)


# ---------------------------------------------------------------------------------------------------- members


def check_list_members(context: Context, findings: Findings, singles: Singles, arenas: Sequence[Arena], walks: Sequence[ArenaWalk]) -> bool:
    """Check sizes, keys and order of list members, and links of bins. Return whether the bins hold exactly the free chunks, as far as
    their number and the sum of their addresses show.
    """
    named: List[str] = []
    lists: List[api.MemberList] = []
    for name, members in [*_of_caches(context, singles), *_of_fast(context, singles), *_of_bins(context, arenas)]:
        named.append(name)
        lists.append(members)
    told = context.walker.check_members(lists, context.glibc.traits.safe_linking)
    for row in told.rows:
        if row.rule != api.MEMBER_LINK:
            _tell_member(context, findings, row, named[row.previous], lists[row.previous])
    totals = [total for total in (walk.total() for walk in walks) if total is not None]
    free = sum(total.free_chunks for total in totals), sum(total.free_sum for total in totals) & ADDRESS_MASK
    return not told.counts[api.MEMBER_LINK] and free == (told.binned, told.binned_sum)


def _tell_member(context: Context, findings: Findings, row: api.NativeBroken, name: str, members: api.MemberList) -> None:
    if row.rule == api.MEMBER_KEY:
        what = "%s: the key behind the link is 0x%x, not 0x%x: written to after it was freed" % (name, row.value, members.key)
        findings.add("tcache-key", row.address, what, is_cache=True)
    elif row.rule == api.MEMBER_ORDER:
        findings.add("largebin-order", row.address, "%s: the chunk before it has only 0x%x bytes" % (name, row.value))
    elif row.rule == api.MEMBER_NEXTSIZE:
        what = "%s: fd_nextsize and bk_nextsize of this chunk and 0x%x do not point to each other" % (name, row.value)
        findings.add("largebin-nextsize", row.address, what)
    else:
        rule = {BIN: "bin-size", FAST: "fastbin-size"}.get(members.kind, "tcache-size")
        is_cache = members.kind in (TCACHE, TCACHE_SIZED)
        findings.add(rule, row.address, "%s: a chunk of 0x%x bytes does not belong there" % (name, row.value), is_cache=is_cache)


def _of_caches(context: Context, singles: Singles) -> List[Tuple[str, api.MemberList]]:
    key, made = _find_tcache_key(context, singles), []
    for cache in singles.caches.caches:
        for index, number in enumerate(singles.caches.lists(cache)):
            count = singles.followed.counts[number]
            if not count or singles.followed.problems[number]:
                continue
            size = singles.caches.sizes[index]
            low, high = tcache_range(index, context.glibc.geometry)
            own = (cache.address or 0) if key == cache.address or key == -1 else key
            kind = TCACHE if size is not None else TCACHE_SIZED
            name = "tcache bin %d of thread %d" % (index, cache.thread.lwp)
            made.append((name, api.MemberList(kind, singles.heads[number], count, low, high, own, False)))
    return made


def _find_tcache_key(context: Context, singles: Singles) -> int:
    """Return the key that most of the sampled cached chunks have in the word after their link: -1 if it is the address of the cache that
    holds the chunk, 0 if it is unknown.
    """
    if not context.glibc.traits.tcache_key:
        return 0
    seen: Counter[int] = Counter()
    for cache in singles.caches.caches:
        for number in singles.caches.lists(cache):
            if sum(seen.values()) < KEY_SAMPLES and not singles.followed.problems[number]:
                words = _second_words(context, singles.heads[number], min(singles.followed.counts[number], KEYS_OF_A_LIST))
                seen.update(-1 if word == cache.address else word for word in words)
    samples = sum(seen.values())
    value, count = seen.most_common(1)[0] if seen else (0, 0)
    return value if count > 1 and 2 * count > samples else 0


def _second_words(context: Context, entry: int, count: int) -> Iterator[int]:
    size = 2 * context.glibc.geometry.word_bytes
    for _ in range(count):
        link, second = context.target.words_in(context.target.read_prefix(entry, size).ljust(size, b"\0"))
        yield second
        entry = link ^ entry >> 12 if context.glibc.traits.safe_linking else link


def _of_fast(context: Context, singles: Singles) -> List[Tuple[str, api.MemberList]]:
    made = []
    for fastbins in singles.fast:
        for index, head in enumerate(fastbins.heads):
            number = fastbins.first + index
            if head and singles.followed.counts[number] and not singles.followed.problems[number]:
                size = fast_size(index, context.glibc.geometry)
                name = "fastbin %d of %s" % (index, fastbins.arena.title)
                made.append((name, api.MemberList(FAST, head, singles.followed.counts[number], size, size, 0, False)))
    return made


def _of_bins(context: Context, arenas: Sequence[Arena]) -> List[Tuple[str, api.MemberList]]:
    made, geometry = [], context.glibc.geometry
    for arena in arenas:
        own, heads, tails = (
            bins.list_bin_headers(arena, context.glibc),
            arena.state.numbers("bins")[0::2],
            arena.state.numbers("bins")[1::2],
        )
        for index, (header, head, tail) in enumerate(zip(own, heads, tails), 1):
            if (head == tail == header) or not any(heads):
                continue
            low, most = (2 * geometry.word_bytes + 1, arena.state["system_mem"]) if index == bins.UNSORTED else bin_range(index, geometry)
            high, limit = ADDRESS_MASK if most is None else most, bins.most_chunks(arena, context.glibc)
            name = "bin %d of %s" % (index, arena.title)
            made.append((name, api.MemberList(BIN, header, limit, low, high, 0, index >= NSMALLBINS)))
    return made


def tell_outside(context: Context, findings: Findings, walks: Sequence[ArenaWalk], chunks: Sequence[int], spans: Sequence[Any]) -> None:
    """Entries of single lists that lie in no arena; `spans`: their ranges, sorted."""
    told: Dict[int, None] = {}
    edges = [0, *(edge for span in spans for edge in span), ADDRESS_MASK]
    for start, end in zip(edges[0::2], edges[1::2]):
        for place in range(bisect_left(chunks, start), min(bisect_left(chunks, end), bisect_left(chunks, start) + api.MOST_ROWS)):
            told[chunks[place] & ~FLAGS] = None
    for address in list(told)[: api.MOST_ROWS]:
        findings.add("listed-outside", address, "a thread cache or fastbin holds this address, which is in no arena", is_cache=True)
