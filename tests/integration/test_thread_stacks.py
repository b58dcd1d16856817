"""What threads have touched of their stacks, and how deep they are in them, against a program that recorded both.

Files: analysis/memory/attribute.py, analysis/memory/stacks.py.
"""

from typing import Any, Dict, Sequence

import pytest

from tests.support.gcores import gcore
from tests.support.processes import Lasting, Process, Stage, by_turns
from tests.support.tool import heapx

pytestmark = pytest.mark.image  # where the libc puts a stack, its guard and its control block

PAGE = 4096
HELD_BYTES = 54321
NEAR_BYTES = 16 << 10
"""Of a few calls, and of what the libc has at the end of a stack."""


def told(process: Process) -> Dict[int, Sequence[int]]:
    """lwp -> begin and end of its stack, the lowest address that it touched, where it is now."""
    words = process.words()
    return {words[at]: words[at + 1 : at + 5] for at in range(0, len(words), 5) if words[at]}


def check(row: Any, truth: Sequence[int], is_main: bool) -> None:
    """One thread's row."""
    start, end, lowest, now = truth
    touched = end - lowest
    assert touched - PAGE <= row["touched_bytes"] <= touched + NEAR_BYTES
    assert is_main or row["size_bytes"] in (end - start, end - start - PAGE, end - start + PAGE)
    if now:
        assert end - now - PAGE <= row["depth_bytes"] <= end - now + NEAR_BYTES
        assert abs(row["past_bytes"] - (touched - row["depth_bytes"])) <= NEAR_BYTES
    else:
        assert row["depth_bytes"] is None and row["past_bytes"] is None, "it runs on another stack"


@pytest.mark.parametrize("mib", [(), ("4",), ("8",)], ids=["apart", "in 48 MiB", "in 96 MiB"])
@pytest.mark.parametrize("way", ["live", "gcore", "core"])
def test_stacks_that_were_deeper(stage: Stage, way: str, mib: Sequence[str]) -> None:
    """Of each thread both figures, also where all stacks are one mapping; of those on a coroutine's or a signal handler's stack no depth.
    The report says what stays."""
    process = stage.start("deepened", *mib)
    target = ["--core", str(gcore(process))] if way == "gcore" else process.target("live" if way == "live" else "core")
    truth = told(process)
    data = heapx(target, "report", "--json").data
    stacks = data["memory"]["thread_stacks"]
    other = [lwp for lwp, (_, _, _, now) in truth.items() if not now]
    for row in stacks["largest"]:
        check(row, truth[row["lwp"]], row["lwp"] == process.pid)
    assert (stacks["threads"], stacks["measured_threads"]) == (len(truth), len(truth) - len(other)) == (13, 9)
    assert len(stacks["largest"]) == 5
    measured = [truth[lwp] for lwp in truth if lwp not in other]
    assert abs(stacks["touched_bytes"] - sum(end - lowest for _, end, lowest, _ in measured)) <= len(measured) * NEAR_BYTES
    assert abs(stacks["past_bytes"] - (stacks["touched_bytes"] - stacks["depth_bytes"])) <= len(measured) * NEAR_BYTES
    assert [one["code"] for one in data["findings"] if one["code"] == "stacks-were-deeper"]
    text = heapx(target, "report").stdout.decode()
    assert "touched by 9 threads" in text and "Thread stacks, most touched first:" in text


@by_turns("mib", ["4", "8"])
def test_what_lies_beside_joined_stacks_is_none_of_them(lasting: Lasting, kind: str, mib: str) -> None:
    """A table in the mapping that all stacks are in holds a block: it does, and no thread's stack."""
    target = lasting.of(kind, Stage.start, "deepened", mib).target(kind)
    (block,) = (row for row in heapx(target, "chunks", "--json").data["chunks"] if HELD_BYTES <= row["usable_bytes"] < HELD_BYTES + 16)
    (chain,) = heapx(target, "refs", block["address"], "--json").data["chains"]
    assert [step["root"] is None for step in chain] == [True, False] and chain[1]["root"].startswith("table in ")


@pytest.mark.once  # the tool's own sentences
def test_stacks_that_were_not(stage: Stage, kind: str) -> None:
    """Where little was touched there is nothing to say."""
    data = heapx(stage.start("leaker").target(kind), "report", "--json").data
    assert data["memory"]["thread_stacks"]["measured_threads"] == data["memory"]["thread_stacks"]["threads"] == 1
    assert "stacks-were-deeper" not in [one["code"] for one in data["findings"]]
