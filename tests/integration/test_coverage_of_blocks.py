"""A program with an allocator of its own: answers about malloc's blocks say how little they looked at, and call nothing whole or zero."""

from typing import List

import pytest

from tests.support.processes import Process, Stage
from tests.support.tool import heapx

pytestmark = pytest.mark.image  # how memory is told apart, with each release of gdb and the C library


@pytest.fixture
def program(stage: Stage) -> Process:
    """24 MB that no reader knows."""
    return stage.start("own_arena")


def target(process: Process, kind: str) -> List[str]:
    """Live, its core, or a snapshot of it."""
    if kind != "snapshot":
        return process.target(kind)
    path = str(process.folder / "snap")
    assert heapx(process.target("live"), "snapshot", path).code == 4
    return ["--snapshot", path]


@pytest.mark.parametrize("kind", ["live", "core", "snapshot"])
def test_zero_is_unknown(program: Process, kind: str) -> None:
    """Exit code 4 and null, never "nothing"."""
    options = target(program, kind)
    for words in (["leaks", "--fail-on-leak", "1M"], ["owners"], ["census"], *([["check"]] if kind != "snapshot" else [])):
        outcome = heapx(options, *words, "--json")
        envelope = outcome.envelope
        assert outcome.code == 4 and "memory-unread" in [problem["code"] for problem in envelope["problems"]], words
        coverage = envelope["coverage"]
        assert coverage["anonymous_bytes"] >= 24 << 20 and coverage["share_percent"] < 10, words
        if words[0] == "leaks":
            assert envelope["data"]["classes"]["leaked"]["bytes"] is None
    assert b"Leaked: unknown (looked at " in heapx(options, "leaks").stdout


def test_a_healthy_program_is_whole(stage: Stage, kind: str) -> None:
    """Its answer has the field, and no null."""
    outcome = heapx(stage.start("untouched").target(kind), "leaks", "--json")
    assert outcome.envelope["coverage"]["read_bytes"] <= outcome.envelope["coverage"]["anonymous_bytes"]
    assert outcome.code == 0 and outcome.envelope["data"]["classes"]["leaked"]["bytes"] == 0
