"""Blocks as rows of comma-separated values: what both kernels write."""

from abc import ABC, abstractmethod
from array import array
from typing import NamedTuple, Optional, Sequence

from gdbheapx.kernel.blocks.records import Blocks

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


class CsvRows(ABC):
    """Writes the rows of one heap."""

    @abstractmethod
    def rows(self, blocks: Blocks, labels: "Optional[array[int]]" = None) -> bytes:
        """Their lines. `labels`: array('I') of as many; 0 for none. ValueError for a number that no word belongs to."""
