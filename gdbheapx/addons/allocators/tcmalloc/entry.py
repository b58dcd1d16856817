"""tcmalloc's entry in the registry, the size classes of a usual build with pages of 8 KiB (SizeMap::Init in common.cc), its pages, and the
verdict and findings that `report` shows."""

from bisect import bisect_left
from functools import cache
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, List, Mapping, Optional, Sequence, Tuple

from gdbheapx.addons.allocators.gates import GATES, OF_GOOGLE, TC_FILES, TC_FUNCTION, TC_RELEASE
from gdbheapx.addons.allocators.tcmalloc.records import TcArena, TcBin, TcFacts
from gdbheapx.allocators.fingerprints import match_fingerprints
from gdbheapx.allocators.heap import Allocator, AllocatorInstance, plain_parts
from gdbheapx.allocators.measured import AGGRESSIVE_DECOMMIT, CACHE_BYTES
from gdbheapx.allocators.records import AllocatorJudgement, AllocatorPart, ArenaRow, HeapContext, Instances, Page, Surroundings
from gdbheapx.common import findings as codes
from gdbheapx.common import verdict
from gdbheapx.common.columns import ColumnsTable, columns_of
from gdbheapx.common.hints import hint_command
from gdbheapx.common.model import Finding, StepSentence
from gdbheapx.common.units import SentenceSize, make_sentence
from gdbheapx.inferior.base import Module, Target

if TYPE_CHECKING:
    from gdbheapx.addons.allocators.tcmalloc.structure import Tcmalloc

USUAL_PAGE_BYTES = 8 << 10
MOST_CLASS_BYTES = 256 << 10
"""Larger blocks are whole pages."""
MOVED_BYTES, MOVED_MOST = 64 << 10, 32
"""So much at once, and so many objects, go between a thread and the central list."""


@cache
def list_size_classes() -> Tuple[int, ...]:
    """Return the sizes in ascending order. Neighbouring sizes with equal numbers of pages and of objects in a span are one class."""
    made, before, size = [8], (1, USUAL_PAGE_BYTES // 8), 16
    while size <= MOST_CLASS_BYTES:
        # of a span: less than an eighth is left over, and a quarter of a transfer fits in
        pages, moved = 1, max(2, min(MOVED_MOST, MOVED_BYTES // size)) // 4
        while pages * USUAL_PAGE_BYTES % size > pages * USUAL_PAGE_BYTES >> 3 or pages * USUAL_PAGE_BYTES // size < moved:
            pages += 1
        shape = pages, pages * USUAL_PAGE_BYTES // size
        if shape == before:
            made.pop()
        made.append(size)
        before, size = shape, size + (16 if size < 128 else min(USUAL_PAGE_BYTES, 1 << (size.bit_length() - 4)))
    return tuple(made)


GATE = GATES[__name__]


class TcmallocEntry(Allocator["Tcmalloc", TcFacts]):
    """gperftools' tcmalloc."""

    name, fingerprint = GATE.name, GATE.fingerprint
    part_words = "spans and metadata"
    preload = "libtcmalloc_minimal.so.4"
    statuses = ("used", "free", "transfer", "tcache", "free-span", "returned", "tail", "metadata")
    known_capabilities = GATE.capabilities
    returning = TC_RELEASE
    records = MappingProxyType(
        {
            "arenas": "gdbheapx.addons.allocators.tcmalloc.records.TcArena",
            "bins": "gdbheapx.addons.allocators.tcmalloc.records.TcBin",
            "tunables": "gdbheapx.addons.allocators.tcmalloc.heap.TcTunables",
        }
    )

    def preload_bytes(self, request_bytes: int) -> int:
        """Round up to a size class of a distribution's library."""
        if request_bytes > MOST_CLASS_BYTES:
            return -(-request_bytes // USUAL_PAGE_BYTES) * USUAL_PAGE_BYTES
        return list_size_classes()[bisect_left(list_size_classes(), request_bytes)]

    def find(self, target: Target) -> Instances:
        """Every copy, by its structure."""
        objects = find_suspect_objects(target)
        if not objects:
            return Instances(())
        from gdbheapx.addons.allocators.tcmalloc.structure import find_tcmallocs

        return find_tcmallocs(target, objects)

    def open(self, located: "Tcmalloc", around: HeapContext) -> AllocatorInstance:
        """Open one of them."""
        from gdbheapx.addons.allocators.tcmalloc.heap import TcmallocHeap

        return TcmallocHeap(located, around)

    def arenas_page(self, rows: Sequence[ArenaRow], totals: Mapping[str, Optional[int]]) -> Page:
        """Yield a table with one row, whose system is the sum of the other columns except metadata."""
        yield ColumnsTable(columns_of(TcArena), rows, {**totals, "index": "total"} if len(rows) > 1 else None)

    def page(self, name: str, answer: Any) -> Page:
        """Return a table of size classes, or of settings."""
        from gdbheapx.addons.allocators.tcmalloc.heap import make_tunables_page

        return make_bins_page(answer) if name == "bins" else make_tunables_page(answer)

    def parts_page(self, allocator_id: str, parts: Sequence[AllocatorPart], totals: Mapping[str, Optional[int]]) -> Page:
        """Yield the parts of what one holds, and what it has returned."""
        yield from plain_parts(allocator_id, parts)
        if totals.get("returned_bytes"):
            yield make_sentence("plus %s returned to the OS: address space only", SentenceSize(totals["returned_bytes"]))

    def judge(self, facts: Sequence[TcFacts], around: Surroundings) -> List[AllocatorJudgement]:
        """Judge each heap."""
        return [_judge_heap(heap, around) for heap in facts]


def find_suspect_objects(target: Target) -> List[Module]:
    """Objects that may hold one. A program that has malloc itself is asked for its texts, no other is."""
    modules, owner = target.modules(), target.dynamic_symbol("malloc")
    known = [module for module in modules if TC_FILES.match(module.file_name)]
    for exported in map(target.dynamic_symbol, (TC_FUNCTION, OF_GOOGLE)):
        if exported is not None and exported.module not in known:
            known.append(exported.module)
    alone = modules[0] if len(modules) == 1 else None
    program = owner.module if owner is not None else alone
    if program is not None and program.is_executable and program not in known and match_fingerprints(target, program, GATE.texts):
        known.append(program)
    return known


def make_bins_page(rows: Sequence[TcBin]) -> Page:
    """Yield a table with a row for each size class."""
    yield ColumnsTable(
        columns_of(TcBin), [row if row.size_bytes is not None else {**row._asdict(), "size_bytes": "own span"} for row in rows]
    )
    if not rows:
        yield "no spans"


SPANS = "free objects in spans with objects in use"
FRAGMENTED = verdict.VerdictRule(codes.FREE_REGIONS, verdict.is_fragmented, "Fragmented", SPANS, "free")
TCMALLOC_RULES = tuple(
    rule._replace(causes=(FRAGMENTED, rule)) if rule.code == codes.FREED_AND_HELD else rule for rule in verdict.USUAL_RULES
)


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


ALLOCATOR = TcmallocEntry()
"""What the registry asks for."""
