"""Builds of jemalloc: constants on machines of either word size, the moment of a look, and what is said of one that is there and is not read.

Files: jemalloc/layouts.py, jemalloc/arenas.py.
"""

from types import SimpleNamespace
from typing import Any, List, Optional

import pytest

from gdbheapx.inferior import arch
from gdbheapx.inferior.base import DebugHint, Mapping, Module, Thread
from gdbheapx.jemalloc import find, layouts
from gdbheapx.jemalloc.arenas import JemallocContext
from gdbheapx.jemalloc.find import NotReadable
from gdbheapx.jemalloc.layouts import RtreeShape, list_rtree_shapes, make_rtree_shape
from tests.support.builders.jemalloc import LIBRARY, FakeMemory


class Hinting(FakeMemory):
    """It knows how to get debug files."""

    def debug_hint(self, module: Module, packages: Any = ()) -> DebugHint:
        return "debuginfod-find debuginfo %s" % module.build_id, None


@pytest.mark.parametrize(
    "text, release, may_differ, bug",
    [
        ("5.3.0-0-g54eaed1d8b56b1aa528be3bdd1877e59c56fa90c", (5, 3, 0), False, False),
        ("5.3.0-1-ge13ca993e8ccb9ba9847cc330696e02839f328f7", (5, 3, 0), False, False),
        ("5.3.0-196-ga25b9b8ba91881964be3083db349991bbbbf1661", (5, 3, 0), True, False),
        ("5.2.1-2-g172143a2979d9d948035423ce347e35cd1388fc3", (5, 2, 1), False, True),
        ("5.2.1-3-g172143a", (5, 2, 1), True, None),
        ("5.0.0-0-g1", (5, 0, 0), False, False),
        ("4.5.0-0-g04380e79f1e2428bd0ad000bbc6e3d2dfc6b66a5", (4, 5, 0), False, None),
        ("0.0.0-0-g0000000000000000000000000000000000000000", None, True, None),
        ("5.3.0", (5, 3, 0), False, False),
        ("after 5.3.1", None, True, None),
        (None, None, True, None),
    ],
)
def test_a_snapshot_is_not_its_release(text: Optional[str], release: object, may_differ: bool, bug: Optional[bool]) -> None:
    """Only as many commits as were seen to keep the layout; of the fault that makes threads blind no more is said than the text tells."""
    assert layouts.parse_jemalloc_release(text) == release
    assert layouts.may_differ(text) is may_differ
    assert layouts.text_has_ticker_bug(text) is bug
    assert layouts.is_read(text) is (text is None or not text.startswith("4"))


def test_nothing_is_said_that_is_not_known() -> None:
    """Without a version text the traces name the release, and the record's text stays unknown; without either there is no word of it."""
    told = find.make_unread(Hinting(), LIBRARY, NotReadable(find.STRIPPED), None, None, "5.3.0")
    assert told.what.startswith("cannot read jemalloc 5.3.0 in ") and told.version_text is None and told.has_ticker_bug is False
    silent = find.make_unread(Hinting(), LIBRARY, NotReadable(find.STRIPPED), None, None)
    assert silent.what.startswith("cannot read jemalloc in ") and "pages" not in silent.what and "bug" not in silent.what and silent.has_ticker_bug is None


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
    found = JemallocContext.unpack_pointers(context, b"".join(value.to_bytes(word_bytes, order) for value in (0, 0xF7A7F6F0)))
    assert (found.typecode, list(found)) == ("Q", [0, 0xF7A7F6F0])


JEMALLOC, LIBC, PROGRAM, STACK = 0x10000, 0x20000, 0x30000, 0x80000
NAMES = {JEMALLOC: "/lib/libjemalloc.so.2", LIBC: "/lib/libc.so.6", PROGRAM: "/bin/program"}


@pytest.mark.parametrize(
    "pc, words, told",
    [
        (JEMALLOC + 8, [], "surely"),
        (LIBC + 8, [JEMALLOC + 8], "surely"),
        (LIBC + 8, [1, LIBC + 16, JEMALLOC + 8, LIBC + 24], "maybe"),
        (LIBC + 8, [1, LIBC + 16, 2, JEMALLOC + 8, PROGRAM + 8], "surely"),
        (LIBC + 8, [1, LIBC + 16, PROGRAM + 8, JEMALLOC + 8], "maybe"),
        (PROGRAM + 8, [1, JEMALLOC + 8], "maybe"),
        (LIBC + 8, [1, PROGRAM + 8], ""),
        (None, [1, JEMALLOC + 8], "maybe"),
    ],
    ids=["in it", "returns there", "a background thread", "waits in libc", "waits in libc for the program", "in the program", "elsewhere", "nowhere"],
)
def test_who_is_inside(pc: Any, words: List[int], told: str) -> None:
    """In its code; in libc, which it has called; or perhaps, where its address only stands on the stack."""
    data = b"".join(word.to_bytes(8, "little") for word in words)
    target = SimpleNamespace(
        mappings=lambda: [Mapping(start, start + 0x1000, True, False, True, False, name, None) for start, name in NAMES.items()],
        threads=lambda: [Thread(7, None, None, STACK, pc)],
        read_prefix=lambda address, size: data,
        words_in=lambda read: list(memoryview(read).cast("Q")),
    )
    module = SimpleNamespace(base=JEMALLOC, name=NAMES[JEMALLOC])
    geometry = SimpleNamespace(word_bytes=8, little_endian=True)
    jemalloc: Any = SimpleNamespace(module=module, geometry=geometry)
    made: Any = (target, jemalloc, None, None, None, None, None)
    found = JemallocContext(*made).find_threads_inside()
    assert found == ([7] if told == "surely" else [], [7] if told == "maybe" else [])


@pytest.mark.parametrize("element_bytes, count", [(16, 4), (0, 3), (-8, 3)])
def test_a_struct_of_no_size_divides_nothing(element_bytes: int, count: int) -> None:
    """Debug information of a target may say that a bin has no bytes: the array's length is then its type's."""
    symbols: Any = SimpleNamespace(size_bytes=lambda name: 64)
    types: Any = SimpleNamespace(variables={"bin_infos": SimpleNamespace(count=3)})
    assert find._count_elements(symbols, types, "bin_infos", element_bytes) == count
