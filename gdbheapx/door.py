"""The shell door's half inside gdb: opens the target that cli.py was asked for, runs the command, and ends gdb with its exit code."""

import os
import sys
from typing import Any, Dict, List, NoReturn, Optional

from gdbheapx import loader, runner
from gdbheapx.cli import FD, GLOBALS, WORDS, Globals, unpack
from gdbheapx.errors import HeapxError
from gdbheapx.target import gdb_target, procfs
from gdbheapx.target.base import Target
from gdbheapx.target.source import CoreSource, LiveSource

QUIET = (
    "set confirm off",
    "set pagination off",
    "set width 0",
    "set height 0",
    "set auto-load off",
    "set auto-solib-add off",
    "set max-value-size unlimited",
)


class Out:
    """The real standard output, which gdb itself does not have."""

    def __init__(self, descriptor: int) -> None:
        self._file: Any = open(descriptor, "w", buffering=1 << 16, encoding="utf-8", errors="surrogateescape", newline="")

    def write(self, text: str) -> None:
        """Write; BrokenPipeError when nobody reads any more."""
        self._file.write(text)

    def flush(self) -> None:
        """Hand on what is buffered."""
        self._file.flush()


def main() -> NoReturn:
    """Run the command that cli.py left in the environment. gdb ends here: nothing is attached to it, so nothing is lost."""
    code = 1
    try:
        code = serve()
    except BrokenPipeError:
        code = 0
    except BaseException as error:  # whatever happens, one line and no gdb prompt
        fail("gdbheapx: internal error: %s" % " ".join(("%s: %s" % (type(error).__name__, error)).split()))
    finally:
        os._exit(code)


def serve() -> int:
    """The exit code of the command."""
    words, asked = unpack(os.environ.pop(WORDS)), Globals.from_words(unpack(os.environ.pop(GLOBALS)))
    out = Out(int(os.environ.pop(FD)))
    loader.load_commands()
    runner.set_debugger_version(gdb_target.version())
    ended = runner.run(words, runner.Door("gdbheapx", out.write, fail, lambda: open_target(asked), runner.Settings()))
    out.flush()
    if ended.line is not None:
        fail("gdbheapx: " + ended.line)
    return ended.code


def fail(line: str) -> None:
    """One line of an error."""
    sys.__stderr__.write(line + "\n") if sys.__stderr__ is not None else os.write(2, os.fsencode(line + "\n"))


def open_target(asked: Globals) -> Optional[Target]:
    """The core or process, with the debug information that answers are made from; a process is left running."""
    for setting in QUIET + ("set debuginfod enabled %s" % ("on" if asked.debuginfod else "off"),):
        gdb_target.quiet(setting)
    if asked.pid is None and asked.core is None:
        return None
    directories = [os.path.abspath(one) for one in asked.debug_dirs]
    gdb_target.set_debug_directories([] if asked.no_debug_info else directories, keep=not asked.no_debug_info)
    if asked.sysroot:
        gdb_target.execute("set sysroot %s" % os.path.abspath(asked.sysroot))
    target = open_core(asked) if asked.core is not None else open_process(asked)
    if not asked.no_debug_info:
        target.add_symbols(target.is_needed)
    return target


def open_core(asked: Globals) -> gdb_target.GdbTarget:
    """The core, read by ourselves; gdb only reads debug information."""
    check_executable(asked.exe)
    source = CoreSource(str(asked.core), os.path.abspath(asked.exe) if asked.exe else None, os.path.abspath(asked.sysroot) if asked.sysroot else "")
    return gdb_target.GdbTarget(source, debug_info=not asked.no_debug_info)


def open_process(asked: Globals) -> gdb_target.GdbTarget:
    """The process, still running."""
    check_executable(asked.exe)
    pid = asked.pid or 0
    procfs.check_alive(pid)
    source = LiveSource(pid, os.path.abspath(asked.sysroot) if asked.sysroot else "", os.path.abspath(asked.exe) if asked.exe else None)
    return gdb_target.GdbTarget(source, debug_info=not asked.no_debug_info)


def check_executable(path: Optional[str]) -> None:
    """--exe must name a file that can be read."""
    if path is not None and not os.access(path, os.R_OK):
        raise HeapxError("the executable %s cannot be read" % path, "give the program with --exe FILE")
