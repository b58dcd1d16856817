"""Heaps that hypothesis draws: any geometry and end, whole or damaged."""

from array import array
from typing import Any, Tuple

from hypothesis import strategies as st

from gdbheapx.inferior.base import BulkSource, BytesSource
from gdbheapx.kernel.glibc.records import STATUS_FAST, STATUS_FREE, STATUS_TCACHE, STATUS_TCACHE_STRUCT, STATUS_USED, Geometry, Region
from tests.support.builders import heap

STATUSES = (STATUS_USED, STATUS_FREE, STATUS_USED, STATUS_FREE, STATUS_FAST, STATUS_TCACHE, STATUS_TCACHE_STRUCT)


@st.composite
def heaps(draw: Any) -> Tuple[Geometry, heap.Built]:
    """Any heap, with adjacent free chunks and large chunks now and then."""
    geometry = draw(st.sampled_from(heap.GEOMETRIES))
    end = draw(st.sampled_from(heap.ENDS))
    unit = geometry.alignment_bytes
    small = st.integers(0, 40).map(lambda units: geometry.min_chunk_bytes + unit * units)
    sizes = st.one_of(small, small, small, st.integers(1, 3 * geometry.page_bytes // unit).map(lambda units: geometry.min_chunk_bytes + unit * units))
    spec = draw(st.lists(st.tuples(st.sampled_from(STATUSES), sizes), max_size=60))
    if end == "end" and spec and spec[-1][0] == STATUS_FREE:
        spec[-1] = (STATUS_USED, spec[-1][1])
    return geometry, heap.build(spec, geometry, end, seed=draw(st.integers(0, 1000)))


@st.composite
def damaged(draw: Any) -> Tuple[Geometry, Region, Any, BulkSource]:
    """A heap with some words overwritten, cached chunks that may be wrong, and maybe a hole."""
    geometry, built = draw(heaps())
    data = bytearray(built.data)
    if data:
        values = st.one_of(st.integers(0, 80), st.integers(0, 1 << 16), st.integers(0, (1 << 64) - 1))
        for place, value in draw(st.lists(st.tuples(st.integers(0, len(data) - 1), values), max_size=6)):
            offset = place // geometry.word_bytes * geometry.word_bytes
            heap.put(data, geometry, offset, value)
    wrong = draw(st.lists(st.integers(0, len(data) // 8), max_size=4))
    cached_chunks = array("Q", sorted(set(built.cached_chunks) | {(built.region.begin & -8) + 8 * place | 1 + place % 3 for place in wrong}))
    begin = built.region.begin
    pieces: Any = ((begin, bytes(data)),)
    if len(data) > 200 and draw(st.booleans()):
        hole = draw(st.integers(0, len(data) - 100))
        pieces = ((begin, bytes(data[:hole])), (begin + hole + 50, bytes(data[hole + 50 :])))
    return geometry, built.region, cached_chunks, BytesSource(pieces)
