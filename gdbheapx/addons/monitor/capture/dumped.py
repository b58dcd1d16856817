"""A process that the kernel is writing the core of: what the core begins with, and the memory itself from /proc/PID/mem.

No core is written anywhere: the handler that core_pattern names gets it on standard input, and its ELF header and notes come first, with
the registers of all threads, which nobody can attach to any more. As long as the rest is not taken from that pipe the kernel waits, and
the process stands. So this is a core, whose bytes are read where they still are.
"""

import os
import select
import struct
import time
from bisect import bisect_right
from itertools import islice
from typing import List, NamedTuple, Optional, Sequence, Tuple

import gdbheapx.inferior.elf.file as elf
from gdbheapx.common.errors import HeapxError
from gdbheapx.common.problems import NO_PROCESS, NOT_A_CORE, PROCESS_ENDED, Diagnostic
from gdbheapx.common.ranges import unite_ranges
from gdbheapx.inferior.base import BulkSource, MappingUse, MemoryUse, SwapRoom
from gdbheapx.inferior.core_file import MAX_NOTES, MOST_HEADERS, PN_XNUM, CoreFile
from gdbheapx.inferior.live import procfs, usage
from gdbheapx.inferior.live.source import LiveSource
from gdbheapx.inferior.source import CoreSource

HEADER_BYTES = 64
NOT_DUMPING = "the kernel starts this command for a process that crashes: see gdbheapx capture --show-pattern"
MOST_AT_ONCE, MOST_HEAD_BYTES = 1 << 20, MAX_NOTES + (64 << 20)


class Head(NamedTuple):
    """Beginning of a core: ELF header, program headers and notes, with facts about the process."""

    data: bytearray
    """What was taken from the pipe: whoever takes that over must be given it first."""
    descriptor: int
    """A file in memory that has it where it stands in the core, and a hole for all that follows: as long as the core would be. -1: none."""
    error: Optional[HeapxError]
    """Why there is none."""
    name: Optional[str]
    """comm of the process: data."""
    threads: Optional[int]
    memory_bytes: Optional[int]
    """What it has in RAM and in swap."""
    signal: int
    """Which one it crashed by; 0: there are no notes."""


def read_head(pid: int, pipe: int, until: float) -> Head:
    """ELF header, program headers and notes of the core that comes through `pipe`; `until` this moment of the monotonic clock."""
    data = bytearray()
    descriptor, why, signal = -1, None, 0
    try:
        header, count = _take_headers(pipe, data, until)
        signal = _read_crash_signal(header, data)
        descriptor = _in_memory(header, count, data)
    except HeapxError as error:
        why = error
    except (MemoryError, OSError, OverflowError, ValueError) as error:
        why = HeapxError("cannot keep the notes of the core: %s" % error, "read the core itself", code=NOT_A_CORE)
    fields = procfs.read_process_status(pid)
    sizes = [fields.get(name, "").partition(" ")[0] for name in ("VmRSS", "VmSwap")]
    memory_bytes = sum(int(size) << 10 for size in sizes) if all(size.isdigit() for size in sizes) else None
    threads = int(fields["Threads"]) if fields.get("Threads", "").isdigit() else None
    return Head(data, descriptor, why, fields.get("Name"), threads, memory_bytes, signal)


def _take_headers(pipe: int, data: bytearray, until: float) -> Tuple[elf.ElfHeader, int]:
    """The header, and how many program headers there are."""
    _fill_data(pipe, data, HEADER_BYTES, until)
    header = elf.parse_header(bytes(data))
    if header is None or header.type != elf.ET_CORE or header.phentsize != elf.program_header_bytes(header.word_bytes):
        raise HeapxError("what comes through standard input is not an ELF core", NOT_DUMPING, code=NOT_A_CORE)
    _fill_data(pipe, data, header.phoff + header.phentsize, until)
    notes, count = _parse_entries(header, data, 1)[0], header.phnum
    if count == PN_XNUM:  # the true number stands behind the memory, but notes follow the last program header (fs/binfmt_elf.c)
        count = (notes.offset - header.phoff) // header.phentsize
    if notes.type != elf.PT_NOTE or not 0 < count <= MOST_HEADERS or notes.filesz > MAX_NOTES:
        raise HeapxError("the core does not begin with its notes: no Linux kernel wrote it", NOT_DUMPING, code=NOT_A_CORE)
    _fill_data(pipe, data, max(header.phoff + count * header.phentsize, notes.offset + notes.filesz), until)
    return header, count


def _in_memory(header: elf.ElfHeader, count: int, data: bytearray) -> int:
    end = max(entry.offset + entry.filesz for entry in _parse_entries(header, data, count))
    descriptor = os.memfd_create("gdbheapx", os.MFD_CLOEXEC)
    with open(descriptor, "wb", closefd=False) as file:
        file.write(data)
    if header.phnum == PN_XNUM:
        place = header.shoff + (44 if header.word_bytes == 8 else 28)  # sh_info of the first section header
        os.pwrite(descriptor, struct.pack(header.order + "I", count), place)
        end = max(end, place + 4)
    os.truncate(descriptor, max(end, len(data)))
    return descriptor


def _read_crash_signal(header: elf.ElfHeader, data: bytearray) -> int:
    """si_signo of the first elf_prstatus, which is that of the thread that crashed."""
    notes = _parse_entries(header, data, 1)[0]
    for name, kind, desc in elf.parse_notes(header.order, bytes(memoryview(data)[notes.offset : notes.offset + notes.filesz]), notes.align):
        if name == b"CORE" and kind == elf.NT_PRSTATUS and len(desc) >= 4:
            return int(struct.unpack_from(header.order + "i", desc)[0])
    return 0


def _fill_data(pipe: int, data: bytearray, size_bytes: int, until: float) -> None:
    """Read until there are so many bytes, and not one more: what is not taken has the kernel wait."""
    if size_bytes > MOST_HEAD_BYTES:
        raise HeapxError("headers and notes of the core are %d bytes long" % size_bytes, "read the core itself", code=NOT_A_CORE)
    while len(data) < size_bytes:
        if not select.select([pipe], [], [], max(0.0, until - time.monotonic()))[0]:
            raise HeapxError("the core's notes did not come in time", "give it more with --max-seconds", code=NOT_A_CORE)
        have, taken_bytes = len(data), 0
        data.extend(bytes(min(MOST_AT_ONCE, size_bytes - have)))  # first room: nothing is lost that was taken
        try:
            with memoryview(data)[have:] as room:
                taken_bytes = os.readv(pipe, [room])
        finally:
            del data[have + taken_bytes :]
        if not taken_bytes:
            what = "the core ended before its memory: the process was killed meanwhile"
            raise HeapxError(what, "there is nothing left to read of it", code=PROCESS_ENDED)


def _parse_entries(header: elf.ElfHeader, data: bytearray, count: int) -> List[elf.ProgramHeader]:
    table = bytes(data[header.phoff : header.phoff + count * header.phentsize])
    return elf.parse_program_headers(header.order, header.word_bytes, table)


class _DumpedMemory(CoreFile):
    """The map of the core; its bytes are those of the process."""

    def __init__(self, path: str, live: LiveSource) -> None:
        super().__init__(path)
        self._live = live

    def read_dumped(self, address: int, size_bytes: int) -> bytes:
        parts: List[bytes] = []
        while size_bytes > 0:
            load = self.find(address)
            here = min(size_bytes, load.start + load.dumped_bytes - address) if load is not None else 0
            data = self._live.read_prefix(address, here) if here > 0 else b""
            parts.append(data)
            if not here == len(data) > 0:
                break
            address, size_bytes = address + here, size_bytes - here
        return b"".join(parts)


class DumpedSource(CoreSource):
    """A process that the kernel is writing the core of."""

    def __init__(self, pid: int, descriptor: int) -> None:
        """`descriptor`: that of Head. HeapxError where the kernel writes no core of this process, or that of another one into the pipe."""
        fields = procfs.read_process_status(pid)
        if not fields:
            raise HeapxError("no such process: %d" % pid, NOT_DUMPING, code=NO_PROCESS)
        if fields.get("CoreDumping") != "1":
            raise HeapxError("the kernel is not writing a core of process %d" % pid, NOT_DUMPING, code=NO_PROCESS)
        self.live = LiveSource(pid)
        self.live.stands_still(True)
        super().__init__("/proc/self/fd/%d" % descriptor, None, procfs.root_prefix(pid), name="/proc/%d/mem" % pid)
        self.pid = pid
        if self.core.notes().auxv != self.live.auxv():
            raise HeapxError("the core on standard input is not that of process %d" % pid, NOT_DUMPING, code=NOT_A_CORE)
        self.executable = self.live.executable or self.executable
        self._files[self.executable or ""] = None  # what is mapped is read from memory: what lies at its path by now does not matter

    def open_core(self, path: str, name: Optional[str]) -> CoreFile:
        return _DumpedMemory(path, self.live)

    def bulk_source(self) -> BulkSource:
        return self.live.bulk_source()

    def read_own(self, address: int, size_bytes: int) -> bytes:
        return self.read_prefix(address, size_bytes)  # clean pages are the process's, too

    def may_use(self, file: elf.ElfFile) -> bool:
        return self.live.may_use(file)

    def takes_unproven(self, file: elf.ElfFile, start: int) -> bool:
        return False

    def file_in_memory(self, name: str) -> Optional[str]:
        return self.live.file_in_memory(name)

    def _read_clean_pages(self, address: int, size_bytes: int) -> bytes:
        """Return clean pages that are not dumped, from mapped files alone that cannot have been written to; the very pages."""
        load = self.core.find(address)
        if load is None or load.flags & 2 or load.start not in self._names:
            return b""
        return self.live.read_prefix(address, min(size_bytes, load.end - address))

    def touched_ranges(self, start: int, end: int) -> Sequence[Tuple[int, int]]:
        return self.data_ranges([(start, end)])

    def data_ranges(self, ranges: Sequence[Tuple[int, int]]) -> Sequence[Tuple[int, int]]:
        dumped = (part for start, end in ranges for part in self._list_dumped(start, end))
        return unite_ranges(part for low, high in dumped for part in usage.list_touched_ranges(self.pid or 0, low, high))

    def present_ranges(self, start: int, end: int) -> Sequence[Tuple[int, int]]:
        return self._list_dumped(start, end)

    def _list_dumped(self, start: int, end: int) -> List[Tuple[int, int]]:
        """Return the parts of this range that would be in the core."""
        loads = self.core.loads
        first = max(bisect_right(loads, (start, end)) - 1, 0)
        parts = []
        for load in islice(loads, first, None):
            if load.start >= end:
                break
            low, high = max(start, load.start), min(end, load.start + load.dumped_bytes)
            parts += [(low, high)] if low < high else []
        return parts

    def memory_use(self) -> MemoryUse:
        """Return the bytes that each mapping would take in the core: the kernel leaves a hole for a page that was never touched."""
        if self._use is None:
            use = self.live.memory_use()
            known = {one.mapping.start: one for one in use.mappings} if use is not None else {}
            uses = []
            for mapping in self.mappings():
                one = known.get(mapping.start)
                name = mapping.name or (one.mapping.name if one is not None and one.mapping.name.startswith("[") else "")
                taken_bytes = one.resident_bytes + (one.swapped_bytes or 0) if one is not None else 0
                uses.append(MappingUse(mapping._replace(name=name), min(taken_bytes, mapping.dumped_bytes or 0)))
            self._use = MemoryUse("dumped", uses, None, True)
        return self._use

    def swap_room(self) -> SwapRoom:
        return self.live.swap_room()

    def has_ended(self) -> bool:
        return self.live.has_ended()

    def cause_of_death(self) -> Optional[Diagnostic]:
        return self.live.cause_of_death()

    def problems(self) -> List[Diagnostic]:
        return [*super().problems(), *self.live.problems()]
