"""Records that every allocator fills: the location of an address, broken rules, kept memory, effects of settings, counters."""

import sys
from array import array
from typing import Annotated, Any, Callable, Container, Iterable, List, Mapping, NamedTuple, Optional, Protocol, Sequence, Tuple

from gdbheapx.allocators.measured import Setting
from gdbheapx.common.columns import IF_ANY, TEXT, Column, add_values
from gdbheapx.common.model import AllocatorInfo, Claim, HistogramRow, TargetAddress
from gdbheapx.common.problems import Diagnostic, PartialSink, ProblemCode, Severity
from gdbheapx.common.units import format_size
from gdbheapx.inferior.base import Module, Target
from gdbheapx.kernel.blocks.pages import APART, EDGE, HOLE, RESERVE, ROOM, PinShape
from gdbheapx.kernel.blocks.stream import NO_ARENA, BlockShape, NativeBlocks


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
    """The block before it, and the one after it, in the same run of blocks."""
    next: Optional[Neighbour]
    parts: Sequence[AddressPart] = ()
    """From the smallest to the largest."""


BlockRow = Tuple[int, ...]
"""A row of a stream: (address, usable bytes, class, kind, arena)."""
Neighbours = Tuple[Optional[BlockRow], Optional[BlockRow], Optional[BlockRow]]
"""The block before an address, the one that holds it, the one after it."""


def find_neighbours(batches: Iterable[NativeBlocks], shape: BlockShape, address: int) -> Neighbours:
    """The block that holds the address, header included, and its neighbours, from a stream that begins below it."""
    lead = shape.header_bytes or 0
    before: List[BlockRow] = []
    after: Optional[BlockRow] = None
    for blocks in batches:
        low, high = 0, len(blocks.addresses)
        while low < high:
            middle = (low + high) // 2
            low, high = (middle + 1, high) if blocks.addresses[middle] - lead <= address else (low, middle)
        before = [*before, *(tuple(column[index] for column in blocks) for index in range(max(0, low - 2), low))][-2:]
        if low < len(blocks.addresses):
            after = tuple(column[low] for column in blocks)
            break
    last = before[-1] if before else None
    if last is not None and address < last[0] - lead + last[1] + shape.overheads[last[3]]:
        return before[-2] if len(before) > 1 else None, last, after
    return last, None, after


def make_neighbour(row: Optional[Tuple[int, ...]], shape: BlockShape) -> Optional[Neighbour]:
    """A row as a record."""
    if row is None:
        return None
    return Neighbour(TargetAddress(row[0]), row[1] + shape.overheads[row[3]], row[1], shape.words[row[3]])


def make_heap_place(near: Neighbours, shape: BlockShape, allocator: str, address: int, parts: Sequence[AddressPart] = ()) -> AllocatorPlace:
    """Make the location from rows of a stream. A neighbour counts only if it touches the block."""
    lead, (_, here, _) = shape.header_bytes or 0, near
    previous, block, after = (make_neighbour(row, shape) for row in near)
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


LOCKED = "locked"
"""Evidence: a lock over what is broken is held, so that a thread was changing it."""
INSIDE = "inside"
"""Evidence: a thread stood in the allocator's code, and no lock shows what it was changing."""
MOST_BROKEN = 1000
"""Broken rules of one heap that are shown; a ruined heap has millions."""

RUN_AGAIN = "a thread was inside the allocator: run it again to see whether it persists"


class RuleSuspect(NamedTuple):
    """The block that ends where something is damaged: most likely the program wrote past its end."""

    address: TargetAddress
    """What malloc returned."""
    size_bytes: int
    """The allocator's own size, with a header if there is one."""
    status: str
    """In the allocator's words, such as `used`."""
    owner: Optional[str] = None
    """Who holds it. Filled in by who knows the graph of blocks; None until then."""
    signature: Optional[str] = None
    """What it is, such as a class. Filled in by the census; None until then, and where nothing knows it."""


class BrokenRule(NamedTuple):
    """A place that contradicts a rule of the allocator."""

    allocator: str
    arena: Annotated[Optional[int], Column("arena", TEXT)]
    """Index; None where it belongs to none."""
    code: ProblemCode
    address: Annotated[Optional[TargetAddress], Column("address", TEXT)]
    rule: Annotated[str, Column("rule", TEXT)]
    """Short and stable. Finer than the code: one code may have several."""
    abort: Annotated[Optional[str], Column("malloc would abort with", TEXT, goes=2)]
    """What this release of the allocator says when it meets it; None where it does not notice."""
    suspect: Annotated[Optional[RuleSuspect], Column("suspect", TEXT, goes=1)]
    what: str
    """One sentence."""
    evidence: Annotated[Optional[str], Column("unless", TEXT, shown=IF_ANY, goes=3)] = None
    """LOCKED or INSIDE: an unfinished change may look like this; None where nothing explains it."""

    @property
    def is_sure(self) -> bool:
        """True if only damage explains it."""
        return self.evidence is None


def make_collector(told: List[Diagnostic]) -> PartialSink:
    """A report that collects."""

    def collect_rule(code: ProblemCode, address: Optional[int], what: str, hint: Optional[str]) -> None:
        told.append(Diagnostic(code, address, what, hint))

    return collect_rule


def sorted_out(told: Iterable[Diagnostic], known: Container[ProblemCode], rest: PartialSink, make: Callable[[Diagnostic], None]) -> None:
    """Make broken rules of complaints of damage whose codes are known, and report all others."""
    for diagnostic in told:
        if diagnostic.code.nature == Severity.DAMAGE and diagnostic.code in known:
            make(diagnostic)
        else:
            rest(*diagnostic)


def call_changing(target: Target, module: Module, changing: ProblemCode, report: PartialSink) -> PartialSink:
    """Return a report that calls damage a change under way (`changing`) where a thread of a live process was stopped in this object."""

    def report_changing(code: ProblemCode, address: Optional[int], what: str, hint: Optional[str]) -> None:
        from gdbheapx.inferior.base import find_running_threads  # of cores nobody asks

        is_damage = target.kind == "live" and code.nature == Severity.DAMAGE
        if is_damage and find_running_threads(target, module):
            report(changing, address, what, RUN_AGAIN)
        else:
            report(code, address, what, hint)

    return report_changing


PAGE = "page"
"""On pages that are shared with blocks in use: the ends of free memory that is otherwise returned."""
SMALL = "hole"
"""Free memory too small to hold a page that could be returned."""
FAST_LIST = "fastbin"
"""The same, on lists from which blocks are not merged until memory is short or returned."""
THREAD_TOP = "thread-top"
"""The end of a thread arena, which nothing returns but free() itself."""
MAIN_TOP = "main-top"
"""What is left of the main arena's end when the rest is returned."""
FOREIGN_BREAK = "foreign-break"
"""The main arena's end, which cannot be returned: the break is not there, for other code moved it, or the end came from mmap."""
ENDED_ARENA = "ended-arena"
"""In an arena to which no thread is attached any more."""
SLAB = "slab"
"""Free regions of slabs that have regions in use: only a slab that is wholly free is returned."""
SPAN = "span"
"""Free objects of spans that have objects in use or in caches: only a span that is wholly free is returned."""
GROUP = "group"
"""Free slots of groups that have slots in use: a group is returned with its last block."""

USUAL: Mapping[int, str] = {EDGE: PAGE, HOLE: SMALL, RESERVE: "end", ROOM: SLAB, APART: ENDED_ARENA}
"""By situation."""


class ArenaKeeps(NamedTuple):
    """Free memory that stays in one arena."""

    arena: int
    kept_bytes: Optional[int]
    """Free bytes that stay, by the figures of `arenas`; None where these are not known."""
    reserve: Optional[str] = None
    """Where-word of its end; None: as in Keeping.words."""
    is_end_pinned: bool = True
    """By the block below. False: something else keeps the end, or nothing does."""
    returned_end_bytes: int = 0
    """Of its end, with free blocks below, what is returned."""


class Term(NamedTuple):
    """A part of the sum that gives what is kept, by the figures of `arenas`."""

    name: str
    bytes: int
    is_taken_off: bool = False


class Keeping(NamedTuple):
    """Free memory that stays in one heap, and by which rules."""

    shape: PinShape
    arenas: Sequence[ArenaKeeps] = ()
    terms: Sequence[Term] = ()
    """Empty: there are no figures to compare with."""
    words: Mapping[int, str] = USUAL
    """Where-words by situation."""
    returnable_bytes: Optional[int] = None
    """Free memory that can be returned, besides what is kept; None where it is not known."""

    @property
    def kept_bytes(self) -> Optional[int]:
        """Bytes that stay by the figures of `arenas`; None if unknown for an arena."""
        return add_values(arena.kept_bytes for arena in self.arenas) if self.terms else None


EXACT, BOUNDED = "exact", "bounded"
"""It follows from the heap as it is; or it depends on time and order, and has two ends."""


class Effect(NamedTuple):
    """A setting for the next start, and the memory that it would save at the same point of the program's work."""

    code: str
    """What is set: a word that never changes."""
    setting: str
    """How it is set."""
    kind: str
    """EXACT or BOUNDED."""
    least_bytes: Optional[int]
    """What RSS falls by at least; below 0: it may rise. None: not known."""
    most_bytes: Optional[int]
    """What it falls by at most; None: not known."""
    why: str
    """What the figures rest on."""
    cost: str
    is_in_force: bool = False
    """The process has it already."""
    may_peak: bool = False
    """At worst as much stays in RAM as there ever was."""
    acts_on_bytes: Optional[int] = None
    """What it is made for: the part of the free memory that it bears on, which is no bound. None: not known."""
    by: Optional[Setting] = None
    """The setting of the registry; None: it has none."""
    causes: Sequence[str] = ()
    """Codes of what keeps the memory that it acts on."""


class Requests(NamedTuple):
    """Blocks in use of one size, or of a class of sizes."""

    blocks: int
    now_bytes: int
    """What they take."""
    asked_bytes: int
    """What they were asked for in all, at least."""
    least_bytes: int
    """What each was asked for at least."""
    most_bytes: int


def effect_of_restart(free_bytes: Optional[int]) -> Effect:
    """Return the effect of a restart without a setting: free memory goes, and more where the program then has fewer or smaller blocks."""
    free = "none of the free memory" if free_bytes is None else "up to %s less" % format_size(free_bytes)
    why = "the same blocks, made anew, need %s; fewer or smaller ones save more" % free
    cost = "the process ends, and must build its state again"
    return Effect("restart", "a restart", BOUNDED, 0, None, why, cost, acts_on_bytes=free_bytes)


def of_classes(rows: Iterable[HistogramRow], block_bytes: Callable[[int], int]) -> List[Requests]:
    """Bound the requests of blocks in each size class by the next smaller class. `block_bytes` rounds a request up to its class."""
    made = []
    for row in rows:
        low, high = 1, row.size_bytes
        while low < high:
            middle = (low + high) // 2
            low, high = (low, middle) if block_bytes(middle) >= row.size_bytes else (middle + 1, high)
        if row.used_chunks:
            made.append(Requests(row.used_chunks, row.used_bytes, row.used_chunks * low, low, row.max_size_bytes))
    return made


def four_to_a_doubling(size_bytes: int) -> int:
    """The block for a request where sizes are 8, multiples of 16 up to 128, then four to a doubling."""
    if size_bytes <= 8:
        return 8
    step = 16 if size_bytes <= 128 else 1 << ((size_bytes - 1).bit_length() - 3)
    return -(-size_bytes // step) * step


def by_variable(by: Setting, value: Optional[str], acts_on_bytes: Optional[int], free_bytes: Optional[int], **words: str) -> Effect:
    """A setting with a variable of its own, which saves at most all that is free. `value`: what the process was started with. `words`:
    code, cause, why, cost."""
    if value is not None:
        return in_force(words["code"], by.text, "%s is %s" % (by.variable, value))
    code, why, cost, causes = words["code"], words["why"], words["cost"], (words["cause"],)
    return Effect(code, by.text, BOUNDED, 0, free_bytes, why, cost, may_peak=True, acts_on_bytes=acts_on_bytes, by=by, causes=causes)


def in_force(code: str, setting: str, why: str) -> Effect:
    """A setting that would change nothing."""
    return Effect(code, setting, EXACT, 0, 0, why, "none", is_in_force=True)


BUSY_TRIES = 4
"""How often a figure is read again that changed while it was read."""
SAMPLED_PAGES, LEAST_PAGES, GOLDEN = 256, 64, 0.6180339887498949
"""Pages by which pointers are estimated; how many must be readable; a step that falls evenly everywhere."""


class Figure(NamedTuple):
    """A figure that a meter gives, in the allocator's own word."""

    key: str
    """As files have it; sizes end in `bytes`."""
    heading: str
    """Of its column on the terminal."""
    meaning: str
    """One line, for tools that show it."""
    is_estimate: bool = False
    """From a walk over what changes meanwhile."""
    is_shown: bool = True
    """It has a column on the terminal."""
    goes: int = 0
    """Where the terminal is too narrow, see Column.goes."""


class Reading(NamedTuple):
    """The counters at one moment, or nearly so."""

    values: Sequence[Optional[int]]
    """One for each figure of the meter; None: it changed too fast, or cannot be read."""
    held_bytes: Optional[int]
    """What the allocator has from the kernel, in use or kept."""
    used_bytes: Optional[int]
    """What the program was given and has not freed; what thread caches hold counts as used where it cannot be determined."""
    kept_bytes: Optional[int]
    """What it keeps of what the program has freed, in RAM or not."""
    returnable_bytes: Optional[int]
    """What falls when memory is returned to the OS."""
    walked_bytes: Optional[int] = None
    """How much of what it holds are blocks side by side, which a walk goes through one by one; None: not known."""
    large_bytes: Optional[int] = None
    """How much of it are blocks with a mapping of their own."""


class LocatedMeter:
    """Reads the counters of an allocator that was found by its structure; `read` is a subclass's own."""

    figures: Sequence[Figure] = ()

    def __init__(self, located: Any, target: Target) -> None:
        self.located, self.target = located, target

    @property
    def info(self) -> AllocatorInfo:
        """Describe the allocator."""
        return self.located.info()  # type: ignore[no-any-return]


class Meter(Protocol):
    """Reads one heap of a process, which runs. What does not change was looked up when it was made."""

    @property
    def info(self) -> AllocatorInfo:
        """Describe the allocator."""

    @property
    def figures(self) -> Sequence[Figure]:
        """Describe `values` of each reading."""

    def read(self, walk_seconds: float) -> Reading:
        """The counters now. `walk_seconds`: so long an estimate may take; 0: none is made, and it is None."""


def make_empty_reading(figures: Sequence[Figure]) -> Reading:
    """The reading where nothing could be read."""
    return Reading((None,) * len(figures), None, None, None, None)


def most_pointers(target: Target, claims: Sequence[Claim], blocks_bytes: int) -> Optional[int]:
    """Bound the words in so many bytes of blocks that may point into the claims, by sampled pages; None if too few can be read."""
    page, word = target.page_bytes, target.word_bytes
    low, high = min((claim.start for claim in claims), default=0), max((claim.end for claim in claims), default=0)
    total, words, found, pages = sum(claim.end - claim.start for claim in claims), 0, 0, 0
    for number in range(SAMPLED_PAGES):
        place = int(total * (number * GOLDEN % 1))
        for claim in claims:
            if place < claim.end - claim.start:
                break
            place -= claim.end - claim.start
        else:
            continue
        data = target.read_prefix((claim.start + place) // page * page, page)
        if len(data) == page:
            values = array("Q" if word == 8 else "I", data)
            if target.little_endian != (sys.byteorder == "little"):
                values.byteswap()
            words, found, pages = words + len(values), found + sum(low <= value < high for value in values), pages + 1
    if pages < LEAST_PAGES:
        return None
    share = found / words
    return int(blocks_bytes // word * min(1.0, share + 3 * (share * (1 - share) / pages) ** 0.5 + 1 / pages))
