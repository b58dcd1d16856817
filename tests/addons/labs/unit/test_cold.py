"""The ages of pages joined with what is in RAM, in rows that say None where nothing is known.

Files: addons/labs/cold/find.py addons/labs/commands/cold.py
"""

import json
from types import SimpleNamespace
from typing import Any, List, Optional, Tuple

import pytest

from gdbheapx.addons.labs.cold import find
from gdbheapx.addons.labs.cold.find import KNOWN, STALE
from gdbheapx.kernel.blocks.cold import COLD_RESIDENT, COLD_SEEN, COLD_SWAPPED, ColdSum
from gdbheapx.kernel.common.copy import KIND_RESIDENT, KIND_SWAPPED
from gdbheapx.snapshot import container

PAGE = 4096
IN_RAM = COLD_SEEN | COLD_RESIDENT
FOUND = ColdSum(1, 1, 2, 5100, 1, 100, 900, 5000, 5100, 0, 0, 0)


def test_ages_are_laid_over_what_is_in_ram() -> None:
    """Where they reach; ranges that were watched may begin and end elsewhere than mappings do now."""
    ages = find.Ages(find.IDLE, 60.0, PAGE, [(0, 3 * PAGE, bytes([KNOWN, KNOWN | STALE, KNOWN])), (5 * PAGE, 7 * PAGE, bytes([KNOWN | STALE, 0]))])
    found = find.apply_ages(PAGE, 6 * PAGE, bytes([IN_RAM] * 5), ages)
    assert list(found) == [IN_RAM | KNOWN | STALE, IN_RAM | KNOWN, IN_RAM, IN_RAM, IN_RAM | KNOWN | STALE]
    assert find.apply_ages(8 * PAGE, 9 * PAGE, b"\1", ages) == b"\1"


def test_a_row_says_what_is_known() -> None:
    """Cold in whole and in part, and what is neither warm nor cold."""
    row = find.make_cold_row(FOUND, "Session", "shop._cache")
    assert (row.cold_bytes, row.cold_blocks, row.partly_cold_bytes, row.unknown_bytes) == (100, 1, 900, 100)
    assert (row.blocks, row.bytes, row.resident_bytes, row.swapped_bytes) == (2, 5100, 5100, 0)


def test_what_was_not_seen_is_none() -> None:
    """Never 0."""
    row = find.make_cold_row(FOUND._replace(known_bytes=0, unseen_bytes=8), None, None)
    assert {row.cold_bytes, row.cold_blocks, row.partly_cold_bytes, row.swapped_bytes, row.resident_bytes, row.locked_bytes} == {None}
    assert find.make_cold_row(FOUND._replace(unseen_bytes=8), None, None).cold_bytes == 100


@pytest.mark.parametrize(
    "by, rows",
    [
        (find.BOTH, [("Session", "shop._cache", 100), ("str", "shop._cache", 100), (None, None, 50)]),
        (find.CLASS, [("Session", None, 100), ("str", None, 100), (None, None, 50)]),
        (find.OWNER, [(None, "shop._cache", 200), (None, None, 50)]),
    ],
)
def test_rows_are_what_a_snapshot_keeps_added_up(by: str, rows: List[Tuple[Optional[str], Optional[str], int]]) -> None:
    """By class, by owner or by both; nothing is read anew, and the sum is that of all."""
    some = [("Session", "shop._cache", FOUND), ("str", "shop._cache", FOUND), (None, None, FOUND._replace(cold_bytes=50))]
    parts = [find.ColdPart(*one) for one in some]
    told = container.decode_value(List[find.ColdPart], json.loads(json.dumps(container.encode_value(parts))))
    session: Any = SimpleNamespace(constants={}, kept=lambda name, kind, make: told)
    found = find.find_cold(session, by)
    assert [(row.signature, row.owner, row.cold_bytes) for row in found.rows] == rows
    assert (found.totals.cold_bytes, found.totals.bytes, found.means, found.by) == (250, 3 * FOUND.bytes, None, by)


def mapping(start: int, resident: int, swapped: int) -> Any:
    """Of two pages, and what smaps says of it."""
    return SimpleNamespace(mapping=SimpleNamespace(start=start, end=start + 2 * PAGE), resident_bytes=resident, swapped_bytes=swapped, flags=())


def test_a_snapshot_keeps_pages_where_something_is_in_swap(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of mappings that have any in memory; None where nothing is in swap, or where that is not known."""
    table = SimpleNamespace(told=lambda start, end: bytes([KIND_SWAPPED, KIND_RESIDENT]))
    monkeypatch.setattr(find.owned, "read_page_states", lambda session: table)

    def standing(*uses: Any) -> Any:
        use = SimpleNamespace(mappings=uses) if uses else None
        session: Any = SimpleNamespace(target=SimpleNamespace(memory_use=lambda: use, page_bytes=PAGE))
        return find.find_stopped_spans(session)

    kept = standing(mapping(0, PAGE, PAGE), mapping(4 * PAGE, 0, 0))
    assert kept == [(0, 2 * PAGE, bytes([COLD_SEEN | COLD_SWAPPED, COLD_SEEN | COLD_RESIDENT]))]
    assert standing(mapping(0, PAGE, 0)) is None and standing() is None
