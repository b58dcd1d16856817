"""Reads without gdb: opens the target that cli.py was asked for and runs the command in this process.

Memory, threads, symbol tables and the debug information of one unit are read without gdb anyway (inferior/target.py). What is missing is
gdb's reading of debug information, for which tables of each release stand in, and its hold of a process, which only actions take.
"""

import os
import signal
from typing import Callable, Optional, cast

from gdbheapx import runner
from gdbheapx.errors import HeapxError
from gdbheapx.global_options import GLOBALS, GlobalOptions, pack
from gdbheapx.inferior.base import Target
from gdbheapx.inferior.target import DEBUG_DIRECTORY, ElfTarget
from gdbheapx.invocation import Invocation
from gdbheapx.open_target import debug_directories, open_source
from gdbheapx.problems import GDB_MISSING


def run(invocation: Invocation, fail: Callable[[str], None], refusal: Optional[HeapxError] = None) -> runner.Ended:
    """Run the command without gdb; with a refusal it ends with that."""
    asked = invocation.asked
    os.environ[GLOBALS] = pack(asked.words())  # for processes of this tool that a command may start
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)  # whoever started this may have had it ignored: threads are waited for

    def open_target() -> Optional[Target]:
        if refusal is not None:
            raise refusal
        if asked.snapshot is not None:
            from gdbheapx.snapshot.target import Snapshot

            return cast(Target, Snapshot(asked.snapshot))  # the runner asks of it what it asks of a target
        return open_alone(asked) if asked.pid is not None or asked.core is not None else None

    out = open(1, "w", buffering=1 << 16, encoding="utf-8", errors="surrogateescape", newline="", closefd=False)
    settings = runner.Settings(symbols_path=[os.path.abspath(one) for one in asked.symbols], debug_directories=asked.debug_dirs)
    return runner.perform(invocation.parsed, runner.Host("gdbheapx", out.write, fail, open_target, settings, out.flush))


def open_alone(asked: GlobalOptions) -> ElfTarget:
    """The core or process, read without gdb."""
    if asked.debuginfod:
        raise HeapxError("--debuginfod has gdb fetch debug files, and gdb is not used here", "omit it, or install gdb", code=GDB_MISSING)
    directories = () if asked.no_debug_info else (*debug_directories(asked), DEBUG_DIRECTORY)
    return ElfTarget(open_source(asked), directories, debug_info=not asked.no_debug_info)
