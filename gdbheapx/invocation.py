"""A command line of the shell, understood once: what it is about, the command, its options, and who has to answer it.

What the command line asks for besides the command: the global options, and how they and the command reach the process that reads the
target.
"""

import json
import os
import time
from typing import Callable, Dict, Iterable, Iterator, List, NamedTuple, Optional, Sequence, Tuple

from gdbheapx import command as declared
from gdbheapx.command import COMMANDS, Command, Options, ParsedCommand
from gdbheapx.errors import HeapxError, UsageError

COMMAND, GLOBALS, FD, SCREEN = "GDBHEAPX_COMMAND", "GDBHEAPX_GLOBALS", "GDBHEAPX_FD", "GDBHEAPX_SCREEN"
"""Variables of the environment: the command with its options, the global options, the descriptor of the real standard output, and what
that shows, as gdb has a COLUMNS of its own."""
UNPACKED = "GDBHEAPX_UNPACKED"
"""The variable with the descriptor of what a core was fetched or unpacked to, and what was wrong with it."""
STANDS_BY = "GDBHEAPX_STANDS_BY"
"""The variable that has a program wait for commands (addons/monitor/watch/capture.py)."""
DUMPED = "GDBHEAPX_DUMPED"
"""The variable with the descriptor of what the core begins with that the kernel is writing of the process."""
NEAR = 0.7
"""Of a name's characters, so that it may have been meant."""
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
"""What every command takes, with a value and without (command.py declares them): these may come before it."""


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
        if word in declared.ENDS:
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


def with_target(asked: GlobalOptions, words: List[str]) -> Tuple[GlobalOptions, List[str]]:
    """Return the options and words, with the target filled in if the first word is no command and names one: a process id, a file, or the
    name of a process. Wrong if several processes have that name.
    """
    if not words or words[0].startswith("-") or asked.has_target:
        return asked, words
    declared.load_commands(declared.DEFAULT)
    word = words[0]
    if declared.is_command(word):
        return asked, words
    pid = int(word) if word.isascii() and word.isdigit() else None
    if pid is None and "/" not in word and not os.path.isfile(word):
        if not processes_called(word):
            return asked, words  # no such command, then
        pid = process_called(word)
    if pid == 0:
        raise Wrong("0 is no process id")
    if pid is not None:
        return asked._replace(pid=pid), command_first(words[1:])
    from gdbheapx.snapshot.container import is_snapshot

    return asked._replace(snapshot=word) if is_snapshot(word) else asked._replace(core=word), command_first(words[1:])


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
    from gdbheapx.files import read_apart

    return os.fsdecode(read_apart("/proc/%d/cmdline" % pid).rstrip(b"\0")).split("\0")


def nothing_called(name: str) -> UsageError:
    """Return the error for a name that no command, process or file has, with suggestions of similar names."""
    from difflib import get_close_matches

    def find_near(known: Iterable[str]) -> List[str]:
        names = sorted(known)
        begun = [one for one in names if len(name) > 1 and one.startswith(name)]
        return (begun or get_close_matches(name, names, 1, NEAR))[:1]

    pids: Dict[str, List[int]] = {}
    for pid, names in list_running():
        for one in {*names}:
            if one and " " not in one:  # else what the program says that it does
                pids.setdefault(one, []).append(pid)
    meant = ["the command %s" % one for one in find_near(file.replace("_", "-") for file in declared.command_files())]
    for one in find_near(pids):
        few = pids[one][:MOST_PIDS]
        meant.append("the process %s (-p %s)" % (one, " or ".join(map(str, few)) + (" or ..." if len(pids[one]) > len(few) else "")))
    hint = "did you mean %s?" % ", or ".join(meant) if meant else "gdbheapx --help lists the commands"
    return UsageError("no command, no running process and no file is called %s" % name, hint)


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
    """The reverse of pack()."""
    return [os.fsdecode(bytes.fromhex(word[1:])) for word in text.split(",") if word]


def prepare_core(core: str, max_seconds: Optional[float] = None) -> Optional[HeapxError]:
    """Fetch a core that a URL names, and unpack a compressed one; the error where that fails. What is no core, or cannot be opened, is
    reported when it is read."""
    from gdbheapx.budget import LEAST_S
    from gdbheapx.inferior import core_file
    from gdbheapx.problems import CANNOT_UNPACK

    until = float("inf") if max_seconds is None else time.monotonic() + max(max_seconds, LEAST_S)
    os.environ.pop(UNPACKED, None)
    fetched = None
    if "://" in core:
        try:
            core, fetched = fetch_core(core, until)
        except HeapxError as error:
            return error
    form = core_file.find_form(core if fetched is None else fetched)
    if form is None and fetched is None:
        return None
    try:
        descriptor, trouble = (fetched or 0, "") if form is None else core_file.unpack_core(core, form, fetched, until)
    except core_file.CannotUnpack as error:
        return error
    except Exception as error:  # of a library, which may raise whatever it likes
        what = " ".join(("%s: %s" % (type(error).__name__, error)).split())
        tool = form.tool if form is not None else ""
        return HeapxError("cannot unpack %s: %s" % (core, what), "unpack it first: %s %s" % (tool, core), code=CANNOT_UNPACK)
    os.set_inheritable(descriptor, True)
    os.environ[UNPACKED] = pack_words([str(descriptor), trouble])
    return None


def fetch_core(core: str, until: float = float("inf")) -> Tuple[str, Optional[int]]:
    """Return the core's name and a descriptor of the file fetched from its URL, None if it is no URL. HeapxError if nothing can be
    fetched.
    """
    from gdbheapx.inferior import core_file
    from gdbheapx.snapshot import container

    if not container.is_url(core):
        return core, None
    name, (size_bytes, _) = container.hide_secrets(core), container.read_url_state(core) or (0, None)
    return name, core_file.copy_core(name, size_bytes or 0, container.read_url_pieces(core), until)


class Shell(NamedTuple):
    """Services of the shell for a renderer."""

    look: "Callable[[Invocation], int]"
    """Has it answered as it is, without renderers; the exit code."""
    say: Callable[[str], int]
    """Writes to standard output; the exit code."""
    fail: Callable[[str], None]
    """Shows one line of an error."""
    failed: Callable[[HeapxError, bool], int]
    """Tells an error; True: a document is out already. The exit code."""


class Invocation(NamedTuple):
    """Parsed command line; its words are not read again."""

    asked: GlobalOptions
    words: Sequence[str]
    """The command and its own options, as they were typed."""
    parsed: ParsedCommand

    @property
    def command(self) -> Command:
        """The declaration of the command."""
        return self.parsed.command

    @property
    def options(self) -> Options:
        """The options of the command."""
        options: Options = self.parsed.options
        return options

    def handed_on(self) -> str:
        """The command and its options, for a gdb that is started for it."""
        return json.dumps([self.command.name, vars(self.options)])

    def asking(self, **options: object) -> "Invocation":
        """Return this invocation with other values of these options."""
        return self._replace(parsed=self.parsed._replace(options=Options(**{**vars(self.options), **options})))

    @property
    def renderer(self) -> Optional[str]:
        """HTML or SQL where something else is made of what one look finds than the command's own answer."""
        renders = self.command.renders if self.parsed.help is None else None
        return renders(self.options) if renders is not None else None

    @property
    def needs_gdb(self) -> bool:
        """Reading is not enough: gdb has to hold the process for a call into it, to fetch debug files, or is what is asked about."""
        acts = self.command.acts is not None and self.command.acts(self.options)
        return acts or self.asked.debuginfod or self.command.tells_of_gdb


def understand_words(asked: GlobalOptions, words: Sequence[str]) -> Invocation:
    """The command line in full. UsageError if it cannot be understood."""
    name = declared.name_in(words)
    declared.load_commands(name)
    if name not in COMMANDS and not declared.is_command(name) and not asked.has_target:
        raise nothing_called(name)
    return Invocation(asked, words, declared.parse_command(words, "gdbheapx"))


def changes_process(parsed: ParsedCommand) -> bool:
    """The command is to call, write or have a system call made in the process."""
    acts = parsed.command.acts
    if parsed.options is None:  # only its help is asked for
        return False
    return bool(acts is not None and acts(parsed.options) or getattr(parsed.options, "short_stop", False))


def handed_over(text: str) -> ParsedCommand:
    """The reverse of Invocation.handed_on."""
    name, options = json.loads(text)
    declared.load_commands(name)
    return ParsedCommand(COMMANDS[name], Options(**options), None)
