"""Allocators that an answer about one of them leaves out and that hold more than it."""

from typing import Any, List, Sequence, Tuple

from gdbheapx.analysis.verdict import human

TIMES = 2
"""Who holds so many times more is worth a note."""


def larger(shown_bytes: int, others: Sequence[Any]) -> List[Tuple[str, str]]:
    """(what, hint) for each of the others that holds much more than what is shown."""
    notes = []
    for malloc in others:
        held = malloc.counted_bytes()
        if held is not None and held >= TIMES * max(shown_bytes, 1):
            times = " (%d times as much)" % (held // shown_bytes) if shown_bytes else ""
            what = "these figures, %s, belong to the malloc that the program calls; %s in %s holds %s%s" % (
                human(shown_bytes),
                malloc.info.id,
                malloc.info.object,
                human(held),
                times,
            )
            notes.append((what, "malloc-stats --allocator %s shows it" % malloc.info.id))
    return notes
