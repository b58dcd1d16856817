"""Four letters at the begin of blocks: a magic number of structures, or a text.

Files: analysis/census/registry.py.
"""

from typing import Any, Optional, Tuple, cast

import pytest

from gdbheapx.analysis.census.cplusplus import Images
from gdbheapx.analysis.census.registry import Magic
from gdbheapx.kernel.blocks.signatures import Signed

pytestmark = pytest.mark.once  # pure functions

HEAP = 0x555500000000
TASK = int.from_bytes(b"Task", "big")
VENU = int.from_bytes(b"venu", "little")


class Memory:
    """One block; addresses from HEAP on are mapped."""

    word_bytes = 8

    def __init__(self, words: Tuple[int, ...]) -> None:
        self._words = words

    def words(self, address: int, count: int) -> Tuple[int, ...]:
        """See World."""
        return self._words[:count]

    def once(self, make: Any) -> Any:
        """See World."""
        assert make is Images
        return self

    def mapping_at(self, address: int) -> Optional[int]:
        """See Images."""
        return address if HEAP <= address < HEAP + 4096 else None


@pytest.mark.parametrize(
    "words, is_one",
    [
        ((TASK, HEAP + 8, 0, 0, 0), True),
        ((TASK, 5, 0, HEAP, 0), True),
        ((VENU, 0, 0, 0, 0), False),
        ((VENU, 7, 9, 1 << 60, 0), False),
        ((HEAP + 16, HEAP, 0, 0, 0), False),
    ],
)
def test_four_letters_alone_are_a_text(words: Tuple[int, ...], is_one: bool) -> None:
    """A structure has a pointer behind its number; `venu` and nothing else is a text, told as 'unev' before."""
    (ask,) = Magic().asks(cast(Any, Memory(words)))
    assert ask.accepts is not None and ask.accepts(Signed(0, words[0] & 0xFFFFFFFF, 9, 360, HEAP, 40, 40)) == is_one
