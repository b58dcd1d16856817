"""Texts of a few blocks, for who asks to see the program's data: what such a block is for, a key or a name often tells."""

from typing import List, NamedTuple, Sequence

from gdbheapx.analysis.census.find import Census
from gdbheapx.analysis.reachability import heap_graph
from gdbheapx.errors import HeapxError
from gdbheapx.inferior.base import Target
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


class Sample(NamedTuple):
    """A block that stands for others."""

    address: Address
    signature: str
    """As its row has it; empty: not named."""
    texts: Sequence[str]
    """Of the block itself, and of what it points to: cut at MOST_BYTES, as the program has them."""


def find(session: Session, census: Census, limit: int) -> List[Sample]:
    """Of the first rows' example blocks, and of contents that several blocks have: those with a text. HeapxError where memory cannot be
    read."""
    target = session.target
    if not target.has_memory or not heap_graph.can_read_on(target):
        raise HeapxError("no text can be read: a snapshot has no memory, and a process that was not copied runs on", code=NO_ANSWER)
    rows = [(row.sample, row.signature, row.bytes // max(1, row.blocks)) for row in census.rows[:limit]]
    rows += [(same.sample, same.signature, same.size_bytes) for same in (census.copies.largest if census.copies is not None else ())]
    samples = [
        Sample(address, signature or "", texts(target, address, size_bytes))
        for address, signature, size_bytes in dict.fromkeys(rows)
        if address is not None
    ]
    return [sample for sample in samples if sample.texts]


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


def text(data: bytes) -> str:
    """What the bytes begin with, up to a zero or the end; empty if that is no text."""
    begin, end, _ = data[:MOST_BYTES].partition(b"\0")
    try:
        made = begin.decode("utf-8")
    except UnicodeDecodeError:
        return ""
    return made if len(begin) >= LEAST_BYTES and made.isprintable() and (end or len(begin) == MOST_BYTES) else ""
