"""What `pins` shows."""

from typing import Any, Dict, Iterator, Optional

from gdbheapx.allocators import keeping
from gdbheapx.allocators.records import Page
from gdbheapx.analysis import pins
from gdbheapx.analysis.census.world import EXACT
from gdbheapx.analysis.pins import CACHED, OWN, USED, Group, Kept, Sum
from gdbheapx.columns import Table, columns_of
from gdbheapx.command import Style
from gdbheapx.report import text
from gdbheapx.units import Size, plural, say, share

MOST_ROWS = 20
WHERE = {
    keeping.PAGE: "page: on pages that are shared with blocks in use, at the ends of free memory that is otherwise returned",
    keeping.SMALL: "hole: between blocks, too small to hold a page that could be returned",
    keeping.FAST_LIST: "fastbin: the same, on malloc's lists of freed small chunks, which are not merged with their neighbours",
    keeping.THREAD_TOP: "thread-top: the end of a thread's arena above the last block; only free() returns it, malloc_trim never does",
    keeping.MAIN_TOP: "main-top: the end of the main arena, of which malloc keeps a little",
    keeping.FOREIGN_BREAK: "foreign-break: the end of the main arena; other code moved the program break, so it cannot be returned",
    keeping.ENDED_ARENA: "ended-arena: in arenas whose threads have ended; a new thread may take one over",
    keeping.SLAB: "slab: free regions of slabs; a slab is returned when all of it is free",
}
NOT_IN_USE = {CACHED: "(in thread caches)", OWN: "(the allocator's own)", None: "(nothing in use)"}


def data(found: Kept, limit: Optional[int]) -> Dict[str, Any]:
    """The `data` member."""
    return {
        "kept_bytes": found.kept_bytes,
        "groups": list(found.groups[:limit]),
        "groups_in_all": len(found.groups),
        "sums": [{**one._asdict(), "terms": [_term(term) for term in one.terms]} for one in found.sums],
        "has_owners": found.has_owners,
        "may_be_stale": found.may_be_stale,
    }


def _term(term: keeping.Term) -> Dict[str, Any]:
    """Negative where it is taken off."""
    return {"name": term.name, "bytes": -term.bytes if term.is_taken_off else term.bytes}


def lines(style: Style, found: Kept, limit: Optional[int]) -> Iterator[str]:
    """The text."""
    yield from text.show(style, page(found, limit))


def page(found: Kept, limit: Optional[int]) -> Page:
    """The sentence, the rows, how it closes with `arenas`."""
    if found.kept_bytes is None:
        yield "How much free memory is kept by blocks in use is not known"
    elif not found.kept_bytes:
        yield "No free memory is kept by blocks in use"
    else:
        yield say(
            "Free memory that cannot be returned: %s%s (%s of what the arenas hold)",
            "at least " if found.is_cut else "",
            Size(found.kept_bytes),
            share(found.kept_bytes, found.held_bytes),
        )
        first = pins.largest_group(found)
        if first is not None:
            yield say("%s", pins.group_sentence(first))
    for one in found.sums:
        if one.kept_bytes or one.arenas_bytes or (one.arenas_bytes == 0 and len(found.sums) == 1):
            yield _closing(one)
        if one.returnable_bytes and one.returnable_bytes >= (found.kept_bytes or 0) // 8:
            way = ": `gdbheapx %s --dry-run`" % one.command if one.command is not None else ""
            yield say("%s more is free and could be returned%s", Size(one.returnable_bytes), way)
    shown = found.groups[: limit if limit is not None else MOST_ROWS]
    if shown:
        yield ""
        yield Table(columns_of(Group), [_row(row) for row in shown])
        if len(shown) < len(found.groups):
            left = sum(row.kept_bytes for row in found.groups[len(shown) :])
            yield say("%s not shown, keeping %s: --limit N", plural(len(found.groups) - len(shown), "more row"), Size(left))
        yield ""
        yield from [words for where, words in WHERE.items() if any(row.where == where for row in shown)]
    if found.may_be_stale and any(row.sure == EXACT for row in shown):
        yield "some blocks may show a class from an earlier use: this allocator does not clear freed memory"
    if not found.has_owners and any(row.status == USED for row in shown):
        yield "who holds the blocks was not looked for, nor what they are by what points to them: `gdbheapx pins`"


def _closing(one: Sum) -> Any:
    """How the sum comes about by the figures of `arenas`."""
    if one.arenas_bytes is None:
        return say("%s: %s; `arenas` has no figure to compare with", one.allocator, Size(one.kept_bytes))
    template, parts = "%s: ", []
    for number, term in enumerate(one.terms):
        sign = "" if not number else " - " if term.is_taken_off else " + "
        template += sign + "%s %s"
        parts += [term.name, Size(term.bytes)]
    told = say(template + " = %s", one.allocator, *parts, Size(one.arenas_bytes))
    if not one.difference_bytes:
        return say("%s, as `arenas` has it", told)
    return say("%s by `arenas`; found here: %s", told, Size(one.kept_bytes))


def _row(row: Group) -> Dict[str, Any]:
    """One line."""
    made: Dict[str, Any] = {**row._asdict(), "sample": "" if row.sample is None else str(row.sample)}
    made["kept_for_each"] = "-" if row.kept_for_each is None else "%.1f" % row.kept_for_each
    made["signature"] = row.signature or (NOT_IN_USE.get(row.status) if row.status != USED else "-")
    made["owner"] = row.owner or "-"
    made["size_bytes"] = row.size_bytes if row.size_bytes is not None else "-"
    return made
