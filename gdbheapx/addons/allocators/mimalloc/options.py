"""mimalloc's options, an array of one shape from release 1.8 on (options.c: mi_option_desc_t), found by what it holds: it has no symbol."""

import struct
from array import array
from typing import Iterable, List, Mapping, NamedTuple, Optional, Tuple

from gdbheapx.allocators.records import Page
from gdbheapx.columns import TEXT, Column, Table
from gdbheapx.inferior.base import Target

OPTION = struct.Struct("<qIIQQ")
"""value, init, option (its own index), name, legacy_name."""
WORDS = OPTION.size // 8
STATES, IS_SET = 3, 2
"""mi_init_t: not read yet, default, set."""
PROVEN, MOST = 16, 128
"""So many elements in a row count up; more options than any release has."""
FIRST = b"show_errors\0"
NAME_BYTES = 64
DELAYS = ("purge_delay", "decommit_delay", "reset_delay")
"""In ms, as the releases call it, the newest first; -1: never."""
RESETS = ("purge_decommits", "allow_decommit")
"""0: free pages are given to MADV_FREE."""


class MimallocOption(NamedTuple):
    """One option as mimalloc uses it."""

    name: str
    value: int
    is_set: bool
    """By the environment or mi_option_set(); else this is the release's default."""


class MimallocTunables(NamedTuple):
    """All options."""

    tunables: Optional[List[MimallocOption]]
    """None where their array was not found, or cannot be read."""


def find(target: Target, words: "Iterable[Tuple[int, array[int]]]") -> Optional[int]:
    """Where the array begins in an object's data."""
    keys = {(PROVEN - 1) << 32 | state for state in range(STATES)}
    for base, data in words:
        if not keys.isdisjoint(data):
            for at in [at for at, word in enumerate(data) if word in keys]:
                first = at - 1 - (PROVEN - 1) * WORDS
                seconds = data[first + 1 : at + 1 : WORDS] if first >= 0 else ()
                is_one = seconds and all(word >> 32 == place and word & 0xFFFFFFFF < STATES for place, word in enumerate(seconds))
                if is_one and target.read_prefix(data[first + 2], len(FIRST)) == FIRST:
                    return base + 8 * first
    return None


def read(target: Target, place: Optional[int]) -> Optional[List[MimallocOption]]:
    """Those of the array at `place`; None without one, and where a name cannot be read."""
    data, found = target.read_prefix(place, MOST * OPTION.size) if place is not None else b"", []
    for index in range(len(data) // OPTION.size):
        value, state, option, name, _ = OPTION.unpack_from(data, index * OPTION.size)
        if option != index or state >= STATES:
            break
        text, end, _ = target.read_prefix(name, NAME_BYTES).partition(b"\0")
        if not end or not text.isascii():
            return None
        found.append(MimallocOption(text.decode(), value, state == IS_SET))
    return found or None


def in_force(options: Optional[Iterable[MimallocOption]]) -> Mapping[str, int]:
    """Values by name; empty where they are not known."""
    return {option.name: option.value for option in options or ()}


_COLUMNS = (Column("name", TEXT, field="name"), Column("value", field="value"), Column("", TEXT, field="set"))


def page(found: MimallocTunables) -> Page:
    """One line per option."""
    if found.tunables is None:
        yield "mimalloc's options cannot be read here: MIMALLOC_VERBOSE=1 prints them when the program starts"
        return
    yield "MIMALLOC_NAME=VALUE in the environment sets one at the next start; delays are in ms"
    rows = [{**option._asdict(), "set": "set" if option.is_set else ""} for option in found.tunables]
    yield Table(_COLUMNS, rows)
