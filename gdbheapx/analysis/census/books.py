"""Records of what a program itself counts of its memory: contexts by name, and what waits in its queues."""

from typing import Dict, Iterable, List, NamedTuple, Optional, Sequence, Union

from gdbheapx.columns import add_values
from gdbheapx.model import TargetAddress

UNNAMED = "(no name)"


class MemoryContext(NamedTuple):
    """BIND's isc_mem_t: the figures that the program itself keeps of the memory that it asked for under this name."""

    address: TargetAddress
    name: str
    inuse_bytes: int
    malloced_bytes: Optional[int]
    """What it has from malloc, as the statistics channel shows it; None: 9.20 does not keep it."""
    most_malloced_bytes: Optional[int]
    """The most that it had; None: 9.20 does not keep it."""
    hi_water_bytes: int
    """From where on the cache is cleaned; 0: no limit."""
    blocks: Optional[int]
    """That are in use; None: 9.20 does not count them."""
    pools: int
    references: int
    pooled_bytes: Optional[int]
    """Of what is in use: elements that were freed, and that its pools (isc_mempool) keep; None: not known."""


class NamedContexts(NamedTuple):
    """Sums of all contexts of one name, or of the small ones together."""

    name: str
    contexts: int
    inuse_bytes: int
    malloced_bytes: Optional[int]
    most_malloced_bytes: Optional[int]
    """Each context's own most; they need not have had it at the same time."""
    hi_water_bytes: int
    """The largest."""
    blocks: Optional[int]
    pooled_bytes: Optional[int]


class QueueRow(NamedTuple):
    """Tasks of one name, or one loop."""

    kind: str
    """`task` or `loop`."""
    name: str
    entries: int
    """How many tasks; of a loop its active handles (sockets, timers)."""
    waiting: Optional[int]
    """Events that wait in them; None: not known of a loop."""


class Books(NamedTuple):
    """Memory contexts and queues of a program."""

    program: str
    contexts: Sequence[MemoryContext]
    """The largest first."""
    queues: Sequence[QueueRow]
    sum_bytes: int
    """What all contexts have from malloc; of 9.20, what they have in use."""
    used_bytes: int
    """What allocators have in use, for comparison: libraries' own memory belongs to no context."""


def taken_bytes(row: Union[MemoryContext, NamedContexts]) -> int:
    """Return what they have from malloc; of a release that does not keep it, what is in use."""
    return row.inuse_bytes if row.malloced_bytes is None else row.malloced_bytes


def sum_by_name(contexts: Iterable[MemoryContext]) -> List[NamedContexts]:
    """Return the sums of contexts by name, the largest first."""
    groups: Dict[str, List[MemoryContext]] = {}
    for context in contexts:
        groups.setdefault(context.name, []).append(context)
    made = [sum_contexts(name or UNNAMED, members) for name, members in groups.items()]
    return sorted(made, key=lambda row: (-taken_bytes(row), row.name))


def sum_contexts(name: str, members: Sequence[MemoryContext]) -> NamedContexts:
    """Add contexts up to one row."""
    return NamedContexts(
        name,
        len(members),
        sum(context.inuse_bytes for context in members),
        add_values(context.malloced_bytes for context in members),
        add_values(context.most_malloced_bytes for context in members),
        max(context.hi_water_bytes for context in members),
        add_values(context.blocks for context in members),
        add_values(context.pooled_bytes for context in members),
    )
