"""What must hold in every answer about glibc."""

from typing import Any, Dict, List

FIELDS = ("arena", "ordblks", "smblks", "hblks", "hblkhd", "usmblks", "fsmblks", "uordblks", "fordblks", "keepcost")
"""mallinfo2's, in the order of the struct."""
PARTS = ("used_bytes", "tcache_bytes", "fast_bytes", "free_bytes", "top_bytes", "overhead_bytes", "unparsed_bytes")


def glibc_arenas(data: Dict[str, Any]) -> List[Dict[str, Any]]:
    """The glibc arenas of an `arenas` answer."""
    return [arena for arena in data["arenas"] if arena["allocator"].startswith("glibc")]


def check_identity(data: Dict[str, Any], unparsed: bool = False) -> None:
    """In each arena, and in the totals, the parts add up to system, to the byte."""
    arenas = glibc_arenas(data)
    assert arenas
    for arena in arenas:
        assert arena["system_bytes"] == sum(arena[part] for part in PARTS), arena
        if not unparsed:
            assert arena["unparsed_bytes"] == 0, arena
        assert arena["foreign_bytes"] <= arena["overhead_bytes"]
        assert arena["largest_free_bytes"] <= arena["free_bytes"]
        assert arena["reclaimable_bytes"] <= arena["free_bytes"] + arena["fast_bytes"] + arena["top_bytes"]
    for allocator, totals in data["totals"].items():
        own = [arena for arena in arenas if arena["allocator"] == allocator]
        if own:
            for part in PARTS + ("system_bytes", "used_chunks", "tcache_chunks", "fast_chunks", "free_chunks"):
                assert totals[part] == sum(arena[part] for arena in own), part


def found_fields(data: Dict[str, Any]) -> Dict[str, int]:
    """mallinfo2's ten fields wherever the answer keeps them."""
    source = data
    for key in ("glibc", "mallinfo2", "mallinfo"):
        if isinstance(source.get(key), dict):
            source = source[key]
    return {key: source[key] for key in FIELDS}


def check_kept(arenas: Dict[str, Any], pins: Dict[str, Any]) -> None:
    """What `pins` says is kept is free + fast + top - reclaimable, to the byte, each byte in one group."""
    rows = glibc_arenas(arenas)
    kept = sum(row["free_bytes"] + row["fast_bytes"] + row["top_bytes"] - row["reclaimable_bytes"] for row in rows)
    sums = [one for one in pins["sums"] if one["allocator"].startswith("glibc")]
    assert [one["difference_bytes"] for one in sums] == [0] * len(sums) and sum(one["kept_bytes"] for one in sums) == kept
    assert sum(one["kept_bytes"] for one in pins["groups"]) == pins["kept_bytes"]
    assert all(one["kept_bytes"] > 0 for one in pins["groups"])
