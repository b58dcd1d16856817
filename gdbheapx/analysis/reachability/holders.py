"""Who holds a few blocks that another answer names."""

from typing import Dict, NamedTuple, Optional, Sequence

from gdbheapx.analysis.reachability import look, memory_budget, refs
from gdbheapx.analysis.reachability.names import Names
from gdbheapx.errors import HeapxError
from gdbheapx.kernel.blocks.graph import MAYBE, class_of
from gdbheapx.model import Address
from gdbheapx.session import Session


class Holder(NamedTuple):
    """What holds a block, on the shortest way from a root."""

    block: Address
    evidence: str
    """The strongest way that leads there, as in `leaks`; `none`: it is leaked."""
    root: Optional[str]
    """None where no root leads there."""
    steps: Optional[int]
    """Pointers from the root to the block."""
    by: Optional[str]
    """The block or mapping, with the offset, whose pointer is the last of them; None where the root itself points there."""

    def words(self) -> str:
        """In few words."""
        class_ = class_of(self.evidence)
        if self.root is None or class_ == "leaked":
            return "leaked" if class_ == "leaked" else "maybe leaked: %s" % MAYBE.get(self.evidence, "only weak pointers lead there")
        way = self.root if self.steps == 1 else "%s, %d steps" % (self.root, self.steps or 0)
        return way if class_ == "held" else "%s (maybe: %s)" % (way, MAYBE.get(self.evidence, "only weak pointers lead there"))


def find(session: Session, addresses: Sequence[int], further: look.Further = look.NO_FURTHER) -> Dict[int, Holder]:
    """By address, for those that lie in a block in use; empty where there is no graph: the answer it was for stands without it. `further`:
    what counts as blocks, too."""
    if not addresses or memory_budget.fits(session, memory_budget.OWNERS_BYTES) is not None:
        return {}
    try:
        reach = look.look(session, slots=True, names=True, further=further)
    except HeapxError:
        return {}
    names, found = Names(session.target, reach), {}
    marks = refs.Marks(reach)
    for address in addresses:
        told = refs.find(reach, names, address, marks)
        if told is not None:
            found[address] = _holder(told)
    return found


def _holder(told: refs.Refs) -> Holder:
    chain = next((one for one in told.chains if one.is_held), None)
    if chain is None:
        return Holder(told.address, told.evidence, None, None, None)
    first, last = chain.steps[0], chain.steps[-1]
    by = None
    if first.root is None:
        by = "%s+%d" % (first.signature or "block %s" % first.address, first.offset or 0)
    return Holder(told.address, told.evidence, last.root, len(chain.steps) + sum(step.left_out for step in chain.steps), by)
