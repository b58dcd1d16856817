"""The seam: everything above it asks a Target and does not distinguish a live process from a core."""

import os
import time
from abc import ABC, abstractmethod
from array import array
from types import MappingProxyType
from typing import Any, Callable, Dict, FrozenSet, Iterator, List, NamedTuple, Optional, Protocol, Sequence, Set, Tuple, Union
from typing import Mapping as ReadOnly

from gdbheapx.common.budget import Still
from gdbheapx.common.errors import UnreadableMemory
from gdbheapx.common.problems import Diagnostic
from gdbheapx.inferior.arch import Architecture, ByteOrder, architecture_named, byte_order

HUGETLB = "/anon_hugepage"
"""What MAP_HUGETLB | MAP_ANONYMOUS memory is called in /proc/PID/maps (mm/hugetlb.c, fs/hugetlbfs/inode.c)."""
NOWHERE = (1 << 64) - 1
"""A segment's `file_offset`: it has zeros."""


class Member(NamedTuple):
    """A member of a struct, or a variable (offset 0)."""

    offset: int
    size_bytes: int
    """Size of one element."""
    count: int  # type: ignore[assignment]  # hides tuple.count, which nobody calls on a record
    """Elements: 1 for no array, 0 for a flexible array member. Dimensions of an array of arrays are multiplied."""
    kind: str
    """`int`, `uint`, `bool`, `float`, `pointer`, `string` (char *), `char`, `enum NAME` or `struct NAME`; NAME is a key of the TypeSet."""

    @property
    def signed(self) -> bool:
        """A signed integer."""
        return self.kind == "int"

    @property
    def struct(self) -> Optional[str]:
        """Name of the element's struct in the TypeSet; None for scalars."""
        return self.kind[7:] if self.kind.startswith("struct ") else None


class StructType(NamedTuple):
    """A struct or union."""

    size_bytes: int
    members: Dict[str, Member]
    """In memory order. Members of anonymous structs and unions count as its own; bit fields are left out."""


ClassVtable = Tuple[str, int]
"""Name of a C++ class, in the words of the source, or mangled where nothing could read it; and where the part of the object that points to
the vtable begins: 0 for the object's first word."""


class TypeSet:
    """Structs, enums and variables of one build.

    However it was made, these rules hold, so that readers never see where it came from: a struct goes by its tag, one without a
    tag by its typedef's name, one without either by `OWNER.member`; a struct whose only member is `repr` or `val` (such as
    atomics) is that scalar; prefixes that a build gave to names (`je_`, `cant_access_tsd_items_directly_...`) are stripped.
    """

    def __init__(
        self,
        structs: Optional[Dict[str, StructType]] = None,
        enums: Optional[Dict[str, Dict[str, int]]] = None,
        variables: Optional[Dict[str, Member]] = None,
    ) -> None:
        self.structs = structs or {}
        """By name."""
        self.enums = enums or {}
        """Enum name -> enumerator -> value; enums without a name share the empty one."""
        self.variables = variables or {}
        """Types of variables by their name without prefix."""
        self.origin = ""
        """In words: who read them from what. Empty where no pack is to be made of them."""
        self._places: Dict[Tuple[str, str], Optional[Member]] = {}
        """What place() has answered: a process with thousands of threads has the same asked for each."""

    def size_bytes(self, struct: str) -> int:
        """sizeof(struct)."""
        return self.structs[struct].size_bytes

    def enumerator(self, name: str) -> Optional[int]:
        """The value of an enumerator of any enum; None if no enum has it."""
        return next((values[name] for values in self.enums.values() if name in values), None)

    def place(self, struct: str, path: str) -> Optional[Member]:
        """Return the member at `path` (`a.b.c`, `bins[3].lock`) with its offset from the start of `struct`; None if this build has none."""
        key = (struct, path)
        if key not in self._places:
            self._places[key] = self._find_member(struct, path)
        return self._places[key]

    def _find_member(self, struct: str, path: str) -> Optional[Member]:
        offset, member = 0, None
        for step in path.split("."):
            if struct not in self.structs:
                return None
            name, bracket, index = step.partition("[")  # `bins[3]`
            member = self.structs[struct].members.get(name)
            if member is None:
                return None
            offset += member.offset
            if bracket:
                offset += int(index.rstrip("]")) * member.size_bytes
                member = member._replace(count=1)
            struct = member.struct or ""
        return member._replace(offset=offset) if member is not None else None

    def first(self, struct: str, *paths: str) -> Optional[str]:
        """The first of these paths that this build has: newest first, as its sources moved members about."""
        return next((path for path in paths if self.place(struct, path) is not None), None)

    def update(self, other: "TypeSet") -> None:
        """Take over what the other has and this one lacks."""
        self._places.clear()
        self.structs = {**other.structs, **self.structs}
        self.variables = {**other.variables, **self.variables}
        for name, values in other.enums.items():
            self.enums.setdefault(name, {}).update(values)


class Mapping(NamedTuple):
    """A run of addresses with equal rights, by the kernel or a core's program headers."""

    start: int
    """First address."""
    end: int
    """First address beyond."""
    readable: bool
    writable: bool
    executable: bool
    shared: bool
    """MAP_SHARED; False where it is not known (cores)."""
    name: str
    """Path of the mapped file, or the kernel's label such as `[heap]`; empty if anonymous."""
    dumped_bytes: Optional[int]
    """Cores: bytes of it that are in the file (a truncated core has fewer than `end - start`). None: live."""
    offset: int = 0
    """Where in the file it begins; 0 where no file is mapped or that is not known."""
    device: str = ""
    """Of the mapped file, as the kernel writes it (`fe:00`); empty where it is not known (cores)."""
    inode: int = 0
    """Of the mapped file; 0 for anonymous memory and where it is not known (cores)."""

    @property
    def size_bytes(self) -> int:
        """Length of the address range."""
        return self.end - self.start

    @property
    def is_hugetlb(self) -> bool:
        """Anonymous memory of pages reserved in /proc/sys/vm/nr_hugepages, which the kernel shows with the name of a file. It is in no
        RSS."""
        return self.name.startswith(HUGETLB)

    @property
    def is_file(self) -> bool:
        """True if a file is mapped here."""
        return self.name.startswith("/") and not self.is_hugetlb

    @property
    def is_untouched_zero(self) -> bool:
        """True if a page here that is neither present nor swapped reads as zeros: private and anonymous, no other process writes it."""
        return not self.shared and (not self.inode or self.is_hugetlb) and not self.is_file and not self.name.startswith("[v")


class Module(NamedTuple):
    """A loaded ELF object: the executable or a shared library."""

    name: str
    """Path as the process knows it."""
    base: int
    """Load bias (`l_addr`): run-time address minus the address in the file."""
    is_executable: bool
    build_id: Optional[str]
    """Lower-case hex, None if the object has none or it cannot be read."""
    has_debug_info: Optional[bool]
    """Full debug information is loaded for it; None where it was not checked."""
    link: Optional[str] = None
    """The name that the program was started by, if that is a link to its file: `redis-server`, a link to `redis-check-rdb`."""

    @property
    def file_name(self) -> str:
        """The last part of its path: `libc.so.6`."""
        return self.name.rsplit("/", 1)[-1]

    @property
    def shown_name(self) -> str:
        """Name in answers."""
        return self.link or self.file_name


class StackCopy(NamedTuple):
    """Copy of a thread's stack."""

    pointer: int
    pc: int
    words: Sequence[int]
    """As Target.register_words."""
    data: bytes
    """From the stack pointer up."""


class StackCall(NamedTuple):
    """A call that has not returned."""

    start: int
    end: int
    """Its frame in the stack."""
    pc: int
    is_return: bool
    """The pc is where a call returns to."""


class StaticBlock(NamedTuple):
    """Place of an object's static thread-local block in every thread."""

    distance: int
    """From the thread pointer."""
    size_bytes: int
    module: Module


class Symbol(NamedTuple):
    """Definition of a name, and its address."""

    name: str
    address: int
    module: Module
    source: str
    """`debug-info` or `symbol` (an ELF symbol table without types)."""


class Function(NamedTuple):
    """A function of an object's full symbol table."""

    start: int
    end: int
    name: str
    local: bool


class ObjectCode(NamedTuple):
    """Code of one object, by its file. Addresses are those in the file."""

    arch: Architecture
    parts: Sequence[Tuple[int, bytes]]
    """(address, bytes) of what is executable."""
    functions: Sequence[Tuple[int, int]]
    """(begin, end) by the call frames that are kept for exceptions, also in stripped files; sorted. A function may have several."""
    slots: ReadOnly[int, str]
    """Where the dynamic linker writes the address of what has a name."""
    pointers: ReadOnly[int, int]
    """Where it writes an address of this object, and which."""


class Thread(NamedTuple):
    """A thread of the target."""

    lwp: int
    """Kernel thread id."""
    name: Optional[str]
    """comm; None where it is not known (cores)."""
    thread_pointer: Optional[int]
    """None if the registers cannot be read."""
    stack_pointer: Optional[int]
    pc: Optional[int]
    signal: Optional[int] = None
    """Of the thread that a core was written for, if it ended by itself: the signal of a fault, or of abort(); None elsewhere, and where
    the signal was sent."""


class Segment(NamedTuple):
    """A run of target memory whose bytes lie in a file."""

    address: int
    size_bytes: int
    """Bytes that are really in the file (already clamped for a truncated core)."""
    file_offset: int
    """Or NOWHERE."""


class FileSource(NamedTuple):
    """Bulk bytes by pread of a core file."""

    path: str
    segments: Tuple[Segment, ...]
    """Sorted by address, without overlap."""


class SwapRoom:
    """Budget of bytes that readers may bring in from swap; a page beyond it is not read. The base class has no limit."""

    def __init__(self, left_bytes: int = (1 << 64) - 1) -> None:
        self.cells = array("Q", [left_bytes, 0])
        """What is left, and how many bytes were refused; the C kernel changes them from several threads."""
        self.is_without_swap = False
        """The machine has none: a page that the page table calls swapped is being moved, for a moment, to another place in RAM."""

    @property
    def left_bytes(self) -> int:
        """Bytes that may still be brought in."""
        return self.cells[0]

    @property
    def refused(self) -> bool:
        """A page was not read."""
        return self.cells[1] > 0

    def take(self, size_bytes: int, page_bytes: int) -> int:
        """So much of it may be read now, in whole pages."""
        self.renew()
        given = min(size_bytes, self.cells[0] // page_bytes * page_bytes)
        self.cells[0] -= given
        self.cells[1] += size_bytes - given
        return given

    def take_shared(self, size_bytes: int, page_bytes: int) -> int:
        """So much may be read now of shared memory, or of a file in memory, of which the page table has nothing: it may be in swap."""
        return size_bytes

    @property
    def is_accepted(self) -> bool:
        """The user wants everything read."""
        return False

    def accept(self) -> None:
        """So it is. Nothing by default."""

    def lacking(self) -> Optional[str]:
        """Return why not all swapped memory may be brought in, or None."""
        return None

    def problems(self) -> List[Diagnostic]:
        """Return a diagnostic if pages were not read."""
        return []

    def has_room_for_all(self) -> bool:
        """Everything that the process has in swap may be brought in."""
        return True

    def renew(self) -> None:
        """Look again at what is left, if that was long ago. Nothing by default."""


class CopiedMemory(Protocol):
    """Memory of a process as it was while it stood still; it runs on."""

    handle: int
    """Where the kernel has it."""

    def run(self, address: int, size_bytes: int) -> Tuple[int, Optional[bytes]]:
        """Return (length, bytes) from `address` on: bytes is shorter if unreadable, None if the copy has none (untouched, or a mapped
        file)."""

    def touched(self, start: int, end: int, swapped: bool) -> Optional[List[Tuple[int, int]]]:
        """The pages of a range that were in RAM, or in swap if these are asked for, too; joined. None where the copy has not all of it."""

    def kinds(self, start: int, end: int) -> Optional[bytes]:
        """Return one byte of flags for each page of a range (kernel/common/copy.py), or None if the copy lacks some."""


class EndedStop(NamedTuple):
    """Result of a stop in which the process was copied."""

    left: Optional[int]
    """From where on there was no time; None: it is whole."""
    began_ns: int
    """By the monotonic clock."""
    stopped_ms: float
    ended: Optional[int]
    """Status of wait(2), if the process ended meanwhile."""
    maps: bytes
    """/proc/PID/maps as it was."""
    registers: Dict[int, Dict[int, bytes]]
    """Of each thread that stood, the contents of its register sets by their numbers."""


class ProcessSource(NamedTuple):
    """Bulk bytes of a live process of this machine, by /proc/PID/mem.

    Never process_vm_readv: it pins what it reads, and the kernel answers a pin of a page shared after fork with a copy.
    """

    pid: int
    untouched_zero: Tuple[Tuple[int, int], ...] = ()
    """Ranges (start, end) of private anonymous memory, sorted: a page of these that /proc/PID/pagemap says is neither present nor
    swapped is given as zeros and not read, because reading it would give the process a page table and count a page fault."""
    still: Optional[Still] = None
    """Until when it is stopped: what is read later counts as not read, and interrupts."""
    swap: Optional[SwapRoom] = None
    """What may be brought in from swap; None: everything."""
    scans: bool = False
    """Its page table can be asked for the next page that was ever touched: see PageTable."""
    copy: Optional[CopiedMemory] = None
    """What was kept of it while it stood still: what is not in there is read as it is now."""
    brought_in: Tuple[Tuple[int, int], ...] = ()
    """Ranges of memory that has no server, such as shared memory in swap: the only ones besides `untouched_zero` of which a page that is
    not present is read."""
    unanswered: Tuple[Tuple[int, int], ...] = ()
    """Ranges of files on file systems that may never answer: no page of the file is read, present or not."""


CallSource = Callable[[int, int], bytes]
"""Bulk bytes by a Python call, such as gdb's own read_memory (remote targets), from one thread only: of (address, size_bytes) the readable
prefix of the range, shorter than asked if it ends, b"" if none."""


class BytesSource(NamedTuple):
    """Bulk bytes already in this process: tests and fixtures."""

    pieces: Tuple[Tuple[int, bytes], ...]
    """(address, bytes), sorted by address, without overlap."""


BulkSource = Union[FileSource, ProcessSource, CallSource, BytesSource]
Packages = Tuple[Tuple[Tuple[str, ...], str], ...]
"""(distributions by ID or ID_LIKE of os-release, the command that installs debug information there)."""


class PageTable(NamedTuple):
    """Access to /proc/PID/pagemap, and what this kernel and our rights let it say."""

    pid: int
    scans: bool
    """ioctl PAGEMAP_SCAN is there (Linux 6.7): it shows the zero page and huge pages."""
    knows_huge_zero: bool
    """PAGEMAP_SCAN shows the huge zero page as well as the small one (Linux 6.17; before that it passes for a page of the process)."""
    flags_fd: int
    """/proc/kpageflags, open, where that and page frame numbers can be read (root): they show the zero page. -1 elsewhere, and where it is
    not needed."""
    outside_rss: Tuple[Tuple[int, int], ...]
    """Ranges (start, end) that RSS does not count: hugetlb pages; sorted."""
    copy: Optional[CopiedMemory] = None
    """What is known of pages while the process stood still."""


DebugHint = Tuple[str, Optional[str]]
"""Commands that install the debug information of a module, the likeliest first, in one line; and where gdb looks for it:
`.build-id/xx/yyy.debug` below a debug directory, None without a build-id."""


class HugePages(NamedTuple):
    """Reasons why returned memory can still be resident."""

    setting: Optional[str]
    """`always`, `madvise` or `never`: transparent_hugepage/enabled; None where the kernel has none."""
    allowed: Optional[bool]
    """False: the process switched them off for itself (prctl PR_SET_THP_DISABLE); None on kernels before 5.0."""
    locked_bytes: Optional[int]
    """VmLck: pages of mlock or mlockall, which madvise gives back in no way."""


class MappingUse(NamedTuple):
    """Memory of a mapping. None: a core, or a kernel of this age, does not have the figure."""

    mapping: Mapping
    """Named by the kernel; in a core also `[stack]`, `[vdso]` and `[vvar]`, by its auxiliary vector."""
    resident_bytes: int
    """Rss; of a core the bytes that are in the file, holes left out."""
    huge_bytes: Optional[int] = None
    """The part of Rss that is mapped as huge pages (AnonHugePages, ShmemPmdMapped, FilePmdMapped)."""
    pss_bytes: Optional[int] = None
    """Rss with each page divided by the number of its mappings."""
    shared_bytes: Optional[int] = None
    """The part of Rss that is mapped more than once (Shared_Clean, Shared_Dirty)."""
    private_clean_bytes: Optional[int] = None
    private_dirty_bytes: Optional[int] = None
    anonymous_bytes: Optional[int] = None
    """The part of Rss that belongs to no file: in a private mapping of a file its copied pages."""
    lazy_free_bytes: Optional[int] = None
    """The part of Rss that was given to MADV_FREE: the kernel takes it when memory is short."""
    hugetlb_bytes: Optional[int] = None
    """Pages of hugetlbfs, which are not in Rss."""
    swapped_bytes: Optional[int] = None
    flags: Optional[FrozenSet[str]] = None
    """VmFlags: `ht` hugetlb, `gd` grows down, `pf` and `io` device memory, and so on (fs/proc/task_mmu.c: show_smap_vma_flags)."""
    filesystem: Optional[str] = None
    """Type of the file system that the file lies on, such as `tmpfs`; None if it is not mounted where the process sees it."""


class ParentPages(NamedTuple):
    """Comparison of a forked process's memory with its parent's, by a sample of pages."""

    parent: int
    """Its process id."""
    private_bytes: int
    """Dirty anonymous memory that the process has for itself alone."""
    copied_bytes: int
    """The part of it that is the same in the parent or differs in few words, by the sample."""
    compared_pages: int
    """The sample: pages of that."""
    same_pages: int
    """Of them those that are the same in the parent, and not all zeros."""
    near_pages: int
    """Those that differ in few words: at most one for each three that are not 0."""
    counting_pages: int
    """Of the latter those where most of these words differ in their lower half alone, as reference counts do."""


class MemoryUse(NamedTuple):
    """Memory of every mapping."""

    measure: str
    """`resident` (Rss of /proc/PID/smaps) or `dumped` (bytes in the core file, holes left out)."""
    mappings: Sequence[MappingUse]
    """By address."""
    swapped_bytes: Optional[int]
    """Swap of a live process; None on a core."""
    tells_untouched: bool = True
    """Private pages that were never in memory, or were given back, are left out. False: a core in which they are zeros like those that the
    program wrote."""
    virtual_bytes: Optional[int] = None
    """VSZ of a live process (VmSize)."""
    peak_virtual_bytes: Optional[int] = None
    """The most that VSZ has been (VmPeak)."""
    peak_bytes: Optional[int] = None
    """The most that was in RAM (VmHWM)."""


class ThreadLocal(NamedTuple):
    """The way to one thread-local variable in every thread."""

    addresses: Dict[int, Optional[int]]
    """lwp -> address of that thread's copy; None where the thread has none, or it is not known (`unknown`)."""
    way: str
    """`static-tls` (a constant offset from the thread pointer), `dtv`, or `libthread_db`."""
    unknown: ReadOnly[int, str] = MappingProxyType({})
    """lwp -> why the place is not known, as text after `thread N: `."""


class Memory(ABC):
    """Bytes and mappings by address, and where the bytes are: in RAM, in swap, in a core's file, or nowhere."""

    word_bytes: int
    """sizeof(void *) in the target: 8 or 4."""
    little_endian: bool
    machine: str
    """ELF machine in gdb's words."""
    has_memory = True
    """False: it has recorded answers and the graph of all blocks instead."""

    @property
    def arch(self) -> Architecture:
        """Description of the target's machine."""
        return architecture_named(self.machine)

    @property
    def byte_order(self) -> ByteOrder:
        """Byte order for int.from_bytes."""
        return byte_order(self.little_endian)

    @property
    def ignored_bits(self) -> int:
        """Bits of a pointer to data that are no address in this process: the processor does not look at them, or they are a signature."""
        return self.arch.ignored_bits

    @abstractmethod
    def read_prefix(self, address: int, size_bytes: int) -> bytes:
        """The readable bytes at `address`, up to size_bytes; shorter, or empty, where memory ends."""

    def read(self, address: int, size_bytes: int) -> bytes:
        """Exactly size_bytes from `address`; Unreadable with the first bad address otherwise."""
        got = self.read_prefix(address, size_bytes)
        if len(got) < size_bytes:
            raise UnreadableMemory(address + len(got), size_bytes - len(got))
        return got

    def read_word(self, address: int) -> int:
        """The pointer-sized unsigned integer at `address`."""
        return int.from_bytes(self.read(address, self.word_bytes), self.byte_order)

    def words_in(self, data: bytes) -> List[int]:
        """The pointer-sized unsigned integers that some of its bytes are, as bare() gives them; a rest that is no whole word is left
        out."""
        word, order = self.word_bytes, self.byte_order
        return list(self.bare([int.from_bytes(data[at : at + word], order) for at in range(0, len(data) - word + 1, word)]))

    def bare(self, words: Sequence[int]) -> Sequence[int]:
        """Words of the program's: those that lead to its memory without the bits that are no address lose these."""
        return words

    def text_at(self, address: int, limit: int = 256) -> Optional[str]:
        """The printable C string at `address`; None if unreadable. Only for the allocators' own constants."""
        data = self.read_prefix(address, limit)
        text = data.split(b"\0")[0]
        if not data or len(text) == len(data) or any(byte < 32 or byte > 126 for byte in text):
            return None
        return text.decode("ascii")

    @abstractmethod
    def bulk_source(self) -> BulkSource:
        """The fastest way to read megabytes from this target, tried against read_prefix on a sample."""

    def present_ranges(self, start: int, end: int) -> Sequence[Tuple[int, int]]:
        """The parts of a range that are in memory, or in the core: reading them brings no page in. Empty where that is not known."""
        return ()

    def touched_ranges(self, start: int, end: int) -> Sequence[Tuple[int, int]]:
        """Return the parts of a range in memory or in swap: all that the program may have written to."""
        return self.present_ranges(start, end)

    def data_ranges(self, ranges: Sequence[Tuple[int, int]]) -> Optional[Sequence[Tuple[int, int]]]:
        """Cores: what of these sorted ranges (start, end) is in the file and no hole, in whole pages; None elsewhere."""
        return None

    def unwritten_ranges(self) -> Sequence[Tuple[int, int]]:
        """Writable private memory that a core left out because it was never written to, or the program wanted it so (MADV_DONTDUMP):
        begin and end, sorted. The core does not distinguish the two."""
        return ()

    def undumped_files(self) -> Sequence[Tuple[int, int, str]]:
        """Begin, end and name of mapped files that a core left out although the program may have written to them (coredump_filter)."""
        return ()

    def lost_bytes(self) -> Optional[int]:
        """Memory that the process had and a core lacks: it was cut, or private memory was left out. None: how much is not known."""
        return 0

    @abstractmethod
    def mappings(self) -> Sequence[Mapping]:
        """Return all mappings sorted by address; of a core those of its program headers or notes."""

    def file_ranges(self) -> Sequence[Tuple[int, int]]:
        """Begin and end of what is mapped of files, sorted and without overlap; loaded objects as a whole, of which a core (gdb's) may lack
        what is only read."""
        return [(mapping.start, mapping.end) for mapping in self.mappings() if mapping.is_file]

    def code_mappings(self) -> Sequence[Mapping]:
        """Mappings of code, sorted; those of loaded objects also where a core (gdb's) has no header for them."""
        return [mapping for mapping in self.mappings() if mapping.executable]

    def maps_text(self) -> str:
        """The address space in the format of /proc/PID/maps, which other tools read; empty where file offsets are not known."""
        return ""


class Identity(NamedTuple):
    """Process and time of an answer. None: not known."""

    program: Optional[str] = None
    """As the process calls itself, without its folder."""
    command_line: Optional[str] = None
    """For a shell; of a core at most its first 79 letters."""
    host: Optional[str] = None
    """The machine that it runs on."""
    time: Optional[str] = None
    """UTC, as `2026-11-30T12:00:00Z`; of a core when its file was last written."""
    uptime_s: Optional[int] = None


def format_utc(unix_s: float) -> str:
    """A moment, as every file and answer has it."""
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(unix_s))


def choose_program_name(command: Optional[str], words: str, executable: Optional[str]) -> Optional[str]:
    """Return a process's name: the first of its words (which it may have rewritten, as `nginx: worker process`) or its file, preferably
    one that starts with `comm`, which has at most 15 letters."""
    first = os.path.basename(words.split(": ")[0]).split(" ")[0].strip("-:")
    names = [name for name in (first, os.path.basename(executable or "")) if name]
    return next((name for name in names if command and name.startswith(command)), names[0] if names else command)


class Process:
    """Facts about the process as a whole and the memory that it takes; None where not known."""

    kind: str
    """`core`, `live`, `remote` or `snapshot`."""
    pid: Optional[int] = None
    executable: Optional[str] = None
    core_path: Optional[str] = None
    snapshot: Optional[str] = None
    """The file that its answers are recorded in."""
    stopped_ms: Optional[float] = None
    """How long the longest stop of the process was, known after let_go(); None for cores and where the user holds it stopped himself."""
    stops: Optional[int] = None
    """How often it was stopped; None as before."""
    dirty_pages: Optional[int] = None
    """So many were read in the last short stop; None: it had none."""

    def facts(self) -> Dict[str, Any]:
        """Return the target's fields of an envelope."""
        names = ("kind", "pid", "executable", "core_path", "snapshot", "stopped_ms", "stops")
        told = {name.replace("core_path", "core"): getattr(self, name) for name in names}
        told.update(self.identity()._asdict(), pause_ms=self.stopped_ms, pauses=self.stops)
        return told if self.dirty_pages is None else {**told, "dirty_pages": self.dirty_pages}

    def identity(self) -> Identity:
        """Return the process's identity."""
        return Identity(choose_program_name(None, "", self.executable))

    def monotonic_ns(self) -> Optional[int]:
        """CLOCK_MONOTONIC as the process sees it; None on cores and remote targets."""
        return None

    def environment_variable(self, name: str) -> Optional[str]:
        """A variable of the environment that the process was started with; None if it has none or that is not known here."""
        return None

    def ignores_environment(self) -> Optional[bool]:
        """Return True if libraries ignore the environment (AT_SECURE); None if not known."""
        return None

    def has_ended(self) -> bool:
        """The process is gone, or going: nothing of it can be read any more. False for cores."""
        return False

    def problems(self) -> List[Diagnostic]:
        """Return diagnostics about the target as a whole, such as a truncated core."""
        return []

    def forget(self) -> None:
        """Drop caches after the process ran or changed."""

    def let_go(self) -> None:
        """Everything is read: let the process run on if this tool stopped it. Harmless when called twice."""

    def memory_use(self) -> Optional[MemoryUse]:
        """Return the memory of each mapping, read once until forget(); None for remote targets."""
        return None

    def parent_pages(self) -> Optional[ParentPages]:
        """Compare its memory with its parent's; None unless it is a live process, forked without exec, with much private memory and a
        readable parent."""
        return None

    def read_parent(self, address: int, size_bytes: int) -> bytes:
        """Bytes of its parent; empty where they cannot be read."""
        return b""

    def huge_pages(self) -> Optional[HugePages]:
        """Return why returned memory can be resident; None on anything but a live process of this machine."""
        return None

    def anonymous_use(self) -> Optional[Tuple[int, int, int]]:
        """Return what of a living process of this machine is anonymous memory, in RAM and in swap, in bytes, and its number of threads."""
        return None

    def page_table(self) -> Optional[PageTable]:
        """Return its page table; None on anything but a live process of this machine, or without permission."""
        return None

    def swap_room(self) -> Optional[SwapRoom]:
        """Return the budget for swapped pages; None on anything but a live process of this machine."""
        return None

    def swapped_in_bytes(self) -> Optional[int]:
        """Bytes that were in swap when they were read through this target, bulk sources not counted: they are in RAM now. None where that
        is not known, as on anything but a live process of this machine."""
        return None

    def swappable_ranges(self, start: int, end: int) -> Optional[Sequence[Tuple[int, int]]]:
        """Return the parts of a file mapping's range whose file has data, in RAM or in swap; None if it cannot be opened."""
        return None


class TypeLayout(Protocol):
    """A type of the program's, as far as paths need it."""

    def member(self, offset: int) -> "Optional[Tuple[str, TypeLayout]]":
        """Return the path (`.book.bids`) and type of the member at this offset, or None."""

    def target(self) -> "Optional[TypeLayout]":
        """Return the type that a pointer or unique_ptr leads to; None of any other."""

    def element(self) -> "Optional[TypeLayout]":
        """The type of a container's elements, of a map's values; None of any other."""


class Target(Memory, Process):
    """A stopped process, a core or a remote target: memory, mappings, loaded objects with symbols and types, threads.

    Nothing here writes to it.
    """

    page_bytes: int
    """AT_PAGESZ of the target, never this machine's."""
    max_stop_s: Optional[float] = None
    """Longest stop of a process."""
    debugger_version: Optional[str] = None
    """Version of the gdb that serves, such as `13.1`; None without gdb."""
    discovery: Any = None
    """What its recorded answers say of allocators (allocators/discovery.py)."""
    held_by_caller = False
    """Who asks from Python has it stopped, or copied, for several questions: it is neither stopped nor let go for one of them."""
    is_kept = False
    """A process that runs on, of which all is read as it was while it stood still."""

    def was_stopped(self, took_ms: float) -> None:
        """Account for a stop of the process that has ended."""

    def prepare(self, asked: Any, session: Any, options: Any) -> None:
        """A command is about to run: HeapxError where its answer is not recorded. Nothing by default."""

    def death(self) -> Optional[Diagnostic]:
        """Return how the process ended, if it has, and let go of it; None for cores."""
        return None

    @property
    def stands_still(self) -> bool:
        """True while this tool, or its gdb, holds the process stopped."""
        return False

    @property
    def knows_filters(self) -> bool:
        """True if the seccomp filters of its threads can be read, or were read while it was stopped."""
        return self.stands_still

    @property
    def can_read_on(self) -> bool:
        """Its memory is as it was."""
        return self.kind == "core" or self.stands_still or self.is_kept

    @abstractmethod
    def modules(self) -> Sequence[Module]:
        """Loaded ELF objects in the dynamic linker's search order, the executable first."""

    def knows_objects(self) -> bool:
        """modules() has all that is loaded; False where the program, or the dynamic linker's list, could not be read."""
        return True

    def is_being_loaded(self) -> bool:
        """Return True if the dynamic linker has not loaded the libraries yet."""
        return False

    def image_ranges(self) -> Sequence[Tuple[int, int, Module]]:
        """(first address, end, module) of every loaded object's image with its bss, by its program headers; sorted."""
        return ()

    def code_ranges(self, module: Module) -> List[Tuple[int, int]]:
        """(start, end) of the executable mappings of an object."""
        return []

    def writable_segments(self, module: Module) -> Sequence[Tuple[int, int, int]]:
        """(start, end of what its file initialises, end with .bss) of the object's writable memory."""
        return ()

    def module_file(self, module: Module) -> Optional[str]:
        """The module's own file as this process can open it: the right build, not only the right path. None if it is not here."""
        return None

    def has_section(self, module: Module, name: str) -> Optional[bool]:
        """The object's own file, or its debug file, has this section; None if neither is here."""
        return None

    def debug_hint(self, module: Module, packages: Packages = ()) -> DebugHint:
        """Return commands that install the missing debug information of `module`."""
        return "", None

    def constant_data(self, module: Module) -> Iterator[bytes]:
        """The object's constants (.rodata), in pieces that overlap: from its file, in a core without the file what was dumped of them.

        Nothing for a process whose file is not here: reading them in its memory would map the file's pages into it.
        """
        return iter(())

    def has_all_constants(self, module: Module) -> bool:
        """constant_data gives every constant of the object: what is not among them is not in the object. False where only some of its
        read-only segments, or parts of them, are at hand."""
        return False

    @abstractmethod
    def find_static(self, name: str) -> Sequence[Symbol]:
        """Every definition of the variable `name`, static or not, in every loaded object, in modules() order."""

    @abstractmethod
    def dynamic_symbol(self, name: str) -> Optional[Symbol]:
        """The definition of a function or variable that the dynamic linker would choose: first in search order."""

    def exported(self, module: Module, name: str) -> Optional[Symbol]:
        """The variable or function `name` if that object exports it, so that the dynamic linker may prefer another object's."""
        return None

    def module_symbol(self, module: Module, name: str) -> Optional[Symbol]:
        """The variable or function `name` of one object by its symbol table alone: no debug information is read for it."""
        return next((symbol for symbol in self.find_static(name) if symbol.module.base == module.base), None)

    def symbol_bytes(self, symbol: Symbol) -> Optional[int]:
        """Return a variable's size by its symbol table, or None."""
        return None

    def names_ending(self, suffix: str, only: Optional[Module] = None) -> List[Tuple[str, Module]]:
        """Every defined name with this ending in the symbol tables of all modules, or of one, in modules() order."""
        return []

    def names_starting(self, module: Module, start: str) -> List[str]:
        """Every defined name of one module that begins so, sorted."""
        return []

    def variables(self, module: Module) -> List[Tuple[str, int, int, bool]]:
        """Every variable in the module's .symtab, local ones too, and in its .dynsym, which stripped files keep: (name, address in the
        file, size_bytes, False), or for thread-local ones (name, offset in the module's block, size_bytes, True)."""
        return []

    def function(self, module: Module, name: str) -> Optional[Symbol]:
        """The function of one object, if there is debug information for it: `types` can look near it. Cheap also in large programs."""
        return None

    def functions(self, module: Module, exported: bool = False) -> List[Function]:
        """Every function in the object's full symbol table, by address; empty if it is stripped. `exported`: and those of .dynsym."""
        return []

    def function_name(self, address: int) -> Optional[str]:
        """`work in app`: the function that begins there, with its object; `app+0x1189` where no symbol table has it."""
        return None

    def code(self, module: Module) -> Optional[ObjectCode]:
        """The object's code, by its own file; None where that is not here, or nothing is known of its machine."""
        return None

    def file_constants(self, module: Module) -> Iterator[Tuple[int, bytes]]:
        """(address, bytes) of what the object's own file has that is neither written to nor code, before any relocation."""
        return iter(())

    def exported_functions(self, module: Module) -> Iterator[str]:
        """Return the names of the functions that the object offers to others, as far as its table of them is in memory."""
        return iter(())

    def types(
        self,
        near: Symbol,
        structs: Sequence[str],
        variables: Sequence[str] = (),
        enumerators: Sequence[str] = (),
        prefix: Optional[str] = None,
    ) -> Optional[TypeSet]:
        """The types of the object that defines `near`, from its debug information; None without it.

        `structs` by tag or typedef (enums too) with all that they contain by value, the types of `variables` (names without
        `prefix`), and the enums that have one of `enumerators`. What the object lacks is left out. `prefix` is the private one,
        such as `_rjem_je_`; None takes it from near's name. Only the compilation unit of `near` is read:
        a search through a large program takes a minute.
        """
        return None

    def types_of_functions(self, module: Module, addresses: Sequence[int]) -> List[Set[str]]:
        """Return for each address the Rust types that have a method there; several if the linker folded them."""
        return [set() for _ in addresses]

    def constant(self, name: str, near: Symbol) -> Optional[int]:
        """The value of a const integer of the object that defines `near`, by debug information alone; None without it.

        For variables that have no place in memory because the compiler put their value where it was used.
        """
        return None

    def vtables(self, module: Module) -> Optional[Dict[int, ClassVtable]]:
        """The vtables of the module's C++ classes by their address points in its file, from its symbols and its type_infos; None if its
        file is not here."""
        return None

    def source_name(self, symbol: Optional[str]) -> Optional[str]:
        """The name of a function as the source has it; None for None."""
        return symbol

    def layout(self, module: Module, address: int) -> "Optional[TypeLayout]":
        """The type of the variable at this address, by debug information; None where that does not say."""
        return None

    def class_name(self, module: Module, address: int) -> Optional[str]:
        """The C++ class whose type_info has its name at this address of the object, in the words of the source: from the object's file,
        else from what a core dumped of it. Reads no page of a process."""
        return None

    @abstractmethod
    def threads(self) -> Sequence[Thread]:
        """Every thread."""

    def register_words(self, thread: Thread) -> Sequence[int]:
        """Every word in a thread's general registers, in the order of `arch.registers`, and then in its vector registers; empty where they
        cannot be read."""
        return ()

    def calls(self, copy: StackCopy) -> Sequence[StackCall]:
        """The calls on a stack, the innermost first, as far as the files of the objects allow. Reads nothing of the target."""
        return ()

    @abstractmethod
    def thread_local(self, name: str, near: Symbol) -> Optional[ThreadLocal]:
        """Return each thread's copy of the thread-local `name` of the object that defines `near`; None without the symbol or a way to
        thread-local storage (`doctor` says which)."""

    def thread_local_at(self, module: Module, offset: int) -> Optional[ThreadLocal]:
        """Return each thread's copy of a variable at this offset of the module's thread-local block."""
        return None

    def beside_thread_pointer(self, distance: int) -> Optional[ThreadLocal]:
        """Return each thread's copy of a variable at a fixed distance from the thread pointer (static thread-local storage)."""
        return None

    def prepare_thread_local(self, names: Sequence[str], near: Symbol) -> None:
        """Look up, before the process is stopped, what `thread_local` of these names will need. Nothing by default."""

    def prepare_thread_local_at(self, module: Module) -> None:
        """Look up before the stop what `thread_local_at` will need."""

    def thread_local_image(self, module: Module) -> bytes:
        """Return the initial bytes of an object's thread-local block without trailing zeros; empty if it has none."""
        return b""

    def thread_local_size(self, module: Module) -> int:
        """Return the size of an object's thread-local block; 0 if it has none or that is not known."""
        return 0

    def thread_local_bytes(self, module: Module, name: str) -> Optional[int]:
        """Return the size of a thread-local variable by its symbol table, or None."""
        return None

    def static_blocks(self) -> Sequence[StaticBlock]:
        """Return the static thread-local blocks of all objects, as far as known."""
        return ()


MEMORY_CALLS = ("brk", "mmap", "munmap", "mprotect", "madvise")
"""System calls that an allocator makes in the middle of a change."""


class Frame(NamedTuple):
    """A frame of a stack."""

    pc: int
    name: Optional[str]
    is_signal: bool
    """The kernel's frame of a signal handler."""


class StoppedThread(NamedTuple):
    """A stopped thread."""

    lwp: int
    name: Optional[str]
    pc: int
    sp: int
    system_call: Optional[int]
    """Number of the system call that the kernel interrupted it in, its program counter after the instruction; None if it is in none."""
    frames: Sequence[Frame]
    """Innermost first."""
    whole: bool
    """Unwound to the thread's first function; otherwise frames may be missing."""

    @property
    def in_system_call(self) -> bool:
        """True if the kernel interrupted it in a system call."""
        return self.system_call is not None

    @property
    def who(self) -> str:
        """Name in messages."""
        return "thread %d (%s)" % (self.lwp, self.name) if self.name else "thread %d" % self.lwp


class CallOutcome(NamedTuple):
    """Result of a call into the process."""

    returned: Optional[int]
    """None if it did not return in the ordinary way, see `trouble`."""
    elapsed_ms: float
    trouble: Optional[str]
    """What went wrong."""
    finished: bool = True
    """The function ran to its end, whatever gdb says."""


def find_running_threads(target: Target, module: Module) -> Set[int]:
    """Return the ids of threads that were stopped in the code of an object, without those that wait in a system call."""
    ranges = target.code_ranges(module)
    inside = (thread for thread in target.threads() if thread.pc is not None and any(start <= thread.pc < end for start, end in ranges))
    return {thread.lwp for thread in inside if not _is_waiting(target, thread)}


def _is_waiting(target: Target, thread: Thread) -> bool:
    shown, layout, calls = target.arch.in_system_call, target.arch.registers, target.arch.system_calls
    if shown is None or not shown.shows(thread.pc or 0, target.read_prefix):
        return False
    words = target.register_words(thread)
    if layout is None or calls is None or len(words) < len(layout.names):
        return True
    number = words[layout.names.index(shown.number)]
    return number >> 63 == 0 and number not in [calls.numbers[name] for name in MEMORY_CALLS]
