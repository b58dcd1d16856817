"""Pages in a browser: no complaint, no request, no violation that axe-core knows, in light, dark, narrow and on paper."""

import json
import os
from pathlib import Path
from typing import Any, Iterator, List

import pytest

from gdbheapx import command
from gdbheapx.addons.views.html import page_values
from gdbheapx.snapshot import container
from tests.support import pages
from tests.support.browser import CHROMIUM, Browser, axe

pytest.importorskip("jinja2", reason="pages require Jinja2")
pytestmark = pytest.mark.wild  # starts a browser, and fetches axe-core

KEPT = os.environ.get("GDBHEAPX_PAGES")
"""A folder for the screenshots, to be looked at."""


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    if CHROMIUM is None:
        pytest.skip("chromium is not installed: apt-get install chromium")
    made = Browser(tmp_path_factory.mktemp("browser"))
    yield made
    made.close()


def write(folder: Path, name: str, told: Any) -> Path:
    from gdbheapx.addons.views.html import render

    command.load_commands()
    path = folder / (name + ".html")
    if "watch" in name:
        return write_watch(folder, path, told)
    template, view = ("diff.html", page_values.diff_page_values) if "diff" in name else ("report.html", page_values.report_page_values)
    path.write_text(render.render_page(template, view(container.decode_value(render.Envelope, told), told["data"], "2026-11-23 10:00 UTC")), encoding="utf-8")
    return path


def write_watch(folder: Path, path: Path, lines: List[Any]) -> Path:
    """From a file of these lines."""
    table = pytest.importorskip("gdbheapx.addons.monitor.watch.table", reason="the add-on monitor was deleted")
    from gdbheapx.addons.monitor.watch.summary import History
    from gdbheapx.addons.monitor.watch.view import Page

    source = folder / "lines"
    source.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    kept = table.RecordedWatch(str(source))
    history, made = History(kept.watched), Page(str(path), kept, kept.every_s, str(source))
    for sample in kept.samples():
        history.add(sample)
        made.sample(sample)
    assert made.end(kept.ended(history), history)
    return path


def long_watch() -> List[Any]:
    """The recorded one, again and again: each point of its curves is the mean of several samples. Its program has a hostile name."""
    found = pages.watched()
    found[0]["name"] = found[0]["allocators"][0]["object"] = "</svg><script>alert(1)</script> \u202egpj.exe"
    samples = [one for one in found if one["kind"] == "sample"]
    return [found[0], *({**one, "elapsed_s": one["elapsed_s"] + 3600 * turn} for turn in range(30) for one in samples)]


def document(name: str) -> Any:
    """One of DOCUMENTS."""
    if "watch" in name:
        return long_watch() if "hostile" in name else pages.watched()
    return hostile(DOCUMENTS[name]) if "hostile" in name else pages.recorded(name)


def hostile(of: str) -> Any:
    """Each text of a recorded document is one of the hostile names; addresses stay."""
    names = [one for one in pages.HOSTILE if one]
    count = iter(range(10**9))
    made = pages.changed(pages.recorded(of), lambda one: names[next(count) % len(names)] if isinstance(one, str) and one[:2] != "0x" else one)
    if of != pages.DIFF:
        made["target"]["kind"], made["data"]["memory"]["measure"] = "live", "resident"
    return made


DOCUMENTS = {**{name: name for name in (*pages.RECORDED, pages.DIFF)}, "hostile": "jemalloc-live", "hostile-diff": pages.DIFF}
DOCUMENTS.update({"watch": "", "hostile-watch": ""})


@pytest.mark.parametrize("name", sorted(DOCUMENTS))
def test_a_page_in_a_browser(browser: Browser, tmp_path: Path, name: str) -> None:
    """Opened in below a second, without a request or a complaint; no wider than the window; light and dark differ."""
    path = write(tmp_path, name, document(name))
    kept = Path(KEPT) if KEPT else tmp_path
    source, shots = axe(), {}
    for look, width, dark in (("light", 1100, False), ("dark", 1100, True), ("narrow", 400, False)):
        browser.complaints.clear()
        assert browser.open(path, width, dark=dark) < 1.0 and browser.requests == [path.as_uri()]
        assert browser.evaluate("document.documentElement.scrollWidth") <= width, look
        shots[look] = browser.screenshot(kept / ("%s-%s.png" % (name, look)))
        for closed in (True, False):
            if not closed:
                browser.evaluate("document.querySelectorAll('details').forEach(one => one.open = true)")
            if source is not None:
                assert browser.violations(source) == [], (look, closed)
        assert browser.complaints == []
    assert shots["light"] != shots["dark"]
    assert browser.paper(kept / (name + ".pdf")).startswith(b"%PDF")
    if source is None:
        pytest.skip("axe-core is not reachable: everything else holds")


def test_the_keyboard_reaches_everything(browser: Browser, tmp_path: Path) -> None:
    """Each summary, link and table that scrolls gets the focus, in the order in which they stand, and shows it."""
    browser.open(write(tmp_path, "keyboard", pages.recorded("jemalloc-live")))
    wanted = browser.evaluate("Array.from(document.querySelectorAll('a, summary, [tabindex=\"0\"]')).filter(one => one.checkVisibility({contentVisibilityAuto: true})).length")
    places = []
    for _ in range(wanted):
        for kind in ("rawKeyDown", "keyUp"):
            browser.ask("Input.dispatchKeyEvent", type=kind, key="Tab", code="Tab", windowsVirtualKeyCode=9)
        places.append(browser.evaluate("Array.from(document.querySelectorAll('*')).indexOf(document.activeElement)"))
        assert browser.evaluate("getComputedStyle(document.activeElement).outlineStyle") != "none"
    assert places == sorted(places) and len(set(places)) == wanted >= 15


def test_links_lead_to_what_shows(browser: Browser, tmp_path: Path) -> None:
    """Each link of a page has its target, and shows it where its section is closed; paper shows all sections."""
    path = write(tmp_path, "links", pages.recorded("jemalloc-live"))
    browser.open(path)
    wanted = browser.evaluate("Array.from(document.querySelectorAll('main a[href], nav a[href]')).map(one => one.hash.slice(1))")
    assert len(wanted) > 20 and "decay-0" in wanted and "map" in wanted
    seen = "document.querySelector('#%s').checkVisibility()"
    assert not browser.evaluate(seen % "map .picture") and not browser.evaluate(seen % "decay-0")
    for name in dict.fromkeys(wanted):
        browser.evaluate("location.hash = '%s'" % name)
        assert browser.evaluate(seen % name), name
    browser.evaluate("location.hash = 'map'")
    assert browser.evaluate(seen % "map .picture") and not browser.evaluate(seen % "sizes .picture")
    browser.ask("Emulation.setEmulatedMedia", media="print")
    assert browser.evaluate(seen % "sizes .picture")
    browser.ask("Emulation.setEmulatedMedia", media="")


def test_the_style_is_in_force(browser: Browser, tmp_path: Path) -> None:
    """The policy lets the page's own style in and nothing else: a script in it would not run."""
    path = write(tmp_path, "policy", pages.recorded("glibc-core"))
    browser.open(path)
    assert browser.evaluate("getComputedStyle(document.querySelector('.verdict')).borderLeftWidth") == "8px"
    browser.complaints.clear()
    path.write_text(path.read_text().replace("</main>", "<script>document.title = 'ran'</script><img src='http://127.0.0.1:9/x'></main>"))
    browser.open(path)
    assert browser.evaluate("document.title") != "ran" and browser.complaints
