"""A process of twice its memory limit, the rest in swap: no look, and no refused action, gets it killed. 20 of 20."""

import sys
from typing import Iterator

import pytest

from tests.support import memory_group, swap
from tests.support.processes import Process, Stage
from tests.support.tool import heapx
from tests.support.unchanged import EVERY

pytestmark = pytest.mark.wild  # real swap, twenty times; integration/test_swap.py has some of it

MIB = 1 << 20
LIMIT_BYTES, HEAP_BYTES = 60 * MIB, 118_000_000
HOLDS = (
    "import sys; held = [bytes(1000) for _ in range(%d)]; held[::4] = [None] * len(held[::4]); print('ready', flush=True); sys.stdin.read()"
)
"""Three quarters of a heap are in use; of the rest lie 1 KiB each between them, free."""
ASKED = (*EVERY, "trim --yes")


@pytest.fixture
def bounded(stage: Stage) -> Iterator[Process]:
    """Such a process; skips with the reason where there is no swap, or no memory cgroup."""
    try:
        with swap.swap(), memory_group.limited(LIMIT_BYTES) as group:
            command = [sys.executable, "-I", "-S", "-c", HOLDS % (HEAP_BYTES // 1000)]
            process = stage.spawn_ready(memory_group.entering(group, *command), env={"PYTHONMALLOC": "malloc"})
            try:
                yield process
            finally:
                process.end()
    except (swap.NoSwap, memory_group.NoGroup) as reason:
        pytest.skip(str(reason))


@pytest.mark.parametrize("words", ASKED)
def test_it_lives(bounded: Process, live: str, words: str) -> None:
    """The answer is whole, or says what was left in swap; an action is done or refused for that. The process lives either way."""
    outcome = heapx(bounded.target(live), *words.split(), "--json")
    assert bounded.popen.poll() is None, "the look got the process killed: " + outcome.stderr
    if words.startswith("watch"):  # a document for each look
        assert outcome.code == 0 or (outcome.code == 4 and "pages in swap were not read" in outcome.stderr), outcome.stderr
        return
    envelope = outcome.envelope
    codes = {problem["code"] for problem in envelope["problems"]} | {envelope.get("error", {}).get("code")}
    assert codes & {"in-swap", "stop-limit"} if outcome.code else not envelope["partial"], (outcome.code, codes, outcome.stderr)
    assert "internal-error" not in codes
