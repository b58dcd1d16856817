"""The other programs of the suite, live and as cores: told alike."""

from pathlib import Path
from typing import Sequence

import pytest

from tests.support import jemallocs
from tests.support.gcores import gcore
from tests.support.processes import Process, Stage
from tests.support.sameness import MORE_PROGRAMS, WITH_JEMALLOC, told

pytestmark = pytest.mark.wild  # many programs, three looks at each


@pytest.mark.parametrize("name, arguments", MORE_PROGRAMS, ids=lambda one: one if isinstance(one, str) else "-".join(one))
def test_the_same_is_told(stage: Stage, name: str, arguments: Sequence[str]) -> None:
    """As test_live_and_core of the integration tests."""
    check(stage.start(name, *arguments))


@pytest.mark.parametrize("name, arguments", WITH_JEMALLOC, ids=lambda one: one if isinstance(one, str) else "-".join(one))
def test_the_same_is_told_with_jemalloc(stage: Stage, name: str, arguments: Sequence[str]) -> None:
    """The same with jemalloc as their malloc."""
    check(stage.start(name, *arguments, env={"LD_PRELOAD": str(jemallocs.library())}))


def check(process: Process) -> None:
    """Of a core with shared files as well: the record of a program holds its blocks."""
    Path("/proc/%d/coredump_filter" % process.pid).write_text("0x3f")
    live = told(process.target("live"))
    by_gdb = told(["--core", str(gcore(process))])
    assert {**by_gdb, "mappings": live["mappings"]} == live  # gdb writes down of reserved addresses that they can be read
    assert told(process.target("core")) == live
