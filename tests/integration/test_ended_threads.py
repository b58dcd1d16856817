"""What ended threads leave: the C library keeps some of their stacks for reuse, with what their thread-local storage needs."""

import pytest

from tests.support.gcores import gcore
from tests.support.processes import Stage
from tests.support.tool import heapx

pytestmark = pytest.mark.image  # where the libc keeps what, and when it frees it

LOST_BYTES = 12345


@pytest.mark.parametrize("way", ["live", "gcore", "core"])
def test_what_kept_stacks_need_is_held(stage: Stage, way: str) -> None:
    """Blocks of a loaded library's thread-local storage, and the dtvs that lead to them: one block is leaked, that which the program lost."""
    library = str(stage.builder.build("ending", "-shared", "-fPIC"))
    process = stage.start("ended", library, flags=("-Wl,--no-as-needed,-ldl",))
    target = ["--core", str(gcore(process))] if way == "gcore" else process.target("live" if way == "live" else "core")
    data = heapx(target, "leaks", "--list", "--json").envelope["data"]
    lost = ~process.words()[0] & (1 << 64) - 1
    assert [int(one["address"], 16) for one in data["blocks"] if one["class"] == "leaked"] == [lost]
    assert data["classes"]["held"]["bytes"] > 5 * (96 << 10)
    assert data["classes"]["maybe"]["blocks"] <= 1


@pytest.mark.parametrize("way", ["live", "gcore", "core", "snapshot", "stripped"])
def test_threads_that_nobody_joined_are_no_cache(stage: Stage, way: str) -> None:
    """12 that were never joined, by what they ran, and 3 whose stacks the C library keeps: each by its own list, with or without symbols."""
    process = stage.start("unjoined", "12", "3", flags=("-s",) if way == "stripped" else ())
    target = ["--core", str(gcore(process))] if way == "gcore" else process.target("core" if way == "core" else "live")
    if way == "snapshot":
        file = str(stage.folder() / "taken")
        assert heapx(target, "snapshot", file).code == 0
        target = ["--snapshot", file]
    data = heapx(target, "report", "--json").data
    ended, parts = data["memory"]["ended_threads"], {part["name"]: part for part in data["split"]}
    assert (ended["unjoined"], ended["cached"]) == (12, 3)
    assert ended["unjoined_bytes"] == sum(part["resident_bytes"] or part["dumped_bytes"] for name, part in parts.items() if "never joined" in name) > 0
    ((function, threads),) = [(start["function"], start["threads"]) for start in ended["starts"]]
    assert threads == 12 and (function.startswith("unjoined") and "+0x" in function if way == "stripped" else function.startswith("end_soon in "))
    assert [finding["code"] for finding in data["findings"] if finding["code"] == "never-joined"]
    assert [part["mappings"] for name, part in parts.items() if "cached for reuse" in name] in ([3], [1])
