"""mimalloc's free lists, by ctypes."""

from array import array
from typing import Sequence

from gdbheapx.addons.allocators.mimalloc.native_records import FreeBlocks, FreeList, ListEnd, ListPage
from gdbheapx.budget import Budget
from gdbheapx.inferior.base import BulkSource
from gdbheapx.kernel.common.library import Kernel, Rows, at, declared, run

PROTOTYPES = """
struct free_lists *heapx_mimalloc_lists_new(const struct source *source, const struct free_list *lists, uint64_t count,
    const struct list_page *pages, uint64_t page_count);
int64_t heapx_mimalloc_lists_slice(struct free_lists *job, double seconds);
uint64_t heapx_mimalloc_lists_count(const struct free_lists *job, uint64_t *lists);
void heapx_mimalloc_lists_result(const struct free_lists *job, uint64_t *found, struct list_end *ends, uint64_t *shared);
uint64_t heapx_mimalloc_lists_split(uint64_t *found, uint64_t count, uint8_t *kinds);
void heapx_mimalloc_lists_free(struct free_lists *job);
"""


def follow(kernel: Kernel, source: BulkSource, lists: Sequence[FreeList], pages: Sequence[ListPage], budget: Budget) -> FreeBlocks:
    """Every member of these lists, told apart from what damage leads to."""
    library, opened = declared(kernel.library, PROTOTYPES), kernel.open(source)
    rows = array("Q", [number for row in lists for number in row])
    blocks = array("Q", [number for row in pages for number in row])
    job = library.heapx_mimalloc_lists_new(opened.handle, at(rows), len(lists), at(blocks), len(pages))
    if not job:
        raise MemoryError()
    try:
        run(lambda seconds: library.heapx_mimalloc_lists_slice(job, seconds), opened, budget)
        followed = array("Q", [0])
        found = array("Q", bytes(8 * library.heapx_mimalloc_lists_count(job, at(followed))))
        ends, shared = Rows(ListEnd, followed[0]), array("Q", bytes(8 * len(pages)))
        library.heapx_mimalloc_lists_result(job, at(found), at(ends.numbers), at(shared))
    finally:
        library.heapx_mimalloc_lists_free(job)
    ordered, kinds = kernel.in_order(found), array("B", bytes(len(found)))
    twice = library.heapx_mimalloc_lists_split(at(ordered), len(ordered), at(kinds))
    return FreeBlocks(followed[0] == len(lists), ordered, kinds, ends.records(followed[0]), shared, twice)
