"""Name what holds blocks: roots, mappings, and paths by which the program itself reaches a block."""

from typing import Annotated, Mapping, NamedTuple, Optional, Protocol, Sequence, Tuple

from gdbheapx.analysis.reachability import heap_graph
from gdbheapx.analysis.reachability.heap_graph import GraphRoot, NamedVariable, Reach, SymbolSource, TargetSymbols
from gdbheapx.columns import TEXT, Column
from gdbheapx.inferior.base import Module, Target, Thread
from gdbheapx.kernel.blocks.graph import NO_SLOT
from gdbheapx.model import TargetAddress

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
