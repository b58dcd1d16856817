"""gdbheapx/ranges.py"""

import random

from gdbheapx.ranges import RangeIndex, subtract_ranges, unite_ranges


def test_ranges_are_joined() -> None:
    """Touching and overlapping ranges become one; a base block inside an extent's range counts once."""
    assert unite_ranges([(5, 7), (0, 3), (3, 4), (6, 9), (6, 8)]) == [(0, 4), (5, 9)]


def test_what_is_left_of_ranges() -> None:
    """By a definition of its own: byte by byte."""
    rng = random.Random(1)
    for _ in range(50):
        edges = sorted(rng.sample(range(60), 12))
        some, others = list(zip(edges[::4], edges[1::4])), list(zip(edges[1::3], edges[2::3]))
        left = subtract_ranges(some, others)
        expected = {one for start, end in some for one in range(start, end)} - {one for start, end in others for one in range(start, end)}
        assert sorted(expected) == [one for start, end in left for one in range(start, end)]


def test_what_lies_within_and_outside() -> None:
    """Cut to the range that is asked about; the two together are that range."""
    ranges = RangeIndex([(10, 20), (30, 40)])
    assert (ranges.within(15, 35), ranges.outside(15, 35)) == ([(15, 20), (30, 35)], [(20, 30)])
    assert ranges.meets(19, 25) and not ranges.meets(20, 30)
