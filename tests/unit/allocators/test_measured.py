"""Settings that are advised, and what they were measured to do.

File: allocators/measured.py.
"""

import pytest

from gdbheapx import findings
from gdbheapx.allocators import measured
from gdbheapx.allocators.measured import ARENA_ONE, MMAP_THRESHOLD, MXFAST, NO_TCACHE, TRIM_THRESHOLD, Case

pytestmark = pytest.mark.once  # arithmetic


def test_what_saves_most_is_first_and_of_those_alike_what_harms_least(monkeypatch: pytest.MonkeyPatch) -> None:
    """What saves little, and what was not tried for the cause, is left out."""
    tops = findings.THREAD_TOPS
    rows = [(ARENA_ONE, tops, 50), (MMAP_THRESHOLD, tops, 50), (TRIM_THRESHOLD, tops, 40), (NO_TCACHE, tops, 99), (MXFAST, findings.FASTBINS, 5)]
    monkeypatch.setattr(measured, "CASES", [Case(setting.text, cause, 100, after) for setting, cause, after in rows])
    assert measured.helping([tops], measured.SETTINGS) == [TRIM_THRESHOLD, MMAP_THRESHOLD, ARENA_ONE]
    assert measured.helping([findings.FASTBINS, tops], [ARENA_ONE, MXFAST]) == [MXFAST, ARENA_ONE]
