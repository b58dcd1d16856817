"""Probes: a few words that tell whose a mapping is, where its length and place do not."""

import struct
from typing import Callable, Dict, List, Sequence

from gdbheapx.ranges import Range

Read = Callable[[int, int], bytes]

SAMPLES = 6
POOL_SIZES = (16 << 10, 4 << 10)
"""Objects/obmalloc.c: POOL_SIZE from 3.10 on, and before."""
HEADER = struct.Struct("<IIQQQIIII")
"""struct pool_header on 64-bit machines."""
MAX_CLASS = 32


def is_pool(data: bytes, pool_bytes: int) -> bool:
    """A pool_header whose numbers agree: how many blocks, how large, how far it was cut up (Objects/obmalloc.c: init_pool)."""
    if len(data) < HEADER.size:
        return False
    count, _, _, _, _, _, size_class, next_offset, max_offset = HEADER.unpack_from(data)
    if size_class >= MAX_CLASS:
        return False
    size = 16 * (size_class + 1)
    cut = next_offset - HEADER.size
    return bool(
        max_offset == pool_bytes - size and cut >= size and cut % size == 0 and next_offset <= pool_bytes and 0 < count <= cut // size
    )


def samples(gaps: Sequence[Range], step: int) -> List[int]:
    """Up to SAMPLES addresses, multiples of `step`, spread over the ranges."""
    found: List[int] = []
    total = sum(end - start for start, end in gaps)
    for start, end in gaps:
        first = -(-start // step) * step
        steps = (end - first) // step
        wanted = min(max(1, SAMPLES * (end - start) // (total or 1)), steps)
        found += [first + step * (steps * number // wanted) for number in range(wanted)]
    return found[:SAMPLES]


def has_cpython_pools(gaps: Sequence[Range], read: Read) -> bool:
    """Most of the places where pools would begin have the header of one. What is empty or not in memory says nothing."""
    for pool_bytes in POOL_SIZES:
        seen = [data for data in (read(address, HEADER.size) for address in samples(gaps, pool_bytes)) if data.strip(b"\0")]
        good = sum(is_pool(data, pool_bytes) for data in seen)
        if good and 2 * good >= len(seen):
            return True
    return False


PROBES: Dict[str, Callable[[Sequence[Range], Read], bool]] = {"cpython-pools": has_cpython_pools}
