"""Commands on one musl malloc: a survey of groups and slots, their sums, damage, its meter, and broken rules."""

import struct
from array import array
from typing import Dict, Iterator, List, Optional, Sequence, Set, Tuple

from gdbheapx.addons.allocators.musl import codes, records
from gdbheapx.addons.allocators.musl.detect import Musl, read_first_area
from gdbheapx.allocators import answers
from gdbheapx.allocators.heap import MeteredInstance, cache_answer
from gdbheapx.allocators.records import HeapContext
from gdbheapx.common.hints import hint_command
from gdbheapx.common.model import Claim, HistogramRow, TargetAddress
from gdbheapx.common.problems import Diagnostic, PartialSink, ProblemCode, Severity
from gdbheapx.common.ranges import unite_ranges
from gdbheapx.common.units import format_number
from gdbheapx.inferior.base import Module, Target
from gdbheapx.kernel.blocks.pages import ROOM, PinShape
from gdbheapx.kernel.blocks.slots import SLOT_UNREADABLE, SlotTallies, SlotWalker
from gdbheapx.kernel.blocks.stream import CLASS_OVERHEAD, EVERYTHING, BlockFilter, BlockShape, BlockStream, make_blocks

MOST_TOLD = 20
SIGSEGV = 11
OF_GROUPS: Dict[int, Tuple[ProblemCode, str]] = {
    records.GROUP_AREA_UNREADABLE: (
        codes.AREA_UNREADABLE,
        "cannot read an area of metas: the groups of it and of those behind it are unknown",
    ),
    records.GROUP_AREA_CHECK: (codes.AREA_BROKEN, "an area of metas does not begin with musl's secret: the groups behind it are unknown"),
    records.GROUP_AREA_AGAIN: (codes.AREA_BROKEN, "the list of areas returns to an earlier area"),
    records.GROUP_CLASS: (codes.META_WRONG, "a meta has a size class that musl does not have"),
    records.GROUP_MASKS: (codes.META_WRONG, "a meta calls a slot free twice, or one that its group does not have"),
    records.GROUP_PLACE: (codes.META_WRONG, "a meta gives its group a place or a length that cannot be"),
    records.GROUP_OVERLAP: (codes.GROUP_OVERLAP, "a group lies across another one, or in a slot that is free"),
    records.GROUP_MAKING: (codes.SLOT_CHANGING, "a thread is making a group, or giving one up"),
    records.GROUP_UNMAPPED: (codes.GROUP_UNMAPPED, "a group reaches beyond its mapping"),
    records.GROUP_OUTSIDE: (codes.GROUP_OUTSIDE, "a group that was cut out of a slot lies in no slot"),
}
OF_SLOTS: Dict[int, Tuple[ProblemCode, str]] = {
    SLOT_UNREADABLE: (codes.HEADER_UNREADABLE, "cannot read the header of a group, or of a block in use, which counts as its whole slot"),
    records.HEAD_BACK: (codes.GROUP_BACK, "a group does not point back to its meta"),
    records.HEAD_MARK: (codes.GROUP_OVERLAP, "a group lies in a slot that is not marked as its"),
    records.HEADER_INDEX: (codes.HEADER_BROKEN, "the header of a block in use has the index of another slot"),
    records.HEADER_OFFSET: (codes.HEADER_BROKEN, "the header of a block in use does not point back to its group"),
    records.HEADER_ZERO: (codes.BLOCK_OVERRUN, "a byte that is always 0, behind a block in use or in its header, was overwritten"),
    records.HEADER_SLACK: (codes.HEADER_BROKEN, "the header of a block in use leaves more of its slot unused than the slot has"),
    records.HEADER_USED: (codes.HEADER_BROKEN, "a free slot has the header of a block in use"),
    records.HEADER_HALF: (codes.HEADER_BROKEN, "the header of a block in use does not point to its group, or is half written"),
    records.HEADER_STALE: (codes.SLOT_CHANGING, "a thread is handing a block out, or freeing it, or making a group"),
}
CUT_REPORT = (codes.GROUPS_CUT, None, "not all groups and slots were read", "allow more time: --max-seconds, --max-stop")
CHECK_HINT = "something wrote where it should not: `%s` names the block before" % hint_command("check")


def has_stopped(target: Target, module: Module) -> bool:
    """A core of a process that ended in this object by an instruction that is there for that: a_crash(), which the checks of malloc call,
    and those of stack guards."""
    thread, halt = next(iter(target.threads()), None), target.arch.halt
    if thread is None or thread.signal != SIGSEGV or thread.pc is None or not halt:
        return False
    is_ours = any(start <= thread.pc < end for start, end in target.code_ranges(module))
    return is_ours and target.read_prefix(thread.pc, len(halt)) == halt


DamagedPlace = Tuple[ProblemCode, int, str]
"""A code, an address and a sentence."""


def count_at_work(target: Target, module: Module) -> int:
    """Return the number of threads that execute code of malloc's object, and neither wait in a system call nor were stopped by a check."""
    ranges, call, halt = target.code_ranges(module), target.arch.in_system_call, target.arch.halt
    pcs = [thread.pc for thread in target.threads() if thread.pc is not None and any(start <= thread.pc < end for start, end in ranges)]
    waiting = [pc for pc in pcs if call is not None and call.shows(pc, target.read_prefix)]
    stopped = [pc for pc in pcs if halt and target.read_prefix(pc, len(halt)) == halt]
    return len(pcs) - len(waiting) - len(stopped)


def report_musl_damage(rows: Sequence[DamagedPlace], count: int, report: PartialSink) -> None:
    """Report the first places, and how many of `count` remain."""
    for code, address, what in rows[:MOST_TOLD]:
        report(code, address, what, CHECK_HINT if code.nature == Severity.DAMAGE else None)
    more = count - min(len(rows), MOST_TOLD)
    if more > 0:
        what = "%s more groups or slots are damaged, or cannot be read" % format_number(more)
        report(codes.MORE_BROKEN, None, what, "`%s` lists them" % hint_command("check"))


def _find_least(size_class: int) -> int:
    before = records.MUSL_CLASSES - 1 if size_class == records.OWN_CLASS else size_class - 1
    return records.find_most_bytes(before) + 1 if before >= 0 else 0


ABORT = "nothing: it executes an instruction that raises SIGSEGV, in free(), realloc() or malloc_usable_size()"
"""a_crash(), by assert() of meta.h."""
MOST_SUSPECTS = 100
FARTHEST_BYTES = 1 << 20
"""Before what is damaged: so near a block is looked for that may have been written past."""


def _find_suspect(heap: "MuslMalloc", code: ProblemCode, address: int) -> Optional[answers.RuleSuspect]:
    """The block in use that ends before what is damaged; or, where a slot's own block was written past, that: it may begin further on."""
    kinds = frozenset((records.MUSL_USED,))
    row: Optional[Tuple[int, ...]] = None
    if code is codes.BLOCK_OVERRUN:
        row = next((row for batch in heap.blocks(BlockFilter(kinds, start=address)) for row in zip(*batch)), None)
    else:
        blocks = heap.blocks(BlockFilter(kinds, start=max(0, address - FARTHEST_BYTES)))
        previous, here, _ = answers.find_neighbours(blocks, heap.shape, address - 1)
        row = here or previous
    return answers.RuleSuspect(TargetAddress(row[0]), row[1], records.MUSL_WORDS[row[3]]) if row is not None else None


MUSL_FIGURES = (
    answers.Figure("groups", "groups", "groups of slots", is_shown=False),
    answers.Figure("slots_used_bytes", "in slots", "bytes of slots with blocks in use, what blocks do not fill of them included"),
    answers.Figure("slots_free_bytes", "free slots", "bytes of free slots, which stay until their group has no block in use"),
)
MOST_AREAS = 1 << 20
"""Of a list that leads nowhere."""


MetaSums = Tuple[int, int, int, int, int]
"""Sums over metas: groups, bytes held, used, free, and in groups of one slot with a mapping of their own."""


class MuslMeter(answers.LocatedMeter):
    """Reads the metas of one mallocng."""

    figures = MUSL_FIGURES

    def __init__(self, musl: Musl, target: Target) -> None:
        super().__init__(musl, target)
        word, order = target.word_bytes, "<" if target.little_endian else ">"
        letter = "Q" if word == 8 else "I"
        self._head = struct.Struct(order + "Q" + letter)
        self._metas = struct.Struct(order + "3%sII%s" % (letter, letter))
        self._first = 8 + 2 * word
        self._count = (records.AREA_BYTES - self._first) // self._metas.size
        self._known: Dict[int, Tuple[bytes, MetaSums]] = {}

    def read(self, walk_seconds: float) -> answers.Reading:
        """The metas now. There is nothing to be estimated."""
        area, rows = read_first_area(self.target, self.located.context, self.located.offsets), []
        seen: Set[int] = set()
        if not area:
            return answers.make_empty_reading(MUSL_FIGURES)
        while area and area not in seen and len(seen) < MOST_AREAS:
            seen.add(area)
            data = self.target.read_prefix(area, records.AREA_BYTES)
            if len(data) < records.AREA_BYTES or self._head.unpack_from(data)[0] != self.located.secret:
                return answers.make_empty_reading(MUSL_FIGURES)
            known = self._known.get(area)
            if known is None or known[0] != data:
                known = self._known[area] = (data, self._sum_metas(data))
            rows.append(known[1])
            area = self._head.unpack_from(data)[1]
        groups, held, used, free, large = map(sum, zip(*rows))
        used, held = max(0, used), held + records.AREA_BYTES * len(rows)
        kept, walked = max(0, held - used), max(0, held - large)
        return answers.Reading((groups, used, free), held, used, kept, 0, walked_bytes=walked, large_bytes=large)

    def _sum_metas(self, data: bytes) -> MetaSums:
        groups = held = used = free = large = 0
        end = self._first + self._count * self._metas.size
        for _, _, group, available, freed, packed in self._metas.iter_unpack(data[self._first : end]):
            if not group:
                continue
            slots, pages, size_class = (packed & 31) + 1, packed >> 12, packed >> 6 & 63
            stride = (
                pages * records.AREA_BYTES - records.UNIT_BYTES
                if pages and slots == 1
                else records.count_slot_units(size_class) * records.UNIT_BYTES
            )
            count = bin((available | freed) & (1 << slots) - 1).count("1")
            groups, free, used = groups + 1, free + count * stride, used + (slots - count) * stride
            if pages:
                held += pages * records.AREA_BYTES
                large += stride if slots == 1 else 0
            elif packed >> 5 & 1:
                size = records.UNIT_BYTES + stride * slots  # it is cut from a slot (alloc_group)
                used -= next((records.UNIT_BYTES * units for units in records.SIZE_CLASSES if records.UNIT_BYTES * units >= size), size)
            else:
                held += records.UNIT_BYTES + stride * slots
        return groups, held, used, free, large


MUSL_SHAPE = BlockShape(records.MUSL_WORDS, (0,) * len(records.MUSL_WORDS), None, unit_bytes=records.UNIT_BYTES)


class MuslMalloc(MeteredInstance):
    """Everything one musl malloc can be asked for."""

    located: Musl
    block_shape, meter_type = MUSL_SHAPE, MuslMeter

    def __init__(self, musl: Musl, around: HeapContext) -> None:
        report = answers.call_changing(around.target, musl.module, codes.SLOT_CHANGING, around.report)
        super().__init__(musl, around._replace(report=report))
        self.group_damage: List[DamagedPlace] = []
        """Of areas, metas and groups, after counted(): as much as is listed."""
        self.slot_damage: List[DamagedPlace] = []
        """The same of slots, after survey()."""

    def exact_reading(self) -> answers.Reading:
        (row,) = self.arenas()
        used = None if row.used_bytes is None else row.used_bytes + records.TRAILER_BYTES * (row.used_blocks or 0)
        free = None if row.free_bytes is None else row.free_bytes + records.TRAILER_BYTES * (row.free_slots or 0)
        kept = None if used is None or row.system_bytes is None else row.system_bytes - used
        return answers.Reading((row.groups, used, free), row.system_bytes, used, kept, 0)

    @cache_answer
    def groups(self) -> records.MuslGroups:
        """Read all groups with their slots, by their metas."""
        return self._read_groups(with_rows=True)

    def _read_groups(self, with_rows: bool) -> records.MuslGroups:
        around, layout = self.around, self.located.layout(self.target)
        memory = unite_ranges([(mapping.start, mapping.end) for mapping in self.target.mappings()])
        ranges = array("Q", [end for both in memory for end in both])
        return records.read_groups(around.kernel, self.target.bulk_source(), layout, ranges, with_rows, around.budget)

    @cache_answer
    def counted(self) -> records.MuslGroups:
        """Read the metas and report what is wrong with them; no page of the heap is read."""
        groups = self._read_groups(with_rows=False)
        if groups.problem_count:
            groups = self.groups()
        damage = [(OF_GROUPS[row.code][0], row.address, OF_GROUPS[row.code][1]) for row in groups.problems]
        if not groups.problem_count and groups.is_whole:  # usage_by_class, without donated groups
            context = self.located.context
            told = self.target.read_prefix(context + self.located.offsets.usage, records.MUSL_CLASSES * self.target.word_bytes)
            what = "musl counts %d slots of class %d, and its groups have %d"
            for size_class, (number, row) in enumerate(zip(self.target.words_in(told), groups.classes)):
                if number != row.counted_slots:
                    damage.append((codes.USAGE_WRONG, context, what % (number, size_class, row.counted_slots)))
        report_musl_damage(damage, max(groups.problem_count, len(damage)), self.around.report)
        self.group_damage = damage
        if not groups.is_whole:
            self.around.report(*CUT_REPORT)
        return groups

    @cache_answer
    def survey(self) -> SlotTallies:
        """Walk over all slots, too, and report what is wrong with them."""
        self.counted()
        groups, words = self.groups(), OF_SLOTS
        tallies = self._make_walker(groups).tally()
        halves = sum(row.code == records.HEADER_HALF for row in tallies.problems)
        if halves and halves <= count_at_work(self.target, self.located.module):  # they may be filling these in
            words = {**OF_SLOTS, records.HEADER_HALF: OF_SLOTS[records.HEADER_STALE]}
        self.slot_damage = [(words[row.code][0], row.address, words[row.code][1]) for row in tallies.problems]
        report_musl_damage(self.slot_damage, tallies.problem_count, self.around.report)
        if groups.is_whole and not tallies.is_whole:
            self.around.report(*CUT_REPORT)
        return tallies

    def is_whole(self) -> bool:
        """True if the sums rest on undamaged data. Of a core the slots are checked too, which reveals wrong masks."""
        if self.target.kind == "core" and (self.survey().problem_count or not self.survey().is_whole):
            return False
        return self.counted().is_whole and not self.group_damage

    def _make_walker(self, groups: records.MuslGroups) -> SlotWalker:
        return records.make_musl_slot_walker(self.around.kernel, self.target.bulk_source(), groups.runs, self.around.budget)

    def claims(self) -> List[Claim]:
        """Its mappings, its areas of metas, and what it was given of the ends of objects' data."""
        groups = self.counted()
        claims = [Claim(start, end, "groups") for start, end in groups.ranges("held")]
        areas = unite_ranges([(area, area + records.AREA_BYTES) for area in groups.areas])
        return sorted([*claims, *(Claim(start, end, "metas") for start, end in areas)])

    def blocks(self, block_filter: BlockFilter = EVERYTHING, arena: Optional[int] = None) -> BlockStream:
        """Blocks in use, free slots, and what is musl's own, by address. Damage is reported beforehand."""
        self.survey()
        return self._stream_blocks(self.groups(), block_filter, arena)

    def _stream_blocks(self, groups: records.MuslGroups, block_filter: BlockFilter, arena: Optional[int]) -> BlockStream:
        if arena not in (None, 0):
            block_filter = block_filter._replace(kinds=frozenset())
        areas = groups.areas if block_filter.has(records.MUSL_METADATA, records.AREA_BYTES) else ()
        rows = [(area, records.AREA_BYTES, CLASS_OVERHEAD, records.MUSL_METADATA, 0) for area in areas]
        return self._make_walker(groups).blocks(block_filter, make_blocks(rows))

    def block_at(self, address: int) -> Optional[answers.AllocatorPlace]:
        """Read only the slots of the groups that hold the address."""
        groups = self.groups()
        names = ("address", "bytes", "slot_bytes", "slots", "size_class", "problem")
        rows = zip(*(groups.column(name) for name in names))
        around = [row for row in rows if row[0] <= address < row[0] + row[1] and not row[5]]
        area = next((area for area in groups.areas if area <= address < area + records.AREA_BYTES), None)
        if not around and area is None:
            return None
        what = "%d slots of %d bytes, class %d"
        parts = [
            answers.AddressPart("group", what % (row[3], row[2], row[4]), TargetAddress(row[0]), TargetAddress(row[0] + row[1]))
            for row in around
        ]
        if area is not None:
            parts.append(answers.AddressPart("metas", "records of groups", TargetAddress(area), TargetAddress(area + records.AREA_BYTES)))
        start = max((row[0] for row in around), default=area or 0)
        stream = self._stream_blocks(groups, BlockFilter(start=start), None)
        return answers.make_heap_place(answers.find_neighbours(stream, self.shape, address), self.shape, self.info.id, address, parts[::-1])

    def own_data(self) -> List[Tuple[int, int]]:
        """Its context, and its areas of metas, which lead to groups."""
        areas = [(area, area + records.AREA_BYTES) for area in self.counted().areas]
        return [(self.located.context, self.located.offsets.usage + self.located.context), *areas]

    @cache_answer
    def arenas(self) -> Sequence[records.MuslArena]:
        """Return the single row: system by mappings; used, free and overhead by slots, heads and what is left of each mapping."""
        self.is_whole()
        groups = self.counted()
        held, classes, dead = groups.sums, groups.classes, 0  # `dead`: bytes of mappings whose groups may have damaged numbers
        rows = zip(*(groups.column(name) for name in ("address", "bytes", "place", "problem"))) if groups.problem_count else ()
        for start, size, place, problem in rows:
            if problem and place in (records.PLACE_MAPPED, records.PLACE_DONATED):
                mapping = next((mapping for mapping in self.target.mappings() if mapping.start <= start < mapping.end), None)
                dead += min(size, mapping.end - start) if mapping is not None else 0
        areas = records.AREA_BYTES * len(groups.areas)
        system = held.own_bytes + max(dead, held.lost_bytes) + areas
        free = sum(row.free_bytes for row in classes)
        own = unite_ranges([*groups.ranges("held"), *((area, area + records.AREA_BYTES) for area in groups.areas)])
        page = self.target.page_bytes
        in_ram = self.around.ram.of(
            unite_ranges((start // page * page, -(-end // page) * page) for start, end in own), with_exclusive=False
        )
        row = records.MuslArena(
            allocator=self.located.id,
            index=0,
            address=TargetAddress(self.located.context),
            groups=held.groups,
            system_bytes=system if groups.is_whole else None,
            used_blocks=sum(row.used_slots for row in classes),
            used_bytes=sum(row.used_bytes for row in classes),
            free_slots=sum(row.free_slots for row in classes),
            free_bytes=free,
            overhead_bytes=areas + held.rest_bytes + records.TRAILER_BYTES * sum(row.slots for row in classes),
            unparsed_bytes=max(0, dead - held.lost_bytes) if groups.is_whole else None,
            donated_bytes=held.donated_bytes,
            free_percent=round(100 * free / system, 1) if system and groups.is_whole else None,
            resident_bytes=in_ram.resident_bytes if in_ram is not None else None,
        )
        return [row]

    @cache_answer
    def bins(self) -> List[records.MuslBin]:
        """The size classes that have groups, with what was asked for in each."""
        rows = []
        for size_class, (counted, tally) in enumerate(zip(self.counted().classes, self.survey().tallies)):
            if not counted.groups:
                continue
            rows.append(
                records.MuslBin(
                    allocator=self.info.id,
                    size_class=size_class,
                    min_size_bytes=_find_least(size_class),
                    max_size_bytes=None if size_class == records.OWN_CLASS else records.find_most_bytes(size_class),
                    groups=counted.groups,
                    slots=tally.used_slots + tally.free_slots,
                    used_slots=tally.used_slots,
                    used_bytes=tally.used_bytes,
                    free_slots=tally.free_slots,
                    free_bytes=tally.free_bytes,
                    slack_bytes=tally.slot_bytes - tally.used_bytes - tally.free_bytes - records.TRAILER_BYTES * tally.free_slots,
                )
            )
        return rows

    def histogram(self) -> List[HistogramRow]:
        """Return a row for each size class; a block in use counts as the largest that fits its slot."""
        rows = []
        for size_class, row in enumerate(self.counted().classes):
            least, is_own = _find_least(size_class), size_class == records.OWN_CLASS
            most = max(row.used_bytes, least) if is_own else records.find_most_bytes(size_class)
            if row.groups:
                rows.append(HistogramRow(least, most, row.used_slots, row.used_bytes, row.free_slots, row.free_bytes, 0))
        return rows

    def facts(self) -> records.MuslFacts:
        """Freeze one reading for the verdict."""
        known = self.info, self.arenas(), self.totals(), self.histogram(), self.claims()
        own_mappings = self.counted().ranges("alone")
        return records.MuslFacts(*known, self.is_whole(), has_stopped(self.target, self.located.module), own_mappings)

    def kept(self) -> answers.Keeping:
        """Free slots stay as long as their group has a block in use, or a group in one of its slots has; what is left of a whole group
        would have been unmapped."""
        kept, spans, names = self.arenas()[0].free_bytes, array("Q"), ("address", "bytes", "slot_bytes", "place", "problem")
        for start, size, slot_bytes, place, problem in zip(*(self.groups().column(name) for name in names)):
            if place != records.PLACE_NESTED and not problem:
                spans.extend((start, start + size, slot_bytes))
        shape, terms = PinShape(self.target.page_bytes, spans=spans), [answers.Term("free slots", kept or 0)]
        return answers.Keeping(shape, [answers.ArenaKeeps(0, kept)], terms, words={ROOM: answers.GROUP}, returnable_bytes=0)

    def rules(self) -> Iterator[answers.BrokenRule]:
        """Every place that breaks a rule of mallocng's, once; what cannot be read, or is under way, is reported."""
        told: List[Diagnostic] = []
        own = MuslMalloc(self.located, self.around._replace(report=answers.make_collector(told)))
        own.survey()
        known = 0
        for code, address, what in [*own.group_damage, *own.slot_damage]:
            if code.nature != Severity.DAMAGE or known >= answers.MOST_BROKEN:
                continue
            known += 1
            yield answers.BrokenRule(
                allocator=self.info.id,
                arena=0,
                code=code,
                address=TargetAddress(address),
                rule=str(code),
                abort=ABORT if code in (codes.HEADER_BROKEN, codes.BLOCK_OVERRUN, codes.GROUP_BACK) else None,
                suspect=_find_suspect(own, code, address) if known <= MOST_SUSPECTS else None,
                what=what,
            )
        for diagnostic in told:
            if diagnostic.code.nature != Severity.DAMAGE:
                self.around.report(*diagnostic)
