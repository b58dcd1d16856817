"""Blocks of Rust programs in Python: equal answers."""

from bisect import bisect_left
from typing import Any, Dict, List, Sequence, Set, Tuple

from gdbheapx.kernel.blocks.graph import RULE_END, RULE_START
from gdbheapx.kernel.blocks.signatures import (
    BTREE_EDGES,
    BTREES,
    BY_CONTENT,
    CAPACITY_POINTER_LENGTH,
    COUNTED,
    COUNTS,
    COUNTS_BYTES,
    CPLUSPLUS,
    DYNS,
    LEAST_FULL,
    LEAST_VOTES,
    MOST_ELEMENT,
    POINTER_CAPACITY_LENGTH,
    SHARED_DYNS,
    STRONG,
    VEC_ORDERS,
    VECS,
    Referring,
    Vec,
)


class RustHints:
    """What was seen beside pointers, in order."""

    def __init__(self) -> None:
        self.constants: Sequence[Tuple[int, int]] = ()
        self.dyns: List[Tuple[int, int]] = []
        """(address, vtable)."""
        self.vecs: List[Tuple[int, Vec]] = []

    def has(self, number: int) -> bool:
        """It lies in what may hold vtables."""
        place = bisect_left(self.constants, (number + 1,)) - 1
        return bool(number) and place >= 0 and number < self.constants[place][1]


class Rust:
    """See rust.c. `referrals`: what names blocks, with `nameless_at`, `may_hold`, `at`, `worth`, `is_known` and `give`."""

    def __init__(self, referrals: Any, signer: Any, graph: Any, asked: Referring, hints: RustHints) -> None:
        self._referrals, self._signer, self._graph, self._hints = referrals, signer, graph, hints
        self._layouts = {vtable: (size, alignment) for vtable, size, alignment in asked.layouts}
        self._blocks, self._is_mixed = graph.numbers().blocks, bool(asked.containers & CPLUSPLUS)
        self._pointers: Dict[int, int] = {}
        """To blocks that begin with counts, the second one 1."""

    def look(self) -> None:
        """All steps."""
        for node in range(self._graph.numbers().nodes):
            for edge in self._graph.edges(node):
                if edge.node < self._blocks and edge.rule in (RULE_START, RULE_END) and self._worth(edge.node) == STRONG:
                    self._pointers[edge.node] = self._pointers.get(edge.node, 0) + 1
        for address, vtable in self._hints.dyns:
            self._dyn(address, vtable)
        order = self._elected()
        for node in range(self._blocks):
            self._btree(node)
        places: Set[int] = set()
        for is_small in (False, True):
            for address, vec in self._hints.vecs:
                if vec.order == order and (vec.capacity < LEAST_FULL) == is_small and (not is_small or vec.place in places):
                    self._vec(address, vec, is_small, places)
        self._counted()

    def _worth(self, node: int) -> int:
        return int(self._referrals.worth(self._signer.labels()[node]))

    def _usable(self, node: int) -> int:
        return int(self._graph.blocks([node])[0][1])

    def _dyn(self, address: int, vtable: int) -> None:
        layout = self._layouts.get(vtable)
        node = self._referrals.nameless_at(address) if layout is not None else None
        if layout is None or node is None:
            return
        size, counted = layout[0], layout[0] + max(layout[1], COUNTS_BYTES)
        fits, usable = self._referrals.may_hold(node, size), self._usable(node)
        may_count = self._worth(node) in (COUNTS, STRONG) and self._referrals.may_hold(node, counted)
        if may_count and (not fits or _is_chunk_of(usable, counted) or not _is_chunk_of(usable, size)):
            self._referrals.give(node, SHARED_DYNS, vtable, 0)
        elif fits:
            self._referrals.give(node, DYNS, vtable, 0)

    def _elected(self) -> int:
        votes = [0] * VEC_ORDERS
        for address, vec in self._hints.vecs:
            found = self._graph.find(address) if vec.is_full and vec.capacity >= LEAST_FULL else None
            if found is not None and found[0] < self._blocks and not found[1] and self._referrals.may_hold(found[0], vec.capacity):
                votes[vec.order] += 1
        if self._is_mixed:
            return CAPACITY_POINTER_LENGTH if votes[CAPACITY_POINTER_LENGTH] >= LEAST_VOTES else VEC_ORDERS
        most = int(votes[POINTER_CAPACITY_LENGTH] > votes[CAPACITY_POINTER_LENGTH])
        return most if votes[most] >= LEAST_VOTES and votes[most] >= 4 * votes[1 - most] else VEC_ORDERS

    def _vec(self, address: int, vec: Vec, is_small: bool, places: Set[int]) -> None:
        node = self._referrals.nameless_at(address)
        if node is None:
            return
        usable, may_hold = self._usable(node), self._referrals.may_hold
        element = usable // vec.capacity & ~3
        is_full = 0 < element <= MOST_ELEMENT and may_hold(node, element * vec.capacity)
        if not (may_hold(node, vec.capacity) or may_hold(node, 2 * vec.capacity) or is_full):
            return
        is_sure = self._worth(node) == BY_CONTENT or (usable != 24 and may_hold(node, vec.capacity))
        if is_small and vec.place & 1 and not is_sure:
            return
        places.add(vec.place)
        self._referrals.give(node, VECS, vec.order, 0)

    def _is_child(self, node: int, edge: Any, leaf: int) -> bool:
        """See child_of in C."""
        if edge.rule not in (RULE_START, RULE_END) or edge.node >= self._blocks or self._referrals.at(edge.node, 0) != node:
            return False
        may_hold = self._referrals.may_hold
        return bool(may_hold(edge.node, leaf) or may_hold(edge.node, leaf + 8 * BTREE_EDGES))

    def _btree(self, node: int) -> None:
        usable, edges = self._usable(node), self._graph.edges(node)
        for at, edge in enumerate(edges):
            leaf = 8 * edge.slot
            if edge.slot < 2 or usable == 24 or not self._referrals.may_hold(node, leaf + 8 * BTREE_EDGES):
                continue
            children: List[int] = []
            for away, one in enumerate(edges[at : at + BTREE_EDGES]):
                if one.slot != edge.slot + away or not self._is_child(node, one, leaf):
                    break
                children.append(one.node)
            if len(children) > 1:
                for child in [*children, node]:
                    if not self._referrals.is_known(self._signer.labels()[child]):
                        self._referrals.give(child, BTREES, 0, 0)
                return

    def _counted(self) -> None:
        for node, count in sorted(self._pointers.items()):
            label = self._signer.labels()[node]
            if count > 1 and self._referrals.worth(label) == STRONG and self._signer.row_and_key(label)[1] == count:
                self._referrals.give(node, COUNTED, 0, 0)


def _is_chunk_of(usable: int, size: int) -> bool:
    """See is_chunk_of in C."""
    return usable + 8 == max(32, size + 23 & ~15)
