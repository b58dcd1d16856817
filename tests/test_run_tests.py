"""A test that fails among others and passes alone is told by name and fails no run; one that fails twice does."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.once  # the same everywhere

ROOT = Path(__file__).resolve().parent.parent
TESTS = """
import pathlib
met = pathlib.Path(__file__).with_name("met")
def test_sound(): pass
def test_at_first():
    first = not met.exists()
    met.touch()
    assert not first
"""


def ran(folder: Path, text: str) -> "subprocess.CompletedProcess[str]":
    """The run of a file with these tests."""
    file = folder / "test_some.py"
    file.write_text(text)
    words = [sys.executable, "-m", "tools.run_tests", "-q", "--junitxml=%s" % (folder / "junit.xml"), "--rootdir=%s" % folder, str(file)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    return subprocess.run(words, cwd=folder, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def test_what_passes_alone_is_told(tmp_path: Path) -> None:
    """The second run has that test alone, and a report of its own."""
    outcome = ran(tmp_path, TESTS)
    assert outcome.returncode == 0, outcome.stdout
    assert "failed among others, passed alone: " in outcome.stdout and "test_at_first" in outcome.stdout.splitlines()[-1]
    assert 'tests="1"' in (tmp_path / "junit.xml.again").read_text()


def test_what_fails_twice_fails(tmp_path: Path) -> None:
    """And is named so, beside the other one."""
    outcome = ran(tmp_path, TESTS + "def test_broken(): assert False\n")
    assert outcome.returncode == 1
    assert {line.split(": ")[0] for line in outcome.stdout.splitlines()[-2:]} == {"failed twice", "failed among others, passed alone"}


def test_what_is_no_test_is_not_run_again(tmp_path: Path) -> None:
    """A file that cannot be imported."""
    outcome = ran(tmp_path, "import nothing_of_that_name\n")
    assert outcome.returncode == 2 and "once more" not in outcome.stdout
