"""What tcmalloc counts, against what its spans and lists are: a wrong word in one of them shows in another."""

from collections import Counter
from typing import TYPE_CHECKING, Iterator, Optional, Sequence, Tuple

from gdbheapx.kernel.tcmalloc import records as api
from gdbheapx.problems import Code
from gdbheapx.tcmalloc import codes
from gdbheapx.units import plural

if TYPE_CHECKING:
    from gdbheapx.tcmalloc.survey import Survey

Contradiction = Tuple[Code, Optional[int], str]


def contradictions(survey: "Survey", stats: Sequence[int], page_heap: int) -> Iterator[Contradiction]:
    """Each of them. `stats`: the page heap's own three figures, empty where these cannot be read; they stand at `page_heap`."""
    yield from _lists(survey)
    yield from _classes(survey)
    walked = [0, 0, 0]
    for size, location in zip(survey.spans.column("bytes"), survey.spans.column("location")):
        walked[0] += size
        if location:
            walked[location] += size
    if list(stats) != walked:
        what = "the page heap counts %s bytes of spans, %s free and %s returned; its spans add up to %d, %d and %d"
        yield codes.HEAP_BYTES, page_heap, what % (*(stats or ("unknown",) * 3), *walked)


def _lists(survey: "Survey") -> Iterator[Contradiction]:
    spans, structs = survey.spans.column("start"), survey.spans.column("address")
    for listing, end in zip(survey.listings, survey.ends):
        if end.problem or end.count == listing.expected:
            continue
        counts, size_class = (end.count, listing.expected), listing.size_class
        if listing.kind == api.TC_CENTRAL:
            what = "the span at 0x%x has %s on its list, and by its refcount %d"
            yield codes.SPAN_COUNT, structs[listing.place], what % (spans[listing.place], plural(counts[0], "free object"), counts[1])
        elif listing.kind == api.TC_TRANSFER:
            what = "a batch of the transfer cache of class %d has %s instead of %d"
            yield codes.BATCH_COUNT, end.at or None, what % (size_class, plural(counts[0], "object"), counts[1])
        else:
            what = "the list of class %d of a thread cache has %s and says %d"
            cache = survey.caches.rows[listing.place].address
            yield codes.CACHE_COUNT, cache, what % (size_class, plural(counts[0], "object"), counts[1])


def _classes(survey: "Survey") -> Iterator[Contradiction]:
    spans: Counter[int] = Counter()
    for size_class, location in zip(survey.spans.column("size_class"), survey.spans.column("location")):
        spans[size_class] += location == api.SPAN_IN_USE
    for row in survey.central:
        number = row.size_class
        free = survey.objects[api.TC_CENTRAL, number]
        if row.counter != free:
            what = "class %d has %s in its spans, and counts %d" % (number, plural(free, "free object"), row.counter)
            yield codes.CENTRAL_COUNT, row.address, what
        if row.spans != spans[number]:
            yield codes.CENTRAL_SPANS, row.address, "class %d has %s, and counts %d" % (number, plural(spans[number], "span"), row.spans)
        listed = sum(survey.objects[kind, number] for kind in (api.TC_CENTRAL, api.TC_TRANSFER, api.TC_CACHED))
        own = survey.tallies.tallies[number].listed_slots
        if listed != own:
            what = "lists of class %d have %s, of which %d lie in its spans" % (number, plural(listed, "object"), own)
            yield codes.LIST_CLASS, row.address, what
