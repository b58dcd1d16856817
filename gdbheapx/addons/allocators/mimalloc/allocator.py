"""One mimalloc as the commands ask for it; walks at most once."""

from typing import TYPE_CHECKING, Any, Callable, Iterator, List, Mapping, Optional, Sequence

from gdbheapx.addons.allocators.mimalloc import codes, options
from gdbheapx.addons.allocators.mimalloc.detect import Mimalloc
from gdbheapx.addons.allocators.mimalloc.entry import NEVER_RETURNS
from gdbheapx.addons.allocators.mimalloc.native_records import MI_CLASS_OF, MI_RETURNED, MI_SPAN, PADDING, WORDS
from gdbheapx.addons.allocators.mimalloc.records import Delay, MimallocArena, MimallocBin
from gdbheapx.addons.allocators.mimalloc.survey import Survey, look, page_at, runs
from gdbheapx.allocators.heap import Heap, once
from gdbheapx.allocators.records import HeapContext, NeverReturns
from gdbheapx.kernel.blocks.records import EVERYTHING, BlockFilter, BlockShape, BlockStream
from gdbheapx.kernel.blocks.slot_walker import SlotWalker
from gdbheapx.model import Address, AllocatorInfo, Check, Claim, HistogramRow
from gdbheapx.ranges import union
from gdbheapx.units import plural

if TYPE_CHECKING:
    from gdbheapx.addons.allocators.mimalloc.meter import MimallocMeter
    from gdbheapx.addons.allocators.mimalloc.records import MimallocFacts
    from gdbheapx.allocators.effects import Effect
    from gdbheapx.allocators.keeping import Keeping
    from gdbheapx.allocators.metering import Reading
    from gdbheapx.allocators.places import Place
    from gdbheapx.allocators.rules import BrokenRule

SHAPE = BlockShape(WORDS, (0,) * len(WORDS), None, in_size_classes=True, keeps_freed_content=True, unreturned_kinds={MI_SPAN})
PADDED = SHAPE._replace(overheads=PADDING)
HINT = "run check for each rule that is broken"


class MimallocHeap(Heap):
    """Everything one mimalloc can be asked for."""

    def __init__(self, mimalloc: Mimalloc, around: HeapContext) -> None:
        self.mimalloc, self.around, self.target = mimalloc, around, around.target

    @property
    def info(self) -> AllocatorInfo:
        """Its entry in the envelope."""
        return self.mimalloc.info()

    @property
    def shape(self) -> BlockShape:
        """What the numbers of its blocks mean."""
        return PADDED if self.mimalloc.form.is_padded else SHAPE

    @property
    def capabilities(self) -> Mapping[str, Callable[..., Any]]:
        """What reads its pages' counters."""
        return {"meter": self.meter, "exact-reading": self.exact_reading}

    def meter(self) -> "MimallocMeter":
        """What reads its pages while the process runs."""
        from gdbheapx.addons.allocators.mimalloc.meter import MimallocMeter

        return MimallocMeter(self.mimalloc, self.target)

    def exact_reading(self) -> "Reading":
        """What the meter gives, from a walk of a process that stands still."""
        from gdbheapx.addons.allocators.mimalloc.meter import exact

        return exact(self.arenas())

    @once
    def survey(self) -> Survey:
        """The look at all pages and lists, told what is wrong with them."""
        return self._look(True)

    @once
    def counted(self) -> Survey:
        """The same for totals. A process must not stand still for its lists: there each page's own count is believed, which no thread
        changes in more than one step."""
        return self._look(False) if self.target.kind == "live" else self.survey()

    def _look(self, follows: bool) -> Survey:
        found, report = look(self.mimalloc, self.around, follows), self.around.report
        if not found.frees.is_whole:
            report(codes.PAGES_CUT, None, "not every free list of %s was followed" % self.mimalloc.id, "give --max-seconds more")
        for one in found.broken[: codes.MOST_TOLD]:
            report(one.code, one.address, one.what, HINT, one.code is codes.PAGE_CHANGING)
        if len(found.broken) > codes.MOST_TOLD:
            report(codes.PAGE_WRONG, None, plural(len(found.broken) - codes.MOST_TOLD, "more contradiction"), HINT)
        return found

    def claims(self) -> List[Claim]:
        """Segments or arenas as a whole, pages of their own, and the page map."""
        return [Claim(start, end, "segments" if self.mimalloc.form.line < 3 else "arenas") for start, end in union(self.counted().reserved)]

    def blocks(self, block_filter: BlockFilter = EVERYTHING, arena: Optional[int] = None) -> BlockStream:
        """Blocks in use and free, what was never handed out, spans and metadata, by address. Damage is reported beforehand."""
        slots, frees = runs(self.survey(), self.mimalloc.form, arena)
        around = self.around
        return SlotWalker(around.kernel, self.target.bulk_source(), slots, MI_CLASS_OF, 1, around.budget, frees).blocks(block_filter)

    def block_at(self, address: int) -> "Optional[Place]":
        """The block and page that hold the address."""
        from gdbheapx.allocators import places

        found = self.survey()
        claim = next((claim for claim in self.claims() if claim.start <= address < claim.end), None)
        if claim is None:
            return None
        parts, counted = [], page_at(found, address)
        if counted is not None:
            page = counted.page
            text = "%d-byte blocks, %d of %d in use" % (page.block_bytes, counted.used, page.reserved)
            text += "; aligned ones may begin inside theirs" if page.has_aligned else ""
            parts.append(places.Part("page", text, Address(page.memory), Address(page.end)))
        segment = next((one for one in found.segments if one.address <= address < one.end), None)
        if segment is not None:
            kind = "segment" if self.mimalloc.form.line < 3 else "arena"
            parts.append(places.Part(kind, "", Address(segment.address), Address(segment.end)))
        parts = parts or [places.Part("memory", claim.what, Address(claim.start), Address(claim.end))]
        begin = counted.page.memory - 1 if counted is not None else 0
        near = places.neighbours(self.blocks(EVERYTHING._replace(start=max(0, begin))), self.shape, address)
        return places.place(near, self.shape, self.info.id, address, parts)

    @once
    def arenas(self) -> Sequence[MimallocArena]:
        """One row per thread that owns pages, and what no thread owns."""
        from gdbheapx.addons.allocators.mimalloc import sums

        return sums.arenas(self.mimalloc, self.around, self.counted())

    @once
    def bins(self) -> List[MimallocBin]:
        """The block sizes that have pages."""
        from gdbheapx.addons.allocators.mimalloc import sums

        return sums.bins(self.mimalloc, self.counted())

    def histogram(self) -> List[HistogramRow]:
        """All blocks by size."""
        from gdbheapx.addons.allocators.mimalloc import sums

        return sums.histogram(self.bins())

    def facts(self) -> "MimallocFacts":
        """One look, frozen."""
        from gdbheapx.addons.allocators.mimalloc.records import MimallocFacts

        known = (self.info, self.arenas(), self.totals(), self.histogram(), self.claims())
        survey, values = self.counted(), options.in_force(self.tunables().tunables)
        resets = [values[name] for name in options.RESETS if name in values]
        return MimallocFacts(
            *known,
            is_whole=survey.is_whole,
            has_ended=self.mimalloc.form.line < 3,
            returned=union([(piece.start, piece.end) for piece, _ in survey.pieces if piece.kind == MI_RETURNED]),
            delay=next((Delay(name, values[name]) for name in options.DELAYS if name in values), None),
            is_reset=resets[0] == 0 if resets else None,
        )

    @once
    def tunables(self) -> "options.MimallocTunables":
        """Its options, by the array that it reads them from."""
        return options.MimallocTunables(options.read(self.target, self.mimalloc.options))

    @property
    def never_returns(self) -> NeverReturns:
        """With what a call of the program's own would return."""
        from gdbheapx.addons.allocators.mimalloc.messages import arenas

        calls = [str(line) for line in arenas.collections(self.totals())]
        return NEVER_RETURNS._replace(hint="; ".join([*calls, NEVER_RETURNS.hint]))

    def what_if(self) -> "Sequence[Effect]":
        """What its variables would change."""
        from gdbheapx import findings as codes
        from gdbheapx.allocators.effects import by_variable, restart
        from gdbheapx.allocators.measured import DECOMMIT_DELAY, PURGE_DELAY

        places = self.mimalloc.form.segment
        by = DECOMMIT_DELAY if places is not None and places.memid is None else PURGE_DELAY
        whole = sum(row.empty_bytes + row.uncollected_bytes + row.span_bytes for row in self.arenas())
        free, value = sum(row.held_bytes - row.used_bytes for row in self.arenas()), self.target.environment_variable(by.variable)
        words = {
            "code": "purge-delay",
            "cause": codes.FREED_AND_HELD,
            "why": "pages without a block in use, and free slices, returned as they become free",
            "cost": "a system call for each, and page faults",
        }
        return [by_variable(by, value, whole, free, **words), restart(free)]

    def kept(self) -> "Keeping":
        """A page goes back when its last block is freed, and collected."""
        from gdbheapx.addons.allocators.mimalloc import sums

        return sums.keeping(self.mimalloc, self.counted(), self.around.target.page_bytes)

    def rules(self) -> "Iterator[BrokenRule]":
        """Every place that breaks a rule of mimalloc's."""
        from gdbheapx.addons.allocators.mimalloc import check

        return check.rules(self)

    def checks(self) -> List[Check]:
        """How its release was told, and what its build hides."""
        form = self.mimalloc.form
        rows = [Check("", None, "structures of mimalloc %s, found without symbols" % form.releases, None)]
        if form.is_encoded:
            rows.append(Check("", None, "secure or debug build: free lists are encoded, and are decoded with the keys of each page", None))
        return rows
