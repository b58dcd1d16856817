"""Find damage in a core: headers and notes that contradict each other, and missing memory that leads to blocks in every process.

fs/binfmt_elf.c (elf_core_dump, fill_files_note) and gdb's linux-tdep.c write cores; both write the memory of one mapping after the other.
The memory that must be there: writable segments of each loaded object without PT_GNU_RELRO, and of each thread the stack at its stack
pointer and the block at its thread pointer. The kernel dumps no mapping that was never written to, so that mappings count, not bytes.
"""

from typing import Iterator, List, Optional, Sequence, Tuple

from gdbheapx.inferior.base import Thread
from gdbheapx.inferior.core.file import AT_EXECFN, AT_RANDOM, CoreFile, find_writable_segments
from gdbheapx.inferior.elf.file import PF_R, PF_W, PF_X, PT_GNU_RELRO, PT_LOAD, PT_NOTE, parse_header
from gdbheapx.inferior.elf.link_map import AT_BASE, AT_PHDR, AT_PHNUM, Loaded
from gdbheapx.problems import CORE_DAMAGED, ROOTS_MISSING, Diagnostic
from gdbheapx.ranges import RangeIndex, subtract_ranges

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


def find_contradictions(core: CoreFile, objects: Sequence[Loaded], page: int) -> List[Diagnostic]:
    """Return the first contradictions among the core's headers, notes and loaded objects."""
    hint = "copy the core again, or take a new one"
    checks = (
        _check_types(core),
        _check_loads(core),
        _check_order(core),
        _check_files(core, page),
        _check_auxv(core, objects),
        _check_segments(core, objects, page),
    )
    found = [Diagnostic(CORE_DAMAGED, at, "the core is damaged: " + what, hint) for check in checks for at, what in _first_of_kind(check)]
    return found[:MOST]


def _first_of_kind(check: Iterator[Contradiction]) -> List[Contradiction]:
    """Return the first of a kind: the others mostly follow from it."""
    first = next(check, None)
    return [first] if first is not None else []


def _check_types(core: CoreFile) -> Iterator[Contradiction]:
    for entry in core.program_headers:
        if entry.type not in TYPES:
            yield entry.vaddr, "a program header has the type 0x%x, which no core has: its memory is not read" % entry.type


def _check_loads(core: CoreFile) -> Iterator[Contradiction]:
    for entry in core.program_headers:
        if entry.type != PT_LOAD:
            continue
        if entry.filesz > entry.memsz or entry.vaddr % PAGE:
            yield entry.vaddr, "a program header begins within a page, or has more bytes in the file than in memory"
        if entry.flags & ~(PF_R | PF_W | PF_X) or (entry.filesz and entry.flags & PF_W and not entry.flags & PF_R):
            yield entry.vaddr, "a program header has the rights 0x%x, which no mapping with content has" % entry.flags


def _check_order(core: CoreFile) -> Iterator[Contradiction]:
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
    header = parse_header(core.read_dumped(start, 64))
    if auxv.get(AT_ENTRY) and not start <= auxv[AT_ENTRY] < end:
        yield auxv[AT_ENTRY], "AT_ENTRY of the auxiliary vector lies outside the program at AT_PHDR"
    if header is not None and header.phnum != auxv.get(AT_PHNUM):
        yield auxv.get(AT_PHDR), "AT_PHNUM is %s, and the program has %d program headers" % (auxv.get(AT_PHNUM), header.phnum)


def _check_segments(core: CoreFile, objects: Sequence[Loaded], page: int) -> Iterator[Contradiction]:
    """Compare an object's own headers with NT_FILE."""
    executable = RangeIndex((load.start, load.end) for load in core.loads if load.flags & PF_X)
    mapped = RangeIndex((load.start, load.end) for load in core.loads)
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


FAULTS = (7, 11)
"""SIGBUS and SIGSEGV: the stack pointer of the thread that died may be what went wrong."""


def find_missing_roots(core: CoreFile, objects: Sequence[Loaded], threads: Sequence[Thread], page: int) -> List[Diagnostic]:
    """The first data segment of an object and the first stack that the core does not have; nothing where program headers were cut off."""
    if core.missing_headers > 0:
        return []
    mapped = RangeIndex((load.start, load.end) for load in core.loads)
    writable = RangeIndex((load.start, load.end) for load in core.loads if load.flags & PF_W and load.flags & PF_R)
    # gdb gives no header to what of a file nobody has written to
    clean = RangeIndex(() if core.is_by_kernel else ((file.start, file.end) for file in core.notes().files))
    checks = (_find_missing_data(objects, mapped, writable, clean, page), _find_missing_stacks(threads, writable))
    found = [next(check, None) for check in checks]
    hint = "without it no block can be called leaked: copy the core again, or take a new one"
    return [Diagnostic(ROOTS_MISSING, one[0], one[1], hint) for one in found if one is not None]


def _find_missing_data(
    objects: Sequence[Loaded], mapped: RangeIndex, writable: RangeIndex, clean: RangeIndex, page: int
) -> Iterator[Tuple[int, str]]:
    for loaded in objects:
        headers = loaded.program_headers()
        relro = RangeIndex(
            ((loaded.base + entry.vaddr) & -page, (loaded.base + entry.vaddr + entry.memsz) & -page)
            for entry in headers
            if entry.type == PT_GNU_RELRO
        )
        for segment in find_writable_segments(headers, loaded.base):
            start, middle, end = segment.start & -page, -(-segment.file_end // page) * page, -(-segment.end // page) * page
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
