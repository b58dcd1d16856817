"""Whether the graph fits into the memory that this process may use."""

from typing import Optional, Tuple

from gdbheapx.analysis.reachability import heap_graph
from gdbheapx.errors import HeapxError
from gdbheapx.hints import ask
from gdbheapx.own_memory import allowed_bytes
from gdbheapx.problems import OUT_OF_MEMORY
from gdbheapx.session import Session
from gdbheapx.units import Size, say

LEAKS_BYTES, OWNERS_BYTES = 25, 90
"""Of each block, at the peak; measured with up to 2 pointers in a block."""
SWEEP_BYTES, SIGNED_BYTES, PINNED_BYTES = 3, 4, 12
"""Of each block where there is no room for the graph: for the sweeps, beside their index; a census; which blocks keep free memory."""
INDEX_SHARE = 4
"""The index of the sweeps takes a byte for so many places of the heaps at which a block may begin (kernel/blocks/index.h: struct line)."""
LITTLE_BYTES = 64 << 20
"""What takes less is tried wherever it is."""
MOST_BLOCKS = 500_000_000
"""Above this a graph's edges have no room for the numbers of its blocks (kernel/blocks/graph.h: ID_BITS)."""
SMALL_HEAP_BYTES = 2 << 30
"""Of a heap that is larger, or of a living process, the graph is made only where it is asked for."""


def blocks(session: Session) -> int:
    """Blocks in use, as the walks over the heaps have counted them, or as a snapshot has them."""
    if not session.target.has_memory:
        reach: Optional[heap_graph.Reach] = session.shared(heap_graph.REACH)
        return reach.numbers.blocks if reach is not None else 0
    return sum(row.used_chunks for heap in session.heaps.all() for row in heap.histogram())


def is_small(session: Session, asked: bool = False) -> bool:
    """A core, or a copy of a small process, with a heap of which the graph takes a second or two: it is looked at without being asked.
    `asked`: of any process."""
    if session.target.kind != "core" and not (asked or session.is_copied_whole):
        return False
    return _heap_bytes(session) <= SMALL_HEAP_BYTES


def fits(session: Session, each_bytes: int) -> Optional[Tuple[int, int]]:
    """None if the graph fits; else what it would take, and what there is."""
    count, allowed = blocks(session), allowed_bytes() - session.copied_bytes
    return (count * each_bytes, allowed) if count * each_bytes > allowed or count > MOST_BLOCKS else None


def check_least(session: Session, each_bytes: int, indexed: bool = False) -> None:
    """HeapxError where not even what does without the graph fits, before it begins: the kernel would end it without a word."""
    allowed = allowed_bytes() - session.copied_bytes
    needed = blocks(session) * each_bytes + (_heap_bytes(session) // (INDEX_SHARE * _unit_bytes(session)) if indexed else 0)
    if needed > max(allowed, LITTLE_BYTES):
        what = say("this takes about %s of memory, even without a graph, and this process may use %s", Size(needed), Size(allowed))
        raise HeapxError(
            what, "run it where there is more memory; `%s` takes little" % ask("chunks --histogram"), code=OUT_OF_MEMORY
        )


def _heap_bytes(session: Session) -> int:
    return sum(claim.end - claim.start for heap in session.heaps.all() for claim in heap.claims())


def _unit_bytes(session: Session) -> int:
    """Of the finest heap: all are in one index."""
    return min((heap.shape.unit_bytes for heap in session.heaps.all()), default=16)


def check(session: Session) -> None:
    """HeapxError where the owners of so many blocks cannot be told here."""
    lacking = fits(session, OWNERS_BYTES)
    if lacking is not None:
        what = say("this takes about %s of memory, and this process may use %s", *map(Size, lacking))
        raise HeapxError(what, "run it where there is more memory; `%s` takes little" % ask("leaks"), code=OUT_OF_MEMORY)
