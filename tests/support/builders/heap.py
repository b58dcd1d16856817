"""A heap as bytes, from a list of (status, size), for any geometry."""

import random
from array import array
from typing import Any, Dict, List, NamedTuple, Optional, Sequence, Tuple

from gdbheapx.inferior.base import BytesSource
from gdbheapx.kernel.common.library import STOP_END, STOP_FENCE, STOP_TOP, histogram_class
from gdbheapx.kernel.glibc import records

Spec = Sequence[Tuple[int, int]]

ENDS = ("top", "end", "fence", "small-fence")
"""What follows the listed chunks: a top chunk; nothing; a fencepost and a terminator; a chunk of MINSIZE that became the fencepost, and a
terminator (sysmalloc, old top too small to be freed)."""

GEOMETRIES = tuple(
    records.Geometry(word, alignment, max(4 * word, alignment), 6 * word, page, little)
    for word, alignment in ((8, 16), (4, 8), (4, 16))
    for page in (4096, 65536)
    for little in (True, False)
)
"""x86-64 and aarch64, armhf and old i386, i386; both byte orders and two page sizes each."""

LP64 = GEOMETRIES[0]


class Built(NamedTuple):
    """A heap and what a walk of it must say."""

    data: bytes
    region: records.Region
    cached_chunks: Any
    """Sorted array('Q') of chunk | kind."""
    chunks: List[Tuple[int, int, int]]
    """(chunk, size, status) of every chunk that a listing gives."""
    expected: records.WalkResult

    @property
    def source(self) -> BytesSource:
        """The heap's bytes alone, nothing around them."""
        return BytesSource(((self.region.begin, self.data),))


def first_chunk(geometry: records.Geometry, address: int) -> int:
    """The first chunk address from `address` on: what malloc returns for it is aligned."""
    return address + -(address + 2 * geometry.word_bytes) % geometry.alignment_bytes


def put(data: bytearray, geometry: records.Geometry, offset: int, value: int) -> None:
    """Writes one word."""
    word = geometry.word_bytes
    data[offset : offset + word] = (value & ((1 << 8 * word) - 1)).to_bytes(word, "little" if geometry.little_endian else "big")


def build(
    spec: Spec,
    geometry: records.Geometry = LP64,
    end: str = "top",
    address: int = 0x5550000,
    seed: int = 0,
    top_bytes: Optional[int] = None,
    is_main: Optional[bool] = None,
) -> Built:
    """The heap. Contents of chunks are random bytes; N is set on those that were handed out as `is_main` says, else at random."""
    rng = random.Random(seed)
    word = geometry.word_bytes
    begin = first_chunk(geometry, address)
    spec = list(spec)
    if end == "top":
        spec.append((records.STATUS_TOP, top_bytes or geometry.min_chunk_bytes * 3))
    elif end == "small-fence":
        spec.append((records.STATUS_FENCE, geometry.min_chunk_bytes))
    size = sum(entry[1] for entry in spec)
    tail = {"fence": 4 * word, "small-fence": 2 * word}.get(end, 0)
    data = bytearray(rng.randbytes(size + tail))
    offset, before = 0, records.STATUS_USED
    chunks: List[Tuple[int, int, int]] = []
    links: Dict[int, Tuple[int, int]] = {}
    for status, length in spec:
        drawn = 4 * rng.randrange(2) if status in (records.STATUS_USED, records.STATUS_TCACHE) else 0
        handed_out = status not in (records.STATUS_FREE, records.STATUS_TOP, records.STATUS_FENCE)
        flags = (before != records.STATUS_FREE) | (drawn if is_main is None else 4 * (handed_out and not is_main))
        if before == records.STATUS_FREE:
            put(data, geometry, offset, chunks[-1][1])
        put(data, geometry, offset + word, length | flags)
        if status == records.STATUS_FREE:
            links[begin + offset] = (rng.getrandbits(8 * word), rng.getrandbits(8 * word))
            put(data, geometry, offset + 2 * word, links[begin + offset][0])
            put(data, geometry, offset + 3 * word, links[begin + offset][1])
        chunks.append((begin + offset, length, status))
        offset += length
        before = status
    if tail:
        if before == records.STATUS_FREE:
            put(data, geometry, offset, chunks[-1][1])
        put(data, geometry, offset + word, (2 * word if end == "fence" else 0) | (before != records.STATUS_FREE))
    if end == "fence":
        put(data, geometry, offset + 3 * word, 1)
    region = records.Region(begin, begin + len(data), begin + offset - spec[-1][1] if end == "top" else 0)
    cached = (records.STATUS_FAST, records.STATUS_TCACHE, records.STATUS_TCACHE_STRUCT)
    cached_chunks = array("Q", [chunk | status for chunk, _, status in chunks if status in cached])
    return Built(bytes(data), region, cached_chunks, chunks, expect(chunks, links, geometry, region, end))


def expect(
    chunks: List[Tuple[int, int, int]], links: Dict[int, Tuple[int, int]], geometry: records.Geometry, region: records.Region, end: str
) -> records.WalkResult:
    """The totals, from the list alone."""
    counts: Dict[str, Any] = dict.fromkeys(records.WalkResult._fields, 0)
    names = {getattr(records, "STATUS_" + name.upper()): name for name in ("used", "fast", "tcache", "tcache_struct", "free")}
    for _chunk, size, status in chunks:
        if status in names:
            counts[names[status] + "_chunks"] += 1
            counts[names[status] + "_bytes"] += size
        else:
            counts["top_bytes" if status == records.STATUS_TOP else "fence_bytes"] += size
        counts["specials_met"] += status in (records.STATUS_FAST, records.STATUS_TCACHE, records.STATUS_TCACHE_STRUCT)
    free = [chunk for chunk in chunks if chunk[2] == records.STATUS_FREE]
    pairs = [two for one, two in zip(chunks, chunks[1:]) if one[2] == two[2] == records.STATUS_FREE]
    last = chunks[-1] if chunks else (region.begin, 0, records.STATUS_USED)
    counts.update(
        stop={"top": STOP_TOP, "end": STOP_END}.get(end, STOP_FENCE),
        at=region.top or last[0] + last[1],
        largest_free_bytes=max([size for _, size, _ in free], default=0),
        free_sum=sum(chunk for chunk, _, _ in free) % (1 << 64),
        fd_sum=sum(links[chunk][0] for chunk, _, _ in free) % (1 << 64),
        bk_sum=sum(links[chunk][1] for chunk, _, _ in free) % (1 << 64),
        bad_neighbour=pairs[0][0] if pairs else 0,
        bad_neighbour_chunks=len(pairs),
        **dict.fromkeys(records.PAGE_COUNTERS),
        histogram=_histogram(chunks, geometry),
    )
    counts.update(_runs(chunks, geometry))
    return records.WalkResult(**counts)


def _runs(chunks: List[Tuple[int, int, int]], geometry: records.Geometry) -> Dict[str, int]:
    """What mtrim would give back of the runs of adjacent free and fast chunks."""
    sums = {"interior_bytes": 0, "interior_ranges": 0, "top_run_start": 0}
    start = 0
    for chunk, _, status in chunks + [(chunks[-1][0] + chunks[-1][1] if chunks else 0, 0, records.STATUS_USED)]:
        if status in (records.STATUS_FREE, records.STATUS_FAST):
            start = start or chunk
        elif status == records.STATUS_TOP:
            sums["top_run_start"], start = start, 0
        elif start:
            pages = chunk // geometry.page_bytes - -(-(start + geometry.chunk_struct_bytes) // geometry.page_bytes)
            if pages > 0:
                sums["interior_ranges"] += 1
                sums["interior_bytes"] += pages * geometry.page_bytes
            start = 0
    return sums


def _histogram(chunks: List[Tuple[int, int, int]], geometry: records.Geometry) -> Tuple[Tuple[int, ...], ...]:
    rows: Dict[int, List[int]] = {}
    for _, size, status in chunks:
        row = rows.setdefault(histogram_class(size, geometry.alignment_bytes), [0] * 5)
        if status == records.STATUS_USED:
            row[0] += 1
            row[1] += size
        elif status in (records.STATUS_FREE, records.STATUS_FAST):
            row[2] += 1
            row[3] += size
        elif status == records.STATUS_TCACHE:
            row[4] += 1
    return tuple((index, *row) for index, row in sorted(rows.items()) if any(row))


def large(seed: int, megabytes: int, geometry: records.Geometry = LP64, largest: int = 6000) -> Tuple[bytes, records.Region, Any]:
    """A heap of many MiB, fast to make: one MiB of chunks again and again. (bytes, region, cached chunks)."""
    rng = random.Random(seed)
    spec: List[Tuple[int, int]] = []
    room = 1 << 20
    unit = geometry.alignment_bytes
    while room > 2 * largest:
        status = rng.choice((records.STATUS_USED,) * 8 + (records.STATUS_FREE,) * 6 + (records.STATUS_FAST, records.STATUS_TCACHE))
        if status == records.STATUS_FREE and spec and spec[-1][0] == records.STATUS_FREE:
            status = records.STATUS_USED
        length = rng.randrange(geometry.min_chunk_bytes, largest if rng.random() < 0.03 else 400, unit)
        spec.append((status, length))
        room -= length
    spec.append((records.STATUS_USED, room // unit * unit))
    one = build(spec, geometry, "end", seed=seed)
    step, begin = len(one.data), one.region.begin
    cached_chunks = array("Q", [special + step * turn for turn in range(megabytes) for special in one.cached_chunks])
    data = one.data * megabytes
    return data, records.Region(begin, begin + len(data), 0), cached_chunks
