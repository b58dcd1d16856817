"""`gdbinit --install`: the line in the user's own start-up file of gdb that makes every gdb know `heapx`. Nothing else there changes."""

import argparse
import os
import re
import stat
from typing import Callable, List, NoReturn, Sequence

from gdbheapx.command.output import OutputFile
from gdbheapx.common.errors import HeapxError, UsageError
from gdbheapx.common.problems import CANNOT_WRITE

MARK = b"# written by `gdbheapx gdbinit --install`; `gdbheapx gdbinit --remove` takes it away"
BLOCK = re.compile(rb"^" + re.escape(MARK) + rb"\nsource ([^\n]*)(?:\n|\Z)", re.MULTILINE)
SOURCE = re.compile(rb"^[ \t]*source[ \t]+([^\n]*?)[ \t]*$", re.MULTILINE)
MOST_BYTES = 1 << 20
"""Of a file that people write."""
HELP = "gdbheapx gdbinit [--install | --remove] [--yes]"


class StartupParser(argparse.ArgumentParser):
    """Argument parser that raises instead of ending the process."""

    def error(self, message: str) -> NoReturn:
        raise UsageError("gdbinit: %s" % message, HELP)


def run_startup(words: Sequence[str], gdbinit: str, say: Callable[[str], int]) -> int:
    """Install or remove the line; the exit code. HeapxError where that is not possible or not confirmed."""
    parser = StartupParser(prog="gdbheapx gdbinit", add_help=False, allow_abbrev=False)
    which = parser.add_mutually_exclusive_group()
    which.add_argument("--install", action="store_true")
    which.add_argument("--remove", action="store_true")
    parser.add_argument("--yes", action="store_true")
    parser.add_argument("-h", "--help", action="store_true")
    options = parser.parse_args(list(words))
    if options.help:
        return say("usage: %s\n\nPrints the path of the file that gdb's `source` takes, or has gdb source it at each start.\n" % HELP)
    if not options.install and not options.remove:
        return say(gdbinit + "\n")
    known = [path for path in startup_files() if os.path.lexists(path)]
    if options.remove:
        chosen = next((path for path in known if BLOCK.search(read_startup_file(path))), None)
        if chosen is None:
            return say("nothing to remove: no line of `gdbinit --install` in %s\n" % " or ".join(startup_files()))
        left = BLOCK.sub(b"", read_startup_file(chosen))
        return change_startup_file(chosen, left, "take this line out of %s?" % chosen, options, say, is_removal=True)
    path = known[0] if known else startup_files()[-1]
    before = read_startup_file(path) if known else b""
    after = with_startup_line(before, os.fsencode(gdbinit))
    if after == before:
        return say("%s sources %s already\n" % (path, gdbinit))
    return change_startup_file(path, after, "write this line to %s?" % path, options, say)


def startup_files() -> List[str]:
    """Return the start-up files that gdb looks for, in its order: it reads the first that exists. Releases before gdb 11 know only the
    last.
    """
    home = os.path.expanduser("~")
    folder = os.environ.get("XDG_CONFIG_HOME") or os.path.join(home, ".config")
    return [os.path.join(folder, "gdb", "gdbinit"), os.path.join(home, ".gdbinit")]


def read_startup_file(path: str) -> bytes:
    """Return the text of a start-up file. HeapxError if it cannot be read whole or is not a file."""
    from gdbheapx.common.files import open_regular

    try:
        with open(open_regular(path), "rb") as file:
            content = file.read(MOST_BYTES + 1)
    except OSError as error:
        raise HeapxError("cannot read %s: %s" % (path, error.strerror), "add the line yourself: source FILE", code=CANNOT_WRITE)
    if len(content) > MOST_BYTES:
        raise HeapxError("%s has more than %d bytes" % (path, MOST_BYTES), "add the line yourself: source FILE", code=CANNOT_WRITE)
    return content


def with_startup_line(content: bytes, gdbinit: bytes) -> bytes:
    """Return the text with the line exactly once: an older line of gdbheapx is replaced, a line written by hand stays."""
    line = MARK + b"\nsource " + gdbinit + b"\n"
    if BLOCK.search(content):
        return BLOCK.sub(lambda match: line, content, count=1)
    known = {os.path.realpath(os.path.expanduser(path)) for path in SOURCE.findall(content)}
    if os.path.realpath(gdbinit) in known:
        return content
    return content + (b"" if not content or content.endswith(b"\n") else b"\n") + line


def change_startup_file(
    path: str, content: bytes, question: str, options: argparse.Namespace, say: Callable[[str], int], is_removal: bool = False
) -> int:
    """Show it, ask, and have the file appear whole; its permissions stay."""
    from gdbheapx.actions.preflight import require_confirmed
    from gdbheapx.report.text import escape_line

    match = BLOCK.search(read_startup_file(path) if is_removal else content)
    shown = match.group(0) if match is not None else b""
    say("".join("  %s\n" % escape_line(line) for line in os.fsdecode(shown).splitlines()))
    require_confirmed(options, question, "add the line yourself")
    mode = stat.S_IMODE(os.stat(path).st_mode) if os.path.exists(path) else 0o600
    OutputFile(path, "HOME or XDG_CONFIG_HOME").finish(content, mode)
    return say("%s\n" % ("removed from %s" % path if is_removal else "written to %s" % path))
