"""The entry point inside gdb: opens the target that cli.py was asked for, runs the command, and ends gdb with its exit code.

The target is opened first, and what is not needed for that is imported afterwards: gdb's threads go on reading debug information meanwhile.
"""

import gc
import importlib
import json
import os
import signal
import threading
from typing import Any, Callable, List, NoReturn, Optional

from gdbheapx.app.direct import debug_directories, open_source
from gdbheapx.app.gdb_process import BEGUN, CODES, INTERRUPTED, STARTED, STATE
from gdbheapx.command.output import Screen
from gdbheapx.common.errors import HeapxError
from gdbheapx.common.global_options import COMMAND, FD, GLOBALS, SCREEN, GlobalOptions, split_words, unpack_words
from gdbheapx.inferior.base import Target
from gdbheapx.inferior.gdb import target as gdb_target
from gdbheapx.inferior.live.tracer import end_with_parent

QUIET = (
    "set confirm off",
    "set pagination off",
    "set width 0",
    "set height 0",
    "set auto-load off",
    "set auto-solib-add off",
    "set max-value-size unlimited",
    "maint set backtrace-on-fatal-signal off",  # since gdb 12; the parent has the line to say
)


class StandardOutput:
    """The real standard output, which gdb itself does not have."""

    def __init__(self, descriptor: int, begun: Callable[[], None]) -> None:
        self.descriptor = descriptor
        self._file: Any = open(descriptor, "w", buffering=1 << 16, encoding="utf-8", errors="surrogateescape", newline="")
        self._begun = begun

    def write(self, text: str) -> None:
        """Write; BrokenPipeError when no one reads any more."""
        self._begun()
        self._file.write(text)

    def flush(self) -> None:
        """Hand on what is buffered."""
        self._file.flush()


class GdbStatus:
    """The line to the parent (gdb_process.py), which reports what became of gdb where this one cannot."""

    def __init__(self, text: str) -> None:
        self.descriptor, parent, self.heard = map(int, text.split(","))
        for descriptor in (self.descriptor, self.heard):
            os.set_inheritable(descriptor, False)
        self.has_begun = False
        end_with_parent(signal.SIGKILL)
        if os.getppid() != parent:  # it has ended already
            os._exit(1)

    def write(self, what: bytes) -> None:
        """Report how far this one is."""
        try:
            os.write(self.descriptor, what)
        except OSError:  # nobody listens any more
            pass

    def begun(self) -> None:
        """A part of the answer is handed on."""
        if not self.has_begun:
            self.has_begun = True
            self.write(BEGUN)

    def end(self, code: int) -> NoReturn:
        """End gdb with this exit code."""
        self.write(CODES[code : code + 1])
        os._exit(code)


def main() -> NoReturn:
    """Run the command that cli.py left in the environment. gdb ends here: nothing is attached to it, so nothing is lost."""
    command, state, code = os.environ.pop(COMMAND), os.environ.pop(STATE), 1
    status = GdbStatus(state)
    # it lives until gdb ends: Python 3.13 complains aloud of one that is finalized and cannot be flushed
    out = StandardOutput(int(os.environ.pop(FD)), status.begun)
    try:
        status.write(STARTED)
        code = serve_command(out, command, status)
    except KeyboardInterrupt:  # before the runner listens, or after it: the parent knows which signal it was
        if not status.has_begun:
            os._exit(INTERRUPTED)
        fail_with("gdbheapx: interrupted")
    except BaseException as error:  # whatever happens, one line and no gdb prompt
        report_crash(out, command, error, status.has_begun)
    finally:
        status.end(code)


def report_crash(out: StandardOutput, command: str, error: BaseException, has_begun: bool) -> None:
    """Report what no one else has caught."""
    from gdbheapx.app import runner

    name, options = json.loads(command)
    defect = runner.make_internal_error(error, "gdbheapx %s --traceback" % name)
    fail_with("gdbheapx: " + runner.error_line(defect))
    if not has_begun and options["json"]:
        out.write(runner.envelope_of_command(name, defect))
        out.flush()


def serve_command(out: StandardOutput, command: str, status: GdbStatus) -> int:
    """The exit code of the command."""
    asked = split_words(unpack_words(os.environ.pop(GLOBALS)))[0]
    opened: List[Optional[Target]] = []
    refusals: List[BaseException] = []
    gc.disable()  # importing makes little garbage and much that is looked through for it: a tenth of its time
    warming = start_warming(command, out, status, is_live=asked.pid is not None)
    try:
        opened.append(open_target(asked))
    except (Exception, KeyboardInterrupt) as error:  # told by the runner, unless the command line is wrong
        refusals.append(error)
    warming.join()

    def hand_over() -> Optional[Target]:
        if refusals:
            raise refusals[0]
        return opened[0]

    from gdbheapx.app import invocation, runner
    from gdbheapx.common import budget

    parsed = invocation.handed_over(command)
    if not invocation.changes_process(parsed):
        budget.limit_look()
    gc.enable()
    runner.set_debugger_version(gdb_target.read_gdb_version())
    settings = runner.Settings(debug_directories=asked.debug_dirs)
    shown = Screen(*json.loads(os.environ.pop(SCREEN)))
    host = runner.Host("gdbheapx", out.write, fail_with, hand_over, settings, out.flush, screen=shown, options=asked.of_target())
    ended = runner.run_parsed(parsed, host)
    if ended.line is not None:
        fail_with("gdbheapx: " + ended.line)
    return ended.code


def start_watchdog(command: str, out: StandardOutput, status: GdbStatus) -> None:
    """Have the watchdog of the native library end gdb where a signal or --max-seconds does not. It was started for this command alone."""
    from gdbheapx import kernel
    from gdbheapx.app import runner
    from gdbheapx.kernel.common import watchdog

    name, options = json.loads(command)

    def document(error: HeapxError) -> str:
        return runner.envelope_of_command(name, error) if options["json"] and not options.get("output") else ""

    watchdog.start_watching(kernel.loaded_library(), options["max_seconds"], document, out.descriptor, status.descriptor, status.heard)


def start_warming(command: str, out: StandardOutput, status: GdbStatus, is_live: bool) -> threading.Thread:
    """Import, while gdb reads debug information, what the command will need; gdb lets other Python threads run meanwhile.

    `is_live`: also what the command itself imports while it runs, so that a stopped process does not wait for that.
    """

    def warm() -> None:
        try:
            from gdbheapx import allocators
            from gdbheapx.allocators import discovery
            from gdbheapx.app import invocation, runner
            from gdbheapx.report import encodings, text

            parsed = invocation.handed_over(command)
            start_watchdog(command, out, status)
            if not parsed.options.json:
                text.preload_tabulate()
            del runner, discovery, encodings
            for entry in allocators.all_allocators():
                entry.warm()
            for needed in parsed.command.needs if is_live else ():
                importlib.import_module(needed)
        except Exception:  # whatever is wrong shows again, and is told, where it is used
            pass

    thread = threading.Thread(target=warm, daemon=True)
    before = signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())  # signals belong to gdb's main thread
    thread.start()
    signal.pthread_sigmask(signal.SIG_SETMASK, before)
    return thread


def fail_with(line: str) -> None:
    """Write an error in one line."""
    os.write(2, line.encode("utf-8", "surrogateescape") + b"\n")


def open_target(asked: GlobalOptions) -> Optional[Target]:
    """The core or process, with the debug information that answers are made from; a process is left running. gdb never opens a core
    itself."""
    for setting in QUIET + ("set debuginfod enabled %s" % ("on" if asked.debuginfod else "off"),):
        gdb_target.try_gdb(setting)
    if asked.pid is None and asked.core is None:
        return None
    gdb_target.set_debug_directories(debug_directories(asked), keep=not asked.no_debug_info)
    source = open_source(asked)
    if asked.sysroot:
        gdb_target.execute_gdb("set sysroot %s" % os.path.abspath(asked.sysroot))
    target = gdb_target.GdbTarget(source, debug_info=not asked.no_debug_info)
    if not asked.no_debug_info:
        target.add_symbols(target.is_needed)
    return target
