"""Read the memory that a process uses: smaps, its page table, the file systems of its mapped files, and its parent's pages.

Nothing is brought in: pages are compared by /proc/PID/mem, never process_vm_readv, as a pin of a page that both still share would itself
make a copy.
"""

import errno
import fcntl
import os
import re
import struct
import sys
from array import array
from bisect import bisect
from contextlib import ExitStack, closing
from itertools import accumulate, islice, repeat
from operator import add
from typing import Callable, Dict, Iterator, List, Optional, Sequence, Tuple, cast

from gdbheapx.common import files
from gdbheapx.common.ranges import RangeIndex, unite_ranges
from gdbheapx.inferior.base import CopiedMemory, HugePages, Mapping, MappingUse, MemoryUse, PageTable, ParentPages
from gdbheapx.inferior.live import procfs

Column = Sequence[Optional[int]]
"""One value for each mapping; None where the kernel gives none."""

SUMS: Tuple[Tuple[str, Tuple[bytes, ...]], ...] = (
    ("resident_bytes", (b"Rss",)),
    ("huge_bytes", (b"AnonHugePages", b"ShmemPmdMapped", b"FilePmdMapped")),
    ("pss_bytes", (b"Pss",)),
    ("shared_bytes", (b"Shared_Clean", b"Shared_Dirty")),
    ("private_clean_bytes", (b"Private_Clean",)),
    ("private_dirty_bytes", (b"Private_Dirty",)),
    ("anonymous_bytes", (b"Anonymous",)),
    ("lazy_free_bytes", (b"LazyFree",)),
    ("hugetlb_bytes", (b"Shared_Hugetlb", b"Private_Hugetlb")),
    ("swapped_bytes", (b"Swap",)),
)
"""Fields of MappingUse in their order, and the keys whose sum each is; those that this kernel lacks count as nothing, unless all are
lacking."""

FLAGS = b"VmFlags"
NEEDED = frozenset(key for _, keys in SUMS for key in keys)
HEX = frozenset(b"0123456789abcdef")
"""What the first line of a mapping begins with; a key begins with a capital letter."""
NO_MAPPING = Mapping(0, 0, False, False, False, False, "", None)
HUGE_BYTES = 2 << 20
"""The smallest that a huge page may have."""
SETTING = "/sys/kernel/mm/transparent_hugepage/enabled"


def parse_smaps(data: bytes, filesystems: Optional[Dict[str, str]] = None) -> List[MappingUse]:
    """The text of a whole smaps file. `filesystems`: type of the file system by device, as `mounts` gives it.

    A mapping whose lines are cut off, because the process went away meanwhile, is left out.
    """
    lines = data.split(b"\n")
    if lines and not lines[-1]:
        lines.pop()
    table = _by_stride(lines) or _by_line(lines)
    return _make_records(table, filesystems or {})


BYTES_AT_ONCE = 2048
"""The kernel fills a buffer of 4 KiB for each read of smaps, and counts a mapping that does not fit into it again for the next: of a heap
13 ms for each GiB. It does not begin with another mapping after so many bytes."""


SmapsTexts = Tuple[bytes, bytes, Dict[str, str]]
"""smaps, mountinfo and the fields of status at one moment, not parsed yet: many thousand mappings take their time."""


def read_smaps_texts(pid: int) -> SmapsTexts:
    """Read the texts of a process of this machine."""
    folder = "/proc/%d/" % procfs.proc_entry_number(pid)
    mounts = procfs.slurp_file(folder + "mountinfo") or b""
    return procfs.slurp_file(folder + "smaps", BYTES_AT_ONCE) or b"", mounts, procfs.read_process_status(pid)


def in_copy(uses: Sequence[MappingUse], mappings: Sequence[Mapping], copy: CopiedMemory) -> List[MappingUse]:
    """Return the uses read just before a process was copied, for the mappings that it had then. For a mapping that is another, or of
    which nothing was in memory, the copy gives the numbers.
    """
    known = {use.mapping: use for use in uses}
    made, place = [], 0
    for mapping in mappings:
        use = known.get(mapping)
        if use is None or (mapping.is_untouched_zero and not (use.resident_bytes or use.swapped_bytes)):
            while place < len(uses) and uses[place].mapping.end <= mapping.start:
                place += 1
            is_near = place < len(uses) and uses[place].mapping.start < mapping.end
            touched = (copy.touched(mapping.start, mapping.end, with_swapped) or () for with_swapped in (False, True))
            present, both = (sum(high - low for low, high in ranges) for ranges in touched)
            swapped = both - present
            own, none = (present, 0) if mapping.is_untouched_zero else (None, None)
            huge = 0 if mapping.size_bytes < HUGE_BYTES else None
            flags, filesystem = (uses[place].flags, uses[place].filesystem) if is_near else (frozenset(), None)
            use = MappingUse(mapping, present, huge, own, none, none, own, own, none, none, swapped, flags, filesystem)
        made.append(use)
    return made


def make_smaps_usage(smaps: bytes, mounts: bytes, status: Dict[str, str]) -> Optional[MemoryUse]:
    """Return the use of every mapping by SmapsTexts, or None if smaps cannot be read."""
    if not smaps:
        return None
    words = (status.get(name, "").split() for name in ("VmSwap", "VmSize", "VmPeak", "VmHWM"))
    swapped, virtual, most, peak = (int(field[0]) * 1024 if field else None for field in words)
    return MemoryUse("resident", parse_smaps(smaps, map_device_types(mounts)), swapped, True, virtual, most, peak)


SmapsTable = Tuple[Sequence[bytes], Dict[bytes, Column], Sequence[Optional[bytes]]]
"""(first lines of mappings, numbers by key, VmFlags)."""


def _by_stride(lines: List[bytes]) -> Optional[SmapsTable]:
    """The usual case: one kernel prints the same keys for every mapping, so each key is every n-th line. None if it is not so."""
    width = next((place for place, line in enumerate(lines[1:], 1) if line and line[0] in HEX), len(lines))
    if not lines or len(lines) % width:
        return None
    heads = lines[0::width]
    if not all(head and head[0] in HEX for head in heads):
        return None
    columns: Dict[bytes, Column] = {}
    flags: Sequence[Optional[bytes]] = [None] * len(heads)
    for place in range(1, width):
        key = lines[place].partition(b":")[0]
        if key in NEEDED:
            values = _parse_numbers(key, lines[place::width])
            if values is None:
                return None
            columns[key] = values
        elif key == FLAGS:
            flags = [line[len(FLAGS) + 1 :] for line in lines[place::width]]
            if not all(map(bytes.startswith, lines[place::width], repeat(FLAGS))):
                return None
    return (heads, columns, flags) if b"Rss" in columns else None


def _parse_numbers(key: bytes, lines: List[bytes]) -> Optional[List[Optional[int]]]:
    """`KEY:   12 kB` of every mapping, in kB, without a step of Python's for each; None if a line is another key's."""
    if lines.count(lines[0]) == len(lines):  # mostly zeros: swap, hugetlb, huge pages of files
        return [_parse_number(lines[0].partition(b":")[2])] * len(lines)
    words = b"".join(lines).replace(key + b":", b" ").split(b"kB")
    try:
        values: List[Optional[int]] = list(map(int, words[:-1]))
    except ValueError:
        return None
    return values if len(values) == len(lines) else None


def _by_line(lines: List[bytes]) -> SmapsTable:
    """Any order of keys, and keys that only some mappings have (Nonlinear of Linux 3.x)."""
    heads: List[bytes] = []
    values: List[Dict[bytes, bytes]] = []
    for line in lines:
        if line and line[0] in HEX:
            heads.append(line)
            values.append({})
        elif values:
            key, colon, rest = line.partition(b":")
            if colon and (key in NEEDED or key == FLAGS):
                values[-1][key] = rest
    kept = [(head, fields) for head, fields in zip(heads, values) if b"Rss" in fields]
    columns: Dict[bytes, Column] = {key: [_parse_number(fields.get(key)) for _, fields in kept] for key in NEEDED}
    return [head for head, _ in kept], columns, [fields.get(FLAGS) for _, fields in kept]


def _parse_number(text: Optional[bytes]) -> Optional[int]:
    """The 12 of `   12 kB`."""
    digits = text.split()[:1] if text is not None else []
    return int(digits[0]) if digits and digits[0].isdigit() else None


def _make_records(table: SmapsTable, filesystems: Dict[str, str]) -> List[MappingUse]:
    heads, columns, flags = table
    parsed = [procfs.parse_maps_line(head) for head in os.fsdecode(b"\n".join(heads)).split("\n")]
    mappings = [mapping or NO_MAPPING for mapping in parsed]
    sums = [_sum_columns([columns[key] for key in keys if key in columns], len(heads)) for _, keys in SUMS]
    known = {text: None if text is None else frozenset(os.fsdecode(text).split()) for text in set(flags)}  # a handful of combinations
    types = [filesystems.get(mapping.device) if mapping.inode else None for mapping in mappings]
    made = map(MappingUse._make, zip(mappings, *sums, [known[text] for text in flags], types))
    if None not in parsed and None not in sums[0]:
        return list(made)
    return [use for use, mapping in zip(made, parsed) if mapping is not None and use.resident_bytes is not None]


def _sum_columns(columns: Sequence[Column], count: int) -> Column:
    """The keys' sum in bytes; None for a mapping that has none of the keys."""
    if not columns:
        return [None] * count
    if any(None in column for column in columns):
        return [None if row.count(None) == len(row) else 1024 * sum(value or 0 for value in row) for row in zip(*columns)]
    known = cast(List[Sequence[int]], columns)
    total = known[0]
    for column in known[1:]:
        total = list(map(add, total, column))
    return list(map((1024).__mul__, total))


def map_device_types(text: bytes) -> Dict[str, str]:
    """Device, as /proc/PID/maps writes it (`fd:01`), -> type of the file system mounted from it where the process sees it, by the process's
    mountinfo."""
    return {"%02x:%02x" % tuple(map(int, mount.device.split(":"))): os.fsdecode(mount.kind) for mount in files.parse_mounts(text)}


def find_huge_pages(pid: int, setting: Optional[str]) -> HugePages:
    """Return the huge page settings and locked bytes of one process."""
    fields = procfs.read_process_status(pid)
    locked, allowed = fields.get("VmLck", "").split(), fields.get("THP_enabled")
    return HugePages(setting, None if allowed is None else allowed.strip() == "1", int(locked[0]) * 1024 if locked else None)


SWITCH = "GDBHEAPX_PAGEMAP_SCAN"
"""Set to 0 it has everything done without PAGEMAP_SCAN, as on older kernels: for tests."""
SCAN, SCAN_ARG_BYTES = 0xC0606610, 96
"""_IOWR('f', 16, struct pm_scan_arg) (linux/fs.h)."""
KNOWS_HUGE_ZERO = (6, 17)
"""Before, PAGE_IS_PFNZERO was never set for the huge zero page (fs/proc/task_mmu.c: pagemap_thp_category)."""
PRESENT, SWAPPED, OF_FILE, GUARD, ENTRY_BYTES = 1 << 63, 1 << 62, 1 << 61, 1 << 58, 8
"""Bits of an entry of pagemap (Documentation/admin-guide/mm/pagemap.rst): a guard page has the second and holds nothing."""
PROTECTED, TYPE, MARK = 1 << 57, 31, 31
"""Of an entry that looks swapped: a userfaultfd protects it, and which swap it is in; the last type is none. Shown with CAP_SYS_ADMIN."""
MOST_PAGES = 1 << 16


class Finder:
    """Asks once what this kernel and our rights allow, and for each look what RSS leaves out."""

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self._known: Optional[PageTable] = None
        self._flags = -1

    def __del__(self, close: Callable[[int], None] = os.close) -> None:
        if self._flags >= 0:  # `os` may be gone when the interpreter ends
            close(self._flags)

    def find(self, mappings: Sequence[Mapping]) -> Optional[PageTable]:
        """The page table of the process; None if its pagemap cannot be read."""
        self._known = self._known or self._probe_page_table()
        outside_rss = tuple((mapping.start, mapping.end) for mapping in mappings if mapping.is_hugetlb)
        return self._known._replace(outside_rss=outside_rss) if self._known is not None else None

    def _probe_page_table(self) -> Optional[PageTable]:
        try:
            descriptor = os.open("/proc/%d/pagemap" % procfs.proc_entry_number(self._pid), os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            return None
        try:
            scans, knows_huge_zero = _has_pagemap_scan(descriptor), kernel_release() >= KNOWS_HUGE_ZERO
        finally:
            os.close(descriptor)
        if not (scans and knows_huge_zero):
            try:
                self._flags = os.open("/proc/kpageflags", os.O_RDONLY | os.O_CLOEXEC)
            except OSError:  # it may not be read
                pass
        return PageTable(procfs.proc_entry_number(self._pid), scans, knows_huge_zero, self._flags, ())


def _has_pagemap_scan(descriptor: int) -> bool:
    """PAGEMAP_SCAN is there: over no page at all it succeeds."""
    if os.environ.get(SWITCH) == "0":
        return False
    argument = bytearray(SCAN_ARG_BYTES)
    argument[:8] = SCAN_ARG_BYTES.to_bytes(8, sys.byteorder)
    try:
        fcntl.ioctl(descriptor, SCAN, argument, True)
    except OSError as error:
        return error.errno not in (errno.ENOTTY, errno.EINVAL)
    return True


def kernel_release() -> Tuple[int, int]:
    """Version of the running kernel, such as (6, 1)."""
    match = re.match(r"(\d+)\.(\d+)", os.uname().release)
    return (int(match.group(1)), int(match.group(2))) if match else (0, 0)


def is_mark(entry: int) -> bool:
    """Return True if an entry that looks swapped is a page that was never touched, which a userfaultfd protects, or did before it was
    moved (mremap, until Linux 6.13).
    """
    return bool(entry & PROTECTED) and entry & TYPE == MARK


def list_touched_ranges(pid: int, start: int, end: int) -> List[Tuple[int, int]]:
    """Return the pages like list_present_ranges(), for a range of any length, and with those in swap."""
    step = MOST_PAGES * os.sysconf("SC_PAGESIZE")
    return [part for at in range(start, end, step) for part in list_present_ranges(pid, at, min(at + step, end), PRESENT | SWAPPED)]


def list_present_ranges(pid: int, start: int, end: int, bits: int = PRESENT) -> List[Tuple[int, int]]:
    """The pages of this range that are in a process's memory now, joined; empty where pagemap cannot be read. `bits`: of which an
    entry of pagemap must have one."""
    page_bytes = os.sysconf("SC_PAGESIZE")
    first, last = start // page_bytes, min(-(-end // page_bytes), start // page_bytes + MOST_PAGES)
    try:
        with open("/proc/%d/pagemap" % procfs.proc_entry_number(pid), "rb", buffering=0) as file:
            data = os.pread(file.fileno(), ENTRY_BYTES * (last - first), ENTRY_BYTES * first)
    except (OSError, OverflowError):
        return []
    empty = (len(data) - len(data.lstrip(b"\0"))) // ENTRY_BYTES  # of a stack that is nearly all of it
    entries = enumerate(array("Q", data[ENTRY_BYTES * empty : len(data) & -ENTRY_BYTES]), first + empty)
    wanted = (number for number, entry in entries if entry & bits and not entry & GUARD and (entry & PRESENT or not is_mark(entry)))
    pages = (number * page_bytes for number in wanted)
    return [(max(low, start), min(high, end)) for low, high in unite_ranges((page, page + page_bytes) for page in pages)]


IN_MEMORY = frozenset(("tmpfs", "ramfs", "shmem", "devtmpfs", "hugetlbfs"))
"""Types whose pages are RAM or swap: no server has them."""
NO_DISK = "00:"
"""How a device begins that is no block device, as of FUSE, NFS, tmpfs and overlays."""


def is_fuse(kind: Optional[str]) -> bool:
    """Any user may mount it, and serve it as he likes."""
    return kind is not None and kind.split(".", 1)[0] in ("fuse", "fuseblk")


class FileSystems:
    """Types of the file systems that one process has mapped files of, looked up once, by mountinfo of the process and of this one."""

    def __init__(self, entry: int) -> None:
        self._entry = entry
        """Its number in /proc here."""
        self._types: Optional[Dict[str, str]] = None
        self._of: Tuple[Optional[Sequence[Mapping]], RangeIndex] = (None, RangeIndex(()))

    def kind(self, mapping: Mapping) -> Optional[str]:
        """The type, such as `ext4`; None where no mount has it, as on a disk whose mounts are elsewhere."""
        if not mapping.inode or not mapping.device.startswith(NO_DISK):
            return None
        if self._types is None:
            texts = [procfs.slurp_file("/proc/%s/mountinfo" % pid) or b"" for pid in ("self", self._entry)]
            self._types = {**map_device_types(texts[0]), **map_device_types(texts[1]), _device_of_shared_memory(): "shmem"}
        return self._types.get(mapping.device)

    def unanswered(self, mappings: Sequence[Mapping]) -> RangeIndex:
        """Ranges of mappings whose files may never be answered for."""
        if self._of[0] is not mappings:
            self._of = (mappings, RangeIndex((row.start, row.end) for row in mappings if is_fuse(self.kind(row))))
        return self._of[1]

    def is_memory(self, mapping: Mapping) -> bool:
        """Pages are RAM or swap."""
        return self.kind(mapping) in IN_MEMORY


def _device_of_shared_memory() -> str:
    """The device of the kernel's own mount, in no table, whose files are memfds, SysV segments and shared anonymous memory (mm/shmem.c)."""
    descriptor = os.memfd_create("gdbheapx", os.MFD_CLOEXEC)
    try:
        device = os.fstat(descriptor).st_dev
    finally:
        os.close(descriptor)
    return "%02x:%02x" % (os.major(device), os.minor(device))


PAGE_BYTES = os.sysconf("SC_PAGESIZE")
LEAST_BYTES, LEAST_SHARE = 16 << 20, 0.1
"""Private dirty memory below this is not compared, nor below this share of RSS."""
MOST_SAMPLED_PAGES, MOST_TRIED = 128, 16
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
        return pread_once(self.memory, address, size_bytes) if self.entry(address) & PRESENT else b""

    def entry(self, address: int) -> int:
        """Return the entry of pagemap for the address, or 0 if there is none."""
        data = pread_once(self.page_table, address // PAGE_BYTES * ENTRY_BYTES, ENTRY_BYTES)
        return int(struct.unpack("=Q", data)[0]) if len(data) == ENTRY_BYTES else 0


def pread_once(descriptor: Optional[int], place: int, size_bytes: int) -> bytes:
    """Read a part of a file; empty without a file, or where it cannot be read."""
    try:
        return os.pread(descriptor, size_bytes, place) if descriptor is not None else b""
    except (OSError, OverflowError):
        return b""


def compare_with_parent(pid: int, uses: Sequence[MappingUse], auxv: Dict[int, int]) -> Optional[ParentPages]:
    """Return the comparison; None where the process was not forked from its parent without exec, has little memory for itself alone, or one
    of the two cannot be read. `auxv`: its auxiliary vector."""
    writable = [use for use in uses if use.mapping.writable and not use.mapping.shared and not use.mapping.inode]
    own = [use for use in writable if use.private_dirty_bytes]
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
    words = array("Q", data)
    return len(words) - words.count(0)


def _sample_pages(own: Sequence[MappingUse], child: _Process) -> Iterator[int]:
    """Addresses of pages that the process has for itself alone, spread evenly: each mapping as often as is its part of them."""
    ends = list(accumulate(use.private_dirty_bytes or 0 for use in own))
    for number in range(MOST_SAMPLED_PAGES):
        mapping = own[bisect(ends, ends[-1] * (number * SPREAD[0] % 1))].mapping
        pages = range(mapping.start, mapping.end, PAGE_BYTES)
        places = range(number * MOST_TRIED, (number + 1) * MOST_TRIED)
        tried = (pages[int(len(pages) * (place * SPREAD[1] % 1))] for place in places)
        yield from islice((page for page in tried if child.entry(page) & (EXCLUSIVE | PRESENT | OF_FILE) == EXCLUSIVE | PRESENT), 1)
