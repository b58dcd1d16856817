"""Which objects may hold a mimalloc: the gate of every search for it, which costs nothing where there is none."""

from typing import List

from gdbheapx.allocators import fingerprints
from gdbheapx.inferior.base import Module, Target
from gdbheapx.mimalloc.help import TEXTS

LEAST_DATA_BYTES = 8 << 10
"""Of writable memory that an object with a mimalloc has: its main heap alone takes 3 KiB and more."""


def suspects(target: Target) -> List[Module]:
    """Objects whose constants have mimalloc's texts. 64-bit little-endian targets."""
    if target.word_bytes != 8 or not target.little_endian:
        return []
    found = []
    for module in target.modules():
        data_bytes = sum(end - start for start, _, end in target.writable_segments(module))
        if data_bytes >= LEAST_DATA_BYTES and fingerprints.find(target, module, (TEXTS,)):
            found.append(module)
    return found
