"""Stacks of threads: what they have touched and how deep they are in them, what ended threads leave, and a process whose main thread has ended.

Files: analysis/memory/attribute.py, analysis/memory/stacks.py.
"""

from pathlib import Path
from typing import Any, Dict, Sequence

import pytest

from tests.support.gcores import gcore
from tests.support.processes import Lasting, Process, Stage, by_turns
from tests.support.tool import alone, heapx
from tests.support.victims import status

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




@pytest.mark.parametrize("way", ["live", "gcore", "core"])
def test_what_kept_stacks_need_is_held(stage: Stage, way: str) -> None:
    """Blocks of a loaded library's thread-local storage, and the dtvs that lead to them: one block is leaked, that which the program lost."""
    library = str(stage.builder.build("ending", "-shared", "-fPIC"))
    process = stage.start("ended", library, flags=("-Wl,--no-as-needed,-ldl",))
    target = ["--core", str(gcore(process))] if way == "gcore" else process.target("live" if way == "live" else "core")
    data = heapx(target, "leaks", "--list", "--json").envelope["data"]
    lost = ~process.words()[0] & (1 << 64) - 1
    assert [int(one["address"], 16) for one in data["blocks"] if one["class"] == "leaked"] == [lost]
    assert data["classes"]["held"]["bytes"] > 5 * (96 << 10)
    assert data["classes"]["maybe"]["blocks"] <= 1


@pytest.mark.parametrize("way", ["live", "gcore", "core", "snapshot", "stripped"])
def test_threads_that_nobody_joined_are_no_cache(stage: Stage, way: str) -> None:
    """12 that were never joined, by what they ran, and 3 whose stacks the C library keeps: each by its own list, with or without symbols."""
    process = stage.start("unjoined", "12", "3", flags=("-s",) if way == "stripped" else ())
    target = ["--core", str(gcore(process))] if way == "gcore" else process.target("core" if way == "core" else "live")
    if way == "snapshot":
        file = str(stage.folder() / "taken")
        assert heapx(target, "snapshot", file).code == 0
        target = ["--snapshot", file]
    data = heapx(target, "report", "--json").data
    ended, parts = data["memory"]["ended_threads"], {part["name"]: part for part in data["split"]}
    assert (ended["unjoined"], ended["cached"]) == (12, 3)
    assert ended["unjoined_bytes"] == sum(part["resident_bytes"] or part["dumped_bytes"] for name, part in parts.items() if "never joined" in name) > 0
    ((function, threads),) = [(start["function"], start["threads"]) for start in ended["starts"]]
    assert threads == 12 and (function.startswith("unjoined") and "+0x" in function if way == "stripped" else function.startswith("end_soon in "))
    assert [finding["code"] for finding in data["findings"] if finding["code"] == "never-joined"]
    assert [part["mappings"] for name, part in parts.items() if "cached for reuse" in name] in ([3], [1])


COMMANDS = (
    *("report", "arenas", "bins", "tcache", "check", "leaks", "owners", "census", "pins", "chunks", "malloc-info", "malloc-stats", "tunables", "doctor"),
    *("trim --dry-run", "watch --every 0.01 --times 2", "watch --exact --every 0.01 --times 2", "export --format folded", "tickers"),
)


@pytest.mark.parametrize("words", COMMANDS)
def test_each_command_reads_it(lasting: Lasting, live: str, words: str) -> None:
    """Its memory is read whole; only the main thread's own cache may be missing, and that is said. It runs on."""
    process = lasting.of(live, Stage.start, "main_ended")
    assert status(process.pid, "State")[0] == "Z"
    outcome = alone(process.target(live), *words.split())
    assert outcome.code in (0, 4), outcome.stderr
    assert status(process.pid, "State")[0] == "Z" and int(status(process.pid, "Threads")) == 2


@pytest.mark.parametrize("way", ["gdb", "alone"])
def test_its_blocks(lasting: Lasting, live: str, way: str, tmp_path: Path) -> None:
    """The same blocks by each way to read it, and of a snapshot of it."""
    process = lasting.of(live, Stage.start, "main_ended")
    words = ["chunks", "--histogram", "--json", "--max-stop", "600"]
    found = (heapx if way == "gdb" else alone)(process.target(live), *words)
    assert found.code in (0, 4), found.stderr
    assert [row for row in found.envelope["data"]["histogram"] if row["used_chunks"] >= 1000], found.envelope["data"]
    kept = tmp_path / "kept"
    assert (heapx if way == "gdb" else alone)(process.target(live), "snapshot", str(kept), "--max-stop", "600").code in (0, 4)
    assert kept.stat().st_size > 1000


def test_what_changes_it_is_refused(lasting: Lasting, live: str) -> None:
    """gdb cannot attach to it: that is said before anything is stopped, and no other reason is made up."""
    process = lasting.of(live, Stage.start, "main_ended")
    outcome = heapx(process.target(live), "trim", "--yes")
    assert outcome.code == 1 and "main thread has ended" in outcome.stderr and outcome.stderr.count("\n") == 1


def test_one_without_any_thread_is_a_zombie() -> None:
    """Where nobody runs any more there is no memory."""
    import os
    import subprocess
    import sys

    from gdbheapx.inferior.live import procfs

    with subprocess.Popen([sys.executable, "-c", ""]) as gone:
        os.waitid(os.P_PID, gone.pid, os.WEXITED | os.WNOWAIT)
        assert procfs.proc_entry_number(gone.pid) == gone.pid
