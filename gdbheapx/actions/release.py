"""Make all allocators of a process return their unused memory, each in its own way, or predict that."""

from typing import Any, Dict, List, NamedTuple, Optional, Tuple

from gdbheapx.actions import call, foreseen
from gdbheapx.allocators.heap import AllocatorInstance
from gdbheapx.allocators.returning import ALL, Acted, DryRun
from gdbheapx.command import Options
from gdbheapx.errors import HeapxError, Refusal
from gdbheapx.problems import CALL_REFUSED
from gdbheapx.session import Session


class ReleasePart(NamedTuple):
    """Memory that one allocator has returned, or would."""

    allocator: str
    command: str
    """`trim` or `purge`: what does it alone."""
    done: Optional[Acted]
    predicted: Optional[DryRun]
    """Of --dry-run."""

    @property
    def data(self) -> Dict[str, Any]:
        """Return the keys of `trim` and `purge`, and the allocator."""
        told = self.predicted if self.done is None else self.done
        return {"allocator": self.allocator, "command": self.command, **(told.data if told is not None else {})}


def find_return_ways(session: Session) -> List[Tuple[AllocatorInstance, str]]:
    """The heaps that return memory when they are asked, and the command that asks them; Refusal where there is none."""
    owner = session.heaps.one()
    asked = [
        (heap, heap.returning)
        for heap in session.heaps.all()
        if heap.info.owns_malloc or not owner.info.owns_malloc or not _is_owners(heap)
    ]
    able = [(heap, way.command) for heap, way in asked if way is not None]
    if not able:
        raise Refusal("%s owns malloc here, and returns nothing when it is asked" % owner.kind, call.hint_other_command([owner.info.name]))
    return able


def _is_owners(heap: AllocatorInstance) -> bool:
    return heap.returning is not None and heap.returning.is_owners


def predict_release(session: Session, is_accepted: bool) -> List[ReleasePart]:
    """The dry run."""
    looks = [(heap, command, foreseen.would_return(session, heap, ALL, is_accepted)) for heap, command in find_return_ways(session)]
    return [ReleasePart(heap.info.id, command, None, look()) for heap, command, look in looks]


def release_memory(session: Session, options: Options) -> List[ReleasePart]:
    """Ask one allocator after the other. What is refused is a problem beside what was done; Refusal where nothing was done."""
    parts: List[ReleasePart] = []
    refused: List[HeapxError] = []
    found = [(heap.info.id, command) for heap, command in find_return_ways(session)]
    for allocator, command in found:
        asked = session if not parts else session.again()
        asked.allocator_id = allocator if len(found) > 1 else session.allocator_id
        try:
            parts.append(ReleasePart(allocator, command, call.return_heap_memory(asked, options, command, ALL), None))
        except Refusal as error:
            refused.append(error)
    if not parts:
        raise refused[0]
    for refusal in refused:
        session.problem(CALL_REFUSED, None, refusal.message, refusal.hint, partial=False)
    return parts
