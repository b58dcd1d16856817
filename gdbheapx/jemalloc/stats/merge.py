"""All arenas as one: the entry `merged` of malloc_stats_print (ctl.c: ctl_arena_stats_sdmerge)."""

from typing import Any, Dict, List, Sequence

from gdbheapx.jemalloc.context import Context
from gdbheapx.jemalloc.detection import layouts
from gdbheapx.jemalloc.heap import mutexes
from gdbheapx.jemalloc.stats import options

Figures = Dict[str, Any]


def merged(context: Context, entries: Sequence[Figures]) -> Figures:
    """The sum of these arenas, arena 0 first. Names and decay times are nobody's; uptime is arena 0's."""
    found: Figures = _sum([{key: value for key, value in entry.items() if key != "name"} for entry in entries])
    found["uptime_ns"] = entries[0]["uptime_ns"]
    found["dss"] = options.NAMES["dss"][-1]
    found["dirty_decay_ms"] = found["muzzy_decay_ms"] = -1
    if layouts.merges_no_large_flushes(context.jemalloc.version):
        found["large"]["nflushes"] = 0
    return found


def _sum(entries: Sequence[Any]) -> Any:
    """Element-wise through dicts and lists; None where one is not known. Locks are merged by their own rule."""
    first = entries[0]
    if isinstance(first, dict):
        if "num_ops" in first:
            return mutexes.merged(entries)
        return {key: _sum([entry.get(key) for entry in entries]) for key in first}
    if isinstance(first, list):
        shortest = min(len(entry) if entry else 0 for entry in entries)
        return [_sum([entry[place] for entry in entries]) for place in range(shortest)]
    return None if None in entries or isinstance(first, str) else _number(list(entries))


def _number(values: List[int]) -> int:
    return sum(values)
