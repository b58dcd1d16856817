"""Keys in the nodes of libstdc++'s maps and sets, where the container itself proves that they are keys.

A string is one by its own words (bits/basic_string.h: pointer, length, capacity or the characters), and is the key where its hash is the
node's, or leads to the bucket that has the node (bits/hashtable.h; std::hash of strings is MurmurHash64A with seed 0xc70f6907, that of an
integer the integer, bits/functional_hash.h), or where it stands in order with its neighbours in the tree (bits/stl_tree.h). An integer is
one by the same: by the buckets of several nodes, or the order of several.
"""

import functools
from itertools import islice
from typing import Callable, Dict, Iterator, List, NamedTuple, Optional, Sequence, Tuple

from gdbheapx.analysis.census.containers import Containers
from gdbheapx.analysis.census.world import World

STRING_BYTES, INLINE_BYTES = 32, 16
HASHED_AT, ORDERED_AT = 8, 32
"""Where the key begins in a node of an unordered map, and of a map."""
MOST_STRING, MOST_KEY = 4096, 60
"""Bytes of a string that is looked at, and letters of one that are shown."""
SAMPLES, TOP_NODES, MOST_STEPS = 24, 63, 64
LEAST_BITS = 12
"""By which chance is excluded: so many has a bucket's number, all together."""
LEAST_ORDERED = 7
"""Nodes whose order is no chance: one in 5,040."""
SMALL = 1 << 24
"""A word below is a number, and no pointer, no text and no fraction."""
FRACTIONS = (0x33000000, 0x4F000000)
"""Of 32 bits, between which a float of 3e-8 to 2e9 lies."""
MOST_WIDE = 1 << 53
SIGN, WORD = 1 << 63, (1 << 64) - 1
PADDING = (0x5500, 0x7FFF)
"""Of the four bytes behind an int, what the upper half of an address leaves there."""
MULTIPLIER, SEED = 0xC6A4A7935BD1E995, 0xC70F6907
ESCAPES = {"\\": "\\\\", '"': '\\"', "\n": "\\n", "\t": "\\t", "\r": "\\r"}


class Key(NamedTuple):
    """One that is proven."""

    text: str
    """As C++ writes it."""
    end: int
    """Where the value begins, if it is aligned to eight bytes."""


class Hash(NamedTuple):
    """Of an unordered map or set."""

    table: int
    buckets: int


Reading = Callable[[int], Optional[int]]
"""Of the integer at a place, or its hash."""


def _wide(word: int) -> int:
    return word - (word >> 63 << 64)


def _int(word: int) -> int:
    return (word & 0x7FFFFFFF) - (word & 0x80000000)


def _unsigned(word: int) -> int:
    return word & 0xFFFFFFFF


INTEGERS = (_wide, _int, _unsigned)


def quoted(data: bytes) -> str:
    """As a literal, cut where it is long."""
    text = data[: 4 * MOST_KEY + 4].decode("utf-8", "replace") if _is_utf8(data[: 4 * MOST_KEY]) else data[: MOST_KEY + 1].decode("latin-1")
    shown = "".join(ESCAPES.get(letter, letter if letter.isprintable() else "\\u{%x}" % ord(letter)) for letter in text[:MOST_KEY])
    return '"%s"%s' % (shown, "..." if len(text) > MOST_KEY else "")


def _is_utf8(data: bytes) -> bool:
    for cut in range(4):
        try:
            data[: len(data) - cut].decode("utf-8")
            return True
        except UnicodeDecodeError as error:
            if error.end < len(data) - cut - 3 or error.reason != "unexpected end of data":
                return False
    return False


def _mixed(word: int) -> int:
    return word ^ word >> 47


def hash_of(data: bytes) -> int:
    """As std::hash of a string."""
    found = SEED ^ len(data) * MULTIPLIER & WORD
    for at in range(0, len(data) & ~7, 8):
        part = _mixed(int.from_bytes(data[at : at + 8], "little") * MULTIPLIER & WORD) * MULTIPLIER & WORD
        found = (found ^ part) * MULTIPLIER & WORD
    if len(data) & 7:
        found = (found ^ int.from_bytes(data[len(data) & ~7 :], "little")) * MULTIPLIER & WORD
    return _mixed(_mixed(found) * MULTIPLIER & WORD)


class Keys:
    """Of one graph. Memory is read."""

    def __init__(self, world: World, containers: Containers) -> None:
        self._world, self._containers = world, containers
        self._samples: Dict[int, List[int]] = {}
        """By head."""
        self._tops: Dict[int, List[int]] = {}
        self.string = functools.lru_cache(1 << 14)(self._string)

    def _string(self, address: int) -> Optional[bytes]:
        """The std::string there: its characters; None where there is none."""
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

    def _word(self, address: int) -> Optional[int]:
        words = self._world.words(address, 1)
        return None if words is None else words[0]

    def hashed(self, head: int, node: int) -> Optional[Key]:
        """Of a node of the unordered map or set whose head is there."""
        words = self._world.words(head, 2)
        if words is None or not words[1]:
            return None
        table = Hash(*words)
        data = self.string(node + HASHED_AT)
        if data is not None:
            is_key = self._keeps_hash(node, hash_of(data)) or self._fit_in(head, table, node, self._hash_of_string)
            return Key(quoted(data), node + HASHED_AT + STRING_BYTES) if is_key else None
        word = self._word(node + HASHED_AT)
        for reading in INTEGERS if word is not None else ():
            if self._fit_in(head, table, node, self._identity(reading)):
                return Key("%d" % reading(word or 0), node + HASHED_AT + 8)
        return None

    def _keeps_hash(self, node: int, hash_: int) -> bool:
        """Behind the value, as nodes with strings do."""
        usable = self._containers.size(node) or 0
        behind = self._world.words(node + HASHED_AT + STRING_BYTES, (min(usable, MOST_STRING) - HASHED_AT - STRING_BYTES) // 8)
        return behind is not None and hash_ in behind

    def _hash_of_string(self, node: int) -> Optional[int]:
        data = self.string(node + HASHED_AT)
        return None if data is None else hash_of(data)

    def _identity(self, reading: Callable[[int], int]) -> Reading:
        def hash_of_node(node: int) -> Optional[int]:
            word = self._word(node + HASHED_AT)
            return None if word is None else reading(word) & WORD

        return hash_of_node

    def _fit_in(self, head: int, table: Hash, node: int, hash_: Reading) -> bool:
        """This node is in the bucket of its hash, and so are others: as many as exclude chance, or all where keys are small numbers."""
        if not self._is_in_bucket(table, node, hash_):
            return False
        sample = self.sample(head, False)
        is_small = all((self._word(one + HASHED_AT) or 0) < SMALL for one in (node, *sample))
        is_enough = is_small or len(sample) * (table.buckets.bit_length() - 1) >= LEAST_BITS
        return is_enough and all(self._is_in_bucket(table, one, hash_) for one in sample)

    def sample(self, head: int, is_tree: bool) -> List[int]:
        """Some nodes of the map or set whose head is there."""
        if head not in self._samples:
            self._samples[head] = list(islice(self._in_order(head) if is_tree else self._chain(head), SAMPLES))
        return self._samples[head]

    def _chain(self, head: int) -> Iterator[int]:
        node = self._word(head + 16)
        while node and self._containers.size(node) is not None:
            yield node
            node = self._word(node)

    def _is_in_bucket(self, table: Hash, node: int, hash_: Reading) -> bool:
        own = hash_(node)
        before = self._word(table.table + own % table.buckets * 8) if own is not None else None
        at = self._word(before) if before else None
        for _ in range(MOST_STEPS):
            if not at or at == node:
                return at == node
            of_at = hash_(at)
            if own is None or of_at is None or of_at % table.buckets != own % table.buckets:
                return False
            at = self._word(at)
        return False

    def ordered(self, head: int, node: int) -> Optional[Key]:
        """Of a node of the map or set whose header is there."""
        sample = self.sample(head, True)
        near = [one for one in (self._beside(head, node, False), node, self._beside(head, node, True)) if one is not None]
        data = self.string(node + ORDERED_AT)
        if data is not None:
            is_key = all(_is_ordered([self.string(one + ORDERED_AT) for one in nodes]) for nodes in (near, sample))
            return Key(quoted(data), node + ORDERED_AT + STRING_BYTES) if is_key else None
        found = [[self._word(one + ORDERED_AT) for one in nodes] for nodes in (near, sample)]
        words = [word for some in found for word in some if word is not None]
        if len(words) != len(near) + len(sample) or not _may_be_integers(words, len(set(near) | set(sample))):
            return None
        words += [word for one in self._top(head) for word in self._world.words(one + ORDERED_AT, 1) or ()]
        for reading in INTEGERS:
            if all(_is_ordered([reading(word or 0) for word in some]) for some in found) and _fits(reading, words):
                return Key("%d" % reading(self._word(node + ORDERED_AT) or 0), node + ORDERED_AT + 8)
        return None

    def _in_order(self, head: int) -> Iterator[int]:
        words = self._world.words(head, 3)
        node = words[2] if words is not None else None
        while node is not None and node != head and self._containers.size(node) is not None:
            yield node
            node = self._beside(head, node, True)

    def _top(self, head: int) -> List[int]:
        """The first nodes from the root down: of all sizes and ages, where the first ones in order may be of one."""
        if head not in self._tops:
            nodes = [word for word in (self._word(head + 8),) if word]
            for node in nodes:
                below = self._world.words(node + 16, 2) if len(nodes) < TOP_NODES else None
                nodes += [word for word in below or () if self._containers.size(word) is not None]
            self._tops[head] = nodes
        return self._tops[head]

    def _beside(self, head: int, node: int, is_next: bool) -> Optional[int]:
        """The next node in order, or the one before: the last of the other side below it, else above it where that is on the other side."""
        side, other = (3, 2) if is_next else (2, 3)
        words = self._world.words(node, 4)
        if words is None:
            return None
        if words[side]:
            at = words[side]
            for _ in range(MOST_STEPS):
                below = self._word(at + 8 * other)
                if not below:
                    return at if below == 0 else None
                at = below
            return None
        for _ in range(MOST_STEPS):
            above = self._word(node + 8)
            if above is None or above == head:
                return None
            if self._word(above + 8 * side) != node:
                return above
            node = above
        return None


def _is_ordered(keys: Sequence[object]) -> bool:
    """Each larger than the one before, or each smaller."""
    pairs: List[Tuple[object, object]] = list(zip(keys, keys[1:]))
    if any(key is None for key in keys):
        return False
    return all(one < other for one, other in pairs) or all(one > other for one, other in pairs)  # type: ignore[operator]


def _may_be_integers(words: Sequence[int], nodes: int) -> bool:
    return nodes >= LEAST_ORDERED or all(word < SMALL for word in words)


def _fits(reading: Callable[[int], int], words: Sequence[int]) -> bool:
    """They are no fractions, texts or pairs; behind four bytes lies what most often does, nothing or a part of an address."""
    if reading is _wide:
        narrow = [word for word in words if word < 1 << 32]
        return all(-MOST_WIDE < _wide(word) < MOST_WIDE for word in words) and not _are_fractions(narrow)
    behind = sum(not word >> 32 or PADDING[0] <= word >> 32 <= PADDING[1] for word in words)
    return 2 * behind > len(words) and not _are_fractions([_unsigned(word) for word in words])


def _are_fractions(words: Sequence[int]) -> bool:
    return any(FRACTIONS[0] <= word & 0x7FFFFFFF < FRACTIONS[1] for word in words)
