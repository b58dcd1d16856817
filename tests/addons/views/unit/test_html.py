"""The page of a look, from JSON documents that were recorded, and hostile.

The diff_page of two looks, from a JSON document that was recorded, and hostile.

Files: addons/views/html/page_values.py, addons/views/html/render.py, command/__init__.py.
"""

from typing import Any, Dict, List

import pytest

from gdbheapx import command
from gdbheapx.addons.views.html import page_values, render
from gdbheapx.addons.views.html.render import UncutText
from gdbheapx.app.place import of_target
from gdbheapx.common import units
from gdbheapx.snapshot import container
from tests.support import pages

pytest.importorskip("jinja2", reason="pages require Jinja2")

command.load_commands()


def view(document: Dict[str, Any]) -> Dict[str, Any]:
    about = of_target(document["target"]).line
    return page_values.report_page_values(container.decode_value(render.Envelope, document), document["data"], "2026-11-23 10:00 UTC", about)


def page(document: Dict[str, Any]) -> str:
    return render.render_page("report.html", view(document))


@pytest.mark.parametrize("name", pages.RECORDED)
def test_a_recorded_look(name: str) -> None:
    """It is a page, in sections that the verdict begins; each picture has a title, each table its headings' scope."""
    read = pages.check(page(pages.recorded(name)))
    sections = [found.get("id") for tag, found in read.tags if tag == "section"]
    assert [one for one in sections if one][:5] == ["verdict", "next", "split", "arenas", "map"] and "use" in sections and "owners" in sections
    drawn = [found for tag, found in read.tags if tag == "svg" and found.get("role") == "img"]
    assert len(drawn) >= 6 and all((found.get("aria-labelledby") or "").split()[0] in read.ids() for found in drawn)
    assert all(found.get("role") == "img" or found.get("aria-hidden") == "true" for tag, found in read.tags if tag == "svg")
    assert all(found.get("scope") in ("col", "row") for tag, found in read.tags if tag == "th")
    assert ("html", {"lang": "en"}) in read.tags
    assert ("decay" in sections) == (name == "jemalloc-live")


@pytest.mark.parametrize("name", pages.RECORDED)
def test_figures_are_those_of_the_document(name: str) -> None:
    """In every table each figure is that of the JSON, and people read it as all output has it."""
    document = pages.recorded(name)
    data, read = document["data"], pages.check(page(document))
    part = data["page"]
    sizes = {one: units.format_size(one) for one, _ in read.shown} | {}
    assert read.shown and all(text in (sizes[one], units.format_number(one)) for one, text in read.shown)
    key = "resident_bytes" if document["target"]["kind"] == "live" else "dumped_bytes"
    split = read.values["split"]
    assert split[0] == data["memory"]["total_bytes"] and {one[key] for one in data["split"]} <= set(split)
    wanted: List[int] = []
    for heap in part["histogram"]:
        for row in heap["rows"]:
            wanted += [row[field] for field in ("used_chunks", "used_bytes", "free_chunks", "free_bytes", "tcache_chunks")]
    assert read.values["sizes"] == wanted
    census = part["census"]
    wanted = [census["bytes"], census["blocks"]]
    for row in census["rows"]:
        wanted += [row["bytes"], row["blocks"]]
    assert read.values["use"] == wanted
    wanted = []

    def owners(rows: List[Any]) -> None:
        for row in rows:
            wanted.extend((row["retained_bytes"], row["retained_blocks"]))
            owners(row["children"])

    owners(part["owners"]["owners"])
    kept = read.values["owners"]
    assert kept[-2:] == [part["owners"]["shared_bytes"], part["owners"]["leaked"]["bytes"]] and kept[-2 - len(wanted) : -2] == wanted
    assert {one["used_bytes"] for one in data["arenas"]} <= set(read.values["arenas"])


@pytest.mark.parametrize("name", pages.RECORDED)
def test_the_map_has_each_page_once(name: str) -> None:
    """Parts of a map are the sums of its cells, and the lines of its table add up to them."""
    document = pages.recorded(name)
    for one, shown in zip(document["data"]["page"]["map"], view(document)["maps"]):
        states = [sum(cell[field] for cell in one["cells"]) for field in ("used_bytes", "pinned_bytes", "cached_bytes", "own_bytes")]
        assert [part.bytes for part in shown["parts"]][:4] == states
        assert shown["whole_bytes"] == sum(states) + sum(cell["free_bytes"] + cell["returned_bytes"] for cell in one["cells"])
        assert [sum(column) for column in zip(*(values for _, values in shown["lines"]))] == [part.bytes for part in shown["parts"]]
        live = document["target"]["kind"] == "live"
        assert ("in RAM or not" in shown["parts"][4].name) != live


def test_what_is_not_known_is_no_figure() -> None:
    """Null reads as not known, and never as 0; nor is a sum with an unknown part a figure."""
    document = pages.recorded("glibc-core")
    for arena in document["data"]["arenas"]:
        arena.update(dict.fromkeys(name for name in arena if name.endswith("_bytes")))
    document["data"]["totals"] = {}
    assert all(part.bytes is None for line in view(document)["arenas"] for part in line.parts)
    read = pages.check(page(document))
    assert "arenas" not in read.values and "not known" in "".join(read.text)


@pytest.mark.parametrize("hostile", pages.HOSTILE, ids=range(len(pages.HOSTILE)))
def test_hostile_names(hostile: str) -> None:
    """As program, thread, file, class or sentence a name stays a name, and is there to be read."""
    known = {"live", "core", "resident", "dumped", "small"}
    document = pages.changed(pages.recorded("jemalloc-live"), lambda one: hostile if isinstance(one, str) and one not in known and one[:2] != "0x" else one)
    document["target"]["kind"] = "live"
    text = page(document)
    read = pages.check(text)
    shown = "".join(read.text)
    assert render.make_visible(hostile) in shown and "\x1b" not in text
    assert hostile.isprintable() or hostile not in shown


def test_the_top_says_which_process_and_when() -> None:
    """What the envelope knows of it; a document of an earlier version has less, and a page."""
    document = pages.recorded("jemalloc-live")
    document["target"].update(program="shop", command_line="./shop -x", host="web3", time="2026-11-30T12:00:00Z", uptime_s=3725, stopped_ms=12.4)
    known, text = dict(view(document)["target"]), page(document)
    assert known["Host"] == "web3" and known["Command line"] == "./shop -x" and known["Up"] == "1 h 2 min"
    assert (known["Read"], known["Longest pause"]) == ("2026-11-30 12:00:00 UTC", "12 ms") and "<h1>shop, process " in text


def test_text_that_does_not_show_is_written_out() -> None:
    """Control characters, line ends, marks of direction and bytes that are no UTF-8; letters of any script stay."""
    assert render.make_visible("a\x1b\n\u202e\udcffb") == "a\\x1b\\n\\u202e\\xffb" and render.make_visible("Größe 大小") == "Größe 大小"
    assert len(render.make_visible("x" * 10**6)) < 5000 and len(render.make_visible(UncutText("x" * 5000))) == 5000


def test_a_partial_look_says_so() -> None:
    """With its problems, above everything but the verdict."""
    document = pages.recorded("glibc-core")
    document.update(partial=True, problems=[{"code": "x", "where": "0x10", "what": "a part is missing", "hint": "look again"}])
    text = page(document)
    assert "This look is partial" in text and "0x10: a part is missing; look again" in text
    assert text.index("a part is missing") < text.index("Memory by owner")


def flame(name: str, bytes_: int, *frames: Any, others: int = 0) -> Dict[str, Any]:
    return {"owner": name, "module": "libc", "bytes": bytes_, "blocks": 3, "others": others, "frames": list(frames)}


def with_flame(*frames: Any) -> Dict[str, Any]:
    document = pages.recorded("jemalloc-live")
    document["data"]["page"]["flame"] = list(frames)
    return document


def test_the_flame_graph() -> None:
    """In the section of owners, in place of their picture: every frame with its title and its row; small ones as how many they are. A
    document without one has the owners' picture."""
    whole = pages.recorded("jemalloc-live")["data"]["page"]["owners"]["used"]["bytes"]
    text = page(with_flame(flame("server", whole // 2, flame("dict", whole // 4), flame("", whole // 8, others=12)), flame("", 4096, others=1)))
    read = pages.check(text)
    assert 'aria-labelledby="flame-t flame-d"' in text and "owners-i" not in text
    shown = "".join(read.text)
    assert "server: %s, 50.0 %%, 3 blocks" % units.format_size(whole // 2) in shown and "12 others: " in shown and "1 other: " in shown
    assert {whole // 2, whole // 4, whole // 8} <= set(read.values["owners"])
    assert "owners-i" in page(pages.recorded("jemalloc-live")) and "flame-t" not in page(pages.recorded("jemalloc-live"))


@pytest.mark.parametrize("name", pages.RECORDED)
def test_areas_are_the_whole_memory(name: str) -> None:
    """A treemap of two levels: its parts add up to the memory, those of what allocators have to that; small ones are how many they are."""
    document = pages.recorded(name)
    areas, memory = view(document)["areas"], document["data"]["memory"]
    assert sum(branch.size for branch in areas["tree"]) == memory["total_bytes"]
    (divided,) = [branch for branch in areas["tree"] if branch.children]
    census, pools = document["data"]["page"]["census"]["bytes"], name == "glibc-core"
    beyond = max(0, census - divided.size)
    assert sum(child.size for child in divided.children) == divided.size + beyond and areas["beyond_bytes"] == beyond
    assert divided.size == memory["allocator_bytes"] + pools * sum(part["dumped_bytes"] or 0 for part in document["data"]["split"] if part["kind"] == "runtime")
    assert any(areas["rows"][child.place]["label"].endswith(" others") for child in divided.children)
    text = page(document)
    assert 'aria-labelledby="areas-t areas-d"' in text and ("not in the core" in "".join(pages.check(text).text)) == bool(beyond)


@pytest.mark.parametrize("hostile", pages.HOSTILE, ids=range(len(pages.HOSTILE)))
def test_hostile_frames(hostile: str) -> None:
    """A name stays a name in a frame that is narrow, wide, or deep beyond reason."""
    deep = flame(hostile, 1 << 20)
    for _ in range(60):
        deep = flame(hostile, 1 << 20, deep)
    text = page(with_flame(deep, flame(hostile, 1 << 10), *[flame(hostile, 1)] * 3000))
    read = pages.check(text)
    assert render.make_visible(hostile) in "".join(read.text) and "\x1b" not in text and len(text) < 1_500_000


@pytest.mark.parametrize("hostile", pages.HOSTILE, ids=range(len(pages.HOSTILE)))
def test_who_may_have_allocated_it(hostile: str) -> None:
    """Candidates of a row, five at most, whatever their names are; how many more there are, and of how many rows none is known. Without
    being asked for they are not there."""
    document = pages.recorded("jemalloc-live")
    assert "Who may have allocated it" not in page(document) and view(document)["sites"] is None
    census = document["data"]["page"]["census"]
    site = {"module": hostile, "function": None, "address": "0x5678", "offset": 0x1234, "calls": 1, "sizes": [48, 2000], "is_open": True, "why": [hostile]}
    named = {"signature": None, "module": "", "bytes": 1, "size_functions": 0}
    rows = [{**named, "sites": [{**site, "function": hostile}] + [site] * 6}] + [{**named, "sites": []}] * (len(census["rows"]) - 1)
    census["sites"] = {"rows": rows, "calls": 77, "unread": [[hostile, "no file"]], "typed_bytes": 1, "few_bytes": 0}
    found, text = view(document)["sites"], page(document)
    assert [line["sizes"] for line in found["lines"]] == ["48, 2000, any"] * 5 and [line["function"] for line in found["lines"]][:2] == [hostile or "+0x1234", "+0x1234"]
    assert (found["more"], found["unknown"], found["calls"]) == (2, len(census["rows"]) - 1, 77)
    read = pages.check(text)
    assert render.make_visible(hostile) in "".join(read.text) and "\x1b" not in text and "no stack" in text


def test_it_stays_small() -> None:
    """Eight heaps with 2,000 cells of six states each, and 400 size classes: below 2 MB."""
    document = pages.recorded("jemalloc-live")
    part = document["data"]["page"]
    cell = {**part["map"][0]["cells"][0], **{field: 1000 for field in part["map"][0]["cells"][0] if field != "address"}}
    part["map"] = [{**part["map"][0], "cells": [cell] * 2000}] * 3
    part["histogram"] = [{**part["histogram"][0], "rows": part["histogram"][0]["rows"][:1] * 400}] * 2
    part["census"]["rows"] = part["census"]["rows"][:1] * 100
    assert len(page(document).encode()) < 2_000_000


LISTS = ("leaks", "classes", "owners", "states", "arenas")


def diff_page(document: Dict[str, Any]) -> str:
    return render.render_page("diff.html", page_values.diff_page_values(container.decode_value(render.Envelope, document), document["data"], "2026-11-23 10:00 UTC"))


def figures(rows: List[Dict[str, Any]]) -> List[int]:
    """Of rows as the table has them, from left to right."""
    counted = any(row["diff_count"] is not None for row in rows)
    fields = ["old_bytes", "new_bytes", "diff_bytes"] + ["diff_count"] * counted
    return [row[field] for row in rows for field in fields if row[field] is not None]


def test_figures_of_two_looks_are_those_of_the_document() -> None:
    """All of them, in their order, in every list; growth has a plus, and a fall a minus."""
    data = pages.recorded(pages.DIFF)["data"]
    read = pages.check(diff_page(pages.recorded(pages.DIFF)))
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
    text = diff_page(document)
    assert "not known of old: it was taken with --no-names" in text and text.count("Nothing changed.") == 2
    assert "classes" not in pages.check(text).values


@pytest.mark.parametrize("hostile", pages.HOSTILE, ids=range(len(pages.HOSTILE)))
def test_hostile_names_in_two_looks(hostile: str) -> None:
    """As file, program, class or owner a name stays a name, and is there to be read."""
    document = pages.changed(pages.recorded(pages.DIFF), lambda one: hostile if isinstance(one, str) else one)
    text = diff_page(document)
    assert render.make_visible(hostile) in "".join(pages.check(text).text) and "\x1b" not in text
    assert all(line.isprintable() for line in pages.check(text).lines)


def test_many_rows_stay_small() -> None:
    """Of 100,000 classes 300 are on the diff_page, which says how many more there are, and how to see them."""
    document = pages.recorded(pages.DIFF)
    document["data"]["classes"] = document["data"]["classes"][:1] * 100_000
    text = diff_page(document)
    assert len(text) < 500_000 and "99700 more" in text and "gdbheapx diff monday.snap" in text
