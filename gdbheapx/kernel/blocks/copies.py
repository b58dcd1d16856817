"""Contents that several blocks have, compared byte by byte."""

from array import array
from typing import Any, NamedTuple, Sequence, Tuple

from gdbheapx.kernel.blocks.signatures import Signer
from gdbheapx.kernel.common.library import address_of, declare_functions, run_resumable

PROTOTYPES = """
void heapx_copies_free(struct copies *copies);
struct copies *heapx_copies_new(const struct signer *signer, const struct graph *graph, const struct source *memory);
int64_t heapx_copies_slice(struct copies *copies, double seconds);
int64_t heapx_copies_found(const struct copies *copies, uint64_t *sums, uint64_t *by_label, uint64_t *largest, uint64_t room);
"""

COPIES_BYTES = 36
"""Of each block, at the peak, beside what the census takes."""


class Tallied(NamedTuple):
    """Contents that several blocks have."""

    contents: int
    """That differ."""
    blocks: int
    bytes: int
    spare_bytes: int
    """If each content were there once."""


class Compared(NamedTuple):
    """Comparison of all contents of LEAST_CONTENT bytes or more."""

    all: Tallied
    by_label: Sequence[Tallied]
    """By the label of the first block, from 0 on."""
    zero_blocks: int
    """With nothing but zeros: they are in none of the others."""
    zero_bytes: int
    unlike_blocks: int
    """With the number of another content, and other bytes; or which can no longer be read."""
    largest: Sequence[Tuple[int, int]]
    """(number of the first block, blocks), those with most to spare first."""


def compare_contents(signer: Signer, graph: Any, most: int) -> Compared:
    """After refer(), of a signer that keeps contents beyond it: memory must be as it was. `most`: so many contents are told one by one."""
    library = declare_functions(signer.library, PROTOTYPES)
    work = library.heapx_copies_new(signer.handle, graph.handle, signer.opened.handle)
    if not work:
        raise MemoryError()
    try:
        run_resumable(lambda seconds: library.heapx_copies_slice(work, seconds), signer.opened, signer.budget)
        sums, labels = array("Q", bytes(56)), array("Q", bytes(32 * (signer.label_count() + 1)))
        largest = array("Q", bytes(16 * most))
        count = library.heapx_copies_found(work, address_of(sums), address_of(labels), address_of(largest), most)
    finally:
        library.heapx_copies_free(work)
    if count < 0:
        raise MemoryError()
    told = list(zip(largest[0 : 2 * count : 2], largest[1 : 2 * count : 2]))
    by_label = [Tallied(*labels[place : place + 4]) for place in range(0, len(labels), 4)]
    return Compared(Tallied(*sums[:4]), by_label, sums[4], sums[5], sums[6], told)
