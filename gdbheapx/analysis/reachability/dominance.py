"""Find owners: dominators of the graph, whose roots are split into variables, and the containers among what they keep."""

import heapq
import re
from array import array
from functools import cached_property
from typing import Any, Dict, List, NamedTuple, Optional, Sequence, Set, Tuple

from gdbheapx.allocators.session import Session
from gdbheapx.analysis.reachability import heap_graph
from gdbheapx.analysis.reachability.heap_graph import GraphRoot, HeldByField, Reach, measure_fields
from gdbheapx.analysis.reachability.owners import (
    BLOCK,
    CONTAINER,
    ELEMENTS,
    FIELD,
    GLOBAL,
    LOCAL,
    MAPPING,
    SHAPES,
    SHARED,
    THREAD,
    Accumulation,
    ContainerUser,
    Division,
    HoldingBlock,
    LeakSuspect,
    LinkedContainer,
    OwnedMemory,
    Owners,
    find_block_addresses,
    walk_owned,
)
from gdbheapx.analysis.reachability.paths import NodeNames, Path, Paths
from gdbheapx.common.model import TargetAddress
from gdbheapx.common.units import count_noun
from gdbheapx.inferior.base import Module
from gdbheapx.kernel.blocks.graph import EXACT_SLOT, LEAKED, LIST, LRU, NO_NODE, NO_SLOT, RULE_HABIT, Container, Edge, NativeSum, Tree

LEAST_ARRAY = 16
"""So many pointers in a row to blocks of one size are one variable: a table."""
MOST_APART = 256
"""More pointers side by side than these, without such tables, are one variable, whatever they lead to."""
MOST_LOOKED_AT = 64
"""Pointers of a block that a variable may begin with."""


class Kin:
    """Targets of the roots' pointers, before the roots are split into variables."""

    def __init__(self, reach: Reach) -> None:
        self._reach, self._graph = reach, reach.graph

    @cached_property
    def _groups(self) -> "array[int]":
        return self._graph.linked().of()

    def starts(self, edges: Sequence[Edge]) -> List[int]:
        """Slots of the first pointer of each variable, of pointers that are side by side."""
        blocks = self._reach.numbers.blocks
        sizes = [self._graph.blocks([edge.node])[0][1] if edge.node < blocks else 0 for edge in edges]
        in_array, first = [False] * len(sizes), 0  # it continues an array
        for place in range(1, len(sizes) + 1):
            if place < len(sizes) and sizes[place] == sizes[first]:
                continue
            if place - first >= LEAST_ARRAY:
                in_array[first + 1 : place] = [True] * (place - first - 1)
            first = place
        if len(edges) < 2 or in_array.count(False) > MOST_APART or not self._graph.shape.all_slots:
            return [edge.slot for edge in edges[:1]]
        slots: List[int] = []
        own: Set[int] = set()
        all_: Set[int] = set()
        for place, edge in enumerate(edges):
            if in_array[place]:
                continue
            here, near = {edge.node}, {edge.node, *(other.node for other in self._graph.edges(edge.node, MOST_LOOKED_AT))}
            if not (self._has_common(own, near) or self._has_common(all_, here)):
                slots.append(edge.slot)
                own, all_ = set(), set()
            own |= here
            all_ |= near
        return slots

    def _has_common(self, some: Set[int], others: Set[int]) -> bool:
        """Return True if the same node is in both, or blocks that are linked with each other are. A node that is no block is never
        linked: links are looked for only if blocks are next to each other.
        """
        blocks = self._reach.numbers.blocks
        if not some or some & others or min(some) >= blocks or min(others) >= blocks:
            return bool(some & others)
        of = self._groups
        one, other = ({of[node] for node in nodes if node < len(of)} - {0} for nodes in (some, others))
        return bool(one & other)


MOST_ORDERED, AT_ONCE = 16_384, 1 << 16
"""Elements of a list that are called by their number."""
MOST_UP, MOST_UP_OF_SEVERAL = 6, 2
"""Steps of a name, up to what has one by itself; of each of several names of one container."""
MOST_CONTAINER_HOLDERS = 8
MOST_CONTAINERS = 20_000
"""Rows of a table."""
MOST_SIZES, MOST_SORTED = 3, 1 << 20
"""Of elements of several sizes: rows of one size each, and elements that are looked at for these."""
LARGE = 2
"""An element that keeps so many times what the average one does has a row of its own."""


class ContainerRow(NamedTuple):
    """Container as a row of a table."""

    id: int
    owner: str
    """What it is called: by the word that holds it."""
    shape: str
    field: Optional[str]
    """Where that word is in its variable or block: `+0x60`."""
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


class ContainerElement(NamedTuple):
    """Container of which a block is an element."""

    number: int
    entries: Sequence[Tuple[int, int]]
    name: str
    """`list g_queue`."""

    def is_held_by(self, node: int) -> bool:
        """Whichever of its words: a hash table has one for each chain."""
        return any(node == holder for holder, _ in self.entries)


class ContainerTree:
    """The containers of one tree."""

    def __init__(self, tallied: "OwnerTally") -> None:
        self._tallied, self._graph, self._tree = tallied, tallied.graph, tallied.tree
        self._places: Dict[int, Dict[int, int]] = {}
        self._elements: Dict[int, ContainerElement] = {}
        owners, retained = self._tree.owners, self._tree.retained_bytes
        self._first = len(owners) - len(self._tree.containers)
        held = ((owners[node], node) for node in range(self._first, len(owners)) if owners[node] != NO_NODE)
        self._held = {owner: node for owner, node in held if retained[owner] == retained[node]}

    def of(self, node: int) -> Optional[Container]:
        """Return the container that the node is, or that is all that a variable keeps; else None."""
        container = self._tree.container(node)
        if container is not None or not self._tallied.is_data(node) or node not in self._held:
            return container
        return self._tree.container(self._held[node])

    def told(self, node: int) -> Dict[str, Any]:
        """Return the members of OwnedMemory and of Accumulation that a container has; none of what is no container."""
        one = self.of(node)
        if one is None:
            return {}
        one = self._graph.with_users(self._tree, one)
        used = one.used_elements, one.used_bytes, one.other_users
        linked = LinkedContainer(one.shape, one.elements, one.element_bytes or None, one.own_bytes, *used)
        users = [ContainerUser(self.way(user), self._tallied.kind(user), pointers) for user, pointers in one.users]
        holders = self._name_holders(one, MOST_UP)
        return {"container": linked, "confidence": one.sure, "users": users, "holders": holders if holders[1:] else ()}

    def has_names(self, node: int) -> Optional[bool]:
        """Return True if all holders of the container get their names from a named node; None if the node is no container."""
        one, tallied = self.of(node), self._tallied
        if one is None:
            return None
        ways = [self._up_from(holder, one) for holder, _ in one.entries]
        return all(any(tallied.has_name(node) and not tallied.is_container(node) for node in way) for way in ways)

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
        holders = self._name_holders(one, up, is_short)
        return "%s and %s" % (", ".join(holders[:-1]), holders[-1]) if holders[1:] else "".join(holders) or "a list without a holder"

    def rows(self, most: int) -> List[ContainerRow]:
        """Return rows of the containers that keep most."""
        bytes_, blocks = self._tree.retained_bytes, self._tree.retained_blocks
        nodes = heapq.nlargest(most, range(self._first, len(bytes_)), key=bytes_.__getitem__)
        rows = []
        for node in nodes:
            one = self._graph.with_users(self._tree, self._tree.containers[node - self._first])
            name, field, sizes = self.name(one), self._name_field(one), (one.elements, one.element_bytes or None, one.own_bytes)
            kept = bytes_[node], blocks[node]
            rows.append(ContainerRow(node - self._first, name, one.shape, field, *sizes, *kept, one.sure, one.used_elements))
        return rows

    def step(self, one: Container) -> str:
        """`[list]`, `[list at +0x60]`: below what holds it, alike for all such, whatever the number of elements."""
        field = self._name_field(one) or "+0x0"
        return "[%s%s]" % (SHAPES.get(one.shape, one.shape), " at " + field if field != "+0x0" else "")

    def _name_field(self, one: Container) -> Optional[str]:
        node, slot = one.entries[0] if one.entries else (NO_NODE, NO_SLOT)
        return "+0x%x" % self._tallied.offset(node, slot) if slot < EXACT_SLOT else None

    def _name_holders(self, one: Container, up: int, is_short: bool = False) -> List[str]:
        """The words that hold it, of each holder the first."""
        slots: Dict[int, int] = {}
        for node, slot in one.entries:
            slots[node] = min(slot, slots.get(node, slot))
        up = min(up, MOST_UP_OF_SEVERAL) if len(slots) > 1 else up
        named = {self._name_word(node, slot, up, is_short): None for node, slot in sorted(slots.items())}
        return list(named)[:MOST_CONTAINER_HOLDERS]

    def _name_word(self, node: int, slot: int, up: int, is_short: bool) -> str:
        tallied = self._tallied
        root, is_whole = tallied.root(node), slot >= EXACT_SLOT  # a hash table's first bucket in use is another one after it has grown
        if root is not None:
            return tallied.word_name(node, root.slot if is_whole else slot, is_whole, is_short)
        way = self.way(node, up, is_short)
        return "%s -> +0x%x" % (way, slot * tallied.reach.word_bytes) if slot < EXACT_SLOT else way

    def way(self, node: int, up: int = MOST_UP, is_short: bool = False) -> str:
        """Return the path from a named node down to this one: `server+0x40 -> +0x10[0x55d0c0ffee10] -> +0x8`."""
        tallied, owner, itself = self._tallied, self._tree.owners[node], self._tree.container(node)
        if itself is not None:
            return self.name(itself, up, is_short)
        if tallied.has_name(node) or not up:
            return tallied.plain_name(node)
        element, one = self.element(node, up - 1), self._tree.container(owner) if owner != NO_NODE else None
        if element is None and one is not None and not self._name_holders(one, up - 1)[1:]:
            element = "%s[0x%x]" % (self.name(one, up - 1, True), self._graph.blocks([node])[0][0])
        if element is not None or owner == NO_NODE or one is not None:
            return element or tallied.plain_name(node)
        edge = self._graph.edge_to(owner, node)
        return tallied.plain_name(node) if edge is None else self._name_word(owner, edge.slot, up - 1, True)

    def element(self, node: int, up: int = MOST_UP) -> Optional[str]:
        """`g_queue[3]`; None where the block is no element of a list that one holds, or comes late in it."""
        number = self._tree.container_of(node)
        one = self._tree.containers[number] if number is not None else None
        if number is None or one is None or one.shape != LIST or not up:
            return None
        if number not in self._places:
            self._places[number] = {at: place for place, at in enumerate(self._graph.members(self._tree, number, 0, MOST_ORDERED))}
        place = self._places[number].get(node)
        return None if place is None or self._name_holders(one, up)[1:] else "%s[%d]" % (self.name(one, up, True), place)

    def member(self, node: int) -> Optional[ContainerElement]:
        """Return the container of which the block is an element, if a word is known that holds it; else None."""
        number = self._tree.container_of(node)
        if number is None:
            return None
        if number not in self._elements:
            one = self._tree.containers[number]
            name = "%s %s" % (SHAPES.get(one.shape, one.shape), self.name(one, is_short=True))
            self._elements[number] = ContainerElement(number, one.entries, name)
        element = self._elements[number]
        return element if element.entries else None

    def place(self, node: int) -> Optional[int]:
        """Return the index of an element in the order of a list; None if the node is no element of one."""
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
        found = self._graph.members(self._tree, one.node - self._first, place, 1) if one is not None and one.shape == LIST else []
        return found[0] if found else None

    def first(self, one: Container) -> Optional[TargetAddress]:
        """Return the address of its first element, or None."""
        found = self._graph.members(self._tree, one.node - self._first, 0, 1)
        return TargetAddress(self._graph.blocks(found)[0][0]) if found else None

    def below(self, one: Container, limit: int) -> Tuple[List[OwnedMemory], List[int]]:
        """Elements that are alike, together, and those that keep far more than the average."""
        retained, number = self._tree.retained_bytes, one.node - self._first
        least = LARGE * retained[one.node] // max(1, one.elements)
        large = [node for node in self._graph.children(self._tree, one.node, limit)[0] if retained[node] > least]
        alone = {node for node in large if self._tree.container_of(node) == number}
        left = [one.elements - len(alone)]
        for column in (retained, self._tree.retained_blocks):
            left.append(column[one.node] - sum(column[node] for node in large))
        rows: List[OwnedMemory] = []
        if one.element_bytes:
            sample = next((node for node in self._graph.members(self._tree, number, 0, len(alone) + 1) if node not in alone), NO_NODE)
            sizes = {one.element_bytes: [*left, sample]}
        else:
            sizes = {}
            for first in range(0, min(one.elements, MOST_SORTED), AT_ONCE):
                nodes = self._graph.members(self._tree, number, first, AT_ONCE)
                for node, size in zip(nodes, self._graph.columns(array("I", nodes))[1]):
                    if node not in alone:
                        sums = sizes.setdefault(size, [0, 0, 0, node])
                        sums[0] += 1
                        sums[1] += retained[node]
                        sums[2] += self._tree.retained_blocks[node]
        for size in sorted(sizes, key=lambda size: -sizes[size][1])[:MOST_SIZES]:
            count, kept, blocks, sample = sizes[size]
            rows.append(self._make_alike_row(count, " of %d bytes" % size, (kept, blocks), sample, bool(alone)))
            left = [left[0] - count, left[1] - kept, left[2] - blocks]
        if left[0] > 0 or left[1] > 0:
            rows.append(self._make_alike_row(left[0], "", (left[1], left[2]), None, True))
        return [row for row in rows if row.retained_bytes], large

    def _make_alike_row(self, count: int, size: str, kept: Tuple[int, int], sample: Optional[int], are_others: bool) -> OwnedMemory:
        name = "%s%s" % (count_noun(count, "other element" if are_others else "element"), size) if count else "what several elements hold"
        address = TargetAddress(self._graph.blocks([sample])[0][0]) if sample is not None and sample != NO_NODE else None
        return OwnedMemory(name, ELEMENTS, address, kept[0], self._tallied.share(kept[0]), kept[1], None, None)


def strip_module(name: str) -> str:
    """`g_queue` of `g_queue in app`: what lies below a variable is called without it, such as `g_queue -> +0x8`."""
    head, found, rest = name.rpartition(" in ")
    module, arrow, below = rest.partition(" -> ")
    return head + arrow + below if found and '"' not in module and "]" not in module else name


SUSPECT_SHARE = 0.2
"""Of the heap: who keeps so much is a suspect (Eclipse MAT, Leak Suspects: threshold_percent 20)."""
DROP_RATIO = 0.7
"""Where the largest part of what a node keeps has less than this share of it, the memory piles up there (MAT: big_drop_ratio)."""
GAP_BYTES = 64
"""Pointers of an object without symbols that are further apart belong to different variables; nearer ones may."""
HEAD_WORDS = 2
"""Of a container in front of its first pointer: a colour, a capacity."""
LEAST_SHARED = 0.001
"""Of all that is in use: what several owners hold and keeps less is no row of its own, and where runtimes give names it is not counted what
such leads to: each function leads to all modules."""
MOST_PARTS = 8
MOST_PASSED = 100
"""Blocks without a name of their own, between an owner and what it owns."""
MOST_SILENT = 4
"""Blocks below one that are called as it is."""
MOST_OWNERS = 500
"""Where all blocks are shown by their owners: those that retain most; what others own is put together."""
MOST_KEEPING = 60
"""Owners that are looked at for how much several hold."""
MOST_HOLDERS, MOST_POINTERS = 16, 1000
"""Of a suspect that several hold: named, and pointers to it that are looked at."""
KINDS = {
    heap_graph.DATA: GLOBAL,
    heap_graph.THREAD_LOCAL: LOCAL,
    heap_graph.MANAGED: FIELD,
    heap_graph.STACK: THREAD,
    heap_graph.REGISTERS: THREAD,
}
NOWHERE = Path("", ())


class OwnerTally:
    """Dominators of one graph, whose roots are split into variables."""

    def __init__(self, reach: Reach, names: NodeNames, paths: Optional[Paths] = None) -> None:
        self.reach, self.names, self.graph, self.paths = reach, names, reach.graph, paths
        sums = self.graph.mark(reach.roots_from)
        self.parts = self._split_roots()
        self.named = frozenset(paths.starts() if paths is not None else ())
        """Nodes that have a name by themselves."""
        self.has_starts = bool(self.named)
        """Runtimes give names, and say which words own: else only what containers show has paths."""
        if paths is not None:
            paths.split(self.parts)
        strong = sum(part.kind in heap_graph.STRONG for part in self.parts)
        self.strong = reach.roots_from, reach.roots_from + strong
        self.weak = reach.roots_from + strong, reach.roots_from + len(self.parts)
        self._locals_from = reach.roots_from + sum(part.kind == heap_graph.DATA for part in self.parts)
        self.used = NativeSum(sum(part.blocks for part in sums), sum(part.bytes for part in sums))
        self.leaked = sums[LEAKED]

    @cached_property
    def tree(self) -> Tree:
        """Return the tree of owners; made on first use, since it takes most of the time and room."""
        return self.graph.dominators(self.reach.roots_from, self.weak, locals_from=self._locals_from, containers=True)

    @property
    def reach_of_parts(self) -> Reach:
        """The graph as it is now: its roots are variables."""
        if self.reach.kept is not None:
            return self.reach
        return self.reach._replace(regions=self.reach.regions._replace(roots=self.parts))

    @cached_property
    def contained(self) -> ContainerTree:
        """The tree's containers."""
        return ContainerTree(self)

    def root(self, node: int) -> Optional[GraphRoot]:
        """The root, or one variable of it; None of what lies in memory, and of a container."""
        place = node - self.reach.roots_from
        return self.parts[place] if 0 <= place < len(self.parts) else None

    def is_data(self, node: int) -> bool:
        """Return True for a global variable."""
        part = self.root(node)
        return part is not None and part.kind == heap_graph.DATA

    def is_plumbing(self, node: int) -> bool:
        """Return True for a variable of the runtime that a managed heap belongs to, and for a mapping of a runtime that has such a heap."""
        part, mapping = self.root(node), self.reach.mapping(node)
        module = part.module if part is not None else None
        if mapping is not None:
            return mapping.whose is not None and bool(self.reach.regions.managed)
        return module is not None and any(heap.module == module.file_name for heap in self.reach.regions.managed)

    def is_container(self, node: int) -> bool:
        """Its blocks are nodes of their own."""
        return node >= self.reach.roots_from + len(self.parts)

    def _split_roots(self) -> List[GraphRoot]:
        """Makes one root of each variable that points somewhere."""
        if self.reach.kept is not None:
            return list(self.reach.regions.roots)
        parts: List[GraphRoot] = []
        places: List[Tuple[int, int]] = []
        kin = Kin(self.reach)
        for number, root in enumerate(self.reach.regions.roots):
            parts.append(root)
            if root.kind != heap_graph.DATA or root.module is None:
                continue
            for place, slot in enumerate(self._find_starts(self.reach.roots_from + number, root.start, root.module, kin)):
                if not place:  # the root itself begins with its first variable
                    parts[-1] = root._replace(slot=slot)
                else:
                    places.append((self.reach.roots_from + number, slot))
                    parts.append(root._replace(slot=slot))
        self.graph.split(places)
        return parts

    def _find_starts(self, node: int, start: int, module: Module, kin: Kin) -> List[int]:
        """Slots of the first pointer of each variable."""
        word, end, slots = self.reach.word_bytes, 0, []
        unnamed: List[Edge] = []
        for edge in self.graph.edges(node):
            address = start + edge.slot * word
            if address < end:
                continue
            variable = self.names.variable(module, address)
            if unnamed and (variable is not None or (edge.slot - unnamed[-1].slot) * word > GAP_BYTES):
                slots += kin.starts(unnamed)
                unnamed = []
            if variable is None:
                unnamed.append(edge)
            else:
                slots.append(edge.slot)
                end = variable.end
        return slots + kin.starts(unnamed)

    def kind(self, node: int) -> str:
        """Return the kind of owner."""
        part = self.root(node)
        if part is not None:
            return KINDS[part.kind]
        if self.is_container(node):
            return SHARED if self.tree.owners[node] == NO_NODE else CONTAINER
        return MAPPING if self.reach.mapping(node) is not None else BLOCK

    def path(self, node: int) -> Optional[Path]:
        """Return the path by which the program itself gets to the node; None where nothing gives it a name."""
        return self.paths.of(node) if self.paths is not None and not self.is_container(node) else None

    def name(self, node: int) -> str:
        """Return the name of the node."""
        container = self.tree.container(node) if self.is_container(node) else None
        if container is not None:
            return self.contained.name(container)
        element = self.contained.element(node) if not self.has_name(node) else None
        return element if element is not None else self.plain_name(node)

    def has_name(self, node: int) -> bool:
        """Return True if the node is named by itself, not by its holder."""
        return node >= self.reach.numbers.blocks or self.path(node) is not None

    def plain_name(self, node: int) -> str:
        """Return the name of a node that is no container; a block without a name is called by its address."""
        part = self.root(node)
        if part is not None:
            return self.word_name(node, part.slot, is_whole=True)
        if self.reach.mapping(node) is not None:
            return self.names.of_mapping(node)
        path = self.path(node)
        if path is not None:
            return path.text
        address, size = self.graph.blocks([node])[0]
        return "block 0x%x (%d bytes)" % (address, size)

    def word_name(self, node: int, slot: int, is_whole: bool = False, is_short: bool = False) -> str:
        """Return the name of a word of a root. `is_whole`: the variable, whichever of its words it is; `is_short`: omit its module."""
        root = self.parts[node - self.reach.roots_from]
        if root.kind != heap_graph.DATA or root.module is None or slot == NO_SLOT:
            return self.names.of_root(root, NO_SLOT if is_whole else slot)
        address = root.start + slot * self.reach.word_bytes
        variable = self.names.variable(root.module, address) if is_whole else None
        return self.names.at(root.module, variable.start if variable is not None else address, is_short)

    def offset(self, node: int, slot: int) -> int:
        """Return the offset of a word in its block or variable, in bytes; for a stack the offset in the whole stack."""
        part = self.root(node)
        if part is None or not self.is_data(node) or part.module is None:
            return slot * self.reach.word_bytes
        address = part.start + slot * self.reach.word_bytes
        variable = self.names.variable(part.module, address)
        start = variable.start if variable is not None else part.start + part.slot * self.reach.word_bytes
        return max(0, address - start)

    def address(self, node: int) -> Optional[TargetAddress]:
        """Return the address of the node: of a container its first element; None if it has none."""
        part, container = self.root(node), self.tree.container(node) if self.is_container(node) else None
        if container is not None:
            return self.contained.first(container)
        if part is not None:
            start = part.start + (part.slot * self.reach.word_bytes if part.slot != NO_SLOT else 0)
            return TargetAddress(start) if part.start else None
        mapping = self.reach.mapping(node)
        return TargetAddress(self.graph.blocks([node])[0][0] if mapping is None else mapping.start)

    def owned(self, node: int, kind: Optional[str] = None, reached: bool = False) -> OwnedMemory:
        """Make one row."""
        bound = self.graph.reached(node, self.tree if self.has_starts or self.is_container(node) else None) if reached else None
        retained, path = self.tree.retained_bytes[node], self.path(node)
        return OwnedMemory(
            owner=self.name(node),
            kind=kind or self.kind(node),
            address=self.address(node),
            retained_bytes=retained,
            share_percent=self.share(retained),
            retained_blocks=self.tree.retained_blocks[node],
            reached_bytes=None if bound is None else bound.bytes,
            reached_blocks=None if bound is None else bound.blocks,
            signature=self.contents(node),
            path=path.text if path is not None else None,
            path_steps=path.steps if path is not None else None,
            **self.contained.told(node),
            has_names=self.contained.has_names(node),
        )

    def is_told(self, node: int) -> bool:
        """A runtime says what the block is, or has a path for it."""
        return self.has_starts and self.paths is not None and (self.paths.contents(node) is not None or self.path(node) is not None)

    def contents(self, node: int) -> Optional[str]:
        """Return the contents of the block by a runtime's description; None where there is none."""
        return self.paths.contents(node) if self.paths is not None and not self.is_container(node) else None

    def field_rows(self) -> List[HeldByField]:
        """Return what objects of managed heaps hold, by class and field."""
        if self.reach.kept is not None:
            return list(self.reach.kept.fields)
        nodes = {id(part.field): self.reach.roots_from + number for number, part in enumerate(self.parts) if part.field is not None}
        retained = self.tree.retained_bytes
        return measure_fields(self.graph, self.reach.numbers.blocks, self.reach.regions.managed, lambda field: retained[nodes[id(field)]])

    def share(self, retained: int) -> float:
        """Return the percentage of all memory in use."""
        return round(100.0 * retained / self.used.bytes, 1) if self.used.bytes else 0.0

    def children(self, node: int, depth: int, limit: int) -> List[OwnedMemory]:
        """List the nodes that it owns, `depth` levels down."""
        rows, nodes = self.parts_of(node, limit)
        return rows + [self.owned(child)._replace(children=self.children(child, depth - 1, limit) if depth > 1 else ()) for child in nodes]

    def parts_of(self, node: int, limit: int) -> Tuple[List[OwnedMemory], List[int]]:
        """Return the nodes that it owns directly: elements of a container that are alike as one row, then the nodes that are shown by
        themselves, most first.
        """
        container = self.contained.of(node)
        return ([], self.below(node, limit)) if container is None else self.contained.below(container, limit)

    def below(self, node: int, limit: int) -> List[int]:
        """Return the nodes that it owns directly, most first. Nodes for which the program has no name of its own, such as the keys of a
        dict, are passed.
        """
        path, waiting = self.path(node), [node]
        found: List[int] = []
        for _ in range(MOST_PASSED):
            at = waiting.pop()
            for child in self.graph.children(self.tree, at, max(limit, MOST_OWNERS))[0]:
                (waiting if path is not None and self._is_passed(child, path) else found).append(child)
            if not waiting:
                break
        found += waiting
        return sorted(found, key=lambda child: -self.tree.retained_bytes[child])[:limit]

    def _is_passed(self, node: int, above: Path) -> bool:
        """Return True if the node has no name of its own, or if a node that it owns has a shorter one: `shop._cache` lies in
        `shop.__dict__`.
        """
        path, at = self.path(node), node
        if self.is_container(node):
            return False
        if path is None or path.text == above.text:
            return True
        for _ in range(MOST_SILENT):
            largest = self.graph.children(self.tree, at, 1)[0]
            here = self.path(largest[0]) if largest else None
            if here is None or here.text != path.text:
                return here is not None and not here.text.startswith(path.text)
            at = largest[0]
        return False

    def tops(self, limit: int) -> List[Tuple[int, str]]:
        """Return the nodes without an owner, with their kinds, most first. A module is replaced by the nodes that it owns, and so is its
        dict: every function of the module has that, too.
        """
        found: List[Tuple[int, str]] = []
        for node in self.graph.children(self.tree, NO_NODE, 2 * limit)[0]:
            is_start, is_small = node in self.named, self.tree.retained_bytes[node] < LEAST_SHARED * self.used.bytes
            path = self.path(node) if self.has_starts and (is_start or not is_small) else None
            kind = THREAD if path is not None and path.is_local else GLOBAL
            if node >= self.reach.roots_from:
                found.append((node, self.kind(node)))
            elif path is not None and not is_small and (path.is_module if is_start else self._is_passed(node, NOWHERE)):
                found += [(child, kind) for child in self.below(node, limit) or [node]]
            else:
                found.append((node, kind if is_start else SHARED))
        return sorted(found, key=lambda top: -self.tree.retained_bytes[top[0]])[:limit]

    def suspect(self, node: int, kind: str) -> LeakSuspect:
        """Goes down from an owner to where its memory piles up, or divides; what several hold counts as it is."""
        retained = self.tree.retained_bytes
        at, steps = (node, 0) if self.is_container(node) else self._piled_up(node)
        largest, count = self.graph.children(self.tree, at, MOST_PARTS)
        container = self.contained.of(at)
        least = SUSPECT_SHARE * (self.used.bytes if container is None else retained[at])
        least = max(least, LARGE * retained[at] // container.elements if container is not None else 0)
        is_block = at < self.reach.numbers.blocks
        point = Accumulation(
            address=self.address(at),
            signature=self.contents(at),
            name=self.contained.way(at) if is_block else self.name(at),
            size_bytes=self.graph.blocks([at])[0][1] if is_block else 0,
            children=count,
            retained_bytes=retained[at],
            steps=steps,
            parts=[self._make_division(part, container) for part in largest if retained[part] >= least],
            **self.contained.told(at),
            is_below=container is not None and self.contained.is_below(container, node),
        )
        holders = self._find_holders(node) if kind == SHARED and not self.is_container(node) else {}
        names = [self.name(holder) for holder in holders]
        holding = [
            HoldingBlock(name, self.address(at), at == holder)
            for name, (holder, first) in zip(names, holders.items())
            for at in sorted({first, holder}, key=lambda at: at == holder)
            if at < self.reach.numbers.blocks
        ]
        owner, share = self.name(node), self.share(retained[node])
        return LeakSuspect(owner, kind, retained[node], share, point, self.contents(node), holders=names, holding=holding)

    def _piled_up(self, node: int, is_container_enough: bool = False) -> Tuple[int, int]:
        """Return the node at which the memory kept by a node divides, and its number of steps below that node."""
        at, steps, retained = node, 0, self.tree.retained_bytes
        largest = self.graph.children(self.tree, at, 1)[0]
        while largest and retained[largest[0]] >= DROP_RATIO * retained[at] and not (is_container_enough and self.is_container(at)):
            at, steps = largest[0], steps + 1
            largest = self.graph.children(self.tree, at, 1)[0]
        return at, steps

    def _make_division(self, node: int, container: Optional[Container]) -> Division:
        """Return one part of the memory kept by another node: a container is shown in place of the block that has little else, and a
        block without a name is called an element by its address.
        """
        retained, name = self.tree.retained_bytes[node], self.name(node)
        one = self.tree.container(self._piled_up(node, True)[0])
        linked = None
        if one is not None and self.tree.retained_bytes[one.node] >= DROP_RATIO * retained:
            name, linked = self.contained.name(one), LinkedContainer(one.shape, one.elements, one.element_bytes or None, one.own_bytes)
        elif container is not None and not self.has_name(node) and name == self.plain_name(node):
            name = "element 0x%x (%d bytes)" % self.graph.blocks([node])[0]
        return Division(name, self.address(node), retained, self.share(retained), container=linked)

    def _find_holders(self, node: int) -> Dict[int, int]:
        """Return the holders of the node, fields of managed objects first, then those that keep most, each with the node that contains
        the first of its pointers.
        """
        found: Dict[int, int] = {}
        for referrer in self.graph.referrers(node, MOST_POINTERS):
            at = referrer.node
            while at != node and self.tree.owners[at] != NO_NODE:
                at = self.tree.owners[at]
            is_strong = referrer.rule <= RULE_HABIT and not self.weak[0] <= at < self.weak[1]
            if at != node and is_strong and not self.is_plumbing(at):
                found.setdefault(at, referrer.node)
        order = sorted(found, key=lambda holder: (self.kind(holder) != FIELD, -self.tree.retained_bytes[holder]))
        return {at: found[at] for at in order[:MOST_HOLDERS]}


def find_owner_blocks(tallied: OwnerTally, owners: Owners) -> List[Tuple[int, int]]:
    """Blocks in the answer, as (address, usable bytes): those that own, and those below which the memory of suspects piles up."""
    points = {suspect.accumulation.address for suspect in owners.suspects if suspect.accumulation.size_bytes}
    points.update(holder.address for suspect in owners.suspects for holder in suspect.holding)
    points.update(part.address for suspect in owners.suspects for part in suspect.accumulation.parts)
    addresses = sorted(
        {point for point in (*points, *find_block_addresses(owners.owners), *find_block_addresses(owners.together)) if point is not None}
    )
    places = [tallied.graph.find(address) for address in addresses]
    nodes = [place[0] for place in places if place is not None and not place[1] and place[0] < tallied.reach.numbers.blocks]
    return list(tallied.graph.blocks(nodes))


def find_owner_spans(tallied: OwnerTally, owners: Owners) -> Dict[int, Tuple[int, int]]:
    """Return the start and end of each variable, and of each block that is none of a runtime's objects, by the addresses in the answer."""
    wanted = {suspect.accumulation.address for suspect in owners.suspects}
    wanted.update(row.address for row in walk_owned([*owners.owners, *owners.together]) if row.kind not in (CONTAINER, ELEMENTS))
    found: Dict[int, Tuple[int, int]] = {}
    for number, part in enumerate(tallied.parts):
        address = tallied.address(tallied.reach.roots_from + number)
        if address in wanted and address and part.kind == heap_graph.DATA and part.module is not None:
            variable = tallied.names.variable(part.module, address)
            following = [one for one in tallied.parts[number + 1 : number + 2] if one.start == part.start]
            end = part.start + following[0].slot * tallied.reach.word_bytes if following else part.end
            before = max(part.start, address - HEAD_WORDS * tallied.reach.word_bytes)
            found[address] = (variable.start, variable.end) if variable is not None else (before, end)
    for address in wanted - set(found):
        place = tallied.graph.find(address) if address else None
        if address and place is not None and place[0] < tallied.reach.numbers.blocks and not tallied.is_told(place[0]):
            start, size = tallied.graph.blocks([place[0]])[0]
            found[address] = start, start + size
    return found


TALLIED = "tallied"
"""What commands share while a snapshot is taken: it splits the roots of the graph, which can be done once."""


def tally_owners(session: Session, reach: Reach, names: NodeNames, paths: Optional[Paths] = None) -> OwnerTally:
    """The dominators of this look."""
    shared: Optional[OwnerTally] = session.shared(TALLIED)
    if shared is not None:
        return shared
    session.budget.progress.stage = "finding owners"
    return session.share(TALLIED, OwnerTally(reach, names, paths))


MOST_SUSPECTS = 5
"""There can be no more of a fifth each."""
MOST_VOTES, MOST_VOTED = 1000, 3
"""Blocks that several owners hold, by which those variables are chosen of which it is counted how much they lead to."""
MOST_JOINT, MOST_TOGETHER, LEAST_TOGETHER = 24, 5, 0.05
"""Blocks with most pointers of which it is counted how much they lead to; how many of them are shown, and from which part of the heap
on."""
MOST_NAMED_OWNERS = 1 << 14
"""Of what owners own that is asked for its name, while one is looked for."""
MOST_HEAD = 50
"""Letters of a name that what lies below begins with: a long one lacks its middle."""
ELEMENT = re.compile(r".+\[(0x[0-9a-f]{3,16})\]")
"""What a block is called that is an element of a table or tree."""
BLOCK_NAME, BELOW = re.compile(r"block (0x[0-9a-f]+)\b(?!.*( -> |\[))"), re.compile(r"(.+)(?:\[(\d+)\]| -> \+0x[0-9a-f]+)")
"""Of a block without a name; of what lies below something: an element of a list, a container that a block holds."""
MOST_REACHED = 20
"""Owners for which the upper bound is counted: each takes a pass over the graph."""


def find_owners(tallied: OwnerTally, depth: int, limit: int) -> Owners:
    """Find all owners, and the suspects among them."""
    reach = tallied.reach
    rows: List[OwnedMemory] = []
    suspects: List[Tuple[int, LeakSuspect]] = []
    tops = tallied.tops(max(limit, MOST_KEEPING))
    for number, (node, kind) in enumerate(tops[: max(limit, MOST_SUSPECTS)]):
        if kind == SHARED and tallied.tree.retained_bytes[node] < LEAST_SHARED * tallied.used.bytes:
            continue
        is_large = tallied.tree.retained_bytes[node] >= LEAST_SHARED * tallied.used.bytes
        row = tallied.owned(node, kind, reached=number < MOST_REACHED and (is_large or not tallied.has_starts))
        if len(rows) < limit:
            rows.append(row._replace(children=tallied.children(node, depth - 1, limit) if depth > 1 else ()))
        if row.retained_bytes >= SUSPECT_SHARE * tallied.used.bytes and row.retained_bytes:
            suspects.append((node, tallied.suspect(node, kind)))
    roots = range(reach.roots_from, reach.roots_from + len(tallied.parts))
    owners, retained = tallied.tree.owners, tallied.tree.retained_bytes
    kept = sum(retained[node] for node in (*roots, *tallied.named))
    for node, kind in tops:  # what is in a module's dict, functions hold, too
        if kind != SHARED and node < reach.roots_from:
            above = node
            while owners[above] != NO_NODE:
                above = owners[above]
            kept += 0 if above in tallied.named else retained[node]
    shared = tallied.used.bytes - tallied.leaked.bytes - kept
    is_wanted = 0 < SUSPECT_SHARE * tallied.used.bytes <= shared
    others = tallied.graph.others(tallied.tree, [node for node, _ in suspects], tallied.weak) if suspects else []
    told = [suspect._replace(others=against) for (_, suspect), against in zip(suspects, others)]
    names = {name for suspect in told for name in (suspect.owner, *suspect.holders)}
    joint: List[OwnedMemory] = []
    if is_wanted:
        joint = (_find_joint_owners if tallied.has_starts else _find_heap_owners)(tallied) or _find_voted_owners(tallied, shared)
    together = [row for row in joint if row.owner not in names][:MOST_TOGETHER]
    return Owners(told, rows, tallied.used, tallied.leaked, shared, together=together, fields=tallied.field_rows())


def _find_heap_owners(tallied: OwnerTally) -> List[OwnedMemory]:
    """Heaps of runtimes whose objects have no names here, and what their words lead to at once: the program's objects are what holds it,
    and other ways, such as lists of all buffers, pass through the runtime."""
    reach, owners, roots_from = tallied.reach, tallied.tree.owners, tallied.reach.roots_from
    tops: Dict[str, Set[int]] = {}
    for place, heap in enumerate(reach.regions.nodes):
        above: Dict[int, None] = {}  # of millions of words: few lead to others
        for edge in tallied.graph.edges(reach.numbers.blocks + place) if heap.whose is not None else ():
            at = edge.node
            while edge.rule <= RULE_HABIT and owners[at] != NO_NODE:
                at = owners[at]
            if edge.rule <= RULE_HABIT and at < roots_from:
                above[at] = None
        for at in above:
            tops.setdefault(heap.whose or "" if reach.mapping(at) is None else tallied.name(at), set()).add(at)
    found = []
    for whose, nodes in tops.items():
        sizes = [sum(column[node] for node in nodes) for column in (tallied.tree.retained_bytes, tallied.tree.retained_blocks)]
        if sizes[0] >= SUSPECT_SHARE * tallied.used.bytes:
            found.append(OwnedMemory(whose, MAPPING, None, 0, 0.0, 0, sizes[0], sizes[1]))
    return sorted(found, key=lambda row: -(row.reached_bytes or 0))


def _find_joint_owners(tallied: OwnerTally) -> List[OwnedMemory]:
    """Blocks with many pointers, by the paths of the objects that they belong to, and what they lead to without each other. What their
    owners keep is not held by others."""
    found: Dict[str, OwnedMemory] = {}
    owners = {node for node, _ in tallied.tops(MOST_KEEPING)}
    for joint in tallied.graph.joint(tallied.tree, tallied.strong, MOST_JOINT):
        at = joint.node
        while at not in owners and tallied.tree.owners[at] != NO_NODE:
            at = tallied.tree.owners[at]
        if joint.bytes - tallied.tree.retained_bytes[at] * (at in owners) < LEAST_TOGETHER * tallied.used.bytes:
            continue
        row = tallied.owned(joint.node)._replace(reached_bytes=joint.bytes, reached_blocks=joint.blocks)
        end = row.path_steps[-1].address if row.path_steps and not row.signature else None
        place = tallied.graph.find(end) if end else None
        if place is not None and tallied.paths is not None:  # the object to which the path leads
            row = row._replace(signature=tallied.paths.contents(place[0]))
        found.setdefault(row.owner, row)
    return list(found.values())


def _find_voted_owners(tallied: OwnerTally, shared_bytes: int) -> List[OwnedMemory]:
    """Variables: those from which the shortest ways lead to most of what several hold. Where runtimes give names, what has one by itself is
    such a variable, but a module, not one that leads to more than all that several hold, by way of an owner, as functions by sys.modules.
    """
    roots_from, votes = tallied.reach.roots_from, {}  # type: int, Dict[int, int]
    parents = (tallied.graph.named_parents if tallied.has_starts else tallied.graph.parents)(roots_from)
    for node in tallied.graph.children(tallied.tree, NO_NODE, MOST_VOTES, roots_from)[0]:
        at, passed = node, []
        while at < roots_from and parents[at] != NO_NODE:
            passed.append(at)
            at = parents[at]
        for one in passed:  # the next node of a long list does not go all the way again
            parents[one] = at
        votes[at] = votes.get(at, 0) + tallied.tree.retained_bytes[node]
    variables = []
    for node in votes:
        path = tallied.path(node) if node in tallied.named else None
        if (node >= roots_from or (path is not None and not path.is_module)) and not tallied.is_plumbing(node):
            variables.append(node)
    chosen = sorted(variables, key=lambda node: -votes[node])[:MOST_VOTED]
    rows = [
        row
        for row in (tallied.owned(node, reached=True) for node in chosen)
        if (row.reached_bytes or 0) >= SUSPECT_SHARE * tallied.used.bytes
    ]
    return [row for row in rows if not tallied.has_starts or (row.reached_bytes or 0) <= row.retained_bytes + shared_bytes]


def find_one_owner(tallied: OwnerTally, what: str, address: Optional[int], depth: int, limit: int) -> Optional[OwnedMemory]:
    """Find one owner with the nodes that it owns: the block or variable that has the address, or the one that any answer calls so; None
    where there is none.
    """
    node = _find_node_at(tallied, address) if address is not None else find_named_node(tallied, what)
    if node is None:  # a runtime's heap is told by name alone
        rows = find_owners(tallied, 1, limit).together if address is None else ()
        return next((row for row in rows if row.owner == what), None)
    return tallied.owned(node, reached=True)._replace(children=tallied.children(node, max(1, depth), limit))


def _find_node_at(tallied: OwnerTally, address: int) -> Optional[int]:
    place = tallied.graph.find(address)
    roots = range(tallied.reach.roots_from, tallied.reach.roots_from + len(tallied.parts))
    return place[0] if place is not None else next((node for node in roots if tallied.address(node) == address), None)


def find_named_node(tallied: OwnerTally, what: str) -> Optional[int]:
    """Return the node that answers call `what`, with its ` in MODULE` or without; None where nothing near the top is called so."""
    element, below = ELEMENT.fullmatch(what), BELOW.fullmatch(what)
    found = _search_name(tallied, what) if element is None else _find_node_at(tallied, int(element.group(1), 16))
    above = find_named_node(tallied, below.group(1)) if found is None and below is not None and tallied.tree.containers else None
    if above is None or below is None:
        return found
    if below.group(2) is not None:
        return tallied.contained.at(above, int(below.group(2)))
    held = tallied.graph.children(tallied.tree, above, MOST_OWNERS)[0]
    named = tallied.name, tallied.contained.way
    return next((node for node in held if named[not tallied.is_container(node)](node) == what), None)


def find_storage(tallied: OwnerTally, root: int) -> int:
    """Return the block that a variable points to and that is called as the variable is; the variable where there is none."""
    name, held = tallied.name(root).split(" in ")[0], tallied.graph.children(tallied.tree, root, MOST_OWNERS)[0]
    return next((node for node in held if not tallied.is_container(node) and tallied.name(node) == name), root)


def _search_name(tallied: OwnerTally, what: str) -> Optional[int]:
    """Search the name from the largest owners down: a printed node is large, or lies below the beginning of its name."""
    block = BLOCK_NAME.match(what)
    modules = [part.module for part in tallied.parts if part.module is not None and part.module.link is not None]
    if modules and what.endswith(" in " + modules[0].file_name):  # the program's file, not the link by which it was started
        what = what[: -len(modules[0].file_name)] + modules[0].shown_name
    if block is not None:
        return _find_node_at(tallied, int(block.group(1), 16))
    retained, short = tallied.tree.retained_bytes, what.split(" in ")[0].replace(".<key ", "[")  # which lies below `["key"]`
    roots = range(tallied.reach.roots_from, tallied.reach.roots_from + len(tallied.parts))
    tops = [node for node, _ in tallied.tops(MOST_OWNERS)]
    waiting: List[Tuple[int, int, int]] = [(0, -retained[node], node) for node in (*roots, *tops)]
    heapq.heapify(waiting)
    for _ in range(len(waiting) + MOST_NAMED_OWNERS):
        if not waiting:
            break
        away, _, node = heapq.heappop(waiting)
        name = tallied.name(node)
        if what in (name, name.split(" in ")[0]):
            return node
        if BLOCK_NAME.match(name) is None:  # a block without a name is a part of what it lies below
            away = int(not short.startswith(name.split(" in ")[0].strip("*]")[:MOST_HEAD]))
        below = tallied.graph.children(tallied.tree, node, MOST_OWNERS)[0] if retained[node] else ()
        for child in below:
            heapq.heappush(waiting, (away, -retained[child], child))
    return None
