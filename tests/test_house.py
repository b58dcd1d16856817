"""The product's size and its language only get better: figures of tools/house.py against tests/size.toml."""

import ast
import re

import pytest

from tools import house

pytestmark = [pytest.mark.once, pytest.mark.first]  # reads the sources


@pytest.fixture(scope="module")
def measured() -> house.House:
    """The checkout's figures."""
    return house.measure()


def test_no_figure_exceeds_its_limit(measured: house.House) -> None:
    """Who needs more lines raises the limit in the same commit, with a comment why; ratchets only fall."""
    assert house.find_excess(measured) == []


def test_names_of_files_exist(measured: house.House) -> None:
    """Docstrings, comments and documentation name no Python file that does not exist."""
    assert measured.places["stale"] == []


PATH = re.compile(r"(?<![\w/.-])(?:tests|tools|bench|docker|gdbheapx|commands|docs)/[\w./-]+\.(?:py|c|h|md|sh|toml)\b")
NO_PATHS = {"commands/NAME.py", "tests/programs/NAME.c", "docker/__init__.py", "docs/a.md"}
"""A place for a name, what must not be there, and a page that a test makes."""


def test_paths_exist() -> None:
    """Whatever names a file of the repository by its path names one that is there: sources, tests, tools and pages."""
    folders = ("gdbheapx", "commands", "tests", "tools", "bench", "docker", "docs")
    sources = [path for name in folders for path in (house.ROOT / name).rglob("*") if path.suffix in (".py", ".c", ".h", ".md", ".sh")]
    named = {(name, path.name) for path in [*sources, *house.ROOT.glob("*.md")] if path.name != "CHANGELOG.md" for name in PATH.findall(path.read_text())}
    assert not [(name, where) for name, where in sorted(named) if name not in NO_PATHS and not (house.ROOT / name).exists()]


def test_a_larger_package_is_noticed(measured: house.House) -> None:
    """One line more than the limit, a package without a limit and a figure above its ratchet are each one line of the answer."""
    packages, figures = house.read_limits()
    grown = measured._replace(
        packages={"commands": packages["commands"] + 1, "gdbheapx/fresh": 1},
        figures={**measured.figures, **figures, "fragments": figures["fragments"] + 1},
    )
    assert [line.split(":")[0].split(" ")[0] for line in house.find_excess(grown)] == ["gdbheapx/fresh", "commands", "fragments"]


def test_an_override_is_none_of_the_one_word_functions() -> None:
    """A method has its name from the first class that declares it, of whatever depth."""
    text = "class A:\n def asks(self): ...\nclass B(m.A): ...\nclass C(B):\n def asks(self): ...\n def tells(self): ..."
    found = house.find_overrides([house.Source("x.py", text, ast.parse(text))])
    assert [(node.name, node.lineno) for node in found] == [("asks", 5)]


@pytest.mark.parametrize(("docstring", "expected"), [("Return the arena.", False), ("What it has.", True), ("The same, by size.", True)])
def test_fragments_are_told_from_sentences(docstring: str, expected: bool) -> None:
    """A docstring that opens with a pronoun or a preposition is no sentence."""
    assert house.is_fragment(docstring) is expected
