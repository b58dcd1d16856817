"""Programs of others that a test holds an answer against: installed, or unpacked and built by tools/setup_machine.sh."""

import shutil
import sys
from pathlib import Path
from typing import Optional

import pytest

from tests.support.paths import ROOT

UNPACKED = ("promtool/usr/bin", "inferno/bin", "named/usr/sbin")
HINTS = {"inferno-flamegraph": " (cargo install inferno)"}


def found(program: str) -> Optional[str]:
    """Its path; None where it is not there."""
    cache = ROOT / ".cache"
    folders = [Path(sys.executable).parent, *(cache / one for one in UNPACKED)]
    return shutil.which(program) or next((str(one / program) for one in folders if (one / program).exists()), None)


def need(program: str) -> str:
    """Its path; skips where it is not there."""
    path = found(program)
    if path is None:
        pytest.skip("%s is not installed%s" % (program, HINTS.get(program, "")))
    return path
