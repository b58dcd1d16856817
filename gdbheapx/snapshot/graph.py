"""The graph of blocks in a snapshot: who points to which, and what each block is, without contents."""

import itertools
import sys
from array import array
from typing import Dict, Iterable, List, NamedTuple, Optional, Sequence, Tuple
from typing import Mapping as Parted

from gdbheapx.allocators.session import Session
from gdbheapx.analysis.census import find
from gdbheapx.analysis.census.world import Signature
from gdbheapx.analysis.reachability import dominance, heap_graph
from gdbheapx.analysis.reachability.heap_graph import HeldByField, ManagedField, NamedVariable, find_variable_at
from gdbheapx.analysis.reachability.paths import NodeNames, Path, Paths, PathStep
from gdbheapx.common import problems
from gdbheapx.common.errors import HeapxError
from gdbheapx.common.model import TargetAddress
from gdbheapx.common.problems import SNAPSHOT_DAMAGED
from gdbheapx.inferior.base import Mapping, MappingUse, Module, Thread
from gdbheapx.kernel.blocks.graph import LEAKED, NO_SLOT, OWNS_ALL, GraphNumbers, Habit, Owning
from gdbheapx.kernel.blocks.graph_queries import renumber_labels
from gdbheapx.kernel.blocks.packed import STREAMS, Move, PackedGraph, pack_numbers, unpack_numbers
from gdbheapx.snapshot import container
from gdbheapx.snapshot.container import PackedPart

PREFIX = container.STREAMS
LABELS, WEAK = "labels", "weak"
"""Streams next to those of the kernel: of each block what it is, of what a second look has found the block and its evidence."""
MOST_PLACES = 20_000
"""Pointers in stacks and thread-local storage whose frame or variable is kept."""
FAST_LEVEL = 3
WIDTHS = ((1 << 8, "B"), (1 << 16, "H"), (1 << 32, "I"))


def _pack_stream(pieces: Iterable[bytes]) -> PackedPart:
    return container.pack_part(pieces, FAST_LEVEL, container.FREE_OF_STREAM)


class KeptRoot(NamedTuple):
    """A root, or one variable of it."""

    kind: str
    start: TargetAddress
    """Of the whole root: what its slots count from."""
    bytes: int
    slot: int
    """Of the variable's first pointer; NO_SLOT where the root is whole."""
    base_bytes: int = 0
    """From the module's base to the start."""
    module: Optional[str] = None
    lwp: Optional[int] = None
    thread: Optional[str] = None
    field: Optional[str] = None
    """Of a class, whose objects hold blocks."""


class KeptNode(NamedTuple):
    """A mapping that is a node."""

    start: TargetAddress
    bytes: int
    file: str
    resident_bytes: Optional[int]
    """None where it is not known, or the node is no whole mapping."""


class KeptVariable(NamedTuple):
    """A variable that points somewhere."""

    root: int
    offset: int
    """From the start of its root."""
    bytes: int
    owner: str


class KeptPlace(NamedTuple):
    """A pointer in a stack, or in thread-local storage."""

    root: int
    slot: int
    place: str


class KeptLabel(NamedTuple):
    """Type of some blocks."""

    signature: str
    module: str
    sure: str


class KeptPath(NamedTuple):
    """Name that the program itself has for a block."""

    node: int
    path: Optional[str]
    path_steps: Sequence[PathStep]
    is_local: bool
    signature: Optional[str]
    """What it holds, and how many."""


class KeptGraph(NamedTuple):
    """Part of the graph that is not in the streams."""

    word_bytes: int
    unit_bytes: int
    has_slots: bool
    """Of blocks, too: False in files of earlier releases, and where memory was short."""
    is_low: bool
    """The heap lies below 4 GiB, where small numbers are addresses."""
    roots: Sequence[KeptRoot]
    nodes: Sequence[KeptNode]
    variables: Sequence[KeptVariable]
    places: Sequence[KeptPlace]
    labels: Sequence[KeptLabel]
    by_row: int
    """So many of the first labels come from what is in a block."""
    label_bytes: int
    """Of each block's label in the stream; the first is 1, 0 means that nothing knows the block."""
    habits: Sequence[Habit]
    looked_again: bool
    starts: Sequence[int] = ()
    """Blocks that have a name by themselves: no one owns them."""
    paths: Sequence[KeptPath] = ()
    """Of the blocks that an answer has named."""
    has_garbage: bool = False
    fields: Sequence[HeldByField] = ()
    """What objects of a runtime with a collector hold."""


def keep_graph(session: Session, moves: Sequence[Move], has_names: bool) -> Tuple[Optional[KeptGraph], Dict[str, PackedPart]]:
    """Return the graph that the commands before have made, for the file; None and no streams if there was no room or no time for it.
    `moves`: of the mappings.
    """
    told: Optional[find.LabelSet] = session.shared(find.TOLD)
    if told is None:
        return None, {}
    session.budget.progress.stage = "writing the graph of all blocks"
    try:
        return _keep_graph(session, told, moves, has_names)
    except (HeapxError, ValueError) as error:
        hint = error.hint if isinstance(error, HeapxError) else None
        session.problem(problems.NO_ANSWER, None, "the graph of blocks is not in the snapshot: %s" % error, hint)
        return None, {}


def _keep_graph(session: Session, told: find.LabelSet, moves: Sequence[Move], has_names: bool) -> Tuple[KeptGraph, Dict[str, PackedPart]]:
    tallied = dominance.tally_owners(session, told.reach, told.called, told.paths)
    reach, graph = told.reach, told.reach.graph
    streams: Dict[str, PackedPart] = {}
    for number, pieces in itertools.groupby(graph.pack(moves, True), key=lambda piece: piece[0]):
        streams[PREFIX + STREAMS[number]] = _pack_stream((data for _, data in pieces))
        heap_graph.check_time(session)
    numbers = itertools.count(1)  # of labels that have a name; 0 for others
    places = [0, *(0 if name is None else next(numbers) for name in told.names)]
    label_bytes = next(array(letter).itemsize for most, letter in WIDTHS if max(places) < most)
    streams[PREFIX + LABELS] = _pack_stream([renumber_labels(graph.library, told.labels, reach.numbers.blocks, places, label_bytes)])
    weak = session.shared(heap_graph.LOOKED_AGAIN)
    if weak:
        streams[PREFIX + WEAK] = _pack_stream([pack_numbers([number for pair in weak for number in pair])])
    nodes = []
    for node in reach.regions.nodes:
        name = node.whose or node.use.mapping.name
        nodes.append(KeptNode(TargetAddress(node.start), node.end - node.start, name, node.resident_bytes))
    model = KeptGraph(
        word_bytes=reach.word_bytes,
        unit_bytes=graph.shape.unit_bytes,
        has_slots=graph.shape.all_slots,
        is_low=any(start < 1 << 32 for start, _ in reach.heaps),
        roots=[_keep_root(root) for root in tallied.parts],
        nodes=nodes,
        variables=_keep_variables(tallied, told.called),
        places=_keep_places(tallied, told.called) if has_names else [],
        labels=[KeptLabel(name.name, name.module, name.sure) for name in told.names if name is not None],
        by_row=sum(name is not None for name in told.names[: told.by_row]),
        label_bytes=label_bytes,
        habits=reach.habits,
        looked_again=weak is not None,
        starts=sorted(told.paths.starts()) if told.paths is not None else [],
        paths=_keep_paths(told.paths, tallied),
        has_garbage=told.paths is not None and told.paths.has_garbage,
        fields=tallied.field_rows(),
    )
    return model, streams


def _keep_paths(paths: Optional[Paths], tallied: dominance.OwnerTally) -> List[KeptPath]:
    """Return the paths of the largest owners, and of all blocks that other answers have named."""
    if paths is None:
        return []
    for node, kind in tallied.tops(dominance.MOST_OWNERS):
        tallied.owned(node, kind)
    return [
        KeptPath(node, path.text if path else None, path.steps if path else (), path is not None and path.is_local, what)
        for node, (path, what) in paths.told().items()
        if path is not None or what is not None
    ]


def _keep_root(root: heap_graph.GraphRoot) -> KeptRoot:
    kept_root = KeptRoot(root.kind, TargetAddress(root.start), root.end - root.start, root.slot)
    if root.module is not None:
        kept_root = kept_root._replace(base_bytes=root.start - root.module.base, module=root.module.shown_name)
    if root.field is not None:
        kept_root = kept_root._replace(field=root.field.name)
    return kept_root if root.thread is None else kept_root._replace(lwp=root.thread.lwp, thread=root.thread.name)


def _keep_variables(tallied: dominance.OwnerTally, called: NodeNames) -> List[KeptVariable]:
    variables = []
    for number, root in enumerate(tallied.parts):
        if root.kind == heap_graph.DATA and root.module is not None:  # one that points nowhere is called by its start
            variable = called.variable(root.module, root.start + (root.slot * tallied.reach.word_bytes if root.slot != NO_SLOT else 0))
            if variable is not None:
                variables.append(KeptVariable(number, variable.start - root.start, variable.end - variable.start, variable.name))
    return variables


def _keep_places(tallied: dominance.OwnerTally, called: NodeNames) -> List[KeptPlace]:
    places: List[KeptPlace] = []
    word = tallied.reach.word_bytes
    for number, root in enumerate(tallied.parts):
        if root.kind not in (heap_graph.STACK, heap_graph.THREAD_LOCAL):
            continue
        for edge in tallied.graph.edges(tallied.reach.roots_from + number)[: MOST_PLACES - len(places)]:
            place = called.place(root, root.start + edge.slot * word)
            if place is not None:
                places.append(KeptPlace(number, edge.slot, place))
    return places


class FilePaths:
    """See Paths: what was found when the snapshot was taken."""

    def __init__(self, model: KeptGraph) -> None:
        self._starts, self.has_garbage = model.starts, model.has_garbage
        self._paths = {one.node: one for one in model.paths}

    def starts(self) -> Sequence[int]:
        """See Paths."""
        return self._starts

    def of(self, node: int) -> Optional[Path]:
        """See Paths."""
        known = self._paths.get(node)
        return Path(known.path, known.path_steps, known.is_local) if known is not None and known.path is not None else None

    def text(self, node: int) -> Optional[str]:
        """See Paths."""
        path = self.of(node)
        return path.text if path is not None else None

    def contents(self, node: int) -> Optional[str]:
        """See Paths."""
        known = self._paths.get(node)
        return known.signature if known is not None else None

    def told(self) -> Parted[int, Tuple[Optional[Path], Optional[str]]]:
        """See Paths."""
        return {node: (self.of(node), self.contents(node)) for node in self._paths}

    def split(self, roots: Sequence[heap_graph.GraphRoot]) -> None:
        """See Paths: blocks have paths, whatever roots are."""


class FileSymbols:
    """See Symbols: what was found when the snapshot was taken."""

    def __init__(self, model: KeptGraph, roots: Sequence[heap_graph.GraphRoot]) -> None:
        self._by_base: Dict[int, List[NamedVariable]] = {}
        self._places: Dict[Tuple[int, int], str] = {}
        for variable in model.variables:
            root = roots[variable.root]
            if root.module is not None:
                start = root.start + variable.offset
                row = NamedVariable(start, start + variable.bytes, variable.owner)
                self._by_base.setdefault(root.module.base, []).append(row)
        for place in model.places:
            root = roots[place.root]
            if root.thread is not None:
                self._places[root.thread.lwp, root.start + place.slot * model.word_bytes] = place.place
        for rows in self._by_base.values():
            rows.sort()

    def variable(self, module: Module, address: int) -> Optional[NamedVariable]:
        """See Symbols."""
        return find_variable_at(self._by_base.get(module.base, []), address)

    def in_stack(self, thread: Thread, address: int) -> Optional[str]:
        """See Symbols."""
        return self._places.get((thread.lwp, address))

    thread_local = in_stack


def open_kept_census(session: Session, kept: object, streams: Parted[str, PackedPart], path: str) -> find.LabelSet:
    """Return the census of all blocks, with their graph: `kept` as a file has a KeptGraph. HeapxError where the snapshot is damaged."""
    try:
        return _open_census(session, container.decode_value(KeptGraph, kept), streams, path)
    except (ValueError, IndexError, OverflowError, RecursionError) as error:
        raise HeapxError("%s is not whole: %s" % (path, str(error).split("\n")[0][:200]), container.HINT, code=SNAPSHOT_DAMAGED)


def _open_census(session: Session, model: KeptGraph, streams: Parted[str, PackedPart], path: str) -> find.LabelSet:
    nodes = [_restore_node(node) for node in model.nodes]
    mappings = [(node.start, node.end) for node in nodes]
    habits = [habit.offset for habit in model.habits]
    data = {number: streams[PREFIX + name].bytes(path) for number, name in enumerate(STREAMS) if PREFIX + name in streams}
    packed = PackedGraph(model.word_bytes, model.unit_bytes, model.has_slots, mappings, habits, data)
    graph = session.kernel.unpacked(packed, session.budget)
    count = graph.numbers()
    roots = [_restore_root(root) for root in model.roots]
    if count.nodes != count.blocks + len(nodes) + len(roots):
        raise ValueError("its graph has other roots")
    labels = _read_labels(model, streams, path, count)
    weak: Optional[List[Tuple[int, int]]] = None
    if model.looked_again:
        row = unpack_numbers(streams[PREFIX + WEAK].bytes(path)) if PREFIX + WEAK in streams else array("Q")
        weak = list(zip(row[::2], row[1::2]))
        if len(row) % 2 or any(node >= count.blocks or evidence >= LEAKED for node, evidence in weak):
            raise ValueError("evidence of no block")
    known = heap_graph.KeptReads(FileSymbols(model, roots), weak, model.fields)
    heaps = [(0, 1 << 32)] if model.is_low else []
    outside = heap_graph.Regions(roots, nodes, ())
    reach = heap_graph.Reach(graph, outside, count, model.habits, heaps, model.word_bytes, {}, [], known)
    names = [Signature(label.signature, label.module, label.sure) for label in model.labels]
    if any(not 0 <= node < count.blocks for node in (*model.starts, *(one.node for one in model.paths))):
        raise ValueError("a path to no block")
    if model.starts:
        graph.own(Owning(labels, [OWNS_ALL] * (len(names) + 1), [], model.starts))
    paths = FilePaths(model) if model.starts or model.paths else None
    return find.LabelSet(reach, labels, {}, names, NodeNames(session.target, reach), model.by_row, paths)


def _read_labels(model: KeptGraph, streams: Parted[str, PackedPart], path: str, count: GraphNumbers) -> "array[int]":
    letter = {array(letter).itemsize: letter for _, letter in WIDTHS}.get(model.label_bytes)
    if letter is None:
        raise ValueError("labels of no size")
    row = array(letter)
    row.frombytes(streams[PREFIX + LABELS].bytes(path) if PREFIX + LABELS in streams else b"")
    if sys.byteorder != "little":
        row.byteswap()
    if len(row) != count.blocks or max(row, default=0) > len(model.labels):
        raise ValueError("labels of other blocks")
    return array("I", row)


def _restore_node(node: KeptNode) -> heap_graph.GraphNode:
    start, end = node.start, node.start + node.bytes
    is_known = node.resident_bytes is not None
    mapping = Mapping(start, end if is_known else end + 1, True, True, False, False, node.file, None)
    resident = node.resident_bytes or 0
    return heap_graph.GraphNode(start, end, MappingUse(mapping, resident, pss_bytes=resident if is_known else None))


def _restore_root(root: KeptRoot) -> heap_graph.GraphRoot:
    if root.bytes < 0 or not 0 <= root.slot <= NO_SLOT:
        raise ValueError("a root of no size")
    module = Module(root.module, root.start - root.base_bytes, False, None, None) if root.module is not None else None
    thread = Thread(root.lwp, root.thread, None, None, None) if root.lwp is not None else None
    field = ManagedField(root.field, (), ()) if root.field is not None else None
    return heap_graph.GraphRoot(root.kind, int(root.start), root.start + root.bytes, module, thread, field=field, slot=root.slot)
