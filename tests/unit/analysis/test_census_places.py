"""Names by who alone points to a block.

Files: analysis/census/find.py.
"""

from types import SimpleNamespace
from typing import Any, List

import pytest

from gdbheapx.analysis.census.find import PlaceNames
from gdbheapx.analysis.census.world import EXACT, PLACE, Signature
from gdbheapx.analysis.reachability import heap_graph
from gdbheapx.kernel.blocks.signatures import ELEMENT, MEMBER_SHAPE, MEMBER_SLOT, MEMBERS, OTHERS, REFERRED, ROOTED, ROOTED_MEMBERS, Signed

LIST, TREE, ARRAY = 0, 1, 4
"""Shapes, by their numbers."""


@pytest.mark.parametrize("row", [REFERRED, ROOTED, MEMBERS, ROOTED_MEMBERS])
def test_places_beyond_the_labels_have_no_name(row: int) -> None:
    """Of millions of places the kernel labels one million; blocks of the rest share a key, which is no place."""
    reach: Any = SimpleNamespace(word_bytes=8, regions=SimpleNamespace(roots=[]))
    names: Any = None
    one = Signed(row + 3, OTHERS, 7, 700, 0x1000, 100, 100)
    known: List[Any] = []
    PlaceNames(3, known, names, reach, SimpleNamespace()).name_all({1: one})
    assert known == [None]


def test_elements_and_what_is_below_them() -> None:
    """Elements are called by the word or the table that holds their container, and blocks below by the way from the elements."""
    root: Any = SimpleNamespace(kind=heap_graph.DATA, module=SimpleNamespace(shown_name="app"), start=0x1000)
    roots: Any = SimpleNamespace(
        at=lambda module, address, is_short: "g_queue" if address == 0x1000 else "g_queue+0x8", variable=lambda *place: None
    )
    reach: Any = SimpleNamespace(word_bytes=8, regions=SimpleNamespace(roots=[root]))
    beyond: Any = SimpleNamespace(fields={("Cache", 0x18): "entry of a cache"})
    keys = [
        (ROOTED_MEMBERS, 0 << 32 | LIST << MEMBER_SHAPE | 1, "element of the list g_queue+0x8"),
        (REFERRED, 1 << 32 | 7, "+0x38 of elements of the list g_queue+0x8"),
        (REFERRED, 2 << 32 | 2, "+0x38 -> +0x10 of elements of the list g_queue+0x8"),
        (REFERRED, 1 << 32 | ELEMENT, "element of elements of the list g_queue+0x8"),
        (MEMBERS, 1 << 32 | ARRAY << MEMBER_SHAPE | ELEMENT & MEMBER_SLOT, "element of the array of elements of the list g_queue+0x8"),
        (MEMBERS, 1 << 32 | TREE << MEMBER_SHAPE | 4, "element of the tree at +0x20 of elements of the list g_queue+0x8"),
        (MEMBERS, 0 << 32 | ARRAY << MEMBER_SHAPE | 4, "element of an array"),
        (ROOTED, 0 << 32 | 1, "data"),
        (MEMBERS, 8 << 32 | TREE << MEMBER_SHAPE | 4, "element of the tree g_queue+0x8 -> +0x20"),
    ]
    matches = {label: Signed(row + 3, key, 7, 700, 0x1000, 100, 100) for label, (row, key, _) in enumerate(keys, 1)}
    names: List[Any] = []
    PlaceNames(3, names, roots, reach, beyond).name_all(matches)
    assert [one.name for one in names] == [name for _, _, name in keys] and {one.sure for one in names} == {PLACE}
    typed: List[Any] = [Signature("Cache", "app", EXACT)]
    entry = Signed(MEMBERS + 3, 1 << 32 | LIST << MEMBER_SHAPE | 3, 7, 700, 0, 8, 8)
    PlaceNames(3, typed, roots, reach, beyond).name_all({1: matches[1]._replace(row=0), 2: entry})
    assert typed[1] == Signature("entry of a cache", "app", EXACT)
