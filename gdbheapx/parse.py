"""A command line into a declared command and its options, with argparse."""

import argparse
import re
from typing import Any, List, NamedTuple, NoReturn, Optional, Sequence, Set, Union

from gdbheapx import command as declared
from gdbheapx.command import Command
from gdbheapx.errors import UsageError


class Words(argparse.ArgumentParser):
    """The options of one command. It raises instead of ending the process, and asks allocators for their part of the help only for help."""

    def __init__(self, command: Command, program: str) -> None:
        super().__init__(
            prog="%s %s" % (program, command.name),
            add_help=False,
            allow_abbrev=False,
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        self.command = command

    def format_help(self) -> str:
        self.description = "\n".join(line.strip() for line in declared.full_help(self.command).strip().split("\n"))
        return super().format_help()

    def error(self, message: str) -> NoReturn:
        raise UsageError("%s: %s" % (self.prog.split(" ", 1)[-1], message), "try: %s --help" % self.prog)


def parser_of(command: Command, program: str) -> argparse.ArgumentParser:
    """The parser of one command; `program` is `heapx` or `gdbheapx`."""
    parser = Words(command, program)
    own = parser.add_argument_group("options of this command") if any(one.flags[0].startswith("-") for one in command.arguments) else parser
    taken: Set[str] = set()
    for one in command.arguments:
        (own if one.flags[0].startswith("-") else parser).add_argument(*one.flags, **one.options)
        taken.update(one.flags)
    common = parser.add_argument_group("options of every command")
    for flags, options in COMMON:
        if not taken.intersection(flags):
            common.add_argument(*flags, **options)
    return parser


def seconds(text: str) -> float:
    """A number of seconds, 0 or more."""
    value = float(text)
    if not 0 <= value < 1e9:
        raise ValueError(text)
    return value


def some_seconds(text: str) -> float:
    """A number of seconds, more than 0."""
    value = seconds(text)
    if not value:
        raise ValueError(text)
    return value


READ_STOP_S, ACT_STOP_S = 2.0, 5.0
"""How long a live process may stand still at a time: for what reads it, and for what changes it."""


def count(text: str) -> int:
    """How many: 0 or more."""
    if not COUNT.fullmatch(text.strip()):
        raise argparse.ArgumentTypeError("%s is not a number of 0 or more" % text)
    return int(text)


COUNT = re.compile(r"[0-9]{1,18}", re.ASCII)
SIZE = re.compile(r"(0x[0-9a-f]+|[0-9]+)(?:([kmgt])(?:ib)?|b)?", re.IGNORECASE | re.ASCII)
SIZE_HELP = "SIZE is bytes, or like 0x10000, 64K, 2G"
"""What the help of an option that takes a size says."""


ACCEPT_SECCOMP_HELP = "act even if the process's seccomp filter might kill it for the call"
"""What the help of that option says."""


ADDRESS = re.compile(r"0x[0-9a-f]{1,16}|[0-9]{1,20}", re.IGNORECASE | re.ASCII)


def address(text: str) -> int:
    """An address: hex with 0x, or decimal."""
    found = ADDRESS.fullmatch(text.strip())
    value = int(found.group(), 16 if found.group()[:2] in ("0x", "0X") else 10) if found is not None else 1 << 64
    if value >= 1 << 64:
        raise argparse.ArgumentTypeError("%s is not an address: give hex with 0x, or decimal" % text)
    return value


def address_or_name(text: str) -> Union[int, str]:
    """An address, or the name of a variable, which begins with no digit."""
    return address(text) if text[:1].isdigit() else text


def size(text: str) -> int:
    """A number of bytes: decimal, hex with 0x, or with K, M, G or T behind it, which are powers of 1024 (`64K`, `64KiB`)."""
    found = SIZE.fullmatch(text.strip())
    if found is None:
        raise argparse.ArgumentTypeError("%s is not a size: %s" % (text, SIZE_HELP))
    number, unit = found.groups()
    return int(number, 0 if number[:2] in ("0x", "0X") else 10) << 10 * (" kmgt".index(unit.lower()) if unit else 0)


COMMON: Sequence[Any] = (
    (("--json",), {"action": "store_true", "help": "one JSON document instead of text"}),
    (("-o", "--output"), {"metavar": "FILE", "help": "write the answer to FILE, readable only by you"}),
    (("--bytes",), {"action": "store_true", "help": "sizes as plain integers"}),
    (("--max-seconds",), {"metavar": "N", "type": seconds, "help": "stop the walk after N seconds; the answer is then partial"}),
    (
        ("--max-stop",),
        {
            "metavar": "SECONDS",
            "type": some_seconds,
            "help": "let a live process go on after so long, whatever is missing then (default: %g; %g for what changes it)"
            % (READ_STOP_S, ACT_STOP_S),
        },
    ),
    (
        ("--allocator",),
        {"metavar": "ID", "help": "only this allocator, by its id as `doctor` shows it (NAME, or NAME#2 for a second copy)"},
    ),
    (
        ("--read-swap",),
        {
            "action": "store_true",
            "help": "read swapped pages even without room for them: this can end the process",
        },
    ),
    (("--traceback",), {"action": "store_true", "help": "show the Python traceback of an internal error"}),
    (("-h", "--help"), {"action": "store_true", "help": "show this help"}),
)


class Parsed(NamedTuple):
    """A command line that was understood."""

    command: Command
    options: Any
    help: Optional[str]
    """The help text, if that was asked for; the command is not to be run then."""


DEFAULT = "report"
"""The command where none is named."""


def wants(words: Sequence[str], *flags: str) -> bool:
    """True if one of the flags stands among the words before `--`."""
    return any(word in flags for word in (words[: words.index("--")] if "--" in words else words))


def name_in(words: Sequence[str]) -> str:
    """The name of the command that these words ask for."""
    return words[0] if words and not words[0].startswith("-") else DEFAULT


def parse(words: Sequence[str], program: str) -> Parsed:
    """The command and its options; no words at all are those of DEFAULT. UsageError if it cannot be understood."""
    rest: List[str] = list(words)
    name = name_in(rest)
    del rest[: rest[:1] == [name]]
    command = declared.find(name)
    if command is None:
        if name.isdigit():
            raise UsageError("no such command: %s" % name, "did you mean --pid %s?" % name)
        raise UsageError("no such command: %s" % name, "the commands are: %s" % ", ".join(declared.names()))
    parser = parser_of(command, program)
    if wants(rest, "-h", "--help"):
        return Parsed(command, None, parser.format_help())
    try:
        return Parsed(command, parser.parse_args(rest), None)
    except UsageError as error:
        meant = next((word for word in rest if declared.find(word) is not None), None) if name not in words[:1] else None
        if meant is None:
            raise
        raise UsageError("options of %s stand behind its name (%s)" % (meant, error.message), "try: %s %s --help" % (program, meant))
