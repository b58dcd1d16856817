"""Chunks with a mapping of their own: mp_'s counters, and headers that are damaged."""

from typing import List, Tuple

from gdbheapx.errors import Unreadable
from gdbheapx.glibc import codes, mmapped
from gdbheapx.glibc.check.findings import Findings
from gdbheapx.glibc.context import Context
from gdbheapx.glibc.memory import anonymous_ranges, without
from gdbheapx.looks import Looks
from gdbheapx.problems import Code, Report

MMAPPED, FLAGS = 2, 7
MOST_LOOKED_AT = 4096


def tell(own: Context, found: Findings, heaps: List[Tuple[int, int]], rest: Report, looks: Looks) -> None:
    """What mp_ counts must be what there is. A header of another shape where a mapping begins is the one that is missing.

    A long search is left for the time when the process runs (`looks`), and its result looked at again.
    """

    def report(code: Code, address: object, what: str, hint: object, is_passing: bool = False) -> None:
        if code == codes.MP_DISAGREES:
            found.add("mmapped-count", own.glibc.mp.address, what)
        else:
            missing.append((code, what, hint))

    missing: List[Tuple[Code, str, object]] = []
    mine = Looks()
    mine.mapped, mine.can_wait = looks.mapped, looks.can_wait and own.glibc.id not in looks.mapped
    context = own._replace(report=report, looks=mine)
    try:
        counted = mmapped.counters(context)
        there = mmapped.find(context, heaps, counted)
    except Unreadable:
        return
    for work in mine.take_work():
        looks.later(work)
    is_short = any(code == codes.MAPPED_MISSING for code, _, _ in missing)
    lost = (counted.bytes or 0) - there.chunks.bytes if counted is not None and counted.chunks == len(there.chunks) + 1 else 0
    told = _damaged(context, found, heaps, there, lost) if is_short and lost > 0 else 0
    for code, what, hint in missing:
        if not (told and code == codes.MAPPED_MISSING):
            rest(code, own.glibc.mp.address, what, hint)  # type: ignore[arg-type]


def _damaged(context: Context, found: Findings, heaps: List[Tuple[int, int]], there: mmapped.Mmapped, lost: int) -> int:
    """Tells the header that must have been that of the mapped chunk of `lost` bytes: where unclaimed memory of just that size begins, or
    goes on behind a mapped chunk, with IS_MMAPPED and a size that is none."""
    ends = {end for _, end in there.chunks.spans()}
    glibc, page = context.glibc, context.glibc.geometry.page_bytes
    taken = sorted([*heaps, *context.others(), *there.chunks.spans()])
    told = 0
    for start, end in without(anonymous_ranges(context.target), taken)[:MOST_LOOKED_AT]:
        word = glibc.geometry.word_bytes
        data = context.target.read_prefix(start, 2 * word)
        order = "little" if glibc.geometry.little_endian else "big"
        before, field = (int.from_bytes(data[at : at + word], order) for at in (0, word))  # type: ignore[arg-type]
        size = field & ~FLAGS
        fits = end - start == lost or (start in ends and end - start >= lost)
        if fits and field & FLAGS == MMAPPED and not before % page and (size % page or size > end - start or not size):
            told += 1
            what = "a mapped chunk is missing, and here a mapping begins with a chunk of 0x%x bytes, which cannot be" % size
            found.add("mmapped-header", start, what)
    return told
