"""What the nodes of the graph are called."""

from bisect import bisect_right
from typing import Dict, List, NamedTuple, Optional, Tuple

from gdbheapx.analysis.reach import regions
from gdbheapx.analysis.reach.frames import Frames
from gdbheapx.analysis.reach.look import Reach
from gdbheapx.analysis.reach.regions import Root
from gdbheapx.inferior.base import Module, Target, Thread
from gdbheapx.kernel.blocks.graph import NO_SLOT

FAR_BYTES = 1 << 30
"""Further from the stack pointer than that is another stack."""


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
        self._frames = Frames(target, reach.stacks)
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
        kind = {regions.THREAD_LOCAL: "thread-local storage", regions.STACK: "stack"}.get(root.kind, "registers")
        place = None
        if root.thread is not None and slot != NO_SLOT and root.kind in (regions.THREAD_LOCAL, regions.STACK):
            place = self._in_stack(root.thread, address) if root.kind == regions.STACK else self._thread_local(root.thread, address)
        return "%s of %s%s" % (kind, thread_name(root.thread), ", " + place if place else "")

    def _in_stack(self, thread: Thread, address: int) -> str:
        """`frame 3, work+0x12 in app`, or how far it is from the stack pointer."""
        found = self._frames.at(thread.lwp, address)
        if found is None and thread.stack_pointer is not None and abs(address - thread.stack_pointer) < FAR_BYTES:
            away = address - thread.stack_pointer
            found = "sp%s0x%x" % ("-" if away < 0 else "+", abs(away))
        return found or "0x%x" % address

    def _thread_local(self, thread: Thread, address: int) -> Optional[str]:
        """`t_cache+0x8 in app`; None where no object has a variable there."""
        away = address - (thread.thread_pointer or 0)
        block = next((one for one in self._reach.blocks if one.distance <= away < one.distance + one.size_bytes), None)
        if block is None:
            return None
        place = away - block.distance
        for name, start, size, is_local in self._target.variables(block.module):
            if is_local and start <= place < start + size:
                return "%s%s in %s" % (name, "+0x%x" % (place - start) if place > start else "", block.module.file_name)
        return "%s, 0x%x bytes into its block" % (block.module.file_name, place)

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
