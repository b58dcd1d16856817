"""What a block is by what stands in it: conditions on its first bytes, as rows of data that both kernels read."""

from abc import ABC, abstractmethod
from array import array
from typing import Any, Iterator, List, NamedTuple, Optional, Sequence, Tuple

from gdbheapx.kernel.blocks.records import Blocks

SIGNED_BYTES = 512
"""Of a block, at its begin, that conditions may ask for (signatures.h)."""
ALL = (1 << 64) - 1
EQUAL, NOT_EQUAL, AT_MOST, AT_LEAST, IN_SET, IN_RANGES = range(6)
NUMBER, USABLE, ADDRESS, FIELD = range(4)
UNSIGNED = 0
"""The label of a block that no row knows."""
MOST_KEYS = 1 << 20
SIZED_BITS, MOST_SIZED = 48, 0xFFFE
OTHERS = ALL
"""The key of a row's blocks beyond MOST_KEYS."""


class Condition(NamedTuple):
    """One number in a block, compared: (number & mask) OP (base + operand)."""

    offset: int
    width: int
    op: int
    operand: int
    """Of IN_SET and IN_RANGES the number of the set. Modulo 2**64."""
    base: int = NUMBER
    """NUMBER: nothing; USABLE: the block's usable bytes; ADDRESS: its address; FIELD: the number at `other`, of the same width."""
    mask: int = ALL
    other: int = 0


class SignatureRow(NamedTuple):
    """What makes a block one of a kind: all conditions hold."""

    conditions: Sequence[Condition]
    least_usable: int = 0
    most_usable: int = ALL
    key: Optional[Tuple[int, int, int]] = None
    """(offset, width, mask) of the number by which they are told apart."""
    sized: bool = False
    """They are told apart by their usable bytes too: sized() reads such a key. Of the number 48 bits count."""
    weak: bool = False
    """What meets it may turn out to be nothing: refer() tells it by its content then."""


def sized(key: int) -> Tuple[int, int]:
    """(number, usable bytes in whole steps of 8) of the key of a row that is `sized`; bytes beyond MOST_SIZED are told as MOST_SIZED."""
    return key & ((1 << SIZED_BITS) - 1), 8 * (key >> SIZED_BITS)


class NumberSet(NamedTuple):
    """What a number may be: one of these, or inside a range. 0 is in none."""

    numbers: Sequence[int] = ()
    ranges: Sequence[Tuple[int, int]] = ()
    """(begin, end), sorted, without overlap; given, they count alone."""


REFERRED, ROOTED, SIZED, BEGINS_TEXT, ONLY_ZEROS, STRING, VECTOR, TREE, BUCKETS, CHAIN, LIST, DEQUE, BUFFERS, HASHES = range(14)
NUMBERS, POINTERS, COPIES, DYNS, SHARED_DYNS, VECS, BTREES, COUNTED = range(14, 22)
"""Rows beyond those that were asked. By content: BEGINS_TEXT, a string of 8 characters or more begins the block; ONLY_ZEROS, all bytes
are 0 (without refer() of blocks of up to 512 bytes); NUMBERS, nine words of ten are of type double. Of refer(): STRING and VECTOR, to which
three words side by side point as they do in C++; TREE, of std::map and std::set; BUCKETS and CHAIN, of a std::unordered_map or set, its
table and its nodes; LIST, of std::list; DEQUE and BUFFERS, of a std::deque; HASHES, a table of Rust's; POINTERS, half of the words lead to
blocks; COPIES, other blocks have the same content; DYNS and SHARED_DYNS, to which trait objects lead; VECS, to which three words of a Vec
do; BTREES, nodes of a BTreeMap; COUNTED, an Rc or Arc. Keys: of REFERRED (label of the referrer << 32) + place of the pointer in words; of
ROOTED (number of the root << 32) + place; of SIZED usable bytes; of COPIES (number of the first block that has it << 1) + 1 if it is text;
of DYNS and SHARED_DYNS the vtable; of VECS the order of the three words."""
ELEMENT = 0xFFFFFFFE
"""In the place of a place: the referrer is larger than MOST_OBJECT_BYTES, an array of some sort."""
MOST_OBJECT_BYTES = 1024


CPLUSPLUS, RUST = 1, 2
UNKNOWN, KNOWN, BY_CONTENT, COUNTS, STRONG, BY_BEGIN = range(6)
"""What a label is worth: nothing; a name; less than who points there, and more than a size; two counts as an Rc or Arc has; and the second
one is 1, the first one the key; more than who points there, and less than the container whose block it is."""
LEAST_TEXT, MOST_TEXT = 8, 64
LEAST_NUMBERS, LEAST_EXPONENT, EXPONENTS = 8, 1023 - 64, 129
LEAST_CONTENT, LEAST_COPIES, LEAST_COPIED, MOST_SAME = 64, 4, 64 << 10, 128
"""Bytes of a block; so many are a group, or so many bytes of two or three (contents.h)."""


class Signed(NamedTuple):
    """Blocks that met a row, with one key. The label is the place in the list of found() + 1."""

    row: int
    """Its number; beyond the last one REFERRED, ROOTED, SIZED, BEGINS_TEXT or ONLY_ZEROS, added to how many there are."""
    key: int
    blocks: int
    bytes: int
    sample: int
    """The address of the first."""
    least_bytes: int
    """Of the smallest."""
    most_bytes: int


class Referring(NamedTuple):
    """How refer() goes about it."""

    most_depth: int
    """Steps from a block of a known label; a list of nodes counts as one."""
    roots_from: int
    """The first node of the graph that is a root."""
    has_classes: bool
    """Blocks come in size classes: a fifth of one may be unused. Else what is not used is less than 32 bytes."""
    tree_label: int
    """Of blocks that begin as a node of a tree would; 0: there are none."""
    containers: int = 1
    """Whose are looked for, CPLUSPLUS or RUST or both: a program that is neither has such words side by side by chance."""
    layouts: Sequence[Tuple[int, int, int]] = ()
    """(vtable, size, alignment) of what trait objects of Rust lead to, sorted."""
    least_same_bytes: int = 0
    """Of blocks with the same content, together: what has fewer is not told one by one."""


class Copied(NamedTuple):
    """Contents that several blocks have, whatever they are."""

    contents: int
    """That differ."""
    blocks: int
    bytes: int
    spare_bytes: int
    """If each content were there once."""
    same: Sequence[Tuple[int, int]] = ()
    """(number of the first block, blocks) of each content with Referring.least_same_bytes or more; at most MOST_SAME, sorted."""


LEAST_CAPACITY, MOST_CONTAINER_BYTES = 16, 1 << 40


LEAST_LOAD, MOST_LOAD, LEAST_BUFFER = 0x3D4CCCCD, 0x42C80000, 256
Hint = Tuple[int, int, int]
"""(address, row, bytes or number of nodes): struct hint."""


CAPACITY_POINTER_LENGTH, POINTER_CAPACITY_LENGTH, VEC_ORDERS = range(3)
"""The three words of a Vec, in the order that the compiler has chosen; the last one is how many orders there are."""
LEAST_FULL, LEAST_VOTES, MOST_ELEMENT, COUNTS_BYTES, BTREE_EDGES = 33, 4, 4096, 16, 12
OF_ARRAY, OF_ROOT = 1 << 62, 1 << 63


class Vec(NamedTuple):
    """Words that may be a Vec: see hint_vec in C."""

    capacity: int
    is_full: bool
    """It has that length, and no neighbour has it too."""
    order: int
    place: int


def place_of(node: int, own_bytes: int, slot: int) -> int:
    """Where a pointer stands: see place_of in C. `own_bytes`: 0 of a root."""
    if not own_bytes:
        return OF_ROOT | node << 32 | slot & 0xFFFFFFFF
    return OF_ARRAY | node if own_bytes > MOST_OBJECT_BYTES else own_bytes << 32 | slot


def _mixed(number: int) -> int:
    number = (number ^ number >> 32) * 0x9E3779B97F4A7C15 & ALL
    return number ^ number >> 29


def vecs(words: Sequence[int], at: int, place: int) -> List[Vec]:
    """What the words around the pointer at this place may be."""
    hashed = _mixed(place) << 1 & 0x3FFFFF | int(place >> 62 == 1)
    before, behind = words[at - 1] if at else 0, words[at + 2] if at + 2 < len(words) else ALL
    is_clear = not before == words[at + 1] == behind
    given = [(CAPACITY_POINTER_LENGTH, before, words[at + 1]), (POINTER_CAPACITY_LENGTH, words[at + 1], behind)]
    fit = [(order, capacity, length) for order, capacity, length in given if 0 < capacity <= 0xFFFFFFFF and length <= capacity]
    return [Vec(capacity, is_clear and length == capacity, order, hashed) for order, capacity, length in fit]


def hinted(words: Sequence[int], word_bytes: int) -> List[Hint]:
    """What words side by side may be, three or more, of which the first one points to a heap (see signer_look and signer_look_far in C)."""
    pointer, second, third = words[:3]
    told = near(pointer, second, third)
    found = [(pointer, *told)] if told is not None else []
    if 2 <= second <= 0x100000000 and ((third > second and third >= 1 << 16) or (not second & (second + 1) and third <= second)):
        found += far(words, word_bytes)
    return found


def far(words: Sequence[int], word_bytes: int) -> List[Hint]:
    """The table and the nodes of an unordered map, the map and the buffers of a deque, or a table of Rust's."""
    at = [*words[:10], *[0] * (10 - len(words))]
    if (
        len(words) >= 6
        and 0 < at[3] <= at[5] < 0xFFFFFFFF
        and any(LEAST_LOAD <= bits <= MOST_LOAD for bits in (at[4] & 0xFFFFFFFF, at[4] >> 32))
    ):
        return [(at[0], BUCKETS, at[1] * word_bytes), (at[2], CHAIN, at[3])]
    room = at[1] if at[1] < 8 else (at[1] + 1) // 8 * 7
    if at[1] >= 3 and at[2] <= at[1]:
        return [(at[0], HASHES, at[1] + 17)] if not at[0] & 15 and 0 < at[3] <= room and at[2] <= room - at[3] else []
    buffer, first, last = at[4] - at[3], at[5] - at[0], at[9] - at[0]
    if len(words) < 10 or at[8] - at[7] != buffer or not LEAST_BUFFER <= buffer <= 0xFFFFFFFF:
        return []
    if not (at[3] <= at[2] <= at[4] and at[7] <= at[6] <= at[8] and 0 <= first <= last < at[1] * word_bytes) or (first | last) % word_bytes:
        return []
    return [(at[0], DEQUE, at[1] * word_bytes), (first // word_bytes << 32 | last // word_bytes, BUFFERS, buffer)]


def near(pointer: int, second: int, third: int) -> Optional[Tuple[int, int]]:
    """(row, bytes that the block must hold) of three words; of a list the number of its nodes."""
    if second <= third and LEAST_CAPACITY <= third < LEAST_CAPACITY + 0xFFFFFFFF:
        return STRING, third + 1
    if pointer <= second <= third and 0 < third - pointer <= MOST_CONTAINER_BYTES:
        return VECTOR, third - pointer
    if 2 <= third <= 0x100000000 and second > third and pointer != second and not (pointer | second) & 7:
        return LIST, third
    return None


class Signer(ABC):
    """Reads the begins of blocks. The first row that a block meets counts."""

    @abstractmethod
    def look_for_rust(self, constants: Sequence[Tuple[int, int]], foreign: Sequence[bool]) -> None:
        """The program is Rust, and its vtables may lie in these ranges (sorted, without overlap): called before a graph is gathered.
        `foreign`: of each row, whether its blocks are another language's: no vector of Rust stands in these."""

    @abstractmethod
    def vtables(self) -> List[int]:
        """What of these ranges stands beside pointers to heaps, sorted: vtables, and other constants."""

    @abstractmethod
    def stream(self, blocks: Iterator[Blocks]) -> None:
        """Signs the used blocks of a stream; one that a graph gathers needs this not."""

    @abstractmethod
    def found(self, labels: Optional[Sequence[int]] = None) -> List[Signed]:
        """By label, the first being 1; or those of these labels."""

    @abstractmethod
    def rest(self) -> Signed:
        """What got no label when it was signed, all together; row and key mean nothing."""

    @abstractmethod
    def keep_contents(self) -> None:
        """Before a graph gathers: keeps a number for the content of each block of LEAST_CONTENT bytes or more, for refer()."""

    @abstractmethod
    def copied(self) -> Copied:
        """After refer(), if contents were kept."""

    @abstractmethod
    def label_count(self) -> int:
        """The highest label."""

    @abstractmethod
    def frequent(self, least_blocks: Sequence[int]) -> List[int]:
        """Labels of at least so many blocks as stand at their row's number; of rows beyond the list all."""

    @abstractmethod
    def refer(self, graph: Any, known: Sequence[int], asked: Referring) -> None:
        """Gives every block a label: what no row knows by the container that points to it, by who alone points to it, else by its size.
        `graph`: the Graph that was signed, with slots; `known`: by label UNKNOWN, KNOWN, or BY_CONTENT."""

    @abstractmethod
    def within(self, graph: Any, ranges: Sequence[Tuple[int, int]]) -> List[int]:
        """By label as in found(): bytes of those of its blocks that begin in these ranges (sorted, without overlap). `graph`: the Graph
        that was signed, when it is settled."""

    @abstractmethod
    def labels(self) -> "array[int]":
        """array('I'): the label of each block, by its id in the graph; UNSIGNED where no row knew it."""


FIRST = {IN_SET: 0, IN_RANGES: 0, EQUAL: 1}
"""Operators that few words meet."""


def flat_rows(rows: Sequence[SignatureRow]) -> Tuple["array[int]", "array[int]"]:
    """Conditions and rows as the C kernel takes them (struct condition, struct signature_row)."""
    conditions, flat = array("Q"), array("Q")
    for row in rows:
        first = len(conditions) // 7
        # what most blocks fail at is asked first
        for one in sorted(row.conditions, key=lambda one: FIRST.get(one.op, len(FIRST))):
            conditions.extend((one.offset, one.width, one.mask, one.op, one.base, one.operand & ALL, one.other))
        offset, width, mask = row.key or (0, 0, 0)
        flat.extend((row.least_usable, row.most_usable, offset, width, mask, first, len(conditions) // 7, int(row.sized), int(row.weak)))
    return conditions, flat


def flat_sets(sets: Sequence[NumberSet]) -> Tuple["array[int]", "array[int]"]:
    """Their places, and all their numbers."""
    places, numbers = array("Q"), array("Q")
    for one in sets:
        begin = len(numbers)
        some: Any = [bound for pair in one.ranges for bound in pair] if one.ranges else one.numbers
        numbers.extend(some)
        places.extend((begin, len(one.ranges) if one.ranges else len(one.numbers), int(bool(one.ranges))))
    return places, numbers
