"""What the walk over the extents says, and what it does not say where jemalloc itself leaves elements behind."""

from typing import Any, Dict, List, Optional, Tuple

import pytest

from gdbheapx.jemalloc import extents
from gdbheapx.kernel.jemalloc import records as api
from tests.support.builders.jemalloc import World


def result(*codes: int) -> api.ExtentsResult:
    """A walk that met these contradictions."""
    problems = tuple(api.ExtentProblem(code, 0x7F0000000000 + 4096 * place, 0x7E0000000000) for place, code in enumerate(codes))
    counts = tuple(codes.count(code) for code in range(api.EXTENT_CODES))
    return api.ExtentsResult(api.ExtentsSummary(1, 0, 1, 1, 0, 0, 0, 0, len(problems), 0, 0), (), (), problems, counts, (), (0,) * api.CACHED_REASONS)


class Walking:
    """A walker whose walk is known."""

    def __init__(self, walked: api.ExtentsResult) -> None:
        self.walked = walked

    def walk(self, *arguments: Any) -> api.ExtentsResult:
        return self.walked


def told(options: Dict[str, Tuple[int, int]], monkeypatch: pytest.MonkeyPatch, *codes: int) -> Tuple[List[Tuple[Optional[int], str]], api.ExtentsResult]:
    """What is reported with these options, and the result that others see."""
    world = World((5, 3, 0))
    for name, (value, size) in options.items():
        world.variable(name, value, size)
    monkeypatch.setattr(extents, "make_extent_walker", lambda context: Walking(result(*codes)))
    walked = extents.walk_extents(world.context, ())
    return world.problems, walked


GUARDED = {"opt_san_guard_small": (1, 8), "opt_retain": (1, 1)}


def test_guarded_slabs_leave_elements_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    """With opt.san_guard_small an element that names an extent elsewhere is none of its heap's damage; any other contradiction is."""
    problems, walked = told(GUARDED, monkeypatch, *[api.EXTENT_STALE] * 40)
    assert not problems and not any(walked.problem_counts) and not walked.problems
    problems, walked = told(GUARDED, monkeypatch, api.EXTENT_STALE, api.EXTENT_BITMAP)
    assert len(problems) == 1 and "bitmap" in problems[0].what and [one.code for one in walked.problems] == [api.EXTENT_BITMAP]


@pytest.mark.parametrize("options", [{}, {"opt_san_guard_small": (0, 8), "opt_retain": (1, 1)}, {"opt_san_guard_small": (1, 8), "opt_retain": (0, 1)}], ids=str)
def test_without_guarded_slabs_such_an_element_is_damage(options: Dict[str, Tuple[int, int]], monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the option, or where memory is not retained, jemalloc leaves none."""
    problems, walked = told(options, monkeypatch, api.EXTENT_STALE)
    assert len(problems) == 1 and "does not contain it" in problems[0].what and walked.problem_counts[api.EXTENT_STALE] == 1


def test_a_destroyed_arena_leaves_elements_to_anything(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its metadata is unmapped: zeros there are no damage. What cannot be read may be an extent that a core lacks, and is told."""
    problems, _ = told(GUARDED, monkeypatch, api.EXTENT_SIZE, api.EXTENT_STALE)
    assert not problems
    problems, walked = told(GUARDED, monkeypatch, api.EXTENT_SIZE, api.EXTENT_UNREADABLE)
    assert len(problems) == 1 and walked.problem_counts[api.EXTENT_UNREADABLE] == 1
    assert told({}, monkeypatch, api.EXTENT_SIZE)[0]
