"""What GDBHEAPX_TEST_HIDDEN hides from the tool, and the one way in which a test says that it expects less then."""

import os
from typing import List

HIDDEN = tuple(filter(None, os.environ.get("GDBHEAPX_TEST_HIDDEN", "").split(",")))
"""`symbols`: packs, debug files, and symbol tables of the programs that tests build; `libraries`: every file of a core's process; `gdb`."""
STRIPPED = ("-s",) if "symbols" in HIDDEN else ()
"""For the linker of test programs: what a file of a living process tells cannot be hidden otherwise."""
EXPECTED_LESS: List[str] = []
"""The reasons that were given in this test; conftest.py puts them into its record."""


def hidden(what: str, why: str) -> bool:
    """Whether `what` is hidden, and the test expects less than with it, because of `why`."""
    if what not in HIDDEN:
        return False
    if why not in EXPECTED_LESS:
        EXPECTED_LESS.append(why)
    return True
