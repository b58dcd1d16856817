"""musl's metas of a process that runs: one read of 4 KiB for each 101 groups tells which slots are taken, and no page of the heap is read.

Masks change by one store each. A sum over all groups is of no single moment, and is off by what was allocated meanwhile. Where an area has
not changed since the sample before, neither has its sum.
"""

import struct
from typing import Dict, NamedTuple, Optional, Tuple

from gdbheapx.addons.allocators.musl import native_records as api
from gdbheapx.addons.allocators.musl.detect import Musl, first_area
from gdbheapx.addons.allocators.musl.native_records import AREA_BYTES, UNIT_BYTES
from gdbheapx.addons.allocators.musl.records import MuslArena
from gdbheapx.allocators.metering import Figure, Reading, nothing
from gdbheapx.inferior.base import Target
from gdbheapx.model import AllocatorInfo

FIGURES = (
    Figure("groups", "groups", "groups of slots", is_shown=False),
    Figure("slots_used_bytes", "in slots", "bytes of slots with blocks in use, what blocks do not fill of them included"),
    Figure("slots_free_bytes", "free slots", "bytes of free slots, which stay until their group has no block in use"),
)
MOST_AREAS = 1 << 20
"""Of a list that leads nowhere."""


class Sums(NamedTuple):
    """Of the metas of one area."""

    groups: int
    held_bytes: int
    used_bytes: int
    free_bytes: int
    large_bytes: int
    """In groups of one slot with a mapping of their own."""


class MuslMeter:
    """Of one copy."""

    figures = FIGURES

    def __init__(self, musl: Musl, target: Target) -> None:
        self._musl, self._target = musl, target
        word, order = target.word_bytes, "<" if target.little_endian else ">"
        letter = "Q" if word == 8 else "I"
        self._head = struct.Struct(order + "Q" + letter)
        self._metas = struct.Struct(order + "3%sII%s" % (letter, letter))
        self._first = 8 + 2 * word
        self._count = (AREA_BYTES - self._first) // self._metas.size
        self._known: Dict[int, Tuple[bytes, Sums]] = {}

    @property
    def info(self) -> AllocatorInfo:
        """Of the allocator."""
        return self._musl.info()

    def has_long_lists(self) -> bool:
        """It has none."""
        return False

    def read(self, walk_seconds: float) -> Reading:
        """The metas now. There is nothing to be estimated."""
        area, seen, rows = first_area(self._target, self._musl.context, self._musl.offsets), set(), []  # type: ignore[var-annotated]
        if not area:
            return nothing(FIGURES)
        while area and area not in seen and len(seen) < MOST_AREAS:
            seen.add(area)
            data = self._target.read_prefix(area, AREA_BYTES)
            if len(data) < AREA_BYTES or self._head.unpack_from(data)[0] != self._musl.secret:
                return nothing(FIGURES)
            known = self._known.get(area)
            if known is None or known[0] != data:
                known = self._known[area] = (data, self._sums(data))
            rows.append(known[1])
            area = self._head.unpack_from(data)[1]
        return _reading(Sums._make(map(sum, zip(*rows))), AREA_BYTES * len(rows))

    def _sums(self, data: bytes) -> Sums:
        groups = held = used = free = large = 0
        end = self._first + self._count * self._metas.size
        for _, _, group, available, freed, packed in self._metas.iter_unpack(data[self._first : end]):
            if not group:
                continue
            slots, pages, size_class = (packed & 31) + 1, packed >> 12, packed >> 6 & 63
            stride = pages * AREA_BYTES - UNIT_BYTES if pages and slots == 1 else api.slot_units(size_class) * UNIT_BYTES
            count = bin((available | freed) & (1 << slots) - 1).count("1")
            groups, free, used = groups + 1, free + count * stride, used + (slots - count) * stride
            if pages:
                held += pages * AREA_BYTES
                large += stride if slots == 1 else 0
            elif packed >> 5 & 1:
                used -= _slot_around(UNIT_BYTES + stride * slots)
            else:
                held += UNIT_BYTES + stride * slots
        return Sums(groups, held, used, free, large)


def _slot_around(group_bytes: int) -> int:
    """A slot of the class that a group of this length is cut from (alloc_group)."""
    return next((UNIT_BYTES * units for units in api.SIZE_CLASSES if UNIT_BYTES * units >= group_bytes), group_bytes)


def _reading(sums: Sums, areas_bytes: int) -> Reading:
    used = max(0, sums.used_bytes)
    held = sums.held_bytes + areas_bytes
    return Reading(
        values=(sums.groups, used, sums.free_bytes),
        held_bytes=held,
        used_bytes=used,
        kept_bytes=max(0, held - used),
        returnable_bytes=0,
        walked_bytes=max(0, held - sums.large_bytes),
        large_bytes=sums.large_bytes,
    )


def exact(row: MuslArena) -> Reading:
    """The same figures of one moment, while the process stood still."""
    used: Optional[int] = None if row.used_bytes is None else row.used_bytes + api.TRAILER_BYTES * (row.used_blocks or 0)
    free: Optional[int] = None if row.free_bytes is None else row.free_bytes + api.TRAILER_BYTES * (row.free_slots or 0)
    kept = None if used is None or row.system_bytes is None else row.system_bytes - used
    return Reading((row.groups, used, free), row.system_bytes, used, kept, 0)
