"""What a block is, and how one is asked for."""

from typing import Callable, NamedTuple, Optional, Sequence

from gdbheapx.kernel.blocks.signatures import NumberSet, SignatureRow, Signed

EXACT = "exact"
"""The allocator, the runtime or the compiler wrote it there, and two things prove each other: a class, a type, a header."""
SHAPE = "shape"
"""The block's words fit together as this shape's must; something else may by chance."""
PLACE = "place"
"""What it is was not found: who points to it is told, which is no type."""
CONTENT = "content"
"""By what its bytes look like alone."""
SURE = (EXACT, SHAPE, PLACE, CONTENT)


SHAPES_FROM = 50
"""Of Ask.order: what is asked before is a type or a header."""


class Signature(NamedTuple):
    """What some blocks are."""

    name: str
    module: str
    """Whose: a module's name, or a runtime's (`python`, `jvm`); empty: nobody's."""
    sure: str = EXACT
    """One of SURE."""


WEAK_ORDER = 80


class Ask(NamedTuple):
    """A row of conditions, and what a block is that meets it."""

    row: SignatureRow
    name: Callable[[int], Optional[Signature]]
    """By the row's key (0 where it has none); None: nothing that has a name. Asked after memory was read: it may look at a few words."""
    sets: Sequence[NumberSet] = ()
    """What IN_SET and IN_RANGES of the row's conditions name, from 0 on."""
    order: int = SHAPES_FROM
    """Lower ones are asked first: the first row that a block meets counts. 10: headers that a runtime writes before each block; 20: types
    by pointers that are known; 50: shapes; 90: what is only a place. From WEAK_ORDER on: what
    has no name in the end is told by its content."""
    settle: Optional[Callable[[Sequence[Signed]], None]] = None
    """Told, before `name` is asked, all that met the row: how many of each key, and where the first one lies."""
    accepts: Optional[Callable[[Signed], bool]] = None
    """Whether all blocks of one key together can be that: their number, their sizes."""
    least_blocks: int = 1
    """Fewer of one key are not that; the others are not even looked at: chance makes many keys of one block each."""
