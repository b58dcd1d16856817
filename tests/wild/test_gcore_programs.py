"""Programs nobody here wrote in a core by gdb's gcore and in one by the kernel: what is told of them is what is told of the living process."""

import pytest

from tests.support.gcores import differences, gcore, shares, without_holes
from tests.support.processes import Stage
from tests.support.runtimes import PROGRAMS, start
from tests.support.tool import heapx

pytestmark = pytest.mark.wild  # Java, node, PHP, Erlang; cores of some GB

SHARE_POINTS = 4.0
NAMES = sorted(set(PROGRAMS) - {"java-zgc"})
"""The addresses that ZGC reserves are a core of 50 GB by gcore."""


@pytest.mark.parametrize("name", NAMES)
def test_a_core_tells_what_the_process_told(stage: Stage, core: str, name: str) -> None:
    """The same verdict, and the same shares but for a few points, by gcore, by the kernel, and in a copy of the kernel's core without holes."""
    process = start(stage, PROGRAMS[name])
    live = heapx(["--pid", str(process.pid)], "report", "--json").envelope["data"]
    by_gdb = gcore(process)
    for path in (by_gdb, process.core(), without_holes(process.core())):
        data = heapx(["--core", str(path)], "report", "--json").envelope["data"]
        assert data["verdict"]["code"] == live["verdict"]["code"], path.name
        assert not differences(shares(live), shares(data), SHARE_POINTS), (path.name, shares(live), shares(data))
        path.unlink()
