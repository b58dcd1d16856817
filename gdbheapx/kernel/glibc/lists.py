"""Lists that are followed together: what the kernels take and give, as columns, since a process can have more than 100,000 of them."""

import ctypes
from array import array
from typing import Any, List, NamedTuple, Optional, Sequence

from gdbheapx.kernel.common.library import ADDRESS_MASK, address_of

TCACHE = 0
"""A thread cache's list: entries are what malloc returned, the link is the first word there."""
FAST = 1
"""A fastbin: entries are chunks, the link is fd."""
BIN = 2
"""A doubly linked bin, followed along fd from its header, which acts as a chunk, until it comes back."""
TCACHE_SIZED = 3
"""As TCACHE, with the chunks' size fields: lists whose chunks differ in size, or may have a mapping of their own."""

UNALIGNED, UNREADABLE, TOO_LONG, BACK_LINK, CYCLE, CUT, UNREAD = range(1, 8)
"""What can be wrong with a list; 0 is nothing. UNREAD: memory is there and was not read, which is no damage; kernels say UNREADABLE."""

LISTS_MEMBERS, LISTS_TWICE, LISTS_MAPPED = range(3)
"""Numbers that heapx_lists_numbers gives: NativeFollowedList.members, twice and mapped."""

PROBLEMS = (
    "",
    "unaligned",
    "unreadable",
    "too long",
    "bk of the next chunk points elsewhere",
    "already in the list",
    "not reached in time",
    "in memory that was not read",
)
"""The problems in words, by number."""


class NativeFreeLists:
    """Lists to follow."""

    def __init__(self) -> None:
        self.heads = array("Q")
        """The first entry of each; of a bin the address of its header. 0: an empty list."""
        self.kinds = array("Q")
        self.limits = array("Q")
        """No list has more entries."""
        self.also = array("Q")
        """`chunk | SPECIAL_x` of chunks that are on no list and shall be among the members."""

    def __len__(self) -> int:
        return len(self.heads)

    def add(self, kind: int, heads: Sequence[int], limit: int) -> None:
        """Lists of one kind."""
        self.heads.extend(heads)
        self.kinds.extend(array("Q", [kind]) * len(heads))
        self.limits.extend(array("Q", [limit]) * len(heads))


class NativeRules(NamedTuple):
    """Rules that all lists of one call share."""

    mangled: bool
    """Links of fastbins and thread caches are protected (malloc.c: PROTECT_PTR)."""
    collect: bool = False
    """The members are wanted, not only what they add up to."""
    most_entries: int = ADDRESS_MASK
    """All lists together have no more: as many chunks as memory can hold. What comes beyond is on several lists, and its list too long."""


class NativeFollowedList(NamedTuple):
    """Lists that were followed: a column for each figure, in the order in which the lists were given."""

    counts: Sequence[int]
    """Entries before the end or the problem; of a list that comes back to itself each entry once."""
    problems: Sequence[int]
    """0, or what is wrong."""
    ats: Sequence[int]
    """The address that caused the problem: the bad link's value, the entry that cannot be read, the chunk whose bk is wrong; else 0."""
    lasts: Sequence[int]
    """The last entry counted, which holds the bad link; 0 if there is none."""
    bytes: Sequence[int]
    """Sum of the masked sizes; this and the next three are 0 for lists whose sizes were not read."""
    raw_bytes: Sequence[int]
    """Sum of the size fields with their flag bits: malloc_info prints these."""
    raw_mins: Sequence[int]
    raw_maxs: Sequence[int]
    members: Sequence[int]
    """array('Q'), sorted: `chunk | SPECIAL_x` of thread caches and fastbins, chunks of bins, each once. Empty unless asked for, or if time
    ran out."""
    twice: Sequence[int]
    """Chunks that are on two lists, or twice on one; sorted."""
    mapped: Sequence[int]
    """Chunks on sized lists that have a mapping of their own: in no arena, and not among the members; sorted."""

    @property
    def cut(self) -> bool:
        """Time ran out before every list had ended."""
        return CUT in self.problems


def describe_damage(found: NativeFollowedList, index: int) -> Optional[str]:
    """Return the damage of a list in words, or None if there is none or time ran out."""
    problem, at = found.problems[index], found.ats[index]
    if not problem or problem == CUT:
        return None
    if problem == CYCLE:
        return "the list does not end: a link points back to 0x%x" % at
    if problem == TOO_LONG:
        return "the list is longer than possible"
    if problem == BACK_LINK:
        return "corrupted double-linked list: %s" % PROBLEMS[problem]
    return "the link points to 0x%x, which is %s" % (at, PROBLEMS[problem])


PROTOTYPES = """
void heapx_lists_free(struct lists *lists);
struct lists *heapx_lists_new(const struct source *source, const struct geometry *geometry, const uint64_t *columns, uint64_t count,
    const uint64_t *also, uint64_t also_count, const struct rules *rules);
int64_t heapx_lists_slice(struct lists *lists, double seconds);
void heapx_lists_result(const struct lists *lists, uint64_t *out);
uint64_t heapx_lists_numbers(const struct lists *lists, int which, const uint64_t **values);
"""

COLUMNS = 8


def read_followed(library: Any, job: int, count: int) -> NativeFollowedList:
    """Return what a job found for so many lists."""
    out = array("Q", bytes(8 * COLUMNS * count))
    library.heapx_lists_result(job, address_of(out))
    columns: List[Any] = [out[column * count : (column + 1) * count] for column in range(COLUMNS)]
    members, twice, mapped = (_read_numbers(library, job, which) for which in (LISTS_MEMBERS, LISTS_TWICE, LISTS_MAPPED))
    return NativeFollowedList._make([*columns, members, twice, array("Q", sorted(set(mapped)))])


def _read_numbers(library: Any, job: int, which: int) -> "array[int]":
    values, out = ctypes.c_void_p(), array("Q")
    count = library.heapx_lists_numbers(job, which, ctypes.byref(values))
    if count:
        out.frombytes((ctypes.c_char * (8 * count)).from_address(values.value or 0))
    return out
