"""Whether the graph fits into the memory that this process may use."""

import os
import resource
from functools import lru_cache
from typing import Iterator, Optional, Tuple

from gdbheapx.analysis.reachability import heap_graph
from gdbheapx.errors import HeapxError
from gdbheapx.problems import OUT_OF_MEMORY
from gdbheapx.session import Session
from gdbheapx.units import Size, say

LEAKS_BYTES, OWNERS_BYTES = 25, 90
"""Of each block, at the peak; measured with up to 2 pointers in a block."""
SWEEP_BYTES, SIGNED_BYTES, PINNED_BYTES = 3, 4, 12
"""Of each block where there is no room for the graph: for the sweeps, beside their index; a census; which blocks keep free memory."""
INDEX_SHARE = 4
"""The index of the sweeps takes a byte for so many places of the heaps at which a block may begin (kernel/blocks/index.h: struct line)."""
LITTLE_BYTES = 64 << 20
"""What takes less is tried wherever it is."""
MOST_BLOCKS = 500_000_000
"""Above this a graph's edges have no room for the numbers of its blocks (kernel/blocks/graph.h: ID_BITS)."""
SMALL_HEAP_BYTES = 2 << 30
"""Of a heap that is larger, or of a living process, the graph is made only where it is asked for."""
SHARE = 0.7
"""Of what may be used: the page cache of the core needs some, too."""
VARIABLE = "GDBHEAPX_MEMORY"
GROUPS = "/sys/fs/cgroup"


def blocks(session: Session) -> int:
    """Blocks in use, as the walks over the heaps have counted them, or as a snapshot has them."""
    if not session.target.has_memory:
        reach: Optional[heap_graph.Reach] = session.shared(heap_graph.REACH)
        return reach.numbers.blocks if reach is not None else 0
    return sum(row.used_chunks for heap in session.heaps.all() for row in heap.histogram())


def allowed_bytes() -> int:
    """What this process may use: what its control group, its own limit and the machine leave."""
    named = os.environ.get(VARIABLE, "")
    return int(named) if named.isdigit() else _allowed_bytes()


@lru_cache(maxsize=1)
def _allowed_bytes() -> int:
    """Asked once: the files that tell it are read before a process is stopped."""
    return int(SHARE * min([*_of_groups(), *_of_process(), *_of_machine()], default=1 << 62))


def _number(path: str) -> Optional[int]:
    try:
        with open(path) as file:
            text = file.read().strip()
    except OSError:
        return None
    return int(text) if text.isdigit() else None


def _of_groups() -> Iterator[int]:
    """The limits of the groups that it is in, and of those above them (cgroups(7); both versions)."""
    try:
        with open("/proc/self/cgroup") as file:
            lines = [line.rstrip("\n").split(":", 2) for line in file]
    except OSError:
        return
    for _, controllers, path in lines:
        if controllers and "memory" not in controllers.split(","):
            continue
        root = GROUPS + "/memory" if controllers else GROUPS
        name = "memory.limit_in_bytes" if controllers else "memory.max"
        while True:
            limit = _number(root + path.rstrip("/") + "/" + name)
            if limit is not None:
                yield limit
            if path in ("/", ""):
                break
            path = os.path.dirname(path)


def _of_process() -> Iterator[int]:
    for limit in (resource.RLIMIT_AS, resource.RLIMIT_DATA):
        soft = resource.getrlimit(limit)[0]
        if soft != resource.RLIM_INFINITY:
            yield soft


def _of_machine() -> Iterator[int]:
    try:
        with open("/proc/meminfo") as file:
            for line in file:
                if line.startswith("MemAvailable:"):
                    yield int(line.split()[1]) * 1024
    except OSError:
        return


def is_small(session: Session) -> bool:
    """A core with a heap of which the graph takes a second or two: it is looked at without being asked."""
    if session.target.kind != "core":
        return False
    return _heap_bytes(session) <= SMALL_HEAP_BYTES


def fits(session: Session, each_bytes: int) -> Optional[Tuple[int, int]]:
    """None if the graph fits; else what it would take, and what there is."""
    count, allowed = blocks(session), allowed_bytes()
    return (count * each_bytes, allowed) if count * each_bytes > allowed or count > MOST_BLOCKS else None


def check_least(session: Session, each_bytes: int, indexed: bool = False) -> None:
    """HeapxError where not even what does without the graph fits, before it begins: the kernel would end it without a word."""
    allowed = allowed_bytes()
    needed = blocks(session) * each_bytes + (_heap_bytes(session) // (INDEX_SHARE * _unit_bytes(session)) if indexed else 0)
    if needed > max(allowed, LITTLE_BYTES):
        what = say("this takes about %s of memory, even without a graph, and this process may use %s", Size(needed), Size(allowed))
        raise HeapxError(
            what, "run it where there is more memory; `gdbheapx arenas` and `chunks --histogram` take little", code=OUT_OF_MEMORY
        )


def _heap_bytes(session: Session) -> int:
    return sum(claim.end - claim.start for heap in session.heaps.all() for claim in heap.claims())


def _unit_bytes(session: Session) -> int:
    """Of the finest heap: all are in one index."""
    return min((heap.shape.unit_bytes for heap in session.heaps.all()), default=16)


def check(session: Session) -> None:
    """HeapxError where the owners of so many blocks cannot be told here."""
    lacking = fits(session, OWNERS_BYTES)
    if lacking is not None:
        what = say("this takes about %s of memory, and this process may use %s", *map(Size, lacking))
        raise HeapxError(what, "run it where there is more memory; `gdbheapx leaks` takes little", code=OUT_OF_MEMORY)
