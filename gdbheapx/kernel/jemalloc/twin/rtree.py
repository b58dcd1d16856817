"""The elements of the rtree's leaf nodes in address order, in Python: what rtree.c does."""

from array import array
from typing import Any, Iterator, List, Optional, Set, Tuple

from gdbheapx.kernel.common.twin.source import Reader
from gdbheapx.kernel.jemalloc import records as api
from gdbheapx.kernel.jemalloc.records import ExtentLayout, RtreeLayout

BLOCK_BYTES = 256 << 10
PAGE_BYTES = 4096
ADDRESSES = 1 << 64
LAST = ADDRESSES - 1
ZEROS = bytes(PAGE_BYTES)


def leaf_bits_of(kind: int, slab: int, state: int, szind: int) -> int:
    """What a leaf element says of an extent: 0 where its kind is not known. Only kinds with a state have one."""
    if kind == api.LEAF_UNKNOWN:
        return 0
    return slab | (state << 1 if kind in (api.LEAF_COMPACT_STATE, api.LEAF_METADATA) else 0) | szind << 8


Entry = Optional[Tuple[int, int]]
"""Page and extent of a leaf element; None: a block was read, time to look at the clock."""


class Span:
    """Addresses; empty if begin == end. It only grows, to the smallest span that holds what is added."""

    def __init__(self) -> None:
        self.begin = self.end = 0

    def add(self, begin: int, end: int) -> None:
        """Grows."""
        if self.begin == self.end:
            self.begin, self.end = begin, end
        else:
            self.begin, self.end = min(begin, self.begin), max(end, self.end)

    def clear(self) -> None:
        """Empties it."""
        self.begin = self.end = 0

    def __contains__(self, address: int) -> bool:
        return self.begin <= address < self.end


class Problems:
    """What contradicts: the first ones one by one, all of them counted."""

    def __init__(self) -> None:
        self.counts = [0] * api.EXTENT_CODES
        self.rows: List[api.ExtentProblem] = []

    def add(self, code: int, page: int, extent: int = 0) -> None:
        """One more."""
        self.counts[code] += 1
        if len(self.rows) < api.MOST_PROBLEMS:
            self.rows.append(api.ExtentProblem(code, page, extent))


class Tree:
    """One rtree; `entries` once."""

    def __init__(
        self, reader: Reader, rtree: RtreeLayout, extent: ExtentLayout, mapped_bytes: int, problems: Problems, unknown: Span
    ) -> None:
        self.nodes = self.leaf_nodes = self.unreadable_bytes = 0
        self.at = 0
        self.hole, self.unknown = Span(), unknown
        self.skip_pointer = self.skip_until = self.skip_bits = self.skipped = self.odd_page = self.bits = 0
        self._read, self._problems, self._rtree = reader.read, problems, rtree
        self._word = extent.word_bytes
        self._order = "little" if extent.little_endian else "big"
        self._letter = "Q" if extent.word_bytes == 8 else "I"
        self._swapped = (array("H", b"\1\0")[0] == 1) != extent.little_endian
        self._sign = rtree.sign_extend and extent.word_bytes == 8
        self._half, self._mask = 1 << (rtree.lg_vaddr - 1), (1 << rtree.lg_vaddr) - 1
        self._given_up = False
        self._seen: Set[int] = {rtree.root}
        self._room = mapped_bytes - self._node_bytes(0)

    def entries(self) -> Iterator[Entry]:
        """Every leaf element that names an extent, but those that are to be skipped."""
        return self._node(0, self._rtree.root, 0)

    def _node_bytes(self, depth: int) -> int:
        return self._element(depth) << self._rtree.levels[depth]

    def _element(self, depth: int) -> int:
        return self._rtree.leaf_bytes if depth + 1 == len(self._rtree.levels) else self._word

    def _extended(self, address: int) -> int:
        address &= self._mask
        return address | (ADDRESSES - 1 ^ self._mask) if self._sign and address & self._half else address

    def _behind(self, key: int, shift: int) -> int:
        """Where an element's pages end."""
        return min(self._extended(key) + (1 << shift), LAST)

    def _lost(self, begin: int, end: int) -> None:
        self.hole.add(begin, end)
        self.unknown.add(self.hole.begin, self.hole.end)

    def _node(self, depth: int, node: int, key: int) -> Iterator[Entry]:
        """One node: the elements' pages begin at `key`."""
        levels, element = self._rtree.levels, self._element(depth)
        count, shift = 1 << levels[depth], self._rtree.lg_page + sum(levels[depth + 1 :])
        is_leaf = depth + 1 == len(levels)
        index = missing = hole = 0
        counted = False
        while index < count and not self._given_up:
            self.at = self._extended(key + (index << shift))
            data = self._read(node + index * element, min((count - index) * element, BLOCK_BYTES))
            yield None
            loaded = len(data) // element
            if not loaded:
                hole = hole if missing else node + index * element
                behind = self._behind_hole(node, index, element, count)
                missing += behind - index
                self.unreadable_bytes += (behind - index) * element
                self._lost(self.at, self._behind(key + (behind - 1 << shift), shift))
                index = behind
                continue
            if not counted:
                counted = True
                self.nodes += 1
                self.leaf_nodes += is_leaf
            if is_leaf:
                yield from self._leaf(data, loaded, element, key + (index << shift))
            else:
                for place, value in self._values(data, loaded, element):
                    if not self._given_up:
                        yield from self._child(depth, key + (index + place << shift), shift, value)
            index += loaded
        self.at = self._behind(key + (count - 1 << shift), shift)
        if missing:
            self._problems.add(api.EXTENT_NODE_UNREADABLE if missing == count else api.EXTENT_NODE_HOLE, node if missing == count else hole)

    @staticmethod
    def _behind_hole(node: int, index: int, element: int, count: int) -> int:
        behind = ((node + index * element) | (PAGE_BYTES - 1)) + 1 - node
        return min(-(-behind // element), count)

    def _child(self, depth: int, key: int, shift: int, node: int) -> Iterator[Entry]:
        page, size = self._extended(key), self._node_bytes(depth + 1)
        if node % self._word or node + size >= ADDRESSES:
            code = api.EXTENT_NODE_MISALIGNED
        elif size > self._room:
            self._problems.add(api.EXTENT_TOO_MANY_NODES, node)
            self._lost(page, LAST)
            self._given_up = True
            return
        elif node in self._seen:
            code = api.EXTENT_NODE_TWICE
        else:
            self._seen.add(node)
            self._room -= size
            yield from self._node(depth + 1, node, key)
            return
        self._problems.add(code, node)
        self._lost(page, self._behind(key, shift))

    def _leaf(self, data: bytes, loaded: int, element: int, key: int) -> Iterator[Entry]:
        rtree = self._rtree
        low, compact, lg_page = (1 << rtree.extent_low_bits) - 1, rtree.compact, rtree.lg_page
        for place, value in self._values(data, loaded, element):
            if compact:  # the word may be non-zero and name no extent
                value = self._extended(value) & ~low
            if not value:
                continue
            page = self._extended(key + (place << lg_page))
            bits = self._leaf_bits(data, place * element) if rtree.leaf_kind else 0
            if value != self.skip_pointer or page >= self.skip_until:
                self.at, self.bits = page, bits
                yield page, value
                continue
            self.skipped += 1
            if bits != self.skip_bits:
                self.odd_page = self.odd_page or page

    def _leaf_bits(self, data: bytes, offset: int) -> int:
        kind, word, order = self._rtree.leaf_kind, self._word, self._order
        bits = int.from_bytes(data[offset : offset + word], order)  # type: ignore[arg-type]
        if kind in (api.LEAF_COMPACT, api.LEAF_COMPACT_STATE):
            return leaf_bits_of(kind, bits & 1, bits >> 2 & 7, bits >> self._rtree.lg_vaddr)
        more = int.from_bytes(data[offset + word : offset + word + 4], order)  # type: ignore[arg-type]
        if kind == api.LEAF_METADATA:
            return leaf_bits_of(kind, more & 1, more >> 2 & 7, more >> 5)
        return leaf_bits_of(kind, data[offset + word + 4] & 1, 0, more)

    def _values(self, data: bytes, loaded: int, element: int) -> Iterator[Tuple[int, int]]:
        """(place, word) of the elements whose word is not zero."""
        if element % self._word:
            for place in range(loaded):
                value = int.from_bytes(data[place * element : place * element + self._word], self._order)  # type: ignore[arg-type]
                if value:
                    yield place, value
            return
        step = PAGE_BYTES // element * element
        for begin in range(0, loaded * element, step):
            piece = data[begin : min(begin + step, loaded * element)]
            if piece == ZEROS[: len(piece)]:
                continue
            words: Any = array(self._letter, piece)
            if self._swapped:
                words.byteswap()
            first = begin // element
            for place, value in enumerate(words[:: element // self._word], first):
                if value:
                    yield place, value
