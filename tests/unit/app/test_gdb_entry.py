"""gdbheapx/gdbinit.py inside gdb, one gdb per test."""

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import List

import pytest

ROOT = Path(__file__).parents[3]
GDBINIT = ROOT / "gdbheapx" / "gdbinit.py"

pytestmark = [pytest.mark.gdb, pytest.mark.skipif(not shutil.which("gdb"), reason="gdb is not installed")]


def gdb(*commands: str, scripts: List[Path] = [GDBINIT]) -> "subprocess.CompletedProcess[str]":  # noqa: B006  (never changed)
    """Run gdb without a program."""
    words = ["gdb", "-nx", "-q", "-batch"]
    for script in scripts:
        words += ["-x", str(script)]
    for command in commands:
        words += ["-ex", command]
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    return subprocess.run(words, capture_output=True, text=True, env=environment, cwd="/", timeout=60, stdin=subprocess.DEVNULL)


def test_sourcing_twice_is_harmless() -> None:
    """Sourcing prints nothing, also the second time."""
    done = gdb(scripts=[GDBINIT, GDBINIT])
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_sourcing_through_a_link(tmp_path: Path) -> None:
    """A symbolic link to gdbinit.py finds its package."""
    link = tmp_path / "heapx.py"
    link.symlink_to(GDBINIT)
    done = gdb("python import gdbheapx; print(gdbheapx.__file__)", scripts=[link])
    assert done.stdout.strip() == str(ROOT / "gdbheapx" / "__init__.py"), done.stderr


def test_path_is_appended() -> None:
    """The folder the package was found in stands at the end of sys.path: it shadows nothing."""
    done = gdb("python import sys; print(sys.path[-1])")
    assert done.stdout.strip() == str(ROOT)


def test_gdb_without_python(tmp_path: Path) -> None:
    """A gdb that cannot run Python ends with our line and exit code 1."""
    fake = tmp_path / "gdb"  # does what gdb-minimal does: -x of a Python file fails, the -ex commands are run
    fake.write_text(
        '#!/bin/sh\nwhile [ $# -gt 0 ]; do case "$1" in -ex) shift; case "$1" in echo*) printf \'%b\' "${1#echo }";; quit*) exit ${1#quit };; esac;; esac; shift; done\n'
    )
    fake.chmod(0o755)
    done = subprocess.run(
        [sys.executable, "-m", "gdbheapx", "--core", "x", "--gdb", str(fake), "arenas"], capture_output=True, text=True, cwd=str(ROOT)
    )
    assert done.returncode == 1 and done.stdout == "" and "has no Python" in done.stderr and done.stderr.count("\n") == 1
