"""Blocks as comma-separated values (RFC 4180, lines end with a newline), for engines and spreadsheets.

Folded stacks: one line each, `frame;frame;frame BYTES`, as flamegraph.pl, inferno and speedscope read them.
"""

import heapq
import re
from array import array
from bisect import bisect_left
from itertools import compress
from typing import Any, Callable, Iterator, NamedTuple, Sequence

from gdbheapx.analysis.census.by_owner import OwnedBlocks as HeldBlocks
from gdbheapx.analysis.census.find import LabelSet
from gdbheapx.analysis.census.owned import OwnerStack
from gdbheapx.kernel.blocks.csv import COLUMNS, SIGNATURE, CsvWords
from gdbheapx.kernel.blocks.records import CLASS_USED, Blocks
from gdbheapx.report.text import DIRECTION

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
FORMULA = ("=", "+", "-", "@")


def hexed(match: "re.Match[str]") -> str:
    """A character as `\\xNN`, beyond those as `\\uNNNN`: a byte that is no UTF-8 has its own number."""
    number = ord(match.group())
    number -= 0xDC00 if 0xDC80 <= number <= 0xDCFF else 0
    return "\\x%02x" % number if number < 256 else "\\u%04x" % number


def folded_frame(name: str) -> str:
    """A name that is one frame and no more, whatever is in it."""
    return LIKE_A_NUMBER.sub("\\\\x20", ESCAPED.sub(hexed, name)) or "[no name]"


def folded_lines(stacks: Sequence[OwnerStack]) -> Iterator[str]:
    """The largest first."""
    for stack in sorted(stacks, key=lambda stack: -stack.bytes):
        if stack.bytes:
            yield "%s %d" % (";".join(folded_frame(part.name) for part in stack.frames), stack.bytes)


def clean(text: str) -> str:
    """A name in one line of UTF-8: control characters and bytes that are no UTF-8 as `\\xNN`."""
    return UNPRINTABLE.sub(hexed, text)


def cell(text: str, for_engines: bool = False) -> bytes:
    """A name as a cell: no formula to a spreadsheet, unless that is for engines alone; one line, UTF-8."""
    text = clean(text)
    if text.startswith(FORMULA) and not for_engines:
        text = "'" + text
    return ('"%s"' % text.replace('"', '""') if '"' in text or "," in text else text).encode("utf-8")


def words(heap: Any, signatures: Sequence[str] = (), for_engines: bool = False) -> CsvWords:
    """What the numbers of a heap's blocks mean."""
    shape = heap.shape
    return CsvWords(
        [class_.encode() for class_ in CLASSES],
        [cell(word) for word in shape.words],
        shape.overheads,
        cell(heap.info.id),
        [cell(signature, for_engines) for signature in signatures],
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
        yield Used(heap, [block for block in map(in_use, heap.blocks()) if len(block.addresses)])


def in_use(blocks: Blocks) -> Blocks:
    """Those of a batch."""
    if blocks.classes.count(CLASS_USED) == len(blocks.classes):
        return blocks
    chosen = [class_ == CLASS_USED for class_ in blocks.classes]
    return Blocks(*(array(column.typecode, compress(column, chosen)) for column in blocks))


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
        labels = array("I")
        for address in blocks.addresses:
            at = bisect_left(self.addresses, address)
            labels.append(self.labels[at] if at < len(self.addresses) and self.addresses[at] == address else 0)
        return labels


def signed(told: LabelSet) -> Signed:
    """What each block in use is, as the census has found it."""
    ids = array("I", range(told.reach.numbers.blocks))
    names = [name.name if name is not None else "" for name in told.names]
    return Signed(told.reach.graph.columns(ids)[0], told.labels[: len(ids)], names)


def kept_pieces(told: LabelSet) -> Iterator[str]:
    """The file of a snapshot, which has neither the allocator's own sizes nor arenas: these cells are empty."""
    yield ",".join([*COLUMNS, SIGNATURE]) + "\n"
    yield from kept_rows(told, False)


def kept_rows(told: LabelSet, for_engines: bool, with_names: bool = True) -> Iterator[str]:
    """Its rows."""
    names = ["", *(cell(name.name, for_engines).decode("utf-8") if name is not None else "" for name in told.names)]
    blocks = told.reach.numbers.blocks
    for place in range(0, blocks, AT_ONCE):
        ids = array("I", range(place, min(place + AT_ONCE, blocks)))
        rows = zip(*told.reach.graph.columns(ids), told.labels[place : place + AT_ONCE])
        if with_names:
            yield "".join(["0x%x,,%d,used,,,,%s\n" % (address, usable, names[label]) for address, usable, label in rows])
        else:
            yield "".join(["0x%x,,%d,used,,,\n" % (address, usable) for address, usable, _ in rows])


def held_rows(found: HeldBlocks, most_paths: int, check: Callable[[], None]) -> Iterator[str]:
    """Rows of blocks with their signature, their owner and, of so many of the largest, their path. check() may end it."""
    told, paths = found.told, found.told.paths if most_paths else None
    names = ["", *(cell(name.name, True).decode("utf-8") if name is not None else "" for name in told.names)]
    owners = ["" if name is None else cell(name, True).decode("utf-8") for name in found.names]
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
            shown = "" if path is None else cell(path, True).decode("utf-8")
            container = str(member - 1) if member else ""
            lines.append("0x%x,%d,%s,%s,%s,%s\n" % (address, usable, names[label], owners[owner], container, shown))
        yield "".join(lines)


def signed_pieces(kernel: Any, heaps: Sequence[Used], signed: Signed, for_engines: bool = False) -> Iterator[str]:
    """The file with a name for each block in use."""
    yield ",".join([*COLUMNS, SIGNATURE]) + "\n"
    for heap, batches in heaps:
        writer = kernel.csv(words(heap, signed.names, for_engines))
        for blocks in batches:
            place = bisect_left(signed.addresses, blocks.addresses[0])
            yield writer.rows(blocks, signed.of(blocks, place)).decode("utf-8")
