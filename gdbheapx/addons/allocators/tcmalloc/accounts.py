"""What tcmalloc counts, against what its spans and lists are: a wrong word in one of them shows in another."""

from collections import Counter
from typing import TYPE_CHECKING, Iterator, Optional, Sequence, Tuple

from gdbheapx.addons.allocators.tcmalloc import codes
from gdbheapx.addons.allocators.tcmalloc import native_records as api
from gdbheapx.problems import Code
from gdbheapx.units import number, plural

if TYPE_CHECKING:
    from gdbheapx.addons.allocators.tcmalloc.counts import Counts
    from gdbheapx.addons.allocators.tcmalloc.structure import Structure
    from gdbheapx.addons.allocators.tcmalloc.survey import Survey

Contradiction = Tuple[Code, Optional[int], str]


def of_counts(counts: "Counts", stats: Sequence[int], known: "Structure") -> Iterator[Contradiction]:
    """Each of them that no list is followed for. `stats`: the page heap's own three figures, empty where these cannot be read."""
    tallies, sizes = counts.spans.tallies, known.sizes.object_bytes
    for row in counts.central:
        number, tally = row.size_class, tallies[row.size_class]
        if row.counter != tally.listed:
            what = "class %d has %s in its spans, and counts %d" % (number, plural(tally.listed, "free object"), row.counter)
            yield codes.CENTRAL_COUNT, row.address, what
        if row.spans != tally.spans:
            yield codes.CENTRAL_SPANS, row.address, "class %d has %s, and counts %d" % (number, plural(tally.spans, "span"), row.spans)
        cached = counts.objects[api.TC_TRANSFER, number] + counts.objects[api.TC_CACHED, number]
        if cached > tally.objects - tally.listed:
            what = "caches hold %s of class %d, and %d are out of its spans"
            yield codes.CENTRAL_COUNT, row.address, what % (plural(cached, "object"), number, tally.objects - tally.listed)
    for cache in counts.caches.rows:
        listed = sum(own.length * sizes[own.size_class] for own in cache.lists)
        if cache.size_bytes != listed:
            what = "a thread cache counts %d bytes, and its lists add up to %d" % (cache.size_bytes, listed)
            yield codes.CACHE_COUNT, cache.address, what
    walked = [sum(tally.bytes for tally in tallies), tallies[api.TC_FREE_LABEL].bytes, tallies[api.TC_RETURNED_LABEL].bytes]
    if list(stats) != walked:
        what = "the page heap counts %s bytes of spans, %s free and %s returned; its spans add up to %d, %d and %d"
        yield codes.HEAP_BYTES, known.page_map.stats, what % (*(stats or ("unknown",) * 3), *walked)


def of_lists(counts: "Counts", survey: "Survey") -> Iterator[Contradiction]:
    """What lists are, against the counter of each, and which class their objects are of."""
    spans, structs = counts.spans.column("start"), counts.spans.column("address")
    for listing, end in zip(survey.listings, survey.ends):
        if end.problem or end.count == listing.expected:
            continue
        own, size_class = (end.count, listing.expected), listing.size_class
        if listing.kind == api.TC_CENTRAL:
            what = "the span at 0x%x has %s on its list, and by its refcount %d"
            yield codes.SPAN_COUNT, structs[listing.place], what % (spans[listing.place], plural(own[0], "free object"), own[1])
        elif listing.kind == api.TC_TRANSFER:
            what = "a batch of the transfer cache of class %d has %s instead of %d"
            yield codes.BATCH_COUNT, end.at or None, what % (size_class, plural(own[0], "object"), own[1])
        else:
            what = "the list of class %d of a thread cache has %s and says %d"
            cache = counts.caches.rows[listing.place].address
            yield codes.CACHE_COUNT, cache, what % (size_class, plural(own[0], "object"), own[1])
    listed: Counter[int] = Counter()
    for listing, end in zip(survey.listings, survey.ends):
        listed[listing.size_class] += end.count
    for row in counts.central:
        inside = survey.tallies.tallies[row.size_class].listed_slots
        if listed[row.size_class] != inside:
            what = "lists of class %d have %s; %s lie in its spans"
            yield codes.LIST_CLASS, row.address, what % (row.size_class, plural(listed[row.size_class], "object"), number(inside))
