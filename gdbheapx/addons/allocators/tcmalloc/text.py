"""The pages `arenas` and `bins` of tcmalloc, and the verdict and findings that `report` shows."""

from typing import List, Mapping, Optional, Sequence

from gdbheapx import findings as codes
from gdbheapx import verdict
from gdbheapx.addons.allocators.tcmalloc.records import TcArena, TcBin, TcFacts
from gdbheapx.allocators.heap import plain_parts
from gdbheapx.allocators.measured import AGGRESSIVE_DECOMMIT, CACHE_BYTES
from gdbheapx.allocators.records import AllocatorJudgement, AllocatorPart, Page, Surroundings
from gdbheapx.columns import ColumnsTable, columns_of
from gdbheapx.hints import hint_command
from gdbheapx.model import Finding, StepSentence
from gdbheapx.units import SentenceSize, make_sentence

SPANS = "free objects in spans with objects in use"
FRAGMENTED = verdict.VerdictRule(codes.FREE_REGIONS, verdict.is_fragmented, "Fragmented", SPANS, "free")
TCMALLOC_RULES = tuple(
    rule._replace(causes=(FRAGMENTED, rule)) if rule.code == codes.FREED_AND_HELD else rule for rule in verdict.USUAL_RULES
)


def make_tcmalloc_arenas_page(rows: Sequence[TcArena], totals: Mapping[str, Optional[int]]) -> Page:
    """Yield a table with one row, whose system is the sum of the other columns except metadata."""
    yield ColumnsTable(columns_of(TcArena), rows, {**totals, "index": "total"} if len(rows) > 1 else None)


def make_bins_page(rows: Sequence[TcBin]) -> Page:
    """Yield a table with a row for each size class."""
    yield ColumnsTable(
        columns_of(TcBin), [row if row.size_bytes is not None else {**row._asdict(), "size_bytes": "own span"} for row in rows]
    )
    if not rows:
        yield "no spans"


def make_parts_page(name: str, parts: Sequence[AllocatorPart], totals: Mapping[str, Optional[int]]) -> Page:
    """Yield the parts of what one holds, and what it has returned."""
    yield from plain_parts(name, parts)
    if totals.get("returned_bytes"):
        yield make_sentence("plus %s returned to the OS: address space only", SentenceSize(totals["returned_bytes"]))


def judge_tcmallocs(facts: Sequence[TcFacts], around: Surroundings) -> List[AllocatorJudgement]:
    """Judge each heap."""
    return [_judge_heap(heap, around) for heap in facts]


def _judge_heap(facts: TcFacts, around: Surroundings) -> AllocatorJudgement:
    name, row = facts.info.id, facts.arenas[0]
    beyond = around.beyond_bytes if around.is_cut or not facts.is_whole else 0
    used = sum(size.used_bytes for size in facts.sizes)
    told = around.taken([(claim.start, claim.end) for claim in facts.claims if claim.what == "metadata"])
    metadata = row.metadata_bytes if told is None else told  # most of it was never touched
    untouched = row.free_bytes - row.free_resident_bytes if row.free_resident_bytes is not None else 0
    held = row.system_bytes - row.returned_bytes - untouched + metadata
    between = (row.central_bytes or 0) + row.tail_bytes
    judged = verdict.usual_verdict(held, used, around.taken_bytes.get(name), beyond, metadata, between, TCMALLOC_RULES)
    steps = verdict.what_is_in_use(judged.code)
    if judged.code in (codes.FREED_AND_HELD, codes.PART_HELD) and row.free_bytes >= verdict.WORTH_BYTES:
        steps.append(StepSentence(hint_command("purge --dry-run"), "shows what a purge would return to the OS", row.free_resident_bytes))
        if not facts.is_aggressive:
            steps.append(StepSentence(AGGRESSIVE_DECOMMIT.text, "at the next start returns each free span at once"))
    elif judged.code == codes.FREE_REGIONS:
        steps.append(StepSentence(hint_command("pins"), "shows which blocks keep spans from being returned"))
    caches = None if row.cached_bytes is None or row.transfer_bytes is None else row.cached_bytes + row.transfer_bytes
    parts = [
        AllocatorPart("in use", row.used_bytes),
        AllocatorPart("free spans", row.free_bytes),
        AllocatorPart("free objects in spans", row.central_bytes),
        AllocatorPart("thread and transfer caches", caches),
        AllocatorPart("ends of spans", row.tail_bytes),
        AllocatorPart("metadata", metadata),
    ]
    return AllocatorJudgement(
        name, (name,), held, judged, _make_findings(facts, row, "purge" in around.advisable.get(name, ())), steps, parts
    )


def _make_findings(facts: TcFacts, row: TcArena, can_purge: bool) -> List[Finding]:
    """Make findings on why free memory stays, the largest first."""
    caches, central = (row.cached_bytes or 0) + (row.transfer_bytes or 0), row.central_bytes or 0
    free = row.free_bytes if row.free_resident_bytes is None else row.free_resident_bytes
    mixed = "free objects share spans with objects in use: a span is returned only when all of it is free"
    mixed_hint = "which blocks keep them: %s" % hint_command("pins")
    mixed_sentence = make_sentence("%s of free objects in spans", SentenceSize(central))
    what = "thread caches and transfer caches hold freed objects"
    hint = "%s limits all of them together; each thread's: %s" % (CACHE_BYTES.variable, hint_command("tcache"))
    lines = [
        (free, _make_free_spans(facts, free, can_purge)),
        (central, Finding(mixed, mixed_sentence, mixed_hint, codes.FREE_REGIONS, size_bytes=central)),
        (caches, Finding(what, make_sentence("%s in caches", SentenceSize(caches)), hint, codes.THREAD_CACHES, size_bytes=caches)),
    ]
    worth = [(size, line) for size, line in lines if size >= verdict.WORTH_BYTES and 10 * size >= row.held_bytes]
    return [line for _, line in sorted(worth, key=lambda pair: -pair[0])]


def _make_free_spans(facts: TcFacts, size: int, can_purge: bool) -> Finding:
    is_off = facts.release_rate is not None and facts.release_rate.strip() in ("0", "0.0")
    what = "tcmalloc keeps unused pages: it returns some only while the program frees spans, and none while it is idle"
    if is_off:
        what = "tcmalloc never returns unused pages: TCMALLOC_RELEASE_RATE is 0"
    aggressive = "; %s at the next start returns each as it is freed" % AGGRESSIVE_DECOMMIT.text
    hint = ("`%s` returns them now" % hint_command("purge") if can_purge else "a purge returns them") + (
        "" if facts.is_aggressive else aggressive
    )
    return Finding(
        what,
        make_sentence("%s of free spans", SentenceSize(size)),
        hint,
        codes.PURGING_OFF if is_off else codes.UNUSED_PAGES,
        size_bytes=size,
    )
