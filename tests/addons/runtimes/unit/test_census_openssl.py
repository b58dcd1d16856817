"""OpenSSL's and BoringSSL's tables by their form: each with what is nearly one, and is none.

Files: addons/runtimes/openssl.py.
"""

import struct
from typing import Any, Dict, List, Sequence, Tuple, cast

import pytest

from gdbheapx.addons.runtimes.openssl import ANY_VERSION, FIRST_NUMBER, ObjectConstants, find_identifiers, is_bio, is_boring, is_method
from gdbheapx.analysis.census.cplusplus import Images

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
