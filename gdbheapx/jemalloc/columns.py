"""One member of every struct in an array, at once: the tables of counters that an arena has per size class."""

import struct
from typing import Dict, List, Optional, Sequence

from gdbheapx.layout.view import View


def column(view: View, path: str, member: str, little_endian: bool) -> Optional[List[int]]:
    """`member` of each element of the array of structs at `path`; None if this build has no such array or member."""
    array = view.types.place(view.struct, path)
    inner = view.types.place(array.struct, member) if array is not None and array.struct else None
    if array is None or inner is None:
        return None
    return strided(view.bytes_of(path), inner.offset, array.size_bytes, inner.size_bytes, little_endian)


def strided(data: bytes, offset: int, stride: int, size_bytes: int, little_endian: bool) -> List[int]:
    """Unsigned integers every `stride` bytes from `offset` on."""
    if size_bytes == 8 and offset % 8 == 0 and stride % 8 == 0:
        words = struct.unpack_from("%s%dQ" % ("<" if little_endian else ">", len(data) // 8), data)
        return list(words[offset // 8 :: stride // 8])
    order = "little" if little_endian else "big"
    ends = range(offset, len(data) - size_bytes + 1, stride)
    return [int.from_bytes(data[at : at + size_bytes], order) for at in ends]  # type: ignore[arg-type]


def rows(columns: Dict[str, Optional[List[int]]], count: int) -> List[Dict[str, Optional[int]]]:
    """Columns as one dict for each of `count` rows; None where a column is missing or too short."""
    return [{name: values[at] if values is not None and at < len(values) else None for name, values in columns.items()} for at in range(count)]


def added(lists: Sequence[Optional[List[int]]]) -> Optional[List[int]]:
    """Element-wise sum of those that exist; None if there is none."""
    known = [one for one in lists if one is not None]
    return [sum(parts) for parts in zip(*known)] if known else None
