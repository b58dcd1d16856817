"""Blocks as rows of text: CSV for spreadsheets and engines, and the folded stacks of their owners."""

import ctypes
import heapq
import re
from array import array
from bisect import bisect_left
from itertools import compress
from typing import TYPE_CHECKING, Any, Callable, Iterator, List, NamedTuple, Optional, Sequence, Tuple

from gdbheapx.kernel.blocks.stream import CLASS_USED, NativeBlocks
from gdbheapx.kernel.common.library import address_of
from gdbheapx.report.text import DIRECTION

if TYPE_CHECKING:
    from gdbheapx.analysis.census.find import LabelSet
    from gdbheapx.analysis.census.owned import OwnedBlocks, OwnerStack

COLUMNS = ("address", "size_bytes", "usable_bytes", "class", "status", "arena", "allocator")
SIGNATURE = "signature"
"""One more, where blocks have labels."""
NUMBERS_BYTES = 112
"""Of a row, at most: numbers, commas and the line's end (CSV_NUMBERS of csv_rows.c)."""
ESCAPED = re.compile("[\x00-\x1f\x7f-\xa0\u2028\u2029\ud800-\udfff%s;]" % DIRECTION)
"""What ends a line or a frame, controls a terminal, turns the reading direction, or is no UTF-8."""
LIKE_A_NUMBER = re.compile(r"\s(?=[0-9.]+$)")
"""Two numbers at the end of a line are a difference of two profiles."""
CLASSES = ("used", "cached", "free", "reserve", "overhead", "returned")
"""By CLASS_ of the blocks: the same for every allocator."""
UNPRINTABLE = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff%s]" % DIRECTION)
AT_ONCE, HELD_AT_ONCE = 1 << 15, 1 << 12
MOST_PATHS_LETTERS = 16 << 20
"""Of all paths together: lists whose nodes have names of a thousand steps would fill the disk."""
CELL_FORMULA = ("=", "+", "-", "@")


class CsvWords(NamedTuple):
    """Cells that are texts, ready to be written: in UTF-8, quoted where they must be."""

    classes: Sequence[bytes]
    """By CLASS_."""
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
        self._library = library
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


def escape_character(match: "re.Match[str]") -> str:
    """A character as `\\xNN`, beyond those as `\\uNNNN`: a byte that is no UTF-8 has its own number."""
    number = ord(match.group())
    number -= 0xDC00 if 0xDC80 <= number <= 0xDCFF else 0
    return "\\x%02x" % number if number < 256 else "\\u%04x" % number


def format_folded_frame(name: str) -> str:
    """A name that is one frame and no more, whatever is in it."""
    return LIKE_A_NUMBER.sub("\\\\x20", ESCAPED.sub(escape_character, name)) or "[no name]"


def format_folded(stacks: "Sequence[OwnerStack]") -> Iterator[str]:
    """The largest first."""
    for stack in sorted(stacks, key=lambda stack: -stack.bytes):
        if stack.bytes:
            yield "%s %d" % (";".join(format_folded_frame(part.name) for part in stack.frames), stack.bytes)


def clean_name(text: str) -> str:
    """A name in one line of UTF-8: control characters and bytes that are no UTF-8 as `\\xNN`."""
    return UNPRINTABLE.sub(escape_character, text)


def format_cell(text: str, for_engines: bool = False) -> bytes:
    """A name as a cell: no formula to a spreadsheet, unless that is for engines alone; one line, UTF-8."""
    text = clean_name(text)
    if text.startswith(CELL_FORMULA) and not for_engines:
        text = "'" + text
    return ('"%s"' % text.replace('"', '""') if '"' in text or "," in text else text).encode("utf-8")


def make_csv_words(heap: Any, signatures: Sequence[str] = (), for_engines: bool = False) -> CsvWords:
    """Make the words for the numbers of a heap's blocks."""
    classes, words = [class_.encode() for class_ in CLASSES], [format_cell(word) for word in heap.shape.words]
    names = [format_cell(signature, for_engines) for signature in signatures]
    return CsvWords(classes, words, heap.shape.overheads, format_cell(heap.info.id), names)


def format_csv(kernel: Any, heaps: Sequence[Any]) -> Iterator[str]:
    """The file, while the heaps are read: every block with its status."""
    yield ",".join(COLUMNS) + "\n"
    for heap in heaps:
        writer = CsvRows(kernel.library, make_csv_words(heap))
        for blocks in heap.blocks():
            yield writer.rows(blocks).decode("utf-8")


UsedBlocks = Tuple[Any, List[NativeBlocks]]
"""A heap, and its blocks in use as they were read."""


def read_used_blocks(heaps: Sequence[Any]) -> Iterator[UsedBlocks]:
    """Reads them."""
    for heap in heaps:
        yield heap, [block for block in map(select_in_use, heap.blocks()) if len(block.addresses)]


def select_in_use(blocks: NativeBlocks) -> NativeBlocks:
    """Select the blocks in use of a batch."""
    if blocks.classes.count(CLASS_USED) == len(blocks.classes):
        return blocks
    chosen = [class_ == CLASS_USED for class_ in blocks.classes]
    return NativeBlocks(*(array(column.typecode, compress(column, chosen)) for column in blocks))


class BlockSignatures(NamedTuple):
    """Signatures of blocks by ascending address."""

    addresses: "array[int]"
    labels: "array[int]"
    """array('I') of as many."""
    names: Sequence[str]
    """By label, from 1 on."""

    def of(self, blocks: NativeBlocks, place: int) -> "array[int]":
        """Labels of a batch that begins at this place, if nothing lies between."""
        count = len(blocks.addresses)
        if self.addresses[place : place + count] == blocks.addresses:
            return self.labels[place : place + count]
        labels = array("I")
        for address in blocks.addresses:
            at = bisect_left(self.addresses, address)
            labels.append(self.labels[at] if at < len(self.addresses) and self.addresses[at] == address else 0)
        return labels


def read_block_signatures(told: "LabelSet") -> BlockSignatures:
    """Return the signature of each block in use, by the census."""
    ids = array("I", range(told.reach.numbers.blocks))
    names = [name.name if name is not None else "" for name in told.names]
    return BlockSignatures(told.reach.graph.columns(ids)[0], told.labels[: len(ids)], names)


def format_kept_csv(told: "LabelSet") -> Iterator[str]:
    """The file of a snapshot, which has neither the allocator's own sizes nor arenas: these cells are empty."""
    yield ",".join([*COLUMNS, SIGNATURE]) + "\n"
    yield from format_kept_rows(told, False)


def format_kept_rows(told: "LabelSet", for_engines: bool, with_names: bool = True) -> Iterator[str]:
    """Its rows."""
    names = ["", *(format_cell(name.name, for_engines).decode("utf-8") if name is not None else "" for name in told.names)]
    blocks = told.reach.numbers.blocks
    for place in range(0, blocks, AT_ONCE):
        ids = array("I", range(place, min(place + AT_ONCE, blocks)))
        rows = zip(*told.reach.graph.columns(ids), told.labels[place : place + AT_ONCE])
        if with_names:
            yield "".join(["0x%x,,%d,used,,,,%s\n" % (address, usable, names[label]) for address, usable, label in rows])
        else:
            yield "".join(["0x%x,,%d,used,,,\n" % (address, usable) for address, usable, _ in rows])


def format_held_rows(found: "OwnedBlocks", most_paths: int, check: Callable[[], None]) -> Iterator[str]:
    """Rows of blocks with their signature, their owner and, of so many of the largest, their path. check() may end it."""
    told, paths = found.told, found.told.paths if most_paths else None
    names = ["", *(format_cell(name.name, True).decode("utf-8") if name is not None else "" for name in told.names)]
    owners = ["" if name is None else format_cell(name, True).decode("utf-8") for name in found.names]
    count = told.reach.numbers.blocks
    sizes = told.reach.graph.columns(array("I", range(count)))[1]
    least = heapq.nlargest(most_paths, sizes)[-1] if paths is not None and count > most_paths else 0
    room = most_paths - sum(1 for size in sizes if size > least)
    letters = MOST_PATHS_LETTERS
    for place in range(0, count, HELD_AT_ONCE):
        check()
        end = min(place + HELD_AT_ONCE, count)
        columns = told.reach.graph.columns(array("I", range(place, end)))
        lines = []
        members = found.containers[place:end] if found.containers is not None else array("I", bytes(4 * (end - place)))
        rows = zip(range(place, end), *columns, told.labels[place:end], found.owners[place:end], members)
        for node, address, usable, label, owner, member in rows:
            room -= usable == least
            is_told = paths is not None and (usable > least or (usable == least and room >= 0))
            path = paths.text(node) if paths is not None and is_told and letters > 0 else None
            letters -= len(path or "")
            shown = "" if path is None else format_cell(path, True).decode("utf-8")
            container = str(member - 1) if member else ""
            lines.append("0x%x,%d,%s,%s,%s,%s\n" % (address, usable, names[label], owners[owner], container, shown))
        yield "".join(lines)


def format_signed_csv(kernel: Any, heaps: Sequence[UsedBlocks], signed: BlockSignatures, for_engines: bool = False) -> Iterator[str]:
    """The file with a name for each block in use."""
    yield ",".join([*COLUMNS, SIGNATURE]) + "\n"
    for heap, batches in heaps:
        writer = CsvRows(kernel.library, make_csv_words(heap, signed.names, for_engines))
        for blocks in batches:
            place = bisect_left(signed.addresses, blocks.addresses[0])
            yield writer.rows(blocks, signed.of(blocks, place)).decode("utf-8")
