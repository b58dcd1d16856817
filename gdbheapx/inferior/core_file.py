"""Read an ELF core without gdb: the bytes of memory in it, its notes, contradictions in them, and compressed cores.

Its own reader, as every command on a core pays for it: 60,000 PT_LOADs take 140 ms here and 560 by pyelftools, the notes of 1,000 threads
and 15,000 mapped files 15 ms and 225, which does not decode registers (bench/elf_readers.py). What is damaged is read as far as it goes.

Damage is found by rules of what writes cores (fs/binfmt_elf.c: elf_core_dump, fill_files_note; gdb's linux-tdep.c): the memory of one
mapping follows the other. Memory that leads to blocks must be there: writable segments of each loaded object without PT_GNU_RELRO, and of
each thread the stack at its stack pointer and the block at its thread pointer. The kernel dumps no mapping that was never written to, so
that mappings count, not bytes.

A compressed core is unpacked to a temporary file without a name, which is then read as any core; the copy vanishes with the last process
that has it open. Pages of zeros become holes: a compressed core does not distinguish them from memory that was never touched.
"""

import os
import struct
import time
from bisect import bisect_right
from itertools import islice
from typing import Any, Callable, Dict, Iterator, List, NamedTuple, Optional, Sequence, Tuple, Union

import gdbheapx.inferior.elf.file as elf
from gdbheapx.common import problems
from gdbheapx.common.errors import HeapxError
from gdbheapx.common.files import NotRegular, RegularFile, open_regular, open_unnamed, temporary_folder
from gdbheapx.common.ranges import RangeIndex, RangeSums, subtract_ranges, unite_ranges
from gdbheapx.inferior.base import Mapping, MappingUse, MemoryUse, Segment, Thread
from gdbheapx.inferior.elf.link_map import AT_BASE, AT_PHDR, AT_PHNUM, Loaded

EXECUTABLE, WRITABLE = 1, 2
"""PF_X and PF_W of a program header's flags."""
NT_PRPSINFO, NT_AUXV, NT_FILE = 3, 6, 0x46494C45
PN_XNUM = 0xFFFF
AT_RANDOM, AT_EXECFN, AT_SYSINFO_EHDR = 25, 31, 33
MAX_NOTES = 256 << 20
"""Notes longer than this in all are damage: 20,000 threads with full vector registers fit."""
MOST_NOTES = 1 << 20
"""Notes that are taken in, and files that NT_FILE names: more is damage."""
MOST_HEADERS = 1 << 20
"""Program headers that are read: a process has 65,530 mappings unless vm.max_map_count was raised."""

MOST_PIECES = 64
"""Program headers of one mapped file that are looked at."""
INSTALLED = ("/usr/", "/lib", "/etc/", "/dev/dri", "/dev/nvidia")
"""Beginnings of paths to files of a distribution, and to devices, which hold no pointers of a program."""


USER_SPACE = 1 << 56
"""No machine that is read gives a program higher addresses."""
LAST_PAGE = 0x1000
"""No program has the last page of all addresses, and without it each end is an address."""
NT_SIGINFO = 0x53494749
SI_TKILL = -6
PIECE_BYTES, OVERLAP_BYTES = 4 << 20, 4096
"""How much is read at once; a text shorter than the overlap lies whole in one of two pieces."""


class FileMapping(NamedTuple):
    """An entry of NT_FILE."""

    start: int
    end: int
    offset: int
    """Byte offset in the file that is mapped at `start`."""
    name: str


class Load(NamedTuple):
    """A PT_LOAD with the bytes that the file has of it."""

    start: int
    end: int
    flags: int
    offset: int
    claimed_bytes: int
    """p_filesz: what was meant to be dumped; beyond it lie clean pages of a file, or nothing."""
    dumped_bytes: int
    """What is in the file."""


def remove_overlap(loads: List[Load]) -> List[Load]:
    """Damaged headers may overlap. Of addresses: a load ends where the next one begins, unless it has bytes of its own there, which leave
    the next one out. Of the file, no byte belongs to two, so that all of them together are no longer than it is."""
    kept: List[Load] = []
    for load in loads:
        if kept and load.start < kept[-1].end:
            if load.start < kept[-1].start + max(1, kept[-1].dumped_bytes):
                continue
            kept[-1] = kept[-1]._replace(end=load.start)
        kept.append(load)
    behind: Optional[int] = None
    cut: Dict[int, int] = {}
    dumped = [place for place, load in enumerate(kept) if load.dumped_bytes]
    for place in sorted(dumped, key=lambda place: kept[place].offset, reverse=True):
        load = kept[place]
        if behind is not None and load.offset + load.dumped_bytes > behind:
            cut[place] = behind - load.offset
        behind = load.offset
    return [load._replace(dumped_bytes=cut[place]) if place in cut else load for place, load in enumerate(kept)]


def is_outside(entry: elf.ProgramHeader) -> bool:
    """The segment is damaged: a program has nothing there but code of the kernel's (Linux's vsyscall)."""
    is_code = entry.flags & (EXECUTABLE | WRITABLE) == EXECUTABLE
    return entry.type == elf.PT_LOAD and entry.vaddr + entry.memsz > USER_SPACE and not is_code


class CoreFile:
    """The map of one core. Its notes are read on first use."""

    def __init__(self, path: str, name: Optional[str] = None) -> None:
        """`name`: what the user calls it, if that is not the path."""
        self.path = path
        self._fd = open_core(path)
        self.file_bytes = os.fstat(self._fd).st_size
        first = os.pread(self._fd, 64, 0)
        header = elf.parse_header(first)
        wrong = find_header_contradiction(first, header) if header is not None else None
        if header is None or header.type != elf.ET_CORE or wrong is not None:
            os.close(self._fd)
            self._fd = -1
            raise explain_no_core(name or path, first, header, wrong)
        self.header: elf.ElfHeader = header
        headers = self.program_headers = self._program_headers()
        self.outside = sum(map(is_outside, headers))
        """Segments that lie where no program has memory: they are left out."""
        loads = sorted(load for load in map(self._make_load, headers) if load is not None)
        self.loads = remove_overlap(loads)
        self.has_overlap = any(load.end > after.start for load, after in zip(loads, loads[1:]))
        """Its program headers contradict each other."""
        self._starts = [load.start for load in self.loads]
        self._note_headers = [entry for entry in headers if entry.type == elf.PT_NOTE]
        self.missing_bytes = sum(load.claimed_bytes - load.dumped_bytes for load in self.loads)
        """Bytes that the program headers promise and the file does not hold: it was cut."""
        self.claimed_end = max([entry.offset + entry.filesz for entry in headers] or [0])
        """How long the file would be if it were whole."""
        self.missing_headers = self._promised_headers - len(headers)
        """Program headers that the file does not hold: the memory that they would have described is unknown."""
        spans = [(entry.filesz, self.file_bytes - entry.offset) for entry in self._note_headers]
        self.missing_note_bytes = sum(claimed - max(0, min(claimed, there)) for claimed, there in spans)
        self._notes: Optional[CoreNotes] = None

    def __del__(self, close: Callable[[int], None] = os.close) -> None:
        if getattr(self, "_fd", -1) >= 0:  # `os` may be gone when the interpreter ends
            close(self._fd)

    def _program_headers(self) -> List[elf.ProgramHeader]:
        header, count = self.header, self.header.phnum
        if count == PN_XNUM and header.shoff:  # the true number stands in the first section header's sh_info
            raw = self._pread_file(header.shoff + (44 if header.word_bytes == 8 else 28), 4)
            count = struct.unpack(header.order + "I", raw)[0] if len(raw) == 4 else count
        self._promised_headers = count
        raw = self._pread_file(header.phoff, min(count, MOST_HEADERS) * header.phentsize)
        return elf.parse_program_headers(header.order, header.word_bytes, raw)

    def _pread_file(self, offset: int, size_bytes: int) -> bytes:
        """Bytes of the file, as far as it goes: a damaged header may name any place."""
        left = self.file_bytes - offset
        return os.pread(self._fd, min(size_bytes, left), offset) if left > 0 else b""

    def _make_load(self, entry: elf.ProgramHeader) -> Optional[Load]:
        end = min(entry.vaddr + entry.memsz, (1 << 8 * self.header.word_bytes) - LAST_PAGE)
        if entry.type != elf.PT_LOAD or entry.vaddr >= end or is_outside(entry):
            return None
        claimed = min(entry.filesz, end - entry.vaddr)
        dumped = max(0, min(claimed, self.file_bytes - entry.offset))
        return Load(entry.vaddr, end, entry.flags, entry.offset, claimed, dumped)

    @property
    def is_by_kernel(self) -> bool:
        """No debugger wrote it: these use libbfd, which gives a core sections. The kernel makes one alone, where headers are too many to be
        counted."""
        return not self.header.shoff or self.header.phnum == PN_XNUM

    def segments(self) -> Tuple[Segment, ...]:
        """Return the dumped ranges with their offsets in the file, sorted by address."""
        return tuple(Segment(load.start, load.dumped_bytes, load.offset) for load in self.loads if load.dumped_bytes)

    def unwritten(self) -> Tuple[Tuple[int, int], ...]:
        """Writable mappings of no file of which nothing was dumped, where others were (Linux: fs/coredump.c, vma_dump_size)."""
        if self.lacks_private_memory:
            return ()
        files = {entry.start for entry in self.notes().files}
        left_out = (load for load in self.loads if load.flags & WRITABLE and not load.claimed_bytes and load.start not in files)
        return tuple((load.start, load.end) for load in left_out)

    @property
    def lacks_private_memory(self) -> bool:
        """The stack was not meant to be dumped, and so nothing else that is private and of no file (coredump_filter, core(5))."""
        random = self.notes().auxv.get(AT_RANDOM)
        load = self.find(random) if random else None
        return load is not None and bool(load.flags & WRITABLE) and not load.claimed_bytes

    def find(self, address: int) -> Optional[Load]:
        """The PT_LOAD that holds `address`."""
        place = bisect_right(self._starts, address) - 1
        return self.loads[place] if place >= 0 and address < self.loads[place].end else None

    def read_dumped(self, address: int, size_bytes: int) -> bytes:
        """Bytes that the core itself holds: a prefix of the range, b"" if it holds none at `address`."""
        parts = []
        while size_bytes > 0:
            load = self.find(address)
            if load is None or address >= load.start + load.dumped_bytes:
                break
            piece = os.pread(self._fd, min(size_bytes, load.start + load.dumped_bytes - address), load.offset + address - load.start)
            if not piece:
                break
            parts.append(piece)
            address += len(piece)
            size_bytes -= len(piece)
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def notes(self) -> "CoreNotes":
        """Return the decoded notes."""
        if self._notes is None:
            self._notes = CoreNotes(self.header)
            left = min(MAX_NOTES, self.file_bytes)
            for entry in self._note_headers:
                data = self._pread_file(entry.offset, min(entry.filesz, left))
                left -= len(data)
                self._notes.add(data, entry.align)
                if not left:
                    break
        return self._notes

    def file_at(self, address: int) -> Optional[FileMapping]:
        """Return the entry of NT_FILE that covers an address, or None."""
        files = self.notes().files
        place = bisect_right(files, (address, 1 << 64)) - 1
        return files[place] if place >= 0 and address < files[place].end else None

    def mappings(self) -> List[Mapping]:
        """Return a mapping for each PT_LOAD, with its file's name by NT_FILE."""
        mappings = []
        for load in self.loads:
            file = self.file_at(load.start)
            rights = bool(load.flags & 4), bool(load.flags & 2), bool(load.flags & 1), False
            name, offset = (file.name, file.offset + load.start - file.start) if file is not None else ("", 0)
            mappings.append(Mapping(load.start, load.end, *rights, name, load.dumped_bytes, offset))
        return mappings

    def undumped_files(self) -> List[FileMapping]:
        """Mapped files of which the core has nothing, although the program may have written to them: shared ones are left out by default.

        gdb gives no header to what it leaves out: rights are unknown then, and what is installed counts as only read.
        """
        loads, files = self.loads, self.notes().files
        ends = [load.end for load in loads]
        in_core, writable = set(), []
        for entry in files:
            first = bisect_right(ends, entry.start)
            pieces = [load for load in loads[first : first + MOST_PIECES] if load.start < entry.end]
            if any(piece.claimed_bytes for piece in pieces):
                in_core.add(entry.name)
            elif any(piece.flags & 2 for piece in pieces) if pieces else not entry.name.startswith(INSTALLED):
                writable.append(entry)
        return [entry for entry in writable if entry.name not in in_core]


class CoreNotes:
    """The notes of a core, decoded."""

    def __init__(self, header: elf.ElfHeader) -> None:
        self._header = header
        self.auxv: Dict[int, int] = {}
        self.files: List[FileMapping] = []
        """NT_FILE, sorted by address."""
        self.dumped_files: List[FileMapping] = []
        """The same as it is in the core."""
        self.file_page_bytes: Optional[int] = None
        """In what NT_FILE counts places in files: pages, or bytes as gdb does."""
        self.has_stray_names = False
        """NT_FILE has more names than entries, or fewer."""
        self.pid: Optional[int] = None
        self.command: Optional[str] = None
        """comm of the process, from NT_PRPSINFO."""
        self.command_line: Optional[str] = None
        """At most its first 79 letters."""
        self._signal: Optional[int] = None
        self.threads: List[Thread] = []
        """The thread that died is first."""
        self.register_sets: Dict[int, List[bytes]] = {}
        """Thread -> the contents of its general and vector registers."""
        self.signature_bits = 0
        """Of pointers to data (Architecture.signature_set)."""

    def add(self, data: bytes, align: int) -> None:
        """Take in one note segment."""
        status: Optional[bytes] = None
        extra = b""
        vectors: List[bytes] = []
        arch = self._header.arch
        pointer_set = arch.registers.pointer_set if arch.registers is not None else None
        for name, kind, desc in islice(elf.parse_notes(self._header.order, data, align), MOST_NOTES):
            if name == b"CORE" and kind == elf.NT_PRSTATUS:
                self._add_thread(status, extra, vectors)
                status, extra, vectors = desc, b"", []
            elif name == b"CORE" and kind == NT_PRPSINFO:
                self._read_prpsinfo(desc)
            elif name == b"CORE" and kind == NT_SIGINFO and not self.threads and len(desc) >= 12:
                # si_signo, si_errno, si_code: a code above 0 is the kernel's own, that of raise() is SI_TKILL
                signal, _, code = struct.unpack_from(self._header.order + "3i", desc)
                self._signal = signal if code > 0 or code == SI_TKILL else None
            elif name == b"CORE" and kind == NT_AUXV:
                self.auxv.update(elf.parse_auxv(self._header, desc))
            elif name == b"CORE" and kind == NT_FILE:
                self._read_files(desc)
            elif kind == pointer_set:
                extra = desc
            elif kind == arch.signature_set:
                self.signature_bits = elf.signature_bits(self._header, desc)
            if kind in arch.vector_sets and status is not None:
                vectors.append(desc)
        self._add_thread(status, extra, vectors)
        self._drop_kernel_workers()
        if self._signal is not None and self.threads:
            self.threads[0] = self.threads[0]._replace(signal=self._signal)

    def _add_thread(self, status: Optional[bytes], extra: bytes, vectors: List[bytes]) -> None:
        """Add a thread by its elf_prstatus: pid, times, general registers."""
        wide = self._header.word_bytes == 8
        lwp_at, registers_at = (32, 112) if wide else (24, 72)
        if status is None or len(status) < registers_at:
            return
        lwp = struct.unpack_from(self._header.order + "i", status, lwp_at)[0]
        pc, sp, pointer = elf.decode_registers(self._header, status[registers_at:], extra)
        self.threads.append(Thread(lwp, None, pointer, sp, pc))
        self.register_sets[lwp] = [status[registers_at:], *vectors]

    def _drop_kernel_workers(self) -> None:
        """Drop threads that have neither a stack nor a place in the program, where others have: workers of io_uring and vhost, which gcore
        writes down (Linux: copy_thread; live/procfs.py: is_kernel_worker)."""
        if any(thread.stack_pointer for thread in self.threads):
            self.threads = [thread for thread in self.threads if thread.stack_pointer or thread.pc]

    def _read_prpsinfo(self, desc: bytes) -> None:
        """elf_prpsinfo: pid, comm and psargs."""
        pid_at, name_at = (24, 40) if self._header.word_bytes == 8 else (12, 28)
        if len(desc) >= name_at + 16:
            self.pid = struct.unpack_from(self._header.order + "i", desc, pid_at)[0]
            self.command = desc[name_at : name_at + 16].split(b"\0")[0].decode("utf-8", "replace")
            line = desc[name_at + 16 : name_at + 16 + 80].split(b"\0")[0].decode("utf-8", "replace")
            self.command_line = line.strip() or None

    def _read_files(self, desc: bytes) -> None:
        """NT_FILE: count, page size, (start, end, page offset) each, then the names."""
        word, letter = self._header.word_bytes, "Q" if self._header.word_bytes == 8 else "I"
        count, page = struct.unpack_from(self._header.order + "2" + letter, desc.ljust(2 * word, b"\0"))
        names = desc[(2 + 3 * count) * word :]
        self.file_page_bytes, self.has_stray_names = page, names.count(0) != count or names[-1:] not in (b"", b"\0")
        count = min(count, max(0, len(desc) - 2 * word) // (3 * word), MOST_NOTES)
        numbers = struct.unpack_from("%s%d%s" % (self._header.order, 3 * count, letter), desc, 2 * word) if count else ()
        rows = zip(numbers[0::3], numbers[1::3], numbers[2::3], desc[(2 + 3 * count) * word :].split(b"\0", count)[:count])
        self.dumped_files = [FileMapping(start, end, offset * page, os.fsdecode(name)) for start, end, offset, name in rows]
        self.files = sorted(self.dumped_files)


def open_core(path: str) -> int:
    """A descriptor of the file, or the reason in one line."""
    try:
        return open_regular(path)
    except FileNotFoundError:
        raise HeapxError(
            "core not found: %s" % path,
            "give the file with --core FILE; /proc/sys/kernel/core_pattern says where the kernel writes cores",
            code=problems.FILE_NOT_FOUND,
        )
    except PermissionError:
        raise HeapxError("this user may not read the core %s" % path, "run as its owner or as root", code=problems.NOT_PERMITTED)
    except NotRegular:
        raise HeapxError(
            "%s is not a file" % path,
            "gdbheapx reads a core in random order: write the stream to a file first, then use --core FILE",
            code=problems.FILE_UNREADABLE,
        )
    except OSError as error:
        raise HeapxError(
            "cannot open the core %s: %s" % (path, error.strerror), "give a core file with --core FILE", code=problems.FILE_UNREADABLE
        )


def find_header_contradiction(first: bytes, header: elf.ElfHeader) -> Optional[str]:
    """Return how the ELF header contradicts itself, or None: a damaged byte order or word size would leave nothing to read."""
    if header.type == elf.ET_CORE and header.phentsize == elf.program_header_bytes(header.word_bytes):
        return None
    for place, names in ((5, ("little-endian", "big-endian")), (4, ("32-bit", "64-bit"))):
        other = elf.parse_header(first[:place] + bytes((3 - first[place],)) + first[place + 1 :])
        if other is not None and other.type == elf.ET_CORE and other.phentsize == elf.program_header_bytes(other.word_bytes):
            says, written = names[first[place] - 1], names[2 - first[place]]
            return "its ELF header says %s but is written %s: byte %d of the file is damaged" % (says, written, place)
    if header.type != elf.ET_CORE:
        return None
    sizes = header.phentsize, elf.program_header_bytes(header.word_bytes)
    return "its ELF header is damaged: it says that program header table entries have %d bytes, but they have %d" % sizes


def explain_no_core(path: str, first: bytes, header: Optional[elf.ElfHeader], wrong: Optional[str]) -> HeapxError:
    """Return an error that says why this file is no core, or a damaged one, and what to do."""
    if wrong is not None:
        return HeapxError("%s: %s" % (path, wrong), "copy the core again, or take a new one", code=problems.NOT_A_CORE)
    form = detect_form(first)
    if form is not None:
        return HeapxError("%s is compressed" % path, "unpack it first: %s %s" % (form.tool, path), code=problems.CANNOT_UNPACK)
    if not first:
        return HeapxError(
            "%s is empty" % path,
            "the disk was full or the size limit too small when the kernel wrote it; see ulimit -c",
            code=problems.NOT_A_CORE,
        )
    if header is not None:
        return HeapxError(
            "%s is an ELF file but not a core" % path, "give the core with --core and the program with --exe", code=problems.NOT_A_CORE
        )
    return HeapxError("%s is not an ELF core" % path, "give a core file with --core FILE", code=problems.NOT_A_CORE)


def find_writable_segments(headers: Sequence[elf.ProgramHeader], base: int) -> List[Tuple[int, int, int]]:
    """Return (start, end of what its file initialises, end with .bss) of the writable segments of an object with this load bias."""
    loads = [(base + entry.vaddr, entry.filesz, entry.memsz) for entry in headers if entry.type == elf.PT_LOAD and entry.writable]
    return [(start, start + min(file_bytes, size_bytes), start + size_bytes) for start, file_bytes, size_bytes in loads]


def find_writable_mappings(mappings: Sequence[Mapping], start: int, end: int) -> List[Tuple[int, int, int]]:
    """Return an object's writable segments by its mappings, if its headers cannot be read; unnamed memory after the last is its .bss."""
    segments = [(mapping.start, mapping.end, mapping.end) for mapping in mappings if mapping.writable and start <= mapping.start < end]
    rest = next((mapping for mapping in mappings if mapping.start == end and mapping.writable and not mapping.name), None)
    if rest is not None and segments and segments[-1][2] == end:
        segments[-1] = (*segments[-1][:2], rest.end)
    elif rest is not None:
        segments.append((end, end, rest.end))
    return segments


def find_constant_spans(file: elf.ElfFile) -> List[Tuple[int, int]]:
    """Return (place in the file, size_bytes) of the sections .rodata*, or without section headers of segments that are not writable."""
    named = [part for part in file.sections() if part.name.startswith(".rodata") and part.type != elf.SHT_NOBITS]
    if named:
        return [(section.offset, section.size_bytes) for section in named]
    return [(header.offset, header.filesz) for header in file.program_headers() if header.type == elf.PT_LOAD and not header.writable]


def find_dumped_constants(
    headers: Sequence[elf.ProgramHeader], base: int, segments: Sequence[Segment]
) -> Tuple[List[Tuple[int, int]], bool]:
    """Return (address, size_bytes) of what a core itself has of the object's segments that are not writable, and whether that is all: gdb
    dumps the whole first segment of an object, with its dynamic symbols, and not the one that has .rodata; the kernel one page."""
    constant = [(base + entry.vaddr, entry.filesz) for entry in headers if entry.type == elf.PT_LOAD and not entry.writable]
    spans = [(low, high - low) for start, size_bytes in constant for low, high in find_dumped_ranges(segments, start, start + size_bytes)]
    return spans, sum(size_bytes for _, size_bytes in spans) == sum(size_bytes for _, size_bytes in constant)


def find_dumped_ranges(segments: Sequence[Segment], start: int, end: int) -> List[Tuple[int, int]]:
    """The parts of this range whose bytes are in a core's file."""
    parts = [(max(start, segment.address), min(end, segment.address + segment.size_bytes)) for segment in segments]
    return [(low, high) for low, high in parts if low < high]


def format_maps(mappings: Sequence[Mapping]) -> str:
    """Format mappings as /proc/PID/maps does; device and inode, which no core holds, are 0."""
    lines = []
    for mapping in mappings:
        rights = "".join(letter if there else "-" for letter, there in zip("rwx", (mapping.readable, mapping.writable, mapping.executable)))
        name = mapping.name.replace("\n", "\\012")  # as the kernel writes it
        lines.append(("%08x-%08x %sp %08x 00:00 0 %s" % (mapping.start, mapping.end, rights, mapping.offset, name)).rstrip(" "))
    return "\n".join(lines)


class Extents:
    """Data and holes of a sparse file; holes read as zeros and take no space."""

    def __init__(self, path: str) -> None:
        bounds = [0]
        with open(path, "rb", buffering=0) as file:
            while bounds[-1] < os.fstat(file.fileno()).st_size:
                try:
                    start = os.lseek(file.fileno(), bounds[-1], os.SEEK_DATA)
                    bounds += [start, os.lseek(file.fileno(), start, os.SEEK_HOLE)]
                except OSError:  # ENXIO: nothing but a hole follows
                    break
        self._sums = RangeSums(bounds[1:])

    def data_bytes(self, segments: Sequence[Segment], start: int, end: int) -> int:
        """Data bytes of the addresses from `start` to `end`; segments sorted by address."""
        total = 0
        for segment in segments:
            low, high = max(start, segment.address), min(end, segment.address + segment.size_bytes)
            if low < high:
                shift = segment.file_offset - segment.address
                total += self._sums.bytes_in([(low + shift, high + shift)])
        return total

    def data_ranges(self, segments: Sequence[Segment], start: int, end: int, page: int) -> List[Tuple[int, int]]:
        """The addresses from `start` to `end` whose pages have data in the file; segments sorted by address."""
        ranges: List[Tuple[int, int]] = []
        starts, ends = self._sums.starts, self._sums.ends
        for segment in segments[max(0, bisect_right(segments, (start,)) - 1) :]:
            if segment.address >= end:
                break
            low, high = max(start, segment.address), min(end, segment.address + segment.size_bytes)
            shift = segment.file_offset - segment.address
            place = max(0, bisect_right(starts, low + shift) - 1)
            while low < high and place < len(starts) and starts[place] < high + shift:
                begin, until = max(low, (starts[place] - shift) & -page), min(high, -(-(ends[place] - shift) // page) * page)
                if begin < until:
                    ranges.append((begin, until))
                place += 1
        return unite_ranges(ranges)


def measure_dumped_use(
    mappings: Sequence[Mapping],
    segments: Sequence[Segment],
    extents: Extents,
    auxv: Dict[int, int],
    by_kernel: bool,
    named_pages: Sequence[Tuple[int, str]],
) -> MemoryUse:
    """Return the bytes that each mapping takes in the core file; `[stack]`, `[vdso]` and `[vvar]` are named by the auxiliary vector.

    `by_kernel`: no debugger wrote it. The kernel leaves a hole for each page that is not in memory (fs/coredump.c: dump_user_range), but
    copies of a core may have none any more. `named_pages`: as Architecture has them.
    """
    by_start = {segment.address: segment for segment in segments}
    places = (AT_RANDOM, "[stack]"), (AT_EXECFN, "[stack]"), (AT_SYSINFO_EHDR, "[vdso]")
    labels = {**{auxv[key]: label for key, label in places if auxv.get(key)}, **dict(named_pages)}
    uses: List[MappingUse] = []
    for mapping in mappings:
        segment = by_start.get(mapping.start)
        label = next((label for address, label in labels.items() if mapping.start <= address < mapping.end), "")
        named = mapping._replace(name=label) if label and not mapping.name else mapping
        uses.append(MappingUse(named, extents.data_bytes((segment,), mapping.start, mapping.end) if segment else 0))
    for place in range(len(uses) - 1, 0, -1):  # the kernel's data lies right below its code (vma.c: map_vdso)
        mapping, below = uses[place].mapping, uses[place - 1].mapping
        if mapping.name in ("[vdso]", "[vvar]") and below.end == mapping.start and not (below.name or below.writable or below.executable):
            uses[place - 1] = uses[place - 1]._replace(mapping=below._replace(name="[vvar]"))
    whole = (extents.data_bytes((part,), part.address, part.address + part.size_bytes) == part.size_bytes for part in segments)
    return MemoryUse("dumped", uses, None, by_kernel and not all(whole))


AT_ENTRY = 9
PT_GNU_PROPERTY, PT_AARCH64_MEMTAG_MTE = 0x6474E553, 0x70000002
TYPES = (elf.PT_LOAD, elf.PT_NOTE, PT_GNU_PROPERTY, PT_AARCH64_MEMTAG_MTE)
"""All p_type that cores have."""
NAMED = ((AT_PHDR, "AT_PHDR"), (AT_RANDOM, "AT_RANDOM"), (AT_EXECFN, "AT_EXECFN"), (AT_ENTRY, "AT_ENTRY"), (AT_BASE, "AT_BASE"))
PAGE = 4096
MOST_GAP_BYTES = 1 << 16
"""Between two parts of a file that libbfd wrote, which aligns them. The kernel leaves less than a page, after the notes alone."""
Contradiction = Tuple[Optional[int], str]
"""(address, what is wrong)."""


def find_damage(core: CoreFile, objects: Sequence[Loaded], threads: Sequence[Thread], page: int) -> List[problems.Diagnostic]:
    """Return the first contradictions among the core's headers, notes and loaded objects, and the first data segment of an object and the
    first stack that it does not have; of what is missing nothing where program headers were cut off."""
    hint = "copy the core again, or take a new one"
    checks = (
        _check_types(core),
        _check_loads(core),
        _check_order(core),
        _check_files(core, page),
        _check_auxv(core, objects),
        _check_segments(core, objects, page),
    )
    firsts = [next(check, None) for check in checks]  # of a kind the others mostly follow from the first
    damage = [
        problems.Diagnostic(problems.CORE_DAMAGED, first[0], "the core is damaged: " + first[1], hint)
        for first in firsts
        if first is not None
    ]
    if core.missing_headers > 0:
        return damage
    mapped = RangeIndex((load.start, load.end) for load in core.loads)
    writable = RangeIndex((load.start, load.end) for load in core.loads if load.flags & elf.PF_W and load.flags & elf.PF_R)
    # gdb gives no header to what of a file nobody has written to
    clean = RangeIndex(() if core.is_by_kernel else ((file.start, file.end) for file in core.notes().files))
    missing = (next(_find_missing_data(objects, mapped, writable, clean, page), None), next(_find_missing_stacks(threads, writable), None))
    hint = "without it no block can be called leaked: " + hint
    return damage + [problems.Diagnostic(problems.ROOTS_MISSING, *one, hint) for one in missing if one is not None]


def _check_types(core: CoreFile) -> Iterator[Contradiction]:
    for entry in core.program_headers:
        if entry.type not in TYPES:
            yield entry.vaddr, "a program header has the type 0x%x, which no core has: its memory is not read" % entry.type


def _check_loads(core: CoreFile) -> Iterator[Contradiction]:
    for entry in core.program_headers:
        if entry.type != elf.PT_LOAD:
            continue
        if entry.filesz > entry.memsz or entry.vaddr % PAGE:
            yield entry.vaddr, "a program header begins within a page, or has more bytes in the file than in memory"
        if entry.flags & ~(elf.PF_R | elf.PF_W | elf.PF_X) or (entry.filesz and entry.flags & elf.PF_W and not entry.flags & elf.PF_R):
            yield entry.vaddr, "a program header has the rights 0x%x, which no mapping with content has" % entry.flags


def _check_order(core: CoreFile) -> Iterator[Contradiction]:
    """Mappings come by address; bytes of the file between two belong to one whose header is lost."""
    loads = [entry for entry in core.program_headers if entry.type == elf.PT_LOAD]
    for load, after in zip(loads, loads[1:]):
        if load.vaddr > after.vaddr:
            yield load.vaddr, "a program header is not where its address belongs among the others"
    notes = [entry for entry in core.program_headers if entry.type == elf.PT_NOTE]
    spans = sorted((entry.offset, entry.offset + entry.filesz, entry.vaddr) for entry in loads + notes if entry.filesz)
    for (_, end, _), (start, _, address) in zip(spans, spans[1:]):
        if start < end:
            yield address, "two program headers have the same bytes of the file"
        elif start - end >= (PAGE if core.is_by_kernel else MOST_GAP_BYTES):
            yield address, "%d bytes of the file before this mapping's belong to no program header" % (start - end)


def _check_files(core: CoreFile, page: int) -> Iterator[Contradiction]:
    """NT_FILE: by address, as many names as entries, and of each mapping the same span as its program header."""
    notes = core.notes()
    if notes.has_stray_names:
        yield None, "NT_FILE has not as many names as mapped files"
    if notes.file_page_bytes not in (None, 1, page):
        yield None, "NT_FILE counts in pages of %d bytes" % notes.file_page_bytes
    for entry, after in zip(notes.dumped_files, notes.dumped_files[1:]):
        if entry.end > after.start:
            yield after.start, "mapped files overlap in NT_FILE, or are not sorted"
    if core.has_overlap or core.missing_headers > 0:
        return
    mapped = RangeIndex((load.start, load.end) for load in core.loads)
    for entry in notes.dumped_files:
        load = core.find(entry.start)
        if entry.start >= entry.end:
            yield entry.start, "a mapped file ends before it begins in NT_FILE"
        elif (core.is_by_kernel or mapped.meets(entry.start, entry.end)) and (load is None or load[:2] != entry[:2]):
            yield entry.start, "no program header describes the mapping of %s that NT_FILE has here" % (entry.name or "a file")


def _check_auxv(core: CoreFile, objects: Sequence[Loaded]) -> Iterator[Contradiction]:
    """Addresses that the kernel gave the program must be mapped, and be those of the program that is found by them."""
    auxv = core.notes().auxv
    for key, name in NAMED:
        address = auxv.get(key) or 0
        is_base = key == AT_BASE and any(loaded.base == address for loaded in objects)  # a prelinked ld.so's is a difference
        if address and core.missing_headers <= 0 and core.find(address) is None and core.file_at(address) is None and not is_base:
            yield address, "%s of the auxiliary vector is no address of the process" % name
    program = next((loaded for loaded in objects if loaded.is_executable), None)
    if program is None:
        return
    start, end = program.span()
    header = elf.parse_header(core.read_dumped(start, 64))
    if auxv.get(AT_ENTRY) and not start <= auxv[AT_ENTRY] < end:
        yield auxv[AT_ENTRY], "AT_ENTRY of the auxiliary vector lies outside the program at AT_PHDR"
    if header is not None and header.phnum != auxv.get(AT_PHNUM):
        yield auxv.get(AT_PHDR), "AT_PHNUM is %s, and the program has %d program headers" % (auxv.get(AT_PHNUM), header.phnum)


def _check_segments(core: CoreFile, objects: Sequence[Loaded], page: int) -> Iterator[Contradiction]:
    """Compare an object's own headers with NT_FILE."""
    executable = RangeIndex((load.start, load.end) for load in core.loads if load.flags & elf.PF_X)
    mapped = RangeIndex((load.start, load.end) for load in core.loads)
    for loaded in objects:
        name: Optional[str] = None
        for entry in loaded.program_headers():
            start = (loaded.base + entry.vaddr) & -page
            if entry.type != elf.PT_LOAD or not entry.filesz:
                continue
            file, end = core.file_at(start), loaded.base + entry.vaddr + entry.memsz
            name = name or (file.name if file is not None else None)
            if entry.flags & elf.PF_X and mapped.meets(start, start + 1) and not executable.meets(start, end):
                yield start, "code of %s has no right to be run" % (loaded.name or "the program")
            if file is not None and file.name == name and file.start == start and file.offset != entry.offset & -page:
                yield start, "NT_FILE has another place of %s here than the file's own headers" % name


FAULTS = (7, 11)
"""SIGBUS and SIGSEGV: the stack pointer of the thread that died may be what went wrong."""


def _find_missing_data(
    objects: Sequence[Loaded], mapped: RangeIndex, writable: RangeIndex, clean: RangeIndex, page: int
) -> Iterator[Tuple[int, str]]:
    for loaded in objects:
        headers = loaded.program_headers()
        read_only = [(loaded.base + entry.vaddr, entry.memsz) for entry in headers if entry.type == elf.PT_GNU_RELRO]
        relro = RangeIndex((start & -page, (start + size_bytes) & -page) for start, size_bytes in read_only)
        for first, file_end, last in find_writable_segments(headers, loaded.base):
            start, middle, end = first & -page, -(-file_end // page) * page, -(-last // page) * page
            # .bss is a mapping of its own
            for low, high in [part for span in ((start, middle), (middle, end)) for part in subtract_ranges([span], list(relro))]:
                lost = [part for hole in mapped.outside(low, high) for part in clean.outside(*hole)]
                name = loaded.name or "the program"
                if lost:
                    yield lost[0][0], "%d bytes of variables of %s are not in the core" % (sum(last - first for first, last in lost), name)
                elif mapped.meets(low, high) and not writable.meets(low, high):  # parts of it a program may protect
                    yield low, "variables of %s cannot be read and written by their mapping's rights" % name


def _find_missing_stacks(threads: Sequence[Thread], writable: RangeIndex) -> Iterator[Tuple[int, str]]:
    for thread in threads:
        pointer, storage = thread.stack_pointer, thread.thread_pointer
        if pointer and thread.signal not in FAULTS and not writable.meets(pointer, pointer + 1):
            yield pointer, "the stack of thread %d is not in the core" % thread.lwp
        if storage and not writable.meets(storage - 1, storage + 1):  # some machines' pointers are the end of the control block
            yield storage, "the thread-local storage of thread %d is not in the core" % thread.lwp


IN_BYTES, OUT_BYTES = 1 << 17, 1 << 20
GZIP_PIECE_BYTES, ZSTD_PIECE_BYTES = 1 << 12, 1 << 11
"""What is unpacked at once by libraries that do not bound what they give: no more than 4 and 64 MB can come of it."""
WINDOW_BITS = 31
"""The largest window of zstd (--long=31): within the memory of this process, not of the file."""


class CompressionForm(NamedTuple):
    """A compression that cores may have."""

    suffix: str
    tool: str
    """The command that unpacks it."""


class CutStream(Exception):
    """The compressed file ends before its end."""


class DamagedStream(Exception):
    """The compressed file contradicts itself."""


def decompress_frames(descriptor: int, make: Callable[[], Any], wrong: Any) -> Iterator[bytes]:
    """Unpack by a decompressor such as lzma's. A file may be several streams in a row; trailing bytes that are none are ignored."""
    decompressor, data = make(), b""
    first = data = os.read(descriptor, IN_BYTES)
    while True:
        try:
            piece = decompressor.decompress(data, OUT_BYTES)
        except wrong as error:
            raise DamagedStream(" ".join(str(error).split()))
        if piece:
            yield piece
        data = b""
        if decompressor.eof:
            data = decompressor.unused_data or b""
            while len(data) < 4:
                more = os.read(descriptor, IN_BYTES)
                if not more:
                    return
                data += more
            if data[:4] != first[:4]:
                return
            decompressor = make()
        elif decompressor.needs_input:
            data = os.read(descriptor, IN_BYTES)
            if not data:
                raise CutStream


class PiecewiseDecompressor:
    """A decompressor in the form of lzma's, for one that does not bound what it gives: it gets little at a time."""

    def __init__(self, inner: Any, piece_bytes: int) -> None:
        self._inner, self._piece_bytes = inner, piece_bytes
        self._data, self._at = b"", 0

    @property
    def eof(self) -> bool:
        """The end of a member or frame was reached."""
        return bool(self._inner.eof)

    @property
    def needs_input(self) -> bool:
        """True if all input was consumed."""
        return self._at >= len(self._data)

    @property
    def unused_data(self) -> bytes:
        """Input after the end of the stream."""
        return bytes(self._inner.unused_data) + self._data[self._at :]

    def decompress(self, data: bytes, most_bytes: int) -> bytes:
        """Return some of the unpacked bytes."""
        if data:
            self._data, self._at = data, 0  # nothing was left
        piece = self._data[self._at : self._at + self._piece_bytes]
        self._at += len(piece)
        return bytes(self._inner.decompress(piece))


def open_decompressor(suffix: str) -> Tuple[Callable[[], Any], Any]:
    """Return what makes a decompressor of this form, and the errors it raises. ImportError where the library is missing."""
    if suffix == ".gz":  # no more than 1,032 times of what it gets can come
        import zlib

        return lambda: PiecewiseDecompressor(zlib.decompressobj(31), GZIP_PIECE_BYTES), zlib.error
    if suffix == ".xz":
        import lzma

        return lzma.LZMADecompressor, lzma.LZMAError
    if suffix == ".bz2":
        import bz2

        return bz2.BZ2Decompressor, OSError
    if suffix == ".lz4":
        from lz4 import frame

        return frame.LZ4FrameDecompressor, RuntimeError
    import importlib

    try:
        own: Any = importlib.import_module("compression.zstd")  # since Python 3.14
    except ImportError:
        import zstandard

        maker = zstandard.ZstdDecompressor(max_window_size=1 << WINDOW_BITS)
        if not hasattr(maker.decompressobj(), "eof"):
            raise ImportError("zstandard is older than 0.19", name="zstandard")
        return lambda: PiecewiseDecompressor(maker.decompressobj(), ZSTD_PIECE_BYTES), zstandard.ZstdError
    options = {own.DecompressionParameter.window_log_max: WINDOW_BITS}
    return lambda: own.ZstdDecompressor(options=options), own.ZstdError


FORMS: Dict[bytes, CompressionForm] = {
    b"\x28\xb5\x2f\xfd": CompressionForm(".zst", "zstd -d"),
    b"\x04\x22\x4d\x18": CompressionForm(".lz4", "lz4 -d"),
    b"\xfd7zXZ\0": CompressionForm(".xz", "xz -dk"),
    b"\x1f\x8b": CompressionForm(".gz", "gzip -dk"),
    b"BZh": CompressionForm(".bz2", "bzip2 -dk"),
}
"""By what the file begins with."""


def detect_form(first: bytes) -> Optional[CompressionForm]:
    """Return the compression of a file that begins so, or None."""
    return next((form for magic, form in FORMS.items() if first.startswith(magic)), None)


def find_form(core: Union[str, int]) -> Optional[CompressionForm]:
    """Return the compression of a file, by its path or descriptor; None if it has none or cannot be read."""
    try:
        return detect_form(os.pread(core, 6, 0) if isinstance(core, int) else RegularFile(core).pread(6, 0))
    except OSError:
        return None


RESERVE_BYTES = 64 << 20
"""What is left free for others where the core goes."""
ZEROS = bytes(2 * OUT_BYTES)
ELF_MAGIC = b"\x7fELF"
NEVER = float("inf")


class CannotUnpack(HeapxError):
    """Failure to unpack a core, with the next step."""

    code = problems.CANNOT_UNPACK


def unpack_core(path: str, form: CompressionForm, source: Optional[int] = None, until: float = NEVER) -> Tuple[int, str]:
    """Unpack the core to a temporary file until the deadline; `source` is its descriptor, if open, and is closed.

    Returns the descriptor of the file, and what was wrong with the compressed one: empty if nothing was.
    """
    hint = "unpack it first: %s %s" % (form.tool, path)
    try:
        source = open_regular(path) if source is None else source
    except OSError as error:
        raise CannotUnpack("cannot open the core %s: %s" % (path, error.strerror), "give a core file with --core FILE")
    try:
        pieces = decompress_frames(source, *open_decompressor(form.suffix))
        out = UnpackedFile(path, hint, until)
        try:
            return out.descriptor, out.fill(pieces)
        except BaseException:
            os.close(out.descriptor)
            raise
    except ImportError as error:
        name = (error.name or "").split(".")[0]
        what = "%s is compressed (%s), and this Python has no module %s, or an old one" % (path, form.suffix, name)
        raise CannotUnpack(what, "pip install 'gdbheapx[cores]', or " + hint)
    except OSError as error:
        raise CannotUnpack("cannot unpack %s to %s: %s" % (path, temporary_folder(), error.strerror or error), hint)
    finally:
        os.close(source)


def copy_core(name: str, size_bytes: int, pieces: Iterator[bytes], until: float = NEVER) -> int:
    """A descriptor of what is called so, which is no file of this machine, in a temporary file. It may be compressed."""
    try:
        out = UnpackedFile(name, "copy it to this machine, and give the copy", until)
        try:
            out.look_for_room(size_bytes)
            at = 0
            for piece in pieces:
                if out.is_late or at > out.most_bytes:
                    why = "there was no time for all of it" if out.is_late else "it is longer than there is room for"
                    what = "cannot copy %s to %s: %s" % (name, temporary_folder(), why)
                    raise CannotUnpack(what, "raise --max-seconds, or copy it first")
                out.put(at, piece)
                at += len(piece)
            os.ftruncate(out.descriptor, at)
            return out.descriptor
        except BaseException:
            os.close(out.descriptor)
            raise
    except OSError as error:
        what = "cannot copy %s to %s: %s" % (name, temporary_folder(), error.strerror or error)
        raise CannotUnpack(what, "set TMPDIR to a folder with room")


class UnpackedFile:
    """The file that a core is unpacked to."""

    def __init__(self, path: str, hint: str, until: float = NEVER) -> None:
        self.path = path
        self.descriptor = open_unnamed()
        self._hint, self._until = hint, until
        room = os.fstatvfs(self.descriptor)
        self.most_bytes = room.f_bavail * room.f_frsize
        """How long it may be where its length is unknown, also if most of it is zeros, which take no room."""
        self._looked = 0
        """How far was written when room was looked for last."""

    @property
    def is_late(self) -> bool:
        """True after the deadline."""
        return time.monotonic() > self._until

    def fill(self, pieces: Iterator[bytes]) -> str:
        """Write everything, up to where the core's own headers end it; what was wrong."""
        held: List[bytes] = []
        at, held_bytes, trouble = 0, 0, ""
        head = CoreHead(self.path)
        while at + held_bytes < (self.most_bytes if head.end is None else head.end):
            if self.is_late:
                trouble = "the compressed file %s was not unpacked to its end within --max-seconds" % self.path
                break
            try:
                piece = next(pieces, None)
            except CutStream:
                trouble = "the compressed file %s ends early: it was not copied or written to its end" % self.path
                break
            except DamagedStream as error:
                trouble = "the compressed file %s is damaged%s" % (self.path, ": %s" % error if str(error) else "")
                break
            if piece is None:
                break
            if head.take(piece):
                self.look_for_room(head.end or 0)
            held.append(piece)
            held_bytes += len(piece)
            if held_bytes >= OUT_BYTES:
                data = b"".join(held)
                whole = held_bytes & -PAGE
                self.put(at, data[:whole])
                at, held, held_bytes = at + whole, [data[whole:]], held_bytes - whole
        self.put(at, b"".join(held))
        os.ftruncate(self.descriptor, at + held_bytes)
        if not at + held_bytes:
            raise CannotUnpack(trouble or "%s is compressed and has nothing in it" % self.path, "copy the core again, or take a new one")
        return trouble

    def look_for_room(self, more_bytes: int) -> None:
        """CannotUnpack where so many bytes more would leave too little for others."""
        room = os.fstatvfs(self.descriptor)
        free = room.f_bavail * room.f_frsize
        if more_bytes + RESERVE_BYTES > free:
            needed = "at least %d MB" % (more_bytes + RESERVE_BYTES >> 20)
            what = "no room for %s: it takes %s in %s, which has %d MB free" % (self.path, needed, temporary_folder(), free >> 20)
            raise CannotUnpack(what, "set TMPDIR to a folder with more room, or " + self._hint)

    def put(self, at: int, data: bytes) -> None:
        """Write what is not zeros; `at` is a page's beginning."""
        if data == ZEROS[: len(data)]:
            return
        start: Optional[int] = None
        for place in range(0, len(data), PAGE):
            page = data[place : place + PAGE]
            if page == ZEROS[: len(page)]:
                if start is not None:
                    self._write_data(at + start, data[start:place])
                    start = None
            elif start is None:
                start = place
        if start is not None:
            self._write_data(at + start, data[start:])

    def _write_data(self, at: int, data: bytes) -> None:
        if at - self._looked >= RESERVE_BYTES >> 1:
            self._looked = at
            self.look_for_room(0)
        while data:
            done = os.pwrite(self.descriptor, data, at)
            at, data = at + done, data[done:]


MOST_HEAD_BYTES = 16 << 20
"""Program headers of 300,000 mappings."""


class CoreHead:
    """The beginning of the core, which gives its length."""

    def __init__(self, path: str) -> None:
        self._wrong = CannotUnpack("%s is compressed, and its content is not an ELF core" % path, "give a core file with --core FILE")
        self._data = b""
        self._is_open = True
        self.end: Optional[int] = None
        """Where the last segment and the table of sections end; None while that is not known, or cannot be known."""

    def take(self, piece: bytes) -> bool:
        """Add a piece; True if it determined where the core ends, or that nothing will."""
        if not self._is_open:
            return False
        self._data += piece
        header = elf.parse_header(self._data[:64])
        if header is None:
            if len(self._data) >= 64 or self._data[:4] != ELF_MAGIC[: len(self._data)]:
                raise self._wrong
            return False
        table = header.phoff + header.phnum * header.phentsize
        sections = header.shoff + header.shnum * header.shentsize if header.shoff else 0
        if header.phnum in (0, PN_XNUM) or table > MOST_HEAD_BYTES:  # PN_XNUM: the number of program headers follows all that was dumped
            self.end = sections or None
        elif table > len(self._data):
            return False
        else:
            entries = elf.parse_program_headers(header.order, header.word_bytes, self._data[header.phoff : table])
            self.end = max([table, sections] + [entry.offset + entry.filesz for entry in entries])
        self._is_open, self._data = False, b""
        return True
