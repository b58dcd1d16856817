"""Records of answers that add-ons give: malloc calls in code, memory that a program counts itself, garbage that waits for a collector."""

from typing import AbstractSet, Dict, Iterable, List, NamedTuple, Optional, Sequence, Tuple, Union

from gdbheapx.common.columns import add_values
from gdbheapx.common.model import TargetAddress
from gdbheapx.inferior.base import Module

ADDRESS, ITSELF, PUSHED, BEGIN, BEYOND = "address", "itself", "pushed", "begin", "beyond"
STRING_BYTES = 16
"""From a std::string to its own buffer."""

TREE, LIST, CHAIN = "tree", "list", "chain"
"""What a block is a node of: a std::map or set, a std::list, an unordered one."""
NODES = {"node of a map or set": TREE, "node of a list": LIST, "node of an unordered map or set": CHAIN}
FEW = 3


class Word(NamedTuple):
    """Word that code stores into a new block."""

    offset: int
    kind: str
    """ADDRESS: of something in a file's memory (a vtable, a type, a function); ITSELF: of the block plus `value`;
    PUSHED: what the place had that points to the block plus `value` now. BEGIN (of the block plus `value`) and BEYOND (of where `offset` is
    counted from plus `value`) are somewhere in the block, the code does not show where; offsets of both are from one place."""
    value: int


class Site(NamedTuple):
    """Call of malloc, operator new, or of a function that hands its own argument on to them."""

    module: Module
    start: int
    """Of the function that it is in: where a part of it begins that has call frames of its own. In memory, as all addresses here."""
    function: Optional[str]
    """Its name, where a symbol table has it."""
    address: int
    """Of the call."""
    size_bytes: Optional[int]
    """What it asks for. None: that differs from call to call."""
    link: Optional[str] = None
    """TREE, LIST or CHAIN: the function of the C++ runtime that links such nodes gets the block."""
    floats: bool = False
    """The words' offsets are from an object that begins after a head of unknown size in the block."""
    words: Sequence[Word] = ()
    """What it, what it calls for the block, or the function that it asks for it stores there last."""
    loose: Sequence[int] = ()
    """Addresses that the function stores where an object of Python has its type: it was not followed into which."""


class Scan(NamedTuple):
    """Everything found in the code of a process."""

    sites: Sequence[Site]
    wrappers: AbstractSet[int]
    """Where functions begin that only hand their size on: malloc itself, too."""
    unread: Sequence[Tuple[str, str]]
    """(name, why) of objects whose code could not be read."""


class SiteCandidate(NamedTuple):
    """A function that may have allocated such blocks."""

    module: str
    function: Optional[str]
    """None: no symbol table has its name."""
    address: TargetAddress
    """Where it begins, or a part of it."""
    offset: int
    """The same in the module, as its file has it."""
    calls: int
    """Of its calls that fit."""
    sizes: Sequence[int]
    """Bytes that these ask for, where that is a number in the code."""
    is_open: bool
    """What some of them ask for is no such number."""
    why: Sequence[str]

    def named(self) -> str:
        """`make of program`, or `program+0x1230` where no symbol table has its name."""
        return "%s of %s" % (self.function, self.module) if self.function is not None else "%s+0x%x" % (self.module, self.offset)


class RowSites(NamedTuple):
    """Call sites known for one row."""

    signature: Optional[str]
    module: str
    bytes: int
    sites: Sequence[SiteCandidate]
    """Empty: none was found, so the code that allocated the blocks is unknown."""
    size_functions: int
    """Functions with a call for such a size as a number in the code. They are no candidates: most calls ask for what differs."""


class Joined(NamedTuple):
    """The answer."""

    rows: Sequence[RowSites]
    calls: int
    """That were found in the code."""
    unread: Sequence[Tuple[str, str]]
    typed_bytes: int
    few_bytes: int
    """Of them with at most FEW candidates, and at least one."""


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


OFF, FROZEN, LATE = "off", "frozen", "late"


class Collector(NamedTuple):
    """Collector of objects that only refer to each other, as described by its own variables."""

    is_on: Optional[bool]
    """None: it was not found."""
    thresholds: Sequence[int] = ()
    """Of each generation, the youngest first."""
    counts: Sequence[int] = ()


class CollectorState(NamedTuple):
    """Values of the collector's own variables."""

    collector: Collector
    permanent: int
    """Address of the list of what it leaves out (gc.freeze())."""
    full_collections: int
    """Address of the number of collections of all generations."""
    survivors: int
    """Objects that the last of these has visited and left: each was written to. What is frozen is none of them."""


class GarbageClass(NamedTuple):
    """Garbage of one class."""

    name: str
    objects: int
    bytes: int
    """Of the objects alone."""
    sample: TargetAddress
    behind_bytes: Optional[int] = None
    """Garbage that they lead to, themselves included; None: it was not counted."""


class Garbage(NamedTuple):
    """The answer."""

    runtime: str
    blocks: int
    bytes: int
    """All that a collection would free, memory next to the objects included."""
    objects: int
    """Those that the collector counts."""
    frozen_objects: int
    """Of them those that it leaves out (gc.freeze())."""
    classes: Sequence[GarbageClass]
    """The program's own that lead to most first, then those with most bytes."""
    collector: Collector
    why: Optional[str]
    """Why it is still there: `off`, `frozen` or `late`; None: unknown."""


def explain_garbage(collector: Collector, objects: int, frozen_objects: int) -> Optional[str]:
    """Return the reason why garbage is still there; None if the collector was not found."""
    if collector.is_on is None:
        return None
    if 2 * frozen_objects > objects:
        return FROZEN
    return LATE if collector.is_on and any(collector.thresholds[:1]) else OFF
