"""tcmalloc's counters of a process that runs: the page heap's three, each central list's, each thread cache's size; no page of the heap.

Each counter is one word that is changed under a lock, or by its thread. A sum of many is of no single moment, and is off by what was
allocated meanwhile.
"""

import struct
from typing import NamedTuple, Optional, Set, Tuple

from gdbheapx.addons.allocators.tcmalloc.caches import MOST_CACHES
from gdbheapx.addons.allocators.tcmalloc.counts import stats
from gdbheapx.addons.allocators.tcmalloc.detect import Tcmalloc
from gdbheapx.addons.allocators.tcmalloc.records import TcArena
from gdbheapx.addons.allocators.tcmalloc.structure import CACHE_REST, Central
from gdbheapx.allocators.metering import Figure, Reading, nothing
from gdbheapx.inferior.base import Target
from gdbheapx.model import AllocatorInfo

FIGURES = (
    Figure("system_bytes", "system", "bytes of all spans", is_shown=False),
    Figure("free_bytes", "free spans", "bytes of unused pages that the OS has not got back"),
    Figure("returned_bytes", "returned", "bytes of address space that is kept without memory"),
    Figure("central_bytes", "central", "bytes of free objects in spans with others in use"),
    Figure("transfer_bytes", "transfer", "bytes of free objects on their way between threads", is_shown=False),
    Figure("cached_bytes", "cached", "bytes of free objects in thread caches"),
)


class Counted(NamedTuple):
    """Bytes, one for each of FIGURES."""

    system: int
    free: int
    returned: int
    central: Optional[int]
    transfer: Optional[int]
    cached: Optional[int]


class TcmallocMeter:
    """Of one copy."""

    figures = FIGURES

    def __init__(self, tcmalloc: Tcmalloc, target: Target) -> None:
        self._tcmalloc, self._target = tcmalloc, target

    @property
    def info(self) -> AllocatorInfo:
        """Of the allocator."""
        return self._tcmalloc.info()

    def has_long_lists(self) -> bool:
        """Sums follow none."""
        return False

    def read(self, walk_seconds: float) -> Reading:
        """The counters now. There is nothing to be estimated."""
        own, central = stats(self._target, self._tcmalloc), self._central()
        if len(own) < 3:
            return nothing(FIGURES)
        system, free, returned = own
        if free + returned > system:  # read at different moments
            return nothing(FIGURES)
        in_spans, in_transfer = (None, None) if central is None else central
        return _reading(Counted(system, free, returned, in_spans, in_transfer, self._cached()))._replace(lists_lead_far=True)

    def _central(self) -> Optional[Tuple[int, int]]:
        """Bytes in spans and in transfer caches."""
        known = self._tcmalloc.structure
        sizes, count = known.sizes, known.sizes.classes
        data = self._target.read_prefix(known.central, known.stride * count)
        if len(data) < known.stride * count:
            return None
        in_spans = in_transfer = 0
        for number in range(1, count):
            base, size = number * known.stride, sizes.object_bytes[number]
            (counter,) = struct.unpack_from("<Q", data, base + Central.counter)
            (used,) = struct.unpack_from("<i", data, base + Central.used_slots)
            if not 0 <= used <= Central.most_slots or counter >> 40:
                return None
            in_spans, in_transfer = in_spans + counter * size, in_transfer + used * sizes.batch[number] * size
        return in_spans, in_transfer

    def _cached(self) -> Optional[int]:
        """Bytes in thread caches; None where a thread begins or ends meanwhile."""
        threads, target = self._tcmalloc.structure.threads, self._target
        if threads is None:
            return None
        seen: Set[int] = set()
        total, behind = 0, self._tcmalloc.structure.sizes.lists_bytes
        data = target.read_prefix(threads.head, 8)
        while len(data) == 8 and any(data):
            (address,) = struct.unpack("<Q", data)
            here = target.read_prefix(address + behind, CACHE_REST)
            if address in seen or len(seen) >= MOST_CACHES or len(here) < CACHE_REST:
                return None
            seen.add(address)
            (size,) = struct.unpack_from("<i", here, 0)
            total += max(0, size)
            data = here[threads.next - behind : threads.next - behind + 8]
        return total if len(data) == 8 else None


def _reading(counted: Counted, used: Optional[int] = None) -> Reading:
    held = counted.system - counted.returned
    cached = (counted.central, counted.transfer, counted.cached)
    free = counted.free + sum(part or 0 for part in cached)
    if used is None and None not in cached and free <= held:
        used = held - free
    return Reading(tuple(counted), held, used, None if used is None else held - used, counted.free)


def exact(row: TcArena) -> Reading:
    """The same figures from a walk of a process that stood still: ends of spans are kept, not used."""
    cached = row.central_bytes, row.transfer_bytes, row.cached_bytes
    return _reading(Counted(row.system_bytes, row.free_bytes, row.returned_bytes, *cached), row.used_bytes)
