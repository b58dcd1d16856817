"""File mappings of a core that names none (qemu-user's have no NT_FILE): what the dynamic linker mapped, by the files given for it.

Such a core has no build-id either. A file is taken only if its dynamic section, with all its sizes and addresses, is the one in memory.
"""

import struct
from typing import Callable, List, NamedTuple, Optional

from gdbheapx.inferior.core.file import FileMapping
from gdbheapx.inferior.elf.file import PT_DYNAMIC, PT_LOAD, ElfFile
from gdbheapx.inferior.elf.link_map import DT_DEBUG, LinkMap

PAGE = 4096
"""The smallest page there is: a mapping begins and ends at a multiple of the target's, which is a multiple of this."""

Read = Callable[[int, int], bytes]


class FileShare(NamedTuple):
    """What one file accounts for."""

    name: str
    path: str
    mappings: List[FileMapping]
    matches: bool
    """Its dynamic section is the one in memory; nothing is taken from the file otherwise."""


def executable(path: str, name: str, program_headers: int, read: Read) -> Optional[FileShare]:
    """The program, by where the kernel told it that its program headers are."""
    file = open_elf(path)
    if file is None:
        return None
    at = file.header.phoff
    place = next(
        (one.vaddr - one.offset for one in file.program_headers() if one.type == PT_LOAD and one.offset <= at < one.offset + one.filesz), 0
    )
    return account(file, name, program_headers - at - place, read)  # the place is 0 but for a program that is linked to a fixed one


def libraries(link_map: LinkMap, host_path: Callable[[str], str], read: Read) -> List[FileShare]:
    """Everything in the dynamic linker's list that has a file here."""
    found = []
    for loaded in link_map.objects():
        path = host_path(loaded.name) if loaded.name.startswith("/") else ""
        file = open_elf(path) if path else None
        if file is not None:
            found.append(account(file, loaded.name, loaded.base, read))
    return found


def open_elf(path: str) -> Optional[ElfFile]:
    """The file, if it is an ELF file."""
    try:
        return ElfFile(path)
    except (OSError, ValueError):
        return None


def account(file: ElfFile, name: str, base: int, read: Read) -> FileShare:
    """Where the file's segments lie when it is loaded at `base`."""
    mappings = []
    for entry in file.program_headers():
        if entry.type == PT_LOAD and entry.filesz:
            start, end = base + entry.vaddr, base + entry.vaddr + entry.filesz
            mappings.append(FileMapping(start & -PAGE, (end + PAGE - 1) & -PAGE, entry.offset & -PAGE, name))
    return FileShare(name, file.path, mappings, bool(same_dynamic(file, base, read)))


def base_of(file: ElfFile, offset: int, address: int) -> Optional[int]:
    """The load bias of a file whose byte `offset` is mapped at `address`."""
    for entry in file.program_headers():
        if entry.type == PT_LOAD and entry.offset & -PAGE <= offset < entry.offset + entry.filesz:
            return address - offset - (entry.vaddr - entry.offset)
    return None


def same_dynamic(file: ElfFile, base: int, read: Read) -> Optional[bool]:
    """The dynamic section in memory is the file's, where ld.so may have added the base. True for a file that has none, None where memory
    does not tell."""
    entry = next((entry for entry in file.program_headers() if entry.type == PT_DYNAMIC), None)
    if entry is None:
        return True
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
