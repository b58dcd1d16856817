"""Content of the page of `report`, from the records of a reading: figures as the records have them, and sums of them."""

from typing import Any, Dict, List, Mapping, NamedTuple, Optional, Sequence, Tuple

from gdbheapx import columns, units
from gdbheapx.addons.views.html import geometry, memory_view
from gdbheapx.addons.views.html.geometry import ChartBranch
from gdbheapx.addons.views.html.memory_view import Counted, PagePart
from gdbheapx.addons.views.html.render import Envelope, make_step
from gdbheapx.analysis.census.find import CensusRow
from gdbheapx.analysis.census.owned import FlameFrame
from gdbheapx.analysis.inside import PageCensus, PageParts
from gdbheapx.analysis.memory import kinds
from gdbheapx.analysis.overview import Overview
from gdbheapx.analysis.reachability import owners as model
from gdbheapx.hints import Write, write_alone
from gdbheapx.model import Finding
from gdbheapx.report.overview_text import format_duration, format_moment
from gdbheapx.report.text import UncutText
from gdbheapx.snapshot import container
from gdbheapx.stops import format_lasting
from gdbheapx.verdict import SMALL, HeapVerdict

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


class PageCensusView(NamedTuple):
    """Memory in use, by class."""

    rows: Sequence[Tuple[str, CensusRow]]
    blocks: int
    bytes: int
    more: int
    drawn: Sequence[PagePart]
    """The largest, and the rest together."""


class SiteLine(NamedTuple):
    """A function that may have allocated the blocks of a row of the census."""

    row: str
    signature: Optional[str]
    bytes: int
    function: str
    module: str
    sizes: str
    """Bytes that it asks for; `any` where that is no number in the code."""
    why: str


class Sites(NamedTuple):
    """Functions that may have allocated the memory in use."""

    lines: Sequence[SiteLine]
    calls: int
    more: int
    """Candidates that are left out."""
    unknown: int
    """Rows without any."""
    unread: Sequence[str]
    """Files whose code was not read."""


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


class Links(NamedTuple):
    """Targets of the links in rows: ids of elements that show the same thing."""

    parts: Mapping[str, str]
    """By name of a part of the split its arenas, or its table."""
    arenas: Mapping[Tuple[str, Optional[int]], str]
    """By allocator and index how far it is purged, else its allocator's size classes."""
    purged: Sequence[Optional[str]]
    """By the row of purging its arena."""
    frames: Mapping[int, str]
    """By place the frame that is drawn: of the flame graph, else of the picture of owners."""
    owners: Mapping[str, str]
    """By name its largest frame."""
    classes: Mapping[str, str]
    """By name its largest frame, else the first owner that is one."""


def make_census_table(page_census: Optional[PageCensus]) -> Optional[PageCensusView]:
    """The rows of the census; None where the blocks were not looked at."""
    if page_census is None:
        return None
    named = [(_name_of_row(row), row) for row in page_census.rows]
    drawn = [PagePart("", name, row.bytes) for name, row in named[:MOST_TREEMAP] if row.bytes]
    rest = page_census.bytes - sum(part.bytes or 0 for part in drawn)
    if rest > 0:
        drawn.append(PagePart("", "everything else", rest))
    more = page_census.more_rows + max(0, len(named) - MOST_CENSUS)
    return PageCensusView(named[:MOST_CENSUS], page_census.blocks, page_census.bytes, more, drawn)


def make_sites_table(page_census: Optional[PageCensus]) -> Optional[Sites]:
    """Return the candidates of the rows that are shown; None if they were not asked for."""
    joined = page_census.sites if page_census is not None else None
    if page_census is None or joined is None:
        return None
    lines, more = [], 0
    for row, found in list(zip(page_census.rows, joined.rows))[:MOST_CENSUS]:
        more += max(0, len(found.sites) - MOST_SITES)
        for one in found.sites[:MOST_SITES]:
            where = one.function or "+0x%x" % one.offset
            sizes = ", ".join([*map(units.format_identifier, one.sizes), *(["any"] if one.is_open else [])])
            lines.append(SiteLine(_name_of_row(row), row.signature, row.bytes, where, one.module, sizes, "; ".join(one.why)))
    unknown = sum(not found.sites for found in joined.rows)
    return Sites(lines, joined.calls, more, unknown, [name for name, _ in joined.unread])


def _name_of_row(row: CensusRow) -> str:
    if row.signature:
        return row.signature
    return "unnamed blocks of %s" % units.sentence_size(row.size_bytes) if row.size_bytes is not None else "unnamed blocks"


def make_owner_rows(rows: Sequence[model.OwnedMemory]) -> Tuple[List[PageOwner], List[ChartBranch]]:
    """Return the owners by levels, and as a tree of their places."""
    listed: List[PageOwner] = []

    def make_owner_branches(many: Sequence[model.OwnedMemory], depth: int) -> List[ChartBranch]:
        made = []
        for row in many:
            if len(listed) >= MOST_OWNERS or depth >= MOST_LEVELS:
                break
            place, name = len(listed), "%s: %s" % (row.signature, row.owner) if row.signature else row.owner
            listed.append(PageOwner(name, row.kind, row.retained_bytes, row.retained_blocks, depth, row.signature, row.owner))
            made.append(ChartBranch(place, row.retained_bytes, make_owner_branches(row.children, depth + 1)))
        return made

    tree = make_owner_branches(rows, 0)
    return listed, tree


def make_flame_rows(frames: Optional[Sequence[FlameFrame]]) -> Tuple[List[PageOwner], List[ChartBranch]]:
    """The stacks of owners by levels, and as a tree of their places."""
    listed: List[PageOwner] = []

    def make_flame_branches(many: Sequence[FlameFrame], depth: int) -> List[ChartBranch]:
        made = []
        for frame in many if depth < MOST_FLAME_LEVELS else ():
            place = len(listed)
            if place >= MOST_FRAMES:
                break
            name = _frame_name(frame)
            listed.append(PageOwner(name, frame.module, frame.bytes, frame.blocks, depth, name, name))
            made.append(ChartBranch(place, frame.bytes, make_flame_branches(frame.frames, depth + 1)))
        return made

    tree = make_flame_branches(frames or (), 0)
    return listed, tree


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
    lines: Sequence[memory_view.PageLine],
    classes: Sequence[memory_view.Classes],
    rows: Sequence[PageOwner],
    frames: Sequence[PageOwner],
    drawn: Mapping[int, str],
) -> Links:
    """Return the links between elements that show the same thing. `rows`: rows of owners; `frames`: frames of the picture."""
    arenas: Dict[Tuple[str, Optional[int]], str] = {}
    arena_rows = {line.of: "arena-row-%d" % number for number, line in enumerate(lines, 1) if line.of[1] is not None}
    of_decay = [(row["allocator"], row["arena"]) for row in decay]
    sizes = {one.allocator: "sizes-of-%d" % number for number, one in enumerate(classes, 1)}
    for line in lines:
        purged = "decay-%d" % of_decay.index(line.of) if line.of in of_decay else None
        to = purged or sizes.get(line.of[0])
        if to is not None:
            arenas[line.of] = to
    parts = {memory_view.part_name(part): "arenas" for part in overview.split or () if part.kind == kinds.ALLOCATOR}
    tables = {table.name: "table-%d" % number for number, table in enumerate(overview.runtimes or ())}
    parts.update({memory_view.part_name(part): tables[part.program] for part in overview.split or () if part.program in tables})
    by_size = sorted(((place, frame) for place, frame in enumerate(frames) if place in drawn), key=lambda pair: pair[1].bytes)
    owners_to = {frame.owner: drawn[place] for place, frame in by_size}
    classes_to = {row.what: "owner-%d" % place for place, row in reversed(list(enumerate(rows))) if row.what}
    classes_to.update({frame.what: drawn[place] for place, frame in by_size if frame.what})
    return Links(parts, arenas, [arena_rows.get(one) for one in of_decay], drawn, owners_to, classes_to)


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
    books = overview.books
    page: PageParts = container.decode_value(Optional[PageParts], data.get("page")) or NO_PARTS
    used_bytes = sum(heap.used_bytes for heap in overview.heaps)
    arenas = memory_view.arenas_of(overview.arenas, overview.totals)
    shares = zip(memory_view.SHARES, memory_view.ARENA_NAMES)
    drawn = [(look, name) for look, name in shares if any(part.look == look and part.bytes != 0 for line in arenas for part in line.parts)]
    classes = [one for one in map(memory_view.classes_of, page.histogram) if one.rows]
    whole = page.owners.used.bytes if page.owners is not None and page.owners.used is not None else None
    owner_rows, flame_rows = make_owner_rows(page.owners.owners if page.owners is not None else ()), make_flame_rows(page.flame)
    id_, (frames, tree) = ("flame", flame_rows) if flame_rows[0] else ("owners-i", owner_rows)
    frames_drawn = {level.box.place: "%s-%d" % (id_, level.box.place) for level in geometry.draw_icicle(tree, ICICLE_WIDTH, 1, whole)}
    return {
        "title": _make_title(envelope),
        "made": made,
        "version": envelope.tool.version,
        "target": _list_target_facts(envelope),
        "partial": envelope.partial,
        "problems": [problem[1:] for problem in envelope.problems],
        "verdict": overview.verdict,
        "others": _list_other_verdicts(overview),
        "findings": _list_findings(overview),
        "split": memory_view.make_split(overview.split, overview.memory),
        "areas": memory_view.make_areas(overview.split, used_bytes, split_in_use(page, used_bytes)),
        "tables": [
            *map(memory_view.make_runtime_line, overview.runtimes or ()),
            *([memory_view.make_contexts_line(books)] if books is not None else []),
        ],
        "held": overview.held,
        "arenas": arenas,
        "arena_headings": [("arena", "name"), ("parts", "left"), *((name, "") for _, name in drawn)],
        "arena_looks": [look for look, _ in drawn],
        "arena_key": [PagePart(look, name, None) for look, name in drawn],
        "arena_scale": max((sum(part.bytes or 0 for part in line.parts) for line in arenas), default=0),
        "arenas_line": UncutText(line("arenas")),
        "more_arenas": max(0, len(overview.arenas) - memory_view.MOST_ARENAS),
        "maps": [memory_view.map_of(heap_map) for heap_map in page.map[: memory_view.MOST_MAPS]],
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
        "across": memory_view.ACROSS,
        "map_headings": [("from", ""), *((name, "") for name in memory_view.MAP_NAMES)],
        "class_parts": [PagePart("used", "in use", None), PagePart("free", "free", None)],
        "decay_columns": DECAY,
        "decay_headings": [(heading, "" if is_figure else "left") for _, heading, is_figure in DECAY],
    }


def _make_title(envelope: Envelope) -> str:
    program = envelope.target.program or (envelope.target.executable or "a process").rsplit("/", 1)[-1]
    return program if envelope.target.pid is None else "%s, process %d" % (program, envelope.target.pid)


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


def _list_findings(overview: Overview) -> List[Finding]:
    """Return the findings that no verdict contains."""
    said = [line for verdict in (overview.verdict, *overview.verdicts.values()) for line in verdict.lines]
    return [finding for finding in overview.findings if finding not in said]


def _list_other_verdicts(overview: Overview) -> List[Tuple[str, HeapVerdict]]:
    """Return the verdicts on further allocators that hold enough to be judged."""
    return [(name, judged) for name, judged in list(overview.verdicts.items())[1:] if name in overview.shown and judged.kind != SMALL]
