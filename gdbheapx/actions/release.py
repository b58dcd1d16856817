"""All allocators of a process return their unused memory, each in its own way, or what they would return."""

from typing import Any, Dict, List, NamedTuple, Optional, Tuple

from gdbheapx.actions import call, foreseen
from gdbheapx.allocators.heap import Heap
from gdbheapx.allocators.returning import ALL, DryRun
from gdbheapx.analysis.acted import Acted
from gdbheapx.command import Options
from gdbheapx.errors import HeapxError, Refusal
from gdbheapx.problems import CALL_REFUSED
from gdbheapx.session import Session


class Part(NamedTuple):
    """What one allocator has returned, or would."""

    allocator: str
    command: str
    """`trim` or `purge`: what does it alone."""
    done: Optional[Acted]
    predicted: Optional[DryRun]
    """Of --dry-run."""

    @property
    def data(self) -> Dict[str, Any]:
        """As `trim` and `purge` have it, and whose it is."""
        told = self.predicted if self.done is None else self.done
        return {"allocator": self.allocator, "command": self.command, **(told.data if told is not None else {})}


def ways(session: Session) -> List[Tuple[Heap, str]]:
    """The heaps that return memory when they are asked, and the command that asks them; Refusal where there is none."""
    owner = session.heaps.one()
    asked = [
        (heap, heap.returning)
        for heap in session.heaps.all()
        if heap.info.owns_malloc or not owner.info.owns_malloc or not _is_owners(heap)
    ]
    able = [(heap, way.command) for heap, way in asked if way is not None]
    if not able:
        raise Refusal("%s owns malloc here, and returns nothing when it is asked" % owner.kind, call.instead([owner.info.name]))
    return able


def _is_owners(heap: Heap) -> bool:
    return heap.returning is not None and heap.returning.is_owners


def predict(session: Session, is_accepted: bool) -> List[Part]:
    """The dry run."""
    looks = [(heap, command, foreseen.would_return(session, heap, ALL, is_accepted)) for heap, command in ways(session)]
    return [Part(heap.info.id, command, None, look()) for heap, command, look in looks]


def run(session: Session, options: Options) -> List[Part]:
    """Ask one allocator after the other. What is refused is a problem beside what was done; Refusal where nothing was done."""
    parts: List[Part] = []
    refused: List[HeapxError] = []
    found = [(heap.info.id, command) for heap, command in ways(session)]
    for allocator, command in found:
        asked = session if not parts else session.again()
        asked.allocator_id = allocator if len(found) > 1 else session.allocator_id
        try:
            parts.append(Part(allocator, command, call.run(asked, options, command, ALL), None))
        except Refusal as error:
            refused.append(error)
    if not parts:
        raise refused[0]
    for refusal in refused:
        session.problem(CALL_REFUSED, None, refusal.message, refusal.hint, partial=False)
    return parts
