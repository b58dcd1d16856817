"""One copy of glibc malloc as the commands ask for it; walks at most once."""

from collections import Counter
from typing import Callable, Dict, Iterator, List, NamedTuple, Optional, Sequence, Set, Tuple

from gdbheapx.budget import Budget
from gdbheapx.errors import Unreadable
from gdbheapx.glibc import bins, mallinfo, malloc_info, mmapped, tcache, tcache_struct, totals, trim_model
from gdbheapx.glibc.context import Context
from gdbheapx.glibc.detect import Glibc
from gdbheapx.glibc.free_lists import FreeLists
from gdbheapx.glibc.geometry import usable_bytes
from gdbheapx.glibc.moments import Moments
from gdbheapx.glibc.survey import Survey, find_arenas, survey_heaps
from gdbheapx.kernel import api
from gdbheapx.kernel.base import Kernel
from gdbheapx.kernel.in_ram import Ram
from gdbheapx.kernel.list_records import CUT, Followed
from gdbheapx.layout.view import View
from gdbheapx.looks import Looks
from gdbheapx.model import Address, AllocatorInfo, ArenaTotals, BinRow, Claim, HistogramRow, MmappedTotals, ThreadCache
from gdbheapx.problems import Report
from gdbheapx.target.base import Target

MMAPPED = "mmapped"

STATUS_NAMES = {
    api.STATUS_USED: "used",
    api.STATUS_FAST: "fast",
    api.STATUS_TCACHE: "tcache",
    api.STATUS_TCACHE_STRUCT: "overhead",
    api.STATUS_FREE: "free",
    api.STATUS_TOP: "top",
    api.STATUS_FENCE: "overhead",
}


class Batch(NamedTuple):
    """Some chunks of one status table and one arena, for a listing."""

    arena: Optional[int]
    """Index; None for mapped chunks, which belong to no arena."""
    mmapped: bool
    chunks: Sequence[Tuple[int, int, int]]
    """(chunk, size_bytes, STATUS_ number)."""


class GlibcMalloc:
    """Everything one copy of glibc malloc can be asked for."""

    kind = "glibc"

    def __init__(
        self,
        target: Target,
        glibc: Glibc,
        kernel: Kernel,
        budget: Budget,
        report: Report,
        ram: Optional[Ram] = None,
        looks: Optional[Looks] = None,
        others: Callable[[], Sequence[Tuple[int, int]]] = tuple,
    ) -> None:
        self.context = Context(target, glibc, kernel, target.bulk_source(), budget, report, ram or Ram(target, kernel), looks or Looks(), others)
        self.glibc = glibc
        self._survey: Optional[Survey] = None
        self._at_once: Optional[Survey] = None
        self._totals: Optional[List[ArenaTotals]] = None
        self._mmapped: Optional[mmapped.Mmapped] = None
        self._counted: List[Optional[MmappedTotals]] = []
        """At most one: what counters() gave."""

    @property
    def info(self) -> AllocatorInfo:
        """Its entry in the envelope."""
        return self.glibc.info()

    @property
    def header_bytes(self) -> int:
        """From a chunk's address to what malloc returned."""
        return 2 * self.glibc.geometry.word_bytes

    def survey(self) -> Survey:
        """The walk over all its chunks."""
        if self._survey is None:
            self._survey = survey_heaps(self.context)
        return self._survey

    def survey_at_once(self) -> Survey:
        """The same for who reads the chunks again: nothing in it is from an earlier stop."""
        if self._at_once is None:
            is_now = self._survey is not None and all(walk.look == self.context.looks.count for walk in self._survey.walks)
            self._survey = self._at_once = self._survey if is_now else survey_heaps(self.context, at_once=True)
        assert self._at_once is not None
        return self._at_once

    def arenas(self) -> List[ArenaTotals]:
        """One row per arena."""
        if self._totals is None:
            self._totals = totals.arena_totals(self.survey())
        return self._totals

    def _counters(self) -> Optional[MmappedTotals]:
        if not self._counted:
            self._counted.append(mmapped.counters(self.context))
        return self._counted[0]

    def mmapped_totals(self) -> MmappedTotals:
        """mp_'s counters of mapped chunks; their bytes by the chunks themselves where mp_'s cannot be right."""
        counted = self._counters() or MmappedTotals(None, None)
        if mmapped.is_ahead(self.context, counted) and self.mmapped().complete:
            return counted._replace(bytes=self.mmapped().chunks.bytes)
        return counted

    def mmapped(self) -> mmapped.Mmapped:
        """The mapped chunks themselves."""
        if self._mmapped is None:
            self._mmapped = mmapped.find(self.context, self.arena_ranges(), self._counters())
        return self._mmapped

    def arena_ranges(self) -> List[Tuple[int, int]]:
        """Addresses (start, end) that its arenas occupy, sorted."""
        return sorted((claim.start, claim.end) for claim in self.arena_claims())

    def arena_claims(self) -> List[Claim]:
        """What the arenas occupy, a heap or a piece of the main arena each."""
        page = self.glibc.geometry.page_bytes
        claims = [Claim(*found, walk.arena.title) for walk in self.survey().walks for found in walk.ranges(page)]
        lost = self.survey().remnant
        if lost is not None:
            claims.append(Claim(lost.region.begin & -page, -(-(lost.result.at or lost.region.end) // page) * page, "main heap"))
        return claims

    def reserved(self) -> List[Claim]:
        """The rest of each heap, up to HEAP_MAX_SIZE: given back but kept for growth, or never used. Huge pages can make it resident all the same."""
        done = self.survey()
        return [Claim(*found, "heap reserve") for walk in done.walks for found in walk.reserves(done.heap_max)]

    def claims(self) -> List[Claim]:
        """All memory it holds: arenas, the rest of their heaps, mapped chunks (those side by side together)."""
        mapped = [Claim(*span, "mapped chunks") for span in self.mmapped().chunks.spans()]
        return [*self.arena_claims(), *self.reserved(), *mapped]

    def trim_threshold_bytes(self) -> Optional[int]:
        """mp_.trim_threshold; None if it cannot be read."""
        try:
            return self.mp().get("trim_threshold")
        except Unreadable:
            return None

    def asks_for_huge_pages(self) -> bool:
        """glibc.malloc.hugetlb=1 is in force (mp_.thp_pagesize, from 2.35)."""
        try:
            return bool(self.mp().get("thp_pagesize"))
        except Unreadable:
            return False

    def histogram(self) -> List[HistogramRow]:
        """All chunks by size class; mapped chunks count as used, with their whole mappings as in mmapped_totals."""
        parts = [result.histogram for walk in self.survey().walks for _, result in walk.runs]
        align = self.glibc.geometry.alignment_bytes
        cached, mapped = self.survey().specials.mapped, self.mmapped().chunks
        in_caches = Counter(chunk.total_bytes for chunk in mapped if chunk.chunk in cached) if cached else Counter()
        extra = []
        for total, count in Counter(mapped.totals).items():
            used = count - in_caches[total]
            extra.append((api.histogram_class(total, align), used, used * total, 0, 0, in_caches[total]))
        rows = api.add_histograms([*parts, extra])
        return [HistogramRow(*api.histogram_bounds(row[0], align), *row[1:]) for row in rows]

    def listing(self, arena: Optional[int], statuses: Optional[Set[str]], min_size: int, max_size: Optional[int]) -> Iterator[Batch]:
        """Chunks in address order within each arena, arenas in ring order, mapped chunks last. Sizes are chunk sizes."""
        numbers = None if statuses is None else {number for number, name in STATUS_NAMES.items() if name in statuses}
        context, done = self.context, self.survey_at_once()
        if numbers is None or numbers:
            for walk in done.walks:
                if arena is not None and walk.arena.index != arena:
                    continue
                for region, _ in walk.runs:
                    if context.budget.expired():
                        return
                    for chunks in context.kernel.list_chunks(
                        context.source, context.glibc.geometry, region, done.specials.chunks, context.budget, min_size, max_size, numbers
                    ):
                        yield Batch(walk.arena.index, False, chunks)
        if arena is None and (statuses is None or statuses.intersection(self.status_names_of_mapped.values())):
            sizes = [c for c in self.mmapped().chunks if c.size_bytes >= min_size and (max_size is None or c.size_bytes <= max_size)]
            if sizes:
                cached = done.specials.mapped
                rows = [(c.chunk, c.size_bytes, api.STATUS_TCACHE if c.chunk in cached else api.STATUS_USED) for c in sizes]
                yield Batch(None, True, [row for row in rows if statuses is None or self.status_names_of_mapped[row[2]] in statuses])

    status_names_of_mapped = {api.STATUS_USED: MMAPPED, api.STATUS_TCACHE: "tcache"}

    def status_names(self, batch: Batch) -> Dict[int, str]:
        """STATUS_ number -> the contract's word, for the chunks of a batch."""
        return self.status_names_of_mapped if batch.mmapped else STATUS_NAMES

    def usable_bytes(self, size_bytes: int, is_mmapped: bool) -> int:
        """What the program may use of a chunk."""
        return usable_bytes(size_bytes, self.glibc.geometry, is_mmapped, self.glibc.traits.mmapped_trailer)

    def bins(self) -> List[BinRow]:
        """The non-empty bins of every arena."""
        context, (arenas, _) = self.context, find_arenas(self.context)
        lists, moments = FreeLists(context), Moments(context, "bins")
        known = {arena.index: moments.kept(arena) for arena in arenas}
        fresh = [arena for arena in arenas if known[arena.index] is None]
        asked = [(arena, bins.ask_fast(lists, arena), bins.ask_bins(lists, arena)) for arena in fresh]
        found = lists.follow(fresh)
        for arena, fast, others in asked:
            report = moments.report(arena)
            known[arena.index] = bins.rows(self.glibc, arena, bins.fast_lists(self.glibc, fast, found, report), bins.bins(context, others, found, report))
            moments.settle(arena, known[arena.index], not found.cut)
        return [row._replace(arena=arena.index) for arena in arenas for row in known[arena.index]]

    def caches(self) -> List[ThreadCache]:
        """What each thread's cache holds."""
        arenas, _ = find_arenas(self.context)
        lists = FreeLists(self.context)
        caches = tcache.read_caches(lists, arenas)
        found = lists.follow(arenas)
        tcache.check(self.context, caches, found)
        index = {arena.address: arena.index for arena in arenas}
        return [self._cache(cache, caches, found, index) for cache in caches.caches]

    def _cache(self, cache: tcache_struct.Cache, caches: tcache.Caches, found: Followed, index: Dict[int, int]) -> ThreadCache:
        lists = caches.lists(cache)
        chunks = found.counts[lists.start : lists.stop]
        is_cut = CUT in found.problems[lists.start : lists.stop]
        known = cache.known and not is_cut
        sized = found.bytes[lists.start : lists.stop]
        bytes_ = [count * size if size is not None else total for count, size, total in zip(chunks, caches.sizes, sized)]
        return ThreadCache(
            allocator=self.glibc.id,
            lwp=cache.thread.lwp,
            name=cache.thread.name,
            tcache=Address(cache.address) if cache.address else None,
            arena=index.get(cache.arena) if cache.arena else None,
            chunks=sum(chunks) if known else None,
            bytes=sum(bytes_) if known else None,
            bins=tcache.CacheBins(caches.sizes, chunks, bytes_) if not is_cut else (),
        )

    def malloc_info(self) -> str:
        """malloc_info(0, fp)'s XML."""
        self._counters()  # says where they contradict each other: the figures themselves are printed as they are
        return malloc_info.xml(self.context)

    def mallinfo2(self) -> mallinfo.Mallinfo2:
        """mallinfo2's ten fields."""
        self._counters()
        return mallinfo.mallinfo2(self.arenas(), self.mp())

    def malloc_stats(self) -> Tuple[List[mallinfo.StatsArena], mallinfo.StatsArena]:
        """malloc_stats(3)'s figures."""
        self._counters()
        return mallinfo.malloc_stats(self.arenas(), self.mp())

    def mp(self) -> View:
        """`mp_`."""
        return self.glibc.read_mp(self.context.target)

    def predictions(self, pad: int = 0) -> List[Tuple[int, trim_model.Prediction]]:
        """(arena index, what malloc_trim(pad) would give back there)."""
        found = []
        for walk in self.survey().walks:
            total = walk.total()
            if total is not None:
                found.append((walk.arena.index, trim_model.predict(self.context, walk, total, pad)))
        return found
