"""Puts the demo's real output into README.md between its two marks: `make demo | python3 -m tools.readme_demo`."""

import re
import sys
import textwrap
from pathlib import Path

README = Path(__file__).resolve().parent.parent / "README.md"
BEGIN, END = "<!-- demo: begin -->\n", "<!-- demo: end -->\n"
COLUMNS = 106
"""A terminal of a reader; its longer lines are folded there."""
PARTS = (
    ("demo/hoarder.c is serving", "\n\nRSS "),
    ("\nNext steps\n", "\n\n$ gdbheapx"),
    ("\nThe same server, started again", "the process was stopped for"),
)
"""What is shown: each from its first text up to its second one."""


def folded(line: str) -> str:
    """The line as a terminal shows it, but between words."""
    indent = " " * (len(line) - len(line.lstrip()) + 4)
    return line if len(line) <= COLUMNS else "\n".join(textwrap.wrap(line, COLUMNS, subsequent_indent=indent, break_on_hyphens=False))


def excerpt(shown: str) -> str:
    """The parts of the demo's output, with three dots where something is left out."""
    out = []
    for begin, end in PARTS:
        start = shown.index(begin)
        out.append(shown[start : shown.index(end, start + len(begin))].strip("\n"))
    return "\n...\n".join(out)


def main() -> int:
    """Replace the text between the marks."""
    lines = re.sub(r"/tmp/gdbheapx-demo-\w+/", "/tmp/demo/", excerpt(sys.stdin.read())).split("\n")
    before, rest = README.read_text().split(BEGIN)
    README.write_text("%s%s\n```\n%s\n```\n\n%s%s" % (before, BEGIN, "\n".join(map(folded, lines)), END, rest.split(END)[1]))
    return 0


if __name__ == "__main__":
    sys.exit(main())
