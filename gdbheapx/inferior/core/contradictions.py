"""Rules that every core of the kernel and of gdb keeps, and damage breaks: an answer from a core that breaks one is never whole.

fs/binfmt_elf.c (elf_core_dump, fill_files_note) and gdb's linux-tdep.c write cores; both write the memory of one mapping after the other.
"""

from typing import Iterator, List, Optional, Sequence, Tuple

from gdbheapx.inferior.core.file import AT_EXECFN, AT_RANDOM, CoreFile
from gdbheapx.inferior.elf.file import PF_R, PF_W, PF_X, PT_LOAD, PT_NOTE, parse_header
from gdbheapx.inferior.elf.link_map import AT_BASE, AT_PHDR, AT_PHNUM, Loaded
from gdbheapx.problems import CORE_DAMAGED, Diagnostic
from gdbheapx.ranges import Ranges

AT_ENTRY = 9
PT_GNU_PROPERTY, PT_AARCH64_MEMTAG_MTE = 0x6474E553, 0x70000002
TYPES = (PT_LOAD, PT_NOTE, PT_GNU_PROPERTY, PT_AARCH64_MEMTAG_MTE)
"""All p_type that cores have."""
NAMED = ((AT_PHDR, "AT_PHDR"), (AT_RANDOM, "AT_RANDOM"), (AT_EXECFN, "AT_EXECFN"), (AT_ENTRY, "AT_ENTRY"), (AT_BASE, "AT_BASE"))
PAGE = 4096
MOST_GAP_BYTES = 1 << 16
"""Between two parts of a file that libbfd wrote, which aligns them. The kernel leaves less than a page, behind the notes alone."""
MOST = 8
"""Contradictions that are listed."""
Contradiction = Tuple[Optional[int], str]
"""(address, what is wrong)."""


def find(core: CoreFile, objects: Sequence[Loaded], page: int) -> List[Diagnostic]:
    """What of the core's headers and notes cannot be true together with the rest, the first few. `objects`: those of the link map."""
    hint = "copy the core again, or take a new one"
    checks = (_types(core), _loads(core), _order(core), _files(core, page), _auxv(core, objects), _segments(core, objects, page))
    found = [Diagnostic(CORE_DAMAGED, at, "the core is damaged: " + what, hint) for check in checks for at, what in _first(check)]
    return found[:MOST]


def _first(check: Iterator[Contradiction]) -> List[Contradiction]:
    """One of each kind: the others mostly follow from it."""
    first = next(check, None)
    return [first] if first is not None else []


def _types(core: CoreFile) -> Iterator[Contradiction]:
    for entry in core.program_headers:
        if entry.type not in TYPES:
            yield entry.vaddr, "a program header has the type 0x%x, which no core has: its memory is not read" % entry.type


def _loads(core: CoreFile) -> Iterator[Contradiction]:
    for entry in core.program_headers:
        if entry.type != PT_LOAD:
            continue
        if entry.filesz > entry.memsz or entry.vaddr % PAGE:
            yield entry.vaddr, "a program header begins within a page, or has more bytes in the file than in memory"
        if entry.flags & ~(PF_R | PF_W | PF_X) or (entry.filesz and entry.flags & PF_W and not entry.flags & PF_R):
            yield entry.vaddr, "a program header has the rights 0x%x, which no mapping with content has" % entry.flags


def _order(core: CoreFile) -> Iterator[Contradiction]:
    """Mappings come by address; bytes of the file between two belong to one whose header is lost."""
    loads = [entry for entry in core.program_headers if entry.type == PT_LOAD]
    for load, after in zip(loads, loads[1:]):
        if load.vaddr > after.vaddr:
            yield load.vaddr, "a program header is not where its address belongs among the others"
    notes = [entry for entry in core.program_headers if entry.type == PT_NOTE]
    spans = sorted((entry.offset, entry.offset + entry.filesz, entry.vaddr) for entry in loads + notes if entry.filesz)
    for (_, end, _), (start, _, address) in zip(spans, spans[1:]):
        if start < end:
            yield address, "two program headers have the same bytes of the file"
        elif start - end >= (PAGE if core.is_by_kernel else MOST_GAP_BYTES):
            yield address, "%d bytes of the file before this mapping's belong to no program header" % (start - end)


def _files(core: CoreFile, page: int) -> Iterator[Contradiction]:
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
    mapped = Ranges((load.start, load.end) for load in core.loads)
    for entry in notes.dumped_files:
        load = core.find(entry.start)
        if entry.start >= entry.end:
            yield entry.start, "a mapped file ends before it begins in NT_FILE"
        elif (core.is_by_kernel or mapped.meets(entry.start, entry.end)) and (load is None or load[:2] != entry[:2]):
            yield entry.start, "no program header describes the mapping of %s that NT_FILE has here" % (entry.name or "a file")


def _auxv(core: CoreFile, objects: Sequence[Loaded]) -> Iterator[Contradiction]:
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
    header = parse_header(core.read_dumped(start, 64))
    if auxv.get(AT_ENTRY) and not start <= auxv[AT_ENTRY] < end:
        yield auxv[AT_ENTRY], "AT_ENTRY of the auxiliary vector lies outside the program at AT_PHDR"
    if header is not None and header.phnum != auxv.get(AT_PHNUM):
        yield auxv.get(AT_PHDR), "AT_PHNUM is %s, and the program has %d program headers" % (auxv.get(AT_PHNUM), header.phnum)


def _segments(core: CoreFile, objects: Sequence[Loaded], page: int) -> Iterator[Contradiction]:
    """Where an object's own headers and NT_FILE speak of the same mapping, they agree."""
    executable = Ranges((load.start, load.end) for load in core.loads if load.flags & PF_X)
    mapped = Ranges((load.start, load.end) for load in core.loads)
    for loaded in objects:
        name: Optional[str] = None
        for entry in loaded.program_headers():
            start = (loaded.base + entry.vaddr) & -page
            if entry.type != PT_LOAD or not entry.filesz:
                continue
            file, end = core.file_at(start), loaded.base + entry.vaddr + entry.memsz
            name = name or (file.name if file is not None else None)
            if entry.flags & PF_X and mapped.meets(start, start + 1) and not executable.meets(start, end):
                yield start, "code of %s has no right to be run" % (loaded.name or "the program")
            if file is not None and file.name == name and file.start == start and file.offset != entry.offset & -page:
                yield start, "NT_FILE has another place of %s here than the file's own headers" % name
