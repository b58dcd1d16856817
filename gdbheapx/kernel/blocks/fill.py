"""Bytes of content in blocks, where a length in the block gives them."""

from array import array
from typing import Any, Dict, NamedTuple, Sequence

from gdbheapx.kernel.blocks.signatures import ALL, Signer
from gdbheapx.kernel.common.library import address_of, declare_functions, run_resumable

PROTOTYPES = """
void heapx_fill_free(struct fill *fill);
struct fill *heapx_fill_new(const struct signer *signer, const struct graph *graph, const struct source *memory,
    const struct fill_rule *rules, uint64_t rule_count, const uint64_t *bases, int has_classes);
int64_t heapx_fill_slice(struct fill *fill, double seconds);
void heapx_fill_found(const struct fill *fill, uint64_t *out);
"""

ITSELF = ALL
MOST_UNTOLD_PERCENT = 1
"""Of the bytes of a label: whoever has the block may have it in a register."""


class FillRule(NamedTuple):
    """A length in blocks of a label: how much it is of such a block, or of the one that a word of it leads to."""

    label: int
    pointer: int
    """Offset of that word; ITSELF: it is the block's own length."""
    length_at: int
    length_bytes: int
    """Of the number: 1, 2, 4 or 8."""
    unit_bytes: int
    head_bytes: int
    """The content is head_bytes + unit_bytes * length."""
    test_at: int = 0
    test_mask: int = 0
    """0: the rule holds for all blocks; else for those whose four bytes at test_at are, masked, test_value."""
    test_value: int = 0


def measure_fill(signer: Signer, graph: Any, rules: Sequence[FillRule], bases: Sequence[int], has_classes: bool) -> Dict[int, int]:
    """Bytes of content by label. Blocks that do not say how many count as full; a label with more than a few of them is left out. After
    refer(), while memory is as it was. `bases`: where each node behind the blocks begins, 0 where that is not known."""
    library = declare_functions(signer.library, PROTOTYPES)
    flat, places = array("Q", [number for rule in sorted(rules) for number in rule]), array("Q", bases)
    work = library.heapx_fill_new(
        signer.handle, graph.handle, signer.opened.handle, address_of(flat), len(rules), address_of(places), int(has_classes)
    )
    if not work:
        raise MemoryError()
    try:
        run_resumable(lambda seconds: library.heapx_fill_slice(work, seconds), signer.opened, signer.budget)
        out = array("Q", bytes(16 * (signer.label_count() + 1)))
        library.heapx_fill_found(work, address_of(out))
    finally:
        library.heapx_fill_free(work)
    sums = [(label, one.bytes, out[2 * label], out[2 * label + 1]) for label, one in enumerate(signer.found(), 1)]
    known = [one for one in sums if one[3] and 100 * (one[1] - one[3]) <= MOST_UNTOLD_PERCENT * one[1]]
    return {label: content + total - told for label, total, content, told in known}
