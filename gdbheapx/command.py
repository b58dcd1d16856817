"""Commands are declared once: name, options, help; shell, gdb, the help pages and the docs read the declaration.

Finds the command files: installed as gdbheapx.commands, or the folder `commands` beside this package in a bare checkout.
"""

import argparse
import importlib
import importlib.util
import os
import sys
from typing import Any, Callable, Dict, Iterable, Iterator, List, NamedTuple, Optional, Sequence, Tuple, Union

from gdbheapx.session import Session
from gdbheapx.stops import Reads

Options = argparse.Namespace
"""The parsed options of a command."""
HTML, SQL = "html", "sql"
"""What the shell makes, outside gdb, of what one look has found."""


class Argument(NamedTuple):
    """One option of a command, in argparse's words."""

    flags: Tuple[str, ...]
    options: Dict[str, Any]


def argument(*flags: str, **options: Any) -> Argument:
    """An option as argparse's add_argument takes it; `help` is demanded."""
    if not options.get("help"):
        raise ValueError("argument %s needs help" % (flags,))
    return Argument(flags, options)


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


class Answer(NamedTuple):
    """What a command found, in both forms; neither is made before it is asked for."""

    data: Callable[[], Any]
    """Gives the `data` member of the envelope: dicts, lists, records of model.py. A JsonLines value is streamed; a dict value that is
    callable is called when its turn comes, after whatever stands before it was written."""
    text: Callable[["Style"], Iterable[str]]
    """Gives the lines of the text form, lazily."""
    finding: bool = False
    """Exit code 3."""
    live: bool = False
    """Lines are handed on one by one while they are made, as text whatever --json says."""
    read: bool = False
    """Everything it shows has been read: a process that was stopped for it runs on while it is shown."""
    document: bool = False
    """The text is a file for other programs: what is to be said beside it goes where errors go."""
    pieces: bool = False
    """With `document`: the text comes in pieces of the file, not in lines. They are written as they are: what makes them escapes names."""


class Style(NamedTuple):
    """How text is shown."""

    plain_bytes: bool
    """--bytes: integers instead of human sizes."""
    color: bool


class Command(NamedTuple):
    """One declared command."""

    name: str
    arguments: Tuple[Argument, ...]
    run: Callable[[Session, Options], Answer]
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
    """What it reads of a process that stands still, with these options; None: that is not known beforehand."""
    renders: Optional[Callable[[Options], Optional[str]]] = None
    """HTML or SQL where the shell makes something else than text or JSON of what this command finds, with these options."""
    tells_of_gdb: bool = False
    """What it says depends on the gdb that is here."""
    snapshot: Union[bool, str] = False
    """A snapshot answers it: what it reads of memory goes through session.kept(), or is the graph. A text: only with this option."""


COMMANDS: Dict[str, Command] = {}


def command(
    name: str,
    arguments: Sequence[Argument] = (),
    slow: bool = True,
    needs_target: bool = True,
    acts: Optional[Callable[[Options], bool]] = None,
    help: Optional[str] = None,
    needs: Sequence[str] = (),
    repeats: bool = False,
    reads: Union[Reads, Callable[[Options], Reads], None] = None,
    renders: Optional[Callable[[Options], Optional[str]]] = None,
    tells_of_gdb: bool = False,
    snapshot: Union[bool, str] = False,
) -> Callable[[Callable[[Session, Options], Answer]], Callable[[Session, Options], Answer]]:
    """Declare the function below as the command `name`; it gets the session and its parsed options.

    `help` is not its docstring: with PYTHONOPTIMIZE=2, as in many images, nothing has one.
    """

    def declare(run: Callable[[Session, Options], Answer]) -> Callable[[Session, Options], Answer]:
        if not help:
            raise ValueError("command %s needs help" % name)
        what = (lambda options: reads) if isinstance(reads, Reads) else reads
        known = tuple(arguments), run, help, slow, needs_target, acts, needs, repeats, what, renders, tells_of_gdb, snapshot
        COMMANDS[name] = Command(name, *known)
        return run

    return declare


def full_help(one: Command) -> str:
    """The help of a command, with what each allocator says of its part."""
    from gdbheapx import allocators

    more = "\n".join(text.rstrip("\n") for text in allocators.paragraphs(one.name))
    return "%s\n%s" % (one.help.rstrip("\n"), "\n%s\n" % more if more else "")


def names() -> List[str]:
    """Declared commands, sorted."""
    return sorted(COMMANDS)


def find(name: str) -> Optional[Command]:
    """The command of that name."""
    return COMMANDS.get(name)


def load_commands(only: Optional[str] = None) -> None:
    """Import every command file, which declares its command; with `only`, the file of the command of that name if there is one.

    They read nothing when they are imported.
    """
    if "gdbheapx.commands" not in sys.modules and importlib.util.find_spec("gdbheapx.commands") is None:
        folder = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "commands")
        spec = importlib.util.spec_from_file_location(
            "gdbheapx.commands", os.path.join(folder, "__init__.py"), submodule_search_locations=[folder]
        )
        if spec is None or spec.loader is None:
            raise ImportError("no commands in %s" % folder)
        package = importlib.util.module_from_spec(spec)
        sys.modules["gdbheapx.commands"] = package
        spec.loader.exec_module(package)
    files = command_files()
    own = (only or "").replace("-", "_")
    for name in [own] if own in files else files:
        importlib.import_module("gdbheapx.commands." + name)


def command_files() -> List[str]:
    """Names of the files, sorted. (pkgutil would import inspect, 5 ms, for the same list.)"""
    package = importlib.import_module("gdbheapx.commands")
    embedded = getattr(package, "EMBEDDED", None)  # the single file has no folder
    files = embedded if embedded is not None else [file for folder in package.__path__ for file in os.listdir(folder)]
    return sorted(file[:-3] for file in files if file.endswith(".py") and file != "__init__.py")
