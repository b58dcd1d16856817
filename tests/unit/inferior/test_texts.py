"""What the target layer parses: /proc/PID/maps, gdb's tables of remote targets, string tables, holes in files.

Files: inferior/gdb/target.py, inferior/core_file.py.
"""

import os
from pathlib import Path

from gdbheapx.budget import WorkCounter
from gdbheapx.inferior.base import Segment
from gdbheapx.inferior.core_file import Extents
from gdbheapx.inferior.elf.file import ElfFile, find_substrings
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


def test_symbols_of_a_file(programs: Path) -> None:
    """Local symbols are found in .symtab; undefined ones are not definitions."""
    file = ElfFile(str(programs / "specimen"))
    assert len(file.symbols("hidden_static")) == 1
    assert file.symbols("malloc") == [] and file.build_id()


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
