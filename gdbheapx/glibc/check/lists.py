"""Bins, fastbins and thread caches: their links, and what their members say of themselves."""

from collections import Counter
from typing import Any, Dict, Iterator, List, NamedTuple, Optional, Sequence, Set, Tuple

from gdbheapx.glibc import bins, codes, tcache
from gdbheapx.glibc.arenas import Arena
from gdbheapx.glibc.bins import FreeLists
from gdbheapx.glibc.check.chunks import Binned
from gdbheapx.glibc.check.findings import Findings
from gdbheapx.glibc.context import ArenaWalk, Context
from gdbheapx.glibc.layouts import bin_range, fast_size
from gdbheapx.glibc.survey import Survey
from gdbheapx.kernel.common.records import ADDRESS_MASK
from gdbheapx.kernel.glibc import check_records as api
from gdbheapx.kernel.glibc.list_records import BACK_LINK, BIN, CUT, CYCLE, FAST, TCACHE, TCACHE_SIZED, UNALIGNED, UNREAD, Followed, wrong
from gdbheapx.units import plural

KEY_SAMPLES, KEYS_OF_A_LIST = 64, 4
NOT_CHECKED = "the chunks after it were not checked"
LARGEST_SMALL = 1024
FLAGS = 7


class Singles(NamedTuple):
    """Lists of one link, as they were followed for the walk."""

    caches: tcache.Caches
    fast: Sequence[bins.AskedFast]
    found: Followed
    heads: Sequence[int]


class Doubles(NamedTuple):
    """Bins, followed."""

    asked: Sequence[bins.AskedBins]
    found: Followed


def singles_of(survey: Survey) -> Singles:
    """Thread caches and fastbins."""
    return Singles(survey.caches, *survey.singles)


def follow_bins(context: Context, arenas: Sequence[Arena]) -> Doubles:
    """The bins of all arenas, with their members."""
    lists = FreeLists(context)
    asked = [bins.ask_bins(lists, arena) for arena in arenas]
    return Doubles(asked, lists.follow(arenas, collect=True))


def binned(doubles: Doubles) -> Binned:
    """What the bins hold, and of which arenas that is all."""
    known: Set[int] = set()
    for one in doubles.asked:
        if not any(doubles.found.problems[one.first : one.first + len(one.used)]):
            known.add(one.arena.index)
    return Binned(doubles.found.members, known, set())


def add_unsorted(context: Context, arenas: Sequence[Arena], held: Binned) -> None:
    """Members of the unsorted bins: malloc looks at these first, and says other things of them."""
    lists = FreeLists(context)
    for arena in arenas:
        header = bins.headers(arena, context.glibc)[0]
        if arena.state.numbers("bins")[0] not in (0, header):
            lists.add(BIN, [header], bins.most_chunks(arena, context.glibc))
    held.unsorted.update(lists.follow(arenas, collect=True).members if len(lists.lists) else ())


# ---------------------------------------------------------------------------------------------------- links


def tell_bins(context: Context, found: Findings, doubles: Doubles) -> None:
    """Bins whose links do not hold."""
    followed = doubles.found
    for one in doubles.asked:
        own, words = bins.headers(one.arena, context.glibc), one.arena.state.numbers("bins")
        for number, index in enumerate(one.used, one.first):
            what = wrong(followed, number)
            if what is None:
                continue
            if followed.problems[number] == UNREAD:
                name = "bin %d of %s" % (index, one.arena.title)
                context.report(codes.LIST_UNREAD, followed.lasts[number] or own[index - 1], "%s: %s" % (name, what), NOT_CHECKED)
                continue
            header = own[index - 1]
            kind = "unsorted" if index == bins.UNSORTED else "smallbin" if index < bins.FIRST_LARGE else "largebin"
            at_header = followed.problems[number] == BACK_LINK and followed.ats[number] == header or not followed.lasts[number]
            where = followed.ats[number] if followed.problems[number] == BACK_LINK else followed.lasts[number] or header
            rule = "%s-%s" % (kind, "head" if at_header else "links")
            found.add(rule, where, "bin %d of %s: %s" % (index, one.arena.title, what))
        for index, (head, tail, header) in enumerate(zip(words[0::2], words[1::2], own), 1):
            if head == header != tail:
                kind = "unsorted" if index == bins.UNSORTED else "smallbin" if index < bins.FIRST_LARGE else "largebin"
                what = "bin %d of %s is empty by fd, but its bk is 0x%x" % (index, one.arena.title, tail)
                found.add("%s-head" % kind, header, what)


def tell_singles(context: Context, found: Findings, singles: Singles) -> None:
    """Thread caches and fastbins whose links or counts do not hold."""
    followed = singles.found
    for one in singles.fast:
        for index, head in enumerate(one.heads):
            what = wrong(followed, one.first + index) if head else None
            if what is not None and followed.problems[one.first + index] != UNREAD:
                place = one.arena.state.address_of("fastbinsY") + index * context.glibc.geometry.word_bytes
                where = followed.lasts[one.first + index] or place
                name = {UNALIGNED: "fastbin-unaligned", CYCLE: "fastbin-double-free"}.get(
                    followed.problems[one.first + index], "fastbin-link"
                )
                found.add(name, where, "fastbin %d of %s: %s" % (index, one.arena.title, what))
    limit = context.glibc.read_mp(context.target).get("tcache_count")
    for cache in singles.caches.caches:
        for index, number in enumerate(singles.caches.lists(cache)):
            if followed.problems[number] or followed.counts[number] or (singles.caches.expected and singles.caches.expected[number]):
                _tell_cache(found, singles, (cache.address or 0, cache.thread.lwp), index, number, limit)


def _tell_cache(found: Findings, singles: Singles, cache: Tuple[int, int], index: int, number: int, limit: Optional[int]) -> None:
    followed, name = singles.found, "tcache bin %d of thread %d" % (index, cache[1])
    what, count, expected = wrong(followed, number), followed.counts[number], singles.caches.expected
    if what is not None and followed.problems[number] != UNREAD:
        names = {UNALIGNED: "tcache-unaligned", CYCLE: "tcache-double-free"}
        rule = names.get(followed.problems[number], "tcache-link")
        found.add(rule, followed.lasts[number] or cache[0], "%s: %s" % (name, what), is_cache=True)
        return
    if followed.problems[number] in (CUT, UNREAD):
        return
    if limit is not None and count > limit:
        what = "%s lists %s, more than %d" % (name, plural(count, "chunk"), limit)
        found.add("tcache-too-many", followed.lasts[number], what, is_cache=True)
    if expected and expected[number] != count:
        told = "%s counts %s but lists %d" % (name, plural(expected[number], "chunk"), count)
        found.add("tcache-count", followed.lasts[number] or cache[0], told, is_cache=True)


# ---------------------------------------------------------------------------------------------------- members


def check_members(context: Context, found: Findings, singles: Singles, arenas: Sequence[Arena], walks: Sequence[ArenaWalk]) -> bool:
    """What members of lists say of themselves: sizes, keys, order; and of bins their links. True if the bins hold exactly the free
    chunks, as far as their number and the sum of their addresses tell."""
    named: List[str] = []
    lists: List[api.MemberList] = []
    for name, one in [*_of_caches(context, singles), *_of_fast(context, singles), *_of_bins(context, arenas)]:
        named.append(name)
        lists.append(one)
    told = context.walker.check_members(lists, context.glibc.traits.safe_linking)
    for row in told.rows:
        if row.rule != api.MEMBER_LINK:
            _tell_member(context, found, row, named[row.previous], lists[row.previous])
    totals = [total for total in (walk.total() for walk in walks) if total is not None]
    free = sum(total.free_chunks for total in totals), sum(total.free_sum for total in totals) & ADDRESS_MASK
    return not told.counts[api.MEMBER_LINK] and free == (told.binned, told.binned_sum)


def _tell_member(context: Context, found: Findings, row: api.Broken, name: str, one: api.MemberList) -> None:
    if row.rule == api.MEMBER_KEY:
        what = "%s: the key behind the link is 0x%x, not 0x%x: written to after it was freed" % (name, row.value, one.key)
        found.add("tcache-key", row.address, what, is_cache=True)
    elif row.rule == api.MEMBER_ORDER:
        found.add("largebin-order", row.address, "%s: the chunk before it has only 0x%x bytes" % (name, row.value))
    elif row.rule == api.MEMBER_NEXTSIZE:
        what = "%s: fd_nextsize and bk_nextsize of this chunk and 0x%x do not lead to each other" % (name, row.value)
        found.add("largebin-nextsize", row.address, what)
    else:
        rule = {BIN: "bin-size", FAST: "fastbin-size"}.get(one.kind, "tcache-size")
        is_cache = one.kind in (TCACHE, TCACHE_SIZED)
        found.add(rule, row.address, "%s: a chunk of 0x%x bytes does not belong there" % (name, row.value), is_cache=is_cache)


def _of_caches(context: Context, singles: Singles) -> List[Tuple[str, api.MemberList]]:
    key, made = _key(context, singles), []
    for cache in singles.caches.caches:
        for index, number in enumerate(singles.caches.lists(cache)):
            count = singles.found.counts[number]
            if not count or singles.found.problems[number]:
                continue
            size = singles.caches.sizes[index]
            low, high = (
                (size, size)
                if size is not None
                else (LARGEST_SMALL << index - tcache.SMALL_BINS, (2 * LARGEST_SMALL << index - tcache.SMALL_BINS) - 1)
            )
            own = (cache.address or 0) if key == cache.address or key == -1 else key
            kind = TCACHE if size is not None else TCACHE_SIZED
            name = "tcache bin %d of thread %d" % (index, cache.thread.lwp)
            made.append((name, api.MemberList(kind, singles.heads[number], count, low, high, own, False)))
    return made


def _key(context: Context, singles: Singles) -> int:
    """What stands behind the link of cached chunks: -1 for the cache's own address, 0 for what cannot be told."""
    if not context.glibc.traits.tcache_key:
        return 0
    seen: Counter[int] = Counter()
    for cache in singles.caches.caches:
        for number in singles.caches.lists(cache):
            if sum(seen.values()) < KEY_SAMPLES and not singles.found.problems[number]:
                words = _second_words(context, singles.heads[number], min(singles.found.counts[number], KEYS_OF_A_LIST))
                seen.update(-1 if word == cache.address else word for word in words)
    samples = sum(seen.values())
    value, count = seen.most_common(1)[0] if seen else (0, 0)
    return value if count > 1 and 2 * count > samples else 0


def _second_words(context: Context, entry: int, count: int) -> Iterator[int]:
    """Of the first entries of a thread cache's list, which has so many."""
    size = 2 * context.glibc.geometry.word_bytes
    for _ in range(count):
        link, second = context.target.words_in(context.target.read_prefix(entry, size).ljust(size, b"\0"))
        yield second
        entry = link ^ entry >> 12 if context.glibc.traits.safe_linking else link


def _of_fast(context: Context, singles: Singles) -> List[Tuple[str, api.MemberList]]:
    made = []
    for one in singles.fast:
        for index, head in enumerate(one.heads):
            number = one.first + index
            if head and singles.found.counts[number] and not singles.found.problems[number]:
                size = fast_size(index, context.glibc.geometry)
                name = "fastbin %d of %s" % (index, one.arena.title)
                made.append((name, api.MemberList(FAST, head, singles.found.counts[number], size, size, 0, False)))
    return made


def _of_bins(context: Context, arenas: Sequence[Arena]) -> List[Tuple[str, api.MemberList]]:
    made, geometry = [], context.glibc.geometry
    for arena in arenas:
        own, heads, tails = bins.headers(arena, context.glibc), arena.state.numbers("bins")[0::2], arena.state.numbers("bins")[1::2]
        for index, (header, head, tail) in enumerate(zip(own, heads, tails), 1):
            if (head == tail == header) or not any(heads):
                continue
            low, most = (2 * geometry.word_bytes + 1, arena.state["system_mem"]) if index == bins.UNSORTED else bin_range(index, geometry)
            high, limit = ADDRESS_MASK if most is None else most, bins.most_chunks(arena, context.glibc)
            name = "bin %d of %s" % (index, arena.title)
            made.append((name, api.MemberList(BIN, header, limit, low, high, 0, index >= bins.FIRST_LARGE)))
    return made


def tell_outside(context: Context, found: Findings, walks: Sequence[ArenaWalk], chunks: Sequence[int], spans: Sequence[Any]) -> None:
    """Entries of single lists that lie in no arena; `spans`: their ranges, sorted."""
    from bisect import bisect_left

    told: Dict[int, None] = {}
    edges = [0, *(edge for span in spans for edge in span), ADDRESS_MASK]
    for start, end in zip(edges[0::2], edges[1::2]):
        for place in range(bisect_left(chunks, start), min(bisect_left(chunks, end), bisect_left(chunks, start) + api.MOST_ROWS)):
            told[chunks[place] & ~FLAGS] = None
    for address in list(told)[: api.MOST_ROWS]:
        found.add("listed-outside", address, "a thread cache or fastbin holds this address, which is in no arena", is_cache=True)
