"""Labels of blocks: which blocks have one of some, and all of them by other numbers."""

from array import array
from typing import Any, Container, Sequence

from gdbheapx.kernel.common.library import address_of, declare_functions

PROTOTYPES = """
uint64_t heapx_labelled(const uint32_t *labels, uint64_t blocks, const uint8_t *wanted, uint64_t label_count, uint32_t *out, uint64_t room);
int heapx_renumber(const uint32_t *labels, uint64_t blocks, const uint32_t *numbers, uint64_t label_count, unsigned bytes, uint8_t *out);
"""


def find_labelled(library: Any, labels: "array[int]", wanted: Container[int], label_count: int, most: int) -> "array[int]":
    """array('I'): the first blocks, at most so many, whose label is wanted. `labels`: array('I') by block."""
    asked, out = array("B", (label in wanted for label in range(label_count))), array("I", bytes(4 * min(most, len(labels))))
    del out[
        declare_functions(library, PROTOTYPES).heapx_labelled(
            address_of(labels), len(labels), address_of(asked), label_count, address_of(out), len(out)
        ) :
    ]
    return out


def renumber_labels(library: Any, labels: "array[int]", blocks: int, numbers: Sequence[int], number_bytes: int) -> bytes:
    """Return for each block the number of its label, little endian. `number_bytes`: 1, 2 or 4."""
    kernel, of_label, out = declare_functions(library, PROTOTYPES), array("I", numbers), array("B", bytes(number_bytes * blocks))
    if len(labels) < blocks or kernel.heapx_renumber(
        address_of(labels), blocks, address_of(of_label), len(of_label), number_bytes, address_of(out)
    ):
        raise ValueError("a number for each label")
    return out.tobytes()
