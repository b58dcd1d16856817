"""Which blocks lie on pages of which age.

Files: addons/labs/cold/find.py
"""

import random
from array import array
from typing import Dict, List, Tuple

import pytest

from gdbheapx.addons.labs.cold.find import (
    COLD_KNOWN,
    COLD_LOCKED,
    COLD_RESIDENT,
    COLD_SEEN,
    COLD_STALE,
    COLD_SWAPPED,
    ColdSum,
    Span,
    sum_cold,
)
from gdbheapx.kernel.binding import CKernel
from gdbheapx.kernel.blocks.graph import Graph
from tests.support.worlds import build, make

AGED_PAGE = 64
AT_ONCE = 1 << 16
"""BLOCKS_AT_ONCE of cold/sums.c."""
KINDS = (
    0,
    COLD_SEEN,
    COLD_SEEN | COLD_SWAPPED,
    *(COLD_SEEN | COLD_RESIDENT | more for more in (0, COLD_KNOWN, COLD_KNOWN | COLD_STALE, COLD_LOCKED)),
)


def plain(blocks: List[Tuple[int, int]], owners: List[int], labels: List[int], spans: List[Span]) -> Dict[Tuple[int, int], ColdSum]:
    """By the definitions."""
    kinds = {start + at: of[at // AGED_PAGE] for start, end, of in spans for at in range(end - start)}
    made: Dict[Tuple[int, int], ColdSum] = {}
    for (address, size), owner, label in zip(blocks, owners, labels):
        of = [kinds.get(at, 0) for at in range(address, address + size)]

        def count(bits: int, of: List[int] = of) -> int:
            return sum(1 for kind in of if kind & bits)

        some = count(COLD_STALE | COLD_SWAPPED)
        is_cold = some == size > 0
        known, resident, swapped, locked = (count(bits) for bits in (COLD_KNOWN | COLD_SWAPPED, COLD_RESIDENT, COLD_SWAPPED, COLD_LOCKED))
        one = [1, size, int(is_cold), some * is_cold, some * (not is_cold), known, resident, swapped, locked, size - count(COLD_SEEN)]
        before = made.get((owner, label), ColdSum(owner, label, *[0] * 10))
        made[owner, label] = ColdSum(owner, label, *map(sum, zip(before[2:], one)))
    return made


def spans_of(chance: random.Random, blocks: List[Tuple[int, int]]) -> List[Span]:
    """Pages with gaps between them, from before each room of blocks to behind it."""
    made: List[Span] = []
    at = 0
    for address, size in blocks:
        at = max(at, address // AGED_PAGE * AGED_PAGE - AGED_PAGE)
        while at < address + size:
            pages, common = chance.randrange(1, 6), chance.choice(KINDS)
            made.append((at, at + pages * AGED_PAGE, bytes(chance.choice((common, chance.choice(KINDS))) for _ in range(pages))))
            at += (pages + chance.choice((0, 0, 0, 1))) * AGED_PAGE
    return made


def graph_of(c_kernel: CKernel, seed: int) -> Graph:
    return build(c_kernel, make(seed, blocks=400))


@pytest.mark.parametrize("seed", range(6))
def test_sums_are_those_of_a_plain_count(c_kernel: CKernel, seed: int) -> None:
    """By owner, by class, by both and by neither; with more rows than there was room for at first, too."""
    chance, graph = random.Random(seed), graph_of(c_kernel, seed)
    blocks = graph.blocks(range(graph.numbers().blocks))
    owners, labels = ([chance.randrange(most) for _ in blocks] for most in (200, 9))
    spans, none = spans_of(chance, blocks), [0] * len(blocks)
    for some, others in ((owners, labels), (owners, none), (none, labels), (none, none)):
        arrays = [None if one is none else array("I", one) for one in (some, others)]
        found = sum_cold(c_kernel.library, graph, arrays[0], arrays[1], spans, AGED_PAGE)
        assert {(one.owner, one.label): one for one in found} == plain(blocks, some, others, spans)


def test_an_expired_budget_ends_it(c_kernel: CKernel, monkeypatch: pytest.MonkeyPatch) -> None:
    """Between slices; what is told by then is of the first blocks, each once."""
    graph = build(c_kernel, make(1, blocks=AT_ONCE + 3000))
    left: List[bool] = []
    monkeypatch.setattr(graph._budget, "expired", left.pop)
    monkeypatch.setattr(graph._budget, "slice_s", lambda seconds: 0.0)
    for looks in range(3):
        left[:] = [True, *[False] * looks]
        found = sum_cold(c_kernel.library, graph, None, None, [], AGED_PAGE)
        assert sum(one.blocks for one in found) == min(looks * AT_ONCE, graph.numbers().blocks)


def test_what_does_not_fit_is_refused(c_kernel: CKernel) -> None:
    """Before C goes by it."""
    graph = graph_of(c_kernel, 1)
    for owners, spans in (
        (array("I", [0]), []),
        (None, [(0, 2 * AGED_PAGE, b"\0")]),
        (None, [(AGED_PAGE, 2 * AGED_PAGE, b"\0"), (0, AGED_PAGE, b"\0")]),
    ):
        with pytest.raises(ValueError):
            sum_cold(c_kernel.library, graph, owners, None, spans, AGED_PAGE)
    with pytest.raises(ValueError):
        sum_cold(c_kernel.library, graph, None, None, [], 3 * AGED_PAGE)
