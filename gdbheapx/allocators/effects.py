"""What a setting would change, told beforehand: what an allocator says of its own settings, one record for each."""

from typing import NamedTuple, Optional

EXACT, BOUNDED = "exact", "bounded"
"""It follows from the heap as it is; or it depends on time and order, and has two ends."""


class Effect(NamedTuple):
    """One setting at the next start, and the memory that it would save at the same point of the program's work."""

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


def restart(free_bytes: Optional[int]) -> Effect:
    """Without a setting: what lies free goes."""
    why = "at most all that is free and in RAM; where the start needs what is free now, it is free again"
    cost = "the process ends, and must build its state again"
    return Effect("restart", "a restart", BOUNDED, 0, free_bytes, why, cost, may_peak=True, acts_on_bytes=free_bytes)


def four_to_a_doubling(size_bytes: int) -> int:
    """The block for a request where sizes are 8, multiples of 16 up to 128, then four to a doubling."""
    if size_bytes <= 8:
        return 8
    step = 16 if size_bytes <= 128 else 1 << ((size_bytes - 1).bit_length() - 3)
    return -(-size_bytes // step) * step


def in_force(code: str, setting: str, why: str) -> Effect:
    """A setting that would change nothing."""
    return Effect(code, setting, EXACT, 0, 0, why, "none", is_in_force=True)
