"""A command line of the shell, understood once: what it is about, the command, its options, and who has to answer it."""

import json
import os
import time
from typing import Callable, Dict, Iterable, List, NamedTuple, Optional, Sequence, Tuple

from gdbheapx import command as declared
from gdbheapx.command import COMMANDS, Command, Options, ParsedCommand
from gdbheapx.common.errors import HeapxError, UsageError
from gdbheapx.common.global_options import (
    MOST_PIDS,
    UNPACKED,
    GlobalOptions,
    Wrong,
    command_first,
    list_running,
    pack_words,
    process_called,
    processes_called,
)

NEAR = 0.7
"""Of a name's characters, so that it may have been meant."""


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


def prepare_core(core: str, max_seconds: Optional[float] = None) -> Optional[HeapxError]:
    """Fetch a core that a URL names, and unpack a compressed one; the error where that fails. What is no core, or cannot be opened, is
    reported when it is read."""
    from gdbheapx.common.budget import LEAST_S
    from gdbheapx.common.problems import CANNOT_UNPACK
    from gdbheapx.inferior import core_file

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
