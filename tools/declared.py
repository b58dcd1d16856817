"""What the commands declare, as the pages made from it need it: the reference, the man page, the completion of shells."""

import inspect
import re
from typing import Any, Dict, Iterable, List, NamedTuple, Tuple

FLAGS = ("store_true", "store_const")
"""Actions of options that take no value; nor do those with a class of their own (command.Switch)."""


class Option(NamedTuple):
    """An option, or a word without a name."""

    flags: Tuple[str, ...]
    value: str
    """How the help calls its value: `N`, `size|address`. Empty if it takes none."""
    choices: Tuple[str, ...]
    help: str
    """One paragraph."""
    several: bool = False
    """A word without a name that may be given more than once."""

    @property
    def is_named(self) -> bool:
        """False for a word without a name."""
        return self.flags[0].startswith("-")


class Command(NamedTuple):
    """A command as pages show it."""

    name: str
    summary: str
    """The first line of its help."""
    text: str
    """The rest: paragraphs, with an empty line between them."""
    needs_target: bool
    options: Tuple[Option, ...]


def commands() -> List[Command]:
    """Every command, sorted by name."""
    from gdbheapx import command

    command.load_commands()
    declared = []
    for name in command.command_names():
        one = command.COMMANDS[name]
        summary, _, rest = inspect.cleandoc(command.full_help(one)).partition("\n")
        options = tuple(option(argument.flags, argument.options) for argument in one.arguments if argument.options["help"] != command.OLDER)
        declared.append(Command(name, summary, rest.strip(), one.needs_target, options))
    return declared


def option(flags: Iterable[str], words: Dict[str, Any]) -> Option:
    """One declaration in argparse's words."""
    flags, action = tuple(flags), words.get("action")
    choices = tuple(map(str, words.get("choices") or ()))
    takes_none = action in FLAGS or isinstance(action, type)
    value = "" if takes_none else str(words.get("metavar") or "|".join(choices) or flags[-1].lstrip("-").upper())
    return Option(flags, value, choices, str(words["help"]).replace("%%", "%"), words.get("nargs") == "+")


def common() -> List[Option]:
    """The options of every command."""
    from gdbheapx import command

    return [option(given.flags, given.options) for given in command.COMMON]


def shell() -> List[Option]:
    """The options of the command line, from the help, which is what a user sees."""
    from gdbheapx.command.help_pages import GLOBAL
    from gdbheapx.common.global_options import FLAGS as without
    from gdbheapx.common.global_options import SHORT, VALUES

    options = []
    for match in re.finditer(r"^  (--\S+)(?: (\S+))?  +(.*(?:\n {10,}.*)*)", GLOBAL, re.MULTILINE):
        short = tuple(word for word, long in SHORT.items() if long == match[1])
        options.append(Option((match[1], *short), match[2] or "", (), " ".join(match[3].split())))
    declared = {**VALUES, **dict.fromkeys(without, "")}
    assert {one.flags[0]: one.value for one in options} == declared, "help_pages.GLOBAL and invocation.VALUES differ"
    return options
