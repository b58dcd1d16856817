"""What `pins` shows."""

from typing import Any, Dict, Iterator, Optional

from gdbheapx.allocators import keeping
from gdbheapx.allocators.records import Page
from gdbheapx.analysis import pins
from gdbheapx.analysis.census.world import EXACT
from gdbheapx.analysis.pins import CACHED, OWN, USED, Group, Kept, Sum
from gdbheapx.columns import Table, columns_of
from gdbheapx.command import Style
from gdbheapx.hints import again, ask
from gdbheapx.report import text
from gdbheapx.units import Size, plural, say, share

MOST_ROWS = 20
WHERE = {
    keeping.PAGE: "page: on pages that are shared with blocks in use, at the ends of free memory that is otherwise returned",
    keeping.SMALL: "hole: between blocks, too small to hold a page that could be returned",
    keeping.FAST_LIST: "fastbin: the same, on malloc's lists of freed small chunks, which are not merged with their neighbours",
    keeping.THREAD_TOP: "thread-top: the end of a thread's arena above the last block; only free() returns it, malloc_trim never does",
    keeping.MAIN_TOP: "main-top: the end of the main arena; malloc keeps a little of it",
    keeping.FOREIGN_BREAK: "foreign-break: the end of the main arena; other code moved the program break, so it cannot be returned",
    keeping.ENDED_ARENA: "ended-arena: in arenas of threads that have ended; a new thread may take one over",
    keeping.SPAN: "span: free objects of spans; a span can be returned when its last object is back in it",
    keeping.GROUP: "group: free slots of groups; a group is returned when the last block in it is freed",
    keeping.SLAB: "slab: free regions of slabs; a slab is returned when all of it is free",
}
NOT_IN_USE = {CACHED: "(in thread caches)", OWN: "(the allocator's own)", None: "(nothing in use)"}


def data(kept: Kept, limit: Optional[int]) -> Dict[str, Any]:
    """The `data` member."""
    return {
        "kept_bytes": kept.kept_bytes,
        "groups": list(kept.groups[:limit]),
        "groups_in_all": len(kept.groups),
        "sums": [{**amount._asdict(), "terms": [_term(term) for term in amount.terms]} for amount in kept.sums],
        "has_owners": kept.has_owners,
        "may_be_stale": kept.may_be_stale,
    }


def _term(term: keeping.Term) -> Dict[str, Any]:
    """Negative where it is taken off."""
    return {"name": term.name, "bytes": -term.bytes if term.is_taken_off else term.bytes}


def lines(style: Style, kept: Kept, limit: Optional[int]) -> Iterator[str]:
    """The text."""
    yield from text.show(style, page(kept, limit))


def page(kept: Kept, limit: Optional[int]) -> Page:
    """The sentence, the rows, how it closes with `arenas`."""
    if kept.kept_bytes is None:
        yield "Unknown: how much free memory the blocks in use pin"
    elif not kept.kept_bytes:
        yield "No free memory is pinned by blocks in use."
    else:
        yield say(
            "Free memory that cannot be returned: %s%s (%s of all arenas)",
            "at least " if kept.is_cut else "",
            Size(kept.kept_bytes),
            share(kept.kept_bytes, kept.held_bytes),
        )
        first = pins.largest_group(kept)
        if first is not None:
            yield say("%s", pins.group_sentence(first))
    for amount in kept.sums:
        if amount.kept_bytes or amount.arenas_bytes or (amount.arenas_bytes == 0 and len(kept.sums) == 1):
            yield _closing(amount)
        if amount.returnable_bytes and amount.returnable_bytes >= (kept.kept_bytes or 0) // 8:
            way = ": %s" % ask(amount.command + " --dry-run") if amount.command is not None else ""
            yield say("%s more is free and could be returned%s", Size(amount.returnable_bytes), way)
    shown = kept.groups[: limit if limit is not None else MOST_ROWS]
    if shown:
        yield ""
        yield Table(columns_of(Group), [_row(row) for row in shown])
        if len(shown) < len(kept.groups):
            left = sum(row.kept_bytes for row in kept.groups[len(shown) :])
            yield say("%s (%s): %s", plural(len(kept.groups) - len(shown), "more row"), Size(left), again("--limit %d", len(kept.groups)))
        yield ""
        yield from [words for where, words in WHERE.items() if any(row.where == where for row in shown)]
    if kept.may_be_stale and any(row.sure == EXACT for row in shown):
        yield "Some blocks may show the class of an earlier use: this allocator does not clear freed memory."
    if not kept.has_owners and any(row.status == USED for row in shown):
        yield "Owners of the blocks were not searched: %s shows them" % ask("pins")


def _closing(amount: Sum) -> Any:
    """How the sum comes about by the figures of `arenas`."""
    if amount.arenas_bytes is None:
        return say("%s: %s; `arenas` has no figure to compare with", amount.allocator, Size(amount.kept_bytes))
    template, parts = "%s: ", []
    for number, term in enumerate(amount.terms):
        sign = "" if not number else " - " if term.is_taken_off else " + "
        template += sign + "%s %s"
        parts += [term.name, Size(term.bytes)]
    told = say(template + " = %s", amount.allocator, *parts, Size(amount.arenas_bytes))
    if not amount.difference_bytes:
        return say("%s, as `arenas` has it", told)
    return say("%s by `arenas`; found here: %s", told, Size(amount.kept_bytes))


def _row(row: Group) -> Dict[str, Any]:
    """One line."""
    made: Dict[str, Any] = {**row._asdict(), "sample": "" if row.sample is None else str(row.sample)}
    made["kept_for_each"] = "-" if row.kept_for_each is None else "%.1f" % row.kept_for_each
    made["signature"] = row.signature or (NOT_IN_USE.get(row.status) if row.status != USED else "-")
    made["owner"] = row.owner or "-"
    made["size_bytes"] = row.size_bytes if row.size_bytes is not None else "-"
    return made
