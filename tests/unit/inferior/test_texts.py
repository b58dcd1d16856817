"""What the target layer parses: /proc/PID/maps and smaps of several kernels, gdb's tables of remote targets, string tables, holes in files.

Files: inferior/gdb/target.py, inferior/core_file.py, inferior/base.py, inferior/live/procfs.py, inferior/live/usage.py.
"""

import os
import re
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Dict, List, Optional

import pytest

from gdbheapx.common.budget import WorkCounter
from gdbheapx.inferior.base import MappingUse, ParentPages, Segment
from gdbheapx.inferior.core_file import Extents
from gdbheapx.inferior.elf.file import find_substrings
from gdbheapx.inferior.live import procfs, usage
from gdbheapx.inferior.live.procfs import parse_maps
from gdbheapx.inferior.source import parse_auxv_text, parse_mappings_text

GDB13 = """process 4949
Mapped address spaces:

          Start Addr           End Addr       Size     Offset  Perms  objfile
      0x55e0c8000000     0x55e0c8001000     0x1000        0x0  r--p   /tmp/a program
      0x7fc941be0000     0x7fc941be2000     0x2000   0x1ce000  rw-p   /lib/libc.so.6
      0x7ffee1000000     0x7ffee1021000    0x21000        0x0  rw-p   [stack]
      0x7fc941a00000     0x7fc941a01000     0x1000        0x0  ---p
"""
GDB10 = """          Start Addr           End Addr       Size     Offset objfile
      0x55e0c8000000     0x55e0c8001000     0x1000        0x0 /tmp/t
      0x7fc941a00000     0x7fc941a01000     0x1000        0x0
"""
AUXV = """33   AT_SYSINFO_EHDR      System-supplied DSO's ELF header 0x7ffff7fc1000
6    AT_PAGESZ            System page size               4096
3    AT_PHDR              Program headers for program    0x555555554040
31   AT_EXECFN            File name of executable        0x7fffffffefe1 "/tmp/w/t1"
0    AT_NULL              End of vector                  0x0
"""


def test_mappings_of_gdb_13() -> None:
    """gdb 12 and later tell the rights; names may hold spaces."""
    found = parse_mappings_text(GDB13)
    assert [(one.start, one.name, one.readable, one.writable) for one in found] == [
        (0x55E0C8000000, "/tmp/a program", True, False),
        (0x7FC941A00000, "", False, False),
        (0x7FC941BE0000, "/lib/libc.so.6", True, True),
        (0x7FFEE1000000, "[stack]", True, True),
    ]


def test_mappings_of_gdb_10() -> None:
    """gdb 10 tells no rights: anonymous memory is taken as writable."""
    assert [(one.name, one.writable) for one in parse_mappings_text(GDB10)] == [("/tmp/t", False), ("", True)]


def test_auxv_text() -> None:
    """Decimal and hexadecimal values, with or without the string behind."""
    assert parse_auxv_text(AUXV) == {33: 0x7FFFF7FC1000, 6: 4096, 3: 0x555555554040, 31: 0x7FFFFFFFEFE1, 0: 0}


def test_maps_text() -> None:
    """Rights, sharing and names of /proc/PID/maps, a deleted file and a name with spaces among them."""
    text = "7f00-8f00 r--s 00000000 00:01 7                          /memfd:a b (deleted)\nffff0000-ffff1000 --xp 00000000 00:00 0                  [vsyscall]\n10000-20000 rw-p 00000000 00:00 0 \n"
    first, second, third = parse_maps(text)
    assert (first.name, first.shared, first.is_file) == ("/memfd:a b (deleted)", True, True)
    assert (second.executable, second.readable) == (True, False)
    assert (third.name, third.size_bytes) == ("", 0x10000)


def test_names_share_their_tails() -> None:
    """A symbol whose name is the tail of another's is found: linkers merge them in the string table."""
    assert list(find_substrings(b"\0other_mp_\0mp_\0", b"mp_\0", WorkCounter("a table"))) == [7, 11]


def test_holes_take_no_space(tmp_path: Path) -> None:
    """Bytes in holes of a sparse core do not count as dumped."""
    path = tmp_path / "sparse"
    with open(path, "wb") as file:
        file.write(b"x" * 65536)
        file.truncate(1 << 20)
    if os.stat(path).st_blocks * 512 >= 1 << 20:
        return  # this file system has no holes
    extents = Extents(str(path))
    segments = (Segment(0x10000, 1 << 20, 0),)
    assert extents.data_bytes(segments, 0x10000, 0x10000 + (1 << 20)) == 65536
    assert extents.data_bytes(segments, 0x10000 + 60000, 0x10000 + 70000) == 65536 - 60000


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


PARENT = """
import os, subprocess, sys
memory = bytearray(os.urandom(24 << 20))
if not os.fork():
    for page in range(0, len(memory), 4096):
        %s
    if "exec" in sys.argv:
        os.execv("/proc/self/exe", [sys.executable, "-c", "import os; a = bytearray(os.urandom(24 << 20)); print(os.getpid(), flush=True); os.read(0, 1)"])
    print(os.getpid(), flush=True)
sys.stdin.read()
"""
READ = "memory[page]"
SAME = "memory[page] = memory[page]"
COUNT = "memory[page] ^= 1"
ZERO = "memory[page:page + 4096] = bytes(4096)"
OTHER = "memory[page:page + 4096] = os.urandom(4096)"


def compare(text: str, *words: str) -> Optional[ParentPages]:
    """Of a child that has done this to each page of 24 MiB."""
    with subprocess.Popen([sys.executable, "-c", PARENT % text, *words], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as parent:
        child, found = int(parent.stdout.readline()), None
        use, header = usage.make_smaps_usage(*usage.read_smaps_texts(child)), procfs.executable_header(child)
        assert use is not None and header is not None
        found = usage.compare_with_parent(child, use.mappings, procfs.read_process_auxv(child, header))
        assert found is None or found.parent == parent.pid
        assert usage.read_parent(child, use.mappings[0].mapping.start, 4) == b"\x7fELF"
        return found


def counts(found: Optional[ParentPages]) -> List[bool]:
    """Whether most pages are the same, near, and so by their counts."""
    assert found is not None and 24 << 20 <= found.private_bytes < 40 << 20
    return [10 * pages > 8 * found.compared_pages for pages in (found.same_pages, found.near_pages, found.counting_pages)]


def test_what_was_written_decides() -> None:
    """The same again, a few words, all of it: only the first two are copies of what the parent has."""
    same, counted, other = compare(SAME), compare(COUNT), compare(OTHER)
    assert counts(same) == [True, False, False] and counts(counted) == [False, True, True] and counts(other) == [False, False, False]
    assert same is not None and same.copied_bytes > 20 << 20
    assert other is not None and other.copied_bytes < 8 << 20


def test_zeros_are_no_copies() -> None:
    """They are the same in any memory."""
    assert counts(compare(ZERO))[0] is False


@pytest.mark.parametrize("text, words", [(READ, ()), (READ, ("exec",))], ids=["nothing was copied", "another program"])
def test_no_copies(text: str, words: List[str]) -> None:
    """Pages that both share, and a process that has run a program since, even the same one."""
    assert compare(text, *words) is None


@pytest.mark.parametrize(
    "name, flags, expected",
    [
        ("iou-wrk-31951", 4210768, True),  # Linux 6.18: PF_IO_WORKER, PF_USER_WORKER and two that each fork sets
        ("iou-sqp-4711", 0x10, True),
        ("vhost-4711", 0x4000, True),
        ("mariadbd", 4194368, False),
        ("iou-wrk-1", 4194368, False),  # a program may call a thread of its own so
        ("CPU 0/KVM", 0x10, False),  # Linux 4.19: PF_VCPU
        (None, 0x10, False),  # it has ended
    ],
)
def test_kernel_workers(monkeypatch: pytest.MonkeyPatch, name: Optional[str], flags: int, expected: bool) -> None:
    """Threads of io_uring and vhost are no threads of the program: flags and name together tell."""
    monkeypatch.setattr(procfs, "slurp_file", lambda path: b"371 (iou) wrk) S 1 31916 27384 0 -1 %d 0 0 0\n" % flags)
    assert procfs.is_kernel_worker(4711, 371, name) is expected
