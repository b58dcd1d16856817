"""What threads have touched of their stacks, and how deep they are in them, against a program that recorded both.

Files: analysis/memory/depths.py.
"""

import os
from typing import Any, Dict, Sequence

import pytest

from tests.support.gcores import gcore
from tests.support.processes import Process, Stage
from tests.support.tool import heapx

pytestmark = pytest.mark.image  # where the libc puts a stack, its guard and its control block

HAS_GUARDS_INSIDE = [int(word) for word in os.confstr("CS_GNU_LIBC_VERSION").split()[1].split(".")[:2]] >= [2, 42]  # type: ignore[union-attr]
"""Its guard pages are no mappings of their own (MADV_GUARD_INSTALL), so neighbouring stacks may be one."""
PAGE = 4096
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


@pytest.mark.parametrize("way", ["live", "gcore", "core"])
def test_stacks_that_were_deeper(stage: Stage, way: str) -> None:
    """Of each thread both figures; of those on a coroutine's or a signal handler's stack no depth. The report says what stays."""
    process = stage.start("deepened")
    target = ["--core", str(gcore(process))] if way == "gcore" else process.target("live" if way == "live" else "core")
    truth = told(process)
    data = heapx(target, "report", "--json").data
    stacks = data["memory"]["thread_stacks"]
    other = [lwp for lwp, (_, _, _, now) in truth.items() if not now]
    for row in stacks["largest"]:
        check(row, truth[row["lwp"]], row["lwp"] == process.pid)
    if HAS_GUARDS_INSIDE and stacks["measured_threads"] < 9:
        pytest.skip("the kernel has merged stacks whose guards lie inside: what was touched of each is not told")
    assert (stacks["threads"], stacks["measured_threads"]) == (len(truth), len(truth) - len(other)) == (13, 9)
    assert len(stacks["largest"]) == 5
    measured = [truth[lwp] for lwp in truth if lwp not in other]
    assert abs(stacks["touched_bytes"] - sum(end - lowest for _, end, lowest, _ in measured)) <= len(measured) * NEAR_BYTES
    assert abs(stacks["past_bytes"] - (stacks["touched_bytes"] - stacks["depth_bytes"])) <= len(measured) * NEAR_BYTES
    assert [one["code"] for one in data["findings"] if one["code"] == "stacks-were-deeper"]
    text = heapx(target, "report").stdout.decode()
    assert "touched by 9 threads" in text and "Thread stacks of which most was touched:" in text


@pytest.mark.once  # the tool's own sentences
def test_stacks_that_were_not(stage: Stage, kind: str) -> None:
    """Where little was touched there is nothing to say."""
    data = heapx(stage.start("leaker").target(kind), "report", "--json").data
    assert data["memory"]["thread_stacks"]["measured_threads"] == data["memory"]["thread_stacks"]["threads"] == 1
    assert "stacks-were-deeper" not in [one["code"] for one in data["findings"]]
