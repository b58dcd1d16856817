"""Read targets without gdb's help: the interface of every source, and a core file; a process of this machine is live/source.py. The file
tree that the target ran in, as it lies here: paths in it, the release it is of, and where debug files for it come from. A core that names
no file mappings (qemu-user's have no NT_FILE) has those that the dynamic linker made of the files given for it. It has no build-id
either: a file is taken only if its dynamic section, with all its sizes and addresses, is the one in memory.
"""

import os
import re
import stat
import struct
import time
from abc import abstractmethod
from typing import Callable, Dict, Iterable, List, Optional, Sequence, Tuple

import gdbheapx.inferior.elf.file as elf
from gdbheapx.common.budget import Still
from gdbheapx.common.errors import HeapxError
from gdbheapx.common.files import (
    HANDLE,
    TargetPath,
    copy_of,
    copy_range,
    in_tree,
    open_of_target,
    open_regular,
    unnamed_or_in_memory,
    walk_path,
)
from gdbheapx.common.problems import CORE_CUT, CORE_DAMAGED, CUT_HINT, GDB_FAILED, MEMORY_LEFT_OUT, WRONG_FILE, Diagnostic
from gdbheapx.inferior.base import (
    BulkSource,
    CopiedMemory,
    FileSource,
    Identity,
    Mapping,
    Memory,
    MemoryUse,
    Packages,
    Process,
    Thread,
    choose_program_name,
    format_utc,
)
from gdbheapx.inferior.core_file import AT_EXECFN, WRITABLE, CoreFile, Extents, FileMapping, find_dumped_ranges, measure_dumped_use
from gdbheapx.inferior.elf.link_map import AT_PHDR, DT_DEBUG, LinkMap, NumberReader, Read

PAGE = 4096
"""The smallest page there is: a mapping begins and ends at a multiple of the target's, which is a multiple of this."""
MOST_PAGE_BYTES = 1 << 16
MOST_ENVIRONMENT_BYTES = 6 << 20
"""Of arguments, environment and what points to them, below the program's name (fs/exec.c: _STK_LIM / 4 * 3)."""
MAX_PACKAGE_DEPTH = 3
"""How deep a library lies in its package."""
AT_PAGESZ = 6


def find_headers_address(file: elf.ElfFile) -> Optional[int]:
    """Return the address of the program headers at load bias 0, or None if no segment has them."""
    at = file.header.phoff
    loads = (entry for entry in file.program_headers() if entry.type == elf.PT_LOAD and entry.offset <= at < entry.offset + entry.filesz)
    return next((at + entry.vaddr - entry.offset for entry in loads), None)


def open_elf(path: str) -> Optional[elf.ElfFile]:
    """The file, if it is an ELF file."""
    try:
        return elf.ElfFile(path)
    except (OSError, ValueError):
        return None


def find_load_bias(file: elf.ElfFile, offset: int, address: int, page: int = PAGE) -> Optional[int]:
    """The load bias of a file whose byte `offset` is mapped at `address`, by pages of so many bytes."""
    for entry in file.program_headers():
        if entry.type == elf.PT_LOAD and entry.offset & -page <= offset < entry.offset + entry.filesz:
            return address - offset - (entry.vaddr - entry.offset)
    return None


def has_layout(file: elf.ElfFile, entries: Sequence[FileMapping], page: int) -> bool:
    """The file's segments are where these mappings of it are."""
    base = find_load_bias(file, entries[0].offset, entries[0].start, page) if entries else None
    if base is None:
        return False
    loads = [entry for entry in file.program_headers() if entry.type == elf.PT_LOAD and entry.filesz]
    # (start, end, place in the file) of each segment's pages
    pages = [((base + load.vaddr) & -page, -(-(base + load.vaddr + load.filesz) // page) * page, load.offset & -page) for load in loads]
    return max(end for _, end, _ in pages) == max(entry.end for entry in entries) and all(
        any(start <= entry.start < entry.end <= end and entry.start - start == entry.offset - at for start, end, at in pages)
        for entry in entries
    )


def has_same_headers(file: elf.ElfFile, base: int, read: Read) -> Optional[bool]:
    """The program headers in memory are the file's; None where memory does not say."""
    place, size_bytes = find_headers_address(file), file.header.phnum * elf.program_header_bytes(file.header.word_bytes)
    theirs = read(base + place, size_bytes) if place is not None else b""
    return theirs == file.pread(file.header.phoff, size_bytes) if theirs and len(theirs) == size_bytes else None


def has_same_dynamic(file: elf.ElfFile, base: int, read: Read) -> Optional[bool]:
    """The dynamic section in memory is the file's, where ld.so may have added the base. None where memory does not say, or the file has
    none."""
    entry = next((entry for entry in file.program_headers() if entry.type == elf.PT_DYNAMIC), None)
    if entry is None:
        return None
    mine, theirs = file.pread(entry.offset, entry.filesz), read(base + entry.vaddr, entry.filesz)
    form = file.header.order + ("QQ" if file.header.word_bytes == 8 else "II")
    size = struct.calcsize(form)
    if not mine or len(mine) != len(theirs):
        return None
    usable = len(mine) // size * size
    for (tag, value), (other, now) in zip(struct.iter_unpack(form, mine[:usable]), struct.iter_unpack(form, theirs[:usable])):
        if tag != other or (tag != DT_DEBUG and now not in (value, value + base)):
            return False
    return True


def read_os_release(root: str) -> Dict[str, str]:
    """Parse /etc/os-release of the tree; empty without it."""
    for path in ("/etc/os-release", "/usr/lib/os-release"):
        try:
            with open(open_regular(in_tree(root, path)), encoding="utf-8", errors="replace") as file:
                text = file.read(1 << 16)
        except OSError:
            continue
        return {key: value.strip("\"'") for key, value in re.findall(r"^([A-Z_]+)=(.*)$", text, re.MULTILINE)}
    return {}


def read_release_name(root: str) -> str:
    """The distribution, such as `Debian GNU/Linux 12 (bookworm)`; empty if the tree does not say."""
    return read_os_release(root).get("PRETTY_NAME", "")


def find_debug_package(root: str, packages: Packages) -> Optional[str]:
    """The command that installs debug information in the tree's distribution; None if that is not known."""
    fields = read_os_release(root)
    kinds = [fields.get("ID", ""), *fields.get("ID_LIKE", "").split()]
    return next((command for names, command in packages if any(name in names for name in kinds)), None)


def is_from_wheel(root: str, path: str) -> bool:
    """The file was installed by pip: into a place of its own, or next to the metadata that wheels bring. Distributions keep theirs below
    /usr/lib."""
    if re.search(r"/site-packages/|^/usr/local/lib/python[^/]*/dist-packages/", path):
        return True
    folder = os.path.dirname(path)
    for _ in range(MAX_PACKAGE_DEPTH if not path.startswith("/usr/") else 0):
        if any(name.endswith(".dist-info") for name in _list_names(in_tree(root, folder))):
            return True
        folder = os.path.dirname(folder)
    return False


def _list_names(folder: TargetPath) -> List[str]:
    try:
        descriptor = open_of_target(folder, is_folder=True)
    except OSError:
        return []
    try:
        return os.listdir(descriptor)
    finally:
        os.close(descriptor)


def find_downloaded(build_id: str) -> Optional[str]:
    """The debug file that debuginfod-find, or gdb, has fetched before; None if there is none."""
    cache = os.environ.get("DEBUGINFOD_CACHE_PATH")
    if not cache:
        cache = os.path.join(os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache"), "debuginfod_client")
    path = os.path.join(cache, build_id, "debuginfo")
    return path if os.path.isfile(path) else None


def read_write_time(path: Optional[str]) -> Optional[str]:
    """Return when a file was last written, or None."""
    try:
        return format_utc(os.stat(path).st_mtime) if path is not None else None
    except (OSError, ValueError, OverflowError):
        return None


class TargetSource(Memory, Process):
    """Facts about a target that cannot be worked out by reading its memory."""

    sysroot = ""
    """Put before the paths of the target to find its files here."""
    given_executable: Optional[str] = None
    """The program's file here, where the user named it."""
    still: Optional[Still] = None
    """Longest stop of the process, where it can be stopped."""

    def __init__(self, header: elf.ElfHeader) -> None:
        """`header`: of the program, or of the core: word size, byte order and machine of the target."""
        self.header = header
        self.word_bytes, self.little_endian, self.machine = header.word_bytes, header.little_endian, header.arch.name

    def read_own(self, address: int, size_bytes: int) -> bytes:
        """Read as read_prefix, without clean file pages that come from a file here."""
        return self.read_prefix(address, size_bytes)

    def may_use(self, file: elf.ElfFile) -> bool:
        """Return True if the target may name this file."""
        return file.header.type != elf.ET_CORE

    def takes_unproven(self, file: elf.ElfFile, start: int) -> bool:
        """Return True if the file counts as the image at `start` although memory does not prove it."""
        return False

    @abstractmethod
    def auxv(self) -> Dict[int, int]:
        """The auxiliary vector, type -> value."""

    @abstractmethod
    def threads(self) -> Sequence[Thread]:
        """Return its threads."""

    def register_sets(self, lwp: int) -> Sequence[bytes]:
        """A thread's general and vector registers, as the kernel writes them; empty where only who stops the process can read them."""
        return ()

    def add_missing(self, link_map: LinkMap) -> None:
        """Add the objects that the dynamic linker's list lacks because a core was cut."""

    def file_in_memory(self, name: str) -> Optional[str]:
        """A way to the mapped file itself, also when it was deleted or replaced on disk since."""
        return None

    def stands_still(self, still: bool, ended: Optional[int] = None) -> None:
        """The process was stopped, or runs again; `ended`: with this status it has ended meanwhile."""

    def foresee(self) -> None:
        """See ElfTarget."""

    def keep(self, copy: CopiedMemory, take: Callable[[], None]) -> None:
        """The process is stopped; take() copies its memory, and it will run on: what else changes is taken down first. Until forget()."""

    def keep_held(self, copy: CopiedMemory, lwps: Iterable[int], maps: bytes, monotonic_ns: int) -> None:
        """Take over a copy, threads and mappings of a stop that is over."""

    def cause_of_death(self) -> Optional[Diagnostic]:
        """Return how the process ended."""
        return None

    def program_link(self) -> Optional[str]:
        """The name that the program was started by, where its file has another: what execve was given, if the process calls itself so,
        too (of a script only the kernel does)."""
        place, program = self.auxv().get(AT_EXECFN), self.identity().program
        text = NumberReader(self.read_own, self.header).string(place) if place and program else None
        same = text is not None and os.path.basename(os.fsdecode(text)) == program != os.path.basename(self.executable or "")
        return program if same else None

    def host_path(self, name: str) -> str:
        """Return the path on this machine of the target's file `name`."""
        if self.given_executable and name == self.executable:
            return self.given_executable
        return in_tree(self.sysroot, name)


def read_image_build_id(read: Read, start: int) -> Optional[str]:
    """The build-id of the ELF image mapped from its first byte on at `start`."""
    header = elf.parse_header(read(start, 64))
    if header is None:
        return None
    entries = elf.parse_program_headers(header.order, header.word_bytes, read(start + header.phoff, header.phnum * header.phentsize))
    first = next((entry for entry in entries if entry.type == elf.PT_LOAD), None)
    for entry in entries if first else ():
        if entry.type == elf.PT_NOTE and first:
            data = read(start - (first.vaddr - first.offset) + entry.vaddr, min(entry.filesz, 4096))
            build_id = elf.find_build_id(elf.parse_notes(header.order, data, entry.align))
            if build_id:
                return build_id
    return None


class CoreSource(TargetSource):
    """A core, and the files that were mapped in it for the clean pages that it leaves out."""

    kind = "core"

    def __init__(
        self, path: str, executable: Optional[str] = None, sysroot: str = "", name: Optional[str] = None, trouble: Optional[str] = None
    ) -> None:
        """`name`: what the user calls the core, where the path is that of what it was unpacked to; `trouble`: what was wrong then."""
        self.core = self.open_core(path, name)
        self.core_path = os.path.abspath(name or path)
        self._trouble = trouble
        TargetSource.__init__(self, self.core.header)
        self.sysroot = sysroot
        self._files: Dict[str, Optional[elf.ElfFile]] = {}
        self._refused: List[Diagnostic] = []
        self._extents: Optional[Extents] = None
        self._use: Optional[MemoryUse] = None
        self._environment: Optional[List[bytes]] = None
        self.given_executable = executable
        notes = self.core.notes()
        self.pid = notes.pid
        self._names = {entry.start: entry for entry in notes.files}
        self.executable = self._find_executable()
        if not notes.files:
            self._assume_files()

    def open_core(self, path: str, name: Optional[str]) -> CoreFile:
        """The map of the core."""
        return CoreFile(path, name)

    def _assume_files(self) -> None:
        """A core that names no mapped file: take the program and the libraries that are here for it, if they are those in memory."""
        at, path = self.auxv().get(AT_PHDR), self.given_executable
        program = open_elf(path) if at and path else None
        if program is None or not at or not path:
            return
        place = find_headers_address(program)
        base = at - (program.header.phoff if place is None else place)
        is_static = not any(entry.type == elf.PT_DYNAMIC for entry in program.program_headers())
        if not self._take_file(program, self.executable or path, base, is_static):
            return
        for loaded in LinkMap(self.read_prefix, self.header, self.auxv()).objects():
            library = open_elf(self.host_path(loaded.name)) if loaded.name.startswith("/") else None
            if library is not None:
                self._take_file(library, loaded.name, loaded.base)

    def _take_file(self, file: elf.ElfFile, name: str, base: int, is_static: bool = False) -> bool:
        """Let the file's segments be mappings of the core; False if it is not the file that was in memory there."""
        if not is_static and not has_same_dynamic(file, base, self.core.read_dumped):
            self._refuse_file(name, "%s is not the file that was loaded when the core was written" % file.path)
            return False
        files = self.core.notes().files
        for entry in file.program_headers():
            if entry.type == elf.PT_LOAD and entry.filesz:
                start, end = base + entry.vaddr, base + entry.vaddr + entry.filesz
                files.append(FileMapping(start & -PAGE, (end + PAGE - 1) & -PAGE, entry.offset & -PAGE, name))
        files.sort()
        self._names = {entry.start: entry for entry in files}
        return True

    def _find_executable(self) -> Optional[str]:
        """The file that holds the program headers of the auxiliary vector; else what execve was given."""
        auxv = self.auxv()
        for entry in self.core.notes().files:
            if entry.start <= auxv.get(AT_PHDR, 0) < entry.end:
                return entry.name
        name = NumberReader(self.core.read_dumped, self.header).string(auxv.get(AT_EXECFN, 0)) if auxv.get(AT_EXECFN) else None
        text = os.fsdecode(name) if name else None
        return text if text and text.startswith("/") else self.given_executable

    def identity(self) -> Identity:
        notes = self.core.notes()
        program = choose_program_name(notes.command, (notes.command_line or "").split(" ")[0], self.executable)
        return Identity(program, notes.command_line, None, read_write_time(self.core_path), None)

    def read_own(self, address: int, size_bytes: int) -> bytes:
        return self.core.read_dumped(address, size_bytes)

    def read_prefix(self, address: int, size_bytes: int) -> bytes:
        data = self.core.read_dumped(address, size_bytes)
        if len(data) == size_bytes:
            return data
        parts = [data]
        address, size_bytes = address + len(data), size_bytes - len(data)
        while size_bytes > 0:
            piece = self.core.read_dumped(address, size_bytes) or self._read_clean_pages(address, size_bytes)
            if not piece:
                break
            parts.append(piece)
            address, size_bytes = address + len(piece), size_bytes - len(piece)
        return b"".join(parts)

    def _read_clean_pages(self, address: int, size_bytes: int) -> bytes:
        """Pages of a read-only file mapping that were not dumped because the file has them. What the process could have written is never
        taken from a file."""
        load = self.core.find(address)
        if load is None:
            return self._left_out(address, size_bytes)
        entry = self._names.get(load.start)
        if entry is None or load.flags & 2:
            return b""
        # What a cut core lost is gone, but for the start of an image: headers and symbol tables, which nobody relocates.
        kept = load.dumped_bytes if entry.offset == 0 else load.claimed_bytes
        file = self._find_file(entry.name) if address >= load.start + kept else None
        if file is None:
            return b""
        return file.pread(entry.offset + address - load.start, min(size_bytes, load.end - address))

    def _left_out(self, address: int, size_bytes: int) -> bytes:
        """Read clean pages of mappings that gcore names without a program header, if the file's segments are read-only."""
        entry = self.core.file_at(address)
        if entry is None:
            return b""
        file, offset = self._find_file(entry.name), entry.offset + address - entry.start
        if file is None:
            return b""
        for segment in file.program_headers():
            if segment.type == elf.PT_LOAD and not segment.flags & WRITABLE and 0 <= offset - segment.offset < segment.filesz:
                return file.pread(offset, min(size_bytes, entry.end - address, segment.offset + segment.filesz - offset))
        return b""

    def _find_file(self, name: str) -> Optional[elf.ElfFile]:
        if name not in self._files:
            self._files[name] = self._open_core_file(name)
        return self._files[name]

    def _open_core_file(self, name: str) -> Optional[elf.ElfFile]:
        path = self.host_path(name)
        file = open_elf(path)
        if file is None or not self.may_use(file):
            if file is not None and file.header.type != elf.ET_CORE:
                self._refuse_file(name, "%s is another user's, and not everybody may read it" % path)
            return None
        build_id = self.build_id_in_core(name)
        if build_id and file.build_id() != build_id:
            own = file.build_id() or "none"
            if name == self.executable:
                what = "the executable does not match the core: %s has build-id %s, the core %s" % (path, own, build_id)
                self._refused.append(Diagnostic(WRONG_FILE, None, what, "give the program that wrote the core with --exe FILE"))
            else:
                self._refuse_file(name, "%s here has build-id %s, but the core was written with %s" % (path, own, build_id))
            return None
        if not build_id and self._is_shown(name, file) is False:
            self._refuse_file(name, "%s here is a different build than the one in the core" % path)
            return None
        if not build_id and not self._is_shown(name, file) and not self._is_named(file) and not self._is_of_distribution(name, file):
            if name == self.executable:
                self._refuse_file(name, "nothing in the core shows that %s is the program that wrote it" % path)
            return None
        return file

    def may_use(self, file: elf.ElfFile) -> bool:
        """A core may come from anybody: never another core, and no file that only the rights of who reads it open."""
        return file.header.type != elf.ET_CORE and (self._is_named(file) or file.is_open_to(os.geteuid()))

    def takes_unproven(self, file: elf.ElfFile, start: int) -> bool:
        entry = self.core.file_at(start)
        proven = self._find_file(entry.name) if entry is not None else None
        return self._is_named(file) or (proven is not None and os.path.realpath(proven.path) == os.path.realpath(file.path))

    def _is_named(self, file: elf.ElfFile) -> bool:
        return bool(self.sysroot) or file.path == self.given_executable

    def _is_of_distribution(self, name: str, file: elf.ElfFile) -> bool:
        """Accept a well-known library with the mapped segments for a cut core, which lost the proof."""
        entries = [entry for entry in self.core.notes().files if entry.name == name]
        return self.core.missing_bytes > 0 and file.is_public() and has_layout(file, entries, read_page_bytes(self.auxv()))

    def _refuse_file(self, name: str, why: str) -> None:
        """A file that is here is not that of the core."""
        hint = "give the file tree of the machine that wrote the core with --sysroot DIR"
        if name == self.executable:
            hint = "give the program with --exe FILE"
        self._refused.append(Diagnostic(WRONG_FILE, None, why + "; gdbheapx does not use it", hint))

    def _is_shown(self, name: str, file: elf.ElfFile) -> Optional[bool]:
        """The first page or the dynamic section in the core is the file's, or contradicts it: all that there is where the core has no
        build-id. None where it has neither.

        A program may have mapped the file as data too, and written to that: one mapping that agrees is enough.
        """
        files = [entry for entry in self.core.notes().files if entry.name == name]
        agrees: List[Optional[bool]] = []
        for entry in [entry for entry in files if entry.offset == 0] or files[:1]:
            head = self.core.read_dumped(entry.start, PAGE) if entry.offset == 0 else b""
            base = find_load_bias(file, entry.offset, entry.start, read_page_bytes(self.auxv()))
            same = has_same_dynamic(file, base, self.core.read_dumped) if base is not None else None
            is_same = same if same is not None else True if len(head) == PAGE else None
            agrees.append(is_same if head == file.pread(0, len(head)) else False)
        return True if True in agrees else False if False in agrees else None

    def add_missing(self, link_map: LinkMap) -> None:
        for entry in self.core.notes().files if self.core.missing_bytes else ():
            if entry.offset == 0 and ".so" in os.path.basename(entry.name):
                link_map.add(entry.name, entry.start)
        if len(link_map.objects()) < 2:
            for name, start, end in self.code_images():
                if not link_map.objects() or name != self.executable:
                    link_map.add(name, start, end, is_executable=name == self.executable)

    def code_images(self) -> List[Tuple[str, int, int]]:
        """(path, start, end) of each file that was mapped to be run, the program first: objects, where the dynamic linker's list of them is
        not to be had. Its mappings follow each other, as their places in the file do."""
        images: List[Tuple[str, int, int]] = []
        runs = False
        last: Optional[FileMapping] = None
        for entry in self.core.notes().files:
            load = self.core.find(entry.start)
            code = load is not None and bool(load.flags & 1)
            if last is not None and images and entry.name == last.name and entry.offset and entry.offset >= last.offset:
                images[-1] = (entry.name, images[-1][1], entry.end)
                runs = runs or code
            else:
                images = images if runs or not images else images[:-1]
                runs = code
                images.append((entry.name, entry.start, entry.end))
            last = entry
        images = images if runs or not images else images[:-1]
        return sorted(images, key=lambda image: (image[0] != self.executable, image[1]))

    def build_id_in_core(self, name: str) -> Optional[str]:
        """The build-id of the file that was mapped when the core was written; None if its first page was not dumped.

        Of several mappings of its start the first that has one counts: the others are data, which the program may have written to.
        """
        begins = [entry.start for entry in self.core.notes().files if entry.name == name and entry.offset == 0]
        return next((build_id for build_id in (read_image_build_id(self.core.read_dumped, start) for start in begins) if build_id), None)

    def mappings(self) -> List[Mapping]:
        return self.core.mappings()

    def auxv(self) -> Dict[int, int]:
        return self.core.notes().auxv

    def environment_variable(self, name: str) -> Optional[str]:
        if self._environment is None:
            self._environment = self._read_environment()
        entry = next((entry for entry in self._environment if entry.startswith(name.encode() + b"=")), None)
        return None if entry is None else entry[len(name) + 1 :].decode("utf-8", "surrogateescape")

    def _read_environment(self) -> List[bytes]:
        """Read the variables from the stack: pointers, 0, the auxiliary vector, texts, program name (fs/binfmt_elf.c:
        create_elf_tables)."""
        auxv, word, letter = self.auxv(), self.word_bytes, "Q" if self.word_bytes == 8 else "I"
        name = auxv.get(AT_EXECFN, 0)
        stack = next((one for one in self.mappings() if one.start <= name < one.end), None)
        low = max(stack.start, name - MOST_ENVIRONMENT_BYTES) if stack is not None else name
        data = self.read_prefix(low, name - low)
        first = [number for pair in list(auxv.items())[:3] for number in pair]
        at = data.rfind(struct.pack("%s%d%s" % (self.header.order, len(first), letter), *first)) if first else -1
        places: List[int] = []
        for place in range(at - 2 * word, -1, -word) if at > 0 and not any(data[at - word : at]) else ():
            (pointer,) = struct.unpack_from(self.header.order + letter, data, place)
            if not at < pointer - low < len(data):
                break
            places.append(pointer - low)
        return [data[place : data.find(b"\0", place)] for place in reversed(places)]

    def threads(self) -> List[Thread]:
        return self.core.notes().threads

    def bulk_source(self) -> BulkSource:
        return FileSource(self.core.path, self.core.segments())

    def unwritten_ranges(self) -> Sequence[Tuple[int, int]]:
        return self.core.unwritten()

    @property
    def ignored_bits(self) -> int:
        return self.arch.ignored_bits | self.core.notes().signature_bits

    def register_sets(self, lwp: int) -> Sequence[bytes]:
        return self.core.notes().register_sets.get(lwp, ())

    def present_ranges(self, start: int, end: int) -> Sequence[Tuple[int, int]]:
        return find_dumped_ranges(self.core.segments(), start, end)

    def touched_ranges(self, start: int, end: int) -> Sequence[Tuple[int, int]]:
        return self.data_ranges([(start, end)])  # a hole in a core's file is zeros, however long it is

    def data_ranges(self, ranges: Sequence[Tuple[int, int]]) -> Sequence[Tuple[int, int]]:
        segments, extents, page = self.core.segments(), self._file_extents(), read_page_bytes(self.auxv())
        return [part for start, end in ranges for part in extents.data_ranges(segments, start, end, page)]

    def memory_use(self) -> MemoryUse:
        if self._use is None:
            core, pages = self.core, self.arch.named_pages
            self._use = measure_dumped_use(self.mappings(), core.segments(), self._file_extents(), self.auxv(), core.is_by_kernel, pages)
        return self._use

    def _file_extents(self) -> Extents:
        if self._extents is None:
            self._extents = Extents(self.core.path)
        return self._extents

    def undumped_files(self) -> Sequence[Tuple[int, int, str]]:
        return [(entry.start, entry.end, entry.name) for entry in self.core.undumped_files()]

    def lost_bytes(self) -> Optional[int]:
        core = self.core
        return None if core.missing_headers > 0 or core.lacks_private_memory or self._trouble is not None else core.missing_bytes

    def problems(self) -> List[Diagnostic]:
        core, lost = self.core, None
        if core.missing_headers > 0:
            lost = "it ends within its program headers; %d of them are missing, with all memory that they describe" % core.missing_headers
        elif core.missing_bytes:
            lost = "%d bytes of memory are missing" % core.missing_bytes
        elif core.missing_note_bytes:
            lost = "%d bytes of its notes are missing, which tell threads and mapped files" % core.missing_note_bytes
        whole = "the core is truncated: %s (the file has %d bytes of %d)" % (lost, core.file_bytes, core.claimed_end)
        overlap = "the core is damaged: its program headers overlap, and memory in two of them is counted once"
        which = "a segment lies" if core.outside == 1 else "%d segments lie" % core.outside
        outside = "the core is damaged: %s where no program has memory" % which
        left_out = "the core has no heaps and no stacks: the process's coredump_filter left out private memory"
        again = "copy the core again, or take a new one"
        rows = (
            (self._trouble is not None, CORE_CUT, self._trouble or "", again),
            (lost is not None, CORE_CUT, whole, CUT_HINT),
            (core.has_overlap, CORE_DAMAGED, overlap, again),
            (core.outside > 0, CORE_DAMAGED, outside, again),
            (core.lacks_private_memory, MEMORY_LEFT_OUT, left_out, "before the next core: echo 0x33 > /proc/PID/coredump_filter"),
        )
        diagnostics = [Diagnostic(code, None, what, hint) for is_so, code, what, hint in rows if is_so]
        if self.executable:
            self._find_file(self.executable)
        return diagnostics + self._refused


def read_page_bytes(auxv: Dict[int, int]) -> int:
    """AT_PAGESZ; 4096 where the target does not say, or says what is no page of any machine."""
    size_bytes = auxv.get(AT_PAGESZ, PAGE)
    return size_bytes if PAGE <= size_bytes <= MOST_PAGE_BYTES and not size_bytes & (size_bytes - 1) else PAGE


GDB_MAPPING = re.compile(r"^\s*(0x[0-9a-f]+)\s+(0x[0-9a-f]+)\s+0x[0-9a-f]+\s+(0x[0-9a-f]+)(?:\s+([r-][w-][x-][ps-]))?(?:\s+(\S.*?))?\s*$")
GDB_AUXV = re.compile(r'^(\d+)\s+\S+\s.*?\s(0x[0-9a-f]+|\d+)(?:\s+".*")?\s*$')


class RemoteSource(TargetSource):
    """Reads through two functions of gdb, so that this file needs no gdb."""

    kind = "remote"

    def __init__(self, pid: int, execute: Callable[[str], str], read: Callable[[int, int], bytes], sysroot: str = "") -> None:
        self.pid = pid
        self._execute = execute
        self._read = read
        self.sysroot = sysroot
        self._auxv = parse_auxv_text(self._run_command("info auxv"))
        header = find_first_header(self._auxv.get(AT_PHDR, 0), read)
        if header is None:
            what = "the remote stub does not provide the auxiliary vector, so gdbheapx cannot find the program's ELF header"
            raise HeapxError(what, "use gdbserver or a core of the process", code=GDB_FAILED)
        TargetSource.__init__(self, header)
        match = re.search(r"^exe = '(.*)'$", self._run_command("info proc exe"), re.MULTILINE)
        self.executable = match.group(1) if match else None

    def _run_command(self, command: str) -> str:
        try:
            return self._execute(command)
        except HeapxError:
            return ""

    def identity(self) -> Identity:
        return super().identity()._replace(time=format_utc(time.time()))

    def read_prefix(self, address: int, size_bytes: int) -> bytes:
        return self._read(address, size_bytes) if address >= 0 else b""

    def mappings(self) -> List[Mapping]:
        return parse_mappings_text(self._run_command("info proc mappings"))

    def auxv(self) -> Dict[int, int]:
        return self._auxv

    def threads(self) -> List[Thread]:
        return []

    def bulk_source(self) -> BulkSource:
        return self._read


def find_first_header(program_headers: int, read: Callable[[int, int], bytes]) -> Optional[elf.ElfHeader]:
    """The ELF header in front of the program headers: right before them as every linker lays them out, else at the start of their page."""
    for start in (program_headers - 64, program_headers - 52, program_headers & ~0xFFF, program_headers & ~0xFFFF):
        header = elf.parse_header(read(start, 64)) if program_headers and start >= 0 else None
        if header is not None and header.phoff == program_headers - start:
            return header
    return None


def parse_auxv_text(text: str) -> Dict[int, int]:
    """Parse the output of `info auxv`."""
    matches = [GDB_AUXV.match(line) for line in text.splitlines()]
    return {int(match.group(1)): int(match.group(2), 0) for match in matches if match}


def parse_mappings_text(text: str) -> List[Mapping]:
    """Parse the output of `info proc mappings`. Without rights (gdb before 12) anonymous memory counts as writable, a file's first
    mapping as not."""
    mappings = []
    seen: Dict[str, int] = {}
    for line in text.splitlines():
        match = GDB_MAPPING.match(line)
        if not match:
            continue
        name = match.group(5) or ""
        rights: Optional[str] = match.group(4)
        seen[name] = seen.get(name, 0) + 1
        if rights is None:
            rights = "r--p" if name.startswith("/") and seen[name] <= 4 else "rw-p"
        start, end = int(match.group(1), 16), int(match.group(2), 16)
        mappings.append(Mapping(start, end, rights[0] == "r", rights[1] == "w", rights[2] == "x", rights[3] == "s", name, None))
    return sorted(mappings)


DEBUG = (".debug_", ".zdebug_", ".gdb_index", ".gnu_debug")
"""How the names of sections begin that unwinding does without."""


class Openable:
    """Names for gdb. Lives as long as gdb may open one of them again."""

    def __init__(self) -> None:
        self._names: Dict[Tuple[str, bool], Optional[str]] = {}
        self._copies: List[int] = []
        """Descriptors of files without a name, which /proc/self/fd leads to: their links lead nowhere as text, so gdb keeps the name as it
        is."""

    def name(self, path: str, debug_info: bool = True) -> Optional[str]:
        """The path itself, where its text leads to the same file; else that of a copy. None if it cannot be read, or there is no room for
        the copy.

        Without `debug_info`: a copy that has none, if the file has some.
        """
        key = (path, debug_info)
        if key not in self._names:
            name = None if debug_info or not has_debug_info(path) else self._copy_file(path, copy_without_debug_info)
            is_openable = name is None and is_fixed(path) and resolves_to_itself(path)
            self._names[key] = path if is_openable else name or self._copy_file(path, copy_of)
        return self._names[key]

    def _copy_file(self, path: str, make: Callable[[str], int]) -> Optional[str]:
        try:
            self._copies.append(make(path))
        except (OSError, ValueError):
            return None
        return "/proc/self/fd/%d" % self._copies[-1]


def has_debug_info(path: str) -> bool:
    """The ELF file has debug information in it."""
    file = open_elf(path)
    return file is not None and (file.has_section(".debug_info") or file.has_section(".zdebug_info"))


def copy_without_debug_info(path: str) -> int:
    """A descriptor of a copy without a name in which the debug sections are declared empty and are holes."""
    file, source = elf.ElfFile(path), open_regular(path)
    header = file.header
    descriptor = unnamed_or_in_memory()
    try:
        os.ftruncate(descriptor, os.fstat(source).st_size)
        spans = [(0, header.phoff + header.phnum * header.phentsize), (header.shoff, header.shnum * header.shentsize)]
        spans += [(entry.offset, entry.filesz) for entry in file.program_headers() if entry.type == elf.PT_LOAD]
        kept = [part for part in file.sections() if part.type != elf.SHT_NOBITS and not part.name.startswith(DEBUG)]
        for at, size_bytes in spans + [(part.offset, part.size_bytes) for part in kept]:
            os.lseek(descriptor, at, os.SEEK_SET)
            copy_range(descriptor, source, at, size_bytes)
        for number, section in enumerate(file.sections()):
            if section.name.startswith(DEBUG):
                os.pwrite(descriptor, struct.pack(header.order + "I", elf.SHT_NOBITS), header.shoff + number * header.shentsize + 4)
    except OSError:
        os.close(descriptor)
        raise
    finally:
        os.close(source)
    return descriptor


def is_fixed(path: str) -> bool:
    """Return True if root and this user alone can have another file lie at the path when gdb opens it."""
    if not isinstance(path, TargetPath):
        return True
    if path.root is None or path.root.startswith("/proc/"):
        return False
    if path.root != "/":
        return True  # --sysroot
    try:
        top = os.open("/", HANDLE)
        try:
            os.close(walk_path(top, path, _check_ours))
        finally:
            os.close(top)
    except OSError:
        return False
    return True


def _check_ours(status: os.stat_result) -> None:
    is_open = status.st_mode & (stat.S_IWGRP | stat.S_IWOTH) and not status.st_mode & stat.S_ISVTX
    if status.st_uid not in (0, os.geteuid()) or (is_open and not stat.S_ISLNK(status.st_mode)):
        raise PermissionError("others may change it")


def resolves_to_itself(path: str) -> bool:
    """The path with its links resolved as text is the same file, or none: then gdb keeps the path as it is."""
    try:
        status = os.stat(os.path.realpath(path))
    except OSError:
        return True
    try:
        return os.path.samestat(status, os.stat(path))
    except OSError:
        return False
