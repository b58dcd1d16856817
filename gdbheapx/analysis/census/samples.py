"""Texts of a few blocks, for who asks to see the program's data: what such a block is for, a key or a name often tells."""

from collections import Counter
from itertools import islice
from typing import Dict, Iterable, List, NamedTuple, Optional, Sequence, Tuple

from gdbheapx.analysis.census import registry
from gdbheapx.analysis.census.find import Census, LabelSet
from gdbheapx.analysis.census.world import Signature, World
from gdbheapx.analysis.naming.namer import Namer
from gdbheapx.errors import HeapxError
from gdbheapx.inferior.base import Target
from gdbheapx.kernel.blocks.graph import Graph
from gdbheapx.model import Address
from gdbheapx.problems import NO_ANSWER
from gdbheapx.session import Session

MOST_BYTES = 60
"""Of a text."""
LEAST_BYTES = 4
MOST_TEXTS = 3
"""Of a block."""
MOST_WORDS = 16
"""Of a block that are looked through."""
INLINE_BYTES = 16
"""Of libstdc++'s std::string."""
MOST_LOOKED = 200_000
"""Blocks whose sizes say what a typical one of their class is."""
BLANKS = bytes(0x20 if value in b"\t\n\r" else value for value in range(256))
"""For bytes.translate: what parts the lines of a text is shown as a blank."""


class Example(NamedTuple):
    """A block whose texts are asked for."""

    address: Address
    signature: Optional[str]
    size_bytes: int
    """Of those that it stands for, on average."""


class Sample(NamedTuple):
    """A block that stands for others."""

    address: Address
    signature: str
    """As its row has it; empty: not named."""
    texts: Sequence[str]
    """Of the block itself, and of what it points to: cut at MOST_BYTES, as the program has them."""
    contents: Optional[str] = None
    """What a runtime says that it has: `dict of 3 entries`."""


def of_census(census: Census, limit: int, told: Optional[LabelSet] = None) -> List[Example]:
    """The first rows' example blocks, and of contents that several blocks have; `told`: typical ones where a row's sizes differ."""
    typical = _typical(told) if told is not None and any(row.size_bytes is None for row in census.rows[:limit]) else {}
    rows = []
    for row in census.rows[:limit]:
        address, size_bytes = row.sample, row.bytes // max(1, row.blocks)
        if row.signature is not None and row.size_bytes is None:
            address, size_bytes = typical.get(Signature(row.signature, row.module, row.sure), (address, size_bytes))
        if address is not None:
            rows.append(Example(address, row.signature, size_bytes))
    largest = census.copies.largest if census.copies is not None else ()
    return rows + [Example(same.sample, same.signature, same.size_bytes) for same in largest]


def _typical(told: LabelSet) -> Dict[Optional[Signature], Tuple[Address, int]]:
    """By class: (address, size) of a block of the size that has most of its bytes."""
    ids = [number for number in range(0, len(told.labels), 1 + len(told.labels) // MOST_LOOKED) if told.labels[number]]
    sums: Dict[Optional[Signature], Counter[int]] = {}
    blocks: Dict[Tuple[Optional[Signature], int], Address] = {}
    for number, (address, size_bytes) in zip(ids, told.reach.graph.blocks(ids)):
        name = told.names[told.labels[number] - 1]
        sums.setdefault(name, Counter())[size_bytes] += size_bytes
        blocks.setdefault((name, size_bytes), Address(address))
    most = {name: sizes.most_common(1)[0][0] for name, sizes in sums.items()}
    return {name: (blocks[name, size_bytes], size_bytes) for name, size_bytes in most.items()}


def find(session: Session, examples: Iterable[Example], world: Optional[World], graph: Optional[Graph]) -> List[Sample]:
    """Those of them that have a text. `world`, `graph`: those that the census was made with; without the graph a block is as large as its
    example says. HeapxError where memory cannot be read."""
    target = session.target
    if world is None or not target.can_read_on:
        raise HeapxError("no text can be read: a snapshot has no memory, and a process that was not copied runs on", code=NO_ANSWER)
    namers = [namer for namer in (recogniser.namer(world) for recogniser in registry.find_present(world)) if namer is not None]
    samples = [
        _sample(target, namers, one._replace(size_bytes=_size(graph, one.address) or one.size_bytes)) for one in dict.fromkeys(examples)
    ]
    return [sample for sample in samples if sample.texts or sample.contents is not None]


def _size(graph: Optional[Graph], address: int) -> int:
    """Of the block there; 0 where that is not known."""
    place = graph.find(address) if graph is not None else None
    return graph.blocks([place[0]])[0][1] if graph is not None and place is not None else 0


def _sample(target: Target, namers: Iterable[Namer], example: Example) -> Sample:
    """As the first runtime tells it that knows its texts; else as C has them."""
    address, signature, size_bytes = example
    for namer in namers:
        contents = namer.contents(address, size_bytes, signature)
        told = _cut(namer.texts(address, size_bytes, signature))
        if told or contents is not None:
            return Sample(address, signature or "", told, contents)
    return Sample(address, signature or "", texts(target, address, size_bytes))


def _cut(told: Iterable[str]) -> List[str]:
    """The first ones, each once."""
    return list(islice(dict.fromkeys(one[:MOST_BYTES] for one in told if one.strip("\0")), MOST_TEXTS))


def texts(target: Target, address: int, size_bytes: int) -> List[str]:
    """Of one block: its own, if it begins with one, or those that its first words lead to."""
    word = target.word_bytes
    own = text(target.read_prefix(address, MOST_BYTES))  # it ends with a zero, wherever the block does
    data = target.read_prefix(address, min(size_bytes, MOST_WORDS * word))
    found = [own] if own else []
    for place, value in enumerate(target.words_in(data)[:MOST_WORDS] if not own else ()):
        at, length = address + place * word, data[(place + 1) * word : (place + 2) * word]
        is_inline = value == at + 2 * word and int.from_bytes(length, target.byte_order) < INLINE_BYTES
        if is_inline or value - address >= size_bytes or value < address:
            found.append(text(target.read_prefix(value, INLINE_BYTES if is_inline else MOST_BYTES)))
    return list(dict.fromkeys(one for one in found if one))[:MOST_TEXTS]


def text(data: bytes, least_bytes: int = LEAST_BYTES) -> str:
    """What the bytes begin with, up to a zero, or so much of a longer one as is shown; empty if that is no text."""
    begin, end, _ = data[:MOST_BYTES].partition(b"\0")
    is_cut = not end and len(begin) == MOST_BYTES
    try:
        made = begin.translate(BLANKS).decode("utf-8")
    except UnicodeDecodeError as error:
        if not is_cut or error.start < MOST_BYTES - 3 or error.reason != "unexpected end of data":  # within the last letter
            return ""
        made = begin[: error.start].translate(BLANKS).decode("utf-8")
    return made if len(begin) >= least_bytes and made.isprintable() and made.strip() and (end or is_cut) else ""
