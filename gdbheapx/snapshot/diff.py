"""What grew between two looks: by part of the memory; in allocators what is in use, or only what is kept; then whose it is."""

import calendar
import time
from typing import Any, Callable, Dict, Iterable, List, NamedTuple, Optional, Sequence, Tuple

from gdbheapx import verdict
from gdbheapx.allocators.records import HeapArenas
from gdbheapx.analysis.census import books as program_books
from gdbheapx.analysis.census import registry
from gdbheapx.analysis.census.books import Books
from gdbheapx.analysis.census.find import Census, Managed
from gdbheapx.analysis.reachability.leaks import Leaks
from gdbheapx.analysis.reachability.owners import Owners
from gdbheapx.hints import about
from gdbheapx.model import Advice
from gdbheapx.snapshot import owned
from gdbheapx.snapshot.growth import DUMPED, Growth, growth
from gdbheapx.snapshot.record import Outcome, Record
from gdbheapx.units import Said, Size, join_sentences, say

USED_GREW, KEPT_GREW, BOTH_GREW, ELSEWHERE_GREW = "used-grew", "kept-grew", "both-grew", "elsewhere-grew"
FELL, SAME = "fell", "same"
"""`elsewhere-grew`: parts that are no allocator's grew by more than what allocators have in use and keep."""
MOST_PARTS = 3
"""That the verdict names."""
LEAST_SHARE = 0.01
"""Of what was held before: less is no growth, and no fall."""
RSS = "RSS"
WITHOUT_NAMES = "it was taken with --no-names, and numbers mean nothing elsewhere"
NO_GRAPH = owned.Made(None, "its graph was not looked at")
IN_USE, KEPT = "in use", "kept by the allocator"
OBJECTS, POOLS_FREE = "in use by objects", "free in pools"
"""States of runtimes that cut up memory themselves, beside malloc's blocks: `whose` is `CPython`."""


class Change(NamedTuple):
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


class Side(NamedTuple):
    """One of the two."""

    what: str
    """As it was named."""
    kind: str
    pid: Optional[int]
    executable: Optional[str]
    taken: Optional[str]
    """When its memory was as it is told: of a process when it was looked at, of a core when its file was written; None: unknown."""
    form: str
    """What was named: `snapshot`, `core`, `process`, or `current` (what gdb has)."""


class Missing(NamedTuple):
    """What cannot be compared."""

    what: str
    """`classes`, `owners`, `leaks`, or `held`."""
    side: str
    """The one that lacks it."""
    why: str


class Next(NamedTuple):
    """What to ask then."""

    side: str
    """Of which of the two."""
    command: str
    why: str

    def of(self, side: Side) -> Advice:
        """With the whole command."""
        return Advice(about(side.form, side.what, self.command), self.why)


class Verdict(NamedTuple):
    """What grew."""

    code: str
    what: str
    kind: str = verdict.IN_USE
    """`growing`, `kept`, `in-use`: as of `report`."""
    details: Sequence[str] = ()
    """Further figures, each a line."""


class Diff(NamedTuple):
    """The answer."""

    old: Side
    new: Side
    verdict: Verdict
    growth_bytes: int
    """Of what is in use in allocators."""
    growth: Growth
    """Of the whole, by part."""
    states: Sequence[Change]
    arenas: Sequence[Change]
    classes: Optional[Sequence[Change]]
    """None where one of the two has none, or no names; those that changed most first, and so below."""
    owners: Optional[Sequence[Change]]
    leaks: Optional[Sequence[Change]]
    missing: Sequence[Missing]
    next: Sequence[Next]
    contexts: Optional[Sequence[Change]] = None
    """Memory contexts by name, where both are BIND's server, and told with names."""
    held: Optional[Sequence[Change]] = None
    """What each owner has by class; None where one of the two has no graph, or no names."""
    between_s: Optional[int] = None
    """From the one to the other, in seconds; None where it is unknown when one of them was."""
    next_steps: Sequence[Advice] = ()
    """The same as `next`, each with its whole command."""


class WithBooks(NamedTuple):
    """Of what `report` found, a program's own books."""

    books: Optional[Books] = None


class WithPools(NamedTuple):
    """Of what `census` found, the pools of runtimes."""

    managed: Sequence[Managed] = ()


HELD = (
    Next("new", "owners", "shows which variables, threads and blocks keep memory alive"),
    Next("new", "census", "shows what it is, by class, type and content"),
    Next("new", "leaks", "shows what nothing points to any more"),
)
HOARDED = (
    Next("new", "report", "shows what a trim or purge would return to the OS"),
    Next("new", "pins", "shows which blocks in use keep free memory from being returned"),
)
ELSEWHERE = (Next("new", "report", "shows all memory of the process, by mapping, file and runtime"),)
POOLS = Next("new", "census", "shows what runtimes have in their own pools")
NEXT = {USED_GREW: HELD, KEPT_GREW: HOARDED, BOTH_GREW: (*HELD, *HOARDED), ELSEWHERE_GREW: ELSEWHERE, FELL: (), SAME: ()}
Sums = Dict[Tuple[str, str], Tuple[int, Optional[int]]]
"""(what, whose) -> bytes, blocks."""
Unsure = Dict[Tuple[str, str], Optional[Tuple[int, Optional[int]]]]
"""The same; None: it is there, and not known."""


def diff(
    old: Record,
    new: Record,
    names: Tuple[str, str],
    forms: Tuple[str, str] = ("snapshot", "snapshot"),
    graphs: Sequence[owned.Made] = (NO_GRAPH, NO_GRAPH),
) -> Diff:
    """From the one to the other. `names`, `forms`: how they were named, and what that is; `graphs`: what owned.made() gives of each."""
    heads = old.head, new.head
    sides = [Side(name, head.kind, head.pid, head.executable, head.as_of, form) for name, head, form in zip(names, heads, forms)]
    states, grown = _states(old, new), growth(old, new)
    named = old.head.has_names and new.head.has_names
    judged = _verdict(states, grown)
    next_ = _next(judged.code, states, grown)
    return Diff(
        old=sides[0],
        new=sides[1],
        verdict=judged,
        growth_bytes=next((state.diff_bytes for state in states if state.what == IN_USE), 0),
        growth=grown,
        states=states,
        arenas=_sorted(_known(_arenas(old), _arenas(new))),
        classes=_of_models(old, new, "census", Census, _classes) if named else None,
        owners=_owners(old, new, graphs) if named else None,
        leaks=_of_models(old, new, "leaks", Leaks, _leaks),
        missing=[*_missing("old", old, graphs[0]), *_missing("new", new, graphs[1])],
        next=next_,
        contexts=_contexts(old, new) if named else None,
        held=_held(graphs) if named else None,
        between_s=_between_s(sides[0].taken, sides[1].taken),
        next_steps=[step.of(sides[step.side == "new"]) for step in next_],
    )


def _between_s(old: Optional[str], new: Optional[str]) -> Optional[int]:
    try:
        return None if old is None or new is None else unix_s(new) - unix_s(old)
    except (ValueError, OverflowError):
        return None


def unix_s(taken: str) -> int:
    """Of a time as Head.taken has it. ValueError where it is none."""
    return calendar.timegm(time.strptime(taken, "%Y-%m-%dT%H:%M:%SZ"))


def _missing(side: str, record: Record, graph: owned.Made) -> List[Missing]:
    """What this one does not have."""
    lacking = []
    for what, model in (("classes", "census"), ("owners", "owners"), ("leaks", "leaks")):
        if model not in record.models:
            lacking.append(Missing(what, side, record.outcomes.get(model, Outcome()).error or "it was not looked for"))
        elif not record.head.has_names and what != "leaks":
            lacking.append(Missing(what, side, WITHOUT_NAMES))
    if not record.head.has_names or graph.held is None:
        lacking.append(Missing("held", side, WITHOUT_NAMES if not record.head.has_names else graph.why or NO_GRAPH.why or ""))
    return lacking


def _changes(old: Sums, new: Sums) -> List[Change]:
    rows = []
    for key in dict.fromkeys([*old, *new]):
        only = "old" if key not in new else "new" if key not in old else None
        before, many = old[key] if only != "new" else (0, 0)
        after, more = new[key] if only != "old" else (0, 0)
        row = Change(*key, after - before, before, after, only=only)
        if many is not None and more is not None:  # what one side does not count is no 0
            row = row._replace(diff_count=more - many, old_count=many, new_count=more)
        rows.append(row)
    return rows


def _sorted(rows: Iterable[Change]) -> List[Change]:
    """What has not changed is left out; what one side does not have at all has changed, whatever its size."""
    changed_rows = (row for row in rows if row.diff_bytes or row.diff_count or row.only)
    return sorted(changed_rows, key=lambda row: (-abs(row.diff_bytes), row.what, row.whose))


def _states(old: Record, new: Record) -> List[Change]:
    """RSS, what each heap has in use and keeps, and the allocator's own words for parts of it, as `arenas` has them."""
    changes: List[Change] = []
    if old.head.rss_bytes is not None and new.head.rss_bytes is not None:
        changes += _changes({(RSS, ""): (old.head.rss_bytes, None)}, {(RSS, ""): (new.head.rss_bytes, None)})
    sums = [_sums(record) for record in (old, new)]
    changes += _changes(*sums)
    pools = [_pools(record) for record in (old, new)]
    changes += _changes(*pools) if all(pools) else []
    changes += _known(_parts(old), _parts(new))
    return [change for change in changes if change.old_bytes or change.new_bytes or not change.whose]


def changed(rows: Sequence[Change]) -> List[Change]:
    """Those that are no row of zeros."""
    return [row for row in rows if row.diff_bytes or row.diff_count]


def _sums(record: Record) -> Sums:
    heaps = record.head.heaps
    return {(IN_USE, ""): (sum(heap.used_bytes for heap in heaps), None), (KEPT, ""): (sum(heap.kept_bytes for heap in heaps), None)}


def _pools(record: Record) -> Sums:
    """What runtimes have handed out of pools of their own and keep there, if their objects were looked at."""
    sums: Sums = {}
    for managed in record.model("census", WithPools).managed if "census" in record.models else ():
        whose = registry.shown_name(managed.module)
        for what, size in ((OBJECTS, managed.used_bytes), (POOLS_FREE, managed.free_bytes)):
            sums[what, whose] = (sums.get((what, whose), (0, None))[0] + size, None)
    return sums


def _known(old: Unsure, new: Unsure) -> List[Change]:
    """Of what neither side has as unknown: it is no growth that a core does not tell what is in RAM."""
    unknown = {key for side in (old, new) for key, value in side.items() if value is None}
    sums = [{key: value for key, value in side.items() if value is not None and key not in unknown} for side in (old, new)]
    return _changes(*sums)


def _parts(record: Record) -> Unsure:
    """Every sum of the arenas that both allocator and name tell."""
    unsure: Unsure = {}
    for heap in _heaps(record):
        for name, value in heap.totals.items():
            if name.endswith("_bytes") and not name.startswith(("max_", "largest_")):
                unsure[name[: -len("_bytes")].replace("_", " "), heap.info.id] = (value, None) if value is not None else None
    return unsure


def _heaps(record: Record) -> List[HeapArenas]:
    """Those of which the arenas are known."""
    heaps: List[HeapArenas] = record.model("arenas", List[HeapArenas]) if "arenas" in record.models else []
    return heaps


def _arenas(record: Record) -> Unsure:
    """What each arena has in use."""
    unsure: Unsure = {}
    for row in (row for heap in _heaps(record) for row in heap.rows):
        used, count = getattr(row, "used_bytes", None), getattr(row, "used_chunks", None)
        unsure["arena %s" % row.index, row.allocator] = (used, count) if used is not None else None
    return unsure


def _of_models(old: Record, new: Record, name: str, kind: Any, sums: Callable[[Any], Optional[Sums]]) -> Optional[List[Change]]:
    if not all(name in record.models for record in (old, new)):
        return None
    before, after = (sums(record.model(name, kind)) for record in (old, new))
    return None if before is None or after is None else _sorted(_changes(before, after))


def _classes(census: Census) -> Sums:
    sums: Sums = {}
    for row in census.rows:
        size = say("not named, %s each", Size(row.size_bytes)) if row.size_bytes is not None else "not named"
        key = row.signature if row.signature is not None else str(size), row.module
        before = sums.get(key, (0, 0))
        sums[key] = before[0] + row.bytes, (before[1] or 0) + row.blocks
    return sums


def _owners(old: Record, new: Record, graphs: Sequence[owned.Made]) -> Optional[List[Change]]:
    """By name. One that only one of them lists may be among the small ones of the other, whose list ends somewhere: that it is new, or
    gone, is told where the other has all its owners in it; else how much more it has than it can have had."""
    if not all("owners" in record.models for record in (old, new)):
        return None
    have_graphs = all(graph.held is not None for graph in graphs)
    sides = [owned.listed(record.model("owners", Owners), graph.held if have_graphs else None) for record, graph in zip((old, new), graphs)]
    for side, other, graph in zip(sides, sides[::-1], graphs):
        side.sums.update({key: graph.named[key[0]] for key in other.sums if key not in side.sums and key[0] in graph.named and have_graphs})
    rows = [_bounded(row, *(side.least_bytes for side in sides)) for row in _changes(sides[0].sums, sides[1].sums)]
    told = (row for row in rows if row.diff_bytes or row.at_most is None)
    return _sorted(row._replace(contents=owned.from_to(*(side.what.get(row.what) for side in sides))) for row in told)


def _bounded(row: Change, least_old: int, least_new: int) -> Change:
    """Of an owner that one side does not list: what it can have there at most, and no change where it has no more on the other."""
    if row.only == "new" and least_old:
        before = min(least_old, row.new_bytes)
        return Change(row.what, row.whose, row.new_bytes - before, before, row.new_bytes, at_most="old")
    if row.only == "old" and least_new:
        after = min(least_new, row.old_bytes)
        return Change(row.what, row.whose, after - row.old_bytes, row.old_bytes, after, at_most="new")
    return row


def _held(graphs: Sequence[owned.Made]) -> Optional[List[Change]]:
    sums = [owned.classes(graph.held) for graph in graphs if graph.held is not None]
    return _sorted(_changes(*sums)) if len(sums) == len(graphs) else None


def _contexts(old: Record, new: Record) -> Optional[List[Change]]:
    """What they have in use, and their blocks where the release counts them."""
    if not all("report" in record.models for record in (old, new)):
        return None
    books = [record.model("report", WithBooks).books for record in (old, new)]
    before, after = books
    return None if before is None or after is None else _sorted(_changes(_of_books(before), _of_books(after)))


def _of_books(books: Books) -> Sums:
    return {(row.name, ""): (row.inuse_bytes, row.blocks) for row in program_books.sum_by_name(books.contexts)}


def _leaks(leaks: Leaks) -> Optional[Sums]:
    if leaks.leaked is None:
        return None
    return {
        (name, ""): (part.bytes, part.blocks) for name, part in (("held", leaks.held), ("maybe", leaks.maybe), ("leaked", leaks.leaked))
    }


def _verdict(states: Sequence[Change], grown: Growth) -> Verdict:
    used, kept = (next(state for state in states if state.what == what) for what in (IN_USE, KEPT))
    least = LEAST_SHARE * max(1, used.old_bytes + kept.old_bytes)
    grew = used.diff_bytes > least, kept.diff_bytes > least
    elsewhere, objects = _elsewhere(states, grown), _objects(states)
    total = next((state.old_bytes for state in states if state.what == RSS), used.old_bytes + kept.old_bytes)
    is_elsewhere = elsewhere > LEAST_SHARE * total and elsewhere > max(used.diff_bytes, kept.diff_bytes)
    of_used, of_kept = _from_to("memory in use", used), _from_to("free memory in malloc", kept)
    details = [*(_whole(grown) if is_elsewhere or any(grew) else []), *(_from_to("%s's objects" % one.whose, one) for one in objects)]
    if is_elsewhere:
        risen = max(objects, key=lambda state: state.diff_bytes, default=None)
        if risen is not None and 2 * risen.diff_bytes >= elsewhere:
            what = say("Growing: %s", _grew("%s's objects" % risen.whose, risen))
        else:
            what = say("Growing: %s outside malloc", Size(elsewhere))
        is_read = any(used[3:5] + kept[3:5])  # without any allocator, how much is in use is not known
        return Verdict(ELSEWHERE_GREW, what, verdict.GROWING, [*details, *([of_used, of_kept] if is_read else [])])
    if all(grew):
        what = say("Growing: %s; free memory that malloc keeps grew, too", _grew("memory in use", used))
        return Verdict(BOTH_GREW, what, verdict.GROWING, [*details, of_kept])
    if grew[0]:
        note = "the growth is memory the program still uses, not memory that malloc keeps"
        return Verdict(USED_GREW, say("Growing: %s", _grew("memory in use", used)), verdict.GROWING, [note, *details, of_kept])
    if grew[1]:
        what = say("Kept: %s; memory in use did not grow", _grew("free memory that malloc keeps", kept))
        return Verdict(KEPT_GREW, what, verdict.KEPT, [*details, of_used])
    if used.diff_bytes < -least or kept.diff_bytes < -least:
        return Verdict(FELL, "In use: nothing grew, and some fell", details=[of_used, of_kept, *details])
    what = say("No significant change (below 1 %%): in use %s, free in malloc %s", Size(used.new_bytes), Size(kept.new_bytes))
    return Verdict(SAME, what, details=details)


def _from_to(what: str, change: Change) -> Said:
    return say("%s: %s -> %s", what, Size(change.old_bytes), Size(change.new_bytes))


def _grew(what: str, change: Change) -> Said:
    return say("%s +%s (%s -> %s)", what, Size(change.diff_bytes), Size(change.old_bytes), Size(change.new_bytes))


def _objects(states: Sequence[Change]) -> List[Change]:
    """By runtime what its objects have in use in its own pools."""
    return [state for state in states if state.what == OBJECTS]


def _elsewhere(states: Sequence[Change], grown: Growth) -> int:
    """By how much grew what is no allocator's; objects may grow where their pools had room."""
    parts = sum(part.grown_bytes for part in grown.parts if part.allocator is None)
    return max(parts, sum(state.diff_bytes for state in _objects(states)))


def _next(code: str, states: Sequence[Change], grown: Growth) -> Sequence[Next]:
    """What goes on from the verdict: where objects in pools grew by half of what grew outside allocators, who keeps them."""
    objects = _objects(states)
    if code != ELSEWHERE_GREW or not objects:
        return NEXT[code]
    return HELD if 2 * sum(state.diff_bytes for state in objects) >= _elsewhere(states, grown) else (*ELSEWHERE, POOLS)


def _whole(grown: Growth) -> List[Said]:
    """`RSS grew 29.6 MiB: 21.9 MiB in one part, 7.7 MiB in another`; nothing where that is not known, or it did not grow."""
    rising = sorted(((part.diff_bytes or 0, part.what) for part in grown.parts if (part.diff_bytes or 0) > 0), reverse=True)
    if not rising:
        return []
    least = LEAST_SHARE * sum(size for size, _ in rising)
    named = [say("%s in %s", Size(size), what) for size, what in rising[:MOST_PARTS] if size >= least]
    rest = sum(size for size, _ in rising[len(named) :])
    if rest >= least:
        named.append(say("%s in others", Size(rest)))
    what = "the core" if grown.measure == DUMPED else RSS
    if (grown.rss_bytes or 0) > 0:
        return [say("%s grew %s: %s", what, Size(grown.rss_bytes), join_sentences(", ", named))]
    return [say("%s did not grow as a whole, parts of it did: %s", what, join_sentences(", ", named))]
