"""The graph of blocks with what runtimes call their objects."""

from array import array
from typing import Dict, Optional, Sequence, Tuple, Union

from gdbheapx.analysis.census import find, pieces, registry
from gdbheapx.analysis.census.world import World, together
from gdbheapx.analysis.reachability import heap_graph, memory_budget, refs
from gdbheapx.analysis.reachability.heap_graph import Reach
from gdbheapx.analysis.reachability.names import NamedGraph, Names
from gdbheapx.analysis.reachability.refs import Holder
from gdbheapx.errors import HeapxError, Unevaluated
from gdbheapx.hints import ask
from gdbheapx.problems import NOT_FOUND
from gdbheapx.session import Session


def make(session: Session) -> NamedGraph:
    """The graph of all blocks in use, with those that runtimes have cut of memory of their own: one read."""
    told: Optional[find.LabelSet] = session.shared(find.TOLD)
    if told is not None:
        return NamedGraph(told.reach, told.called, told.paths)
    shared: Optional[Reach] = session.shared(heap_graph.REACH)
    if shared is not None:
        return NamedGraph(shared, Names(session.target, shared), None)
    world = World.of(session)
    recognisers = registry.find_naming(world)
    asked = together([ask for recogniser in recognisers for ask in recogniser.asks(world)])
    further = pieces.of([made for recogniser in recognisers for made in recogniser.inner(world)])
    speakers = find.speakers(recognisers, world)
    if not speakers:
        reach = heap_graph.make_graph(session, slots=True, names=True, further=further)
        names = Names(session.target, reach)
        labels = array("I", [0]) * reach.numbers.blocks
        return NamedGraph(reach, names, find.paths(session, reach, names, labels, [], {}, {}))
    signer = world.signer(asked.rows, asked.sets)
    read = heap_graph.gather(session, True, names=True, signer=signer, further=further)
    matches = signer.found()
    asked.settle(matches)
    known = [find.named(asked, match) for match in matches]
    reach = heap_graph.finish(session, read)
    names = Names(session.target, reach)
    words = {label: asked.owning_words(match) for label, match in enumerate(matches, 1)}
    return NamedGraph(reach, names, find.paths(session, reach, names, signer.labels(), known, speakers, words))


def make_of_counted(session: Session) -> Optional[NamedGraph]:
    """The same where objects count references and memory stays as it was, so that garbage in cycles is found; None elsewhere."""
    if session.target.has_memory and session.shared(find.TOLD) is None:
        world = World.of(session)
        counts = any(recogniser.counts_references for recogniser in registry.find_naming(world))
        if not (counts and session.target.can_read_on) or memory_budget.fits(session, memory_budget.OWNERS_BYTES) is not None:
            return None
    elif session.shared(find.TOLD) is None:
        return None
    return make(session)


def with_containers(session: Session) -> Tuple[NamedGraph, refs.Marks]:
    """The same with what is linked: roots are variables."""
    from gdbheapx.analysis.reachability import dominance  # few ask for one block

    graph = make(session)
    tallied = dominance.tally(session, *graph)
    reach = tallied.reach_of_parts
    return graph._replace(reach=reach, names=Names(session.target, reach)), refs.Marks(reach, graph.paths, tallied)


def find_holders(session: Session, addresses: Sequence[int]) -> Dict[int, Holder]:
    """By address, what holds the blocks in use there; empty where there is no graph: the answer it was for stands without it."""
    if not addresses or memory_budget.fits(session, memory_budget.OWNERS_BYTES) is not None:
        return {}
    try:
        graph = make(session)
    except HeapxError:
        return {}
    return refs.find_holders(graph, addresses)


def find_address(session: Session, place: Union[int, str]) -> int:
    """Return the address itself, or that of what any answer calls so."""
    if isinstance(place, int):
        return place
    from gdbheapx.analysis.reachability import dominance, ownership  # few ask by name

    memory_budget.check(session)
    tallied = dominance.tally(session, *make(session))
    node = ownership.find_named(tallied, place)
    address = tallied.address(node) if node is not None else None
    if address is None:
        if isinstance(place, Unevaluated):
            raise place.error
        if find.UNNAMED_CLASS.fullmatch(place):
            hint = "a class has many blocks; `%s` counts them and names one" % ask("census --like %s", place)
        else:
            hint = "`%s` lists the names there are" % ask("owners")
        raise HeapxError("no block or variable is called %s" % place, hint, code=NOT_FOUND)
    return address
