"""Paths by which programs reach their objects: the namers of runtimes, and the search along a graph."""

import functools
from array import array
from codecs import utf_8_decode
from typing import Annotated, Any, Callable, Dict, Iterable, List, Mapping, NamedTuple, Optional, Protocol, Sequence, Tuple

from gdbheapx.allocators.session import Session
from gdbheapx.analysis.addon_answers import Collector, Garbage, GarbageClass, explain_garbage
from gdbheapx.analysis.reachability import heap_graph
from gdbheapx.analysis.reachability.heap_graph import GraphRoot, NamedVariable, Reach, SymbolSource, TargetSymbols
from gdbheapx.common.columns import TEXT, Column
from gdbheapx.common.errors import HeapxError
from gdbheapx.common.model import TargetAddress
from gdbheapx.inferior.base import Module, Target, Thread
from gdbheapx.kernel.blocks.graph import LAST_OWNING_BIT, NO_NODE, NO_SLOT, OWNS_ALL, Owning, Ways
from gdbheapx.kernel.blocks.graph_queries import Counting, Cycles, find_labelled

MODULE = "module"
"""Of PathStep.kind."""


def name_thread(thread: Optional[Thread]) -> str:
    """`thread 12 (worker)`."""
    if thread is None:
        return "a thread"
    return "thread %d (%s)" % (thread.lwp, thread.name) if thread.name else "thread %d" % thread.lwp


class NodeNames:
    """Names for one graph; symbol tables are read when they are asked for."""

    def __init__(self, target: Target, reach: Reach) -> None:
        self._reach = reach
        self._symbols: SymbolSource = reach.kept.symbols if reach.kept is not None else TargetSymbols(target, reach.stacks, reach.blocks)

    def variable(self, module: Module, address: int) -> Optional[NamedVariable]:
        """The variable that has this address."""
        return self._symbols.variable(module, address)

    def place(self, root: GraphRoot, address: int) -> Optional[str]:
        """Describe the position in a stack or in thread-local storage; None where that is not known."""
        if root.thread is None or root.kind not in (heap_graph.THREAD_LOCAL, heap_graph.STACK):
            return None
        if root.kind == heap_graph.STACK and root.end - root.start == self._reach.word_bytes:
            return "argument of its start routine"
        tell = self._symbols.in_stack if root.kind == heap_graph.STACK else self._symbols.thread_local
        return tell(root.thread, address)

    def at(self, module: Module, address: int, is_short: bool = False) -> str:
        """`g_index in app`, or `app+0x1234`; `is_short`: a variable without its module."""
        variable = self.variable(module, address)
        if variable is None:
            return "%s+0x%x" % (module.shown_name, address - module.base)
        inside = address - variable.start
        word = "%s%s" % (variable.name, "+0x%x" % inside if inside else "")
        return word if is_short else "%s in %s" % (word, module.shown_name)

    def of_root(self, root: GraphRoot, slot: int) -> str:
        """Describe the position of the pointer."""
        address = root.start + slot * self._reach.word_bytes if slot != NO_SLOT else root.start
        if root.kind == heap_graph.DATA and root.module is not None:
            return self.at(root.module, address)
        if root.field is not None:
            return root.field.name
        if root.kind == heap_graph.REGISTERS and root.thread is None:
            return "control block of an ended thread"
        kind = {heap_graph.THREAD_LOCAL: "thread-local storage", heap_graph.STACK: "stack"}.get(root.kind, "registers")
        place = None
        if slot != NO_SLOT and root.thread is not None:
            place = self.place(root, address) or ("0x%x" % address if root.kind == heap_graph.STACK else None)
        return "%s of %s%s" % (kind, name_thread(root.thread), ", " + place if place else "")

    def of_object(self, root: GraphRoot, start: int, end: int) -> str:
        """`Handle.address of Store.kept.elementData[3]`: the field, and the first object that leads between two addresses."""
        at = root.field.find_object(start, end) if root.field is not None else None
        if root.field is None or at is None:
            return self.of_root(root, NO_SLOT)
        return "%s of %s" % (root.field.label or root.field.name, root.field.find_path(at) or "0x%x" % at)

    def of_mapping(self, node: int) -> str:
        """`mapping 0x...-0x... NAME`, or whose it is with its addresses."""
        mapping = self._reach.mapping(node)
        if mapping is None:
            return "a mapping"
        if mapping.whose is not None:
            return "%s, mapping 0x%x-0x%x" % (mapping.whose, mapping.start, mapping.end)
        return ("mapping 0x%x-0x%x %s" % (mapping.start, mapping.end, mapping.use.mapping.name)).rstrip()

    def of(self, node: int, slot: int = NO_SLOT) -> str:
        """Any node but a block."""
        root = self._reach.root(node)
        return self.of_mapping(node) if root is None else self.of_root(root, slot)


class PathStep(NamedTuple):
    """Step of a path."""

    kind: Annotated[str, Column("kind", TEXT)]
    name: Annotated[str, Column("name", TEXT)]
    """As it is in the path: `shop`, `._cache`, `["u:1234"]`, `[3]`."""
    address: Annotated[Optional[TargetAddress], Column("address", TEXT)]
    """Of the object that the step leads to; None of a frame."""


class Path(NamedTuple):
    """Path by which the program itself gets to a block."""

    text: str
    """As the language writes it: `shop._cache["u:1234"].items[3]`."""
    steps: Sequence[PathStep]
    is_local: bool = False
    """It begins at a local variable of a frame."""

    @property
    def is_module(self) -> bool:
        """Return True for the name of a module, whose variables have names of their own."""
        return bool(self.steps) and self.steps[-1].kind == MODULE


class Paths(Protocol):
    """Source of paths to blocks."""

    has_garbage: bool
    """What nothing points to may be garbage that waits for its collector, and no leak."""

    def starts(self) -> Sequence[int]:
        """Return the nodes that have a name by themselves, such as a module of Python."""

    def of(self, node: int) -> Optional[Path]:
        """The path to a block; None where nothing gives it a name."""

    def text(self, node: int) -> Optional[str]:
        """Return the path as text, without caching it: for many blocks."""

    def contents(self, node: int) -> Optional[str]:
        """`dict of 230,000 entries`; None where no runtime says that the block is a container."""

    def told(self) -> Mapping[int, Tuple[Optional[Path], Optional[str]]]:
        """Return the path and the contents of each node asked for so far, and of each node that has a name by itself."""

    def split(self, roots: Sequence[GraphRoot]) -> None:
        """Roots of the graph are now these."""


class NamedGraph(NamedTuple):
    """A graph, and what its nodes are called."""

    reach: Reach
    names: NodeNames
    paths: Optional[Paths]
    """None where no runtime gives any."""


__all__ = ["ALL_WORDS", "LAST_BIT", "MODULE", "Hop", "Namer", "PathStep", "Start", "decode_text", "format_path"]

ALL_WORDS = OWNS_ALL
"""Every word of a block owns what it points to."""
LEAST_FOLDED, MOST_TURN = 5, 3
"""Turns of a path, each the same steps as the one before, that are counted rather than repeated, and how many steps a turn may have."""
MOST_LETTERS, MOST_TAIL = 100, 40
"""Of a path as text, and of its end where its middle is left out: `path_steps` has it whole."""
LAST_BIT = LAST_OWNING_BIT
"""Of a mask of words: this one and all after it."""
VARIABLE, ATTRIBUTE, KEY, INDEX = "variable", "attribute", "key", "index"
FRAME, LOCAL, CLOSURE, TYPE, FIELD = "frame", "local", "closure", "type", "field"
"""Kinds of steps. FIELD: a word at an offset, where nothing knows more."""

MOST_KEY = 60
"""Characters of a key in a path."""
TEXT_BYTES, TEXT_WORDS = 240, 64
"""Of a text, and of a block, that are looked at for Namer.texts."""


class Start(NamedTuple):
    """An object that has a name by itself."""

    address: int
    """Of it, or of any place in its block."""
    steps: Sequence[PathStep]
    """`shop`, or `thread 12 (gunicorn) frame handle(): ` and `rows`."""


class Hop(NamedTuple):
    """A block on a path, and the pointer in it that leads on."""

    address: int
    """Of the block, with whatever the runtime writes before its object."""
    size_bytes: int
    signature: Optional[str]
    """What the block is, as a row of the runtime's recogniser calls it; None: no row knows it."""
    find_offset: Callable[[], Optional[int]]
    """Searches the block for the pointer to the next one: in a large table that takes a while."""


class PathMove(NamedTuple):
    """Result of following one pointer on a path."""

    position: Any
    """State of the namer's own, from which the next pointer is followed."""
    steps: Sequence[PathStep] = ()
    """Added to the path; none where the language has no word for the pointer."""
    is_open: bool = False
    """The last of these steps counts only if the path ends here: what follows says the same better."""
    opening: str = ""
    """Text that the path begins with instead of all steps before: a coroutine is known by its function, not by the list it waits in."""
    end_address: Optional[int] = None
    """New address of the last step that the path has: an element that is a pointer is called like what it leads to."""


class PathState(NamedTuple):
    """A path as far as one block."""

    move: PathMove
    above: "Optional[PathState]"
    """The block before; None at the start."""

    def steps(self) -> List[PathStep]:
        """Return all steps from the start on."""
        moves, state = [], self  # type: List[PathMove], Optional[PathState]
        while state is not None:
            moves.append(state.move)
            state = state.above
        path: List[PathStep] = []
        pending: Optional[PathStep] = None
        for move in reversed(moves):
            if move.opening:
                path = [PathStep(FRAME, move.opening, None)]
            if pending is not None and move.steps and (move.steps[0].kind == FIELD or move.steps[0].name == pending.name):
                path.append(pending)  # of a dict itself, not what it has
            if move.steps:
                path += move.steps
                pending = path.pop() if move.is_open else None
            if move.end_address is not None:
                path[-1] = path[-1]._replace(address=TargetAddress(move.end_address))
        return path if pending is None else [*path, pending]


class Namer:
    """Namer of one runtime's objects in a stopped process, a core or a copy."""

    is_collected = False
    """Its objects are freed some time after the last pointer to them: what nothing points to may be garbage, and no leak."""

    def starts(self) -> Iterable[Start]:
        """Return what has a name by itself. Earlier ones win: modules, then frames."""
        return ()

    def owning_words(self, signature: Optional[str]) -> int:
        """Return a mask of the words of such blocks that own their targets: bit n is word n, LAST_BIT word 63 and all after it. Links of
        a collector's lists and weak references own nothing. None as signature: a block that no row knows, such as bodies that objects
        own.
        """
        return ALL_WORDS

    def object_offset(self, signature: Optional[str]) -> int:
        """Return the offset in such a block at which its object begins: what a pointer to the object leads to."""
        return 0

    def owns_nothing(self) -> Iterable[int]:
        """Return addresses in blocks that own none of their targets, whatever their rows say, such as a table of interned strings; and in
        data of objects: a runtime's own variables keep only blocks without a better owner.
        """
        return ()

    def counting(self, signature: Optional[str]) -> Optional[Counting]:
        """Return how such objects count references, or None if this runtime's do not."""
        return None

    def is_of_program(self, signature: Optional[str]) -> bool:
        """Return True for a class of the program or a library, False for the runtime's own."""
        return False

    def collector(self) -> Collector:
        """Return the settings of the collector of cycles."""
        return Collector(None)

    def frozen(self) -> Iterable[int]:
        """Return addresses of objects that the collector leaves out."""
        return ()

    def items(self, signature: Optional[str]) -> Tuple[int, int]:
        """Return the offset of counted items in such a block and their size; (0, 0) if it has none. After the last item the block holds
        nothing.
        """
        return 0, 0

    def live_end(self, signature: Optional[str]) -> Optional[Callable[[int], Optional[int]]]:
        """Return a function from the address of such a block to the end of the words that hold something, or None if all do."""
        return None

    def begin_path(self, start: Start) -> PathMove:
        """Return where a path begins, with the start's own steps."""
        return PathMove(None, start.steps)

    def follow_pointer(self, position: Any, hop: Hop, below: Hop) -> Optional[PathMove]:
        """Follow the pointer of `hop` that leads into the block `below`. None: the word holds nothing any more, such as one after a
        list's length, and no path leads over it.
        """
        raise NotImplementedError

    def find_begin(self, place: int, start: int) -> Optional[int]:
        """Return the begin of the container that has the word at `place` and begins at `start` or after it; None if there is none."""
        return None

    def finish_path(self, position: Any, steps: List[PathStep], block: int) -> List[PathStep]:
        """Return the path to the block that begins at `block`, with these steps; empty if it gives no name."""
        return steps

    def contents(self, address: int, size_bytes: int, signature: Optional[str]) -> Optional[str]:
        """Return type and number of a container's elements, `dict of 230,000 entries`; None if it is no container."""
        return None

    def texts(self, address: int, size_bytes: int, signature: Optional[str]) -> Iterable[str]:
        """Return texts of the program, for commands that show its data: the characters of a string, the keys of a table, for other blocks
        the strings that they lead to. Long ones are cut; any block may be given, also one that is not the runtime's.
        """
        return ()

    def named_texts(self, address: int, size_bytes: int, signature: Optional[str]) -> Iterable[Tuple[str, str]]:
        """Return (name, text) of the object's attributes that are strings, for commands that show data."""
        return ()


class ValuePosition(NamedTuple):
    """Object that a path has reached, or a body of it: the entries of a table, the table of an object's properties."""

    kind: int
    """Of the object, as its runtime numbers them."""
    address: int
    is_beside: bool = False


class ValueNamer(Namer):
    """Namer of objects by the pointers between them, where the bodies of an object add no step."""

    def read_kind(self, address: int) -> int:
        """Return the kind of the object there, from which a path begins."""
        raise NotImplementedError

    def follow_word(self, position: ValuePosition, place: int, below: int) -> "Optional[Tuple[ValuePosition, Optional[Tuple[str, str]]]]":
        """Follow the pointer at `place`, which leads into the block `below`.

        Return the new position, and kind and name of a step or None; None if the pointer means nothing.
        """
        raise NotImplementedError

    def begin_path(self, start: Start) -> PathMove:
        """See Namer."""
        return PathMove(ValuePosition(self.read_kind(start.address), start.address), start.steps)

    def follow_pointer(self, position: ValuePosition, hop: Hop, below: Hop) -> Optional[PathMove]:
        """See Namer."""
        offset = hop.find_offset()
        moved = self.follow_word(position, hop.address + offset, below.address) if offset is not None else None
        if moved is None:
            return None
        reached, step = moved
        return PathMove(reached, [PathStep(*step, TargetAddress(reached.address))] if step is not None else ())


def quote_text(text: str, escapes: Mapping[str, str]) -> str:
    """Return a literal of the language that has these escapes and `\\u{e9}`, cut if it is long."""
    written = "".join(escapes.get(letter, letter if letter.isprintable() else "\\u{%x}" % ord(letter)) for letter in text[:MOST_KEY])
    return '"%s"' % written + ("..." if len(text) > MOST_KEY else "")


def decode_text(data: bytes) -> str:
    """Decode the first bytes of a text: UTF-8 that may be cut, or one character a byte."""
    try:
        return utf_8_decode(data, "strict", False)[0]
    except UnicodeDecodeError:
        return data.decode("latin-1")


def format_path(steps: Sequence[PathStep]) -> str:
    """Return a path as its language writes it: turns along a long list are counted (`.next x 480`), and a long path lacks its middle."""
    text = _join_turns([step.name for step in steps])
    return text if len(text) <= MOST_LETTERS else text[: MOST_LETTERS - MOST_TAIL - 3] + "..." + text[-MOST_TAIL:]


def _join_turns(names: Sequence[str]) -> str:
    parts: List[str] = []
    at = 0
    if len(names) < LEAST_FOLDED:
        return "".join(names)
    while at < len(names):
        counted = [(length, _count_turns(names, at, length)) for length in range(1, MOST_TURN + 1)]
        length, turns = max(counted, key=lambda one: one[0] * one[1])
        is_folded = turns >= LEAST_FOLDED
        parts.append("".join(names[at : at + length]) + " x %d" % turns if is_folded else names[at])
        at += length * turns if is_folded else 1
    return "".join(parts)


def _count_turns(names: Sequence[str], at: int, length: int) -> int:
    end = at + length
    while end < len(names) and names[end] == names[end - length]:
        end += 1
    return (end - at) // length


MOST_CLASSES, MOST_ASKED = 5, 8
GARBAGE = "garbage"
"""What a snapshot keeps of it for its owners."""
LEAST_BYTES = 64 << 10
"""Less is what every running program has between two collections."""


def find_garbage(session: Session, reach: Reach, paths: Optional[object]) -> Optional[Garbage]:
    """Return the garbage in cycles without its blocks; of a snapshot, what was found when it was taken."""
    try:
        kept: List[Garbage] = session.kept(GARBAGE, Sequence[Garbage], list)
    except HeapxError:  # of an older release
        return None
    if not kept and session.target.has_memory:
        found = find_cycles(reach, paths)
        kept += [found[0]] if found is not None else []
    return kept[0] if kept else None


def find_cycles(reach: Reach, paths: Optional[object]) -> Optional[Tuple[Garbage, Sequence[int]]]:
    """Return the garbage of the first runtime that counts references, and its nodes; None if there is none, or less than LEAST_BYTES.
    Memory is read."""
    if not isinstance(paths, BlockPaths) or not paths.can_read or reach.word_bytes != 8:
        return None
    if not paths.garbage:
        paths.garbage.append(_find_garbage(reach, paths))
    found: Optional[Tuple[Garbage, Sequence[int]]] = paths.garbage[0]
    return found


class LabelKind(NamedTuple):
    """Runtime and class of the blocks of one label."""

    runtime: str
    """Of the namer; empty: none knows it."""
    name: Optional[str]
    owning: Optional[int] = None
    """Which words own, as Namer.owning_words() shows it; None: the name shows that."""


class Speaker(NamedTuple):
    """Namer of a runtime, with its answers that must be read while the target is stopped."""

    namer: Namer
    starts: Sequence[Start]
    nothing: Sequence[int]
    """Addresses of blocks that own nothing."""


class BlockPaths(Paths):
    """Paths of one graph, after its resolve() and before its roots are split; memory is read when a path is asked for."""

    def __init__(
        self,
        session: Session,
        reach: Reach,
        names: NodeNames,
        labels: "array[int]",
        kinds: Sequence[LabelKind],
        speakers: Mapping[str, Speaker],
        containers: Optional[Namer],
    ) -> None:
        """Take `session`: whether memory is as it was, else only what has a name by itself gets a path; whether paths are wanted, else
        runtimes show only what owns what; and whether keys, which are data, are shown in them. `labels`: array('I'), of each block;
        `kinds`: of each label, 0 first, which has nothing; `speakers`: by runtime; `containers`: of blocks that are no runtime's; None:
        each pointer is an offset.
        """
        self._reach, self._names, self._containers = reach, names, containers
        self._has_names, self._has_keys = not session.without_names, not session.without_keys
        self.labels, self.kinds, self.speakers, self.can_read = labels, kinds, speakers, session.target.can_read_on
        self._starts: Dict[int, Tuple[Namer, Start]] = {}
        self._ways: Optional[Ways] = None
        self._roots: Sequence[heap_graph.GraphRoot] = reach.regions.roots
        self._known: Dict[int, Optional[Path]] = {}
        self._contents: Dict[int, Optional[str]] = {}
        self.has_garbage = any(speaker.namer.is_collected for speaker in speakers.values())
        self._states: Dict[Tuple[Namer, int], Optional[PathState]] = {}
        """By namer and block; None: what leads there gives no name. Ways to neighbours begin alike."""
        self._most_stale = max(MOST_STALE, MOST_PASSED // max(1, reach.graph.nodes))
        self.garbage: List[Any] = []
        """What was found of it, once it was looked for: one answer for all who ask."""
        self._stale = 0
        """Words left over that were found so far."""
        nothing: List[int] = []
        for speaker in speakers.values():
            for start in speaker.starts:
                place = reach.graph.find(start.address)
                if place is not None and place[0] < reach.numbers.blocks:
                    self._starts.setdefault(place[0], (speaker.namer, start))
            nothing += [node for address in speaker.nothing for node in self._find_nodes(address)]
        if not speakers:
            return
        # frames' variables, and memory known by an offset, come after the names of modules
        later = {node: one.steps[0].kind == FRAME or one.steps[-1].kind == FIELD for node, (_, one) in self._starts.items()}
        ordered, modules = sorted(later, key=later.__getitem__), len(later) - sum(later.values())
        masks, begins, items = [], [], []
        ends: Dict[int, Callable[[int], Optional[int]]] = {}
        for label, kind in enumerate(kinds):
            namer = speakers[kind.runtime].namer if kind.runtime in speakers else Namer()
            is_told = kind.runtime in speakers
            masks.append(kind.owning if kind.owning is not None and is_told else namer.owning_words(kind.name))
            begins.append(namer.object_offset(kind.name))
            items.append(namer.items(kind.name))
            end = namer.live_end(kind.name) if self.can_read else None
            if end is not None:
                ends[label] = end
        reach.graph.own(Owning(labels, masks, nothing, ordered, modules, begins, items))
        nodes = find_labelled(reach.graph.library, labels, ends, len(kinds), MOST_ENDS) if ends else ()
        for node, (address, size) in zip(nodes, reach.graph.blocks(nodes)):  # words behind the content own nothing
            until = ends[labels[node]](address)
            if until is not None and address <= until < address + size:
                reach.graph.loosen(node, (until - address) // reach.word_bytes)

    def _find_nodes(self, address: int) -> List[int]:
        """Return the block, the mapping or the root at the address."""
        place, first = self._reach.graph.find(address), self._reach.roots_from
        if place is not None and place[0] < self._reach.numbers.blocks:  # in no root, of which there are many
            return [place[0]]
        roots = [first + number for number, root in enumerate(self._roots) if root.start <= address < root.end]
        return [*([place[0]] if place is not None else []), *roots]

    def starts(self) -> Sequence[int]:
        return list(self._starts)

    def told(self) -> Mapping[int, Tuple[Optional[Path], Optional[str]]]:
        return {node: (self.of(node), self._contents.get(node)) for node in {*self._known, *self._starts}}

    def split(self, roots: Sequence[heap_graph.GraphRoot]) -> None:
        """Replace the roots of the graph and forget all paths."""
        self._roots, self._ways = roots, None
        self._known.clear()
        self._states.clear()

    def strong_roots(self) -> Tuple[int, int]:
        """Return first and end of the roots that are no stacks and registers."""
        strong = sum(root.kind in heap_graph.STRONG for root in self._roots)
        return self._reach.roots_from, self._reach.roots_from + strong

    def of(self, node: int) -> Optional[Path]:
        """Return the path to a block, or None if nothing gives it a name."""
        if node not in self._known:
            self._known[node] = self._find_path(node) if node < self._reach.numbers.blocks and self._has_names else None
        return self._known[node]

    def text(self, node: int) -> Optional[str]:
        is_new, path = node not in self._known, self.of(node)
        if is_new:
            del self._known[node]
        return path.text if path is not None else None

    def contents(self, node: int) -> Optional[str]:
        """Return `dict of 230,000 entries`; None if no runtime says that the block is a container."""
        if node not in self._contents and node < self._reach.numbers.blocks:
            kind = self.kinds[self.labels[node]]
            speaker = self.speakers.get(kind.runtime) if self.can_read else None
            place = self._reach.graph.blocks([node])[0]
            self._contents[node] = None if speaker is None else speaker.namer.contents(*place, kind.name)
        return self._contents.get(node)

    def _find_path(self, node: int) -> Optional[Path]:
        while True:
            way, containers = self._find_way(node), self._containers
            if way is None:
                return None
            if containers is not None and way[0] not in self._starts and self._find_speaker(way[1]) is None:
                begun = self._begin_at_variable(containers, way)
                path = self._make_path(begun, self._make_steps(containers, begun, way)) if begun is not None else None
                if path is not None or not self.speakers:
                    return path
            if way[0] in self._starts:
                namer, start = self._starts[way[0]]
            else:
                found, speaker = self._find_variable(way[0], way[1]), self._find_speaker(way[1])
                if found is None:
                    return None
                namer, start, way = speaker.namer if speaker is not None else Plain(), found, way[1:]
            if len(way) == 1:
                return self._make_path(start, start.steps)
            if not self.can_read:
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
            if state is None:
                return number, None
            hop, below = self._make_hop(way[number], way[number + 1]), self._make_hop(way[number + 1], None)
            move = namer.follow_pointer(state.move.position, hop, below)
            if move is None:
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

    def _make_path(self, start: Start, steps: Sequence[PathStep]) -> Optional[Path]:
        if not self._has_keys:
            steps = [step._replace(name=NO_KEY) if step.kind == KEY else step for step in steps]
        return Path(format_path(steps), steps, start.steps[0].kind == FRAME) if steps else None

    def _pass_by(self, namer: Namer, state: PathState, way: Sequence[int], stale: int) -> None:
        """Exclude this word from all ways, and those after it that hold nothing either: the unused rest of an array has many."""
        node, hop, word = way[stale], self._make_hop(way[stale], way[stale + 1]), self._reach.word_bytes
        first, parents = (hop.find_offset() or 0) // word, self._ways.parents_to(node) if self._ways is not None else None
        self._stale += 1
        self._reach.graph.pass_by(node, first)
        self._states.clear()
        edges = self._reach.graph.edges(node) if hop.size_bytes <= MOST_REST_BYTES else []
        for edge in edges:
            is_way = parents is not None and edge.node < self._reach.numbers.blocks and parents[edge.node] == node
            if is_way and first < edge.slot < NO_SLOT:
                other = hop._replace(find_offset=functools.partial(int, edge.slot * word))
                if namer.follow_pointer(state.move.position, other, self._make_hop(edge.node, None)) is None:
                    self._reach.graph.pass_by(node, edge.slot)
        self._ways = None

    def _find_speaker(self, node: int) -> Optional[Speaker]:
        return self.speakers.get(self.kinds[self.labels[node]].runtime) if node < self._reach.numbers.blocks else None

    def _begin_at_variable(self, containers: Namer, way: Sequence[int]) -> Optional[Start]:
        """Return the variable that a way begins at; where there are no symbols, the begin of its container."""
        root = self._roots[way[0] - self._reach.roots_from]
        offset = self._find_offset(way[0], way[1]) if self.can_read and root.kind == heap_graph.DATA else None
        if root.module is None or offset is None:
            return None
        place = root.start + offset
        variable = self._names.variable(root.module, place)
        if variable is not None:
            return Start(variable.start, [PathStep(VARIABLE, variable.name, TargetAddress(variable.start))])
        begin = containers.find_begin(place, root.start)
        begin = place if begin is None else begin
        return Start(begin, [PathStep(VARIABLE, "%s+0x%x" % (root.module.shown_name, begin - root.module.base), TargetAddress(begin))])

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
        name = self.kinds[self.labels[node]].name if node < self._reach.numbers.blocks else None
        return Hop(*self._find_node_place(node), name, lambda: self._find_offset(node, below) if below is not None else None)

    def _find_offset(self, node: int, below: int) -> Optional[int]:
        edge = self._reach.graph.edge_to(node, below)
        return None if edge is None or edge.slot == NO_SLOT else edge.slot * self._reach.word_bytes


def _find_garbage(reach: Reach, paths: BlockPaths) -> Optional[Tuple[Garbage, Sequence[int]]]:
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
        return made, nodes
    return None


MOST_HOPS = 1000
"""Of a path; a longer one is a list that was followed, and no name."""
MOST_STATES = 1 << 16
NO_KEY = "[...]"
MOST_STALE = 64
"""Words that turn out to be left over, such as one after a list's length: with each of them all ways are looked for once more."""
MOST_PASSED = 1 << 27
"""Nodes that may be passed for them, where that is more of such words: as many as take some seconds."""
MOST_ENDS = 1 << 17
"""Blocks that are asked where they end."""
MOST_REST_BYTES = 1 << 20
"""Of a block, all of whose words are looked at once one of them is stale."""


class Plain(Namer):
    """Namer of blocks that no runtime knows: each pointer is an offset."""

    def follow_pointer(self, position: None, hop: Hop, below: Hop) -> PathMove:
        """See Namer."""
        offset = hop.find_offset()
        return PathMove(None, [PathStep(FIELD, " -> ?" if offset is None else " -> +0x%x" % offset, TargetAddress(below.address))])
