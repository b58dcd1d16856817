"""How much longer an extent is than the large allocation in it (sz_large_pad), where no variable says it: a page in cache-oblivious builds.

From 5.3.1 on the usable size is the extent's less this. In a cache-oblivious build the allocation begins at a random cache line of the
first page.
"""

from array import array
from typing import Iterator, Optional, Sequence, Set

from gdbheapx.errors import Unreadable
from gdbheapx.inferior.base import Target
from gdbheapx.inferior.types import TypeSet
from gdbheapx.jemalloc.detection.calibrate import words
from gdbheapx.jemalloc.detection.geometry import Geometry
from gdbheapx.layout.view import read_view

MOST_LEAVES = 4
MOST_EXTENTS = 256
ENOUGH = 8
"""So many that all begin with a page are no chance: one of 64 does in a cache-oblivious build."""


def find(target: Target, types: TypeSet, geometry: Geometry, near: Sequence[int]) -> int:
    """sz_large_pad, by large allocations in the parts of the radix tree that have these addresses; that of most builds if there are few."""
    found = seen(target, types, geometry, near)
    return geometry.page_bytes if found is None else found


def seen(target: Target, types: TypeSet, geometry: Geometry, near: Sequence[int]) -> Optional[int]:
    """The same; None if there are too few to tell."""
    aligned = 0
    for extent in _extents(target, geometry, near):
        try:
            view = read_view(target, types, geometry.extent_struct, extent)
        except Unreadable:
            continue
        bits, fields = view["e_bits"], geometry.fields
        is_large = not fields["slab"].of(bits) and fields["state"].of(bits) == geometry.states.active
        if is_large and geometry.nbins <= fields["szind"].of(bits) < len(geometry.size_classes):
            if view["e_addr"] % geometry.page_bytes:
                return geometry.page_bytes
            aligned += 1
    return 0 if aligned >= ENOUGH else None


def _extents(target: Target, geometry: Geometry, near: Sequence[int]) -> Iterator[int]:
    """Extents that the leaves above these addresses name."""
    shape = geometry.rtree
    seen: Set[int] = set()
    leaves: Set[int] = set()
    mask = (1 << shape.lg_vaddr) - 1 & ~((1 << geometry.leaf_low_bits) - 1)
    width = 1 if shape.compact else 2
    for address in near:
        leaf = _leaf(target, geometry, address)
        if leaf in leaves or len(leaves) >= MOST_LEAVES:
            continue
        leaves.add(leaf)
        data = target.read_prefix(leaf, width * geometry.word_bytes << shape.levels[-1]) if leaf else b""
        found: Set[int] = set(array("Q", data[: len(data) & -8])[::width])
        for element in sorted(found):
            extent = element & mask if shape.compact else element
            if extent and extent not in seen and len(seen) < MOST_EXTENTS:
                seen.add(extent)
                yield extent


def _leaf(target: Target, geometry: Geometry, address: int) -> int:
    """The last node above this address; 0 if there is none."""
    node, shift = geometry.rtree_root, geometry.rtree.lg_vaddr
    key = address & (1 << shift) - 1
    try:
        for bits in geometry.rtree.levels[:-1]:
            shift -= bits
            node = words(target, node + (key >> shift & (1 << bits) - 1) * geometry.word_bytes, 1)[0] if node else 0
    except Unreadable:
        return 0
    return node
