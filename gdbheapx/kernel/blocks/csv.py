"""Blocks as rows of comma-separated values."""

import ctypes
from array import array
from typing import Any, NamedTuple, Optional, Sequence

from gdbheapx.kernel.blocks.records import NativeBlocks
from gdbheapx.kernel.common.library import address_of, declare_functions

PROTOTYPES = """
int64_t heapx_csv_rows(const uint64_t *addresses, const uint64_t *usable, const uint8_t *classes, const uint8_t *kinds,
    const uint32_t *arenas, const uint32_t *labels, uint64_t count, const struct csv_words *words, char *out);
"""

COLUMNS = ("address", "size_bytes", "usable_bytes", "class", "status", "arena", "allocator")
SIGNATURE = "signature"
"""One more, where blocks have labels."""
NUMBERS_BYTES = 112
"""Of a row, at most: numbers, commas and the line's end (CSV_NUMBERS of csv.c)."""


class CsvWords(NamedTuple):
    """Cells that are texts, ready to be written: in UTF-8, quoted where they must be."""

    classes: Sequence[bytes]
    """By CLASS_ of records.py."""
    kinds: Sequence[bytes]
    """By the allocator's own number for the status."""
    overheads: Sequence[int]
    """By kind: see BlockShape."""
    allocator: bytes
    signatures: Sequence[bytes] = ()
    """By label, from 1 on."""


class CsvRows:
    """Writes the rows of one heap."""

    def __init__(self, library: Any, words: CsvWords) -> None:
        self._library = declare_functions(library, PROTOTYPES)
        cells = [*words.classes, *words.kinds, words.allocator, *words.signatures]
        self._texts = ctypes.create_string_buffer(b"".join(cells))
        self._starts = array("Q", [0])
        for cell in cells:
            self._starts.append(self._starts[-1] + len(cell))
        self._overheads = array("Q", words.overheads)
        places = (ctypes.addressof(self._texts), address_of(self._starts) or 0, address_of(self._overheads) or 0)
        self._words = array("Q", [*places, len(words.classes), len(words.kinds), len(words.signatures)])
        parts = (words.classes, words.kinds, (words.allocator,), words.signatures)
        self._row_bytes = NUMBERS_BYTES + sum(max(map(len, part), default=0) for part in parts)
        self._out = ctypes.create_string_buffer(0)

    def rows(self, blocks: NativeBlocks, labels: "Optional[array[int]]" = None) -> bytes:
        """Their lines. `labels`: array('I') of as many; 0 for none. ValueError for a number that no word belongs to."""
        count = len(blocks.addresses)
        if not count:
            return b""
        if len(self._out) < count * self._row_bytes:
            self._out = ctypes.create_string_buffer(count * self._row_bytes)
        where = ctypes.addressof(self._out)
        columns = [address_of(column) for column in blocks]
        got = self._library.heapx_csv_rows(*columns, None if labels is None else address_of(labels), count, address_of(self._words), where)
        if got < 0:
            raise ValueError("a block of no known class, status or signature")
        return ctypes.string_at(where, got)
