"""Structures of C programs with a pointer to a table among the constants of a library or program: methods, descriptions, vtables of C.

What such a block is, nothing says; that many of one size share the table makes them one kind. Where there is C++ or Rust this is not asked:
what lies in their containers has such a pointer behind the container's own words. The first word is Constants' (cplusplus.py).
"""

from bisect import bisect_right
from typing import Dict, Iterable, List, Optional, Sequence, Tuple

from gdbheapx.analysis.census import cplusplus, rust
from gdbheapx.analysis.census.vtables import Images, constant_ranges
from gdbheapx.analysis.census.world import PLACE, SHAPE, Ask, Recogniser, Signature, World
from gdbheapx.inferior.base import Module
from gdbheapx.kernel.blocks.signatures import ALL, AT_LEAST, AT_MOST, IN_RANGES, Condition, NumberSet, SignatureRow, Signed, split_sized_key

LEAST_MAGIC_BYTES = 40
"""A text of four letters lies in a smaller block."""
LEAST_MAGIC_BLOCKS = 4
MAGIC_SLACK_BYTES = 32
MOST_MAGIC_WORDS = 32
"""In which a pointer is looked for."""
MAGIC_ORDER = 200
"""After rows of pointers to constants, whose lower half may be four letters: a block of those that is no magic in the end had no name."""


class Magic(Recogniser):
    """Structures of C programs that begin with four letters (BIND: ISC_MAGIC('T', 'a', 's', 'k'); SQLite, PostgreSQL and others)."""

    def is_here(self, world: World) -> bool:
        """Return True: any C program may have them."""
        return True

    def asks(self, world: World) -> Iterable[Ask]:
        """Return the row of magic numbers: four bytes that are letters, digits or signs, and four that are none, so that no text
        continues.
        """
        letters = [condition for at in range(4) for condition in (Condition(at, 1, AT_LEAST, 0x21), Condition(at, 1, AT_MOST, 0x7E))]
        row = SignatureRow([Condition(4, 4, AT_MOST, 0xFFFF), *letters], least_usable=LEAST_MAGIC_BYTES, key=(0, 4, 0xFFFFFFFF))
        yield Ask(
            row,
            self._name_magic,
            accepts=lambda signed: self._is_accepted(world, signed),
            order=MAGIC_ORDER,
            least_blocks=LEAST_MAGIC_BLOCKS,
        )

    def _is_accepted(self, world: World, signed: Signed) -> bool:
        if signed.most_bytes - signed.least_bytes > MAGIC_SLACK_BYTES:
            return False
        size = world.word_bytes
        words = world.words(signed.sample, min(MOST_MAGIC_WORDS, signed.least_bytes // size))
        images = world.once(Images)
        if words is None or images.mapping_at(words[0]) is not None:
            return False
        return any(images.mapping_at(word) is not None for word in words[1:])

    def _name_magic(self, key: int) -> Optional[Signature]:
        text = key.to_bytes(4, "big").decode("ascii")
        return Signature("magic '%s'" % text, "", SHAPE)


FIRST_WORD, WORDS = 1, 8
"""Of a block: from FIRST_WORD to before WORDS."""
LEAST_BLOCKS, LEAST_SHARE = 4, 0.9
"""Of one size, that share a table; and of all blocks that do."""
OF_MALLOC = ("libc.so", "libc-", "ld-linux", "ld-", "linux-vdso", "[vdso]")
"""Objects that malloc itself leaves pointers to, in memory that was free before."""


def find_constant_ranges(world: World) -> List[Tuple[int, int]]:
    """Return the ranges of constants of all objects except the C library, the dynamic linker and the vDSO."""
    images = world.once(Images)
    spans = ((part, images.span_at(part[0])) for part in constant_ranges(world, images))
    return [part for part, span in spans if span is not None and not span[2].file_name.startswith(OF_MALLOC)]


class ConstantSymbols:
    """Names of constants in libraries."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._known: Dict[int, List[Tuple[int, int, str]]] = {}

    def at(self, module: Module, address: int) -> Optional[str]:
        """Return `NAME`, or `NAME+0x10`; None if no symbol covers the address."""
        if module.base not in self._known:
            rows = [(value, size, name) for name, value, size, is_local in self._world.target.variables(module) if size and not is_local]
            self._known[module.base] = sorted((module.base + value, size, name) for value, size, name in rows)
        rows_here = self._known[module.base]
        place = bisect_right(rows_here, (address, 1 << 64, "")) - 1
        if place < 0 or address >= rows_here[place][0] + rows_here[place][1]:
            return None
        away = address - rows_here[place][0]
        return "%s+0x%x" % (rows_here[place][2], away) if away else rows_here[place][2]


class ConstantTables(Recogniser):
    """Blocks of one size with the same constant at the same place."""

    def is_here(self, world: World) -> bool:
        """Return True for programs of this word size without C++ and Rust: any C program may have them."""
        return world.word_bytes == 8 and not cplusplus.has_cpp(world) and not rust.has_rust(world)

    def asks(self, world: World) -> Iterable[Ask]:
        constants = world.constant(find_constant_ranges)
        symbols = ConstantSymbols(world)
        for number in range(FIRST_WORD, WORDS) if constants else ():
            table = ConstantTable(world, symbols, 8 * number)
            row = SignatureRow([Condition(8 * number, 8, IN_RANGES, 0)], 8 * number + 8, key=(8 * number, 8, ALL), sized=True)
            yield Ask(row, table.name, [NumberSet(ranges=constants)], 90 + number, table.settle, least_blocks=LEAST_BLOCKS)


class ConstantTable:
    """Constants that blocks have at one offset."""

    def __init__(self, world: World, symbols: ConstantSymbols, offset: int) -> None:
        self._world, self._symbols, self._offset = world, symbols, offset
        self._images = world.once(Images)
        self._told: Dict[int, Signature] = {}

    def settle(self, matches: Sequence[Signed]) -> None:
        """Name constants that many blocks of one size share, and hardly any of another; a text is none."""
        for number, sizes in cplusplus.by_number(matches).items():
            usual, span = max(sizes.values()), self._images.span_at(number)
            if span is None or number % 8 or usual < LEAST_BLOCKS or usual < LEAST_SHARE * sum(sizes.values()) or self._world.text(number):
                continue
            name = self._symbols.at(span[2], number)
            module = span[2].shown_name
            what = "%s in %s" % (name, module) if name else "%s+0x%x" % (module, number - span[0])
            self._told[number] = Signature("points at %s (+0x%x)" % (what, self._offset), module, PLACE)

    def name(self, key: int) -> Optional[Signature]:
        return self._told.get(split_sized_key(key)[0])


RECOGNISERS: List[Recogniser] = [Magic(), ConstantTables()]
