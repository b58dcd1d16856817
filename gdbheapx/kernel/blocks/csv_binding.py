"""ctypes bindings of the C kernel's rows of comma-separated values."""

import ctypes
from array import array
from typing import Any, Optional

from gdbheapx.kernel.blocks.csv import NUMBERS_BYTES, CsvRows, CsvWords
from gdbheapx.kernel.blocks.records import Blocks
from gdbheapx.kernel.common.library import at


class CCsvRows(CsvRows):
    """See CsvRows."""

    def __init__(self, library: Any, words: CsvWords) -> None:
        self._library = library
        cells = [*words.classes, *words.kinds, words.allocator, *words.signatures]
        self._texts = ctypes.create_string_buffer(b"".join(cells))
        self._starts = array("Q", [0])
        for cell in cells:
            self._starts.append(self._starts[-1] + len(cell))
        self._overheads = array("Q", words.overheads)
        places = (ctypes.addressof(self._texts), at(self._starts) or 0, at(self._overheads) or 0)
        self._words = array("Q", [*places, len(words.classes), len(words.kinds), len(words.signatures)])
        parts = (words.classes, words.kinds, (words.allocator,), words.signatures)
        self._row_bytes = NUMBERS_BYTES + sum(max(map(len, part), default=0) for part in parts)
        self._out = ctypes.create_string_buffer(0)

    def rows(self, blocks: Blocks, labels: "Optional[array[int]]" = None) -> bytes:
        """See CsvRows."""
        count = len(blocks.addresses)
        if not count:
            return b""
        if len(self._out) < count * self._row_bytes:
            self._out = ctypes.create_string_buffer(count * self._row_bytes)
        where = ctypes.addressof(self._out)
        columns = [at(column) for column in blocks]
        got = self._library.heapx_csv_rows(*columns, None if labels is None else at(labels), count, at(self._words), where)
        if got < 0:
            raise ValueError("a block of no known class, status or signature")
        return ctypes.string_at(where, got)
