"""The page of a watch, from lines that were recorded, ruined and hostile; and reading such lines.

Files: addons/monitor/watch/table.py, addons/monitor/watch/trends.py, addons/monitor/watch/summary.py, addons/monitor/watch/table.py.
"""

import json
import random
from pathlib import Path
from typing import Any, List, Tuple

import pytest

from gdbheapx.addons.monitor.watch import table, text
from gdbheapx.addons.monitor.watch.summary import OPEN, TIMES, History, Over
from gdbheapx.addons.monitor.watch.trends import MOST_POINTS, Curves
from gdbheapx.command import TextStyle
from gdbheapx.common import addon_loader
from gdbheapx.common.errors import HeapxError
from tests.support import pages

pytest.importorskip("jinja2", reason="pages require Jinja2")
if not addon_loader.has_capability("pages"):
    pytest.skip("the add-on that makes pages was deleted", allow_module_level=True)
from gdbheapx.addons.monitor.watch.view import Page

MB = 1 << 20


def written(folder: Path, found: List[Any], end: str = "\n") -> str:
    """A file of these lines."""
    path = folder / "samples.jsonl"
    path.write_text("\n".join(one if isinstance(one, str) else json.dumps(one) for one in found) + end)
    return str(path)


def read(path: str, folder: Path) -> Tuple[table.RecordedWatch, History, Over, str]:
    """The last watch of a file, and its page."""
    kept = table.RecordedWatch(path)
    history = History(kept.watched)
    made = Page(str(folder / "page.html"), kept, kept.every_s, path)
    for sample in kept.samples():
        history.add(sample)
        made.sample(sample)
    found = kept.ended(history)
    made.left_out = kept.left_out
    made.end(found, history)
    return kept, history, found, (folder / "page.html").read_text(encoding="utf-8") if found.summary is not None else ""


def test_a_file_tells_what_its_watch_told(tmp_path: Path) -> None:
    """The summary of the samples is the end that the watch itself wrote, to the byte; so is each step."""
    kept, _, found, _ = read(written(tmp_path, pages.watched()), tmp_path)
    end = json.loads(table.WatchTableLines(kept).end(found))
    told = pages.watched()[-1]
    for change in end["growth"].values():
        change.pop("lasting")  # a release that wrote such files did not tell it
    assert end.pop("verdict") == "in-use"
    spikes, *others = [end.pop(key) for key in ("spikes", "peak_bytes", "group_peak_bytes", "pool")]
    assert (spikes["number"], others) == (1, [None, None, None])
    assert end.pop("time") and told.pop("time") and end == told and kept.left_out == 0
    assert end["steps"] == 1 and end["samples"] == 150 and found.why == TIMES
    shown = "\n".join(text.Text(kept, TextStyle(False, False)).end(found, History([])))
    assert "were returned to the OS" in shown and "in use (estimated)" in shown


def test_what_runtimes_have_is_kept(tmp_path: Path) -> None:
    """What grew in a runtime's memory is the headline of the page; a wrong figure there is none."""
    start, *rest = pages.watched()
    shown = [one for one in rest if one["kind"] == "sample"]
    told = [{**one, "rss_bytes": (200 + n) * MB, "pools": {"CPython: object arenas (obmalloc)": n * MB, "x": -1}} for n, one in enumerate(shown)]
    kept, _, found, page = read(written(tmp_path, [start, *told]), tmp_path)
    assert found.summary is not None and found.summary.code == "grew-in-runtime" and kept.left_out == 0
    assert json.loads(table.WatchTableLines(kept).end(found))["pool"]["name"] == "CPython: object arenas (obmalloc)"
    assert "Growing: CPython" in page


def test_an_end_is_not_needed(tmp_path: Path) -> None:
    """Of a file to which the watch still writes: also where its last line is not whole."""
    found = pages.watched()
    path = written(tmp_path, [*found[:80], json.dumps(found[80])[:50]], end="")
    kept, history, told, page = read(path, tmp_path)
    assert told.why == OPEN and kept.left_out == 0 and told.summary is not None and told.summary.samples == 79 - sum(one["kind"] == "returned" for one in found[:80])
    assert "the watch goes on, or was killed" in page


def test_damaged_lines_are_left_out(tmp_path: Path) -> None:
    """Whatever stands in a file: samples that are whole are used, the others counted; nothing else is raised."""
    chance, found = random.Random(5), pages.watched()
    odd = ["", "{", "[]", "7", '{"kind": "sample"}', "[" * 5000, '{"kind": "sample", "elapsed_s": NaN}', "\x00\xff"]
    kept, _, _, page = read(written(tmp_path, [found[0], *odd, *found[1:20]]), tmp_path)
    assert kept.left_out == len(odd) and "8 damaged lines of the file" in page
    for _ in range(40):
        ruined = [json.dumps(pages.ruined(one, chance)) for one in found[1:30]]
        try:
            *_, page = read(written(tmp_path, [json.dumps({"kind": "start", **pages.ruined(found[0], chance)}), *ruined]), tmp_path)
        except HeapxError as error:
            assert "damaged" in str(error)
            continue
        if page:
            pages.check(page)
    for wrong in ([], ["no"], found[1:]):
        with pytest.raises(HeapxError, match="no samples of a watch"):
            table.RecordedWatch(written(tmp_path, wrong))
    for more in ({"allocators": found[0]["allocators"] * 1000}, {"allocators": [{**found[0]["allocators"][0], "figures": ["x"] * 1000}]}):
        with pytest.raises(HeapxError, match="damaged"):
            table.RecordedWatch(written(tmp_path, [{**found[0], **more}]))
    huge = [found[0], *({**one, "rss_bytes": 10**400, "elapsed_s": 1e300} for one in found[1:5]), {**found[5], "threads": -1}]
    assert read(written(tmp_path, huge), tmp_path)[0].left_out == 4


@pytest.mark.parametrize("hostile", pages.HOSTILE, ids=range(len(pages.HOSTILE)))
def test_hostile_names(tmp_path: Path, hostile: str) -> None:
    """As program, allocator's object and file a name stays a name, and is there to be read."""
    found = pages.watched()[:30]
    found[0]["name"] = found[0]["allocators"][0]["object"] = found[0]["allocators"][0]["version"] = hostile
    *_, page = read(written(tmp_path, found), tmp_path)
    shown = pages.check(page)
    assert addon_loader.load_capability("pages", "a page").make_visible(hostile) in "".join(shown.text) and "\x1b" not in page


def test_address_space_does_not_flatten_the_rest(tmp_path: Path) -> None:
    """A figure four times as high as every other is said and in the table, not drawn: jemalloc may retain 50 GB of addresses and use 2 GB."""
    first = pages.watched()[1]
    many = [{**sampled(first, number), "rss_bytes": 100 * MB} for number in range(20)]
    for one in many:
        one["allocators"] = {"glibc": {**one["allocators"]["glibc"], "used_bytes": 70 * MB, "system_bytes": 80 * MB, "top_bytes": 900 * MB, "free_bytes": 5 * MB}}
    *_, page = read(written(tmp_path, [pages.watched()[0], *many]), tmp_path)
    text = "".join(pages.check(page).text)
    assert "Not drawn, as it would flatten the rest: top, up to 900.0 MiB" in text and "<title>top</title>" not in page
    assert "<title>system</title>" in page and pages.check(page).values["samples"].count(900 * MB) == 20


def sampled(found: Any, number: int) -> Any:
    """One of many like that, of which a figure is unknown now and then, and another has a peak."""
    figures = {**found["allocators"]["glibc"], "free_bytes": None if number % 7 else MB}
    rss = 900 * MB if number == 5000 else 100 * MB + number
    return {**found, "elapsed_s": float(number), "rss_bytes": rss, "allocators": {"glibc": figures}}


def test_a_long_watch(tmp_path: Path) -> None:
    """Of 10,000 samples 240 points at most are kept, each the mean of its samples; a peak of one sample still shows; the page is small."""
    begin, first = pages.watched()[:2]
    path = written(tmp_path, [begin, *(sampled(first, number) for number in range(10_000))])
    *_, page = read(path, tmp_path)
    found = pages.check(page)
    assert len(page) < 600_000 and "Each point is the mean of 64 samples" in page
    assert page.count('class="band band0"') == 1 and "1.0 GiB" in "".join(found.text)
    rows = found.values["samples"]
    assert rows[0] == 100 * MB + 32 and rows.count(MB) == sum(1 for at in range(0, 10_000, 64) if any(not number % 7 for number in range(at, min(at + 64, 10_000))))


def test_curves_keep_a_fixed_amount() -> None:
    """However many samples there are; sums of what is known are those of the samples, unknown figures are gaps."""
    made = Curves()
    for number in range(100_001):
        made.add(number / 10, [number, None, 5 if number < 3 else None])
        if not number % 997:
            assert len(made.points()) <= MOST_POINTS
    points = made.points()
    assert MOST_POINTS // 2 <= len(points) <= MOST_POINTS and sum(point.samples for point in points) == 100_001
    assert [point.elapsed_s for point in points] == sorted(point.elapsed_s for point in points)
    known = [point.figures[0] for point in points]
    assert sum(one.sum for one in known if one is not None) == 100_001 * 50_000
    assert all(one is not None and one.lowest <= one.mean <= one.highest for one in known)
    assert all(point.figures[1] is None for point in points) and [point.figures[2] is None for point in points].count(False) == 1


def test_without_a_sample_there_is_no_page(tmp_path: Path) -> None:
    """An older one stays."""
    path = tmp_path / "page.html"
    path.write_text("old")
    kept = table.RecordedWatch(written(tmp_path, pages.watched()[:1]))
    made, history = Page(str(path), kept, 1.0), History(kept.watched)
    assert made.end(Over(OPEN, history.summary(OPEN, 0)), history) == []
    made.stop(history)
    assert path.read_text() == "old" and sorted(one.name for one in tmp_path.iterdir()) == ["page.html", "samples.jsonl"]
