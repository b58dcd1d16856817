"""Where the parts of pictures stand."""

import random
from typing import Sequence

import pytest

from gdbheapx.addons.views.html.geometry import Box, ChartBranch, count_levels, draw_grid, draw_icicle, draw_nested_treemap, draw_treemap


def overlap(boxes: Sequence[Box]) -> bool:
    """Two of them share more than an edge."""
    small = 1e-6
    for place, one in enumerate(boxes):
        for two in boxes[place + 1 :]:
            across = min(one.x + one.width, two.x + two.width) - max(one.x, two.x)
            down = min(one.y + one.height, two.y + two.height) - max(one.y, two.y)
            if across > small and down > small:
                return True
    return False


@pytest.mark.parametrize("seed", range(12))
def test_treemap_fills_the_rectangle(seed: int) -> None:
    """Areas are as the figures, nothing overlaps, nothing lies outside."""
    chance = random.Random(seed)
    figures = [int(10 ** chance.uniform(2, 5)) for _ in range(chance.randrange(1, 40))]
    boxes = draw_treemap(figures, 1000, 400)
    assert sum(box.width * box.height for box in boxes) == pytest.approx(1000 * 400, rel=1e-3)
    assert all(box.width * box.height == pytest.approx(400000 * figures[box.place] / sum(figures), rel=1e-6) for box in boxes)
    assert all(box.x > -1e-6 and box.y > -1e-6 and box.x + box.width < 1000.01 and box.y + box.height < 400.01 for box in boxes)
    assert not overlap(boxes)
    assert draw_treemap([], 10, 10) == draw_treemap([None, 0, -1], 10, 10) == []


@pytest.mark.parametrize("seed", range(12))
def test_a_treemap_of_two_levels(seed: int) -> None:
    """Every area is its share of the whole to 1 %; parts of a figure fill its rectangle, and touch no other."""
    chance = random.Random(seed)
    tree, figures = [], {}
    for _ in range(chance.randrange(1, 12)):
        parts = [int(10 ** chance.uniform(4, 7)) for _ in range(chance.choice((0, 1, 30)))]
        branch = ChartBranch(len(figures), sum(parts) or int(10 ** chance.uniform(4, 7)), [ChartBranch(len(figures) + 1 + at, size) for at, size in enumerate(parts)])
        for one in (branch, *branch.children):
            figures[one.place] = one.size
        tree.append(branch)
    levels, whole = draw_nested_treemap(tree, 1000, 440), sum(branch.size for branch in tree)
    assert sorted(level.place for level in levels) == sorted(figures)
    assert all(level.width * level.height == pytest.approx(440000 * figures[level.place] / whole, rel=0.01) for level in levels)
    assert not overlap([level for level in levels if not level.depth]) and not overlap([level for level in levels if level.depth])
    boxes = {level.place: level for level in levels}
    for branch in tree:
        over = boxes[branch.place]
        for one in (boxes[child.place] for child in branch.children):
            assert one.x > over.x - 1e-6 and one.x + one.width < over.x + over.width + 1e-6
            assert one.y > over.y - 1e-6 and one.y + one.height < over.y + over.height + 1e-6
    assert draw_nested_treemap([], 10, 10) == draw_nested_treemap([ChartBranch(0, 0)], 10, 10) == []


def test_icicle() -> None:
    """Children lie below their parent and within it, also where they claim more than it has."""
    tree = [ChartBranch(0, 60, [ChartBranch(1, 45, [ChartBranch(2, 10**9)]), ChartBranch(3, 15)]), ChartBranch(4, 20)]
    levels = draw_icicle(tree, 100, 10, 100)
    assert [(one.place, round(one.x), round(one.width), one.depth) for one in levels] == [
        (0, 0, 60, 0),
        (1, 0, 45, 1),
        (2, 0, 45, 2),
        (3, 45, 15, 1),
        (4, 60, 20, 0),
    ]
    assert count_levels(levels) == 3 and count_levels([]) == 0 and draw_icicle([ChartBranch(0, 0)], 100, 10) == []


def test_grid() -> None:
    """One path for each state; cells stand row by row, and are divided from left to right; a cell that is not full has a gap."""
    assert draw_grid([[2, 0], [1, 1], [None, 3]], 2, 10, 2) == ["M0 0h8v8h-8zM10 0h4v8h-4z", "M14 0h4v8h-4zM0 10h8v8h-8z"]
    assert draw_grid([[1, 1]], 2, 10, 2, 4) == ["M0 0h2v8h-2z", "M2 0h2v8h-2z"]
    assert draw_grid([], 2, 10, 2) == []
