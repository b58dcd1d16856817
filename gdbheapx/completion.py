"""Complete a command line at gdb's prompt from the declarations of the commands. Nothing here knows gdb."""

import os
from typing import Any, Callable, Dict, List, Mapping, Sequence, Union

from gdbheapx.command import ADDRESSES, COMMON, Argument, Command, Switch

FILE, EXPRESSION = "file", "expression"
"""What the host itself completes."""
FILES = ("FILE", "CORE", "OLD", "NEW", "DIR", "FOLDER")
"""Values that are paths, by their name in the help."""
MOST_FILES = 200
ALLOCATOR, ARENA = "--allocator", "--arena"
Completion = Union[str, List[str]]
"""Words, or which of the host's own ways."""
Lookup = Callable[[str], Sequence[str]]
"""Gives the values of --allocator or --arena in what is looked at."""


def complete_word(declared: Command, text: str, lookup: Lookup) -> Completion:
    """Return the possible completions of the last word of `text`, the words after the command's name."""
    words = text.split(" ")
    last, before = words[-1], [word for word in words[:-1] if word]
    options = _complete_options(declared)
    name, equals, value = last.partition("=")
    if equals and name in options and _takes_value(options[name]):
        found = _complete_values(name, options[name], lookup)
        found = _complete_files(value) if found == FILE else found
        return found if isinstance(found, str) else ["%s=%s" % (name, word) for word in found if word.startswith(value)]
    if before and before[-1] in options and _takes_value(options[before[-1]]):
        found = _complete_values(before[-1], options[before[-1]], lookup)
    elif last.startswith("-"):
        found = [flag for flag in options if flag.startswith("--")]
    else:
        found = _complete_positional(declared, before, options, lookup)
    if found == FILE and before:  # gdb takes all that was typed for one name
        return _complete_files(last)
    return found if isinstance(found, str) else [word for word in found if word.startswith(last)]


def _complete_files(begun: str) -> List[str]:
    """Paths that begin so, folders with a slash."""
    folder, name = os.path.split(begun)
    try:
        entries = sorted(os.listdir(os.path.expanduser(folder) or "."))
    except OSError:
        return []
    known = [os.path.join(folder, entry) for entry in entries if entry.startswith(name) and (name or not entry.startswith("."))]
    return [path + "/" if os.path.isdir(os.path.expanduser(path)) else path for path in known[:MOST_FILES]]


def _complete_options(declared: Command) -> Dict[str, Argument]:
    """Every flag of the command with what it stands for; its own before those of every command."""
    common = [Argument(flags, options) for flags, options in COMMON]
    made: Dict[str, Argument] = {}
    for given in [*declared.arguments, *common]:
        for flag in given.flags:
            if flag.startswith("-"):
                made.setdefault(flag, given)
    return made


def _takes_value(given: Argument) -> bool:
    return given.options.get("action") not in ("store_true", "store_const", Switch)


def _complete_values(flag: str, given: Argument, lookup: Lookup) -> Completion:
    if given.options.get("choices"):
        return list(given.options["choices"])
    if flag in (ALLOCATOR, ARENA):
        return list(lookup(flag))
    if given.options.get("type") in ADDRESSES:
        return EXPRESSION
    return FILE if given.options.get("metavar") in FILES else []


def _complete_positional(declared: Command, before: Sequence[str], options: Mapping[str, Argument], lookup: Lookup) -> Completion:
    places: List[Any] = [given for given in declared.arguments if not given.flags[0].startswith("-")]
    if not places:
        return []
    values = [at for at, word in enumerate(before) if not word.startswith("-") and not (at and _is_valued(before[at - 1], options))]
    given = places[min(len(values), len(places) - 1)]
    if len(values) >= len(places) and given.options.get("nargs") != "+" and given.options.get("type") not in ADDRESSES:
        return []
    return _complete_values("", given, lookup)


def _is_valued(word: str, options: Mapping[str, Argument]) -> bool:
    return word in options and _takes_value(options[word])
