"""A hundred short stops of a process that loses blocks, writes, maps and unmaps, on a machine at work: each answer has the blocks that were
lost at that instant by the program's own list, and no other.

GDBHEAPX_SHORT_STOPS is how many.
"""

import json
import os
import struct
import time
from typing import Callable, List, Tuple

import pytest

from gdbheapx.addons.labs.short_stop import userfaultfd
from tests.support.processes import Process, Stage
from tests.support.tool import alone

pytestmark = pytest.mark.wild  # the load takes the machine for minutes

LOOKS = int(os.environ.get("GDBHEAPX_SHORT_STOPS", "100"))
MIB, A_SECOND = "64", "300"
MASK, HEAD = 0x5A5A5A5A5A5A5A5A, struct.Struct("<5Q")
AT_HAND = 1
"""The block that is being lost may still be in a register."""


@pytest.fixture(autouse=True)
def possible() -> None:
    """Not everywhere."""
    lacking = userfaultfd.find_lacking_injection()
    if lacking:
        pytest.skip(lacking)


def told(process: Process) -> Tuple[int, ...]:
    """begun, lost, longest_write_ns, writes, huge."""
    with open(process.record_path, "rb") as file:
        return HEAD.unpack(file.read(HEAD.size))


def addresses(process: Process, number: int) -> List[int]:
    """Of the first ones that were lost."""
    with open(process.record_path, "rb") as file:
        file.seek(HEAD.size)
        return [one ^ MASK for one in struct.unpack("<%dQ" % number, file.read(8 * number))]


def test_no_difference(stage: Stage, load: None, record_property: Callable[[str, object], None]) -> None:
    """Blocks that were lost before are in the answer, in the order of the list, without a gap, and nothing else is."""
    process, stops, short = stage.start("losing", MIB, A_SECOND), [], 0
    for look in range(LOOKS):
        before, began = told(process), time.monotonic()
        words = ("leaks", "--list", "--limit", "1000000", "--no-weak", "--short-stop", "--yes", "--accept-thp-split", "--json", "--max-stop", "10")
        outcome, after = alone(process.target("live"), *words), told(process)
        envelope = json.loads(outcome.stdout)
        assert outcome.code in (0, 3) and envelope["partial"] is False, (look, outcome.stderr, envelope["problems"])
        codes = {one["code"] for one in envelope["problems"]}
        assert codes <= {"no-short-stop", "several-moments"}, codes
        short += "no-short-stop" not in codes
        listed = addresses(process, after[0])
        found = {int(block["address"], 16) for block in envelope["data"]["blocks"] if block["class"] == "leaked"}
        number = len(found)
        assert found == set(listed[:number]), (look, number, sorted(found ^ set(listed[:number]))[:5])
        assert before[1] - AT_HAND <= number <= after[0], (look, before, number, after, time.monotonic() - began)
        stops.append(envelope["target"]["stopped_ms"])
    record_property("short", "%d of %d, longest stop %.1f ms, median %.1f ms" % (short, LOOKS, max(stops), sorted(stops)[LOOKS // 2]))
    print("%d of %d short, longest stop %.1f ms, median %.1f ms" % (short, LOOKS, max(stops), sorted(stops)[LOOKS // 2]))
    assert short > LOOKS // 2
