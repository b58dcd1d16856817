"""What `leaks` shows."""

from typing import Any, Dict, Iterator, Optional, Sequence

from gdbheapx.allocators.records import Page
from gdbheapx.analysis.coverage import Coverage, counted
from gdbheapx.analysis.reachability.leaks import Group, LeakedBlock, Leaks, LostMapping
from gdbheapx.analysis.unloaded import MANY, libraries
from gdbheapx.columns import Table, columns_of
from gdbheapx.command import Style
from gdbheapx.report import garbage_text, text
from gdbheapx.units import DAMAGE, Size, join_sentences, mark, plural, say, share

MOST_GROUPS, MOST_BLOCKS, MOST_MAPPINGS, MOST_OFFSETS, MOST_SIZES = 20, 100, 10, 8, 3


def data(leaks: Leaks, rows: Optional[Sequence[LeakedBlock]], limit: Optional[int], coverage: Optional[Coverage] = None) -> Dict[str, Any]:
    """The `data` member."""
    roots = leaks.roots if leaks.leaked is not None else None
    made: Dict[str, Any] = {
        "classes": {
            "held": counted(leaks.held, coverage),
            "maybe": {**counted(leaks.maybe, coverage), "by_evidence": {word: counted(amount) for word, amount in leaks.maybe_by.items()}},
            "leaked": {**counted(leaks.leaked), "roots": roots, "is_upper_bound": leaks.is_upper_bound},
        },
        "groups": list(leaks.groups[:limit]),
        "habits": list(leaks.habits),
        "offsets": [{"offset": offset, "references": count} for offset, count in leaks.offsets[:MOST_BLOCKS]],
        "mappings": list(leaks.mappings),
        "unloaded_libraries": leaks.unloaded_libraries,
        "garbage": leaks.garbage,
    }
    if rows is not None:
        made["blocks"] = [
            {"address": row.address, "size_bytes": row.size_bytes, "class": row.class_, "evidence": row.evidence, "kind": row.kind}
            for row in rows[:limit]
        ]
    return made


def lines(
    style: Style,
    leaks: Leaks,
    rows: Optional[Sequence[LeakedBlock]],
    limit: Optional[int],
    has_blocks: bool = True,
    can_look_again: bool = False,
    coverage: Optional[Coverage] = None,
) -> Iterator[str]:
    """The text. `has_blocks`: the single blocks can be looked at, which those of a snapshot without their graph cannot. `can_look_again`:
    there was no second look for weak pointers, and there can be one."""
    yield from text.show(style, page(leaks, limit, has_blocks, can_look_again, coverage))
    if rows is not None:
        yield ""
        yield from text.show(style, listing(rows, limit if limit is not None else MOST_BLOCKS))


def page(
    leaks: Leaks,
    limit: Optional[int],
    has_blocks: bool = True,
    can_look_again: bool = False,
    coverage: Optional[Coverage] = None,
) -> Page:
    """Verdict, groups, mappings."""
    others = [part.bytes for part in (leaks.leaked, leaks.garbage) if part is not None]
    whole = leaks.held.bytes + leaks.maybe.bytes + sum(others)
    yield from _verdict(leaks, whole, coverage if coverage is not None and coverage.is_low else None)
    if can_look_again and leaks.leaked is not None and leaks.leaked.bytes and leaks.leaked.bytes * 2 >= whole:
        yield "So much may hang on pointers with other bits set, at odd addresses or mangled: `gdbheapx leaks --weak` looks for these"
    shown = leaks.groups[: limit if limit is not None else MOST_GROUPS]
    if shown:
        yield ""
        yield Table(columns_of(Group), [{**row._asdict(), "sample": str(row.sample[0])} for row in shown])
        if len(shown) < len(leaks.groups):
            yield "%s: --limit N" % plural(len(leaks.groups) - len(shown), "more group")
        command = "`gdbheapx whatis %s --holders`; " % shown[0].sample[0] if has_blocks else ""
        yield from _unloaded(leaks)
        yield "To identify one: %s`gdbheapx census` counts all by class, lost ones included" % command
    yield from _mappings(leaks)
    yield from _remarks(leaks)


def _verdict(leaks: Leaks, whole: int, low: Optional[Coverage]) -> Page:
    leaked, maybe = leaks.leaked, leaks.maybe
    if leaked is None:
        yield "Leaked: unknown, as memory that may hold blocks was not read" if low is None else say("Leaked: unknown: %s", low.words())
    elif leaked.blocks:
        sentence = "Leaked: %s%s in %s (%s of what is in use)%s"
        roots = "" if leaks.roots is None else ", %s" % plural(leaks.roots, "leak root")
        bound = ("" if leaks.is_upper_bound else "at least ") if low else "at most " if leaks.is_upper_bound else ""
        line = say(sentence, bound, Size(leaked.bytes), plural(leaked.blocks, "block"), share(leaked.bytes, whole), roots)
        yield mark(line, DAMAGE)
        if leaks.is_upper_bound:
            yield "Not everything that may hold these blocks could be read: how much of it is leaked is unknown"
    else:
        yield "Leaked: nothing"
    if maybe.blocks:
        by = ", ".join("%s %d" % (word, amount.blocks) for word, amount in leaks.maybe_by.items())
        yield say("Maybe:  %s in %s, by their evidence: %s", Size(maybe.bytes), plural(maybe.blocks, "block"), by)
    if leaks.garbage is not None:
        yield from garbage_text.lines(leaks.garbage)
    yield say("Held:   %s in %s", Size(leaks.held.bytes), plural(leaks.held.blocks, "block"))
    if leaked is not None and leaked.blocks < leaks.held.blocks and leaked.bytes * 10 < whole and whole:
        yield "What is in use is held: `gdbheapx owners` shows by what"


def _unloaded(leaks: Leaks) -> Page:
    """Where as many blocks of one size are leaked as libraries were unloaded, or so many for each."""
    gone = leaks.unloaded_libraries
    sizes = [row.size_bytes for row in leaks.groups if gone is not None and gone >= MANY and row.blocks % gone == 0][:MOST_SIZES]
    if gone is not None and sizes:
        words = join_sentences(", ", [say("%s", Size(size)) for size in sizes])
        what = "%s were loaded and unloaded, and as many leak roots, or so many for each, have %s: what only their variables held is lost"
        yield say(what, libraries(gone), words)


def _mappings(leaks: Leaks) -> Page:
    if leaks.mappings:
        yield ""
        total = sum(mapping.bytes for mapping in leaks.mappings)
        yield say("Mappings outside the heaps that nothing points to: %d, %s", len(leaks.mappings), Size(total))
        yield Table(columns_of(LostMapping), leaks.mappings[:MOST_MAPPINGS])


def _remarks(leaks: Leaks) -> Page:
    if leaks.habits:
        offsets = ", ".join("%d (%s)" % (habit.offset, plural(habit.blocks, "block")) for habit in leaks.habits[:MOST_OFFSETS])
        yield ""
        yield "Many pointers lead to these offsets inside blocks, by design; those blocks count as held: %s" % offsets
    if leaks.offsets:
        offsets = ", ".join("%d (%s)" % (offset, plural(count, "reference")) for offset, count in leaks.offsets[:MOST_OFFSETS])
        yield ""
        yield "Blocks that only a pointer to their inside holds are pointed to at: %s" % offsets
    if leaks.low_addresses:
        yield ""
        yield "The heap lies below 4 GiB, where small numbers look like pointers: a few blocks may be called held by mistake"


def listing(rows: Sequence[LeakedBlock], limit: int) -> Page:
    """The blocks."""
    yield Table(columns_of(LeakedBlock), rows[:limit])
    if len(rows) > limit:
        yield "%s: --limit N" % plural(len(rows) - limit, "more block")
