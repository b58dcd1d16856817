"""Sixteen threads in malloc without end: no look accuses the process."""

from typing import Callable

import pytest

from tests.support.processes import Stage
from tests.support.tool import heapx

pytestmark = pytest.mark.wild  # sixteen threads at work take the machine

LOOKS = 50


@pytest.mark.parametrize("command", ["arenas", "report"])
def test_fifty_looks(stage: Stage, live: str, command: str, record_property: Callable[[str, object], None]) -> None:
    """Answers are whole, or say that an arena is in the middle of a change, and nothing else."""
    process = stage.start("busy", "16")
    whole, longest, most = 0, 0.0, 0
    for _ in range(LOOKS):
        outcome = heapx(process.target(live), command, "--json")
        envelope = outcome.envelope
        told = {problem["code"] for problem in envelope["problems"]}
        assert told <= {"arena-changing", "caches-changing", "mapped-chunks-changing"}, told
        whole += outcome.code == 0 and envelope["partial"] is False
        longest, most = max(longest, envelope["target"]["stopped_ms"]), max(most, envelope["target"]["stops"])
    record_property("whole", "%d of %d, longest stop %.0f ms, at most %d stops" % (whole, LOOKS, longest, most))
