"""Commands on one jemalloc. The heap is walked at most once."""

from typing import TYPE_CHECKING, Any, Callable, Dict, Iterator, List, Mapping, Optional, Sequence, Tuple

from gdbheapx.allocators.heap import AllocatorInstance, cache_answer
from gdbheapx.allocators.records import HeapContext
from gdbheapx.common.columns import add_values
from gdbheapx.common.model import AllocatorInfo, Check, Claim, HistogramRow, ThreadCache
from gdbheapx.common.problems import Diagnostic, PartialSink
from gdbheapx.jemalloc.arenas import ArenaHandle, JemallocContext
from gdbheapx.jemalloc.decay import (
    TickerReading,
    count_blind_by_arena,
    list_ticker_advice,
    make_decay_rows,
    read_background,
    read_decay,
    read_tickers,
)
from gdbheapx.jemalloc.extents import (
    make_arena_rows,
    make_bin_rows,
    make_extent_walker,
    make_histogram,
    read_huge_pages,
    sum_absent,
    walk_extents,
)
from gdbheapx.jemalloc.help import PURGE
from gdbheapx.jemalloc.layouts import has_ticker_bug
from gdbheapx.jemalloc.options import counts_stats, list_checks, read_conditions
from gdbheapx.jemalloc.records import JemallocArena, JemallocBin, JemallocConditions, JemallocHugePages, TickerReport
from gdbheapx.jemalloc.symbols import Jemalloc
from gdbheapx.jemalloc.text import sum_arena_rows
from gdbheapx.jemalloc.threads import (
    JemallocCaches,
    Tsds,
    count_cached_bytes,
    limit_cached_bytes,
    make_cache_rows,
    read_jemalloc_caches,
    read_tsds,
)
from gdbheapx.kernel.blocks.stream import CLASS_OVERHEAD, EVERYTHING, BlockFilter, BlockShape, BlockStream, NativeBlocks, make_blocks
from gdbheapx.kernel.jemalloc import records as kernel_api

if TYPE_CHECKING:
    # What one command alone asks for is imported where it is asked: a look at a small process is half importing.
    from gdbheapx.allocators.answers import AllocatorPlace, BrokenRule, Effect, Keeping, Reading
    from gdbheapx.allocators.plan import DryRun, Portion
    from gdbheapx.jemalloc.meter import JemallocMeter
    from gdbheapx.jemalloc.options import JemallocTunables
    from gdbheapx.jemalloc.plan import JemallocCure, JemallocPurge
    from gdbheapx.jemalloc.profile import Profile
    from gdbheapx.jemalloc.records import JemallocFacts
    from gdbheapx.jemalloc.stats import JemallocStats
    from gdbheapx.jemalloc.text import DecayAnswer
    from gdbheapx.kernel.jemalloc.records import AbsentTotals

WORDS = ("used", "cached", "free", "dirty", "muzzy", "retained", "metadata", "metadata", "pinned")
"""The contract's word for each BLOCK_ number. Extents in transition count as metadata, as the blocks of each arena's base."""
SHAPE = BlockShape(WORDS, (0,) * len(WORDS), None, in_size_classes=True, keeps_freed_content=True, unreturned_kinds={3, 4, 8})


class JemallocMalloc(AllocatorInstance):
    """Everything one jemalloc can be asked for."""

    returning = PURGE

    def __init__(self, jemalloc: Jemalloc, around: HeapContext) -> None:
        self.context = JemallocContext(
            around.target, jemalloc, around.kernel, around.target.bulk_source(), around.budget, around.report, around.ram
        )
        self.jemalloc = jemalloc
        self.around = around

    @property
    def info(self) -> AllocatorInfo:
        """Its entry in the envelope."""
        return self.jemalloc.info()

    @property
    def capabilities(self) -> Mapping[str, Callable[..., Any]]:
        """Return what this allocator can do and others cannot, by name."""
        return {
            "cure": self.cure,
            "tickers": self.tickers,
            "decay": self.decay_answer,
            "profile": self.profile,
            "native-stats": self.malloc_stats,
            "held-bytes": self.counted_bytes,
            "meter": self.meter,
            "exact-reading": self.exact_reading,
        }

    def meter(self) -> "JemallocMeter":
        """Return the reader of its counters in a running process."""
        from gdbheapx.jemalloc.meter import JemallocMeter

        return JemallocMeter(self.context)

    def exact_reading(self) -> "Reading":
        """Return the meter's figures from a walk of a stopped process."""
        from gdbheapx.jemalloc.meter import read_exactly

        return read_exactly(self.totals())

    def _reopen_heap(self, report: PartialSink) -> "JemallocMalloc":
        return JemallocMalloc(self.jemalloc, self.around.anew(report))

    def would_return(self, portion: "Portion") -> "DryRun":
        """Predict what a purge of one arena or of all would give back."""
        from gdbheapx.jemalloc.plan import predict_jemalloc_purge

        is_live, page_bytes = self.context.target.kind == "live", self.context.geometry.page_bytes
        return predict_jemalloc_purge(self.arenas(), portion.arena, page_bytes, is_live, self._merge_huge_pages().dirty_mult)

    def what_if(self) -> "List[Effect]":
        """List the effects of its options."""
        from gdbheapx.jemalloc.options import list_jemalloc_effects, sum_unwritten_ends

        conditions, ends_bytes = self.conditions(), sum_unwritten_ends(self.histogram(), self.context.geometry.page_bytes)
        variable = conditions.names.conf_variable
        is_set = variable is not None and bool(self.context.target.environment_variable(variable))
        regions_bytes = sum(row.bytes for row in self.bins() if row.kind == "small")
        return list_jemalloc_effects(self.arenas(), conditions, ends_bytes, regions_bytes, is_set)

    def return_plan(self, portion: "Portion") -> "JemallocPurge":
        """A purge of one arena or of all."""
        from gdbheapx.jemalloc.plan import JemallocPurge

        return JemallocPurge(self.around, self._reopen_heap, portion, self.jemalloc)

    def cure(self) -> "JemallocCure":
        """The plan of giving blind threads their ticker."""
        from gdbheapx.jemalloc.plan import JemallocCure

        return JemallocCure(self.around, self._reopen_heap, self.jemalloc)

    def facts(self) -> "JemallocFacts":
        """Read everything that `report` and a snapshot need, once."""
        from gdbheapx.jemalloc.records import JemallocFacts

        known = self.info, self.arenas(), self.totals(), self.histogram(), self.claims(), self.bins(), self.conditions(), self.tickers()
        done = self.survey()
        return JemallocFacts(
            *known,
            is_whole=bool(done.summary.done) and not done.summary.unreadable_bytes,
            bases=sorted(block for arena in self.arena_list() for block in self.context.list_base_blocks(arena)),
            most_cached_bytes=limit_cached_bytes(self.context),
            unused_ranges=self._unused_ranges,
            huge=self._merge_huge_pages(),
            absent=sum_absent(done),
            absent_beside=self._absent_beside,
        )

    def _merge_huge_pages(self) -> JemallocHugePages:
        """Merge the huge pages of all arenas; the largest dirty_mult counts."""
        every = list(self.huge_pages().values())
        limits = [pages.dirty_mult for pages in every if pages.dirty_mult is not None]
        most = -1 if -1 in limits else max(limits, default=None)
        dirty = sorted(run for pages in every for run in pages.dirty)
        return JemallocHugePages(dirty, sorted(run for pages in every for run in pages.untouched), most)

    def _absent_beside(self, runs: Sequence[int]) -> "Optional[AbsentTotals]":
        return sum_absent(make_extent_walker(self.context).walk(self.tcaches().pointers, None, runs))

    @cache_answer
    def huge_pages(self) -> Dict[int, JemallocHugePages]:
        """Read the huge pages of the HPA that have free pages, by arena index."""
        return {arena.index: read_huge_pages(self.context, arena) for arena in self.arena_list()}

    def _unused_ranges(self) -> List[Tuple[int, int]]:
        unused = BlockFilter(kinds=frozenset((kernel_api.BLOCK_DIRTY, kernel_api.BLOCK_MUZZY)))
        return sorted(
            (start, start + size) for batch in self._stream_blocks(unused, None) for start, size in zip(batch.addresses, batch.usable_bytes)
        )

    def totals(self) -> Dict[str, Optional[int]]:
        """The sums of its arenas."""
        return sum_arena_rows(self.arenas())

    def checks(self) -> List[Check]:
        """List how its build was recognised, and what that build does not show."""
        return list_checks(self.context, self.arena_list(), self.tsds())

    @cache_answer
    def arena_list(self) -> Sequence[ArenaHandle]:
        """The arenas that exist and can be read."""
        return self.context.read_arenas()

    @cache_answer
    def has_stats(self) -> Optional[bool]:
        """Return config_stats; None if it cannot be inferred."""
        return counts_stats(self.context, self.arena_list())

    def conditions(self) -> JemallocConditions:
        """Read the options and states that drive its purging."""
        return read_conditions(self.context, self.arena_list())

    def malloc_stats(self) -> "JemallocStats":
        """Compute the figures of malloc_stats_print from memory, with their text."""
        from gdbheapx.jemalloc.stats import read_malloc_stats

        counted = count_cached_bytes(self.context, self.tcaches(), self.arena_list())
        return read_malloc_stats(self.context, self.arena_list(), counted, self.context.target.monotonic_ns(), self.counted_bytes())

    def tunables(self) -> "JemallocTunables":
        """Its options, where they were set, and its background threads."""
        from gdbheapx.jemalloc.options import read_tunables

        return read_tunables(self.context, self.has_stats)

    def profile(self) -> "Profile":
        """The live heap profile; HeapxError where nothing was sampled."""
        from gdbheapx.jemalloc.profile import read_profile

        allocated = self.malloc_stats().figures.get("stats", {}).get("allocated")
        cached = add_values(row.bytes for row in self.caches()) if self.tcaches().complete else None
        counted_bytes = None if allocated is None or cached is None else allocated - cached
        return read_profile(self.context, counted_bytes, self.conditions().prof_active)

    def counted_bytes(self) -> Optional[int]:
        """Pages that it holds, in use or kept, by its arenas' own counters: no walk. None where an arena's cannot be read."""
        return self.context.sum_held_bytes(self.arena_list())

    @cache_answer
    def survey(self) -> kernel_api.ExtentsResult:
        """The walk over all its extents."""
        walked = walk_extents(self.context, self.tcaches().pointers)
        known = {arena.index for arena in self.arena_list()}
        self.context.report_missing_arenas([row.arena for row in walked.arenas if row.arena not in known])
        return walked

    @cache_answer
    def tsds(self) -> Tsds:
        """Every thread's tsd."""
        return read_tsds(self.context, self.arena_list())

    @cache_answer
    def tcaches(self) -> JemallocCaches:
        """Every thread cache with what it holds."""
        return read_jemalloc_caches(self.context, self.arena_list(), self.tsds(), self.has_stats())

    def caches(self) -> List[ThreadCache]:
        """Make one row for each thread and each explicit cache."""
        return make_cache_rows(self.context, self.tcaches(), self.tsds())

    @cache_answer
    def seen(self) -> TickerReading:
        """Every thread and arena, judged."""
        decays = read_decay(self.context, self.arena_list(), self.has_stats())
        return read_tickers(self.context, self.tsds(), decays, read_background(self.context), self.has_stats())

    def tickers(self) -> TickerReport:
        """Report which threads can never purge, and what that means for each arena."""
        seen, names = self.seen(), self.context.symbols.public_names
        advice = list_ticker_advice(seen.threads, seen.arenas, names)
        return TickerReport(has_ticker_bug(self.context.types, self.jemalloc.version), seen.threads, seen.arenas, advice)

    def decay_answer(self) -> "DecayAnswer":
        """Return the rows of `decay`, two for each arena, with their text."""
        from gdbheapx.jemalloc.text import DecayAnswer

        return DecayAnswer(make_decay_rows(self.seen(), self.context.geometry.page_bytes))

    @cache_answer
    def arenas(self) -> List[JemallocArena]:
        """Make one row for each arena."""
        blind = count_blind_by_arena(self.seen().threads) if self.tsds().complete else None
        known = blind, self.tcaches().complete, self.has_stats(), self.huge_pages()
        return make_arena_rows(self.context, self.arena_list(), self.survey(), *known)

    def bins(self) -> List[JemallocBin]:
        """The size classes and unused extents of every arena."""
        return make_bin_rows(self.context, self.survey())

    def histogram(self) -> List[HistogramRow]:
        """Count all blocks by size class, from the walk over the totals: no second walk."""
        return make_histogram(self.context, self.survey())

    def block_at(self, address: int) -> Optional["AllocatorPlace"]:
        """The block and extent that hold the address."""
        from gdbheapx.jemalloc.extents import locate_jemalloc_address

        return locate_jemalloc_address(self.context, self.arena_list(), self.tcaches(), address)

    def rules(self) -> Iterator["BrokenRule"]:
        """Every place that breaks a rule of jemalloc's."""
        from gdbheapx.allocators.answers import make_collector
        from gdbheapx.jemalloc.check import check_heap

        told: List[Diagnostic] = []
        own = JemallocMalloc(self.jemalloc, self.around._replace(report=make_collector(told)))
        arenas, walked = own.arena_list(), own.survey()
        for arena in arenas:
            own.context.list_base_blocks(arena)
        tsds, caches, has_stats = own.tsds(), own.tcaches(), bool(own.has_stats())
        yield from check_heap(own.context, arenas, walked, tsds, caches, has_stats, told, self.context.report)

    def claims(self) -> List[Claim]:
        """List all memory it holds: extents, joined where they touch, and the blocks of its metadata."""
        claims = [Claim(start, end, "extents") for start, end in self.survey().ranges]
        huge = self._merge_huge_pages()
        claims += [Claim(start, end, "free pages of huge pages") for start, end in (*huge.dirty, *huge.untouched)]
        for arena in self.arena_list():
            claims += [Claim(start, end, "metadata") for start, end in self.context.list_base_blocks(arena)]
        return sorted(claims)

    def own_places(self) -> List[int]:
        """Thread caches: their stacks lie in blocks."""
        return [place for cache in self.tcaches().caches for place in (cache.address, *(stack.start for stack in cache.stacks))]

    @property
    def shape(self) -> BlockShape:
        """Return the meaning of the numbers of its blocks."""
        return SHAPE

    def kept(self) -> "Keeping":
        """Measure the free memory that a purge leaves."""
        from gdbheapx.jemalloc.extents import measure_keeping

        return measure_keeping(self.context, self.survey(), self.arenas())

    def blocks(self, block_filter: BlockFilter = EVERYTHING, arena: Optional[int] = None) -> BlockStream:
        """Blocks in address order: regions, large allocations, unused extents, metadata. Damage is reported beforehand."""
        return self._stream_blocks(block_filter, arena, make_blocks(self._list_metadata(block_filter, arena)))

    def listing(self, block_filter: BlockFilter = EVERYTHING, arena: Optional[int] = None) -> Iterator[NativeBlocks]:
        """Stream the blocks as `chunks` shows them: metadata last."""
        if block_filter.kinds is None or block_filter.kinds - {kernel_api.BLOCK_METADATA}:
            yield from self._stream_blocks(block_filter, arena)
        metadata = self._list_metadata(block_filter, arena)
        if metadata:
            yield make_blocks(metadata, in_order=False)

    def _stream_blocks(self, block_filter: BlockFilter, arena: Optional[int], apart: Optional[NativeBlocks] = None) -> BlockStream:
        self.survey()  # the stream leaves out what is damaged and does not say so
        return make_extent_walker(self.context).blocks(self.tcaches().pointers, block_filter, arena, apart)

    def _list_metadata(self, block_filter: BlockFilter, arena: Optional[int]) -> List[Tuple[int, int, int, int, int]]:
        """The blocks of each base, newest first: rows of Blocks."""
        if block_filter.kinds is not None and kernel_api.BLOCK_METADATA not in block_filter.kinds:
            return []
        return [
            (start, end - start, CLASS_OVERHEAD, kernel_api.BLOCK_METADATA, listed.index)
            for listed in self.arena_list()
            if arena in (None, listed.index)
            for start, end in self.context.list_base_blocks(listed)
            if block_filter.has(kernel_api.BLOCK_METADATA, end - start)
        ]
