"""Input and results of the checks of single chunks and members, and the calls of the native library."""

from array import array
from typing import Any, NamedTuple, Optional, Sequence, Tuple

from gdbheapx.budget import Budget
from gdbheapx.kernel.common.library import OpenSource, address_of, as_array, declare_functions, run_resumable
from gdbheapx.kernel.glibc.records import Region

BROKEN_PREV_SIZE = 0
"""A free chunk whose size is not repeated after it; `value`: what is there."""
BROKEN_FREE_NEIGHBOURS = 1
"""A free chunk directly after another one, at `value`."""
BROKEN_NOT_BINNED = 2
"""Free by its successor, and in no bin; `value`: its size."""
BROKEN_BINNED_USED = 3
"""In a bin, and in use by its successor; `value`: the size field."""
BROKEN_BINNED_ASTRAY = 4
"""A member of a bin on no chunk boundary."""
BROKEN_LISTED_FREE = 5
"""In a thread cache or fastbin, and free by its successor as well; `value`: its size."""
BROKEN_LISTED_ASTRAY = 6
"""A member of a thread cache or fastbin on no chunk boundary."""
BROKEN_NON_MAIN = 7
"""A chunk that was handed out with NON_MAIN_ARENA in the main arena, or without it elsewhere."""
BROKEN_FREE_FLAGS = 8
"""A free chunk with NON_MAIN_ARENA."""
BROKEN_FIRST = 9
"""The first chunk of a heap says that the chunk before it is free."""
BROKEN_STOP = 10
"""Where a region ends: `value` is the STOP_. No contradiction by itself; one for each region, in order."""
BROKEN_RULES = 11

MEMBER_SIZE = 0
"""The member's size, `value`, is none of its list."""
MEMBER_KEY = 1
"""Its second word, `value`, is not the key that thread caches write there."""
MEMBER_ORDER = 2
"""It is larger than the member before it, of `value` bytes, in a bin that has the largest first."""
MEMBER_NEXTSIZE = 3
"""fd_nextsize and bk_nextsize of it and of `value` do not lead to each other."""
MEMBER_LINK = 4
"""A bin whose bk here is not the chunk before it, `value`; which cannot be read, or does not come back to its header. It ends here."""
MEMBER_RULES = 5

REGION_MAIN, REGION_FIRST, REGION_BINS_KNOWN = 1, 2, 4
"""Of the main arena; its first chunk has none before it; a free chunk that is in no bin is wrong."""

MOST_ROWS = 64
"""Of each rule that are given one by one; all are counted."""


class Checked(NamedTuple):
    """A region whose chunks are checked."""

    region: Region
    flags: int
    """REGION_ bits."""


class MemberList(NamedTuple):
    """A list whose members are checked."""

    kind: int
    """As list_records."""
    head: int
    count: int  # type: ignore[assignment]  # hides tuple.count, which nobody calls on a record
    """So many members; of a bin at most so many before its header comes again."""
    min_size: int
    """Of its chunks."""
    max_size: int
    key: int
    """The second word of each member; 0: not to be looked at."""
    is_sorted: bool
    """A large bin."""


class NativeBroken(NamedTuple):
    """A contradiction."""

    rule: int
    """A BROKEN_ or MEMBER_ number."""
    address: int
    """The chunk."""
    value: int
    """As the rule says; else 0."""
    previous: int
    """The chunk before it; 0 if there is none. Of a member the number of its list."""
    previous_status: int
    """Its STATUS_."""


class BrokenChunks(NamedTuple):
    """Contradictions that a pass over chunks found."""

    rows: Tuple[NativeBroken, ...]
    """In the order met, at most MOST_ROWS of a rule."""
    counts: Tuple[int, ...]
    """How many by rule."""


class BrokenMembers(NamedTuple):
    """Contradictions that a pass over lists found."""

    rows: Tuple[NativeBroken, ...]
    """In the order met, at most MOST_ROWS of a rule."""
    counts: Tuple[int, ...]
    """How many by rule."""
    binned: int
    """Members of bins."""
    binned_sum: int
    """The sum of their addresses, modulo 2**64."""


def flat_regions(regions: Sequence[Checked]) -> "array[int]":
    """Return regions as check.c reads them."""
    return array("Q", [number for one in regions for number in (*one.region, one.flags)])


def flat_lists(lists: Sequence[MemberList]) -> "array[int]":
    """Return lists as members.c reads them."""
    return array("Q", [int(number) for one in lists for number in one])


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

ROW_NUMBERS = len(NativeBroken._fields)


def check_chunks_in_c(
    library: Any,
    opened: OpenSource,
    geometry: Optional[int],
    regions: Sequence[Checked],
    listed: Tuple[Sequence[int], Sequence[int]],
    budget: Budget,
) -> BrokenChunks:
    """See ChunkWalker; `listed`: cached chunks, members of bins."""
    flat, cached_chunks, members = flat_regions(regions), as_array(listed[0]), as_array(listed[1])
    places = (address_of(flat), len(regions), address_of(cached_chunks), len(cached_chunks), address_of(members), len(members))
    job = declare_functions(library, PROTOTYPES).heapx_check_new(opened.handle, geometry, *places)
    if not job:
        raise MemoryError()
    try:
        run_resumable(lambda seconds: library.heapx_check_slice(job, seconds), opened, budget)
        return BrokenChunks(*_take_broken(library.heapx_check_result, job, BROKEN_RULES))
    finally:
        library.heapx_check_free(job)


def check_members_in_c(
    library: Any, opened: OpenSource, geometry: Optional[int], lists: Sequence[MemberList], mangled: bool, budget: Budget
) -> BrokenMembers:
    """See ChunkWalker."""
    flat = flat_lists(lists)
    job = declare_functions(library, PROTOTYPES).heapx_members_new(opened.handle, geometry, address_of(flat), len(lists), int(mangled))
    if not job:
        raise MemoryError()
    try:
        run_resumable(lambda seconds: library.heapx_members_slice(job, seconds), opened, budget)
        rows, counts = _take_broken(library.heapx_members_result, job, MEMBER_RULES + 2)
        return BrokenMembers(rows, counts[:MEMBER_RULES], *counts[MEMBER_RULES:])
    finally:
        library.heapx_members_free(job)


def _take_broken(result: Any, job: int, numbers: int) -> Tuple[Tuple[NativeBroken, ...], Tuple[int, ...]]:
    counts = array("Q", bytes(8 * numbers))
    count = result(job, 0, address_of(counts), None)
    out = array("Q", bytes(8 * ROW_NUMBERS * count))
    result(job, count, address_of(counts), address_of(out))
    rows = tuple(NativeBroken._make(out[place : place + ROW_NUMBERS]) for place in range(0, len(out), ROW_NUMBERS))
    return rows, tuple(counts)
