"""Coordinates of the parts of a picture: pure functions from figures to rectangles and paths, in units of the picture."""

from typing import List, NamedTuple, Optional, Sequence, Tuple

from gdbheapx.report.text import DrawnPath, format_coordinate

SMALLEST = 0.05
"""Units: what would be narrower is not drawn; its row in the table says it."""


class Box(NamedTuple):
    """A rectangle; `place` is that of its figure among those that were given."""

    place: int
    x: float
    y: float
    width: float
    height: float
    depth: int = 0
    """Of a picture of several levels."""


class ChartBranch(NamedTuple):
    """A figure, and those that are parts of it."""

    place: int
    size: int
    children: Sequence["ChartBranch"] = ()


def drawable_sizes(figures: Sequence[Optional[int]]) -> List[int]:
    """Return the figures that can be drawn: 0 for unknown or negative ones."""
    return [max(0, figure) if figure is not None else 0 for figure in figures]


def draw_bar(figures: Sequence[Optional[int]], width: float, height: float, whole: Optional[int] = None) -> List[Box]:
    """Parts side by side. `whole`: what the full width is; without it the sum of all parts."""
    known = drawable_sizes(figures)
    total = max(sum(known), drawable_sizes([whole])[0])
    boxes, at = [], 0.0
    for place, figure in enumerate(known):
        wide = width * figure / total if total else 0.0
        if wide >= SMALLEST:
            boxes.append(Box(place, at, 0.0, wide, height))
        at += wide
    return boxes


def draw_change(figure: Optional[int], most: int, width: float, height: float) -> Optional[Box]:
    """Return a bar from the middle: growth (place 0) to the right, a fall (place 1) to the left. `most`: the figure that reaches the
    edge. None: too narrow to be drawn.
    """
    wide = min(1.0, abs(figure or 0) / most) * width / 2 if most else 0.0
    if wide < SMALLEST:
        return None
    return Box(0, width / 2, 0.0, wide, height) if (figure or 0) > 0 else Box(1, width / 2 - wide, 0.0, wide, height)


def draw_columns(figures: Sequence[Sequence[Optional[int]]], width: float, height: float, gap: float = 0.15) -> List[List[Box]]:
    """A column for each row of figures, its parts one upon the other, all on one scale. `gap`: of a column's width left empty."""
    known = [drawable_sizes(row) for row in figures]
    top, wide = max((sum(row) for row in known), default=0), width / max(1, len(known))
    all_boxes = []
    for number, row in enumerate(known):
        boxes, at = [], height
        for place, figure in enumerate(row):
            tall = height * figure / top if top else 0.0
            at -= tall
            if tall >= SMALLEST:
                boxes.append(Box(place, wide * (number + gap / 2), at, wide * (1 - gap), tall))
        all_boxes.append(boxes)
    return all_boxes


def draw_treemap(figures: Sequence[Optional[int]], width: float, height: float) -> List[Box]:
    """Rectangles whose areas are as the figures, as square as may be: rows along the shorter side (squarified treemaps)."""
    known = drawable_sizes(figures)
    total = sum(known)
    if not total:
        return []
    scale = width * height / total
    left = sorted(
        ((figure * scale, place) for place, figure in enumerate(known) if figure * scale >= SMALLEST), key=lambda pair: (-pair[0], pair[1])
    )
    x, y, wide, tall, boxes = 0.0, 0.0, width, height, []  # type: float, float, float, float, List[Box]
    while left and wide > 0 and tall > 0:
        side = min(wide, tall)
        count = 1
        while count < len(left) and _worst_ratio(left[: count + 1], side) <= _worst_ratio(left[:count], side):
            count += 1
        row, left = left[:count], left[count:]
        area = sum(size for size, _ in row)
        deep = min(area / side, max(wide, tall))
        at = 0.0
        for size, place in row:
            long = size / deep
            boxes.append(Box(place, x, y + at, deep, long) if wide >= tall else Box(place, x + at, y, long, deep))
            at += long
        if wide >= tall:
            x, wide = x + deep, wide - deep
        else:
            y, tall = y + deep, tall - deep
    return boxes


def draw_nested_treemap(branches: Sequence[ChartBranch], width: float, height: float) -> List[Box]:
    """A treemap of two levels: the parts of a figure fill its rectangle, with areas as theirs; each rectangle comes before those in it."""
    levels: List[Box] = []
    for outer in draw_treemap([branch.size for branch in branches], width, height):
        branch = branches[outer.place]
        levels.append(outer._replace(place=branch.place))
        for box in draw_treemap([child.size for child in branch.children], outer.width, outer.height):
            place = branch.children[box.place].place
            levels.append(Box(place, outer.x + box.x, outer.y + box.y, box.width, box.height, 1))
    return levels


def _worst_ratio(row: Sequence[Tuple[float, int]], side: float) -> float:
    """The longest shape of a row: long side by short side."""
    area = sum(size for size, _ in row)
    return max(max(side * side * size / (area * area), area * area / (side * side * size)) for size, _ in row)


def draw_icicle(branches: Sequence[ChartBranch], width: float, row: float, whole: Optional[int] = None) -> List[Box]:
    """Owners above what they own, each as wide as what it keeps."""
    known = drawable_sizes([branch.size for branch in branches])
    levels: List[Box] = []

    def add_levels(some: Sequence[ChartBranch], x: float, width: float, total: int, depth: int) -> None:
        end = x + width
        for branch in some:
            wide = min(width * max(0, branch.size) / total if total else 0.0, end - x)
            if wide >= SMALLEST:
                levels.append(Box(branch.place, x, depth * row, wide, row, depth))
                add_levels(branch.children, x, wide, branch.size, depth + 1)
                x += wide

    add_levels(branches, 0.0, width, max(sum(known), drawable_sizes([whole])[0]), 0)
    return levels


def count_levels(levels: Sequence[Box]) -> int:
    """Return how many levels an icicle has."""
    return max((level.depth for level in levels), default=-1) + 1


def draw_grid(
    cells: Sequence[Sequence[Optional[int]]], across: int, side: float, gap: float, whole: Optional[int] = None
) -> List[DrawnPath]:
    """A path for each kind of figure: cells row by row, each divided among its figures from left to right. `whole`: what a full cell is."""
    kinds = max((len(cell) for cell in cells), default=0)
    paths: List[List[str]] = [[] for _ in range(kinds)]
    for number_, figures in enumerate(cells):
        x, y = (number_ % across) * side, (number_ // across) * side
        for box in draw_bar(figures, side - gap, side - gap, whole):
            parts = tuple(map(format_coordinate, (x + box.x, y, box.width, box.height, -box.width)))
            paths[box.place].append("M%s %sh%sv%sh%sz" % parts)
    return [DrawnPath("".join(path)) for path in paths]
