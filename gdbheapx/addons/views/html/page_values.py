"""Content of the pages of `report` and `diff`, from the records of a reading: memory by owner, the parts of each arena, the pages of a heap
by kind, size classes, blocks in use and owners: figures as the records have them, and sums of them."""

from typing import Any, Callable, Dict, List, Mapping, NamedTuple, Optional, Sequence, Tuple

from gdbheapx.addons.views.html import geometry
from gdbheapx.addons.views.html.geometry import ChartBranch
from gdbheapx.addons.views.html.page_parts import MapCell, PageCensus, PageHeapMap, PageParts, SizeClasses
from gdbheapx.addons.views.html.render import Envelope, make_step
from gdbheapx.analysis import addon_answers as program_books
from gdbheapx.analysis.addon_answers import Books
from gdbheapx.analysis.census.find import CensusRow
from gdbheapx.analysis.census.owned import FlameFrame
from gdbheapx.analysis.inside import RuntimeTable
from gdbheapx.analysis.memory import kinds
from gdbheapx.analysis.overview import Overview
from gdbheapx.analysis.reachability.owners import OwnedMemory
from gdbheapx.analysis.split import SplitMemory, count_taken
from gdbheapx.common import columns, units
from gdbheapx.common.hints import Write, quote_word, write_alone
from gdbheapx.common.model import GUESS, MemoryPart
from gdbheapx.common.stops import format_lasting
from gdbheapx.common.verdict import SMALL
from gdbheapx.report.overview_text import format_duration, format_moment
from gdbheapx.report.text import UncutText
from gdbheapx.snapshot import container
from gdbheapx.snapshot.diff import KEPT, Diff, DiffSide

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


def make_areas(parts: Optional[Sequence[MemoryPart]], used_bytes: int, inner: Sequence[Counted]) -> Optional[Dict[str, Any]]:
    """The split, and within what allocators have that which is in use. `inner`: its parts; `used_bytes`: without pieces of runtimes' pools,
    which are blocks as well where there are names: then those pools are divided, too. `rows`: by the places of the branches of `tree`;
    `divided`: what the second level divides; `beyond_bytes`: what is in use beyond what takes memory: so much does not fit, and what is in
    use is drawn smaller."""
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
    items: List[Dict[str, Any]] = []
    tree = []
    for number, row in enumerate(keep_largest(rows, MOST_SPLIT, whole // LEAST_AREA)):
        look, place = "part%d" % (number % 6), len(items)
        items.append({"look": look, "label": row.name, "name": row.name, "bytes": row.bytes})
        children = []
        if held and row is rows[-1]:
            kept = [Counted("free, in caches, or the allocator's own", held - in_use, 1, look="own")] if held > in_use else []
            for part in keep_largest([*inner, *kept], MOST_INNER, whole // LEAST_AREA) if in_use else ():
                children.append(ChartBranch(len(items), part.bytes))
                whole_name = "%s: %s" % (row.name, part.name)
                items.append({"look": part.look or look, "label": part.label or part.name, "name": whole_name, "bytes": part.bytes})
        tree.append(ChartBranch(place, row.bytes, children))
    beyond_bytes = max(0, in_use - held) if held else 0
    return {"tree": tree, "rows": items, "divided": name if held and in_use else "", "beyond_bytes": beyond_bytes}


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


def map_of(heap_map: PageHeapMap) -> Dict[str, Any]:
    """The map of a heap. `cells`: figures in the order of `parts`; `lines`: several cells each: the address of the first, and their
    sums."""
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
    lines = [
        (str(heap_map.cells[first].address), [columns.add_values(column) for column in zip(*cells[first : first + each])])
        for first in range(0, len(cells), each)
    ]
    whole_bytes = columns.add_values(part.bytes for part in parts)
    return {**heap_map._asdict(), "parts": parts, "cells": cells, "lines": lines, "whole_bytes": whole_bytes}


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


def classes_of(classes: SizeClasses) -> Dict[str, Any]:
    """The size classes of a heap. `bars`: (sizes, (used, free)), several classes each where there are many."""
    each = max(1, -(-len(classes.rows) // MOST_COLUMNS))
    bars = []
    for first in range(0, len(classes.rows), each):
        group = classes.rows[first : first + each]
        sums = [columns.add_values(getattr(row, field) for row in group) for field in ("used_bytes", "free_bytes")]
        bars.append((sizes_of(group[0].size_bytes, group[-1].max_size_bytes), sums))
    shown = [(sizes_of(row.size_bytes, row.max_size_bytes), row) for row in classes.rows[:MOST_CLASSES]]
    return {"allocator": classes.allocator, "rows": shown, "more": max(0, len(classes.rows) - MOST_CLASSES), "bars": bars}


def sizes_of(least: int, most: int) -> str:
    """A size, or from which to which."""
    return units.format_size(least) if least == most else "%s to %s" % (units.format_size(least), units.format_size(most))


MOST_TREEMAP, MOST_CENSUS, MOST_SITES = 40, 100, 5
MOST_OWNERS, MOST_LEVELS = 400, 9
MOST_FRAMES, MOST_FLAME_LEVELS = 1000, 20
"""Of a document from an unknown writer."""
ICICLE_WIDTH = 1000
NO_PARTS = PageParts((), (), None, 0)
DECAY = (
    ("arena", "arena", False),
    ("state", "state", False),
    ("decay_ms", "decay time", True),
    ("pages", "pages", True),
    ("bytes", "bytes", True),
    ("sweeps", "sweeps", True),
    ("madvises", "madvises", True),
    ("purged_pages", "purged pages", True),
    ("late_ms", "late", True),
    ("driven", "driven", False),
    ("why", "why", False),
)
"""Members of a row of `decay`, their headings, and whether they are figures."""


class PageOwner(NamedTuple):
    """A row of owners; `depth` levels below the top."""

    name: str
    kind: str
    bytes: int
    blocks: int
    depth: int
    what: Optional[str] = None
    """Its class."""
    owner: str = ""
    """Its name alone."""


def make_census_table(page_census: Optional[PageCensus]) -> Optional[Dict[str, Any]]:
    """The rows of the census; None where the blocks were not looked at. `drawn`: the largest, and the rest together."""
    if page_census is None:
        return None
    named = [(_name_of_row(row), row) for row in page_census.rows]
    drawn = [PagePart("", name, row.bytes) for name, row in named[:MOST_TREEMAP] if row.bytes]
    rest = page_census.bytes - sum(part.bytes or 0 for part in drawn)
    if rest > 0:
        drawn.append(PagePart("", "everything else", rest))
    more = page_census.more_rows + max(0, len(named) - MOST_CENSUS)
    return {"rows": named[:MOST_CENSUS], "blocks": page_census.blocks, "bytes": page_census.bytes, "more": more, "drawn": drawn}


def make_sites_table(page_census: Optional[PageCensus]) -> Optional[Dict[str, Any]]:
    """Return the functions that may have allocated the rows that are shown, how many are left out, and of how many rows none is known;
    None if they were not asked for."""
    joined = page_census.sites if page_census is not None else None
    if page_census is None or joined is None:
        return None
    lines, more = [], 0
    for row, found in list(zip(page_census.rows, joined.rows))[:MOST_CENSUS]:
        more += max(0, len(found.sites) - MOST_SITES)
        own = {"row": _name_of_row(row), "signature": row.signature, "bytes": row.bytes}
        for one in found.sites[:MOST_SITES]:
            sizes = ", ".join([*map(units.format_identifier, one.sizes), *(["any"] if one.is_open else [])])
            where = one.function or "+0x%x" % one.offset
            lines.append({**own, "function": where, "module": one.module, "sizes": sizes, "why": "; ".join(one.why)})
    unknown = sum(not found.sites for found in joined.rows)
    return {"lines": lines, "calls": joined.calls, "more": more, "unknown": unknown, "unread": [name for name, _ in joined.unread]}


def _name_of_row(row: CensusRow) -> str:
    if row.signature:
        return row.signature
    return "unnamed blocks of %s" % units.sentence_size(row.size_bytes) if row.size_bytes is not None else "unnamed blocks"


Levels = Tuple[List[PageOwner], List[ChartBranch]]
"""Rows by levels, and a tree of their places."""


def _list_levels(
    rows: Sequence[Any], most: int, most_levels: int, make_row: Callable[[Any, int], Tuple[PageOwner, Sequence[Any]]]
) -> Levels:
    """`make_row`: (record, depth) -> its row, and the records below it."""
    listed: List[PageOwner] = []

    def add_branches(many: Sequence[Any], depth: int) -> List[ChartBranch]:
        branches = []
        for record in many if depth < most_levels else ():
            place = len(listed)
            if place >= most:
                break
            row, below = make_row(record, depth)
            listed.append(row)
            branches.append(ChartBranch(place, row.bytes, add_branches(below, depth + 1)))
        return branches

    tree = add_branches(rows, 0)
    return listed, tree


def _make_owner_row(row: OwnedMemory, depth: int) -> Tuple[PageOwner, Sequence[OwnedMemory]]:
    name = "%s: %s" % (row.signature, row.owner) if row.signature else row.owner
    return PageOwner(name, row.kind, row.retained_bytes, row.retained_blocks, depth, row.signature, row.owner), row.children


def _make_flame_row(frame: FlameFrame, depth: int) -> Tuple[PageOwner, Sequence[FlameFrame]]:
    name = _frame_name(frame)
    return PageOwner(name, frame.module, frame.bytes, frame.blocks, depth, name, name), frame.frames


def _frame_name(frame: FlameFrame) -> str:
    return units.count_noun(frame.others, "other") if frame.others else frame.owner


def split_in_use(page: PageParts, used_bytes: int) -> List[Counted]:
    """Return the memory in use by owner, else by class, else as a whole. A frame with more than half of it is replaced by the frames on
    top of it.
    """
    if page.flame:
        half, parts = sum(frame.bytes for frame in page.flame) // 2, []
        waiting = [(frame, "") for frame in page.flame]
        for frame, over in waiting:
            below = frame.frames if frame.bytes > half else ()
            waiting += [(one, "%s%s: " % (over, _frame_name(frame))) for one in below]
            rest = frame.bytes - sum(one.bytes for one in below)
            if rest > 0:
                parts.append(Counted(over + _frame_name(frame), rest, max(1, frame.others), _frame_name(frame)))
        return parts
    if page.census is None:
        return [Counted("in use", used_bytes, 1)] if used_bytes > 0 else []
    rows = [Counted(_name_of_row(row), row.bytes, 1) for row in page.census.rows]
    rest = page.census.bytes - sum(row.bytes for row in rows)
    return [*rows, *([Counted("everything else", rest, max(1, page.census.more_rows))] if rest > 0 else [])]


def make_links(
    overview: Overview,
    decay: Sequence[Any],
    lines: Sequence[PageLine],
    classes: Sequence[Mapping[str, Any]],
    rows: Sequence[PageOwner],
    frames: Sequence[PageOwner],
    drawn: Mapping[int, str],
) -> Dict[str, Any]:
    """Return the links between elements that show the same thing: targets by name of a part of the split, by allocator and index of an
    arena, by row of purging, by place of a frame, by name of an owner or class. `rows`: rows of owners; `frames`: frames of the picture."""
    arenas: Dict[Tuple[str, Optional[int]], str] = {}
    arena_rows = {line.of: "arena-row-%d" % number for number, line in enumerate(lines, 1) if line.of[1] is not None}
    of_decay = [(row["allocator"], row["arena"]) for row in decay]
    sizes = {one["allocator"]: "sizes-of-%d" % number for number, one in enumerate(classes, 1)}
    for line in lines:
        purged = "decay-%d" % of_decay.index(line.of) if line.of in of_decay else None
        to = purged or sizes.get(line.of[0])
        if to is not None:
            arenas[line.of] = to
    parts = {part_name(part): "arenas" for part in overview.split or () if part.kind == kinds.ALLOCATOR}
    tables = {table.name: "table-%d" % number for number, table in enumerate(overview.runtimes or ())}
    parts.update({part_name(part): tables[part.program] for part in overview.split or () if part.program in tables})
    by_size = sorted(((place, frame) for place, frame in enumerate(frames) if place in drawn), key=lambda pair: pair[1].bytes)
    owners_to = {frame.owner: drawn[place] for place, frame in by_size}
    classes_to = {row.what: "owner-%d" % place for place, row in reversed(list(enumerate(rows))) if row.what}
    classes_to.update({frame.what: drawn[place] for place, frame in by_size if frame.what})
    purged_arenas = [arena_rows.get(one) for one in of_decay]
    return {"parts": parts, "arenas": arenas, "purged": purged_arenas, "frames": drawn, "owners": owners_to, "classes": classes_to}


def _decay_cell(name: str, value: Any) -> Optional[str]:
    """Return one cell as `decay` prints it."""
    if name == "late_ms":
        return columns.format_cell(columns.Column("", columns.LATE), value, False)
    if value is None or isinstance(value, str):
        return value
    if name == "decay_ms":
        return units.format_milliseconds(value)
    return units.format_size(value) if name == "bytes" else units.format_figure(name, value)


def report_page_values(envelope: Envelope, data: Mapping[str, Any], made: str, line: Write = write_alone) -> Dict[str, Any]:
    """Return the values for the template. `made`: the time of the page, as text; `line` writes a command about the same target."""
    overview: Overview = container.decode_value(Overview, data)
    books, verdicts = overview.books, overview.verdicts
    program = envelope.target.program or (envelope.target.executable or "a process").rsplit("/", 1)[-1]
    said = [line for verdict in (overview.verdict, *verdicts.values()) for line in verdict.lines]
    page: PageParts = container.decode_value(Optional[PageParts], data.get("page")) or NO_PARTS
    used_bytes = sum(heap.used_bytes for heap in overview.heaps)
    arenas = arenas_of(overview.arenas, overview.totals)
    shares = zip(SHARES, ARENA_NAMES)
    drawn = [(look, name) for look, name in shares if any(part.look == look and part.bytes != 0 for line in arenas for part in line.parts)]
    classes = [one for one in map(classes_of, page.histogram) if one["rows"]]
    whole = page.owners.used.bytes if page.owners is not None and page.owners.used is not None else None
    owner_rows = _list_levels(page.owners.owners if page.owners is not None else (), MOST_OWNERS, MOST_LEVELS, _make_owner_row)
    flame_rows = _list_levels(page.flame or (), MOST_FRAMES, MOST_FLAME_LEVELS, _make_flame_row)
    id_, (frames, tree) = ("flame", flame_rows) if flame_rows[0] else ("owners-i", owner_rows)
    frames_drawn = {box.place: "%s-%d" % (id_, box.place) for box in geometry.draw_icicle(tree, ICICLE_WIDTH, 1, whole)}
    return {
        "title": program if envelope.target.pid is None else "%s, process %d" % (program, envelope.target.pid),
        "made": made,
        "version": envelope.tool.version,
        "target": _list_target_facts(envelope),
        "partial": envelope.partial,
        "problems": [problem[1:] for problem in envelope.problems],
        "verdict": overview.verdict,
        "others": [(name, judged) for name, judged in list(verdicts.items())[1:] if name in overview.shown and judged.kind != SMALL],
        "findings": [finding for finding in overview.findings if finding not in said],
        "split": make_split(overview.split, overview.memory),
        "areas": make_areas(overview.split, used_bytes, split_in_use(page, used_bytes)),
        "tables": [
            *map(make_runtime_line, overview.runtimes or ()),
            *([make_contexts_line(books)] if books is not None else []),
        ],
        "held": overview.held,
        "arenas": arenas,
        "arena_headings": [("arena", "name"), ("parts", "left"), *((name, "") for _, name in drawn)],
        "arena_looks": [look for look, _ in drawn],
        "arena_key": [PagePart(look, name, None) for look, name in drawn],
        "arena_scale": max((sum(part.bytes or 0 for part in line.parts) for line in arenas), default=0),
        "arenas_line": UncutText(line("arenas")),
        "more_arenas": max(0, len(overview.arenas) - MOST_ARENAS),
        "maps": [map_of(heap_map) for heap_map in page.map[:MOST_MAPS]],
        "classes": classes,
        "census": make_census_table(page.census),
        "sites": make_sites_table(page.census),
        "owners": page.owners,
        "owner_rows": owner_rows,
        "flame_rows": flame_rows,
        "links": make_links(overview, page.decay or (), arenas, classes, owner_rows[0], frames, frames_drawn),
        "icicle_width": ICICLE_WIDTH,
        "decay": None if page.decay is None else [{name: _decay_cell(name, row[name]) for name, _, _ in DECAY} for row in page.decay],
        "more_decay": page.more_decay,
        "steps": [make_step(advice) for advice in overview.next_steps],
        "deeper": UncutText(line("report --deep --html FILE")),
        "owners_line": UncutText(line("owners")),
        "census_line": UncutText(line("census")),
        "sites_line": UncutText(line("census --sites")),
        "page_line": UncutText(line("report --html FILE")),
        "across": ACROSS,
        "map_headings": [("from", ""), *((name, "") for name in MAP_NAMES)],
        "class_parts": [PagePart("used", "in use", None), PagePart("free", "free", None)],
        "decay_columns": DECAY,
        "decay_headings": [(heading, "" if is_figure else "left") for _, heading, is_figure in DECAY],
    }


def _list_target_facts(envelope: Envelope) -> List[Tuple[str, str]]:
    """Facts about the target, as names and texts."""
    target, tool = envelope.target, envelope.tool
    facts = [
        ("Process", None if target.pid is None else str(target.pid)),
        ("Program", target.executable),
        ("Command line", target.command_line),
        ("Host", target.host),
        ("Core written" if target.kind == "core" else "Read", target.time and format_moment(target.time)),
        ("Up", None if target.uptime_s is None else format_duration(target.uptime_s)),
        ("Core", target.core),
        ("Snapshot", target.snapshot),
    ]
    if target.taken is not None:
        facts.append(("Taken", "%s, of a %s" % (format_moment(target.taken), "core" if target.taken_of == "core" else "running process")))
    if target.stopped_ms is not None:
        facts.append(("Longest pause", format_lasting(target.stopped_ms)))
    for allocator in envelope.allocators:
        owner = ", owns malloc" if allocator.owns_malloc else ""
        facts.append(
            ("Allocator", "%s %s in %s%s" % (allocator.id, allocator.version or "(version not known)", allocator.object or "?", owner))
        )
    facts.append(("Read by", "gdbheapx %s%s" % (tool.version, ", gdb %s" % tool.gdb if tool.gdb else "")))
    return [(name, text) for name, text in facts if text is not None]


OPEN_ROWS, MOST_ROWS = 15, 300
"""Of one list: seen at once, and seen at all."""
OPEN_LISTS = 4
"""Seen at once: leaks, classes, owners, and classes of owners."""
FORMS = {"core": "core", "process": "running process"}
PARTS = ("parts", "Parts of the memory", "In RAM and in swap, of a core in the file: allocators, runtimes' pools, stacks, files", "part")
"""A member of `growth`."""
STATE = ("states", "State", "Memory in use, free memory that the allocator keeps, and its own words for parts of it", "state")
STATES = (("used", "in use"), ("kept", KEPT))
"""What a heap holds, with its look: members of `states` that belong to no allocator alone."""
LISTS = (
    ("leaks", "Leaked or reachable", "Reachable blocks (held), blocks that may be leaked (maybe), and leaked ones", "class"),
    ("classes", "By class", "Classes, types and shapes of blocks in use", "type"),
    (
        "owners",
        "By owner",
        "Memory that one variable, thread or mapping alone keeps; single blocks have no name to compare",
        "owner",
    ),
    ("held", "By owner and class", "Memory of the owners by class; blocks without a single named owner are one row", "type"),
    ("arenas", "Arenas", "Memory in use in each arena", "arena"),
    ("contexts", "Memory contexts", "BIND's own counts, by the name of the context", "context"),
)
"""Members with rows of changes: heading, caption, what a row is. Who and what grew comes before states and parts of the memory."""
FIRST = ("leaks", "owners", "classes", "held")
LATER = ("held", "contexts")
"""Documents of earlier releases have none, and contexts are BIND's."""


def diff_page_values(envelope: Envelope, data: Mapping[str, Any], made: str, line: Write = write_alone) -> Dict[str, Any]:
    """Return the values for the template. `made`: the time of the page, as text."""
    diff: Diff = container.decode_value(Diff, data)
    sides = {"Old": diff.old, "New": diff.new}
    bars = []
    for figure in ("old_bytes", "new_bytes"):  # the memory in use and the free memory of this side
        known = {state.what: getattr(state, figure) for state in reversed(diff.states) if not state.whose}
        bars.append([PagePart(look, name, known.get(name)) for look, name in STATES])
    programs = diff.old.executable, diff.new.executable
    lists = [member for member in LISTS if member[0] not in LATER or getattr(diff, member[0]) is not None]
    names = " ".join(quote_word(side.what) for side in sides.values())
    return {
        "title": "What grew: %s" % (programs[1] or programs[0] or "two readings").rsplit("/", 1)[-1],
        "made": made,
        "version": envelope.tool.version,
        "sides": [(heading, _list_facts(side)) for heading, side in sides.items()],
        "two_programs": None not in programs and programs[0] != programs[1],
        "partial": envelope.partial,
        "problems": [problem[1:] for problem in envelope.problems],
        "verdict": diff.verdict.what,
        "details": diff.verdict.details,
        "growth": diff.growth_bytes,
        "bars": list(zip(sides, bars)),
        "bars_scale": max(sum(part.bytes or 0 for part in bar) for bar in bars),
        "bar_key": [PagePart(look, name, None) for look, name in STATES],
        "change_key": [PagePart("other", "grew", None), PagePart("free", "fell", None)],
        "states": _make_changes(diff, diff.states, *STATE),
        "lists": [
            *(_make_changes(diff, getattr(diff, member[0]), *member) for member in lists if member[0] in FIRST),
            _make_changes(diff, diff.growth.parts, *PARTS),
            *(_make_changes(diff, getattr(diff, member[0]), *member) for member in lists if member[0] not in FIRST),
        ],
        "steps": [make_step(advice) for advice in diff.next_steps],
        "again": UncutText("gdbheapx diff %s --limit %d" % (names, 10 * MOST_ROWS)),
        "open_rows": OPEN_ROWS,
        "open_lists": OPEN_LISTS,
    }


def _list_facts(side: DiffSide) -> List[Tuple[str, str]]:
    """About one side, as names and texts."""
    of, when = ("core", "Core written") if side.kind == "core" else ("running process", "Looked at")
    kind = "snapshot of a %s" % of if side.form == "snapshot" else FORMS.get(side.form, side.form)
    facts = [("Given as", side.what), ("Kind", kind), ("Program", side.executable)]
    facts += [("Process", None if side.pid is None else str(side.pid)), (when, side.taken)]
    return [(name, text) for name, text in facts if text is not None]


def _make_changes(diff: Diff, rows: Optional[Sequence[Any]], id_: str, title: str, caption: str, what: str) -> Dict[str, Any]:
    """Changes of one kind. `rows`: of Change, or of the parts of `growth`, which are not counted; `most`: the largest, which fills half of
    the picture; `unknown`: which side lacks it, and why."""
    unknown = [(lacking.side, lacking.why) for lacking in diff.missing if lacking.what == id_] if rows is None else []
    shown = (rows or ())[:MOST_ROWS]
    most = max((abs(change.diff_bytes) for change in shown if change.diff_bytes is not None), default=0)
    counted = any(getattr(change, "diff_count", None) is not None for change in shown)
    made = {"id": id_, "title": title, "caption": caption, "what": what, "rows": shown, "more": len(rows or ()) - len(shown)}
    return {**made, "most": most, "counted": counted, "unknown": unknown}
