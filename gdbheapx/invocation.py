"""A command line of the shell, understood once: what it is about, the command, its options, and who has to answer it."""

import json
from typing import Callable, NamedTuple, Optional, Sequence

from gdbheapx import loader, parse
from gdbheapx.command import COMMANDS, Command, Options
from gdbheapx.errors import HeapxError
from gdbheapx.global_options import GlobalOptions


class Shell(NamedTuple):
    """What the shell lends to a renderer."""

    look: "Callable[[Invocation], int]"
    """Has it answered as it is, without renderers; the exit code."""
    say: Callable[[str], int]
    """Writes to standard output; the exit code."""
    fail: Callable[[str], None]
    """Shows one line of an error."""
    failed: Callable[[HeapxError, bool], int]
    """Tells an error; True: a document is out already. The exit code."""


class Invocation(NamedTuple):
    """One command line. Nothing reads its words again."""

    asked: GlobalOptions
    words: Sequence[str]
    """The command and its own options, as they were typed."""
    parsed: parse.Parsed

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
        """The same with other values of these options."""
        return self._replace(parsed=self.parsed._replace(options=Options(**{**vars(self.options), **options})))

    @property
    def has_target(self) -> bool:
        """A process, core or snapshot is named."""
        return self.asked.pid is not None or self.asked.core is not None or self.asked.snapshot is not None

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


def understand(asked: GlobalOptions, words: Sequence[str]) -> Invocation:
    """The command line in full. UsageError if it cannot be understood."""
    loader.load_commands(parse.name_in(words))
    return Invocation(asked, words, parse.parse(words, "gdbheapx"))


def handed_over(text: str) -> parse.Parsed:
    """The reverse of Invocation.handed_on."""
    name, options = json.loads(text)
    loader.load_commands(name)
    return parse.Parsed(COMMANDS[name], Options(**options), None)
