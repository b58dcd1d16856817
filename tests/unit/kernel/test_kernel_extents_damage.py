"""A damaged rtree: what contradicts is named with its address, the rest is counted, and both kernels say the same."""

from array import array
from typing import List, Tuple

from hypothesis import given

from gdbheapx.budget import Budget
from gdbheapx.inferior.base import BytesSource
from gdbheapx.kernel.common.library import Kernel
from gdbheapx.kernel.jemalloc import records as api
from gdbheapx.kernel.jemalloc.walkers import ExtentWalker
from tests.support import reference_walk
from tests.support.builders import rtree
from tests.support.builders.extent_cases import damaged, rows_of, some_heap, walk
from tests.support.builders.rtree import Spec, Variant
from tests.support.searches import search

MANY = search(400)


def codes(result: api.ExtentsResult) -> List[int]:
    assert [result.problem_counts[code] for code in range(api.EXTENT_CODES)] == [
        sum(problem.code == code for problem in result.problems) for code in range(api.EXTENT_CODES)
    ]
    return [problem.code for problem in result.problems]


def test_more_nodes_than_memory(kernel: Kernel) -> None:
    """The bound on all nodes together ends the walk, and says at which."""
    built = some_heap()
    result = ExtentWalker(kernel, built.source, built.heap()._replace(mapped_bytes=32 * 8 + 2047), Budget()).walk(())
    assert codes(result) == [api.EXTENT_TOO_MANY_NODES]
    assert (result.summary.extents, result.summary.nodes) == (0, 1)


def test_only_the_first_problems_are_listed(kernel: Kernel) -> None:
    """All are counted; the list is bounded."""
    built = rtree.build([Spec(1, szind=99)] * 100, Variant((5, 8)))
    result = walk(kernel, built, [1000 + 8 * place for place in range(90)])
    assert (len(result.problems), result.problem_counts[api.EXTENT_SZIND]) == (api.MOST_PROBLEMS, 100)
    assert (len(result.cached_problems), result.cached_problem_counts[api.CACHED_OUTSIDE]) == (api.MOST_PROBLEMS, 90)


@MANY
@given(case=damaged())
def test_damage_is_the_same_to_the_reference_walk(kernel: Kernel, case: Tuple[rtree.Built, BytesSource, List[int]]) -> None:
    """Overwritten words in nodes and structures, wrong pointers and holes: equal in every field, walk and listing."""
    built, source, cached = case
    result = walk(kernel, built, cached, source)
    assert result == reference_walk.walk_extents(source, built.heap(), cached)
    rows = rows_of(ExtentWalker(kernel, source, built.heap(), Budget()).blocks(array("Q", sorted(cached))))
    assert rows == reference_walk.list_extents(source, built.heap(), cached)
    total = sum(state.extents for arena in result.arenas for state in (arena.active, arena.dirty, arena.muzzy, arena.retained, arena.pinned, arena.other))
    assert total == result.summary.extents
    assert sum(end - begin for begin, end in result.ranges) == sum(
        state.bytes for arena in result.arenas for state in (arena.active, arena.dirty, arena.muzzy, arena.retained, arena.pinned, arena.other)
    )
