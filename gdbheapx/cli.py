"""The shell door: finds gdb and runs it, with the command in the environment. Imports as little as possible: it is paid for by every
call."""

import os
import sys
from typing import Any, List, NamedTuple, Optional, Sequence, Tuple

WORDS, GLOBALS, FD = "GDBHEAPX_WORDS", "GDBHEAPX_GLOBALS", "GDBHEAPX_FD"
HERE = os.path.dirname(os.path.abspath(__file__))
VALUES = {"--pid": "N", "--core": "FILE", "--exe": "FILE", "--gdb": "PATH", "--sysroot": "DIR", "--debug-dir": "DIR", "--symbols": "DIR"}
FLAGS = ("--no-debug-info", "--debuginfod")
USAGE = """usage: gdbheapx (--pid N | --core FILE) [options] COMMAND [options of the command]
       gdbheapx gdbinit | doctor | --version

  --pid N            read this process; it is stopped for a moment, then continues
  --core FILE        read this core
  --exe FILE         the program, if gdbheapx does not find it
  --gdb PATH         the gdb to use; otherwise the first in PATH
  --sysroot DIR      the file tree of the machine the target ran on
  --debug-dir DIR    search debug files here first; may be repeated
  --symbols DIR      search symbol packs here; may be repeated
  --no-debug-info    ignore every debug file
  --debuginfod       let gdb fetch debug files from the servers in DEBUGINFOD_URLS
"""


class Globals(NamedTuple):
    """The options that are the same for every command."""

    pid: Optional[int]
    core: Optional[str]
    exe: Optional[str]
    gdb: Optional[str]
    sysroot: Optional[str]
    debug_dirs: List[str]
    symbols: List[str]
    no_debug_info: bool
    debuginfod: bool

    def words(self) -> List[str]:
        """As they would be typed."""
        found: List[str] = []
        singles = (("--pid", self.pid), ("--core", self.core), ("--exe", self.exe), ("--gdb", self.gdb), ("--sysroot", self.sysroot))
        for name, value in singles:
            found += [name, str(value)] if value is not None else []
        for name, values in (("--debug-dir", self.debug_dirs), ("--symbols", self.symbols)):
            for value in values:
                found += [name, value]
        return found + ["--no-debug-info"] * self.no_debug_info + ["--debuginfod"] * self.debuginfod

    @staticmethod
    def from_words(words: Sequence[str]) -> "Globals":
        """The reverse of words()."""
        return split(words)[0]


class Wrong(Exception):
    """Wrong usage, in one line."""


def split(words: Sequence[str]) -> Tuple[Globals, List[str]]:
    """The global options, wherever they stand, and the other words."""
    given: List[Tuple[str, str]] = []
    rest: List[str] = []
    queue = list(words)
    while queue:
        word = queue.pop(0)
        name, equals, value = word.partition("=")
        if word == "--":
            rest += [word] + queue
            break
        if name in VALUES:
            if not equals and not queue:
                raise Wrong("%s requires a value: %s %s" % (name, name, VALUES[name]))
            given.append((name, value if equals else queue.pop(0)))
        elif word in FLAGS:
            given.append((word, ""))
        else:
            rest.append(word)
    every = {name: [value for other, value in given if other == name] for name in list(VALUES) + list(FLAGS)}
    last = {name: values[-1] if values else None for name, values in every.items()}
    if last["--pid"] is not None and last["--core"] is not None:
        raise Wrong("--pid and --core cannot be combined")
    pid = last["--pid"]
    if pid is not None and not (pid.isascii() and pid.isdigit() and int(pid) > 0):
        raise Wrong("--pid requires a process id, not %s" % pid)
    found = Globals(
        int(pid) if pid is not None else None,
        last["--core"],
        last["--exe"],
        last["--gdb"],
        last["--sysroot"],
        every["--debug-dir"],
        every["--symbols"],
        last["--no-debug-info"] is not None,
        last["--debuginfod"] is not None,
    )
    return found, rest


def pack(words: Sequence[str]) -> str:
    """Words as one environment variable, whatever they contain."""
    return ",".join("-" + os.fsencode(word).hex() for word in words)


def unpack(text: str) -> List[str]:
    """The reverse of pack()."""
    return [os.fsdecode(bytes.fromhex(word[1:])) for word in text.split(",") if word]


def find_gdb(given: Optional[str]) -> Optional[str]:
    """The gdb to run."""
    name = given or os.environ.get("GDBHEAPX_GDB") or "gdb"
    folders = [""] if "/" in name else os.environ.get("PATH", os.defpath).split(":")
    for folder in folders:
        path = os.path.join(folder, name)
        if os.path.isfile(path) and os.access(path, os.X_OK):
            return path
    return None


def run_gdb(gdb: str, asked: Globals, words: Sequence[str]) -> int:
    """Run the command inside gdb, whose own chatter goes to standard error; our output has the real standard output as another
    descriptor."""
    from gdbheapx import parent

    out = os.dup(1)
    os.set_inheritable(out, True)
    arguments = [gdb, "-nx", "-q", "-batch"]
    if asked.no_debug_info:
        arguments.append("-readnever")
    after = ["-ex", "quit %d" % parent.NO_PYTHON]  # reached only where gdbinit.py was not run
    names = {FD: str(out), WORDS: pack(words), GLOBALS: pack(asked.words())}
    try:
        ended = parent.run(arguments + ["-x", os.path.join(HERE, "gdbinit.py")] + after, names, asked.pid)
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
        return say(os.path.join(HERE, "gdbinit.py") + "\n")
    has_target = asked.pid is not None or asked.core is not None
    if (not rest and not has_target) or rest[:1] in (["-h"], ["--help"], ["help"]) or "--help" in rest or "-h" in rest:
        return show_help(rest, bool(rest))
    gdb = find_gdb(asked.gdb)
    if has_target and gdb is not None:
        return run_gdb(gdb, asked, rest)
    return without_target(asked, rest, gdb, has_target)


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


def without_target(asked: Globals, rest: Sequence[str], gdb: Optional[str], has_target: bool) -> int:
    """Commands that need no target, and everything that goes wrong before gdb runs."""
    from gdbheapx import command, loader

    loader.load_commands()
    name = next((word for word in rest if not word.startswith("-")), "report")
    found = command.find(name)
    if found is not None and found.needs_target and not has_target:
        return wrong("%s requires a process or a core: give --pid N or --core FILE" % name)
    if gdb is None and (has_target or asked.gdb):
        what = "%s is not an executable file" % asked.gdb if asked.gdb else "gdb is not installed or not in PATH"
        return here(rest, asked, what, "install it (Debian: apt-get install gdb) or give its path with --gdb PATH")
    if gdb is not None and found is not None and found.name == "doctor":
        return run_gdb(gdb, asked, rest)
    return here(rest, asked)


def here(rest: Sequence[str], asked: Globals, cause: Optional[str] = None, hint: Optional[str] = None) -> int:
    """Run the command in this process, without gdb; with a cause, it ends with that."""
    from gdbheapx import loader, runner
    from gdbheapx.errors import HeapxError

    def open_target() -> Any:
        if cause is not None:
            raise HeapxError(cause, hint)

    loader.load_commands()
    out = open(1, "w", encoding="utf-8", errors="surrogateescape", newline="", closefd=False)
    settings = runner.Settings(symbols_path=asked.symbols)
    ended = runner.run(rest, runner.Door("gdbheapx", out.write, fail, open_target, settings, out.flush))
    if ended.line is not None:
        fail("gdbheapx: " + ended.line)
    os._exit(ended.code)  # what could not be written is told; the interpreter would try again, and complain aloud


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
