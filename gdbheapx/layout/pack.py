"""Bundled packs: the types, relative addresses and constants of one stripped build of an allocator, by its build-id."""

import json
import os
from typing import Any, Collection, Dict, List, NamedTuple, Optional, Tuple

from gdbheapx import packs
from gdbheapx.inferior.base import Member, StructType, TypeSet

SCHEMA = "gdbheapx-pack/1"


class Pack(NamedTuple):
    """Layout of one build of an allocator."""

    allocator: str
    version_text: Optional[str]
    """The string it was built with, such as `5.3.0-0-g54ead...` or `2.36`."""
    build_id: str
    """Of the library as it is distributed; lower-case hex."""
    machine: str
    """In gdb's words, as Target.machine."""
    word_bytes: int
    prefix: str
    """Private prefix, such as `je_`; names here go without it. Empty where there is none."""
    public_prefix: str
    """Prefix of mallctl and the rest of the public interface. Empty where there is none."""
    symbols: Dict[str, Tuple[int, int]]
    """Variable -> (address in the file, size_bytes)."""
    thread_locals: Dict[str, Tuple[int, int]]
    """Variable -> (offset in the object's thread-local block, size_bytes)."""
    types: TypeSet
    constants: Dict[str, int]
    """What the build fixed: `lg_page`, `lg_vaddr`, as far as its maker knew."""
    made_from: str
    """In words: what kind of debug information, by which compiler."""
    exactness: str
    """In words: how far it is known to be that of the distributed library; empty for `all of it`."""


def parse_pack(text: str) -> Pack:
    """Return the pack that tools/make_packs.py wrote as this text."""
    tree: Dict[str, Any] = json.loads(text)
    structs = {
        name: StructType(size_bytes, {field: Member(*place) for field, place in members.items()})
        for name, (size_bytes, members) in tree["structs"].items()
    }
    variables = {name: Member(0, *place) for name, place in tree["variables"].items()}
    tree["types"] = TypeSet(structs, tree["enums"], variables)
    for key in ("symbols", "thread_locals"):
        tree[key] = {name: tuple(place) for name, place in tree[key].items()}
    return Pack(*(tree[field] for field in Pack._fields))


def find_pack(build_id: str, allocator: str) -> Optional[Pack]:
    """Return the bundled pack of that build's allocator, or None."""
    name = build_id.lower() + ".json"
    pack = parse_pack(shipped_text(name)) if name in _list_pack_names() else None
    return pack if pack is not None and pack.allocator == allocator else None


def shipped_packs() -> List[Pack]:
    """Return the bundled packs, by build-id."""
    return [parse_pack(shipped_text(name)) for name in sorted(_list_pack_names()) if name.endswith(".json")]


def _list_pack_names() -> Collection[str]:
    return packs.EMBEDDED or os.listdir(os.path.dirname(os.path.abspath(packs.__file__)))


def shipped_text(name: str) -> str:
    """Return the text of a file of gdbheapx/packs, which the single file includes."""
    if packs.EMBEDDED:
        return packs.EMBEDDED[name]
    with open(os.path.join(os.path.dirname(os.path.abspath(packs.__file__)), name), encoding="ascii") as file:
        return file.read()
