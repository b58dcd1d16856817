"""What the tests of this folder stand on: wheels of PyPI that somebody has unpacked, as no CI does."""

import os
import sys
from pathlib import Path

import pytest
from harness import ROOT

WHEELS = Path(os.environ.get("GDBHEAPX_WHEELS") or ROOT / ".cache" / "wheels")
"""NAME-VERSION folders, each made by `pip install --target`."""


def pytest_configure(config: pytest.Config) -> None:
    """The marker, where nobody has registered it yet."""
    if not any(line.startswith("wild:") for line in config.getini("markers")):
        config.addinivalue_line("markers", "wild: big or foreign programs, run by hand")


def wheel(name: str, version: str) -> Path:
    """The folder with this wheel; skips with the command that makes it."""
    folder = WHEELS / ("%s-%s" % (name, version))
    if not folder.is_dir():
        pytest.skip("%s is not there: %s -m pip install --target %s %s==%s" % (folder, sys.executable, folder, name, version))
    return folder
