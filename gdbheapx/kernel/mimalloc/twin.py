"""mimalloc's free lists in Python: what lists.c does."""

from array import array
from bisect import bisect_right
from typing import Any, List, Sequence

from gdbheapx.budget import Budget
from gdbheapx.inferior.base import BulkSource
from gdbheapx.kernel.common.records import ADDRESS_MASK
from gdbheapx.kernel.common.twin.kernel import PythonKernel
from gdbheapx.kernel.mimalloc.records import (
    LIST_GOOD,
    LIST_KIND_BITS,
    LIST_LONG,
    LIST_STRAY,
    LIST_UNREADABLE,
    FreeBlocks,
    FreeList,
    ListEnd,
    ListPage,
)


def follow(kernel: Any, source: BulkSource, lists: Sequence[FreeList], pages: Sequence[ListPage], budget: Budget) -> FreeBlocks:
    """See lists.follow."""
    assert isinstance(kernel, PythonKernel)
    reader, starts = kernel.open(source), [page.start for page in pages]
    found, shared, most = array("Q"), array("Q", bytes(8 * len(pages))), sum(page.blocks for page in pages)
    ends: List[ListEnd] = []
    try:
        for one in lists:
            if budget.expired():
                break
            ends.append(_follow(reader, one, pages, starts, most, found, shared))
    except KeyboardInterrupt:
        budget.interrupt()
    mask = (1 << LIST_KIND_BITS) - 1
    ordered = sorted(found)
    kinds = array("B", [value & mask for value in ordered])
    addresses = array("Q", [value & ~mask for value in ordered])
    return FreeBlocks(len(ends) == len(lists), addresses, kinds, ends, shared, len(addresses) - len(set(addresses)))


def _is_block(page: ListPage, address: int) -> bool:
    lead = address - page.start
    return lead >= 0 and bool(page.block_bytes) and lead % page.block_bytes == 0 and lead // page.block_bytes < page.blocks


def _page_of(one: FreeList, pages: Sequence[ListPage], starts: Sequence[int], address: int) -> int:
    place = one.page if one.page < len(pages) else bisect_right(starts, address) - 1
    return place if place >= 0 and _is_block(pages[place], address) else -1


def _decoded(one: FreeList, value: int) -> int:
    if not one.is_encoded:
        return value
    less, turn = (value - one.key) & ADDRESS_MASK, one.key & 63
    return ((less >> turn | less << (64 - turn)) & ADDRESS_MASK) ^ one.turn


def _follow(
    reader: Any, one: FreeList, pages: Sequence[ListPage], starts: Sequence[int], most: int, found: "array[int]", shared: "array[int]"
) -> ListEnd:
    member, members, problem, last = one.head, 0, LIST_GOOD, 0
    while member not in (0, one.null):
        place, last = _page_of(one, pages, starts, member), member
        if place < 0:
            problem = LIST_STRAY
        elif members >= (pages[place].blocks if one.page < len(pages) else most):
            problem = LIST_LONG
        else:
            data = reader.read(member, 8)
            problem = LIST_GOOD if len(data) == 8 else LIST_UNREADABLE
        if problem:
            break
        found.append(member | one.kind)
        members += 1
        if one.page >= len(pages):
            shared[place] += 1
        member = _decoded(one, int.from_bytes(data, "little"))
    return ListEnd(members, problem, last)
