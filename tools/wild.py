"""`make wild`: the tests that are marked so, one at a time, and a table of what became of each; exit code 1 if one failed.

They read big or foreign programs, a hundred cores, heaps over 200 MB, and are run by hand: no CI runs them. What a test gives to
record_property stands in its row. Options go to pytest (`-k java`).
"""

import subprocess
import sys
import tempfile
import xml.etree.ElementTree as ElementTree
from pathlib import Path
from typing import List

from tabulate import tabulate

ROOT = Path(__file__).resolve().parent.parent


def outcome(case: ElementTree.Element) -> str:
    """In a word, and why."""
    for kind in case:
        if kind.tag in ("failure", "error", "skipped"):
            why = " ".join((kind.get("message") or "").split())[:120]
            return "%s: %s" % ("skipped" if kind.tag == "skipped" else "FAILED", why)
    return "passed"


def row(case: ElementTree.Element) -> List[str]:
    """One test: its module and name, what became of it, seconds, what it told."""
    told = ["%s %s" % (one.get("name"), one.get("value")) for one in case.iter("property")]
    name = "%s %s" % ((case.get("classname") or "").split(".")[-1], case.get("name"))
    return [name, outcome(case), "%.1f" % float(case.get("time") or 0), ", ".join(told)]


def main() -> int:
    """Run them, print the table."""
    with tempfile.TemporaryDirectory(prefix="gdbheapx-wild-") as folder:
        report = Path(folder) / "junit.xml"
        words = [
            "-m",
            "pytest",
            "-q",
            "-m",
            "wild",
            "-o",
            "junit_family=xunit1",
            "--junitxml",
            str(report),
            *sys.argv[1:],
            str(ROOT / "tests"),
        ]
        code = subprocess.call([sys.executable, *words], cwd=str(ROOT))
        if not report.exists():
            return code or 1
        rows = [row(case) for case in ElementTree.parse(report).iter("testcase")]
    print(tabulate(rows, ["test", "outcome", "seconds", "told"], disable_numparse=True, colalign=("left", "left", "right", "left")))
    return code


if __name__ == "__main__":
    sys.exit(main())
