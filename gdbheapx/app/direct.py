"""Reads without gdb: opens the target that cli.py was asked for and runs the command in this process.

Memory, threads, symbol tables and the debug information of one unit are read without gdb anyway (inferior/target.py). What is missing is
gdb's reading of debug information, for which there are tables of each release, and its hold of a process, which only actions take.

Opens the core or process that the global options name, whether or not gdb helps to read it.
"""

import os
import signal
from typing import Callable, List, Optional, cast

from gdbheapx.app import runner
from gdbheapx.app.invocation import Invocation
from gdbheapx.command import output
from gdbheapx.common.errors import HeapxError
from gdbheapx.common.global_options import DUMPED, GLOBALS, UNPACKED, GlobalOptions, pack_words, unpack_words
from gdbheapx.common.problems import FILE_NOT_FOUND, FILE_UNREADABLE, GDB_MISSING, WRONG_FILE
from gdbheapx.inferior.base import Target
from gdbheapx.inferior.elf.file import ElfFile
from gdbheapx.inferior.source import CoreSource, TargetSource
from gdbheapx.inferior.target import DEBUG_DIRECTORY, ElfTarget


def open_source(asked: GlobalOptions) -> TargetSource:
    """Open the source of the target's bytes; a process is left running."""
    sysroot = os.path.abspath(asked.sysroot) if asked.sysroot else ""
    if sysroot and not os.path.isdir(sysroot):
        hint = "give the file tree of the machine the target ran on with --sysroot DIR"
        raise HeapxError("folder %s not found" % asked.sysroot, hint, code=FILE_NOT_FOUND)
    program, hint = os.path.abspath(asked.exe) if asked.exe else None, "give the program with --exe FILE"
    try:
        if asked.exe is not None:
            ElfFile(asked.exe)
    except OSError as error:
        raise HeapxError("cannot read the executable %s: %s" % (asked.exe, error.strerror), hint, code=FILE_UNREADABLE)
    except ValueError:
        raise HeapxError("the executable %s is not an ELF file" % asked.exe, hint, code=WRONG_FILE)
    if asked.core is None:
        if asked.pid and os.environ.get(DUMPED):
            from gdbheapx.common.addon_loader import load_capability

            dumped: TargetSource = load_capability("dumped", "capture").DumpedSource(asked.pid, int(os.environ[DUMPED]))
            return dumped
        from gdbheapx.inferior.live import procfs
        from gdbheapx.inferior.live.source import LiveSource

        procfs.check_alive(asked.pid or 0)
        return LiveSource(asked.pid or 0, sysroot, program)
    unpacked = unpack_words(os.environ.pop(UNPACKED, ""))
    if not unpacked:
        return CoreSource(asked.core, program, sysroot)
    from gdbheapx.snapshot.container import hide_secrets

    return CoreSource("/proc/self/fd/%s" % unpacked[0], program, sysroot, name=hide_secrets(asked.core), trouble=unpacked[1] or None)


def debug_directories(asked: GlobalOptions) -> List[str]:
    """The folders of --debug-dir."""
    return [] if asked.no_debug_info else [os.path.abspath(directory) for directory in asked.debug_dirs]


def run_direct(invocation: Invocation, fail: Callable[[str], None], refusal: Optional[HeapxError] = None) -> runner.CommandEnd:
    """Run the command without gdb; with a refusal it ends with that."""
    asked = invocation.asked
    os.environ[GLOBALS] = pack_words(asked.words())  # for processes of this tool that a command may start
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)  # whoever started this may have had it ignored: threads are waited for

    def open_target() -> Optional[Target]:
        if refusal is not None:
            raise refusal
        return open_any(asked)

    out = open(1, "w", buffering=1 << 16, encoding="utf-8", errors="surrogateescape", newline="", closefd=False)
    settings, shown = runner.Settings(debug_directories=asked.debug_dirs), output.screen_of(1, os.environ)
    host = runner.Host(
        "gdbheapx", out.write, fail, open_target, settings, out.flush, screen=shown, refusal=refusal, options=asked.of_target()
    )
    return runner.run_parsed(invocation.parsed, host)


def open_any(asked: GlobalOptions) -> Optional[Target]:
    """The process, core or snapshot; None where none is named."""
    if asked.snapshot is not None:
        from gdbheapx.snapshot.record import Snapshot

        return cast(Target, Snapshot(asked.snapshot))  # the runner asks of it what it asks of a target
    if asked.pid is None and asked.core is None:
        return None
    if asked.debuginfod:
        raise HeapxError("--debuginfod has gdb fetch debug files, and gdb is not used here", "omit it, or install gdb", code=GDB_MISSING)
    directories = () if asked.no_debug_info else (*debug_directories(asked), DEBUG_DIRECTORY)
    return ElfTarget(open_source(asked), directories, debug_info=not asked.no_debug_info)
