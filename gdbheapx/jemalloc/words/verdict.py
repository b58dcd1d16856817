"""Where one jemalloc's memory is, and whether that is a leak or jemalloc holding it. Figures in, sentences out."""

from typing import List, NamedTuple, Optional, Sequence, Tuple

from gdbheapx import findings as codes
from gdbheapx import verdict
from gdbheapx.allocators import huge_pages
from gdbheapx.allocators.records import Part
from gdbheapx.columns import add
from gdbheapx.jemalloc.forms import PublicNames
from gdbheapx.jemalloc.records import JemallocArena, JemallocBin
from gdbheapx.model import Finding, Step
from gdbheapx.units import Said, Size, joined, say, share
from gdbheapx.verdict import GROWING, SMALL_BYTES, Verdict, is_much, of_lines

SMALL_HEAP_BYTES = 8 * SMALL_BYTES
"""A jemalloc that was hardly used holds 3 MiB, most of it metadata."""
_CODES = {
    verdict.LEAK_LIKE: codes.IN_USE,
    verdict.HOARDING: codes.UNUSED_PAGES,
    verdict.FRAGMENTED: codes.FREE_REGIONS,
    verdict.MIXED: codes.PART_HELD,
}


class Figures(NamedTuple):
    """What one jemalloc has from the kernel, in parts that add up. Retained address space is a part as far as it is in RAM."""

    used_bytes: int
    """In use by the program; where thread caches are unknown they are in here."""
    cached_bytes: Optional[int]
    """In thread caches."""
    free_regions_bytes: int
    """Free regions of slabs that have used ones beside them."""
    rounding_bytes: int
    """What else active pages hold: the ends of slabs and of large allocations."""
    dirty_bytes: Optional[int]
    """None where the build's counters are not known, and its huge page allocator may keep some."""
    muzzy_bytes: int
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

    @property
    def unused_pages_bytes(self) -> int:
        """What a purge gives back, as far as it is known."""
        return (self.dirty_bytes or 0) + self.muzzy_bytes

    @property
    def told_unused_bytes(self) -> Optional[int]:
        """The same for people; None where a part is not known."""
        return None if self.dirty_bytes is None else self.unused_pages_bytes

    @property
    def worth_purging(self) -> bool:
        """A purge would give back enough to talk about."""
        return self.unused_pages_bytes > 16 * SMALL_BYTES or 5 * self.unused_pages_bytes > self.held_bytes

    @property
    def held_bytes(self) -> int:
        """All parts."""
        known = (
            self.used_bytes,
            self.cached_bytes,
            self.free_regions_bytes,
            self.rounding_bytes,
            self.unused_pages_bytes,
            self.metadata_bytes,
        )
        return sum(part or 0 for part in (*known, self.returned_resident_bytes))


def figures(rows: Sequence[JemallocArena], bins: Sequence[JemallocBin]) -> Figures:
    """The sums over its arenas. A part of one arena that is not known counts as nothing, but for what may be unknown as a whole."""
    used, allocated, active = add(row.used_bytes for row in rows), _known(rows, "allocated_bytes"), _known(rows, "active_bytes")
    free = sum(row.bytes for row in bins if row.kind == "small")
    return Figures(
        used_bytes=allocated if used is None else used,
        cached_bytes=add(row.cached_bytes for row in rows),
        free_regions_bytes=free,
        rounding_bytes=max(0, active - allocated - free),
        dirty_bytes=add(row.dirty_bytes for row in rows),
        muzzy_bytes=_known(rows, "muzzy_bytes"),
        metadata_bytes=add(row.metadata_bytes for row in rows),
        retained_bytes=_known(rows, "retained_bytes"),
        reclaimable_resident_bytes=add(row.reclaimable_resident_bytes for row in rows),
        is_known=bool(rows),
        returned_resident_bytes=add(row.retained_resident_bytes for row in rows),
        returned_huge_bytes=add(row.retained_huge_bytes for row in rows),
    )


def _known(rows: Sequence[JemallocArena], name: str) -> int:
    return sum(getattr(row, name) or 0 for row in rows)


def parts(found: Figures) -> List[Part]:
    """Largest first, unknown ones last; none where nothing is known."""
    if not found.is_known:
        return []
    rows = [
        Part("in use by the program", found.used_bytes),
        Part("in thread caches", found.cached_bytes),
        Part("free regions in slabs", found.free_regions_bytes),
        Part("dirty pages", found.dirty_bytes),
        Part("muzzy pages", found.muzzy_bytes),
        Part("jemalloc's metadata", found.metadata_bytes),
        Part("rounding to pages", found.rounding_bytes),
    ]
    if found.returned_resident_bytes:
        rows.append(Part("returned, but still in RAM", found.returned_resident_bytes))
    return sorted(rows, key=lambda part: -1 if part.bytes is None else part.bytes, reverse=True)


def judge(found: Figures, bins: Sequence[JemallocBin], names: PublicNames, returned: Optional[huge_pages.Judged] = None) -> Verdict:
    """The verdict, then what else stands out; `names` for the calls that help, `returned`: on what it gave back and is in RAM."""
    held = found.held_bytes
    if not found.is_known:
        what = "no verdict: cannot read any of jemalloc's arenas"
        return of_lines(verdict.UNREAD, [Finding(what, "what it holds is unknown", "see the problems below", codes.ALLOCATOR_UNREAD)])
    if held < SMALL_HEAP_BYTES:
        return of_lines(verdict.SMALL, [Finding("the heap is small", say("jemalloc holds %s", Size(held)), None, codes.SMALL_HEAP)])
    if found.metadata_bytes is not None and held - found.metadata_bytes < SMALL_BYTES and held < 2 * SMALL_HEAP_BYTES:
        evidence = say("jemalloc holds %s, %s of it its own metadata", Size(held), Size(found.metadata_bytes))
        return of_lines(verdict.SMALL, [Finding("the heap is small", evidence, None, codes.SMALL_HEAP)])
    evidence = say(
        "%s of %s (%s) are in use by the program, %s (%s) are unused pages, %s (%s) are free regions in slabs",
        Size(found.used_bytes),
        Size(held),
        share(found.used_bytes, held),
        Size(found.told_unused_bytes),
        share(found.told_unused_bytes, held),
        Size(found.free_regions_bytes),
        share(found.free_regions_bytes, held),
    )
    kind, what, hint = _main(found, bins)
    lines = [Finding(what, evidence, hint, _CODES[kind]), *_side_lines(found, bins, kind, names)]
    return huge_pages.verdict(returned, found.returned_resident_bytes, held, of_lines(kind, lines))


def _main(found: Figures, bins: Sequence[JemallocBin]) -> Tuple[str, str, Optional[str]]:
    held = found.held_bytes
    if found.used_bytes >= 0.8 * held:
        return verdict.LEAK_LIKE, "leak-like: the program itself holds the memory", GROWING
    if is_much(found.unused_pages_bytes, held):
        return verdict.HOARDING, "hoarding: jemalloc holds whole pages that the program has freed", purge_hint(found)
    idle = found.unused_pages_bytes + found.free_regions_bytes + (found.cached_bytes or 0)
    if 4 * found.free_regions_bytes >= held and 3 * found.free_regions_bytes >= 2 * idle:
        return verdict.FRAGMENTED, "fragmented: free regions are in slabs that used regions keep alive", _fragmentation_hint(bins)
    return verdict.MIXED, "mixed: part is in use, part is held by jemalloc", purge_hint(found) if found.worth_purging else None


def purge_hint(found: Figures) -> Said:
    """What a purge of all arenas would give."""
    resident = found.reclaimable_resident_bytes
    in_ram = "" if resident is None else say(", %s of it in RAM now", Size(resident))
    return say("gdbheapx purge would return %s to the OS%s", Size(found.told_unused_bytes), in_ram)


def huge_pages_cure(names: PublicNames, thp: Optional[str]) -> Optional[Step]:
    """thp:never has it ask the kernel for small pages (pages.c: pages_set_thp_state); None where it is set, or there is none."""
    if thp in ("never", "not supported"):
        return None
    return Step(names.setting("thp:never"), "at the next start disables huge pages for jemalloc's memory")


def _fragmentation_hint(bins: Sequence[JemallocBin]) -> Said:
    sizes = {row.max_size_bytes: 0 for row in bins if row.kind == "small"}
    for row in bins:
        if row.kind == "small":
            sizes[row.max_size_bytes] += row.bytes
    least = sum(sizes.values()) // 10
    worst = sorted((part, size) for size, part in sizes.items() if part and part >= least)[-3:]
    named = joined(", ", [say("%s in regions of %d bytes", Size(part), size) for part, size in reversed(worst)])
    return say("%s; no purge reaches these: a slab is returned only when all its regions are free", named or "spread over all sizes")


def _side_lines(found: Figures, bins: Sequence[JemallocBin], kind: str, names: PublicNames) -> List[Finding]:
    lines = []
    held = found.held_bytes
    if kind != verdict.FRAGMENTED and found.free_regions_bytes > 16 * SMALL_BYTES and 4 * found.free_regions_bytes > held:
        evidence = say("%s (%s)", Size(found.free_regions_bytes), share(found.free_regions_bytes, held))
        lines.append(
            Finding("much memory is free regions in slabs that are still in use", evidence, _fragmentation_hint(bins), codes.FREE_REGIONS)
        )
    if found.cached_bytes is not None and 10 * found.cached_bytes > held:
        evidence = say("%s (%s of what jemalloc holds)", Size(found.cached_bytes), share(found.cached_bytes, held))
        hint = "no purge reaches it: only the thread itself can free it, with %s, or over time if it keeps allocating" % names.call(
            '"thread.tcache.flush"'
        )
        lines.append(Finding("much memory is in thread caches", evidence, hint, codes.THREAD_CACHES))
    if found.metadata_bytes is not None and found.metadata_bytes > 16 * SMALL_BYTES and 5 * found.metadata_bytes > held:
        evidence = say("%s (%s)", Size(found.metadata_bytes), share(found.metadata_bytes, held))
        hint = "it never shrinks; fewer arenas (narenas) need less of it"
        lines.append(Finding("jemalloc's own bookkeeping uses much memory", evidence, hint, codes.METADATA))
    return lines
