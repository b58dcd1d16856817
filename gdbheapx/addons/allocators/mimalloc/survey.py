"""One look at all of a mimalloc: its pages, who is on which list, and what is wrong with them."""

from array import array
from bisect import bisect_right
from typing import Dict, Iterator, List, NamedTuple, Optional, Sequence, Set, Tuple

from gdbheapx.addons.allocators.mimalloc import codes, pages
from gdbheapx.addons.allocators.mimalloc import lists as kernel_lists
from gdbheapx.addons.allocators.mimalloc.detect import Mimalloc
from gdbheapx.addons.allocators.mimalloc.layouts import Form
from gdbheapx.addons.allocators.mimalloc.native_records import (
    LIST_GOOD,
    LIST_LONG,
    LIST_STRAY,
    MI_FREE,
    MI_METADATA,
    MI_REMOTE,
    MI_RESERVE,
    MI_USED,
    PAD_BYTES,
    FreeBlocks,
    FreeList,
    ListEnd,
    ListPage,
)
from gdbheapx.addons.allocators.mimalloc.pages import Broken, Found, Page, Piece, Segment
from gdbheapx.addons.allocators.mimalloc.records import ABANDONED, SHARED, THREAD
from gdbheapx.allocators.records import HeapContext
from gdbheapx.inferior.base import Target, Thread
from gdbheapx.kernel.blocks.slots import Frees, SlotRun
from gdbheapx.problems import Severity
from gdbheapx.units import number, plural

LIST_CODES = {LIST_STRAY: codes.LIST_STRAY, LIST_LONG: codes.LIST_RING}
LIST_WHAT = {
    LIST_STRAY: "a free list points to something that is not a block of its page",
    LIST_LONG: "a free list has more members than its page has blocks",
}
FATAL = (4, 6, 7, 8, 11)
"""Signals of a fault or of abort()."""
CALLERS_BYTES = 512
"""Of a stack, from its top: a system call that mimalloc makes is one or two frames away."""
UNREADABLE_LIST = "a free block cannot be read, and with it the rest of its list"


class Owner(NamedTuple):
    """Whose pages are one arena."""

    kind: str
    thread: Optional[int]
    """Thread pointer; 0: abandoned; None: nobody's."""
    lwp: Optional[int]
    name: Optional[str]


class Counted(NamedTuple):
    """One page, counted."""

    page: Page
    arena: int
    free: int
    remote: int
    is_good: bool
    """Its lists could be followed."""

    @property
    def used(self) -> int:
        """Blocks that the program has."""
        return max(0, self.page.capacity - self.free - self.remote)


class Survey(NamedTuple):
    """All of one copy."""

    owners: Sequence[Owner]
    """By arena."""
    pages: Sequence[Counted]
    pieces: Sequence[Tuple[Piece, int]]
    """With their arenas."""
    segments: Sequence[Segment]
    frees: FreeBlocks
    broken: Sequence[Broken]
    reserved: Sequence[Tuple[int, int]]
    is_whole: bool


def look(mimalloc: Mimalloc, around: HeapContext, follows: bool = True) -> Survey:
    """All of it, and what is wrong with it; nothing is reported. `follows`: every list of free blocks, which leads all over the memory;
    else only those of what other threads have freed, and a page's counter is believed for the rest."""
    target, found = around.target, mimalloc.read(around.target)
    broken, form = list(found.broken), mimalloc.form
    pages_ = _mapped(target, found, broken)
    blocks = [ListPage(page.start, page.block_bytes, page.capacity) for page in pages_]
    rows = [*_lists(pages_, form, follows), *_delayed(target, pages_, form, broken)]
    frees = kernel_lists.follow(around.kernel, target.bulk_source(), rows, blocks, around.budget)
    owners = _owners(target, found)
    arenas = {owner.thread: index for index, owner in enumerate(owners)}
    twice = _twice(frees, pages_)
    followed: Dict[int, List[Tuple[int, ListEnd]]] = {}
    for row, end in zip(rows, frees.ends):
        followed.setdefault(row.page, []).append((row.kind, end))
    cut = rows[len(frees.ends)].page if len(frees.ends) < len(rows) else len(pages_)
    counted = [
        _counted(page, arenas[page.thread], followed.get(place, ()) if place < cut else None, shared, twice, broken, follows)
        for place, (page, shared) in enumerate(zip(pages_, frees.shared))
    ]
    broken += _shared_ends(rows, frees.ends, len(pages_))
    broken += _miscounted(form, found)
    inside = Inside(target, mimalloc)
    broken = [one._replace(code=codes.PAGE_CHANGING) if _is_of(one, inside) else one for one in broken]
    pieces = [(piece, arenas[piece.thread]) for piece in found.pieces]
    is_whole = frees.is_whole and not broken
    return Survey(owners, counted, pieces, found.segments, frees, broken, found.reserved, is_whole)


def _mapped(target: Target, found: Found, broken: List[Broken]) -> List[Page]:
    """Pages that lie in memory of the process."""
    memory: List[Tuple[int, int]] = []
    for mapping in target.mappings():
        if memory and memory[-1][1] == mapping.start:
            memory[-1] = (memory[-1][0], mapping.end)
        else:
            memory.append((mapping.start, mapping.end))
    starts, good = [start for start, _ in memory], []
    for page in found.pages:
        at = bisect_right(starts, page.memory) - 1
        if at >= 0 and page.end <= memory[at][1]:
            good.append(page)
        else:
            broken.append(Broken(codes.PAGE_UNMAPPED, page.address, "a page lies in no memory of the process", page.thread))
    return good


def _lists(pages_: Sequence[Page], form: Form, follows: bool) -> Iterator[FreeList]:
    """Those with members."""
    for place, page in enumerate(pages_):
        if follows and (page.free or page.local_free):
            for head in {page.free, page.local_free} - {0}:  # one is being moved: both lead to the same blocks for a moment
                yield _list(page, place, head, MI_FREE, form)
        if page.thread_free:
            yield _list(page, place, page.thread_free, MI_REMOTE, form)


def _list(page: Page, place: int, head: int, kind: int, form: Form) -> FreeList:
    return FreeList(head, place, kind, page.address if form.is_encoded else 0, form.is_encoded, *page.keys)


def _delayed(target: Target, pages_: Sequence[Page], form: Form, broken: List[Broken]) -> Iterator[FreeList]:
    """The lists of heaps: the first block of a full page that another thread frees. Each heap counts its pages."""
    owned: Dict[int, List[Page]] = {}
    for page in pages_:
        if page.heap and page.thread:
            owned.setdefault(page.heap, []).append(page)
    places = form.heap
    assert places is not None
    for heap, its in sorted(owned.items()):
        data = target.read_prefix(heap, max(places.page_count + 8, places.keys + 16))
        if len(data) < max(places.page_count + 8, places.keys + 16):
            broken.append(Broken(codes.HEAP_UNREADABLE, heap, "the heap of a thread cannot be read", its[0].thread))
            continue
        count = pages.word(data, places.page_count)
        if count != len(its):
            what = "the heap of a thread counts %s, and %s point to it" % (plural(count, "page"), number(len(its)))
            broken.append(Broken(codes.HEAP_PAGES, heap, what, its[0].thread))
        if places.thread_delayed_free is not None:
            keys = [pages.word(data, places.keys + more) for more in (0, 8)]
            end, head = heap if form.is_encoded else 0, pages.word(data, places.thread_delayed_free)
            yield FreeList(head, len(pages_), MI_REMOTE, end, form.is_encoded, keys[0], keys[1])


def _owners(target: Target, found: Found) -> List[Owner]:
    """Threads in the order of their ids, those that cannot be told by their pointers; then what is abandoned, then what is nobody's."""
    known = {thread.thread_pointer: thread for thread in target.threads() if thread.thread_pointer}
    there = {page.thread for page in found.pages} | {piece.thread for piece in found.pieces}
    told = sorted((known[one].lwp, one) for one in there if one in known)
    rest = sorted(one for one in there if one and one not in known)
    owners = [Owner(THREAD, one, lwp, known[one].name) for lwp, one in told] + [Owner(THREAD, one, None, None) for one in rest]
    owners += [Owner(ABANDONED, 0, None, None)] if 0 in there else []
    return owners + ([Owner(SHARED, None, None, None)] if None in there else [])


def _is_of(one: Broken, inside: "Inside") -> bool:
    """What one of these threads may be about to change."""
    return one.code.nature is Severity.DAMAGE and one.thread in inside


class Inside:
    """Threads that stand in code of the object that has it, or were called from there, by their thread pointers: what they own may be half
    changed. Looked for when somebody asks: where nothing contradicts itself nobody does. After a crash nothing is being changed."""

    def __init__(self, target: Target, mimalloc: Mimalloc) -> None:
        self._target, self._module = target, mimalloc.module
        self._threads: Optional[Set[Optional[int]]] = None

    def __contains__(self, thread: Optional[int]) -> bool:
        if self._threads is None:
            spans, threads = self._target.code_ranges(self._module), self._target.threads()
            has_crashed = any(one.signal in FATAL for one in threads[:1])
            self._threads = set() if has_crashed else {one.thread_pointer for one in threads if self._is_inside(one, spans)}
        return bool(thread) and thread in self._threads

    def _is_inside(self, thread: Thread, spans: Sequence[Tuple[int, int]]) -> bool:
        words = [thread.pc or 0]
        if thread.stack_pointer is not None:
            words += self._target.words_in(self._target.read_prefix(thread.stack_pointer, CALLERS_BYTES))
        return any(start <= word < end for word in words for start, end in spans)


def _twice(frees: FreeBlocks, pages_: Sequence[Page]) -> Dict[int, int]:
    """How many blocks of a page, by its start, are on two lists."""
    addresses, starts = frees.addresses, [page.start for page in pages_]
    found: Dict[int, int] = {}
    place = 1
    while frees.twice and place < len(addresses):
        if addresses[place] == addresses[place - 1]:
            start = starts[bisect_right(starts, addresses[place]) - 1]
            found[start] = found.get(start, 0) + 1
        place += 1
    return found


def _counted(
    page: Page,
    arena: int,
    lists: Optional[Sequence[Tuple[int, ListEnd]]],
    shared: int,
    twice: Dict[int, int],
    broken: List[Broken],
    follows: bool,
) -> Counted:
    """`lists`: with the kind of their members; None: there was no time for them. `shared`: members of lists of all pages that are its."""
    if lists is None:
        return Counted(page, arena, 0, 0, False)
    free, remote, is_good = 0 if follows else page.capacity - page.used, shared, True
    for kind, end in lists:
        if kind == MI_FREE:
            free += end.members
        else:
            remote += end.members
        if end.problem != LIST_GOOD:
            code, what = LIST_CODES.get(end.problem, codes.LIST_UNREADABLE), LIST_WHAT.get(end.problem, UNREADABLE_LIST)
            broken.append(Broken(code, end.at, what, page.thread))
            is_good = False
    if page.start in twice:
        what = "%s of a page on two of its lists" % plural(twice[page.start], "block")
        broken.append(Broken(codes.LIST_TWICE, page.address, what, page.thread))
        is_good = False
    if is_good and (page.used + free != page.capacity or remote > page.used):
        what = "a page counts %s in use, and %s of its %s are free" % (plural(page.used, "block"), number(free), number(page.capacity))
        broken.append(Broken(codes.USED_WRONG, page.address, what, page.thread))
        is_good = free + remote <= page.capacity
    return Counted(page, arena, free, remote, is_good)


def _shared_ends(rows: Sequence[FreeList], ends: Sequence[ListEnd], count: int) -> Iterator[Broken]:
    for row, end in zip(rows, ends):
        if row.page == count and end.problem:
            yield Broken(LIST_CODES.get(end.problem, codes.LIST_UNREADABLE), end.at, LIST_WHAT.get(end.problem, UNREADABLE_LIST))


def _miscounted(form: Form, found: Found) -> Iterator[Broken]:
    if form.segment is None:
        return
    told = {one.address for one in found.broken}
    for segment in found.segments:
        is_told = any(segment.address <= address < segment.end for address in told)
        if not is_told and (segment.used != segment.pages or segment.abandoned > segment.used):
            what = "a segment counts %s in use and has %s" % (plural(segment.used, "page"), number(segment.pages))
            yield Broken(codes.SEGMENT_PAGES, segment.address, what, segment.thread)


def runs(survey: Survey, form: Form, arena: Optional[int]) -> "Tuple[array[int], Frees]":
    """All memory of one arena, or of all, as slots: blocks side by side, and one slot for each piece without."""
    rows: List[Tuple[int, ...]] = []
    for piece, index in survey.pieces:
        if arena in (None, index):
            rows.append(_one(piece.start, piece.end, piece.kind, index))
    for counted in survey.pages:
        if arena not in (None, counted.arena):
            continue
        page, index = counted.page, counted.arena
        if not counted.is_good:
            continue
        usable = page.block_bytes - (PAD_BYTES if form.is_padded else 0)
        middle, last = page.start + page.capacity * page.block_bytes, page.start + page.reserved * page.block_bytes
        for start, end, kind in ((page.memory, page.start, MI_METADATA), (middle, last, MI_RESERVE), (last, page.end, MI_METADATA)):
            if start < end:
                rows.append(_one(start, end, kind, index))
        if page.capacity:
            rows.append(tuple(SlotRun(page.start, page.block_bytes, page.capacity, usable, index, 0, MI_USED, MI_USED, 0, 0, False, 0)))
    rows.sort()
    kept: List[Tuple[int, ...]] = []
    end = 0
    for row in rows:  # what damage makes lie across another is left out
        if row[0] >= end:
            kept.append(row)
            end = row[0] + row[1] * row[2]
    return array("Q", [number for row in kept for number in row]), Frees(survey.frees.addresses, survey.frees.kinds)


def _one(start: int, end: int, kind: int, arena: int) -> Tuple[int, ...]:
    return tuple(SlotRun(start, end - start, 1, end - start, arena, 0, kind, kind, 0, 0, False, 0))


def page_at(survey: Survey, address: int) -> Optional[Counted]:
    """The page whose memory has the address."""
    place = bisect_right([counted.page.memory for counted in survey.pages], address) - 1
    return survey.pages[place] if place >= 0 and address < survey.pages[place].page.end else None
