"""The shell door: finds gdb and runs it, with the command in the environment; without gdb the command runs in this process. Imports as
little as possible: it is paid for by every call."""

import os
import sys
from typing import TYPE_CHECKING, List, Optional, Sequence, Tuple

from gdbheapx.asked import FD, GLOBALS, UNPACKED, WITHOUT_GDB, WORDS, Globals, Wrong, pack, split

if TYPE_CHECKING:
    from gdbheapx.inferior.live.keeper import Keeper

NO_GDB = "none"
"""As --gdb, or in GDBHEAPX_GDB: no gdb is to be used."""
RARELY = 50_000
"""How many more objects than before make Python look for garbage: importing makes little of it, and much that is looked through."""
GDBINIT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "gdbinit.py")
"""What gdb sources; of the single file it is that file (tools/make_single.py)."""
USAGE = """usage: gdbheapx (--pid N | --core FILE | --snapshot FILE) [options] COMMAND [options of the command]
       gdbheapx gdbinit | doctor | --version

  --pid N            read this process; it is stopped for a moment, then continues
  --core FILE        read this core, also a compressed one (.zst, .lz4, .xz, .gz, .bz2)
  --snapshot FILE    read what `snapshot` has written; needs neither the process nor gdb
  --exe FILE         the program, if gdbheapx does not find it
  --gdb PATH|none    the gdb to use; otherwise the first in PATH. With none, or where there is no gdb, gdbheapx reads the target
                     with Python alone; only what changes a process (trim, purge, tickers --cure) needs gdb
  --sysroot DIR      the file tree of the machine the target ran on
  --debug-dir DIR    search debug files here first; may be repeated
  --symbols DIR      search symbol packs here; may be repeated
  --no-debug-info    ignore every debug file
  --debuginfod       let gdb fetch debug files from the servers in DEBUGINFOD_URLS; needs gdb
"""


def named_gdb(given: Optional[str]) -> Optional[str]:
    """The gdb that the user has named."""
    return given or os.environ.get("GDBHEAPX_GDB") or None


def find_gdb(given: Optional[str]) -> Optional[str]:
    """The gdb to run."""
    name = named_gdb(given) or "gdb"
    if name == NO_GDB:
        return None
    folders = [""] if "/" in name else os.environ.get("PATH", os.defpath).split(":")
    for folder in folders:
        path = os.path.join(folder, name)
        if os.path.isfile(path) and os.access(path, os.X_OK):
            return path
    return None


def run_gdb(gdb: str, asked: Globals, words: Sequence[str], keeper: "Optional[Keeper]" = None) -> int:
    """Run the command inside gdb, whose own chatter goes to standard error; our output has the real standard output as another
    descriptor."""
    from gdbheapx import parent

    out = os.dup(1)
    os.set_inheritable(out, True)
    arguments = [gdb, "-nx", "-q", "-batch"]
    if asked.no_debug_info:
        arguments.append("-readnever")
    after = ["-ex", "quit %d" % parent.NO_PYTHON]  # reached only where gdbinit.py was not run
    names = {FD: str(out), WORDS: pack(words), GLOBALS: pack(asked.words()), **(keeper.inherited() if keeper is not None else {})}
    try:
        ended = parent.run(arguments + ["-x", GDBINIT] + after, names, asked.pid, keeper.close if keeper is not None else None)
        if keeper is not None:
            keeper.end()
    except OSError as error:
        return here(words, asked, "cannot run %s: %s" % (gdb, error.strerror), "choose another gdb with --gdb PATH")
    if ended.code is not None:
        os._exit(ended.code)  # the interpreter's own end would take a few milliseconds
    if ended.begun:
        fail("gdbheapx: %s%s" % (ended.cause, "; " + ended.hint if ended.hint else ""))
        return 1
    return here(words, asked, ended.cause, ended.hint or None)


def main(words: Optional[Sequence[str]] = None) -> int:
    """The entry point `gdbheapx`."""
    open_standard()
    try:
        return dispatch(list(sys.argv[1:] if words is None else words))
    except KeyboardInterrupt:
        fail("gdbheapx: stopped by Ctrl-C before there was an answer")
        return 1


def open_standard() -> None:
    """Make of each standard descriptor that the caller closed one that cannot be written: the next file that is opened would get its
    number."""
    for number in (0, 1, 2):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDONLY)
            os.set_inheritable(number, True)


def dispatch(words: List[str]) -> int:
    """Run what the words ask for."""
    try:
        asked, rest = split(words)
    except Wrong as error:
        return wrong(str(error))
    if rest[:1] == ["--version"]:
        from gdbheapx import __version__

        return say("gdbheapx %s\n" % __version__)
    if rest[:1] == ["gdbinit"]:
        return say(GDBINIT + "\n")
    if any(word.partition("=")[0] == "--html" for word in rest) and not is_help(rest):
        try:
            from gdbheapx import paged
        except ImportError:  # the single file
            fail("gdbheapx: pages are not part of the single file; make one where gdbheapx is installed, from a snapshot or core")
            return 1
        wanted = paged.wanted(rest)
        if wanted is not None:
            return paged.make(wanted, asked, dispatch, say, fail)
    if ("query" in rest or any("parquet" in word for word in rest)) and not is_help(rest):
        try:
            from gdbheapx import queried
        except ImportError:  # the single file
            fail("gdbheapx: SQL and parquet are not part of the single file; ask where gdbheapx is installed, a snapshot or core")
            return 1
        question = queried.wanted(rest)
        if question is not None:
            return queried.make(question, asked, dispatch, fail)
    if asked.snapshot is not None and rest and not is_help(rest):
        return here(rest, asked)
    has_target = asked.pid is not None or asked.core is not None or asked.snapshot is not None
    if (not rest and not has_target) or is_help(rest):
        return show_help(rest, bool(rest))
    if has_target and rest[:1] and rest[0] in WITHOUT_GDB:
        if "--exact" in rest:
            start_keeper()
        return here(rest, asked)
    keeper = start_keeper() if asked.pid is not None else None
    gdb, named = find_gdb(asked.gdb), named_gdb(asked.gdb)
    if gdb is None and named not in (None, NO_GDB) and (has_target or asked.gdb):
        next_step = "give the path of a gdb with --gdb PATH, or read without it: --gdb none"
        return here(rest, asked, "%s is not an executable file" % named, next_step)
    if not has_target:
        return without_target(asked, rest, gdb)
    cause, hint = prepare_core(asked.core, rest) if asked.core is not None else (None, None)
    if gdb is not None and cause is None:
        return run_gdb(gdb, asked, rest, keeper)
    return here(rest, asked, cause, hint)


def start_keeper() -> "Optional[Keeper]":
    """The process that holds the other one stopped, forked while this one is small."""
    from gdbheapx.inferior.live import keeper

    try:
        return keeper.prepare()
    except OSError:  # it is tried again when it is needed, and the reason told
        return None


def is_help(rest: Sequence[str]) -> bool:
    """The user asks for help."""
    return rest[:1] == ["help"] or "--help" in rest or "-h" in rest


def say(text: str) -> int:
    """Write to standard output; the exit code."""
    left = os.fsencode(text)
    try:
        while left:
            left = left[os.write(1, left) :]
    except BrokenPipeError:
        pass  # the reader has seen enough
    except OSError as error:
        fail("gdbheapx: cannot write to standard output: %s" % error.strerror)
        return 1
    return 0


def fail(line: str) -> None:
    """One line of an error."""
    try:
        os.write(2, os.fsencode(line) + b"\n")
    except OSError:
        pass  # nobody can be told; the exit code stays


def wrong(line: str) -> int:
    """Wrong usage: one line and exit code 2."""
    fail("gdbheapx: %s; try: gdbheapx --help" % line)
    return 2


def without_target(asked: Globals, rest: Sequence[str], gdb: Optional[str]) -> int:
    """Commands that need no target."""
    from gdbheapx import command, loader

    loader.load_commands()
    name = next((word for word in rest if not word.startswith("-")), "report")
    found = command.find(name)
    if found is not None and found.needs_target:
        return wrong("%s requires a process or a core: give --pid N or --core FILE" % name)
    if gdb is not None and found is not None and found.name == "doctor":
        return run_gdb(gdb, asked, rest)
    return here(rest, asked)


def here(rest: Sequence[str], asked: Globals, cause: Optional[str] = None, hint: Optional[str] = None) -> int:
    """Run the command in this process, without gdb; with a cause, it ends with that."""
    import gc

    gc.set_threshold(RARELY, *gc.get_threshold()[1:])
    from gdbheapx import alone
    from gdbheapx.errors import HeapxError

    ended = alone.run(rest, asked, fail, HeapxError(cause, hint) if cause is not None else None)
    if ended.line is not None:
        fail("gdbheapx: " + ended.line)
    if asked.pid is not None:
        end_keeper()
    os._exit(ended.code)  # what could not be written is told; the interpreter would try again, and complain aloud


def end_keeper() -> None:
    """Nothing is held any more."""
    from gdbheapx.inferior.live import keeper

    keeper.end()


def prepare_core(core: str, rest: Sequence[str]) -> Tuple[Optional[str], Optional[str]]:
    """Unpack a compressed core, for whoever reads it then; (cause, next step) where that fails. What is no core, or cannot be opened, is
    told when it is read."""
    os.environ.pop(UNPACKED, None)
    from gdbheapx.inferior.core import packed

    form = packed.find(core)
    if form is None or not is_command(rest):
        return None, None
    from gdbheapx.inferior.core import unpacking

    try:
        found = unpacking.unpack(core, form)
    except unpacking.CannotUnpack as error:
        return error.cause, error.hint
    except Exception as error:  # of a library, which may raise whatever it likes
        what = " ".join(("%s: %s" % (type(error).__name__, error)).split())
        return "cannot unpack %s: %s" % (core, what), "unpack it first: %s %s" % (form.tool, core)
    os.set_inheritable(found.descriptor, True)
    os.environ[UNPACKED] = pack([str(found.descriptor), found.trouble])
    return None, None


def is_command(rest: Sequence[str]) -> bool:
    """The words are a command line: what takes long is not begun for one that is wrong."""
    from gdbheapx import loader, parse
    from gdbheapx.errors import UsageError

    loader.load_commands()
    try:
        parse.parse(rest, "gdbheapx")
    except UsageError:
        return False
    return True


def show_help(rest: Sequence[str], asked_for: bool) -> int:
    """The list of commands, or the help of one."""
    from gdbheapx import command, loader, parse

    loader.load_commands()
    name = next((word for word in rest if not word.startswith("-") and word != "help"), None)
    found = command.find(name) if name else None
    if name and found is None:
        return wrong("no such command: %s" % name)
    if found is not None:
        return say(parse.parser_of(found, "gdbheapx").format_help())
    lines = ["  %-18s %s" % (one.name, one.help.strip().split("\n")[0]) for one in (command.find(word) for word in command.names()) if one]
    text = USAGE + "\ncommands:\n" + "\n".join(lines) + "\n\nThe default command is report. gdbheapx COMMAND --help shows its options.\n"
    if asked_for:
        return say(text)
    fail(text.rstrip("\n"))
    return 2


if __name__ == "__main__":
    sys.exit(main())
