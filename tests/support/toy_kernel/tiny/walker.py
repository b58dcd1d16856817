"""The toy's blocks by the C kernel: what is declared here is all that C and Python have in common."""

from typing import NamedTuple

from gdbheapx.common.budget import Budget
from gdbheapx.inferior.base import BulkSource
from gdbheapx.kernel.blocks.stream import BlockFilter, BlockStream, CBlocks
from gdbheapx.kernel.common.library import Kernel, address_of, flatten_record

HEADER_BYTES, FREED = 16, 1


class TinyRoom(NamedTuple):
    """The part of the reserve that was handed out."""

    start: int
    end: int


def walk(kernel: Kernel, source: BulkSource, room: TinyRoom, wanted: BlockFilter, budget: Budget) -> BlockStream:
    """Its blocks, by address."""
    library, opened, kept = kernel.library, kernel.open(source), (flatten_record(room), wanted.numbers())
    handle = library.heapx_tiny_blocks(opened.handle, address_of(kept[0]), address_of(kept[1]))
    return CBlocks(library, opened, handle, kept, None, budget)
