"""What `leaks` shows."""

from typing import Any, Dict, Iterator, Optional, Sequence

from gdbheapx.allocators.records import Page
from gdbheapx.analysis.reachability.leaks import Group, LeakedBlock, Leaks, LostMapping
from gdbheapx.columns import Table, columns_of
from gdbheapx.command import Style
from gdbheapx.kernel.blocks.graph import Sum
from gdbheapx.report import text
from gdbheapx.units import Size, plural, say, share

MOST_GROUPS, MOST_BLOCKS, MOST_MAPPINGS, MOST_OFFSETS = 20, 100, 10, 8


def counted(found: Sum) -> Dict[str, int]:
    """Blocks and bytes as JSON has them."""
    return {"blocks": found.blocks, "bytes": found.bytes}


def data(found: Leaks, rows: Optional[Sequence[LeakedBlock]], limit: Optional[int]) -> Dict[str, Any]:
    """The `data` member."""
    made: Dict[str, Any] = {
        "classes": {
            "held": counted(found.held),
            "maybe": {**counted(found.maybe), "by_evidence": {word: counted(one) for word, one in found.maybe_by.items()}},
            "leaked": {**counted(found.leaked), "roots": found.roots, "is_upper_bound": found.is_upper_bound},
        },
        "groups": list(found.groups[:limit]),
        "habits": list(found.habits),
        "offsets": [{"offset": offset, "references": count} for offset, count in found.offsets[:MOST_BLOCKS]],
        "mappings": list(found.mappings),
    }
    if rows is not None:
        made["blocks"] = [
            {"address": one.address, "size_bytes": one.size_bytes, "class": one.class_, "evidence": one.evidence, "kind": one.kind}
            for one in rows[:limit]
        ]
    return made


def lines(
    style: Style, found: Leaks, rows: Optional[Sequence[LeakedBlock]], limit: Optional[int], has_blocks: bool = True
) -> Iterator[str]:
    """The text. `has_blocks`: the single blocks can be looked at, which those of a snapshot without their graph cannot."""
    yield from text.show(style, page(found, limit, has_blocks))
    if rows is not None:
        yield ""
        yield from text.show(style, listing(rows, limit if limit is not None else MOST_BLOCKS))


def page(found: Leaks, limit: Optional[int], has_blocks: bool = True) -> Page:
    """Verdict, groups, mappings."""
    whole = found.held.bytes + found.maybe.bytes + found.leaked.bytes
    yield from _verdict(found, whole)
    shown = found.groups[: limit if limit is not None else MOST_GROUPS]
    if shown:
        yield ""
        yield Table(columns_of(Group), [{**row._asdict(), "sample": str(row.sample[0])} for row in shown])
        if len(shown) < len(found.groups):
            yield "%s: --limit N" % plural(len(found.groups) - len(shown), "more group")
        one = "`gdbheapx whatis %s --holders`; " % shown[0].sample[0] if has_blocks else ""
        yield "To identify one: %s`gdbheapx census` counts all by class, lost ones included" % one
    yield from _mappings(found)
    yield from _remarks(found)


def _verdict(found: Leaks, whole: int) -> Page:
    leaked, maybe = found.leaked, found.maybe
    if leaked.blocks:
        sentence = "Leaked: %s%s in %s (%s of what is in use)%s"
        roots = "" if found.roots is None else ", %s" % plural(found.roots, "leak root")
        bound = "at most " if found.is_upper_bound else ""
        yield say(sentence, bound, Size(leaked.bytes), plural(leaked.blocks, "block"), share(leaked.bytes, whole), roots)
        if found.is_upper_bound:
            yield "Not everything that may hold these blocks could be read: how much of it is leaked is unknown"
    else:
        yield "Leaked: nothing"
    if maybe.blocks:
        by = ", ".join("%s %d" % (word, one.blocks) for word, one in found.maybe_by.items())
        yield say("Maybe:  %s in %s, by their evidence: %s", Size(maybe.bytes), plural(maybe.blocks, "block"), by)
    yield say("Held:   %s in %s", Size(found.held.bytes), plural(found.held.blocks, "block"))
    if leaked.blocks < found.held.blocks and leaked.bytes * 10 < whole and whole:
        yield "What is in use is held: `gdbheapx owners` shows by what"


def _mappings(found: Leaks) -> Page:
    if found.mappings:
        yield ""
        total = sum(one.bytes for one in found.mappings)
        yield say("Mappings outside the heaps that nothing points to: %d, %s", len(found.mappings), Size(total))
        yield Table(columns_of(LostMapping), found.mappings[:MOST_MAPPINGS])


def _remarks(found: Leaks) -> Page:
    if found.habits:
        offsets = ", ".join("%d (%s)" % (one.offset, plural(one.blocks, "block")) for one in found.habits[:MOST_OFFSETS])
        yield ""
        yield "Many pointers lead to these offsets inside blocks, by design; those blocks count as held: %s" % offsets
    if found.offsets:
        offsets = ", ".join("%d (%s)" % (offset, plural(count, "reference")) for offset, count in found.offsets[:MOST_OFFSETS])
        yield ""
        yield "Blocks that only a pointer to their inside holds are pointed to at: %s" % offsets
    if found.low_addresses:
        yield ""
        yield "The heap lies below 4 GiB, where small numbers look like pointers: a few blocks may be called held by mistake"


def listing(rows: Sequence[LeakedBlock], limit: int) -> Page:
    """The blocks."""
    yield Table(columns_of(LeakedBlock), rows[:limit])
    if len(rows) > limit:
        yield "%s: --limit N" % plural(len(rows) - limit, "more block")
