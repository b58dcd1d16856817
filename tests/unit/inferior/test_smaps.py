"""/proc/PID/smaps of several kernels, as recorded texts.

Files: inferior/base.py, inferior/live/procfs.py.
"""

import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Dict, List

import pytest

from gdbheapx.inferior.base import MappingUse
from gdbheapx.inferior.live import procfs, usage

RECORDED = Path(__file__).parents[2] / "data" / "smaps"
NAMES = sorted(path.name for path in RECORDED.glob("*.smaps"))
KIB = 1024


def text(name: str) -> bytes:
    return (RECORDED / name).read_bytes()


def sums(data: bytes) -> Dict[str, int]:
    """Key -> sum over all mappings, by another way than the reader's."""
    found: Dict[str, int] = {}
    for key, value in re.findall(r"^([A-Z]\w+): +(\d+) kB$", data.decode(), re.MULTILINE):
        found[key] = found.get(key, 0) + int(value) * KIB
    return found


def total(uses: List[MappingUse], field: str) -> int:
    return sum(getattr(use, field) or 0 for use in uses)


@pytest.mark.parametrize("name", NAMES)
def test_sums_are_those_of_the_text(name: str) -> None:
    """Every column of every kernel's text adds up to what its lines say."""
    data = text(name)
    uses, wanted = usage.parse_smaps(data), sums(data)
    assert len(uses) == len(re.findall(rb"^[0-9a-f]+-[0-9a-f]+ ", data, re.MULTILINE)) > 5
    for field, keys in usage.SUMS:
        if any(key.decode() in wanted for key in keys):
            assert total(uses, field) == sum(wanted.get(key.decode(), 0) for key in keys), field
        else:
            assert {getattr(use, field) for use in uses} == {None}, field


@pytest.mark.parametrize("name", NAMES)
def test_both_ways_of_reading_agree(name: str) -> None:
    """Column by column, as almost every text is read, and line by line, as any can be."""
    lines = text(name).splitlines()
    fast = usage._by_stride(lines)
    assert (fast is None) == (name == "linux-3.10.smaps"), "only there a mapping has a key that the others have not"
    if fast is not None:
        assert usage._make_records(fast, {}) == usage._make_records(usage._by_line(lines), {})


def test_what_an_old_kernel_does_not_tell_is_unknown() -> None:
    """Linux 3.10 counts neither hugetlb pages nor what MADV_FREE gave up; it has VmFlags."""
    uses = usage.parse_smaps(text("linux-3.10.smaps"))
    huge = next(use for use in uses if use.mapping.name.startswith("/anon_hugepage"))
    assert huge.hugetlb_bytes is None and huge.lazy_free_bytes is None
    assert huge.flags is not None and "ht" in huge.flags
    stack = next(use for use in uses if use.mapping.name == "[stack:2342]")
    assert (stack.resident_bytes, stack.swapped_bytes, stack.anonymous_bytes) == (24 * KIB, 4 * KIB, 24 * KIB)
    assert next(use for use in uses if use.mapping.name == "/var/lib/service/table").private_dirty_bytes == 512 * KIB


def test_a_name_with_a_form_feed_is_one_line() -> None:
    """The kernel escapes a newline alone; what Python takes for the end of a line besides is part of a file's name."""
    line = "7f0000000000-7f0000001000 r--p 00000000 fd:01 7    /srv/a\x0cb\x85c\u2028d"
    mappings = procfs.parse_maps(line + "\n7f0000001000-7f0000002000 rw-p 00000000 00:00 0 \n")
    assert [mapping.name for mapping in mappings] == ["/srv/a\x0cb\x85c\u2028d", ""]
    data = line.encode() + b"\nRss:   4 kB\nSwap:  0 kB\n"
    assert [use.mapping.name for use in usage.parse_smaps(data)] == ["/srv/a\x0cb\x85c\u2028d"]


@pytest.mark.parametrize("end", [b"Rss:                  12 kB\nPs", b"", b"7f00-7f"])
def test_a_text_that_breaks_off_gives_what_it_has(end: bytes) -> None:
    """A process that ends while it is read: mappings whose Rss is missing are left out, the others are whole."""
    whole = usage.parse_smaps(text("linux-4.19.smaps"))
    head = b"7ffd3c700000-7ffd3c701000 rw-p 00000000 00:00 0 \nSize:                   4 kB\n"
    cut = usage.parse_smaps(text("linux-4.19.smaps") + head + end)
    assert cut[: len(whole)] == whole and len(cut) - len(whole) == (1 if b"Rss" in end else 0)


def test_mappings_of_a_moment_later() -> None:
    """What was told of one that is the same stays; of others, and of what was empty, the copy tells."""
    same, grown, empty, new = (procfs.parse_maps_line("%x-%x rw-p 0 00:00 0" % place) for place in ((0, 4096), (8192, 20480), (32768, 36864), (40960, 49152)))
    assert same and grown and empty and new
    flags = frozenset({"gd"})
    uses = [
        MappingUse(same, 4096, pss_bytes=2048),
        MappingUse(grown._replace(end=12288), 4096, flags=flags),
        MappingUse(procfs.parse_maps("6000-7000 rw-p 0 00:00 0")[0], 4096),
        MappingUse(empty, 0, swapped_bytes=0),
    ]
    copy: Any = SimpleNamespace(touched=lambda start, end, swapped: [(0, 8192 if swapped and start == 40960 else 4096)])
    found = usage.in_copy(uses, [same, grown, empty, new], copy)
    assert [use.mapping for use in found] == [same, grown, empty, new] and found[0] is uses[0]
    assert [use.resident_bytes for use in found] == [4096] * 4 and [use.swapped_bytes for use in found] == [None, 0, 0, 4096]
    assert found[1].flags == flags and found[3].flags == frozenset() and found[3].pss_bytes == 4096
