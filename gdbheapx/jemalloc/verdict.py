"""Verdict on one jemalloc: the parts of its memory, and whether that is a leak or memory that jemalloc keeps. Computed from figures
alone.
"""

from itertools import product
from typing import Any, Dict, Iterator, List, Mapping, NamedTuple, Optional, Sequence

from gdbheapx.allocators import huge_pages
from gdbheapx.allocators.measured import NO_HUGE, NO_OBLIVIOUS
from gdbheapx.allocators.records import AllocatorPart, Surroundings
from gdbheapx.common import findings as codes
from gdbheapx.common import verdict
from gdbheapx.common.columns import add_values
from gdbheapx.common.hints import hint_command
from gdbheapx.common.model import Finding, StepSentence
from gdbheapx.common.units import Sentence, SentenceSize, format_share, join_sentences, make_sentence
from gdbheapx.common.verdict import (
    ALLOCATED,
    LITTLE_BYTES,
    SMALL_BYTES,
    SPREAD_PARTS,
    SPREAD_RATIO,
    UNBOUNDED,
    WORTH_BYTES,
    Ask,
    HeapCase,
    HeapEvidence,
    HeapVerdict,
    VerdictRule,
    is_mostly_used,
    is_much_kept,
    is_rest,
    judge_heap,
    list_ends,
)
from gdbheapx.jemalloc.records import JemallocArena, JemallocBin, JemallocFacts, PublicNames

PARTS = {
    "used_bytes": "in use by the program",
    "cached_bytes": "in thread caches",
    "free_regions_bytes": "free regions in slabs",
    "dirty_bytes": "dirty pages",
    "muzzy_bytes": "muzzy pages",
    "metadata_bytes": "jemalloc's metadata",
    "rounding_bytes": "rounding to pages",
    "sampled_bytes": "rounding of sampled blocks",
    "huge_dirty_bytes": "dirty pages in huge pages (HPA)",
    "huge_untouched_bytes": "untouched, in huge pages (HPA)",
    "pinned_bytes": "pinned pages, unused",
    "returned_resident_bytes": "returned, but still in RAM",
    "other_bytes": "extents between two states",
    "unparsed_bytes": "extents not read",
}
"""What jemalloc holds, by field of Figures."""
ALWAYS_SHOWN = 7


class JemallocVerdictFigures(NamedTuple):
    """Parts of the memory that one jemalloc has from the kernel, which add up. Retained address space is a part as far as it is in RAM."""

    used_bytes: int
    """In use by the program; where thread caches are unknown they are in here."""
    cached_bytes: Optional[int]
    """In thread caches."""
    free_regions_bytes: int
    """Free regions of slabs that have used ones beside them."""
    rounding_bytes: int
    """Ends of slabs, and what large allocations are rounded up by."""
    dirty_bytes: Optional[int]
    """None where the build's counters are not known, and its huge page allocator may keep some."""
    muzzy_bytes: Optional[int]
    metadata_bytes: Optional[int]
    """None in builds that do not count it."""
    retained_bytes: int
    reclaimable_resident_bytes: Optional[int]
    is_known: bool = True
    """False: not one arena could be read, and no part is more than a zero."""
    returned_resident_bytes: Optional[int] = None
    """Retained, and in RAM all the same; None where that is not known."""
    returned_huge_bytes: Optional[int] = None
    """Those of them that are parts of huge pages."""
    taken_bytes: Optional[int] = None
    """What of all parts takes memory: RAM, swap, pages of hugetlbfs; of a core its pages."""
    unused_taken_bytes: Optional[int] = None
    """What of dirty and muzzy pages a core has, where that decides."""
    most_metadata_bytes: Optional[int] = None
    """What metadata can be at most; None: no limit is known."""
    most_cached_bytes: Optional[int] = None
    """The same of thread caches."""
    unparsed_bytes: int = 0
    """Of active pages: in use or not, nobody knows."""
    beyond_bytes: int = 0
    """The most that there may be beyond: extents that could not be read."""
    is_core: bool = False
    are_zeros_silent: bool = False
    can_purge: bool = False
    """gdbheapx would not refuse it here."""
    missing: Sequence[str] = ()
    """What could not be read."""
    pinned_bytes: Optional[int] = 0
    """Unused pages that extent hooks can never return; None where no layout is known."""
    sampled_bytes: int = 0
    """What small blocks are rounded up by that the heap profiler sampled."""
    huge_dirty_bytes: int = 0
    """Dirty pages of the huge page allocator, which no purge reaches."""
    huge_untouched_bytes: int = 0
    """Pages in RAM that it never gave to anybody: parts of huge pages."""
    other_bytes: int = 0
    """Extents between two states."""
    dirty_mult: Optional[int] = None
    """See HugePages."""
    has_oblivious_option: bool = False
    """MALLOC_CONF can turn cache_oblivious off (from 5.3.1)."""
    present: Mapping[str, int] = {}
    """What of each part is in RAM or swap, or in the core, by the pages of its extents; empty where that cannot be told."""

    @property
    def in_memory(self) -> "JemallocVerdictFigures":
        """Return the figures with each part reduced to the bytes of it that are in memory, or unchanged where those are unknown."""
        if not self.present:
            return self
        parts: Dict[str, Any] = dict(self.present)
        return self._replace(**parts, taken_bytes=None, reclaimable_resident_bytes=None, unused_taken_bytes=None)

    @property
    def absent_bytes(self) -> int:
        """Return the bytes of all parts that are not in memory."""
        return sum(max(0, getattr(self, name) - size) for name, size in self.present.items() if getattr(self, name) is not None)

    @property
    def unused_pages_bytes(self) -> int:
        """Return the bytes that a purge gives back; an unknown part counts as 0."""
        return (self.dirty_bytes or 0) + (self.muzzy_bytes or 0)

    @property
    def told_unused_bytes(self) -> Optional[int]:
        """Return the bytes that a purge gives back, as shown to the user; None where a part is unknown."""
        return None if self.dirty_bytes is None or self.muzzy_bytes is None else self.unused_pages_bytes

    @property
    def unused_here_bytes(self) -> Optional[int]:
        """Return the dirty and muzzy bytes that are in RAM, or in the core; None where that is unknown."""
        if self.reclaimable_resident_bytes is not None:
            return self.reclaimable_resident_bytes
        return self.in_memory.unused_pages_bytes if self.present else self.unused_taken_bytes

    @property
    def purgeable_bytes(self) -> Optional[int]:
        """Return the bytes that a purge gives back, limited to those in RAM, or in the core, where that is known."""
        known = self.unused_here_bytes
        return self.told_unused_bytes if known is None or self.told_unused_bytes is None else min(known, self.told_unused_bytes)

    @property
    def worth_purging(self) -> bool:
        """A purge would give back enough of RAM to talk about."""
        known = self.unused_here_bytes
        unused = self.unused_pages_bytes if known is None else min(known, self.unused_pages_bytes)
        return unused > WORTH_BYTES or (5 * unused > self.held_bytes and unused > SMALL_BYTES)

    @property
    def held_bytes(self) -> int:
        """Return the sum of all parts, in RAM or not."""
        return sum(getattr(self, name) or 0 for name in PARTS)


def make_jemalloc_figures(facts: JemallocFacts, around: Surroundings) -> JemallocVerdictFigures:
    """The sums over its arenas."""
    rows, returned = facts.arenas, add_values(row.retained_resident_bytes for row in facts.arenas)
    taken, own = around.taken_bytes.get(facts.info.id), around.taken(facts.bases)
    """Of the base blocks, in which metadata lies: they are mapped 2 MiB at a time, and mostly never touched."""
    unparsed = add_values(row.unparsed_bytes for row in rows)
    told = [
        (not facts.is_whole or unparsed is None, "extents"),
        (bool(unparsed), "parts of extents"),
        (any(row.cached_bytes is None for row in rows), "thread caches"),
        (any(row.dirty_bytes is None or row.muzzy_bytes is None for row in rows), "dirty pages"),
        (any(row.metadata_bytes is None for row in rows), "metadata"),
    ]
    found = sum_jemalloc_arenas(rows, facts.bins, unparsed or 0)._replace(
        taken_bytes=None if taken is None else max(0, taken - (returned or 0)),
        most_metadata_bytes=sum(end - start for start, end in facts.bases) if own is None else own,
        most_cached_bytes=facts.most_cached_bytes,
        huge_untouched_bytes=around.taken(facts.huge.untouched) or 0 if facts.huge.untouched else 0,
        dirty_mult=facts.huge.dirty_mult,
        has_oblivious_option=facts.conditions.has_oblivious_option,
        beyond_bytes=around.beyond_bytes if not facts.is_whole or unparsed is None else 0,
        is_core=around.is_core,
        are_zeros_silent=around.are_zeros_silent,
        can_purge="purge" in around.advisable.get(facts.info.id, ()),
        missing=[what for is_missing, what in told if is_missing],
    )
    if facts.is_whole and not unparsed:
        found = found._replace(present=_find_present(found, facts, around))
    is_told = found.present or found.reclaimable_resident_bytes is not None or found.taken_bytes is None or not found.unused_pages_bytes
    if is_told or found.held_bytes - (found.taken_bytes or 0) <= SMALL_BYTES:
        return found
    return found._replace(unused_taken_bytes=around.taken(facts.unused_ranges()))


def _find_present(found: JemallocVerdictFigures, facts: JemallocFacts, around: Surroundings) -> Mapping[str, int]:
    """See Figures.present. A core needs a second walk, where some part is not in it."""
    own, huge = around.taken(facts.bases), around.taken(facts.huge.dirty) if facts.huge.dirty else 0
    absent = facts.absent
    if absent is None and around.core_runs is not None:
        absent = facts.absent_beside(around.core_runs)
    if absent is None or own is None or huge is None:
        return {}
    parts = {
        "used_bytes": found.used_bytes - absent.used - (absent.cached if found.cached_bytes is None else 0),
        "free_regions_bytes": found.free_regions_bytes - absent.free,
        "rounding_bytes": found.rounding_bytes - absent.rounding,
        "sampled_bytes": found.sampled_bytes - absent.sampled,
        "metadata_bytes": own,
        "huge_dirty_bytes": huge,
        "other_bytes": found.other_bytes - absent.other,
    }
    gone = {"cached_bytes": absent.cached, "dirty_bytes": absent.dirty, "muzzy_bytes": absent.muzzy, "pinned_bytes": absent.pinned}
    for name, size in gone.items():
        held = getattr(found, name)
        if held is not None:
            parts[name] = held - size
    return {name: max(0, size) for name, size in parts.items()}


def sum_jemalloc_arenas(rows: Sequence[JemallocArena], bins: Sequence[JemallocBin], unparsed: int = 0) -> JemallocVerdictFigures:
    """Return the sums over the arenas. An unknown part of one arena counts as 0, unless that part may be unknown as a whole."""
    used = add_values(row.used_bytes for row in rows)
    allocated, active = _sum_known(rows, "allocated_bytes"), _sum_known(rows, "active_bytes")
    free = sum(row.bytes for row in bins if row.kind == "small")
    rounding, sampled = add_values(row.rounding_bytes for row in rows), _sum_known(rows, "sampled_rounding_bytes")
    if rounding is None:  # a snapshot of an older release
        rounding = max(0, active - allocated - free - unparsed)
    return JemallocVerdictFigures(
        used_bytes=allocated if used is None else used,
        cached_bytes=add_values(row.cached_bytes for row in rows) if used is not None else None,
        free_regions_bytes=free,
        rounding_bytes=rounding - sampled,
        sampled_bytes=sampled,
        huge_dirty_bytes=_sum_known(rows, "huge_dirty_bytes"),
        other_bytes=_sum_known(rows, "other_bytes"),
        unparsed_bytes=unparsed,
        dirty_bytes=add_values(row.dirty_bytes for row in rows),
        muzzy_bytes=add_values(row.muzzy_bytes for row in rows),
        metadata_bytes=add_values(row.metadata_bytes for row in rows),
        pinned_bytes=add_values(row.pinned_bytes for row in rows),
        retained_bytes=_sum_known(rows, "retained_bytes"),
        reclaimable_resident_bytes=add_values(row.reclaimable_resident_bytes for row in rows),
        is_known=bool(rows),
        returned_resident_bytes=add_values(row.retained_resident_bytes for row in rows),
        returned_huge_bytes=add_values(row.retained_huge_bytes for row in rows),
    )


def _sum_known(rows: Sequence[JemallocArena], name: str) -> int:
    return sum(getattr(row, name) or 0 for row in rows)


def list_jemalloc_parts(found: JemallocVerdictFigures) -> List[AllocatorPart]:
    """Largest first, unknown ones last; none where nothing is known."""
    if not found.is_known:
        return []
    here = found.in_memory
    rows = [
        AllocatorPart(name, getattr(found, field), getattr(here, field) if found.present else None)
        for place, (field, name) in enumerate(PARTS.items())
        if place < ALWAYS_SHOWN or getattr(found, field)
    ]
    return sorted(rows, key=lambda part: -1 if part.bytes is None else part.bytes, reverse=True)


def list_jemalloc_cases(all_parts: JemallocVerdictFigures) -> List[HeapCase]:
    """Return the corners of what is possible: each unknown as small and as large as it can be."""
    found = all_parts.in_memory
    most = found.used_bytes if found.most_cached_bytes is None else min(found.used_bytes, found.most_cached_bytes)
    rest = UNBOUNDED if found.taken_bytes is None else found.taken_bytes
    most_metadata = rest if found.most_metadata_bytes is None else found.most_metadata_bytes
    ranges = [
        list_ends(found.cached_bytes, most),
        list_ends(found.dirty_bytes, rest),
        list_ends(found.muzzy_bytes, rest),
        list_ends(found.metadata_bytes, most_metadata, _least_metadata(found)),
        *(list_ends(None, most) for most in (found.unparsed_bytes, found.beyond_bytes, found.beyond_bytes)),
    ]
    made: List[HeapCase] = []
    for cached, dirty, muzzy, own, unparsed, used, unused in product(*ranges):
        corner = found._replace(
            used_bytes=found.used_bytes - (cached if found.cached_bytes is None else 0) + unparsed,
            unparsed_bytes=found.unparsed_bytes - unparsed,
            cached_bytes=cached,
            dirty_bytes=dirty,
            muzzy_bytes=muzzy,
            metadata_bytes=own,
        )
        for case in _weigh_cases(corner):
            more = case._replace(held=case.held + used + unused, used=case.used + used, free=case.free + unused)
            gone = all_parts.absent_bytes
            made.append(more._replace(gone=gone, gone_free=gone - all_parts.used_bytes + found.used_bytes) if all_parts.present else more)
    return list(dict.fromkeys(made))


def _least_metadata(found: JemallocVerdictFigures) -> int:
    """Return the memory that is taken and belongs to no other part, a lower limit of metadata. 0 where another part is unknown or was not
    read.
    """
    if found.taken_bytes is None or found.told_unused_bytes is None or found.beyond_bytes:
        return 0
    gone = 0 if found.reclaimable_resident_bytes is None else max(0, found.unused_pages_bytes - found.reclaimable_resident_bytes)
    return max(0, found.taken_bytes - (found.held_bytes - (found.returned_resident_bytes or 0) - gone))


def _weigh_cases(found: JemallocVerdictFigures) -> List[HeapCase]:
    """Return the cases weighed by the memory that they take: one case where the pages are known, two where a core does not show which
    unused pages it lacks.
    """
    unused, metadata, cached = found.unused_pages_bytes, found.metadata_bytes or 0, found.cached_bytes or 0
    whole = found.held_bytes - (found.returned_resident_bytes or 0)
    gone = None if found.taken_bytes is None else max(0, whole - found.taken_bytes)
    here = found.unused_here_bytes
    if here is not None:
        told = max(0, unused - here)
        ends = [told if gone is None or found.missing else min(told, gone)]  # what is in swap takes memory too
    elif gone is None:
        ends = [0]
    elif gone <= SMALL_BYTES and not found.missing:
        ends = [min(gone, unused)]  # whose this is weighs nothing
    else:
        ends = sorted({min(unused, max(0, gone - whole + unused)), min(unused, gone)})
    made = []
    for gone_unused in ends:
        lost = gone_unused if gone is None else max(gone, gone_unused)
        left = lost - gone_unused
        # its blocks are mapped 2 MiB at a time and mostly never touched: metadata is weighed as jemalloc counts it
        left -= min(metadata, left) if gone is not None else 0
        held = max(0, whole - gone_unused - left + (found.returned_resident_bytes or 0))
        least = max(0, found.used_bytes - left)  # of which part it is nothing tells: at worst of none, or of all that is in use
        for used in [least] if left <= SMALL_BYTES else [least, min(found.used_bytes, held)]:
            case = HeapCase(held, used, unused - gone_unused + found.huge_dirty_bytes, cached, found.free_regions_bytes, metadata=metadata)
            rounding = found.rounding_bytes + found.sampled_bytes
            case = case._replace(huge_dirty=found.huge_dirty_bytes, rounding=rounding, gone=gone_unused + left, gone_free=gone_unused)
            made.append(case)
    return made


def _is_small(ask: Ask) -> bool:
    if ask(lambda case: case.held < LITTLE_BYTES):
        return True
    return ask(lambda case: case.held - case.metadata < SMALL_BYTES) and ask(lambda case: case.held < 2 * LITTLE_BYTES)


def _is_fragmented(ask: Ask) -> bool:
    if not ask(lambda case: SPREAD_PARTS * case.between >= case.held):
        return False
    return ask(lambda case: case.between >= SPREAD_RATIO * (case.free - case.huge_dirty + case.cached))


JEMALLOC_RULES = (
    VerdictRule(codes.SMALL_HEAP, _is_small, "Small"),
    VerdictRule(codes.IN_USE, is_mostly_used, "In use", ALLOCATED),
    VerdictRule(codes.UNUSED_PAGES, is_much_kept, "Kept", "free memory that jemalloc keeps", "free"),
    VerdictRule(codes.FREE_REGIONS, _is_fragmented, "Fragmented", "free regions in slabs that used regions keep", "between"),
    VerdictRule(codes.PART_HELD, is_rest, "In use", ALLOCATED),
)


def judge_jemalloc(
    found: JemallocVerdictFigures, bins: Sequence[JemallocBin], names: PublicNames, returned: Optional[huge_pages.Judged] = None
) -> HeapVerdict:
    """The verdict, then what else stands out; `names` for the calls that help, `returned`: on what it gave back and is in RAM."""
    if not found.is_known:
        what = "cannot read any of jemalloc's arenas"
        line = verdict.inconclusive_finding(what, "how much memory it holds is unknown", "see the problems below", codes.ALLOCATOR_UNREAD)
        return verdict.of_lines([line])
    cases = list_jemalloc_cases(found)
    case = cases[0]
    gone: Sentence = make_sentence("")
    if 100 * case.gone > case.held or case.gone > SMALL_BYTES:  # else the sum of the table reads the same
        gone = make_sentence("; %s more are not in %s", SentenceSize(case.gone), "the core" if found.is_core else "RAM")
    is_own = case.metadata > case.held - SMALL_BYTES
    own = make_sentence(", %s of it its own metadata", SentenceSize(case.metadata)) if is_own else ""
    small = make_sentence("jemalloc holds %s%s%s", SentenceSize(case.held), own, gone if len(cases) == 1 else "")
    unsure = [
        (found.taken_bytes is None and found.reclaimable_resident_bytes is None, "which pages are in RAM"),
        (huge_pages.may_decide(found.returned_resident_bytes, found.retained_bytes, found.is_core), "how much returned memory is in RAM"),
    ]
    evidence = HeapEvidence(
        cases,
        {"used": "in use by the program", "free": "unused pages", "between": "free regions in slabs"},
        small,
        found.missing,
        [what for is_unknown, what in unsure if is_unknown],
        gone,
        "the problems below say why; where a core was cut, take a whole one",
        found.are_zeros_silent,
    )
    judged = judge_heap(evidence, JEMALLOC_RULES, lambda code: _make_hint(code, found, bins))
    if judged.kind in (verdict.SMALL, verdict.INCONCLUSIVE):
        return judged
    line, more = judged.lines[0], ""
    if line.code == codes.UNUSED_PAGES and 2 * (found.muzzy_bytes or 0) > found.unused_pages_bytes:
        more = "; most of the unused pages are muzzy (MADV_FREE): the kernel takes those when memory is short"
    if line.code == codes.PART_HELD and 2 * (found.cached_bytes or 0) >= found.held_bytes:
        more = "; most of the rest is in thread caches"
    line = line._replace(details=make_sentence("%s%s", line.details, more))
    lines = [line, *_side_lines(found, case, bins, line.code, names)]
    return huge_pages.add_huge_page_verdict(returned, found.returned_resident_bytes, case.held, judged._replace(lines=lines))


def _make_hint(code: str, found: JemallocVerdictFigures, bins: Sequence[JemallocBin]) -> Optional[str]:
    if code == codes.IN_USE:
        return verdict.GROWING_HINT
    if code == codes.FREE_REGIONS:
        return _fragmentation_hint(bins)
    if code == codes.UNUSED_PAGES and found.huge_dirty_bytes > found.unused_pages_bytes:
        return huge_dirty_hint(found.huge_dirty_bytes, found.dirty_mult)
    return purge_hint(found) if code == codes.UNUSED_PAGES or found.worth_purging else None


def huge_dirty_hint(dirty_bytes: int, dirty_mult: Optional[int]) -> Sentence:
    """Return the text on dirty pages of the huge page allocator, and the limit on them (hpa.c: hpa_ndirty_max)."""
    most = "opt.hpa_dirty_mult bounds them"
    if dirty_mult is not None:
        most = "for each active page %.2f of them may stay (opt.hpa_dirty_mult)" % (dirty_mult / 65536)
        most = most if dirty_mult >= 0 else "any number of them may stay: opt.hpa_dirty_mult is -1"
    return make_sentence("%s are dirty pages in huge pages (opt.hpa): no purge reaches them; %s", SentenceSize(dirty_bytes), most)


def purge_hint(found: JemallocVerdictFigures) -> Sentence:
    """Return the text on the memory that a purge of all arenas would return."""
    here, where = found.unused_here_bytes, "the core" if found.is_core else "RAM now"
    in_ram = "" if here is None else make_sentence(", %s of it in %s", SentenceSize(here), where)
    who = "`%s`" % hint_command("purge") if found.can_purge else "a purge"
    return make_sentence("%s would return %s to the OS%s", who, SentenceSize(found.told_unused_bytes), in_ram)


def make_jemalloc_huge_cure(names: PublicNames, thp: Optional[str]) -> Optional[StepSentence]:
    """thp:never has it ask the kernel for small pages (pages.c: pages_set_thp_state); None where it is set, or there is none."""
    if thp in ("never", "not supported"):
        return None
    return StepSentence(names.setting(NO_HUGE.value), "at the next start disables huge pages for jemalloc's memory")


def _fragmentation_hint(bins: Sequence[JemallocBin]) -> Sentence:
    sizes = {row.max_size_bytes: 0 for row in bins if row.kind == "small"}
    for row in bins:
        if row.kind == "small":
            sizes[row.max_size_bytes] += row.bytes
    least = sum(sizes.values()) // 10
    worst = sorted((part, size) for size, part in sizes.items() if part and part >= least)[-3:]
    named = join_sentences(", ", [make_sentence("%s in regions of %d bytes", SentenceSize(part), size) for part, size in reversed(worst)])
    return make_sentence(
        "%s; no purge reaches these: a slab is returned only when all its regions are free", named or "spread over all sizes"
    )


def _side_lines(
    found: JemallocVerdictFigures, case: HeapCase, bins: Sequence[JemallocBin], main: Optional[str], names: PublicNames
) -> Iterator[Finding]:
    held, here = case.held, found.in_memory

    def make_line(what: str, size: int, hint: str, code: str, evidence: str = "%s (%s)") -> Finding:
        return Finding(what, make_sentence(evidence, SentenceSize(size), format_share(size, held)), hint, code, size_bytes=size)

    if here.sampled_bytes > WORTH_BYTES and 4 * here.sampled_bytes > held:
        hint = "a larger lg_prof_sample samples fewer blocks; without prof:true there is none of it"
        evidence = "%s (%s) is rounding: with opt.prof on, each sampled block takes whole pages"
        yield make_line("much memory is rounding around sampled blocks", here.sampled_bytes, hint, codes.SAMPLED_BLOCKS, evidence)
    if here.rounding_bytes > 4 * SMALL_BYTES and 10 * here.rounding_bytes > held:
        what = "much memory is a page more for each large block (opt.cache_oblivious)"
        hint = "this release has no option against it: it takes a build with --disable-cache-oblivious"
        if found.has_oblivious_option:
            hint = "%s at the next start ends it" % names.setting(NO_OBLIVIOUS.value)
        yield make_line(what, here.rounding_bytes, hint, codes.LARGE_ROUNDING)
    if main != codes.UNUSED_PAGES and here.huge_dirty_bytes > WORTH_BYTES and 10 * here.huge_dirty_bytes > held:
        hint = huge_dirty_hint(found.huge_dirty_bytes, found.dirty_mult)
        yield make_line("much memory is dirty pages in huge pages", here.huge_dirty_bytes, hint, codes.UNUSED_PAGES)
    if main != codes.FREE_REGIONS and here.free_regions_bytes > WORTH_BYTES and 4 * here.free_regions_bytes > held:
        what = "much memory is free regions in slabs that are still in use"
        yield make_line(what, here.free_regions_bytes, _fragmentation_hint(bins), codes.FREE_REGIONS)
    if here.pinned_bytes is not None and here.pinned_bytes > WORTH_BYTES and 10 * here.pinned_bytes > held:
        hint = "no purge reaches them: the program's extent hooks say that this memory cannot be returned; jemalloc reuses it first"
        yield make_line("much memory is unused pinned pages", here.pinned_bytes, hint, codes.PINNED_PAGES)
    if here.cached_bytes is not None and 10 * here.cached_bytes > held:
        hint = "no purge reaches it: only the thread itself can free it, with %s, or over time if it keeps allocating"
        flush, evidence = names.call('"thread.tcache.flush"'), "%s (%s of what jemalloc holds)"
        yield make_line("much memory is in thread caches", here.cached_bytes, hint % flush, codes.THREAD_CACHES, evidence)
    if here.metadata_bytes is not None and here.metadata_bytes > WORTH_BYTES and 5 * here.metadata_bytes > held:
        hint = "it never shrinks; fewer arenas (narenas) need less of it"
        yield make_line("jemalloc's own bookkeeping uses much memory", here.metadata_bytes, hint, codes.METADATA)
