"""What both kernels offer; the models are written against this."""

from typing import Iterable, List, Optional, Sequence, Set, Tuple

try:
    from typing import Protocol
except ImportError:  # pragma: no cover - 3.7 and older
    Protocol = object  # type: ignore[assignment]

from gdbheapx.budget import Budget
from gdbheapx.kernel.api import BinResult, Geometry, ListResult, MmappedChunk, Region, WalkResult
from gdbheapx.target.base import BulkSource


class Residency(Protocol):
    """What pagemap says of some ranges."""

    exclusive_bytes: int
    present_bytes: int
    swapped_bytes: int


class Listing(Protocol):
    """Batches of (chunk, size_bytes, status); `result` tells where and why it ended."""

    result: Optional[Tuple[int, int]]

    def __iter__(self) -> "Listing": ...

    def __next__(self) -> Sequence[Tuple[int, int, int]]: ...


class Kernel(Protocol):
    """The C kernel or its Python twin."""

    name: str
    why: Optional[str]

    def walk(
        self,
        source: BulkSource,
        geometry: Geometry,
        regions: Sequence[Region],
        specials: Sequence[int],
        budget: Budget,
        pagemap_pid: Optional[int] = None,
        threads: Optional[int] = None,
    ) -> List[WalkResult]: ...

    def list_chunks(
        self,
        source: BulkSource,
        geometry: Geometry,
        region: Region,
        specials: Sequence[int],
        budget: Budget,
        min_size: int = 0,
        max_size: Optional[int] = None,
        statuses: Optional[Set[int]] = None,
    ) -> Iterable[Sequence[Tuple[int, int, int]]]: ...

    def collect_list(
        self, source: BulkSource, geometry: Geometry, head: int, link_offset: int, mangled: bool, limit: int, mem_offset: int
    ) -> ListResult: ...

    def walk_bin(self, source: BulkSource, geometry: Geometry, header: int, limit: int, want_members: bool = False) -> BinResult: ...

    def scan_mmapped(
        self,
        source: BulkSource,
        geometry: Geometry,
        ranges: Sequence[Tuple[int, int]],
        has_trailer: bool,
        wanted_chunks: int,
        wanted_bytes: int,
        budget: Budget,
    ) -> Tuple[List[MmappedChunk], bool]: ...

    def find_chain(self, source: BulkSource, geometry: Geometry, low: int, high: int, anchors: Sequence[int], budget: Budget) -> Optional[int]: ...

    def resident(self, pid: int, ranges: Sequence[Tuple[int, int]]) -> Optional[Residency]: ...
