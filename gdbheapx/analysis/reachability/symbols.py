"""What symbol tables and stacks tell of addresses.

Which frame of a thread's stack a pointer stands in. Stacks are kept while the process stands still; files tell the rest.
"""

import functools
from bisect import bisect_right
from typing import Dict, List, NamedTuple, Optional, Protocol, Sequence, Tuple

from gdbheapx.analysis.reachability.regions import STACK, Root
from gdbheapx.inferior.base import Call, Function, Module, StackCopy, StaticBlock, Target, Thread

MOST_BYTES, MOST_OF_ALL, LEAST_BYTES = 256 << 10, 64 << 20, 4096
"""Kept of one stack, from its stack pointer up, and of all together."""
FAR_BYTES = 1 << 30
"""Further from the stack pointer than that is another stack."""


def keep_frames(target: Target, roots: Sequence[Root]) -> Dict[int, StackCopy]:
    """By lwp, of each thread that runs on a stack that is a root."""
    copies: Dict[int, StackCopy] = {}
    stacks = [root for root in roots if root.kind == STACK and root.thread is not None]
    most = max(LEAST_BYTES, min(MOST_BYTES, MOST_OF_ALL // max(1, len(stacks))))
    for root in stacks if target.arch.unwinding is not None else ():
        thread = root.thread
        pointer = thread.stack_pointer if thread is not None else None
        if thread is None or pointer is None or thread.pc is None or not root.start <= pointer < root.end:
            continue
        there = target.touched_ranges(pointer, min(root.end, pointer + most))
        if there and there[0][0] == pointer:
            data = target.read_prefix(pointer, there[0][1] - pointer)
            copies[thread.lwp] = StackCopy(pointer, thread.pc, target.register_words(thread), data)
    return copies


def module_at(target: Target, address: int) -> Optional[Module]:
    """The object whose image holds the address."""
    return next((module for start, end, module in target.image_ranges() if start <= address < end), None)


class Frames:
    """Names for places in stacks."""

    def __init__(self, target: Target, kept: Dict[int, StackCopy]) -> None:
        self._target, self._kept = target, kept
        self._calls: Dict[int, Sequence[Call]] = {}
        self._functions: Dict[int, List[Function]] = {}
        self._named = functools.lru_cache(None)(self._function)
        """Many words lie in each call, and a program has a hundred thousand functions."""

    def at(self, lwp: int, address: int) -> Optional[str]:
        """`frame 3, work+0x12 in app`, frame 0 being the innermost; None where that is not known."""
        if lwp not in self._calls:
            self._calls[lwp] = self._target.calls(self._kept[lwp]) if lwp in self._kept else []
        number, call = next(((number, call) for number, call in enumerate(self._calls[lwp]) if address < call.end), (0, None))
        if call is None:
            return None
        name = self._named(call)
        return "frame %d%s" % (number, ", %s" % name if name else "")

    def _function(self, call: Call) -> Optional[str]:
        here = call.pc - call.is_return
        module = module_at(self._target, here)
        if module is None:
            return None
        if module.base not in self._functions:
            self._functions[module.base] = sorted(
                self._target.functions(module, exported=True), key=lambda function: (function.start, function.local, len(function.name))
            )
        rows = self._functions[module.base]
        place = bisect_right([row.start for row in rows], here) - 1
        while place > 0 and rows[place - 1].start == rows[place].start:
            place -= 1
        if place >= 0 and here < rows[place].end:
            return "%s+0x%x in %s" % (rows[place].name, call.pc - rows[place].start, module.shown_name)
        return "%s+0x%x" % (module.shown_name, call.pc - module.base)


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
        self._local: Dict[int, List[Tuple[str, int, int]]] = {}
        """Of thread-local storage, by the object's base: a symbol table is read once."""

    def variable(self, module: Module, address: int) -> Optional[Variable]:
        """See Symbols."""
        if module.base not in self._variables:
            variables: Dict[int, Variable] = {}
            for name, value, size, is_local in self._target.variables(module):
                start = module.base + value
                if size and not is_local and (start not in variables or len(name) < len(variables[start].name)):
                    variables[start] = Variable(start, start + size, name)
            rows = sorted(variables.values())
            self._variables[module.base] = [row.start for row in rows], rows
        starts, rows = self._variables[module.base]
        place = bisect_right(starts, address) - 1
        return rows[place] if place >= 0 and address < rows[place].end else None

    def in_stack(self, thread: Thread, address: int) -> Optional[str]:
        """See Symbols."""
        where = self._frames.at(thread.lwp, address)
        if where is None and thread.stack_pointer is not None and abs(address - thread.stack_pointer) < FAR_BYTES:
            away = address - thread.stack_pointer
            where = "sp%s0x%x" % ("-" if away < 0 else "+", abs(away))
        return where

    def thread_local(self, thread: Thread, address: int) -> Optional[str]:
        """See Symbols."""
        away = address - (thread.thread_pointer or 0)
        block = next((static for static in self._blocks if static.distance <= away < static.distance + static.size_bytes), None)
        if block is None:
            return None
        place = away - block.distance
        if block.module.base not in self._local:
            rows = self._target.variables(block.module)
            self._local[block.module.base] = [(name, start, size) for name, start, size, is_local in rows if is_local]
        for name, start, size in self._local[block.module.base]:
            if start <= place < start + size:
                return "%s%s in %s" % (name, "+0x%x" % (place - start) if place > start else "", block.module.shown_name)
        return "%s, 0x%x bytes into its block" % (block.module.shown_name, place)
