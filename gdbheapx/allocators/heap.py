"""The wall between allocators and everything else, with its door: what the rest may ask of an allocator, and of one heap of it.

What stands here any allocator can answer. What only some can is an *offer*: a command asks for it by name, and says so where nobody has it.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import (
    Any,
    Callable,
    Dict,
    FrozenSet,
    Generic,
    Iterable,
    Iterator,
    List,
    Mapping,
    NamedTuple,
    Optional,
    Pattern,
    Protocol,
    Sequence,
    Tuple,
    TypeVar,
    Union,
)

from gdbheapx import verdict
from gdbheapx.allocators.traces import Known
from gdbheapx.budget import Budget
from gdbheapx.columns import Table, columns_of, sums
from gdbheapx.inferior.base import HugePages, Module, Target
from gdbheapx.kernel.blocks.records import CLASS_CACHED, CLASS_USED, EVERYTHING, Blocks, BlockShape, Wanted
from gdbheapx.kernel.common.in_ram import Ram
from gdbheapx.kernel.interface import Kernel
from gdbheapx.layout.pack import Pack
from gdbheapx.looks import Looks
from gdbheapx.model import AllocatorInfo, Check, Claim, Finding, HistogramRow, ThreadCache
from gdbheapx.problems import Report
from gdbheapx.verdict import Verdict

Page = Iterable[Union[str, Table]]
"""What a command shows, from top to bottom: sentences and tables."""


class Located(Protocol):
    """One copy of an allocator in the target that can be read, and all that is constant about it."""

    @property
    def id(self) -> str:
        """As `allocator` fields and --allocator have it."""

    @property
    def module(self) -> Module: ...

    @property
    def owns_malloc(self) -> Optional[bool]: ...

    @property
    def unlisted(self) -> Optional[str]:
        """What to mind about a release that was never tried; None for a listed one."""

    def info(self) -> AllocatorInfo:
        """Its entry in the envelope."""


class Unread(Protocol):
    """One that is there and cannot be read."""

    @property
    def module(self) -> Module: ...

    @property
    def what(self) -> str:
        """One sentence: which, where, why not."""

    @property
    def hint(self) -> Optional[str]:
        """The next step."""


class NotRead(NamedTuple):
    """The plain Unread."""

    module: Module
    what: str
    hint: Optional[str]


class Found(NamedTuple):
    """Every copy of one allocator in a target."""

    located: Sequence[Located]
    """In the dynamic linker's order."""
    unread: Sequence[Unread] = ()
    missing: Sequence[NotRead] = ()
    """Objects that hold one for which something is missing to look at all: told where nothing else can be read."""
    is_provisional: bool = False
    """Told from a process that ran: to be told again when it stands still."""


class Telltales(NamedTuple):
    """By what an object is known to hold this allocator's malloc."""

    functions: Sequence[str] = ()
    """Exported by no other allocator."""
    files: Optional[Pattern[str]] = None
    """Names of its own libraries."""
    variables: Sequence[str] = ()
    """All of them are in the symbol table of a static program that has it."""
    texts: Sequence[Known] = ()
    """In the constants of a static program without symbols."""


class Around(NamedTuple):
    """What a heap is read with."""

    target: Target
    kernel: Kernel
    budget: Budget
    report: Report
    ram: Ram
    looks: Looks
    others: Callable[[], Sequence[Tuple[int, int]]] = tuple
    """Gives the ranges that other allocators hold."""

    def anew(self, report: Report) -> "Around":
        """For a second look at the same process, which knows nothing of the first and tells somebody else."""
        return around(self.target, self.kernel, self.budget, report)


def around(target: Target, kernel: Kernel, budget: Budget, report: Report) -> Around:
    """For a look of its own."""
    return Around(target, kernel, budget, report, Ram(target, kernel), Looks())


class Part(NamedTuple):
    """One part of what an allocator holds."""

    name: str
    bytes: Optional[int]


class ArenaRow(Protocol):
    """What the record of an arena has in any allocator; its columns are declared with it."""

    @property
    def allocator(self) -> str:
        """The heap's id."""

    @property
    def held_bytes(self) -> int:
        """What it has from the kernel."""


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
    def is_done(self) -> bool:
        """The process was changed."""


@dataclass(frozen=True)
class Facts:
    """One look at a heap, frozen: verdicts, findings and pages read this and never live memory. Allocators add fields of their own."""

    info: AllocatorInfo
    arenas: Sequence[ArenaRow]
    totals: Mapping[str, Optional[int]]
    """Sums of the arenas, in the allocator's own words."""
    sizes: Sequence[HistogramRow]
    """All blocks by size class."""
    claims: Sequence[Claim]
    """All memory that it holds."""


class Surroundings(NamedTuple):
    """What a verdict on an allocator must know of the process."""

    threads: int
    modules: Sequence[Module]
    huge_pages: Optional[HugePages]


class Judged(NamedTuple):
    """What is said of one heap, or of several copies of one allocator together."""

    allocator: str
    """Its id."""
    ids: Sequence[str]
    """Of all copies."""
    held_bytes: int
    verdict: Verdict
    findings: Sequence[Finding] = ()
    next_steps: Sequence[str] = ()
    parts: Sequence[Part] = ()
    """What it holds, largest first, where its arenas do not say it."""
    page: Page = ()
    """The same for people."""


def plain_page(rows: Sequence[Any], totals: Mapping[str, Optional[int]]) -> Page:
    """A table of records by their declared columns, with a line of sums where there are some."""
    record: Any = type(rows[0]) if rows else None
    columns = columns_of(record) if rows else ()
    yield Table(columns, rows, {**totals, columns[0].field: "total"} if columns and totals else None)


class Heap(ABC):
    """One heap of an allocator. In brackets what each member is there for, so that nobody makes it twice."""

    @property
    def kind(self) -> str:
        """The allocator's name."""
        return self.info.name

    @property
    @abstractmethod
    def info(self) -> AllocatorInfo:
        """Its entry in the envelope."""

    @property
    def offers(self) -> Mapping[str, Callable[..., Any]]:
        """What only some allocators can: `trim`, `purge`, `tickers`, `cure`, `decay`, `profile`, `pack`, `native-info`, `native-stats`,
        `held-bytes`."""
        return {}

    @abstractmethod
    def claims(self) -> List[Claim]:
        """All memory that it holds. [report's split; keeps one allocator from reading another's; never a root of the graph]"""

    @property
    @abstractmethod
    def shape(self) -> BlockShape:
        """What the numbers of its blocks mean."""

    @abstractmethod
    def blocks(self, wanted: Wanted = EVERYTHING, arena: Optional[int] = None) -> Iterator[Blocks]:
        """Its blocks by address, in batches of flat arrays, from wanted.start on. [the index of blocks, on which leaks, owners, census,
        whatis stand]"""

    def listing(self, wanted: Wanted = EVERYTHING, arena: Optional[int] = None) -> Iterator[Blocks]:
        """The same in the order in which the allocator's own structures have them. [chunks]"""
        return self.blocks(wanted, arena)

    def histogram(self) -> List[HistogramRow]:
        """All blocks by size class. [chunks --histogram, report; what grows between two looks]"""
        found: Dict[int, List[int]] = {}
        for batch in self.blocks():
            for size, class_ in zip(batch.usable_bytes, batch.classes):
                found.setdefault(size, [0, 0, 0])[{CLASS_USED: 0, CLASS_CACHED: 2}.get(class_, 1)] += 1
        return [
            HistogramRow(size, size, used, used * size, free, free * size, cached) for size, (used, free, cached) in sorted(found.items())
        ]

    @abstractmethod
    def arenas(self) -> Sequence[ArenaRow]:
        """One record per arena, see Facts. [arenas, report]"""

    def totals(self) -> Dict[str, Optional[int]]:
        """Their sums. [arenas, report]"""
        rows = self.arenas()
        return sums(type(rows[0]), rows) if rows else {}

    def bins(self) -> Sequence[object]:
        """Records of its bins. [bins; check]"""
        return ()

    def page(self, name: str) -> Page:
        """The page `arenas`, `bins` or `tunables`: tables in its own words."""
        if name == "arenas":
            return plain_page(self.arenas(), self.totals())
        return plain_page(self.bins(), {}) if name == "bins" and self.bins() else ["%s has no %s" % (self.kind, name)]

    def tunables(self) -> Mapping[str, object]:
        """Its settings: `tunables` holds records, other keys what else there is. [tunables]"""
        return {"tunables": []}

    def caches(self) -> Sequence[ThreadCache]:
        """What threads keep. [tcache]"""
        return ()

    def facts(self) -> Facts:
        """Everything that is said of it rests on this. [report; a snapshot of it, and the difference of two]"""
        return Facts(self.info, self.arenas(), self.totals(), self.histogram(), self.claims())

    def checks(self) -> List[Check]:
        """What there is to say of how it is read. [doctor]"""
        return []


OneLocated = TypeVar("OneLocated", bound=Located)
OneFacts = TypeVar("OneFacts", bound=Facts)


class Allocator(ABC, Generic[OneLocated, OneFacts]):
    """What a module of the registry has under the name ALLOCATOR."""

    name: str
    telltales: Telltales = Telltales()
    offered: FrozenSet[str] = frozenset()
    """What its heaps may have among their offers."""

    @abstractmethod
    def find(self, target: Target, pack_directories: Sequence[str]) -> Found:
        """Every copy in the target."""

    @abstractmethod
    def open(self, located: OneLocated, around: Around) -> Heap:
        """One of them, to be read."""

    def warm(self) -> None:
        """Import what nearly every look at it needs, while gdb reads files."""

    def prepare(self, target: Target, located: OneLocated) -> None:
        """Look up, while the process still runs, what does not need it stopped."""

    def together(self, offer: str, found: Sequence[Tuple[AllocatorInfo, object]], unread: Sequence[Unread]) -> Answered:
        """One answer from what the heaps gave for an offer, and those that are not read."""
        raise NotImplementedError

    def has_traces(self, target: Target) -> bool:
        """There is one that a pack can be made of, though it cannot be read yet."""
        return False

    def pack(self, target: Target, found: Found, allocator_id: Optional[str]) -> Pack:
        """The pack of one copy, for the offer `pack`."""
        raise NotImplementedError

    def part_name(self, allocator_id: str, is_alone: bool) -> str:
        """What its part of the memory is called; `is_alone`: there is no other heap."""
        return allocator_id

    def arenas_page(self, rows: Sequence[ArenaRow], totals: Mapping[str, Optional[int]]) -> Page:
        """These arenas, and the sums of all."""
        return plain_page(rows, totals)

    def judge(self, facts: Sequence[OneFacts], around: Surroundings) -> Sequence[Judged]:
        """Verdicts on its heaps."""
        found = []
        for one in facts:
            held, used = sum(claim.end - claim.start for claim in one.claims), sum(row.used_bytes for row in one.sizes)
            found.append(Judged(one.info.id, (one.info.id,), held, verdict.of_lines(*verdict.usual(held, used, held - used, None))))
        return found
