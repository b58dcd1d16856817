"""Tables of a runtime's memory, of parts made by hand: each byte once, whatever lies where."""

from typing import Dict, Optional

import pytest

from gdbheapx.analysis import inside
from gdbheapx.analysis.census.find import Census, CensusLook, Managed
from gdbheapx.analysis.census.world import EXACT, PLACE, Recogniser, RuntimeLabels, Signature
from gdbheapx.analysis.inside import Watch
from gdbheapx.analysis.memory import kinds
from gdbheapx.analysis.memory.kinds import MemoryOwner
from gdbheapx.analysis.split import Split, SplitMemory
from gdbheapx.model import MemoryPart

OBJECT, BODY, TAG = Signature("dict", "python"), Signature("dict+0x8", "python", PLACE), Signature("NMT GC", "jvm", EXACT)
POOLS = MemoryOwner(kinds.RUNTIME, "CPython: object arenas (obmalloc)", program="CPython")


class Known(Recogniser):
    """A recogniser, as far as a table asks."""

    def __init__(self, module: str) -> None:
        self.module = module
        name, owned = {"python": ("CPython", "malloc: of objects"), "jvm": ("JVM", "")}[module]
        self.table = RuntimeLabels(name, "obmalloc", owned, "malloc: other blocks", "malloc: blocks")


def part(kind: str, name: str, size: int, program: Optional[str] = None, sure: str = "certain") -> MemoryPart:
    """A line of the split."""
    return MemoryPart(kind, name, size, None, 0, 0, size, 0, 0, 0, 1, "glibc" if kind == kinds.ALLOCATOR else None, program, sure)


def table(module: str, outside: Dict[Optional[Signature], int], held: Dict[MemoryOwner, int], absent: int = 0) -> Dict[str, int]:
    """Kinds with their bytes, of 1000 bytes of malloc, 500 of the runtime, 100 of a file and 50 that nothing names."""
    parts = [
        part(kinds.ALLOCATOR, "malloc", 1000),
        part(kinds.RUNTIME, POOLS.name, 500, "CPython"),
        part(kinds.CACHE, "files", 100),
        part(kinds.ANONYMOUS, "other", 30),
        part(kinds.RUNTIME, "JVM: tables", 20, "JVM", "guess"),
    ]
    split = Split(parts, SplitMemory("resident", 1650, 0, 1000, {}, 0, 100, 550, 0, 0, 1650, 0, 0, 0, 0, [], []))
    managed = [Managed("python", "block of a pool", 600, 300, 250, 50)] if held else []
    watch = Watch(split, 4096)
    watch.pools, watch.absent_bytes = {"python": held}, absent
    made = inside.make_runtime_table(Known(module), split, CensusLook(Census([], 0, 0, 0, 0, managed, False), outside), watch)
    assert made.sum_bytes == 1650 == sum(row.bytes for row in made.rows)
    found: Dict[str, int] = {}
    for row in made.rows:
        found[row.kind] = found.get(row.kind, 0) + row.bytes
    return found


def test_pools_in_their_own_mappings() -> None:
    """What of the mapping is no pool stays as the remainder; blocks that objects alone point to are theirs."""
    found = table("python", {OBJECT: 400, BODY: 100, None: 200}, {POOLS: 450})
    assert [found[kind] for kind in ("runtime-used", "runtime-free", "runtime-overhead", "not-in-ram")] == [300, 250, 50, -150]
    assert [found[kind] for kind in ("malloc-owned", "malloc-other", "malloc-free", "remainder")] == [500, 200, 300, 100]


def test_pools_in_memory_of_mallocs() -> None:
    """They are taken off it; a mapping of the runtime's in which none lies keeps its name."""
    found = table("python", {OBJECT: 400}, {MemoryOwner(kinds.ALLOCATOR, "malloc", allocator="glibc"): 600})
    assert (found["malloc-owned"], found["malloc-free"], found["remainder"], found[kinds.RUNTIME]) == (400, 0, 50, 500)


@pytest.mark.parametrize("used, absent, kept, missing", [(900, 0, 100, 0), (900, 200, 300, -200), (1500, 600, 100, -600), (1500, 200, 0, -500)])
def test_blocks_that_are_not_in_ram(used: int, absent: int, kept: int, missing: int) -> None:
    """Large ones by their pages; what malloc keeps is never below 0."""
    found = table("jvm", {TAG: used - 100, Signature("NMT GC+0x8", "jvm", PLACE): 60, None: 40}, {}, absent)
    assert (found["malloc-owned"], found["malloc-other"]) == (used - 100, 100)
    assert (found["malloc-free"], found.get("not-in-ram", 0)) == (kept, missing)
