"""Compare two snapshots: parts of memory, arenas, classes, owners, leaks, and a verdict on what grew."""

import calendar
import time
from typing import Any, Callable, Dict, Iterable, List, Mapping, NamedTuple, Optional, Sequence, Tuple, cast

from gdbheapx.allocators.records import HeapArenas
from gdbheapx.allocators.session import Session
from gdbheapx.analysis import addon_answers as program_books
from gdbheapx.analysis.addon_answers import Books
from gdbheapx.analysis.census import registry
from gdbheapx.analysis.census.find import Census, Managed
from gdbheapx.analysis.census.owned import NO_OWNER, OwnerRows, find_owner_rows
from gdbheapx.analysis.reachability.dominance import MOST_OWNERS, TALLIED, OwnerTally
from gdbheapx.analysis.reachability.leaks import Leaks
from gdbheapx.analysis.reachability.owners import BLOCK, SHARED, OwnedMemory, Owners, describe_containers
from gdbheapx.analysis.split import SplitMemory
from gdbheapx.common import verdict
from gdbheapx.common.errors import HeapxError
from gdbheapx.common.hints import hint_about
from gdbheapx.common.model import MemoryPart, StepAdvice
from gdbheapx.common.units import Sentence, SentenceSize, join_sentences, make_sentence
from gdbheapx.inferior.base import Target
from gdbheapx.snapshot.record import GRAPH, OWNERS_KEPT, ReadingSession, RecordedOutcome, Snapshot, SnapshotRecord

ALL, MALLOC, RSS = "all", "malloc", "rss"
"""What a limit can be set on: every part that grew; what is in use in allocators; the whole, where what fell counts against what grew."""
OF = (ALL, MALLOC, RSS)
RESIDENT, DUMPED = "resident", "dumped"
KIND_OF_ALLOCATOR = "allocator"
Key = Tuple[str, str, Optional[str]]
"""(kind, name, allocator) of a part."""


class GrowthPart(NamedTuple):
    """Part of the memory, such as an allocator, a runtime's pools, stacks."""

    what: str
    kind: str
    """As in the split of `report`."""
    allocator: Optional[str]
    diff_bytes: Optional[int]
    """Of a process in RAM, in swap or in huge pages, of a core in the file; None where it is not known of both by the same measure."""
    old_bytes: Optional[int]
    new_bytes: Optional[int]
    used_diff_bytes: Optional[int] = None
    """Of an allocator: in use, touched or not; None for other parts and where it is not known."""
    used_old_bytes: Optional[int] = None
    used_new_bytes: Optional[int] = None
    only: Optional[str] = None
    """`old` or `new`: the other one does not have it at all. None also where the two cannot be compared."""

    @property
    def grown_bytes(self) -> int:
        """The larger of the two, as far as it is known; never below 0."""
        return max(0, self.diff_bytes or 0, self.used_diff_bytes or 0)


class Growth(NamedTuple):
    """Growth of the whole memory, by part."""

    measure: Optional[str]
    """`resident` (two processes) or `dumped` (two cores); None: the two cannot be compared so."""
    all_bytes: Optional[int]
    """What all parts together grew by, those that fell left out; of an allocator the larger of what it has in RAM and in use."""
    malloc_bytes: Optional[int]
    """What is in use in all allocators; negative where it fell."""
    rss_bytes: Optional[int]
    """RSS, or the bytes of the core; negative where it fell."""
    parts: Sequence[GrowthPart]
    """The largest growth first, then what fell; those that did not change are left out."""
    lacking: Sequence[str]
    """Why something is unknown."""

    def of(self, what: str) -> Optional[int]:
        """Return the growth that a limit is compared with, or None if it is not known."""
        return {ALL: self.all_bytes, MALLOC: self.malloc_bytes, RSS: self.rss_bytes}[what]

    def at_least(self, what: str) -> int:
        """The growth that is certain whatever is unknown."""
        known = self.of(what)
        if known is not None:
            return known
        return sum(part.grown_bytes for part in self.parts) if what == ALL else 0


class GrowthSide(NamedTuple):
    """Sizes of one of the two snapshots."""

    measure: Optional[str]
    total_bytes: Optional[int]
    parts: Dict[Key, int]
    used: Optional[Dict[str, int]]
    """By allocator; None where it is not known."""
    lacking: Sequence[str]


class ComparedReport(NamedTuple):
    """Members of the `report` model that are compared."""

    memory: Optional[SplitMemory] = None
    split: Optional[Sequence[MemoryPart]] = None
    books: Optional[Books] = None


def make_growth(old: SnapshotRecord, new: SnapshotRecord) -> Growth:
    """Compute the growth from the old snapshot to the new one."""
    by_name = old.head.has_names and new.head.has_names
    before, after = (_make_side(name, record, by_name) for name, record in (("old", old), ("new", new)))
    lacking = [*before.lacking, *after.lacking]
    measure = before.measure if before.measure == after.measure else None
    if measure is None and None not in (before.measure, after.measure):
        lacking.append("one is a process and one a core: bytes in RAM and bytes in a file cannot be compared")
    parts = _compare_parts(before, after, measure is not None)
    used = sum(after.used.values()) - sum(before.used.values()) if before.used is not None and after.used is not None else None
    # what an allocator has in RAM is known without its heaps
    if measure is None:
        return Growth(None, None, used, None, parts, lacking)
    rss = _subtract_known(before.total_bytes, after.total_bytes)
    return Growth(measure, sum(part.grown_bytes for part in parts), used, rss, parts, lacking)


def _compare_parts(old: GrowthSide, new: GrowthSide, is_comparable: bool) -> List[GrowthPart]:
    keys: Dict[Key, None] = dict.fromkeys([*old.parts, *new.parts] if is_comparable else [])
    is_known = old.used is not None and new.used is not None
    with_part = {allocator for _, _, allocator in keys}
    for name in dict.fromkeys([*(old.used or ()), *(new.used or ())] if is_known else []):
        if name not in with_part:
            keys[KIND_OF_ALLOCATOR, name, name] = None
    changed = []
    for key in keys:
        kind, name, allocator = key
        was, now, only, used_then, used_now = None, None, None, None, None
        if is_comparable:
            was, now = old.parts.get(key, 0), new.parts.get(key, 0)
            only = None if (key in old.parts) == (key in new.parts) else "old" if key in old.parts else "new"
        if allocator is not None and old.used is not None and new.used is not None:
            used_then, used_now = old.used.get(allocator, 0), new.used.get(allocator, 0)
        used = _subtract_known(used_then, used_now), used_then, used_now
        part = GrowthPart(name, kind, allocator, _subtract_known(was, now), was, now, *used, only)
        if part.diff_bytes or part.used_diff_bytes:
            changed.append(part)
    return sorted(changed, key=lambda part: (-part.grown_bytes, part.diff_bytes or 0, part.what))


def _subtract_known(before: Optional[int], after: Optional[int]) -> Optional[int]:
    return None if before is None or after is None else after - before


def _make_side(side: str, record: SnapshotRecord, by_name: bool) -> GrowthSide:
    """Return the sizes of one snapshot: the split of `report`, the sums of the heaps."""
    lacking = []
    memory, rows, _ = record.model("report", ComparedReport) if "report" in record.models else ComparedReport()
    parts = _sum_split(rows or (), memory.measure == RESIDENT, by_name) if memory is not None else {}
    if not parts:
        why = record.outcomes.get("report", RecordedOutcome()).error or "it has no split of the memory"
        lacking.append("%s: memory outside malloc is unknown (%s)" % (side, why))
    unread = [allocator.id for allocator in record.head.allocators if allocator.layout is None]
    is_cut = record.outcomes.get("arenas", RecordedOutcome()).partial
    if unread or not record.head.heaps:
        why = "%s could not be read" % unread[0] if unread else "no allocator was read"
        lacking.append("%s: memory in use is unknown (%s)" % (side, why))
    elif is_cut:
        lacking.append("%s: the heaps were not read whole" % side)
    used: Dict[str, int] = {}
    for heap in record.head.heaps:
        used[heap.allocator] = used.get(heap.allocator, 0) + heap.used_bytes
    measure, total = (memory.measure if parts else None, memory.total_bytes) if memory is not None else (None, None)
    return GrowthSide(measure, total, parts, used if used and not unread and not is_cut else None, lacking)


def _sum_split(rows: Sequence[MemoryPart], is_live: bool, by_name: bool) -> Dict[Key, int]:
    """Return the bytes by part; none if those of one are unknown. Names that were replaced by numbers mean nothing in another snapshot:
    then by kind alone. Memory in swap and in pages of hugetlbfs is not in RSS, but counts as memory.
    """
    sizes: Dict[Key, int] = {}
    for row in rows:
        size = row.resident_bytes if is_live else row.dumped_bytes
        if size is None:
            return {}
        key = row.kind, row.name if by_name else row.kind, row.allocator
        beside = (row.swapped_bytes or 0) + (row.hugetlb_bytes or 0) if is_live else 0
        sizes[key] = sizes.get(key, 0) + size + beside
    return sizes


OTHERS = "[several owners, small ones, or leaked]"
"""Blocks that no name owns alone."""
Sums = Dict[Tuple[str, str], Tuple[int, Optional[int]]]


class OwnedGraph(NamedTuple):
    """Owners computed from the graph of one snapshot."""

    held: Optional[OwnerRows]
    why: Optional[str]
    """Why there is none."""
    named: Mapping[str, Tuple[int, int]] = {}
    """Bytes and blocks that is retained by all that has a name, also where the memory counts for what lies above or below it."""


def make_owned(session: Session, record: SnapshotRecord, name: str) -> OwnedGraph:
    """Compute the owners from the graph of one snapshot; without a graph the result has the reason."""
    if GRAPH not in record.models:
        return OwnedGraph(None, "it has no graph of blocks")
    target = Snapshot(name, record)
    own = Session(cast(Target, target), session.budget)  # it is asked for what the graph has, never for memory
    own.store = ReadingSession(record, own, lambda: target.unpacked(own))
    try:
        graph = find_owner_rows(own)
        return OwnedGraph(graph, None, _sum_named(own.shared(TALLIED)))
    except HeapxError as error:
        return OwnedGraph(None, error.message)


def _sum_named(tallied: OwnerTally) -> Dict[str, Tuple[int, int]]:
    named: Dict[str, Tuple[int, int]] = {}
    retained = tallied.tree.retained_bytes, tallied.tree.retained_blocks
    for node in range(tallied.reach.roots_from, tallied.reach.roots_from + len(tallied.parts)):
        before = named.get(name := tallied.name(node), (0, 0))
        named[name] = before[0] + retained[0][node], before[1] + retained[1][node]
    for node in tallied.paths.told() if tallied.paths is not None else ():
        path = tallied.path(node)
        if path is not None:  # an object and its parts may have one name
            named[path.text] = max(named.get(path.text, (0, 0)), (retained[0][node], retained[1][node]))
    return named


def list_owners(owners: Owners, graph: Optional[OwnerRows]) -> Tuple[Sums, Dict[str, str], int]:
    """List the named owners by the graph, else by the list of the largest that each snapshot has: blocks have addresses, which mean
    nothing in another process. Return their sums; by owner what it holds, and how many; and the most that others may retain.
    """
    rows, most = (graph.owners, MOST_OWNERS) if graph is not None else (owners.owners, OWNERS_KEPT)
    sums: Sums = {}
    for row in rows:
        if _has_name(row):
            before = sums.get((row.owner, ""), (0, 0))  # a variable may lie in two mappings
            sums[row.owner, ""] = before[0] + row.retained_bytes, (before[1] or 0) + row.retained_blocks
    what: Dict[str, str] = {}
    for row in [*rows, *owners.owners]:
        told = describe_containers(row.containers) or (row.container.words() if row.container is not None else row.signature)
        if told:
            what[row.owner] = told
    return sums, what, rows[-1].retained_bytes if len(rows) >= most else 0


def sum_classes(graph: OwnerRows) -> Sums:
    """(class, owner) -> bytes, blocks."""
    sums: Sums = {}
    for place, rows in graph.rows.items():
        owner = graph.owners[place] if place >= 0 else None
        whose = owner.owner if owner is not None and _has_name(owner) else OTHERS
        for row in rows:
            key = row.signature if row.signature is not None else "not named", whose
            before = sums.get(key, (0, 0))
            sums[key] = before[0] + row.bytes, (before[1] or 0) + row.blocks
    return sums


def _has_name(row: OwnedMemory) -> bool:
    if row.kind == SHARED and row.container is not None:  # called by all that hold it
        return bool(row.holders and row.has_names)
    return row.path is not None or (row.kind not in (SHARED, BLOCK) and row.owner != NO_OWNER)


def describe_content_change(old: Optional[str], new: Optional[str]) -> Optional[str]:
    """`dict of 20,000 -> 50,000 entries`: what changed in what an owner holds; None where nothing is known of either."""
    if old is None or new is None or old == new:
        return new or old
    before, after = old.split(" "), new.split(" ")
    changed = [place for place, pair in enumerate(zip(before, after)) if pair[0] != pair[1]]
    if len(before) != len(after) or any(not one[place][:1].isdigit() for place in changed for one in (before, after)):
        return "%s -> %s" % (old, new)
    return " ".join("%s -> %s" % (was.rstrip(","), now) if was != now else now for was, now in zip(before, after))


USED_GREW, KEPT_GREW, BOTH_GREW, ELSEWHERE_GREW = "used-grew", "kept-grew", "both-grew", "elsewhere-grew"
FELL, SAME = "fell", "same"
"""`elsewhere-grew`: parts that are no allocator's grew by more than what allocators have in use and keep."""
MOST_PARTS = 3
"""That the verdict names."""
LEAST_SHARE = 0.01
"""Of what was held before: less is no growth, and no fall."""
DIFF_RSS = "RSS"
WITHOUT_NAMES = "it was taken with --no-names, and numbers mean nothing elsewhere"
NO_GRAPH = OwnedGraph(None, "its graph was not looked at")
IN_USE, KEPT = "in use", "kept by the allocator"
OBJECTS, POOLS_FREE = "in use by objects", "free in pools"
"""States of runtimes that cut up memory themselves, next to malloc's blocks: `whose` is `CPython`."""


class DiffChange(NamedTuple):
    """Something that both looks have, or one of them."""

    what: str
    whose: str
    diff_bytes: int
    old_bytes: int
    new_bytes: int
    diff_count: Optional[int] = None
    """Blocks; None where they are not counted."""
    old_count: Optional[int] = None
    new_count: Optional[int] = None
    only: Optional[str] = None
    """`old` or `new`: the other one does not have it at all."""
    at_most: Optional[str] = None
    """`old` or `new`: an owner that is not among the largest which that one lists. Its bytes are the most that it can have there."""
    contents: Optional[str] = None
    """What an owner holds, and how many before and after: `dict of 20,000 -> 50,000 entries`."""


class DiffSide(NamedTuple):
    """Description of one of the two snapshots."""

    what: str
    """As it was named."""
    kind: str
    pid: Optional[int]
    executable: Optional[str]
    taken: Optional[str]
    """When its memory was as it is shown: of a process when it was looked at, of a core when its file was written; None: unknown."""
    form: str
    """What was named: `snapshot`, `core`, `process`, or `current` (what gdb has)."""


class DiffMissing(NamedTuple):
    """Part that cannot be compared, because one snapshot lacks it."""

    what: str
    """`classes`, `owners`, `leaks`, or `held`."""
    side: str
    """The one that lacks it."""
    why: str


class DiffNext(NamedTuple):
    """Command to run next, for one of the two snapshots."""

    side: str
    """Of which of the two."""
    command: str
    why: str


class DiffVerdict(NamedTuple):
    """Verdict on the growth."""

    code: str
    what: str
    kind: str = verdict.IN_USE
    """`growing`, `kept`, `in-use`: as of `report`."""
    details: Sequence[str] = ()
    """Further figures, each a line."""


class Diff(NamedTuple):
    """The answer."""

    old: DiffSide
    new: DiffSide
    verdict: DiffVerdict
    growth_bytes: int
    """Of what is in use in allocators."""
    growth: Growth
    """Of the whole, by part."""
    states: Sequence[DiffChange]
    arenas: Sequence[DiffChange]
    classes: Optional[Sequence[DiffChange]]
    """None where one of the two has none, or no names; those that changed most first, and so below."""
    owners: Optional[Sequence[DiffChange]]
    leaks: Optional[Sequence[DiffChange]]
    missing: Sequence[DiffMissing]
    next: Sequence[DiffNext]
    contexts: Optional[Sequence[DiffChange]] = None
    """Memory contexts by name, where both are BIND's server, and shown with names."""
    held: Optional[Sequence[DiffChange]] = None
    """What each owner has by class; None where one of the two has no graph, or no names."""
    between_s: Optional[int] = None
    """From the one to the other, in seconds; None where it is unknown when one of them was."""
    next_steps: Sequence[StepAdvice] = ()
    """The same as `next`, each with its whole command."""


class WithPools(NamedTuple):
    """Member of the `census` model that has the pools of runtimes."""

    managed: Sequence[Managed] = ()


HELD = (
    DiffNext("new", "owners", "shows which variables, threads and blocks keep memory alive"),
    DiffNext("new", "census", "shows what it is, by class, type and content"),
    DiffNext("new", "leaks", "shows what nothing points to any more"),
)
HOARDED = (
    DiffNext("new", "report", "shows what a trim or purge would return to the OS"),
    DiffNext("new", "pins", "shows which blocks in use keep free memory from being returned"),
)
ELSEWHERE = (DiffNext("new", "report", "shows all memory of the process, by mapping, file and runtime"),)
POOLS = DiffNext("new", "census", "shows what runtimes have in their own pools")
NEXT = {USED_GREW: HELD, KEPT_GREW: HOARDED, BOTH_GREW: (*HELD, *HOARDED), ELSEWHERE_GREW: ELSEWHERE, FELL: (), SAME: ()}
"""(what, whose) -> bytes, blocks."""
Unsure = Dict[Tuple[str, str], Optional[Tuple[int, Optional[int]]]]
"""The same; None: it is there, and not known."""


def diff_snapshots(
    old: SnapshotRecord,
    new: SnapshotRecord,
    names: Tuple[str, str],
    forms: Tuple[str, str] = ("snapshot", "snapshot"),
    graphs: Sequence[OwnedGraph] = (NO_GRAPH, NO_GRAPH),
) -> Diff:
    """Compare the old snapshot with the new one. `names`, `forms`: how they were named, and the kind of each name; `graphs`: the results
    of make_owned() for each.
    """
    heads = old.head, new.head
    sides = [DiffSide(name, head.kind, head.pid, head.executable, head.as_of, form) for name, head, form in zip(names, heads, forms)]
    states, grown = _compare_states(old, new), make_growth(old, new)
    named = old.head.has_names and new.head.has_names
    held = [sum_classes(graph.held) for graph in graphs if named and graph.held is not None]
    objects = [state for state in states if state.what == OBJECTS]  # of runtimes, in their own pools
    # parts that are no allocator's; objects may grow where their pools had room
    elsewhere = sum(part.grown_bytes for part in grown.parts if part.allocator is None)
    elsewhere = max(elsewhere, sum(state.diff_bytes for state in objects))
    judged = _make_verdict(states, grown, objects, elsewhere)
    next_: Sequence[DiffNext] = NEXT[judged.code]
    if judged.code == ELSEWHERE_GREW and objects:  # those that show their owners, if they account for half of the growth
        next_ = HELD if 2 * sum(state.diff_bytes for state in objects) >= elsewhere else (*ELSEWHERE, POOLS)
    steps = [(sides[step.side == "new"], step) for step in next_]
    return Diff(
        old=sides[0],
        new=sides[1],
        verdict=judged,
        growth_bytes=next((state.diff_bytes for state in states if state.what == IN_USE), 0),
        growth=grown,
        states=states,
        arenas=_sort_changes(_drop_unknown(_sum_arenas(old), _sum_arenas(new))),
        classes=_compare_models(old, new, "census", Census, _sum_census_classes) if named else None,
        owners=_compare_owners(old, new, graphs) if named else None,
        leaks=_compare_models(old, new, "leaks", Leaks, _sum_leaks),
        missing=[*_list_missing("old", old, graphs[0]), *_list_missing("new", new, graphs[1])],
        next=next_,
        contexts=_compare_models(old, new, "report", ComparedReport, _sum_contexts) if named else None,
        held=_sort_changes(_compare_all(*held)) if len(held) == 2 else None,
        between_s=_between_s(sides[0].taken, sides[1].taken),
        next_steps=[StepAdvice(hint_about(side.form, side.what, step.command), step.why) for side, step in steps],
    )


def _between_s(old: Optional[str], new: Optional[str]) -> Optional[int]:
    try:
        return None if old is None or new is None else parse_taken_s(new) - parse_taken_s(old)
    except (ValueError, OverflowError):
        return None


def parse_taken_s(taken: str) -> int:
    """Convert a time as in SnapshotHead.taken to seconds since the epoch. ValueError if it is none."""
    return calendar.timegm(time.strptime(taken, "%Y-%m-%dT%H:%M:%SZ"))


def _list_missing(side: str, record: SnapshotRecord, graph: OwnedGraph) -> List[DiffMissing]:
    """List the parts that this snapshot does not have."""
    lacking = []
    for what, model in (("classes", "census"), ("owners", "owners"), ("leaks", "leaks")):
        if model not in record.models:
            lacking.append(DiffMissing(what, side, record.outcomes.get(model, RecordedOutcome()).error or "it was not looked for"))
        elif not record.head.has_names and what != "leaks":
            lacking.append(DiffMissing(what, side, WITHOUT_NAMES))
    if not record.head.has_names or graph.held is None:
        lacking.append(DiffMissing("held", side, WITHOUT_NAMES if not record.head.has_names else graph.why or NO_GRAPH.why or ""))
    return lacking


def _compare_all(old: Sums, new: Sums) -> List[DiffChange]:
    rows = []
    for key in dict.fromkeys([*old, *new]):
        only = "old" if key not in new else "new" if key not in old else None
        before, many = old[key] if only != "new" else (0, 0)
        after, more = new[key] if only != "old" else (0, 0)
        row = DiffChange(*key, after - before, before, after, only=only)
        if many is not None and more is not None:  # what one side does not count is no 0
            row = row._replace(diff_count=more - many, old_count=many, new_count=more)
        rows.append(row)
    return rows


def _sort_changes(rows: Iterable[DiffChange]) -> List[DiffChange]:
    """Sort by size of the change, and drop rows that have not changed; a row that one side lacks has changed, whatever its size."""
    changed_rows = (row for row in rows if row.diff_bytes or row.diff_count or row.only)
    return sorted(changed_rows, key=lambda row: (-abs(row.diff_bytes), row.what, row.whose))


def _compare_states(old: SnapshotRecord, new: SnapshotRecord) -> List[DiffChange]:
    """RSS, what each heap has in use and keeps, and the allocator's own words for parts of it, as `arenas` has them."""
    sums, records = [], (old, new)
    has_rss = None not in (old.head.rss_bytes, new.head.rss_bytes)
    for head in (old.head, new.head):
        used, kept = sum(heap.used_bytes for heap in head.heaps), sum(heap.kept_bytes for heap in head.heaps)
        states: Sums = {(IN_USE, ""): (used, None), (KEPT, ""): (kept, None)}
        sums.append({(DIFF_RSS, ""): (head.rss_bytes or 0, None), **states} if has_rss else states)
    pools = [_sum_pools(record) for record in records]
    changes = _compare_all(*sums) + (_compare_all(*pools) if all(pools) else [])
    changes += _drop_unknown(*map(_sum_arena_parts, records))
    return [change for change in changes if change.old_bytes or change.new_bytes or not change.whose]


def drop_unchanged(rows: Sequence[DiffChange]) -> List[DiffChange]:
    """Return the rows without those of zeros."""
    return [row for row in rows if row.diff_bytes or row.diff_count]


def _sum_pools(record: SnapshotRecord) -> Sums:
    """Return the bytes that runtimes have handed out of pools of their own and keep there, if their objects were looked at."""
    sums: Sums = {}
    for managed in record.model("census", WithPools).managed if "census" in record.models else ():
        whose = registry.shown_name(managed.module)
        for what, size in ((OBJECTS, managed.used_bytes), (POOLS_FREE, managed.free_bytes)):
            sums[what, whose] = (sums.get((what, whose), (0, None))[0] + size, None)
    return sums


def _drop_unknown(old: Unsure, new: Unsure) -> List[DiffChange]:
    """Compare the keys that both sides know: a core that does not show what is in RAM is no growth."""
    unknown = {key for side in (old, new) for key, value in side.items() if value is None}
    sums = [{key: value for key, value in side.items() if value is not None and key not in unknown} for side in (old, new)]
    return _compare_all(*sums)


def _sum_arena_parts(record: SnapshotRecord) -> Unsure:
    """Every sum of the arenas that both allocator and name show."""
    unsure: Unsure = {}
    for heap in _list_heap_arenas(record):
        for name, value in heap.totals.items():
            if name.endswith("_bytes") and not name.startswith(("max_", "largest_")):
                unsure[name[: -len("_bytes")].replace("_", " "), heap.info.id] = (value, None) if value is not None else None
    return unsure


def _list_heap_arenas(record: SnapshotRecord) -> List[HeapArenas]:
    """Return the heaps with known arenas."""
    heaps: List[HeapArenas] = record.model("arenas", List[HeapArenas]) if "arenas" in record.models else []
    return heaps


def _sum_arenas(record: SnapshotRecord) -> Unsure:
    """Return the bytes in use in each arena."""
    unsure: Unsure = {}
    for row in (row for heap in _list_heap_arenas(record) for row in heap.rows):
        used, count = getattr(row, "used_bytes", None), getattr(row, "used_chunks", None)
        unsure["arena %s" % row.index, row.allocator] = (used, count) if used is not None else None
    return unsure


def _compare_models(
    old: SnapshotRecord, new: SnapshotRecord, name: str, kind: Any, sums: Callable[[Any], Optional[Sums]]
) -> Optional[List[DiffChange]]:
    if not all(name in record.models for record in (old, new)):
        return None
    before, after = (sums(record.model(name, kind)) for record in (old, new))
    return None if before is None or after is None else _sort_changes(_compare_all(before, after))


def _sum_census_classes(census: Census) -> Sums:
    sums: Sums = {}
    for row in census.rows:
        size = make_sentence("not named, %s each", SentenceSize(row.size_bytes)) if row.size_bytes is not None else "not named"
        key = row.signature if row.signature is not None else str(size), row.module
        before = sums.get(key, (0, 0))
        sums[key] = before[0] + row.bytes, (before[1] or 0) + row.blocks
    return sums


def _compare_owners(old: SnapshotRecord, new: SnapshotRecord, graphs: Sequence[OwnedGraph]) -> Optional[List[DiffChange]]:
    """Compare owners by name. An owner that only one side lists may be among the small ones of the other, whose list ends somewhere: it
    is new, or gone, only if the other list is complete; else the row has the least that it changed by.
    """
    if not all("owners" in record.models for record in (old, new)):
        return None
    have_graphs = all(graph.held is not None for graph in graphs)
    sides = [list_owners(record.model("owners", Owners), graph.held if have_graphs else None) for record, graph in zip((old, new), graphs)]
    (before, was, least_old), (after, now, least_new) = sides
    if have_graphs:
        for sums, others, graph in ((before, after, graphs[0]), (after, before, graphs[1])):
            sums.update({key: graph.named[key[0]] for key in others if key not in sums and key[0] in graph.named})
    rows = []
    for row in _compare_all(before, after):
        bounded = _bound_change(row, least_old, least_new)
        if bounded.diff_bytes or bounded.at_most is None:
            rows.append(bounded._replace(contents=describe_content_change(was.get(row.what), now.get(row.what))))
    return _sort_changes(rows)


def _bound_change(row: DiffChange, least_old: int, least_new: int) -> DiffChange:
    """Bound the change of an owner that one side does not list by the most that it can have there; no change if it has no more on the
    other side.
    """
    if row.only == "new" and least_old:
        before = min(least_old, row.new_bytes)
        return DiffChange(row.what, row.whose, row.new_bytes - before, before, row.new_bytes, at_most="old")
    if row.only == "old" and least_new:
        after = min(least_new, row.old_bytes)
        return DiffChange(row.what, row.whose, after - row.old_bytes, row.old_bytes, after, at_most="new")
    return row


def _sum_contexts(report: ComparedReport) -> Optional[Sums]:
    """Return the bytes in use by memory context, and blocks where the release counts them."""
    rows = program_books.sum_by_name(report.books.contexts) if report.books is not None else None
    return None if rows is None else {(row.name, ""): (row.inuse_bytes, row.blocks) for row in rows}


def _sum_leaks(leaks: Leaks) -> Optional[Sums]:
    if leaks.leaked is None:
        return None
    return {(name, ""): (part.bytes, part.blocks) for name, part in leaks.classes._asdict().items()}


def _make_verdict(states: Sequence[DiffChange], grown: Growth, objects: Sequence[DiffChange], elsewhere: int) -> DiffVerdict:
    used, kept = (next(state for state in states if state.what == what) for what in (IN_USE, KEPT))
    least = LEAST_SHARE * max(1, used.old_bytes + kept.old_bytes)
    grew = used.diff_bytes > least, kept.diff_bytes > least
    total = next((state.old_bytes for state in states if state.what == DIFF_RSS), used.old_bytes + kept.old_bytes)
    is_elsewhere = elsewhere > LEAST_SHARE * total and elsewhere > max(used.diff_bytes, kept.diff_bytes)
    of_used, of_kept = _say_from_to("memory in use", used), _say_from_to("free memory in malloc", kept)
    details = [
        *(_say_whole(grown) if is_elsewhere or any(grew) else []),
        *(_say_from_to("%s's objects" % one.whose, one) for one in objects),
    ]
    if is_elsewhere:
        risen = max(objects, key=lambda state: state.diff_bytes, default=None)
        if risen is not None and 2 * risen.diff_bytes >= elsewhere:
            what = make_sentence("Growing: %s", _say_grew("%s's objects" % risen.whose, risen))
        else:
            what = make_sentence("Growing: %s outside malloc", SentenceSize(elsewhere))
        is_read = any(used[3:5] + kept[3:5])  # without any allocator, how much is in use is not known
        return DiffVerdict(ELSEWHERE_GREW, what, verdict.GROWING, [*details, *([of_used, of_kept] if is_read else [])])
    if all(grew):
        what = make_sentence("Growing: %s; free memory that malloc keeps grew, too", _say_grew("memory in use", used))
        return DiffVerdict(BOTH_GREW, what, verdict.GROWING, [*details, of_kept])
    if grew[0]:
        note = "the growth is memory the program still uses, not memory that malloc keeps"
        what = make_sentence("Growing: %s", _say_grew("memory in use", used))
        return DiffVerdict(USED_GREW, what, verdict.GROWING, [note, *details, of_kept])
    if grew[1]:
        what = make_sentence("Kept: %s; memory in use did not grow", _say_grew("free memory that malloc keeps", kept))
        return DiffVerdict(KEPT_GREW, what, verdict.KEPT, [*details, of_used])
    if used.diff_bytes < -least or kept.diff_bytes < -least:
        return DiffVerdict(FELL, "In use: nothing grew, and some fell", details=[of_used, of_kept, *details])
    text = "No significant change (below 1 %%): in use %s, free in malloc %s"
    return DiffVerdict(SAME, make_sentence(text, SentenceSize(used.new_bytes), SentenceSize(kept.new_bytes)), details=details)


def _say_from_to(what: str, change: DiffChange) -> Sentence:
    return make_sentence("%s: %s -> %s", what, SentenceSize(change.old_bytes), SentenceSize(change.new_bytes))


def _say_grew(what: str, change: DiffChange) -> Sentence:
    return make_sentence("%s +%s (%s -> %s)", what, *map(SentenceSize, (change.diff_bytes, change.old_bytes, change.new_bytes)))


def _say_whole(grown: Growth) -> List[Sentence]:
    """`RSS grew 29.6 MiB: 21.9 MiB in one part, 7.7 MiB in another`; nothing where that is not known, or it did not grow."""
    rising = sorted(((part.diff_bytes or 0, part.what) for part in grown.parts if (part.diff_bytes or 0) > 0), reverse=True)
    if not rising:
        return []
    least = LEAST_SHARE * sum(size for size, _ in rising)
    named = [make_sentence("%s in %s", SentenceSize(size), what) for size, what in rising[:MOST_PARTS] if size >= least]
    rest = sum(size for size, _ in rising[len(named) :])
    if rest >= least:
        named.append(make_sentence("%s in others", SentenceSize(rest)))
    what = "the core" if grown.measure == DUMPED else DIFF_RSS
    if (grown.rss_bytes or 0) > 0:
        return [make_sentence("%s grew %s: %s", what, SentenceSize(grown.rss_bytes), join_sentences(", ", named))]
    return [make_sentence("%s did not grow as a whole, parts of it did: %s", what, join_sentences(", ", named))]
