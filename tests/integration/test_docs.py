"""What the documentation says is what the tool does."""

import re
import shlex
import sys
from typing import List, Tuple

import pytest

from gdbheapx import global_options as asked_for
from gdbheapx import loader, parse
from tests.support.paths import ROOT
from tests.support.tool import run

pytestmark = pytest.mark.once  # reads the documentation

PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]


def test_reference_is_up_to_date() -> None:
    """docs/reference.md is what `make docs` would write."""
    outcome = run([sys.executable, "-m", "docs.make_reference", "--check"], cwd=ROOT)
    assert outcome.code == 0, outcome.stdout.decode()


def test_no_page_names_a_command_that_does_not_exist() -> None:
    """Each `gdbheapx ... COMMAND` line in README and docs uses a declared command."""
    known = set(re.findall(r"^## (\S+)$", (ROOT / "docs" / "reference.md").read_text(), re.M))
    assert len(known) >= 9
    for page in PAGES:
        for line in re.findall(r"gdbheapx --(?:pid|core) \S+ (?:--\S+ \S+ )*(\S+)", page.read_text()):
            assert line.strip("`") in known, (page.name, line)


def examples() -> List[Tuple[str, str]]:
    """(page, line) of every command line that a page shows, in a shell or in a container."""
    found = []
    for page in PAGES:
        lines = page.read_text().split("\n")
        found += [(page.name, line[line.index("gdbheapx --") :]) for line in lines if re.match(r"( {4,}|\$ )(docker run .* )?gdbheapx --(pid|core)", line)]
    return found


@pytest.mark.parametrize("page, line", sorted(set(examples())))
def test_every_command_line_is_one_that_is_understood(page: str, line: str) -> None:
    """Both the options of gdbheapx and those of the command are parsed, as they are when somebody types them."""
    loader.load_commands()
    words = ["1" if word in ("PID", "ADDRESS") else word for word in shlex.split(re.split(r" >|; ", line)[0], comments=True)[1:]]
    asked, rest = asked_for.split(words)
    assert asked.pid or asked.core
    assert rest, "a command is named"
    assert parse.parse(rest, "shell").command.name == rest[0]


def test_enough_examples_are_found() -> None:
    """The pattern above still finds them."""
    assert len(examples()) >= 25


def test_the_entry_page_has_every_command() -> None:
    """docs/which-command.md leads to each command, and every page it names is there."""
    page = (ROOT / "docs" / "which-command.md").read_text()
    commands = {path.stem.replace("_", "-") for path in (ROOT / "commands").glob("*.py") if path.stem != "__init__"}
    assert not [name for name in commands if not re.search(r"`%s[ `]" % re.escape(name), page)]
    assert not [name for name in re.findall(r"\]\(([\w-]+\.md)\)", page) if not (ROOT / "docs" / name).exists()]


def test_agents_find_every_verdict_and_finding() -> None:
    """docs/for-agents.md says how to go on from each kind of verdict and each code of a finding."""
    from gdbheapx import findings, verdict
    from gdbheapx.model import SURENESS

    page = (ROOT / "docs" / "for-agents.md").read_text()
    told = {code for row in re.findall(r"^\| (`(?!data)[a-z-]+.*?`) \| ", page, re.MULTILINE) for code in re.findall(r"`([a-z.-]+?)(?:\.\.\.)?`", row)}
    known = set()
    for module in (verdict, findings):
        words = (value for name, value in vars(module).items() if name.isupper() and isinstance(value, str))
        known |= {value for value in words if re.fullmatch(r"[a-z-]+", value)}
    known -= set(SURENESS)
    assert known == told, known ^ told
