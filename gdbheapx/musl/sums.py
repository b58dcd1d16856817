"""Sums of musl's groups and slots: what arenas, bins, pins and the histogram show."""

from array import array
from typing import TYPE_CHECKING, Iterable, List, NamedTuple, Optional, Sequence, Tuple

from gdbheapx.allocators.keeping import GROUP, ArenaKeeps, Keeping, Term
from gdbheapx.allocators.records import HeapContext
from gdbheapx.inferior.base import Target
from gdbheapx.kernel.blocks.pins import ROOM, PinShape
from gdbheapx.kernel.blocks.slots import SlotRun
from gdbheapx.kernel.musl import records as api
from gdbheapx.model import Address, HistogramRow
from gdbheapx.musl.detect import Musl
from gdbheapx.musl.records import MuslArena, MuslBin
from gdbheapx.ranges import union

if TYPE_CHECKING:
    from gdbheapx.musl.allocator import Survey

TOP_LEVEL = (api.PLACE_MAPPED, api.PLACE_DONATED)


class Group(NamedTuple):
    """Of MuslGroup, what is added up."""

    address: int
    bytes: int
    slot_bytes: int
    slots: int
    nested_slots: int
    size_class: int
    place: int
    problem: int


class Held(NamedTuple):
    """Sums over groups."""

    groups: int
    """Those that are good; so the next ones."""
    bytes: int
    """In mappings of their own, or donated."""
    rest_bytes: int
    """Beside slots: heads, ends of mappings, and what groups leave of the slots that they lie in."""
    donated_bytes: int
    lost_bytes: int
    """In mappings of broken ones."""
    broken: Sequence[Group]
    ranges: Sequence[Tuple[int, int]]
    """Of those in mappings of their own, or donated."""


def rows_of(survey: "Survey") -> "Iterable[Tuple[int, ...]]":
    """Of Group, by address."""
    return zip(*(survey.groups.column(name) for name in Group._fields))


def held(survey: "Survey") -> Held:
    """One pass: there may be a hundred thousand."""
    count = own = rest = donated = lost = 0
    broken, ranges, unmapped = [], [], set(survey.unmapped)
    for number, row in enumerate(rows_of(survey)):
        address, size, slot_bytes, slots, nested, _, place, problem = row
        if problem or number in unmapped:
            broken.append(Group(*row))
            continue
        count += 1
        rest += size - slot_bytes * (slots - nested)
        if place in TOP_LEVEL:
            own += size
            ranges.append((address, address + size))
            donated += size if place == api.PLACE_DONATED else 0
        elif place == api.PLACE_NESTED:
            rest -= size
        else:
            lost += size
    return Held(count, own, rest, donated, lost, broken, ranges)


def arena(musl: Musl, around: HeapContext, survey: "Survey") -> MuslArena:
    """system by mappings; used, free and overhead by slots, heads and what is left of each mapping."""
    groups, tallies = held(survey), survey.tallies.tallies[: api.HEAD_LABEL]
    dead = sum(_mapped_bytes(around.target, group) for group in groups.broken if group.place in TOP_LEVEL)
    areas = api.AREA_BYTES * len(survey.groups.areas)
    system = groups.bytes + max(dead, groups.lost_bytes) + areas
    used, free = sum(row.used_bytes for row in tallies), sum(row.free_bytes for row in tallies)
    slack = sum(row.slot_bytes for row in tallies) - used - free
    free_slots = sum(row.free_slots for row in tallies)
    is_known = survey.groups.is_whole and survey.tallies.is_whole
    return MuslArena(
        allocator=musl.id,
        index=0,
        address=Address(musl.context),
        groups=groups.groups,
        system_bytes=system if survey.groups.is_whole else None,
        used_blocks=sum(row.used_slots for row in tallies),
        used_bytes=used,
        free_slots=free_slots,
        free_bytes=free,
        overhead_bytes=areas + groups.rest_bytes + slack,
        slack_bytes=slack - api.TRAILER_BYTES * free_slots,
        unparsed_bytes=max(0, dead - groups.lost_bytes) if is_known else None,
        donated_bytes=groups.donated_bytes,
        free_percent=round(100 * free / system, 1) if system and is_known else None,
        resident_bytes=_resident(around, survey, groups.ranges),
    )


def _mapped_bytes(target: Target, group: Group) -> int:
    """What of a group whose numbers may be damaged lies in one mapping."""
    mapping = next((mapping for mapping in target.mappings() if mapping.start <= group.address < mapping.end), None)
    return min(group.bytes, mapping.end - group.address) if mapping is not None else 0


def _resident(around: HeapContext, survey: "Survey", ranges: Sequence[Tuple[int, int]]) -> Optional[int]:
    page = around.target.page_bytes
    areas = [(area, area + api.AREA_BYTES) for area in survey.groups.areas]
    joined = union((start // page * page, -(-end // page) * page) for start, end in union([*ranges, *areas]))
    known = around.ram.of(joined, with_exclusive=False)
    return known.resident_bytes if known is not None else None


def bins(allocator: str, survey: "Survey") -> List[MuslBin]:
    """One row for each size class that has groups."""
    counts = [0] * api.LABELS
    for *_, size_class, _, problem in rows_of(survey):
        counts[size_class] += not problem
    rows = []
    for size_class, (count, tally) in enumerate(zip(counts, survey.tallies.tallies)):
        if not count or size_class == api.HEAD_LABEL:
            continue
        is_own = size_class == api.OWN_CLASS
        rows.append(
            MuslBin(
                allocator=allocator,
                size_class=size_class,
                min_size_bytes=_least_bytes(size_class),
                max_size_bytes=None if is_own else api.most_bytes(size_class),
                groups=count,
                slots=tally.used_slots + tally.free_slots,
                used_slots=tally.used_slots,
                used_bytes=tally.used_bytes,
                free_slots=tally.free_slots,
                free_bytes=tally.free_bytes,
                slack_bytes=tally.slot_bytes - tally.used_bytes - tally.free_bytes - api.TRAILER_BYTES * tally.free_slots,
            )
        )
    return rows


def _least_bytes(size_class: int) -> int:
    before = api.MUSL_CLASSES - 1 if size_class == api.OWN_CLASS else size_class - 1
    return api.most_bytes(before) + 1 if before >= 0 else 0


def histogram(rows: List[MuslBin]) -> List[HistogramRow]:
    """By size class; a block in use counts as what was asked for."""
    return [
        HistogramRow(
            size_bytes=row.min_size_bytes or 0,
            max_size_bytes=row.max_size_bytes if row.max_size_bytes is not None else max(row.used_bytes, row.min_size_bytes or 0),
            used_chunks=row.used_slots,
            used_bytes=row.used_bytes,
            free_chunks=row.free_slots,
            free_bytes=row.free_bytes,
            tcache_chunks=0,
        )
        for row in rows
    ]


def keeping(target: Target, survey: "Survey", row: MuslArena) -> Keeping:
    """Free slots stay as long as their group has a block in use; what is left of a whole group would have been unmapped."""
    runs, kept = survey.groups.runs, row.free_bytes
    names = ("start", "slot_bytes", "slots", "kind")
    columns = [runs[SlotRun._fields.index(name) :: len(SlotRun._fields)] for name in names]
    spans = array("Q")
    for start, size, slots, kind in zip(*columns):
        if kind == api.MUSL_USED:
            spans.extend((start, start + size * slots, size))
    return Keeping(
        PinShape(target.page_bytes, spans=spans),
        [ArenaKeeps(0, kept)],
        [Term("free slots", kept or 0)],
        words={ROOM: GROUP},
        returnable_bytes=0,
    )
