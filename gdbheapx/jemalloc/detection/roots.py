"""The root of the radix tree, where no symbol names it: from 5.3.0 every arena does, before that look-ups of slabs find it.

A tree is never walked before that: with a wrong root or shape a walk takes minutes.
"""

from array import array
from itertools import islice
from typing import Dict, Iterable, Iterator, List, Sequence, Tuple

from gdbheapx.errors import Unreadable
from gdbheapx.inferior.base import Module, Target
from gdbheapx.inferior.types import TypeSet
from gdbheapx.jemalloc.detection import calibrate
from gdbheapx.jemalloc.detection.geometry import Geometry, RtreeShape

SLABS_LOOKED_UP = 4
MOST_TRIED = 1 << 15
"""Words of the object's memory that may be the root's element above one slab."""
NODE_ALIGNMENT = 64
"""Nodes are whole cache lines of base memory (base.c)."""

Root = Tuple[int, RtreeShape]


def find(
    target: Target,
    module: Module,
    types: TypeSet,
    geometry: Geometry,
    shapes: Sequence[RtreeShape],
    arenas: Sequence[int],
    slabs: Iterable[Tuple[int, int]],
    memory: Sequence[Tuple[int, bytes]],
) -> List[Root]:
    """Every root and shape that may be it, to be proven. `slabs`: (extent, first address)."""
    place, emap = types.place("emap_s", "rtree.root"), types.place("arena_s", "pa_shard.emap")
    if place is not None and emap is not None:
        return [(root + place.offset, shape) for root in _named(target, arenas, emap.offset) for shape in shapes]
    known = list(islice(slabs, SLABS_LOOKED_UP))
    return list(_by_look_up(target, module, geometry, shapes, known, memory)) if known else []


def _named(target: Target, arenas: Sequence[int], offset: int) -> List[int]:
    """What most arenas name as arena_emap_global."""
    votes: Dict[int, int] = {}
    for arena in arenas:
        word = int.from_bytes(target.read_prefix(arena + offset, 8), "little")
        votes[word] = votes.get(word, 0) + 1
    best = max(votes, key=lambda word: votes[word], default=0)
    return [best] if best else []


def _by_look_up(
    target: Target,
    module: Module,
    geometry: Geometry,
    shapes: Sequence[RtreeShape],
    slabs: Sequence[Tuple[int, int]],
    memory: Sequence[Tuple[int, bytes]],
) -> Iterator[Root]:
    """Each word of the object's memory is tried as the root's element above the first slab; the others must then be found as well."""
    spans = [(start, end) for start, _, end in target.writable_segments(module)]
    slab, begin = slabs[0]
    for shape in shapes:
        key, left = begin >> shape.lg_vaddr - shape.levels[0] & (1 << shape.levels[0]) - 1, MOST_TRIED
        root_bytes = geometry.word_bytes << shape.levels[0]
        for address, data in memory:
            first = -address & 7
            for number, word in enumerate(array("Q", data[first : first + (len(data) - first & -8)])):
                if not word or word % NODE_ALIGNMENT or left <= 0:
                    continue
                root = address + first + 8 * number - geometry.word_bytes * key
                if not any(start <= root and root + root_bytes <= end for start, end in spans):
                    continue
                left -= 1
                if _leads(target, geometry, root, shape, slab, begin) and _others(target, geometry, root, shape, slabs):
                    yield root, shape


def _leads(target: Target, geometry: Geometry, root: int, shape: RtreeShape, slab: int, begin: int) -> bool:
    try:
        return calibrate.look_up(target, geometry._replace(rtree_root=root, rtree=shape), begin) == slab
    except Unreadable:
        return False


def _others(target: Target, geometry: Geometry, root: int, shape: RtreeShape, slabs: Sequence[Tuple[int, int]]) -> bool:
    held = sum(_leads(target, geometry, root, shape, slab, begin) for slab, begin in slabs)
    return 2 * held > len(slabs)


def is_plausible(target: Target, geometry: Geometry) -> bool:
    """Where no slab proves it: the root has elements, and each stands for addresses at which something is mapped."""
    shape, word = geometry.rtree, geometry.word_bytes
    shift = shape.lg_vaddr - shape.levels[0]
    data = target.read_prefix(geometry.rtree_root, word << shape.levels[0])
    used = [number for number, element in enumerate(array("Q", data[: len(data) & -8])) if element]
    mapped = {
        piece
        for one in target.mappings()
        for piece in range(one.start >> shift, min((one.end - 1 >> shift) + 1, (one.start >> shift) + 4096))
    }
    return bool(used) and all(number in mapped for number in used)
