"""A sleeping process costs the kernel the same after a look as before: no page table, page, swap entry or page fault more."""

import os

import pytest
from harness import Stage
from unchanged import unchanged

pytestmark = pytest.mark.once  # the kernel's, which all images share


def test_one_page_would_be_seen(stage: Stage) -> None:
    """A single page that somebody reads through /proc/PID/mem where nothing was ever touched is told as a change."""
    process = stage.start("asleep")
    with open("/proc/%d/maps" % process.pid) as maps:
        ranges = [[int(part, 16) for part in line.split()[0].split("-")] for line in maps if len(line.split()) == 5]
    start, end = max(ranges, key=lambda each: each[1] - each[0])
    with pytest.raises(AssertionError, match="the look changed the process"), unchanged(process.pid):
        memory = os.open("/proc/%d/mem" % process.pid, os.O_RDONLY)
        os.pread(memory, 1, start + (end - start) // 4)
        os.close(memory)
