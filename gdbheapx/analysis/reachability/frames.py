"""Which frame of a thread's stack a pointer stands in. Stacks are kept while the process stands still; files tell the rest."""

from bisect import bisect_right
from typing import Dict, List, Optional, Sequence

from gdbheapx.analysis.reachability.regions import STACK, Root
from gdbheapx.inferior.base import Call, Function, StackCopy, Target

MOST_BYTES, MOST_OF_ALL, LEAST_BYTES = 256 << 10, 64 << 20, 4096
"""Kept of one stack, from its stack pointer up, and of all together."""


def keep(target: Target, roots: Sequence[Root]) -> Dict[int, StackCopy]:
    """By lwp, of each thread that runs on a stack that is a root."""
    found: Dict[int, StackCopy] = {}
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
            found[thread.lwp] = StackCopy(pointer, thread.pc, target.register_words(thread), data)
    return found


class Frames:
    """Names for places in stacks."""

    def __init__(self, target: Target, kept: Dict[int, StackCopy]) -> None:
        self._target, self._kept = target, kept
        self._calls: Dict[int, Sequence[Call]] = {}
        self._functions: Dict[int, List[Function]] = {}

    def at(self, lwp: int, address: int) -> Optional[str]:
        """`frame 3, work+0x12 in app`, frame 0 being the innermost; None where that is not known."""
        if lwp not in self._calls:
            self._calls[lwp] = self._target.calls(self._kept[lwp]) if lwp in self._kept else []
        number, call = next(((number, call) for number, call in enumerate(self._calls[lwp]) if address < call.end), (0, None))
        if call is None:
            return None
        name = self._function(call)
        return "frame %d%s" % (number, ", %s" % name if name else "")

    def _function(self, call: Call) -> Optional[str]:
        here = call.pc - call.is_return
        module = next((module for start, end, module in self._target.image_ranges() if start <= here < end), None)
        if module is None:
            return None
        if module.base not in self._functions:
            self._functions[module.base] = sorted(self._target.functions(module), key=lambda one: (one.start, one.local, len(one.name)))
        rows = self._functions[module.base]
        place = bisect_right([row.start for row in rows], here) - 1
        while place > 0 and rows[place - 1].start == rows[place].start:
            place -= 1
        if place >= 0 and here < rows[place].end:
            return "%s+0x%x in %s" % (rows[place].name, call.pc - rows[place].start, module.file_name)
        return "%s+0x%x" % (module.file_name, call.pc - module.base)
