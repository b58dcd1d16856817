"""The C kernel."""

from typing import TYPE_CHECKING, Optional, Sequence, Tuple

from gdbheapx.common.budget import Budget
from gdbheapx.inferior.base import BulkSource, BytesSource, PageTable
from gdbheapx.kernel.common import library
from gdbheapx.kernel.common.library import LIBRARY, Kernel, Unusable, load_library_at, open_library

if TYPE_CHECKING:  # few commands ask for any of these
    from array import array

    from gdbheapx.kernel.blocks.graph import Graph, GraphShape
    from gdbheapx.kernel.blocks.packed import PackedGraph
    from gdbheapx.kernel.blocks.pages import PinLabels, Pins, PinShape
    from gdbheapx.kernel.blocks.signatures import NumberSet, SignatureRow, Signer
    from gdbheapx.kernel.blocks.slots import Pools
    from gdbheapx.kernel.common.copy import Copy

__all__ = ["CKernel", "Unusable", "open_kernel"]


def open_kernel(path: str = LIBRARY) -> "CKernel":
    """The C kernel from the library at `path`; Unusable says what is in the way."""
    if library.PACKED:  # the single file: what has its name in the current folder is anybody's
        return CKernel(library.open_included(load_library_at))
    return CKernel(open_library(path))


class CKernel(Kernel):
    """See Kernel; and what follows pointers from block to block, or looks into blocks."""

    def copy(self, table: PageTable) -> "Copy":
        """Make the object that will hold a copy of this process's memory, taken while it is stopped. MemoryError or OSError if there can
        be none.
        """
        from gdbheapx.kernel.common.copy import Copy

        return Copy(self.library, table)

    def graph(self, source: BulkSource, shape: "GraphShape", budget: Budget, images: Optional[BulkSource] = None) -> "Graph":
        """A graph of blocks, to be made. `images`: where vtables are read, a few thousand small reads; None: none are."""
        from gdbheapx.kernel.blocks.graph import Graph

        return Graph(self.library, self.open(source), shape, budget, None if images is None else self.open_apart(images))

    def unpacked(self, kept: "PackedGraph", budget: Budget) -> "Graph":
        """The graph of a file, resolved. ValueError where it is none: a file is not to be trusted."""
        from gdbheapx.kernel.blocks.graph import Graph

        return Graph.unpacked(self.library, self.open(BytesSource(())), kept, budget)

    def signer(
        self, source: BulkSource, shape: Tuple[int, bool], rows: "Sequence[SignatureRow]", sets: "Sequence[NumberSet]", budget: Budget
    ) -> "Signer":
        """Make a signer, which distinguishes blocks by rows of conditions. `shape`: (word_bytes, little_endian)."""
        from gdbheapx.kernel.blocks.signatures import Signer

        return Signer(self.library, self.open(source), shape, rows, sets, budget)

    def pools(self, source: BulkSource, pool_bytes: int, little_endian: bool, runs: Sequence[Tuple[int, int]], budget: Budget) -> "Pools":
        """A look at pools of cells."""
        from gdbheapx.kernel.blocks.slots import Pools

        return Pools(self.library, self.open(source), pool_bytes, little_endian, runs, budget)

    def cells(self, runs: Sequence[Tuple[int, int, int]], labels: "Optional[array[int]]" = None) -> "Tuple[array[int], array[int]]":
        """See blocks.binding.cells."""
        from gdbheapx.kernel.blocks.stream import list_pool_cells

        return list_pool_cells(self.library, runs, labels)

    def unlisted(
        self, source: BulkSource, runs: Sequence[Tuple[int, int, int]], heads: Sequence[int], most: int, budget: Budget
    ) -> "Optional[array[int]]":
        """See blocks.binding.unlisted."""
        from gdbheapx.kernel.blocks.stream import label_unlisted_cells

        return label_unlisted_cells(self.library, self.open(source), runs, heads, most, budget)

    def pins(self, source: BulkSource, shape: "PinShape", labels: "PinLabels", first: int, budget: Budget) -> "Pins":
        """A look at what keeps free memory. `first`: where the labels of this heap begin, if they are by the order of used blocks."""
        from gdbheapx.kernel.blocks.pages import Pins

        return Pins(self.library, self.open(source), shape, labels, first, budget)
