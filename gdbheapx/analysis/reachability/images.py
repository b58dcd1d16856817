"""Where vtables may lie, and how they are read."""

from typing import List, Optional, Sequence, Tuple

from gdbheapx.inferior.base import BulkSource, CallSource, ProcessSource, Target
from gdbheapx.ranges import Range, Ranges


def ranges(target: Target) -> List[Range]:
    """The parts of all images that are no code."""
    images = Ranges((start, end) for start, end, _ in target.image_ranges())
    rows = [one for one in target.mappings() if one.readable and not one.executable]
    return sorted((max(low, one.start), min(high, one.end)) for one in rows for low, high in images.within(one.start, one.end))


def source(target: Target, parts: Sequence[Range]) -> Optional[BulkSource]:
    """Of a living process only what is in memory: reading the rest would bring its pages in. Of a core also what only files have."""
    bulk = target.bulk_source()
    if isinstance(bulk, ProcessSource):
        pages: Tuple[Range, ...] = tuple(parts)
        return bulk._replace(untouched_zero=pages)
    return CallSource(target.read_prefix) if target.kind == "core" else None
