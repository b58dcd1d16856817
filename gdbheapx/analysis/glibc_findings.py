"""What a reader must know about glibc's malloc before trusting or acting, and what to type next."""

from typing import List, Sequence

from gdbheapx.analysis import verdict
from gdbheapx.model import ArenaTotals, Finding


def findings(rows: Sequence[ArenaTotals]) -> List[Finding]:
    """What shows in the arenas."""
    found = []
    locked = [row for row in rows if row.locked]
    if locked:
        what = "a thread is inside malloc: its arena may be in the middle of a change"
        found.append(Finding(what, "arena %s" % ", ".join(str(row.index) for row in locked), "look again if a figure seems odd"))
    damaged = [row for row in rows if row.unparsed_bytes]
    if damaged:
        found.append(Finding("part of the heap could not be read or is damaged", "arena %s" % ", ".join(str(row.index) for row in damaged), "see the problems below"))
    return found


def next_steps(kind: str) -> List[str]:
    """Commands to type."""
    steps = {
        verdict.LEAK_LIKE: ["chunks --histogram shows which sizes are in use", "chunks --status used --sort size lists the largest"],
        verdict.HOARDING: ["trim --dry-run shows what malloc_trim would give back, arena by arena", "tunables shows the thresholds in force"],
        verdict.MIXED: ["chunks --histogram shows which sizes are in use", "trim --dry-run shows what malloc_trim would give back"],
    }
    return steps.get(kind, [])
