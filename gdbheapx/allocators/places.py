"""Location of an address in a heap, as `whatis` shows it, and its computation from a stream of blocks of any allocator."""

from typing import Iterable, List, NamedTuple, Optional, Sequence, Tuple

from gdbheapx.kernel.blocks.stream import NO_ARENA, BlockShape, NativeBlocks
from gdbheapx.model import TargetAddress


class Neighbour(NamedTuple):
    """A block near an address."""

    address: TargetAddress
    """What malloc returned, or would."""
    size_bytes: int
    """The allocator's own size, with a header if there is one."""
    usable_bytes: int
    status: str


class AddressPart(NamedTuple):
    """A structure that holds an address or its block: a chunk, an extent, a heap, a bin, a cache."""

    kind: str
    """Such as `heap`, `extent`, `slab`, `bin`, `cache`."""
    name: str
    start: Optional[TargetAddress] = None
    end: Optional[TargetAddress] = None


class AllocatorPlace(NamedTuple):
    """The location of an address in a heap."""

    allocator: str
    arena: Optional[int]
    block: Optional[Neighbour]
    """None where it lies in the allocator's memory and in no block."""
    chunk: Optional[TargetAddress]
    """The block's header; None where blocks have none."""
    offset: Optional[int]
    """From block.address; negative in the header."""
    previous: Optional[Neighbour]
    """The block before it, and the one behind it, in the same run of blocks."""
    next: Optional[Neighbour]
    parts: Sequence[AddressPart] = ()
    """From the smallest to the largest."""


class Neighbours(NamedTuple):
    """Rows of a stream: (address, usable bytes, class, kind, arena)."""

    previous: Optional[Tuple[int, ...]]
    here: Optional[Tuple[int, ...]]
    next: Optional[Tuple[int, ...]]


def _block_row(blocks: NativeBlocks, index: int) -> Tuple[int, ...]:
    return tuple(column[index] for column in blocks)


def find_neighbours(batches: Iterable[NativeBlocks], shape: BlockShape, address: int) -> Neighbours:
    """The block that holds the address, header included, and its neighbours, from a stream that begins below it."""
    lead = shape.header_bytes or 0
    before: List[Tuple[int, ...]] = []
    for blocks in batches:
        count = len(blocks.addresses)
        if not count or blocks.addresses[count - 1] - lead <= address:
            before = [*before, *(_block_row(blocks, index) for index in range(max(0, count - 2), count))][-2:]
            continue
        low, high = 0, count
        while low < high:
            middle = (low + high) // 2
            low, high = (middle + 1, high) if blocks.addresses[middle] - lead <= address else (low, middle)
        near = [*before, *(_block_row(blocks, index) for index in range(max(0, low - 2), low))][-2:]
        return _settle_neighbours(near, _block_row(blocks, low), shape, address)
    return _settle_neighbours(before, None, shape, address)


def _settle_neighbours(before: List[Tuple[int, ...]], after: Optional[Tuple[int, ...]], shape: BlockShape, address: int) -> Neighbours:
    last = before[-1] if before else None
    if last is not None and address < last[0] - (shape.header_bytes or 0) + last[1] + shape.overheads[last[3]]:
        return Neighbours(before[-2] if len(before) > 1 else None, last, after)
    return Neighbours(last, None, after)


def make_neighbour(row: Optional[Tuple[int, ...]], shape: BlockShape) -> Optional[Neighbour]:
    """A row as a record."""
    if row is None:
        return None
    return Neighbour(TargetAddress(row[0]), row[1] + shape.overheads[row[3]], row[1], shape.words[row[3]])


def make_heap_place(near: Neighbours, shape: BlockShape, allocator: str, address: int, parts: Sequence[AddressPart] = ()) -> AllocatorPlace:
    """Make the location from rows of a stream. A neighbour counts only if it touches the block."""
    here, lead = near.here, shape.header_bytes or 0
    previous, after = make_neighbour(near.previous, shape), make_neighbour(near.next, shape)
    block = make_neighbour(here, shape)
    if block is not None:
        if previous is not None and previous.address + previous.size_bytes != block.address:
            previous = None
        if after is not None and block.address + block.size_bytes != after.address:
            after = None
    return AllocatorPlace(
        allocator=allocator,
        arena=here[4] if here is not None and here[4] != NO_ARENA else None,
        block=block,
        chunk=TargetAddress(block.address - lead) if block is not None and shape.header_bytes is not None else None,
        offset=address - block.address if block is not None else None,
        previous=previous,
        next=after,
        parts=tuple(parts),
    )
