"""Structures of C programs that begin with a number of four letters."""

from typing import Iterable, List, Optional

from gdbheapx.analysis.census.vtables import Images
from gdbheapx.analysis.census.world import SHAPE, Ask, Recogniser, Signature, World
from gdbheapx.kernel.blocks.signatures import AT_LEAST, AT_MOST, Condition, SignatureRow, Signed

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
        """Any C program may have them."""
        return True

    def asks(self, world: World) -> Iterable[Ask]:
        """Four bytes that are letters, digits or signs, and four that are none: no text goes on."""
        letters = [condition for at in range(4) for condition in (Condition(at, 1, AT_LEAST, 0x21), Condition(at, 1, AT_MOST, 0x7E))]
        row = SignatureRow([Condition(4, 4, AT_MOST, 0xFFFF), *letters], least_usable=LEAST_MAGIC_BYTES, key=(0, 4, 0xFFFFFFFF))
        yield Ask(row, self._name, accepts=lambda signed: self._accepts(world, signed), order=MAGIC_ORDER, least_blocks=LEAST_MAGIC_BLOCKS)

    def _accepts(self, world: World, signed: Signed) -> bool:
        """Of one size; no pointer, whose lower half may well be four letters; and a pointer behind it: four letters alone are a text."""
        if signed.most_bytes - signed.least_bytes > MAGIC_SLACK_BYTES:
            return False
        size = world.word_bytes
        words = world.words(signed.sample, min(MOST_MAGIC_WORDS, signed.least_bytes // size))
        images = world.once(Images)
        if words is None or images.mapping_at(words[0]) is not None:
            return False
        return any(images.mapping_at(word) is not None for word in words[1:])

    def _name(self, key: int) -> Optional[Signature]:
        text = key.to_bytes(4, "big").decode("ascii")
        return Signature("magic '%s'" % text, "", SHAPE)


RECOGNISERS: List[Recogniser] = [Magic()]
