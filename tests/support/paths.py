"""Where things are: the checkout, the test programs, and gdb."""

import os
import subprocess
from pathlib import Path
from typing import List, Sequence

ROOT = Path(__file__).resolve().parents[2]
PROGRAMS = ROOT / "tests" / "programs"
GDBINIT = ROOT / "gdbheapx" / "gdbinit.py"
COMMANDS = sorted(
    path for pattern in ("commands/*.py", "gdbheapx/addons/*/commands/*.py") for path in ROOT.glob(pattern) if path.stem != "__init__"
)
"""The file of each command, the core's and those of the add-ons that are there."""
GDB = os.environ.get("GDBHEAPX_TEST_GDB", "gdb")


def installed(names: Sequence[str], variable: str) -> List[Path]:
    """Libraries of these names that the dynamic linker knows, and those that this variable of the environment lists, separated by colons."""
    listed = subprocess.run(["/sbin/ldconfig", "-p"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, check=False).stdout
    known = [Path(line.rsplit(" => ", 1)[1].strip()) for line in listed.splitlines() if line.split(" ")[0].strip() in names]
    more = [Path(path) for path in os.environ.get(variable, "").split(":") if path]
    return [path for path in (*known, *more) if path.exists()]
