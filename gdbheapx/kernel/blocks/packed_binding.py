"""ctypes bindings of the C kernel's writing and reading of graphs."""

import ctypes
from array import array
from typing import Any, Sequence

from gdbheapx.kernel.blocks.packed import PIECE_BYTES, Move, PackedGraph, Pieces
from gdbheapx.kernel.common.library import at

NO_MEMORY, OUTSIDE = -2, -3


def pieces(library: Any, graph: Any, moves: Sequence[Move], slots: bool) -> Pieces:
    """Of a struct graph. ValueError where a block lies in none of the mappings."""
    table = array("Q", [number for move in moves for number in move])
    packer = library.heapx_packer_new(graph, at(table), len(moves), int(slots))
    if not packer:
        raise MemoryError()
    out = ctypes.create_string_buffer(PIECE_BYTES)
    try:
        for stream in range(7):
            while True:
                count = library.heapx_packer_next(packer, ctypes.addressof(out), PIECE_BYTES)
                if count == OUTSIDE:
                    raise ValueError("a block lies in no mapping")
                if not count:
                    break
                yield stream, ctypes.string_at(out, count)
    finally:
        library.heapx_packer_free(packer)


def unpacked(library: Any, kept: PackedGraph, mappings: "array[int]") -> Any:
    """A struct graph. `mappings`: of the graph, flat; they must outlive it. ValueError where the streams are none of a graph."""
    data = [kept.streams.get(stream, b"") for stream in range(7)]
    streams = array("Q")
    for one in data:
        streams.extend((ctypes.cast(ctypes.c_char_p(one), ctypes.c_void_p).value or 0, len(one)))
    habits, why = array("H", kept.habits), array("i", [0])
    shift = kept.unit_bytes.bit_length() - 1
    numbers = (kept.word_bytes, shift, int(kept.has_slots), at(mappings), len(kept.mappings))
    found = library.heapx_graph_unpack(*numbers, at(streams), at(habits), len(habits), at(why))
    if not found and why[0] == NO_MEMORY:
        raise MemoryError()
    if not found:
        raise ValueError("numbers of its graph do not fit together")
    return found
