"""What symbol tables and stacks tell of addresses."""

from bisect import bisect_right
from typing import Dict, List, NamedTuple, Optional, Protocol, Sequence, Tuple

from gdbheapx.analysis.reachability.frames import Frames
from gdbheapx.inferior.base import Module, StackCopy, StaticBlock, Target, Thread

FAR_BYTES = 1 << 30
"""Further from the stack pointer than that is another stack."""


class Variable(NamedTuple):
    """A variable of an object."""

    start: int
    end: int
    name: str


class Symbols(Protocol):
    """Whoever can tell."""

    def variable(self, module: Module, address: int) -> Optional[Variable]:
        """The variable that has this address."""

    def in_stack(self, thread: Thread, address: int) -> Optional[str]:
        """`frame 3, work+0x12 in app`, or how far it is from the stack pointer."""

    def thread_local(self, thread: Thread, address: int) -> Optional[str]:
        """`t_cache+0x8 in app`; None where no object has a variable there."""


class TargetSymbols:
    """Of a process or core; symbol tables are read when they are asked for."""

    def __init__(self, target: Target, stacks: Dict[int, StackCopy], blocks: Sequence[StaticBlock]) -> None:
        self._target, self._blocks = target, blocks
        self._frames = Frames(target, stacks)
        self._variables: Dict[int, Tuple[List[int], List[Variable]]] = {}

    def variable(self, module: Module, address: int) -> Optional[Variable]:
        """See Symbols."""
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

    def in_stack(self, thread: Thread, address: int) -> Optional[str]:
        """See Symbols."""
        found = self._frames.at(thread.lwp, address)
        if found is None and thread.stack_pointer is not None and abs(address - thread.stack_pointer) < FAR_BYTES:
            away = address - thread.stack_pointer
            found = "sp%s0x%x" % ("-" if away < 0 else "+", abs(away))
        return found

    def thread_local(self, thread: Thread, address: int) -> Optional[str]:
        """See Symbols."""
        away = address - (thread.thread_pointer or 0)
        block = next((one for one in self._blocks if one.distance <= away < one.distance + one.size_bytes), None)
        if block is None:
            return None
        place = away - block.distance
        for name, start, size, is_local in self._target.variables(block.module):
            if is_local and start <= place < start + size:
                return "%s%s in %s" % (name, "+0x%x" % (place - start) if place > start else "", block.module.file_name)
        return "%s, 0x%x bytes into its block" % (block.module.file_name, place)
