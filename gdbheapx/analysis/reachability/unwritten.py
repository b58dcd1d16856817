"""Memory of blocks that a core left out: the kernel dumps no mapping that was never written to, nor one that the program excluded."""

from array import array

from gdbheapx import problems
from gdbheapx.inferior.base import NOWHERE, BulkSource, FileSource, Segment, Target
from gdbheapx.kernel.blocks.graph import Graph
from gdbheapx.session import Session
from gdbheapx.units import Size, say


def source(target: Target) -> BulkSource:
    """What blocks are read from: such memory has zeros. Allocators' own structures are not read so: what is missing there is missing."""
    bulk, ranges = target.bulk_source(), target.unwritten_ranges()
    if not isinstance(bulk, FileSource) or not ranges:
        return bulk
    blank = [Segment(start, end - start, NOWHERE) for start, end in ranges]
    return FileSource(bulk.path, tuple(sorted([*bulk.segments, *blank])))


def tell(session: Session, graph: Graph) -> None:
    """Notes how much of the blocks in use it is."""
    count, missing, first = graph.numbers().blocks, 0, 0
    for start, end in session.target.unwritten_ranges():
        low, high = _first(graph, count, start), _first(graph, count, end)
        addresses, sizes = graph.columns(array("I", range(max(low - 1, 0), high)))
        here = sum(max(0, min(end, address + size) - max(start, address)) for address, size in zip(addresses, sizes))
        first = first or (start if here else 0)
        missing += here
    if missing:
        what = say(
            "%s of blocks in use are not in the core: never written to, or excluded by the program; they count as zeros", Size(missing)
        )
        session.problem(problems.NOT_DUMPED, "0x%x" % first, what, partial=False)


def _first(graph: Graph, count: int, address: int) -> int:
    """The id of the first block at the address or behind it."""
    low, high = 0, count
    while low < high:
        middle = (low + high) // 2
        low, high = (middle + 1, high) if graph.blocks([middle])[0][0] < address else (low, middle)
    return low
