"""Which rules of the allocators are broken: what one look found, and of a living process only what every look has shown."""

from typing import Dict, FrozenSet, List, NamedTuple, Optional, Sequence, Tuple

from gdbheapx import problems
from gdbheapx.allocators.heap import Heap
from gdbheapx.allocators.rules import BrokenRule, Suspect
from gdbheapx.analysis.census import block
from gdbheapx.analysis.reachability import memory_budget, refs
from gdbheapx.budget import Attempts, Contradictions
from gdbheapx.problems import Diagnostic, Note
from gdbheapx.session import Session
from gdbheapx.units import plural

Key = Tuple[str, str, Optional[int]]
PART = "broken rules"
USED = "used"
MOST_SUSPECTS = 100
"""Whose owners are looked for."""
RETRY = "retry; on a core this may be an unfinished change"


class Look(NamedTuple):
    """What one look gives."""

    rows: Sequence[BrokenRule]
    """Those that every look so far has shown."""

    @property
    def is_finding(self) -> bool:
        """Something is broken that no change under way explains."""
        return any(one.is_sure for one in self.rows)


def look(heaps: Sequence[Heap], attempts: Attempts, note: Note) -> Look:
    """All heaps. What not every look has shown was a change under way, and is left out."""
    found = [one for heap in heaps for one in heap.rules()]
    if attempts.has_work:  # what was put off belongs to it: the next look is the first that has all
        return Look(found)
    rows = _stay(found, attempts)
    if found:
        said = [Diagnostic(one.code, one.address, one.rule, None) for one in found]
        attempts.contradicts(PART, said, lambda seen: _tell(rows, seen, note), not any(one.is_sure for one in rows))
    return Look(rows)


def with_suspects(session: Session, found: Look) -> Look:
    """The same with what suspects are and, where it costs little, who holds them."""
    shapes = {heap.info.id: heap.shape for heap in session.heaps.all()}
    suspects = {
        one.suspect.address: one.suspect.size_bytes - shapes[one.allocator].overheads[shapes[one.allocator].words.index(USED)]
        for one in found.rows
        if one.suspect is not None and one.suspect.status == USED and one.allocator in shapes
    }
    some = sorted(suspects)[:MOST_SUSPECTS]
    if not some:
        return found
    names = block.signatures(session, [(address, suspects[address]) for address in some])
    held = refs.find_holders(session, some) if memory_budget.is_small(session) else {}

    def told(one: Suspect) -> Suspect:
        name, holder = names.get(one.address), held.get(one.address)
        # what lies behind the damage was not read: nothing is called leaked for that
        owner = holder.words() if holder is not None and holder.root is not None else None
        return one._replace(owner=owner, signature=name.name if name is not None else None)

    return Look([one._replace(suspect=told(one.suspect)) if one.suspect is not None else one for one in found.rows])


def _stay(found: Sequence[BrokenRule], attempts: Attempts) -> List[BrokenRule]:
    seen: Dict[int, FrozenSet[Key]] = attempts.kept.setdefault(PART, {})
    seen[attempts.count] = frozenset((one.allocator, one.rule, one.address) for one in found)
    always = frozenset.intersection(*seen.values())
    return [one for one in found if (one.allocator, one.rule, one.address) in always]


def _tell(rows: Sequence[BrokenRule], seen: Contradictions, note: Note) -> None:
    """Nobody looks again: what an unfinished change may explain makes the answer partial."""
    unsure = sum(not one.is_sure for one in rows)
    if unsure:
        what = "%s in a part of the heap that a thread was changing" % plural(unsure, "broken rule")
        note(problems.CHECK_UNSETTLED, None, what, RETRY)
