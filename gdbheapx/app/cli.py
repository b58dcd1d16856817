"""The entry point of the shell: understands the command line and has it answered, by this process or, where gdb is needed, inside one.
Imports as little as possible: it is paid for by every call."""

import os
import sys
from typing import TYPE_CHECKING, Callable, List, NoReturn, Optional, Sequence

from gdbheapx.app import invocation
from gdbheapx.app.invocation import Invocation
from gdbheapx.common import addon_loader
from gdbheapx.common.errors import HeapxError, Interrupted, UsageError
from gdbheapx.common.files import open_standard
from gdbheapx.common.global_options import COMMAND, DUMPED, FD, GLOBALS, SCREEN, STANDS_BY, Wrong, pack_words, split_words
from gdbheapx.common.problems import GDB_MISSING, NO_TARGET

if TYPE_CHECKING:
    from gdbheapx.inferior.live.keeper import Keeper

NO_GDB = "none"
"""As --gdb, or in GDBHEAPX_GDB: no gdb is to be used."""
RARELY = 50_000
"""How many more objects than before make Python look for garbage: importing makes little of it, and much that is looked through."""
GDBINIT = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "gdbinit.py")
"""What gdb sources; of the single file it is that file (tools/make_single.py)."""
HELP = (["help"], ["-h"], ["--help"], ["--help-all"])
"""A first word that asks for help."""
SIGNALS = {1: "SIGHUP", 2: "Ctrl-C", 15: "SIGTERM"}
"""Their numbers, as the module signal has them, and how they are called here."""


def named_gdb(given: Optional[str]) -> Optional[str]:
    """The gdb that the user has named."""
    return given or os.environ.get("GDBHEAPX_GDB") or None


def find_gdb(given: Optional[str]) -> Optional[str]:
    """The gdb to run."""
    from gdbheapx.common.child_python import find_program

    name = named_gdb(given) or "gdb"
    return None if name == NO_GDB else find_program(name)


def run_gdb(gdb: str, asking: Invocation, keeper: "Optional[Keeper]" = None) -> int:
    """Run the command inside gdb, whose own chatter goes to standard error; our output has the real standard output as another
    descriptor."""
    import json

    from gdbheapx.app import gdb_process
    from gdbheapx.command.output import screen_of
    from gdbheapx.kernel.common import watchdog

    watchdog.hold_off()  # gdb has one of its own
    asked = asking.asked
    out = os.dup(1)
    os.set_inheritable(out, True)
    arguments = [gdb, "-nx", "-q", "-batch", *(["-readnever"] if asked.no_debug_info else []), "-x", GDBINIT]
    arguments += ["-ex", "quit %d" % gdb_process.NO_PYTHON]  # reached only where gdbinit.py was not run
    names = {FD: str(out), COMMAND: asking.handed_on(), GLOBALS: pack_words(asked.words())}
    names[SCREEN] = json.dumps(screen_of(1, os.environ))
    names.update(keeper.inherited() if keeper is not None else {})
    try:
        code, has_begun, error = gdb_process.run_gdb_process(arguments, names, asked.pid, keeper.close if keeper is not None else None)
        if keeper is not None:
            keeper.end()
    except OSError as failed:
        gdb_process.let_through()
        cause = "cannot run %s: %s" % (gdb, failed.strerror)
        return run_here(asking, HeapxError(cause, "choose another gdb with --gdb PATH", code=GDB_MISSING))
    if code is not None:
        os._exit(code)  # the interpreter's own end would take a few milliseconds
    gdb_process.let_through()
    return end_with_error((), error) if has_begun and error is not None else run_here(asking, error)


def main(words: Optional[Sequence[str]] = None) -> int:
    """The entry point `gdbheapx`."""
    heed_signals()
    open_standard()
    typed = list(sys.argv[1:] if words is None else words)
    return run_interruptible(typed, lambda: dispatch_words(typed))


def heed_signals() -> None:
    """Turn signals that ask this process to end into a KeyboardInterrupt, which names the signal. Ignored signals stay ignored."""
    import signal

    def raise_interrupt(number: int, frame: object) -> NoReturn:
        raise KeyboardInterrupt(SIGNALS[number])

    for number in SIGNALS:
        if signal.getsignal(number) != signal.SIG_IGN:
            signal.signal(number, raise_interrupt)


def run_interruptible(words: Sequence[str], ask: Callable[[], int]) -> int:
    """Run `ask` for these words and return the exit code, also if it is interrupted."""
    try:
        return ask()
    except KeyboardInterrupt as error:
        import signal

        for number in SIGNALS:  # further ones are ignored while this one is reported
            signal.signal(number, signal.SIG_IGN)
        return end_with_error(words, Interrupted(error.args[0] if error.args else "Ctrl-C"))


def dispatch_words(words: List[str]) -> int:
    """Run what the words ask for."""
    try:
        asked, rest = split_words(words)
        if os.environ.pop(STANDS_BY, None):
            standby = addon_loader.load_capability("standby", "a watch that takes snapshots")
            return int(standby.stand_by(asked, perform_interruptible))
        if rest[:1] == ["--version"]:
            from gdbheapx.common import __version__

            return print_text("gdbheapx %s\n" % __version__)
        if rest[:1] == ["gdbinit"]:
            return print_startup_path(rest[1:])
        if rest[:1] not in HELP:
            asked, rest = invocation.with_target(asked, rest)
    except Wrong as error:
        from gdbheapx.report.text import escape_line

        code = end_with_error(words, UsageError(str(error), error.hint or "try: gdbheapx --help"))
        for choice in error.choices:
            print_error(escape_line(choice))
        return code
    if rest[:1] in HELP or not (rest or asked.has_target):
        return show_help(rest, bool(rest))
    try:
        understood = invocation.understand_words(asked, rest)
    except UsageError as error:
        return end_with_error(rest, error)
    return render_invocation(understood, understood.renderer) if understood.renderer is not None else perform_invocation(understood)


def print_startup_path(words: List[str]) -> int:
    """`gdbinit`: the path of the file for gdb; with options, the line that has each gdb source it."""
    if not words:
        return print_text(GDBINIT + "\n")
    from gdbheapx.app import gdb_startup

    try:
        return gdb_startup.run_startup(words, GDBINIT, print_text)
    except HeapxError as error:
        return end_with_error((), error)


def render_invocation(asking: Invocation, renderer: str) -> int:
    """Have something else made of what one look finds than the command's own answer."""

    def fail_render(error: HeapxError, has_document: bool) -> int:
        return end_with_error(() if has_document else asking.words, error)

    try:
        make = addon_loader.load_capability(renderer, "%s --%s" % (asking.command.name, renderer)).make
    except HeapxError as error:
        return end_with_error(asking.words, error)
    return int(make(asking, invocation.Shell(perform_interruptible, print_text, print_error, fail_render)))


def perform_interruptible(asking: Invocation) -> int:
    """Have the command answer, for who goes on after it."""
    return run_interruptible(asking.words, lambda: perform_invocation(asking))


def perform_invocation(asking: Invocation) -> int:
    """Have the command answer: here, or where it takes one inside gdb."""
    asked, declared = asking.asked, asking.command
    if asking.parsed.help is not None:
        return run_here(asking)
    if not asked.has_target and declared.needs_target:
        from gdbheapx.command import name_a_target

        cause = "%s requires a process or a core" % declared.name
        return end_with_error(asking.words, UsageError(cause, name_a_target(declared.name), code=NO_TARGET))
    if declared.repeats:
        return run_here(asking)
    if asked.snapshot is not None:
        watch_invocation(asking)
        return run_here(asking)
    named = named_gdb(asked.gdb)
    gdb = find_gdb(asked.gdb) if named is not None or asking.needs_gdb else None
    if gdb is None and named not in (None, NO_GDB) and (asked.has_target or asked.gdb):
        next_step = "give the path of a gdb with --gdb PATH, or read without it: --gdb none"
        return run_here(asking, HeapxError("%s is not an executable file" % named, next_step, code=GDB_MISSING))
    keeper = start_keeper() if asked.pid is not None and not os.environ.get(DUMPED) else None
    if gdb is None or asked.core is not None:
        watch_invocation(asking)
    refused = invocation.prepare_core(asked.core, asking.options.max_seconds) if asked.core is not None else None
    if gdb is not None and refused is None and (asked.has_target or declared.tells_of_gdb):
        return run_gdb(gdb, asking, keeper)
    return run_here(asking, refused)


def watch_invocation(asking: Invocation) -> None:
    """Have a signal or --max-seconds end this process from now on, even where Python does not notice it."""
    from gdbheapx import kernel
    from gdbheapx.kernel.common import watchdog

    def error_document(error: HeapxError) -> str:
        from gdbheapx.app import runner

        has_file = bool(getattr(asking.options, "output", None))
        return runner.envelope_of_command(asking.command.name, error) if asking.options.json and not has_file else ""

    watchdog.start_watching(kernel.loaded_library(), asking.options.max_seconds, error_document)


def start_keeper() -> "Optional[Keeper]":
    """The process that holds the other one stopped, forked while this one is small."""
    from gdbheapx.inferior.live import keeper

    try:
        return keeper.prepare_keeper()
    except OSError:  # it is tried again when it is needed, and the reason told
        return None


def print_text(text: str) -> int:
    """Write to standard output; the exit code."""
    try:
        write_output(text)
    except OSError as error:
        print_error("gdbheapx: cannot write to standard output: %s" % error.strerror)
        return 1
    return 0


def write_output(text: str) -> None:
    """Write to standard output. OSError where it cannot be written; nothing where the reader has seen enough."""
    left = os.fsencode(text)
    try:
        while left:
            left = left[os.write(1, left) :]
    except BrokenPipeError:
        pass


def print_error(line: str) -> None:
    """Write one line of an error to standard error."""
    try:
        os.write(2, os.fsencode(line) + b"\n")
    except OSError:
        pass  # nobody can be told; the exit code stays


def end_with_error(words: Sequence[str], error: HeapxError) -> int:
    """Report the error of a command line that ends before its command runs: one line and, with --json, the envelope. Its exit code."""
    from gdbheapx.app import place, runner

    try:
        asked, rest = split_words(words)
        error.write(place.of_options(asked.of_target()).line)
    except Wrong:
        rest = list(words)
    print_error("gdbheapx: " + runner.error_line(error))
    try:
        write_output(runner.envelope_of_words(rest, error))
    except OSError:
        pass  # the line and the exit code are left
    return error.exit_code


def run_here(asking: Invocation, refused: Optional[HeapxError] = None) -> int:
    """Run the command in this process, without gdb; where it is refused, it ends with that."""
    import gc

    gc.set_threshold(RARELY, *gc.get_threshold()[1:])
    from gdbheapx.app import direct

    if not (invocation.changes_process(asking.parsed) or asking.command.repeats):
        from gdbheapx.common.budget import limit_look

        limit_look()
    ended = direct.run_direct(asking, print_error, refused)
    if ended.line is not None:
        print_error("gdbheapx: " + ended.line)
    if asking.asked.pid is not None:
        from gdbheapx.inferior.live import keeper

        keeper.end_current_keeper()  # nothing is held any more
    os._exit(ended.code)  # what could not be written is told; the interpreter would try again, and complain aloud


def show_help(rest: Sequence[str], asked_for: bool) -> int:
    """The commands in groups, or the help of one, reflowed for a terminal."""
    from gdbheapx.command import help_pages

    names = [word for word in rest if not word.startswith("-") and word != "help"]
    try:
        text = help_pages.asked_for(names, help_pages.SHELL, "--help-all" in rest)
    except UsageError as error:
        return end_with_error(rest, error)
    if not asked_for:
        print_error(text.rstrip("\n"))
        return 2
    from gdbheapx.command.output import screen_of
    from gdbheapx.report.text import reflow_help

    shown = screen_of(1, os.environ)
    return print_text(reflow_help(text, shown.width) if shown.wraps else text)
