"""Prints what `.ci/run` ran, as a table of Markdown, from pytest's reports in build/ and the matrix's results; `--keep`: SUPPORT.md has it then."""

import json
import os
import re
import subprocess
import sys
import time
import xml.etree.ElementTree as ElementTree
from pathlib import Path
from typing import List, Sequence

from tabulate import tabulate

ROOT = Path(__file__).resolve().parent.parent
BUILD, SUPPORT = ROOT / "build", ROOT / "SUPPORT.md"
KEPT = re.compile(r"(<!-- ci: begin -->\n).*?(<!-- ci: end -->)", re.S)
HEADS = ("suite", "passed", "failed", "only alone", "skipped", "minutes")


def row_of(title: str, report: Path) -> List[str]:
    """What pytest counted; what failed among others and passed alone is in a second report (tools/run_tests.py)."""
    suite = next(ElementTree.parse(report).getroot().iter("testsuite"))
    tests, skipped, failed = (int(suite.get(name, 0)) for name in ("tests", "skipped", "failures"))
    failed += int(suite.get("errors", 0))
    again, alone = Path("%s.again" % report), 0
    if again.exists():
        second = next(ElementTree.parse(again).getroot().iter("testsuite"))
        alone = max(0, failed - int(second.get("failures", 0)) - int(second.get("errors", 0)))
    return [title, *(format(count, ",d") for count in (tests - skipped - failed, failed - alone, alone, skipped)), minutes(float(suite.get("time", 0)))]


def minutes(seconds: float) -> str:
    """As the table has it."""
    return "%.1f" % (seconds / 60)


def table(build: Path) -> str:
    """A row for each suite, a line of when and where."""
    rows = [row_of("`make %s`" % name, build / (name + ".xml")) for name in ("test", "test-rest") if (build / (name + ".xml")).exists()]
    if (build / "matrix.json").exists():
        found = json.loads((build / "matrix.json").read_text())
        rows += [
            ["`make matrix`: %s" % one["suite"], *(format(one[name], ",d") for name in ("passed", "failed", "alone", "skipped")), minutes(one["seconds"])]
            for one in found
            if one["passed"] or one["failed"]
        ]
    commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], cwd=ROOT, stdout=subprocess.PIPE, text=True).stdout.strip() or "no commit"
    head = "%s, %s, %d CPUs; the images of the matrix run beside each other.\n\n" % (time.strftime("%Y-%m-%d", time.gmtime()), commit, os.cpu_count() or 1)
    return head + tabulate(rows, HEADS, tablefmt="github", disable_numparse=True, colalign=("left",) + ("right",) * 5) + "\n"


def main(words: Sequence[str]) -> int:
    """Print, and keep if that is asked."""
    text = table(BUILD)
    if "--keep" in words:
        SUPPORT.write_text(KEPT.sub(lambda match: match.group(1) + text + match.group(2), SUPPORT.read_text()))
    print(text, end="")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
