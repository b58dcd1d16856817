"""What looks into blocks stops a process only to copy it, or says before the stop that there is no room for a copy.

Files: app/stopping.py
"""

import json
from typing import Any, Dict, List

import pytest

from tests.support.processes import Lasting, Process, Stage
from tests.support.tool import alone

pytestmark = pytest.mark.image  # what a kernel tells of pages differs

LOOKS = ("leaks", "owners", "census", "pins", "check")
NO_ROOM = {"GDBHEAPX_MEMORY": "24000000"}
"""Enough for what each of these makes of a small heap, too little for a copy of it as well."""


def looked(process: Process, live: str, words: str, env: Dict[str, str]) -> Any:
    """The envelope, and the lines of errors, without those that say how far a look is that takes long."""
    outcome = alone(process.target(live), words, "--json", "--max-stop", "10", env=env)
    assert outcome.code in (0, 3), (outcome.stdout[-1500:], outcome.stderr)
    return json.loads(outcome.stdout), [line for line in outcome.stderr.splitlines() if " so far" not in line]


def codes(envelope: Any) -> List[str]:
    """Of what it notes."""
    return [one["code"] for one in envelope["problems"]]


@pytest.mark.parametrize("words", LOOKS)
def test_the_copy_answers_as_the_process(lasting: Lasting, live: str, words: str) -> None:
    """Both ways see the same of a process that does nothing meanwhile; only the one without a copy says so, before the stop and in the answer."""
    process = lasting.of(live, Stage.start, "recorder", "2", "50000", "5")
    copied, nothing = looked(process, live, words, {})
    stood, said = looked(process, live, words, NO_ROOM)
    assert copied["data"] == stood["data"]
    assert "not-copied" not in codes(copied) and not nothing
    assert "not-copied" in codes(stood) and len(said) == 1 and "no room for a copy" in said[0]
    assert stood["partial"] == copied["partial"]


def test_totals_make_none(lasting: Lasting, live: str) -> None:
    """`arenas` needs no room, and says nothing of it."""
    process = lasting.of(live, Stage.start, "recorder", "2", "50000", "5")
    told, said = looked(process, live, "arenas", NO_ROOM)
    assert "not-copied" not in codes(told) and not said
