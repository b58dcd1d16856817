"""Memory by owner, the parts of each arena, the pages of a heap by kind, and size classes: figures of records, and sums of them."""

from typing import Any, Dict, List, Mapping, NamedTuple, Optional, Sequence, Tuple

from gdbheapx import columns, units
from gdbheapx.addons.views.html.geometry import ChartBranch
from gdbheapx.analysis import addon_answers as program_books
from gdbheapx.analysis.addon_answers import Books
from gdbheapx.analysis.inside import MapCell, PageHeapMap, RuntimeTable, SizeClasses
from gdbheapx.analysis.memory import kinds
from gdbheapx.analysis.split import SplitMemory, count_taken
from gdbheapx.model import GUESS, HistogramRow, MemoryPart

MOST_ARENAS, MOST_SPLIT, MOST_MAPS = 24, 24, 8
MOST_INNER, LEAST_AREA = 40, 400
"""Rectangles in one of a treemap, and the part of the whole that the smallest of its own has: two millimetres on a side."""
MOST_CONTEXTS = 24
"""Names of memory contexts in one table."""
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
BESIDE = (
    ("shared_bytes", "shared"),
    ("pss_bytes", "PSS"),
    ("swapped_bytes", "swapped"),
    ("huge_bytes", "huge pages"),
    ("hugetlb_bytes", "hugetlb"),
)
"""Of parts and of the whole, shown where any has some."""


class PagePart(NamedTuple):
    """A part of something: a segment of a bar, an entry of a legend, a row of a table."""

    look: str
    """Its class in style.css."""
    name: str
    bytes: Optional[int]


class PageLine(NamedTuple):
    """A bar with its name."""

    name: str
    parts: Sequence[PagePart]
    whole_bytes: Optional[int]
    of: Tuple[str, Optional[int]] = ("", None)
    """Of an arena its allocator and index."""


class Counted(NamedTuple):
    """A part with how many things it is."""

    name: str
    bytes: int
    number: int
    label: str = ""
    """Where the name is too long for a picture."""
    look: str = ""
    """Where it has one of its own."""


class PageArea(NamedTuple):
    """A rectangle of a treemap."""

    look: str
    label: str
    name: str
    """With what it is a part of."""
    bytes: int


class Areas(NamedTuple):
    """The whole memory as a treemap of two levels."""

    tree: Sequence[ChartBranch]
    items: Sequence[PageArea]
    """By the places of the branches."""
    divided: str
    """What the second level divides; empty: there is none."""
    beyond_bytes: int
    """What is in use beyond what takes memory: so much does not fit, and what is in use is drawn smaller."""


class MapView(NamedTuple):
    """The map of one heap."""

    allocator: str
    page_bytes: Optional[int]
    cell_bytes: Optional[int]
    parts: Sequence[PagePart]
    cells: Sequence[Sequence[Optional[int]]]
    """Figures in the order of `parts`."""
    lines: Sequence[Tuple[str, Sequence[Optional[int]]]]
    """Several cells each: the address of the first, and their sums."""
    whole_bytes: Optional[int]


class Classes(NamedTuple):
    """The blocks of one heap by size."""

    allocator: str
    rows: Sequence[Tuple[str, HistogramRow]]
    more: int
    bars: Sequence[Tuple[str, Sequence[Optional[int]]]]
    """(sizes, (used, free)): several classes each where there are many."""


def make_split(parts: Optional[Sequence[MemoryPart]], memory: Optional[SplitMemory]) -> Dict[str, Any]:
    """The memory by whose it is."""
    live = memory is not None and memory.measure == "resident"
    key, parts = "resident_bytes" if live else "dumped_bytes", parts or ()
    made = [PagePart("part%d" % (place % 6), part_name(part), getattr(part, key)) for place, part in enumerate(parts[:MOST_SPLIT])]
    if len(parts) > MOST_SPLIT:
        rest = [getattr(part, key) for part in parts[MOST_SPLIT:]]
        made.append(PagePart("other", "%d smaller parts" % len(rest), columns.add_values(rest)))
    more = [
        (name, [getattr(part, field) for part in parts[: len(made)]])
        for field, name in BESIDE
        if any(getattr(part, field) for part in parts)
    ]
    return {
        "known": memory is not None,
        "live": live,
        "parts": made,
        "more": more,
        "headings": [("owner", "name"), ("bytes", ""), ("%", ""), *((name, "") for name, _ in more)],
        "guessed": any(part.sure == GUESS for part in parts),
        "total": memory and memory.total_bytes,
        "beside": [(name, getattr(memory, field)) for field, name in BESIDE if getattr(memory, field, None)],
        "largest": memory.largest if memory is not None else (),
    }


def part_name(part: MemoryPart) -> str:
    """Return the name of a part, with a mark if it is a guess."""
    return "%s%s" % (part.name, " ?" if part.sure == GUESS else "")


def make_areas(parts: Optional[Sequence[MemoryPart]], used_bytes: int, inner: Sequence[Counted]) -> Optional[Areas]:
    """The split, and within what allocators have that which is in use. `inner`: its parts; `used_bytes`: without pieces of runtimes' pools,
    which are blocks as well where there are names: then those pools are divided, too."""
    all_parts = [part for part in parts or () if count_taken(part) > 0]
    in_use = sum(part.bytes for part in inner)
    has_pools = in_use > used_bytes
    divided = [one for one in all_parts if one.kind == kinds.ALLOCATOR or (has_pools and one.kind == kinds.RUNTIME and not one.allocator)]
    rows = [Counted(part_name(part), count_taken(part), 1) for part in all_parts if part not in divided]
    held = sum(map(count_taken, divided))
    name = " and ".join(part_name(part) for part in divided) if len(divided) < 3 else "allocators and pools of runtimes"
    if held:
        rows.append(Counted(name, held, 1))
    whole = sum(row.bytes for row in rows)
    if not whole:
        return None
    items: List[PageArea] = []
    tree = []
    for number, row in enumerate(keep_largest(rows, MOST_SPLIT, whole // LEAST_AREA)):
        look, place = "part%d" % (number % 6), len(items)
        items.append(PageArea(look, row.name, row.name, row.bytes))
        children = []
        if held and row is rows[-1]:
            kept = [Counted("free, in caches, or the allocator's own", held - in_use, 1, look="own")] if held > in_use else []
            for part in keep_largest([*inner, *kept], MOST_INNER, whole // LEAST_AREA) if in_use else ():
                children.append(ChartBranch(len(items), part.bytes))
                items.append(PageArea(part.look or look, part.label or part.name, "%s: %s" % (row.name, part.name), part.bytes))
        tree.append(ChartBranch(place, row.bytes, children))
    return Areas(tree, items, name if held and in_use else "", max(0, in_use - held) if held else 0)


def keep_largest(rows: Sequence[Counted], most: int, least_bytes: int) -> List[Counted]:
    """The largest first; what is smaller than `least_bytes`, or beyond `most`, is one row that says how many they are."""
    ordered = sorted((row for row in rows if row.bytes > 0), key=lambda row: -row.bytes)
    shown = [row for row in ordered[:most] if row.bytes >= least_bytes and row.number == 1]
    rest = [row for row in ordered if row not in shown]
    if len(rest) == 1 and rest[0].number == 1:
        return [*shown, *rest]
    others = sum(row.number for row in rest)
    return [*shown, Counted(units.count_noun(others, "other"), sum(row.bytes for row in rest), others)] if rest else shown


def make_runtime_line(table: RuntimeTable) -> PageLine:
    """A table of a runtime, in which every byte is counted once."""
    return PageLine(
        "%s: every byte once" % table.name,
        [PagePart("part%d" % (place % 6), row.name, row.bytes) for place, row in enumerate(table.rows)],
        table.sum_bytes,
    )


def make_contexts_line(books: Books) -> PageLine:
    """Return the memory that a program's own memory contexts have in use, as parts of the memory that allocators have in use."""
    rows = program_books.sum_by_name(books.contexts)
    parts = [PagePart("part%d" % (place % 6), row.name, row.inuse_bytes) for place, row in enumerate(rows[:MOST_CONTEXTS])]
    rest = sum(row.inuse_bytes for row in rows[MOST_CONTEXTS:])
    parts += [PagePart("other", "smaller contexts", rest)] if rest else []
    other = max(0, books.used_bytes - sum(row.inuse_bytes for row in rows))
    title = "%s: memory contexts" % books.program
    return PageLine(
        title, [*parts, PagePart("other", "in use, of no context", other)], max(books.used_bytes, sum(row.inuse_bytes for row in rows))
    )


def subtract_known(whole_bytes: Optional[int], part: Optional[int]) -> Optional[int]:
    """The rest; None where either is not known."""
    return None if whole_bytes is None or part is None else max(0, whole_bytes - part)


def sum_fields(arena: Any, *names: str) -> Optional[int]:
    """The sum of those fields that the record has; None where one of them is not known, or there is none."""
    values = [getattr(arena, name) for name in names if hasattr(arena, name)]
    return columns.add_values(values) if values else None


def arena_parts(arena: Any) -> List[PagePart]:
    """An arena's memory: what is free and not reclaimable is kept. The rest of what it has from the system is shown as other."""
    used = sum_fields(arena, "used_bytes")
    cached = sum_fields(arena, "tcache_bytes", "cached_bytes", "fast_bytes")
    can = sum_fields(arena, "reclaimable_bytes")
    if hasattr(arena, "active_bytes"):  # regions in use and free ones fill slabs; unused pages lie beside them
        kept = subtract_known(arena.active_bytes, arena.allocated_bytes)
    else:
        kept = subtract_known(sum_fields(arena, "free_bytes", "top_bytes"), can)
    own, other = sum_fields(arena, "overhead_bytes", "metadata_bytes"), sum_fields(arena, "unparsed_bytes")
    return [PagePart(look, name, value) for look, name, value in zip(SHARES, ARENA_NAMES, (used, cached, can, kept, own, other))]


def arenas_of(arenas: Sequence[Any], totals: Mapping[str, Mapping[str, Optional[int]]]) -> List[PageLine]:
    """The largest arenas, and the mapped blocks of each allocator."""
    pairs = [(arena, arena_parts(arena)) for arena in arenas]
    pairs.sort(key=lambda pair: -sum(part.bytes or 0 for part in pair[1]))
    lines = []
    for arena, parts in pairs[:MOST_ARENAS]:
        kind = getattr(arena, "kind", None)
        name = "%s arena %s%s" % (arena.allocator, units.format_identifier(arena.index), " (%s)" % kind if kind else "")
        lines.append(PageLine(name, parts, getattr(arena, "system_bytes", None), (arena.allocator, arena.index)))
    for id_, sums in totals.items():
        mapped = sums.get("mmapped_bytes")
        if mapped:
            lines.append(PageLine("%s, mapped blocks" % id_, [PagePart("used", "used", mapped)], mapped, (id_, None)))
    return lines


def map_of(heap_map: PageHeapMap) -> MapView:
    """The map of a heap."""
    live = heap_map.sums.free_resident_bytes is not None and heap_map.sums.returned_resident_bytes is not None
    texts = (
        ("used", "in use"),
        ("pinned", "pinned: free memory on the pages of blocks in use"),
        ("cached", "pinned by blocks in caches"),
        ("own", "the allocator's own"),
        ("free", "free, in RAM" if live else "free (in RAM or not: not known)"),
        ("gone", "returned, or never in RAM" if live else "returned (in RAM or not: not known)"),
    )
    cells = [_list_states(cell, live) for cell in heap_map.cells]
    parts = [PagePart(look, name, value) for (look, name), value in zip(texts, _list_states(heap_map.sums, live))]
    each = -(-len(cells) // MAP_LINES) if cells else 1
    return MapView(
        allocator=heap_map.allocator,
        page_bytes=heap_map.page_bytes,
        cell_bytes=heap_map.cell_bytes,
        parts=parts,
        cells=cells,
        lines=[
            (str(heap_map.cells[first].address), [columns.add_values(column) for column in zip(*cells[first : first + each])])
            for first in range(0, len(cells), each)
        ],
        whole_bytes=columns.add_values(part.bytes for part in parts),
    )


def _list_states(cell: MapCell, live: bool) -> List[Optional[int]]:
    """Return the figures in the order of MAP_NAMES. If it is known which pages are in RAM, free pages that are not resident count as
    returned.
    """
    free: Optional[int] = cell.free_bytes
    returned: Optional[int] = cell.returned_bytes
    if live:
        resident = columns.add_values([cell.free_resident_bytes, cell.returned_resident_bytes])
        free, returned = resident, subtract_known(columns.add_values([free, returned]), resident)
    return [cell.used_bytes, cell.pinned_bytes, cell.cached_bytes, cell.own_bytes, free, returned]


def classes_of(classes: SizeClasses) -> Classes:
    """The size classes of a heap."""
    each = max(1, -(-len(classes.rows) // MOST_COLUMNS))
    bars = []
    for first in range(0, len(classes.rows), each):
        group = classes.rows[first : first + each]
        sums = [columns.add_values(getattr(row, field) for row in group) for field in ("used_bytes", "free_bytes")]
        bars.append((sizes_of(group[0].size_bytes, group[-1].max_size_bytes), sums))
    shown = [(sizes_of(row.size_bytes, row.max_size_bytes), row) for row in classes.rows[:MOST_CLASSES]]
    return Classes(classes.allocator, shown, max(0, len(classes.rows) - MOST_CLASSES), bars)


def sizes_of(least: int, most: int) -> str:
    """A size, or from which to which."""
    return units.format_size(least) if least == most else "%s to %s" % (units.format_size(least), units.format_size(most))
