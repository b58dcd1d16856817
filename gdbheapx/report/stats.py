"""malloc_stats(3)'s text (malloc.c: __malloc_stats), with as many digits as the figures have."""

from typing import Iterator, Sequence, Tuple


def malloc_stats_text(arenas: Sequence[Tuple[int, int, int]], total: Tuple[int, int], max_regions: int, max_bytes: int) -> Iterator[str]:
    """The lines; arenas are (index, system bytes, in use bytes)."""
    for index, system, in_use in arenas:
        yield "Arena %d:" % index
        yield "system bytes     = %10d" % system
        yield "in use bytes     = %10d" % in_use
    yield "Total (incl. mmap):"
    yield "system bytes     = %10d" % total[0]
    yield "in use bytes     = %10d" % total[1]
    yield "max mmap regions = %10d" % max_regions
    yield "max mmap bytes   = %10d" % max_bytes
