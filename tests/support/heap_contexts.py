"""What a heap is read with, where a test opens it by itself."""

from gdbheapx.allocators.records import HeapContext
from gdbheapx.common.budget import Budget
from gdbheapx.common.problems import PartialSink
from gdbheapx.inferior.base import Target
from gdbheapx.kernel.common.in_ram import Ram
from gdbheapx.kernel.common.library import Kernel


def heap_context(target: Target, kernel: Kernel, budget: Budget, report: PartialSink) -> HeapContext:
    """A reading of its own, beside no other allocator."""
    return HeapContext(target, kernel, budget, report, Ram(target, kernel))
