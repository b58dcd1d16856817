"""Which rules of the allocators are broken: what one look found, and of a living process only what every look has shown."""

from typing import Dict, FrozenSet, List, NamedTuple, Optional, Sequence, Tuple

from gdbheapx import problems
from gdbheapx.allocators.heap import Heap
from gdbheapx.allocators.rules import BrokenRule, Suspect
from gdbheapx.analysis.census import block, named
from gdbheapx.analysis.reachability import memory_budget
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


class Broken(NamedTuple):
    """What one look gives."""

    rows: Sequence[BrokenRule]
    """Those that every look so far has shown."""

    @property
    def is_finding(self) -> bool:
        """Something is broken that no change under way explains."""
        return any(row.is_sure for row in self.rows)


def check_heaps(heaps: Sequence[Heap], attempts: Attempts, note: Note) -> Broken:
    """All heaps. What not every look has shown was a change under way, and is left out."""
    rules = [rule for heap in heaps for rule in heap.rules()]
    if attempts.has_work:  # what was put off belongs to it: the next look is the first that has all
        return Broken(rules)
    rows = _stay(rules, attempts)
    if rules:
        said = [Diagnostic(rule.code, rule.address, rule.rule, None) for rule in rules]
        attempts.contradicts(PART, said, lambda seen: _tell(rows, seen, note), not any(row.is_sure for row in rows))
    return Broken(rows)


def with_suspects(session: Session, look: Broken) -> Broken:
    """The same with what suspects are and, where it costs little, who holds them."""
    shapes = {heap.info.id: heap.shape for heap in session.heaps.all()}
    suspects = {
        row.suspect.address: row.suspect.size_bytes - shapes[row.allocator].overheads[shapes[row.allocator].words.index(USED)]
        for row in look.rows
        if row.suspect is not None and row.suspect.status == USED and row.allocator in shapes
    }
    some = sorted(suspects)[:MOST_SUSPECTS]
    if not some:
        return look
    names = block.signatures(session, [(address, suspects[address]) for address in some])
    held = named.find_holders(session, some) if memory_budget.is_small(session) else {}

    def told(suspect: Suspect) -> Suspect:
        name, holder = names.get(suspect.address), held.get(suspect.address)
        # what lies behind the damage was not read: nothing is called leaked for that
        owner = holder.words() if holder is not None and holder.root is not None else None
        return suspect._replace(owner=owner, signature=name.name if name is not None else None)

    return Broken([row._replace(suspect=told(row.suspect)) if row.suspect is not None else row for row in look.rows])


def _stay(rules: Sequence[BrokenRule], attempts: Attempts) -> List[BrokenRule]:
    seen: Dict[int, FrozenSet[Key]] = attempts.kept.setdefault(PART, {})
    seen[attempts.count] = frozenset((rule.allocator, rule.rule, rule.address) for rule in rules)
    always = frozenset.intersection(*seen.values())
    return [rule for rule in rules if (rule.allocator, rule.rule, rule.address) in always]


def _tell(rows: Sequence[BrokenRule], seen: Contradictions, note: Note) -> None:
    """Nobody looks again: what an unfinished change may explain makes the answer partial."""
    unsure = sum(not row.is_sure for row in rows)
    if unsure:
        what = "%s in a part of the heap that a thread was changing" % plural(unsure, "broken rule")
        note(problems.CHECK_UNSETTLED, None, what, RETRY)
