"""What containers and their elements are called, and what is told below one."""

import heapq
from array import array
from typing import TYPE_CHECKING, Dict, List, NamedTuple, Optional, Sequence, Tuple

from gdbheapx.analysis.reachability.owners import ELEMENTS, SHAPES, Linked, Owned, User
from gdbheapx.kernel.blocks.graph import EXACT_SLOT, LIST, LRU, NO_NODE, NO_SLOT, Container
from gdbheapx.model import Address
from gdbheapx.units import plural

if TYPE_CHECKING:
    from gdbheapx.analysis.reachability.dominance import Tallied

MOST_ORDERED, AT_ONCE = 16_384, 1 << 16
"""Elements of a list that are called by their number."""
MOST_UP, MOST_UP_OF_SEVERAL = 6, 2
"""Steps of a name, up to what has one by itself; of each of several names of one container."""
MOST_HOLDERS = 8
MOST_CONTAINERS = 20_000
"""Rows of a table."""
MOST_SIZES, MOST_SORTED = 3, 1 << 20
"""Of elements of several sizes: rows of one size each, and elements that are looked at for these."""
LARGE = 2
"""An element that keeps so many times what the average one does is told by itself."""


class Told(NamedTuple):
    """The members of Owned and of Accumulation that a container has."""

    container: Optional[Linked] = None
    confidence: Optional[str] = None
    users: Sequence[User] = ()
    holders: Sequence[str] = ()


class ContainerRow(NamedTuple):
    """One container, as a row of a table."""

    id: int
    owner: str
    """What it is called: by the word that holds it."""
    shape: str
    field: Optional[str]
    """Where that word stands in its variable or block: `+0x60`."""
    elements: int
    element_bytes: Optional[int]
    """None: they have several sizes."""
    own_bytes: int
    bytes: int
    """What it keeps: its elements and what these keep."""
    blocks: int
    confidence: str
    used_elements: Optional[int]
    """None: not counted."""


class Member(NamedTuple):
    """Of what container a block is an element."""

    number: int
    entries: Sequence[Tuple[int, int]]
    name: str
    """`list g_queue`."""

    def is_held_by(self, node: int) -> bool:
        """Whichever of its words: a hash table has one for each chain."""
        return any(node == holder for holder, _ in self.entries)


class Contained:
    """The containers of one tree."""

    def __init__(self, tallied: "Tallied") -> None:
        self._tallied, self._graph, self._tree = tallied, tallied.graph, tallied.tree
        self._places: Dict[int, Dict[int, int]] = {}
        self._entries: Dict[int, Tuple[Sequence[Tuple[int, int]], str]] = {}
        owners, retained = self._tree.owners, self._tree.retained_bytes
        self._first = len(owners) - len(self._tree.containers)
        held = ((owners[node], node) for node in range(self._first, len(owners)) if owners[node] != NO_NODE)
        self._held = {owner: node for owner, node in held if retained[owner] == retained[node]}

    def of(self, node: int) -> Optional[Container]:
        """What the node is, or all that a variable keeps."""
        container = self._tree.container(node)
        if container is not None or not self._tallied.is_data(node) or node not in self._held:
            return container
        return self._tree.container(self._held[node])

    def told(self, node: int) -> Told:
        """What its row has beside."""
        one = self.of(node)
        if one is None:
            return Told()
        one = self._graph.with_users(self._tree, one)
        used = one.used_elements, one.used_bytes, one.other_users
        linked = Linked(one.shape, one.elements, one.element_bytes or None, one.own_bytes, *used)
        users = [User(self.way(user), self._tallied.kind(user), pointers) for user, pointers in one.users]
        holders = self._holders(one, MOST_UP)
        return Told(linked, one.sure, users, holders if holders[1:] else ())

    def has_names(self, node: int) -> Optional[bool]:
        """All that hold it are called by what has a name; None where it is no container."""
        one = self.of(node)
        return None if one is None else all(any(map(self._has_name, self._up_from(holder, one))) for holder, _ in one.entries)

    def _has_name(self, node: int) -> bool:
        return self._tallied.has_name(node) and not self._tallied.is_container(node)

    def is_below(self, one: Container, node: int) -> bool:
        """A word of the node, or of what it owns, holds the container, which is called by the way from there."""
        return any(node in self._up_from(holder, one) for holder, _ in one.entries)

    def _up_from(self, node: int, one: Container) -> List[int]:
        """A holder and what owns it, as far up as names go."""
        found, owners = [node], self._tree.owners
        most = MOST_UP_OF_SEVERAL if len({holder for holder, _ in one.entries}) > 1 else MOST_UP
        while len(found) <= most and owners[found[-1]] != NO_NODE:
            found.append(owners[found[-1]])
        return found

    def name(self, one: Container, up: int = MOST_UP, is_short: bool = False) -> str:
        """`g_queue in app`, `shop._pub -> +0x60`, `g_lru in app and g_index in app`; `is_short`: without the modules."""
        holders = self._holders(one, up, is_short)
        return "%s and %s" % (", ".join(holders[:-1]), holders[-1]) if holders[1:] else "".join(holders) or "a list without a holder"

    def rows(self, most: int) -> List[ContainerRow]:
        """Those that keep most."""
        bytes_, blocks = self._tree.retained_bytes, self._tree.retained_blocks
        nodes = heapq.nlargest(most, range(self._first, len(bytes_)), key=bytes_.__getitem__)
        found = [self._graph.with_users(self._tree, self._tree.containers[node - self._first]) for node in nodes]
        return [
            ContainerRow(
                *(self._number(one), self.name(one), one.shape, self._field(one), one.elements, one.element_bytes or None, one.own_bytes),
                *(bytes_[one.node], blocks[one.node], one.sure, one.used_elements),
            )
            for one in found
        ]

    def step(self, one: Container) -> str:
        """`[list]`, `[list at +0x60]`: below what holds it, alike for all such, whatever the number of elements."""
        field = self._field(one) or "+0x0"
        return "[%s%s]" % (SHAPES.get(one.shape, one.shape), " at " + field if field != "+0x0" else "")

    def _field(self, one: Container) -> Optional[str]:
        node, slot = one.entries[0] if one.entries else (NO_NODE, NO_SLOT)
        return "+0x%x" % self._tallied.offset(node, slot) if slot < EXACT_SLOT else None

    def _holders(self, one: Container, up: int, is_short: bool = False) -> List[str]:
        """The words that hold it, of each holder the first."""
        slots: Dict[int, int] = {}
        for node, slot in one.entries:
            slots[node] = min(slot, slots.get(node, slot))
        up = min(up, MOST_UP_OF_SEVERAL) if len(slots) > 1 else up
        named = {self._word(node, slot, up, is_short): None for node, slot in sorted(slots.items())}
        return list(named)[:MOST_HOLDERS]

    def _word(self, node: int, slot: int, up: int, is_short: bool) -> str:
        tallied = self._tallied
        if tallied.root(node) is not None:
            return tallied.word_name(node, slot if slot < EXACT_SLOT else NO_SLOT, is_short=is_short)
        way = self.way(node, up, is_short)
        return "%s -> +0x%x" % (way, slot * tallied.reach.word_bytes) if slot < EXACT_SLOT else way

    def way(self, node: int, up: int = MOST_UP, is_short: bool = False) -> str:
        """From what has a name by itself down to here: `server+0x40 -> +0x10[0x55d0c0ffee10] -> +0x8`."""
        tallied, owner, itself = self._tallied, self._tree.owners[node], self._tree.container(node)
        if itself is not None:
            return self.name(itself, up, is_short)
        if tallied.has_name(node) or not up:
            return tallied.plain_name(node)
        element, one = self.element(node, up - 1), self._tree.container(owner) if owner != NO_NODE else None
        if element is None and one is not None and not self._holders(one, up - 1)[1:]:
            element = "%s[0x%x]" % (self.name(one, up - 1, True), self._graph.blocks([node])[0][0])
        if element is not None or owner == NO_NODE or one is not None:
            return element or tallied.plain_name(node)
        edge = self._graph.edge_to(owner, node)
        return tallied.plain_name(node) if edge is None else self._word(owner, edge.slot, up - 1, True)

    def element(self, node: int, up: int = MOST_UP) -> Optional[str]:
        """`g_queue[3]`; None where the block is no element of a list that one holds, or comes late in it."""
        number = self._tree.container_of(node)
        one = self._tree.containers[number] if number is not None else None
        if number is None or one is None or one.shape != LIST or not up:
            return None
        if number not in self._places:
            self._places[number] = {at: place for place, at in enumerate(self._graph.members(self._tree, number, 0, MOST_ORDERED))}
        place = self._places[number].get(node)
        return None if place is None or self._holders(one, up)[1:] else "%s[%d]" % (self.name(one, up, True), place)

    def member(self, node: int) -> Optional[Member]:
        """What the block is an element of, if a word is known that holds that."""
        number = self._tree.container_of(node)
        if number is None:
            return None
        if number not in self._entries:
            one = self._tree.containers[number]
            self._entries[number] = one.entries, "%s %s" % (SHAPES.get(one.shape, one.shape), self.name(one, is_short=True))
        entries, name = self._entries[number]
        return Member(number, entries, name) if entries else None

    def place(self, node: int) -> Optional[int]:
        """Of an element in the order of a list."""
        number = self._tree.container_of(node)
        one = self._tree.containers[number] if number is not None else None
        if number is None or one is None or one.shape not in (LIST, LRU):
            return None
        for first in range(0, one.elements, AT_ONCE):
            nodes = self._graph.members(self._tree, number, first, AT_ONCE)
            if node in nodes:
                return first + nodes.index(node)
        return None

    def at(self, node: int, place: int) -> Optional[int]:
        """The element of the container that the node is or keeps."""
        one = self.of(node)
        found = self._graph.members(self._tree, self._number(one), place, 1) if one is not None and one.shape == LIST else []
        return found[0] if found else None

    def first(self, one: Container) -> Optional[Address]:
        """Where its first element lies."""
        found = self._graph.members(self._tree, self._number(one), 0, 1)
        return Address(self._graph.blocks(found)[0][0]) if found else None

    def _number(self, one: Container) -> int:
        return one.node - self._first

    def below(self, one: Container, limit: int) -> Tuple[List[Owned], List[int]]:
        """Elements that are alike, together, and those that keep far more than the average."""
        retained, number = self._tree.retained_bytes, self._number(one)
        least = LARGE * retained[one.node] // max(1, one.elements)
        large = [node for node in self._graph.children(self._tree, one.node, limit)[0] if retained[node] > least]
        alone = {node for node in large if self._tree.container_of(node) == number}
        left = [one.elements - len(alone)]
        for column in (retained, self._tree.retained_blocks):
            left.append(column[one.node] - sum(column[node] for node in large))
        rows: List[Owned] = []
        sizes = self._sizes(one, alone) if not one.element_bytes else {one.element_bytes: [*left, self._sample(number, alone)]}
        for size in sorted(sizes, key=lambda size: -sizes[size][1])[:MOST_SIZES]:
            count, kept, blocks, sample = sizes[size]
            rows.append(self._alike(count, " of %d bytes" % size, (kept, blocks), sample, bool(alone)))
            left = [left[0] - count, left[1] - kept, left[2] - blocks]
        if left[0] > 0 or left[1] > 0:
            rows.append(self._alike(left[0], "", (left[1], left[2]), None, True))
        return [row for row in rows if row.retained_bytes], large

    def _sizes(self, one: Container, alone: "set[int]") -> Dict[int, List[int]]:
        """By their size how many elements have it, what they keep, and the first one."""
        found: Dict[int, List[int]] = {}
        for first in range(0, min(one.elements, MOST_SORTED), AT_ONCE):
            nodes = self._graph.members(self._tree, self._number(one), first, AT_ONCE)
            for node, size in zip(nodes, self._graph.columns(array("I", nodes))[1]):
                if node not in alone:
                    sums = found.setdefault(size, [0, 0, 0, node])
                    sums[0] += 1
                    sums[1] += self._tree.retained_bytes[node]
                    sums[2] += self._tree.retained_blocks[node]
        return found

    def _sample(self, number: int, alone: "set[int]") -> int:
        return next((node for node in self._graph.members(self._tree, number, 0, len(alone) + 1) if node not in alone), NO_NODE)

    def _alike(self, count: int, size: str, kept: Tuple[int, int], sample: Optional[int], are_others: bool) -> Owned:
        name = "%s%s" % (plural(count, "other element" if are_others else "element"), size) if count else "what several elements hold"
        address = Address(self._graph.blocks([sample])[0][0]) if sample is not None and sample != NO_NODE else None
        return Owned(name, ELEMENTS, address, kept[0], self._tallied.share(kept[0]), kept[1], None, None)


def without_module(name: str) -> str:
    """`g_queue` of `g_queue in app`: what lies below a variable is called without it."""
    head, found, module = name.rpartition(" in ")
    return head if found and '"' not in module and "]" not in module else name
