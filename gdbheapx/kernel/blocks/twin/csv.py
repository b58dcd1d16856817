"""Rows of comma-separated values in Python: the same bytes as csv.c."""

from array import array
from typing import Optional

from gdbheapx.kernel.blocks.csv import CsvRows, CsvWords
from gdbheapx.kernel.blocks.records import NO_ARENA, Blocks


class PythonCsvRows(CsvRows):
    """See CsvRows."""

    def __init__(self, words: CsvWords) -> None:
        self._words = words

    def rows(self, blocks: Blocks, labels: "Optional[array[int]]" = None) -> bytes:
        """See CsvRows."""
        words, out = self._words, []
        cells = [b"", *words.signatures]
        try:
            for place, (address, usable, class_, kind, arena) in enumerate(zip(*blocks)):
                index = b"" if arena == NO_ARENA else b"%d" % arena
                numbers = b"0x%x,%d,%d" % (address, usable + words.overheads[kind], usable)
                row = b"%b,%b,%b,%b,%b" % (numbers, words.classes[class_], words.kinds[kind], index, words.allocator)
                out.append(row if labels is None else b"%b,%b" % (row, cells[labels[place]]))
        except IndexError:
            raise ValueError("a block of no known class, status or signature") from None
        return b"".join(b"%b\n" % row for row in out)
