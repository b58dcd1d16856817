"""Which rules of tcmalloc are broken, as `check` shows them: what one look told as damage, with the block that may be its cause."""

from typing import TYPE_CHECKING, Dict, List, Optional, Tuple

from gdbheapx.addons.allocators.tcmalloc import codes
from gdbheapx.allocators.rules import MOST_BROKEN, BrokenRule, Suspect, collector, sorted_out
from gdbheapx.model import Address
from gdbheapx.problems import Code, Diagnostic

if TYPE_CHECKING:
    from gdbheapx.addons.allocators.tcmalloc.allocator import TcmallocHeap

OF_RULES = {code for code in vars(codes).values() if isinstance(code, Code)}
OF_OBJECTS = (codes.FREE_LIST_BROKEN, codes.FREED_TWICE, codes.FREE_LIST_UNREADABLE)
"""Something wrote into a free object: the block before it may have been overrun."""
MOST_SUSPECTS = 20


def rules(heap: "TcmallocHeap") -> List[BrokenRule]:
    """All of them. What a thread was changing is reported as a moment, and breaks no rule."""
    told: List[Diagnostic] = []
    own = heap.anew(collector(told))
    own.survey()
    broken: Dict[Tuple[str, Optional[int]], BrokenRule] = {}

    def add(diagnostic: Diagnostic) -> None:
        code, address = diagnostic.code, diagnostic.address
        if (str(code), address) in broken or len(broken) >= MOST_BROKEN:
            return
        broken[str(code), address] = BrokenRule(
            allocator=heap.info.id,
            arena=0,
            code=code,
            address=Address(address) if address is not None else None,
            rule=str(code),
            abort=None,
            suspect=_suspect(own, address) if code in OF_OBJECTS and len(broken) < MOST_SUSPECTS else None,
            what=diagnostic.what,
        )

    sorted_out(told, OF_RULES, heap.around.report, add)
    return list(broken.values())


def _suspect(heap: "TcmallocHeap", address: Optional[int]) -> Optional[Suspect]:
    place = heap.block_at(address) if address is not None else None
    before = place.previous if place is not None else None
    if before is None or before.status != "used":
        return None
    return Suspect(before.address, before.size_bytes, before.status)
