"""The constants of a build on machines of either word size.

Files: jemalloc/layouts.py, jemalloc/arenas.py.
"""

from types import SimpleNamespace
from typing import Any

import pytest

from gdbheapx import arch
from gdbheapx.jemalloc.arenas import unpack_pointers
from gdbheapx.jemalloc.layouts import RtreeShape, list_rtree_shapes, make_rtree_shape

SHAPES = [
    (1 << 18, 8, RtreeShape(48, (18, 18), True)),
    (1 << 15, 8, RtreeShape(57, (15, 15, 15), False)),
    (1 << 10, 4, RtreeShape(32, (10, 10), False)),
]


@pytest.mark.parametrize("elements, word_bytes, shape", SHAPES)
def test_shapes_of_the_radix_tree(elements: int, word_bytes: int, shape: RtreeShape) -> None:
    """rtree.h: an element of the leaves is one word where the bits above an address hold a size class; with 32 bits there are none."""
    assert make_rtree_shape(shape.lg_vaddr, 12, 232, word_bytes) == shape
    assert list_rtree_shapes(elements, 12, 232, None, word_bytes)[0] == shape
    assert shape not in list_rtree_shapes(elements, 12, 232, not shape.compact, word_bytes)


@pytest.mark.parametrize("name", [name for name, (_, word_bytes, _) in arch.REGISTRY.items() if word_bytes == 4])
def test_addresses_of_32_bits_are_not_extended(name: str) -> None:
    """The upper half of such an address space is no negative address."""
    assert not arch.architecture_named(name).sign_extends


@pytest.mark.parametrize("word_bytes, order", [(8, "little"), (8, "big"), (4, "little"), (4, "big")])
def test_pointers_of_the_target(word_bytes: int, order: Any) -> None:
    """They are numbers of 64 bits here, as kernels take them, whatever they are there."""
    geometry: Any = SimpleNamespace(word_bytes=word_bytes, little_endian=order == "little")
    context: Any = SimpleNamespace(geometry=geometry)
    found = unpack_pointers(context, b"".join(value.to_bytes(word_bytes, order) for value in (0, 0xF7A7F6F0)))
    assert (found.typecode, list(found)) == ("Q", [0, 0xF7A7F6F0])
