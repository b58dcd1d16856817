"""What holds the blocks of a program with musl: variables, stacks, thread-local storage and pthread_setspecific, without glibc's control block."""

import pytest

from tests.support.musls import start
from tests.support.processes import Lasting, Process, Stage
from tests.support.tool import told

pytestmark = pytest.mark.image  # the musl of the release


def rooted(stage: Stage, way: str) -> Process:
    """Chains of known length at each sort of root, and 270 lost blocks."""
    return start(stage, "mu_roots", way)


@pytest.mark.parametrize("kind, way", [("live", "shared"), ("core", "static, stripped"), ("core", "shared")], indirect=["kind"])
def test_leaks_and_owners_are_exact(lasting: Lasting, kind: str, way: str) -> None:
    """Leaked are the 270 blocks that are lost; every chain is kept by the root that it hangs from."""
    process = lasting.of(kind, rooted, way)
    told(process, kind, "leaks", "owners")
    leaks, owners = (process.told[command]["data"] for command in ("leaks", "owners"))
    assert {name: row["blocks"] for name, row in leaks["classes"].items()} == {"held": 11809, "maybe": 0, "leaked": 270}
    assert leaks["classes"]["leaked"]["roots"] == 200
    kept = sorted(row["retained_blocks"] for row in owners["owners"])
    for count in (100, 101, 102, 1000, 2000, 3000, 4000):
        assert count in kept, kept
