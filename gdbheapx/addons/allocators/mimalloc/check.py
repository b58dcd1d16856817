"""Every rule of one mimalloc that is broken, as `check` shows it."""

from typing import TYPE_CHECKING, Dict, Iterator, Optional, Set, Tuple

from gdbheapx.addons.allocators.mimalloc import codes, survey
from gdbheapx.addons.allocators.mimalloc.native_records import WORDS
from gdbheapx.addons.allocators.mimalloc.pages import Broken
from gdbheapx.allocators.rules import INSIDE, MOST_BROKEN, BrokenRule, Suspect
from gdbheapx.model import Address
from gdbheapx.problems import Severity

if TYPE_CHECKING:
    from gdbheapx.addons.allocators.mimalloc.allocator import MimallocHeap

OF_LISTS = (codes.LIST_STRAY, codes.LIST_RING)
ABORTS: Dict[str, str] = {codes.LIST_TWICE: "double free detected", codes.LIST_STRAY: "corrupted free list entry"}
"""What secure and debug builds say; others do not notice."""


def rules(heap: "MimallocHeap") -> Iterator[BrokenRule]:
    """Once each, at most so many; what cannot be read is reported, as is what a thread was changing."""
    found, mimalloc, report = survey.look(heap.mimalloc, heap.around), heap.mimalloc, heap.around.report
    arenas = {owner.thread: index for index, owner in enumerate(found.owners)}
    if not found.frees.is_whole:
        report(codes.PAGES_CUT, None, "not every free list of %s was followed" % mimalloc.id, "give --max-seconds more")
    seen: Set[Tuple[str, int]] = set()
    for one in found.broken:
        if one.code.nature is Severity.UNREAD:
            report(one.code, one.address, one.what, None)
        elif (one.code, one.address) not in seen and len(seen) < MOST_BROKEN:
            seen.add((one.code, one.address))
            yield BrokenRule(
                allocator=mimalloc.id,
                arena=arenas.get(one.thread) if one.thread is not None else None,
                code=one.code,
                address=Address(one.address),
                rule=str(one.code),
                abort=ABORTS.get(one.code) if mimalloc.form.is_encoded else None,
                suspect=_suspect(heap, found, one),
                what=one.what,
                evidence=INSIDE if one.code is codes.PAGE_CHANGING else None,
            )


def _suspect(heap: "MimallocHeap", found: survey.Survey, one: Broken) -> Optional[Suspect]:
    """A list is damaged in a free block: the block before that one is the likeliest to have been written past."""
    counted = survey.page_at(found, one.address) if one.code in OF_LISTS else None
    if counted is None:
        return None
    page = counted.page
    place = (one.address - page.start) // page.block_bytes - 1
    return Suspect(Address(page.start + place * page.block_bytes), page.block_bytes, WORDS[0]) if place >= 0 else None
