"""How much of a process may be brought in from swap by reading it: what its memory limits and the machine have room for, less a reserve.

Measured once something is in swap, before the first such page is read, and again while pages come in. What others take meanwhile is
taken off; it never gets more within one look, or a group whose limit drives pages out would take in one after the other without end.
"""

import time
from typing import List, Optional

from gdbheapx.inferior.base import SwapRoom
from gdbheapx.inferior.live import headroom
from gdbheapx.problems import IN_SWAP, Diagnostic
from gdbheapx.units import Size, say

MOST_RESERVED_BYTES = 1 << 30
"""Half of what is left stays free, but no more than this: the process itself, its neighbours and the kernel's read-ahead take from it."""
FRESH_S, NEW_GRANT_S = 0.05, 60.0
"""How old a measure may be; and after which time a look gets a new one of its own."""
FEW_BYTES = 256 << 10
"""Of a process that has nothing in swap a few pages may be brought in without a look at limits."""
ALL = (1 << 64) - 1
HINT = "raise that limit, or look when less is in swap; --read-swap reads these pages all the same, which can end the process"


class LiveSwapRoom(SwapRoom):
    """Of one process of this machine."""

    def __init__(self, pid: int) -> None:
        SwapRoom.__init__(self, 0)
        self._pid = pid
        self._measured_s = self._granted_s = float("-inf")
        self._reserved_bytes = 0
        self._headroom: Optional[headroom.Headroom] = None
        self._swapped_bytes = 0
        self._shared_bytes: Optional[int] = None
        self._accepted = False
        self.shared_in_bytes = 0
        """What was read of shared memory and may have been in swap, at most what was there."""

    def accept(self) -> None:
        """The user reads all of it, whatever there is room for."""
        self._accepted = True
        self.cells[0] = ALL

    @property
    def is_accepted(self) -> bool:
        return self._accepted

    def take_shared(self, size_bytes: int, page_bytes: int) -> int:
        if self._shared_bytes is None:
            self._shared_bytes = headroom.shared_swapped_bytes(self._pid)
            self._measured_s = float("-inf")
        if not self._shared_bytes:
            return size_bytes
        given = self.take(-(-size_bytes // page_bytes) * page_bytes, page_bytes)
        self.shared_in_bytes = min(self.shared_in_bytes + given, self._shared_bytes)
        return min(given, size_bytes)

    def renew(self) -> None:
        now = time.monotonic()
        if self._accepted or now - self._measured_s < FRESH_S:
            return
        self._measured_s = now
        swapped = headroom.swapped_bytes(self._pid) + (self._shared_bytes or 0)
        if not swapped:  # nothing is looked up; a page may still go to swap before it is read
            self.cells[0] = self.cells[0] if self._headroom is not None else FEW_BYTES
            return
        self._swapped_bytes = swapped
        found = headroom.find(self._pid)
        if now - self._granted_s > NEW_GRANT_S:
            self._granted_s = now
            self._reserved_bytes = min(found.left_bytes // 2, MOST_RESERVED_BYTES)
            self.cells[0] = ALL
        self._headroom = found
        self.cells[0] = min(self.cells[0], max(found.left_bytes - self._reserved_bytes, 0))

    def has_room_for_all(self) -> bool:
        self.renew()
        if self._accepted or self.lacking() is None:
            return True
        self.cells[1] += 1
        return False

    def lacking(self) -> Optional[str]:
        """Why not everything that is in swap may be brought in; None where it may."""
        if self._accepted:
            return None
        swapped = headroom.swapped_bytes(self._pid)
        if swapped <= FEW_BYTES:
            return None
        self.renew()
        return self._what() if swapped > self.cells[0] else None

    def _what(self) -> str:
        by = say("its limits are unknown") if self._headroom is None else self._headroom.by
        return say("%s of the process is in swap, and %s", Size(self._swapped_bytes), by)

    def problems(self) -> List[Diagnostic]:
        """That pages were not read, if so."""
        if not self.refused:
            return []
        what = say("%s: pages in swap were not read, because reading would bring them into RAM", self._what())
        return [Diagnostic(IN_SWAP, None, what, HINT)]
