"""Paths to the blocks of one graph: from what has a name by itself, or from a variable, along pointers that own what they lead to."""

import functools
from array import array
from typing import Any, Dict, List, Mapping, NamedTuple, Optional, Sequence, Tuple

from gdbheapx.analysis.naming.namer import (
    ALL_WORDS,
    FIELD,
    FRAME,
    KEY,
    VARIABLE,
    Hop,
    Namer,
    PathMove,
    PathState,
    PathStep,
    Start,
    format_path,
)
from gdbheapx.analysis.reachability import heap_graph
from gdbheapx.analysis.reachability import names as graph_names
from gdbheapx.analysis.reachability.garbage import Garbage, GarbageClass, explain_garbage
from gdbheapx.analysis.reachability.heap_graph import Reach
from gdbheapx.analysis.reachability.names import NodeNames
from gdbheapx.errors import HeapxError
from gdbheapx.kernel.blocks.cycles import Counting, Cycles
from gdbheapx.kernel.blocks.graph import NO_NODE, NO_SLOT, Owning, Ways
from gdbheapx.kernel.blocks.labelled import find_labelled
from gdbheapx.model import TargetAddress
from gdbheapx.session import Session

MOST_CLASSES, MOST_ASKED = 5, 8
GARBAGE = "garbage"
"""What a snapshot keeps of it for its owners."""
LEAST_BYTES = 64 << 10
"""Less is what every running program has between two collections."""


class FoundGarbage(NamedTuple):
    """The answer, and which blocks of the graph it is."""

    garbage: Garbage
    nodes: Sequence[int]


def find_garbage(session: Session, reach: Reach, paths: Optional[object]) -> Optional[Garbage]:
    """Return the garbage in cycles without its blocks; of a snapshot, what was found when it was taken."""
    try:
        kept: List[Garbage] = session.kept(GARBAGE, Sequence[Garbage], list)
    except HeapxError:  # of an older release
        return None
    if not kept and session.target.has_memory:
        found = find_cycles(reach, paths)
        kept += [found.garbage] if found is not None else []
    return kept[0] if kept else None


def find_cycles(reach: Reach, paths: Optional[object]) -> Optional[FoundGarbage]:
    """Return the garbage of the first runtime that counts references; None if there is none, or less than LEAST_BYTES. Memory is read."""
    if not isinstance(paths, BlockPaths) or not paths.can_read or reach.word_bytes != 8:
        return None
    if not paths.garbage:
        paths.garbage.append(_find_garbage(reach, paths))
    found: Optional[FoundGarbage] = paths.garbage[0]
    return found


class LabelKind(NamedTuple):
    """Runtime and class of the blocks of one label."""

    runtime: str
    """Of the namer; empty: none knows it."""
    name: Optional[str]
    owning: Optional[int] = None
    """Which words own, as Namer.owning_words() tells it; None: the name tells that."""


class PathSources(NamedTuple):
    """Labels of all blocks, and the namers of runtimes."""

    labels: "array[int]"
    """array('I'), of each block."""
    kinds: Sequence[LabelKind]
    """Of each label, 0 first: it has nothing."""
    speakers: "Mapping[str, Speaker]"
    """By runtime."""
    can_read: bool
    """Memory is as it was: else only what has a name by itself gets a path."""
    has_names: bool = True
    """Paths are wanted; if not, runtimes tell only what owns what."""
    has_keys: bool = True
    """Keys, which are data, are told in them."""
    containers: Optional[Namer] = None
    """Of blocks that are no runtime's; None: each pointer is an offset."""


class Speaker(NamedTuple):
    """Namer of a runtime, with its answers that must be read while the target is stopped."""

    namer: Namer
    starts: Sequence[Start]
    nothing: Sequence[int]
    """Addresses of blocks that own nothing."""


class BlockPaths(graph_names.Paths):
    """Paths of one graph, after its resolve() and before its roots are split; memory is read when a path is asked for."""

    def __init__(self, reach: Reach, names: NodeNames, told: PathSources) -> None:
        self._reach, self._names, self._told = reach, names, told
        self.labels, self.kinds, self.speakers, self.can_read = told.labels, told.kinds, told.speakers, told.can_read
        self._starts: Dict[int, Tuple[Namer, Start]] = {}
        self._ways: Optional[Ways] = None
        self._roots: Sequence[heap_graph.GraphRoot] = reach.regions.roots
        self._known: Dict[int, Optional[graph_names.Path]] = {}
        self._contents: Dict[int, Optional[str]] = {}
        self.has_garbage = any(speaker.namer.is_collected for speaker in told.speakers.values())
        self._states: Dict[Tuple[Namer, int], Optional[PathState]] = {}
        """By namer and block; None: what leads there gives no name. Ways to neighbours begin alike."""
        self._most_stale = max(MOST_STALE, MOST_PASSED // max(1, reach.graph.nodes))
        self.garbage: List[Any] = []
        """What was found of it, once it was looked for: one answer for all who ask."""
        self._stale = 0
        """Words left over that were found so far."""
        nothing: List[int] = []
        for speaker in told.speakers.values():
            for start in speaker.starts:
                node = self._find_block(start.address)
                if node is not None:
                    self._starts.setdefault(node, (speaker.namer, start))
            nothing += [node for address in speaker.nothing for node in self._find_nodes(address)]
        if not told.speakers:
            return
        ordered = sorted(self._starts, key=self._comes_later)
        masks, modules = [self._find_owning_mask(kind) for kind in told.kinds], len(ordered) - sum(map(self._comes_later, ordered))
        speakers = [told.speakers.get(kind.runtime) for kind in told.kinds]
        begins = [0 if one is None else one.namer.object_offset(kind.name) for one, kind in zip(speakers, told.kinds)]
        items = [(0, 0) if one is None else one.namer.items(kind.name) for one, kind in zip(speakers, told.kinds)]
        reach.graph.own(Owning(told.labels, masks, nothing, ordered, modules, begins, items))
        if told.can_read:
            self._end_blocks()

    def _comes_later(self, node: int) -> bool:
        """Return True for a frame's variable, or memory known by an offset: names of modules have precedence."""
        steps = self._starts[node][1].steps
        return steps[0].kind == FRAME or steps[-1].kind == FIELD

    def _find_owning_mask(self, kind: LabelKind) -> int:
        speaker = self._told.speakers.get(kind.runtime)
        if speaker is not None and kind.owning is not None:
            return kind.owning
        return ALL_WORDS if speaker is None else speaker.namer.owning_words(kind.name)

    def _end_blocks(self) -> None:
        """Mark words after the end of a block's content as owning nothing."""
        speakers = [self._told.speakers.get(kind.runtime) for kind in self._told.kinds]
        known = [None if one is None else one.namer.live_end(kind.name) for one, kind in zip(speakers, self._told.kinds)]
        labels = {label: end for label, end in enumerate(known) if end is not None}
        library, own = self._reach.graph.library, self._told.labels
        nodes = find_labelled(library, own, labels, len(known), MOST_ENDS) if labels else ()
        for node, (address, size) in zip(nodes, self._reach.graph.blocks(nodes)):
            end = labels[self._told.labels[node]](address)
            if end is not None and address <= end < address + size:
                self._reach.graph.loosen(node, (end - address) // self._reach.word_bytes, NO_SLOT)

    def _find_block(self, address: int) -> Optional[int]:
        place = self._reach.graph.find(address)
        return place[0] if place is not None and place[0] < self._reach.numbers.blocks else None

    def _find_nodes(self, address: int) -> List[int]:
        """Return the block, the mapping or the root at the address."""
        place, first = self._reach.graph.find(address), self._reach.roots_from
        if place is not None and place[0] < self._reach.numbers.blocks:  # in no root, of which there are many
            return [place[0]]
        roots = [first + number for number, root in enumerate(self._roots) if root.start <= address < root.end]
        return [*([place[0]] if place is not None else []), *roots]

    def starts(self) -> Sequence[int]:
        return list(self._starts)

    def told(self) -> Mapping[int, Tuple[Optional[graph_names.Path], Optional[str]]]:
        return {node: (self.of(node), self._contents.get(node)) for node in {*self._known, *self._starts}}

    def split(self, roots: Sequence[heap_graph.GraphRoot]) -> None:
        """Replace the roots of the graph and forget all paths."""
        self._roots, self._ways = roots, None
        self._known.clear()
        self._forget_states()

    def strong_roots(self) -> Tuple[int, int]:
        """Return first and end of the roots that are no stacks and registers."""
        strong = sum(root.kind in (heap_graph.DATA, heap_graph.THREAD_LOCAL) for root in self._roots)
        return self._reach.roots_from, self._reach.roots_from + strong

    def _forget_states(self) -> None:
        self._states.clear()

    def of(self, node: int) -> Optional[graph_names.Path]:
        """Return the path to a block, or None if nothing gives it a name."""
        if node not in self._known:
            self._known[node] = self._find_path(node) if node < self._reach.numbers.blocks and self._told.has_names else None
        return self._known[node]

    def text(self, node: int) -> Optional[str]:
        is_new, path = node not in self._known, self.of(node)
        if is_new:
            del self._known[node]
        return path.text if path is not None else None

    def contents(self, node: int) -> Optional[str]:
        """Return `dict of 230,000 entries`; None if no runtime says that the block is a container."""
        if node not in self._contents and node < self._reach.numbers.blocks:
            kind = self._find_node_kind(node)
            speaker = self._told.speakers.get(kind.runtime) if self._told.can_read else None
            place = self._reach.graph.blocks([node])[0]
            self._contents[node] = None if speaker is None else speaker.namer.contents(*place, kind.name)
        return self._contents.get(node)

    def _find_node_kind(self, node: int) -> LabelKind:
        return self._told.kinds[self._told.labels[node]]

    def _find_path(self, node: int) -> Optional[graph_names.Path]:
        while True:
            way, containers = self._find_way(node), self._told.containers
            if way is None:
                return None
            if containers is not None and self._is_plain(way):
                begun = self._begin_at_variable(containers, way)
                path = self._make_path(begun, self._make_steps(containers, begun, way)) if begun is not None else None
                if path is not None or not self._told.speakers:
                    return path
            known = self._begin_way(way)
            if known is None:
                return None
            namer, start, way = known
            if len(way) == 1:
                return self._make_path(start, start.steps)
            if not self._told.can_read:
                return None
            reached, state = self._walk_way(namer, start, way)
            if reached == len(way) - 1:
                return self._make_path(start, state.steps() if state is not None else ())
            if self._stale >= self._most_stale or state is None:
                return None
            self._pass_by(namer, state, way, reached)

    def _walk_way(self, namer: Namer, start: Start, way: Sequence[int]) -> Tuple[int, Optional[PathState]]:
        """Follow the pointers of a way. Return how many of them hold, and the state after the last of these; None as state if a block
        before it has no name.
        """
        first = next((number for number in range(len(way) - 1, 0, -1) if (namer, way[number]) in self._states), 0)
        state = self._states[namer, way[first]] if first else PathState(namer.begin_path(start), None)
        for number in range(first, len(way) - 1):
            move = None
            if state is not None:
                move = namer.follow_pointer(
                    state.move.position, self._make_hop(way[number], way[number + 1]), self._make_hop(way[number + 1], None)
                )
            if state is None or move is None:
                return number, state
            state = PathState(move, state)
            if len(self._states) >= MOST_STATES:
                self._states.clear()
            self._states[namer, way[number + 1]] = state
        return len(way) - 1, state

    def _make_steps(self, namer: Namer, start: Start, way: Sequence[int]) -> Sequence[PathStep]:
        """Return the path that a namer gives a block; nothing where a pointer on the way means nothing to it."""
        reached, state = self._walk_way(namer, start, way)
        if reached < len(way) - 1:
            self._states.update(((namer, node), None) for node in way[reached + 1 :])
            return ()
        return namer.finish_path(state.move.position, state.steps(), self._find_node_place(way[-1])[0]) if state is not None else ()

    def _make_path(self, start: Start, steps: Sequence[PathStep]) -> Optional[graph_names.Path]:
        if not self._told.has_keys:
            steps = [step._replace(name=NO_KEY) if step.kind == KEY else step for step in steps]
        return graph_names.Path(format_path(steps), steps, start.steps[0].kind == FRAME) if steps else None

    def _pass_by(self, namer: Namer, state: PathState, way: Sequence[int], stale: int) -> None:
        """Exclude this word from all ways, and those after it that hold nothing either: the unused rest of an array has many."""
        node, hop, word = way[stale], self._make_hop(way[stale], way[stale + 1]), self._reach.word_bytes
        first, parents = (hop.find_offset() or 0) // word, self._ways.parents_to(node) if self._ways is not None else None
        self._stale += 1
        self._reach.graph.loosen(node, first)
        self._forget_states()
        edges = self._reach.graph.edges(node) if hop.size_bytes <= MOST_REST_BYTES else []
        for edge in edges:
            is_way = parents is not None and edge.node < self._reach.numbers.blocks and parents[edge.node] == node
            if is_way and first < edge.slot < NO_SLOT:
                other = hop._replace(find_offset=functools.partial(int, edge.slot * word))
                if namer.follow_pointer(state.move.position, other, self._make_hop(edge.node, None)) is None:
                    self._reach.graph.loosen(node, edge.slot)
        self._ways = None

    def _is_plain(self, way: Sequence[int]) -> bool:
        return way[0] not in self._starts and self._find_speaker(way[1]) is None

    def _find_speaker(self, node: int) -> Optional[Speaker]:
        return self._told.speakers.get(self._find_node_kind(node).runtime) if node < self._reach.numbers.blocks else None

    def _begin_at_variable(self, containers: Namer, way: Sequence[int]) -> Optional[Start]:
        """Return the variable that a way begins at; where there are no symbols, the begin of its container."""
        root = self._roots[way[0] - self._reach.roots_from]
        offset = self._find_offset(way[0], way[1]) if self._told.can_read and root.kind == heap_graph.DATA else None
        if root.module is None or offset is None:
            return None
        place = root.start + offset
        variable = self._names.variable(root.module, place)
        if variable is not None:
            return Start(variable.start, [PathStep(VARIABLE, variable.name, TargetAddress(variable.start))])
        begin = containers.find_begin(place, root.start)
        begin = place if begin is None else begin
        return Start(begin, [PathStep(VARIABLE, "%s+0x%x" % (root.module.shown_name, begin - root.module.base), TargetAddress(begin))])

    def _begin_way(self, way: List[int]) -> Optional[Tuple[Namer, Start, List[int]]]:
        if way[0] in self._starts:
            return (*self._starts[way[0]], way)
        begun = self._find_variable(way[0], way[1])
        if begun is None:
            return None
        speaker = self._find_speaker(way[1])
        return speaker.namer if speaker is not None else Plain(), begun, way[1:]

    def _find_way(self, node: int) -> Optional[List[int]]:
        """Return the nodes from a start or a root down to the block, or None if there are none."""
        if self._ways is None:
            data = sum(root.kind == heap_graph.DATA for root in self._roots)
            self._ways = self._reach.graph.ways(self._reach.roots_from, data=data)
        way, parents, starts, roots_from = [node], self._ways.parents_to(node), self._starts, self._reach.roots_from
        while node < roots_from:
            above = parents[node]
            if above == NO_NODE and node in starts:
                break
            if above == NO_NODE or len(way) > MOST_HOPS:
                return None
            way.append(above)
            node = above
        return way[::-1]

    def _find_variable(self, root: int, below: int) -> Optional[Start]:
        """Return a global variable that leads to the block, by its name."""
        known = self._roots[root - self._reach.roots_from]
        edge = self._reach.graph.edge_to(root, below)
        if known.kind != heap_graph.DATA or known.module is None or edge is None or edge.slot == NO_SLOT:
            return None
        address = known.start + edge.slot * self._reach.word_bytes
        if self._names.variable(known.module, address) is None:
            return None
        return Start(self._find_node_place(below)[0], [PathStep(VARIABLE, self._names.at(known.module, address), TargetAddress(address))])

    def _find_node_place(self, node: int) -> Tuple[int, int]:
        """Return address and size of a block, a mapping or a root."""
        if node >= self._reach.roots_from:
            root = self._roots[node - self._reach.roots_from]
            return root.start, root.end - root.start
        mapping = self._reach.mapping(node)
        return self._reach.graph.blocks([node])[0] if mapping is None else (mapping.start, mapping.end - mapping.start)

    def _make_hop(self, node: int, below: Optional[int]) -> Hop:
        name = self._find_node_kind(node).name if node < self._reach.numbers.blocks else None
        return Hop(*self._find_node_place(node), name, lambda: self._find_offset(node, below) if below is not None else None)

    def _find_offset(self, node: int, below: int) -> Optional[int]:
        edge = self._reach.graph.edge_to(node, below)
        return None if edge is None or edge.slot == NO_SLOT else edge.slot * self._reach.word_bytes


def _find_garbage(reach: Reach, paths: BlockPaths) -> Optional[FoundGarbage]:
    for runtime, speaker in paths.speakers.items():
        namer = speaker.namer
        kinds = [kind.name if kind.runtime == runtime else None for kind in paths.kinds]
        countings = [namer.counting(name) or Counting() for name in kinds]
        if not any(counting.begin for counting in countings):
            continue
        cycles = Cycles(reach.graph, paths.strong_roots(), paths.labels, countings)
        nodes = cycles.nodes()
        places = reach.graph.blocks(nodes)
        if sum(size for _, size in places) < LEAST_BYTES:
            return None
        rows: Dict[str, List[int]] = {}
        objects, frozen_objects, frozen = 0, 0, set(namer.frozen())
        for node, (address, size) in zip(nodes, places):
            counting = countings[paths.labels[node]]
            objects += counting.is_visited
            frozen_objects += counting.is_visited and address + (counting.begin - 1) * reach.word_bytes in frozen
            if counting.begin:
                row = rows.setdefault(kinds[paths.labels[node]] or "", [0, 0, address])
                row[0] += 1
                row[1] += size
        own = sorted((name for name in rows if namer.is_of_program(name)), key=lambda name: -rows[name][1])[:MOST_ASKED]
        behind = {name: cycles.behind([label for label, kind in enumerate(kinds) if kind == name]).bytes for name in own}
        order = sorted(rows, key=lambda name: (-behind.get(name, 0), -rows[name][1]))
        classes = [GarbageClass(name, rows[name][0], rows[name][1], TargetAddress(rows[name][2]), behind.get(name)) for name in order]
        collector, size = namer.collector(), sum(size for _, size in places)
        why = explain_garbage(collector, objects, frozen_objects)
        made = Garbage(runtime, len(nodes), size, objects, frozen_objects, classes[:MOST_CLASSES], collector, why)
        return FoundGarbage(made, nodes)
    return None


MOST_HOPS = 1000
"""Of a path; a longer one is a list that was followed, and no name."""
MOST_STATES = 1 << 16
NO_KEY = "[...]"
MOST_STALE = 64
"""Words that turn out to be left over, such as one behind a list's length: with each of them all ways are looked for once more."""
MOST_PASSED = 1 << 27
"""Nodes that may be passed for them, where that is more of such words: as many as take some seconds."""
MOST_ENDS = 1 << 17
"""Blocks that are asked where they end."""
MOST_REST_BYTES = 1 << 20
"""Of a block, all of whose words are looked at once one of them is stale."""


def listen_to_namer(namer: Namer) -> Speaker:
    """Query the namer now, while memory may be read."""
    return Speaker(namer, list(namer.starts()), list(namer.owns_nothing()))


class Plain(Namer):
    """Namer of blocks that no runtime knows: each pointer is an offset."""

    def follow_pointer(self, position: None, hop: Hop, below: Hop) -> PathMove:
        """See Namer."""
        offset = hop.find_offset()
        return PathMove(None, [PathStep(FIELD, " -> ?" if offset is None else " -> +0x%x" % offset, TargetAddress(below.address))])
