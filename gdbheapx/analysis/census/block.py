"""What single blocks are and who holds them, the rules of allocators that they break, lists of blocks, and the place of one address."""

from array import array
from bisect import bisect_right
from contextlib import suppress
from typing import Any, Dict, Iterator, List, NamedTuple, Optional, Sequence, Tuple, Union

from gdbheapx.allocators.answers import AllocatorPlace, BrokenRule
from gdbheapx.allocators.heap import AllocatorInstance
from gdbheapx.allocators.session import Session
from gdbheapx.analysis.census import find, registry
from gdbheapx.analysis.census.containers import ContainerFinder
from gdbheapx.analysis.census.registry import RuntimePiece
from gdbheapx.analysis.census.world import CensusTarget, Signature, order_rows, used_blocks
from gdbheapx.analysis.reachability import dominance, heap_graph, owners, refs
from gdbheapx.analysis.reachability.heap_graph import Reach, find_module_at
from gdbheapx.analysis.reachability.owners import HeldContainer, HeldContainers
from gdbheapx.analysis.reachability.paths import NamedGraph, NodeNames
from gdbheapx.analysis.reachability.refs import Holder
from gdbheapx.common import problems
from gdbheapx.common.errors import HeapxError, Unevaluated
from gdbheapx.common.hints import hint_again, hint_command
from gdbheapx.common.model import TargetAddress
from gdbheapx.common.problems import NOT_FOUND, NOT_IN_SNAPSHOT, ProblemSink
from gdbheapx.common.units import SentenceSize, count_noun, make_sentence
from gdbheapx.inferior.base import Mapping, Target
from gdbheapx.kernel.blocks.stream import NO_ARENA, BlockFilter, NativeBlocks


def make_named_graph(session: Session) -> NamedGraph:
    """Return the graph of all blocks in use, with blocks that runtimes have cut from memory of their own, in one read."""
    told: Optional[find.LabelSet] = session.shared(find.TOLD)
    if told is not None:
        return NamedGraph(told.reach, told.called, told.paths)
    shared: Optional[Reach] = session.shared(heap_graph.REACH)
    if shared is not None:
        return NamedGraph(shared, NodeNames(session.target, shared), None)
    world = CensusTarget.of(session)
    recognisers = registry.find_naming(world)
    asked = order_rows([ask for recogniser in recognisers for ask in recogniser.asks(world)])
    further = registry.combine_memory([made for recogniser in recognisers for made in recogniser.inner(world)])
    speakers = find.listen_to_namers(recognisers, world)
    signer = world.signer(asked.rows, asked.sets) if speakers else None
    read = heap_graph.read_world(session, True, names=True, signer=signer, further=further)
    matches = signer.found() if signer is not None else []
    if signer is not None:
        asked.settle(matches)
    known = [find.name_match(asked, match) for match in matches]
    reach = heap_graph.resolve_graph(session, read)
    labels = signer.labels() if signer is not None else array("I", [0]) * reach.numbers.blocks
    names = NodeNames(session.target, reach)
    words = {label: asked.owning_words(match) for label, match in enumerate(matches, 1)}
    return NamedGraph(reach, names, find.make_paths(session, reach, names, labels, known, speakers, words))


def make_of_counted(session: Session) -> Optional[NamedGraph]:
    """Return the named graph if objects count references and memory stays as it was, so that garbage in cycles can be found."""
    if session.shared(find.TOLD) is None:
        if not session.target.has_memory:
            return None
        counts = any(recogniser.counts_references for recogniser in registry.find_naming(CensusTarget.of(session)))
        if not (counts and session.target.can_read_on) or heap_graph.check_fit(session, heap_graph.OWNERS_BYTES) is not None:
            return None
    return make_named_graph(session)


def make_graph_with_containers(session: Session) -> Tuple[NamedGraph, refs.RefsMarks]:
    """Return the named graph with its containers, of which roots are variables."""
    graph = make_named_graph(session)
    tallied = dominance.tally_owners(session, *graph)
    reach = tallied.reach_of_parts
    return graph._replace(reach=reach, names=NodeNames(session.target, reach)), refs.RefsMarks(reach, graph.paths, tallied)


def find_address(session: Session, place: Union[int, str]) -> int:
    """Return the address itself, or that of what any answer calls so."""
    if isinstance(place, int):
        return place
    heap_graph.check_owners_fit(session)
    tallied = dominance.tally_owners(session, *make_named_graph(session))
    node = dominance.find_named_node(tallied, place)
    if node is not None and not session.target.has_memory and tallied.root(node) is not None:  # a snapshot has blocks alone
        node = dominance.find_storage(tallied, node)
    address = tallied.address(node) if node is not None else None
    if address is None:
        if isinstance(place, Unevaluated):
            raise place.error
        if find.UNNAMED_CLASS.fullmatch(place):
            hint = "a class has many blocks; `%s` counts them and names one" % hint_command("census --like %s", place)
        else:
            hint = "`%s` lists the names there are" % hint_command("owners")
        raise HeapxError("no block or variable is called %s" % place, hint, code=NOT_FOUND)
    return address


USED = "used"
AT_ONCE = 65536
CONTAINERS = "containers"
"""What a snapshot keeps of its owners' containers."""


def can_tell(session: Session) -> bool:
    """Return whether blocks can be named after all were read: memory is as it was then, or a snapshot has the names."""
    return not session.target.has_memory or session.target.can_read_on


def find_signatures(session: Session, blocks: Sequence[Tuple[int, int]], by_row: bool = True) -> Dict[int, Signature]:
    """Return signatures by address of those (address, usable bytes) that a row names; of a snapshot, without `by_row`, of all that have a
    name in it. Nothing if memory cannot be read.
    """
    rows = sorted(set(blocks))
    addresses, sizes = array("Q", (address for address, _ in rows)), array("Q", (size for _, size in rows))
    labels, names = label_by_words(session, addresses, sizes, by_row) or ((), ())
    told = ((address, names[label]) for address, label in zip(addresses, labels))
    return {address: name for address, name in told if name is not None}


def with_names(session: Session, tallied: dominance.OwnerTally, answer: owners.Owners) -> owners.Owners:
    """Add to owners the types of their blocks, and the containers that they have, as far as these are known."""
    answer = owners.add_owner_containers(answer, _find_containers(session, tallied, answer))
    if not can_tell(session):
        return answer
    told = find_signatures(session, dominance.find_owner_blocks(tallied, answer), by_row=False)
    return owners.add_owner_types(answer, {address: one.name for address, one in told.items()})


def _find_containers(session: Session, tallied: dominance.OwnerTally, answer: owners.Owners) -> Dict[int, Sequence[HeldContainer]]:
    try:
        kept: List[HeldContainers] = session.kept(CONTAINERS, Sequence[HeldContainers], list)
    except HeapxError:  # of an older release
        return {}
    known: Dict[int, Sequence[HeldContainer]] = {one.address: one.containers for one in kept}
    if session.target.has_memory and session.target.can_read_on:
        finder = ContainerFinder(CensusTarget.of(session), tallied.reach)
        for address, place in dominance.find_owner_spans(tallied, answer).items():
            if address not in known:
                known[address] = finder.within(*place)
                kept += [HeldContainers(TargetAddress(address), known[address])] if known[address] else []
    return known


def find_pointed_containers(
    session: Session, reach: heap_graph.Reach, places: Sequence[Tuple[int, Optional[int]]]
) -> Dict[int, HeldContainer]:
    """Return the container that each word belongs to, by the word's address. `places`: (address of the word, begin of its block)."""
    if not session.target.has_memory or not session.target.can_read_on:
        return {}
    finder = ContainerFinder(CensusTarget.of(session), reach)
    found = ((address, finder.around(address, start or 0)) for address, start in sorted(set(places)))
    return {address: container for address, container in found if container is not None}


Labels = Tuple["array[int]", Sequence[Optional[Signature]]]
"""(array('I'): for each block the place of what it is among the names; the names, each once, None first: nothing knows such a block)."""


def label_by_words(session: Session, addresses: "array[int]", usable_bytes: "array[int]", by_row: bool = True) -> Optional[Labels]:
    """Return labels of blocks by their words, or from a snapshot's census; None if neither can be had. `by_row`: of a snapshot, labels
    that come from what is in a block alone.
    """
    if not session.target.has_memory:
        told: Optional[find.LabelSet] = session.shared(find.TOLD)
        if told is None:
            return None
        places = (told.reach.graph.find(address) for address in addresses)
        blocks, last = told.reach.numbers.blocks, told.by_row if by_row else len(told.names)
        labels = (told.labels[place[0]] if place is not None and place[0] < blocks else 0 for place in places)
        return _merge_labels(array("I", (label if label <= last else 0 for label in labels)), told.names[:last])

    def yield_block_rows() -> Iterator[NativeBlocks]:
        for place in range(0, len(addresses), AT_ONCE):
            some = slice(place, place + AT_ONCE)
            yield used_blocks(addresses[some], usable_bytes[some])

    try:
        return _merge_labels(*find.label_by_rows(session, [yield_block_rows()]))
    except HeapxError:
        return None


def _merge_labels(label_row: "array[int]", called: Sequence[Optional[Signature]]) -> Labels:
    places: Dict[Optional[Signature], int] = {None: 0}
    moved = [0, *(places.setdefault(name, len(places)) for name in called)]
    return array("I", map(moved.__getitem__, label_row)), list(places)


def describe_signature(signature: Signature) -> str:
    """Return a signature as text: `Session of cx (exact)`."""
    return "%s%s (%s)" % (signature.name, " of %s" % signature.module if signature.module else "", signature.sure)


MOST_SUSPECTS = 100
"""Whose owners are looked for."""
RETRY = "run it again; on a core this may be an unfinished change"


def check_heaps(heaps: Sequence[AllocatorInstance], note: ProblemSink) -> Sequence[BrokenRule]:
    """Return the broken rules of all heaps. What an unfinished change may explain makes the answer partial."""
    rows = [rule for heap in heaps for rule in heap.rules()]
    unsure = sum(not row.is_sure for row in rows)
    if unsure:
        what = "%s in a part of the heap that a thread was changing" % count_noun(unsure, "broken rule")
        note(problems.CHECK_UNSETTLED, None, what, RETRY)
    return rows


def with_suspects(session: Session, rows: Sequence[BrokenRule]) -> Sequence[BrokenRule]:
    """Add the types of suspect blocks and, where it costs little, their holders."""
    shapes = {heap.info.id: heap.shape for heap in session.heaps.all()}
    suspects: Dict[int, int] = {}
    for row in rows:
        if row.suspect is not None and row.suspect.status == USED and row.allocator in shapes:
            shape = shapes[row.allocator]
            suspects[row.suspect.address] = row.suspect.size_bytes - shape.overheads[shape.words.index(USED)]
    some = sorted(suspects)[:MOST_SUSPECTS]
    if not some:
        return rows
    names = find_signatures(session, [(address, suspects[address]) for address in some])
    held: Dict[int, Holder] = {}
    if heap_graph.is_small_heap(session) and heap_graph.check_fit(session, heap_graph.OWNERS_BYTES) is None:
        with suppress(HeapxError):
            held = refs.find_block_holders(make_named_graph(session), some)
    made = []
    for row in rows:
        if row.suspect is not None:
            name, holder = names.get(row.suspect.address), held.get(row.suspect.address)
            # what lies behind the damage was not read: nothing is called leaked for that
            owner = holder.words() if holder is not None and holder.root is not None else None
            row = row._replace(suspect=row.suspect._replace(owner=owner, signature=name.name if name is not None else None))
        made.append(row)
    return made


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


def locate_in_snapshot(told: find.LabelSet, address: int) -> Location:
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
