"""Which rules of mallocng are broken (meta.h asserts most of them in free(), and stops the process on purpose)."""

from typing import TYPE_CHECKING, Iterator, Optional, Tuple

from gdbheapx.addons.allocators.musl import codes, damage
from gdbheapx.addons.allocators.musl import native_records as api
from gdbheapx.allocators.places import neighbours
from gdbheapx.allocators.rules import MOST_BROKEN, BrokenRule, Suspect
from gdbheapx.kernel.blocks.records import BlockFilter
from gdbheapx.model import Address
from gdbheapx.problems import Code, Severity

if TYPE_CHECKING:
    from gdbheapx.addons.allocators.musl.allocator import MuslMalloc

ABORT = "nothing: it executes an instruction that raises SIGSEGV, in free(), realloc() or malloc_usable_size()"
"""a_crash(), by assert() of meta.h."""
MOST_SUSPECTS = 100
FARTHEST_BYTES = 1 << 20
"""Before what is damaged: so near a block is looked for that may have been written past."""
OF_BLOCKS = (codes.BLOCK_OVERRUN,)
"""What is damaged belongs to the block itself."""


def rules(heap: "MuslMalloc") -> Iterator[BrokenRule]:
    """Every place that breaks one, once; what cannot be read, or is under way, is reported."""
    survey = heap.survey()
    known = 0
    for code, address, what in [*damage.of_groups(heap.musl.context, survey.counted), *damage.of_slots(survey.tallies, survey.at_work)]:
        if code.nature == Severity.DAMAGE and known < MOST_BROKEN:
            known += 1
            yield _broken(heap, code, address, what, known <= MOST_SUSPECTS)


def _broken(heap: "MuslMalloc", code: Code, address: int, what: str, is_sought: bool) -> BrokenRule:
    return BrokenRule(
        allocator=heap.info.id,
        arena=0,
        code=code,
        address=Address(address),
        rule=str(code),
        abort=ABORT if code in (codes.HEADER_BROKEN, codes.BLOCK_OVERRUN, codes.GROUP_BACK) else None,
        suspect=_suspect(heap, code, address) if is_sought else None,
        what=what,
    )


def _suspect(heap: "MuslMalloc", code: Code, address: int) -> Optional[Suspect]:
    """The block in use that ends before what is damaged; or, where a slot's own block was written past, that: it may begin further on."""
    kinds = frozenset((api.MUSL_USED,))
    row: Optional[Tuple[int, ...]] = None
    if code in OF_BLOCKS:
        row = next((row for batch in heap.blocks(BlockFilter(kinds, start=address)) for row in zip(*batch)), None)
    else:
        near = neighbours(heap.blocks(BlockFilter(kinds, start=max(0, address - FARTHEST_BYTES))), heap.shape, address - 1)
        row = near.here or near.previous
    return Suspect(Address(row[0]), row[1], api.WORDS[row[3]]) if row is not None else None

