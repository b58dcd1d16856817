"""Writes what the documentation says about supported systems from docker/matrix.py: docs/support.md and the README's line; `--check` only looks."""

import argparse
import re
import sys
from pathlib import Path
from typing import Dict, List

ROOT = Path(__file__).resolve().parent.parent
sys.path.append(str(ROOT / "docker"))

import matrix  # noqa: E402  (its folder must be on the path first)

PAGE = ROOT / "docs" / "support.md"
README = ROOT / "README.md"
MARKS = re.compile(r"(<!-- matrix: begin -->\n).*?(<!-- matrix: end -->)", re.S)

HEAD = """# Supported systems

Made from [docker/matrix.py](../docker/matrix.py) by `make docs`; do not edit.

`make matrix` runs what depends on libc, gdb or Python in an image of each of these. Other distributions with the same glibc and gdb work alike: what differs
from release to release is read from libc's debug information. gdb's Python must be 3.9 or later. The last column is libjemalloc2's.
"""

TAIL = """
A glibc that is newer than the last row is read by its debug information, and where that tells nothing as the last row is.

## jemalloc

| |
A build is read by its debug information, else by a [pack](howto-packs.md) of it (those of Debian's libjemalloc2 are included), else, where it
kept its symbols as Rust programs do, by the layouts of the same release; each only after they have held on the slabs of this very
process. Builds with other options (page size, quantum, radix tree, statistics, profiling) are told apart by their own constants.
A release that is not listed is read by the fields that it has, and is said to be unlisted.
"""


def page() -> str:
    """docs/support.md."""
    out = [HEAD, *table(matrix.table())]
    for row in matrix.ROWS:
        if row.found:
            out.append("\n%s moves. When it was tried it was %s." % (row.title, row.found))
    return "\n".join(out) + "\n" + TAIL.replace("| |\n", "\n".join(table(matrix.jemalloc_table())) + "\n\n")


def table(lines: List[List[str]]) -> List[str]:
    """A table of Markdown, header first."""
    out = ["| %s |" % " | ".join(line) for line in lines]
    out.insert(1, "|%s" % (" --- |" * len(lines[0])))
    return out


def readme() -> str:
    """README.md with today's line."""
    text = README.read_text()
    if not MARKS.search(text):
        raise SystemExit("README.md has lost its <!-- matrix --> marks")
    return MARKS.sub(lambda match: match.group(1) + matrix.summary() + "\n" + match.group(2), text)


def main() -> int:
    """Write or check."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="change nothing; exit code 1 if something is out of date")
    wanted: Dict[Path, str] = {PAGE: page(), README: readme()}
    stale: List[str] = [path.name for path, text in wanted.items() if not path.exists() or path.read_text() != text]
    if parser.parse_args().check:
        print("%s out of date; run `make docs`" % ", ".join(stale) if stale else "up to date")
        return 1 if stale else 0
    for path, text in wanted.items():
        if path.name in stale:
            path.write_text(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
