"""Slabs: large blocks of malloc that the program cuts up itself, as LLVM's BumpPtrAllocator, arenas of protobuf, pools of apr and Zones do.

Where the layout of an allocator is known, its pieces are blocks of their own (glib.py, postgresql.py, php.py), and its slabs are not
among these. Of others it shows that objects begin inside such blocks at places of no one stride: what vtables stand there, and where words
of such blocks lead to. An array, whose elements are of one size, has no such places; a slab of objects of one size shows no more than one
has, and is told as none.
"""

from bisect import bisect_right
from collections import Counter
from typing import AbstractSet, Dict, List, NamedTuple, Optional, Sequence, Set, Tuple

from gdbheapx.analysis.census.cplusplus import Classes
from gdbheapx.analysis.census.world import World

LEAST_BYTES = 4096
"""Of a slab."""
LEAST_BLOCKS = 4
"""Of about one size: fewer are no habit."""
SIZE_STEP_BYTES = 64
"""Blocks whose sizes differ by less are of one size: what malloc gives beyond what was asked for."""
LEAST_PERCENT = 25
"""Of what is in use: an allocator of less is not worth a word."""
MOST_SIZES, MOST_SAMPLES = 8, 8
"""That are looked at: the sizes that take most, and blocks of each of them."""
MOST_LOOKED_BYTES = 1 << 16
"""Of each block."""
LEAST_PLACES, MOST_PLACES = 16, 512
"""Objects that begin in a block: so many, of which some are looked at."""
LEAST_UNIT_BYTES, ALIGNED_BYTES = 8, 16
LEAST_STRIDE_UNITS, MOST_STRIDE_BYTES = 4, 512
"""Elements of an array: where all that begins stands at half of the places in them or less, there are elements of that size."""
PARTS, LEAST_PARTS = 16, 4
"""They stand in so many of these parts of a block. A stack, whose words lead into it as well, is in use at one end."""
LEAST_DISTANCES = 8
"""Between words that lead into their own block and where they lead: a string with an inline buffer has always the same."""


class Slabs(NamedTuple):
    """Of all sizes together."""

    blocks: int
    bytes: int
    sizes_bytes: Sequence[int]
    """Usable bytes of one slab, those that take most first."""
    share_percent: float
    """Of what is in use."""


class Group(NamedTuple):
    """Large blocks of one size."""

    size_bytes: int
    starts: Sequence[int]
    """In ascending order."""


def groups(large: Sequence[Tuple[int, int]]) -> List[Group]:
    """Of (address, size) those of which there are enough, the sizes that take most first."""
    sizes: Dict[int, List[Tuple[int, int]]] = {}
    for start, size in large:
        sizes.setdefault(size // SIZE_STEP_BYTES, []).append((start, size))
    made = [
        Group(min(size for _, size in some), sorted(start for start, _ in some)) for some in sizes.values() if len(some) >= LEAST_BLOCKS
    ]
    return sorted(made, key=lambda group: -group.size_bytes * len(group.starts))[:MOST_SIZES]


def find(world: World, large: Sequence[Tuple[int, int]]) -> List[Group]:
    """Those of these blocks, as (address, size), that are slabs. Reads a few of each size."""
    some = groups(large)
    classes: AbstractSet[int] = frozenset(world.constant(Classes).firsts() if some and world.word_bytes == 8 else ())
    return [group for group in some if _is_cut_up(world, group, classes)]


def told(cut_up: Sequence[Group], used_bytes: int) -> Optional[Slabs]:
    """None where they are little of what is in use."""
    total = sum(group.size_bytes * len(group.starts) for group in cut_up)
    if not total or 100 * total < LEAST_PERCENT * used_bytes:
        return None
    blocks = sum(len(group.starts) for group in cut_up)
    return Slabs(blocks, total, [group.size_bytes for group in cut_up], round(100.0 * total / max(total, used_bytes), 1))


def _is_cut_up(world: World, group: Group, classes: AbstractSet[int]) -> bool:
    """Most of those that are looked at, from the first to the last."""
    count = min(MOST_SAMPLES, len(group.starts))
    samples = [group.starts[place * (len(group.starts) - 1) // max(1, count - 1)] for place in range(count)]
    return 2 * sum(_has_objects(world, group, start, classes) for start in samples) > count


def _has_objects(world: World, group: Group, start: int, classes: AbstractSet[int]) -> bool:
    """Objects of several sizes begin inside this block."""
    size = min(group.size_bytes, MOST_LOOKED_BYTES)
    data = world.read(start, size)
    words = world.target.words_in(data[: len(data) // world.word_bytes * world.word_bytes])
    if _are_of_no_stride([at * world.word_bytes for at, word in enumerate(words) if word in classes], size):
        return True
    first, last = group.starts[0], group.starts[-1] + group.size_bytes
    leads: Set[int] = set()
    distances: Set[int] = set()
    for at, word in enumerate(words):
        if not first < word < last:
            continue
        home = group.starts[bisect_right(group.starts, word) - 1]
        if 0 < word - home < group.size_bytes:
            leads.add(word - home)
            distances.add(word - start - at * world.word_bytes)
    return len(distances) >= LEAST_DISTANCES and _are_of_no_stride(sorted(leads), group.size_bytes)


def _are_of_no_stride(places: Sequence[int], size: int) -> bool:
    """In ascending order, from the start of a block of this size."""
    if len(places) < LEAST_PLACES or len({place * PARTS // size for place in places}) < LEAST_PARTS:
        return False
    rest, many = Counter(place % ALIGNED_BYTES for place in places).most_common(1)[0]
    is_aligned = 4 * many >= 3 * len(places)  # as a rule: some stand between
    unit = ALIGNED_BYTES if is_aligned else LEAST_UNIT_BYTES
    some = [place for place in places if not is_aligned or place % ALIGNED_BYTES == rest][:MOST_PLACES]
    strides = range(LEAST_STRIDE_UNITS * unit, MOST_STRIDE_BYTES + 1, unit)
    return all(2 * len({place % stride for place in some}) > min(stride // unit, len(some)) for stride in strides)
