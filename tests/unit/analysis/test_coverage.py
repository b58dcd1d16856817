"""How much an answer about blocks has looked at, and from where on that makes it partial."""

from typing import Any, List, Tuple

import pytest

from gdbheapx.analysis import memory_verdict
from gdbheapx.analysis.memory import kinds
from gdbheapx.analysis.memory.attribute import MappingPiece
from gdbheapx.analysis.memory_verdict import SMALL_BYTES, Coverage, hide_unread_zero
from gdbheapx.analysis.reachability.leaks import Leaks
from gdbheapx.command import TextStyle
from gdbheapx.inferior.base import MappingUse
from gdbheapx.kernel.blocks.graph import NativeSum
from gdbheapx.model import TargetAddress
from gdbheapx.problems import MEMORY_UNREAD
from gdbheapx.report import pages, reach_text

MIB = 1 << 20
PLAIN = TextStyle(False, False)


class FakeUse:
    """A mapping by its number."""

    def __init__(self, place: int) -> None:
        self.mapping = type("FakeMapping", (), {"start": 0x1000 * (place + 1)})


def covered(*rows: Tuple[str, int]) -> Coverage:
    """Of pieces of these kinds."""
    pieces = [MappingPiece(place, kinds.MemoryOwner(kind, "anything"), size_bytes, None) for place, (kind, size_bytes) in enumerate(rows)]
    uses: List[MappingUse] = [FakeUse(place) for place in range(len(rows))]  # type: ignore[misc]
    return memory_verdict._sum_coverage(pieces, uses)


def test_kinds() -> None:
    """Allocators and runtimes are readers; stacks, bss, code, files and shared memory are in neither sum."""
    aside = [(kind, 100 * MIB) for kind in (kinds.STACK, kinds.BSS, kinds.JIT, kinds.CACHE, kinds.COPIED, kinds.SHARED, kinds.HUGETLB)]
    found = covered((kinds.ALLOCATOR, 3), (kinds.RUNTIME, 4), (kinds.ANONYMOUS, 5), (kinds.NAMED, 6), (kinds.BRK, 1), *aside)
    assert found == (19, 7, TargetAddress(0x4000))


@pytest.mark.parametrize(
    "read_bytes, unread_bytes, is_low",
    [
        (0, 200 * MIB, True),
        (9 * MIB - 1, SMALL_BYTES, True),
        (9 * MIB, SMALL_BYTES, False),  # 90 %
        (0, SMALL_BYTES - 1, False),  # what a loader maps
        (0, 0, False),
    ],
)
def test_from_where_on_it_is_low(read_bytes: int, unread_bytes: int, is_low: bool) -> None:
    """Below 90 %, and not for a few pages."""
    assert Coverage(read_bytes + unread_bytes, read_bytes).is_low is is_low


def test_zero_is_unknown() -> None:
    """Of what was found there is that much at least; of nothing nobody knows how much there is."""
    low, whole = Coverage(100 * MIB, 0), Coverage(100 * MIB, 95 * MIB)
    assert [hide_unread_zero(NativeSum(0, 0), one) for one in (low, whole, None)] == [None, (0, 0), (0, 0)]
    assert hide_unread_zero(NativeSum(2, 64), low) == (2, 64)


class FakeSession:
    """Takes notes."""

    def __init__(self) -> None:
        self.coverage: Any = None
        self.codes: List[str] = []

    def problem(self, code: str, where: object, what: str, hint: object) -> None:
        """As Session.problem."""
        self.codes.append(code)


@pytest.mark.parametrize(
    "read_bytes, percent, codes", [(0, 0.0, [MEMORY_UNREAD]), (90 * MIB, 90.0, []), (90 * MIB - 1, 89.9, [MEMORY_UNREAD])]
)
def test_what_an_answer_says(read_bytes: int, percent: float, codes: List[str]) -> None:
    """The share is rounded down: an answer that is whole has 90 % or more."""
    session: Any = FakeSession()
    memory_verdict.note_coverage(session, Coverage(100 * MIB, read_bytes))
    assert session.coverage == {"anonymous_bytes": 100 * MIB, "read_bytes": read_bytes, "share_percent": percent}
    assert session.codes == codes


def test_leaks_in_words() -> None:
    """Nothing is not said of what was not looked at."""
    none, some, nothing = (Leaks(NativeSum(1, 8), NativeSum(0, 0), {}, leaked, 0) for leaked in (None, NativeSum(1, 8), NativeSum(0, 0)))
    seen = Coverage(200 * MIB, 8192)
    assert next(iter(reach_text.make_leaks_page(none, None, coverage=seen))) == "Leaked: unknown (looked at 8.0 KiB of 200.0 MiB (0 %))"
    assert str(next(iter(reach_text.make_leaks_page(some, None, coverage=seen)))).startswith("Leaked: at least 8 bytes in 1 block")
    assert next(iter(reach_text.make_leaks_page(nothing, None))) == "Leaked: nothing"
    assert reach_text.make_leaks_data(none, None, None, seen)["classes"]["leaked"] == {
        "blocks": None,
        "bytes": None,
        "roots": None,
        "is_upper_bound": False,
    }


def test_check_in_words() -> None:
    """It claims no more than was looked at."""
    low, whole = Coverage(200 * MIB, 8192), Coverage(200 * MIB, 199 * MIB)
    said = [list(pages.format_broken_rules(PLAIN, [], one)) for one in (low, whole, None)]
    assert said == [["No corruption found: looked at 8.0 KiB of 200.0 MiB (0 %)"], ["No corruption found."], ["No corruption found."]]
