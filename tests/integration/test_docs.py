"""What the documentation says is what the tool does.

Files: glibc/help.py, jemalloc/help.py.
"""

import re
import shlex
import sys
from pathlib import Path
from typing import List, Set, Tuple

import pytest

from gdbheapx import command
from gdbheapx.common import catalogue, global_options
from tests.support.paths import COMMANDS, ROOT
from tests.support.tool import run

pytestmark = [pytest.mark.once, pytest.mark.first]  # reads the documentation

PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
LINK = re.compile(r"\]\((?!\w+://|mailto:)([^)#\s]*)(?:#([^)]*))?\)")


def test_reference_is_up_to_date() -> None:
    """docs/reference/commands.md, and the names of python-api.md, are what `make docs` would write."""
    for tool in ("make_reference", "make_api_reference"):
        outcome = run([sys.executable, "-m", "tools." + tool, "--check"], cwd=ROOT)
        assert outcome.code == 0, outcome.stdout.decode()


def test_no_page_names_a_command_that_does_not_exist() -> None:
    """Each `gdbheapx ... COMMAND` line in README and docs uses a declared command."""
    known = set(re.findall(r"^## (\S+)$", (ROOT / "docs" / "reference" / "commands.md").read_text(), re.M))
    known |= set(catalogue.ALIASES)
    assert len(known) >= 9
    for page in PAGES:
        for line in re.findall(r"gdbheapx --(?:pid|core) \S+ (?:--\S+ \S+ )*(\S+)", page.read_text()):
            assert line.strip("`,.'") in known, (page.name, line)


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
    command.load_commands()
    words = ["1" if word in ("PID", "ADDRESS") else word for word in shlex.split(re.split(r" >|; | \| ", line)[0], comments=True)[1:]]
    asked, rest = global_options.split_words(words)
    assert asked.pid or asked.core
    assert rest, "a command is named"
    assert command.parse_command(rest, "shell").command.name == rest[0]


def test_the_entry_page_has_every_command() -> None:
    """docs/how-to/which-command.md leads to each command."""
    page = (ROOT / "docs" / "how-to" / "which-command.md").read_text()
    commands = {path.stem.replace("_", "-") for path in COMMANDS}
    assert not [name for name in commands if not re.search(r"`%s[ `]" % re.escape(name), page)]


def anchors(page: Path) -> Set[str]:
    """The anchors of a page's headings, as renderers of Markdown make them."""
    headings = re.findall(r"^#+ (.*)$", re.sub(r"^```.*?^```", "", page.read_text(), flags=re.M | re.S), re.M)
    return {re.sub(r"[^\w -]", "", heading.lower()).strip().replace(" ", "-") for heading in headings}


def test_every_link_leads_somewhere() -> None:
    """Each relative link is a file of the checkout, its anchor a heading there; pages of docs/ link to docs/ alone."""
    for page in [*PAGES, *sorted(ROOT.glob("*.md")), ROOT / "changelog.d" / "README.md"]:
        for target, anchor in LINK.findall(page.read_text()):
            path = (page.parent / target).resolve() if target else page
            assert path.exists(), (page.name, target)
            assert not anchor or anchor in anchors(path), (page.name, target, anchor)
            assert ROOT / "docs" not in page.parents or ROOT / "docs" in path.parents, (page.name, target)


def test_the_index_has_every_page() -> None:
    """docs/index.md, or the index of its own folder, links to each page."""
    indexes = [page for page in PAGES if page.name == "index.md"]
    linked = {(index.parent / target).resolve() for index in indexes for target, _ in LINK.findall(index.read_text())}
    assert not [page for page in PAGES[1:] if page != ROOT / "docs" / "index.md" and page.resolve() not in linked]


def test_every_promise_of_security_has_its_tests() -> None:
    """Each row of the table in SECURITY.md names tests, as FILE::TEST, and they exist."""
    rows = (ROOT / "SECURITY.md").read_text().split("| promise | tests |")[1].split("\n\n")[0].strip().splitlines()[1:]
    assert len(rows) >= 7
    for row in rows:
        named = re.findall(r"`(tests/[\w/]+\.py)::(test_\w+)`", row.rpartition(" | ")[2])
        assert named, row
        for path, name in named:
            assert (ROOT / path).exists() and re.search(r"^def %s\(" % name, (ROOT / path).read_text(), re.M), (path, name)


def test_agents_find_every_verdict_and_finding() -> None:
    """docs/reference/for-agents.md says how to go on from each kind of verdict and each code of a finding."""
    from gdbheapx.common import findings, verdict

    page = (ROOT / "docs" / "reference" / "for-agents.md").read_text()
    told = {code for row in re.findall(r"^\| (`(?!data)[a-z-]+.*?`) \| ", page, re.MULTILINE) for code in re.findall(r"`([a-z.-]+?)(?:\.\.\.)?`", row)}
    words = (value for name, value in vars(findings).items() if name.isupper() and isinstance(value, str))
    known = set(verdict.KINDS) | {value for value in words if re.fullmatch(r"[a-z-]+", value)}
    assert known == told, known ^ told
