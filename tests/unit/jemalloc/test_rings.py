"""Circular lists, whole and damaged: what was met before the damage, where it is, and an end in any case."""

from typing import Dict, List, Optional, Tuple

import pytest

from gdbheapx.jemalloc import threads
from tests.support.builders.jemalloc import World

PLACES = [0x1000 * i for i in range(1, 6)]


def ring(links: Dict[int, int]) -> Tuple[List[int], Optional[int], Optional[str]]:
    """The list that begins at the first place, with these links at offset 8."""
    world = World((5, 2, 1))
    base = world.room(0x6000)
    for place, following in links.items():
        world.memory.write(base + place + 8, (base + following if 0 < following < 0x6000 else following).to_bytes(8, "little"))
    elements, where, wrong = threads.read_ql_ring(world.context, base + PLACES[0], 8)
    return [one - base for one in elements], where - base if where is not None else None, wrong


def whole() -> Dict[int, int]:
    """Every element leads to the next, the last to the first."""
    return dict(zip(PLACES, PLACES[1:] + PLACES[:1]))


def test_a_whole_list() -> None:
    """All elements, the first first."""
    assert ring(whole()) == (PLACES, None, None)
    assert ring({PLACES[0]: PLACES[0]}) == (PLACES[:1], None, None)
    assert threads.read_ql_ring(World((5, 2, 1)).context, 0, 8) == ([], None, None)


@pytest.mark.parametrize(
    "bad, elements, where",
    [(PLACES[1], PLACES[:3], PLACES[2] + 8), (0, PLACES[:3], PLACES[2] + 8), (0x666000, PLACES[:3], None)],
    ids=["loop", "null", "unreadable"],
)
def test_a_damaged_list(bad: int, elements: List[int], where: int) -> None:
    """The elements before the damage, each once, and the address of the link that does not hold."""
    found, place, wrong = ring({**whole(), PLACES[2]: bad})
    assert found == elements and wrong
    if where is not None:
        assert place == where
