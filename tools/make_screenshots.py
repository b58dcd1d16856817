"""Makes the pictures in docs/images: page.png, the top of the page of the demo's server, by Chromium; explore.svg, who keeps the memory of a
service in Python, in the explorer."""

import asyncio
import re
import subprocess
import sys
import tempfile
from pathlib import Path

from demo import run
from gdbheapx.addons.views.explore import command as exploring
from gdbheapx.common import global_options
from tests.support.browser import CHROMIUM, Browser

IMAGES = run.HERE.parent / "docs" / "images"
WIDTH = 800
BOTTOM = "Math.ceil(document.querySelector('svg[aria-labelledby^=areas]').getBoundingClientRect().bottom) + 12"
"""Where the treemap ends: the picture does, too."""
COLUMNS, LINES = 100, 20
SHOP = """
class Session:
    def __init__(self, number):
        self.user, self.items = "user-%d" % number, ["item %d" % (number + place) for place in range(6)]
_cache = {"session-%d" % number: Session(number) for number in range(20000)}
history = [("order %d" % number, bytes(600)) for number in range(8000)]
"""
ASKED = global_options.GlobalOptions(None, None, None, None, None, None, [], False, False)


def page(folder: Path, tool: str, pid: int) -> None:
    """The page's picture."""
    path = folder / "report.html"
    subprocess.check_call([tool, "--pid", str(pid), "report", "--html", str(path)], stdin=subprocess.DEVNULL)
    browser = Browser(folder)
    try:
        browser.open(path, WIDTH)
        browser.open(path, WIDTH, browser.evaluate(BOTTOM))
        browser.screenshot(IMAGES / "page.png", whole=False)
    finally:
        browser.close()


def explorer(folder: Path, tool: str) -> None:
    """The explorer's, of a snapshot, with the first owner opened."""
    from gdbheapx.addons.views.explore.app import Explorer

    path = str(folder / "shop.snap")
    (folder / "shop.py").write_text(SHOP)
    shop = subprocess.Popen(["/usr/bin/python3", "-c", "import shop; input(print('ready', flush=True))"], cwd=folder, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    try:
        assert shop.stdout and shop.stdout.readline() == b"ready\n"
        subprocess.check_call([tool, "--pid", str(shop.pid), "snapshot", path], stdin=subprocess.DEVNULL)
    finally:
        shop.kill()
        shop.communicate()
    with exploring.open_heap_file(path, ASKED) as heap:
        app = Explorer(exploring.load_view(heap), "shop.snap   1-7 tabs, Enter opens, Escape goes back, / filters, q ends", lambda sql: exploring.query_rows(heap, sql))

        async def drive() -> str:
            async with app.run_test(size=(COLUMNS, LINES)) as pilot:
                await pilot.press("3", "home", "down", "enter", "down")
                await pilot.pause()
                return app.export_screenshot(title="gdbheapx explore shop.snap", simplify=True)

        made = asyncio.run(drive())
    fonts = re.compile(r"@font-face \{.*?\}\s*", re.DOTALL)  # they would be loaded from a network
    (IMAGES / "explore.svg").write_text("\n".join(line.rstrip() for line in fonts.sub("", made).splitlines()) + "\n", encoding="utf-8")


def main(folder: Path) -> int:
    """Both pictures."""
    if CHROMIUM is None:
        raise SystemExit("chromium is not installed: apt-get install chromium")
    IMAGES.mkdir(exist_ok=True)
    hoarder, tool = str(folder / "hoarder"), str(Path(sys.executable).parent / "gdbheapx")
    subprocess.check_call(["gcc", "-O1", "-g", "-o", hoarder, str(run.HERE / "hoarder.c"), "-pthread"])
    server = run.start(folder, hoarder, str(folder / "socket"))
    try:
        page(folder, tool, server.pid)
    finally:
        run.end(server)
    explorer(folder, tool)
    return 0


if __name__ == "__main__":
    with tempfile.TemporaryDirectory(prefix="gdbheapx-demo-") as name:
        sys.exit(main(Path(name)))
