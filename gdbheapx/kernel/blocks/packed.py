"""A graph as streams of bytes, for a file."""

import ctypes
from array import array
from typing import Any, Iterator, Mapping, NamedTuple, Sequence, Tuple

from gdbheapx.kernel.common.library import NO_MEMORY, address_of, flatten_pairs, native_job

PACKED_ADDRESSES, PACKED_SIZES, PACKED_DEGREES, PACKED_EDGES, PACKED_KINDS, PACKED_INSIDE, PACKED_SLOTS, PACKED_STREAMS = range(8)
"""PACKED_ in packed.c, where it says what each has."""
STREAMS = ("addresses", "sizes", "degrees", "edges", "kinds", "inside", "slots")
"""Their names, by number."""
PACKED_LINK = 8
"""Of a kind, in older files: a link of a doubly linked list. It says nothing any more."""
PACKED_LOOSE, PACKED_SURE = 16, 32
"""Of a kind: the word owns nothing, or it owns, as its runtime shows."""
PACKED_UNOWNING = 64
"""It owns nothing, and a better way leads where it does."""
PIECE_BYTES = 1 << 20
OUTSIDE = -3
"""A block lies in no mapping that moves; or the streams are none of a graph."""

HIGHEST = 1 << 50
"""No address of a file is above."""
MOST_SLOTS, SLOT_SHIFT = 1 << 20, 26
"""64 MiB at a time: all that mappings touch."""

Pieces = Iterator[Tuple[int, bytes]]
"""(stream, some bytes): streams in the order of their numbers; one without bytes does not come."""
Move = Tuple[int, int, int]
"""(start, end, new start) of a mapping."""


class PackedGraph(NamedTuple):
    """Graph as a file has it."""

    word_bytes: int
    """4 or 8."""
    unit_bytes: int
    """A power of two: blocks begin at multiples of it."""
    has_slots: bool
    """Of blocks, too."""
    mappings: Sequence[Tuple[int, int]]
    """GraphShape.mappings."""
    habits: Sequence[int]
    """Offsets."""
    streams: Mapping[int, bytes]

    def is_possible(self) -> bool:
        """Its numbers are what they may be: a file is not to be trusted."""
        units, habits = [1 << shift for shift in range(13)], self.habits
        if (
            self.word_bytes not in (4, 8)
            or self.unit_bytes not in units
            or len(habits) > 32
            or not all(0 <= one <= 65535 for one in habits)
        ):
            return False
        before = slots = 0
        for start, end in self.mappings:
            if not before <= start < end <= HIGHEST:
                return False
            before = end
            slots += (end - 1 >> SLOT_SHIFT) - (start >> SLOT_SHIFT) + 1
        return slots <= MOST_SLOTS


def unpack_numbers(data: bytes) -> "array[int]":
    """array('Q') of the numbers of a stream. ValueError where the last one is cut, or one has more than 63 bits."""
    found, value, shift = array("Q"), 0, 0
    for one in data:
        if shift > 56:
            raise ValueError("a number of more than 63 bits")
        value |= (one & 127) << shift
        shift += 7
        if not one & 128:
            found.append(value)
            value = shift = 0
    if shift:
        raise ValueError("a number that does not end")
    return found


def pack_numbers(values: "Sequence[int]") -> bytes:
    """The numbers as a stream has them."""
    out = bytearray()
    for value in values:
        while value > 127:
            out.append(value & 127 | 128)
            value >>= 7
        out.append(value)
    return bytes(out)


def pack_pieces(library: Any, graph: Any, moves: Sequence[Move], slots: bool) -> Pieces:
    """Pack a struct graph. ValueError if a block lies in none of the mappings."""
    table, out = flatten_pairs(moves), ctypes.create_string_buffer(PIECE_BYTES)
    made = library.heapx_packer_new(graph, address_of(table), len(moves), int(slots))
    with native_job(made, library.heapx_packer_free) as packer:
        for stream in range(7):
            while True:
                count = library.heapx_packer_next(packer, ctypes.addressof(out), PIECE_BYTES)
                if count == OUTSIDE:
                    raise ValueError("a block lies in no mapping")
                if not count:
                    break
                yield stream, ctypes.string_at(out, count)


def unpack_handle(library: Any, kept: PackedGraph, mappings: "array[int]") -> Any:
    """A struct graph. `mappings`: of the graph, flat; they must outlive it. ValueError where the streams are none of a graph."""
    data = [kept.streams.get(stream, b"") for stream in range(7)]
    streams = array("Q")
    for one in data:
        streams.extend((ctypes.cast(ctypes.c_char_p(one), ctypes.c_void_p).value or 0, len(one)))
    habits, why = array("H", kept.habits), array("i", [0])
    shift = kept.unit_bytes.bit_length() - 1
    numbers = (kept.word_bytes, shift, int(kept.has_slots), address_of(mappings), len(kept.mappings))
    found = library.heapx_graph_unpack(*numbers, address_of(streams), address_of(habits), len(habits), address_of(why))
    if not found and why[0] == NO_MEMORY:
        raise MemoryError()
    if not found:
        raise ValueError("numbers of its graph do not fit together")
    return found
