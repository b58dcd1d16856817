"""What the documentation says is what the tool does."""

import re
import sys

from harness import ROOT, run


def test_reference_is_up_to_date() -> None:
    """docs/reference.md is what `make docs` would write."""
    outcome = run([sys.executable, str(ROOT / "docs" / "make_reference.py"), "--check"])
    assert outcome.code == 0, outcome.stdout.decode()


def test_no_page_names_a_command_that_does_not_exist() -> None:
    """Each `gdbheapx ... COMMAND` line in README and docs uses a declared command."""
    known = set(re.findall(r"^## (\S+)$", (ROOT / "docs" / "reference.md").read_text(), re.M))
    assert len(known) >= 9
    for page in [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]:
        for line in re.findall(r"gdbheapx --(?:pid|core) \S+ (?:--\S+ \S+ )*(\S+)", page.read_text()):
            assert line.strip("`") in known, (page.name, line)
