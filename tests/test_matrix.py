"""docker/matrix.py, the one list of supported systems, and what is made from it."""

import re
import subprocess
import sys
from pathlib import Path
from typing import Dict, Sequence, Set, Tuple

import matrix
import pytest

from gdbheapx.glibc import layouts
from gdbheapx.jemalloc import layouts as jemalloc_layouts
from tests.support import jemallocs
from tools import arm_machine

ROOT = Path(__file__).parents[1]


pytestmark = [pytest.mark.once, pytest.mark.first]  # reads the list of the matrix

Version = Tuple[int, ...]


def test_documentation_is_up_to_date() -> None:
    """docs/reference/support.md and the README's line are what `make docs` would write."""
    done = subprocess.run([sys.executable, "-m", "tools.make_support", "--check"], cwd=str(ROOT), capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


def test_rows_go_from_old_to_new() -> None:
    """No column goes back from row to row, so that the first and the last row are the bounds that documentation names."""
    for older, newer in zip(matrix.ROWS, matrix.ROWS[1:]):
        assert (older.glibc, older.gdb, older.python) < (newer.glibc, newer.gdb, newer.python)
        assert older.jemalloc <= newer.jemalloc
    assert len({row.suite for row in matrix.ROWS}) == len(matrix.ROWS)


def test_newest_layouts_are_the_last_row() -> None:
    """The newest glibc that is called tried is the last that the tests run on, and the tables reach as far."""
    assert matrix.ROWS[-1].glibc == layouts.NEWEST_TRIED <= layouts.NEWEST_READ


def test_structures_are_the_rows_of_layouts() -> None:
    """What was tried of finding malloc by structure is said of the same releases that layouts.py has."""
    assert [one.releases for one in matrix.STRUCTURES] == [layouts.releases_of([row]).replace(" or newer", "") for row in reversed(layouts.ROWS)]


def test_the_jemallocs_are_those_that_are_tried() -> None:
    """Each row's libjemalloc2 and each Rust program's jemalloc has its line, and none is promised that is not tried."""
    tried: Dict[Version, Set[str]] = {version: set() for version in [row.jemalloc for row in matrix.ROWS] + list(jemallocs.VERSIONS.values())}
    for crate, version in jemallocs.VERSIONS.items():
        tried[version].add(crate)
    listed = {one.version: {name.split()[0] for name in one.rust} for one in matrix.JEMALLOCS if not (one.synthetic or one.name)}
    assert listed == tried
    assert [one.version for one in matrix.JEMALLOCS[-2:]] == [
        jemalloc_layouts.NEWEST_KNOWN, (*jemalloc_layouts.NEWEST_KNOWN, jemalloc_layouts.TRIED_COMMITS),
    ]  # fmt: skip


def test_oldest_python_is_the_package_floor() -> None:
    """setup.py promises no older Python than was tried."""
    floor = re.search(r'python_requires=">=([\d.]+)"', (ROOT / "setup.py").read_text())
    assert floor and floor.group(1) == matrix.text(matrix.ROWS[0].python)


def test_only_the_last_row_moves() -> None:
    """A row that moves records what it was; the others stand still."""
    assert [row.moves for row in matrix.ROWS] == [False] * (len(matrix.ROWS) - 1) + [True]


def test_docker_is_no_package() -> None:
    """docker/__init__.py would hide the docker SDK from the matrix itself."""
    assert not (ROOT / "docker" / "__init__.py").exists()


@pytest.mark.parametrize("names", [arm_machine.TESTS, arm_machine.WHOLE], ids=["TESTS", "WHOLE"])
def test_the_tests_of_the_arm64_machine_exist(names: Sequence[str]) -> None:
    """Each name of a test that the emulated machine runs is one that pytest collects here."""
    words = [sys.executable, "-m", "pytest", "-q", "--collect-only", "-p", "no:cacheprovider", *names]
    done = subprocess.run(words, cwd=str(ROOT), capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
