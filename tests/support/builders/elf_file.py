"""Synthetic ELF objects of 64 bits, for tests: sections, symbols, program headers, call frames."""

import struct
from typing import List, NamedTuple, Sequence, Tuple

SYMTAB, STRTAB, NOTE, DYNSYM, PROGBITS = 2, 3, 7, 11, 1
HEADER_BYTES, SEGMENT_BYTES = 64, 56


class Part(NamedTuple):
    """One section. `link`: the number of another; the first of those that are given is 1."""

    name: str
    kind: int
    data: bytes
    link: int = 0
    entry_bytes: int = 0
    address: int = 0


class Segment(NamedTuple):
    """One program header. The whole file lies at address 0, so offsets are addresses."""

    kind: int
    flags: int
    start: int
    size_bytes: int


def symbols(named: Sequence[Tuple[bytes, int]]) -> Tuple[bytes, bytes]:
    """(symbol table, string table) of defined variables with these names and values."""
    text, entries = b"\0", bytes(24)
    for name, value in named:
        entries += struct.pack("<IBBHQQ", len(text), 0x11, 0, 1, value, 8)
        text += name + b"\0"
    return entries, text


def starts(parts: Sequence[Part], segments: int = 0) -> List[int]:
    """Where each section's bytes begin in the file."""
    at, places = HEADER_BYTES + SEGMENT_BYTES * segments, []
    for part in parts:
        places.append(at)
        at += len(part.data) + -len(part.data) % 8
    return places


def build(parts: Sequence[Part], segments: Sequence[Segment] = (), kind: int = 3) -> bytes:
    """The bytes of an object for x86-64."""
    names, rows, body = b"\0", bytes(64), b""
    every = [*parts, Part(".shstrtab", STRTAB, b"")]
    for part, at in zip(every, starts(every, len(segments))):
        rows += struct.pack("<IIQQQQIIQQ", len(names), part.kind, 0, part.address, at, len(part.data), part.link, 0, 1, part.entry_bytes)
        names += part.name.encode() + b"\0"
        body += part.data + bytes(-len(part.data) % 8)
    table = b"".join(struct.pack("<IIQQQQQQ", one.kind, one.flags, one.start, one.start, one.start, one.size_bytes, one.size_bytes, 8) for one in segments)
    names_at = HEADER_BYTES + len(table) + len(body)
    rows = rows[:-64] + struct.pack("<IIQQQQIIQQ", len(names) - 10, STRTAB, 0, 0, names_at, len(names), 0, 0, 1, 0)
    at = names_at + len(names) + -len(names) % 8
    head = b"\x7fELF\2\1\1" + bytes(9)
    head += struct.pack("<HHIQQQIHHHHHH", kind, 62, 1, 0, HEADER_BYTES, at, 0, HEADER_BYTES, SEGMENT_BYTES, len(segments), 64, len(every) + 1, len(every))
    return (head + table + body + names).ljust(at, b"\0") + rows


def number(value: int) -> bytes:
    """ULEB128."""
    low, rest = value & 0x7F, value >> 7
    return bytes((low,)) if not rest else bytes((low | 0x80,)) + number(rest)


def call_frames(program: bytes, address: int) -> Tuple[bytes, bytes]:
    """(.eh_frame_hdr, .eh_frame) of one function of 4096 bytes at 0x10000; the first lies at `address`, the second behind it, at 16 bytes."""
    common = struct.pack("<I", 0) + b"\1zR\0" + number(1) + b"\x78" + bytes((16,)) + number(1) + b"\x1b" + b"\x0c\x07\x08"
    common = struct.pack("<I", len(common)) + common
    frames = address + 24
    entry = frames + len(common)
    body = struct.pack("<IiI", len(common) + 4, 0x10000 - entry - 8, 4096) + number(0) + program
    head = bytes((1, 0x1B, 0x03, 0x3B)) + struct.pack("<iIii", 20, 1, 0x10000 - address, entry - address)
    return head.ljust(24, b"\0"), common + struct.pack("<I", len(body)) + body
