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


def in_force(code: str, setting: str, why: str) -> Effect:
    """A setting that would change nothing."""
    return Effect(code, setting, EXACT, 0, 0, why, "none", is_in_force=True)
