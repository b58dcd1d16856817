"""Addresses without where the process had its memory: each mapping begins where its number says, and what lies in it keeps its offset.

A snapshot is mailed: real addresses would tell an attacker of a process that still runs what address space layout randomisation hides. They
stay as long as they were, so that tables stay straight. Addresses below 4 GiB are those of programs linked to a fixed place; they tell
nothing.
"""

import re
from bisect import bisect_right
from typing import Any, Callable, List, Sequence, Tuple

from gdbheapx.inferior.base import Mapping
from gdbheapx.kernel.blocks.packed import Move
from gdbheapx.model import Address
from gdbheapx.snapshot.record import RecordedMapping
from gdbheapx.units import Said

FIRST, STEP = 1 << 44, 1 << 32
FIXED = 1 << 32
HEX = re.compile(r"\b0x([0-9a-f]{9,16})\b")


class Moved:
    """Where everything is, and where it seems to be."""

    def __init__(self, mappings: Sequence[Mapping]) -> None:
        self._starts: List[int] = []
        self._rows: List[Tuple[int, int, int, str]] = []
        at, end = FIRST, 0
        for one in sorted(mappings):
            if one.start < FIXED:
                continue
            if one.start != end:  # what lies side by side stays so
                at = -(-at // STEP) * STEP
            self._starts.append(one.start)
            self._rows.append((one.start, one.end, at, one.name))
            at, end = at + one.end - one.start, one.end

    def places(self) -> List[RecordedMapping]:
        """Of all mappings, as they seem."""
        return [RecordedMapping(seems, seems + end - start, name) for start, end, seems, name in self._rows]

    def moves(self) -> List[Move]:
        """Of all memory, by address."""
        return [(0, FIXED, 0), *((start, end, seems) for start, end, seems, _ in self._rows)]

    def address(self, value: int) -> int:
        """As it seems; one that lies in no mapping stays where it is relative to the one before it, if that is near, else it is hidden."""
        if value < FIXED:
            return value
        place = bisect_right(self._starts, value) - 1
        if place < 0:
            return FIXED
        start, end, seems, _ = self._rows[place]
        return seems + value - start if value - start <= -(-(end - start) // STEP) * STEP else FIXED

    def text(self, text: str) -> str:
        """With all addresses in it."""
        return HEX.sub(lambda found: "0x%0*x" % (len(found.group(1)), self.address(int(found.group(1), 16))), text)

    def value(self, value: Any) -> Any:
        """Records with addresses in them."""
        return walked(value, self.text, self.address)


def walked(value: Any, text: Callable[[str], str], address: Callable[[int], int]) -> Any:
    """The same with every text and every address in it replaced; keys of mappings are members' names, and allocators'."""
    if isinstance(value, Address):
        return Address(address(value))
    if isinstance(value, Said):
        return Said(text(value), text(value.plain))
    if isinstance(value, str):
        return text(value)
    names = getattr(value, "_fields", None)
    if names is not None:
        return type(value)(*(walked(one, text, address) for one in value))
    if isinstance(value, dict):
        return {key: walked(one, text, address) for key, one in value.items()}
    if isinstance(value, (list, tuple)):
        return type(value)(walked(one, text, address) for one in value)
    return value
