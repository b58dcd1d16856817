"""The declarations in commands/, and what they refuse before anything is opened or read.

Files: command/__init__.py.
"""

import argparse
import ast
import re
from typing import Any, List

import pytest

from gdbheapx import command
from gdbheapx.common.errors import UsageError
from tests.support.paths import COMMANDS

FILES = {path.stem: path for path in COMMANDS}

command.load_commands()


def options(name: str, *words: str) -> argparse.Namespace:
    """What the command gets for these words."""
    declared = command.find_command(name)
    assert declared is not None
    parser = argparse.ArgumentParser(prog=name)
    for one in declared.arguments:
        parser.add_argument(*one.flags, **one.options)
    return parser.parse_args(list(words))


@pytest.mark.parametrize("file", sorted(FILES))
def test_a_file_declares_the_command_of_its_name(file: str) -> None:
    """malloc_info.py declares malloc-info, with help whose first line is a sentence of its own."""
    declared = command.find_command(file.replace("_", "-"))
    assert declared is not None and declared.run.__module__.endswith("." + file)
    first = declared.help.splitlines()[0]
    assert re.fullmatch(r"[A-Zj`].*\.", first) and declared.help.splitlines()[1:2] in ([], [""])


@pytest.mark.parametrize("file", sorted(FILES))
def test_every_option_says_what_it_does(file: str) -> None:
    """In a line without a full stop, beginning small or with a name."""
    declared = command.find_command(file.replace("_", "-"))
    assert declared is not None
    for one in declared.arguments:
        if one.options["help"] == command.OLDER:
            continue
        assert re.match(r"[(\w`-]", one.options["help"]) and not one.options["help"].endswith((".", ",", ":", ";")), one.flags
        assert len(one.options["help"].replace("%%", "%")) <= 100, one.flags


@pytest.mark.parametrize("file", sorted(FILES))
def test_a_command_imports_little_before_it_runs(file: str) -> None:
    """At import only what the declaration needs: analysis, actions and report wait until the command is asked."""
    tree = ast.parse(FILES[file].read_text())
    modules = [node.module or "" for node in tree.body if isinstance(node, ast.ImportFrom)]
    assert not [one for one in modules if one.startswith(("gdbheapx.analysis", "gdbheapx.actions", "gdbheapx.report", "gdbheapx.glibc", "gdbheapx.jemalloc"))]


def test_few_commands_act() -> None:
    """And only with options that say so: a dry run and a look never do."""
    acting = {name for name in command.command_names() if getattr(command.find_command(name), "acts", None) is not None}
    assert acting == {"purge", "release", "tickers", "trim"}
    cases = {"trim": (("--yes",), ("--dry-run",)), "purge": (("--yes",), ("--dry-run",)), "release": (("--yes",), ("--dry-run",)), "tickers": (("--cure",), ())}
    for name, (does, does_not) in cases.items():
        declared = command.find_command(name)
        assert declared is not None and declared.acts is not None
        assert declared.acts(options(name, *does)) and not declared.acts(options(name, *does_not))


def test_some_commands_need_no_target() -> None:
    """doctor tells what is missing, query lists tables, the others read files."""
    found = {name for name in command.command_names() if not getattr(command.find_command(name), "needs_target", True)}
    assert found == {"bill", "capture", "diff", "doctor", "explore", "fleet", "mcp", "query", "serve", "snapshot", "watch"}


class NoTarget:
    """A session without one."""

    has_target = False

    def __getattr__(self, name: str) -> Any:
        raise AssertionError("%s was asked for" % name)


@pytest.mark.parametrize(
    "words, told",
    [
        (["purge", "--arena", "4096"], "arena 4096 not found"),
        (["purge", "--arena", "-1"], "arena -1 not found"),
        (["tickers", "--thread", "7"], "--thread requires --cure"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_wrong_usage_is_told_before_anything_is_read(words: List[str], told: str) -> None:
    """With a next step."""
    declared = command.find_command(words[0])
    assert declared is not None
    with pytest.raises(UsageError) as refused:
        declared.run(NoTarget(), options(*words))  # type: ignore[arg-type]
    assert told in str(refused.value) and refused.value.hint
