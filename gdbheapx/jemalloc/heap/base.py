"""jemalloc's own memory: the blocks that each arena's base took from the kernel for metadata."""

from typing import Iterable, List, NamedTuple, Optional

from gdbheapx.columns import add
from gdbheapx.errors import Unreadable
from gdbheapx.jemalloc import codes
from gdbheapx.jemalloc.context import Context
from gdbheapx.jemalloc.heap.arenas import Arena, base_view
from gdbheapx.jemalloc.heap.extents import writable_bytes

MAX_BLOCKS = 1 << 16
"""Blocks grow by size classes from 2 MiB: only there to end a broken list."""


class BaseBlock(NamedTuple):
    """One base_block_t."""

    address: int
    size_bytes: int


class BaseTotals(NamedTuple):
    """The counters of a base_t; None in builds without stats."""

    allocated_bytes: Optional[int]
    resident_bytes: Optional[int]
    mapped_bytes: Optional[int]


def blocks(context: Context, arena: Arena) -> List[BaseBlock]:
    """Blocks of an arena's base, newest first (base_t.blocks); reports where the list is broken and gives what came before."""
    listed: List[BaseBlock] = []
    base = base_view(context, arena.read())
    if base is None:
        context.report(
            codes.BASE_UNREADABLE, arena.address, "cannot read the base of arena %d" % arena.index, "its metadata is missing here"
        )
        return listed
    address, seen = base["blocks"], set()
    page, most_bytes = context.geometry.page_bytes, writable_bytes(context)
    while address and len(listed) < MAX_BLOCKS:
        if address in seen or address % page:
            context.report(
                codes.BASE_BROKEN,
                address,
                "the list of base blocks of arena %d is broken" % arena.index,
                "blocks after it are missing here",
            )
            break
        seen.add(address)
        try:
            block = context.view("base_block_s", address)
        except Unreadable:
            context.report(
                codes.BASE_UNREADABLE, address, "cannot read a base block of arena %d" % arena.index, "blocks after it are missing here"
            )
            break
        if block["size"] % page or not 0 < block["size"] <= most_bytes:
            context.report(
                codes.BASE_BROKEN,
                address,
                "a base block of arena %d has size 0x%x" % (arena.index, block["size"]),
                "blocks after it are missing here",
            )
            break
        listed.append(BaseBlock(address, block["size"]))
        address = block["next"]
    return listed


def totals(context: Context, arena: Arena) -> BaseTotals:
    """base_s.allocated, resident and mapped. (base.c: base_stats_get)"""
    base = base_view(context, arena.read())
    if base is None:
        return BaseTotals(None, None, None)
    return BaseTotals(base.get("allocated"), base.get("resident"), base.get("mapped"))


def mapped_sum(context: Context, parts_bytes: Iterable[Optional[int]], signed: bool = False) -> Optional[int]:
    """The sum as jemalloc's size_t has it, or below 0 with `signed`; None if any part is None.

    With opt.san_guard_small an arena's pac_mapped falls below 0 (seen in 5.3.0): then it is right only as a part of a sum that wraps.
    """
    total, values = add(parts_bytes), 1 << 8 * context.geometry.word_bytes
    if total is None:
        return None
    return (total + values // 2) % values - values // 2 if signed else total % values
