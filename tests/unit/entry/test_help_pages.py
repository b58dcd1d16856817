"""What --help shows: 24 lines of 80 columns for all commands, a screen and a half for one; every command in one group.

Files: catalogue.py, help_pages.py.
"""

import re

import pytest

from gdbheapx import catalogue, command, help_pages
from tests.support.addons import require_command, require_every_addon

command.load_commands()
SHOWN = [help_pages.SHELL, help_pages.ELSEWHERE]
"""The programs that show it."""


@pytest.mark.parametrize("program", SHOWN)
def test_the_first_help_fits_a_terminal(program: str) -> None:
    """24 lines with the next prompt, 80 columns, three examples; internals and older names are only in --help-all, shell's own not in gdb."""
    lines = help_pages.render_overview(program).splitlines()
    assert len(lines) < 24 and max(map(len, lines)) <= 80
    assert len([line for line in lines if line.startswith("  " + program)]) == 3
    listed = set(re.findall(r"[a-z][a-z-]*", "\n".join(lines).partition("examples:")[0].partition("\n\n")[2]))
    every = help_pages.render_everything(program)
    for name in command.command_names():
        offered = program == help_pages.SHELL or not command.COMMANDS[name].in_shell
        assert (name in listed) == (offered and name not in catalogue.INTERNALS[1]), name
        assert bool(re.search("^  %s  " % name, every, re.MULTILINE)) == offered, name
    assert max(map(len, every.splitlines())) <= 80


@pytest.mark.parametrize("name", command.command_names())
def test_the_help_of_a_command_is_short(name: str) -> None:
    """Usage, one sentence, its own options, examples that can be parsed, the rest by name; gdb lists it in one line, by that sentence."""
    declared = command.COMMANDS[name]
    text = help_pages.of_command(declared, "gdbheapx")
    usage, sentence, *parts = text.split("\n\n")
    lines = text.splitlines()
    assert usage.startswith("usage: gdbheapx ") and "\n" not in usage + sentence and len(lines) <= 38 and max(map(len, lines)) <= 80
    assert len("heapx %s -- %s" % (name, sentence)) <= 80 and sentence.endswith(".")
    assert [part.partition(":")[0] for part in parts][-2:] == ["examples", "also"]
    assert help_pages.in_gdb(declared).startswith(sentence + "\n\nusage: heapx %s" % name)
    whole = help_pages.of_command(declared, "gdbheapx", True)
    assert all(flag in whole for one in declared.arguments for flag in one.flags if flag.startswith("-") and one.options["help"] != command.OLDER)


@pytest.mark.parametrize("older", sorted(catalogue.ALIASES))
def test_an_older_name_is_the_newer_form(older: str) -> None:
    """It runs the same function with the same options, and its help says what it is called now."""
    newer, given = catalogue.ALIASES[older]
    require_command(newer)
    words = {"table": ["x"], "refs": ["16"]}.get(older, [])
    asked = [command.parse_command([*line, *words], "gdbheapx") for line in ([older], [newer, *help_pages.newer_flags(older)])]
    assert vars(asked[0].options) == vars(asked[1].options) and asked[0].command.run is asked[1].command.run
    assert "The older name of `%s --" % newer in help_pages.of_command(asked[0].command, "gdbheapx")
    assert catalogue.file_of(older) == newer and command.is_command(older) and older not in command.command_names()


def test_examples_are_command_lines() -> None:
    """Each begins, behind the target, with the command's name, and is understood."""
    import shlex

    require_every_addon()
    for name in command.command_names():
        for words in command.COMMANDS[name].examples:
            line = shlex.split(help_pages.TARGET.sub("", words))
            assert line[0] == name or words.endswith("snap report"), words
            command.parse_command(line, "gdbheapx")
