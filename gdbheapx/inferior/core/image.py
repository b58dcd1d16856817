"""What stands in an object's image: constants and the first state of thread-local storage, from its file; which of it a
core has."""

from typing import Iterator, List, NamedTuple, Sequence, Tuple

from gdbheapx.inferior.base import Mapping, Segment
from gdbheapx.inferior.elf.file import PT_LOAD, PT_TLS, SHT_NOBITS, ElfFile, ProgramHeader

MOST_CONSTANT_BYTES = 64 << 20
"""Of one object: more is not searched."""
PIECE_BYTES, OVERLAP_BYTES = 4 << 20, 4096
"""How much is read at once; a text shorter than the overlap lies whole in one of two pieces."""
MOST_THREAD_LOCAL_BYTES = 1 << 20


class WritableSegment(NamedTuple):
    """One writable PT_LOAD where it was loaded."""

    start: int
    file_end: int
    """Behind what comes from the file; what follows up to `end` begins as zeros (.bss)."""
    end: int


def writable(headers: Sequence[ProgramHeader], base: int) -> List[WritableSegment]:
    """The writable segments of an object with this load bias."""
    found = [entry for entry in headers if entry.type == PT_LOAD and entry.writable]
    return [WritableSegment(base + one.vaddr, base + one.vaddr + min(one.filesz, one.memsz), base + one.vaddr + one.memsz) for one in found]


def writable_mappings(mappings: Sequence[Mapping], start: int, end: int) -> List[WritableSegment]:
    """The same by what was mapped from `start` to `end`, where the object's headers cannot be read. What is behind its last mapping and has
    no name is its .bss."""
    found = [WritableSegment(one.start, one.end, one.end) for one in mappings if one.writable and start <= one.start < end]
    rest = next((one for one in mappings if one.start == end and one.writable and not one.name), None)
    if rest is not None and found and found[-1].end == end:
        found[-1] = found[-1]._replace(end=rest.end)
    elif rest is not None:
        found.append(WritableSegment(end, end, rest.end))
    return found


def constants(file: ElfFile) -> Iterator[bytes]:
    """Its sections .rodata*, or without section headers its segments that are not writable, in pieces that overlap."""
    left = MOST_CONSTANT_BYTES
    for offset, size_bytes in _constant_spans(file):
        size_bytes = min(size_bytes, left)
        left -= size_bytes
        for at in range(0, size_bytes, PIECE_BYTES):
            yield file.pread(offset + at, min(PIECE_BYTES + OVERLAP_BYTES, size_bytes - at))


def _constant_spans(file: ElfFile) -> List[Tuple[int, int]]:
    named = [(one.offset, one.size_bytes) for one in file.sections() if one.name.startswith(".rodata") and one.type != SHT_NOBITS]
    return named or [(one.offset, one.filesz) for one in file.program_headers() if one.type == PT_LOAD and not one.writable]


def has_all_constants(file: ElfFile) -> bool:
    """`constants` gives all of them: there are some, the file holds them, and they are no more than it reads."""
    spans = _constant_spans(file)
    sizes = [size_bytes for _, size_bytes in spans]
    is_there = all(not size_bytes or file.pread(offset + size_bytes - 1, 1) for offset, size_bytes in spans)
    return 0 < sum(sizes) <= MOST_CONSTANT_BYTES and is_there


def dumps_all_constants(headers: Sequence[ProgramHeader], base: int, segments: Sequence[Segment]) -> bool:
    """`dumped_constants` gives all of them: gdb dumps the whole first segment of an object, with its dynamic symbols, and not the one that
    has .rodata; the kernel one page."""
    constant = [entry for entry in headers if entry.type == PT_LOAD and not entry.writable and entry.filesz]
    sizes = [sum(high - low for low, high in dumped(segments, base + one.vaddr, base + one.vaddr + one.filesz)) for one in constant]
    return 0 < sum(sizes) <= MOST_CONSTANT_BYTES and sizes == [one.filesz for one in constant]


def dumped_constants(headers: Sequence[ProgramHeader], base: int, segments: Sequence[Segment]) -> Iterator[Tuple[int, int]]:
    """(address, size_bytes) of what a core itself has of the object's segments that are not writable, in pieces that overlap."""
    left = MOST_CONSTANT_BYTES
    for entry in headers:
        is_constant = entry.type == PT_LOAD and not entry.writable
        for low, high in dumped(segments, base + entry.vaddr, base + entry.vaddr + entry.filesz) if is_constant else ():
            size_bytes = min(high - low, left)
            left -= size_bytes
            for at in range(0, size_bytes, PIECE_BYTES):
                yield low + at, min(PIECE_BYTES + OVERLAP_BYTES, size_bytes - at)


def thread_local(file: ElfFile) -> bytes:
    """What PT_TLS has in the file: what each thread's block begins with, without the zeros behind it."""
    entry = next((one for one in file.program_headers() if one.type == PT_TLS), None)
    return b"" if entry is None else file.pread(entry.offset, min(entry.filesz, MOST_THREAD_LOCAL_BYTES))


def dumped(segments: Sequence[Segment], start: int, end: int) -> List[Tuple[int, int]]:
    """The parts of this range whose bytes are in a core's file."""
    parts = [(max(start, one.address), min(end, one.address + one.size_bytes)) for one in segments]
    return [(low, high) for low, high in parts if low < high]


def maps_text(mappings: Sequence[Mapping]) -> str:
    """As /proc/PID/maps would have shown them; device and inode, which no core holds, are 0."""
    lines = []
    for one in mappings:
        rights = "".join(letter if there else "-" for letter, there in zip("rwx", (one.readable, one.writable, one.executable)))
        name = one.name.replace("\n", "\\012")  # as the kernel writes it
        lines.append(("%08x-%08x %sp %08x 00:00 0 %s" % (one.start, one.end, rights, one.offset, name)).rstrip(" "))
    return "\n".join(lines)
