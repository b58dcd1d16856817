"""All blocks as columns, for who computes with them."""

from array import array
from typing import Any, Dict, Iterator, List, NamedTuple, Optional, Sequence, Tuple

from gdbheapx.analysis.census import find
from gdbheapx.errors import HeapxError
from gdbheapx.hints import again
from gdbheapx.kernel.blocks.records import NO_ARENA, BlockFilter
from gdbheapx.problems import NOT_IN_SNAPSHOT
from gdbheapx.session import Session

USED = "used"


class Block(NamedTuple):
    """A block of malloc's."""

    address: int
    """What malloc returned, or would return."""
    usable_bytes: int
    status: str
    """`used`, `free` and so on, as `chunks` calls it."""
    arena: Optional[int]
    """Its index, as in `arenas`; None for a block that belongs to none."""
    allocator: str
    """The id, as in `allocators`."""


class Blocks(Sequence[Block]):
    """Blocks as columns of equal length, by address in each allocator; an element of it is a Block."""

    def __init__(self) -> None:
        self.addresses: array[int] = array("Q")
        """array('Q'): what malloc returned, or would return."""
        self.usable_bytes: array[int] = array("Q")
        """array('Q'): what the program may use there; without headers."""
        self.status_codes: array[int] = array("B")
        """array('B'): places in `statuses`."""
        self.statuses: List[str] = []
        """`used`, `free` and so on, as `chunks` calls them."""
        self.arenas: array[int] = array("I")
        """array('I'): indexes, as in `arenas`; 2**32 - 1 for a block that belongs to none."""
        self.allocator_codes: array[int] = array("B")
        """array('B'): places in `allocators`."""
        self.allocators: List[str] = []
        """Their ids."""

    def __len__(self) -> int:
        return len(self.addresses)

    def __getitem__(self, place: Any) -> Any:
        if isinstance(place, slice):
            return [self[one] for one in range(*place.indices(len(self)))]
        arena = self.arenas[place]
        return Block(
            self.addresses[place],
            self.usable_bytes[place],
            self.statuses[self.status_codes[place]],
            None if arena == NO_ARENA else arena,
            self.allocators[self.allocator_codes[place]],
        )

    def __iter__(self) -> Iterator[Block]:
        statuses, allocators = self.statuses, self.allocators
        columns = self.addresses, self.usable_bytes, self.status_codes, self.arenas, self.allocator_codes
        for address, usable_bytes, status, arena, allocator in zip(*columns):
            yield Block(address, usable_bytes, statuses[status], None if arena == NO_ARENA else arena, allocators[allocator])

    def code(self, word: str) -> int:
        """The place of a status, which is added where it is new."""
        if word not in self.statuses:
            self.statuses.append(word)
        return self.statuses.index(word)

    def begin(self, allocator: str) -> int:
        """The place of an allocator whose blocks come now."""
        if allocator not in self.allocators:
            self.allocators.append(allocator)
        return self.allocators.index(allocator)

    def columns(self) -> Dict[str, Any]:
        """By name; a column of words is a pair: places, and the words."""
        return {
            "address": self.addresses,
            "usable_bytes": self.usable_bytes,
            "status": (self.status_codes, self.statuses),
            "arena": self.arenas,
            "allocator": (self.allocator_codes, self.allocators),
        }


def read(session: Session, status: Optional[str] = None) -> Blocks:
    """Every block, or those with this status."""
    blocks = Blocks()
    if not session.target.has_memory:
        _kept(session, blocks, status)
        return blocks
    for heap in session.heaps.all():
        words = heap.shape.words
        wanted = None if status is None else {kind for kind, word in enumerate(words) if word == status}
        _add(blocks, heap.info.id, words, heap.blocks(BlockFilter(wanted)))
    return blocks


def _add(blocks: Blocks, allocator: str, words: Tuple[str, ...], batches: Iterator[Any]) -> None:
    own, codes = blocks.begin(allocator), bytes(blocks.code(word) for word in words)
    table = codes + bytes(256 - len(codes))
    for batch in batches:
        blocks.addresses.extend(batch.addresses)
        blocks.usable_bytes.extend(batch.usable_bytes)
        blocks.status_codes.frombytes(batch.kinds.tobytes().translate(table))
        blocks.arenas.extend(batch.arenas)
        blocks.allocator_codes.frombytes(bytes((own,)) * len(batch.addresses))


def _kept(session: Session, blocks: Blocks, status: Optional[str]) -> None:
    """Those in use, which a snapshot has; whose arena and allocator it does not say."""
    told = session.shared(find.TOLD)
    if told is None or status not in (None, USED):
        hint = "ask the process or its core: %s" % again()
        raise HeapxError("this snapshot has no such blocks", hint, code=NOT_IN_SNAPSHOT)
    count = told.reach.numbers.blocks
    addresses, sizes = told.reach.graph.columns(array("I", range(count)))
    blocks.addresses, blocks.usable_bytes = addresses, sizes
    own, code = blocks.begin(""), blocks.code(USED)
    blocks.status_codes = array("B", bytes((code,)) * count)
    blocks.arenas, blocks.allocator_codes = array("I", (NO_ARENA,)) * count, array("B", bytes((own,)) * count)


