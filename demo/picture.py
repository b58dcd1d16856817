"""`python3 -m demo.picture`: the demo's server once more, its page by `report --html`, and the top of that page as docs/tutorial/report.png."""

import subprocess
import sys
import tempfile
from pathlib import Path

from demo import run
from tests.support.browser import CHROMIUM, Browser

PICTURE = run.HERE.parent / "docs" / "tutorial" / "report.png"
WIDTH = 900
BOTTOM = "Math.ceil(document.querySelector('table').getBoundingClientRect().bottom) + 12"
"""Where the first table ends: the picture does, too."""


def main(folder: Path) -> int:
    """Make the page and its picture; both are of one run."""
    if CHROMIUM is None:
        raise SystemExit("chromium is not installed: apt-get install chromium")
    hoarder, page = str(folder / "hoarder"), folder / "report.html"
    tool = str(Path(sys.executable).parent / "gdbheapx")
    subprocess.check_call(["gcc", "-O1", "-g", "-o", hoarder, str(run.HERE / "hoarder.c"), "-pthread"])
    server = run.start(folder, hoarder, str(folder / "socket"))
    try:
        subprocess.check_call([tool, "--pid", str(server.pid), "report", "--html", str(page)], stdin=subprocess.DEVNULL)
    finally:
        run.end(server)
    browser = Browser(folder)
    try:
        browser.open(page, WIDTH)
        browser.open(page, WIDTH, browser.evaluate(BOTTOM))
        browser.screenshot(PICTURE, whole=False)
    finally:
        browser.close()
    return 0


if __name__ == "__main__":
    with tempfile.TemporaryDirectory(prefix="gdbheapx-demo-") as name:
        sys.exit(main(Path(name)))
