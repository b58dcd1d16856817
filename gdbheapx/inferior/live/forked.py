"""Compare a process's own pages with those of the process that it was forked from: a sample, read and never written.

/proc/PID/mem, never process_vm_readv: a pin of a page that both still share would itself make a copy.
"""

import os
import struct
import sys
from array import array
from bisect import bisect
from contextlib import ExitStack, closing
from itertools import accumulate, islice
from typing import Dict, Iterator, Optional, Sequence

from gdbheapx.inferior.base import MappingUse, ParentPages
from gdbheapx.inferior.live import procfs
from gdbheapx.inferior.live.page_table import ENTRY_BYTES, OF_FILE, PRESENT

PAGE_BYTES = os.sysconf("SC_PAGESIZE")
LEAST_BYTES, LEAST_SHARE = 16 << 20, 0.1
"""Private dirty memory below this is not compared, nor below this share of RSS."""
MOST_PAGES, MOST_TRIED = 128, 16
"""Of the sample; and of a sparse mapping for each of them."""
SPREAD = 0.6180339887498949, 0.4142135623730951
"""Multiples of these leave parts after the point that lie evenly between 0 and 1. `random` takes longer to import than all else here."""
FEWEST_PAGES = 32
"""A smaller sample says nothing."""
EXCLUSIVE = 1 << 56
"""Of an entry of pagemap: the page is mapped once."""
AT_RANDOM, RANDOM_BYTES = 25, 16
FEW = 3
"""A page differs in few words if at most one word differs for each three that are not 0: reference counts do, of any object."""
UPPER = int(sys.byteorder == "little")
"""Of the two halves of a word the one that a count of less than 4,294,967,296 does not reach."""


class _Process:
    """Open files of one."""

    def __init__(self, pid: int) -> None:
        self._folder = "/proc/%d/" % procfs.proc_entry_number(pid)
        self.memory, self.page_table = self._open_file("mem"), self._open_file("pagemap")
        self.auxv = procfs.slurp_file(self._folder + "auxv")

    def _open_file(self, name: str) -> Optional[int]:
        try:
            return os.open(self._folder + name, os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            return None

    def close(self) -> None:
        for descriptor in (self.memory, self.page_table):
            if descriptor is not None:
                os.close(descriptor)

    def read(self, address: int, size_bytes: int) -> bytes:
        """A part of a page; empty if it is not in memory, so that nothing is brought in, or cannot be read."""
        return _pread_once(self.memory, address, size_bytes) if self.entry(address) & PRESENT else b""

    def entry(self, address: int) -> int:
        """Return the entry of pagemap for the address, or 0 if there is none."""
        data = _pread_once(self.page_table, address // PAGE_BYTES * ENTRY_BYTES, ENTRY_BYTES)
        return int(struct.unpack("=Q", data)[0]) if len(data) == ENTRY_BYTES else 0


def _pread_once(descriptor: Optional[int], place: int, size_bytes: int) -> bytes:
    try:
        return os.pread(descriptor, size_bytes, place) if descriptor is not None else b""
    except (OSError, OverflowError):
        return b""


def compare_with_parent(pid: int, uses: Sequence[MappingUse], auxv: Dict[int, int]) -> Optional[ParentPages]:
    """Return the comparison; None where the process was not forked from its parent without exec, has little memory for itself alone, or one
    of the two cannot be read. `auxv`: its auxiliary vector."""
    own = [use for use in uses if _is_private(use)]
    if _private_bytes(own) < max(LEAST_BYTES, LEAST_SHARE * sum(use.resident_bytes for use in uses)):
        return None
    parent, place = _find_parent_pid(pid), auxv.get(AT_RANDOM, 0)
    with ExitStack() as stack:
        child, other = (stack.enter_context(closing(_Process(number))) for number in (pid, parent))
        if not parent or not place or child.auxv is None or child.auxv != other.auxv:
            return None
        drawn = child.read(place, RANDOM_BYTES)  # for each exec; its address alone may be the same without ASLR
        return _compare_pages(parent, own, child, other) if drawn and drawn == other.read(place, RANDOM_BYTES) else None


def read_parent(pid: int, address: int, size_bytes: int) -> bytes:
    """Bytes of the parent; empty where they cannot be read."""
    with closing(_Process(_find_parent_pid(pid))) as parent:
        return parent.read(address, size_bytes)


def _find_parent_pid(pid: int) -> int:
    """Its process id; 0 where that is of another namespace."""
    return int(procfs.read_process_status(pid).get("PPid", "0"))


def _is_private(use: MappingUse) -> bool:
    mapping = use.mapping
    return mapping.writable and not mapping.shared and not mapping.inode and bool(use.private_dirty_bytes)


def _private_bytes(uses: Sequence[MappingUse]) -> int:
    return sum(use.private_dirty_bytes or 0 for use in uses)


def _compare_pages(pid: int, own: Sequence[MappingUse], child: _Process, parent: _Process) -> Optional[ParentPages]:
    """The counts of the sample."""
    compared = same = near = counting = 0
    for address in _sample_pages(own, child):
        mine = child.read(address, PAGE_BYTES)
        theirs = parent.read(address, PAGE_BYTES) if not parent.entry(address) & OF_FILE else b""
        compared += 1
        if len(theirs) != PAGE_BYTES or not mine.strip(b"\0"):
            continue  # zeros are the same anywhere
        if mine == theirs:
            same += 1
            continue
        mixed = (int.from_bytes(mine, "little") ^ int.from_bytes(theirs, "little")).to_bytes(PAGE_BYTES, "little")
        differing = _count_nonzero_words(mixed)
        if FEW * differing <= _count_nonzero_words(mine):
            near += 1
            counting += 2 * sum(map(bool, array("I", mixed)[UPPER::2])) <= differing
    if compared < FEWEST_PAGES:
        return None
    private = _private_bytes(own)
    return ParentPages(pid, private, private * (same + near) // compared, compared, same, near, counting)


def _count_nonzero_words(data: bytes) -> int:
    """Words that are not 0."""
    words = array("Q", data)
    return len(words) - words.count(0)


def _sample_pages(own: Sequence[MappingUse], child: _Process) -> Iterator[int]:
    """Addresses of pages that the process has for itself alone, spread evenly: each mapping as often as is its part of them."""
    ends = list(accumulate(use.private_dirty_bytes or 0 for use in own))
    for number in range(MOST_PAGES):
        mapping = own[bisect(ends, ends[-1] * (number * SPREAD[0] % 1))].mapping
        pages = range(mapping.start, mapping.end, PAGE_BYTES)
        places = range(number * MOST_TRIED, (number + 1) * MOST_TRIED)
        tried = (pages[int(len(pages) * (place * SPREAD[1] % 1))] for place in places)
        yield from islice((page for page in tried if child.entry(page) & (EXCLUSIVE | PRESENT | OF_FILE) == EXCLUSIVE | PRESENT), 1)
