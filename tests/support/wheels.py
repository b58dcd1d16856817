"""What the tests of this folder stand on: wheels of PyPI, which pip fetches once and keeps where the next clone finds them."""

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

WHEELS = Path(os.environ.get("GDBHEAPX_WHEELS") or Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "gdbheapx" / "wheels")
"""NAME-VERSION-pyXY folders, each made by `pip install --target`."""
FETCH_SECONDS = 900
BESIDE = {"pyarrow==14.0.2": ("numpy<2",)}
"""What a release needs in an older version than pip would take."""


def wheel(name: str, version: str) -> Path:
    """The folder with this wheel and what it needs; skips with pip's reason where it cannot be had."""
    folder = WHEELS / ("%s-%s-py%d%d" % (name, version, *sys.version_info[:2]))
    if not folder.is_dir():
        WHEELS.mkdir(parents=True, exist_ok=True)
        made = Path(tempfile.mkdtemp(prefix=folder.name + ".", dir=WHEELS))  # renamed when it is whole: another run may fetch it too
        requirement = "%s==%s" % (name, version)
        command = [sys.executable, "-m", "pip", "install", "-q", "--only-binary", ":all:", "--target", str(made / "tree"), requirement, *BESIDE.get(requirement, ())]
        try:
            done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=FETCH_SECONDS)
            if done.returncode != 0:
                pytest.skip("pip cannot fetch %s: %s" % (requirement, (done.stderr.strip().splitlines() or ["no reason given"])[-1]))
            try:
                (made / "tree").rename(folder)
            except OSError:
                assert folder.is_dir(), "somebody else fetched it meanwhile"
        finally:
            shutil.rmtree(made, ignore_errors=True)
    return folder
