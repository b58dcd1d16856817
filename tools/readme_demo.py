"""Puts the demo's real output into README.md between its two marks: `make demo | python3 -m tools.readme_demo`."""

import re
import sys
from pathlib import Path

README = Path(__file__).resolve().parent.parent / "README.md"
BEGIN, END = "<!-- demo: begin -->\n", "<!-- demo: end -->\n"


def main() -> int:
    """Replace the text between the marks by the demo's first report."""
    shown = sys.stdin.read()
    live = shown[shown.index("demo/hoarder.c is serving") : re.search(r"\n\$ gdbheapx --pid \d+ arenas", shown).start()]  # type: ignore[union-attr]
    live = re.sub(r"/tmp/gdbheapx-demo-\w+/", "/tmp/demo/", live).rstrip()
    page = README.read_text()
    before, rest = page.split(BEGIN)
    after = rest.split(END)[1]
    README.write_text(before + BEGIN + "\n```\n" + live + "\n```\n\n" + END + after)
    return 0


if __name__ == "__main__":
    sys.exit(main())
