"""GSlice's pages: where their pieces begin, and lists that lead nowhere.

Files: analysis/census/world.py.
"""

from typing import Any, Callable, Dict, Optional, Sequence, Tuple, cast

import pytest

from gdbheapx.addons.runtimes import glib
from gdbheapx.analysis.census.world import CensusTarget

PAGE, CLASS = 0x10000, 0x7000
SIZE, PIECE = 2048, 176
END = PAGE + SIZE - glib.SLAB_INFO_BYTES


class Memory:
    """A world with a few words, and one class whose instances have 48 bytes before them."""

    def __init__(self, words: Dict[int, int]) -> None:
        self._words = words

    def words(self, address: int, count: int) -> Optional[Tuple[int, ...]]:
        """See CensusTarget; only where something stands, or inside the page."""
        if address not in self._words and not PAGE <= address < PAGE + SIZE:
            return None
        return tuple(self._words.get(address + 8 * number, 0) for number in range(count))

    pages: Sequence[glib.SlicePage] = (glib.SlicePage(PAGE, END, PIECE, []),)

    def once(self, make: Callable[..., Any]) -> Any:
        """See CensusTarget."""
        if make is glib.find_slice_pages:
            return self.pages
        return {CLASS: glib.GType(0x9000, 1, 128, 48)} if make is glib.find_gtypes else make(self)


def page(at: int, next_page: int, before: int, free: int = 0, used: int = 11) -> Dict[int, int]:
    """SlabInfo of one."""
    return {at: free, at + 8: used, at + 16: next_page, at + 24: before}


def rings(words: Dict[int, int]) -> Any:
    """What is found of pages that begin with the one at END."""
    return glib.follow_ring(cast(CensusTarget, Memory(words)), END, PIECE, 100)


def test_pages_are_found_by_their_list() -> None:
    """One that leads to itself, and two that lead to each other; a page's size follows from its pieces'."""
    assert glib.slice_page_bytes(PIECE) == SIZE and glib.slice_page_bytes(16) == 256 and glib.slice_page_bytes(1008) == 8192
    assert rings(page(END, END, END)) == [glib.SlicePage(PAGE, END, PIECE, [])]
    other = END + SIZE
    found = rings({**page(END, other, other), **page(other, END, END)})
    assert [one.address for one in found] == [PAGE, PAGE + SIZE]


@pytest.mark.parametrize(
    "words",
    [
        {},
        page(END, END + SIZE, END + SIZE),
        page(END, END + 16, END),
        page(END, END, END, used=10),
        page(END, END, END, free=PAGE - 8, used=10),
        {**page(END, END, END, free=PAGE, used=10), PAGE: PAGE},
        {**page(END, END + SIZE, END), **page(END + SIZE, END + SIZE, END)},
    ],
    ids=["nothing", "unreadable", "no page", "one too few", "free elsewhere", "free in a circle", "a circle beside the first"],
)
def test_damaged_lists_lead_to_nothing(words: Dict[int, int]) -> None:
    """They do not close, or contradict what the page says of itself."""
    assert rings(words) == []


def test_the_begin_of_pieces() -> None:
    """A free piece tells it, else the instances; where there are none, or they contradict each other, nothing does."""
    full = glib.SlicePage(PAGE, END, PIECE, [])
    assert glib.find_first_piece(cast(CensusTarget, Memory({})), full._replace(free=[PAGE + 32 + 3 * PIECE])) == PAGE + 32
    assert glib.find_first_piece(cast(CensusTarget, Memory({PAGE + 16 + 48 + PIECE: CLASS})), full) == PAGE + 16
    assert glib.find_first_piece(cast(CensusTarget, Memory({})), full) is None
    assert glib.find_first_piece(cast(CensusTarget, Memory({PAGE + 16 + 48: CLASS, PAGE + 48 + PIECE: CLASS})), full) is None
    assert glib.find_first_piece(cast(CensusTarget, Memory({})), glib.SlicePage(PAGE, PAGE + 208, 48, [])) == PAGE  # 16 bytes left


def test_pointers_between_pages_tell_the_begin_of_pieces() -> None:
    """Nodes of 48 bytes that lead to nodes of another full page; two ways with the same evidence tell nothing."""
    pages = [glib.SlicePage(PAGE, PAGE + 464, 48, []), glib.SlicePage(PAGE + 512, PAGE + 976, 48, [])]
    memory = Memory({PAGE + 24: PAGE + 512 + 16 + 2 * 48, PAGE + 64: PAGE + 512 + 16, PAGE + 72: PAGE + 512 + 40})
    memory.pages = pages
    assert glib.find_first_piece(cast(CensusTarget, memory), pages[1]) == PAGE + 512 + 16
    assert glib.find_first_piece(cast(CensusTarget, memory), pages[0]) is None
    memory = Memory({PAGE + 24: PAGE + 512 + 16, PAGE + 64: PAGE + 512 + 48})
    memory.pages = pages
    assert glib.find_first_piece(cast(CensusTarget, memory), pages[1]) is None


def test_pages_that_overlap_count_once() -> None:
    """As damage may have it."""
    first, second = glib.SlicePage(PAGE, END, PIECE, []), glib.SlicePage(PAGE + 1024, PAGE + 2000, 96, [])
    third = glib.SlicePage(END + glib.SLAB_INFO_BYTES - glib.PADDING_BYTES, END + 4096, 96, [])
    assert glib.drop_overlaps({one.address: one for one in (third, second, first)}) == [first, third]
