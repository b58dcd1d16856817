"""What single blocks are and who holds them, and the rules of allocators that they break."""

from array import array
from contextlib import suppress
from typing import Dict, Iterator, List, Optional, Sequence, Tuple, Union

from gdbheapx import problems
from gdbheapx.allocators.answers import BrokenRule
from gdbheapx.allocators.heap import AllocatorInstance
from gdbheapx.analysis.census import find, registry
from gdbheapx.analysis.census.containers import ContainerFinder
from gdbheapx.analysis.census.world import Signature, World, order_rows, used_blocks
from gdbheapx.analysis.reachability import dominance, heap_graph, owners, refs
from gdbheapx.analysis.reachability.heap_graph import Reach
from gdbheapx.analysis.reachability.owners import HeldContainer, HeldContainers
from gdbheapx.analysis.reachability.paths import NamedGraph, NodeNames
from gdbheapx.analysis.reachability.refs import Holder
from gdbheapx.errors import HeapxError, Unevaluated
from gdbheapx.hints import hint_command
from gdbheapx.kernel.blocks.stream import NativeBlocks
from gdbheapx.model import TargetAddress
from gdbheapx.problems import NOT_FOUND, ProblemSink
from gdbheapx.session import Session
from gdbheapx.units import count_noun


def make_named_graph(session: Session) -> NamedGraph:
    """Return the graph of all blocks in use, with blocks that runtimes have cut from memory of their own, in one read."""
    told: Optional[find.LabelSet] = session.shared(find.TOLD)
    if told is not None:
        return NamedGraph(told.reach, told.called, told.paths)
    shared: Optional[Reach] = session.shared(heap_graph.REACH)
    if shared is not None:
        return NamedGraph(shared, NodeNames(session.target, shared), None)
    world = World.of(session)
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
        counts = any(recogniser.counts_references for recogniser in registry.find_naming(World.of(session)))
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
        finder = ContainerFinder(World.of(session), tallied.reach)
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
    finder = ContainerFinder(World.of(session), reach)
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


USED = "used"
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
