"""Format the output of `census`."""

import re
from typing import Any, Dict, List, Optional, Sequence, Tuple, Union

from gdbheapx.allocators.records import Page
from gdbheapx.analysis.addon_answers import FEW, NODES, Joined
from gdbheapx.analysis.census import contents
from gdbheapx.analysis.census.contents import CopyClass, CopyRow, CopySearch, SampleText
from gdbheapx.analysis.census.find import Census, CensusRow, Managed, Same, Slabs
from gdbheapx.analysis.census.world import CONTENT, EXACT, PLACE, SHAPE
from gdbheapx.common.columns import ColumnsTable, columns_of
from gdbheapx.common.units import Sentence, SentenceSize, count_noun, format_share, join_sentences, make_cells, make_sentence
from gdbheapx.report import text
from gdbheapx.report.reach_text import MOST_CLASSES, make_classes_page

MOST_ROWS, MOST_SAME, MOST_NAME = 30, 10, 100
CLASS = re.compile(r"CLASS@([0-9a-f]{16,})\+")
"""A class without a name, by its build and offset: text has its module in place of the build-id, which is below the table once."""
SURE = "%s of the %s with a known class or structure (%s) have 1 to %d candidates"
WORDS = {
    EXACT: "exact: confirmed by two independent facts, such as vtable and type_info",
    SHAPE: "shape: laid out like this structure; a coincidence is possible",
    PLACE: "place: named after its holder; the type is unknown",
    CONTENT: "content: guessed from the bytes",
}


def make_census_data(
    census: Census, limit: Optional[int], samples: Optional[Sequence[SampleText]] = None, joined: Optional[Joined] = None
) -> Dict[str, Any]:
    """The `data` member; `samples`, `joined`: where they were asked for."""
    rows: Sequence[Any] = list(census.rows[:limit])
    sites: Dict[str, Any] = {}
    if joined is not None:
        rows = [{**row._asdict(), "sites": found.sites, "size_functions": found.size_functions} for row, found in zip(rows, joined.rows)]
        unread = [{"name": name, "why": why} for name, why in joined.unread]
        of_calls = {"calls": joined.calls, "typed_bytes": joined.typed_bytes, "few_bytes": joined.few_bytes}
        sites = {"sites": {**of_calls, "unread": unread}}
    return {
        **sites,
        **({"samples": list(samples)} if samples is not None else {}),
        "rows": rows,
        "used": {"blocks": census.blocks, "bytes": census.bytes},
        "named_bytes": census.named_bytes,
        "placed_bytes": census.placed_bytes,
        "managed": list(census.managed),
        "objects": list(census.objects[:limit]),
        "may_be_stale": census.may_be_stale,
        "copies": census.copies,
        "own_allocator": census.own_allocator,
    }


def _make_sites_page(joined: Joined, most: int) -> Page:
    """List for each row the functions that may have allocated its blocks."""
    yield ""
    yield make_sentence("Possible allocation sites, from %s of malloc in the code (no recording):", count_noun(joined.calls, "call"))
    none: List[str] = []
    for row in joined.rows[:most]:
        name = row.signature or "not named"
        if not row.sites:
            none.append(name)
            continue
        yield make_sentence("  %s (%s):", name, SentenceSize(row.bytes))
        for one in row.sites[:MOST_SAME]:
            sizes = ", for %s bytes" % ", ".join(map(str, one.sizes)) if row.signature in NODES else ""
            yield make_sentence("    %s%s: %s", text.shorten_text(one.named(), MOST_NAME), sizes, ", ".join(one.why))
        if len(row.sites) > MOST_SAME:
            yield make_sentence("    and %s", count_noun(len(row.sites) - MOST_SAME, "other function"))
    if none:
        yield make_sentence("  no site is known for %s: %s", count_noun(len(none), "other row"), ", ".join(sorted(set(none))))
    if joined.typed_bytes:
        few, typed = SentenceSize(joined.few_bytes), SentenceSize(joined.typed_bytes)
        yield make_sentence(SURE, few, typed, format_share(joined.few_bytes, joined.typed_bytes), FEW)
    if joined.unread:
        names = ", ".join(name for name, _ in joined.unread[:MOST_SAME])
        yield make_sentence("not searched, because the code could not be read: %s", names)


def make_copies_data(found: CopySearch, limit: Optional[int], samples: Optional[Sequence[SampleText]] = None) -> Dict[str, Any]:
    """Make the JSON of --copies."""
    return {
        **({"samples": list(samples)} if samples is not None else {}),
        "rows": list(found.rows[:limit]),
        "classes": list(found.classes),
        "copies": {"contents": found.contents, "blocks": found.blocks, "bytes": found.bytes, "spare_bytes": found.spare_bytes},
        "zeros": found.zeros,
        "unlike_blocks": found.unlike_blocks,
        "used": {"blocks": found.used_blocks, "bytes": found.used_bytes},
    }


def make_copies_page(found: CopySearch, limit: Optional[int], samples: Optional[Sequence[SampleText]] = None) -> Page:
    """List the kinds of duplicates with their memory, and texts of examples."""
    yield make_sentence("In use: %s in %s", SentenceSize(found.used_bytes), count_noun(found.used_blocks, "block"))
    yield _sum_of_copies(found.blocks, found.bytes, found.contents, found.spare_bytes)
    if found.zeros.blocks:
        what = "contains" if found.zeros.blocks == 1 else "contain"
        yield make_sentence("Zeros:  %s (%s) %s only zeros", count_noun(found.zeros.blocks, "block"), SentenceSize(found.zeros.bytes), what)
    most = limit if limit is not None else MOST_ROWS
    for kind, rows in ((CopyClass, found.classes), (CopyRow, found.rows)):
        if rows:
            yield ""
            yield ColumnsTable(columns_of(kind), [_make_copied_row(row) for row in rows[:most]])
        yield from text.note_more("row", rows, most)
    if found.unlike_blocks:
        yield ""
        what = "%s left out: same checksum as other blocks, but different or no longer readable bytes"
        yield make_sentence(what, count_noun(found.unlike_blocks, "block"))
    yield from _make_texts_page(samples)


def make_by_text_data(found: contents.FoundTexts, limit: Optional[int]) -> Dict[str, Any]:
    """Make the JSON of --by-text."""
    return {**found._asdict(), "rows": list(found.rows[:limit]), "fields": list(found.fields)}


def make_by_text_page(found: contents.FoundTexts, limit: Optional[int]) -> Page:
    """The objects, the texts of one field, and which others have some."""
    names = ", ".join(found.names[:3]) + (" and others" if len(found.names) > 3 else "")
    yield make_sentence("%s: %s (%s), by the text at %s", names, count_noun(found.blocks, "object"), SentenceSize(found.bytes), found.field)
    if found.looked_blocks < found.blocks:
        yield "counted: %s of them, chosen by chance" % count_noun(found.looked_blocks, "object")
    most = limit if limit is not None else MOST_ROWS
    rows = [{**row._asdict(), "sample": str(row.sample)} for row in found.rows[:most]]
    for row in rows:
        row["text"] = "(none)" if row["text"] is None else '"%s"' % text.make_printable(row["text"])
    yield ""
    yield ColumnsTable(columns_of(contents.TextRow), rows)
    yield from text.note_more("row", found.rows, most)
    others = [row for row in found.fields if row.field != found.field][:MOST_SAME]
    if others:
        yield ""
        yield "Other fields with texts, in %s: --by-text FIELD" % count_noun(found.sampled_blocks, "object")
        yield ColumnsTable(columns_of(contents.FieldRow), others)


def _make_copied_row(copied: Union[CopyRow, CopyClass, Same]) -> Dict[str, Any]:
    row = copied._asdict()
    return {**row, "signature": row["signature"] or "not named", **({"sample": str(row["sample"])} if "sample" in row else {})}


def _make_texts_page(samples: Optional[Sequence[SampleText]]) -> Page:
    if samples is not None:
        yield ""
        yield "Texts:" if samples else "Texts: none in the example blocks"
    for sample in samples or ():
        parts = [sample.signature or "not named", *([sample.contents] if sample.contents is not None else [])]
        shown = ", ".join('"%s"' % text.make_printable(one) for one in sample.texts)
        what = parts[-1] if parts[-1].startswith(parts[0]) else " = ".join(parts)
        yield "  %s %s%s" % (sample.address, what, ": " + shown if shown else "")


def describe_slabs(found: Slabs) -> Sentence:
    """Say that the program has an allocator of its own."""
    sizes = join_sentences(", ", [make_sentence("%s", SentenceSize(size)) for size in found.sizes_bytes])
    what = "This program has its own allocator: about %s of malloc (%s, %.0f %% of memory in use) are its slabs, %s each"
    return make_sentence(what, count_noun(found.blocks, "block"), SentenceSize(found.bytes), found.share_percent, sizes)


def make_census_page(
    census: Census, limit: Optional[int], samples: Optional[Sequence[SampleText]] = None, joined: Optional[Joined] = None
) -> Page:
    """Make the page: how much is named, the rows, pools that runtimes manage, and what else was asked for."""
    yield make_sentence("In use: %s in %s", SentenceSize(census.bytes), count_noun(census.blocks, "block"))
    named, placed = format_share(census.named_bytes, census.bytes), format_share(census.placed_bytes, census.bytes)
    guessed = sum(row.bytes for row in census.rows if row.sure == CONTENT)
    by_content = make_sentence("; guessed from the bytes: %s (%s)", SentenceSize(guessed), format_share(guessed, census.bytes))
    typed = "Typed:  %s (%s); inferred from references: %s (%s)%s"
    yield make_sentence(
        typed, SentenceSize(census.named_bytes), named, SentenceSize(census.placed_bytes), placed, by_content if guessed else ""
    )
    if census.own_allocator is not None:
        yield describe_slabs(census.own_allocator)
    rows = join_size_ranges(census.rows)
    shown = [row for row, _ in rows[: limit if limit is not None else MOST_ROWS]]
    yield ""
    by_name = any(row.signature is not None for row in shown)
    yield ColumnsTable(columns_of(CensusRow), [{**_make_census_row(row, by_name), **sizes} for row, sizes in rows[: len(shown)]])
    builds = {match[1]: row.module for row in shown for match in [CLASS.search(row.signature or "")] if match and row.module}
    yield from ("%s: build-id %s" % (module, build) for build, module in sorted(builds.items(), key=lambda pair: pair[1]))
    yield from text.note_more("row", rows, len(shown))
    unused = [row for row in shown if row.content_bytes is not None and 100 * (row.bytes - row.content_bytes) >= census.bytes]
    if unused:
        yield ""
    for row in unused:  # from 1 % of the memory in use on
        size, whole = SentenceSize(row.bytes - (row.content_bytes or 0)), SentenceSize(row.bytes)
        yield make_sentence("%s: %s of %s is unused capacity", row.signature or "not named", size, whole)
    sorts = [WORDS[sure] for sure in (EXACT, SHAPE, PLACE, CONTENT) if any(row.sure == sure for row in shown)]
    if sorts:
        yield ""
        yield from sorts
    if census.may_be_stale and any(row.sure == EXACT for row in shown):
        yield "Some blocks may show the class of an earlier use: this allocator does not clear freed memory."
    copies = census.copies
    if copies is not None and copies.blocks:
        yield ""
        yield _sum_of_copies(copies.blocks, copies.bytes, copies.contents, copies.spare_bytes)
        if copies.largest:
            yield ColumnsTable(columns_of(Same), [_make_copied_row(same) for same in copies.largest[:MOST_SAME]])
    if census.managed:
        yield ""
        yield ColumnsTable(columns_of(Managed), [memory._asdict() for memory in census.managed])
    yield from make_classes_page(census.objects, MOST_CLASSES if limit is None else limit)
    yield from _make_texts_page(samples)
    yield from _make_sites_page(joined, MOST_ROWS if limit is None else limit) if joined is not None else ()


def join_size_ranges(rows: Sequence[CensusRow]) -> List[Tuple[CensusRow, Dict[str, Any]]]:
    """Rows, and what differs in the table. Blocks of which only the size is known are one row from a power of two to the next: what a
    cache holds has many sizes. A size that has half of its range's bytes is alone: these may be of one type."""
    ranges: Dict[Tuple[str, int], List[CensusRow]] = {}
    made: List[Tuple[CensusRow, Dict[str, Any]]] = []
    for row in rows:
        if row.signature is None and row.size_bytes is not None and row.sample is not None:
            ranges.setdefault((row.module, row.size_bytes.bit_length()), []).append(row)
        else:
            made.append((row, {}))
    for some in ranges.values():
        alone = 2 * some[0].bytes >= sum(row.bytes for row in some)
        made += [(row, {}) for row in some[:alone]]
        rest = some[alone:]
        if rest:
            sizes = [row.size_bytes for row in rest if row.size_bytes is not None]
            summed = {name: sum(getattr(row, name) for row in rest) for name in ("blocks", "bytes", "share_percent")}
            shown = {} if len(rest) == 1 else {"size_bytes": make_cells("%s-%s", SentenceSize(min(sizes)), SentenceSize(max(sizes)))}
            made.append((rest[0]._replace(**{**summed, "share_percent": round(summed["share_percent"], 1)}, content_bytes=None), shown))
    return sorted(made, key=lambda pair: -pair[0].bytes)


def _sum_of_copies(blocks: int, bytes_: int, contents: int, spare_bytes: int) -> Sentence:
    what = "Duplicates: %s (%s) share %s; keeping one copy of each would save %s"
    shared = count_noun(blocks, "block"), SentenceSize(bytes_), count_noun(contents, "distinct content")
    return make_sentence(what, *shared, SentenceSize(spare_bytes))


def _make_census_row(row: CensusRow, by_name: bool) -> Dict[str, Any]:
    """Blocks of which only the size is known, or nothing, have no name."""
    made = {**row._asdict(), "sample": "" if row.sample is None else str(row.sample)}
    if row.signature is None and row.sample is not None and (by_name or row.size_bytes is not None):
        made["signature"] = "not named" if row.size_bytes is None else make_cells("not named, %s each", SentenceSize(row.size_bytes))
    elif row.signature is None and row.sample is not None:
        made["module"] = row.module or "not known"
    elif row.signature is not None and row.module:
        made["signature"] = CLASS.sub("class %s+" % row.module.replace("\\", "\\\\"), row.signature)
    if row.size_bytes is None and row.blocks and by_name:
        made["size_bytes"] = make_cells("~%s", SentenceSize(row.bytes // row.blocks))
    return made
