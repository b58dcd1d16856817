"""Where a struct's layout comes from: debug information first, then the table; and which one answered."""

from typing import NamedTuple, Optional, Sequence

from gdbheapx.layout.struct import Record, Shape, Struct, Version, place
from gdbheapx.target.base import StructPlace, Symbol, Target


class Resolved(NamedTuple):
    """A layout with its provenance."""

    place: StructPlace
    source: str
    """`debug-info` or `table`."""


def from_debug_info(target: Target, struct: Struct, near: Symbol, wanted: Sequence[str]) -> Optional[StructPlace]:
    """The layout as the debug information of near's object tells it; None without it or without a wanted member."""
    if near.source != "debug-info":
        return None
    found = target.struct(struct.name, near)
    if found is None or any(name not in found.fields for name in wanted):
        return None
    return found


def resolve(target: Target, struct: Struct, near: Symbol, version: Optional[Version], shape: Shape, wanted: Sequence[str]) -> Optional[Resolved]:
    """Debug information, else the table's row for `version`; None if neither has the wanted members."""
    found = from_debug_info(target, struct, near, wanted)
    if found is not None:
        return Resolved(found, "debug-info")
    if version is None:
        return None
    tabled = place(struct, version, shape)
    return None if any(name not in tabled.fields for name in wanted) else Resolved(tabled, "table")


def read_record(target: Target, layout: StructPlace, address: int) -> Record:
    """The struct at `address`, read at once. Unreadable if any byte of it is missing."""
    return Record(layout, address, target.read(address, layout.size_bytes), target.little_endian)
