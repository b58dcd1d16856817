"""Protocol buffers, as much as is needed to write a message (https://protobuf.dev/programming-guides/encoding)."""

from typing import Iterable

VARINT, LENGTH = 0, 2
"""Wire types."""
MASK = (1 << 64) - 1


def varint(number: int) -> bytes:
    """Seven bits a byte, the lowest first; a negative one as 64 bits."""
    number &= MASK
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)


class Message:
    """Fields in the order in which they are written; a number that is 0 is left out, as proto3 has it."""

    def __init__(self) -> None:
        self._out = bytearray()

    def number(self, field: int, value: int) -> "Message":
        """int64, uint64, bool."""
        if value:
            self._out += varint(field << 3 | VARINT) + varint(value)
        return self

    def numbers(self, field: int, values: Iterable[int]) -> "Message":
        """A repeated one, packed."""
        return self.data(field, b"".join(map(varint, values)))

    def data(self, field: int, value: bytes) -> "Message":
        """bytes, or a string in UTF-8; also an empty one."""
        self._out += varint(field << 3 | LENGTH) + varint(len(value)) + value
        return self

    def message(self, field: int, value: "Message") -> "Message":
        """A message within this one."""
        return self.data(field, value.encoded())

    def encoded(self) -> bytes:
        """What was written."""
        return bytes(self._out)
