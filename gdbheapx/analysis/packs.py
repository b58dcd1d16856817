"""Which packs are found, and which is in use."""

from typing import List, NamedTuple, Optional

from gdbheapx.layout import pack
from gdbheapx.session import Session


class PackRow(NamedTuple):
    """One file that is, or claims to be, a pack."""

    file: str
    build_id: Optional[str]
    allocator: Optional[str]
    version: Optional[str]
    machine: Optional[str]
    exactness: Optional[str]
    """How far it is that of the distributed library, in words; empty: all of it."""
    in_use: Optional[bool]
    """The target's allocator is read with it; null without a target."""
    problem: Optional[str]
    """Why it cannot be used."""


def listed(session: Session) -> List[PackRow]:
    """Every pack, in the order in which they are asked: of one build the first is used."""
    used = (
        {(one.name, one.build_id) for one in session.discovery.infos() if "pack" in (one.layout, one.address_source)}
        if session.has_target
        else None
    )
    rows = []
    for found in pack.listed(session.pack_directories):
        one = found.pack
        if one is None:
            rows.append(PackRow(found.path, None, None, None, None, None, None if used is None else False, found.problem))
            continue
        in_use = None if used is None else (one.allocator, one.build_id) in used
        if used is not None:
            used.discard((one.allocator, one.build_id))
        rows.append(PackRow(found.path, one.build_id, one.allocator, one.version_text, one.machine, one.exactness, in_use, None))
    return rows
