"""The C kernel's checks of single chunks and members, by ctypes."""

from array import array
from typing import Any, Optional, Sequence, Tuple

from gdbheapx.budget import Budget
from gdbheapx.kernel.common.library import OpenSource, as_array, at, declared, run
from gdbheapx.kernel.glibc.check_records import (
    BROKEN_RULES,
    MEMBER_RULES,
    Broken,
    BrokenChunks,
    BrokenMembers,
    Checked,
    MemberList,
    flat_lists,
    flat_regions,
)

PROTOTYPES = """
void heapx_check_free(struct checker *checker);
struct checker *heapx_check_new(const struct source *source, const struct geometry *geometry, const struct checked *regions,
    uint64_t region_count, const uint64_t *specials, uint64_t special_count, const uint64_t *members, uint64_t member_count);
int64_t heapx_check_slice(struct checker *checker, double seconds);
uint64_t heapx_check_result(const struct checker *checker, uint64_t room, uint64_t *counts, struct broken *rows);
void heapx_members_free(struct members *members);
struct members *heapx_members_new(const struct source *source, const struct geometry *geometry, const struct member_list *lists,
    uint64_t count, int mangled);
int64_t heapx_members_slice(struct members *members, double seconds);
uint64_t heapx_members_result(const struct members *members, uint64_t room, uint64_t *counts, struct broken *rows);
"""

ROW_NUMBERS = len(Broken._fields)


def check(
    library: Any,
    opened: OpenSource,
    geometry: Optional[int],
    regions: Sequence[Checked],
    listed: Tuple[Sequence[int], Sequence[int]],
    budget: Budget,
) -> BrokenChunks:
    """See ChunkWalker; `listed`: cached chunks, members of bins."""
    flat, cached_chunks, members = flat_regions(regions), as_array(listed[0]), as_array(listed[1])
    places = (at(flat), len(regions), at(cached_chunks), len(cached_chunks), at(members), len(members))
    job = declared(library, PROTOTYPES).heapx_check_new(opened.handle, geometry, *places)
    if not job:
        raise MemoryError()
    try:
        run(lambda seconds: library.heapx_check_slice(job, seconds), opened, budget)
        return BrokenChunks(*_taken(library.heapx_check_result, job, BROKEN_RULES))
    finally:
        library.heapx_check_free(job)


def check_members(
    library: Any, opened: OpenSource, geometry: Optional[int], lists: Sequence[MemberList], mangled: bool, budget: Budget
) -> BrokenMembers:
    """See ChunkWalker."""
    flat = flat_lists(lists)
    job = declared(library, PROTOTYPES).heapx_members_new(opened.handle, geometry, at(flat), len(lists), int(mangled))
    if not job:
        raise MemoryError()
    try:
        run(lambda seconds: library.heapx_members_slice(job, seconds), opened, budget)
        rows, counts = _taken(library.heapx_members_result, job, MEMBER_RULES + 2)
        return BrokenMembers(rows, counts[:MEMBER_RULES], *counts[MEMBER_RULES:])
    finally:
        library.heapx_members_free(job)


def _taken(result: Any, job: int, numbers: int) -> Tuple[Tuple[Broken, ...], Tuple[int, ...]]:
    counts = array("Q", bytes(8 * numbers))
    count = result(job, 0, at(counts), None)
    out = array("Q", bytes(8 * ROW_NUMBERS * count))
    result(job, count, at(counts), at(out))
    rows = tuple(Broken._make(out[place : place + ROW_NUMBERS]) for place in range(0, len(out), ROW_NUMBERS))
    return rows, tuple(counts)
