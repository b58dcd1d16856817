"""Commands are declared once: name, options, help; shell, gdb, the help pages and the docs read the declaration.

The core's files are installed as gdbheapx.commands, or are in the folder `commands` next to this package in a bare checkout; an add-on
has a folder of its own. A command line becomes a declared command and its options, with argparse.
"""

import argparse
import importlib
import importlib.util
import os
import re
import sys
from types import ModuleType
from typing import Any, Callable, Dict, Iterable, Iterator, List, Mapping, NamedTuple, NoReturn, Optional, Sequence, Tuple, Union

from gdbheapx.allocators.session import Session
from gdbheapx.common import addon_loader
from gdbheapx.common.catalogue import ALIASES, file_of
from gdbheapx.common.errors import Unevaluated, UsageError
from gdbheapx.common.global_options import ENDS
from gdbheapx.common.hints import Write, hint_about, hint_run, quote_word, write_alone
from gdbheapx.common.stops import READ_STOP_S, Reads

Evaluate = Callable[[str], int]
"""Gives the address that a debugger's expression has; UsageError where it has none."""
Options = argparse.Namespace
"""The parsed options of a command."""
HTML, SQL, EXPLORE, CAPTURE, MCP = "html", "sql", "explore", "capture", "mcp"
"""What the shell makes, outside gdb, of what one look has found."""
ACT_STOP_S = 5.0
"""How long a live process may be stopped at a time for what changes it."""
COUNT = re.compile(r"[0-9]{1,18}", re.ASCII)
SIZE = re.compile(r"(0x[0-9a-f]+|[0-9]+)(?:([kmgt])(?:ib)?|b)?", re.IGNORECASE | re.ASCII)
SIZE_HELP = "SIZE is bytes, or like 0x10000, 64K, 2G"
"""What the help of an option that takes a size says."""
OLDER = argparse.SUPPRESS
"""The help of an option that is another command's now: it still works."""
ACCEPT_SECCOMP_HELP = "act even if the process's seccomp filter might kill it for the call"
"""What the help of that option says."""
ADDRESS = re.compile(r"0x[0-9a-f]{1,16}|[0-9]{1,20}", re.IGNORECASE | re.ASCII)
DEFAULT = "report"
"""The command where none is named."""


class Argument(NamedTuple):
    """Declaration of one option of a command, in argparse's words."""

    flags: Tuple[str, ...]
    options: Dict[str, Any]
    capability: Optional[str] = None
    """Capability of an add-on without which nothing offers it."""


def declare_argument(*flags: str, capability: Optional[str] = None, **options: Any) -> Argument:
    """Declare an option as argparse's add_argument takes it; `help` is demanded."""
    if not options.get("help"):
        raise ValueError("argument %s needs help" % (flags,))
    return Argument(flags, options, capability)


class MissingOption(argparse.Action):
    """Option of an add-on that is not there: no help has it, and an error says how to get it."""

    def __init__(self, option_strings: Sequence[str], dest: str, missing: Argument) -> None:
        is_flag = "action" in missing.options
        default = missing.options.get("default", False if is_flag else None)
        super().__init__(option_strings, dest, nargs=0 if is_flag else None, default=default, help=argparse.SUPPRESS)
        self._capability = str(missing.capability)

    def __call__(self, parser: Any, namespace: argparse.Namespace, values: Any, option: Optional[str] = None) -> None:
        raise addon_loader.missing_capability(self._capability, "%s %s" % (parser.command.name, option))


NAMES = (declare_argument("--no-names", action="store_true", help="without paths: names and keys of the program's own objects are data"),)
"""Of commands that show how the program itself gets to a block."""
SHORT_STOP = tuple(
    declare_argument(flag, action="store_true", capability="short_stop", help=text)
    for flag, text in (
        ("--short-stop", "copy a live process while it runs: a stop of milliseconds; makes two system calls in it"),
        ("--accept-thp-split", "with --short-stop, although huge pages may become small ones"),
        ("--accept-mark-loss", "with --short-stop, although CRIU may wait for marks of writes"),
        ("--yes", "with --short-stop: do not ask for confirmation"),
    )
)
"""Of a command that a process is copied for."""


class Switch(argparse.Action):
    """An option in two forms, `--NAME` and `--no-NAME`: True, False, or None where neither was given."""

    def __init__(self, option_strings: Sequence[str], dest: str, **options: Any) -> None:
        super().__init__(option_strings, dest, nargs=0, default=None, help=options.get("help"))

    def __call__(self, parser: Any, namespace: argparse.Namespace, values: Any, option: Optional[str] = None) -> None:
        setattr(namespace, self.dest, not (option or "").startswith("--no-"))


class JsonLines(NamedTuple):
    """A JSON array that is written while it is made, one entry a line."""

    entries: Iterator[str]
    """Encoded JSON values, one each."""


class CommandAnswer(NamedTuple):
    """Result of a command, as text and as JSON; neither is made before it is needed."""

    data: Callable[[], Any]
    """Gives the `data` member of the envelope: dicts, lists, records of model.py. A JsonLines value is streamed; a dict value that is
    callable is called when its turn comes, after whatever comes before it was written."""
    text: Callable[["TextStyle"], Iterable[str]]
    """Gives the lines of the text form, lazily."""
    finding: bool = False
    """Exit code 3."""
    live: bool = False
    """Lines are handed on one by one while they are made, as text whatever --json says."""
    read: bool = False
    """Everything it shows has been read: a process that was stopped for it runs on while it is shown."""
    document: bool = False
    """The text is a file for other programs: what is to be said besides goes where errors go."""
    pieces: bool = False
    """With `document`: the text comes in pieces of the file, not in lines. They are written as they are: what makes them escapes names."""
    record: Optional[Callable[[], Any]] = None
    """Gives what was found as the record that both forms are made from; None: `data` is that."""
    ends: Optional[Callable[["TextStyle", int], Iterable[str]]] = None
    """Gives lines for the very end of the text, after what could not be read; with how many lines there are before."""
    tells_pause: bool = False
    """The text says itself how long the process was paused."""
    exact: bool = False
    """The text is what another program would write: no terminal breaks its lines."""

    def found(self) -> Any:
        """Return the records for callers in Python."""
        return self.data() if self.record is None else self.record()


class TextStyle(NamedTuple):
    """Settings of text output."""

    plain_bytes: bool
    """--bytes: integers instead of human sizes."""
    color: bool
    width: Optional[int] = None
    """Characters in a line of a table; None: as many as it takes (--wide)."""
    shortens: bool = False
    """Texts in tables are shortened to fit: on a terminal, but never for a program that reads them."""
    wraps: bool = False
    """Sentences take several lines of that width: on a terminal."""
    command_line: Write = write_alone
    """Writes a command that a text names, for the place where it is read."""
    module_names: Callable[[], Mapping[str, str]] = dict
    """By build-id what modules are called, for classes without a name; asked where a text has one."""


class Command(NamedTuple):
    """Declaration of one command: its function, options, help and requirements."""

    name: str
    arguments: Tuple[Argument, ...]
    run: Callable[[Session, Options], CommandAnswer]
    help: str
    """What --help shows; its first line is the summary."""
    slow: bool
    """An empty Enter in gdb must not repeat it."""
    needs_target: bool
    acts: Optional[Callable[[Options], bool]] = None
    """True for options with which it changes the process, and needs gdb's own hold of it instead of the one for reading; None: never."""
    needs: Sequence[str] = ()
    """Modules that it imports while it reads."""
    repeats: bool = False
    """It reads a process again and again over a long time: the process runs meanwhile, and no gdb serves. From a shell alone."""
    reads: Optional[Callable[[Options], Reads]] = None
    """What it reads of a process that is stopped, with these options; None: that is not known beforehand."""
    renders: Optional[Callable[[Options], Optional[str]]] = None
    """HTML or SQL where the shell makes something else than text or JSON of what this command finds, with these options."""
    tells_of_gdb: bool = False
    """What it says depends on the gdb that is here."""
    snapshot: Union[bool, str] = False
    """A snapshot answers it: what it reads of memory goes through session.kept(), or is the graph. A text: only with this option."""
    before: Optional[Callable[[Session, Options], None]] = None
    """Called once, before the process is looked at or stopped: what has to be watched while it runs."""
    examples: Sequence[str] = ()
    """Command lines without the program's name."""
    in_shell: bool = False
    """gdb does not offer it."""
    live: bool = False
    """It asks a process: no core answers it."""
    given: Mapping[str, Any] = {}
    """Options that its name sets: it is an older name of a command that has them."""
    settle: Optional[Callable[[Session, Options], None]] = None
    """Called where a process is about to be stopped and its size is known: sets the options that depend on that."""
    missing: Tuple[Argument, ...] = ()
    """Options of add-ons that are not there."""


COMMANDS: Dict[str, Command] = {}


def declare_command(
    name: str,
    arguments: Sequence[Argument] = (),
    slow: bool = True,
    needs_target: bool = True,
    help: Optional[str] = None,
    help_of: Optional[Mapping[str, str]] = None,
    reads: Union[Reads, Callable[[Options], Reads], None] = None,
    **how: Any,
) -> Callable[[Callable[[Session, Options], CommandAnswer]], Callable[[Session, Options], CommandAnswer]]:
    """Declare the function below as the command `name`; it gets the session and its parsed options. `how`: further fields of Command.

    `help` is not its docstring: with PYTHONOPTIMIZE=2, as in many images, nothing has one. `help_of`: by capability, the paragraph about
    options of an add-on.
    """

    def declare(run: Callable[[Session, Options], CommandAnswer]) -> Callable[[Session, Options], CommandAnswer]:
        if not help:
            raise ValueError("command %s needs help" % name)
        texts = [help, *(text for capability, text in (help_of or {}).items() if addon_loader.has_capability(capability))]
        own = tuple(one for one in arguments if has_option(one))
        missing = tuple(one for one in arguments if not has_option(one))
        what = (lambda options: reads) if isinstance(reads, Reads) else reads
        declared = Command(name, own, run, "\n".join(texts), slow, needs_target, reads=what, missing=missing, **how)
        COMMANDS[name] = declared
        for older, (newer, given) in ALIASES.items():
            if newer == name:
                left = tuple(one for one in own if option_name(one) not in given)
                COMMANDS[older] = declared._replace(name=older, arguments=left, given=given)
        return run

    return declare


def has_option(given: Argument) -> bool:
    """Return True for an option of the core, or of an add-on that is there."""
    return given.capability is None or addon_loader.has_capability(given.capability)


def option_name(given: Argument) -> str:
    """The name that the option has among those that were parsed."""
    long = next((flag for flag in given.flags if flag.startswith("--")), given.flags[0])
    return str(given.options.get("dest") or long.lstrip("-").replace("-", "_"))


def full_help(declared: Command) -> str:
    """The help of a command, with what each allocator says of its part."""
    from gdbheapx import allocators

    older = [name for name, (newer, _) in ALIASES.items() if newer == declared.name]
    more = "\n".join(text.rstrip("\n") for name in (declared.name, *older) for text in allocators.help_paragraphs(name))
    return "%s\n%s" % (declared.help.rstrip("\n"), "\n%s\n" % more if more else "")


def command_names() -> List[str]:
    """Declared commands, sorted, without older names."""
    return sorted(name for name in COMMANDS if name not in ALIASES)


def is_command(name: str) -> bool:
    """A command has this name, or had it, also one of an add-on that is not there; none is imported."""
    return file_of(name) in core_commands() or addon_loader.addon_of_command(file_of(name)) is not None


def find_command(name: str) -> Optional[Command]:
    """The command of that name."""
    return COMMANDS.get(name)


def load_commands(only: Optional[str] = None) -> None:
    """Import every command file, which declares its command; with `only`, the file of the command of that name if there is one.

    They read nothing when they are imported.
    """
    core, own = core_commands(), file_of(only or "")
    if own in core:
        core = [own]
    elif addon_loader.addon_of_command(own) is not None:
        addon_loader.import_command(own)
        return
    for name in core:
        importlib.import_module("gdbheapx.commands." + name)
    for name in () if own in core else addon_loader.installed_commands():
        addon_loader.import_command(name)


def commands_package() -> ModuleType:
    """The package of the command files, as installed or from the folder next to this package."""
    if "gdbheapx.commands" in sys.modules or importlib.util.find_spec("gdbheapx.commands") is not None:
        return importlib.import_module("gdbheapx.commands")
    folder = os.path.join(os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))), "commands")
    spec = importlib.util.spec_from_file_location(
        "gdbheapx.commands", os.path.join(folder, "__init__.py"), submodule_search_locations=[folder]
    )
    if spec is None or spec.loader is None:
        raise ImportError("no commands in %s" % folder)
    package = importlib.util.module_from_spec(spec)
    sys.modules["gdbheapx.commands"] = package
    spec.loader.exec_module(package)
    return package


def command_files() -> List[str]:
    """Return the files of all commands that are there, sorted."""
    return sorted([*core_commands(), *addon_loader.installed_commands()])


def core_commands() -> List[str]:
    """Return the files of the core's commands, sorted. (pkgutil would import inspect, 5 ms, for the same list.)"""
    package = commands_package()
    embedded = getattr(package, "EMBEDDED", None)  # the single file has no folder
    files = embedded if embedded is not None else [file for folder in package.__path__ for file in os.listdir(folder)]
    return sorted(file[:-3] for file in files if file.endswith(".py") and file != "__init__.py")


class CommandParser(argparse.ArgumentParser):
    """The options of one command. It raises instead of ending the process."""

    def __init__(self, command: Command, program: str) -> None:
        super().__init__(prog="%s %s" % (program, command.name), add_help=False, allow_abbrev=False)
        self.command = command

    def error(self, message: str) -> NoReturn:
        raise UsageError("%s: %s" % (self.prog.split(" ", 1)[-1], message), "try: %s --help" % self.prog)


def parser_of(command: Command, program: str, with_expressions: bool = False) -> argparse.ArgumentParser:
    """The parser of one command; `program` is `heapx` or `gdbheapx`. `with_expressions`: an address is left as it was typed, in words."""
    parser = CommandParser(command, program)
    for given in (*command.arguments, *add_common_options(command)):
        typed: Dict[str, Any] = {}
        if with_expressions and given.options.get("type") in ADDRESSES:  # without an option in front it may contain spaces
            typed = {"type": str} if given.flags[0].startswith("-") else {"type": str, "nargs": "+"}
        parser.add_argument(*given.flags, **{**given.options, **typed})
    for given in command.missing:
        parser.add_argument(*given.flags, action=MissingOption, dest=option_name(given), missing=given)
    parser.set_defaults(**command.given)
    return parser


def add_common_options(command: Command) -> List[Argument]:
    """The options of every command, without what the command takes for itself."""
    taken = {flag for given in command.arguments for flag in given.flags}
    left = [given._replace(flags=tuple(flag for flag in given.flags if flag not in taken)) for given in COMMON]
    return [given for given in left if given.flags]


def parse_seconds(text: str) -> float:
    """A number of seconds, 0 or more."""
    value = float(text)
    if not 0 <= value < 1e9:
        raise ValueError(text)
    return value


def some_seconds(text: str) -> float:
    """A number of seconds, more than 0."""
    value = parse_seconds(text)
    if not value:
        raise ValueError(text)
    return value


def parse_count(text: str) -> int:
    """Parse a number of things: 0 or more."""
    if not COUNT.fullmatch(text.strip()):
        raise argparse.ArgumentTypeError("%s is not a number of 0 or more" % text)
    return int(text)


def parse_address(text: str) -> int:
    """An address: hex with 0x, or decimal."""
    match = ADDRESS.fullmatch(text.strip())
    value = int(match.group(), 16 if match.group()[:2] in ("0x", "0X") else 10) if match is not None else 1 << 64
    if value >= 1 << 64:
        raise argparse.ArgumentTypeError("%s is not an address: give hex with 0x, or decimal" % text)
    return value


def address_or_name(text: str) -> Union[int, str]:
    """An address, or the name of a variable, which begins with no digit."""
    return parse_address(text) if text[:1].isdigit() else text


def address_or_printed(text: str) -> Union[int, str]:
    """An address, or what an answer calls a block or an owner; in gdb an expression that has a value comes before such names."""
    return parse_address(text) if text[:1].isdigit() or text[:1] in ("$", "-") else text


ADDRESSES = (parse_address, address_or_name, address_or_printed)


def drop_tags(declared: Command, options: Options, ignored_bits: int) -> None:
    """Addresses among the options lose what is none of an address in this process, such as a tag."""
    for given in declared.arguments:
        value = getattr(options, option_name(given), None)
        if given.options.get("type") in ADDRESSES and isinstance(value, int):
            setattr(options, option_name(given), value & ~ignored_bits)


def _evaluate_addresses(declared: Command, options: Options, evaluate: Evaluate) -> None:
    """Make addresses of the expressions among the options."""
    for given in declared.arguments:
        kind, name = given.options.get("type"), option_name(given)
        value = getattr(options, name, None)
        if kind not in ADDRESSES or value is None:
            continue
        text = value if isinstance(value, str) else " ".join(value)
        if ADDRESS.fullmatch(text):
            setattr(options, name, parse_address(text))
        elif kind is parse_address or text[0].isdigit() or text[0] in "&*(":
            setattr(options, name, evaluate(text))
        elif text[0] == "$" or "->" in text or kind is address_or_printed:
            try:
                setattr(options, name, evaluate(text))
            except UsageError as error:  # PHP's own names look like this
                setattr(options, name, Unevaluated.of(text, error))


def parse_size(text: str) -> int:
    """A number of bytes: decimal, hex with 0x, or with K, M, G or T after it, which are powers of 1024 (`64K`, `64KiB`)."""
    match = SIZE.fullmatch(text.strip())
    if match is None:
        raise argparse.ArgumentTypeError("%s is not a size: %s" % (text, SIZE_HELP))
    number, unit = match.groups()
    return int(number, 0 if number[:2] in ("0x", "0X") else 10) << 10 * (" kmgt".index(unit.lower()) if unit else 0)


def column_of(record: Callable[[], Any]) -> Callable[[str], str]:
    """The type of --sort: a column of the record by its heading as shown, or by its name in JSON. `record` imports it."""

    def named(text: str) -> str:
        from gdbheapx.common.columns import columns_of

        fields = {column.heading: column.field for column in columns_of(record()) if column.heading}
        names = {field.replace("_bytes", ""): field for field in fields.values()}
        names.update({field: field for field in fields.values()}, **fields)
        if text not in names:
            hint = _suggest_name(text, list(names)) or "they are: %s" % ", ".join(fields)
            raise argparse.ArgumentTypeError("no column is called %s: %s" % (text, hint))
        return names[text]

    return named


COLOR_HELP = "colours of headings, warnings, damage; auto: on a terminal, unless NO_COLOR is set"
MAX_STOP_HELP = "let a live process go on after so long, whatever is missing then (default: %g; %g for what changes it)"
COMMON: Sequence[Argument] = (
    declare_argument("--json", action="store_true", help="one JSON document instead of text"),
    declare_argument("-o", "--output", metavar="FILE", help="write the answer to FILE, readable only by you"),
    declare_argument("--bytes", action="store_true", help="sizes as plain integers"),
    declare_argument("--wide", action="store_true", help="all columns of tables, however wide the terminal is"),
    declare_argument("--color", choices=("auto", "always", "never"), default="auto", help=COLOR_HELP),
    declare_argument("--max-seconds", metavar="N", type=parse_seconds, help="stop the walk after N seconds; the answer is then partial"),
    declare_argument("--max-stop", metavar="SECONDS", type=some_seconds, help=MAX_STOP_HELP % (READ_STOP_S, ACT_STOP_S)),
    declare_argument(
        "--allocator", metavar="ID", help="only this allocator, by its id as `doctor` shows it (NAME, or NAME#2 for a second copy)"
    ),
    declare_argument("--read-swap", action="store_true", help="read swapped pages even without room for them: this can end the process"),
    declare_argument("--traceback", action="store_true", help="show the Python traceback of an internal error"),
    declare_argument("-h", "--help", action="store_true", help="show the command's own options"),
    declare_argument("--help-all", action="store_true", help="show all options, and the meaning of the answer"),
)
ADVANCED = ("--max-stop", "--read-swap", "--traceback")
"""Of these, what says how a process is read."""


class ParsedCommand(NamedTuple):
    """A command line that was understood."""

    command: Command
    options: Any
    help: Optional[bool]
    """Help was asked for, and the command is not to be run: True, with the options that are seldom needed."""


def has_flag(words: Sequence[str], *flags: str) -> bool:
    """True if one of the flags is among the words before `--`, or what else ENDS them."""
    end = next((place for place, word in enumerate(words) if word in ENDS), len(words))
    return any(word in flags for word in words[:end])


def name_in(words: Sequence[str]) -> str:
    """The name of the command that these words ask for."""
    return words[0] if words and not words[0].startswith("-") else DEFAULT


MOST_SHORT, NEAR = 3, 0.75
"""A beginning of a name that is longer than this was meant for it, or a word with so much of it."""


def _suggest_name(word: str, known: Sequence[str]) -> Optional[str]:
    """A question about the nearest of them; None where none is near."""
    from difflib import get_close_matches

    found = [one for one in known if len(word) > MOST_SHORT and one.startswith(word)][:1] or get_close_matches(word, known, 1, NEAR)
    return "did you mean %s?" % found[0] if found else None


def name_a_target(words: str) -> str:
    """The hint where a command that reads a process or a core is given none."""
    return "name one: gdbheapx -p PID %s, or gdbheapx --core FILE %s" % (words, words)


def no_such_command(name: str) -> UsageError:
    """Return the error for an unknown command, with the nearest name."""
    missing = addon_loader.missing_command(name, file_of(name))
    if missing is not None:
        return missing
    meant = "did you mean: %s" % hint_about("process", name, DEFAULT) if name.isdigit() else _suggest_name(name, command_names())
    return UsageError("no such command: %s" % name, meant or "the commands are: %s" % ", ".join(command_names()))


def parse_command(words: Sequence[str], program: str, evaluate: Optional[Evaluate] = None) -> ParsedCommand:
    """The command and its options; no words at all are those of DEFAULT. UsageError if it cannot be understood. `evaluate`: an address may
    be an expression."""
    rest: List[str] = list(words)
    name = name_in(rest)
    del rest[: rest[:1] == [name]]
    command = find_command(name)
    if command is None:
        raise no_such_command(name)
    if has_flag(rest, "-h", "--help", "--help-all"):
        return ParsedCommand(command, None, has_flag(rest, "--help-all"))
    parser = parser_of(command, program, with_expressions=evaluate is not None)
    try:
        options, unknown = parser.parse_known_args(rest)
        if unknown:
            flags = [flag for action in parser._actions for flag in action.option_strings if not isinstance(action, MissingOption)]
            hint = _suggest_name(unknown[0].partition("=")[0], flags) or "try: " + hint_run(name + " --help")
            if unknown[0].isdigit() and command.needs_target:
                understood = [quote_word(word) for word in rest if word not in unknown]
                hint = "to ask process %s: %s" % (unknown[0], hint_about("process", unknown[0], " ".join([name, *understood])))
            raise UsageError("%s: unrecognized arguments: %s" % (name, " ".join(unknown)), hint)
        if evaluate is not None:
            _evaluate_addresses(command, options, evaluate)
        return ParsedCommand(command, options, None)
    except UsageError as error:
        meant = next((word for word in rest if find_command(word) is not None), None) if name not in words[:1] else None
        if meant is None:
            raise
        raise UsageError("options of %s stand behind its name (%s)" % (meant, error.message), "try: %s %s --help" % (program, meant))
