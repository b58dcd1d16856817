"""`cold` of programs that touch a known set of blocks of 16 to 4,096 bytes, by reads and by writes.

Files: addons/labs/cold/watch.py
"""

import argparse
import os
import time
from typing import Dict, List, NamedTuple

import pytest

from gdbheapx.addons.labs.cold import find, watch
from gdbheapx.addons.labs.short_stop import stop, userfaultfd
from gdbheapx.allocators.session import Session
from gdbheapx.inferior.live.source import LiveSource
from gdbheapx.inferior.target import ElfTarget
from tests.support.processes import Process, Stage
from tests.support.tool import alone

pytestmark = pytest.mark.once  # a container forbids userfaultfd; idle page tracking is one for all of a machine

LEFT_ALONE, READ, WRITTEN = range(3)
SECONDS = 1.0
LARGE = 4 << 20
MEANS = {find.IDLE: (LEFT_ALONE,), find.WRITTEN: (LEFT_ALONE, READ)}
"""Whose blocks each of them calls stale."""
MOST_PROCESSOR = 0.01
"""Of a processor, in the time of a watch of 60 s: an emulated machine takes ten times as long as others."""


class Touched(NamedTuple):
    """A block."""

    address: int
    bytes: int
    fate: int


def require(means: str) -> None:
    """Skips where the kernel does not have it."""
    files = watch.AgingFiles()
    by_userfaultfd = None if stop.is_by_marks() else userfaultfd.find_lacking_injection()
    lacking = by_userfaultfd if means == find.WRITTEN else None if os.path.exists(files.bitmap) else "this kernel has no idle page tracking"
    if means == find.IDLE and not lacking and watch.damon_is_on(files):
        lacking = "DAMON samples accesses here"
    if lacking:
        pytest.skip(lacking)


def blocks(process: Process) -> List[Touched]:
    """What it says of each."""
    words = process.words()
    return [Touched(*words[3 * number : 3 * number + 3]) for number in range(1, words[0] + 1)]


@pytest.mark.parametrize("seed", ["1", "2"])
@pytest.mark.parametrize("means", sorted(MEANS))
def test_bytes_are_told_by_their_age(stage: Stage, means: str, seed: str) -> None:
    """95 % of the bytes right, of those that are told as stale at most a tenth was touched, and little of a processor is used."""
    require(means)
    process = stage.start("touching", seed)
    session = Session(ElfTarget(LiveSource(process.pid, "", None), ()))
    asked = argparse.Namespace(for_s=SECONDS, accept_mark_loss=False, accept_thp_split=False, reads=False)
    began = time.process_time()
    make = watch.watch_idle_pages if means == find.IDLE else watch.watch_written_pages
    ages = make(session, stop.followed_ranges(session.target), watch.AgingFiles(), asked)
    took_s = time.process_time() - began
    page, sums = ages.page_bytes, {(is_stale, is_right): 0 for is_stale in (False, True) for is_right in (False, True)}
    unknown = 0
    for block in blocks(process):
        first, behind = block.address & -page, -(-(block.address + block.bytes) // page) * page
        kinds = find.apply_ages(first, behind, bytes((behind - first) // page), ages)
        is_stale = all(kind & find.STALE for kind in kinds)
        known = block.bytes if all(kind & find.KNOWN for kind in kinds) else 0
        sums[is_stale, is_stale == (block.fate in MEANS[means])] += block.bytes
        unknown += block.bytes - known
    whole = sum(sums.values())
    told: Dict[str, float] = {
        "right": (sums[True, True] + sums[False, True]) / whole,
        "falsely stale": sums[True, False] / (sums[True, True] + sums[True, False]),
        "unknown": unknown / whole,
    }
    print(means, {name: "%.2f %%" % (100 * value) for name, value in told.items()}, "%d bytes, %.3f s of a processor" % (whole, took_s))
    assert told["right"] >= 0.95 and told["falsely stale"] <= 0.1 and told["unknown"] <= 0.01
    assert took_s <= MOST_PROCESSOR * 60


def test_the_command_tells_them_by_class_and_owner(stage: Stage) -> None:
    """The rows add up to all blocks, and to what the program says that it does not write to."""
    require(find.WRITTEN)
    process = stage.start("touching", "3")
    found = alone(process.target("live"), "cold", "--for", "0.5", "--age", "written", "--yes", "--json").data
    rows, whole = found["rows"], found["totals"]
    for key in ("cold_bytes", "cold_blocks", "partly_cold_bytes", "resident_bytes", "unknown_bytes", "bytes", "blocks"):
        assert sum(row[key] for row in rows) == whole[key], key
    left = sum(block.bytes for block in blocks(process) if block.fate != WRITTEN)
    assert 0.95 * left <= whole["cold_bytes"] <= 1.1 * left + (1 << 20)
    assert (found["means"], found["by"]) == (find.WRITTEN, find.BOTH) and 0.5 <= found["watched_s"] < 5


def test_reads_are_known_by_mapping(stage: Stage) -> None:
    """Blocks with a mapping of their own are told apart; of what is in one mapping with others it is said how much was read."""
    require(find.WRITTEN)
    process = stage.start("touching", "6", "6")
    session = Session(ElfTarget(LiveSource(process.pid, "", None), ()))
    every = blocks(process)
    read = sum(block.bytes for block in every[6:] if block.fate == READ)
    for seconds in (SECONDS, 5 * SECONDS, 15 * SECONDS):  # a busy machine may leave the program no time to touch all of it
        asked = argparse.Namespace(for_s=seconds, accept_mark_loss=False, accept_thp_split=False, reads=True)
        ages = watch.watch_written_pages(session, stop.followed_ranges(session.target), watch.AgingFiles(), asked)
        if ages.read_bytes is not None and 0.95 * read <= ages.read_bytes <= 1.1 * read + (1 << 20):
            break
    for block in every[:6]:
        kinds = find.apply_ages(block.address & -ages.page_bytes, (block.address & -ages.page_bytes) + LARGE, bytes(LARGE // ages.page_bytes), ages)
        stale = sum(bool(kind & find.STALE) for kind in kinds[1:]) * ages.page_bytes
        assert (stale >= 0.95 * LARGE, stale <= 0.05 * LARGE) == (block.fate == LEFT_ALONE, block.fate != LEFT_ALONE), block
    assert ages.read_bytes is not None and 0.95 * read <= ages.read_bytes <= 1.1 * read + (1 << 20)
    print("%d bytes read, %d told" % (read, ages.read_bytes))


def test_without_a_watch_only_what_is_in_swap_is_cold(stage: Stage) -> None:
    """The rest is unknown, and nobody is asked, as nothing is marked."""
    process = stage.start("touching", "4")
    found = alone(process.target("live"), "cold", "--json", "--by", "class").data
    whole = found["totals"]
    assert (found["means"], found["watched_s"]) == (None, None) and whole["cold_bytes"] <= whole["swapped_bytes"]
    assert whole["unknown_bytes"] == whole["bytes"] - whole["swapped_bytes"] > 10 << 20
    text = alone(process.target("live"), "cold").stdout.decode()
    assert text.startswith("Wholly in swap: " if whole["swapped_bytes"] else "In swap: 0 B of ") and "was not watched" in text


def test_marks_are_not_set_unasked(stage: Stage) -> None:
    """No terminal and no --yes: nothing is done. A means that the kernel lacks is told, and one without a watch."""
    process = stage.start("touching", "5")
    assert alone(process.target("live"), "cold", "--reads", "--json").code == 2
    assert alone(process.target("live"), "cold", "--for", "0.1", "--age", "written", "--json").code == 1
    if not os.path.exists(watch.AgingFiles().bitmap):
        assert alone(process.target("live"), "cold", "--for", "0.1", "--age", "idle", "--yes", "--json").code == 1
