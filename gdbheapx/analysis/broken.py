"""Collect the rules of the allocators that are broken."""

from typing import NamedTuple, Sequence

from gdbheapx import problems
from gdbheapx.allocators.heap import AllocatorInstance
from gdbheapx.allocators.rules import BrokenRule, RuleSuspect
from gdbheapx.analysis.census import block
from gdbheapx.analysis.reachability import heap_graph
from gdbheapx.problems import ProblemSink
from gdbheapx.session import Session
from gdbheapx.units import count_noun

USED = "used"
MOST_SUSPECTS = 100
"""Whose owners are looked for."""
RETRY = "run it again; on a core this may be an unfinished change"


class BrokenReading(NamedTuple):
    """Result of one check of the rules."""

    rows: Sequence[BrokenRule]

    @property
    def is_finding(self) -> bool:
        """Something is broken that no change under way explains."""
        return any(row.is_sure for row in self.rows)


def check_heaps(heaps: Sequence[AllocatorInstance], note: ProblemSink) -> BrokenReading:
    """Return the broken rules of all heaps. What an unfinished change may explain makes the answer partial."""
    rows = [rule for heap in heaps for rule in heap.rules()]
    unsure = sum(not row.is_sure for row in rows)
    if unsure:
        what = "%s in a part of the heap that a thread was changing" % count_noun(unsure, "broken rule")
        note(problems.CHECK_UNSETTLED, None, what, RETRY)
    return BrokenReading(rows)


def with_suspects(session: Session, look: BrokenReading) -> BrokenReading:
    """Add the types of suspect blocks and, where it costs little, their holders."""
    shapes = {heap.info.id: heap.shape for heap in session.heaps.all()}
    suspects = {
        row.suspect.address: row.suspect.size_bytes - shapes[row.allocator].overheads[shapes[row.allocator].words.index(USED)]
        for row in look.rows
        if row.suspect is not None and row.suspect.status == USED and row.allocator in shapes
    }
    some = sorted(suspects)[:MOST_SUSPECTS]
    if not some:
        return look
    names = block.find_signatures(session, [(address, suspects[address]) for address in some])
    held = block.find_holders_by_address(session, some) if heap_graph.is_small_heap(session) else {}

    def describe_suspect(suspect: RuleSuspect) -> RuleSuspect:
        name, holder = names.get(suspect.address), held.get(suspect.address)
        # what lies behind the damage was not read: nothing is called leaked for that
        owner = holder.words() if holder is not None and holder.root is not None else None
        return suspect._replace(owner=owner, signature=name.name if name is not None else None)

    return BrokenReading([row._replace(suspect=describe_suspect(row.suspect)) if row.suspect is not None else row for row in look.rows])
