"""Slabs: large blocks of malloc that the program cuts up itself, as LLVM's BumpPtrAllocator, arenas of protobuf, pools of apr and Zones do.

Where the layout of an allocator is known, its pieces are blocks of their own (of GLib, PostgreSQL and PHP), and its slabs are not
among these. Of others it shows that objects begin inside such blocks at places of no one stride: what vtables stand there, and where words
of such blocks lead to. An array, whose elements are of one size, has no such places; a slab of objects of one size shows no more than one
has, and is told as none.
"""

from bisect import bisect_right
from collections import Counter
from typing import AbstractSet, Dict, List, NamedTuple, Optional, Sequence, Set, Tuple

from gdbheapx.analysis.census.cplusplus import CppClasses
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
MOST_LOOKED_BYTES = 1 << 14
"""Of each block: a process stands still meanwhile."""
LEAST_PLACES, MOST_PLACES = 16, 128
"""Objects that begin in a block: so many, of which some are looked at."""
LEAST_UNIT_BYTES, ALIGNED_BYTES = 8, 16
LEAST_STRIDE_UNITS, MOST_STRIDE_BYTES = 4, 512
"""Elements of an array: where all that begins stands at half of the places in them or less, there are elements of that size."""
PARTS, LEAST_PARTS = 16, 4
"""They stand in so many of these parts of a block. A stack, whose words lead into it as well, is in use at one end."""
LEAST_DISTANCES = 8
"""Between words that lead into their own block and where they lead: a string with an inline buffer has always the same."""


class Slabs(NamedTuple):
    """Sums of all slabs."""

    blocks: int
    bytes: int
    sizes_bytes: Sequence[int]
    """Usable bytes of one slab, those that take most first."""
    share_percent: float
    """Of what is in use."""


class SlabGroup(NamedTuple):
    """Large blocks of one size."""

    size_bytes: int
    starts: Sequence[int]
    """In ascending order."""


def group_blocks(large: Sequence[Tuple[int, int]]) -> List[SlabGroup]:
    """Group (address, size) by size; return the sizes with enough blocks, those that take most first."""
    counts = Counter(size // SIZE_STEP_BYTES for _, size in large)
    often = [(-step * count, step) for step, count in counts.items() if count >= LEAST_BLOCKS]
    whole = -sum(weight for weight, _ in often)
    some: Dict[int, List[Tuple[int, int]]] = {step: [] for weight, step in sorted(often)[:MOST_SIZES] if -weight * MOST_SIZES * 4 >= whole}
    for start, size in large:
        if size // SIZE_STEP_BYTES in some:
            some[size // SIZE_STEP_BYTES].append((start, size))
    return [SlabGroup(min(size for _, size in blocks), sorted(start for start, _ in blocks)) for blocks in some.values()]


class Sampled(NamedTuple):
    """Contents of some blocks of one size."""

    group: SlabGroup
    contents: Sequence[Tuple[int, bytes]]
    """By address the first bytes of some, from the first block to the last."""


def read_slabs(world: World, large: Sequence[Tuple[int, int]]) -> List[Sampled]:
    """Read samples of large blocks, given as (address, size), while the process is stopped."""
    made = []
    for group in group_blocks(large):
        count, last = min(MOST_SAMPLES, len(group.starts)), len(group.starts) - 1
        some = [group.starts[place * last // max(1, count - 1)] for place in range(count)]
        made.append(Sampled(group, [(start, world.read(start, min(group.size_bytes, MOST_LOOKED_BYTES))) for start in some]))
    return made


def find_slabs(world: World, sampled: Sequence[Sampled], used_bytes: int) -> Optional[Slabs]:
    """Return the slabs among samples; None if there are none, or they are little of what is in use."""
    classes: AbstractSet[int] = frozenset(world.constant(CppClasses).firsts() if sampled and world.word_bytes == 8 else ())
    cut_up = [some.group for some in sampled if _is_cut_up(world, some, classes)]
    total = sum(group.size_bytes * len(group.starts) for group in cut_up)
    if not total or 100 * total < LEAST_PERCENT * used_bytes:
        return None
    blocks = sum(len(group.starts) for group in cut_up)
    return Slabs(blocks, total, [group.size_bytes for group in cut_up], round(100.0 * total / max(total, used_bytes), 1))


def _is_cut_up(world: World, some: Sampled, classes: AbstractSet[int]) -> bool:
    """Return True if most of the blocks that were read have objects inside."""
    return 2 * sum(_has_objects(world, some.group, start, data, classes) for start, data in some.contents) > len(some.contents)


def _has_objects(world: World, group: SlabGroup, start: int, data: bytes, classes: AbstractSet[int]) -> bool:
    """Return True if objects of several sizes begin inside this block."""
    words = world.target.words_in(data[: len(data) // world.word_bytes * world.word_bytes])
    if _are_of_no_stride([at * world.word_bytes for at, word in enumerate(words) if word in classes], len(data)):
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
    if len(places) < LEAST_PLACES or len({place * PARTS // size for place in places}) < LEAST_PARTS:
        return False
    rest, many = Counter(place % ALIGNED_BYTES for place in places).most_common(1)[0]
    is_aligned = 4 * many >= 3 * len(places)  # as a rule: some stand between
    unit = ALIGNED_BYTES if is_aligned else LEAST_UNIT_BYTES
    some = [place for place in places if not is_aligned or place % ALIGNED_BYTES == rest][:MOST_PLACES]
    strides = range(LEAST_STRIDE_UNITS * unit, MOST_STRIDE_BYTES + 1, unit)
    return all(2 * len({place % stride for place in some}) > min(stride // unit, len(some)) for stride in strides)
