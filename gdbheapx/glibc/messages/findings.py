"""What a reader must know about glibc's malloc before trusting or acting, and what to type next."""

from typing import List, Optional, Sequence

from gdbheapx import findings as codes
from gdbheapx import verdict
from gdbheapx.glibc.records import ArenaTotals
from gdbheapx.model import Finding, Step
from gdbheapx.verdict import Verdict

ABORTED = "the process aborted in malloc: the heap is damaged"


def findings(rows: Sequence[ArenaTotals]) -> List[Finding]:
    """What shows in the arenas."""
    found = []
    locked = [row for row in rows if row.locked]
    if locked:
        what = "a thread is inside malloc: its arena may be in the middle of a change"
        found.append(
            Finding(
                what, "arena %s" % ", ".join(str(row.index) for row in locked), "run it again if a number looks wrong", codes.INSIDE_MALLOC
            )
        )
    damaged = [row for row in rows if row.unparsed_bytes]
    if damaged:
        evidence = "arena %s" % ", ".join(str(row.index) for row in damaged)
        found.append(Finding("part of the heap could not be read or is damaged", evidence, "see the problems below", codes.DAMAGED))
    return found


def with_abort(judged: Verdict) -> Verdict:
    """The same for a process that malloc has ended: of a small heap that is the verdict."""
    line = Finding(ABORTED, "it stands in abort(), called by malloc", "`gdbheapx check` shows the damage", codes.ABORTED_IN_MALLOC)
    if judged.kind == verdict.SMALL:
        return verdict.of_lines(verdict.SMALL, [line._replace(evidence=judged.evidence or line.evidence)], judged.sure)
    return judged._replace(lines=[*judged.lines, line])


def next_steps(kind: str, code: Optional[str] = None) -> List[Step]:
    """Commands to type."""
    if code == codes.ABORTED_IN_MALLOC:
        return [Step("check", "shows which rules of malloc are broken, and where")]
    if code == codes.ARENAS_LEFT:
        return [
            Step("arenas", "shows what is free in each arena, and which have no thread"),
            Step("tunables", "shows the thresholds in force"),
        ]
    sizes = Step("chunks --histogram", "shows which sizes are in use")
    trim = Step("trim --dry-run", "shows what malloc_trim would return to the OS, arena by arena")
    steps = {
        verdict.LEAK_LIKE: [sizes, Step("chunks --status used --sort size", "lists the largest chunks")],
        verdict.HOARDING: [trim, Step("tunables", "shows the thresholds in force")],
        verdict.FRAGMENTED: [Step("arenas", "shows for each arena what is free, and what of that a trim would return")],
        verdict.MIXED: [sizes, trim],
    }
    return steps.get(kind, [])
