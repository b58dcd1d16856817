"""The options that name and open a target, and how they and the command reach the process that reads it."""

import os
from typing import Dict, Iterator, List, NamedTuple, Optional, Sequence, Tuple

COMMAND, GLOBALS, FD, SCREEN = "GDBHEAPX_COMMAND", "GDBHEAPX_GLOBALS", "GDBHEAPX_FD", "GDBHEAPX_SCREEN"
"""Variables of the environment: the command with its options, the global options, the descriptor of the real standard output, and what
that shows, as gdb has a COLUMNS of its own."""
UNPACKED = "GDBHEAPX_UNPACKED"
"""The variable with the descriptor of what a core was fetched or unpacked to, and what was wrong with it."""
STANDS_BY = "GDBHEAPX_STANDS_BY"
"""The variable that has a program wait for commands (addons/monitor/watch/capture.py)."""
DUMPED = "GDBHEAPX_DUMPED"
"""The variable with the descriptor of what the core begins with that the kernel is writing of the process."""
ENDS = ("--", "--pass-to")
"""What follows is not ours: no option of gdbheapx is looked for there."""
VALUES = {
    "--pid": "N|NAME",
    "--core": "FILE",
    "--snapshot": "FILE",
    "--exe": "FILE",
    "--gdb": "PATH|none",
    "--sysroot": "DIR",
    "--debug-dir": "DIR",
}
SINGLES = ("--pid", "--core", "--snapshot", "--exe", "--gdb", "--sysroot")
"""Of these, those of which the last one counts."""
SHORT = {"-p": "--pid"}
"""Other forms of these."""
FLAGS = ("--no-debug-info", "--debuginfod")
MOST_PIDS = 10
"""Shown where several processes have a name."""
EVERY_VALUE = ("--color", "--max-seconds", "--max-stop", "--allocator", "-o", "--output")
EVERY_FLAG = ("--json", "--bytes", "--wide", "--read-swap", "--traceback", "-h", "--help", "--help-all")
"""What every command takes, with a value and without (gdbheapx/command declares them): these may come before it."""


class GlobalOptions(NamedTuple):
    """The options that are the same for every command."""

    pid: Optional[int]
    core: Optional[str]
    snapshot: Optional[str]
    exe: Optional[str]
    gdb: Optional[str]
    sysroot: Optional[str]
    debug_dirs: List[str]
    no_debug_info: bool
    debuginfod: bool

    @property
    def has_target(self) -> bool:
        """A process, core or snapshot is named."""
        return self.pid is not None or self.core is not None or self.snapshot is not None

    def words(self) -> List[str]:
        """Return the options as they would be typed."""
        words: List[str] = []
        for name, value in zip(SINGLES, (self.pid, self.core, self.snapshot, self.exe, self.gdb, self.sysroot)):
            words += [name, str(value)] if value is not None else []
        for directory in self.debug_dirs:
            words += ["--debug-dir", directory]
        return words + ["--no-debug-info"] * self.no_debug_info + ["--debuginfod"] * self.debuginfod

    def of_target(self) -> List[str]:
        """Return the options that name and open the target, as a command about the same target repeats them."""
        words = self._replace(gdb=None).words()
        return ["-p" if word == "--pid" else word for word in words[:1]] + words[1:]


class Wrong(Exception):
    """Wrong usage, in one line; with the next step, and lines that name what there is to choose from."""

    def __init__(self, line: str, hint: Optional[str] = None, choices: Sequence[str] = ()) -> None:
        super().__init__(line)
        self.hint, self.choices = hint, choices


def split_words(words: Sequence[str]) -> Tuple[GlobalOptions, List[str]]:
    """The global options, in any place, and the other words."""
    given: Dict[str, List[str]] = {name: [] for name in (*VALUES, *FLAGS)}
    rest: List[str] = []
    queue = list(words)
    while queue:
        word = queue.pop(0)
        name, equals, value = word.partition("=")
        name = SHORT.get(name, name)
        if word in ENDS:
            rest += [word] + queue
            break
        if name in VALUES:
            if not equals and not queue:
                raise Wrong("%s requires a value: %s %s" % (name, name, VALUES[name]))
            given[name].append(value if equals else queue.pop(0))
        elif word in FLAGS:
            given[word].append("")
        else:
            rest.append(word)
    pid, core, snapshot, exe, gdb, sysroot = (given[name][-1] if given[name] else None for name in SINGLES)
    targets = [name for name, value in zip(SINGLES, (pid, core, snapshot)) if value is not None]
    if len(targets) > 1:
        raise Wrong("%s cannot be combined" % " and ".join(targets))
    if pid is not None and not (pid.isascii() and pid.isdigit()):
        pid = str(process_called(pid))
    if pid is not None and not int(pid):
        raise Wrong("--pid requires a process id or the name of a process, not %s" % pid)
    number = int(pid) if pid is not None else None
    flags = bool(given["--no-debug-info"]), bool(given["--debuginfod"])
    return GlobalOptions(number, core, snapshot, exe, gdb, sysroot, given["--debug-dir"], *flags), command_first(rest)


def list_running() -> Iterator[Tuple[int, Tuple[str, str]]]:
    """The other processes, each with the name that it has and that of its program. No command line is read: it is memory of the process,
    which may be a file that does not answer."""
    for entry in os.listdir("/proc"):
        if not entry.isdigit() or int(entry) == os.getpid():
            continue
        try:
            with open("/proc/%s/comm" % entry, "rb") as file:
                name = os.fsdecode(file.read().rstrip(b"\n"))
        except OSError:  # it has ended
            continue
        try:
            program = os.path.basename(os.readlink("/proc/%s/exe" % entry))
        except OSError:  # another user's, or a thread of the kernel
            program = ""
        yield int(entry), (name, program)


def processes_called(name: str) -> List[int]:
    """The processes whose program has this name; where there is none, those that call themselves so in their first word."""
    if not name or name.startswith("-"):
        return []
    named = dict(list_running())
    found = sorted(pid for pid in named if name in named[pid])
    if found:
        return found
    typed = {pid: [os.path.basename(word) for word in command_line(pid)] for pid in named}
    return sorted(pid for pid in typed if typed[pid][:1] == [name]) or sorted(
        pid
        for pid in typed
        if name in typed[pid] and "gdbheapx" not in typed[pid]  # what runs this very command line names it, too
    )


def command_line(pid: int) -> List[str]:
    """The words that a process was started with."""
    from gdbheapx.common.files import read_apart

    return os.fsdecode(read_apart("/proc/%d/cmdline" % pid).rstrip(b"\0")).split("\0")


def process_called(name: str) -> int:
    """The one process whose program has this name. Wrong where there is none, or several."""
    found = processes_called(name)
    if len(found) != 1:
        if not found:
            raise Wrong("no process is called %s" % name)
        shown = ["%8d  %s" % (pid, " ".join(command_line(pid))) for pid in found[:MOST_PIDS]]
        more = ["and {:,} more".format(len(found) - MOST_PIDS)] if len(found) > MOST_PIDS else []
        raise Wrong("%s matches %d processes" % (name, len(found)), "give one by its number: gdbheapx -p %d" % found[0], [*shown, *more])
    return found[0]


def command_first(words: Sequence[str]) -> List[str]:
    """The words with the command's name in front: options that every command takes may come before it."""
    at = 0
    while at < len(words) and words[at].partition("=")[0] in EVERY_VALUE + EVERY_FLAG:
        at += 2 if words[at] in EVERY_VALUE else 1
    named = at < len(words) and not words[at].startswith("-")
    return [words[at], *words[:at], *words[at + 1 :]] if named else list(words)


def pack_words(words: Sequence[str]) -> str:
    """Words as one environment variable, whatever they contain."""
    return ",".join("-" + os.fsencode(word).hex() for word in words)


def unpack_words(text: str) -> List[str]:
    """The reverse of pack_words()."""
    return [os.fsdecode(bytes.fromhex(word[1:])) for word in text.split(",") if word]
