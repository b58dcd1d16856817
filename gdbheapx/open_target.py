"""Opens the core or process that the global options name, whether or not gdb helps to read it."""

import os
from typing import List, Optional

from gdbheapx.errors import HeapxError
from gdbheapx.global_options import UNPACKED, GlobalOptions, unpack
from gdbheapx.inferior.elf.file import ElfFile
from gdbheapx.inferior.source import CoreSource, Source
from gdbheapx.problems import FILE_NOT_FOUND, FILE_UNREADABLE, WRONG_FILE


def open_source(asked: GlobalOptions) -> Source:
    """Where the target's bytes come from; a process is left running."""
    sysroot = os.path.abspath(asked.sysroot) if asked.sysroot else ""
    if sysroot and not os.path.isdir(sysroot):
        raise HeapxError(
            "folder %s not found" % asked.sysroot,
            "give the file tree of the machine the target ran on with --sysroot DIR",
            code=FILE_NOT_FOUND,
        )
    check_executable(asked.exe)
    program = os.path.abspath(asked.exe) if asked.exe else None
    if asked.core is None:
        from gdbheapx.inferior.live import procfs
        from gdbheapx.inferior.live.source import LiveSource

        procfs.check_alive(asked.pid or 0)
        return LiveSource(asked.pid or 0, sysroot, program)
    found = unpack(os.environ.pop(UNPACKED, ""))
    if not found:
        return CoreSource(asked.core, program, sysroot)
    return CoreSource("/proc/self/fd/%s" % found[0], program, sysroot, name=asked.core, trouble=found[1] or None)


def check_executable(path: Optional[str]) -> None:
    """--exe must name a program that can be read."""
    hint = "give the program with --exe FILE"
    try:
        if path is not None:
            ElfFile(path)
    except OSError as error:
        raise HeapxError("cannot read the executable %s: %s" % (path, error.strerror), hint, code=FILE_UNREADABLE)
    except ValueError:
        raise HeapxError("the executable %s is not an ELF file" % path, hint, code=WRONG_FILE)


def debug_directories(asked: GlobalOptions) -> List[str]:
    """The folders of --debug-dir."""
    return [] if asked.no_debug_info else [os.path.abspath(one) for one in asked.debug_dirs]
