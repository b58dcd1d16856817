"""The shared words: what every allocator's answer is made of. Records only, no behaviour that reads memory."""

from typing import Annotated, Dict, NamedTuple, Optional, Sequence, Tuple

from gdbheapx.common.columns import BYTES, IF_KNOWN, TEXT, Column
from gdbheapx.common.hints import strip_targets
from gdbheapx.common.problems import ProblemCode
from gdbheapx.common.units import Sentence, make_sentence, plain_form

CERTAIN, LIKELY, GUESS = "certain", "likely", "guess"
"""How sure an owner of memory is: the kernel or the allocator says so; several facts about the mapping fit; no one else is known to be
there."""
SURENESS: Tuple[str, ...] = (CERTAIN, LIKELY, GUESS)


class TargetAddress(int):
    """An address in the target; JSON shows it as a hex string."""

    def __str__(self) -> str:
        return "0x%x" % self


class Problem(NamedTuple):
    """Something that could not be read or does not hold."""

    code: ProblemCode
    """What a script asks for instead of the sentence (gdbheapx/common/problems.py)."""
    where: Optional[str]
    """Hex address, file or allocator id; None if it concerns the whole target."""
    what: str
    """The rule that was broken, or the thing that is missing."""
    hint: Optional[str]
    """What to do about it."""


class AllocatorInfo(NamedTuple):
    """Allocator of the target, as the envelope shows it."""

    id: str
    """Its name, for a second copy with `#2` after it: what every `allocator` field and --allocator use."""
    name: str
    version: Optional[str]
    object: str
    """File name of the object that holds it."""
    build_id: Optional[str]
    layout: Optional[str]
    """`debug-info`, `pack`, `table` or `probe`; None for an allocator that this version cannot read."""
    address_source: Optional[str]
    """`debug-info`, `symbol`, `pack` or `probe`."""
    owns_malloc: Optional[bool]
    """The process's calls of malloc go here; None if it could not be determined."""


class HistogramRow(NamedTuple):
    """Chunks of one size class. Mmapped counts as used, fast as free."""

    size_bytes: Annotated[int, Column("size class", BYTES)]
    max_size_bytes: int
    used_chunks: Annotated[int, Column("used")]
    used_bytes: Annotated[int, Column("used bytes", BYTES)]
    free_chunks: Annotated[int, Column("free", goes=1)]
    free_bytes: Annotated[int, Column("free bytes", BYTES)]
    tcache_chunks: Annotated[Optional[int], Column("in tcache", goes=2)]
    """None where what thread caches hold cannot be determined: it counts as used then."""
    allocator: Annotated[Optional[str], Column("allocator", TEXT, shown=IF_KNOWN)] = None
    """Whose class it is, in an answer about several heaps."""


class HeapSum(NamedTuple):
    """Totals of one heap in the terms that all allocators share."""

    allocator: str
    held_bytes: int
    """Memory that it holds, chunks that are mappings of their own included: reserved address space is no part of it."""
    used_bytes: int

    @property
    def kept_bytes(self) -> int:
        """Return the bytes that the allocator holds and the program does not use, overhead included: the figure of `report`, snapshots
        and `diff`.
        """
        return self.held_bytes - self.used_bytes


class CacheBin(NamedTuple):
    """Non-empty bin of a thread cache."""

    index: int  # type: ignore[assignment]  # hides tuple.index, which nobody calls on a record
    size_bytes: Optional[int]
    """Chunk size; None where the bin holds several sizes (tcache's large bins)."""
    chunks: int
    bytes: Optional[int]


class ThreadCache(NamedTuple):
    """Contents of one thread's cache."""

    allocator: str
    lwp: Annotated[Optional[int], Column("thread", TEXT)]
    """None for a cache that tcache.create made, and where its thread could not be determined."""
    name: Annotated[Optional[str], Column("name", TEXT)]
    arena: Annotated[Optional[int], Column("arena", TEXT, goes=1)]
    """Index of the arena that it fills from; None if the thread never allocated."""
    tcache: Annotated[Optional[TargetAddress], Column("tcache", TEXT, goes=2)]
    """The thread's tcache struct; None if it has none (yet) or it could not be determined."""
    chunks: Annotated[Optional[int], Column("chunks")]
    bytes: Annotated[Optional[int], Column("bytes", BYTES)]
    bins: Annotated[Sequence[CacheBin], Column("most bytes in", TEXT)]
    explicit: Optional[int] = None
    """The number of one that the program made for itself; None for a thread's own."""


class Claim(NamedTuple):
    """A range of memory that an allocator holds."""

    start: int
    end: int
    what: str
    """Such as `main_arena`, `arena 3`, `mmapped chunk`."""


class SplitPart(NamedTuple):
    """A mapping, a file or a part of the memory, where `report` names the largest."""

    kind: str
    """As MemoryPart.kind; `file` for all pages of one file together."""
    name: str
    bytes: int


class MemoryPart(NamedTuple):
    """Line of the split of a process's memory. The `resident_bytes` of all parts add up to RSS, on a core the `dumped_bytes` to its
    memory.
    """

    kind: str
    """`allocator`, `runtime`, `stack`, `jit`, `bss`, `brk`, `named`, `anonymous`, `shared-memory`, `private-file`, `page-cache`,
    `locked-file`, `device`, `kernel`, `hugetlb`."""
    name: str
    resident_bytes: Optional[int]
    """In RSS; None on a core."""
    dumped_bytes: Optional[int]
    """In the core file, holes left out; None for a live process."""
    swapped_bytes: Optional[int]
    shared_bytes: Optional[int]
    """Of the resident bytes those that are mapped more than once, by other processes or again by this one. Where several parts share one
    mapping, it is divided by their resident bytes, as the next three are."""
    pss_bytes: Optional[int]
    """Proportional set size: each page divided by the number of its mappings."""
    droppable_bytes: Optional[int]
    """Of the resident bytes those that the kernel can take without swap when memory is short: page cache, and what was given to
    MADV_FREE."""
    huge_bytes: Optional[int]
    """Of the resident bytes those that are mapped as transparent huge pages."""
    hugetlb_bytes: Optional[int]
    """Pages of hugetlbfs, which are in no other figure; None also where the kernel (before 4.4) does not count them."""
    mappings: int
    """How many mappings it has a part of."""
    allocator: Optional[str]
    """Its id; None if it is not an allocator's."""
    program: Optional[str]
    """The runtime or program whose memory it is, such as `JVM`."""
    sure: str
    """`certain` (the kernel or the allocator says so), `likely` (several facts about the mappings fit), `guess` (no one else is known to be
    there)."""


class UnclaimedMapping(NamedTuple):
    """A mapping of which nothing shows whose it is."""

    start: TargetAddress
    end: TargetAddress
    resident_bytes: Optional[int]
    """Without what allocators have of it; None on a core."""
    dumped_bytes: Optional[int]
    swapped_bytes: Optional[int]


class Finding(NamedTuple):
    """Sentence that follows from figures, with these figures."""

    what: str
    evidence: str
    hint: Optional[str]
    code: Optional[str] = None
    """What a script asks for instead of the sentence (gdbheapx/common/findings.py)."""
    details: Optional[str] = None
    """Further figures, for a line of their own."""
    size_bytes: Optional[int] = None
    """How much memory it is about; None where that is not known, or it is about none."""


class StepSentence(Sentence):
    """Next step: a sentence that begins with the command to type. A command of this tool is a mark (hints.py)."""

    command: str
    why: str

    saves_bytes: Optional[int]
    """As of StepAdvice, and then reckoned from the process's structures: an estimate is not written here."""

    def __new__(cls, command: str, why: str, saves_bytes: Optional[int] = None) -> "StepSentence":
        """The sentence is `COMMAND WHY`."""
        made = str.__new__(cls, "%s %s" % (command, why))
        made.plain, made.command, made.why = "%s %s" % (command, plain_form(why)), command, why
        made.saves_bytes = saves_bytes
        return made


class NextStep(NamedTuple):
    """A step as JSON shows it without target; Advice has the whole line."""

    command: Optional[str]
    """What to type, in this tool unless it says otherwise; None if the step is no command."""
    why: str


class StepAdvice(NamedTuple):
    """Next step: the command to type, its reason and what it saves."""

    command: Optional[str]
    """The line to type; None if the step is no command. One of this tool is a mark (hints.py)."""
    why: str
    saves_bytes: Optional[int] = None
    """What it would return to the OS; None: that is not known."""
    measured: bool = False
    """That figure was asked of the process, or reckoned from its structures, and is no estimate."""

    @property
    def sentence(self) -> Sentence:
        """Return the step as text shows it."""
        return make_sentence("%s", self.why) if self.command is None else make_sentence("%s   %s", self.command, self.why)

    @property
    def bare(self) -> NextStep:
        """Return the step without its target."""
        return NextStep(None if self.command is None else strip_targets(self.command), self.why)


Totals = Dict[str, Optional[int]]


class Check(NamedTuple):
    """Result of one check of `doctor`."""

    what: str
    ok: Optional[bool]
    """None: a remark, neither good nor bad."""
    found: str
    hint: Optional[str]
