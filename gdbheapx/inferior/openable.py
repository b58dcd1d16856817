"""A name by which gdb opens one certain file, and the same file when it opens it again; or a copy of it without debug information.

gdb resolves the symbolic links of a name as text and goes on with the result. /proc/PID/root and /proc/PID/map_files are links that no text
can resolve: the result is a path of the process's own tree, and what this machine has there may be another file. gdb then reads one
file by the other's headers: it dies of SIGBUS or of an internal error, or tells what is wrong.

For unwinding gdb needs the tables and symbols alone. Debug information would cost: of each frame's unit it reads everything, seconds for
one that was compiled with -g3, while the process stands still.
"""

import os
import stat
import struct
from typing import Callable, Dict, List, Optional, Tuple

from gdbheapx.files import HANDLE, TargetPath, copy_of, open_regular, send, unnamed_or_in_memory, walk
from gdbheapx.inferior.elf.file import PT_LOAD, SHT_NOBITS, ElfFile

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
            self._names[key] = self._made(path, debug_info)
        return self._names[key]

    def _made(self, path: str, debug_info: bool) -> Optional[str]:
        if not debug_info and has_debug_info(path):
            name = self._copy(path, without_debug_info)
            if name is not None:
                return name
        return path if is_fixed(path) and resolves(path) else self._copy(path, copy_of)

    def _copy(self, path: str, make: Callable[[str], int]) -> Optional[str]:
        try:
            self._copies.append(make(path))
        except (OSError, ValueError):
            return None
        return "/proc/self/fd/%d" % self._copies[-1]


def has_debug_info(path: str) -> bool:
    """The ELF file has debug information in it."""
    try:
        file = ElfFile(path)
    except (OSError, ValueError):
        return False
    return file.has_section(".debug_info") or file.has_section(".zdebug_info")


def without_debug_info(path: str) -> int:
    """A descriptor of a copy without a name in which the debug sections are declared empty and are holes."""
    file, source = ElfFile(path), open_regular(path)
    header = file.header
    descriptor = unnamed_or_in_memory()
    try:
        os.ftruncate(descriptor, os.fstat(source).st_size)
        spans = [(0, header.phoff + header.phnum * header.phentsize), (header.shoff, header.shnum * header.shentsize)]
        spans += [(entry.offset, entry.filesz) for entry in file.program_headers() if entry.type == PT_LOAD]
        kept = [part for part in file.sections() if part.type != SHT_NOBITS and not part.name.startswith(DEBUG)]
        for at, size_bytes in spans + [(part.offset, part.size_bytes) for part in kept]:
            os.lseek(descriptor, at, os.SEEK_SET)
            send(descriptor, source, at, size_bytes)
        for number, section in enumerate(file.sections()):
            if section.name.startswith(DEBUG):
                os.pwrite(descriptor, struct.pack(header.order + "I", SHT_NOBITS), header.shoff + number * header.shentsize + 4)
    except OSError:
        os.close(descriptor)
        raise
    finally:
        os.close(source)
    return descriptor


def is_fixed(path: str) -> bool:
    """Nobody but root and this user can have another file lie at the path when gdb opens it."""
    if not isinstance(path, TargetPath):
        return True
    if path.root is None or path.root.startswith("/proc/"):
        return False
    if path.root != "/":
        return True  # --sysroot
    try:
        top = os.open("/", HANDLE)
        try:
            os.close(walk(top, path, _check_ours))
        finally:
            os.close(top)
    except OSError:
        return False
    return True


def _check_ours(status: os.stat_result) -> None:
    is_open = status.st_mode & (stat.S_IWGRP | stat.S_IWOTH) and not status.st_mode & stat.S_ISVTX
    if status.st_uid not in (0, os.geteuid()) or (is_open and not stat.S_ISLNK(status.st_mode)):
        raise PermissionError("others may change it")


def resolves(path: str) -> bool:
    """The path with its links resolved as text is the same file, or none: then gdb keeps the path as it is."""
    try:
        status = os.stat(os.path.realpath(path))
    except OSError:
        return True
    try:
        return os.path.samestat(status, os.stat(path))
    except OSError:
        return False
