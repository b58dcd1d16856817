"""Whose memory it is, what each arena has, what the pages of a heap are, and size classes: figures of a document, and sums of them."""

from typing import Any, Dict, List, Mapping, NamedTuple, Optional, Sequence, Tuple

from gdbheapx import columns, units
from gdbheapx.extras.html.reading import record, rows, summed, whole, words

MOST_ARENAS, MOST_SPLIT, MOST_MAPS = 24, 24, 8
MOST_CLASSES = 400
"""Rows of one table of size classes."""
MOST_COLUMNS = 48
"""Columns of one picture of size classes."""
ACROSS, MAP_LINES = 80, 50
"""Cells side by side in a map, and lines of its table."""
MAP_NAMES = ("in use", "pinned", "in caches", "the allocator's own", "free", "returned")
"""Kinds of pages, in the order in which a cell of a map has them."""
SHARES = ("used", "cached", "free", "kept", "own", "other")
"""Parts of an arena: style.css has a colour and a pattern for each."""
ARENA_NAMES = ("used", "in caches", "free, can be returned", "free, kept", "the allocator's own", "not read")


class Part(NamedTuple):
    """A part of something: a segment of a bar, an entry of a legend, a row of a table."""

    look: str
    """Its class in style.css."""
    name: str
    bytes: Optional[int]


class Line(NamedTuple):
    """A bar with its name."""

    name: str
    parts: Sequence[Part]
    whole_bytes: Optional[int]


class MapView(NamedTuple):
    """The map of one heap."""

    allocator: str
    page_bytes: Optional[int]
    cell_bytes: Optional[int]
    parts: Sequence[Part]
    cells: Sequence[Sequence[Optional[int]]]
    """Figures in the order of `parts`."""
    lines: Sequence[Tuple[str, Sequence[Optional[int]]]]
    """Several cells each: the address of the first, and their sums."""
    whole_bytes: Optional[int]


class SizeRow(NamedTuple):
    """Blocks of one size class."""

    sizes: str
    used: Optional[int]
    used_bytes: Optional[int]
    free: Optional[int]
    free_bytes: Optional[int]
    cached: Optional[int]


class Classes(NamedTuple):
    """The blocks of one heap by size."""

    allocator: str
    rows: Sequence[SizeRow]
    more: int
    bars: Sequence[Tuple[str, Sequence[Optional[int]]]]
    """(sizes, (used, free)): several classes each where there are many."""


def held(data: Mapping[str, Any], name: str) -> List[Part]:
    """The parts of what an allocator holds."""
    return [Part("", words(one, "name") or "", whole(one, "bytes")) for one in rows(data, "held", name)]


def split(data: Mapping[str, Any]) -> Dict[str, Any]:
    """The memory by whose it is."""
    memory = record(data, "memory")
    live = memory.get("measure") == "resident"
    key, parts = "resident_bytes" if live else "dumped_bytes", rows(data, "split")
    made = [Part("part%d" % (place % 6), _part_name(one), whole(one, key)) for place, one in enumerate(parts[:MOST_SPLIT])]
    if len(parts) > MOST_SPLIT:
        rest = [whole(one, key) for one in parts[MOST_SPLIT:]]
        made.append(Part("other", "%d smaller parts" % len(rest), columns.add(rest)))
    beside = [("shared_bytes", "shared"), ("pss_bytes", "PSS"), ("swapped_bytes", "swapped"), ("huge_bytes", "huge pages")]
    beside += [("hugetlb_bytes", "hugetlb")]
    more = [(name, [whole(one, field) for one in parts[: len(made)]]) for field, name in beside if any(whole(one, field) for one in parts)]
    return {
        "known": "split" in data and data["split"] is not None,
        "live": live,
        "parts": made,
        "more": more,
        "headings": [("whose", "name"), ("bytes", ""), ("share", ""), *((name, "") for name, _ in more)],
        "guessed": any(one.get("sure") == "guess" for one in parts),
        "total": whole(memory, "total_bytes"),
        "beside": [(name, whole(memory, field)) for field, name in beside if whole(memory, field)],
        "largest": [(words(one, "kind") or "", words(one, "name") or "", whole(one, "bytes")) for one in rows(memory, "largest")],
    }


def _part_name(one: Mapping[str, Any]) -> str:
    return "%s%s" % (words(one, "name") or "not named", " ?" if one.get("sure") == "guess" else "")


def runtime(one: Mapping[str, Any]) -> Line:
    """A table of a runtime, in which every byte stands once."""
    parts = [Part("part%d" % (place % 6), words(row, "name") or "", whole(row, "bytes")) for place, row in enumerate(rows(one, "rows"))]
    return Line(words(one, "name") or "", parts, whole(one, "sum_bytes"))


def less(whole_bytes: Optional[int], part: Optional[int]) -> Optional[int]:
    """The rest; None where either is not known."""
    return None if whole_bytes is None or part is None else max(0, whole_bytes - part)


def arena_parts(one: Mapping[str, Any]) -> List[Part]:
    """An arena's memory: what is free and not reclaimable is kept. The rest of what it has from the system is told as other."""
    used = summed(one, "used_bytes")
    cached = summed(one, "tcache_bytes", "cached_bytes", "fast_bytes")
    can = summed(one, "reclaimable_bytes")
    if "active_bytes" in one:  # regions in use and free ones fill slabs; unused pages lie beside them
        kept = less(whole(one, "active_bytes"), whole(one, "allocated_bytes"))
    else:
        kept = less(summed(one, "free_bytes", "top_bytes"), can)
    own, other = summed(one, "overhead_bytes", "metadata_bytes"), summed(one, "unparsed_bytes")
    return [Part(look, name, value) for look, name, value in zip(SHARES, ARENA_NAMES, (used, cached, can, kept, own, other))]


def arenas_of(data: Mapping[str, Any]) -> List[Line]:
    """The largest arenas, and the mapped blocks of each allocator."""
    every = [(one, arena_parts(one)) for one in rows(data, "arenas")]
    every.sort(key=lambda one: -sum(part.bytes or 0 for part in one[1]))
    found = []
    for one, parts in every[:MOST_ARENAS]:
        kind = words(one, "kind")
        name = "%s arena %s%s" % (words(one, "allocator") or "?", units.number(whole(one, "index")), " (%s)" % kind if kind else "")
        found.append(Line(name, parts, whole(one, "system_bytes") if "system_bytes" in one else None))
    for id_, totals in record(data, "totals").items():
        mapped = whole(totals, "mmapped_bytes")
        if mapped:
            found.append(Line("%s, mapped blocks" % id_, [Part("used", "used", mapped)], mapped))
    return found


def map_of(one: Mapping[str, Any]) -> MapView:
    """The map of a heap."""
    sums = record(one, "sums")
    live = whole(sums, "free_resident_bytes") is not None and whole(sums, "returned_resident_bytes") is not None
    texts = (
        ("used", "in use"),
        ("pinned", "pinned: free memory beside blocks in use, on one page"),
        ("cached", "kept by blocks in caches"),
        ("own", "the allocator's own"),
        ("free", "free, in RAM" if live else "free (in RAM or not: not known)"),
        ("gone", "returned, or never in RAM" if live else "returned (in RAM or not: not known)"),
    )
    cells = rows(one, "cells")
    parts = [Part(look, name, value) for (look, name), value in zip(texts, _states(sums, live))]
    each = -(-len(cells) // MAP_LINES) if cells else 1
    lines = []
    for first in range(0, len(cells), each):
        group = [_states(cell, live) for cell in cells[first : first + each]]
        lines.append((words(cells[first], "address") or "?", [columns.add(column) for column in zip(*group)]))
    return MapView(
        allocator=words(one, "allocator") or "?",
        page_bytes=whole(one, "page_bytes"),
        cell_bytes=whole(one, "cell_bytes"),
        parts=parts,
        cells=[_states(cell, live) for cell in cells],
        lines=lines,
        whole_bytes=columns.add([part.bytes for part in parts]),
    )


def _states(cell: Mapping[str, Any], live: bool) -> List[Optional[int]]:
    """In the order of MAP_NAMES. Where it is known what is in RAM, free pages that are not count as returned."""
    free, returned = whole(cell, "free_bytes"), whole(cell, "returned_bytes")
    if live:
        resident = columns.add([whole(cell, "free_resident_bytes"), whole(cell, "returned_resident_bytes")])
        free, returned = resident, less(columns.add([free, returned]), resident)
    return [*(whole(cell, name) for name in ("used_bytes", "pinned_bytes", "cached_bytes", "own_bytes")), free, returned]


def classes_of(one: Mapping[str, Any]) -> Classes:
    """The size classes of a heap."""
    found = rows(one, "rows")
    each = max(1, -(-len(found) // MOST_COLUMNS))
    bars = []
    for first in range(0, len(found), each):
        group = found[first : first + each]
        name = sizes_of(whole(group[0], "size_bytes"), whole(group[-1], "max_size_bytes"))
        bars.append((name, [columns.add([whole(row, field) for row in group]) for field in ("used_bytes", "free_bytes")]))
    fields = ("used_chunks", "used_bytes", "free_chunks", "free_bytes", "tcache_chunks")
    shown = [
        SizeRow(sizes_of(whole(row, "size_bytes"), whole(row, "max_size_bytes")), *(whole(row, field) for field in fields))
        for row in found[:MOST_CLASSES]
    ]
    return Classes(words(one, "allocator") or "?", shown, max(0, len(found) - MOST_CLASSES), bars)


def sizes_of(least: Optional[int], most: Optional[int]) -> str:
    """A size, or from which to which."""
    return units.size(least) if least == most else "%s to %s" % (units.size(least), units.size(most))
