"""Predicted effects of settings: an allocator's answer for its own settings, one record for each."""

from typing import Callable, Iterable, List, NamedTuple, Optional, Sequence

from gdbheapx.allocators.measured import Setting
from gdbheapx.model import HistogramRow
from gdbheapx.units import format_size

EXACT, BOUNDED = "exact", "bounded"
"""It follows from the heap as it is; or it depends on time and order, and has two ends."""


class Effect(NamedTuple):
    """A setting for the next start, and the memory that it would save at the same point of the program's work."""

    code: str
    """What is set: a word that never changes."""
    setting: str
    """How it is set."""
    kind: str
    """EXACT or BOUNDED."""
    least_bytes: Optional[int]
    """What RSS falls by at least; below 0: it may rise. None: not known."""
    most_bytes: Optional[int]
    """What it falls by at most; None: not known."""
    why: str
    """What the figures rest on."""
    cost: str
    is_in_force: bool = False
    """The process has it already."""
    may_peak: bool = False
    """At worst as much stays in RAM as there ever was."""
    acts_on_bytes: Optional[int] = None
    """What it is made for: the part of the free memory that it bears on, which is no bound. None: not known."""
    by: Optional[Setting] = None
    """The setting of the registry; None: it has none."""
    causes: Sequence[str] = ()
    """Codes of what keeps the memory that it acts on."""


class Requests(NamedTuple):
    """Blocks in use of one size, or of a class of sizes."""

    blocks: int
    now_bytes: int
    """What they take."""
    asked_bytes: int
    """What they were asked for in all, at least."""
    least_bytes: int
    """What each was asked for at least."""
    most_bytes: int


def effect_of_restart(free_bytes: Optional[int]) -> Effect:
    """Return the effect of a restart without a setting: free memory goes, and more where the program then has fewer or smaller blocks."""
    free = "none of the free memory" if free_bytes is None else "up to %s less" % format_size(free_bytes)
    why = "the same blocks, made anew, need %s; fewer or smaller ones save more" % free
    cost = "the process ends, and must build its state again"
    return Effect("restart", "a restart", BOUNDED, 0, None, why, cost, acts_on_bytes=free_bytes)


def of_classes(rows: Iterable[HistogramRow], block_bytes: Callable[[int], int]) -> List[Requests]:
    """Bound the requests of blocks in each size class by the next smaller class. `block_bytes` rounds a request up to its class."""
    made = []
    for row in rows:
        low, high = 1, row.size_bytes
        while low < high:
            middle = (low + high) // 2
            low, high = (low, middle) if block_bytes(middle) >= row.size_bytes else (middle + 1, high)
        if row.used_chunks:
            made.append(Requests(row.used_chunks, row.used_bytes, row.used_chunks * low, low, row.max_size_bytes))
    return made


def four_to_a_doubling(size_bytes: int) -> int:
    """The block for a request where sizes are 8, multiples of 16 up to 128, then four to a doubling."""
    if size_bytes <= 8:
        return 8
    step = 16 if size_bytes <= 128 else 1 << ((size_bytes - 1).bit_length() - 3)
    return -(-size_bytes // step) * step


def by_variable(by: Setting, value: Optional[str], acts_on_bytes: Optional[int], free_bytes: Optional[int], **words: str) -> Effect:
    """A setting with a variable of its own, which saves at most all that is free. `value`: what the process was started with. `words`:
    code, cause, why, cost."""
    if value is not None:
        return in_force(words["code"], by.text, "%s is %s" % (by.variable, value))
    code, why, cost, causes = words["code"], words["why"], words["cost"], (words["cause"],)
    return Effect(code, by.text, BOUNDED, 0, free_bytes, why, cost, may_peak=True, acts_on_bytes=acts_on_bytes, by=by, causes=causes)


def in_force(code: str, setting: str, why: str) -> Effect:
    """A setting that would change nothing."""
    return Effect(code, setting, EXACT, 0, 0, why, "none", is_in_force=True)
