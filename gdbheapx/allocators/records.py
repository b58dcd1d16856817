"""Types exchanged between allocators and the generic analyses: records, and protocols of records."""

from typing import Annotated, Any, Callable, Dict, FrozenSet, Iterable, Mapping, NamedTuple, Optional, Protocol, Sequence, Tuple, Union

from gdbheapx.common.budget import Budget
from gdbheapx.common.columns import ColumnsTable
from gdbheapx.common.model import AllocatorInfo, Claim, Finding, HeapSum, HistogramRow, Totals
from gdbheapx.common.problems import PartialSink
from gdbheapx.common.verdict import UNBOUNDED, HeapVerdict
from gdbheapx.inferior.base import HugePages, Module, Target
from gdbheapx.kernel.common.in_ram import Ram
from gdbheapx.kernel.common.library import Kernel

Page = Iterable[Union[str, ColumnsTable]]
"""What a command shows, from top to bottom: sentences and tables."""


class OfAllocator(NamedTuple):
    """Marks a field of `Any` whose record is each allocator's own, by its name in Allocator.records: a file is read by that."""

    name: str


class Instance(Protocol):
    """An allocator in the target that can be read; its members are constant."""

    @property
    def id(self) -> str:
        """The id of `allocator` fields and --allocator."""

    @property
    def module(self) -> Module: ...

    @property
    def owns_malloc(self) -> Optional[bool]: ...

    @property
    def unlisted(self) -> Optional[str]:
        """Warning for an untested release, or None."""

    def info(self) -> AllocatorInfo:
        """Its entry in the envelope."""


class Unread(Protocol):
    """An allocator in the target that cannot be read."""

    @property
    def module(self) -> Module: ...

    @property
    def what(self) -> str:
        """A sentence: which, where, why not."""

    @property
    def hint(self) -> Optional[str]:
        """The next step."""


class NotRead(NamedTuple):
    """The plain Unread."""

    module: Module
    what: str
    hint: Optional[str]


class Instances(NamedTuple):
    """Every copy of one allocator in a target."""

    located: Sequence[Instance]
    """In the dynamic linker's order."""
    unread: Sequence[Unread] = ()
    missing: Sequence[NotRead] = ()
    """Objects that hold one for which something is missing to look at all: reported where nothing else can be read."""
    unused: Sequence[NotRead] = ()
    """Objects that hold one from which nothing was ever allocated: there is no heap to read, and nothing is missing."""

    def chosen(self, allocator_id: Optional[str]) -> Any:
        """The copy with this id, else the one that owns malloc, else the first; None if there is none."""
        copies = [copy for copy in self.located if allocator_id in (None, copy.id)]
        return next((copy for copy in copies if copy.owns_malloc), copies[0] if copies else None)


class HeapContext(NamedTuple):
    """Everything that a heap is read with."""

    target: Target
    kernel: Kernel
    budget: Budget
    report: PartialSink
    ram: Ram
    others: Callable[[], Sequence[Tuple[int, int]]] = tuple
    """Gives the ranges that other allocators hold."""

    def anew(self, report: PartialSink) -> "HeapContext":
        """Return a context for a second reading of the same process, independent of the first."""
        return HeapContext(self.target, self.kernel, self.budget, report, Ram(self.target, self.kernel))


class AllocatorPart(NamedTuple):
    """A part of what an allocator holds."""

    name: str
    bytes: Optional[int]
    present_bytes: Optional[int] = None
    """Of it in RAM or in swap, or in the core; None where that cannot be determined."""


class Tunables(NamedTuple):
    """The settings of an allocator that shows none."""

    tunables: Sequence[object] = ()


class ArenaRow(Protocol):
    """Members that every allocator's arena record has; its columns are declared with it."""

    @property
    def allocator(self) -> str:
        """The heap's id."""

    @property
    def held_bytes(self) -> int:
        """Bytes taken from the kernel."""


class HeapArenas(NamedTuple):
    """The arenas of one heap."""

    info: AllocatorInfo
    rows: Sequence[Annotated[Any, OfAllocator("arenas")]]
    totals: Totals


class Returning(NamedTuple):
    """The way in which an allocator returns free memory to the OS on request."""

    command: str
    """`trim` or `purge`: what does it, and with --dry-run predicts it."""
    done: str
    """For sentences: `trimmed`."""
    call: str
    """What is called, for sentences: `malloc_trim`, `a purge`."""
    is_owners: bool = False
    """It serves only the malloc that the program calls: for another heap it would do nothing."""
    takes: FrozenSet[str] = frozenset()
    """Fields of Portion that the allocator heeds."""


class NeverReturns(NamedTuple):
    """The reason why no call makes an allocator return free memory."""

    what: str
    hint: str
    """What helps instead."""


class Answered(Protocol):
    """The answer of a command that only some allocators serve, in both forms."""

    @property
    def data(self) -> Dict[str, object]: ...

    @property
    def page(self) -> Page: ...

    @property
    def is_finding(self) -> bool:
        """Exit code 3."""

    @property
    def is_strict_finding(self) -> bool:
        """Exit code 3 with --strict."""

    @property
    def is_done(self) -> bool:
        """The process was changed."""

    @property
    def found(self) -> Sequence[Tuple[AllocatorInfo, object]]: ...

    def without(self, refused: Sequence[Tuple[str, Optional[str]]]) -> "Answered":
        """Drop advice that would be refused: (id of the heap, code of the advice)."""


class Facts(Protocol):
    """A frozen reading of a heap: verdicts, findings and pages read this and never live memory. Allocators add fields of their own."""

    @property
    def info(self) -> AllocatorInfo: ...

    @property
    def arenas(self) -> Sequence[ArenaRow]: ...

    @property
    def totals(self) -> Mapping[str, Optional[int]]:
        """Sums of the arenas, in the allocator's own words."""

    @property
    def sizes(self) -> Sequence[HistogramRow]:
        """Blocks by size class."""

    @property
    def claims(self) -> Sequence[Claim]:
        """Return all memory that the allocator holds."""


def heap_sum(allocator: str, sizes: Iterable[HistogramRow], arenas: Iterable[ArenaRow], totals: Mapping[str, Optional[int]]) -> HeapSum:
    """Sum the bytes that a heap holds and has in use; chunks with a mapping of their own belong to no arena and are in use."""
    held = sum(row.held_bytes for row in arenas) + (totals.get("mmapped_bytes") or 0)
    return HeapSum(allocator, held, sum(row.used_bytes for row in sizes))


class PlainFacts(NamedTuple):
    """The plain Facts."""

    info: AllocatorInfo
    arenas: Sequence[ArenaRow]
    totals: Mapping[str, Optional[int]]
    sizes: Sequence[HistogramRow]
    claims: Sequence[Claim]


class Surroundings(NamedTuple):
    """The state of the process that a verdict on an allocator depends on."""

    threads: int
    modules: Sequence[Module]
    huge_pages: Optional[HugePages]
    is_core: bool = False
    taken_bytes: Mapping[str, int] = {}
    """By id: what takes memory (RAM, swap, pages of hugetlbfs; of a core its pages) of all that an allocator claims. Without an id it is
    not known."""
    hugetlb_bytes: Mapping[str, int] = {}
    """Of taken_bytes in pages of hugetlbfs, which RSS does not include."""
    droppable_bytes: Mapping[str, int] = {}
    """Of taken_bytes in pages given to MADV_FREE. Without an id it is not known."""
    taken: Callable[[Sequence[Tuple[int, int]]], Optional[int]] = lambda ranges: None
    """The same of some ranges; None where that cannot be determined."""
    core_runs: Optional[Sequence[int]] = None
    """Begin and end of each run of pages that a core has, sorted; None: it is none."""
    beyond_bytes: int = UNBOUNDED
    """The most that an allocator may hold beyond what was read of it, where it was not read whole."""
    advisable: Mapping[str, FrozenSet[str]] = {}
    """By id: commands that return its memory or say what they would return (`purge`, `purge --dry-run`), and `cure`, that would not be
    refused here, as far as is known."""
    is_cut: bool = False
    """The target lacks memory that the process had."""
    are_zeros_silent: bool = False
    """See HeapEvidence."""
    rss_bytes: Optional[int] = None
    """Of the whole process; None on a core, and where that is not known."""


class AllocatorJudgement(NamedTuple):
    """Verdict and findings on one heap, or on several instances of one allocator."""

    allocator: str
    """Its id."""
    ids: Sequence[str]
    """Of all copies."""
    held_bytes: int
    verdict: HeapVerdict
    findings: Sequence[Finding] = ()
    next_steps: Sequence[str] = ()
    parts: Sequence[AllocatorPart] = ()
    """What it holds, largest first, where its arenas do not say it."""
