"""A process of this machine as a place where bytes come from. Reading does not change it: no page is brought in that the process itself has
not touched.

A read of an untouched page through /proc/PID/mem gives the process a page table and its cgroup a page fault; one of a page of a library
that is not mapped in raises its RSS. So /proc/PID/pagemap is asked first: what is neither present nor swapped reads as zeros in private
anonymous memory, and comes from the file itself where one is mapped. Where that cannot be opened the page is not read: who serves the
file may never answer, and nothing ends the wait of a read of /proc/PID/mem. For that reason no page of a file on FUSE is read there even
if it is present, for its server may take it back at any time; on other file systems a page that goes between the look and the read comes
from a disk, or from a server that root has chosen. Swapped pages are brought in, and counted, as far as there is room
for them (headroom.py); the others are not read. The page table has nothing of shared pages in swap: a read of a file in memory asks as
well.
"""

import ctypes
import errno
import functools
import os
import re
import shlex
import time
from array import array
from bisect import bisect_right
from typing import Any, Callable, Dict, Iterable, Iterator, List, Optional, Sequence, Set, Tuple, TypeVar

from gdbheapx.common.budget import Still
from gdbheapx.common.errors import HeapxError
from gdbheapx.common.files import RegularFile, TargetPath
from gdbheapx.common.problems import MAPPED_FILE_UNREAD, PROCESS_ENDED, USERFAULTFD_UNREAD, Diagnostic
from gdbheapx.common.ranges import RangeIndex, subtract_ranges, unite_ranges
from gdbheapx.common.units import SentenceSize, count_noun, make_sentence
from gdbheapx.inferior import base
from gdbheapx.inferior.live import procfs, usage
from gdbheapx.inferior.live.headroom import Deaths, LiveSwapRoom
from gdbheapx.inferior.live.usage import GUARD, OF_FILE, PRESENT, SWAPPED, FileSystems, is_fuse, pread_once
from gdbheapx.inferior.source import TargetSource

MOST_AT_ONCE = 1 << 30
"""Bytes of one read call."""
ENTRIES_AT_ONCE = 1 << 16
MOST_ARGUMENTS = 4096
"""Bytes of a command line that is shown."""
TMPFS_MAGIC = 0x01021994
"""Of statfs(2), for tmpfs and for shared memory: pages of such files go to swap (linux/magic.h)."""
SMALL_BYTES, KEPT_BYTES, MOST_KEPT = 3072, 4096, 4096
"""Reads up to here go through pieces of this size, of which so many are kept."""

KEPT = ("auxv", "threads", "maps_text", "monotonic_ns", "huge_pages", "_usage_texts")
"""What a process that runs on may answer otherwise, or not at all once it has ended."""

SLOW = ("auxv", "huge_pages", "_usage_texts")
"""Those of them that may be of the moment before a short stop."""


Result = TypeVar("Result")
KINDS = PRESENT | SWAPPED | OF_FILE
"""Bits of an entry that say how a page is read."""
HANDLED = frozenset(("um", "ui"))
"""VmFlags of memory that a userfaultfd fills in: missing pages, or those that are in the page cache alone."""
UNREAD_HINT = "the files cannot be opened here, or a user serves them: run as root, or read a core of the process"


class LiveMemory:
    """Reads one process. `mappings` gives its mappings, sorted; `host_path` the path here of a file that it has mapped."""

    def __init__(
        self,
        pid: int,
        mappings: Callable[[], Sequence[base.Mapping]],
        host_path: Callable[[str], str],
        still: Optional[Still] = None,
        swap: Optional[base.SwapRoom] = None,
        faulting: Callable[[bool], RangeIndex] = lambda asks: RangeIndex(()),
    ) -> None:
        self._faulting = faulting
        """As LiveSource.faulting."""
        self.file_systems = FileSystems(pid)
        self.unread_files: Dict[str, int] = {}
        """Mapped files of which pages were not read, and the first such page."""
        self._pid, self._mappings, self._host_path, self._still = pid, mappings, host_path, still or Still()
        self._swap = swap or base.SwapRoom()
        self.pagemap = self._memory = -1
        self._memory = os.open("/proc/%d/mem" % pid, os.O_RDONLY | os.O_CLOEXEC)
        try:
            self.pagemap = os.open("/proc/%d/pagemap" % pid, os.O_RDONLY | os.O_CLOEXEC)
        except OSError:  # not in this kernel: everything is read as it comes
            pass
        self.page_bytes = os.sysconf("SC_PAGESIZE")
        self._files: Dict[Tuple[str, int], Optional[RegularFile]] = {}
        self._swappable: Set[Tuple[str, int]] = set()
        """Those of them whose pages may be in swap."""
        self._searched: Tuple[Optional[Sequence[base.Mapping]], List[int]] = (None, [])
        self._keeps = False
        self._kept: Dict[int, bytes] = {}
        self.copy: Optional[base.CopiedMemory] = None
        """Where it is read from now that the process runs on."""
        self.swapped_in_bytes = 0
        """Bytes that were in swap when they were read: they are in RAM now."""

    def __del__(self, close: Callable[[int], None] = os.close) -> None:
        # `close` is bound early: `os` may be gone when the interpreter ends
        for descriptor in (getattr(self, "_memory", -1), getattr(self, "_pagemap", -1)):
            if descriptor >= 0:
                close(descriptor)

    def is_gone(self) -> bool:
        """The process has ended, or runs another program: this memory exists no more. A read of living memory gives bytes or fails."""
        try:
            return not os.pread(self._memory, 1, 0)
        except OSError:
            return False

    def keep(self, still: bool) -> None:
        """The process is stopped from now on, or runs again: while it does, pages from which little is read are kept."""
        self._kept.clear()
        self._keeps = still

    def read_prefix(self, address: int, size_bytes: int) -> bytes:
        """The readable bytes from `address` on, up to size_bytes."""
        if size_bytes <= 0:
            return b""
        self._still.check()
        is_small = self._keeps and size_bytes < SMALL_BYTES
        data = self._read_small(address, size_bytes) if is_small else self._read_memory(address, size_bytes)
        self._still.check()
        return data

    def _read_small(self, address: int, size_bytes: int) -> bytes:
        """Through whole pages, which many small reads share: those of a thread's control block, for example."""
        start, kept = address & -KEPT_BYTES, self._kept
        data = kept.get(start)
        if data is None:
            if len(kept) >= MOST_KEPT:
                kept.clear()
            data = kept[start] = self._read_memory(start, KEPT_BYTES)
        part = data[address - start : address - start + size_bytes]
        if len(part) == size_bytes:
            return part
        if len(data) == KEPT_BYTES:
            return part + self._read_small(start + KEPT_BYTES, size_bytes - len(part))
        return part or self._read_memory(address, size_bytes)  # a page may begin in a hole

    def _read_memory(self, address: int, size_bytes: int) -> bytes:
        if self.copy is None:
            return self._read_living(address, size_bytes)
        parts: List[bytes] = []
        while size_bytes > 0:
            here, piece = self.copy.run(address, size_bytes)
            if piece is None:
                mapping = self._mapping_at(address)
                if mapping is None:  # nothing was there when the copy was made
                    break
                here = min(here, mapping.end - address)
                is_known = mapping.readable and (mapping.is_untouched_zero or self._find_file(mapping)[0] is not None)
                piece = self._by_mapping(address, here, 0) if is_known else self._read_living(address, here)
            parts.append(piece)
            if len(piece) < here:
                break
            address, size_bytes = address + here, size_bytes - here
        return b"".join(parts)

    def _read_living(self, address: int, size_bytes: int) -> bytes:
        if self.pagemap < 0:  # which pages are in swap is unknown
            return self._by_mapping(address, size_bytes, PRESENT | OF_FILE) if self._swap.has_room_for_all() else b""
        parts: List[bytes] = []
        while size_bytes > 0:
            for here, kind in self._iterate_runs(address, size_bytes):
                piece = self._by_mapping(address, here, kind) if kind is not None else b""
                parts.append(piece)
                if len(piece) < here:
                    return b"".join(parts)
                address, size_bytes = address + here, size_bytes - here
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def _iterate_runs(self, address: int, size_bytes: int) -> Iterator[Tuple[int, Optional[int]]]:
        """Yield the bytes from `address` on that lie in pages of one kind, and the KINDS of these, and so on: as far as one look at the
        page table reaches. None as kind: they are in swap, and there is no room for them.
        """
        page = self.page_bytes
        first = address // page
        count = min((address + size_bytes - 1) // page - first + 1, ENTRIES_AT_ONCE)
        data = pread_once(self.pagemap, 8 * first, 8 * count)
        entries = array("Q", data[: len(data) & ~7])
        if not entries:  # beyond what a process can map, or the process is gone: the read tells
            yield size_bytes, PRESENT | OF_FILE
        end, start = address + size_bytes, 0
        while start < len(entries):
            kind, place = entries[start] & KINDS, start + 1
            told: Optional[int] = kind
            while place < len(entries) and entries[place] & KINDS == kind:
                place += 1
            if kind & ~OF_FILE == SWAPPED:
                place, told = self._bring_in(entries, start, place)
            here = min(end, (first + place) * page)
            yield here - address, told
            address, start = here, place

    def _bring_in(self, entries: Any, start: int, end: int) -> Tuple[int, Optional[int]]:
        """Return, for entries that look swapped, the end of the first run that is treated alike, and the kind that _iterate_runs() yields
        for it.
        """
        looks, place = (bool(entries[start] & GUARD), usage.is_mark(entries[start])), start + 1
        while place < end and (bool(entries[place] & GUARD), usage.is_mark(entries[place])) == looks:
            place += 1
        if any(looks):
            return place, PRESENT if looks[0] else 0
        given = self._swap.take((place - start) * self.page_bytes, self.page_bytes) // self.page_bytes
        self.swapped_in_bytes += self.page_bytes * given
        return (start + given, SWAPPED) if given else (place, None)

    def _read_plain(self, address: int, size_bytes: int) -> bytes:
        parts = []
        while size_bytes > 0:
            piece = pread_once(self._memory, address, min(size_bytes, MOST_AT_ONCE))
            if not piece:
                break
            parts.append(piece)
            address, size_bytes = address + len(piece), size_bytes - len(piece)
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def _by_mapping(self, address: int, size_bytes: int, kind: int) -> bytes:
        """Pages of these KINDS, of one mapping or more: a prefix, shorter where memory or a file ends."""
        is_touched, unanswered = bool(kind & ~OF_FILE), self.file_systems.unanswered(self._mappings())
        if is_touched and not (kind & OF_FILE and unanswered.meets(address, address + size_bytes)):
            return self._read_plain(address, size_bytes)
        parts: List[bytes] = []
        while size_bytes > 0:
            mapping = self._mapping_at(address)
            if mapping is None or not (mapping.readable or is_touched):
                break
            here = min(size_bytes, mapping.end - address)
            if is_touched and not unanswered.meets(address, address + here):
                piece = self._read_plain(address, here)
            elif not mapping.is_untouched_zero:
                piece = self._from_file(mapping, address, here)
            else:
                piece = b"" if self._faulting(False).meets(address, address + here) else bytes(here)
            parts.append(piece)
            if len(piece) < here:
                break
            address, size_bytes = address + here, size_bytes - here
        return b"".join(parts)

    def _mapping_at(self, address: int) -> Optional[base.Mapping]:
        mappings = self._mappings()
        if self._searched[0] is not mappings:
            self._searched = (mappings, [mapping.start for mapping in mappings])
        place = bisect_right(self._searched[1], address) - 1
        return mappings[place] if place >= 0 and address < mappings[place].end else None

    def _from_file(self, mapping: base.Mapping, address: int, size_bytes: int) -> bytes:
        """A page of a file that the process has not touched is as it is in the file. Where the file cannot be had, only memory without a
        server is read from the process after all."""
        file, is_swappable = self._find_file(mapping)
        if is_swappable:
            size_bytes = self._swap.take_shared(size_bytes, self.page_bytes)
        if not size_bytes:
            return b""
        if file is None and mapping.inode:
            if self.file_systems.is_memory(mapping) and not self._faulting(True).meets(address, address + size_bytes):
                return self._read_plain(address, size_bytes)
            self.unread_files.setdefault(mapping.name, address)
            return b""
        if file is None:  # the kernel's own pages ([vdso])
            return self._read_plain(address, size_bytes)
        try:
            return file.pread(size_bytes, mapping.offset + address - mapping.start)
        except OSError:
            return b""

    def swappable_ranges(self, start: int, end: int) -> Optional[Sequence[Tuple[int, int]]]:
        """Return the ranges as Target.swappable_ranges does."""
        mapping = self._mapping_at(start)
        file = self._find_file(mapping)[0] if mapping is not None else None
        if mapping is None or file is None:
            return None
        try:
            return file.ask(lambda descriptor: self._data_ranges(descriptor, mapping, start, end))
        except OSError:
            return None

    def _data_ranges(self, descriptor: int, mapping: base.Mapping, start: int, end: int) -> Optional[Sequence[Tuple[int, int]]]:
        ranges, base = [], mapping.start - mapping.offset
        place, last = start - base, min(end, mapping.end) - base
        while place < last:
            try:
                low = os.lseek(descriptor, place, os.SEEK_DATA)
                place = os.lseek(descriptor, low, os.SEEK_HOLE)
            except OSError as error:
                if error.errno != errno.ENXIO:
                    return None
                break  # no data behind that
            if low < last:
                ranges.append((base + low, base + min(place, last)))
        return ranges

    def _find_file(self, mapping: base.Mapping) -> Tuple[Optional[RegularFile], bool]:
        """The mapped file, and whether pages of it may be in swap; of one that cannot be had they may."""
        key = (mapping.device, mapping.inode)
        if key not in self._files:
            file = self._files[key] = self._open_file(mapping)
            if file is None or file.ask(_file_system) == TMPFS_MAGIC:
                self._swappable.add(key)
        return self._files[key], key in self._swappable

    def _open_file(self, mapping: base.Mapping) -> Optional[RegularFile]:
        """The very file that is mapped, by device and inode: whatever lies at its path by now, or in this mount namespace, may be
        another. A copy of it, where its file system may not answer, has neither."""
        if not mapping.inode or not mapping.is_file or is_fuse(self.file_systems.kind(mapping)):
            return None
        link = TargetPath("/proc/%d/map_files/%x-%x" % (self._pid, mapping.start, mapping.end), None)
        for path in (link, self._host_path(mapping.name)):
            try:
                file = RegularFile(path)
                status = file.ask(os.fstat)
            except OSError:
                continue
            device = "%02x:%02x" % (os.major(status.st_dev), os.minor(status.st_dev))
            if path is link or (device, status.st_ino) == (mapping.device, mapping.inode):
                return file
        return None


def _file_system(descriptor: int) -> int:
    """statfs.f_type; 0 if unknown."""
    answer = ctypes.create_string_buffer(256)
    failed = ctypes.CDLL(None).fstatfs(descriptor, answer)
    return 0 if failed else ctypes.c_long.from_buffer(answer).value


class LiveSource(TargetSource):
    """A process of this machine, running or stopped."""

    kind = "live"

    def __init__(self, pid: int, sysroot: str = "", executable: Optional[str] = None) -> None:
        self.given_executable = executable
        self.pid = self._pid = pid
        self.still: Still = Still()
        procfs.check_numbers()
        header = procfs.executable_header(pid)
        try:
            self.swap = LiveSwapRoom(pid)
            self._deaths = Deaths(pid)
            self._memory = LiveMemory(procfs.proc_entry_number(pid), self.mappings, self.host_path, self.still, self.swap, self.faulting)
        except FileNotFoundError:
            raise HeapxError("process %d crashed or exited" % pid, "give the pid of a running process", code=PROCESS_ENDED)
        except OSError:
            raise procfs.why_not_permitted(pid)
        if header is None:
            raise procfs.why_not_permitted(pid)
        TargetSource.__init__(self, header)
        self.executable = procfs.read_executable_path(pid)
        self.sysroot = sysroot or procfs.root_prefix(pid)
        self._identity: Optional[base.Identity] = None
        self._stopped_at_s: Optional[float] = None
        self._foreseen: Dict[str, Any] = {}
        """Of what is kept, what was asked for just before the stop."""
        self.forget()
        self._page_tables = usage.Finder(pid)

    def read_prefix(self, address: int, size_bytes: int) -> bytes:
        return self._memory.read_prefix(address, size_bytes)

    def swapped_in_bytes(self) -> Optional[int]:
        return self._memory.swapped_in_bytes + self.swap.shared_in_bytes if self._memory.pagemap >= 0 else None

    def swappable_ranges(self, start: int, end: int) -> Optional[Sequence[Tuple[int, int]]]:
        return self._memory.swappable_ranges(start, end)

    def forget(self) -> None:
        self._maps: Optional[List[base.Mapping]] = None
        self._use: Optional[base.MemoryUse] = None
        self._ignored_bits: Optional[int] = None
        self._kept: Dict[str, Any] = {}
        self._memory.copy = None
        self._memory.file_systems = FileSystems(procfs.proc_entry_number(self._pid))
        self._fault_ranges: Tuple[Optional[base.MemoryUse], RangeIndex] = (None, RangeIndex(()))
        self._is_foreseen = False
        """What is kept of smaps is of a moment before."""

    @property
    def ignored_bits(self) -> int:
        if self._ignored_bits is None:
            told = procfs.read_process_status(self._pid).get("untag_mask")  # since Linux 6.4, the first that has processes which ask for it
            every = (1 << 8 * self.word_bytes) - 1
            self._ignored_bits = (self.arch.ignored_bits | (~int(told, 16) if told else 0)) & every
        return self._ignored_bits

    def keep(self, copy: base.CopiedMemory, take: Callable[[], None]) -> None:
        self._is_foreseen = "_usage_texts" in self._foreseen
        for name in KEPT:
            self._kept[name] = self._foreseen[name] if name in self._foreseen else getattr(self, name)()
        self._foreseen = {}
        take()
        self._memory.copy = copy

    def foresee(self) -> None:
        """Ask now for what would make a short stop long: smaps counts every page. It is of this moment then."""
        self._foreseen = {name: getattr(self, name)() for name in SLOW}

    def keep_held(self, copy: base.CopiedMemory, lwps: Iterable[int], maps: bytes, monotonic_ns: int) -> None:
        """Names of threads are those of now."""
        self._kept = {name: self._foreseen[name] if name in self._foreseen else getattr(self, name)() for name in SLOW}
        self._foreseen, self._is_foreseen = {}, True
        self._kept["threads"] = self._name_threads(sorted(lwps))
        self._kept["maps_text"] = maps.decode("utf-8", "surrogateescape")
        self._kept["monotonic_ns"] = None if procfs.monotonic_ns(self._pid) is None else monotonic_ns
        self._maps = procfs.parse_maps(os.fsdecode(maps))
        self._memory.copy = copy

    def _as_it_was(self, name: str, ask: Callable[[], Result]) -> Result:
        kept: Result = self._kept[name] if self._memory.copy is not None else ask()
        return kept

    def memory_use(self) -> Optional[base.MemoryUse]:
        if self._use is None:
            self._use = usage.make_smaps_usage(*self._as_it_was("_usage_texts", self._usage_texts))
            if self._use is not None and self._is_foreseen and self._memory.copy is not None:
                self._use = self._use._replace(mappings=usage.in_copy(self._use.mappings, self.mappings(), self._memory.copy))
        return self._use

    def faulting(self, asks: bool) -> RangeIndex:
        """Ranges of which another program may answer for pages that are not there (userfaultfd); none where smaps was not read. `asks`: it
        is read for that."""
        use = self.memory_use() if asks else self._use
        if self._fault_ranges[0] is not use:
            rows = [] if use is None else [row for row in use.mappings if row.flags is not None and not HANDLED.isdisjoint(row.flags)]
            self._fault_ranges = (use, RangeIndex((row.mapping.start, row.mapping.end) for row in rows))
        return self._fault_ranges[1]

    def _usage_texts(self) -> usage.SmapsTexts:
        return usage.read_smaps_texts(self._pid)

    @functools.cached_property
    def _huge_setting(self) -> Optional[str]:
        """The machine's: asked once, before the process is stopped."""
        setting = re.search(r"\[(\w+)\]", (procfs.slurp_file(usage.SETTING) or b"").decode("ascii", "replace"))
        return setting.group(1) if setting else None

    def huge_pages(self) -> base.HugePages:
        return self._as_it_was("huge_pages", lambda: usage.find_huge_pages(self._pid, self._huge_setting))

    def parent_pages(self) -> Optional[base.ParentPages]:
        use = self.memory_use()
        if use is None or self.has_ended():
            return None
        return usage.compare_with_parent(self._pid, use.mappings, self.auxv())

    def read_parent(self, address: int, size_bytes: int) -> bytes:
        return usage.read_parent(self._pid, address, size_bytes)

    def anonymous_use(self) -> Optional[Tuple[int, int, int]]:
        return procfs.read_anonymous_use(self._pid)

    def swap_room(self) -> base.SwapRoom:
        return self.swap

    def has_ended(self) -> bool:
        return self._memory.copy is None and self._memory.is_gone()

    def cause_of_death(self) -> Optional[Diagnostic]:
        return self._deaths.cause()

    def identity(self) -> base.Identity:
        """Asked for first while the process is there."""
        if self._identity is None:
            place = procfs.find_words_range(self._pid, procfs.ARGUMENTS)
            text = self.read_prefix(place[0], min(place[1] - place[0], MOST_ARGUMENTS)).rstrip(b"\0") if place else b""
            words = text.decode("utf-8", "replace").split("\0")
            program = base.choose_program_name(procfs.thread_name(self._pid, self._pid), words[0], self.executable)
            line = " ".join(map(shlex.quote, words)) if text else None
            self._identity = base.Identity(program, line, os.uname().nodename, None, procfs.uptime_s(self._pid))
        return self._identity._replace(time=base.format_utc(self._stopped_at_s or time.time()))

    def stands_still(self, still: bool, ended: Optional[int] = None) -> None:
        self._stopped_at_s = time.time()
        self._memory.keep(still)
        self._deaths.status = self._deaths.status if ended is None else ended

    def mappings(self) -> List[base.Mapping]:
        if self._maps is None:
            self._maps = procfs.read_process_maps(self._pid)
        return self._maps

    def auxv(self) -> Dict[int, int]:
        return self._as_it_was("auxv", lambda: procfs.read_process_auxv(self._pid, self.header))

    def threads(self) -> List[base.Thread]:
        return self._as_it_was("threads", lambda: self._name_threads(procfs.list_thread_ids(self._pid)))

    def _name_threads(self, lwps: Iterable[int]) -> List[base.Thread]:
        """The program's own threads: workers of the kernel have nothing of an allocator, and no registers of their own."""
        named = [(lwp, procfs.thread_name(self._pid, lwp)) for lwp in lwps]
        return [base.Thread(lwp, name, None, None, None) for lwp, name in named if not procfs.is_kernel_worker(self._pid, lwp, name)]

    def environment_variable(self, name: str) -> Optional[str]:
        place, prefix = procfs.find_words_range(self._pid, procfs.ENVIRONMENT), name.encode() + b"="
        for entry in self.read_prefix(place[0], place[1] - place[0]).split(b"\0") if place else ():
            if entry.startswith(prefix):
                return entry[len(prefix) :].decode("utf-8", "surrogateescape")
        return None

    def bulk_source(self) -> base.BulkSource:
        mappings, is_accepted = self.mappings(), self.swap.is_accepted
        faulting = self.faulting(is_accepted)
        zeros = subtract_ranges(unite_ranges((row.start, row.end) for row in mappings if row.is_untouched_zero), list(faulting))
        shared = ((row.start, row.end) for row in mappings if is_accepted and self._memory.file_systems.is_memory(row))
        guards = (tuple(subtract_ranges(shared, list(faulting))), tuple(self._memory.file_systems.unanswered(mappings)))
        table = self.page_table()
        scans, copy = table is not None and table.scans, self._memory.copy
        return base.ProcessSource(procfs.proc_entry_number(self._pid), tuple(zeros), self.still, self.swap, scans, copy, *guards)

    def present_ranges(self, start: int, end: int) -> Sequence[Tuple[int, int]]:
        copy, most_bytes = self._memory.copy, usage.MOST_PAGES * self._memory.page_bytes
        known = copy.touched(start, min(end, start + most_bytes), False) if copy is not None else None
        return usage.list_present_ranges(self._pid, start, end) if known is None else known

    def touched_ranges(self, start: int, end: int) -> Sequence[Tuple[int, int]]:
        copy = self._memory.copy
        known = copy.touched(start, end, True) if copy is not None else None
        return usage.list_touched_ranges(self._pid, start, end) if known is None else known

    def maps_text(self) -> str:
        return self._as_it_was("maps_text", lambda: procfs.maps_text(self._pid))

    def monotonic_ns(self) -> Optional[int]:
        return self._as_it_was("monotonic_ns", lambda: procfs.monotonic_ns(self._pid))

    def page_table(self) -> Optional[base.PageTable]:
        table, copy = self._page_tables.find(self.mappings()), self._memory.copy
        return table if table is None or copy is None else table._replace(copy=copy)

    def problems(self) -> List[Diagnostic]:
        told, unread = self.swap.problems(), self._memory.unread_files
        if unread:
            name = next(iter(unread))
            others = make_sentence(" and %s", count_noun(len(unread) - 1, "other file")) if len(unread) > 1 else ""
            what = make_sentence("pages of %s%s that the process has not touched, or that FUSE serves, were not read", name, others)
            told.append(Diagnostic(MAPPED_FILE_UNREAD, unread[name], what, UNREAD_HINT))
        rows = [row for row in self._use.mappings if self.faulting(False).meets(row.mapping.start, row.mapping.end)] if self._use else []
        missing = [(row.mapping.start, row.mapping.size_bytes - row.resident_bytes - (row.swapped_bytes or 0)) for row in rows]
        missing = [(start, size) for start, size in missing if size > 0]
        if missing:
            size = SentenceSize(sum(size for _, size in missing))
            what = make_sentence("%s for which a userfaultfd of another program may answer were not read", size)
            told.append(Diagnostic(USERFAULTFD_UNREAD, missing[0][0], what, "their content is unknown"))
        return told

    def file_in_memory(self, name: str) -> Optional[str]:
        """Return the path in /proc that opens the mapped file, or None. For other users' processes it needs CAP_CHECKPOINT_RESTORE,
        except for the executable.
        """
        if name == self.executable:
            return TargetPath("/proc/%d/exe" % procfs.proc_entry_number(self._pid), None)
        for mapping in self.mappings():
            if mapping.name in (name, name + " (deleted)"):
                path = TargetPath("/proc/%d/map_files/%x-%x" % (procfs.proc_entry_number(self._pid), mapping.start, mapping.end), None)
                return path if os.path.lexists(path) else None
        return None
