"""Documents as rows."""

import argparse

import pytest

from gdbheapx import command
from gdbheapx.addons.views.fleet.documents import Document, grouped, ordered


def test_order_and_groups() -> None:
    """The largest first, the unknown last; a group adds up what is known."""
    rows = [Document("a", verdict="x", used_bytes=1), Document("b"), Document("c", verdict="x", used_bytes=5)]
    assert [one.core for one in ordered(rows, "used_bytes")] == ["c", "a", "b"]
    assert [(one.value, one.documents, one.used_bytes) for one in grouped(rows, "verdict")] == [("x", 2, 6), ("unknown", 1, 0)]


def test_a_column_has_two_names() -> None:
    """--sort takes the heading that is shown and the name that JSON has; what is neither is answered with the nearest."""
    named = command.column_of(lambda: Document)
    assert named("in use") == named("used_bytes") == "used_bytes" and named("largest class") == named("largest") == "largest"
    with pytest.raises(argparse.ArgumentTypeError, match="no column is called in uses: did you mean in use?"):
        named("in uses")
