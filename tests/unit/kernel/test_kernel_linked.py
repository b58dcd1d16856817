"""Heaps and rings of extents are followed by both kernels alike, up to the first contradiction.

Files: kernel/common/library.py, kernel/jemalloc/records.py, kernel/jemalloc/walkers.py.
"""

from typing import Callable, List, Tuple

import pytest

from gdbheapx.budget import Budget
from gdbheapx.kernel.common.library import Kernel
from gdbheapx.kernel.jemalloc import records as api
from gdbheapx.kernel.jemalloc.walkers import ExtentWalker
from tests.support.builders import rtree
from tests.support.builders.rtree import DIRTY, MUZZY, Built, Spec, Variant

NEXT, PREVIOUS, CHILD, RING_NEXT, RING_PREVIOUS = 24, 32, 40, 48, 56
COUNT = 12
VARIANTS = [Variant(), Variant((6, 7), compact=False, little=False), Variant((6, 7), compact=False, word=4, little=False)]


def make(variant: Variant) -> Tuple[Built, List[int]]:
    """Unused extents of two pages: the first is the root, 1 to 3 its children, 4 and 5 those of 2, 6 to 11 wait beside the root."""
    built = rtree.build([Spec(2, DIRTY, arena=1, gap=1) for _ in range(COUNT)], variant)
    at, word = [built.structs + number * built.extent.size_bytes for number in range(COUNT)], variant.word

    def chain(before: int, members: List[int], first: int) -> None:
        for number in members:
            built.put(at[before] + first, at[number], word)
            built.put(at[number] + PREVIOUS, at[before], word)
            before, first = number, NEXT

    chain(0, [1, 2, 3], CHILD)
    chain(2, [4, 5], CHILD)
    chain(0, [6, 7, 8, 9, 10, 11], NEXT)
    for number in range(COUNT):
        built.put(at[number] + RING_NEXT, at[(number + 1) % COUNT], word)
        built.put(at[number] + RING_PREVIOUS, at[number - 1], word)
    return built, at


def followed(kernel: Kernel, built: Built, head: int, is_ring: bool = False, most: int = COUNT, **other: int) -> api.NativeLinked:
    """What is along the list."""
    offsets = (RING_NEXT, RING_PREVIOUS, api.NO_LINK) if is_ring else (NEXT, PREVIOUS, CHILD)
    row = api.LinkedList(head, *offsets, arena=1, state=DIRTY, szind=api.ANY, is_nonfull=False, most=most)._replace(**other)
    (found,) = ExtentWalker(kernel, built.source, built.heap(), Budget()).follow([row])
    return found


@pytest.mark.parametrize("variant", VARIANTS)
def test_every_member_is_met(kernel: Kernel, variant: Variant) -> None:
    """In a heap each once by the children and the list beside the root, in a ring each once around; an empty one has none."""
    built, at = make(variant)
    page = 1 << variant.lg_page
    for is_ring in (False, True):
        found = followed(kernel, built, at[0], is_ring)
        assert (found.members, found.bytes, found.problem) == (COUNT, 2 * page * COUNT, api.LINKED_GOOD)
        assert followed(kernel, built, 0, is_ring) == api.NativeLinked(0, 0, api.LINKED_GOOD, 0, 0)


DAMAGES: List[Tuple[str, int, int, Callable[[List[int]], int], int, int]] = [
    ("wild next", 7, NEXT, lambda at: 0x12345678, 0, api.LINKED_UNREADABLE),
    ("next that is no address of a struct", 7, NEXT, lambda at: at[9] + 1, 0, api.LINKED_UNREADABLE),
    ("child of another", 5, CHILD, lambda at: at[8], 0, api.LINKED_BACK),
    ("previous", 9, PREVIOUS, lambda at: at[1], 0, api.LINKED_BACK),
    ("ring's next", 4, RING_NEXT, lambda at: at[7], 1, api.LINKED_BACK),
    ("ring's null", 4, RING_NEXT, lambda at: 0, 1, api.LINKED_UNREADABLE),
    ("ring's previous", 4, RING_PREVIOUS, lambda at: 0, 1, api.LINKED_BACK),
]


@pytest.mark.parametrize("name, number, offset, value, is_ring, problem", DAMAGES, ids=[row[0] for row in DAMAGES])
def test_the_first_contradiction_ends_a_list(
    kernel: Kernel, name: str, number: int, offset: int, value: Callable[[List[int]], int], is_ring: int, problem: int
) -> None:
    """With the member at which it was met and the one before it."""
    built, at = make(Variant())
    built.put(at[number] + offset, value(at), 8)
    found = followed(kernel, built, at[0], bool(is_ring))
    assert found.problem == problem and found.members < COUNT, found


def test_members_say_where_they_belong(kernel: Kernel) -> None:
    """Another arena, state or size class; more than there can be; a slab without a free region."""
    built, at = make(Variant())
    assert followed(kernel, built, at[0], arena=2).problem == api.LINKED_ALIEN
    assert followed(kernel, built, at[0], state=MUZZY).problem == api.LINKED_ALIEN
    assert followed(kernel, built, at[0], szind=3).problem == api.LINKED_ALIEN
    assert followed(kernel, built, at[0], most=COUNT - 1).problem == api.LINKED_CYCLE
    slabs = rtree.build([Spec(0, arena=1, szind=1, free=free) for free in (0, 5, (1 << 256) - 1)], Variant())
    problems = [followed(kernel, slabs, slabs.structs + 128 * number, state=0, is_nonfull=True).problem for number in range(3)]
    assert problems == [api.LINKED_FULL, api.LINKED_GOOD, api.LINKED_FULL]
