"""The page of two looks, from a JSON document that was recorded, and hostile.

Files: addons/views/html/render.py, command/__init__.py.
"""

from typing import Any, Dict, List

import pytest

from gdbheapx import command
from gdbheapx.addons.views.html import page_values, render
from gdbheapx.snapshot import container
from tests.support import pages

pytest.importorskip("jinja2", reason="pages require Jinja2")

command.load_commands()

LISTS = ("leaks", "classes", "owners", "states", "arenas")


def page(document: Dict[str, Any]) -> str:
    return render.render_page("diff.html", page_values.diff_page_values(container.decode_value(render.Envelope, document), document["data"], "2026-11-23 10:00 UTC"))


def figures(rows: List[Dict[str, Any]]) -> List[int]:
    """Of rows as the table has them, from left to right."""
    counted = any(row["diff_count"] is not None for row in rows)
    fields = ["old_bytes", "new_bytes", "diff_bytes"] + ["diff_count"] * counted
    return [row[field] for row in rows for field in fields if row[field] is not None]


def test_figures_are_those_of_the_document() -> None:
    """All of them, in their order, in every list; growth has a plus, and a fall a minus."""
    data = pages.recorded(pages.DIFF)["data"]
    read = pages.check(page(pages.recorded(pages.DIFF)))
    for name in LISTS:
        wanted = figures(data[name])
        assert wanted and read.values[name][-len(wanted) :] == wanted, name
        assert len(read.values[name]) == len(wanted) + (4 if name == "states" else 0)
    assert read.values["verdict"] == [data["growth_bytes"]]
    states = {one["what"]: one for one in data["states"] if not one["whose"]}
    kept = [states[name][side] for side in ("old_bytes", "new_bytes") for name in ("in use", "kept by the allocator")]
    assert read.values["states"][:4] == kept
    assert all(not text.startswith("-") if value >= 0 else text.startswith("-") for value, text in read.shown)
    assert [text for value, text in read.shown if value == data["growth_bytes"]][0].startswith("+")


def test_what_cannot_be_compared() -> None:
    """Which side lacks it, and why; that nothing changed is another sentence."""
    document = pages.recorded(pages.DIFF)
    document["data"].update(classes=None, missing=[{"what": "classes", "side": "old", "why": "it was taken with --no-names"}], owners=[])
    text = page(document)
    assert "not known of old: it was taken with --no-names" in text and text.count("Nothing changed.") == 2
    assert "classes" not in pages.check(text).values


@pytest.mark.parametrize("hostile", pages.HOSTILE, ids=range(len(pages.HOSTILE)))
def test_hostile_names(hostile: str) -> None:
    """As file, program, class or owner a name stays a name, and is there to be read."""
    document = pages.changed(pages.recorded(pages.DIFF), lambda one: hostile if isinstance(one, str) else one)
    text = page(document)
    assert render.make_visible(hostile) in "".join(pages.check(text).text) and "\x1b" not in text
    assert all(line.isprintable() for line in pages.check(text).lines)


def test_many_rows_stay_small() -> None:
    """Of 100,000 classes 300 are on the page, which says how many more there are, and how to see them."""
    document = pages.recorded(pages.DIFF)
    document["data"]["classes"] = document["data"]["classes"][:1] * 100_000
    text = page(document)
    assert len(text) < 500_000 and "99700 more" in text and "gdbheapx diff monday.snap" in text
