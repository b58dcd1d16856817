"""Check every rule of one glibc malloc: the walk, the lists, each chunk, each arena, mmapped chunks."""

from bisect import bisect_left, bisect_right
from collections import Counter
from typing import AbstractSet, Dict, Iterator, List, NamedTuple, Optional, Sequence, Set, Tuple

from gdbheapx.allocators.answers import INSIDE, LOCKED, MOST_BROKEN, BrokenRule, RuleSuspect, make_collector, sorted_out
from gdbheapx.common.errors import UnreadableMemory
from gdbheapx.common.model import TargetAddress
from gdbheapx.common.problems import Diagnostic, PartialSink, ProblemCode, Severity
from gdbheapx.common.ranges import Range, subtract_ranges
from gdbheapx.common.units import count_noun
from gdbheapx.glibc import codes, freelists, survey
from gdbheapx.glibc.arenas import Arena, ArenaWalk, Context, find_reaches, private_mappings, unite_mappings
from gdbheapx.glibc.layouts import HEAP_INFO, NSMALLBINS, TCACHE_SMALL_BINS, align_chunk, bin_range, fast_size, tcache_range, tcache_size
from gdbheapx.glibc.plan import SIGABRT, find_glibc_code_spans
from gdbheapx.glibc.records import MmappedTotals
from gdbheapx.kernel.common.library import ADDRESS_MASK
from gdbheapx.kernel.glibc import records as api
from gdbheapx.layout.view import Version, read_view

_SYSMALLOC = (
    "(old_top == initial_top (av) && old_size == 0) || "
    "((unsigned long) (old_size) >= MINSIZE && prev_inuse (old_top) && ((unsigned long) old_end & (pagesize - 1)) == 0)"
)
AbortMessages = Tuple[Tuple[Version, Optional[str]], ...]
"""What malloc says from a release on, the newest first; None where it does not notice."""
_FIRST_RELEASE = (2, 12)
_UNNOTICED: AbortMessages = ()
CRASHES = (4, 7, 8, 11)
"""SIGILL, SIGBUS, SIGFPE, SIGSEGV: malloc does not get them unless what it reads is damaged; nor does it abort."""
FRAME_WORDS = 8
"""So many words from the stack pointer on are taken for return addresses of a leaf function or a system call."""


def _aborts(message: str, since: Version = _FIRST_RELEASE, before: Optional[str] = None, until: Optional[Version] = None) -> AbortMessages:
    later = () if until is None else (((until[0], until[1] + 1), None),)
    earlier = () if since == _FIRST_RELEASE else ((_FIRST_RELEASE, before),)
    return (*later, (since, message), *earlier)


_TOP_ASSERTION: AbortMessages = (
    ((2, 38), "(sysmalloc): assertion failed: %s" % _SYSMALLOC),
    ((2, 36), "Fatal glibc error: malloc assertion failure in sysmalloc: %s" % _SYSMALLOC),
    (_FIRST_RELEASE, "sysmalloc: Assertion `%s' failed." % _SYSMALLOC),
)
RULES: Dict[str, Tuple[ProblemCode, AbortMessages]] = {
    "chunk-size-small": (codes.CHUNK_SMALL, _aborts("free(): invalid size")),
    "chunk-size-misaligned": (codes.CHUNK_MISALIGNED, _aborts("free(): invalid size")),
    "chunk-mmapped-bit": (codes.CHUNK_MMAPPED_BIT, _aborts("munmap_chunk(): invalid pointer")),
    "chunk-mmapped-cached": (codes.CHUNK_MMAPPED_BIT, _UNNOTICED),
    "chunk-overrun": (codes.CHUNK_OVERRUN, _aborts("double free or corruption (out)")),
    "chunk-size-zero": (codes.FENCEPOST_INSIDE, _aborts("free(): invalid size")),
    "unsorted-size": (codes.CHUNK_SMALL, _aborts("malloc(): invalid size (unsorted)", since=(2, 29), before="malloc(): memory corruption")),
    "unsorted-next-size": (codes.CHUNK_SMALL, _aborts("malloc(): invalid next size (unsorted)", since=(2, 29))),
    "unsorted-prev-size": (codes.PREV_SIZE_WRONG, _aborts("malloc(): mismatching next->prev_size (unsorted)", since=(2, 29))),
    "unsorted-prev-inuse": (codes.BINNED_USED, _aborts("malloc(): invalid next->prev_inuse (unsorted)", since=(2, 29))),
    "unsorted-links": (codes.BIN_BROKEN, _aborts("malloc(): unsorted double linked list corrupted", since=(2, 29))),
    "unsorted-head": (codes.BIN_BROKEN, _aborts("free(): corrupted unsorted chunks")),
    "smallbin-links": (codes.BIN_BROKEN, _aborts("malloc(): smallbin double linked list corrupted")),
    "smallbin-head": (
        codes.BIN_BROKEN,
        _aborts("free(): chunks in smallbin corrupted", since=(2, 41), before="malloc(): smallbin double linked list corrupted"),
    ),
    "largebin-links": (codes.BIN_BROKEN, _aborts("corrupted double-linked list")),
    "largebin-head": (codes.BIN_BROKEN, _aborts("malloc(): largebin double linked list corrupted (bk)", since=(2, 30))),
    "largebin-order": (codes.LARGE_ORDER, _UNNOTICED),
    "largebin-nextsize": (codes.LARGE_LINKS, _aborts("corrupted double-linked list (not small)", since=(2, 22))),
    "bin-size": (codes.ENTRY_SIZE, _UNNOTICED),
    "bin-entry-in-use": (codes.BINNED_USED, _UNNOTICED),
    "bin-entry-not-a-chunk": (codes.BINNED_ASTRAY, _UNNOTICED),
    "bins-mismatch": (codes.BINS_DISAGREE, _aborts("corrupted double-linked list")),
    "prev-size": (codes.PREV_SIZE_WRONG, _aborts("corrupted size vs. prev_size", since=(2, 26))),
    "free-neighbours": (codes.FREE_NEIGHBOURS, _UNNOTICED),
    "free-not-in-bin": (codes.NOT_BINNED, _aborts("corrupted double-linked list")),
    "double-free": (codes.CACHED_FREE, _aborts("double free or corruption (!prev)")),
    "arena-bit": (codes.ARENA_BIT, _UNNOTICED),
    "free-arena-bit": (codes.ARENA_BIT, _UNNOTICED),
    "first-chunk": (codes.FIRST_CHUNK, _aborts("corrupted size vs. prev_size while consolidating", since=(2, 29))),
    "fastbin-unaligned": (codes.FASTBIN_BROKEN, _aborts("malloc(): unaligned fastbin chunk detected", since=(2, 32), until=(2, 42))),
    "fastbin-link": (codes.FASTBIN_BROKEN, _UNNOTICED),
    "fastbin-double-free": (codes.FASTBIN_BROKEN, _aborts("double free or corruption (fasttop)", until=(2, 42))),
    "fastbin-size": (codes.ENTRY_SIZE, _aborts("malloc(): memory corruption (fast)", until=(2, 42))),
    "tcache-unaligned": (codes.CACHE_BROKEN, _aborts("malloc(): unaligned tcache chunk detected", since=(2, 32))),
    "tcache-link": (codes.CACHE_BROKEN, _UNNOTICED),
    "tcache-double-free": (codes.CACHE_BROKEN, _aborts("free(): double free detected in tcache 2", since=(2, 29))),
    "tcache-count": (codes.CACHE_MISCOUNTS, _UNNOTICED),
    "tcache-too-many": (codes.CACHE_MISCOUNTS, _aborts("free(): too many chunks detected in tcache", since=(2, 33))),
    "tcache-size": (codes.ENTRY_SIZE, _UNNOTICED),
    "tcache-key": (codes.CACHE_KEY, _UNNOTICED),
    "listed-twice": (codes.LISTED_TWICE, _aborts("free(): double free detected in tcache 2", since=(2, 29))),
    "listed-not-a-chunk": (codes.LISTED_ASTRAY, _aborts("free(): invalid pointer")),
    "listed-outside": (codes.LISTED_OUTSIDE, _UNNOTICED),
    "top-size": (codes.TOP_WRONG, _aborts("malloc(): corrupted top size", since=(2, 29))),
    "top-small": (codes.TOP_WRONG, _TOP_ASSERTION),
    "top-prev-inuse": (codes.TOP_WRONG, _TOP_ASSERTION),
    "top-page-end": (codes.TOP_WRONG, _TOP_ASSERTION),
    "top-flags": (codes.TOP_WRONG, _UNNOTICED),
    "top-short": (codes.TOP_SHORT, _TOP_ASSERTION),
    "top-unmapped": (codes.TOP_UNREADABLE, _UNNOTICED),
    "top-missing": (codes.NO_TOP, _UNNOTICED),
    "break-below-top": (codes.BREAK_DISAGREES, _aborts("break adjusted to free malloc space")),
    "break-mismatch": (codes.BREAK_DISAGREES, _UNNOTICED),
    "run-not-found": (codes.RUN_NOT_FOUND, _UNNOTICED),
    "fencepost-missing": (codes.NO_FENCEPOST, _UNNOTICED),
    "system-mem": (codes.SYSTEM_MEM_SMALL, _UNNOTICED),
    "bytes-not-located": (codes.NOT_LOCATED, _UNNOTICED),
    "system-mem-max": (codes.ARENA_STATE, _UNNOTICED),
    "attached-threads": (codes.ARENA_STATE, _UNNOTICED),
    "arena-mutex": (codes.ARENA_STATE, _UNNOTICED),
    "arena-flags": (codes.ARENA_STATE, _UNNOTICED),
    "binmap": (codes.BINMAP_WRONG, _UNNOTICED),
    "arena-ring": (codes.RING_BROKEN, _UNNOTICED),
    "arena-ring-open": (codes.RING_OPEN, _UNNOTICED),
    "main-arena-lost": (codes.MAIN_ARENA_LOST, _UNNOTICED),
    "heap-arena": (codes.HEAP_CHAIN, _UNNOTICED),
    "heap-prev": (codes.HEAP_CHAIN, _UNNOTICED),
    "heap-size": (codes.HEAP_CHAIN, _UNNOTICED),
    "heap-sum": (codes.HEAP_CHAIN, _UNNOTICED),
    "heap-info": (codes.HEAP_DAMAGED, _UNNOTICED),
    "heap-unmapped": (codes.HEAP_UNREADABLE, _UNNOTICED),
    "chunk-unmapped": (codes.CHUNK_UNREADABLE, _UNNOTICED),
    "mmapped-count": (codes.MP_DISAGREES, _UNNOTICED),
    "mmapped-header": (codes.MAPPED_HEADER, _aborts("munmap_chunk(): invalid pointer")),
    "mmapped-as-used": (codes.MAPPED_HEADER, _aborts("double free or corruption (out)")),
    "mmapped-as-small": (codes.MAPPED_HEADER, _aborts("free(): invalid size")),
    "mmapped-as-wild": (codes.MAPPED_HEADER, _aborts("free(): invalid size", since=(2, 42), before="free(): invalid pointer")),
    "mmapped-flags": (codes.MAPPED_HEADER, _UNNOTICED),
    "mmapped-size": (codes.MAPPED_HEADER, _UNNOTICED),
}
"""By the rule's name its code and the messages that malloc aborts with (malloc/malloc.c: malloc_printerr, assert)."""


def abort_of(rule: str, release: Optional[Version]) -> Optional[str]:
    """Return what a release aborts with where it meets a broken rule, or None. `release`: None if unknown: the newest message is it."""
    messages = RULES[rule][1]
    if release is None:
        return next((message for _, message in messages if message is not None), None)
    return next((message for since, message in messages if release >= since), None)


class Findings:
    """Broken rules of one heap, each place once."""

    def __init__(self, context: Context, walks: Sequence[ArenaWalk]) -> None:
        self._context, threads = context, context.target.threads()
        self._locked: Set[int] = set()
        """Addresses of arenas whose mutex is held. This and the next explain a contradiction in a process that was stopped in the middle of
        a change; a core of a process that crashed or aborted shows what was wrong before."""
        self._is_inside = False
        """A thread is in malloc's code."""
        self._is_single = len(threads) == 1
        """There is one thread, which takes no lock (SINGLE_THREAD_P, 2.27)."""
        if not any(thread.signal in (*CRASHES, SIGABRT) for thread in threads[:1]):
            target, word = context.target, context.glibc.geometry.word_bytes
            code = find_glibc_code_spans(target, context.glibc.module) or []
            places = [thread.pc for thread in threads]
            for thread in threads:
                if thread.stack_pointer is not None:
                    places += target.words_in(target.read_prefix(thread.stack_pointer & -word, FRAME_WORDS * word))
            self._locked = {walk.arena.address for walk in walks if walk.arena.state["mutex"]}
            self._is_inside = any(span.start <= place < span.end for place in places if place is not None for span in code)
        self._found: Dict[Tuple[str, Optional[int]], BrokenRule] = {}
        page = context.glibc.geometry.page_bytes
        spans = [(start, end, walk) for walk in walks for start, end in walk.ranges(page)]
        spans += [(walk.arena.address, walk.arena.address + walk.arena.state.size_bytes, walk) for walk in walks if walk.arena.is_main]
        self._spans = sorted(spans, key=lambda span: span[:2])
        self._starts = [span[0] for span in self._spans]

    @property
    def rows(self) -> List[BrokenRule]:
        """Return all in the order found; findings at one address share a suspect."""
        suspects = {row.address: row.suspect for row in self._found.values() if row.suspect is not None and row.address is not None}
        return [
            row if row.suspect is not None else row._replace(suspect=suspects.get(row.address or TargetAddress(0)))
            for row in self._found.values()
        ]

    def arena_of(self, address: Optional[int]) -> Optional[ArenaWalk]:
        """The arena that owns this address."""
        place = bisect_right(self._starts, address) - 1 if address is not None else -1
        return self._spans[place][2] if place >= 0 and address is not None and address < self._spans[place][1] else None

    def add(self, rule: str, address: Optional[int], message: str, suspect: Optional[RuleSuspect] = None, is_cache: bool = False) -> None:
        """Add a broken rule unless its place has it already."""
        key = (rule, address)
        if key in self._found or len(self._found) >= MOST_BROKEN:
            return
        walk, glibc, evidence = self.arena_of(address), self._context.glibc, None
        if walk is not None and walk.arena.address in self._locked:
            evidence = LOCKED
        elif self._is_inside and (self._is_single or is_cache):
            evidence = INSIDE
        self._found[key] = BrokenRule(
            allocator=glibc.id,
            arena=walk.arena.index if walk is not None else None,
            code=RULES[rule][0],
            address=TargetAddress(address) if address is not None else None,
            rule=rule,
            abort=abort_of(rule, glibc.version),
            suspect=suspect,
            what=message,
            evidence=evidence,
        )


WORDS = {api.STATUS_USED: "used", api.STATUS_TCACHE: "tcache", api.STATUS_FAST: "fast", api.STATUS_TCACHE_STRUCT: "overhead"}
"""Statuses of chunks into which the program or malloc writes, or wrote."""
RULE_OF_BIN = {"unsorted": "unsorted", "small": "smallbin", "large": "largebin"}
KEY_SAMPLES, KEYS_OF_A_LIST = 64, 4
PREV_INUSE, MMAPPED, NON_MAIN, FLAGS = 1, 2, 4, 7
MUTEX_VALUES = (0, 1, 2)
"""Free, locked, locked with waiters (lowlevellock)."""
KNOWN_FLAGS = 7
MOST_THREADS = 1 << 22
"""PID_MAX_LIMIT: no arena has more threads."""
MAP_BITS = 32
BY_CODE = {
    RULES[rule][0]: rule
    for rule in (
        *("chunk-size-small", "chunk-size-misaligned", "chunk-mmapped-bit", "chunk-overrun", "chunk-size-zero", "top-missing", "top-short"),
        *("fencepost-missing", "break-mismatch", "run-not-found", "bytes-not-located", "system-mem", "arena-ring", "arena-ring-open"),
        *("main-arena-lost", "heap-info", "listed-twice", "bins-mismatch", "mmapped-count"),
    )
}
"""Damage that the walk reports. Its complaints of lists and neighbours are found again here, place by place, with finer names."""
_FREED_TWICE = "the next chunk says that it is free: freed twice, or overrun"
CHUNK_RULES: Dict[int, Tuple[str, str, str]] = {
    api.BROKEN_PREV_SIZE: ("prev-size", "before", "a free chunk of this size must have it repeated behind it; 0x%x is there"),
    api.BROKEN_FREE_NEIGHBOURS: ("free-neighbours", "", "a free chunk directly follows the free chunk at 0x%x"),
    api.BROKEN_NOT_BINNED: ("free-not-in-bin", "used", "the next chunk says that this chunk is free, but no bin holds it"),
    api.BROKEN_BINNED_USED: ("bin-entry-in-use", "", "a bin holds this chunk, but the next chunk says that it is in use"),
    api.BROKEN_BINNED_ASTRAY: ("bin-entry-not-a-chunk", "", "a bin holds this address, but no chunk begins here"),
    api.BROKEN_LISTED_FREE: ("double-free", "tcache", "this chunk is on a thread cache's or fastbin's list, but %s" % _FREED_TWICE),
    api.BROKEN_LISTED_ASTRAY: ("listed-not-a-chunk", "", "a thread cache or fastbin holds this address, but no chunk begins here"),
    api.BROKEN_NON_MAIN: ("arena-bit", "before", "the size field 0x%x %s the bit NON_MAIN_ARENA, against its arena"),
    api.BROKEN_FREE_FLAGS: ("free-arena-bit", "before", "the size field 0x%x of a free chunk has the bit NON_MAIN_ARENA"),
    api.BROKEN_FIRST: ("first-chunk", "", "the first chunk of a heap says that the chunk before it is free"),
}
"""By contradiction: its rule; the suspect (the block before the chunk; a status: the chunk itself, which ends at the damaged header); what
is said of the value."""
OF_UNSORTED = {api.BROKEN_PREV_SIZE: "unsorted-prev-size", api.BROKEN_BINNED_USED: "unsorted-prev-inuse"}
"""Rules of chunks in unsorted bins, where they differ."""
UNMAPPED: Dict[ProblemCode, str] = {
    codes.RING_UNREADABLE: "arena-ring",
    codes.HEAP_UNREADABLE: "heap-unmapped",
    codes.TOP_UNREADABLE: "top-unmapped",
    codes.CHUNK_UNREADABLE: "chunk-unmapped",
}
"""What cannot be read because nothing is mapped there: damage, not a core that lacks it."""
CHAINS = (codes.HEAP_DAMAGED, codes.HEAP_UNREADABLE, codes.RING_BROKEN, codes.RING_OPEN, codes.RING_UNREADABLE, codes.RING_CUT)
"""Arenas or heaps are missing: what lists hold may be in them."""
SIZES = (codes.CHUNK_SMALL, codes.CHUNK_MISALIGNED, codes.CHUNK_OVERRUN, codes.FENCEPOST_INSIDE)
MOST_LOOKED_AT = 4096
"""Places where a block may begin."""
MOST_LEAD_BYTES = 64 << 10
MOST_PLACES = 64
"""Alignments that memalign may have been asked for."""
SEARCHED = 1 << 40
"""More chunks than there are: a search for all that lie somewhere."""


def _is_found_again(diagnostic: Diagnostic) -> bool:
    """Return whether the checks here find this damage again, with finer names: all that BY_CODE lacks, but lost threads."""
    code = diagnostic.code
    return code.nature == Severity.DAMAGE and code not in BY_CODE and code != codes.CACHES_LOST


class GlibcCheck:
    """Look at every rule once. `walked`: the walk, whose complaints are in `complaints`; `report`: for what breaks no rule."""

    def __init__(self, context: Context, walked: survey.Survey, complaints: Sequence[Diagnostic], report: PartialSink) -> None:
        self.context, self.survey, self.complaints, self.report = context, walked, complaints, report
        self.singles, self.glibc = walked.singles, context.glibc
        self.walks = [walk for walk in walked.walks if not walk.timed_out]
        self.arenas = [walk.arena for walk in self.walks]
        self.findings = Findings(context, self.walks)
        self.unsorted: Set[int] = set()
        """Chunks in unsorted bins, at which malloc looks first, and of which it says other things; filled if something is wrong with a
        chunk.
        """
        self.stops: Dict[Optional[int], api.NativeBroken] = {}
        """By address where each region ended."""

    def run(self) -> List[BrokenRule]:
        """Return all broken rules."""
        own, later = self.context, []  # type: Context, List[Diagnostic]
        self.context = own._replace(report=make_collector(later))
        try:
            if not own.budget.expired():
                self._check_lists_and_chunks()
            for walk in self.walks:
                _check_top(self.context, self.findings, walk.arena, self._find_suspect(self.stops.get(walk.arena.top)))
                _check_state(self.findings, walk.arena)
                _check_bin_map(self.context, self.findings, walk.arena)
                _check_heaps(self.context, self.findings, walk)
        except UnreadableMemory as problem:
            self.report(codes.MP_UNREADABLE, problem.address, "cannot read mp_", "not every rule was checked")
        complaints = [diagnostic for diagnostic in self.complaints if not _is_found_again(diagnostic) and not self._is_unmapped(diagnostic)]
        sorted_out(complaints, BY_CODE, self.report, self._add_complaint)
        for diagnostic in later:
            if not _is_found_again(diagnostic) and diagnostic.code not in BY_CODE:
                self.report(*diagnostic)
        heaps = sorted((claim.start, claim.end) for claim in survey.arena_claims(self.survey))
        check_mmapped_count(own, self.findings, heaps, self.report)
        return self.findings.rows

    def _check_lists_and_chunks(self) -> None:
        """Check the lists, then every chunk in one pass."""
        followed, is_damaged = self.singles.followed, any(walk.damages for walk in self.walks)
        for group in self.singles.fast:
            self._tell_lists(group, followed)
        self._tell_caches()
        members: Sequence[int] = ()
        known: Set[int] = set()
        if not self._check_members():
            lists = freelists.FreeLists(self.context)
            bins = [freelists.ask_lists(lists, arena, api.BIN) for arena in self.arenas]
            doubles = lists.follow(collect=True)
            for group in bins:
                self._tell_lists(group, doubles)
                words, headers = group.arena.state.numbers("bins"), freelists.list_bin_headers(group.arena, self.glibc)
                for index, (head, tail, header) in enumerate(zip(words[0::2], words[1::2], headers), 1):
                    if head == header != tail:
                        message = "bin %d of %s is empty by fd, but its bk is 0x%x" % (index, group.arena.title, tail)
                        self.findings.add("%s-head" % RULE_OF_BIN[freelists.kind_of_bin(index)], header, message)
            members = doubles.members
            known = {one.arena.index for one in bins if not any(doubles.problems[one.first : one.first + len(one.indexes)])}
        rows, _ = self.context.walker.check(self._list_regions(known), self.singles.followed.members, members)
        self.stops = {row.address: row for row in rows if row.rule == api.BROKEN_STOP}
        if is_damaged or any(row.rule != api.BROKEN_STOP for row in rows):
            self.unsorted.update(freelists.collect_unsorted(self.context, self.arenas))
        for row in rows:
            self._tell_chunk(row)
        is_whole = not is_damaged and not any(walk.unparsed_bytes for walk in self.walks) and len(self.walks) == len(self.survey.walks)
        if is_whole and not any(diagnostic.code in CHAINS for diagnostic in self.complaints):
            self._tell_outside()

    # ---- single chunks

    def _list_regions(self, known: Set[int]) -> List[api.Checked]:
        """Every run of chunks that was walked. `known`: indexes of arenas whose bins are whole."""
        checked = []
        for walk in self.walks:
            firsts = {heap.region(self.glibc, 0).begin for heap in walk.heaps}
            if not firsts:
                firsts = {align_chunk(self.glibc.read_mp(self.context.target)["sbrk_base"], self.glibc.geometry)}
            own = api.REGION_MAIN * walk.arena.is_main | api.REGION_BINS_KNOWN * (walk.arena.index in known)
            checked += [api.Checked(region, own | api.REGION_FIRST * (region.begin in firsts)) for region, _ in walk.runs]
        return checked

    def _find_suspect(self, row: Optional[api.NativeBroken]) -> Optional[RuleSuspect]:
        """Return the block before the damaged header, if it is one that the program or malloc writes into."""
        if row is None or not row.previous or row.previous_status not in WORDS:
            return None
        address = TargetAddress(row.previous + 2 * self.glibc.geometry.word_bytes)
        return RuleSuspect(address, row.address - row.previous, WORDS[row.previous_status])

    def _tell_chunk(self, row: api.NativeBroken) -> None:
        if row.rule == api.BROKEN_STOP:
            return
        rule, status, message = CHUNK_RULES[row.rule]
        if row.address in self.unsorted:
            rule = OF_UNSORTED.get(row.rule, rule)
        if row.rule == api.BROKEN_NON_MAIN:
            message %= (row.value, "has" if row.value & NON_MAIN else "lacks")
        elif "%" in message:
            message %= row.value
        suspect = self._find_suspect(row) if status == "before" else None
        if status in ("used", "tcache"):
            suspect = RuleSuspect(TargetAddress(row.address + 2 * self.glibc.geometry.word_bytes), row.value, status)
        is_cache = row.rule in (api.BROKEN_LISTED_FREE, api.BROKEN_LISTED_ASTRAY)
        self.findings.add(rule, row.address, message, suspect, is_cache)

    def _tell_outside(self) -> None:
        """Add entries of single lists that lie in no arena."""
        chunks, page = self.singles.followed.members, self.glibc.geometry.page_bytes
        spans = sorted(span for walk in self.walks for span in walk.ranges(page))
        outside: Dict[int, None] = {}
        edges = [0, *(edge for span in spans for edge in span), ADDRESS_MASK]
        for start, end in zip(edges[0::2], edges[1::2]):
            first = bisect_left(chunks, start)
            outside.update((chunk & ~FLAGS, None) for chunk in chunks[first : min(bisect_left(chunks, end), first + api.MOST_ROWS)])
        for address in list(outside)[: api.MOST_ROWS]:
            message = "a thread cache or fastbin holds this address, which is in no arena"
            self.findings.add("listed-outside", address, message, is_cache=True)

    # ---- links

    def _tell_lists(self, group: freelists.AskedLists, followed: api.NativeFollowedList) -> None:
        """Add fastbins or bins whose links do not hold."""
        for number, index in enumerate(group.indexes, group.first):
            message, problem = api.describe_damage(followed, number), followed.problems[number]
            if message is None:
                continue
            where, message = group.damage_address(number, index, followed, self.glibc), "%s: %s" % (group.name(index), message)
            if problem == api.UNREAD:
                if group.kind == api.BIN:
                    self.context.report(codes.LIST_UNREAD, where, message, "the chunks after it were not checked")
            elif group.kind == api.FAST:
                rules = {api.UNALIGNED: "fastbin-unaligned", api.CYCLE: "fastbin-double-free"}
                self.findings.add(rules.get(problem, "fastbin-link"), where, message)
            else:
                head = freelists.head_address(group.arena, api.BIN, index, self.glibc)
                is_at_head = not followed.lasts[number] or (problem == api.BACK_LINK and where == head)
                self.findings.add("%s-%s" % (RULE_OF_BIN[freelists.kind_of_bin(index)], "head" if is_at_head else "links"), where, message)

    def _tell_caches(self) -> None:
        """Add thread caches whose links or counts do not hold."""
        followed, caches = self.singles.followed, self.singles.caches
        limit = self.glibc.read_mp(self.context.target).get("tcache_count")
        for cache in caches.caches:
            for index, number in enumerate(caches.lists(cache)):
                problem, count = followed.problems[number], followed.counts[number]
                expected = caches.expected[number] if caches.expected else count
                if not (problem or count or expected):
                    continue
                name, message, where = freelists.name_cache_bin(cache, index), api.describe_damage(followed, number), followed.lasts[number]
                if message is not None and problem != api.UNREAD:
                    rules = {api.UNALIGNED: "tcache-unaligned", api.CYCLE: "tcache-double-free"}
                    rule = rules.get(problem, "tcache-link")
                    self.findings.add(rule, where or cache.address or 0, "%s: %s" % (name, message), is_cache=True)
                if problem:
                    continue
                if limit is not None and count > limit:
                    message = "%s lists %s, more than %d" % (name, count_noun(count, "chunk"), limit)
                    self.findings.add("tcache-too-many", where, message, is_cache=True)
                if expected != count:
                    message = "%s counts %s but lists %d" % (name, count_noun(expected, "chunk"), count)
                    self.findings.add("tcache-count", where or cache.address or 0, message, is_cache=True)

    # ---- members

    def _check_members(self) -> bool:
        """Check sizes, keys and order of list members, and links of bins. Return whether the bins hold exactly the free chunks, as far as
        their number and the sum of their addresses show.
        """
        named = list(self._list_members())
        rows, counts = self.context.walker.check_members([members for _, members in named], self.glibc.traits.safe_linking)
        for row in rows:
            if row.rule != api.MEMBER_LINK:
                self._tell_member(row, *named[row.previous])
        totals = [total for total in (walk.total() for walk in self.walks) if total is not None]
        free = [sum(total.free_chunks for total in totals), sum(total.free_sum for total in totals) & ADDRESS_MASK]
        return not counts[api.MEMBER_LINK] and free == list(counts[api.MEMBER_RULES :])

    def _tell_member(self, row: api.NativeBroken, name: str, members: api.MemberList) -> None:
        at, add = row.address, self.findings.add
        if row.rule == api.MEMBER_KEY:
            message = "%s: the key behind the link is 0x%x, not 0x%x: written to after it was freed" % (name, row.value, members.key)
            add("tcache-key", at, message, is_cache=True)
        elif row.rule == api.MEMBER_ORDER:
            add("largebin-order", at, "%s: the chunk before it has only 0x%x bytes" % (name, row.value))
        elif row.rule == api.MEMBER_NEXTSIZE:
            message = "%s: fd_nextsize and bk_nextsize of this chunk and 0x%x do not point to each other" % (name, row.value)
            add("largebin-nextsize", at, message)
        else:
            rule = {api.BIN: "bin-size", api.FAST: "fastbin-size"}.get(members.kind, "tcache-size")
            is_cache = members.kind in (api.TCACHE, api.TCACHE_SIZED)
            add(rule, at, "%s: a chunk of 0x%x bytes does not belong there" % (name, row.value), is_cache=is_cache)

    def _find_tcache_key(self) -> int:
        """Return the key that most of the sampled cached chunks have in the word after their link: -1 if it is the address of the cache
        that holds the chunk, 0 if it is unknown.
        """
        if not self.glibc.traits.tcache_key:
            return 0
        target, size, followed = self.context.target, 2 * self.glibc.geometry.word_bytes, self.singles.followed
        keys: Counter[int] = Counter()
        for cache in self.singles.caches.caches:
            for number in self.singles.caches.lists(cache):
                if sum(keys.values()) >= KEY_SAMPLES or followed.problems[number]:
                    continue
                entry = self.singles.heads[number]
                for _ in range(min(followed.counts[number], KEYS_OF_A_LIST)):
                    link, key = target.words_in(target.read_prefix(entry, size).ljust(size, b"\0"))
                    keys[-1 if key == cache.address else key] += 1
                    entry = link ^ entry >> 12 if self.glibc.traits.safe_linking else link
        value, count = keys.most_common(1)[0] if keys else (0, 0)
        return value if count > 1 and 2 * count > sum(keys.values()) else 0

    def _list_members(self) -> Iterator[Tuple[str, api.MemberList]]:
        """Yield the whole lists with their names: of thread caches, fastbins, bins."""
        singles, geometry, key = self.singles, self.glibc.geometry, self._find_tcache_key()
        heads, counts, problems = singles.heads, singles.followed.counts, singles.followed.problems
        for cache in singles.caches.caches:
            own = (cache.address or 0) if key == -1 else key
            for index, number in enumerate(singles.caches.lists(cache)):
                if counts[number] and not problems[number]:
                    low, high = tcache_range(index, geometry)
                    kind = api.TCACHE if singles.caches.sizes[index] is not None else api.TCACHE_SIZED
                    yield freelists.name_cache_bin(cache, index), api.MemberList(kind, heads[number], counts[number], low, high, own, False)
        for group in singles.fast:
            for number, index in enumerate(group.indexes, group.first):
                if counts[number] and not problems[number]:
                    size = fast_size(index, geometry)
                    yield group.name(index), api.MemberList(api.FAST, heads[number], counts[number], size, size, 0, False)
        for arena in self.arenas:
            words, limit = arena.state.numbers("bins"), freelists.most_chunks(arena, self.glibc)
            for index, header in enumerate(freelists.list_bin_headers(arena, self.glibc), 1):
                if words[2 * index - 2] == words[2 * index - 1] == header or not any(words[0::2]):
                    continue
                span: Tuple[int, Optional[int]] = 2 * geometry.word_bytes + 1, arena.state["system_mem"]
                least, most = span if index == freelists.UNSORTED else bin_range(index, geometry)
                members = api.MemberList(api.BIN, header, limit, least, ADDRESS_MASK if most is None else most, 0, index >= NSMALLBINS)
                yield "bin %d of %s" % (index, arena.title), members

    # ---- what the walk said

    def _is_unmapped(self, diagnostic: Diagnostic) -> bool:
        """Add what cannot be read because nothing is mapped there."""
        code, address, message, _ = diagnostic
        if code not in UNMAPPED or address is None or any(one.start <= address < one.end for one in self.context.target.mappings()):
            return False
        self.findings.add(UNMAPPED[code], address, message)
        return True

    def _add_complaint(self, diagnostic: Diagnostic) -> None:
        """Add a complaint of the walk: where it stopped is known from the pass over single chunks, and so is the chunk before it."""
        code, address, message, _ = diagnostic
        stop = self.stops.get(address)
        walk, rule = self.findings.arena_of(address), BY_CODE[code]
        if code in (codes.BINS_DISAGREE, codes.NOT_LOCATED, codes.SYSTEM_MEM_SMALL) and self.findings.rows:
            return  # what these sums only hint at was found
        if code == codes.CHUNK_OVERRUN and walk is not None and address == walk.arena.top:
            rule = "top-size"
        elif code == codes.CHUNK_MMAPPED_BIT and self._is_cached_size(address):
            rule = "chunk-mmapped-cached"
        elif code in SIZES and address in self.unsorted:
            rule = "unsorted-size"
        elif code in SIZES and stop is not None and stop.previous in self.unsorted:
            rule = "unsorted-next-size"
        elif code == codes.BREAK_DISAGREES and walk is not None:
            top, end = walk.arena.top + self._read_top_size(walk), self.glibc.break_address(self.context.target)
            rule = "break-below-top" if end is not None and end < top else rule
        if code == codes.HEAP_DAMAGED and address is not None:
            for other in self.survey.walks:
                if address in (other.arena.top & -self.survey.heap_max, other.arena.address & -self.survey.heap_max):
                    for name, why in heap_rules(self.context, other.arena, address, frozenset()):
                        self.findings.add(name, address, why)
        self.findings.add(rule, address, message, self._find_suspect(stop))

    def _is_cached_size(self, chunk: Optional[int]) -> bool:
        """Return whether free() puts a chunk of this size into a thread cache before it looks at the flags."""
        word, most = self.glibc.geometry.word_bytes, _read_cached_bytes(self.context)
        field = self.context.target.read_prefix((chunk or 0) + word, word)
        return most is not None and int.from_bytes(field, self.context.target.byte_order) & ~FLAGS < most

    def _read_top_size(self, walk: ArenaWalk) -> int:
        try:
            return walk.arena.read_top_size(self.context.target, self.glibc)
        except UnreadableMemory:
            return 0


# ---------------------------------------------------------------------------------------------------- arenas


def _check_top(context: Context, findings: Findings, arena: Arena, before: Optional[RuleSuspect]) -> None:
    geometry, top, title = context.glibc.geometry, arena.top, arena.title
    if not top:
        return
    try:
        field = context.target.read_word(top + geometry.word_bytes)
    except UnreadableMemory:
        return
    size = field & ~FLAGS
    if size > arena.state["system_mem"]:
        message = "the top chunk of %s has 0x%x bytes, more than the arena (0x%x)" % (title, size, arena.state["system_mem"])
        findings.add("top-size", top, message, before)
        return
    if size < geometry.min_chunk_bytes:
        findings.add("top-small", top, "the top chunk of %s has 0x%x bytes, less than MINSIZE" % (title, size), before)
    elif (top + size) % geometry.page_bytes:
        findings.add("top-page-end", top, "the top chunk of %s ends at 0x%x, which is no page" % (title, top + size), before)
    if not field & PREV_INUSE:
        findings.add("top-prev-inuse", top, "the top chunk of %s says that the chunk before it is free" % title, before)
    if field & FLAGS & ~PREV_INUSE:
        findings.add("top-flags", top, "the size field 0x%x of the top chunk of %s has flags that top never has" % (field, title), before)


def _check_state(findings: Findings, arena: Arena) -> None:
    state, attached = arena.state, arena.state.get("attached_threads") or 0
    system, highest, mutex, flags = state["system_mem"], state["max_system_mem"], state["mutex"], state["flags"]
    for rule, field, is_wrong, message in (
        ("system-mem-max", "system_mem", system > highest, ": system_mem 0x%x is larger than max_system_mem 0x%x" % (system, highest)),
        ("arena-mutex", "mutex", mutex not in MUTEX_VALUES, ": the mutex has the value %d, which no lock has" % mutex),
        ("arena-flags", "flags", flags & ~KNOWN_FLAGS, ": flags is 0x%x, which has bits that malloc does not use" % flags),
        ("attached-threads", "attached_threads", attached > MOST_THREADS, " counts %d attached threads" % attached),
    ):
        if is_wrong:
            findings.add(rule, state.address_of(field), arena.title + message)


def _check_bin_map(context: Context, findings: Findings, arena: Arena) -> None:
    words, own = arena.state.numbers("binmap"), freelists.list_bin_headers(arena, context.glibc)
    heads = arena.state.numbers("bins")[0::2]
    if not any(heads):
        return
    for index in range(2, len(own)):
        if heads[index - 1] != own[index - 1] and not words[index // MAP_BITS] >> index % MAP_BITS & 1:
            message = "%s: bin %d is not empty, but its bit in binmap is clear: malloc does not find its chunks" % (arena.title, index)
            findings.add("binmap", arena.state.address_of("binmap") + index // MAP_BITS * 4, message)


def _check_heaps(context: Context, findings: Findings, walk: ArenaWalk) -> None:
    if walk.arena.is_main or not walk.arena.top:
        return
    total = sum(heap.size_bytes for heap in walk.heaps)
    if walk.heaps and total != walk.arena.state["system_mem"]:
        message = "%s: its heaps have 0x%x bytes, but system_mem is 0x%x" % (walk.arena.title, total, walk.arena.state["system_mem"])
        findings.add("heap-sum", walk.arena.state.address_of("system_mem"), message)
    for heap in walk.heaps:
        for name, message in heap_rules(context, walk.arena, heap.address, {heap.address for heap in walk.heaps}):
            findings.add(name, heap.address, "%s: %s" % (walk.arena.title, message))


def heap_rules(context: Context, arena: Arena, address: int, known: AbstractSet[int]) -> List[Tuple[str, str]]:
    """(rule, what) of the heap_info at `address`."""
    page, told = context.glibc.geometry.page_bytes, []
    try:
        info = read_view(context.target, context.glibc.types, HEAP_INFO.name, address)
    except UnreadableMemory:
        return []
    if info["ar_ptr"] != arena.address:
        told.append(("heap-arena", "the heap_info names the arena 0x%x" % info["ar_ptr"]))
    size, writable = info["size"], info["mprotect_size"]
    if not 0 < size <= writable or size % page or writable % page:
        told.append(("heap-size", "the heap_info has size 0x%x and mprotect_size 0x%x" % (size, writable)))
    if info["prev"] and info["prev"] not in known:
        told.append(("heap-prev", "the heap_info points to 0x%x, which is no heap of this arena" % info["prev"]))
    return told


# ---------------------------------------------------------------------------------------------------- mmapped chunks


def check_mmapped_count(own: Context, findings: Findings, heaps: List[Range], rest: PartialSink) -> None:
    """Find the header that contradicts mp_'s count of mmapped chunks; without one the difference stays a gap of the answer."""
    complaints: List[Diagnostic] = []
    context, told = own._replace(report=make_collector(complaints)), 0
    try:
        counted = survey.read_mmapped_counters(context)
        chunks, is_complete = survey.find_mmapped_chunks(context, heaps, counted)
    except UnreadableMemory:
        return
    for complaint in complaints:
        if complaint.code == codes.MP_DISAGREES:
            findings.add("mmapped-count", own.glibc.mp.address, complaint.what)
    if counted is not None and survey.has_searched_mmapped(context, counted) and own.budget.reason is None:
        look = DamagedHeader(context, heaps, chunks, counted)
        told = (0 if is_complete else look.tell(findings)) + look.moved_up(findings)
    for complaint in complaints:
        if complaint.code != codes.MP_DISAGREES and not (told and complaint.code == codes.MAPPED_MISSING):
            rest(complaint.code, own.glibc.mp.address, complaint.what, complaint.hint)


class Header(NamedTuple):
    """The words at a place where the header of an mmapped chunk must be."""

    block: int
    """Where its mapping begins."""
    chunk: int
    prev_size: int
    field: int
    """The size field, with flags."""
    total: int
    """Bytes that the mapping must have."""
    agrees: int
    """How many of the offset, the size and the flags are as they must be."""


def _read_cached_bytes(context: Context) -> Optional[int]:
    """Return the size of the smallest mapped chunk that no thread cache takes; None where free() looks at the flags first."""
    traits = context.glibc.traits
    if not traits.size_before_flags:
        return None
    largest = context.glibc.read_setting(context.target, "tcache_max_bytes") or 0
    return largest if traits.mmapped_trailer else min(largest, tcache_size(TCACHE_SMALL_BINS, context.glibc.geometry))


def choose_header_rule(
    prev_size: int, field: int, chunk: int, geometry: api.Geometry, trailer_bytes: int, cached_bytes: Optional[int]
) -> str:
    """Return the rule that a mapped chunk's header breaks, by what free() would do with it. `cached_bytes`: as _read_cached_bytes()."""
    page, size, mem = geometry.page_bytes, field & ~FLAGS, chunk + 2 * geometry.word_bytes
    is_wild, is_small = chunk > -size & ((1 << 8 * geometry.word_bytes) - 1), size < geometry.min_chunk_bytes
    if cached_bytes is not None and (is_wild or is_small):
        return "mmapped-as-wild" if is_wild else "mmapped-as-small"
    if cached_bytes is not None and size < cached_bytes and field & MMAPPED:
        return "mmapped-size"
    if field & MMAPPED:
        total, inside = prev_size + size + trailer_bytes, mem % page
        if (chunk - prev_size) % page or total % page or inside & (inside - 1):
            return "mmapped-header"
        return "mmapped-size" if field & FLAGS == MMAPPED else "mmapped-flags"
    if field & NON_MAIN:
        return "mmapped-flags"
    if is_wild:
        return "mmapped-as-wild"
    return "mmapped-as-small" if is_small or size % geometry.alignment_bytes else "mmapped-as-used"


class DamagedHeader:
    """Search for the header that contradicts mp_, which counts mmapped chunks and their bytes. One missing chunk must begin or end where
    a mapping or another chunk does, and has the missing bytes: two of offset, size and flags agree with that, or it exactly fills a place
    that nothing else fits. A chunk that has become larger covers others, whose headers lie inside it; one that has become smaller leaves
    a gap after it.
    """

    def __init__(self, context: Context, heaps: Sequence[Range], chunks: api.MmappedChunks, counted: MmappedTotals) -> None:
        self._context, self._there, self._geometry = context, list(chunks), context.glibc.geometry
        self._trailer = 2 * self._geometry.word_bytes if context.glibc.traits.mmapped_trailer else 0
        self._cached_bytes = _read_cached_bytes(context)
        self._missing = (counted.chunks or 0) - len(self._there)
        lost = (counted.bytes or 0) - chunks.bytes
        self._lost = lost - lost % self._geometry.page_bytes if survey.is_ahead(context, counted) else lost
        others = sorted([*heaps, *context.others()])
        mappings = private_mappings(context.target)
        self._others = others
        self._free = subtract_ranges(unite_mappings(mappings), sorted([*others, *chunks.spans()]))
        self._begins = sorted(survey.find_mmapped_ranges(context, heaps))
        edges = {edge for mapping in mappings for edge in (mapping.start, mapping.end)}
        self._mapping_edges = frozenset(edges)
        self._edges = edges.union(edge for span in (*self._free, *others) for edge in span)

    def tell(self, findings: Findings) -> int:
        """Adds what is certain; how many."""
        if self._missing <= 0:
            return 0 if self._missing else self._find_resized(findings)
        told = self._grown_over_others(findings)
        if not told and self._missing == 1 and self._lost > 0:
            told = self._only_one(findings)
        told = told or self._find_several(findings)
        if not told and not self._lost:
            message = "mp_ counts %d mapped %s more than there %s, but no byte more: one was freed or resized with the size of several"
            words = ("chunk", "is") if self._missing == 1 else ("chunks", "are")
            findings.add("mmapped-count", self._context.glibc.mp.address, message % (self._missing, *words))
            return 1
        return told

    # ---- one header

    def _read_header(self, address: int) -> Optional[Tuple[int, int]]:
        """prev_size and the size field; zeros where a process never wrote; None where it cannot be read without bringing a page in."""
        word, target = self._geometry.word_bytes, self._context.target
        if target.kind == "live" and not target.present_ranges(address, address + 2 * word):
            return None if target.touched_ranges(address, address + 2 * word) else (0, 0)
        data = target.read_prefix(address, 2 * word)
        if len(data) < 2 * word:
            return None
        before, field = target.words_in(data)
        return (before & ~1 if self._trailer else before), field

    def _iterate_places(self, block: int, end: int) -> Iterator[int]:
        head, alignment, before = 2 * self._geometry.word_bytes, self._geometry.alignment_bytes, -1
        for _ in range(MOST_PLACES):
            place = -(-(block + head) // alignment) * alignment - head
            if place + head > end:
                return
            if place != before:
                yield place
            before, alignment = place, 2 * alignment

    def _find_header(self, block: int, total: int) -> Optional[Header]:
        """The likeliest header of a block of `total` bytes; None where none can be read."""
        best: Optional[Header] = None
        for place in self._iterate_places(block, block + total):
            prev_size, field = self._read_header(place) or (None, 0)
            if prev_size is not None:
                offset = place - block
                agrees = (prev_size == offset) + (field & FLAGS == MMAPPED) + (field & ~FLAGS == total - offset - self._trailer)
                if best is None or agrees > best.agrees:
                    best = Header(block, place, prev_size, field, total, agrees)
        return best

    def _add_header(self, findings: Findings, header: Header) -> None:
        message = "an mmapped chunk of 0x%x bytes must be here by mp_'s counters and its neighbours; its header has "
        message += "prev_size 0x%x, size 0x%x"
        rule = choose_header_rule(header.prev_size, header.field, header.chunk, self._geometry, self._trailer, self._cached_bytes)
        findings.add(rule, header.chunk, message % (header.total, header.prev_size, header.field))

    # ---- what is lacking

    def _only_one(self, findings: Findings) -> int:
        """The block that is lacking has the bytes that are lacking."""
        total, page, blocks = self._lost, self._geometry.page_bytes, []  # type: int, int, List[Tuple[int, bool]]
        for start, end in self._free:
            inner = [edge for edge in self._edges if start <= edge <= end]
            starts = {edge for edge in inner if edge + total <= end}.union(edge - total for edge in inner if edge - total >= start)
            blocks += [(block, block in self._edges and block + total in self._edges) for block in sorted(starts) if not block % page]
        places = [bisect_right(self._begins, (block, 1 << 65)) - 1 for block, _ in blocks]
        blocks = [pair for pair, place in zip(blocks, places) if place >= 0 and pair[0] < self._begins[place][1]]
        headers = [(self._find_header(block, total), is_exact) for block, is_exact in blocks[:MOST_LOOKED_AT]]
        if any(header is None for header, _ in headers):
            headers = [pair for pair in headers if pair[0] is not None and pair[0].agrees >= 2]  # it may be in what cannot be read
        known = [(header, is_exact) for header, is_exact in headers if header is not None]
        strong = [pair for pair in known if pair[0].agrees >= 2 and (pair[0].prev_size or pair[0].field)]
        exact = [pair for pair in known if pair[1]]
        written = [pair for pair in exact if (pair[0].prev_size or pair[0].field)]
        for some in (strong, [pair for pair in strong if pair[1]], written, exact):
            if len(some) == 1:
                self._add_header(findings, some[0][0])
                return 1
            if some and some is strong and len({pair[0].chunk for pair in strong}) > 1 and not any(pair[1] for pair in strong):
                return 0
        return 0

    def _find_several(self, findings: Findings) -> int:
        """Report several damaged headers, and return how many. Candidates are consecutive headers with one thing wrong, from each place
        where mmapped chunks can begin: all of them if their number and bytes are those missing, else those directly after another mmapped
        chunk that have the right flags.
        """
        page, ends = self._geometry.page_bytes, {chunk.block_start + chunk.total_bytes for chunk in self._there}
        chains: List[Header] = []
        for start, end in self._free[:MOST_LOOKED_AT]:
            block = start
            while block < end and len(chains) < MOST_LOOKED_AT:
                header = self._find_next(block, end)
                if header is None:
                    break
                chains.append(header)
                block += header.total
        if len(chains) == self._missing and sum(header.total for header in chains) == self._lost:
            sure = chains
        else:
            mapped = [header for header in chains if header.field & FLAGS == MMAPPED and header.prev_size % page == 0]
            sure = [header for header in mapped if header.block in ends]
        for header in sure[: self._missing]:
            self._add_header(findings, header)
        return min(len(sure), self._missing)

    def _find_next(self, block: int, end: int) -> Optional[Header]:
        """A damaged header of the block that begins here: the size is plausible, or the flags are right and it goes on to the end."""
        page = self._geometry.page_bytes
        for place in self._iterate_places(block, end):
            words = self._read_header(place)
            if words is None or not words[1]:
                continue
            offset, (prev_size, field) = place - block, words
            total = offset + (field & ~FLAGS) + self._trailer
            fits = not total % page and 0 < total <= end - block and field & ~FLAGS >= self._geometry.min_chunk_bytes
            is_mapped, is_placed = field & FLAGS == MMAPPED, prev_size == offset
            if fits and is_mapped + is_placed == 1:
                return Header(block, place, prev_size, field, total, 2)
            if is_mapped and is_placed and not fits:
                return Header(block, place, prev_size, field, end - block, 2)
        return None

    # ---- what memalign moved

    def moved_up(self, findings: Findings) -> int:
        """Check headers that memalign moved up. It leaves the old one where it was (_int_memalign), which names the same block: if only
        zeros lie between that and another header of which the offset or the size is right, what else that says is wrong."""
        told, plain = 0, self._geometry.alignment_bytes - 2 * self._geometry.word_bytes
        for chunk in self._there[:MOST_LOOKED_AT]:
            block, end = chunk.block_start, chunk.block_start + chunk.total_bytes
            if chunk.chunk != block + plain:
                continue
            for place in self._iterate_places(block, end):
                words = self._read_header(place) if place > chunk.chunk else (0, 0)
                if words is None:
                    break
                if any(words):
                    size = chunk.total_bytes - (place - block) - self._trailer
                    if (words[0] == place - block or words[1] & ~FLAGS == size) and self._is_blank(chunk.chunk, place):
                        self._add_header(findings, Header(block, place, words[0], words[1], chunk.total_bytes, 1))
                        told += 1
                    break
        return told

    def _is_blank(self, chunk: int, place: int) -> bool:
        """Return whether only zeros lie between the header that memalign left and the one further in."""
        start = chunk + 2 * self._geometry.word_bytes
        end = min(place, start + MOST_LEAD_BYTES)
        parts = self._context.target.present_ranges(start, end) if self._context.target.kind == "live" else [(start, end)]
        return not any(self._context.target.read_prefix(low, high - low).strip(b"\0") for low, high in parts)

    # ---- what is there, and of another size

    def _grown_over_others(self, findings: Findings) -> int:
        """Headers of mmapped chunks that lie inside another one, as many as are lacking at most."""
        page, told, met = self._geometry.page_bytes, 0, 0
        ranges: List[Range] = []
        owners: List[api.MmappedChunk] = []
        for chunk in self._there[:MOST_LOOKED_AT]:
            start, end = max(chunk.block_start + page, -(-(chunk.chunk + 1) // page) * page), chunk.block_start + chunk.total_bytes
            if start < end:
                ranges.append((start, end))
                owners.append(chunk)
        if not ranges:
            return 0
        taken = sorted([*self._others, *((chunk.block_start, chunk.block_start + chunk.total_bytes) for chunk in self._there)])
        limits = find_reaches(self._context.target, [(end, end) for _, end in ranges], taken)
        ram, data = self._context.ram.pages, self._context.target.data_ranges(ranges)
        search = (bool(self._trailer), SEARCHED, SEARCHED, ram, data or ())
        inner = list(self._context.walker.scan_mmapped(ranges, *search, limits=limits)[0])
        for chunk in owners:
            inside = [other for other in inner if chunk.block_start < other.block_start < chunk.block_start + chunk.total_bytes]
            met += len(inside)
            if inside and met <= self._missing:
                told += 1
                message = "the header of this mmapped chunk has size 0x%x, but another mmapped chunk begins inside it, at 0x%x"
                findings.add("mmapped-size", chunk.chunk, message % (chunk.size_bytes, inside[0].chunk))
        return told

    def _find_resized(self, findings: Findings) -> int:
        """Report the chunk whose changed size explains the difference, where all chunks are present but their bytes are not what mp_
        counts. Return 1, or 0 if no chunk or more than one explains it.
        """
        page, change = self._geometry.page_bytes, abs(self._lost)
        starts, ends = dict(self._free), {end: start for start, end in self._free}
        filled: List[api.MmappedChunk] = []
        exact: List[api.MmappedChunk] = []
        some: List[api.MmappedChunk] = []
        for chunk in self._there:
            block, end = chunk.block_start, chunk.block_start + chunk.total_bytes
            is_plain = chunk.chunk - block < page
            if self._lost > 0:
                behind, before = starts.get(end, end) - end, 0 if is_plain else block - ends.get(block, block)
                fits = behind >= change or before >= change
                is_exact = (behind >= change and end + change in self._edges) or (before >= change and block - change in self._edges)
                filled += [chunk] * (change in (behind, before))
            else:
                fits = chunk.total_bytes > change
                is_exact = fits and (end - change in self._mapping_edges or (not is_plain and block + change in self._mapping_edges))
            some += [chunk] * fits
            exact += [chunk] * is_exact
        changed = next((group[0] for group in (filled, exact, some) if len(group) == 1), None)
        if changed is None or change % page:
            return 0
        message = "its header says that its mapping has 0x%x bytes (prev_size 0x%x, size 0x%x); mp_ counts 0x%x bytes %s in all of them"
        offset, word = changed.chunk - changed.block_start, "more" if self._lost > 0 else "fewer"
        findings.add("mmapped-size", changed.chunk, message % (changed.total_bytes, offset, changed.size_bytes, change, word))
        return 1
