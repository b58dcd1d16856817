"""The graph of blocks as objects with types and references: each block by itself, or, where these are too many, by owners."""

from array import array
from typing import Any, Dict, Iterator, List, NamedTuple, Optional, Sequence, Tuple

from gdbheapx import problems
from gdbheapx.analysis.census import find, owned
from gdbheapx.analysis.reachability import look, memory_budget, owners, regions
from gdbheapx.analysis.stacks import Frame, Stack
from gdbheapx.kernel.blocks.graph import EXACT_SLOT, NO_SLOT
from gdbheapx.session import Session

MOST_OBJECTS = 2_000_000
"""A viewer keeps all of them in memory, and in tables."""
CHECK_EVERY = 1 << 14
UNNAMED = 1 << 62
"""Numbers of objects that have no address begin here."""
MAPPING, VARIABLE = "mapping", "variable"


class Type(NamedTuple):
    """What an object is."""

    name: str
    module: str


class Object(NamedTuple):
    """A node of the graph."""

    id: int
    """Its address, where it has one."""
    type: Type
    size_bytes: int
    references: Sequence[Tuple[str, int]]
    """(field, id of the object that it points to)."""
    root: Optional[str] = None
    """Of a root: DATA, THREAD_LOCAL, STACK or REGISTERS of reach/regions.py, or VARIABLE for what is gathered below one."""


def find_objects(session: Session, is_gathered: bool) -> Iterator[Object]:
    """All of them, one by one. The process runs on when this has begun. `is_gathered`: by owners, whatever their number."""
    if not is_gathered:
        memory_budget.check(session)
        told = find.label_blocks(session, lambda graph: None, is_cut=True, contents=True)
        tallied = owners.tally(session, told.reach, told.called)
        count = tallied.graph.nodes
        if count <= MOST_OBJECTS:
            return single(session, told, tallied)
        what = "%d objects are more than a viewer shows (%d): those with the same owners are one" % (count, MOST_OBJECTS)
        session.problem(problems.OBJECTS_GATHERED, None, what, "a part of them: `gdbheapx owners --of ADDR`", partial=False)
        return gathered(owned.stacks_of(session, told, tallied))
    return gathered(owned.find_stacks(session))


def single(session: Session, told: find.LabelSet, tallied: owners.Tallied) -> Iterator[Object]:
    """Every node of the graph: blocks, mappings, and roots by variable."""
    reach, graph, word = told.reach, tallied.graph, told.reach.word_bytes
    blocks = reach.numbers.blocks
    addresses, sizes = graph.columns(array("I", range(blocks)))
    names = [None if name is None else Type(name.name, name.module) for name in told.names]
    ids: Sequence[int] = addresses
    others: List[int] = []
    taken = set()
    for node in range(blocks, graph.nodes):
        address = tallied.address(node)
        is_free = address is not None and int(address) not in taken
        others.append(int(address) if is_free and address is not None else UNNAMED + node)
        taken.add(others[-1])
    fields: Dict[int, str] = {}

    def field(slot: int) -> str:
        return fields.setdefault(slot, "+0x%x" % (slot * word) if slot != NO_SLOT else "?")

    session.budget.progress.stage = "writing objects"
    by_size: Dict[int, Type] = {}
    for node, edges in enumerate(graph.each_edges(0, blocks)):
        if not node % CHECK_EVERY:
            look.check_time(session)
        label = told.labels[node]
        type_ = names[label - 1] if label else None
        if type_ is None:
            size = sizes[node]
            type_ = by_size.get(size)
            if type_ is None:
                type_ = by_size[size] = Type("%d bytes" % size, "")
        found = [(fields.get(slot) or field(slot), ids[target] if target < blocks else others[target - blocks]) for target, slot in edges]
        yield Object(addresses[node], type_, sizes[node], found)
    for node in range(blocks, graph.nodes):
        yield _outside(tallied, node, ids, others, blocks, word)


def _outside(tallied: owners.Tallied, node: int, ids: Sequence[int], others: Sequence[int], blocks: int, word: int) -> Object:
    """A mapping, or a root."""
    reach = tallied.reach
    kind, module, first = None, "", 0
    if node >= reach.roots_from:
        part = tallied.parts[node - reach.roots_from]
        kind = part.root.kind
        if part.root.module is not None:
            module = part.root.module.file_name
        if part.slot != NO_SLOT:
            variable = None
            if kind == regions.DATA and part.root.module is not None:
                variable = tallied.names.variable(part.root.module, part.root.start + part.slot * word)
            first = variable.start - part.root.start if variable is not None else part.slot * word
    found = []
    for edge in tallied.graph.edges(node):
        is_known = edge.slot < EXACT_SLOT
        name = "+0x%x" % (edge.slot * word - first) if is_known else "stack pointer" if edge.slot < NO_SLOT else "?"
        found.append((name, ids[edge.node] if edge.node < blocks else others[edge.node - blocks]))
    return Object(others[node - blocks], Type(tallied.name(node), module), 0, found, kind)


def gathered(stacks: Sequence[Stack]) -> Iterator[Object]:
    """An object for each frame below its own owners: what it has, and what it owns."""
    below: Dict[Tuple[Frame, ...], List[Tuple[Frame, ...]]] = {}
    own: Dict[Tuple[Frame, ...], Stack] = {}
    for one in stacks:
        own[one.frames] = one
        for depth in range(1, len(one.frames) + 1):
            frames = one.frames[:depth]
            if frames in below:
                continue
            below[frames] = []
            if depth > 1:
                below[frames[:-1]].append(frames)
    numbers = {frames: number for number, frames in enumerate(below, 1)}
    nothing: Any = Stack((), 0, 0)
    for frames, children in below.items():
        mine = own.get(frames, nothing)
        name = frames[-1].name if mine.blocks < 2 else "%s (%d blocks)" % (frames[-1].name, mine.blocks)
        found = [("owns", numbers[child]) for child in children]
        yield Object(numbers[frames], Type(name, frames[-1].module), mine.bytes, found, VARIABLE if len(frames) == 1 else None)
