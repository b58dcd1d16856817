"""Writes what the documentation says about supported systems from docker/matrix.py: docs/support.md and the README's line; `--check` only looks."""

import argparse
import importlib.util
import re
import sys
from pathlib import Path
from typing import Any, Dict, List

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "support.md"
README = ROOT / "README.md"
MARKS = re.compile(r"(<!-- matrix: begin -->\n).*?(<!-- matrix: end -->)", re.S)

HEAD = """# Supported systems

Generated from [docker/matrix.py](../docker/matrix.py) by `make docs`; do not edit.

`make matrix` runs the tests that depend on libc, gdb or Python in an image of each of these. Other distributions with the same glibc
and gdb work too, because gdbheapx reads the differences between releases from libc's debug information. gdb's Python must be 3.9 or
later. The last column is the version of libjemalloc2.
"""

TAIL = """
If a glibc is newer than the last row, gdbheapx reads it by its debug information; where that says nothing, it assumes the last row.

## jemalloc

| |
gdbheapx reads a build by its debug information; otherwise by a [pack](howto-packs.md) of it (packs for Debian's libjemalloc2 are
included); otherwise, if the build has kept its symbols, as Rust programs do, by the layouts of the same release. It verifies each of
these on the slabs of the process before use. It recognises builds with other options (page size, quantum, radix tree, statistics,
profiling) by their own constants. It reads a release that is not listed by the fields that it has, and reports it as unlisted.
"""


def load_matrix() -> Any:
    """docker/matrix.py by its path: docker/ is no package."""
    spec = importlib.util.spec_from_file_location("matrix", str(ROOT / "docker" / "matrix.py"))
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


matrix = load_matrix()


def page() -> str:
    """docs/support.md."""
    out = [HEAD, *table(matrix.table())]
    for row in matrix.ROWS:
        if row.found:
            out.append("\n%s changes over time. When it was tested it had %s." % (row.title, row.found))
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
