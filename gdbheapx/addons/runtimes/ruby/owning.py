"""Which words of a slot own what they point to: behind what an object has there lies what was in the slot before."""

from typing import Iterator, Mapping, Optional, Tuple

from gdbheapx.addons.runtimes.ruby.layouts import USER, Layout
from gdbheapx.addons.runtimes.ruby.objects import ARRAY, DATA, HASH, IMEMO, OBJECT, STRING, STRUCT, TYPE_MASK, Objects
from gdbheapx.analysis.naming.namer import ALL_WORDS, LAST_BIT

HEAD = 0b11
"""Words of a slot that lead to nothing of its own: flags and class."""
OWNING = {
    **dict.fromkeys(("Class", "Module", "Float", "internal class", "node of syntax", "text"), 0),
    "String": 0b11000,
    "Symbol": 0b1000,
    "Array": 0b11000,
    "Hash": 0b1100,
    "Data": 0b10000,
    "internal (imemo)": 0b1100,
}
"""By what a block is, where not each word behind the head counts. What a class has is a start of its own: see RubyNamer.starts. Behind
a text lies what was there before."""
TABLE_WORDS = (3, 6)
"""Of an st_table: its bins and its entries."""
EMBEDDED_LENGTH, BOUND = 15, 20
"""Bits of flags: of an Array in its slot (RARRAY_EMBED_LEN_SHIFT), of a Hash (RHASH_AR_TABLE_BOUND_SHIFT)."""
IMEMO_KINDS, SEQUENCE, CALL_CACHE = 15 << 12, 7, 12
"""Of flags (internal/imemo.h: imemo_iseq, imemo_callcache): code, which is no place of data, and methods that classes have."""
MOST_PAIRS = 15
VALUES = 2
"""Words before the values of an Array, Struct or Object in its slot."""


def owning_words(layout: Layout) -> Mapping[str, int]:
    """By what a slot is called; those of by_flags() are not asked for here."""
    owning = dict(OWNING)
    if layout.table is not None:
        owning["Hash"] = 0b100 | sum(1 << layout.table + word for word in TABLE_WORDS)
    if layout.embeds_data:
        owning["Data"] = ALL_WORDS & ~0b1111
    return owning


def by_flags(layout: Layout) -> Iterator[Tuple[int, int, int]]:
    """(flags, mask of these, mask of a number among them): what says how much of its slot an object has."""
    yield ARRAY | USER[1], TYPE_MASK | USER[1], layout.most_embedded << EMBEDDED_LENGTH
    yield STRING, TYPE_MASK | USER[1], 0
    if layout.pairs is not None:
        yield HASH, TYPE_MASK | USER[3], MOST_PAIRS << BOUND


def owning_of_flags(layout: Layout, key: int) -> Optional[int]:
    """Of objects that by_flags() tells of, and of the interpreter's own. The characters of a String in its slot are no pointers."""
    kind = key & TYPE_MASK
    if kind == IMEMO and (key & IMEMO_KINDS) >> 12 in (SEQUENCE, CALL_CACHE):
        return 0
    if kind == ARRAY:
        return _run(VALUES, key >> EMBEDDED_LENGTH)
    if kind == HASH and layout.pairs is not None:
        return 0b100 | _run(layout.pairs, 2 * (key >> BOUND))
    return 0 if kind == STRING else None


def owning_of_class(objects: Objects, kind: int, class_: int) -> Optional[int]:
    """Of an object of this type and class."""
    real = objects.real_class((0, class_))
    if kind == DATA:
        return owning_words(objects.layout)["Data"]
    if kind == OBJECT and objects.layout.most_variables is not None:
        most = objects.most_variables(real)
        return _run(VALUES, max(most, 1)) if most is not None else None
    members = len(objects.members_of(real)) if kind == STRUCT else 0
    return _run(VALUES, max(members, VALUES)) if members else None


def _run(first: int, count: int) -> int:
    """So many words from this one on."""
    words = ((1 << min(count, LAST_BIT)) - 1) << first
    return words & ALL_WORDS
