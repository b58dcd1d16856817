"""Blocks with a mapping of their own that the kernel shows as several: protected in part, left out of cores, locked, named."""

from typing import Any, Dict

import pytest

from tests.support.gcores import gcore
from tests.support.processes import Process, Stage
from tests.support.tool import heapx

pytestmark = pytest.mark.once  # what the kernel splits, and what gcore leaves out


def truth(process: Process) -> Dict[int, str]:
    """What was done to each block, by its address."""
    lines = (line.split() for line in process.record().decode().splitlines())
    return {int(address, 16): how for how, address, _ in lines}


@pytest.mark.parametrize("way", ["live", "gcore", "core"])
def test_every_block_is_counted_and_held(stage: Stage, way: str) -> None:
    """None is missing from chunks and sums, none is a mapping that nothing points to, and no rule is broken."""
    process = stage.start("mapped")
    blocks = truth(process)
    target = ["--core", str(gcore(process))] if way == "gcore" else process.target("live" if way == "live" else "core")

    def asked(*command: str) -> Any:
        return heapx(target, *command, "--json").envelope["data"]

    rows = [row for row in asked("chunks", "--limit", "1000")["chunks"] if row["status"] == "mmapped"]
    assert {blocks.get(int(row["address"], 16), "?") for row in rows} == set(blocks.values()) and len(rows) == len(blocks)
    assert asked("arenas")["mmapped"]["chunks"] == len(blocks)
    found = asked("leaks")
    assert (found["classes"]["held"]["blocks"], found["classes"]["leaked"]["blocks"], found["mappings"]) == (len(blocks), 0, [])
    assert asked("check") == {"findings": []}
