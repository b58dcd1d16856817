"""Layouts of BIND's memory contexts, task managers and tasks: members in their order, placed as a C compiler does.

lib/isc/mem.c and task.c: 9.16.0 to 9.16.50, 9.18.0 to 9.18.50, 9.20.0 to 9.20.27. 9.21 keeps a context's name and sums elsewhere.
"""

import functools
from typing import Dict, List, Sequence, Tuple

Offsets = Dict[str, int]
"""By member; `size`: of all that is read."""
STATS_BUCKETS = 513
"""9.18: of struct isc_mem, one for each 32 bytes of size; each is how many blocks there are, and how many there were."""
OF_CONTEXT = {
    "9.20": "magic:i flags:i arena_flags:i arena:i debugging:i lock:L checkfree:b references:R name:n inuse:w "
    "hi_called:b hi_water:w lo_water:w pools:l poolcnt:i",
    "9.18.19": "magic:i flags:i arena_flags:i arena:i lock:L checkfree:b stats:S references:R name:n total:w inuse:w "
    "maxinuse:w malloced:w maxmalloced:w hi_called:b water:w water_arg:w hi_water:w lo_water:w pools:l poolcnt:i",
    "9.18": "magic:i flags:i lock:L checkfree:b stats:S references:R name:n total:w inuse:w maxinuse:w malloced:w maxmalloced:w "
    "hi_called:b water:w water_arg:w hi_water:w lo_water:w pools:l poolcnt:i",
    "9.16": "magic:i api_magic:i methods:w flags:i lock:L memalloc:w memfree:w max_size:w checkfree:b stats_at:w references:R "
    "name:n tag:w total:w inuse:w maxinuse:w malloced:w maxmalloced:w hi_water:w lo_water:w hi_called:b water:w water_arg:w "
    "pools:l poolcnt:i mem_target:w freelists:w basic_blocks:w basic_table:w basic_table_count:i basic_table_size:i "
    "lowest:w highest:w",
}
"""By the first release that has it; ISC_MEM_TRACKLINES adds two words before the link. i: 4 bytes, w: a word, l: a list's two, b: a bool,
n: 16 letters, L: a mutex, R: uint_fast32_t."""
MANAGER = "magic:i references:R mctx:w lock:L tasks_count:R netmgr:w default_quantum:i tasks:l"
OF_MANAGER_AND_TASK = {
    "9.18": (
        MANAGER,
        "magic:i manager:w lock:L threadid:i state:i references:R running:R events:l on_shutdown:l nevents:i quantum:i now:i "
        "tnow:t name:n tag:w bound:b shuttingdown:b privileged:b link:l",
    ),
    "9.16.17": (
        MANAGER,
        "magic:i manager:w lock:L threadid:i state:i pause_cnt:i references:R running:R events:l on_shutdown:l nevents:i "
        "quantum:i now:i tnow:t name:n tag:w bound:b shuttingdown:b privileged:b link:l",
    ),
    "9.16": (
        "magic:i mctx:w lock:L halt_lock:L halt_cond:C workers:i tasks_running:R tasks_ready:R curq:R tasks_count:R queues:w "
        "nm:w default_quantum:i tasks:l",
        "magic:i manager:w lock:L state:i pause_cnt:i references:R events:l on_shutdown:l nevents:i quantum:i now:i tnow:t "
        "name:n tag:w threadid:i bound:b flags:R link:l",
    ),
}
SIZES = {"i": (4, 4), "w": (8, 8), "l": (16, 8), "b": (1, 1), "n": (16, 1), "t": (8, 4), "C": (48, 8), "S": (STATS_BUCKETS * 16, 8)}
FAST_BYTES = 8, 4
"""sizeof(uint_fast32_t) in C libraries, the usual one first."""
LINES = ("", " debuglist:w debuglistcnt:w")


@functools.cache
def of_contexts(mutex_bytes: Tuple[int, ...]) -> Sequence[Offsets]:
    """All that builds may have, the usual ones first."""
    texts = [text + lines + " link:l" for text in OF_CONTEXT.values() for lines in LINES]
    return [_offsets(text, *sizes) for sizes in _sizes(mutex_bytes) for text in texts]


@functools.cache
def of_managers(mutex_bytes: Tuple[int, ...]) -> Sequence[Tuple[Offsets, Offsets]]:
    """(manager, task) of all that builds may have."""
    texts = OF_MANAGER_AND_TASK.values()
    return [(_offsets(manager, *sizes), _offsets(task, *sizes)) for sizes in _sizes(mutex_bytes) for manager, task in texts]


def _sizes(mutex_bytes: Tuple[int, ...]) -> List[Tuple[int, int]]:
    """(mutex, uint_fast32_t)."""
    return [(mutex, fast) for fast in FAST_BYTES for mutex in mutex_bytes]


def _offsets(text: str, mutex_bytes: int, fast_bytes: int) -> Offsets:
    """As a C compiler places the members."""
    offsets, at = {}, 0
    for member in text.split():
        name, code = member.split(":")
        size, align = {**SIZES, "L": (mutex_bytes, 8), "R": (fast_bytes, fast_bytes)}[code]
        at = -(-at // align) * align
        offsets[name] = at
        at += size
    return {**offsets, "size": at}
