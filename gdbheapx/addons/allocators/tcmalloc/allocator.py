"""One tcmalloc as the commands ask for it; walks at most once."""

from bisect import bisect_right
from typing import TYPE_CHECKING, Any, Callable, Iterator, List, Mapping, Optional, Sequence, Tuple

from gdbheapx.addons.allocators.tcmalloc import counts as counters
from gdbheapx.addons.allocators.tcmalloc import native_records as api
from gdbheapx.addons.allocators.tcmalloc import sums
from gdbheapx.addons.allocators.tcmalloc import survey as looks
from gdbheapx.addons.allocators.tcmalloc.detect import Tcmalloc
from gdbheapx.addons.allocators.tcmalloc.entry import RELEASE
from gdbheapx.addons.allocators.tcmalloc.records import TcArena, TcBin, TcFacts
from gdbheapx.addons.allocators.tcmalloc.structure import WORD
from gdbheapx.allocators.heap import Heap, once
from gdbheapx.allocators.records import HeapContext
from gdbheapx.columns import add
from gdbheapx.kernel.blocks.records import CLASS_OVERHEAD, EVERYTHING, BlockFilter, BlockShape, BlockStream, make_blocks
from gdbheapx.model import Address, AllocatorInfo, Claim, HistogramRow, ThreadCache
from gdbheapx.problems import Report

if TYPE_CHECKING:
    from gdbheapx.addons.allocators.tcmalloc.meter import TcmallocMeter
    from gdbheapx.addons.allocators.tcmalloc.plan import Purge
    from gdbheapx.addons.allocators.tcmalloc.profile import TcProfile
    from gdbheapx.addons.allocators.tcmalloc.tunables import TcTunables
    from gdbheapx.allocators.effects import Effect
    from gdbheapx.allocators.keeping import Keeping
    from gdbheapx.allocators.metering import Reading
    from gdbheapx.allocators.places import Place
    from gdbheapx.allocators.returning import DryRun, Portion
    from gdbheapx.allocators.rules import BrokenRule

UNIT_BYTES = 8
SHAPE = BlockShape(
    api.WORDS,
    (0,) * len(api.WORDS),
    None,
    unit_bytes=UNIT_BYTES,
    in_size_classes=True,
    keeps_freed_content=True,
    unreturned_kinds=frozenset((api.TC_FREE_SPAN,)),
)
RATE = "TCMALLOC_RELEASE_RATE"


class TcmallocHeap(Heap):
    """Everything one tcmalloc can be asked for."""

    returning = RELEASE

    def __init__(self, tcmalloc: Tcmalloc, around: HeapContext) -> None:
        self.tcmalloc, self.around, self.target = tcmalloc, around, around.target

    @property
    def info(self) -> AllocatorInfo:
        """Its entry in the envelope."""
        return self.tcmalloc.info()

    @property
    def shape(self) -> BlockShape:
        """What the numbers of its blocks mean."""
        return SHAPE

    @property
    def capabilities(self) -> Mapping[str, Callable[..., Any]]:
        """What reads its counters, and what it sampled."""
        return {"meter": self.meter, "exact-reading": self.exact_reading, "profile": self.profile}

    def profile(self) -> "TcProfile":
        """The live heap profile; HeapxError where nothing was sampled."""
        from gdbheapx.addons.allocators.tcmalloc import profile

        return profile.read(self.target, self.tcmalloc.module, self.counts(), self.around.report)

    def meter(self) -> "TcmallocMeter":
        """What reads its counters while the process runs."""
        from gdbheapx.addons.allocators.tcmalloc.meter import TcmallocMeter

        return TcmallocMeter(self.tcmalloc, self.target)

    def exact_reading(self) -> "Reading":
        """What the meter gives, from a walk of a process that stands still."""
        from gdbheapx.addons.allocators.tcmalloc.meter import exact

        return exact(self.arenas()[0])

    def anew(self, report: Report) -> "TcmallocHeap":
        """One that has read nothing yet."""
        return TcmallocHeap(self.tcmalloc, self.around.anew(report))

    def would_return(self, portion: "Portion") -> "DryRun":
        """Its free spans."""
        from gdbheapx.addons.allocators.tcmalloc.plan import dry_run

        return dry_run(self.arenas(), self.tcmalloc.structure.page_map.page_bytes, self.target.kind == "live")

    def return_plan(self, portion: "Portion") -> "Purge":
        """MallocExtension_ReleaseFreeMemory()."""
        from gdbheapx.addons.allocators.tcmalloc.plan import Purge

        return Purge(self.around, self.anew, portion, self.tcmalloc)

    @once
    def counts(self) -> counters.Counts:
        """The walk over all spans, and all counters: sums are made of these alone."""
        return counters.count(self.tcmalloc, self.around, self.around.report)

    @once
    def survey(self) -> looks.Survey:
        """The walk over all lists of free objects, for what tells one block from another."""
        return looks.look(self.tcmalloc, self.around, self.counts(), self.around.report)

    @once
    def metadata(self) -> List[Tuple[int, int]]:
        """What holds its own structures."""
        return counters.metadata(self.tcmalloc, self.counts(), self.target)

    def claims(self) -> List[Claim]:
        """Its spans, joined where they touch, and its metadata."""
        claims = [Claim(start, end, "spans") for start, end in self.counts().spans.held]
        return sorted([*claims, *(Claim(start, end, "metadata") for start, end in self.metadata())])

    def own_data(self) -> List[Tuple[int, int]]:
        """The page heap with its lists of spans, the central lists, the list of thread caches."""
        known = self.tcmalloc.structure
        page_map, central = known.page_map, known.central
        heads = [] if known.threads is None else [(known.threads.head, known.threads.head + WORD)]
        return sorted([(page_map.root, page_map.stats), (central, central + known.stride * known.sizes.classes), *heads])

    def blocks(self, block_filter: BlockFilter = EVERYTHING, arena: Optional[int] = None) -> BlockStream:
        """Objects, large blocks, unused spans and metadata by address. Damage is reported beforehand."""
        if arena not in (None, 0):
            block_filter = block_filter._replace(kinds=frozenset())
        rows = []
        if block_filter.kinds is None or api.TC_METADATA in block_filter.kinds:
            for start, end in self.metadata():
                if block_filter.has(api.TC_METADATA, end - start):
                    rows.append((start, end - start, CLASS_OVERHEAD, api.TC_METADATA, 0))
        return looks.walker_of(self.counts(), self.survey(), self.around).blocks(block_filter, make_blocks(rows))

    def block_at(self, address: int) -> "Optional[Place]":
        """The object, and the span that holds it."""
        from gdbheapx.allocators import places

        claim = next((claim for claim in self.claims() if claim.start <= address < claim.end), None)
        if claim is None:
            return None
        spans = self.counts().spans
        at = bisect_right(spans.column("start"), address) - 1
        parts, start = [places.Part(claim.what, claim.what, Address(claim.start), Address(claim.end))], claim.start
        if claim.what == "spans" and at >= 0:
            span = api.TcSpan._make(spans.spans[len(api.TcSpan._fields) * at : len(api.TcSpan._fields) * (at + 1)])
            start = spans.column("start")[max(0, at - 1)]
            parts.insert(0, places.Part("span", _span_name(span), Address(span.start), Address(span.start + span.bytes)))
        stream = self.blocks(BlockFilter(start=start))
        return places.place(places.neighbours(stream, self.shape, address), self.shape, self.info.id, address, parts)

    @once
    def arenas(self) -> Sequence[TcArena]:
        """All of it: there is one."""
        metadata_bytes = sum(end - start for start, end in self.metadata())
        return [sums.arena(self.tcmalloc, self.around, self.counts(), metadata_bytes)]

    @once
    def bins(self) -> List[TcBin]:
        """The size classes that have spans."""
        return sums.bins(self.tcmalloc, self.counts())

    def histogram(self) -> List[HistogramRow]:
        """All blocks by size class."""
        return sums.histogram(self.counts(), self.bins())

    def caches(self) -> List[ThreadCache]:
        """One row per thread cache."""
        return sums.caches(self.tcmalloc, self.around, self.counts())

    def facts(self) -> TcFacts:
        """One look, frozen."""
        known = self.arenas(), self.totals(), self.histogram(), self.claims()
        from gdbheapx.addons.allocators.tcmalloc.tunables import is_aggressive

        rate = self.target.environment_variable(RATE)
        return TcFacts(self.info, *known, self.counts().is_whole, rate, is_aggressive(self.target))

    def tunables(self) -> "TcTunables":
        """What its flags and the environment say."""
        from gdbheapx.addons.allocators.tcmalloc import tunables

        return tunables.read(self.target, self.tcmalloc.module)

    def what_if(self) -> "Sequence[Effect]":
        """What its variables would change. One of release rates has no row: it was measured to change nothing where threads are idle."""
        from gdbheapx import findings as codes
        from gdbheapx.allocators.effects import by_variable, restart
        from gdbheapx.allocators.measured import AGGRESSIVE_DECOMMIT as DECOMMIT
        from gdbheapx.allocators.measured import CACHE_BYTES

        row, value = self.arenas()[0], self.target.environment_variable
        free, cached = row.held_bytes - (row.used_bytes or 0), add((row.cached_bytes, row.transfer_bytes))
        spans = {
            "code": "decommit",
            "cause": codes.UNUSED_PAGES,
            "why": "free spans in RAM, each returned as it becomes free",
            "cost": "a system call for each span, and page faults",
        }
        caches = {
            "code": "thread-caches",
            "cause": codes.THREAD_CACHES,
            "why": "what thread and transfer caches hold",
            "cost": "caches are filled and emptied more often, under a lock",
        }
        return [
            by_variable(DECOMMIT, value(DECOMMIT.variable), row.free_resident_bytes, free, **spans),
            by_variable(CACHE_BYTES, value(CACHE_BYTES.variable), cached, free, **caches),
            restart(free),
        ]

    def kept(self) -> "Keeping":
        """What is free in spans that have objects in use."""
        return sums.keeping(self.tcmalloc, self.arenas()[0])

    def rules(self) -> "Iterator[BrokenRule]":
        """Every place that breaks a rule of tcmalloc's."""
        from gdbheapx.addons.allocators.tcmalloc import check

        yield from check.rules(self)


def _span_name(span: api.TcSpan) -> str:
    if span.location != api.SPAN_IN_USE:
        return "free span" if span.location == api.SPAN_ON_NORMAL else "returned span"
    return "span of class %d" % span.size_class if span.size_class else "span of one block"
