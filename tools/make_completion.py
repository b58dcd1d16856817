"""Writes what completes command lines in bash and zsh from the declarations of the commands, by shtab; `--check` only looks."""

import argparse
import sys
from pathlib import Path
from typing import Dict, Iterable, Tuple

import shtab

from tools import declared, generated

ROOT = Path(__file__).resolve().parent.parent
FILES = {
    "bash": ROOT / "share" / "bash-completion" / "completions" / "gdbheapx",
    "zsh": ROOT / "share" / "zsh" / "site-functions" / "_gdbheapx",
}
"""Where each shell looks for it, below a prefix such as /usr or a venv."""
PATHS = {**dict.fromkeys(("FILE", "CORE", "OLD", "NEW", "PATH|none"), shtab.FILE), "DIR": shtab.DIRECTORY}
"""What a value is completed with, by its name in the help."""
PIDS = {"bash": "_gdbheapx_pids", "zsh": "_pids"}
PREAMBLE = {
    "bash": """# Made by `make docs`; do not edit.
_gdbheapx_pids() {
  local file name
  for file in /proc/[0-9]*; do
    name=${file#/proc/}
    case $name in "$1"*) echo "$name" ;; esac
  done
  [[ $1 != [0-9]* ]] && _gdbheapx_names "$1"
}
_gdbheapx_names() {
  local file name
  for file in /proc/[0-9]*/comm; do
    { read -r name < "$file"; } 2>/dev/null || continue
    case $name in *[!a-zA-Z0-9_.+-]*) ;; "$1"*) echo "$name" ;; esac
  done | sort -u
}
_gdbheapx() {
  local line
  _shtab_gdbheapx
  [[ $COMP_CWORD = 1 && ${COMP_WORDS[1]} != -* ]] || return 0
  compopt -o nosort 2>/dev/null
  [[ -z ${COMP_WORDS[1]} ]] || while IFS= read -r line; do COMPREPLY+=("$line"); done < <(_gdbheapx_pids "${COMP_WORDS[1]}")
  while IFS= read -r line; do COMPREPLY+=("$line"); done < <(compgen -f -- "${COMP_WORDS[1]}")
}""",
    "zsh": "# Made by `make docs`; do not edit.\n_gdbheapx_first() { _shtab_gdbheapx_commands; _pids; _files }",
}
LAST = {
    "bash": ("-F _shtab_gdbheapx gdbheapx", "-F _gdbheapx gdbheapx"),
    "zsh": ("': :_shtab_gdbheapx_commands'", "': :_gdbheapx_first'"),
}
"""The first word may be a target, too: after commands come processes and files."""
WORDS = (
    ("gdbinit", "print the path of the file that gdb's `source` takes"),
    ("help", "show the commands, or the help of one"),
)
"""What is typed as a command, but is none of those that are declared."""
EXTRA = (declared.Option(("--version",), "", (), "print the version"),)


def add(parser: argparse.ArgumentParser, options: Iterable[declared.Option], taken: Tuple[str, ...] = ()) -> None:
    """Declare the options in a parser that nobody parses with."""
    for one in options:
        if set(one.flags) & set(taken):
            continue
        words = {"help": one.help.replace("%", "%%")}  # type: Dict[str, object]
        if one.choices:
            words["choices"] = one.choices
        if not one.value:
            words["action"] = "store_true"
        elif not one.choices:
            words["metavar"] = one.value
        if one.several:
            words["nargs"] = "+"
        made = parser.add_argument(*one.flags, **words)  # type: ignore[arg-type]
        complete = PIDS if "--pid" in one.flags else PATHS.get(one.value)
        if complete is not None:
            made.complete = complete  # type: ignore[attr-defined]


def parser() -> argparse.ArgumentParser:
    """The command line as shtab reads it: global options stand before the command or behind it."""
    shell, common = declared.shell(), declared.common()
    top = argparse.ArgumentParser(prog="gdbheapx", description="where the memory of a process or core went", add_help=False)
    add(top, [*shell, *common, *EXTRA])
    commands = top.add_subparsers(dest="command")
    names = []  # type: list[str]
    for one in declared.commands():
        names.append(one.name)
        inner = commands.add_parser(one.name, help=one.summary, description=one.summary, add_help=False)
        own = tuple(flag for option in one.options for flag in option.flags)
        add(inner, one.options)
        add(inner, [*common, *shell], own)
    for name, help_text in WORDS:
        inner = commands.add_parser(name, help=help_text, description=help_text, add_help=False)
        if name == "help":
            inner.add_argument("name", choices=names, help="the command")
    return top


def made() -> Dict[Path, str]:
    """Each file with its text."""
    return {path: shtab.complete(parser(), shell=shell, preamble=PREAMBLE).replace(*LAST[shell]) for shell, path in FILES.items()}


if __name__ == "__main__":
    sys.exit(generated.main(made(), __doc__))
