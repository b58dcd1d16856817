"""Where free lists are looked for: not in what threads have never used of their stacks."""

from typing import Any, List, NamedTuple, Optional, Sequence

import pytest

from gdbheapx.glibc.context import below_stacks
from gdbheapx.inferior.base import Mapping, Thread

PAGE = 0x1000
STACK = 0x7F0000801000


class Looked(NamedTuple):
    """What is asked of a target."""

    found: Sequence[Thread]
    mapped: Sequence[Mapping]

    def threads(self) -> Sequence[Thread]:
        return self.found

    def mappings(self) -> Sequence[Mapping]:
        return self.mapped


def thread(stack_pointer: Optional[int], thread_pointer: Optional[int]) -> Thread:
    return Thread(1, None, thread_pointer, stack_pointer, None)


CASES = (
    ([thread(STACK + 0x7F0123, STACK + 0x7FF700)], [(STACK, STACK + 0x800000)], [(STACK, STACK + 0x7F0000)]),
    ([thread(STACK + 0x7F0123, STACK + 0x7FF700), thread(STACK + 0xFF0000, STACK + 0xFFF700)], [(STACK, STACK + 0x1000000)], [(STACK, STACK + 0x7F0000), (STACK + 0x801000, STACK + 0xFF0000)]),
    ([thread(0x7F0004020000, 0x7F1000000000)], [(0x7F0004000000, 0x7F0004100000)], []),
    ([thread(None, STACK)], [(STACK, STACK + 0x800000)], []),
    ([thread(STACK - 0x100000, None)], [(STACK, STACK + 0x800000)], []),
    ([thread(STACK + 0x80, None)], [(STACK, STACK + 0x800000)], []),
)


@pytest.mark.parametrize("threads, ranges, expected", CASES, ids=["alone", "side by side", "in a heap", "unknown", "elsewhere", "full"])
def test_unused_parts_of_stacks(threads: List[Thread], ranges: Any, expected: Any) -> None:
    """From the start of the range, or the thread below, to the page of the stack pointer; nothing of a heap, nor without a stack pointer."""
    target: Any = Looked(threads, ())
    assert below_stacks(target, ranges, PAGE) == expected


def test_a_stack_that_comes_from_the_break(heap_start: int = 0x561234567000) -> None:
    """Chunks stand around it: all of the heap is looked through."""
    heap = Mapping(heap_start, heap_start + 0x100000, True, True, False, False, "[heap]", None)
    target: Any = Looked([thread(heap_start + 0x80000, None)], [heap])
    assert below_stacks(target, [(heap.start, heap.end)], PAGE) == []
