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
