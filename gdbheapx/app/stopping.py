"""A process that is looked at closely is copied while it is stopped, and looked at once it runs on."""

import mmap
import os
import time
from typing import TYPE_CHECKING, Any, List, Optional, Protocol, Sequence, Set, Tuple

from gdbheapx.analysis.memory.kinds import OF_KERNEL, is_device
from gdbheapx.inferior.base import Mapping, MappingUse, Target
from gdbheapx.inferior.live import procfs
from gdbheapx.inferior.live.usage import is_fuse
from gdbheapx.kernel.common.copy import TAKES_ALL, TAKES_OWN, CopiedRange, Copy

if TYPE_CHECKING:
    from gdbheapx.kernel.binding import CKernel
    from gdbheapx.kernel.common.copy import Hold


class RunningCopy(Protocol):
    """Process that an add-on copied while it ran, except its last pages."""

    by_marks: bool

    def finish(self) -> Optional[bool]:
        """Take the stop. None: it has to be taken as for other readings; else as Target.stop."""

    def end(self) -> None:
        """Leave the process as it was."""


class Copying:
    """Copy of one process, for all readings of it."""

    def __init__(self, kernel: "CKernel", copy: Copy) -> None:
        self._kernel, self._copy = kernel, copy
        self._devices: Set[int] = set()
        self._closed: Set[int] = set()
        self.left: Optional[int] = None
        """Where the copy goes on in the next stop; None: it is whole."""
        self._source: Any = None
        """Says what may be brought in from swap."""
        self.is_followed = self.is_marked = False
        """Most of it is copied already, and what is written to since is known; by marks of the kernel, which are cleared once."""

    def prepare(self, target: Target) -> int:
        """Make memory present for all that there is to copy, while the process runs: its bytes."""
        use, _ = target.memory_use(), target.huge_pages()  # the machine's setting is asked for now
        room = target.swap_room()
        if room is not None:
            room.renew()  # before the first page in swap is read
        uses: Sequence[MappingUse] = use.mappings if use is not None else ()
        is_served = (use.mapping.start for use in uses if use.mapping.shared and is_fuse(use.filesystem))
        self._devices = {*(use.mapping.start for use in uses if is_device(use)), *is_served}
        self._closed = {use.mapping.start for use in uses if not use.mapping.readable and (use.resident_bytes or use.swapped_bytes)}
        return self._copy.prepare(self._list_ranges(target))

    def take(self, target: Any) -> Optional[int]:
        """Copy it, and let it run on. None: all of it; else the address from which on there was no time: take() goes on with what is left,
        once it is stopped again."""
        source, ranges = self._kernel.open_apart(target.bulk_source()), self._list_ranges(target)

        def take_copy() -> None:
            if self.is_followed:
                self.left = self._copy.last(ranges, source, target.still.until)
                target.dirty_pages = self._dirty_pages()
                return
            self.left = self._copy.take(ranges, source, target.still.until, self.left or 0)

        target.keep(self._copy, take_copy)
        return self.left

    def run_along(self, target: Any, ranges: Sequence[Tuple[int, int]]) -> None:
        """Copy these ranges, of which it is known what is written to, while the process runs."""
        self._source = self._kernel.open_apart(target.bulk_source())
        self._copy.run_along([(start, end, TAKES_ALL) for start, end in ranges], self._source, self.is_marked)
        self.is_followed = True
        target.foresee()

    def round(self, looks: bool) -> int:
        """Copy what was written to since: bytes."""
        return self._copy.round(self._source, looks)

    def finish(self, target: Any, hold: "Hold") -> Optional[bool]:
        """Instead of target.stop() and take(): both in one go, as short as can be. None: that is not possible now, and it runs; else what
        stop() returns."""

        def ranges_of_maps(maps: bytes) -> List[CopiedRange]:
            return copied_ranges(procfs.parse_maps(os.fsdecode(maps)), self._devices, self._closed)

        maps, began_s = os.fsencode(target.maps_text()), time.monotonic()
        held = hold.take(self._copy, self._source, maps, ranges_of_maps(maps), ranges_of_maps)
        self.left = None if held is None else held.left
        if held is None:
            target.was_stopped((time.monotonic() - began_s) * 1000)  # at most
            return None
        target.dirty_pages = self._dirty_pages()
        return bool(target.keep_held(self._copy, held))

    def _dirty_pages(self) -> int:
        return (self._copy.taken.copied_bytes + self._copy.taken.unread_bytes) // mmap.PAGESIZE

    def _list_ranges(self, target: Target) -> List[CopiedRange]:
        return copied_ranges(target.mappings(), self._devices, self._closed)


def copied_ranges(mappings: Sequence[Mapping], devices: Set[int], closed: Set[int]) -> List[CopiedRange]:
    """Return the ranges of a process that can change, or be lost: private memory, the pages of mapped files that differ from the file,
    and shared memory that it may write to. `devices`: begins of mappings of devices, and of shared ones of files on FUSE; `closed`:
    begins of those with content that the process may not read now.
    """
    ranges: List[CopiedRange] = []
    for mapping in mappings:
        if not (mapping.readable or mapping.start in closed) or mapping.name.startswith(OF_KERNEL) or mapping.start in devices:
            continue
        if not mapping.shared:
            ranges.append((mapping.start, mapping.end, TAKES_ALL if mapping.is_untouched_zero else TAKES_OWN))
        elif mapping.writable:
            ranges.append((mapping.start, mapping.end, TAKES_ALL))
    return ranges
