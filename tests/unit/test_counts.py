"""A number agrees with its noun: 1 broken rule, 2 broken rules."""

import ast
import re
from pathlib import Path

import pytest

from gdbheapx.units import count_noun

ROOT = Path(__file__).parents[2]
SPOKEN = ("report", "actions", "analysis", "snapshot")
"""Folders whose texts users read most."""
COUNT = re.compile(r"(?<!of )(?<!than )(?<!most )(?<!at )%d (?:more |broken |free |smaller )?(rules|chunks|blocks|rows|groups|chains|threads|locks|times|lines|pages|bins)\b")


@pytest.mark.parametrize("count, text", [(0, "0 more rows"), (1, "1 more row"), (2, "2 more rows")])
def test_one_is_not_two(count: int, text: str) -> None:
    """As tables and sentences say it."""
    assert count_noun(count, "more row") == text


def test_counts_are_not_written_by_hand() -> None:
    """A text with `%d rows` would say `1 rows`: units.plural knows. One that is said of several alone, by a condition, is exempt."""
    found = set()
    for folder in SPOKEN:
        for path in (ROOT / "gdbheapx" / folder).rglob("*.py"):
            text = path.read_text()
            if not COUNT.search(text):
                continue
            for node in ast.walk(ast.parse(text)):
                if isinstance(node, ast.Constant) and isinstance(node.value, str) and COUNT.search(node.value):
                    found.add((path.stem, COUNT.search(node.value)[1]))  # type: ignore[index]
    assert found <= {("blocks", "times"), ("objects", "blocks")}, found
