"""Paths through containers and objects of C++, with their keys."""

import codecs
import functools
import struct
from array import array
from typing import Callable, Dict, List, NamedTuple, Optional, Sequence, Set, Tuple

from gdbheapx.allocators.session import Session
from gdbheapx.analysis.census.containers import ContainerFinder
from gdbheapx.analysis.census.images import Images, list_constant_ranges
from gdbheapx.analysis.census.world import CensusTarget
from gdbheapx.analysis.reachability.heap_graph import Reach, find_module_at
from gdbheapx.analysis.reachability.owners import HeldContainer
from gdbheapx.analysis.reachability.paths import FIELD, INDEX, KEY, Hop, Namer, PathMove, PathStep, Start
from gdbheapx.common.model import TargetAddress
from gdbheapx.common.ranges import RangeIndex
from gdbheapx.inferior.base import TypeLayout

MOST_LOOKED, MOST_NODES = 4096, 1 << 14
"""Bytes of elements, and nodes of a list or buffers of a deque."""
LEAST_PERIODS = 3
"""Elements with the same marks: fewer may be one struct."""
DEQUE_BUFFER = 512
OBJECTS = {"vector": 24, "list": 24, "unordered map or set": 56, "map or set": 48, "deque": 80}
"""Bytes of containers, as libstdc++ has them."""
TREE_AT = 8
"""Where the header lies in a map."""


Key = Tuple[str, int]
"""(key whose type and value are proven, as C++ writes it; where the value begins, if it is aligned to eight bytes)."""


Reading = Optional[Callable[[int], int]]
"""Integer that a word has; None: the key is a string."""


class CppKeys:
    """Reader of keys in the maps and sets of one graph. The first elements of a container are looked at once for all of its elements."""

    def __init__(self, world: CensusTarget, containers: ContainerFinder) -> None:
        self._world, self._containers = world, containers
        self.string = functools.lru_cache(1 << 14)(self._read_string)
        self.sample = functools.lru_cache(MOST_HEADS)(self._list_first_nodes)
        self._is_small_sample = functools.lru_cache(MOST_HEADS)(self._has_small_words)
        self._is_hashed_sample = functools.lru_cache(MOST_HEADS)(self._are_in_buckets)
        self._ordered_sample = functools.lru_cache(MOST_HEADS)(self._count_ordered_sample)

    def _read_string(self, address: int) -> Optional[bytes]:
        """Return the characters of the std::string at the address, or None."""
        words = self._world.words(address, 4)
        if words is None or words[1] > MOST_STRING:
            return None
        pointer, length, capacity = words[:3]
        if pointer == address + INLINE_BYTES:
            fits = length < INLINE_BYTES
        else:
            fits = INLINE_BYTES <= capacity < 1 << 40 and length <= capacity and self._containers.fits(pointer, capacity + 1)
        data = self._world.read(pointer, length + 1) if fits else b""
        return data[:length] if len(data) == length + 1 and not data[length] else None

    def _read_word(self, address: int) -> Optional[int]:
        words = self._world.words(address, 1)
        return None if words is None else words[0]

    def hashed(self, head: int, node: int) -> Optional[Key]:
        """Return the key of a node of the unordered map or set with this head, or None."""
        table = self._world.words(head, 2)
        if table is None or not table[1]:
            return None
        data = self.string(node + HASHED_AT)
        if data is not None:  # nodes with strings have the hash after the value
            after = node + HASHED_AT + STRING_BYTES
            behind = self._world.words(after, (min(self._containers.size(node) or 0, MOST_STRING) - HASHED_AT - STRING_BYTES) // 8)
            is_key = (behind is not None and hash_of(data) in behind) or self._fit_in(head, table, node, None)
            return (quote_cpp_text(data), after) if is_key else None
        word = self._read_word(node + HASHED_AT)
        for reading in INTEGERS if word is not None else ():
            if self._fit_in(head, table, node, reading):
                return "%d" % reading(word or 0), node + HASHED_AT + 8
        return None

    def _hash_key(self, node: int, reading: Reading) -> Optional[int]:
        if reading is None:
            data = self.string(node + HASHED_AT)
            return None if data is None else hash_of(data)
        word = self._read_word(node + HASHED_AT)
        return None if word is None else reading(word) & WORD

    def _fit_in(self, head: int, table: Tuple[int, ...], node: int, reading: Reading) -> bool:
        """Return True if the node is in the bucket of its key, and so many others in theirs that it is no chance. `table`: address and
        number of buckets.
        """
        if not self._is_in_bucket(table, node, reading):
            return False
        is_small = (self._read_word(node + HASHED_AT) or 0) < SMALL and self._is_small_sample(head, False)
        is_enough = is_small or len(self.sample(head, False)) * (table[1].bit_length() - 1) >= LEAST_BITS
        return is_enough and self._is_hashed_sample(head, table, reading)

    def _are_in_buckets(self, head: int, table: Tuple[int, ...], reading: Reading) -> bool:
        return all(self._is_in_bucket(table, node, reading) for node in self.sample(head, False))

    def _has_small_words(self, head: int, is_tree: bool) -> bool:
        key_at = ORDERED_AT if is_tree else HASHED_AT
        return all((self._read_word(node + key_at) or 0) < SMALL for node in self.sample(head, is_tree))

    def _list_first_nodes(self, head: int, is_tree: bool) -> List[int]:
        words = self._world.words(head, 3)
        node = words[2] if words is not None else None
        nodes: List[int] = []
        while node and node != head and len(nodes) < SAMPLES and self._containers.size(node) is not None:
            nodes.append(node)
            node = self._find_next(head, node, True) if is_tree else self._read_word(node)
        return nodes

    def _is_in_bucket(self, table: Tuple[int, ...], node: int, reading: Reading) -> bool:
        (first, buckets), own = table, self._hash_key(node, reading)
        before = self._read_word(first + own % buckets * 8) if own is not None else None
        at = self._read_word(before) if before else None
        for _ in range(MOST_STEPS):
            if not at or at == node:
                return at == node
            of_at = self._hash_key(at, reading)
            if own is None or of_at is None or of_at % buckets != own % buckets:
                return False
            at = self._read_word(at)
        return False

    def ordered(self, head: int, node: int) -> Optional[Key]:
        """Return the key of a node of the map or set with this header, or None."""
        near = [one for one in (self._find_next(head, node, False), node, self._find_next(head, node, True)) if one is not None]
        data = self.string(node + ORDERED_AT)
        if data is not None:
            is_key = _is_ordered([self.string(one + ORDERED_AT) for one in near]) and self._ordered_sample(head, None) is not None
            return (quote_cpp_text(data), node + ORDERED_AT + STRING_BYTES) if is_key else None
        words = [word for one in near for word in self._world.words(one + ORDERED_AT, 1) or ()]
        is_small = all(word < SMALL for word in words) and self._is_small_sample(head, True)
        if len(words) != len(near) or not (is_small or len({*near, *self.sample(head, True)}) >= LEAST_ORDERED):
            return None
        for reading in INTEGERS:
            counts, others = _count_fitting(reading, words), self._ordered_sample(head, reading)
            if counts is None or others is None or not _is_ordered([reading(word) for word in words]):
                continue
            if 2 * (counts[0] + others[0]) > counts[1] + others[1]:
                return "%d" % reading(self._read_word(node + ORDERED_AT) or 0), node + ORDERED_AT + 8
        return None

    def _count_ordered_sample(self, head: int, reading: Reading) -> Optional[Tuple[int, int]]:
        """Return what _count_fitting() does for the first nodes of a tree in order, and the first from the root down; None if keys are not
        in order, or cannot be read.
        """
        sample = self.sample(head, True)
        if reading is None:
            return (0, 0) if _is_ordered([self.string(node + ORDERED_AT) for node in sample]) else None
        words = [word for node in sample for word in self._world.words(node + ORDERED_AT, 1) or ()]
        if len(words) != len(sample) or not _is_ordered([reading(word) for word in words]):
            return None
        # those from the root down have all sizes and ages, while the first ones in order may be all alike
        tops = [word for word in (self._read_word(head + 8),) if word]
        for node in tops:
            below = self._world.words(node + 16, 2) if len(tops) < TOP_NODES else None
            tops += [word for word in below or () if self._containers.size(word) is not None]
        return _count_fitting(reading, words + [word for node in tops for word in self._world.words(node + ORDERED_AT, 1) or ()])

    def _find_next(self, head: int, node: int, is_next: bool) -> Optional[int]:
        """Return the next node in order, or the one before: the outermost of the opposite side below it, else the first ancestor on the
        other side.
        """
        side, other = (3, 2) if is_next else (2, 3)
        words = self._world.words(node, 4)
        if words is None:
            return None
        if words[side]:
            at = words[side]
            for _ in range(MOST_STEPS):
                below = self._read_word(at + 8 * other)
                if not below:
                    return at if below == 0 else None
                at = below
            return None
        for _ in range(MOST_STEPS):
            above = self._read_word(node + 8)
            if above is None or above == head:
                return None
            if self._read_word(above + 8 * side) != node:
                return above
            node = above
        return None


class CppElements:
    """Reader of elements in the containers of one graph."""

    def __init__(self, world: CensusTarget, containers: ContainerFinder, keys: CppKeys) -> None:
        self._world, self._containers, self._keys = world, containers, keys
        self._constants = RangeIndex(list_constant_ranges(world, world.once(Images)))
        self.stride = functools.lru_cache(MOST_KNOWN)(self._find_stride)
        self._places: Dict[int, Dict[int, int]] = {}

    def _find_stride(self, first: int, end: int, buffer_bytes: int = 0) -> Optional[int]:
        """Return the bytes of each element. `buffer_bytes`: size of a deque's buffers, of which each takes 512 bytes of elements."""
        size = end - first
        words = self._world.words(first, min(size, MOST_LOOKED) // 8) if size % 8 == 0 else None
        if not words:
            return None
        stride = self._of_pointers(words, size)
        if stride is None:
            stride = self._of_containers(first, size) or self._of_marks(first, words, size)
        is_known = stride and (not buffer_bytes or buffer_bytes == max(DEQUE_BUFFER // stride, 1) * stride)
        return stride if is_known else None

    def _of_pointers(self, words: Sequence[int], size: int) -> Optional[int]:
        """Return 8, or 16 for std::shared_ptr; 0 for alternating pointers to different blocks, which may be pairs; None if there are no
        pointers.
        """
        if not any(words):
            return None
        blocks = [self._containers.size(word) if word else None for word in words]
        if all(block is not None or not word for word, block in zip(words, blocks)):
            kinds = [(block, self.vtable(word)) for word, block in zip(words, blocks)]
            return 0 if any(self._is_alternating(kinds, count, size) for count in (2, 3, 4)) else 8
        is_shared = size % 16 == 0 and all(block is not None or not word for word, block in zip(words[1::2], blocks[1::2]))
        shared = zip(words[::2], words[1::2])
        return 16 if is_shared and any(words[1::2]) and all(word in (0, block + 16) for word, block in shared) else None

    def _is_alternating(self, kinds: Sequence[Tuple[Optional[int], int]], count: int, size: int) -> bool:
        """Return True if every second, third or fourth pointer leads to other blocks than the rest."""
        if size % (8 * count):
            return False
        groups: List[Set[object]] = [set(kinds[start::count]) for start in range(count)]
        return any(not one & other for place, one in enumerate(groups) for other in groups[place + 1 :])

    def vtable(self, address: int) -> int:
        """Return the object's first word if it is among the constants of a module, else 0."""
        words = self._world.words(address, 1) if address else None
        return words[0] if words is not None and self._constants.meets(words[0], words[0] + 1) else 0

    def _of_containers(self, first: int, size: int) -> Optional[int]:
        """Return the bytes of each string, or of each container."""
        end = first + min(size, MOST_LOOKED)
        strings = range(first, end - STRING_BYTES + 1, STRING_BYTES)
        if size % STRING_BYTES == 0 and all(self._keys.string(at) is not None for at in strings):
            return STRING_BYTES
        for kind, stride in OBJECTS.items():
            found = [self.has_elements(kind, at) for at in range(first, end - stride + 1, stride)] if size % stride == 0 else []
            if None not in found and any(found):
                return stride
        return None

    def has_elements(self, kind: str, at: int) -> Optional[bool]:
        """Return True if a container of that kind with elements is there, False for an empty one, None for none."""
        tree_bytes = TREE_AT if kind == ORDERED else 0
        container = self._containers.at(at + tree_bytes)
        is_kind = container is not None and _find_container_kind(container) == kind
        if container is not None and is_kind and container.size_bytes == OBJECTS[kind] - tree_bytes:
            return True
        words = self._world.words(at, OBJECTS[kind] // 8) or (1,)
        empty = {
            VECTOR: words[0] == words[1] <= words[-1] if len(words) == 3 else False,
            LIST: words[:2] == (at, at) and words[-1] == 0,
            UNORDERED: words[0] == at + 48 and words[1:4] == (1, 0, 0),
            ORDERED: words[2:] == (0, at + TREE_AT, at + TREE_AT, 0),
        }
        return False if empty.get(kind) else None

    def _of_marks(self, first: int, words: Sequence[int], size: int) -> Optional[int]:
        """Return the stride of structs and objects, which have strings and vtables at equal offsets."""
        marks: Dict[int, int] = {}
        place = 0
        while place < len(words):
            is_string = self._keys.string(first + 8 * place) is not None
            if is_string or self._constants.meets(words[place], words[place] + 1):
                marks[place] = 1 if is_string else words[place]
            place += STRING_BYTES // 8 if is_string else 1
        places = list(marks)
        for stride in [one - places[0] for one in places[1:]]:
            is_even = size % (8 * stride) == 0 and len(words) >= LEAST_PERIODS * stride
            if is_even and places[0] < stride and all(self._is_repeated(marks, at, stride, len(words)) for at in places):
                return 8 * stride
        return None

    def _is_repeated(self, marks: Dict[int, int], at: int, stride: int, words: int) -> bool:
        later, before = at + stride, at - stride
        return (later + STRING_BYTES // 8 > words or marks.get(later) == marks[at]) and (before < 0 or marks.get(before) == marks[at])

    def place_in_list(self, head: int, node: int) -> Optional[int]:
        """Return the index of a node in the list with this header."""
        if head not in self._places:
            found: Dict[int, int] = {}
            words = self._world.words(head, 1)
            while words is not None and words[0] not in (head, 0) and words[0] not in found and len(found) < MOST_NODES:
                found[words[0]] = len(found)
                words = self._world.words(words[0], 1)
            self._places[head] = found
        return self._places[head].get(node)

    def place_of_buffer(self, node: int, end_node: int, buffer: int) -> Optional[int]:
        """Return the index of a buffer in a deque. `node`: address of the first buffer's pointer in the table."""
        if node not in self._places:
            words = self._world.words(node, min((end_node - node) // 8 + 1, MOST_NODES)) or ()
            self._places[node] = {word: number for number, word in enumerate(words)}
        return self._places[node].get(buffer)


STRING_BYTES, INLINE_BYTES = 32, 16
HASHED_AT, ORDERED_AT = 8, 32
"""Where the key begins in a node of an unordered map, and of a map."""
MOST_STRING, MOST_KEY = 4096, 60
"""Bytes of a string that is looked at, and letters of one that are shown."""
SAMPLES, TOP_NODES, MOST_STEPS = 24, 63, 64
MOST_HEADS = 1 << 12
"""Containers whose first elements are known at a time."""
LEAST_BITS = 12
"""By which chance is excluded: so many has a bucket's number, all together."""
LEAST_ORDERED = 7
"""Nodes whose order is no chance: one in 5,040."""
SMALL = 1 << 24
"""A word below is a number, and no pointer, no text and no fraction."""
FRACTIONS = (0x33000000, 0x4F000000)
"""Of 32 bits, between which a float of 3e-8 to 2e9 lies."""
MOST_WIDE = 1 << 53
WORD = (1 << 64) - 1
PADDING = (0x5500, 0x7FFF)
"""Of the four bytes after an int, what the upper half of an address leaves there."""
MULTIPLIER, SEED = 0xC6A4A7935BD1E995, 0xC70F6907
ESCAPES = {"\\": "\\\\", '"': '\\"', "\n": "\\n", "\t": "\\t", "\r": "\\r"}


def _to_signed_64(word: int) -> int:
    return word - (word >> 63 << 64)


def _to_signed_32(word: int) -> int:
    return (word & 0x7FFFFFFF) - (word & 0x80000000)


def _to_unsigned_32(word: int) -> int:
    return word & 0xFFFFFFFF


INTEGERS = (_to_signed_64, _to_signed_32, _to_unsigned_32)


def quote_cpp_text(data: bytes) -> str:
    """Return bytes as a C++ literal, cut if they are long."""
    try:
        codecs.getincrementaldecoder("utf-8")().decode(data[: 4 * MOST_KEY])  # the last letter may be cut
        text = data[: 4 * MOST_KEY + 4].decode("utf-8", "replace")
    except UnicodeDecodeError:
        text = data[: MOST_KEY + 1].decode("latin-1")
    shown = "".join(ESCAPES.get(letter, letter if letter.isprintable() else "\\u{%x}" % ord(letter)) for letter in text[:MOST_KEY])
    return '"%s"%s' % (shown, "..." if len(text) > MOST_KEY else "")


def _mix_word(word: int) -> int:
    return word ^ word >> 47


def hash_of(data: bytes) -> int:
    """Hash a string as std::hash does."""
    found = SEED ^ len(data) * MULTIPLIER & WORD
    for at in range(0, len(data) & ~7, 8):
        part = _mix_word(int.from_bytes(data[at : at + 8], "little") * MULTIPLIER & WORD) * MULTIPLIER & WORD
        found = (found ^ part) * MULTIPLIER & WORD
    if len(data) & 7:
        found = (found ^ int.from_bytes(data[len(data) & ~7 :], "little")) * MULTIPLIER & WORD
    return _mix_word(_mix_word(found) * MULTIPLIER & WORD)


def _is_ordered(keys: Sequence[object]) -> bool:
    pairs: List[Tuple[object, object]] = list(zip(keys, keys[1:]))
    if any(key is None for key in keys):
        return False
    return all(one < other for one, other in pairs) or all(one > other for one, other in pairs)  # type: ignore[operator]


def _count_fitting(reading: Callable[[int], int], words: Sequence[int]) -> Optional[Tuple[int, int]]:
    """Return how many words may have such an integer, by what follows it, and the number of words; None if one of them is none."""
    if reading is _to_signed_64:
        narrow = [word for word in words if word < 1 << 32]
        fits = all(-MOST_WIDE < _to_signed_64(word) < MOST_WIDE for word in words) and not _are_fractions(narrow)
        return (len(words), len(words)) if fits else None
    behind = sum(not word >> 32 or PADDING[0] <= word >> 32 <= PADDING[1] for word in words)
    return None if _are_fractions([_to_unsigned_32(word) for word in words]) else (behind, len(words))


def _are_fractions(words: Sequence[int]) -> bool:
    return any(FRACTIONS[0] <= word & 0x7FFFFFFF < FRACTIONS[1] for word in words)


UNORDERED, ORDERED, LIST, DEQUE, VECTOR = "unordered map or set", "map or set", "list", "deque", "vector"
BYTES = {UNORDERED: 56, ORDERED: 40, LIST: 24, DEQUE: 80, VECTOR: 24}
"""Of the heads as libstdc++ has them: libc++'s are not named."""
WAYS = {UNORDERED: (0, 2), ORDERED: (1, 2, 3), LIST: (0, 1), DEQUE: (0, 2, 3, 5, 6, 7, 9), VECTOR: (0,)}
"""Words of heads that lead to their blocks: an end may be where another block begins."""
MOST_NAMES = 32
"""Steps of a path: more are a list of the program's own that was followed, and no name."""
MOST_KNOWN = 1 << 14
PAGE_BYTES, MOST_PAGES = 1024, 1 << 13
MOST_BYTES, SLACK_BYTES = 1 << 62, 24
"""Of a variable; and at the end of a block what a program may not have asked for."""
MEMBER, POINTED, ELEMENT, UNKNOWN = ".+0x%x", " -> +0x%x", "[+0x%x]", "[...]"
NODES = {UNORDERED: (HASHED_AT, (0,)), ORDERED: (ORDERED_AT, (8, 16, 24)), LIST: (16, (0, 8))}
"""Where the element begins in a node, and pointers to other nodes."""


class MemberPosition(NamedTuple):
    """Variable, container, element or object that a path has come to."""

    base: int
    """Offsets count from here."""
    low: int
    """Containers begin here or after."""
    form: str = MEMBER
    """Of an offset."""
    container: Optional[HeldContainer] = None
    """In whose own memory the way is."""
    is_table: bool = False
    """In the table of an unordered map or a deque, which leads to the others."""
    block: int = 0
    """Of a node or an object, which has less than its block: what leads on may be left over from who had the memory before."""
    beside: Sequence[int] = ()
    """Other nodes of the same container."""
    layout: Optional[TypeLayout] = None
    """Of what begins at `base`, by debug information."""
    step_count: int = 1
    """Of the path so far."""
    is_named: bool = False
    """The path led through a container."""

    def member(self, away: int) -> Tuple[str, Optional[TypeLayout]]:
        """Return name and type of the member at an offset from `base`; an empty name for what begins there itself."""
        inner = self.layout.member(away) if self.layout is not None and self.form != ELEMENT else None
        name, layout = inner if inner is not None else ("", None)
        if not name:
            return self.form % away if away or self.form == ELEMENT else "", layout
        return name if self.form == MEMBER else "->" + name[1:], layout


Moved = Optional[Tuple[MemberPosition, Sequence[PathStep]]]


class Paged(CensusTarget):
    """A world that is asked for a few words position and there, most of them near each other."""

    def __init__(self, session: Session) -> None:
        super().__init__(session)
        self._page = functools.lru_cache(MOST_PAGES)(self._read_page)

    def _read_page(self, number: int) -> bytes:
        return super().read(number * PAGE_BYTES, PAGE_BYTES)

    def read(self, address: int, size_bytes: int) -> bytes:
        """See CensusTarget."""
        number, away = divmod(address, PAGE_BYTES)
        if away + size_bytes > PAGE_BYTES:
            return super().read(address, size_bytes)
        return self._page(number)[away : away + size_bytes]

    def words(self, address: int, count: int) -> Optional[Tuple[int, ...]]:
        """See CensusTarget."""
        data = self.read(address, 8 * count)
        return tuple(self.target.bare(struct.unpack("<%dQ" % count, data))) if len(data) == 8 * count else None


class ContainerNamer(Namer):
    """Namer of C++ containers, in 64-bit little-endian targets."""

    def __init__(self, session: Session, reach: Reach) -> None:
        world = Paged(session)
        containers = ContainerFinder(world, reach)
        self._world, self._graph, self._containers, self._keys = world, reach.graph, containers, CppKeys(world, containers)
        self._holders: Optional[array[int]] = None
        self._elements = CppElements(world, containers, self._keys)
        self._around = functools.lru_cache(MOST_KNOWN)(containers.around)
        self._layout = functools.lru_cache(MOST_KNOWN)(self._layout_of)

    def find_begin(self, place: int, start: int) -> Optional[int]:
        found = self._find_whole_container(place, start)
        return None if found is None else _find_container_begin(found)

    def begin_path(self, start: Start) -> PathMove:
        """See Namer."""
        return PathMove(MemberPosition(start.address, start.address, layout=self._layout(start.address)), start.steps)

    def follow_pointer(self, position: MemberPosition, hop: Hop, below: Hop) -> Optional[PathMove]:
        """Follow a pointer; None also if nothing proves that it is no leftover of the memory's last use. See Namer."""
        container, offset = position.container, hop.find_offset()
        if position.is_table and container is not None and _find_container_kind(container) == UNORDERED:
            return PathMove(position._replace(is_table=False))
        if offset is None:
            return None
        place, steps = hop.address + offset, []  # type: int, List[PathStep]
        moved: Moved = position, steps
        if container is not None:
            moved = self._move_inside(position, container, hop.address, place)
        if moved is not None and moved[0].container is None:
            steps += moved[1]
            moved = self._follow_member(moved[0], place, below.address)
        if moved is None:
            return None
        reached, steps = moved[0], [*steps, *moved[1]]
        step_count = position.step_count + len(steps)
        if step_count > MOST_NAMES:
            return None
        is_named = position.is_named or reached.container is not None
        end_address = below.address if reached.form == POINTED else None
        return PathMove(reached._replace(step_count=step_count, is_named=is_named), steps, end_address=end_address)

    def finish_path(self, position: MemberPosition, steps: List[PathStep], block: int) -> List[PathStep]:
        """Return the path; empty without a container on the way, since that is a chain of offsets. See Namer."""
        if len(steps) == 1 and position.form == POINTED and position.layout is not None:
            return [steps[0]._replace(name="*" + steps[0].name, address=TargetAddress(block))]
        if not position.is_named:
            return []
        container = position.container
        if container is None or position.is_table or _find_container_kind(container) not in NODES:
            return [*steps]
        return [*steps, self._step_to_entry(container, block)[0]]

    def _layout_of(self, variable: int) -> Optional[TypeLayout]:
        module = find_module_at(self._world.target, variable)
        return self._world.target.layout(module, variable) if module is not None else None

    def _find_whole_container(self, place: int, low: int) -> Optional[HeldContainer]:
        found = self._around(place, low)
        if found is None or BYTES.get(_find_container_kind(found)) != found.size_bytes:
            return None
        return found if self._count_bytes_left(found.address) >= found.size_bytes else None

    def _count_bytes_left(self, address: int) -> int:
        """Return the bytes from the address to the end of the block; of a variable, all."""
        inside = self._containers.inside(address)
        return MOST_BYTES if inside is None else inside[0] + inside[1] - address

    def _follow_member(self, position: MemberPosition, place: int, below: int) -> Moved:
        found = self._find_whole_container(place, position.low)
        if found is None:
            away = place - position.base
            if away < 0 or not self._is_proven(position, place, below):
                return None
            name, layout = position.member(away)
            name = name or ("" if position.form == MEMBER else position.form % away)
            target = layout.target() if layout is not None else None
            begin, moved = below, MemberPosition(below, below, POINTED, block=below, layout=target)
        else:
            begin = _find_container_begin(found)
            name, layout = position.member(begin - position.base)
            word, kind = (place - found.address) // 8, _find_container_kind(found)
            if word not in WAYS[kind]:
                return None
            is_table = (kind == UNORDERED and word == 0) or (kind == DEQUE and word in (0, 5, 9))
            moved = MemberPosition(begin, begin, MEMBER, found, is_table, layout=layout)
        return moved, [PathStep(FIELD, name, TargetAddress(begin))] if name else []

    def _is_proven(self, position: MemberPosition, place: int, below: int) -> bool:
        """Return True if the word is no leftover: an object of a class has it, or a string, no other word leads there, or other nodes
        have pointers there.
        """
        left = self._count_bytes_left(place)
        words = self._world.words(place - 16, 4) or (0,) * 4
        begin = words[0] if words[0] <= words[1] <= below else words[1] if words[2] == words[3] else 0
        usable = self._containers.size(begin) if begin else None
        if usable is not None and begin + usable == below:
            return False  # the end of a vector without elements, or of its room: another block may begin there
        if position.block and self._elements.has_elements(ORDERED, place) is not None:
            return False
        if not position.block or (left >= STRING_BYTES and self._keys.string(place) is not None):
            return True
        if left > SLACK_BYTES and position.form == POINTED and self._elements.vtable(position.block):
            return True
        if self._holders is None:
            self._holders = self._graph.only_holders()
        block, held = self._graph.find(position.block), self._graph.find(below)
        if block is not None and held is not None and self._holders[held[0]] == block[0]:
            return True
        others = [(self._world.words(node + place - position.block, 1) or (1,))[0] for node in position.beside]
        pointers = [word for word in others if word and self._containers.size(word) is not None]
        return 2 * len(pointers) > len(others) and all(not word or word in pointers for word in others)

    def _move_inside(self, position: MemberPosition, container: HeldContainer, block: int, place: int) -> Moved:
        kind = _find_container_kind(container)
        words = self._world.words(container.address, 10 if kind == DEQUE or position.is_table else 2)
        if position.is_table:
            return (position._replace(is_table=False), []) if words is not None and words[5] <= place <= words[9] else None
        element = position.layout.element() if position.layout is not None else None
        if kind in (VECTOR, DEQUE):
            at = None
            if words is not None and kind == DEQUE:
                at = self._find_in_deque(words, block, place)
            elif words is not None and words[0] <= place < words[1]:
                at = words[0], place - words[0], self._elements.stride(*words)
            if at is None:
                return None
            first, away, stride = at
            if stride is None:
                return MemberPosition(place - away, first, ELEMENT), []
            begin = place - away % stride
            return MemberPosition(begin, begin, layout=element), [PathStep(INDEX, "[%d]" % (away // stride), TargetAddress(begin))]
        element_at, links = NODES[kind]
        if place - block in links:
            return position, []
        step, end = self._step_to_entry(container, block)
        if place - block < element_at:
            return None
        if end is not None and place < end:  # the key's own characters
            return MemberPosition(place, place), [step._replace(name=".<key %s>" % step.name[1:-1])]
        if kind == LIST:
            begin = block + element_at
            return MemberPosition(begin, begin, block=0 if place == begin else block, layout=element), [step]
        at_value, layout = (block + element_at, None) if end is None else (end, element)
        beside = self._keys.sample(container.address, kind == ORDERED)
        return MemberPosition(at_value, at_value, block=block, beside=beside, layout=layout), [step]

    def _step_to_entry(self, container: HeldContainer, node: int) -> Tuple[PathStep, Optional[int]]:
        """Return the step to a node's element, and the begin of the value after the key, or None if that is not known."""
        if _find_container_kind(container) == LIST:
            place = self._elements.place_in_list(container.address, node)
            return PathStep(INDEX, UNKNOWN if place is None else "[%d]" % place, TargetAddress(node)), None
        read = self._keys.hashed if _find_container_kind(container) == UNORDERED else self._keys.ordered
        text, end = read(container.address, node) or (None, None)
        return PathStep(KEY, UNKNOWN if text is None else "[%s]" % text, TargetAddress(node)), end

    def _find_in_deque(self, words: Sequence[int], block: int, place: int) -> Optional[Tuple[int, int, Optional[int]]]:
        """Return (begin of the buffer, bytes from the first element to the place, bytes of each element), or None outside of it."""
        current, first, last, node, end, end_first, end_node = (words[number] for number in (2, 3, 4, 5, 6, 7, 9))
        number = self._elements.place_of_buffer(node, end_node, block)
        if number is None or not (number or place >= current) or (block == end_first and place >= end):
            return None
        stride = self._elements.stride(current, end if end_first == first else last, last - first)
        return block, number * (last - first) + place - block - (current - first), stride


def _find_container_kind(container: HeldContainer) -> str:
    return container.kind.partition(" of ")[0]


def _find_container_begin(container: HeldContainer) -> int:
    return container.address - (TREE_AT if _find_container_kind(container) == ORDERED else 0)
