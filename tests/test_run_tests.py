"""A test that fails among others and passes alone is told by name and fails no run; one that fails twice does. What unit tests run is counted
beside that."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tools import ci_table

pytestmark = [pytest.mark.once, pytest.mark.first]  # the same everywhere

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


def ran(folder: Path, text: str, **added: str) -> "subprocess.CompletedProcess[str]":
    """The run of a file with these tests."""
    file = folder / "test_some.py"
    file.write_text(text)
    words = [sys.executable, "-m", "tools.run_tests", "-q", "--junitxml=%s" % (folder / "junit.xml"), "--rootdir=%s" % folder, str(file)]
    environment = {**os.environ, "PYTHONPATH": "%s:%s" % (ROOT, folder), **added}
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


def test_the_second_run_counts_nothing(tmp_path: Path) -> None:
    """A plugin that the environment names is there for the first run alone: its table is that of all tests."""
    (tmp_path / "counting.py").write_text("print('counted')\n")
    assert ran(tmp_path, TESTS, PYTEST_PLUGINS="counting").stdout.count("counted") == 1


def test_what_ci_ran_is_a_table(tmp_path: Path) -> None:
    """A row for each suite and each image that ran tests; who passed only alone is counted apart."""
    ran(tmp_path, TESTS)
    for name in ("junit.xml", "junit.xml.again"):
        (tmp_path / name).rename(tmp_path / name.replace("junit", "test"))
    images = [{"suite": suite, "passed": count, "failed": 0, "alone": 0, "skipped": 3, "seconds": 90} for suite, count in (("bullseye", 1200), ("bookworm", 0))]
    (tmp_path / "matrix.json").write_text(json.dumps(images))
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in ci_table.table(tmp_path).splitlines() if line.startswith("| `")]
    assert [row[:-1] for row in rows] == [["`make test`", "1", "0", "1", "0"], ["`make matrix`: bullseye", "1,200", "0", "0", "3"]] and rows[1][-1] == "1.5"


def test_what_unit_tests_run_is_counted(tmp_path: Path) -> None:
    """A row for each folder of the product, what is run at import with it; a test that is no unit test adds nothing."""
    pytest.importorskip("coverage")
    counted = []
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    for chosen in ("tests/unit/common/test_units.py", "tests/test_matrix.py::test_only_the_last_row_moves"):
        code = "import pathlib, sys, pytest; from tools import covered; covered.FOLDER = pathlib.Path(sys.argv[1]); pytest.main(sys.argv[2:], plugins=[covered])"
        words = [sys.executable, "-c", code, str(tmp_path / "data"), "-q", "-p", "no:cacheprovider", "-p", "no:xdist", chosen]
        said = subprocess.run(words, cwd=ROOT, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True).stdout
        assert " passed" in said, said
        rows = json.loads((tmp_path / "data" / "report.json").read_text())["files"]
        assert "gdbheapx/analysis" in said and rows["gdbheapx/common/problems.py"]["summary"]["covered_lines"] > 0, "imported by conftest.py"
        counted.append(rows["gdbheapx/common/units.py"]["summary"]["covered_lines"])
    assert counted[0] > counted[1], counted
