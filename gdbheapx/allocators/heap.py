"""The protocol between allocators and everything else: what the rest may ask of an allocator, and of one heap of it.

What is here any allocator can answer. What only some can is a *capability*: a command asks for it by name,
and says so where no one has it.
"""

from abc import ABC, abstractmethod
from functools import wraps
from typing import TYPE_CHECKING, Any, Callable, Dict, FrozenSet, Generic, Iterator, List, Mapping, Optional, Sequence, Tuple, TypeVar

from gdbheapx.allocators import records as shared
from gdbheapx.allocators.fingerprints import Fingerprint
from gdbheapx.common.columns import BYTES, IF_KNOWN, TEXT, Column, ColumnsTable, add_values, columns_of, sum_columns
from gdbheapx.common.hints import hint_command
from gdbheapx.common.model import AllocatorInfo, Check, Claim, HistogramRow, StepSentence, TargetAddress, ThreadCache
from gdbheapx.common.units import SentenceSize, exact_share, make_sentence
from gdbheapx.inferior.base import Target
from gdbheapx.kernel.blocks.stream import CLASS_CACHED, CLASS_USED, EVERYTHING, BlockFilter, BlockShape, NativeBlocks

if TYPE_CHECKING:
    from gdbheapx.allocators.answers import AllocatorPlace, BrokenRule, Effect, Keeping, Meter, Reading, Requests
    from gdbheapx.allocators.plan import DryRun, Plan, Portion
    from gdbheapx.kernel.blocks.pages import PinShape

MIN_PAGE_BYTES = 4096
"""What memory is returned by at least."""
Answer = TypeVar("Answer")


def cache_answer(method: Callable[[Any], Answer]) -> Callable[[Any], Answer]:
    """Cache what a method without arguments returns."""

    @wraps(method)
    def cached_method(self: Any) -> Answer:
        answers = self.__dict__.setdefault("_answers", {})
        if method not in answers:
            answers[method] = method(self)
        return answers[method]  # type: ignore[no-any-return]

    return cached_method


def plain_page(rows: Sequence[Any], totals: Mapping[str, Optional[int]]) -> shared.Page:
    """A table of records by their declared columns, with a line of sums where there are some."""
    record: Any = type(rows[0]) if rows else None
    columns = columns_of(record) if rows else ()
    yield ColumnsTable(columns, rows, {**totals, columns[0].field: "total"} if columns and totals else None)


_PARTS = (
    Column("", TEXT, field="name"),
    Column("bytes", BYTES, field="bytes"),
    Column("in memory", BYTES, shown=IF_KNOWN, field="present_bytes"),
    Column("%", field="share"),
)


def plain_parts(allocator_id: str, parts: Sequence[shared.AllocatorPart]) -> shared.Page:
    """The parts of what one heap holds, the largest first."""
    total = sum(part.bytes or 0 for part in parts)
    present = add_values(part.present_bytes for part in parts if part.bytes or part.present_bytes)
    ordered = sorted(parts, key=lambda part: -((part.bytes if present is None else part.present_bytes) or 0))
    if present is None:
        yield make_sentence("What %s holds, in RAM or not: %s", allocator_id, SentenceSize(total))
    else:
        yield make_sentence("What %s holds: %s, %s of it in memory", allocator_id, SentenceSize(total), SentenceSize(present))
    rows = [part._asdict() for part in ordered]
    for row in rows:
        row["share"] = exact_share(row["bytes"], total) if present is None else exact_share(row["present_bytes"], present)
    yield ColumnsTable(_PARTS, rows)


def plain_shape(shape: BlockShape) -> "PinShape":
    """Return the shape of a heap without a rule by which memory is returned: its blocks on their pages."""
    from gdbheapx.kernel.blocks.pages import PinShape

    return PinShape(MIN_PAGE_BYTES, 0, shape.header_bytes or 0, shape.overheads)


class AllocatorInstance(ABC):
    """A heap of an allocator. Brackets name the commands that a member serves, so that no one makes it twice."""

    @property
    def kind(self) -> str:
        """The allocator's name."""
        return self.info.name

    @property
    @abstractmethod
    def info(self) -> AllocatorInfo:
        """Its entry in the envelope."""

    @property
    def capabilities(self) -> Mapping[str, Callable[..., Any]]:
        """Return what only some allocators can: `tickers`, `cure`, `decay`, `profile`, `native-info`, `native-stats`, `held-bytes`;
        `meter`, which reads its counters while the process runs, and `exact-reading`, the same of a stopped process.
        """
        return {}

    returning: Optional[shared.Returning] = None
    """How it returns free memory when it is asked to; None: it has no way. [trim, purge, and all that advise them]"""

    @property
    def never_returns(self) -> Optional[shared.NeverReturns]:
        """Said where that is None and memory is to be returned, with figures of this heap; None: as its allocator says. [the same]"""
        return None

    def would_return(self, portion: "Portion") -> "DryRun":
        """Predict what a call would return, of a core too. [the same with --dry-run]"""
        raise NotImplementedError

    def return_plan(self, portion: "Portion") -> "Plan":
        """The call, and what may speak against it; Refusal where it cannot be made at all."""
        raise NotImplementedError

    def can(self, capability: str) -> bool:
        """True if it has a capability, or returns memory by the command of this name."""
        return capability in self.capabilities or self.returning is not None and capability == self.returning.command

    @abstractmethod
    def claims(self) -> List[Claim]:
        """Return all address ranges taken from the kernel, also those only reserved: the system knows which take memory, arenas() which
        are committed. [report's split; keeps one allocator from reading another's; never a root of the graph]
        """

    @property
    @abstractmethod
    def shape(self) -> BlockShape:
        """Describe the numbers of its blocks."""

    @abstractmethod
    def blocks(self, block_filter: BlockFilter = EVERYTHING, arena: Optional[int] = None) -> Iterator[NativeBlocks]:
        """Its blocks by address, in batches of flat arrays, from the filter's start on. [the index of blocks, on which leaks, owners,
        census, whatis rest]"""

    def own_places(self) -> Sequence[int]:
        """Addresses inside blocks that the allocator has from itself, such as its thread caches: what is there holds nothing, and is no
        leak. [the graph]"""
        return ()

    def own_data(self) -> Sequence[Tuple[int, int]]:
        """(start, end) of what it keeps in the data of its object: pointers there lead to free memory, which may begin in the last word of
        a block. [never a root of the graph]"""
        return ()

    def block_at(self, address: int) -> "Optional[AllocatorPlace]":
        """Return the location of an address, or None if it is not in this heap's memory; reads no more than necessary. [whatis]"""
        from gdbheapx.allocators import answers

        claim = next((claim for claim in self.claims() if claim.start <= address < claim.end), None)
        if claim is None:
            return None
        part = answers.AddressPart("memory", claim.what, TargetAddress(claim.start), TargetAddress(claim.end))
        near = answers.find_neighbours(self.blocks(), self.shape, address)
        return answers.make_heap_place(near, self.shape, self.info.id, address, [part])

    def rules(self) -> "Iterator[BrokenRule]":
        """Every place that breaks a rule of the allocator, once; bounded, whatever is damaged. What cannot be read is reported. [check]"""
        return iter(())

    def kept(self) -> "Optional[Keeping]":
        """Return the rule by which free memory stays and the bytes by the figures of arenas(); None if unknown. Called before blocks(),
        on a stopped process. [pins]
        """
        return None

    def what_if(self) -> "Sequence[Effect]":
        """Return the effects of its settings, had the process begun with them. [what-if]"""
        from gdbheapx.allocators.answers import effect_of_restart

        return [effect_of_restart(shared.heap_sum(self.info.id, self.histogram(), self.arenas(), self.totals()).kept_bytes)]

    def requests(self) -> "Sequence[Requests]":
        """Return the sizes that were asked for, by its blocks in use; empty if unknown. [what-if]"""
        return ()

    def listing(self, block_filter: BlockFilter = EVERYTHING, arena: Optional[int] = None) -> Iterator[NativeBlocks]:
        """Return blocks in the order of the allocator's own structures. [chunks]"""
        return self.blocks(block_filter, arena)

    def histogram(self) -> List[HistogramRow]:
        """Return a row for each size class. [chunks --histogram, report; what grows between two looks]"""
        counts: Dict[int, List[int]] = {}
        for batch in self.blocks():
            for size, class_ in zip(batch.usable_bytes, batch.classes):
                counts.setdefault(size, [0, 0, 0])[{CLASS_USED: 0, CLASS_CACHED: 2}.get(class_, 1)] += 1
        return [
            HistogramRow(size, size, used, used * size, free, free * size, cached) for size, (used, free, cached) in sorted(counts.items())
        ]

    @abstractmethod
    def arenas(self) -> Sequence[shared.ArenaRow]:
        """Return a record for each arena, see Facts. [arenas, report]"""

    def totals(self) -> Dict[str, Optional[int]]:
        """Their sums. [arenas, report]"""
        rows = self.arenas()
        return sum_columns(type(rows[0]), rows) if rows else {}

    def bins(self) -> Sequence[object]:
        """Records of its bins. [bins; check]"""
        return ()

    def tunables(self) -> Any:
        """Its settings: a record whose field `tunables` has records, others what else there is. [tunables]"""
        return shared.Tunables()

    def caches(self) -> Sequence[ThreadCache]:
        """Return a row for each thread cache. [tcache]"""
        return ()

    def facts(self) -> shared.Facts:
        """Everything that is said of it rests on this. [report; a snapshot of it, and the difference of two]"""
        return shared.PlainFacts(self.info, self.arenas(), self.totals(), self.histogram(), self.claims())

    def checks(self) -> List[Check]:
        """Return remarks on how it is read. [doctor]"""
        return []


class MeteredInstance(AllocatorInstance):
    """A heap found by its structure, whose counters are read while the process runs. What a subclass adds is its own."""

    block_shape: BlockShape
    meter_type: "Callable[[Any, Target], Meter]"

    def __init__(self, located: Any, around: shared.HeapContext) -> None:
        self.located, self.around, self.target = located, around, around.target

    @property
    def info(self) -> AllocatorInfo:
        """Its entry in the envelope."""
        return self.located.info()  # type: ignore[no-any-return]

    @property
    def shape(self) -> BlockShape:
        """Describe its blocks."""
        return self.block_shape

    @property
    def capabilities(self) -> Mapping[str, Callable[..., Any]]:
        """Return the readers of its counters."""
        return {"meter": self.meter, "exact-reading": self.exact_reading}

    def meter(self) -> "Meter":
        """Return what reads its counters while the process runs."""
        return type(self).meter_type(self.located, self.target)

    @abstractmethod
    def exact_reading(self) -> "Reading":
        """Return the meter's figures from a walk of a stopped process."""

    def find_claim(self, address: int) -> Optional[Claim]:
        """Return the claim that holds an address; None if none does."""
        return next((claim for claim in self.claims() if claim.start <= address < claim.end), None)


OneLocated = TypeVar("OneLocated", bound=shared.Instance)
OneFacts = TypeVar("OneFacts", bound=shared.Facts)


class Allocator(ABC, Generic[OneLocated, OneFacts]):
    """The ALLOCATOR of a module of the registry."""

    name: str
    fingerprint: Fingerprint = Fingerprint()
    known_capabilities: FrozenSet[str] = frozenset()
    """What its heaps may have among their capabilities."""
    returning: Optional[shared.Returning] = None
    """What its heaps have."""
    has_caches = True
    """Threads may keep freed blocks. [tcache]"""
    never_returns: Optional[shared.NeverReturns] = None
    """Said where that is None and memory is to be returned."""
    statuses: Sequence[str] = ("used", "free")
    """The words of BlockShape.words that its heaps may have. [chunks --status]"""
    records: Mapping[str, str] = {}
    """Where the types of its own records are: of a row of `arenas` and of `bins`, of `tunables`, of what capabilities
    give. [a snapshot; SQL]"""

    part_words: str = ""
    """What its memory consists of; empty: the id says enough."""
    preload: str = ""
    """The library that takes another allocator's place, where preload_bytes() is known. [what-if]"""

    def preload_bytes(self, request_bytes: int) -> int:
        """The block that it gives for a request."""
        raise NotImplementedError

    def can(self, capability: str) -> bool:
        """See Heap.can."""
        return capability in self.known_capabilities or self.returning is not None and capability == self.returning.command

    @abstractmethod
    def find(self, target: Target) -> shared.Instances:
        """Every copy in the target."""

    @abstractmethod
    def open(self, located: OneLocated, around: shared.HeapContext) -> AllocatorInstance:
        """Open an instance for reading."""

    def warm(self) -> None:
        """Import what nearly every look at it needs, while gdb reads files."""

    def prepare(self, target: Target, located: OneLocated) -> None:
        """Look up, while the process still runs, what does not need it stopped."""

    def find_locks(self, target: Target, located: OneLocated) -> Sequence[int]:
        """Return the addresses of futexes that a thread holds while it changes the heap, found while the process still runs; a few."""
        return ()

    def together(
        self, capability: str, told: Sequence[Tuple[AllocatorInfo, object]], unread: Sequence[shared.Unread], unsure: bool
    ) -> shared.Answered:
        """Make one answer of what heaps gave for a capability and of those not read. `unsure`: none was found, and what would show one
        may be missing.
        """
        raise NotImplementedError

    def part_name(self, allocator_id: str, is_alone: bool) -> str:
        """Name its part of the memory; `is_alone`: there is no other heap."""
        return "%s (%s)" % (allocator_id, self.part_words) if self.part_words else allocator_id

    def arenas_page(self, rows: Sequence[shared.ArenaRow], totals: Mapping[str, Optional[int]]) -> shared.Page:
        """Return the arenas and their sums."""
        return plain_page(rows, totals)

    def page(self, name: str, answer: Any) -> shared.Page:
        """The page `bins` or `tunables`, of what a heap's member of that name gave."""
        return plain_page(answer, {}) if name == "bins" and answer else ["%s has no %s" % (self.name, name)]

    def parts_page(self, allocator_id: str, parts: Sequence[shared.AllocatorPart], totals: Mapping[str, Optional[int]]) -> shared.Page:
        """The parts of what one heap holds, where its judge gives them."""
        return plain_parts(allocator_id, parts)

    def judge(self, facts: Sequence[OneFacts], around: shared.Surroundings) -> Sequence[shared.AllocatorJudgement]:
        """Verdicts on its heaps."""
        from gdbheapx.common import findings, verdict

        verdicts, way = [], self.returning
        steps = []
        if way is not None:
            steps.append(StepSentence(hint_command("%s --dry-run" % way.command), "shows what %s would return to the OS" % way.call))
        for heap in facts:
            name, used = heap.info.id, sum(row.used_bytes for row in heap.sizes)
            reserved = sum(claim.end - claim.start for claim in heap.claims)
            held = min(reserved, sum(row.held_bytes for row in heap.arenas)) if heap.arenas else reserved
            beyond = around.beyond_bytes if around.is_cut else 0
            judged = verdict.usual_verdict(held, used, around.taken_bytes.get(name), beyond)
            has_free = judged.code in (findings.FREED_AND_HELD, findings.PART_HELD)
            shown = [*verdict.what_is_in_use(judged.code), *(steps if has_free else ())]
            verdicts.append(shared.AllocatorJudgement(name, (name,), held, judged, next_steps=shown))
        return verdicts
