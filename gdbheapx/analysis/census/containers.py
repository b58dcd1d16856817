"""Containers in variables and blocks, with the number of their elements: recognised by their own words and the blocks these lead to.

Layouts: the C++ libraries (libstdc++: hashtable.h, stl_tree.h, stl_list.h, stl_deque.h; libc++: __hash_table, __tree, list), Rust
(hashbrown's RawTable from 0.12 on, alloc's BTreeMap), and the tree of the C library's setenv(). The words of each prove each other: the
nodes of a header lead back to it, a table has as many places as its length says. What only may be a container is none.
"""

import functools
import re
import struct
from typing import Callable, Iterator, List, Optional, Sequence, Tuple

from gdbheapx.analysis.census import cplusplus, registry, rust
from gdbheapx.analysis.census.world import CensusTarget, Recogniser
from gdbheapx.analysis.reachability.heap_graph import Reach
from gdbheapx.analysis.reachability.owners import HeldContainer
from gdbheapx.common.model import TargetAddress

MOST_BYTES = 4096
"""Of a variable or block that are looked through."""
MOST_WORDS = 11
"""Of a container."""
MOST_COUNT = 1 << 40
MOST_KNOWN = 1 << 14
"""Addresses of which it is kept which block has them."""
MOST_STEPS = 100
"""Of a chain or list that are followed."""
MOST_CONTROL_BYTES = 1 << 20
LEAST_LOAD, MOST_LOAD = 0.05, 100.0
"""std::unordered_map::max_load_factor: 1 unless the program says otherwise."""
GROUP_BYTES = 16
"""Control bytes that hashbrown repeats at the end of a table."""
IS_EMPTY = bytes(range(0x80, 0x100))
"""Control bytes of places without an element."""
BTREE_CAPACITY, MOST_HEIGHT = 11, 20
STRING_WORDS = 4
SLACK_BYTES = 32
"""What malloc may give beyond what was asked for, where it has no size classes."""
SPARE_BYTES, SPARE_SHARE = 64 << 10, 0.75
"""Of the room of a container: less of it is unused in one that only grew."""
ENVIRONMENT = "environment values (setenv() frees none)"
NAME_BYTES = 64
IS_SETTING = re.compile(rb"[A-Za-z_][A-Za-z0-9_]*=")


FoundContainer = Optional[HeldContainer]
Way = Callable[[int, Sequence[int]], FoundContainer]
"""By the address and the words from there on."""


class ContainerFinder:
    """Finder of containers in the blocks of one graph; memory is read, and must not change."""

    def __init__(self, world: CensusTarget, reach: Reach) -> None:
        self._world, self._graph, self._blocks = world, reach.graph, reach.numbers.blocks
        self._ways: List[Way] = [
            self._read_unordered_map,
            self._read_map,
            self._tree_of_libcxx,
            self._read_list,
            self._read_deque,
            self._read_rust_hash_map,
            self._read_rust_btree_map,
        ]
        own = [one for one in registry.list_recognisers() if type(one).read_container is not Recogniser.read_container]
        self._ways += [functools.partial(recogniser.read_container, self.fits) for recogniser in own if recogniser.is_here(world)]
        self._ways += [self._read_vector, self._read_string, self._read_environment_tree]
        self.inside = functools.lru_cache(MOST_KNOWN)(self._find_block)
        """(begin, usable bytes) of the block that has an address; None where none has it."""

    def within(self, start: int, end: int) -> List[HeldContainer]:
        """Return the containers in a range of memory, those with most elements first."""
        return sorted(self._scan_range(start, end, end), key=lambda one: (one.elements is None, -(one.elements or one.elements_bytes or 0)))

    def around(self, address: int, start: int) -> Optional[HeldContainer]:
        """Return the container that has the word at the address, and begins at `start` or after it, or None."""
        near = self._scan_range(max(start, address - 8 * (MOST_WORDS - 1)), address + 8 * MOST_WORDS, address)
        return next((one for one in near if one.address <= address < one.address + one.size_bytes), None)

    def at(self, address: int) -> Optional[HeldContainer]:
        """Return the container that begins at the address, or None."""
        words = self._world.target.words_in(self._world.read(address, 8 * MOST_WORDS))
        return self._read_container_at(address, words) if self._world.word_bytes == 8 else None

    def _scan_range(self, start: int, end: int, last: int) -> Iterator[HeldContainer]:
        """Yield the containers in a range that begin at `last` or before it."""
        start += -start % self._world.word_bytes
        is_known = self._world.word_bytes == 8 and end > start
        words_here = self._world.target.words_in(self._world.read(start, min(end - start, MOST_BYTES))) if is_known else []
        place = 0
        while place < len(words_here) and start + 8 * place <= last:
            found = self._read_container_at(start + 8 * place, words_here[place : place + MOST_WORDS])
            if found is not None:
                yield found
            place += found.size_bytes // 8 if found is not None else 1

    def _read_container_at(self, address: int, these: Sequence[int]) -> FoundContainer:
        return next((found for found in (way(address, these) for way in self._ways) if found is not None), None)

    def size(self, address: int) -> Optional[int]:
        """Return the usable bytes of the block that begins at the address; None if none does."""
        inside = self.inside(address)
        return inside[1] if inside is not None and inside[0] == address else None

    def _find_block(self, address: int) -> Optional[Tuple[int, int]]:
        place = self._graph.find(address)
        return None if place is None or place[0] >= self._blocks else self._graph.blocks([place[0]])[0]

    def fits(self, address: int, wanted_bytes: int) -> bool:
        """Return True if a block begins at the address whose size fits a request of so many bytes."""
        usable = self.size(address)
        return usable is not None and wanted_bytes <= usable and usable - wanted_bytes < max(SLACK_BYTES, usable // 5 + 16)

    def _read_word(self, address: int, place: int = 0) -> Optional[int]:
        found = self._world.words(address + 8 * place, 1)
        return None if found is None else found[0]

    def _read_unordered_map(self, at: int, these: Sequence[int]) -> FoundContainer:
        """Read std::unordered_map: table, its length, first node, number of elements, load factor; in libstdc++ then the size to grow at,
        and a table of one place.
        """
        if len(these) < 5 or not 0 < these[3] <= self._blocks or not 0 < these[1] < MOST_COUNT:
            return None
        table, buckets, first, count, load = these[:5]
        (factor,) = struct.unpack("<f", (load & 0xFFFFFFFF).to_bytes(4, "little"))
        is_single = buckets == 1 and table == at + 48
        if not LEAST_LOAD <= factor <= MOST_LOAD or not (is_single or self.fits(table, 8 * buckets)) or not self._are_linked(first, count):
            return None
        is_libstdcxx = len(these) >= 7 and (is_single or these[6] == 0) and count <= these[5] + 1 <= MOST_COUNT
        spare_bytes = spare_bytes_beyond(8 * buckets, int(8 * count / factor))
        return make_container("unordered map or set", at, 7 if is_libstdcxx else 5, count, None, spare_bytes)

    def _are_linked(self, first: int, count: int, ring: int = 0) -> bool:
        """Return True for so many blocks of one size, each beginning with a pointer to the next. `ring`: address after the last and
        before the first; each then also points back.
        """
        before, node, usable = ring, first, self.size(first)
        for _ in range(min(count, MOST_STEPS)):
            if usable is None or self.size(node) not in (usable, usable + 16, usable - 16) or (ring and self._read_word(node, 1) != before):
                return False
            before, node = node, self._read_word(node) or 0
        return count > MOST_STEPS or node == ring

    def _read_map(self, at: int, these: Sequence[int]) -> FoundContainer:
        """Read libstdc++'s std::map: colour, root, first, last, number of elements; a node is colour, parent, left, right."""
        if len(these) < 5 or these[0] & 0xFFFFFFFF or not 0 < these[4] <= self._blocks:
            return None
        _, root, first, last, count = these[:5]
        if None in (self.size(root), self.size(first), self.size(last)) or (count == 1) != (first == last):
            return None
        proves = self._read_word(root, 1) == at and self._read_word(first, 2) == 0 and self._read_word(last, 3) == 0
        return make_container("map or set", at, 5, count) if proves else None

    def _tree_of_libcxx(self, at: int, these: Sequence[int]) -> FoundContainer:
        """Read libc++'s std::map: first, root, number of elements; a node is left, right, parent, and the root's parent is the word that
        leads to it.
        """
        if len(these) < 3 or not 0 < these[2] <= self._blocks or self.size(these[0]) is None or self.size(these[1]) is None:
            return None
        proves = self._read_word(these[1], 2) == at + 8 and self._read_word(these[0], 0) == 0
        return make_container("map or set", at, 3, these[2]) if proves else None

    def _read_list(self, at: int, these: Sequence[int]) -> FoundContainer:
        """Read std::list: two pointers to nodes that lead back here, and the number of nodes. In libstdc++ the first pointer leads to the
        first node, in libc++ to the last.
        """
        if len(these) < 3 or not 0 < these[2] <= self._blocks or (these[2] == 1) != (these[0] == these[1]):
            return None
        proves = self.size(these[1]) is not None and self._read_word(these[1]) == at and self._are_linked(these[0], these[2], at)
        return make_container("list", at, 3, these[2]) if proves else None

    def _read_deque(self, at: int, these: Sequence[int]) -> FoundContainer:
        """Read libstdc++'s std::deque: a table of buffers, its length, then twice current, first, last and place in the table."""
        if len(these) < 10 or not 0 < these[1] < MOST_COUNT:
            return None
        table, length, current, first, last, node, end, end_first, end_last, end_node = these[:10]
        each, buffers = last - first, (end_node - node) // 8
        is_ordered = first <= current < last and end_first <= end < end_last and end_last - end_first == each
        if not is_ordered or not table <= node <= end_node < table + 8 * length or not self.fits(table, 8 * length):
            return None
        if self.size(first) is None or self._read_word(node) != first or self._read_word(end_node) != end_first:
            return None
        used_bytes = buffers * each + (end - end_first) - (current - first)
        return make_container("deque", at, 10, None, used_bytes) if used_bytes > 0 else None

    def _read_rust_hash_map(self, at: int, these: Sequence[int]) -> FoundContainer:
        """Read Rust's HashMap: control bytes, places less one, room to grow, number of elements; the first two are swapped in older
        releases.
        """
        if len(these) < 4 or not 0 < these[3] < MOST_COUNT or not any(one >= 3 and not one & (one + 1) for one in these[:2]):
            return None
        control, mask = these[:2] if not these[1] & (these[1] + 1) else (these[1], these[0])
        places, inside = mask + 1, self.inside(control)
        most = places // 8 * 7 if places > 8 else mask
        if inside is None or control % GROUP_BYTES or places > MOST_COUNT or these[2] + these[3] > most:
            return None
        rest = inside[0] + inside[1] - (control + places + GROUP_BYTES)
        if not 0 <= rest < max(SLACK_BYTES, inside[1] // 5 + 16) or control - inside[0] < places:
            return None
        data = self._world.read(control, min(places, MOST_CONTROL_BYTES))
        full = len(data.translate(None, IS_EMPTY))
        proves = full == these[3]
        if len(data) < places:
            proves = len(data) == MOST_CONTROL_BYTES and abs(full / len(data) - these[3] / places) < 0.1
        spare_bytes = spare_bytes_beyond(inside[1], inside[1] * these[3] // most)
        return make_container("HashMap or HashSet", at, 4, these[3], None, spare_bytes) if proves else None

    def _read_rust_btree_map(self, at: int, these: Sequence[int]) -> FoundContainer:
        """Read Rust's BTreeMap: root, height, number of elements; the root has no parent, and its children lead back to it, with the last
        of a node's words.
        """
        if len(these) < 3 or not 0 < these[1] < MOST_HEIGHT or not BTREE_CAPACITY < these[2] < MOST_COUNT:
            return None
        usable = self.size(these[0])
        if usable is None or usable > MOST_BYTES or not rust.has_rust(self._world):
            return None
        node = self._world.words(these[0], usable // 8) or ()
        children = [word for word in node[1:] if self.size(word) is not None and self._read_word(word) == these[0]]
        return make_container("BTreeMap or BTreeSet", at, 3, these[2]) if node and not node[0] and len(children) >= 2 else None

    def _read_vector(self, at: int, these: Sequence[int]) -> FoundContainer:
        """Read std::vector: begin, end, end of the room. The number of elements is known only for vectors of pointers to blocks or of
        strings.
        """
        if len(these) < 3 or not these[0] < these[1] <= these[2] < these[0] + MOST_COUNT or not self.fits(these[0], these[2] - these[0]):
            return None
        if not cplusplus.has_cpp(self._world):
            return None
        size_bytes, spare_bytes = these[1] - these[0], spare_bytes_beyond(these[2] - these[0], these[1] - these[0])
        first = self._world.words(these[0], min(size_bytes // 8, MOST_STEPS)) or ()
        if size_bytes % 8 == 0 and len(first) >= 2 and len(set(first)) == len(first) and all(self.size(one) is not None for one in first):
            return make_container("vector of pointers", at, 3, size_bytes // 8, None, spare_bytes)
        strings = range(0, len(first) // STRING_WORDS * STRING_WORDS, STRING_WORDS)
        if size_bytes % (8 * STRING_WORDS) == 0 and strings and all(self._is_string(these[0] + 8 * at, first[at:]) for at in strings):
            return make_container("vector of strings", at, 3, size_bytes // (8 * STRING_WORDS), None, spare_bytes)
        return make_container("vector", at, 3, None, size_bytes, spare_bytes)

    def _is_string(self, at: int, these: Sequence[int]) -> bool:
        """Return True for libstdc++'s std::string, with characters of its own, or in a block."""
        if these[0] == at + 16:
            return these[1] < GROUP_BYTES
        return these[1] <= these[2] < MOST_COUNT and self.fits(these[0], these[2] + 1)

    def _read_string(self, at: int, these: Sequence[int]) -> FoundContainer:
        """Read libstdc++'s std::string with a block of its own: block, length, capacity; a zero ends it."""
        if len(these) < 3 or not 0 < these[1] <= these[2] < MOST_COUNT or these[2] < GROUP_BYTES or not self.fits(these[0], these[2] + 1):
            return None
        is_string = self._world.read(these[0] + these[1], 1) == b"\0" and cplusplus.has_cpp(self._world)
        return make_container("string", at, 3, None, these[1], spare_bytes_beyond(these[2], these[1])) if is_string else None

    def _read_environment_tree(self, at: int, these: Sequence[int]) -> FoundContainer:
        """Read the C library's tree of all values that setenv() ever made (stdlib/setenv.c: known_values): a node of tsearch(3) is the
        text, the left node, odd if the node itself is red, and the right one; the root is not red.
        """
        root = self._read_setting_node(these[0]) if these and self.inside(at) is None else None
        if root is None or root[1] & 1:
            return None
        below = [self._read_setting_node(node & ~1) for node in root[1:] if node & ~1]
        return make_container(ENVIRONMENT, at, 1, None) if below and None not in below else None

    def _read_setting_node(self, node: int) -> Optional[Tuple[int, ...]]:
        """Return the words of a node whose text is NAME=VALUE, or None."""
        words_here = self._world.words(node, 3) if node and self.fits(node, 24) else None
        is_one = words_here and self.size(words_here[0]) is not None and IS_SETTING.match(self._world.read(words_here[0], NAME_BYTES))
        return tuple(words_here) if words_here and is_one else None


def make_container(
    kind: str, at: int, words: int, elements: Optional[int], elements_bytes: Optional[int] = None, spare_bytes: Optional[int] = None
) -> HeldContainer:
    """Return a container that takes so many words."""
    return HeldContainer(kind, TargetAddress(at), 8 * words, elements, elements_bytes, spare_bytes)


def spare_bytes_beyond(room_bytes: int, needed_bytes: int) -> Optional[int]:
    """Return the bytes of the room that its elements do not need, if they are most of it, else None."""
    spare_bytes = room_bytes - needed_bytes
    return spare_bytes if spare_bytes >= max(SPARE_BYTES, SPARE_SHARE * room_bytes) else None
