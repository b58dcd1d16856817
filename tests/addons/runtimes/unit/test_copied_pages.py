"""Copies of the parent's pages, what wrote to them, and where CPython's collector has its state.

Files: analysis/split.py, addons/runtimes/cpython/interpreter.py.
"""

import struct
from types import SimpleNamespace
from typing import Any, Dict, List, Optional

import pytest

from gdbheapx.addons.runtimes.cpython import interpreter
from gdbheapx.allocators.measured import FREEZE
from gdbheapx.analysis.memory import kinds
from gdbheapx.analysis.split import find_copied_pages
from gdbheapx.common import findings
from gdbheapx.inferior.base import ParentPages
from tests.support.builders.records import part, split

pytestmark = pytest.mark.once  # pure functions
MB, BASE = 1 << 20, 0x7F00_0000_0000
FORMS = {"3.9 to 3.13": (72, 80, 15), "3.13.5": (76, 84, 15), "3.14.10": (232, 72, 18)}
"""From the first generation to the pointer to it and to the permanent one, and from that in words to the survivors."""
NO_OBJECTS = "one block without objects"


def state(form: str, enabled: int = 1, collections: int = 6, survivors: int = 244982) -> bytes:
    """An interpreter of that form, behind 13 other words; 3.13.5 has no room between `debug` and the first generation."""
    pointer, permanent, words = FORMS[form]
    data = bytearray(1024)
    first = 104 + (20 if form == "3.13.5" else 24)
    struct.pack_into("<Qiii", data, 104, 0, 0, enabled, 0)
    for number, limit in enumerate((700, 10, 11)):
        struct.pack_into("<QQii", data, first + 24 * number, BASE + 8, BASE + 8, limit, 3 + number)
    struct.pack_into("<Q", data, first + pointer, BASE + first)
    struct.pack_into("<QQQ", data, first + permanent, BASE, BASE, 0)
    struct.pack_into("<Q", data, first + permanent + 72, collections)
    struct.pack_into("<Q", data, first + permanent + 8 * words, survivors)
    return bytes(data)


def words_in(data: bytes) -> List[int]:
    return list(struct.unpack("<%dQ" % (len(data) // 8), data))


@pytest.mark.parametrize("form", FORMS)
def test_state_of_the_collector(form: str) -> None:
    """Whether it is on, its thresholds and counts, and where the rest is, by the form of each release."""
    found = interpreter.find_collector_in_words(words_in(state(form)), BASE)
    assert found is not None and found.collector == (True, [700, 10, 11], [3, 4, 5]) and found.survivors == 244982
    assert words_in(state(form)[found.full_collections - BASE :])[0] == 6
    off = interpreter.find_collector_in_words(words_in(state(form, enabled=0)), BASE)
    assert off is not None and off.collector.is_on is False
    assert interpreter.find_collector_in_words(words_in(state(form, enabled=7)), BASE) is None


def process(own: bytes, parents: bytes) -> Any:
    """A session whose _PyRuntime has these bytes, in its parent those."""

    def read(data: bytes) -> Any:
        return lambda address, size: data[address - BASE :][:size] if address >= BASE else b""

    symbols: Dict[str, Any] = {"_PyRuntime": SimpleNamespace(address=BASE)} if own else {}
    target = SimpleNamespace(
        word_bytes=8, page_bytes=4096, dynamic_symbol=symbols.get, symbol_bytes=lambda symbol: len(own), words_in=words_in,
        read_prefix=read(own), read_parent=read(parents),
    )  # fmt: skip
    return SimpleNamespace(target=target)


def said(
    same: int, near: int, counting: int, own: bytes = b"", parents: bytes = b"", runtimes: Optional[List[str]] = None, total: int = 60 * MB
) -> List[Any]:
    """Of a process with 40 MiB for itself alone."""
    pages = ParentPages(4711, 40 * MB, 40 * MB * (same + near) // 128, 128, same, near, counting)
    found = split([part(kinds.RUNTIME, total)], parent_pages=pages)
    here = [SimpleNamespace(name=name) for name in (["CPython"] if runtimes is None else runtimes)]
    return find_copied_pages(process(own, parents), found._replace(attribution=SimpleNamespace(here=here)))  # type: ignore[arg-type]


FORM = "3.9 to 3.13"
CASES = {
    "the collector ran": ((128, 0, 0, state(FORM), state(FORM, collections=5)), FREEZE.text + " before the fork"),
    "it did not": ((128, 0, 0, state(FORM), state(FORM)), NO_OBJECTS),
    "what the parent has is frozen": ((128, 0, 0, state(FORM, survivors=300), state(FORM, collections=5)), NO_OBJECTS),
    "counts are higher": ((20, 108, 108, state(FORM), state(FORM, collections=5)), NO_OBJECTS),
    "the parent collects, too": ((128, 0, 0, state(FORM), state(FORM, collections=9)), "each use of an object"),
    "its state was not found": ((128, 0, 0), "each use of an object"),
    "no CPython": ((20, 100, 100, b"", b"", []), "the first write to a page"),
}


@pytest.mark.parametrize("case", CASES)
def test_what_wrote_to_them(case: str) -> None:
    """gc.freeze() is advised where the collector visited enough objects since the fork to have written to half of the copies."""
    asked, hint = CASES[case]
    found = said(*asked)
    assert [one.code for one in found] == [findings.COPIED_ON_WRITE] and hint in found[0].hint
    assert (FREEZE.text in found[0].hint) == (hint not in (NO_OBJECTS, "the first write to a page"))
    assert "process 4711" in found[0].what and "of 40.0 MiB" in str(found[0].evidence) and "of 128 compared pages" in str(found[0].evidence)


def test_few_copies_are_not_spoken_of() -> None:
    """Less than 16 MiB, or than a tenth of RSS."""
    assert said(30, 0, 0) == [] and said(128, 0, 0, total=500 * MB) == [] and said(128, 0, 0, total=300 * MB)
