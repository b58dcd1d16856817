"""Every kind of memory in one program: whose each byte is, live and in a core, held against the kernel's own sums.

Files: analysis/reachability/paths.py.
"""

import re
import struct
from pathlib import Path
from typing import Any, Dict, List

import pytest

from tests.support.processes import Process, Stage
from tests.support.tool import heapx

pytestmark = pytest.mark.once  # the kernel's, which all images share, and the tool's own rules

FIELDS = ("memfd", "sysv", "shared", "posix", "copied", "cached", "code", "bss", "brk", "stacks", "coroutine", "ended", "plain", "malloc", "lazy", "hugetlb", "forked")
PAGE_SLACK = 64 << 10
"""What the C library and the kernel add to a kind."""


@pytest.fixture
def owners(stage: Stage) -> Process:
    """The program, with libc's own file to map."""
    library = next(line.split()[-1] for line in open("/proc/self/maps") if re.search(r"/libc[.-]", line))
    process = stage.start("owners", library)
    return process


def truth(process: Process) -> Dict[str, int]:
    words = struct.unpack("<%dQ" % len(FIELDS), process.record())
    return dict(zip(FIELDS, words))


def of(parts: List[Dict[str, Any]], kind: str, word: str = "") -> int:
    return sum(part["resident_bytes"] or part["dumped_bytes"] or 0 for part in parts if part["kind"] == kind and word in part["name"])


def test_every_kind_of_memory(owners: Process, kind: str) -> None:
    """Each has what the program made of it, and little more; the parts add up to the whole."""
    target = owners.target(kind)
    found = heapx(target, "report", "--json").data_beside_own_memory
    parts, made = found["split"], truth(owners)
    for name, word in (("memfd", "memfd frames"), ("sysv", "SysV"), ("shared", "/dev/zero"), ("posix", "/dev/shm/")):
        assert of(parts, "shared-memory", word) >= made[name], name
    assert made["code"] <= of(parts, "jit") <= made["code"] + PAGE_SLACK
    assert made["bss"] <= of(parts, "bss") <= made["bss"] + 8 * PAGE_SLACK
    assert made["stacks"] <= of(parts, "stack", "thread stacks") <= made["stacks"] + 4 * PAGE_SLACK
    assert made["coroutine"] <= of(parts, "stack", "coroutines") <= made["coroutine"] + PAGE_SLACK
    assert of(parts, "allocator") >= made["malloc"]
    ended = [part for part in parts if part["kind"] == "stack" and "exited threads, cached" in part["name"]]
    assert [part["mappings"] for part in ended] == [made["ended"]], "known by what glibc left in them"
    breaks = made["brk"] if kind == "core" else 0  # no core tells where the break was
    assert made["plain"] + breaks <= of(parts, "anonymous") <= made["plain"] + breaks + 4 * PAGE_SLACK
    assert sum(part["resident_bytes"] or part["dumped_bytes"] or 0 for part in parts) == found["memory"]["total_bytes"]
    if kind == "live":
        assert abs(of(parts, "brk") - made["brk"]) <= PAGE_SLACK


def test_the_kernels_sums(owners: Process, live: str) -> None:
    """RSS, PSS, swap, anonymous, shared memory and files are the kernel's to the page; what it may drop and what is shared with the child are told."""
    found = heapx(owners.target(live), "report", "--json").data
    parts, made = found["split"], truth(owners)

    def total(key: str, *kinds: str) -> int:
        return sum(part[key] for part in parts if not kinds or part["kind"] in kinds)

    status = {line.split(":")[0]: int(line.split()[1]) * 1024 for line in Path("/proc/%d/status" % owners.pid).read_text().splitlines() if line.startswith("Rss")}
    resident = owners.smaps_rollup("Rss")
    assert abs(total("resident_bytes") - resident) <= resident // 100
    assert abs(total("pss_bytes") - owners.smaps_rollup("Pss")) <= resident // 100, "smaps rounds each mapping's to KiB"
    assert total("swapped_bytes") == owners.smaps_rollup("Swap")
    assert total("hugetlb_bytes") == made["hugetlb"] == found["memory"]["hugetlb_bytes"]
    files = ("page-cache", "kernel", "device")
    assert abs(total("resident_bytes", "shared-memory") - status["RssShmem"]) <= PAGE_SLACK
    assert abs(total("resident_bytes", *files) - status["RssFile"]) <= PAGE_SLACK
    assert abs(total("resident_bytes") - total("resident_bytes", "shared-memory", *files) - status["RssAnon"]) <= PAGE_SLACK
    assert made["copied"] <= total("resident_bytes", "private-file") <= made["copied"] + 8 * PAGE_SLACK
    assert total("resident_bytes", "page-cache") >= made["cached"]
    assert total("droppable_bytes") >= made["cached"] + made["lazy"]
    assert total("shared_bytes", "anonymous", "bss", "brk") >= made["plain"] - made["lazy"] + made["bss"], "the child has them too"
    assert "shared-pages" in [finding["code"] for finding in found["findings"]]


def test_address_space(owners: Process, kind: str) -> None:
    """VSZ is that of /proc/PID/status, live and by the segments of a core of the kernel; peaks are a process's alone."""
    lines = (line.split() for line in Path("/proc/%d/status" % owners.pid).read_text().splitlines() if line.startswith("Vm"))
    status = {line[0].rstrip(":"): int(line[1]) * 1024 for line in lines}
    memory = heapx(owners.target(kind), "report", "--json").data_beside_own_memory["memory"]
    text = heapx(owners.target(kind), "report").stdout.decode()
    if kind == "live":
        peaks = memory["virtual_bytes"], memory["peak_virtual_bytes"], memory["peak_bytes"]
        assert peaks == (status["VmSize"], status["VmPeak"], status["VmHWM"])
        assert "Peak RSS: " in text and "; address space (VSZ): " in text and ", peak " in text
    else:
        assert abs(memory["virtual_bytes"] - status["VmSize"]) <= PAGE_SLACK, "the page of vsyscall is the kernel's"
        assert memory["peak_virtual_bytes"] is None and memory["peak_bytes"] is None
        assert "\nAddress space (VSZ): " in text and "peak" not in text


def test_what_a_core_cannot_have_is_null(owners: Process, core: str) -> None:
    """Neither what was in RAM nor what was shared; the bytes in the file are told instead."""
    found = heapx(owners.target(core), "report", "--json").data_beside_own_memory
    for part in found["split"]:
        assert part["dumped_bytes"] is not None
        assert {part[key] for key in ("resident_bytes", "swapped_bytes", "shared_bytes", "pss_bytes", "droppable_bytes", "huge_bytes", "hugetlb_bytes")} == {None}
    assert found["memory"]["measure"] == "dumped" and found["memory"]["pss_bytes"] is None
