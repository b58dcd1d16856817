"""A process that is looked at closely is copied while it stands still, and looked at once it runs on."""

from typing import TYPE_CHECKING, Any, List, Optional, Sequence, Set, Tuple

from gdbheapx.analysis.memory.kinds import OF_KERNEL, is_device
from gdbheapx.inferior.base import Mapping, MappingUse, Target
from gdbheapx.kernel.common.copy import TAKES_ALL, TAKES_OWN, CopiedRange, Copy

if TYPE_CHECKING:
    from gdbheapx.kernel.binding import CKernel


class Copying:
    """Of one process, for all looks at it."""

    def __init__(self, kernel: "CKernel", copy: Copy) -> None:
        self._kernel, self._copy = kernel, copy
        self._devices: Set[int] = set()
        self._closed: Set[int] = set()
        self._left: Optional[int] = None
        """Where the copy goes on in the next stop."""
        self.is_followed = False
        """Most of it is copied already, and what is written to since is known."""

    def prepare(self, target: Target) -> int:
        """Make memory present for all that there is to copy, while the process runs: its bytes."""
        use, _ = target.memory_use(), target.huge_pages()  # the machine's setting is asked for now
        uses: Sequence[MappingUse] = use.mappings if use is not None else ()
        self._devices = {use.mapping.start for use in uses if is_device(use)}
        self._closed = {use.mapping.start for use in uses if not use.mapping.readable and (use.resident_bytes or use.swapped_bytes)}
        return self._copy.prepare(self._ranges(target))

    def take(self, target: Any) -> Optional[int]:
        """Copy it, and let it run on. None: all of it; else the address from which on there was no time: take() goes on with what is left,
        once it is stopped again."""
        source, ranges = self._kernel.open_apart(target.bulk_source()), self._ranges(target)

        def take() -> None:
            if self.is_followed:
                self._left = self._copy.last(ranges, source, target.still.until)
                return
            self._left = self._copy.take(ranges, source, target.still.until, self._left or 0)

        target.keep(self._copy, take)
        return self._left

    def run_along(self, target: Any, ranges: Sequence[Tuple[int, int]]) -> None:
        """Copy these ranges, of which it is known what is written to, while the process runs."""
        source = self._kernel.open_apart(target.bulk_source())
        self._copy.run_along([(start, end, TAKES_ALL) for start, end in ranges], source)
        self.is_followed = True
        target.foresee()

    def round(self) -> int:
        """Copy what was written to since: bytes."""
        return self._copy.round()

    def _ranges(self, target: Target) -> List[CopiedRange]:
        return copied_ranges(target.mappings(), self._devices, self._closed)


def copied_ranges(mappings: Sequence[Mapping], devices: Set[int], closed: Set[int]) -> List[CopiedRange]:
    """What can change of a process, or be lost: private memory, of mapped files what is no more as in the file, and shared memory that it
    may write to. `devices`: where mappings of devices begin; `closed`: those with something in them that the process may not read now."""
    ranges: List[CopiedRange] = []
    for mapping in mappings:
        if not (mapping.readable or mapping.start in closed) or mapping.name.startswith(OF_KERNEL) or mapping.start in devices:
            continue
        if not mapping.shared:
            ranges.append((mapping.start, mapping.end, TAKES_ALL if mapping.is_untouched_zero else TAKES_OWN))
        elif mapping.writable:
            ranges.append((mapping.start, mapping.end, TAKES_ALL))
    return ranges
