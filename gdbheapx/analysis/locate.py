"""What is at an address: the block of an allocator, and beside it what the process's own maps, symbols and threads say."""

from bisect import bisect_right
from typing import List, NamedTuple, Optional, Sequence

from gdbheapx.allocators.heap import Heap
from gdbheapx.allocators.places import Place
from gdbheapx.analysis.census.block import describe_signature
from gdbheapx.analysis.census.find import LabelSet
from gdbheapx.analysis.census.pieces import RuntimePiece
from gdbheapx.analysis.reachability.refs import Holder
from gdbheapx.analysis.reachability.symbols import module_at
from gdbheapx.arch import Architecture
from gdbheapx.errors import HeapxError
from gdbheapx.hints import ask
from gdbheapx.inferior.base import Mapping, Module, Target, Thread
from gdbheapx.model import Address
from gdbheapx.problems import NOT_FOUND

STATIC_BLOCK_BYTES = 4096
"""Below the thread pointer: what is nearer is the thread's static block, what is farther may be its stack."""


class Mapped(NamedTuple):
    """The mapping that holds it."""

    start: Address
    end: Address
    permissions: str
    """As in /proc/PID/maps; empty in a snapshot."""
    name: str
    """The file, or the kernel's label; empty for anonymous memory."""
    file_offset: Optional[int]
    """Of the address in the file; None where no file is mapped."""


class Named(NamedTuple):
    """The object that holds it, and its last symbol at or before it."""

    module: str
    module_offset: int
    symbol: Optional[str]
    """None where no symbol table names it."""
    symbol_offset: Optional[int]


class OfThread(NamedTuple):
    """The thread whose memory it is."""

    lwp: int
    name: Optional[str]
    what: str
    """`stack`, `below the stack` (unused, or left by calls that returned), `thread-local storage`."""
    offset: int
    """From the stack pointer, or from the thread pointer."""


class UsedBlock(NamedTuple):
    """A block in use, as a snapshot knows it."""

    address: Address
    offset: int
    """Of the address that was asked for."""
    usable_bytes: int


class Location(NamedTuple):
    """All that is known of an address."""

    address: Address
    places: Sequence[Place]
    """In a heap; none where no allocator holds it."""
    mapping: Optional[Mapped]
    """None: nothing is mapped there."""
    named: Optional[Named]
    thread: Optional[OfThread]
    held_by: Optional[Holder] = None
    """Who holds the block; None where nobody looked, or it is no block in use."""
    signature: Optional[str] = None
    """What the block is, such as its class, and how sure that is; None where nobody looked, or nothing knows it."""
    used: Optional[UsedBlock] = None
    """Of a snapshot, in place of `places`."""
    piece: Optional[RuntimePiece] = None
    """In memory that a runtime cuts up itself, beside the block of an allocator that it may have cut; None where there is none."""


def locate(target: Target, heaps: Sequence[Heap], address: int) -> Location:
    """Asks every heap, and the process."""
    places = [place for place in (heap.block_at(address) for heap in heaps) if place is not None]
    mapping = next((span for span in target.mappings() if span.start <= address < span.end), None)
    return Location(
        Address(address),
        places,
        _mapped(mapping, address) if mapping is not None else None,
        None if places or mapping is None else _named(target, address),
        None if places or mapping is None else _thread(target, mapping, address),
    )


def with_piece(location: Location, piece: Optional[RuntimePiece]) -> Location:
    """With what a runtime has there: it is no stack then."""
    return location if piece is None else location._replace(piece=piece, named=None, thread=None)


def kept(told: LabelSet, address: int) -> Location:
    """Of a snapshot: blocks in use, and mappings. HeapxError for what lies in neither."""
    place = told.reach.graph.find(address)
    if place is None:
        what = "no block in use has the address 0x%x in this snapshot: without --keep-addresses they move mappings" % address
        raise HeapxError(what, "use those that `%s` and `%s` show of this file" % (ask("owners"), ask("leaks --list")), code=NOT_FOUND)
    node, offset = place
    mapping = told.reach.mapping(node)
    if mapping is not None:
        where = Mapped(Address(mapping.start), Address(mapping.end), "", mapping.use.mapping.name, None)
        return Location(Address(address), (), where, None, None)
    start, usable = told.reach.graph.blocks([node])[0]
    name = told.names[told.labels[node] - 1] if told.labels[node] else None
    block = UsedBlock(Address(start), offset, usable)
    return Location(Address(address), (), None, None, None, None, describe_signature(name) if name is not None else None, block)


def _mapped(mapping: Mapping, address: int) -> Mapped:
    letters = ((mapping.readable, "r"), (mapping.writable, "w"), (mapping.executable, "x"))
    permissions = "".join(letter if is_set else "-" for is_set, letter in letters) + ("s" if mapping.shared else "p")
    return Mapped(
        Address(mapping.start),
        Address(mapping.end),
        permissions,
        mapping.name,
        mapping.offset + address - mapping.start if mapping.is_file else None,
    )


def _named(target: Target, address: int) -> Optional[Named]:
    module = module_at(target, address)
    if module is None:
        return None
    symbols = _symbols(target, module)
    place = bisect_right([start for start, _, _ in symbols], address) - 1
    start, end, name = symbols[place] if place >= 0 else (0, 0, "")
    is_there = place >= 0 and address < max(end, start + 1)
    return Named(module.name, address - module.base, name if is_there else None, address - start if is_there else None)


def _symbols(target: Target, module: Module) -> "List[tuple[int, int, str]]":
    """(start, end, name) of functions and variables of the object's symbol tables, sorted."""
    functions = [(function.start, function.end, function.name) for function in target.functions(module, exported=True)]
    variables = [(module.base + at, module.base + at + size, name) for name, at, size, is_local in target.variables(module) if not is_local]
    return sorted([*functions, *variables])


def _thread(target: Target, mapping: Mapping, address: int) -> Optional[OfThread]:
    near: List[OfThread] = []
    for thread in target.threads():
        block_bytes = _block_bytes(target, thread.thread_pointer)
        near += [one for one in (_of_thread(thread, mapping, address, target.arch, block_bytes),) if one is not None]
    return min(near, key=lambda of_thread: abs(of_thread.offset), default=None)


def _block_bytes(target: Target, pointer: Optional[int]) -> int:
    """How far below its thread pointer a thread's static block may reach: in the data of an object, where other variables are next to it,
    no farther than its variables do."""
    if pointer is None or not any(start <= pointer < end for start, end, _ in target.image_ranges()):
        return STATIC_BLOCK_BYTES
    return sum(-(-target.thread_local_size(module) // 16) * 16 for module in target.modules())


def _of_thread(thread: Thread, mapping: Mapping, address: int, arch: Architecture, block_bytes: int) -> Optional[OfThread]:
    pointer, stack = thread.thread_pointer, thread.stack_pointer
    is_here = pointer is not None and mapping.start <= pointer < mapping.end
    if is_here and pointer is not None and pointer - block_bytes <= address < pointer + arch.pthread_bytes:
        return OfThread(thread.lwp, thread.name, "thread-local storage", address - pointer)
    if stack is None or not mapping.start <= stack < mapping.end or (is_here and pointer is not None and address >= pointer):
        return None
    what = "stack" if address >= stack - arch.red_zone_bytes else "below the stack"
    return OfThread(thread.lwp, thread.name, what, address - stack)
