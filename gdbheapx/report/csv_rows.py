"""Blocks as comma-separated values (RFC 4180, lines end with a newline), for engines and spreadsheets."""

import re
from array import array
from bisect import bisect_left
from typing import Any, Iterator, NamedTuple, Sequence

from gdbheapx.kernel.blocks.csv import COLUMNS, SIGNATURE, CsvWords
from gdbheapx.kernel.blocks.records import CLASS_USED, Blocks
from gdbheapx.report.folded import hexed
from gdbheapx.report.text import DIRECTION

CLASSES = ("used", "cached", "free", "reserve", "overhead", "returned")
"""By CLASS_ of the blocks: the same for every allocator."""
UNPRINTABLE = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff%s]" % DIRECTION)
FORMULA = ("=", "+", "-", "@")


def cell(text: str) -> bytes:
    """A name as a cell: no formula to a spreadsheet, one line, UTF-8."""
    text = UNPRINTABLE.sub(hexed, text)
    if text.startswith(FORMULA):
        text = "'" + text
    return ('"%s"' % text.replace('"', '""') if '"' in text or "," in text else text).encode("utf-8")


def words(heap: Any, signatures: Sequence[str] = ()) -> CsvWords:
    """What the numbers of a heap's blocks mean."""
    shape = heap.shape
    return CsvWords(
        [one.encode() for one in CLASSES],
        [cell(one) for one in shape.words],
        shape.overheads,
        cell(heap.info.id),
        [cell(one) for one in signatures],
    )


def pieces(kernel: Any, heaps: Sequence[Any]) -> Iterator[str]:
    """The file, while the heaps are read: every block with its status."""
    yield ",".join(COLUMNS) + "\n"
    for heap in heaps:
        writer = kernel.csv(words(heap))
        for blocks in heap.blocks():
            yield writer.rows(blocks).decode("utf-8")


class Used(NamedTuple):
    """Blocks in use of one heap, as they were read."""

    heap: Any
    batches: Sequence[Blocks]


def used(heaps: Sequence[Any]) -> Iterator[Used]:
    """Reads them."""
    for heap in heaps:
        found = []
        for blocks in heap.blocks():
            if blocks.classes.count(CLASS_USED) != len(blocks.classes):
                places = [place for place, class_ in enumerate(blocks.classes) if class_ == CLASS_USED]
                blocks = Blocks(*(array(column.typecode, (column[place] for place in places)) for column in blocks))
            if len(blocks.addresses):
                found.append(blocks)
        yield Used(heap, found)


class Signed(NamedTuple):
    """What blocks are: by address, ascending."""

    addresses: "array[int]"
    labels: "array[int]"
    """array('I') of as many."""
    names: Sequence[str]
    """By label, from 1 on."""

    def of(self, blocks: Blocks, place: int) -> "array[int]":
        """Labels of a batch that begins at this place, if nothing lies between."""
        count = len(blocks.addresses)
        if self.addresses[place : place + count] == blocks.addresses:
            return self.labels[place : place + count]
        found = array("I")
        for address in blocks.addresses:
            at = bisect_left(self.addresses, address)
            found.append(self.labels[at] if at < len(self.addresses) and self.addresses[at] == address else 0)
        return found


def signed_pieces(kernel: Any, found: Sequence[Used], signed: Signed) -> Iterator[str]:
    """The file with a name for each block in use."""
    yield ",".join([*COLUMNS, SIGNATURE]) + "\n"
    for heap, batches in found:
        writer = kernel.csv(words(heap, signed.names))
        for blocks in batches:
            place = bisect_left(signed.addresses, blocks.addresses[0])
            yield writer.rows(blocks, signed.of(blocks, place)).decode("utf-8")
