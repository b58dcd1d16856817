"""The loop over the chunks of one region, in Python: what chunks.c does.

Nearly every chunk is small, is no special and contradicts nothing: `_loop` counts those, at a third of a microsecond each. Whatever is
unusual makes it raise or break, and is met by Cursor.step.
"""

from array import array
from typing import Any, List, Optional, Tuple

from gdbheapx.budget import Budget
from gdbheapx.kernel.common.records import STOP_FENCE, STOP_TIME, STOP_TOP
from gdbheapx.kernel.common.twin.pagemap import Pages
from gdbheapx.kernel.glibc.records import WalkResult
from gdbheapx.kernel.glibc.twin.step import Cursor, Window
from gdbheapx.kernel.glibc.twin.totals import Totals


def walk_region(cursor: Cursor, budget: Budget, pages: Optional[Pages]) -> WalkResult:
    """Walks one region. Ctrl-C may come between the statements of one chunk: a partial answer can then be off by that chunk."""
    totals = Totals(cursor, pages)
    try:
        stop = STOP_TIME if budget.expired() else _walk(cursor, totals, budget)
    except KeyboardInterrupt:
        budget.interrupt()
        stop = STOP_TIME
    return totals.result(stop)


def _walk(cursor: Cursor, totals: Totals, budget: Budget) -> int:
    window, reads = cursor.window, cursor.window.reads
    while True:
        if not totals.run:
            _quick(cursor, totals, window)
        if window.reads != reads:
            reads = window.reads
            if budget.expired():
                return STOP_TIME
        stop, chunk = cursor.step()
        if stop is None:
            totals.count(chunk)
            continue
        first = cursor.follows(stop)
        if stop == STOP_TOP:
            totals.settle_top()
        elif stop == STOP_FENCE:
            totals.settle_fence()
        if first is None:
            return stop
        totals.enter_piece(first, cursor.at + (cursor.size if stop == STOP_TOP else 0))


def _views(window: Window, bound: int) -> Tuple[Any, Any, Any, Any]:
    """Views of the block up to `bound` that show prev_size, size, fd and bk of a chunk at the same index: its offset / 8."""
    count = (bound - window.begin) // window.word
    if window.swapped:
        swapped = array(window.letter, window.data[: count * window.word])
        swapped.byteswap()
        words: Any = memoryview(swapped)
    else:
        words = memoryview(window.data)[: count * window.word].cast(window.letter)
    if window.word == 8:
        return words, words[1:], words[2:], words[3:]
    return words[::2], words[1::2], words[2::2], words[3::2]


def _quick(cursor: Cursor, totals: Totals, window: Window) -> None:
    """Counts chunks from cursor.at on as long as they are usual, and moves on."""
    begin, region, special = window.begin, cursor.region, cursor.next_special()
    offset = cursor.at - begin
    if not 0 <= offset < len(window.data) or offset & 7:
        return
    bound = min(begin + len(window.data), region.end)
    if bound - cursor.at < 4 * window.word:
        return
    repeated, fields, fds, bks = _views(window, bound)
    barrier = region.top if region.top >= cursor.at and region.top else bound
    if special is not None and special < barrier:
        barrier = special
    last = -((begin - barrier) // 8)
    if last < len(fields):
        fields = fields[: max(last, 0)]
    free: List[int] = []
    start = offset >> 3
    place, previous = _loop(fields, repeated, start, totals.small, free.append)
    if place == start:
        return
    totals.small_free.update(map(fields.__getitem__, free))
    counts = totals.counts
    counts["free_sum"] += begin * len(free) + 8 * sum(free)
    counts["fd_sum"] += sum(map(fds.__getitem__, free))
    counts["bk_sum"] += sum(map(bks.__getitem__, free))
    cursor.at = begin + 8 * place
    cursor.previous = begin + 8 * previous
    cursor.previous_was_quick = True


def _loop(fields: Any, repeated: Any, start: int, small: List[Any], free: Any) -> Tuple[int, int]:
    """Counts chunks by raw size field in `small` and hands the places of free ones to `free`.

    Returns the place of the first chunk not counted and that of the chunk before it. Written twice in a row, with the two places taking
    turns, to save two moves per chunk. One compare finds a free chunk whose size is not repeated behind it, one that follows a free
    chunk (PREV_INUSE clear), and one with a flag that free chunks do not carry.
    """
    place = start
    field = last = 0
    try:
        field = fields[place]
        small[field] += 1
    except (IndexError, TypeError):
        return start, start
    following = place + (field >> 3)
    try:
        while True:
            last = fields[following]
            if not last & 1:
                if repeated[following] + 1 != field:
                    break
                free(place)
            small[last] += 1
            place = following + (last >> 3)
            field = fields[place]
            if not field & 1:
                if repeated[place] + 1 != last:
                    break
                free(following)
            small[field] += 1
            following = place + (field >> 3)
    except (IndexError, TypeError):
        newest = max(place, following)
        if newest < len(fields):
            # `small` refused it: the chunk before it is settled.
            return newest, min(place, following)
    # The last counted chunk's successor is unknown or contradicts it: it is taken back, for the slow way.
    if place > following:
        place, field = following, last
    small[field] -= 1
    # The chunk before it matters only if it is free, and then its size is repeated here.
    return place, start if field & 1 or place == start else place - (repeated[place] >> 3)
