"""Objects that are held by nothing but each other, by their counts of references."""

import itertools
from array import array
from typing import List, NamedTuple, Sequence, Tuple

from gdbheapx.kernel.blocks.graph import Graph, NativeSum
from gdbheapx.kernel.common.library import address_of, declare_functions

PROTOTYPES = """
int heapx_cycles_find(const struct graph *graph, uint32_t first, uint32_t end, const uint32_t *labels, const uint64_t *countings,
    uint64_t label_count, uint8_t *state);
int heapx_cycles_behind(const struct graph *graph, const uint8_t *state, const uint32_t *labels, const uint32_t *asked,
    uint64_t asked_count, uint64_t *out);
"""


class Counting(NamedTuple):
    """Words by which objects of one sort count references, in their blocks."""

    owned: int = 0
    """Which words own, as Owning.masks has it: they are counted references, as far as they lead to objects."""
    more: int = 0
    """Which others are."""
    bodies: int = 0
    """Which lead to memory of the object's own that has some, such as the table of a dict."""
    begin: int = 0
    """Where the object begins, whose first word is its count, plus 1; 0: it is none."""
    is_visited: int = 0
    """The collector follows what such an object refers to."""


class Cycles:
    """Garbage of one graph, after its own(), while memory is as it was. `roots`: those that are no stacks."""

    def __init__(self, graph: Graph, roots: Tuple[int, int], labels: "array[int]", countings: Sequence[Counting]) -> None:
        self._graph, self._labels = graph, labels
        self._library = declare_functions(graph.library, PROTOTYPES)
        self.state = array("B", bytes(graph.numbers().blocks))
        numbers = array("Q", [number for counting in countings for number in counting])
        if self._library.heapx_cycles_find(
            graph.handle, *roots, address_of(labels), address_of(numbers), len(countings), address_of(self.state)
        ):
            raise MemoryError()

    def nodes(self) -> List[int]:
        """Their ids."""
        return list(itertools.compress(range(len(self.state)), self.state))

    def behind(self, labels: Sequence[int]) -> NativeSum:
        """Return the part of the cycles that objects of these labels lead to, themselves included."""
        out, asked = array("Q", [0, 0]), array("I", labels)
        if self._library.heapx_cycles_behind(
            self._graph.handle, address_of(self.state), address_of(self._labels), address_of(asked), len(asked), address_of(out)
        ):
            raise MemoryError()
        return NativeSum(*out)
