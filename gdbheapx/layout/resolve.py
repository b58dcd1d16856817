"""Where a struct's layout comes from: the build's own types first, then the table; and which of them answered."""

from typing import NamedTuple, Optional, Sequence

from gdbheapx.inferior.types import TypeSet
from gdbheapx.layout.struct import Shape, Struct, Version, place


class Needed(NamedTuple):
    """A struct that is read, as the tables know it."""

    struct: Struct
    members: Sequence[str]
    """What it must have to be of use."""


def take(found: TypeSet, needed: Needed, own: Optional[TypeSet], version: Optional[Version], shape: Shape) -> Optional[bool]:
    """Add the struct to `found`: as the build's own types have it (True), else by the table's row for `version` (False).

    None if neither has what is needed.
    """
    name = needed.struct.name
    layout = own.structs.get(name) if own is not None else None
    is_own = layout is not None and all(member in layout.members for member in needed.members)
    if not is_own:
        layout = place(needed.struct, version, shape) if version is not None else None
    if layout is None or any(member not in layout.members for member in needed.members):
        return None
    found.structs[name] = layout
    return is_own
