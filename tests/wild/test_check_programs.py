"""Programs that do nothing wrong break no rule, as they live and in a core: large ones at rest, and threads that never leave malloc."""

import pytest

from tests.support import jemallocs
from tests.support.gcores import gcore
from tests.support.paths import GDB
from tests.support.processes import Process, Stage
from tests.support.runtimes import PROGRAMS, start
from tests.support.tool import heapx

pytestmark = pytest.mark.wild  # Java, node, PHP, Erlang; cores of some GB

NAMES = sorted(set(PROGRAMS) - {"java-zgc"})
"""The addresses that ZGC reserves are a core of 50 GB by gcore."""
LOOKS = 20


def check_none(process: Process, kind: str) -> None:
    """No finding, inside gdb and without; what a core lacks may make the answer partial."""
    target = process.target("live") if kind == "live" else ["--core", str(gcore(process))]
    for gdb in ((), ("--gdb", GDB)):
        outcome = heapx([*target, *gdb], "check", "--json")
        assert outcome.code in (0, 4), (outcome.code, outcome.stderr)
        assert outcome.envelope["data"] == {"findings": []}, outcome.envelope


@pytest.mark.parametrize("name", NAMES)
def test_no_rule_is_broken(stage: Stage, kind: str, name: str) -> None:
    """Third-party programs on glibc's malloc."""
    check_none(start(stage, PROGRAMS[name]), kind)


@pytest.mark.parametrize("preload", [False, True], ids=["glibc", "jemalloc"])
def test_threads_at_work_are_not_accused(stage: Stage, live: str, preload: bool) -> None:
    """Twenty looks at sixteen threads in malloc: never exit code 3; a part that is being changed makes the answer partial at most."""
    process = stage.start("busy", "16", env={"LD_PRELOAD": str(jemallocs.library())} if preload else {})
    for _ in range(LOOKS):
        outcome = heapx(process.target(live), "check", "--json")
        assert outcome.code in (0, 4), outcome.envelope
        assert all(row["evidence"] for row in outcome.envelope["data"]["findings"])
