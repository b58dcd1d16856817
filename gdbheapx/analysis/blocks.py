"""List blocks, and say what is known of one address."""

from array import array
from bisect import bisect_right
from typing import Any, Dict, Iterator, List, NamedTuple, Optional, Sequence, Tuple

from gdbheapx.allocators.answers import AllocatorPlace
from gdbheapx.allocators.heap import AllocatorInstance
from gdbheapx.analysis.census import find
from gdbheapx.analysis.census.block import describe_signature
from gdbheapx.analysis.census.find import LabelSet
from gdbheapx.analysis.census.registry import RuntimePiece
from gdbheapx.analysis.reachability.heap_graph import find_module_at
from gdbheapx.analysis.reachability.refs import Holder
from gdbheapx.errors import HeapxError
from gdbheapx.hints import hint_again, hint_command
from gdbheapx.inferior.base import Mapping, Target
from gdbheapx.kernel.blocks.stream import NO_ARENA, BlockFilter
from gdbheapx.model import TargetAddress
from gdbheapx.problems import NOT_FOUND, NOT_IN_SNAPSHOT
from gdbheapx.session import Session
from gdbheapx.units import SentenceSize, make_sentence

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
        """Return the columns by name; a column of words is a pair: places, and the words."""
        return {
            "address": self.addresses,
            "usable_bytes": self.usable_bytes,
            "status": (self.status_codes, self.statuses),
            "arena": self.arenas,
            "allocator": (self.allocator_codes, self.allocators),
        }


def read_blocks(session: Session, status: Optional[str] = None) -> Blocks:
    """Every block, or those with this status. A snapshot has the blocks in use alone, and does not say their arena and allocator."""
    blocks = Blocks()
    for heap in session.heaps.all() if session.target.has_memory else ():
        words = heap.shape.words
        wanted = None if status is None else {kind for kind, word in enumerate(words) if word == status}
        own, codes = blocks.begin(heap.info.id), bytes(blocks.code(word) for word in words)
        table = codes + bytes(256 - len(codes))
        for batch in heap.blocks(BlockFilter(wanted)):
            blocks.addresses.extend(batch.addresses)
            blocks.usable_bytes.extend(batch.usable_bytes)
            blocks.status_codes.frombytes(batch.kinds.tobytes().translate(table))
            blocks.arenas.extend(batch.arenas)
            blocks.allocator_codes.frombytes(bytes((own,)) * len(batch.addresses))
    if session.target.has_memory:
        return blocks
    told = session.shared(find.TOLD)
    if told is None or status not in (None, USED):
        hint = "ask the process or its core: %s" % hint_again()
        raise HeapxError("this snapshot has no such blocks", hint, code=NOT_IN_SNAPSHOT)
    count = told.reach.numbers.blocks
    blocks.addresses, blocks.usable_bytes = told.reach.graph.columns(array("I", range(count)))
    blocks.allocator_codes, blocks.status_codes = (array("B", bytes((code,)) * count) for code in (blocks.begin(""), blocks.code(USED)))
    blocks.arenas = array("I", (NO_ARENA,)) * count
    return blocks


STATIC_BLOCK_BYTES = 4096
"""Below the thread pointer: what is nearer is the thread's static block, what is farther may be its stack."""


class AddressMapping(NamedTuple):
    """The mapping that holds it."""

    start: TargetAddress
    end: TargetAddress
    permissions: str
    """As in /proc/PID/maps; empty in a snapshot."""
    name: str
    """The file, or the kernel's label; empty for anonymous memory."""
    file_offset: Optional[int]
    """Of the address in the file; None where no file is mapped."""


class AddressSymbol(NamedTuple):
    """The object that holds it, and its last symbol at or before it."""

    module: str
    module_offset: int
    symbol: Optional[str]
    """None where no symbol table names it."""
    symbol_offset: Optional[int]


class AddressThread(NamedTuple):
    """The thread whose memory it is."""

    lwp: int
    name: Optional[str]
    what: str
    """`stack`, `below the stack` (unused, or left by calls that returned), `thread-local storage`."""
    offset: int
    """From the stack pointer, or from the thread pointer."""


class UsedBlock(NamedTuple):
    """A block in use, as a snapshot knows it."""

    address: TargetAddress
    offset: int
    """Of the address that was asked for."""
    usable_bytes: int


class Location(NamedTuple):
    """Everything that is known of an address."""

    address: TargetAddress
    places: Sequence[AllocatorPlace]
    """In a heap; none where no allocator holds it."""
    mapping: Optional[AddressMapping]
    """None: nothing is mapped there."""
    named: Optional[AddressSymbol]
    thread: Optional[AddressThread]
    held_by: Optional[Holder] = None
    """Who holds the block; None where no one looked, or it is no block in use."""
    signature: Optional[str] = None
    """What the block is, such as its class, and how sure that is; None where no one looked, or nothing knows it."""
    used: Optional[UsedBlock] = None
    """Of a snapshot, in place of `places`."""
    piece: Optional[RuntimePiece] = None
    """In memory that a runtime cuts up itself, next to the block of an allocator that it may have cut; None where there is none."""


def locate_in_heaps(target: Target, heaps: Sequence[AllocatorInstance], address: int) -> Location:
    """Asks every heap, and the process."""
    at = TargetAddress(address)
    places = [place for place in (heap.block_at(address) for heap in heaps) if place is not None]
    mapping = next((span for span in target.mappings() if span.start <= address < span.end), None)
    if mapping is None:
        return Location(at, places, None, None, None)
    letters = ((mapping.readable, "r"), (mapping.writable, "w"), (mapping.executable, "x"))
    permissions = "".join(letter if is_set else "-" for is_set, letter in letters) + ("s" if mapping.shared else "p")
    offset = mapping.offset + address - mapping.start if mapping.is_file else None
    where = AddressMapping(TargetAddress(mapping.start), TargetAddress(mapping.end), permissions, mapping.name, offset)
    if places:
        return Location(at, places, where, None, None)
    return Location(at, places, where, _find_symbol(target, address), _find_thread(target, mapping, address))


def add_runtime_piece(location: Location, piece: Optional[RuntimePiece]) -> Location:
    """Add the runtime's piece of memory at that place, which is not a stack then."""
    return location if piece is None else location._replace(piece=piece, named=None, thread=None)


def locate_in_snapshot(told: LabelSet, address: int) -> Location:
    """Locate an address in a snapshot: in a block in use or in a mapping. HeapxError if it lies in neither."""
    place = told.reach.graph.find(address)
    if place is None:
        what = "no block in use has the address 0x%x in this snapshot: without --keep-addresses they move mappings" % address
        hint = "use those that `%s` and `%s` show of this file" % (hint_command("owners"), hint_command("leaks --list"))
        raise HeapxError(what, hint, code=NOT_FOUND)
    node, offset = place
    mapping = told.reach.mapping(node)
    if mapping is not None:
        where = AddressMapping(TargetAddress(mapping.start), TargetAddress(mapping.end), "", mapping.use.mapping.name, None)
        return Location(TargetAddress(address), (), where, None, None)
    start, usable = told.reach.graph.blocks([node])[0]
    name = told.name_block(node)
    block = UsedBlock(TargetAddress(start), offset, usable)
    return Location(TargetAddress(address), (), None, None, None, None, describe_signature(name) if name is not None else None, block)


def _find_symbol(target: Target, address: int) -> Optional[AddressSymbol]:
    module = find_module_at(target, address)
    if module is None:
        return None
    symbols = [(function.start, function.end, function.name) for function in target.functions(module, exported=True)]
    for name, at, size, is_local in target.variables(module):
        if not is_local:
            symbols.append((module.base + at, module.base + at + size, name))
    symbols.sort()
    place = bisect_right([start for start, _, _ in symbols], address) - 1
    start, end, name = symbols[place] if place >= 0 else (0, 0, "")
    if place < 0 or address >= max(end, start + 1):
        return AddressSymbol(module.name, address - module.base, None, None)
    return AddressSymbol(module.name, address - module.base, name, address - start)


def _find_thread(target: Target, mapping: Mapping, address: int) -> Optional[AddressThread]:
    near: List[AddressThread] = []
    for thread in target.threads():
        pointer, stack = thread.thread_pointer, thread.stack_pointer
        at = pointer if pointer is not None and mapping.start <= pointer < mapping.end else None
        if at is not None and at - _block_bytes(target, at) <= address < at + target.arch.pthread_bytes:
            near.append(AddressThread(thread.lwp, thread.name, "thread-local storage", address - at))
        elif stack is not None and mapping.start <= stack < mapping.end and (at is None or address < at):
            what = "stack" if address >= stack - target.arch.red_zone_bytes else "below the stack"
            near.append(AddressThread(thread.lwp, thread.name, what, address - stack))
    return min(near, key=lambda of_thread: abs(of_thread.offset), default=None)


def _block_bytes(target: Target, pointer: int) -> int:
    """Return the number of bytes below its thread pointer that a thread's static block may reach: in the data of an object, where other
    variables are next to it, no farther than its variables do.
    """
    if not any(start <= pointer < end for start, end, _ in target.image_ranges()):
        return STATIC_BLOCK_BYTES
    return sum(-(-target.thread_local_size(module) // 16) * 16 for module in target.modules())


TIMES = 2
"""Who holds so many times more is worth a note."""


def find_larger(shown_bytes: int, others: Sequence[AllocatorInstance]) -> List[Tuple[str, str]]:
    """(what, hint) for each of the others that holds much more than what is shown, by its own counters."""
    notes: List[Tuple[str, str]] = []
    for heap in others:
        held = heap.capabilities["held-bytes"]()
        if held is not None and held >= TIMES * max(shown_bytes, 1):
            times = " (%d times as much)" % (held // shown_bytes) if shown_bytes else ""
            text = "these figures, %s, belong to the malloc that the program calls; %s in %s holds %s%s"
            what = make_sentence(text, SentenceSize(shown_bytes), heap.info.id, heap.info.object, SentenceSize(held), times)
            notes.append((what, "malloc-stats --allocator %s shows it" % heap.info.id))
    return notes
