"""Classification of blocks by their content: conditions on their first bytes, as rows of data that the native library reads."""

import ctypes
from array import array
from typing import Any, Iterator, List, NamedTuple, Optional, Sequence, Tuple

from gdbheapx.common.budget import Budget
from gdbheapx.kernel.blocks.stream import NativeBlocks, open_stream
from gdbheapx.kernel.common.library import NativeObject, OpenSource, address_of, finish_job, flatten_pairs, run_resumable, take_rows

SIGNED_BYTES = 512
"""Of a block, at its begin, that conditions may ask for."""
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
    """Comparison of one number in a block: (number & mask) OP (base + operand)."""

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
    """Signature of one kind of blocks: all conditions hold."""

    conditions: Sequence[Condition]
    least_usable: int = 0
    most_usable: int = ALL
    key: Optional[Tuple[int, int, int]] = None
    """(offset, width, mask) of the number by which they are distinguished."""
    sized: bool = False
    """They are distinguished by their usable bytes too: sized() reads such a key. Of the number 48 bits count."""
    weak: bool = False
    """What meets it may turn out to be nothing: refer() shows it by its content then."""


class RowNumbers(NamedTuple):
    """A SignatureRow as the kernel takes it: its conditions are those from `first` to `end`; no key has the width 0."""

    least_usable: int
    most_usable: int
    key_offset: int
    key_width: int
    key_mask: int
    first: int
    end: int
    sized: bool
    weak: bool


def split_sized_key(key: int) -> Tuple[int, int]:
    """(number, usable bytes in whole steps of 8) of the key of a row that is `sized`; bytes beyond MOST_SIZED count as MOST_SIZED."""
    return key & ((1 << SIZED_BITS) - 1), 8 * (key >> SIZED_BITS)


class NumberSet(NamedTuple):
    """Set of permitted numbers: one of these, or inside a range. 0 is in no set."""

    numbers: Sequence[int] = ()
    ranges: Sequence[Tuple[int, int]] = ()
    """(begin, end), sorted, without overlap; given, they count alone."""


REFERRED, ROOTED, SIZED, BEGINS_TEXT, ONLY_ZEROS, STRING, VECTOR, TREE, BUCKETS, CHAIN, LIST, DEQUE, BUFFERS, HASHES = range(14)
NUMBERS, POINTERS, COPIES, DYNS, SHARED_DYNS, VECS, BTREES, COUNTED, MEMBERS, ROOTED_MEMBERS, ROWS_BEYOND = range(14, 25)
"""Rows beyond those that were asked. By content: BEGINS_TEXT, a string of 8 characters or more begins the block; ONLY_ZEROS, all bytes
are 0 (without refer() of blocks of up to 512 bytes); NUMBERS, nine words of ten are of type double. Of refer(): STRING and VECTOR, to which
three words side by side point as they do in C++; TREE, of std::map and std::set; BUCKETS and CHAIN, of a std::unordered_map or set, its
table and its nodes; LIST, of std::list; DEQUE and BUFFERS, of a std::deque; HASHES, a table of Rust's; POINTERS, half of the words lead to
blocks; COPIES, other blocks have the same content; DYNS and SHARED_DYNS, to which trait objects lead; VECS, to which three words of a Vec
do; BTREES, nodes of a BTreeMap; COUNTED, an Rc or Arc; MEMBERS and ROOTED_MEMBERS, elements of a container that a block or a root holds.
Keys: of REFERRED (label of the referrer << 32) + place of the pointer in words; of ROOTED (number of the root << 32) + place; of SIZED
usable bytes; of COPIES (number of the first block that has it << 1) + 1 if it is text; of DYNS and SHARED_DYNS the vtable; of VECS the
order of the three words; of MEMBERS and ROOTED_MEMBERS those of REFERRED and ROOTED, the place as MEMBER_SLOT and MEMBER_SHAPE have it;
no label: what holds them has none."""
MEMBER_SHAPE, MEMBER_SLOT = 28, 0x0FFFFFFF
"""The shape's first bit; and the place, less of ELEMENT."""
ELEMENT = 0xFFFFFFFE
"""In the place of a place: the referrer is larger than MOST_OBJECT_BYTES, an array of some sort."""
MOST_OBJECT_BYTES = 1024


CPLUSPLUS, RUST = 1, 2
UNKNOWN, KNOWN, BY_CONTENT, COUNTS, STRONG, BY_BEGIN = range(6)
"""What a label is worth: nothing; a name; less than who points there, and more than a size; two counts as an Rc or Arc has; and the second
one is 1, the first one the key; more than who points there, and less than the container whose block it is."""
MOST_SAME = 128
"""Contents that are listed one by one."""


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
    """Parameters of refer()."""

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
    """Of blocks with the same content, together: what has fewer is not listed one by one."""


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


CAPACITY_POINTER_LENGTH, POINTER_CAPACITY_LENGTH, VEC_ORDERS = range(3)
"""The three words of a Vec, in the order that the compiler has chosen."""
READ_BYTES = 128 << 10


class Signer(NativeObject):
    """Reads the begins of blocks. The first row that a block meets counts."""

    def __init__(
        self, library: Any, opened: OpenSource, shape: Any, rows: Sequence[SignatureRow], sets: Sequence[NumberSet], budget: Budget
    ) -> None:
        self.library, self.opened, self.budget = library, opened, budget
        word_bytes, little_endian = shape
        self._kept = (*flat_rows(rows), *flat_sets(sets))
        conditions, flat, places, numbers = self._kept
        tables = (address_of(conditions), address_of(flat), len(rows), address_of(places), len(sets), address_of(numbers))
        super().__init__(library.heapx_signer_new(word_bytes, int(little_endian), 1, *tables), library.heapx_signer_free)

    def stream(self, blocks: Iterator[NativeBlocks]) -> None:
        """Signs the used blocks of a stream; one that a graph gathers needs this not."""
        source = open_stream(self.library, blocks)
        buffer = array("B", bytes(READ_BYTES))
        work = (self.handle, self.opened.handle, source.handle, address_of(buffer))
        run_resumable(lambda seconds: self.library.heapx_signer_slice(*work, seconds), self.opened, self.budget)

    def look_for_rust(self, constants: Sequence[Tuple[int, int]], foreign: Sequence[bool]) -> None:
        """The program is Rust, and its vtables may lie in these ranges (sorted, without overlap): called before a graph is gathered.
        `foreign`: of each row, whether its blocks are another language's: no vector of Rust is in these."""
        bounds, rows = flatten_pairs(constants), array("B", foreign)
        if not self.library.heapx_signer_rust(self.handle, address_of(bounds), len(constants), address_of(rows)):
            raise MemoryError()

    def vtables(self) -> List[int]:
        """Return the addresses in these ranges that occur next to pointers to heaps, sorted: vtables, and other constants."""
        count = self.library.heapx_signer_vtables(self.handle, None, 0)
        if count == ALL:
            raise MemoryError()
        out = array("Q", bytes(8 * count))
        self.library.heapx_signer_vtables(self.handle, address_of(out), count)
        return list(out)

    def refer(self, graph: Any, known: Sequence[int], asked: Referring, linked: Any = None) -> None:
        """Gives every block a label: what no row knows by the container that points to it, by who alone points to it, else by its size.
        `graph`: the Graph that was signed, with slots; `known`: by label UNKNOWN, KNOWN, or BY_CONTENT; `linked`: its Containers, by which
        their elements have names."""
        kept, layouts = array("B", known), flatten_pairs(asked.layouts)
        numbers = (asked.most_depth, asked.roots_from, int(asked.has_classes), asked.tree_label, asked.containers)
        places = (address_of(layouts), len(asked.layouts), asked.least_same_bytes, linked.handle if linked is not None else None)
        handles = (graph.handle, self.handle, address_of(kept), len(kept))
        with finish_job(self.library, "referrals", self.opened, self.budget, *handles, *numbers, *places):
            pass  # the signer has the labels

    def found(self, labels: Optional[Sequence[int]] = None) -> List[Signed]:
        """Return the signed blocks by label, the first being 1, or those of these labels."""
        out = self._read_numbers()
        return [Signed(*out[7 * label - 7 : 7 * label]) for label in (range(1, len(out) // 7 + 1) if labels is None else labels)]

    def rest(self) -> Signed:
        """Return the sum of the blocks that got no label when they were signed; row and key mean nothing."""
        out = array("Q", bytes(56))
        self.library.heapx_signer_rest(self.handle, address_of(out))
        return Signed(*out)

    def keep_contents(self, beyond: bool = False) -> None:
        """Before a graph gathers: keeps a number for the content of each block of LEAST_CONTENT bytes or more, for refer(); `beyond`: and
        for who compares them afterwards."""
        self.library.heapx_signer_keep_contents(self.handle, int(beyond))

    def copied(self) -> Copied:
        """After refer(), if contents were kept."""
        out = array("Q", bytes(32 + 16 * MOST_SAME))
        count = self.library.heapx_signer_copied(self.handle, address_of(out), MOST_SAME)
        same = sorted(zip(out[4 : 4 + 2 * count : 2], out[5 : 5 + 2 * count : 2]))
        return Copied(out[0], out[1], out[2], out[3], same)

    def label_count(self) -> int:
        """The highest label."""
        return int(self.library.heapx_signer_found(self.handle, None, 0))

    def frequent(self, least_blocks: Sequence[int]) -> List[int]:
        """Labels of at least so many blocks as are at their row's number; of rows beyond the list all."""
        out, rows = self._read_numbers(), len(least_blocks)
        pairs = enumerate(zip(out[0::7], out[2::7]), 1)
        return [label for label, (row, blocks) in pairs if row >= rows or blocks >= least_blocks[row]]

    def _read_numbers(self) -> "array[int]":
        """Seven of each label."""
        return take_rows(lambda where, room: self.library.heapx_signer_found(self.handle, where, room), 7)

    def within(self, graph: Any, ranges: Sequence[Tuple[int, int]]) -> List[int]:
        """Return, by label as in found(), the bytes of blocks that begin in these ranges (sorted, without overlap). `graph`: the Graph
        that was signed, when it is settled.
        """
        bounds, out = flatten_pairs(ranges), array("Q", bytes(8 * self.label_count()))
        self.library.heapx_signer_within(self.handle, graph.handle, address_of(bounds), len(ranges), address_of(out))
        return list(out)

    def labels(self) -> "array[int]":
        """array('I'): the label of each block, by its id in the graph; UNSIGNED where no row knew it."""
        count = array("Q", [0])
        address = self.library.heapx_signer_labels(self.handle, address_of(count))
        kept = array("I")
        if count[0]:
            kept.frombytes(ctypes.string_at(address, 4 * count[0]))
        return kept


FIRST = {IN_SET: 0, IN_RANGES: 0, EQUAL: 1}
"""Operators that few words meet."""


def flat_rows(rows: Sequence[SignatureRow]) -> Tuple["array[int]", "array[int]"]:
    """Conditions and rows as the C kernel takes them: Condition, RowNumbers."""
    conditions, flat, first = array("Q"), array("Q"), 0
    for row in rows:
        # what most blocks fail at is asked first
        for one in sorted(row.conditions, key=lambda one: FIRST.get(one.op, len(FIRST))):
            conditions.extend(one._replace(operand=one.operand & ALL))
        end = first + len(row.conditions)
        flat.extend(RowNumbers(row.least_usable, row.most_usable, *(row.key or (0, 0, 0)), first, end, row.sized, row.weak))
        first = end
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
