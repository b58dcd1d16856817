"""The man page and the completion of shells: made from the declarations, and really used by man, bash and zsh."""

import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Dict, List

import pytest

from gdbheapx import command
from tests.support.paths import ROOT
from tests.support.programs import need
from tests.support.tool import run

pytestmark = pytest.mark.once  # files of the checkout

PAGE = ROOT / "share" / "man" / "man1" / "gdbheapx.1"
BASH = ROOT / "share" / "bash-completion" / "completions" / "gdbheapx"
ZSH = ROOT / "share" / "zsh" / "site-functions" / "_gdbheapx"

COMPLETE = r"""
source "$1"; shift
COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); COMP_LINE="$*"; COMP_POINT=${#COMP_LINE}
function=$(complete -p gdbheapx | sed 's/.* -F \([^ ]*\) .*/\1/')
"$function" gdbheapx "${COMP_WORDS[COMP_CWORD]}" "${COMP_WORDS[COMP_CWORD-1]}"
printf '%s\n' "${COMPREPLY[@]}"
"""


@pytest.mark.parametrize("maker", ["tools.make_manual", "tools.make_completion"])
def test_files_are_up_to_date(maker: str) -> None:
    """What is in share/ is what `make docs` would write."""
    outcome = run([sys.executable, "-m", maker, "--check"], cwd=ROOT)
    assert outcome.code == 0, outcome.stdout.decode() + outcome.stderr


def test_man_has_no_complaint() -> None:
    """man formats the page without a warning; mandoc, where it is installed, complains of nothing but a date before the first release."""
    need("man")
    done = subprocess.run(["man", "--warnings", "-l", str(PAGE)], capture_output=True, text=True, env=dict(os.environ, MANWIDTH="80", LC_ALL="C.UTF-8"))
    assert done.returncode == 0 and not done.stderr, done.stderr
    assert "--snapshot FILE" in done.stdout and "EXIT STATUS" in done.stdout
    if shutil.which("mandoc"):
        said = subprocess.run(["mandoc", "-Tlint", str(PAGE)], capture_output=True, text=True).stdout
        assert not [line for line in said.splitlines() if "missing date" not in line], said


def test_man_shows_every_command_and_option() -> None:
    """Each command is a heading of the page, and each of its options stands there as it is typed."""
    command.load_commands()
    text = PAGE.read_text().replace("\\-", "-").replace("\\fB", "").replace("\\fR", "").replace("\\fI", "")
    for name in command.command_names():
        assert '.SS "%s' % name in text
        for argument in command.COMMANDS[name].arguments:
            is_shown = argument.flags[0].startswith("-") and argument.options.get("help") != command.OLDER
            assert argument.flags[0] in text or not is_shown, argument.flags


def known_capabilities(*words: str) -> List[str]:
    """What bash offers for the last of these words, in a shell without settings of its own."""
    done = subprocess.run(["bash", "--norc", "-c", COMPLETE, "bash", str(BASH), *words], capture_output=True, text=True, cwd=ROOT, timeout=30)
    assert done.returncode == 0 and not done.stderr, done.stderr
    return [line for line in done.stdout.splitlines() if line]


def test_bash_completes_values() -> None:
    """Words of a choice, files, folders and processes are offered as values."""
    assert known_capabilities("gdbheapx", "chunks", "--sort", "") == ["size", "address"]
    assert known_capabilities("gdbheapx", "--core", "core", "export", "--format", "pp") == ["pprof"]
    assert known_capabilities("gdbheapx", "--core", "pyproject") == ["pyproject.toml"]
    assert known_capabilities("gdbheapx", "diff", "pyproject.t") == ["pyproject.toml"]
    assert known_capabilities("gdbheapx", "--sysroot", "comman") == ["commands"]
    for before in (["--pid"], ["-p"], []):
        assert str(os.getpid()) in known_capabilities("gdbheapx", *before, str(os.getpid())[:-1])
    name = Path("/proc/self/comm").read_text().strip()
    assert name in known_capabilities("gdbheapx", name[:-1]) and "pyproject.toml" in known_capabilities("gdbheapx", "pyproj")
    for before in ([], ["arenas"]):
        assert known_capabilities("gdbheapx", *before, "--color", "") == ["auto", "always", "never"]


def test_bash_finds_each_declared_choice() -> None:
    """Every option with a choice offers exactly its words."""
    command.load_commands()
    found: Dict[str, List[str]] = {}
    for name in command.command_names():
        for argument in command.COMMANDS[name].arguments:
            if argument.options.get("choices") and argument.flags[0].startswith("-"):
                found[name] = known_capabilities("gdbheapx", name, argument.flags[0], "")
                assert found[name] == list(argument.options["choices"]), (name, argument.flags)
    assert len(found) >= 4


def test_zsh_completes(tmp_path: Path) -> None:
    """zsh's completion, driven through a terminal, offers commands and the words of a choice."""
    need("zsh")
    for typed, expected in (("gdbheapx tunab", "gdbheapx tunables"), ("gdbheapx export --format pp", "gdbheapx export --format pprof")):
        program = "zmodload zsh/zpty; zpty -b z zsh -f -i; " + "".join(
            "zpty -w z %s; " % shlex.quote(line)
            for line in ("PS1=; unsetopt zle_bracketed_paste 2>/dev/null; fpath=(%s $fpath); autoload -Uz compinit; compinit -u -d %s; echo rea''dy" % (ZSH.parent, tmp_path / "dump"),)
        )
        program += "zpty -m -r z said '*ready*'; zpty -w -n z %s; zpty -w -n z $'\\t'; zpty -m -r z said '*%s*' && print -r -- found; zpty -d z" % (
            shlex.quote(typed),
            expected,
        )
        try:
            done = subprocess.run(["zsh", "-f", "-c", program], capture_output=True, text=True, timeout=30, stdin=subprocess.DEVNULL)
        except subprocess.TimeoutExpired as error:
            raise AssertionError("zsh did not complete %s: %r" % (typed, error.stdout)) from None
        assert done.stdout.strip().endswith("found"), (done.stdout, done.stderr)
