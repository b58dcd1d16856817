"""What `leaks` shows."""

from typing import Any, Dict, Iterator, Optional, Sequence

from gdbheapx.allocators.records import Page
from gdbheapx.analysis.coverage import Coverage, counted
from gdbheapx.analysis.reachability.leaks import Group, LeakedBlock, Leaks, LostMapping
from gdbheapx.analysis.unloaded import MANY, libraries
from gdbheapx.columns import Table, columns_of
from gdbheapx.command import Style
from gdbheapx.hints import again, ask
from gdbheapx.kernel.blocks.graph import MAYBE, WEAK
from gdbheapx.report import garbage_text, text
from gdbheapx.units import DAMAGE, Size, join_sentences, mark, number, plural, say, share

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
        yield "So much may be held by tagged, unaligned or mangled pointers: %s looks for those" % ask("leaks --weak")
    shown = leaks.groups[: limit if limit is not None else MOST_GROUPS]
    if shown:
        yield ""
        yield Table(columns_of(Group), [{**_whole(row)._asdict(), "signature": _sort(row), "sample": str(row.sample[0])} for row in shown])
        if len(shown) < len(leaks.groups):
            yield "%s: %s" % (plural(len(leaks.groups) - len(shown), "more group"), again("--limit %d", len(leaks.groups)))
        yield from _unloaded(leaks)
        if has_blocks:
            yield "To inspect one: %s" % ask("whatis %s" % shown[0].sample[0])
    yield from _mappings(leaks)
    yield from _remarks(leaks)


def _whole(row: Group) -> Group:
    """Of a container all its elements."""
    if row.container is None or row.is_holder:
        return row
    behind = row.behind_blocks + row.blocks - row.container.elements, row.behind_bytes + row.bytes - row.container.own_bytes
    return row._replace(blocks=row.container.elements, bytes=row.container.own_bytes, behind_blocks=behind[0], behind_bytes=behind[1])


def _sort(row: Group) -> Optional[str]:
    """`list of 3,000 elements`, `holds a list of 3,000 elements`, `12 containers: list of 400 elements`."""
    if row.container is None:
        return row.signature
    words = row.container._replace(element_bytes=None).words()
    if row.is_holder:
        words = "holds %s %s" % ("an" if words[0] in "aL" else "a", words)
    elif row.blocks > 1:
        words = "%s: %s" % (plural(row.blocks, "container"), words)
    return words if row.signature is None else "%s: %s" % (row.signature, words)


def _verdict(leaks: Leaks, whole: int, low: Optional[Coverage]) -> Page:
    leaked, maybe = leaks.leaked, leaks.maybe
    if leaked is None:
        yield (
            "Leaked: unknown, because memory that may point to blocks was not read"
            if low is None
            else say("Leaked: unknown (%s)", low.words())
        )
    elif leaked.blocks:
        sentence = "Leaked: %s%s in %s (%s of memory in use)%s"
        roots = "" if leaks.roots in (None, leaked.blocks) else ", reachable from %s" % plural(leaks.roots or 0, "leak root")
        bound = ("" if leaks.is_upper_bound else "at least ") if low else "at most " if leaks.is_upper_bound else ""
        line = say(sentence, bound, Size(leaked.bytes), plural(leaked.blocks, "block"), share(leaked.bytes, whole), roots)
        yield mark(line, DAMAGE)
        if leaks.is_upper_bound:
            yield "Memory that may point to these blocks could not be read: fewer may be leaked."
    else:
        yield "Leaked: nothing"
    if maybe.blocks:
        ways = [MAYBE.get(word, WEAK) for word, amount in leaks.maybe_by.items() if amount.blocks]
        yield say(
            "Possibly leaked: %s in %s, reachable only through %s", Size(maybe.bytes), plural(maybe.blocks, "block"), " or ".join(ways)
        )
    if leaks.garbage is not None:
        yield from garbage_text.lines(leaks.garbage)
    yield say("Reachable: %s in %s", Size(leaks.held.bytes), plural(leaks.held.blocks, "block"))
    if leaked is not None and leaked.blocks < leaks.held.blocks and leaked.bytes * 10 < whole and whole:
        yield "To see what holds the memory: %s" % ask("owners")


def _unloaded(leaks: Leaks) -> Page:
    """Where as many blocks of one size are leaked as libraries were unloaded, or so many for each."""
    gone = leaks.unloaded_libraries
    sizes = [row.size_bytes for row in leaks.groups if gone is not None and gone >= MANY and row.blocks % gone == 0][:MOST_SIZES]
    if gone is not None and sizes:
        words = join_sentences(", ", [say("%s", Size(size)) for size in sizes])
        what = "%s were unloaded, and a multiple of that number of blocks of %s is leaked: most likely only their variables held those"
        yield say(what, libraries(gone), words)


def _mappings(leaks: Leaks) -> Page:
    if leaks.mappings:
        yield ""
        total = Size(sum(mapping.bytes for mapping in leaks.mappings))
        yield say("Mappings outside the heaps without a reference: %s (%s)", number(len(leaks.mappings)), total)
        yield Table(columns_of(LostMapping), leaks.mappings[:MOST_MAPPINGS])


def _remarks(leaks: Leaks) -> Page:
    if leaks.habits:
        offsets = ", ".join("%d bytes (%s)" % (habit.offset, plural(habit.blocks, "block")) for habit in leaks.habits[:MOST_OFFSETS])
        yield ""
        yield "This program often points into blocks at an offset of %s; such blocks count as reachable." % offsets
    if leaks.offsets:
        offsets = ", ".join("%d (%s)" % (offset, number(count)) for offset, count in leaks.offsets[:MOST_OFFSETS])
        yield ""
        yield "Blocks reachable only through a pointer into their middle, by its offset: %s" % offsets
    if leaks.low_addresses:
        yield ""
        yield "The heap lies below 4 GiB, where small numbers look like pointers: a few leaked blocks may count as reachable."


def listing(rows: Sequence[LeakedBlock], limit: int) -> Page:
    """The blocks."""
    yield Table(columns_of(LeakedBlock), rows[:limit])
    if len(rows) > limit:
        yield "%s: %s" % (plural(len(rows) - limit, "more block"), again("--limit %d", len(rows)))
