"""Commands on one mimalloc: a survey of its pages and lists, their sums, its meter, and broken rules."""

from array import array
from bisect import bisect_right
from collections import Counter
from typing import Dict, Iterator, List, NamedTuple, Optional, Sequence, Set, Tuple

from gdbheapx.addons.allocators.gates import MI_NEVER_RETURNS
from gdbheapx.addons.allocators.mimalloc import codes, detect, records
from gdbheapx.addons.allocators.mimalloc.layouts import MimallocForm
from gdbheapx.allocators import answers
from gdbheapx.allocators.heap import MeteredInstance, cache_answer
from gdbheapx.allocators.records import HeapContext, NeverReturns
from gdbheapx.common.model import Check, Claim, HistogramRow, TargetAddress
from gdbheapx.common.problems import Severity
from gdbheapx.common.ranges import Range, unite_ranges
from gdbheapx.common.units import count_noun, format_number
from gdbheapx.inferior.base import Target
from gdbheapx.kernel.blocks.pages import PinShape
from gdbheapx.kernel.blocks.slots import Frees, SlotRun, SlotWalker
from gdbheapx.kernel.blocks.stream import EVERYTHING, BlockFilter, BlockShape, BlockStream

LIST_PROBLEMS = {
    records.LIST_STRAY: (codes.LIST_STRAY, "a free list points to something that is not a block of its page"),
    records.LIST_LONG: (codes.LIST_RING, "a free list has more members than its page has blocks"),
    records.LIST_UNREADABLE: (codes.LIST_UNREADABLE, "a free block cannot be read, and with it the rest of its list"),
}
FATAL = (4, 6, 7, 8, 11)
"""Signals of a fault or of abort()."""
CALLERS_BYTES = 512
"""Of a stack, from its top: a system call that mimalloc makes is one or two frames away."""


PageOwner = Tuple[str, Optional[int], Optional[int], Optional[str]]
"""The owner of the pages of one arena: its kind, thread pointer (0: abandoned; None: no owner), lwp and name."""


class CountedPage(NamedTuple):
    """A page with its numbers of free blocks."""

    page: detect.MimallocPage
    arena: int
    free: int
    remote: int
    is_good: bool
    """Its lists could be followed."""

    @property
    def used(self) -> int:
        """Blocks that the program has."""
        return max(0, self.page.capacity - self.free - self.remote)


class MimallocSurvey(NamedTuple):
    """Pages, lists and damage of one mimalloc."""

    owners: Sequence[PageOwner]
    """By arena."""
    pages: Sequence[CountedPage]
    pieces: Sequence[Tuple[detect.MimallocPiece, int]]
    """With their arenas."""
    segments: Sequence[detect.MimallocSegment]
    frees: records.FreeBlocks
    broken: Sequence[detect.BrokenPlace]
    reserved: Sequence[Tuple[int, int]]
    is_whole: bool


def survey_mimalloc(mimalloc: detect.Mimalloc, around: HeapContext, follows: bool = True) -> MimallocSurvey:
    """Read all pages and lists, and report nothing. `follows`: follow every free list, which reads all over the memory; else only remote
    frees are followed, and a page's counter is believed for the rest.
    """
    target, found = around.target, mimalloc.read(around.target)
    broken, form = list(found.broken), mimalloc.form
    pages_ = _select_mapped(target, found, broken)
    blocks = [records.MiListPage(page.start, page.block_bytes, page.capacity) for page in pages_]
    rows = [*_make_lists(pages_, form, follows), *_read_delayed(target, pages_, form, broken)]
    frees = records.follow_free_lists(around.kernel, target.bulk_source(), rows, blocks, around.budget)
    owners = _find_owners(target, found)
    arenas = {thread: index for index, (_, thread, _, _) in enumerate(owners)}
    twice, starts = Counter[int](), [page.start for page in pages_]  # blocks that are on two lists, by the start of their page
    for block, before in zip(frees.addresses[1:], frees.addresses) if frees.twice else ():
        if block == before:
            twice[starts[bisect_right(starts, block) - 1]] += 1
    followed: Dict[int, List[Tuple[int, records.MiListEnd]]] = {}
    for row, end in zip(rows, frees.ends):
        followed.setdefault(row.page, []).append((row.kind, end))
    cut = rows[len(frees.ends)].page if len(frees.ends) < len(rows) else len(pages_)
    counted = [
        _count_page(page, arenas[page.thread], followed.get(place, ()) if place < cut else None, shared, twice, broken, follows)
        for place, (page, shared) in enumerate(zip(pages_, frees.shared))
    ]
    for _, end in followed.get(len(pages_), ()):  # lists of heaps
        if end.problem:
            code, what = LIST_PROBLEMS[end.problem]
            broken.append(detect.BrokenPlace(code, end.at, what))
    wrong = {one.address for one in found.broken}
    for segment in found.segments if form.segment is not None else ():
        is_wrong = any(segment.address <= address < segment.end for address in wrong)
        if not is_wrong and (segment.used != segment.pages or segment.abandoned > segment.used):
            what = "a segment counts %s in use and has %s" % (count_noun(segment.used, "page"), format_number(segment.pages))
            broken.append(detect.BrokenPlace(codes.SEGMENT_PAGES, segment.address, what, segment.thread))
    if any(one.code.nature is Severity.DAMAGE and one.thread for one in broken):  # a thread inside may be about to repair it
        inside = find_threads_inside(target, mimalloc)
        changing = [one.code.nature is Severity.DAMAGE and bool(one.thread) and one.thread in inside for one in broken]
        broken = [one._replace(code=codes.PAGE_CHANGING) if is_changing else one for one, is_changing in zip(broken, changing)]
    pieces = [(piece, arenas[piece.thread]) for piece in found.pieces]
    is_whole = frees.is_whole and not broken
    return MimallocSurvey(owners, counted, pieces, found.segments, frees, broken, found.reserved, is_whole)


def _select_mapped(target: Target, found: detect.MimallocPages, broken: List[detect.BrokenPlace]) -> List[detect.MimallocPage]:
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
            broken.append(detect.BrokenPlace(codes.PAGE_UNMAPPED, page.address, "a page lies in no memory of the process", page.thread))
    return good


def _make_lists(pages_: Sequence[detect.MimallocPage], form: MimallocForm, follows: bool) -> Iterator[records.MiFreeList]:
    """Yield lists that are not empty."""
    for place, page in enumerate(pages_):
        heads = {page.free, page.local_free} - {0} if follows else ()  # one is being moved: both lead to the same blocks for a moment
        lists = [*((head, records.MI_FREE) for head in heads), *([(page.thread_free, records.MI_REMOTE)] if page.thread_free else [])]
        for head, kind in lists:
            yield records.MiFreeList(head, place, kind, page.address if form.is_encoded else 0, form.is_encoded, *page.keys)


def _read_delayed(
    target: Target, pages_: Sequence[detect.MimallocPage], form: MimallocForm, broken: List[detect.BrokenPlace]
) -> Iterator[records.MiFreeList]:
    """The lists of heaps: the first block of a full page that another thread frees. Each heap counts its pages."""
    owned: Dict[int, List[detect.MimallocPage]] = {}
    for page in pages_:
        if page.heap and page.thread:
            owned.setdefault(page.heap, []).append(page)
    places = form.heap
    assert places is not None
    size_bytes = max(places.page_count + 8, places.keys + 16)
    for heap, its in sorted(owned.items()):
        data = target.read_prefix(heap, size_bytes)
        if len(data) < size_bytes:
            broken.append(detect.BrokenPlace(codes.HEAP_UNREADABLE, heap, "the heap of a thread cannot be read", its[0].thread))
            continue
        count = detect.read_word(data, places.page_count)
        if count != len(its):
            what = "the heap of a thread counts %s, and %s point to it" % (count_noun(count, "page"), format_number(len(its)))
            broken.append(detect.BrokenPlace(codes.HEAP_PAGES, heap, what, its[0].thread))
        if places.thread_delayed_free is not None:
            keys = [detect.read_word(data, places.keys + more) for more in (0, 8)]
            end, head = heap if form.is_encoded else 0, detect.read_word(data, places.thread_delayed_free)
            yield records.MiFreeList(head, len(pages_), records.MI_REMOTE, end, form.is_encoded, keys[0], keys[1])


def _find_owners(target: Target, found: detect.MimallocPages) -> List[PageOwner]:
    """Return threads by id, then those whose pointer is unknown, then abandoned pages, then pages without an owner."""
    known = {thread.thread_pointer: thread for thread in target.threads() if thread.thread_pointer}
    there = {page.thread for page in found.pages} | {piece.thread for piece in found.pieces}
    threads = sorted((known[pointer].lwp, pointer) for pointer in there if pointer in known)
    owners: List[PageOwner] = [(records.THREAD, pointer, lwp, known[pointer].name) for lwp, pointer in threads]
    owners += [(records.THREAD, pointer, None, None) for pointer in sorted(one for one in there if one and one not in known)]
    owners += [(records.ABANDONED, 0, None, None)] if 0 in there else []
    return owners + ([(records.SHARED, None, None, None)] if None in there else [])


def find_threads_inside(target: Target, mimalloc: detect.Mimalloc) -> Set[Optional[int]]:
    """Return the thread pointers of threads that execute code of mimalloc's object, or were called from it: their pages may be half
    changed. After a crash nothing is being changed."""
    spans, threads, inside = target.code_ranges(mimalloc.module), target.threads(), set()
    if any(one.signal in FATAL for one in threads[:1]):
        return set()
    for thread in threads:
        words = [thread.pc or 0]
        if thread.stack_pointer is not None:
            words += target.words_in(target.read_prefix(thread.stack_pointer, CALLERS_BYTES))
        if any(start <= word < end for word in words for start, end in spans):
            inside.add(thread.thread_pointer)
    return inside


def _count_page(
    page: detect.MimallocPage,
    arena: int,
    lists: Optional[Sequence[Tuple[int, records.MiListEnd]]],
    shared: int,
    twice: "Counter[int]",
    broken: List[detect.BrokenPlace],
    follows: bool,
) -> CountedPage:
    """`lists`: with the kind of their members; None: there was no time for them. `shared`: members of lists of all pages that are its."""
    if lists is None:
        return CountedPage(page, arena, 0, 0, False)
    free, remote, is_good = 0 if follows else page.capacity - page.used, shared, True
    for kind, end in lists:
        if kind == records.MI_FREE:
            free += end.members
        else:
            remote += end.members
        if end.problem != records.LIST_GOOD:
            code, what = LIST_PROBLEMS[end.problem]
            broken.append(detect.BrokenPlace(code, end.at, what, page.thread))
            is_good = False
    if page.start in twice:
        what = "%s of a page on two of its lists" % count_noun(twice[page.start], "block")
        broken.append(detect.BrokenPlace(codes.LIST_TWICE, page.address, what, page.thread))
        is_good = False
    if is_good and (page.used + free != page.capacity or remote > page.used):
        numbers = (count_noun(page.used, "block"), format_number(free), format_number(page.capacity))
        what = "a page counts %s in use, and %s of its %s are free" % numbers
        broken.append(detect.BrokenPlace(codes.USED_WRONG, page.address, what, page.thread))
        is_good = free + remote <= page.capacity
    return CountedPage(page, arena, free, remote, is_good)


def make_slot_runs(survey: MimallocSurvey, form: MimallocForm, arena: Optional[int]) -> "Tuple[array[int], Frees]":
    """Return the memory of one arena, or of all, as runs of slots: the blocks of each page, and a slot for each piece without blocks."""
    rows: List[Tuple[int, ...]] = []
    for piece, index in survey.pieces:
        if arena in (None, index):
            rows.append(_make_slot(piece.start, piece.end, piece.kind, index))
    for counted in survey.pages:
        page, index = counted.page, counted.arena
        if arena not in (None, index) or not counted.is_good:
            continue
        usable = page.block_bytes - (records.PAD_BYTES if form.is_padded else 0)
        middle, last = page.start + page.capacity * page.block_bytes, page.start + page.reserved * page.block_bytes
        for start, end, kind in (
            (page.memory, page.start, records.MI_METADATA),
            (middle, last, records.MI_RESERVE),
            (last, page.end, records.MI_METADATA),
        ):
            if start < end:
                rows.append(_make_slot(start, end, kind, index))
        if page.capacity:
            rows.append(
                tuple(
                    SlotRun(page.start, page.block_bytes, page.capacity, usable, index, 0, records.MI_USED, records.MI_USED, 0, 0, False, 0)
                )
            )
    rows.sort()
    kept: List[Tuple[int, ...]] = []
    end = 0
    for row in rows:  # what damage makes lie across another is left out
        if row[0] >= end:
            kept.append(row)
            end = row[0] + row[1] * row[2]
    return array("Q", [number for row in kept for number in row]), Frees(survey.frees.addresses, survey.frees.kinds)


def _make_slot(start: int, end: int, kind: int, arena: int) -> Tuple[int, ...]:
    return tuple(SlotRun(start, end - start, 1, end - start, arena, 0, kind, kind, 0, 0, False, 0))


def find_page(survey: MimallocSurvey, address: int) -> Optional[CountedPage]:
    """The page whose memory has the address."""
    place = bisect_right([counted.page.memory for counted in survey.pages], address) - 1
    return survey.pages[place] if place >= 0 and address < survey.pages[place].page.end else None


UNCOLLECTED = {(records.ABANDONED, 1), (records.SHARED, 1), (records.SHARED, 2), (records.ABANDONED, 3)}
"""Owner and line of releases whose free memory mi_collect(true) of another thread leaves (heap.c, theap.c: mi_collect)."""


def count_used_bytes(form: MimallocForm, counted: CountedPage) -> int:
    """Return the usable bytes of a page's blocks in use."""
    return counted.used * (counted.page.block_bytes - (records.PAD_BYTES if form.is_padded else 0))


def _make_arena(
    mimalloc: detect.Mimalloc,
    around: HeapContext,
    owner: PageOwner,
    index: int,
    pages: Sequence[CountedPage],
    pieces: Sequence[detect.MimallocPiece],
) -> records.MimallocArena:
    kind, _, lwp, name = owner
    by_kind: Dict[int, List[Range]] = {records.MI_SPAN: [], records.MI_RETURNED: [], records.MI_METADATA: []}
    for piece in pieces:
        by_kind[piece.kind].append((piece.start, piece.end))
    span, returned, own = (sum(end - start for start, end in ranges) for ranges in by_kind.values())
    good = [counted for counted in pages if counted.is_good]
    everything = sum(counted.page.end - counted.page.memory for counted in pages)
    unparsed = everything - sum(counted.page.end - counted.page.memory for counted in good)
    used = sum(count_used_bytes(mimalloc.form, counted) for counted in good)
    free = sum(counted.free * counted.page.block_bytes for counted in good)
    remote = sum(counted.remote * counted.page.block_bytes for counted in good)
    reserve = sum((counted.page.reserved - counted.page.capacity) * counted.page.block_bytes for counted in good)
    held = everything + own + span
    unused = [[counted for counted in good if not counted.used and bool(counted.remote) == is_remote] for is_remote in (True, False)]
    whole, empty = (sum(counted.page.end - counted.page.memory for counted in some) for some in unused)
    ranges = unite_ranges(
        [*((counted.page.memory, counted.page.end) for counted in pages), *by_kind[records.MI_SPAN], *by_kind[records.MI_METADATA]]
    )
    os_page = around.target.page_bytes
    in_ram = around.ram.of(unite_ranges([(start & -os_page, -(-end // os_page) * os_page) for start, end in ranges]), False)
    spans = [(piece.start, piece.end) for piece in pieces if piece.kind == records.MI_SPAN and not piece.is_pinned]
    emptied = [(counted.page.memory, counted.page.end) for some in unused for counted in some] if kind != records.SHARED else []
    collected = unite_ranges([*spans, *emptied]) if (kind, mimalloc.form.line) not in UNCOLLECTED else []
    collected_in_ram = around.ram.of(collected, False) if collected else None
    resident = 0 if not collected else collected_in_ram.resident_bytes if collected_in_ram is not None else None
    worth: Tuple[int, Optional[int]] = (sum(end - start for start, end in collected), resident)
    own_worth, unowned_worth = (worth, (0, 0)) if kind == records.THREAD else ((0, 0), worth)
    given = unite_ranges([(-(-start // os_page) * os_page, end & -os_page) for start, end in by_kind[records.MI_RETURNED]])
    given_in_ram = around.ram.of(given, False)
    return records.MimallocArena(
        allocator=mimalloc.id,
        index=index,
        owner=kind,
        lwp=lwp,
        name=name,
        pages=len(pages),
        held_bytes=held,
        used_blocks=sum(counted.used for counted in good),
        used_bytes=used,
        free_blocks=sum(counted.free for counted in good),
        free_bytes=free,
        remote_free_blocks=sum(counted.remote for counted in good),
        remote_free_bytes=remote,
        reserve_bytes=reserve,
        span_bytes=span,
        overhead_bytes=held - used - free - remote - reserve - span - unparsed,
        unparsed_bytes=unparsed,
        uncollected_pages=len(unused[0]),
        uncollected_bytes=whole,
        empty_bytes=empty,
        collectable_bytes=own_worth[0],
        collectable_resident_bytes=own_worth[1],
        unowned_collectable_bytes=unowned_worth[0],
        unowned_collectable_resident_bytes=unowned_worth[1],
        returned_bytes=returned,
        returned_resident_bytes=given_in_ram.resident_bytes if given_in_ram is not None else None if given else 0,
        returned_huge_bytes=given_in_ram.huge_bytes if given_in_ram is not None else None if given else 0,
        resident_bytes=in_ram.resident_bytes if in_ram is not None else None,
    )


LIST_DAMAGE = (codes.LIST_STRAY, codes.LIST_RING)
ABORTS: Dict[str, str] = {codes.LIST_TWICE: "double free detected", codes.LIST_STRAY: "corrupted free list entry"}
"""What secure and debug builds say; others do not notice."""


def _find_suspect(found: MimallocSurvey, one: detect.BrokenPlace) -> Optional[answers.RuleSuspect]:
    """A list is damaged in a free block: the block before that one is the likeliest to have been written past."""
    counted = find_page(found, one.address) if one.code in LIST_DAMAGE else None
    if counted is None:
        return None
    page = counted.page
    place = (one.address - page.start) // page.block_bytes - 1
    return (
        answers.RuleSuspect(TargetAddress(page.start + place * page.block_bytes), page.block_bytes, records.MI_WORDS[0])
        if place >= 0
        else None
    )


MIMALLOC_FIGURES = (
    answers.Figure("pages", "pages", "pages that threads own, or left behind", is_shown=False),
    answers.Figure(
        "used_bytes", "used", "bytes of blocks in use; those that other threads have freed and the owner has not collected count here"
    ),
    answers.Figure("free_bytes", "free", "bytes of free blocks in pages"),
    answers.Figure("reserve_bytes", "reserve", "bytes of pages for blocks that were never handed out"),
    answers.Figure("span_bytes", "spans", "bytes of free slices that were not returned to the OS yet"),
)


class MimallocMeter(answers.LocatedMeter):
    """Reads the counters of one mimalloc."""

    figures = MIMALLOC_FIGURES

    def read(self, walk_seconds: float) -> answers.Reading:
        """The counters now: a page that is being made, or given up, is left out."""
        found = self.located.read(self.target)
        used = sum(page.used * page.block_bytes for page in found.pages)
        free = sum((page.capacity - page.used) * page.block_bytes for page in found.pages)
        reserve = sum((page.reserved - page.capacity) * page.block_bytes for page in found.pages)
        span = sum(piece.end - piece.start for piece in found.pieces if piece.kind == records.MI_SPAN)
        own = sum(piece.end - piece.start for piece in found.pieces if piece.kind == records.MI_METADATA)
        held = sum(page.end - page.memory for page in found.pages) + span + own
        large = sum(page.used * page.block_bytes for page in found.pages if page.reserved == 1)
        return _make_reading(len(found.pages), used, free, reserve, span, held, large)


def _make_reading(pages: int, used: int, free: int, reserve: int, span: int, held: int, large: int) -> answers.Reading:
    return answers.Reading((pages, used, free, reserve, span), held, used, held - used, None, walked_bytes=held - large, large_bytes=large)


MIMALLOC_SHAPE = BlockShape(
    records.MI_WORDS, (0,) * len(records.MI_WORDS), None, in_size_classes=True, keeps_freed_content=True, unreturned_kinds={records.MI_SPAN}
)
PADDED_SHAPE = MIMALLOC_SHAPE._replace(overheads=records.PADDING)
CHECK_HINT = "run check for each rule that is broken"


class MimallocHeap(MeteredInstance):
    """Everything one mimalloc can be asked for."""

    located: detect.Mimalloc
    meter_type = MimallocMeter

    @property
    def shape(self) -> BlockShape:
        """Describe its blocks."""
        return PADDED_SHAPE if self.located.form.is_padded else MIMALLOC_SHAPE

    def exact_reading(self) -> answers.Reading:
        rows = self.arenas()
        used = sum(row.used_bytes + row.remote_free_bytes for row in rows)
        free, reserve, span = (sum(getattr(row, name) for row in rows) for name in ("free_bytes", "reserve_bytes", "span_bytes"))
        return _make_reading(sum(row.pages for row in rows), used, free, reserve, span, sum(row.held_bytes for row in rows), 0)

    @cache_answer
    def survey(self) -> MimallocSurvey:
        """Survey all pages and lists, and report what is wrong with them."""
        return self._survey_pages(True)

    @cache_answer
    def counted(self) -> MimallocSurvey:
        """Return a survey for totals. Of a live process no lists are followed, for that takes long: each page's own count is believed,
        which a thread changes in one step.
        """
        return self._survey_pages(False) if self.target.kind == "live" else self.survey()

    def _survey_pages(self, follows: bool) -> MimallocSurvey:
        found, report = survey_mimalloc(self.located, self.around, follows), self.around.report
        self._report_cut(found)
        for one in found.broken[: codes.MOST_TOLD]:
            report(one.code, one.address, one.what, CHECK_HINT)
        if len(found.broken) > codes.MOST_TOLD:
            report(codes.PAGE_WRONG, None, count_noun(len(found.broken) - codes.MOST_TOLD, "more contradiction"), CHECK_HINT)
        return found

    def _report_cut(self, found: MimallocSurvey) -> None:
        if not found.frees.is_whole:
            hint = "give --max-seconds more"
            self.around.report(codes.PAGES_CUT, None, "not every free list of %s was followed" % self.located.id, hint)

    def claims(self) -> List[Claim]:
        """Segments or arenas as a whole, pages of their own, and the page map."""
        return [
            Claim(start, end, "segments" if self.located.form.line < 3 else "arenas")
            for start, end in unite_ranges(self.counted().reserved)
        ]

    def blocks(self, block_filter: BlockFilter = EVERYTHING, arena: Optional[int] = None) -> BlockStream:
        """Blocks in use and free, what was never handed out, spans and metadata, by address. Damage is reported beforehand."""
        slots, frees = make_slot_runs(self.survey(), self.located.form, arena)
        around = self.around
        return SlotWalker(around.kernel, self.target.bulk_source(), slots, records.MI_CLASS_OF, 1, around.budget, frees).blocks(
            block_filter
        )

    def block_at(self, address: int) -> Optional[answers.AllocatorPlace]:
        """The block and page that hold the address."""
        found = self.survey()
        claim = self.find_claim(address)
        if claim is None:
            return None
        parts, counted = [], find_page(found, address)
        if counted is not None:
            page = counted.page
            text = "%d-byte blocks, %d of %d in use" % (page.block_bytes, counted.used, page.reserved)
            text += "; aligned ones may begin inside theirs" if page.has_aligned else ""
            parts.append(answers.AddressPart("page", text, TargetAddress(page.memory), TargetAddress(page.end)))
        segment = next((one for one in found.segments if one.address <= address < one.end), None)
        if segment is not None:
            kind = "segment" if self.located.form.line < 3 else "arena"
            parts.append(answers.AddressPart(kind, "", TargetAddress(segment.address), TargetAddress(segment.end)))
        parts = parts or [answers.AddressPart("memory", claim.what, TargetAddress(claim.start), TargetAddress(claim.end))]
        begin = counted.page.memory - 1 if counted is not None else 0
        near = answers.find_neighbours(self.blocks(EVERYTHING._replace(start=max(0, begin))), self.shape, address)
        return answers.make_heap_place(near, self.shape, self.info.id, address, parts)

    @cache_answer
    def arenas(self) -> Sequence[records.MimallocArena]:
        """Return a row for each thread that owns pages, for abandoned pages and for shared memory."""
        survey = self.counted()
        pages: List[List[CountedPage]] = [[] for _ in survey.owners]
        pieces: List[List[detect.MimallocPiece]] = [[] for _ in survey.owners]
        for counted in survey.pages:
            pages[counted.arena].append(counted)
        for piece, index in survey.pieces:
            pieces[index].append(piece)
        rows = enumerate(zip(survey.owners, pages, pieces))
        return [
            _make_arena(self.located, self.around, owner, index, its_pages, its_pieces) for index, (owner, its_pages, its_pieces) in rows
        ]

    @cache_answer
    def bins(self) -> List[records.MimallocBin]:
        """The block sizes that have pages."""
        by_size: Dict[int, List[CountedPage]] = {}
        for counted in self.counted().pages:
            if counted.is_good:
                by_size.setdefault(counted.page.block_bytes, []).append(counted)
        rows = []
        for size, pages in sorted(by_size.items()):
            free, remote = sum(one.free for one in pages), sum(one.remote for one in pages)
            rows.append(
                records.MimallocBin(
                    allocator=self.located.id,
                    size_bytes=size,
                    pages=len(pages),
                    page_bytes=sum(one.page.end - one.page.memory for one in pages),
                    used_blocks=sum(one.used for one in pages),
                    used_bytes=sum(count_used_bytes(self.located.form, one) for one in pages),
                    free_blocks=free,
                    free_bytes=free * size,
                    remote_free_blocks=remote,
                    remote_free_bytes=remote * size,
                    reserve_bytes=sum((one.page.reserved - one.page.capacity) * size for one in pages),
                )
            )
        return rows

    def histogram(self) -> List[HistogramRow]:
        """Return a row for each block size; remote frees count as free."""
        rows = []
        for row in self.bins():
            free, free_bytes = row.free_blocks + row.remote_free_blocks, row.free_bytes + row.remote_free_bytes
            rows.append(HistogramRow(row.size_bytes, row.size_bytes, row.used_blocks, row.used_bytes, free, free_bytes, 0))
        return rows

    def facts(self) -> records.MimallocFacts:
        """Freeze one reading for the verdict."""
        known = (self.info, self.arenas(), self.totals(), self.histogram(), self.claims())
        survey, values = self.counted(), detect.map_options(self.tunables().tunables)
        resets = [values[name] for name in detect.RESETS if name in values]
        return records.MimallocFacts(
            *known,
            is_whole=survey.is_whole,
            has_ended=self.located.form.line < 3,
            returned=unite_ranges([(piece.start, piece.end) for piece, _ in survey.pieces if piece.kind == records.MI_RETURNED]),
            delay=next(((name, values[name]) for name in detect.DELAYS if name in values), None),
            is_reset=resets[0] == 0 if resets else None,
        )

    @cache_answer
    def tunables(self) -> detect.MimallocTunables:
        """Its options, by the array that it reads them from."""
        return detect.MimallocTunables(detect.read_mimalloc_options(self.target, self.located.options))

    @property
    def never_returns(self) -> NeverReturns:
        """Say why no command returns its memory, and what mi_collect would return."""
        calls = [str(line) for line in records.describe_collections(self.totals())]
        return MI_NEVER_RETURNS._replace(hint="; ".join([*calls, MI_NEVER_RETURNS.hint]))

    def what_if(self) -> Sequence[answers.Effect]:
        """Return the effects of its variables."""
        from gdbheapx.allocators.measured import DECOMMIT_DELAY, PURGE_DELAY
        from gdbheapx.common import findings as codes

        places = self.located.form.segment
        by = DECOMMIT_DELAY if places is not None and not places.has_memid else PURGE_DELAY
        whole = sum(row.empty_bytes + row.uncollected_bytes + row.span_bytes for row in self.arenas())
        free, value = sum(row.held_bytes - row.used_bytes for row in self.arenas()), self.target.environment_variable(by.variable)
        words = {
            "code": "purge-delay",
            "cause": codes.FREED_AND_HELD,
            "why": "pages without a block in use, and free slices, returned as they become free",
            "cost": "a system call for each, and page faults",
        }
        return [answers.by_variable(by, value, whole, free, **words), answers.effect_of_restart(free)]

    def kept(self) -> answers.Keeping:
        """Free blocks stay while one of their page is in use or waits for its owner; a page wholly free, until its owner comes by."""
        rooms: Dict[int, int] = {}
        kept = [0] * len(self.counted().owners)
        for counted in self.counted().pages:
            page, room = counted.page, counted.page.end - counted.page.memory
            if counted.is_good:
                rooms[page.block_bytes] = min(room, rooms.get(page.block_bytes, room))
                kept[counted.arena] += counted.free * page.block_bytes
        padding = records.PADDING if self.located.form.is_padded else ()
        shape = PinShape(self.target.page_bytes, overheads=padding, listed_kinds={records.MI_SPAN}, rooms=sorted(rooms.items()))
        return answers.Keeping(
            shape, [answers.ArenaKeeps(index, free) for index, free in enumerate(kept)], [answers.Term("free", sum(kept))]
        )

    def rules(self) -> Iterator[answers.BrokenRule]:
        """Return each place that breaks a rule of mimalloc's, once, at most so many; report what cannot be read, or was changing."""
        found, report = survey_mimalloc(self.located, self.around), self.around.report
        arenas = {thread: index for index, (_, thread, _, _) in enumerate(found.owners)}
        self._report_cut(found)
        seen: Set[Tuple[str, int]] = set()
        for one in found.broken:
            if one.code.nature is Severity.UNREAD:
                report(one.code, one.address, one.what, None)
            elif (one.code, one.address) not in seen and len(seen) < answers.MOST_BROKEN:
                seen.add((one.code, one.address))
                yield answers.BrokenRule(
                    allocator=self.located.id,
                    arena=arenas.get(one.thread) if one.thread is not None else None,
                    code=one.code,
                    address=TargetAddress(one.address),
                    rule=str(one.code),
                    abort=ABORTS.get(one.code) if self.located.form.is_encoded else None,
                    suspect=_find_suspect(found, one),
                    what=one.what,
                    evidence=answers.INSIDE if one.code is codes.PAGE_CHANGING else None,
                )

    def checks(self) -> List[Check]:
        """Return rows of `doctor`: its release, and encoded lists."""
        form = self.located.form
        rows = [Check("", None, "structures of mimalloc %s, found without symbols" % form.releases, None)]
        if form.is_encoded:
            rows.append(Check("", None, "secure or debug build: free lists are encoded, and are decoded with the keys of each page", None))
        return rows
