"""Commands on one instance of glibc malloc. The heap is walked at most once."""

from collections import Counter
from typing import TYPE_CHECKING, Any, Callable, Dict, Iterator, List, Mapping, Optional, Sequence, Tuple

from gdbheapx.allocators.heap import AllocatorInstance, cache_answer
from gdbheapx.allocators.records import HeapContext
from gdbheapx.common.columns import add_values
from gdbheapx.common.model import AllocatorInfo, CacheBin, Check, Claim, HistogramRow, TargetAddress, ThreadCache
from gdbheapx.common.problems import Diagnostic
from gdbheapx.common.ranges import Range, unite_ranges
from gdbheapx.glibc import freelists, layouts, survey
from gdbheapx.glibc.arenas import Context, Glibc
from gdbheapx.glibc.help import TRIM
from gdbheapx.glibc.layouts import usable_bytes
from gdbheapx.glibc.records import MOST_MERGED, ArenaTotals, BinRow, MmappedTotals
from gdbheapx.glibc.text import sum_glibc_arenas
from gdbheapx.inferior.base import Target
from gdbheapx.kernel.blocks import stream
from gdbheapx.kernel.common.in_ram import UNKNOWN
from gdbheapx.kernel.common.library import histogram_bounds, histogram_class
from gdbheapx.kernel.glibc import records as api
from gdbheapx.kernel.glibc.records import CUT, MmappedChunks, NativeListed
from gdbheapx.layout.view import LayoutView

if TYPE_CHECKING:
    # What one command alone asks for is imported where it is asked: a look at a small process is half importing.
    from gdbheapx.allocators.answers import AllocatorPlace, BrokenRule, Effect, Keeping, Reading, Requests
    from gdbheapx.allocators.plan import DryRun, Portion
    from gdbheapx.glibc.meter import GlibcMeter
    from gdbheapx.glibc.plan import Trim
    from gdbheapx.glibc.records import GlibcFacts, Top
    from gdbheapx.glibc.text import GlibcTunables, NativeStats

WORDS = ("used", "fast", "tcache", "overhead", "free", "top", "overhead", "mmapped", "tcache")
"""The contract's word for each STATUS_ number."""
MAPPED = (api.STATUS_MAPPED, api.STATUS_MAPPED_TCACHE)


class GlibcMalloc(AllocatorInstance):
    """Everything one copy of glibc malloc can be asked for."""

    returning = TRIM

    def __init__(self, glibc: Glibc, around: HeapContext) -> None:
        target, kernel, budget, report, ram, others = around
        self.context = Context(target, glibc, kernel, target.bulk_source(), budget, report, ram, others)
        self.glibc = glibc
        self.around = around
        self._survey: Optional[survey.Survey] = None

    @property
    def info(self) -> AllocatorInfo:
        """Its entry in the envelope."""
        return self.glibc.info()

    @property
    def capabilities(self) -> Mapping[str, Callable[..., Any]]:
        """Return the commands that glibc's malloc alone can answer."""
        return {
            "native-info": self.malloc_info,
            "native-stats": self.native_stats,
            "meter": self.meter,
            "exact-reading": self.exact_reading,
        }

    def meter(self) -> "GlibcMeter":
        """Return the reader of malloc's counters in a running process."""
        from gdbheapx.glibc.meter import GlibcMeter

        return GlibcMeter(self.glibc, self.around)

    def exact_reading(self) -> "Reading":
        """Return the meter's figures from a walk of the stopped process."""
        from gdbheapx.glibc.meter import make_glibc_exact_reading

        return make_glibc_exact_reading(self.totals())

    @property
    def header_bytes(self) -> int:
        """Return the distance from a chunk's address to what malloc returned."""
        return 2 * self.glibc.geometry.word_bytes

    def survey(self) -> survey.Survey:
        """The walk over all its chunks."""
        if self._survey is None:
            self._survey = survey.survey_heaps(self.context)
        return self._survey

    @cache_answer
    def arenas(self) -> List[ArenaTotals]:
        """Return one row for each arena."""
        return survey.arena_totals(self.survey())

    def totals(self) -> Dict[str, Optional[int]]:
        """Their sums, and its mmapped chunks."""
        return sum_glibc_arenas(self.arenas(), self.mmapped_totals())

    def facts(self) -> "GlibcFacts":
        """Return all figures that verdicts and snapshots rest on."""
        from gdbheapx.glibc.plan import has_aborted
        from gdbheapx.glibc.records import GlibcFacts

        target, asks = self.context.target, self.asks_for_huge_pages()
        is_default = "glibc.malloc.hugetlb" not in (target.environment_variable("GLIBC_TUNABLES") or "")
        return GlibcFacts(
            *(self.info, self.arenas(), self.totals(), self.histogram(), self.claims()),
            trim_threshold_bytes=self._read_setting("trim_threshold"),
            asks_for_huge_pages=asks,
            tops=self._list_tops(),
            are_all_arenas=self.survey().are_all_arenas,
            most_cached_bytes=self.most_cached_bytes(),
            free_pages=self._free_pages,
            has_aborted=has_aborted(target, self.glibc.module),
            # releases with mp_.thp_mode can ask although no tunable of the environment says so (thp_init, DEFAULT_THP_PAGESIZE)
            asks_by_default=asks and is_default and self._read_setting("thp_mode") is not None,
            zero_huge_bytes=self._zero_huge_bytes,
            are_thresholds_fixed=bool(self._read_setting("no_dyn_threshold")),
        )

    def _free_pages(self, pad: int = 0) -> List[Range]:
        """Return whole pages inside free chunks (malloc.c: mtrim), and those that systrim(pad) gives back."""
        tops = [survey.predict_systrim(self.context, walk, pad) for walk in self.survey().walks]
        return sorted([*survey.list_free_pages(self.context, self.survey().walks), *(top for top in tops if top is not None)])

    def _zero_huge_bytes(self) -> Optional[int]:
        return survey.count_zero_huge_bytes(self.context, self.survey().walks, self.survey().heap_max)

    def _list_tops(self) -> "List[Top]":
        """Return whole pages of tops that a malloc_trim(0) leaves: those of thread arenas, and the main one's if top does not end at the
        break.
        """
        from gdbheapx.glibc.records import Top

        page, tops = self.glibc.geometry.page_bytes, []
        for walk in self.survey().walks:
            for region, result in walk.runs if survey.predict_systrim(self.context, walk) is None else ():
                start, end = -(-(region.top + self.header_bytes) // page) * page, (region.top + result.top_bytes) & -page
                if result.top_bytes and start < end:
                    tops.append(Top(walk.arena.index, start, end))
                first = -(-result.top_run_start // page) * page
                if first and first < region.top & -page:
                    tops.append(Top(walk.arena.index, first, region.top & -page, is_unmerged=True))
        return tops

    def most_cached_bytes(self) -> Optional[int]:
        """Return the most that all thread caches may hold by mp_'s limits, or None where these cannot be read."""
        from gdbheapx.glibc.layouts import TCACHE_SMALL_BINS, tcache_size

        largest, count, threads = *map(self._read_setting, ("tcache_max_bytes", "tcache_count")), self.context.target.threads()
        if not threads or largest is None or count is None:
            return None
        sizes = [tcache_size(index, self.glibc.geometry) for index in range(TCACHE_SMALL_BINS)]
        small = [size for size in sizes if size <= largest + 64]
        large = 4 * largest if largest > small[-1] else 0  # bins of powers of two, from 2.42 on: together less than twice twice the largest
        return len(threads) * count * (sum(small) + large) if small else 0

    def tunables(self) -> "GlibcTunables":
        """mp_'s values."""
        from gdbheapx.glibc.text import GlibcTunables, read_glibc_tunables

        place = self.glibc.place
        others = layouts.other_names(layouts.MALLOC_PAR, place.rows) if place is not None else {}
        return GlibcTunables(read_glibc_tunables(self.mp(), others))

    def checks(self) -> List[Check]:
        """Return how thread caches were found, for `doctor`."""
        from gdbheapx.glibc.text import list_glibc_checks

        return list_glibc_checks(self.context.target, self.glibc)

    def would_return(self, portion: "Portion") -> "DryRun":
        """Predict what malloc_trim(pad) gives back."""
        from gdbheapx.glibc.plan import predict_malloc_trim

        walks = [(walk, walk.total()) for walk in self.survey().walks]
        arenas = [survey.predict_trim(self.context, walk, total, portion.pad_bytes) for walk, total in walks if total is not None]
        has_holes = _has_holes(self.context.target)
        dumped = self._most_resident_bytes(self._free_pages(portion.pad_bytes)) if has_holes else None
        return predict_malloc_trim(arenas, self.context.target.kind == "live", dumped)

    def return_plan(self, portion: "Portion") -> "Trim":
        """A malloc_trim(pad)."""
        from gdbheapx.glibc.plan import Trim

        return Trim(self.around, lambda report: GlibcMalloc(self.glibc, self.around.anew(report)), portion, self.glibc)

    def block_at(self, address: int) -> Optional["AllocatorPlace"]:
        """The chunk that holds the address, and its neighbours."""
        return survey.Locator(self.context, self.shape, self.survey, self.mmapped, address).locate()

    def rules(self) -> Iterator["BrokenRule"]:
        """Every place that breaks a rule of malloc's."""
        from gdbheapx.allocators.answers import make_collector
        from gdbheapx.glibc.rules import GlibcCheck

        complaints: List[Diagnostic] = []
        own = GlibcMalloc(self.glibc, self.around._replace(report=make_collector(complaints)))
        walked = own.survey()
        yield from GlibcCheck(own.context, walked, complaints, self.around.report).run()

    def native_stats(self) -> "NativeStats":
        """Return the figures of malloc_stats(3) and mallinfo2."""
        from gdbheapx.glibc.text import NativeStats

        self._read_counters()  # says where they contradict each other: the figures themselves are printed as they are
        return NativeStats(self.arenas(), self.mp())

    @cache_answer
    def _read_counters(self) -> Optional[MmappedTotals]:
        return survey.read_mmapped_counters(self.context)

    def mmapped_totals(self) -> MmappedTotals:
        """mp_'s counters of mmapped chunks; their bytes by the chunks themselves where mp_'s cannot be right."""
        counted = self._read_counters() or MmappedTotals(None, None)
        if survey.is_ahead(self.context, counted) and self._find_mmapped()[1]:
            return counted._replace(bytes=self.mmapped().bytes)
        return counted

    @cache_answer
    def _find_mmapped(self) -> Tuple[MmappedChunks, bool]:
        arenas = sorted((claim.start, claim.end) for claim in survey.arena_claims(self.survey()))
        return survey.find_mmapped_chunks(self.context, arenas, self._read_counters())

    def mmapped(self) -> MmappedChunks:
        """Return the mmapped chunks themselves."""
        return self._find_mmapped()[0]

    def reserved(self) -> List[Claim]:
        """The rest of each heap, up to HEAP_MAX_SIZE: given back but kept for growth, or never used. Huge pages can make it resident all
        the same."""
        done = self.survey()
        return [Claim(*span, "heap reserve") for walk in done.walks for span in walk.reserves(done.heap_max)]

    def claims(self) -> List[Claim]:
        """Return all memory that malloc holds: arenas, the rest of their heaps, mmapped chunks (neighbours joined)."""
        mapped = [Claim(*span, "mmapped chunks") for span in self.mmapped().spans()]
        return [*survey.arena_claims(self.survey()), *self.reserved(), *mapped]

    def own_data(self) -> List[Tuple[int, int]]:
        """The main arena, whose bins point to free chunks: a chunk begins with the last word of the block before it."""
        start = self.glibc.main_arena.address
        return [(start, start + self.glibc.malloc_state.size_bytes)]

    def _read_setting(self, name: str) -> Optional[int]:
        return self.glibc.read_setting(self.context.target, name)

    def asks_for_huge_pages(self) -> bool:
        """Return whether malloc advises MADV_HUGEPAGE (malloc.c: madvise_thp): mp_.thp_pagesize is set (2.35), and mp_.thp_mode if there is
        one.
        """
        return bool(self._read_setting("thp_pagesize")) and self._read_setting("thp_mode") in (None, layouts.THP_MADVISE)

    def histogram(self) -> List[HistogramRow]:
        """Count all chunks by size class; mmapped chunks count as used, with their whole mappings as in mmapped_totals. The walk over the
        totals counts them on its way: adding up the stream of blocks would be a second walk.
        """
        parts = [result.histogram for walk in self.survey().walks for _, result in walk.runs]
        align = self.glibc.geometry.alignment_bytes
        cached, mapped = self.survey().singles.mapped, self.mmapped()
        in_caches = Counter(chunk.total_bytes for chunk in mapped if chunk.chunk in cached) if cached else Counter()
        extra = []
        for total, count in Counter(mapped.totals).items():
            used = count - in_caches[total]
            extra.append((histogram_class(total, align), used, used * total, 0, 0, in_caches[total]))
        rows = api.add_histograms([*parts, extra])
        return [HistogramRow(*histogram_bounds(row[0], align), *row[1:]) for row in rows]

    @property
    def shape(self) -> stream.BlockShape:
        """Return how blocks() numbers the statuses of chunks."""
        geometry, has_trailer = self.glibc.geometry, self.glibc.traits.mmapped_trailer
        overheads = tuple(-usable_bytes(0, geometry, kind in MAPPED, has_trailer) for kind in range(len(WORDS)))
        unit_bytes = min(geometry.alignment_bytes, 2 * geometry.word_bytes)
        return stream.BlockShape(WORDS, overheads, 2 * geometry.word_bytes, unit_bytes, in_use={"used", "mmapped"})

    def blocks(self, block_filter: stream.BlockFilter = stream.EVERYTHING, arena: Optional[int] = None) -> stream.BlockStream:
        """Chunks in address order, mapped ones among them; sizes asked for are chunk sizes."""
        return self._stream_blocks(self._list_regions(arena), block_filter, self._mapped_blocks(block_filter) if arena is None else None)

    def listing(self, block_filter: stream.BlockFilter = stream.EVERYTHING, arena: Optional[int] = None) -> Iterator[stream.NativeBlocks]:
        """Return blocks() in the order of `chunks`: arenas in ring order, the heaps of each as the walk met them, mmapped chunks last."""
        regions = self._list_regions(arena)
        if block_filter.kinds is None or block_filter.kinds - set(MAPPED):
            for region in regions:
                if self.context.budget.expired():
                    return
                yield from self._stream_blocks([region], block_filter)
        if arena is None and (block_filter.kinds is None or block_filter.kinds & set(MAPPED)):
            mapped = self._mapped_blocks(block_filter)
            if len(mapped.addresses):
                yield mapped

    def _list_regions(self, arena: Optional[int]) -> List[NativeListed]:
        walks = self.survey().walks
        return [NativeListed(region, walk.arena.index) for walk in walks if arena in (None, walk.arena.index) for region, _ in walk.runs]

    def _stream_blocks(
        self, regions: Sequence[NativeListed], block_filter: stream.BlockFilter, mapped: Optional[stream.NativeBlocks] = None
    ) -> stream.BlockStream:
        return self.context.walker.blocks(regions, self.survey().singles.followed.members, block_filter, mapped)

    def _mapped_blocks(self, block_filter: stream.BlockFilter) -> stream.NativeBlocks:
        """Mapped chunks, which belong to no arena."""
        cached, shape = self.survey().singles.mapped, self.shape
        rows = []
        for chunk in self.mmapped():
            kind, class_ = (
                (api.STATUS_MAPPED_TCACHE, stream.CLASS_CACHED) if chunk.chunk in cached else (api.STATUS_MAPPED, stream.CLASS_USED)
            )
            if block_filter.has(kind, chunk.size_bytes):
                rows.append((chunk.chunk + self.header_bytes, chunk.size_bytes - shape.overheads[kind], class_, kind, stream.NO_ARENA))
        return stream.make_blocks(rows)

    def what_if(self) -> "List[Effect]":
        """Return the effects of other settings."""
        from gdbheapx.glibc import verdict
        from gdbheapx.glibc.verdict import FIXED_BYTES

        target, page, mp = self.context.target, self.glibc.geometry.page_bytes, self.mp()
        walks, rows, most = self.survey().walks, self.arenas(), MOST_MERGED * mp["mmap_threshold"]
        main = [span for walk in walks if walk.arena.is_main for span in survey.list_top_pages(self.context, walk)]
        free = verdict.sum_glibc_free(rows)
        large = sum(row.free_bytes or 0 for row in self.histogram() if FIXED_BYTES <= row.size_bytes <= most)
        if free is not None and sum(row.free_chunks or 0 for row in rows) <= verdict.MOST_CHUNKS:
            tops = [span for walk in walks for span in survey.list_top_pages(self.context, walk)]
            pages = survey.list_free_pages(self.context, walks)
            whole = sorted([*pages, *tops])
            resident = self._most_resident_bytes(whole)
            free -= sum(end - start for start, end in whole) - resident if resident is not None else 0
            merged = sorted([*(span for span in pages if span[1] - span[0] <= most), *tops])
            known = self._most_resident_bytes([(start, end) for start, end in merged if end - start >= FIXED_BYTES])
            large = large if known is None else known
        step = page * (page // 8)  # what one entry of the page table's second level maps
        present = [span for claim in self.claims() for span in target.present_ranges(claim.start, claim.end)]
        huge = unite_ranges((start & -step, -(-end // step) * step) for start, end in present)
        has = verdict.GlibcSettingFigures(
            arenas=len(rows),
            free_bytes=free,
            beside_largest_bytes=verdict.beside_largest_bytes(rows),
            kept_apart_bytes=verdict.kept_apart_bytes(rows),
            others_bytes=verdict.sum_glibc_free([row for row in rows if row.index]),
            cached_bytes=add_values(row.tcache_bytes for row in rows),
            top_bytes=self._resident_bytes(main),
            huge_page_bytes=sum(end - start for start, end in huge) - sum(end - start for start, end in present) if present else None,
            large_chunks=sum(row.used_chunks for row in self.histogram() if row.max_size_bytes >= FIXED_BYTES),
            large_free_bytes=large,
            unmerged_bytes=sum(row.unmerged_bytes or 0 for row in rows if row.index),
            fast_bytes=sum(row.fast_bytes or 0 for row in rows),
            no_fastbins=layouts.no_fastbins(self.glibc.version),
        )
        variables = [name for name in verdict.VARIABLES if target.environment_variable(name)] if target.kind == "live" else None
        return verdict.list_glibc_effects(mp, has, page, variables)

    def _resident_bytes(self, spans: Sequence[Range]) -> Optional[int]:
        return (self.context.ram.of(spans, False) or UNKNOWN).resident_bytes if spans else 0

    def _most_resident_bytes(self, spans: Sequence[Range]) -> Optional[int]:
        """Return what of these sorted spans is in RAM; of a core with holes what its file has, of which some may have been in swap."""
        target = self.context.target
        if not _has_holes(target):
            return self._resident_bytes(spans)
        return sum(end - start for start, end in target.data_ranges(spans) or ())

    def requests(self) -> "List[Requests]":
        """Return the requests that made the chunks in use, by size."""
        from gdbheapx.glibc import verdict

        return verdict.make_glibc_requests(self.histogram(), self.glibc.geometry.word_bytes, self.glibc.geometry.page_bytes)

    def kept(self) -> "Keeping":
        """Return what malloc_trim(0) leaves, as of one stop."""
        from gdbheapx.glibc.plan import explain_keeping

        return explain_keeping(self.survey(), self.arenas(), self.shape)

    def bins(self) -> List[BinRow]:
        """The non-empty bins of every arena."""
        arenas, _ = survey.find_arenas(self.context)
        return [
            row
            for own, arena, bins in freelists.each_arena(self.context, arenas)
            for row in freelists.make_glibc_bin_rows(own, arena, bins)
        ]

    def caches(self) -> List[ThreadCache]:
        """Return each thread's cache with its bins."""
        arenas, _ = survey.find_arenas(self.context)
        lists = freelists.FreeLists(self.context)
        caches = freelists.read_caches(lists, arenas)
        followed = lists.follow()
        freelists.check_cache_lists(self.context, caches, followed)
        arena_index, rows = {arena.address: arena.index for arena in arenas}, []
        for cache in caches.caches:
            own = caches.lists(cache)
            chunks, sums = followed.counts[own.start : own.stop], followed.bytes[own.start : own.stop]
            is_cut = CUT in followed.problems[own.start : own.stop]
            known = cache.trouble is None and not is_cut
            bytes_ = [count * size if size is not None else total for count, size, total in zip(chunks, caches.sizes, sums)]
            row = ThreadCache(
                allocator=self.glibc.id,
                lwp=cache.thread.lwp,
                name=cache.thread.name,
                tcache=TargetAddress(cache.address) if cache.address else None,
                arena=arena_index.get(cache.arena) if cache.arena else None,
                chunks=sum(chunks) if known else None,
                bytes=sum(bytes_) if known else None,
                bins=[
                    CacheBin(index, *figures)
                    for index, figures in enumerate(zip(caches.sizes, chunks, bytes_))
                    if figures[1] and not is_cut
                ],
            )
            rows.append(row)
        return rows

    def malloc_info(self) -> str:
        """malloc_info(0, fp)'s XML."""
        from gdbheapx.glibc.text import write_malloc_info

        self._read_counters()
        return write_malloc_info(self.context)

    def mp(self) -> LayoutView:
        """`mp_`."""
        return self.glibc.read_mp(self.context.target)


def _has_holes(target: Target) -> bool:
    """Return True for a whole core with a hole for each page that was not in memory (fs/coredump.c: dump_user_range)."""
    use = target.memory_use() if target.kind == "core" and target.lost_bytes() == 0 else None
    return use is not None and use.tells_untouched
