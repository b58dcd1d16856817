"""Loops over the words of pages of V8's heap, by the native library: how large objects are, the walk, and words of a sort."""

from array import array
from typing import Any, Dict, Iterable, List, NamedTuple, Sequence, Tuple

from gdbheapx.kernel.common.library import address_of, flatten_record

SIZE_BITS, MOST_OBJECT_WORDS = 16, 4096
HASH, HASH_SHIFT, MOST_SLOTS = 0x9E3779B97F4A7C15, 40, 1 << 22
SMI_SHIFT, ALL_COUNTS = 32, 0x7FFFFFFF
"""A Smi has its number in the upper half."""


class SizeRule(NamedTuple):
    """Rule for the size of an object by its second word; without a unit it ends where the next object begins."""

    head_bytes: int
    unit_bytes: int
    shift: int = SMI_SHIFT
    mask: int = ALL_COUNTS
    is_small_integer: int = 1
    """The lower half of the word must be 0."""

    def measure_words(self, second: int) -> int:
        """Return the size in words; 0 where the rule does not hold."""
        if self.is_small_integer and second & 0xFFFFFFFF:
            return 0
        return (self.head_bytes + (second >> self.shift & self.mask) * self.unit_bytes + 7) // 8


class PageWalk(NamedTuple):
    """State of a walk: where it is, whether the object before led there, and sums."""

    at: int
    is_led: int
    objects: int
    proven_words: int
    free_words: int
    other_words: int
    asks_for_rules: int


def make_word_table(pairs: Iterable[Tuple[int, int]]) -> "array[int]":
    """Return a table of keys and values for the native library, half of it empty at least."""
    values = dict(list(pairs)[: MOST_SLOTS // 2])
    slots = 1 << max(4, (2 * len(values)).bit_length())
    table = array("Q", bytes(16 * slots))
    for key, value in values.items():
        slot = (key * HASH & (1 << 64) - 1) >> HASH_SHIFT & slots - 1
        while table[2 * slot]:
            slot = (slot + 1) & slots - 1
        table[2 * slot], table[2 * slot + 1] = key, value
    return table


class PageWalker:
    """Walker with a table of maps and a list of rules."""

    def __init__(self, library: Any) -> None:
        self._library = library
        self._maps = make_word_table(())
        self._rules = array("Q", bytes(40))
        self.free_rule = 0

    def set_rules(self, maps: Dict[int, int], rules: Sequence[SizeRule], free_rule: int) -> None:
        """Take maps with the values that pages.c describes. `free_rule`: the number of the one for free space."""
        self._maps, self._rules, self.free_rule = make_word_table(maps.items()), flatten_record(list(rules)), free_rule

    def measure_object(self, words: "array[int]", at: int) -> int:
        """Return the words of the object that begins at a place; 0 if none is values."""
        slots = len(self._maps) // 2
        size: int = self._library.heapx_v8_measure(
            address_of(words), len(words), at, address_of(self._maps), slots, address_of(self._rules)
        )
        return size

    def walk_page(self, words: "array[int]", walk: PageWalk, objects: "array[int]") -> Tuple[bool, PageWalk]:
        """Walk on; True where someone is to look at the word there. `objects`: room for as many as there are words."""
        state = array("Q", walk)
        pointers = address_of(self._maps), len(self._maps) // 2, address_of(self._rules), self.free_rule
        stops = self._library.heapx_v8_walk(address_of(words), len(words), address_of(state), *pointers, address_of(objects))
        return bool(stops), PageWalk(*state)

    def find_members(self, words: "array[int]", table: "array[int]") -> List[int]:
        """Return the places of words that are keys of a table."""
        return self._list_places(self._library.heapx_v8_members, words, address_of(table), len(table) // 2)

    def find_pointers(self, words: "array[int]", low: int, high: int) -> List[int]:
        """Return the places of aligned words between two addresses that are no small integers."""
        return self._list_places(self._library.heapx_v8_pointers, words, low, high)

    @staticmethod
    def _list_places(function: Any, words: "array[int]", *numbers: Any) -> List[int]:
        places = array("I", bytes(4 * len(words)))
        return list(places[: function(address_of(words), len(words), *numbers, address_of(places))]) if words else []
