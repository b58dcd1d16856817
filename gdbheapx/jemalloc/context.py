"""What every reader of a jemalloc carries along: where it reads, what is constant, whom it tells.

Tables of counters that an arena has per size class are read at once: one member of every struct in an array.
"""

import struct
import sys
from array import array
from typing import Dict, Iterable, List, NamedTuple, Optional, Sequence, Tuple

from gdbheapx.arch import byte_order
from gdbheapx.budget import Budget
from gdbheapx.inferior.base import BulkSource, Target, TypeSet
from gdbheapx.jemalloc.detection.detect import Jemalloc
from gdbheapx.jemalloc.detection.geometry import Geometry
from gdbheapx.jemalloc.detection.symbols import Symbols
from gdbheapx.kernel.common.in_ram import Ram
from gdbheapx.kernel.common.library import Kernel
from gdbheapx.layout.view import View, read_view
from gdbheapx.problems import Report

LETTERS = {2: "H", 4: "I", 8: "Q"}
RUN_BYTES = 1 << 20
"""Longest read of several pieces at once."""


class Context(NamedTuple):
    """What every step needs."""

    target: Target
    jemalloc: Jemalloc
    kernel: Kernel
    source: BulkSource
    budget: Budget
    report: Report
    ram: Ram
    """What tells what is in RAM."""

    @property
    def types(self) -> TypeSet:
        """Its types."""
        return self.jemalloc.types

    @property
    def symbols(self) -> Symbols:
        """Its variables."""
        return self.jemalloc.symbols

    @property
    def geometry(self) -> Geometry:
        """Its constants."""
        return self.jemalloc.geometry

    def view(self, struct: str, address: int) -> View:
        """The struct at `address`. Unreadable if a byte of it is missing."""
        return read_view(self.target, self.types, struct, address)

    def variable(self, name: str, size_bytes: int = 0, signed: bool = False) -> Optional[int]:
        """The integer in the variable `name` (a word unless size_bytes says otherwise); None if this build has none or it cannot be
        read."""
        symbol = self.symbols.find(name)
        data = self.target.read_prefix(symbol.address, size_bytes or self.geometry.word_bytes) if symbol is not None else b""
        if len(data) < (size_bytes or self.geometry.word_bytes):
            return None
        return int.from_bytes(data, self.target.byte_order, signed=signed)


def column(view: View, path: str, member: str, little_endian: bool) -> Optional[List[int]]:
    """`member` of each element of the array of structs at `path`; None if this build has no such array or member."""
    table = view.types.place(view.struct, path)
    inner = view.types.place(table.struct, member) if table is not None and table.struct else None
    if table is None or inner is None:
        return None
    return strided(view.bytes_of(path), inner.offset, table.size_bytes, inner.size_bytes, little_endian)


def strided(data: bytes, offset: int, stride: int, size_bytes: int, little_endian: bool, signed: bool = False) -> List[int]:
    """Integers every `stride` bytes from `offset` on."""
    if size_bytes in LETTERS and offset % size_bytes == 0 and stride % size_bytes == 0:
        letter = LETTERS[size_bytes].lower() if signed else LETTERS[size_bytes]
        numbers = struct.unpack_from("%s%d%s" % ("<" if little_endian else ">", len(data) // size_bytes, letter), data)
        return list(numbers[offset // size_bytes :: stride // size_bytes])
    order, ends = byte_order(little_endian), range(offset, len(data) - size_bytes + 1, stride)
    return [int.from_bytes(data[at : at + size_bytes], order, signed=signed) for at in ends]


def rows(columns: Dict[str, Optional[List[int]]], count: int) -> List[Dict[str, Optional[int]]]:
    """Columns as one dict for each of `count` rows; None where a column is missing or too short."""
    return [
        {name: values[at] if values is not None and at < len(values) else None for name, values in columns.items()} for at in range(count)
    ]


def added(lists: Sequence[Optional[List[int]]]) -> Optional[List[int]]:
    """Element-wise sum of those that exist; None if there is none."""
    known = [values for values in lists if values is not None]
    return [sum(parts) for parts in zip(*known)] if known else None


def pieces(context: Context, ranges: Iterable[Tuple[int, int]], gap_bytes: int = 4096) -> Dict[int, bytes]:
    """Bytes by address for every (address, size_bytes) that can be read whole; those closer than `gap_bytes` are read at once with what
    lies between them."""
    data_of: Dict[int, bytes] = {}
    run: List[Tuple[int, int]] = []
    end = 0
    for address, size in sorted(set(ranges)):
        if run and (address - end > gap_bytes or address + size - run[0][0] > RUN_BYTES):
            _read(context, run, end, data_of)
            run, end = [], 0
        run.append((address, size))
        end = max(end, address + size)
    if run:
        _read(context, run, end, data_of)
    return data_of


def _read(context: Context, run: Sequence[Tuple[int, int]], end: int, data_of: Dict[int, bytes]) -> None:
    start = run[0][0]
    data = context.target.read_prefix(start, end - start)
    for address, size in run:
        part = data[address - start : address - start + size]
        if len(part) < size:  # a hole before it
            part = context.target.read_prefix(address, size)
        if len(part) == size and len(part) >= len(data_of.get(address, b"")):
            data_of[address] = part


def views(context: Context, struct: str, addresses: Iterable[int], gap_bytes: int = 4096) -> Dict[int, View]:
    """The structs at these addresses; those that cannot be read are missing."""
    size, order = context.types.size_bytes(struct), context.geometry.little_endian
    read = pieces(context, ((address, size) for address in addresses), gap_bytes)
    return {address: View(context.types, struct, address, data, order) for address, data in read.items()}


def pointers_in(context: Context, data: bytes) -> "array[int]":
    """The target's pointers in these bytes."""
    values = array("Q" if context.geometry.word_bytes == 8 else "I", data)
    if context.geometry.little_endian != (sys.byteorder == "little"):
        values.byteswap()
    return values if values.typecode == "Q" else array("Q", values)
