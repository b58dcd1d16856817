"""The same process, live and as a core of either writer, is told alike: what is held, maybe and leaked, what is broken, the sums."""

from typing import Sequence

import pytest

from tests.support.gcores import gcore
from tests.support.processes import Stage
from tests.support.sameness import PROGRAMS, told

pytestmark = pytest.mark.once  # what a core lacks that a process has is the kernel's and gdb's doing


@pytest.mark.parametrize("name, arguments", PROGRAMS, ids=lambda one: one if isinstance(one, str) else "-".join(one))
def test_the_same_is_told(stage: Stage, name: str, arguments: Sequence[str]) -> None:
    """With the second look for weak pointers, which a process at rest is asked for by name."""
    process = stage.start(name, *arguments)
    live = told(process.target("live"))
    by_gdb = told(["--core", str(gcore(process))])
    assert by_gdb == live
    assert told(process.target("core")) == live
