"""The stream of blocks: what every allocator's listing gives, what may be asked of it, and its rows as CSV."""

from abc import ABC, abstractmethod
from array import array
from bisect import bisect_left
from contextlib import contextmanager
from typing import AbstractSet, Any, Iterator, NamedTuple, Optional, Sequence, Tuple

from gdbheapx.common.budget import Budget
from gdbheapx.kernel.common.library import (
    ADDRESS_MASK,
    NO_MEMORY,
    SLICE_SECONDS,
    STOP_TIME,
    NativeObject,
    OpenSource,
    address_of,
    flatten_pairs,
    native_job,
    require_memory,
    run_resumable,
)

CLASS_USED = 0
"""The program holds it."""
CLASS_CACHED = 1
"""The program has freed it, and it waits in a cache for one of its threads, or on a list from which it is taken again as it is."""
CLASS_FREE = 2
CLASS_RESERVE = 3
"""Memory at an arena's end that was never handed out, or is free again."""
CLASS_OVERHEAD = 4
"""The allocator's own."""
CLASS_RETURNED = 5
"""Unused pages, on their way back to the system or there already; the allocator keeps the addresses."""

NO_ARENA = 0xFFFFFFFF
"""The arena of a block that belongs to none."""


class NativeBlocks(NamedTuple):
    """Batch of blocks as columns of equal length, in ascending address order."""

    addresses: "array[int]"
    """array('Q'): what malloc returned, or would return."""
    usable_bytes: "array[int]"
    """array('Q'): what the program may use there; without headers."""
    classes: "array[int]"
    """array('B'): a CLASS_ each."""
    kinds: "array[int]"
    """array('B'): the allocator's own number for the status, a place in BlockShape.words."""
    arenas: "array[int]"
    """array('I'): index, or NO_ARENA."""

    def part(self, low: int, high: Optional[int] = None) -> "NativeBlocks":
        """Return the blocks at positions [low, high)."""
        return NativeBlocks(*(column[low:high] for column in self))


LETTERS = "QQBBI"
"""Type codes of the columns."""


class BlockShape(NamedTuple):
    """Meaning of an allocator's numbers, for code that shows blocks."""

    words: Tuple[str, ...]
    """The contract's word for each kind."""
    overheads: Tuple[int, ...]
    """By kind: bytes that the allocator's own size of such a block has above the usable ones."""
    header_bytes: Optional[int]
    """From the start of the allocator's unit to the block's address; None where blocks have no header."""
    unit_bytes: int = 8
    """Blocks begin at multiples of this."""
    in_size_classes: bool = False
    """Usable bytes are those of a class: up to a fifth of them may never have been asked for."""
    keeps_freed_content: bool = False
    """A block that is freed and handed out again begins with what stood there before, until the program writes it."""
    in_use: AbstractSet[str] = frozenset(("used",))
    """The words of blocks that the program has."""
    unreturned_kinds: AbstractSet[int] = frozenset()
    """Kinds of unused pages that the system has not got back yet."""


class BlockWanted(NamedTuple):
    """A BlockFilter as the kernel takes it: one bit for each kind."""

    kinds: int
    min_size: int
    max_size: int
    start: int


class BlockState(NamedTuple):
    """Position of a stream of the native library."""

    ended: int
    stop: int
    """A STOP_ number, once it has ended."""
    at: int
    """Where reading goes on."""


class BlockFilter(NamedTuple):
    """Selection of blocks of a stream."""

    kinds: Optional[AbstractSet[int]] = None
    """The allocator's own numbers; None for all."""
    min_size: int = 0
    max_size: Optional[int] = None
    """Bounds of the allocator's own size, both included."""
    start: int = 0
    """No block below this address is given: a BlockStream's `at`, or any other. Heaps that end below it are not read, the one that holds it
    is read from its begin, since only a chain of sizes shows where a chunk begins."""

    def numbers(self) -> "array[int]":
        """Return the filter as the numbers of a BlockWanted."""
        mask = ADDRESS_MASK if self.kinds is None else sum(1 << kind for kind in self.kinds)
        return array("Q", BlockWanted(mask, self.min_size, ADDRESS_MASK if self.max_size is None else self.max_size, self.start))

    def has(self, kind: int, size_bytes: int) -> bool:
        """A block of that kind and size is wanted."""
        return (self.kinds is None or kind in self.kinds) and self.min_size <= size_bytes <= (
            ADDRESS_MASK if self.max_size is None else self.max_size
        )


EVERYTHING = BlockFilter()


class BlockStream(ABC):
    """The blocks of one heap in batches, each address above the one before; where damage makes regions overlap, no batch is sure to be so.

    Damage ends a region early and without a word: the walk that comes before says so. A region that is cut by time goes on at `at`. Ctrl-C
    while the kernel works ends the listing with STOP_TIME; in the caller's own code it is the caller's.
    """

    result: Optional[BlockState] = None
    """How it ended; None until then."""

    def __init__(self, budget: Budget) -> None:
        self._budget = budget
        self._end: Optional[BlockState] = None

    def __iter__(self) -> Iterator[NativeBlocks]:
        return self

    def __next__(self) -> NativeBlocks:
        while self._end is None:
            try:
                if self._budget.expired():
                    break
                batch = self._next_batch()
            except KeyboardInterrupt:
                self._budget.interrupt()
                break
            if batch is not None:
                return batch
        self.result = self._end = self._end or BlockState(1, STOP_TIME, self.at)
        raise StopIteration

    @abstractmethod
    def _next_batch(self) -> Optional[NativeBlocks]:
        """The next one, maybe none yet; sets `_end` when the walk ends."""

    @property
    @abstractmethod
    def at(self) -> int:
        """Return the address in the allocator's own memory where reading continues: `Wanted.start` of a stream that gives the blocks that
        this one did not come to.
        """


def apart_from(apart: Optional[NativeBlocks], wanted: BlockFilter) -> Optional[NativeBlocks]:
    """Blocks that lie apart, from Wanted.start on; None for none."""
    if apart is None:
        return None
    rest = apart.part(bisect_left(apart.addresses, wanted.start))
    return rest if len(rest.addresses) else None


def make_blocks(rows: "Sequence[Tuple[int, int, int, int, int]]", in_order: bool = True) -> NativeBlocks:
    """Blocks of rows; `in_order`: sorted by address."""
    columns: Any = zip(*(sorted(rows) if in_order else rows)) if rows else [()] * len(LETTERS)
    return NativeBlocks(*(array(letter, column) for letter, column in zip(LETTERS, columns)))


ROWS_AT_ONCE = 4096


def list_pool_cells(
    library: Any, runs: Sequence[Tuple[int, int, int]], labels: "Optional[array[int]]" = None
) -> "Tuple[array[int], array[int]]":
    """array('Q') of addresses and of usable bytes of cells side by side. `runs`: (address of the first, bytes of each, how many); `labels`:
    array('I'), of the first ones: cells whose label is 0 or lacking are left out."""
    total = sum(count for _, _, count in runs)
    flat = flatten_pairs(runs)
    addresses, usable = array("Q", bytes(8 * total)), array("Q", bytes(8 * total))
    kept = None if labels is None else labels + array("I", bytes(4 * max(0, total - len(labels))))
    places = (address_of(flat), len(runs), None if kept is None else address_of(kept), address_of(addresses), address_of(usable))
    count = library.heapx_blocks_cells(*places)
    return addresses[:count], usable[:count]


def label_unlisted_cells(
    library: Any, opened: OpenSource, runs: Sequence[Tuple[int, int, int]], heads: Sequence[int], most: int, budget: Budget
) -> "Optional[array[int]]":
    """array('I'), labels as cells() takes them: 0 for cells in lists from `heads` on, each through its first word, of eight little-endian
    bytes; None where one leads to no cell, or to one twice, cannot be read, or `most` are too few. `runs`: sorted, without overlap."""
    flat, starts = flatten_pairs(runs), array("Q", heads)
    labels, counts = array("I", [1]) * sum(count for _, _, count in runs), []
    places = (opened.handle, 1, address_of(flat), len(runs), address_of(starts), len(starts), most, address_of(labels))

    def follow_lists(seconds: float) -> int:
        counts.append(int(library.heapx_blocks_unlist(*places)))
        return NO_MEMORY if counts[-1] == NO_MEMORY else 0

    run_resumable(follow_lists, opened, budget)
    opened.raise_error()
    return labels if counts and counts[-1] >= 0 else None


class NativeListedBlocks(NativeObject):
    """A stream that the C kernel did not make, as one of its own."""

    def __init__(self, library: Any, stream: Iterator[NativeBlocks]) -> None:
        self._columns = [array(letter) for letter in LETTERS]
        for blocks in stream:
            for mine, column in zip(self._columns, blocks):
                mine.extend(column)
        handle = library.heapx_blocks_listed(*map(address_of, self._columns), len(self._columns[0]))
        super().__init__(handle, library.heapx_blocks_free)


class CBlocks(BlockStream, NativeObject):
    """A struct block_source (stream.h) of the C kernel. `kept`: arrays that live as long as it; `apart`: blocks to be merged in."""

    def __init__(
        self, library: Any, opened: OpenSource, handle: Optional[int], kept: Any, apart: Optional[NativeBlocks], budget: Budget
    ) -> None:
        BlockStream.__init__(self, budget)
        NativeObject.__init__(self, handle, library.heapx_blocks_free)
        self._library, self._opened, self._kept = library, opened, (kept, apart)
        self._columns = [array(letter, bytes(array(letter).itemsize * ROWS_AT_ONCE)) for letter in LETTERS]
        if apart is not None:
            self.handle = require_memory(library.heapx_blocks_merge(handle, *map(address_of, apart), len(apart.addresses)))

    def _read_state(self) -> BlockState:
        state = array("Q", bytes(8 * len(BlockState._fields)))
        self._library.heapx_blocks_state(self.handle, address_of(state))
        return BlockState._make(state)

    @property
    def at(self) -> int:
        """See BlockStream."""
        return self._read_state().at

    def _next_batch(self) -> Optional[NativeBlocks]:
        self._opened.raise_error()
        seconds = self._budget.slice_s(SLICE_SECONDS)
        got = self._library.heapx_blocks_next(self.handle, seconds, *map(address_of, self._columns), ROWS_AT_ONCE)
        if got == NO_MEMORY:
            raise MemoryError()
        if not got:  # else what was read before the error comes first
            self._opened.raise_error()
        state = self._read_state()
        if state.ended:
            self._end = state
        return NativeBlocks(*(column[:got] for column in self._columns)) if got else None


def open_stream(library: Any, stream: Iterator[NativeBlocks]) -> NativeObject:
    """Return the stream as one of the native library."""
    return stream if isinstance(stream, CBlocks) else NativeListedBlocks(library, stream)


@contextmanager
def join_streams(library: Any, streams: Sequence[Iterator[NativeBlocks]]) -> Iterator[Any]:
    """The handle of all these streams as one, in address order."""
    sources = [open_stream(library, stream) for stream in streams]
    if len(sources) == 1:
        yield sources[0].handle
        return
    handles = array("Q", [source.handle for source in sources])
    with native_job(library.heapx_blocks_join(address_of(handles), len(handles)), library.heapx_blocks_free) as handle:
        yield handle
