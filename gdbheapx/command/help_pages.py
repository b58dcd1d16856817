"""Render `--help` and `--help-all` from the declarations: the commands in groups, and the options and examples of one command."""

import argparse
import os
import re
from typing import Callable, Dict, Iterable, List, Mapping, Sequence, Union

from gdbheapx import command
from gdbheapx.command import ADDRESSES, ADVANCED, COMMON, SHORT_STOP, Argument, Command, Switch
from gdbheapx.common.catalogue import ALIASES, FIRST, GROUPS, INTERNALS

SHELL, ELSEWHERE = "gdbheapx", "heapx"
"""The name of the program in a shell; inside gdb the target is gdb's."""
WIDTH = 80
USAGE = """usage: gdbheapx PID|NAME|FILE [COMMAND] [OPTIONS]       FILE: a core or snapshot
       gdbheapx -p PID|NAME | --core FILE | --snapshot FILE  COMMAND [OPTIONS]
"""
USAGE_IN_GDB = """usage: heapx [COMMAND] [OPTIONS]        of the process or core that gdb has
"""
GLOBAL = """options of the shell, before the command or behind it:
  --pid N|NAME       read this process (-p); it is stopped for a moment, then
                     continues
  --core FILE        read this core, also a compressed one (.zst, .lz4, .xz,
                     .gz, .bz2), or a URL
  --snapshot FILE    read what `snapshot` has written; needs neither the process
                     nor gdb
  --exe FILE         the program, if gdbheapx does not find it
  --gdb PATH|none    read inside this gdb. Otherwise gdbheapx reads by itself;
                     it runs the first gdb in PATH for what changes a process
                     (release, tickers --cure), for doctor and with
                     --debuginfod. With none it runs no gdb at all
  --sysroot DIR      the file tree of the machine the target ran on
  --debug-dir DIR    search debug files here first; may be repeated
  --no-debug-info    ignore every debug file
  --debuginfod       let gdb fetch debug files from the servers in
                     DEBUGINFOD_URLS; needs gdb

gdbheapx gdbinit [--install | --remove]: the file that gdb's `source` takes
gdbheapx --version: the version
"""
EXAMPLES = (
    ("4711", "report of process 4711: begin here"),
    ("-p 4711 owners", "which variables keep its memory alive"),
    ("core.4711 leaks", "what a core has lost"),
)
FOREMOST = ("--short-stop", "--max-stop", "--read-swap")
"""Of what says how a process is read, what is asked for most."""
OF_SHELL = "(shell only)"
"""The help of an option that gdb does not show begins so."""
MOST_WORDS = 30
"""Characters that the words of a choice may have next to an option."""
TARGET = re.compile(r"(-p|--core|--snapshot) \S+ ")
"""What an example in a shell has before the command."""


def render_overview(program: str) -> str:
    """The help in 24 lines: the commands in five groups, those used most with what they do."""
    lines = (USAGE if program == SHELL else USAGE_IN_GDB).splitlines() + [""]
    for title, names in GROUPS:
        known = _offered_commands(names, program)
        told = [one for one in known if one.name in FIRST]
        rest = ", ".join(one.name for one in known if one.name not in FIRST)
        rows = ["%-8s %s" % (one.name, _option_gloss(one)) for one in told] + [rest] * bool(rest)
        lines += ["%-18s %s" % (title if place == 0 else "", row) for place, row in enumerate(rows)]
    examples = EXAMPLES if program == SHELL else (("", "the same as: heapx report"), *EXAMPLES[1:])
    lines += ["", "examples:"]
    for words, meaning in examples:
        words = words if program == SHELL else words.split(" ")[-1]
        lines.append("  %-28s %s" % (("%s %s" % (program, words)).rstrip(), meaning))
    more = "%s COMMAND --help shows its options, %s --help-all all commands."
    return "\n".join([*lines, "", more % (program, program)]) + "\n"


def render_everything(program: str) -> str:
    """Return the help of all commands with older names, and the options of the command line and of every command."""
    parts = [USAGE if program == SHELL else USAGE_IN_GDB]
    for title, names in (*GROUPS, INTERNALS):
        rows = ["  %-13s %s" % (one.name, _first_sentence(one)) for one in _offered_commands(names, program)]
        parts.append("\n".join(["%s:" % title, *rows]) + "\n")
    if ALIASES:
        known = [name for name in sorted(ALIASES) if name in command.COMMANDS]
        older = ["  %-13s %s" % (name, " ".join([ALIASES[name][0], *newer_flags(name)])) for name in known]
        parts.append("\n".join(["older names, which still work:", *older]) + "\n")
    parts += [GLOBAL] * (program == SHELL)
    pages = _make_parser("")
    _add_option(pages, "options of every command", [one for one in COMMON if not _is_advanced(one)])
    _add_option(pages, "advanced: how a process is read", [*filter(_is_advanced, COMMON), *filter(command.has_option, SHORT_STOP)])
    return "\n".join([*parts, pages.format_help().partition("\n\n")[2]])


def of_command(declared: Command, program: str, whole: bool = False) -> str:
    """The help of one command: usage, a sentence, its own options and examples; `whole`: all options, and what the answer means."""
    text = "\n".join(line.strip() for line in command.full_help(declared).strip().split("\n"))
    own = [one for one in declared.arguments if one not in SHORT_STOP]
    own = [one for one in own if program == SHELL or not one.options["help"].startswith(OF_SHELL)]
    common = command.add_common_options(declared)
    words = [_positional_form(one) for one in own if not _is_named(one)]
    target = "-p PID " if declared.needs_target and program == SHELL else ""
    pages = _make_parser(" ".join([program, target + declared.name, *words, "[options]"]), text if whole else _first_sentence(declared))
    _add_option(pages, "arguments", [one for one in own if not _is_named(one)])
    _add_option(pages, "options", [one for one in own if _is_named(one)])
    advanced = [one for one in [*declared.arguments, *common] if one in SHORT_STOP or _is_advanced(one)]
    advanced.sort(key=lambda one: one.flags[0] not in FOREMOST)
    others = [one for one in common if not _is_advanced(one)]
    if whole:
        _add_option(pages, "options of every command", others)
        _add_option(pages, "advanced: how a process is read", advanced)
    gone = {flag for one in declared.missing for flag in one.flags}
    examples = [words for words in declared.examples if gone.isdisjoint(words.split())]
    shown = [words if program == SHELL else TARGET.sub("", words) for words in examples]
    lines = ["examples:", *["  %s %s" % (program, words) for words in shown], ""] if shown else []
    if not whole:
        lines += ["also:", "  all commands: %s" % _option_names(others)]
        lines += ["  advanced, how a process is read: %s ..." % _option_names(advanced[:2])]
        lines += ["  %s %s --help-all explains these, and the meaning of the answer" % (program, declared.name)]
    pages.epilog = "\n".join(lines).rstrip()
    return pages.format_help()


def in_gdb(declared: Command) -> str:
    """Return the help for gdb's `help`, which lists commands by the first line."""
    usage, _, rest = of_command(declared, ELSEWHERE).partition("\n\n")
    summary, _, rest = rest.partition("\n\n")
    return "\n\n".join([summary, usage, rest.rstrip()])


def asked_for(names: List[str], program: str, whole: bool) -> str:
    """The help that `help NAME` means, or that of all. UsageError where there is no such command."""
    command.load_commands()
    if not names:
        return render_everything(program) if whole else render_overview(program)
    declared = command.find_command(names[0])
    if declared is None:
        raise command.no_such_command(names[0])
    return of_command(declared, program, whole)


def _offered_commands(names: Iterable[str], program: str) -> List[Command]:
    known = [command.COMMANDS[name] for name in names if name in command.COMMANDS]
    return [one for one in known if program == SHELL or not one.in_shell]


def _first_sentence(declared: Command) -> str:
    if declared.name in ALIASES:
        return "The older name of `%s`." % " ".join([ALIASES[declared.name][0], *newer_flags(declared.name)])
    return declared.help.strip().split("\n")[0]


def _option_gloss(declared: Command) -> str:
    text = _first_sentence(declared).rstrip(".")
    return text if text[:2].isupper() else text[0].lower() + text[1:]


def _positional_form(given: Argument) -> str:
    """A word without a name, as the usage has it."""
    word = given.options.get("metavar") or "|".join(given.options["choices"])
    return {"+": "%s...", "?": "[%s]"}.get(str(given.options.get("nargs")), "%s") % word


def _is_named(given: Argument) -> bool:
    return given.flags[0].startswith("-")


def _is_advanced(given: Argument) -> bool:
    return given.flags[0] in ADVANCED


def newer_flags(older: str) -> List[str]:
    """The options as they are typed, by which a command does what its older name does."""
    name, given = ALIASES[older]
    typed = []
    for one in command.COMMANDS[name].arguments:
        value = given.get(command.option_name(one))
        if value is not None and value is not False and one.options.get("const", value) == value:
            typed += [one.flags[-1]] + ([] if one.options.get("action") in ("store_true", "store_const") or value is True else [str(value)])
    return typed


def _option_names(arguments: Iterable[Argument]) -> str:
    return " ".join(one.flags[0] for one in arguments if one.flags[0] not in ("-h", "--help-all"))


def _make_parser(usage: str, description: str = "") -> argparse.ArgumentParser:
    def form(prog: str) -> argparse.HelpFormatter:
        return argparse.RawDescriptionHelpFormatter(prog, max_help_position=26, width=WIDTH)

    return argparse.ArgumentParser(usage=usage, description=description, add_help=False, formatter_class=form)


def _add_option(pages: argparse.ArgumentParser, title: str, arguments: List[Argument]) -> None:
    group = pages.add_argument_group(title)
    for one in arguments:
        options, words = dict(one.options), "|".join(one.options.get("choices") or ())
        if len(words) > MOST_WORDS:
            options.update(metavar=one.flags[0].lstrip("-").upper(), help="%s: %s" % (options["help"], words.replace("|", ", ")))
        elif words:
            options["metavar"] = words
        group.add_argument(*one.flags, **options)


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
    """Every flag of the command with what it means; its own before those of every command."""
    made: Dict[str, Argument] = {}
    for given in [*declared.arguments, *COMMON]:
        for flag in given.flags if _is_named(given) else ():
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
    places = [given for given in declared.arguments if not _is_named(given)]
    if not places:
        return []
    valued = {flag for flag, given in options.items() if _takes_value(given)}
    values = [at for at, word in enumerate(before) if not word.startswith("-") and not (at and before[at - 1] in valued)]
    given = places[min(len(values), len(places) - 1)]
    if len(values) >= len(places) and given.options.get("nargs") != "+" and given.options.get("type") not in ADDRESSES:
        return []
    return _complete_values("", given, lookup)
