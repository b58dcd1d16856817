"""Blocks known by their form: OpenSSL's and BoringSSL's tables, SQLite's way to files, dicts of redis, BIND's structures; what is nearly one is none.

Files: addons/runtimes/openssl.py, addons/runtimes/block_headers.py, addons/runtimes/bind.py.
"""

import struct
from array import array
from types import SimpleNamespace
from typing import Any, Callable, Dict, List, Optional, Sequence, Tuple, cast

import pytest

from gdbheapx.addons.runtimes.bind import LEAST_BYTES, RECOGNISERS
from gdbheapx.addons.runtimes.block_headers import Redis, has_sqlite
from gdbheapx.addons.runtimes.openssl import ANY_VERSION, FIRST_NUMBER, ObjectConstants, find_identifiers, is_bio, is_boring, is_method
from gdbheapx.analysis.census.images import Images
from gdbheapx.analysis.census.world import EXACT, CensusTarget, Signature
from tests.support.plain_signer import name_blocks

pytestmark = pytest.mark.once  # pure functions

START, END, NAME, CODE = 0x7F0000000000, 0x7F0000100000, 0x7F0000080000, 0x7F00000C0000


class Object:
    """One object: its last quarter is code."""

    def span_at(self, address: int) -> Tuple[int, int, Any]:
        """See Images."""
        return START, END, None

    def is_code(self, address: int) -> bool:
        """See Images."""
        return CODE <= address < END


def constants(words: Sequence[int]) -> ObjectConstants:
    """These words from START on."""
    return ObjectConstants(cast(Images, Object()), START, struct.pack("<%dQ" % len(words), *words))


def numbers(count: int, wrong: Dict[int, int]) -> List[int]:
    """nid_objs from 1 on, {sn, ln, nid | length, data, flags} each; `wrong`: which have another number."""
    return [word for number in range(1, count + 1) for word in (NAME, NAME, wrong.get(number, number) | 6 << 32, NAME, 0)]


@pytest.mark.parametrize(("words", "count"), [(numbers(600, {}), 600), (numbers(499, {}), 0), (numbers(600, {400: 7}), 0), ([1] * 3000, 0)])
def test_identifiers(words: List[int], count: int) -> None:
    """The number of each is its place, and there are many; OpenSSL has one more before, BoringSSL has not."""
    for before in ([], [NAME, NAME, 0, 0, 0]):
        here = constants(before + words)
        found = [find_identifiers(here, at - 16) for at in here.places(FIRST_NUMBER)]
        assert max([len(objects) for objects in found], default=0) == count


def test_numbers_without_names() -> None:
    """A table of that form whose names lie outside the object is none."""
    assert not find_identifiers(constants([word if word != NAME else 0x1000 for word in numbers(600, {})]), START)


@pytest.mark.parametrize(
    ("words", "is_one"),
    [
        ([ANY_VERSION, 0, *[CODE] * 20], True),
        ([0x303 | 2 << 32, 0x8000, *[CODE] * 20], True),
        ([ANY_VERSION, 0, *[CODE] * 19, NAME], False),
        ([ANY_VERSION, 0, *[CODE] * 19, 0], False),
        ([ANY_VERSION, CODE, *[CODE] * 20], False),
        ([0x305, 0, *[CODE] * 20], False),
        ([ANY_VERSION, 0, *[CODE] * 5], False),
    ],
)
def test_methods(words: List[int], is_one: bool) -> None:
    """A version, few flags, a mask, and then functions alone."""
    assert is_method(constants(words), START) == is_one


@pytest.mark.parametrize(
    ("kind", "functions", "is_one"),
    [
        (0x401, [CODE] * 8, True),
        (0x401, [CODE, 0] * 3 + [CODE] * 2, True),
        (0x601, [CODE] * 8, False),
        (1, [CODE] * 7 + [3], False),
        (1, [CODE] * 4, False),
    ],
)
def test_methods_of_a_bio(kind: int, functions: List[int], is_one: bool) -> None:
    """One of few kinds; what is no function is 0, and five are there."""
    assert is_bio(constants([kind, NAME, *functions, *[0] * 4]), START, kind) == is_one


@pytest.mark.parametrize(
    ("protocol", "x509", "is_one"),
    [
        ([0, *[CODE] * 20], [CODE] * 13, True),
        ([1, *[CODE] * 20], [CODE] * 13, True),
        ([2, *[CODE] * 20], [CODE] * 13, False),
        ([0, NAME, *[CODE] * 19], [CODE] * 13, False),
        ([0, *[CODE] * 20], [0, 0, *[CODE] * 11], False),
    ],
)
def test_methods_of_boringssl(protocol: List[int], x509: List[int], is_one: bool) -> None:
    """Flag and functions, and beside them functions alone: a C++ vtable without type_info has the first form, too, and nothing beside it."""
    here = constants([0x303, START + 24, START + 24 + 8 * len(protocol), *protocol, *x509])
    assert is_boring(here, START + 24, START + 24 + 8 * len(protocol)) == is_one


VFS = [3 | 104 << 32, 512, 0, NAME, NAME, *[CODE] * 10]
"""sqlite3_vfs: release and bytes of a file, most letters of a path, the next one, a name, data, functions."""


class SqliteObject:
    """Images of one object with these data; its last quarter is code."""

    ranges = [(START, END)]

    def __init__(self, data: List[int]) -> None:
        self._data = array("Q", data)

    def words(self, start: int, end: int) -> "array[int]":
        """See Images."""
        return self._data

    def word(self, address: int) -> Optional[int]:
        """See Images."""
        at = (address - START) // 8
        return self._data[at] if 0 <= at < len(self._data) else None

    def span_at(self, address: int) -> Tuple[int, int, Any]:
        """See Images."""
        return START, END, None

    def is_code(self, address: int) -> bool:
        """See Images."""
        return CODE <= address < END


class OneObject:
    """A process with one object that keeps these words."""

    def __init__(self, data: List[int]) -> None:
        self._images = SqliteObject(data)

    def once(self, kind: Callable[..., Any]) -> SqliteObject:
        """See CensusTarget."""
        return self._images


def replaced(place: int, word: int) -> List[int]:
    """The form with another word."""
    return [*VFS[:place], word, *VFS[place + 1 :]]


@pytest.mark.parametrize(
    ("words", "is_one"),
    [
        (VFS, True),
        ([0, NAME, CODE, *VFS], True),
        ([*VFS[:7], 0, 0, 0, 0, *[CODE] * 6], True),
        (replaced(0, 4 | 104 << 32), False),
        (replaced(0, 3 | 40 << 32), False),
        (replaced(1, 4096), False),
        (replaced(3, 0x1000), False),
        (replaced(9, NAME), False),
        ([*VFS[:12], *[0] * 8], False),
        (VFS[1:], False),
        ([512] * 64, False),
    ],
)
def test_the_way_to_files(words: List[int], is_one: bool) -> None:
    """A release, the size of a file, 512 letters, a name of the object's own and eight functions or more."""
    assert has_sqlite(cast(CensusTarget, OneObject(words))) == is_one


TABLE, NONE = 0x5000, (1 << 64) - 1


def fits(address: int, size_bytes: int) -> bool:
    """True for the one block of the graph, of 16 words."""
    return (address, size_bytes) == (TABLE, 16 * 8)


def elements(*words: int) -> Optional[int]:
    """Of the dict that has these words."""
    padded: Sequence[int] = [*words, *[0] * (11 - len(words))]
    found = Redis().read_container(fits, 0x1000, padded)
    return None if found is None else found.elements


def test_dicts() -> None:
    """Of 7.0 by the power of two that is its table's size, of 6.2 by size and mask."""
    assert elements(0x400000, TABLE, 0, 11, 0, NONE, 4 << 16) == 11
    assert elements(0x400000, 0, TABLE, 16, 15, 11, 0, 0, 0, 0, NONE) == 11
    assert elements(0x400000, TABLE, 0, 11, 0, NONE, 9 << 16) is None


@pytest.fixture(params=["little", "big"])
def world(request: Any) -> CensusTarget:
    """A process of 64 bits that has loaded libisc."""
    modules = [SimpleNamespace(file_name="libisc-9.18.so")]
    target = SimpleNamespace(word_bytes=8, little_endian=request.param == "little", byte_order=request.param, modules=lambda: modules)
    return CensusTarget(cast(Any, SimpleNamespace(target=target)))


def test_a_block_is_what_its_number_says(world: CensusTarget) -> None:
    """The four letters as a number of the machine; nothing without them, elsewhere than at the start, or in a block that is too small."""
    order = cast(Any, world.target.byte_order)
    view, zone = (int.from_bytes(letters, "big").to_bytes(4, order) for letters in (b"View", b"ZONE"))
    assert RECOGNISERS[0].is_here(world)
    assert name_blocks(RECOGNISERS[0], world, [view, zone, b"\2\3\4\5", b"\0" * 8 + view]) == [
        Signature("dns_view ('View')", "bind", EXACT), Signature("dns_zone ('ZONE')", "bind", EXACT), None, None,
    ]  # fmt: skip
    assert name_blocks(RECOGNISERS[0], world, [view], LEAST_BYTES - 1) == [None]
