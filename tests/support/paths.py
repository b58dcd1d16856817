"""Where things are: the checkout, the test programs, and gdb."""

import os
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PROGRAMS = ROOT / "tests" / "programs"
GDBINIT = ROOT / "gdbheapx" / "gdbinit.py"
GDB = os.environ.get("GDBHEAPX_TEST_GDB", "gdb")
