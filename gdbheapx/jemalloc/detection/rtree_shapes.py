"""How addresses are split over the levels of the radix tree, by the constants of a build (rtree.h)."""

from typing import NamedTuple, Optional, Sequence, Tuple


class RtreeShape(NamedTuple):
    """How addresses are split over the levels of the radix tree (rtree.h)."""

    lg_vaddr: int
    levels: Tuple[int, ...]
    """Key bits per level, root first."""
    compact: bool
    """A leaf element is one word (RTREE_LEAF_COMPACT)."""


LG_VADDRS = (48, 57, 52, 47, 39, 42)
"""Significant address bits that configure finds on 64-bit machines, the usual first."""


def rtree_shape(lg_vaddr: int, lg_page: int, nsizes: int) -> Optional[RtreeShape]:
    """RTREE_HEIGHT and rtree_levels for these constants; None if no height fits. 64-bit targets."""
    bits = lg_vaddr - lg_page
    compact = 64 - lg_vaddr >= (nsizes - 1).bit_length()
    if bits <= 0 or bits > 52:
        return None
    if bits <= 10:
        return RtreeShape(lg_vaddr, (bits,), compact)
    if bits <= 36:
        return RtreeShape(lg_vaddr, (bits // 2, bits - bits // 2), compact)
    third, rest = bits // 3, bits % 3
    return RtreeShape(lg_vaddr, (third, third + rest // 2, third + rest - rest // 2), compact)


def rtree_shapes(root_elements: int, lg_page: int, nsizes: int, compact: Optional[bool]) -> Sequence[RtreeShape]:
    """Every shape whose root array has that many elements, the likeliest first; calibration chooses."""
    shapes = [rtree_shape(lg_vaddr, lg_page, nsizes) for lg_vaddr in LG_VADDRS]
    return [shape for shape in shapes if shape and 1 << shape.levels[0] == root_elements and compact in (None, shape.compact)]
