"""What the nodes of the graph are called."""

from bisect import bisect_right
from typing import Dict, List, NamedTuple, Optional, Tuple

from gdbheapx.analysis.reach import regions
from gdbheapx.analysis.reach.look import Reach
from gdbheapx.analysis.reach.regions import Root
from gdbheapx.inferior.base import Module, Target, Thread
from gdbheapx.kernel.blocks.graph import NO_SLOT


class Variable(NamedTuple):
    """A variable of an object."""

    start: int
    end: int
    name: str


def thread_name(thread: Optional[Thread]) -> str:
    """`thread 12 (worker)`."""
    if thread is None:
        return "a thread"
    return "thread %d (%s)" % (thread.lwp, thread.name) if thread.name else "thread %d" % thread.lwp


class Names:
    """Names for one graph; symbol tables are read when they are asked for."""

    def __init__(self, target: Target, reach: Reach) -> None:
        self._target, self._reach = target, reach
        self._variables: Dict[int, Tuple[List[int], List[Variable]]] = {}

    def variable(self, module: Module, address: int) -> Optional[Variable]:
        """The variable that has this address."""
        if module.base not in self._variables:
            found: Dict[int, Variable] = {}
            for name, value, size, is_local in self._target.variables(module):
                start = module.base + value
                if size and not is_local and (start not in found or len(name) < len(found[start].name)):
                    found[start] = Variable(start, start + size, name)
            rows = sorted(found.values())
            self._variables[module.base] = [row.start for row in rows], rows
        starts, rows = self._variables[module.base]
        place = bisect_right(starts, address) - 1
        return rows[place] if place >= 0 and address < rows[place].end else None

    def at(self, module: Module, address: int) -> str:
        """`g_index in app`, or `app+0x1234`."""
        found = self.variable(module, address)
        if found is None:
            return "%s+0x%x" % (module.file_name, address - module.base)
        inside = address - found.start
        return "%s%s in %s" % (found.name, "+0x%x" % inside if inside else "", module.file_name)

    def of_root(self, root: Root, slot: int) -> str:
        """Where the pointer stands."""
        address = root.start + slot * self._target.word_bytes if slot != NO_SLOT else root.start
        if root.kind == regions.DATA and root.module is not None:
            return self.at(root.module, address)
        if root.kind == regions.THREAD_LOCAL:
            return "thread-local storage of %s" % thread_name(root.thread)
        if root.kind == regions.STACK:
            return "stack of %s, 0x%x" % (thread_name(root.thread), address)
        return "registers of %s" % thread_name(root.thread)

    def of_mapping(self, node: int) -> str:
        """`mapping 0x...-0x... NAME`."""
        found = self._reach.mapping(node)
        if found is None:
            return "a mapping"
        return ("mapping 0x%x-0x%x %s" % (found.start, found.end, found.use.mapping.name)).rstrip()

    def of(self, node: int, slot: int = NO_SLOT) -> str:
        """Any node but a block."""
        root = self._reach.root(node)
        return self.of_mapping(node) if root is None else self.of_root(root, slot)
