"""ctypes bindings of the C kernel's stream of blocks."""

from array import array
from contextlib import contextmanager
from typing import Any, Iterator, Optional, Sequence, Tuple

from gdbheapx.budget import Budget
from gdbheapx.kernel.blocks.records import LETTERS, BlockState, BlockStream, ListingEnd, NativeBlocks
from gdbheapx.kernel.common import library as c
from gdbheapx.kernel.common.library import NO_MEMORY, OpenSource, address_of, declare_functions

PROTOTYPES = """
struct block_source *heapx_blocks_join(const uint64_t *sources, uint64_t count);
struct block_source *heapx_blocks_listed(uint64_t *addresses, uint64_t *usable, uint8_t *classes, uint8_t *kinds, uint32_t *arenas,
    uint64_t count);
struct block_source *heapx_blocks_merge(struct block_source *inner, uint64_t *addresses, uint64_t *usable, uint8_t *classes, uint8_t *kinds,
    uint32_t *arenas, uint64_t count);
int64_t heapx_blocks_next(struct block_source *source, double seconds, uint64_t *addresses, uint64_t *usable, uint8_t *classes,
    uint8_t *kinds, uint32_t *arenas, uint64_t room);
void heapx_blocks_state(const struct block_source *source, struct block_state *out);
void heapx_blocks_free(struct block_source *source);
uint64_t heapx_blocks_cells(const uint64_t *runs, uint64_t run_count, const uint32_t *labels, uint64_t *addresses, uint64_t *usable);
int64_t heapx_blocks_unlist(const struct source *memory, int little_endian, const uint64_t *runs, uint64_t run_count, const uint64_t *heads,
    uint64_t head_count, uint64_t most, uint32_t *labels);
"""

ROWS_AT_ONCE = 4096


def list_pool_cells(
    library: Any, runs: Sequence[Tuple[int, int, int]], labels: "Optional[array[int]]" = None
) -> "Tuple[array[int], array[int]]":
    """array('Q') of addresses and of usable bytes of cells side by side. `runs`: (address of the first, bytes of each, how many); `labels`:
    array('I'), of the first ones: cells whose label is 0 or lacking are left out."""
    total = sum(count for _, _, count in runs)
    flat = array("Q", [number for run in runs for number in run])
    addresses, usable = array("Q", bytes(8 * total)), array("Q", bytes(8 * total))
    kept = None if labels is None else labels + array("I", bytes(4 * max(0, total - len(labels))))
    places = (address_of(flat), len(runs), None if kept is None else address_of(kept), address_of(addresses), address_of(usable))
    count = declare_functions(library, PROTOTYPES).heapx_blocks_cells(*places)
    return addresses[:count], usable[:count]


def label_unlisted_cells(
    library: Any, opened: OpenSource, runs: Sequence[Tuple[int, int, int]], heads: Sequence[int], most: int, budget: Budget
) -> "Optional[array[int]]":
    """array('I'), labels as cells() takes them: 0 for cells in lists from `heads` on, each through its first word, of eight little-endian
    bytes; None where one leads to no cell, or to one twice, cannot be read, or `most` are too few. `runs`: sorted, without overlap."""
    flat, starts = array("Q", [number for run in runs for number in run]), array("Q", heads)
    labels, counts = array("I", [1]) * sum(count for _, _, count in runs), []
    places = (opened.handle, 1, address_of(flat), len(runs), address_of(starts), len(starts), most, address_of(labels))

    def follow_lists(seconds: float) -> int:
        counts.append(int(declare_functions(library, PROTOTYPES).heapx_blocks_unlist(*places)))
        return NO_MEMORY if counts[-1] == NO_MEMORY else 0

    c.run_resumable(follow_lists, opened, budget)
    opened.raise_error()
    return labels if counts and counts[-1] >= 0 else None


class NativeListedBlocks:
    """A stream that the C kernel did not make, as one of its own."""

    def __init__(self, library: Any, stream: Iterator[NativeBlocks]) -> None:
        self._library = declare_functions(library, PROTOTYPES)
        self._columns = [array(letter) for letter in LETTERS]
        for blocks in stream:
            for mine, column in zip(self._columns, blocks):
                mine.extend(column)
        self.handle = library.heapx_blocks_listed(*map(address_of, self._columns), len(self._columns[0]))
        if not self.handle:
            raise MemoryError()

    def __del__(self) -> None:
        if getattr(self, "handle", None):
            self._library.heapx_blocks_free(self.handle)


class CBlocks(BlockStream):
    """A struct block_source (stream.h) of the C kernel. `kept`: arrays that live as long as it; `apart`: blocks to be merged in."""

    def __init__(
        self, library: Any, opened: OpenSource, handle: Optional[int], kept: Any, apart: Optional[NativeBlocks], budget: Budget
    ) -> None:
        super().__init__(budget)
        self._library, self._opened, self._handle = declare_functions(library, PROTOTYPES), opened, handle
        self._kept = (kept, apart)
        self._columns = [array(letter, bytes(array(letter).itemsize * ROWS_AT_ONCE)) for letter in LETTERS]
        if not handle:
            raise MemoryError()
        if apart is not None:
            self._handle = library.heapx_blocks_merge(handle, *map(address_of, apart), len(apart.addresses))
            if not self._handle:
                library.heapx_blocks_free(handle)
                raise MemoryError()

    def __del__(self) -> None:
        if getattr(self, "_handle", None):
            self._library.heapx_blocks_free(self._handle)
            self._handle = None

    @property
    def handle(self) -> Optional[int]:
        """The struct block_source."""
        return self._handle

    def _read_state(self) -> BlockState:
        state = array("Q", bytes(8 * len(BlockState._fields)))
        self._library.heapx_blocks_state(self._handle, address_of(state))
        return BlockState._make(state)

    @property
    def at(self) -> int:
        """See BlockStream."""
        return self._read_state().at

    def _next_batch(self) -> Optional[NativeBlocks]:
        self._opened.raise_error()
        got = self._library.heapx_blocks_next(
            self._handle, self._budget.slice_s(c.SLICE_SECONDS), *map(address_of, self._columns), ROWS_AT_ONCE
        )
        if got == NO_MEMORY:
            raise MemoryError()
        if not got:  # else what was read before the error comes first
            self._opened.raise_error()
        ended, stop, place = self._read_state()
        if ended:
            self._end = ListingEnd(stop, place)
        return NativeBlocks(*(column[:got] for column in self._columns)) if got else None


@contextmanager
def join_streams(library: Any, streams: Sequence[Iterator[NativeBlocks]]) -> Iterator[Any]:
    """The handle of all these streams as one, in address order."""
    sources: Any = [stream if isinstance(stream, CBlocks) else NativeListedBlocks(library, stream) for stream in streams]
    if len(sources) == 1:
        yield sources[0].handle
        return
    handles = array("Q", [source.handle for source in sources])
    handle = declare_functions(library, PROTOTYPES).heapx_blocks_join(address_of(handles), len(handles))
    if not handle:
        raise MemoryError()
    try:
        yield handle
    finally:
        library.heapx_blocks_free(handle)
