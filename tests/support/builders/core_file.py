"""Synthetic ELF cores of any word size and byte order, for tests."""

import struct
from typing import List, NamedTuple, Sequence


class Piece(NamedTuple):
    """One PT_LOAD."""

    address: int
    memory_bytes: int
    data: bytes
    flags: int = 6


def note(order: str, kind: int, desc: bytes, owner: bytes = b"CORE\0") -> bytes:
    """One note."""
    return (
        struct.pack(order + "III", len(owner), len(desc), kind) + owner.ljust((len(owner) + 3) & -4, b"\0") + desc.ljust((len(desc) + 3) & -4, b"\0")
    )


def build(pieces: Sequence[Piece], notes: bytes = b"", word_bytes: int = 8, order: str = "<", machine: int = 62) -> bytes:
    """The bytes of a core."""
    wide = word_bytes == 8
    count, header_bytes, entry_bytes = len(pieces) + 1, 64 if wide else 52, 56 if wide else 32
    at = header_bytes + count * entry_bytes
    table: List[bytes] = [entry(wide, order, 4, 4, at, 0, len(notes), 0)]
    body = notes
    for piece in pieces:
        table.append(entry(wide, order, 1, piece.flags, at + len(body), piece.address, len(piece.data), piece.memory_bytes))
        body += piece.data
    ident = b"\x7fELF" + bytes((2 if wide else 1, 1 if order == "<" else 2, 1)) + bytes(9)
    form = "HHIQQQIHHHHHH" if wide else "HHIIIIIHHHHHH"
    return ident + struct.pack(order + form, 4, machine, 1, 0, header_bytes, 0, 0, header_bytes, entry_bytes, count, 0, 0, 0) + b"".join(table) + body


def entry(wide: bool, order: str, kind: int, flags: int, offset: int, address: int, filesz: int, memsz: int) -> bytes:
    """One program header."""
    if wide:
        return struct.pack(order + "IIQQQQQQ", kind, flags, offset, address, 0, filesz, memsz, 4096 if kind == 1 else 4)
    return struct.pack(order + "IIIIIIII", kind, offset, address, 0, filesz, memsz, flags, 4096 if kind == 1 else 4)
