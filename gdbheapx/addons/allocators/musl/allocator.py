"""One musl malloc as the commands ask for it; walks at most once."""

from array import array
from typing import TYPE_CHECKING, Any, Callable, Iterator, List, Mapping, NamedTuple, Optional, Sequence, Tuple

from gdbheapx.addons.allocators.musl import damage, walkers
from gdbheapx.addons.allocators.musl import native_records as api
from gdbheapx.addons.allocators.musl.detect import Musl
from gdbheapx.addons.allocators.musl.records import MuslArena, MuslBin
from gdbheapx.allocators.heap import Heap, once
from gdbheapx.allocators.records import HeapContext
from gdbheapx.kernel.blocks.records import CLASS_OVERHEAD, EVERYTHING, BlockFilter, BlockShape, BlockStream, make_blocks
from gdbheapx.kernel.blocks.slot_walker import SlotWalker
from gdbheapx.kernel.blocks.slots import SlotTallies
from gdbheapx.model import Address, AllocatorInfo, Claim, HistogramRow
from gdbheapx.problems import Diagnostic, Severity
from gdbheapx.ranges import union

if TYPE_CHECKING:
    from gdbheapx.addons.allocators.musl.meter import MuslMeter
    from gdbheapx.addons.allocators.musl.records import MuslFacts
    from gdbheapx.allocators.keeping import Keeping
    from gdbheapx.allocators.metering import Reading
    from gdbheapx.allocators.places import Place
    from gdbheapx.allocators.rules import BrokenRule

SHAPE = BlockShape(api.WORDS, (0,) * len(api.WORDS), None, unit_bytes=api.UNIT_BYTES)


class Counted(NamedTuple):
    """One look at the metas: which slots are taken, by their masks."""

    groups: api.Groups
    usage: Sequence[Tuple[int, int, int]]
    """(class, slots that musl counts, slots that its groups have) where these differ."""

    @property
    def is_whole(self) -> bool:
        """Nothing is missing, and nothing damaged."""
        return self.groups.is_whole and not (self.groups.problem_count or self.usage)


class Survey(NamedTuple):
    """The same, and a look at what lies in each slot."""

    counted: Counted
    tallies: SlotTallies
    at_work: int
    """Threads that may be filling in a header."""

    @property
    def is_whole(self) -> bool:
        """Nothing is missing, and nothing damaged."""
        return self.counted.is_whole and self.tallies.is_whole and not self.tallies.problem_count


class MuslMalloc(Heap):
    """Everything one musl malloc can be asked for."""

    def __init__(self, musl: Musl, around: HeapContext) -> None:
        self.musl, self.around, self.target = musl, around, around.target

    @property
    def info(self) -> AllocatorInfo:
        """Its entry in the envelope."""
        return self.musl.info()

    @property
    def shape(self) -> BlockShape:
        """What the numbers of its blocks mean."""
        return SHAPE

    @property
    def capabilities(self) -> Mapping[str, Callable[..., Any]]:
        """What reads its counters."""
        return {"meter": self.meter, "exact-reading": self.exact_reading}

    def meter(self) -> "MuslMeter":
        """What reads its metas while the process runs."""
        from gdbheapx.addons.allocators.musl.meter import MuslMeter

        return MuslMeter(self.musl, self.target)

    def exact_reading(self) -> "Reading":
        """What the meter gives, from a walk of a process that stands still."""
        from gdbheapx.addons.allocators.musl.meter import exact

        return exact(self.arenas()[0])

    @once
    def groups(self) -> api.Groups:
        """All of them, by their metas, with their slots."""
        return self._groups(with_rows=True)

    def _groups(self, with_rows: bool) -> api.Groups:
        around, layout = self.around, self.musl.layout(self.target)
        memory = union([(mapping.start, mapping.end) for mapping in self.target.mappings()])
        ranges = array("Q", [end for both in memory for end in both])
        return walkers.groups(around.kernel, self.target.bulk_source(), layout, ranges, with_rows, around.budget)

    @once
    def counted(self) -> Counted:
        """What the metas tell, and what is wrong with them: no page of the heap is read."""
        groups = self._groups(with_rows=False)
        if groups.problem_count:
            groups = self.groups()
        found = Counted(groups, self._usage(groups))
        damage.report(self.target, damage.of_groups(self.musl.context, found), groups.problem_count + len(found.usage), self.around.report)
        if not groups.is_whole:
            self.around.report(*damage.CUT)
        return found

    @once
    def survey(self) -> Survey:
        """The walk over all slots, too, told what is wrong with them."""
        counted, groups = self.counted(), self.groups()
        tallies = self._walker(groups).tally()
        at_work = damage.at_work(self.target, self.musl.module, tallies)
        damage.report(self.target, damage.of_slots(tallies, at_work), tallies.problem_count, self.around.report)
        if groups.is_whole and not tallies.is_whole:
            self.around.report(*damage.CUT)
        return Survey(counted, tallies, at_work)

    def is_whole(self) -> bool:
        """What its sums are made of is. Nobody waits while a core is read: there the slots are looked at, too, which tell wrong masks."""
        return self.survey().is_whole if self.target.kind == "core" else self.counted().is_whole

    def _walker(self, groups: api.Groups) -> SlotWalker:
        layout = self.musl.layout(self.target)
        return walkers.slot_walker(self.around.kernel, self.target.bulk_source(), layout, groups.runs, self.around.budget)

    def _usage(self, groups: api.Groups) -> List[Tuple[int, int, int]]:
        """usage_by_class: slots of all groups of the class, but for donated ones. Empty where a group is damaged, or not all were read."""
        where = self.musl.context + self.musl.offsets.usage
        told = self.target.words_in(self.target.read_prefix(where, api.MUSL_CLASSES * self.target.word_bytes))
        if groups.problem_count or not groups.is_whole:
            return []
        counted = [row.counted_slots for row in groups.classes]
        return [(size_class, number, counted[size_class]) for size_class, number in enumerate(told) if number != counted[size_class]]

    def claims(self) -> List[Claim]:
        """Its mappings, its areas of metas, and what it was given of the ends of objects' data."""
        groups = self.counted().groups
        claims = [Claim(start, end, "groups") for start, end in groups.ranges("held")]
        areas = union([(area, area + api.AREA_BYTES) for area in groups.areas])
        return sorted([*claims, *(Claim(start, end, "metas") for start, end in areas)])

    def blocks(self, block_filter: BlockFilter = EVERYTHING, arena: Optional[int] = None) -> BlockStream:
        """Blocks in use, free slots, and what is musl's own, by address. Damage is reported beforehand."""
        self.survey()
        return self._stream(self.groups(), block_filter, arena)

    def _stream(self, groups: api.Groups, block_filter: BlockFilter, arena: Optional[int]) -> BlockStream:
        if arena not in (None, 0):
            block_filter = block_filter._replace(kinds=frozenset())
        areas = groups.areas if block_filter.has(api.MUSL_METADATA, api.AREA_BYTES) else ()
        rows = [(area, api.AREA_BYTES, CLASS_OVERHEAD, api.MUSL_METADATA, 0) for area in areas]
        return self._walker(groups).blocks(block_filter, make_blocks(rows))

    def block_at(self, address: int) -> "Optional[Place]":
        """By the groups that hold it: their slots alone are read."""
        from gdbheapx.allocators import places

        groups = self.groups()
        names = ("address", "bytes", "slot_bytes", "slots", "size_class", "problem")
        rows = zip(*(groups.column(name) for name in names))
        around = [row for row in rows if row[0] <= address < row[0] + row[1] and not row[5]]
        area = next((area for area in groups.areas if area <= address < area + api.AREA_BYTES), None)
        if not around and area is None:
            return None
        what = "%d slots of %d bytes, class %d"
        parts = [places.Part("group", what % (row[3], row[2], row[4]), Address(row[0]), Address(row[0] + row[1])) for row in around]
        if area is not None:
            parts.append(places.Part("metas", "records of groups", Address(area), Address(area + api.AREA_BYTES)))
        start = max((row[0] for row in around), default=area or 0)
        stream = self._stream(groups, BlockFilter(start=start), None)
        return places.place(places.neighbours(stream, self.shape, address), self.shape, self.info.id, address, parts[::-1])

    def own_data(self) -> List[Tuple[int, int]]:
        """Its context, and its areas of metas, which lead to groups."""
        areas = [(area, area + api.AREA_BYTES) for area in self.counted().groups.areas]
        return [(self.musl.context, self.musl.offsets.usage + self.musl.context), *areas]

    @once
    def arenas(self) -> Sequence[MuslArena]:
        """All of it: there is one."""
        from gdbheapx.addons.allocators.musl import sums

        self.is_whole()
        return [sums.arena(self.musl, self.around, self.counted().groups)]

    @once
    def bins(self) -> List[MuslBin]:
        """The size classes that have groups, with what was asked for in each."""
        from gdbheapx.addons.allocators.musl import sums

        return sums.bins(self.info.id, self.survey())

    def histogram(self) -> List[HistogramRow]:
        """All slots by size class."""
        from gdbheapx.addons.allocators.musl import sums

        return sums.histogram(self.counted().groups)

    def facts(self) -> "MuslFacts":
        """One look, frozen."""
        from gdbheapx.addons.allocators.musl.records import MuslFacts

        known = self.info, self.arenas(), self.totals(), self.histogram(), self.claims()
        own_mappings = self.counted().groups.ranges("alone")
        return MuslFacts(*known, self.is_whole(), damage.has_stopped(self.target, self.musl.module), own_mappings)

    def kept(self) -> "Keeping":
        """A group goes back when its last block is freed."""
        from gdbheapx.addons.allocators.musl import sums

        return sums.keeping(self.target, self.groups(), self.arenas()[0])

    def rules(self) -> "Iterator[BrokenRule]":
        """Every place that breaks a rule of mallocng's."""
        from gdbheapx.addons.allocators.musl import check
        from gdbheapx.allocators.rules import collector

        told: List[Diagnostic] = []
        own = MuslMalloc(self.musl, self.around._replace(report=collector(told)))
        yield from check.rules(own)
        for diagnostic in told:
            if diagnostic.code.nature != Severity.DAMAGE:
                self.around.report(*diagnostic)
