"""tools/apt.sh: a machine on which another apt runs."""

import fcntl
import os
import shutil
import subprocess
from pathlib import Path
from typing import Dict, List

import pytest

ROOT = Path(__file__).parent.parent
pytestmark = [pytest.mark.once, pytest.mark.first]  # its lines are a shell's
NEEDS_APT = pytest.mark.skipif(shutil.which("apt-get") is None, reason="no apt here")


def update(folder: Path, **environment: str) -> "subprocess.Popen[str]":
    """An update of lists that lie in the folder, from nowhere."""
    for name in ("lists/partial", "cache/archives/partial"):
        (folder / name).mkdir(parents=True)
    (folder / "sources.list").touch()
    (folder / "status").touch()
    places: Dict[str, object] = {"Dir::State": folder, "Dir::State::status": folder / "status", "Dir::Cache": folder / "cache"}
    places.update({"Dir::Etc::sourcelist": folder / "sources.list", "Dir::Etc::sourceparts": "-"})
    words: List[str] = [word for name, value in places.items() for word in ("-o", "%s=%s" % (name, value))]
    command = ["sh", str(ROOT / "tools/apt.sh"), *words, "update"]
    return subprocess.Popen(command, env={**os.environ, **environment}, stderr=subprocess.PIPE, text=True)


@NEEDS_APT
def test_it_waits_for_the_lock_on_lists(tmp_path: Path) -> None:
    """apt-get update fails at once where another one holds it; here it is done when that one has ended."""
    (tmp_path / "lists").mkdir()
    with open(tmp_path / "lists" / "lock", "w") as lock:
        fcntl.lockf(lock, fcntl.LOCK_EX)
        waiting = update(tmp_path)
        with pytest.raises(subprocess.TimeoutExpired):
            waiting.wait(timeout=1.5)
    assert waiting.wait(timeout=60) == 0, waiting.communicate()[1]


@NEEDS_APT
def test_it_does_not_wait_for_ever(tmp_path: Path) -> None:
    """The reason is apt's own."""
    (tmp_path / "lists").mkdir()
    with open(tmp_path / "lists" / "lock", "w") as lock:
        fcntl.lockf(lock, fcntl.LOCK_EX)
        said = update(tmp_path, WAIT_S="0").communicate(timeout=60)[1]
    assert "lists/lock" in said
