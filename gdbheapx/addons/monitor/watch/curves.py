"""Coordinates of the lines in a picture of samples over time, in units of the picture."""

from typing import List, NamedTuple, Optional, Sequence, Tuple

from gdbheapx.report.text import DrawnPath, format_coordinate


class Curve(NamedTuple):
    """A line through samples."""

    paths: Sequence[DrawnPath]
    """One for each run of samples that are known: a gap is a gap."""
    dots: Sequence[Tuple[float, float]]
    """Single samples, which no line shows."""
    top: float
    """The value at the upper edge."""


def draw_curve(samples: Sequence[Tuple[float, Optional[float]]], width: float, height: float, top: Optional[float] = None) -> Curve:
    """A line through (time, value), by time; where a value is not known the line has a gap. `top`: the value at the upper edge."""
    known = [value for _, value in samples if value is not None]
    most = max([*known, 0.0]) if top is None else top
    first, last = (samples[0][0], samples[-1][0]) if samples else (0.0, 0.0)
    runs: List[List[Tuple[float, float]]] = [[]]
    for time, value in samples:
        if value is None:
            runs.append([])
            continue
        x = width * (time - first) / (last - first) if last > first else 0.0
        share = min(1.0, max(0.0, value / most)) if most > 0 else 0.0
        runs[-1].append((x, height * (1 - share)))
    paths = [
        DrawnPath("M" + "L".join("%s %s" % (format_coordinate(x), format_coordinate(y)) for x, y in run)) for run in runs if len(run) > 1
    ]
    return Curve(paths, [run[0] for run in runs if len(run) == 1], most)


def draw_band(samples: Sequence[Tuple[float, Optional[Tuple[float, float]]]], width: float, height: float, top: float) -> List[DrawnPath]:
    """An area through (time, (lowest, highest)), on the scale of draw_curve(); with a gap where it has one."""
    first, last = (samples[0][0], samples[-1][0]) if samples else (0.0, 0.0)
    runs: List[List[Tuple[float, float, float]]] = [[]]
    for time, ends in samples:
        if ends is None:
            runs.append([])
            continue
        x = width * (time - first) / (last - first) if last > first else 0.0
        low, high = (height * (1 - min(1.0, max(0.0, end / top))) if top > 0 else height for end in ends)
        runs[-1].append((x, low, high))
    paths = []
    for run in runs:
        if len(run) > 1:
            edge = [(x, high) for x, _, high in run] + [(x, low) for x, low, _ in reversed(run)]
            paths.append(DrawnPath("M" + "L".join("%s %s" % (format_coordinate(x), format_coordinate(y)) for x, y in edge) + "z"))
    return paths


def choose_ticks(most: int, is_size: bool) -> List[int]:
    """Values for the lines of a scale, from 0 to the first that is not below `most`: two to six, round: sizes in binary."""
    step = 1
    while step * 5 < most:
        step = step * 2 if is_size or str(step)[0] in "15" else step * 5 // 2
    count = max(1, -(-most // step))
    return [step * number for number in range(count + 1)]
