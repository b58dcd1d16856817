"""The huge pages of an arena's huge page allocator (HPA, from 5.3.0): which of their pages are dirty, that is freed and still in memory.

No extent has these pages: the HPA notes them in the hpdata_t of each huge page (hpdata.h). A page is active, dirty (touched and not active)
or never touched since it was purged. Those with a free page are in the heaps of psset_t, those without an active one in its list `empty`.
"""

from typing import Iterator, List, Optional, Sequence, Set, Tuple

from gdbheapx.errors import Unreadable
from gdbheapx.jemalloc import codes
from gdbheapx.jemalloc.context import Context, column
from gdbheapx.jemalloc.heap import mutexes
from gdbheapx.jemalloc.heap.arenas import Arena
from gdbheapx.jemalloc.records import HugePages
from gdbheapx.layout.view import View
from gdbheapx.units import number, plural

HEAP_LINKS: Sequence[str] = ("age_link.link.next", "age_link.link.lchild")
RING_LINKS: Sequence[str] = ("ql_link_empty.qre_next",)
MOST_HUGE_PAGES = 1 << 20
"""Two TiB: only there to end broken lists."""

Range = Tuple[int, int]


def read(context: Context, arena: Arena) -> HugePages:
    """The huge pages of an arena; what cannot be read, or contradicts the arena's counter, is reported."""
    dirty: List[Range] = []
    untouched: List[Range] = []
    view = arena.read()
    path = mutexes.hpa_path(view) + "psset."
    if not view.get("pa_shard.ever_used_hpa") or not view.has(path + "pageslabs"):
        return HugePages(dirty, untouched)
    for page in _members(context, arena, view, path):
        start = page["h_address"]
        active, touched = _bits(page, "active_pages"), _bits(page, "touched_pages")
        every = (1 << _size_bytes(context, page) // context.geometry.page_bytes) - 1
        dirty.extend(_runs(touched & ~active, start, context.geometry.page_bytes))
        untouched.extend(_runs(every & ~touched & ~active, start, context.geometry.page_bytes))
    counted = view.get(path + "merged_stats.ndirty", path + "stats.merged.ndirty")
    unread = (counted or 0) - sum(end - start for start, end in dirty) // context.geometry.page_bytes
    if unread > 0 and context.budget.reason is None:
        what = "arena %d counts %s in huge pages, %s more than could be read"
        what %= arena.index, plural(counted or 0, "dirty page"), number(unread)
        context.report(codes.HUGE_PAGES_UNREAD, arena.address, what, "other anonymous memory includes them")
    most = view.get(mutexes.hpa_path(view) + "opts.dirty_mult")
    return HugePages(sorted(dirty), sorted(untouched), -1 if most == (1 << 32) - 1 else most)


def _members(context: Context, arena: Arena, view: View, path: str) -> Iterator[View]:
    """hpdata_s of each huge page that has a free page."""
    heaps = column(view, path + "pageslabs", "ph.root", context.geometry.little_endian) or []
    pending = [(root, HEAP_LINKS) for root in heaps if root]
    pending += [(first, RING_LINKS) for first in [view.get(path + "empty.head.qlh_first")] if first]
    seen: Set[int] = set()
    while pending and len(seen) < MOST_HUGE_PAGES:
        address, links = pending.pop()
        if address in seen:
            continue
        if context.budget.expired():
            what = "the walk over the huge pages of arena %d ended here: %s" % (arena.index, context.budget.reason)
            context.report(codes.HUGE_PAGES_CUT, address, what, "other anonymous memory includes the rest")
            return
        seen.add(address)
        page = _page(context, address)
        if page is None:
            what = "a list of huge pages of arena %d contains something that is not one" % arena.index
            context.report(codes.HUGE_PAGE_WRONG, address, what, "huge pages behind it are missing here")
            continue
        yield page
        pending += [(page[link], links) for link in links if page[link]]


def _page(context: Context, address: int) -> Optional[View]:
    try:
        page = context.view("hpdata_s", address)
    except Unreadable:
        return None
    active, touched, start = _bits(page, "active_pages"), _bits(page, "touched_pages"), page["h_address"]
    counts = bin(active).count("1"), bin(touched).count("1")
    is_good = start and not start % _size_bytes(context, page) and counts == (page["h_nactive"], page["h_ntouched"])
    return page if is_good and not active & ~touched else None


def _bits(page: View, path: str) -> int:
    """A bitmap of flat_bitmap.h, as one number: a bit for each page."""
    return sum(group << 64 * place for place, group in enumerate(page.numbers(path)))


def _size_bytes(context: Context, page: View) -> int:
    """HUGEPAGE: the bitmap has a bit for each page of it."""
    return 8 * len(page.bytes_of("active_pages")) * context.geometry.page_bytes


def _runs(bits: int, start: int, page_bytes: int) -> Iterator[Range]:
    """Runs of pages whose bit is set."""
    place = 0
    while bits:
        skipped = (bits & -bits).bit_length() - 1
        bits >>= skipped
        length = (~bits & bits + 1).bit_length() - 1
        yield start + (place + skipped) * page_bytes, start + (place + skipped + length) * page_bytes
        bits >>= length
        place += skipped + length
