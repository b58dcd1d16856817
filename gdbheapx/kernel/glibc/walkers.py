"""Which walker goes over a glibc heap: the C kernel's or its twin's."""

from gdbheapx.budget import Budget
from gdbheapx.inferior.base import BulkSource
from gdbheapx.kernel.common.interface import Kernel
from gdbheapx.kernel.glibc.interface import ChunkWalker
from gdbheapx.kernel.glibc.records import Geometry


def chunk_walker(kernel: Kernel, source: BulkSource, geometry: Geometry, budget: Budget) -> ChunkWalker:
    """Walks over a heap of that geometry. ValueError for one that no glibc has."""
    from gdbheapx.kernel.common.binding import CommonBinding

    if isinstance(kernel, CommonBinding):
        from gdbheapx.kernel.glibc.binding import CChunkWalker

        return CChunkWalker(kernel, source, geometry, budget)
    from gdbheapx.kernel.common.twin.kernel import PythonKernel
    from gdbheapx.kernel.glibc.twin.walker import ChunkTwin

    assert isinstance(kernel, PythonKernel)
    return ChunkTwin(kernel.open(source), geometry, budget)
