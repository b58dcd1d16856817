"""Sums of musl's groups and slots: what arenas, bins, pins and the histogram show."""

from array import array
from typing import TYPE_CHECKING, List, Optional

from gdbheapx.addons.allocators.musl import native_records as api
from gdbheapx.addons.allocators.musl.detect import Musl
from gdbheapx.addons.allocators.musl.records import MuslArena, MuslBin
from gdbheapx.allocators.keeping import GROUP, ArenaKeeps, Keeping, Term
from gdbheapx.allocators.records import HeapContext
from gdbheapx.inferior.base import Target
from gdbheapx.kernel.blocks.pins import ROOM, PinShape
from gdbheapx.model import Address, HistogramRow
from gdbheapx.ranges import union

if TYPE_CHECKING:
    from gdbheapx.addons.allocators.musl.allocator import Survey

def arena(musl: Musl, around: HeapContext, groups: api.Groups) -> MuslArena:
    """system by mappings; used, free and overhead by slots, heads and what is left of each mapping."""
    held, classes = groups.sums, groups.classes
    dead = _broken_bytes(around.target, groups)
    areas = api.AREA_BYTES * len(groups.areas)
    system = held.own_bytes + max(dead, held.lost_bytes) + areas
    used, free = sum(row.used_bytes for row in classes), sum(row.free_bytes for row in classes)
    return MuslArena(
        allocator=musl.id,
        index=0,
        address=Address(musl.context),
        groups=held.groups,
        system_bytes=system if groups.is_whole else None,
        used_blocks=sum(row.used_slots for row in classes),
        used_bytes=used,
        free_slots=sum(row.free_slots for row in classes),
        free_bytes=free,
        overhead_bytes=areas + held.rest_bytes + api.TRAILER_BYTES * sum(row.slots for row in classes),
        unparsed_bytes=max(0, dead - held.lost_bytes) if groups.is_whole else None,
        donated_bytes=held.donated_bytes,
        free_percent=round(100 * free / system, 1) if system and groups.is_whole else None,
        resident_bytes=_resident(around, groups),
    )


def _broken_bytes(target: Target, groups: api.Groups) -> int:
    """What groups whose numbers may be damaged hold of their mappings."""
    if not groups.problem_count:
        return 0
    rows = zip(*(groups.column(name) for name in ("address", "bytes", "place", "problem")))
    own = (api.PLACE_MAPPED, api.PLACE_DONATED)
    return sum(_mapped_bytes(target, start, size) for start, size, place, problem in rows if problem and place in own)


def _mapped_bytes(target: Target, start: int, size: int) -> int:
    mapping = next((mapping for mapping in target.mappings() if mapping.start <= start < mapping.end), None)
    return min(size, mapping.end - start) if mapping is not None else 0


def _resident(around: HeapContext, groups: api.Groups) -> Optional[int]:
    page = around.target.page_bytes
    areas = [(area, area + api.AREA_BYTES) for area in groups.areas]
    joined = union((start // page * page, -(-end // page) * page) for start, end in union([*groups.ranges("held"), *areas]))
    known = around.ram.of(joined, with_exclusive=False)
    return known.resident_bytes if known is not None else None


def bins(allocator: str, survey: "Survey") -> List[MuslBin]:
    """One row for each size class that has groups."""
    rows = []
    for size_class, (counted, tally) in enumerate(zip(survey.counted.groups.classes, survey.tallies.tallies)):
        if not counted.groups:
            continue
        is_own = size_class == api.OWN_CLASS
        rows.append(
            MuslBin(
                allocator=allocator,
                size_class=size_class,
                min_size_bytes=_least_bytes(size_class),
                max_size_bytes=None if is_own else api.most_bytes(size_class),
                groups=counted.groups,
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


def histogram(groups: api.Groups) -> List[HistogramRow]:
    """By size class; a block in use counts as the largest that its slot takes."""
    return [
        HistogramRow(
            size_bytes=_least_bytes(size_class),
            max_size_bytes=max(row.used_bytes, _least_bytes(size_class)) if size_class == api.OWN_CLASS else api.most_bytes(size_class),
            used_chunks=row.used_slots,
            used_bytes=row.used_bytes,
            free_chunks=row.free_slots,
            free_bytes=row.free_bytes,
            tcache_chunks=0,
        )
        for size_class, row in enumerate(groups.classes)
        if row.groups
    ]


def keeping(target: Target, groups: api.Groups, row: MuslArena) -> Keeping:
    """Free slots stay as long as their group has a block in use, or a group in one of its slots has; what is left of a whole group would
    have been unmapped."""
    kept, spans = row.free_bytes, array("Q")
    names = ("address", "bytes", "slot_bytes", "place", "problem")
    for start, size, slot_bytes, place, problem in zip(*(groups.column(name) for name in names)):
        if place != api.PLACE_NESTED and not problem:
            spans.extend((start, start + size, slot_bytes))
    return Keeping(
        PinShape(target.page_bytes, spans=spans),
        [ArenaKeeps(0, kept)],
        [Term("free slots", kept or 0)],
        words={ROOM: GROUP},
        returnable_bytes=0,
    )
