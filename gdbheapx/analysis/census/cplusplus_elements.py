"""How large the elements of a std::vector or std::deque are, where their words prove it; where each stands in a list or a deque."""

from bisect import bisect_right
from typing import Dict, List, Optional, Sequence, Set, Tuple

from gdbheapx.analysis.census.containers import Containers
from gdbheapx.analysis.census.cplusplus_keys import STRING_BYTES, Keys
from gdbheapx.analysis.census.vtables import Images, constant_ranges
from gdbheapx.analysis.census.world import World

MOST_LOOKED, MOST_NODES = 4096, 1 << 14
"""Bytes of elements, and nodes of a list or buffers of a deque."""
LEAST_PERIODS = 3
"""Elements with the same marks: fewer may be one struct."""
FEW = 8
"""Pairs of pointers: of fewer it is not told whether they are pairs."""
DEQUE_BUFFER = 512
OBJECTS = {"vector": 24, "list": 24, "unordered map or set": 56, "map or set": 48, "deque": 80}
"""Bytes of containers, as libstdc++ has them."""
TREE_AT = 8
"""Where the header lies in a map."""


class Elements:
    """Of one graph. Memory is read."""

    def __init__(self, world: World, containers: Containers, keys: Keys) -> None:
        self._world, self._containers, self._keys = world, containers, keys
        self._constants: Sequence[Tuple[int, int]] = constant_ranges(world, world.once(Images))
        self._starts = [start for start, _ in self._constants]
        self._known: Dict[Tuple[int, int], Optional[int]] = {}
        self._places: Dict[int, Dict[int, int]] = {}

    def stride(self, first: int, end: int, buffer_bytes: int = 0) -> Optional[int]:
        """Bytes of each element; `buffer_bytes`: of a deque's buffers, which have as many as fit into 512 bytes."""
        if (first, end) not in self._known:
            found = self._stride(first, end)
            if found is not None and buffer_bytes and buffer_bytes != max(DEQUE_BUFFER // found, 1) * found:
                found = None
            self._known[first, end] = found
        return self._known[first, end]

    def _stride(self, first: int, end: int) -> Optional[int]:
        size = end - first
        words = self._world.words(first, min(size, MOST_LOOKED) // 8) if size % 8 == 0 else None
        if not words:
            return None
        found = self._of_pointers(words, size)
        if found is not None:
            return found or None
        return self._of_strings(first, size) or self._of_containers(first, size) or self._of_marks(first, words, size)

    def _of_pointers(self, words: Sequence[int], size: int) -> Optional[int]:
        """8, or 16 of std::shared_ptr; 0: pointers to different blocks in turn, which may be pairs; None: no pointers."""
        if not any(words):
            return None
        blocks = [self._containers.size(word) if word else None for word in words]
        if all(block is not None or not word for word, block in zip(words, blocks)):
            kinds = [(block, self.vtable(word)) for word, block in zip(words, blocks)]
            return 0 if any(self._alternate(kinds, count, size) for count in (2, 3, 4)) else 8
        is_shared = size % 16 == 0 and all(block is not None or not word for word, block in zip(words[1::2], blocks[1::2]))
        shared = zip(words[::2], words[1::2])
        return 16 if is_shared and any(words[1::2]) and all(word in (0, block + 16) for word, block in shared) else None

    def _alternate(self, kinds: Sequence[Tuple[Optional[int], int]], count: int, size: int) -> bool:
        """Every second, third or fourth leads to other blocks than the rest."""
        if size % (8 * count):
            return False
        groups: List[Set[object]] = [set(kinds[start::count]) for start in range(count)]
        return any(not one & other for place, one in enumerate(groups) for other in groups[place + 1 :])

    def vtable(self, address: int) -> int:
        """What the object there begins with, if it is among the constants of a module; else 0."""
        words = self._world.words(address, 1) if address else None
        return words[0] if words is not None and self._is_constant(words[0]) else 0

    def _is_constant(self, word: int) -> bool:
        place = bisect_right(self._starts, word) - 1
        return place >= 0 and word < self._constants[place][1]

    def is_comparison(self, at: int) -> bool:
        """What a map without a comparison of its own begins with: nobody writes there."""
        return self._holds("map or set", at) is not None

    def _of_strings(self, first: int, size: int) -> Optional[int]:
        looked = range(first, first + min(size, MOST_LOOKED) // STRING_BYTES * STRING_BYTES, STRING_BYTES)
        is_all = size % STRING_BYTES == 0 and all(self._keys.string(at) is not None for at in looked)
        return STRING_BYTES if is_all else None

    def _of_containers(self, first: int, size: int) -> Optional[int]:
        for kind, stride in OBJECTS.items():
            if size % stride:
                continue
            found = [self._holds(kind, at) for at in range(first, first + min(size, MOST_LOOKED) // stride * stride, stride)]
            if found and None not in found and any(found):
                return stride
        return None

    def _holds(self, kind: str, at: int) -> Optional[bool]:
        """A container of that kind with elements is there; False: an empty one; None: none."""
        container = self._containers.at(at + (TREE_AT if kind == "map or set" else 0))
        if container is not None and container.kind.partition(" of ")[0] == kind and _is_whole(kind, container.size_bytes):
            return True
        words = self._world.words(at, OBJECTS[kind] // 8) or (1,)
        empty = {
            "vector": words[0] == words[1] <= words[-1] if len(words) == 3 else False,
            "list": words[:2] == (at, at) and words[-1] == 0,
            "unordered map or set": words[0] == at + 48 and words[1:4] == (1, 0, 0),
            "map or set": words[2:] == (0, at + TREE_AT, at + TREE_AT, 0),
        }
        return False if empty.get(kind) else None

    def _of_marks(self, first: int, words: Sequence[int], size: int) -> Optional[int]:
        """Structs and objects: strings and vtables stand at the same place of each."""
        marks: Dict[int, int] = {}
        place = 0
        while place < len(words):
            is_string = self._keys.string(first + 8 * place) is not None
            if is_string or self._is_constant(words[place]):
                marks[place] = 1 if is_string else words[place]
            place += STRING_BYTES // 8 if is_string else 1
        places = list(marks)
        for stride in [one - places[0] for one in places[1:]]:
            is_even = size % (8 * stride) == 0 and len(words) >= LEAST_PERIODS * stride
            if is_even and places[0] < stride and all(self._repeats(marks, at, stride, len(words)) for at in places):
                return 8 * stride
        return None

    def _repeats(self, marks: Dict[int, int], at: int, stride: int, words: int) -> bool:
        later, before = at + stride, at - stride
        return (later + STRING_BYTES // 8 > words or marks.get(later) == marks[at]) and (before < 0 or marks.get(before) == marks[at])

    def place_in_list(self, head: int, node: int) -> Optional[int]:
        """Which one of the list whose header is there."""
        if head not in self._places:
            found: Dict[int, int] = {}
            words = self._world.words(head, 1)
            while words is not None and words[0] not in (head, 0) and words[0] not in found and len(found) < MOST_NODES:
                found[words[0]] = len(found)
                words = self._world.words(words[0], 1)
            self._places[head] = found
        return self._places[head].get(node)

    def place_of_buffer(self, node: int, end_node: int, buffer: int) -> Optional[int]:
        """Which one of a deque; `node`: where in its table the first one stands."""
        if node not in self._places:
            words = self._world.words(node, min((end_node - node) // 8 + 1, MOST_NODES)) or ()
            self._places[node] = {word: number for number, word in enumerate(words)}
        return self._places[node].get(buffer)


def _is_whole(kind: str, size_bytes: int) -> bool:
    return size_bytes == OBJECTS[kind] - (TREE_AT if kind == "map or set" else 0)
