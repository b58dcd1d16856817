"""The stream of blocks: all of a heap in address order, whatever regions and mappings it is made of, and resumed anywhere.

Files: kernel/blocks/stream.py, kernel/blocks/stream.py.
"""

import random
from array import array
from typing import Any, List, Sequence, Tuple

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gdbheapx.common.budget import Budget
from gdbheapx.inferior.base import BytesSource
from gdbheapx.kernel.blocks.stream import CLASS_USED, EVERYTHING, NO_ARENA, BlockFilter, make_blocks
from gdbheapx.kernel.common.library import STOP_END, STOP_TIME, Kernel
from gdbheapx.kernel.glibc.records import STATUS_FREE, STATUS_MAPPED, STATUS_TCACHE, STATUS_USED, NativeListed, Region
from gdbheapx.kernel.glibc.walkers import ChunkWalker
from gdbheapx.kernel.jemalloc.walkers import ExtentWalker
from tests.support import reference_walk
from tests.support.builders import heap, rtree_truth
from tests.support.builders.call_source import call_source
from tests.support.builders.extent_cases import PADDED, cached_in
from tests.support.builders.extent_cases import heaps as extent_heaps

FEW = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
STEP = 0x100000


def rows(stream: Any) -> List[Tuple[int, int, int, int, int]]:
    """All of them, one by one."""
    return [row for blocks in stream for row in zip(*blocks)]


class Process:
    """Some heaps, a joined arena with one of them in its gap, and mapped chunks between them."""

    def __init__(self, seed: int, count: int = 5) -> None:
        rng = random.Random(seed)
        made = [self._heap(rng, STEP * (place + 1)) for place in range(count)]
        self.regions = [NativeListed(built.region, place) for place, built in enumerate(made)]
        rng.shuffle(self.regions)
        self.source = BytesSource(tuple((built.region.begin, built.data) for built in made))
        self.cached_chunks = array("Q", [special for built in made for special in built.cached_chunks])
        chunks = [(chunk + 16, size - 8, status, place) for place, built in enumerate(made) for chunk, size, status in built.chunks]
        places = rng.sample(range(2 * count + 2), rng.randrange(count + 2))
        mapped = [(STEP // 2 * place + 0x8010, 0x5000, CLASS_USED, STATUS_MAPPED, NO_ARENA) for place in places]
        self.apart = make_blocks(mapped)
        self.wanted = sorted([(row[0], row[1], row[2], row[3]) for row in chunks] + [(row[0], row[1], row[3], row[4]) for row in mapped])

    @staticmethod
    def _heap(rng: random.Random, address: int) -> heap.Built:
        spec: List[Tuple[int, int]] = []
        for _ in range(rng.randrange(1, 40)):
            status = rng.choice((STATUS_USED, STATUS_FREE, STATUS_TCACHE)) if spec and spec[-1][0] != STATUS_FREE else STATUS_USED
            spec.append((status, 32 + 16 * rng.randrange(30)))
        return heap.build(spec, end="top", address=address, seed=address)

    def stream(self, kernel: Kernel, wanted: BlockFilter = EVERYTHING, source: Any = None) -> Any:
        """All of it."""
        return ChunkWalker(kernel, source or self.source, heap.LP64, Budget()).blocks(self.regions, self.cached_chunks, wanted, self.apart)


def without_class(found: Sequence[Tuple[int, int, int, int, int]]) -> List[Tuple[int, int, int, int]]:
    """Rows as Process.wanted has them."""
    return [(address, usable, kind, arena) for address, usable, _, kind, arena in found]


@pytest.mark.parametrize("seed", range(6))
def test_a_stream_goes_on_where_another_stopped(kernel: Kernel, seed: int) -> None:
    """From each place that `at` can name, the rest and nothing else."""
    process, reads = Process(seed), 0
    while True:
        stream = process.stream(kernel, source=call_source(process.source, reads))
        first = rows(stream)
        rest = process.stream(kernel, BlockFilter(start=stream.result.at)) if stream.result.stop == STOP_TIME else ()
        assert without_class(first + rows(rest)) == process.wanted
        if stream.result.stop != STOP_TIME:
            break
        reads += 1
    assert reads >= 5


@pytest.mark.parametrize("seed", range(6))
def test_a_stream_begins_at_any_block(kernel: Kernel, seed: int) -> None:
    """Or between two: what lies below is left out."""
    process = Process(seed)
    for number, (address, _, _, _) in enumerate(process.wanted[::7]):
        start = address - number % 24
        assert without_class(rows(process.stream(kernel, BlockFilter(start=start)))) == [row for row in process.wanted if row[0] >= start]


@pytest.mark.parametrize("joined", [False, True])
def test_a_region_that_keeps_its_end_behind_damage(kernel: Kernel, joined: bool) -> None:
    """Another region begins behind the damage, and a mapped chunk lies between: each block once, also from any start."""
    built = heap.build([(STATUS_USED, 64)] * 30)
    begin, data = built.region.begin, bytearray(built.data)
    heap.put(data, heap.LP64, 10 * 64 + 8, 0x18)
    regions = [NativeListed(built.region._replace(joined=joined), 0), NativeListed(built.region._replace(begin=begin + 20 * 64), 1)]
    apart = make_blocks([(begin + 15 * 64, 64, CLASS_USED, STATUS_MAPPED, NO_ARENA)])
    wanted = [begin + 64 * place + 16 for place in [*range(10), *range(20, 31)]]
    wanted = sorted([*wanted, begin + 15 * 64])
    for start in [0, *(begin + 64 * place for place in [*range(10), 15, *range(20, 31)])]:
        stream = ChunkWalker(kernel, BytesSource(((begin, bytes(data)),)), heap.LP64, Budget()).blocks(regions, array("Q"), BlockFilter(start=start), apart)
        found = rows(stream)
        assert [row[0] for row in found] == [address for address in wanted if address >= start]
        assert [row[4] for row in found] == [NO_ARENA if row[3] == STATUS_MAPPED else int(row[0] > begin + 20 * 64) for row in found]


@FEW
@given(data=st.data())
def test_overlapping_regions_are_the_same_to_the_reference_walk(kernel: Kernel, data: Any) -> None:
    """Regions that damage has made of one heap, from anywhere to anywhere: equal columns, equal end."""
    process = Process(data.draw(st.integers(0, 1000)), 2)
    chunks = [row[0] - 16 for row in process.wanted if row[2] != STATUS_MAPPED]
    places = st.tuples(st.sampled_from(chunks), st.sampled_from(chunks), st.integers(0, 3)).filter(lambda pair: pair[0] < pair[1])
    drawn = data.draw(st.lists(places, min_size=1, max_size=5))
    process.regions = [NativeListed(Region(low, high, 0, joined == 0), place) for place, (low, high, joined) in enumerate(drawn)]
    wanted = BlockFilter(start=data.draw(st.sampled_from([0, *chunks])), min_size=data.draw(st.sampled_from((0, 100))))
    process.apart = process.apart.part(0, 0)
    stream = process.stream(kernel, wanted)
    found = without_class(rows(stream))
    assert (found, stream.result) == reference_walk.list_chunks(process.source, heap.LP64, process.regions, process.cached_chunks, wanted)


@FEW
@given(data=st.data())
def test_blocks_of_extents_go_on_and_take_others_in(kernel: Kernel, data: Any) -> None:
    """Blocks apart come in their turn, a start leaves out what is below: what was built."""
    built = data.draw(extent_heaps())
    cached = data.draw(cached_in(built))
    truth = rtree_truth.blocks(built, cached, PADDED)
    places = data.draw(st.lists(st.integers(0, len(truth)), max_size=4, unique=True))
    apart = make_blocks([((truth[place][0] if place < len(truth) else truth[-1][0] + 1 if truth else 0) + 1, 8, 4, 7, 3) for place in places])
    start = data.draw(st.sampled_from([0, *(row[0] for row in truth)]))
    stream = ExtentWalker(kernel, built.source, built.heap(PADDED), Budget()).blocks(array("Q", sorted(cached)), BlockFilter(start=start), None, apart)
    found = without_class(rows(stream))
    assert stream.result is not None and stream.result.stop == STOP_END
    beside = [(address, usable, kind, arena) for address, usable, _, kind, arena in zip(*apart)]
    assert found == sorted(row for row in [*truth, *beside] if row[0] >= start)
