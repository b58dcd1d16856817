"""Allocators that an answer about one of them leaves out and that hold more than it."""

from typing import List, Sequence, Tuple

from gdbheapx.allocators.heap import Heap
from gdbheapx.units import Size, say

TIMES = 2
"""Who holds so many times more is worth a note."""


def larger(shown_bytes: int, others: Sequence[Heap]) -> List[Tuple[str, str]]:
    """(what, hint) for each of the others that holds much more than what is shown, by its own counters."""
    notes: List[Tuple[str, str]] = []
    for heap in others:
        held = heap.capabilities["held-bytes"]()
        if held is not None and held >= TIMES * max(shown_bytes, 1):
            times = " (%d times as much)" % (held // shown_bytes) if shown_bytes else ""
            text = "these figures, %s, belong to the malloc that the program calls; %s in %s holds %s%s"
            what = say(text, Size(shown_bytes), heap.info.id, heap.info.object, Size(held), times)
            notes.append((what, "malloc-stats --allocator %s shows it" % heap.info.id))
    return notes
