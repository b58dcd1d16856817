"""`watch --snapshot-when` near the limit of a memory cgroup: nobody is killed sooner for it, or at all, and what cannot be taken is told.

Files: app/worker.py addons/monitor/watch/counters.py addons/monitor/watch/capture.py
"""

import os

import pytest

from tests.support import memory_group, near_limit
from tests.support.near_limit import MIB, Plan
from tests.support.processes import Stage

pytestmark = pytest.mark.once  # an image may make no memory cgroup; tests/addons/monitor/wild/test_before_oom_kill.py does it 200 times
MB = 1_000_000


@pytest.fixture(autouse=True)
def group() -> None:
    """Skips in words where no memory cgroup can be made."""
    try:
        with memory_group.limited(64 * MIB):
            pass
    except (memory_group.NoGroup, OSError, StopIteration) as reason:
        pytest.skip("no memory cgroup with a limit can be made here: %s" % reason)


@pytest.mark.slow
@pytest.mark.parametrize(
    "plan, rule",
    [(Plan(50 * MB, 800 * MB, 150 * MB), "pressure"), (Plan(200 * MB, 1600 * MB, 300 * MB), "above=40M")],
    ids=["50 MB/s", "200 MB/s"],
)
def test_one_that_is_killed(stage: Stage, plan: Plan, rule: str) -> None:
    """It dies with as many bytes as when it is left alone; the snapshot is whole, or a line says why there is none."""
    control = near_limit.run(stage, plan)
    end = near_limit.run(stage, plan, [rule])
    near_limit.check_no_sooner(end, [control])
    lacking = near_limit.lacking(end)
    assert not lacking or [one for one in end.decisions[1:] if one["outcome"] == "failed" and one["why"]], (lacking, end)


@pytest.mark.slow
@pytest.mark.parametrize("margin", [MIB // 4, 8 * MIB], ids=["256 KiB", "8 MiB"])
def test_one_that_stops_below_the_limit(stage: Stage, margin: int) -> None:
    """So much room is left: it lives, and its snapshot is whole."""
    plan = Plan(100 * MB, 60 * MB, 1 << 32)
    highest = max(near_limit.run(stage, plan).highest_bytes for _ in range(2))
    end = near_limit.run(stage, plan._replace(limit_bytes=highest + margin), ["pressure"])
    assert end.is_alive and not end.kills and not near_limit.lacking(end), end


@pytest.mark.slow
def test_a_watch_in_the_same_group(stage: Stage) -> None:
    """What a snapshot takes would be the program's: none is taken where that is more than there is, and the line says so; the program lives."""
    plan = Plan(100 * MB, 60 * MB, 200 * MB)
    end = near_limit.run(stage, plan, ["above=40M"], is_inside=True)
    assert end.is_alive and not end.kills, end
    assert [one["outcome"] for one in end.decisions[:2]] == ["taken", "failed"], end.decisions
    assert "that of the watch as well" in end.decisions[1]["why"] and not os.path.exists(end.decisions[1]["path"] or "/nowhere")
