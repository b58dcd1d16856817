"""Which walker goes over jemalloc's extents: the C kernel's or its twin's."""

from gdbheapx.budget import Budget
from gdbheapx.inferior.base import BulkSource
from gdbheapx.kernel.common.interface import Kernel
from gdbheapx.kernel.jemalloc.interface import ExtentWalker
from gdbheapx.kernel.jemalloc.records import HeapLayout


def extent_walker(kernel: Kernel, source: BulkSource, heap: HeapLayout, budget: Budget) -> ExtentWalker:
    """Walks over a heap of that layout. ValueError for one that no jemalloc has."""
    from gdbheapx.kernel.common.binding import CommonBinding

    if isinstance(kernel, CommonBinding):
        from gdbheapx.kernel.jemalloc.binding import CExtentWalker

        return CExtentWalker(kernel, source, heap, budget)
    from gdbheapx.kernel.common.twin.kernel import PythonKernel
    from gdbheapx.kernel.jemalloc.twin.walker import ExtentTwin

    assert isinstance(kernel, PythonKernel)
    return ExtentTwin(kernel.open(source), heap, budget)
