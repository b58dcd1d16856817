"""What a variable or a block has in it that holds others: containers, and how many elements each has."""

from typing import NamedTuple, Optional, Sequence

from gdbheapx.model import Address
from gdbheapx.units import sentence_size

MOST_TOLD = 3
OF_ENTRIES = ("map", "set", "dict", "Map", "Set")
"""Ends of the names of what has entries."""


class Container(NamedTuple):
    """One container."""

    kind: str
    """`unordered map or set`, `list`, `vector of strings`."""
    address: Address
    size_bytes: int
    """Of the container itself, without its blocks."""
    elements: Optional[int]
    elements_bytes: Optional[int]
    """Where how large an element is is not known: all of them together."""
    spare_bytes: Optional[int] = None
    """Of its table or its room, where most of that is unused."""

    def words(self) -> str:
        """`list of 4,096`, `vector of 100 strings`, `dict of 9 entries with 92.5 MiB of unused capacity`."""
        spare = " with %s of unused capacity" % sentence_size(self.spare_bytes) if self.spare_bytes is not None else ""
        kind, _, elements = self.kind.partition(" of ")
        if self.elements is None:
            return "%s%s%s" % (kind, "" if self.elements_bytes is None else " of %s" % sentence_size(self.elements_bytes), spare)
        noun = elements[:-1] or ("entry" if kind.endswith(OF_ENTRIES) else "")
        more = noun if self.elements == 1 else elements or ("entries" if noun else "")
        return ("%s of %s %s" % (kind, "{:,}".format(self.elements), more)).rstrip() + spare


class Held(NamedTuple):
    """The containers of one variable or block."""

    address: Address
    """As the owners' answers have it."""
    containers: Sequence[Container]


def words(containers: Sequence[Container]) -> str:
    """`unordered map or set of 230,000 entries, beside a list of 4,096`; empty for none."""
    told = [one.words() for one in containers[:MOST_TOLD]]
    others = [("an " if one[0] == "u" else "a ") + one for one in told[1:]]
    others += ["%d others" % (len(containers) - MOST_TOLD)] if len(containers) > MOST_TOLD else []
    beside = ", ".join(others[:-1]) + (" and " if others[1:] else "") + "".join(others[-1:])
    return ", beside ".join(part for part in ("".join(told[:1]), beside) if part)
