"""The graph in Python: equal answers, for small heaps."""

import heapq
from array import array
from bisect import bisect_left, bisect_right
from collections import Counter
from typing import Dict, Iterator, List, Literal, Optional, Sequence, Set, Tuple

from gdbheapx.budget import Budget
from gdbheapx.errors import HeapxError
from gdbheapx.kernel.blocks.graph import (
    EXACT_SLOT,
    FROM_MAPPING,
    LEAK_CYCLE,
    LEAK_ROOT,
    LEAK_SAMPLES,
    LEAKED,
    MANGLED,
    MASKED,
    NO_NODE,
    NO_ROOT,
    NO_SLOT,
    RULE_BASE,
    RULE_END,
    RULE_HABIT,
    RULE_INSIDE,
    RULE_START,
    RULE_TAG,
    UNALIGNED,
    Edge,
    Graph,
    GraphNumbers,
    GraphShape,
    Habit,
    LeakGroup,
    LeakRoot,
    Referrer,
    Sum,
    Tree,
)
from gdbheapx.kernel.blocks.packed import Move, PackedGraph, Pieces
from gdbheapx.kernel.blocks.records import CLASS_USED, Blocks
from gdbheapx.kernel.blocks.signatures import SIGNED_BYTES, Signer
from gdbheapx.kernel.blocks.twin import dominators, packed
from gdbheapx.kernel.blocks.twin.edge import TwinEdge
from gdbheapx.kernel.blocks.twin.heads import Heads
from gdbheapx.kernel.blocks.twin.signatures import TwinSigner
from gdbheapx.kernel.common.twin.source import Reader
from gdbheapx.problems import OUT_OF_MEMORY

MOST_BLOCKS = 500_000
PAGE_BYTES, READ_BYTES = 4096, 128 << 10
HABIT_BLOCKS, HABIT_SHARE, HABIT_OFFSETS, MOST_HABITS, MOST_OFFSET = 1000, 100, 65535, 32, 65535
RULES = 6
INSIDE = (RULE_BASE, RULE_HABIT, RULE_INSIDE)
"""Edges that lead to the inside of a block."""


class TwinGraph(Graph):
    """See Graph."""

    def __init__(self, reader: Reader, shape: GraphShape, budget: Budget, images: Optional[Reader] = None) -> None:
        self._reader, self._shape, self._budget = reader, shape, budget
        self._heads = Heads(reader, shape, images)
        self._starts: List[int] = []
        self._sizes: List[int] = []
        self._found: List[List[Tuple[int, int]]] = []
        """By node (slot, value) of each word that may be a pointer."""
        self._node: List[Tuple[int, int]] = []
        self._unread_bytes = self._unread_at = self._odd = self._bytes = self._candidates = 0
        self._edges: List[List[TwinEdge]] = []
        self._known: Set[int] = set()
        """Offsets that are a habit."""
        self._evidence: List[int] = []
        self._leak_roots: List[LeakRoot] = []
        self._signer: Optional[TwinSigner] = None
        self._read_nodes = 0
        self._has_links = False
        """It is known which edges are links of lists."""
        self._spans = [*shape.heaps, *shape.mappings]
        self._low = min((start for start, _ in self._spans), default=0)
        self._high = max((end for _, end in self._spans), default=0)

    @classmethod
    def unpacked(cls, nothing: Reader, kept: PackedGraph, budget: Budget) -> "TwinGraph":
        """That of a file, resolved. ValueError where it is none."""
        blocks, edges = packed.unpacked(kept)
        heaps = [(start, start + size) for start, size in blocks]
        found = cls(nothing, GraphShape(heaps, kept.mappings, kept.word_bytes, True, kept.unit_bytes, kept.has_slots), budget)
        found._starts, found._sizes = [start for start, _ in blocks], [size for _, size in blocks]
        found._edges, found._known, found._read_nodes, found._has_links = edges, set(kept.habits), len(edges), True
        return found

    def sign(self, signer: Signer) -> None:
        """See Graph."""
        assert isinstance(signer, TwinSigner)
        self._signer = signer

    def gather(self, streams: Sequence[Iterator[Blocks]], own: Sequence[int] = ()) -> None:
        """See Graph."""
        rows = heapq.merge(*(self._rows(stream) for stream in streams))
        places = sorted(own)
        heap_starts, heap_ends = zip(*self._shape.heaps) if self._shape.heaps else ((), ())
        for address, size in rows:
            size &= ~3
            place = bisect_right(heap_starts, address) - 1
            inside = place >= 0 and address < heap_ends[place]
            if not inside or not size or address % self._shape.unit_bytes or (self._starts and address <= self._starts[-1]):
                self._odd += bool(size)
                continue
            next_own = bisect_left(places, address)
            if next_own < len(places) and places[next_own] < address + size:
                continue
            if len(self._starts) >= MOST_BLOCKS:
                what = "the kernel in Python follows pointers between at most %d blocks" % MOST_BLOCKS
                raise HeapxError(what, "`gdbheapx doctor` says how to build the C kernel", code=OUT_OF_MEMORY)
            self._starts.append(address)
            self._sizes.append(size)
            if self._signer is not None:
                self._signer.sign(address, size, self._reader.read(address, min(size, SIGNED_BYTES)))
                data = self._reader.read(address, size) if self._signer.wants_content(size) else b""
                if data and len(data) == size:
                    self._signer.keep_content(data[: size - size % self._shape.word_bytes])
            self._heads.look(address, size)
            self._scan(address, address, address + size, (address, address + size))
            self.end_node()
            if self._budget.expired():
                return

    @staticmethod
    def _rows(stream: Iterator[Blocks]) -> Iterator[Tuple[int, int]]:
        for blocks in stream:
            for address, size, class_ in zip(blocks.addresses, blocks.usable_bytes, blocks.classes):
                if class_ == CLASS_USED:
                    yield address, size

    def _scan(self, base: int, at: int, end: int, own: Tuple[int, int] = (0, 0)) -> None:
        word = self._shape.word_bytes
        while at < end:
            at += (self._reader.skip(at, end) - at) // word * word
            data = self._reader.read(at, min(READ_BYTES, end - at))
            usable = len(data) if len(data) == end - at else len(data) // word * word
            if usable < word:
                until = min((at // PAGE_BYTES + 1) * PAGE_BYTES, end) if at + word <= end else end
                if at + word <= end:
                    self._unread_at = self._unread_at if self._unread_bytes else at
                    self._unread_bytes += until - at
                at = until
                continue
            self._bytes += usable
            self._words(data[: usable // word * word], (at - base) // word, own)
            at += usable

    def _words(self, data: bytes, slot: int, own: Tuple[int, int]) -> None:
        words = array("Q" if self._shape.word_bytes == 8 else "I", data)
        if not self._shape.little_endian:
            words.byteswap()
        for number, value in enumerate(words):
            if self._low <= value < self._high and not own[0] <= value < own[1]:
                if self._signer is not None:
                    self._signer.hint_rust(words, number, self._read_nodes, own[1] - own[0], slot + number)
                if self._signer is not None and number + 2 < len(words):
                    self._signer.hint(words[number : number + 10])
                self._node.append((slot + number, value))

    def scan(self, base: int, start: int, end: int) -> None:
        """See Graph."""
        self._scan(base, start, end)

    def scan_words(self, words: Sequence[int], exact: Sequence[int] = ()) -> None:
        """See Graph."""
        mask = (1 << 8 * self._shape.word_bytes) - 1
        for first, some in ((0, words), (EXACT_SLOT, exact)):
            self._node += [(first + place, word & mask) for place, word in enumerate(some) if self._low <= word & mask < self._high]

    def end_node(self) -> None:
        """See Graph."""
        self._found.append(self._node)
        self._candidates += len(self._node)
        self._node = []
        self._read_nodes += 1

    def settle(self) -> None:
        """See Graph."""

    def resolve(self) -> List[Habit]:
        """See Graph."""
        self._edges = [self._resolved(node, found) for node, found in enumerate(self._found)]
        self._found = []
        return self._habits()

    def _resolved(self, node: int, found: List[Tuple[int, int]]) -> List[TwinEdge]:
        edges: List[TwinEdge] = []
        run = Run()
        for slot, value in found:
            place = self.find(value)
            if place is None:
                continue
            target, inside = place
            if target >= len(self._starts) or EXACT_SLOT <= slot < NO_SLOT and node >= len(self._starts) + len(self._shape.mappings):
                inside, rule = 0, RULE_START
            elif inside:
                rule = RULE_TAG if inside < self._shape.word_bytes else self._heads.rule(target, inside)
            else:
                rule = run.rule(target, value, self._sizes, edges)
            if target != node:
                kept = self._shape.all_slots or node >= len(self._starts)
                edges.append(TwinEdge(target, rule, slot if kept else NO_SLOT, min(inside, MOST_OFFSET) if rule in INSIDE else 0))
        return edges

    def _habits(self) -> List[Habit]:
        every = [edge for edges in self._edges for edge in edges]
        counts = Counter(edge.inside for edge in every if edge.rule in INSIDE and edge.inside < HABIT_OFFSETS)
        habits: List[Habit] = []
        for offset in sorted(counts)[:HABIT_OFFSETS]:
            if counts[offset] >= HABIT_BLOCKS and counts[offset] * HABIT_SHARE >= len(every) and len(habits) < MOST_HABITS:
                blocks = len({edge.node for edge in every if edge.rule in INSIDE and edge.inside == offset})
                if blocks >= HABIT_BLOCKS:
                    habits.append(Habit(offset, blocks, counts[offset]))
        known = self._known = {habit.offset for habit in habits}
        for edge in every:
            if edge.rule == RULE_INSIDE and edge.inside in known:
                edge.rule = RULE_HABIT
        return habits

    def numbers(self) -> GraphNumbers:
        """See Graph."""
        by_rule = Counter(edge.rule for edges in self._edges for edge in edges)
        return GraphNumbers(
            blocks=len(self._starts),
            nodes=self._read_nodes,
            edges=sum(by_rule.values()),
            candidates=self._candidates,
            unread_bytes=self._unread_bytes,
            unread_at=self._unread_at,
            odd_blocks=self._odd,
            bytes_read=self._bytes,
            by_rule=tuple(by_rule[rule] for rule in range(RULES)),
        )

    @property
    def nodes(self) -> int:
        """See Graph."""
        return len(self._edges)

    def mark(self, roots_from: int) -> Tuple[Sum, ...]:
        """See Graph."""
        self._evidence = [LEAKED] * self.nodes
        rounds = [(rule, range(roots_from, self.nodes) if not rule else None) for rule in range(RULES)]
        for rule, seeds in [*rounds, (FROM_MAPPING, range(len(self._starts), roots_from))]:
            stack = list(seeds) if seeds is not None else self._by(rule)
            for node in stack:
                self._evidence[node] = min(self._evidence[node], rule)
            self._spread([node for node in stack if self._evidence[node] == rule], rule)
        return self._sums()

    def _sums(self) -> Tuple[Sum, ...]:
        sums = [[0, 0] for _ in range(LEAKED + 1)]
        for size, evidence in zip(self._sizes, self._evidence):
            sums[evidence][0] += 1
            sums[evidence][1] += size
        return tuple(Sum(*one) for one in sums)

    def look_again(self, ranges: Sequence[Tuple[int, int]], guard: Optional[int]) -> Tuple[Sum, ...]:
        """See Graph."""
        found: Dict[int, int] = {}
        reached = [(start, start + size) for start, size, one in zip(self._starts, self._sizes, self._evidence) if one != LEAKED]
        pieces = ((at, min(at + READ_BYTES + 7, end)) for start, end in [*reached, *ranges] for at in range(start, end, READ_BYTES))
        for start, end in pieces:
            data = self._reader.read(start, end - start) if self._reader.skip(start, end) < end else b""
            for value, rule in weak_values(data, "little" if self._shape.little_endian else "big", guard):
                place = self.find(value) if self._low <= value < self._high else None
                if place is not None and not place[1] and place[0] < len(self._starts) and self._evidence[place[0]] == LEAKED:
                    found[place[0]] = min(rule, found.get(place[0], rule))
        for rule in (MASKED, UNALIGNED, MANGLED):
            starts = [node for node, one in found.items() if one == rule and self._evidence[node] == LEAKED]
            for node in starts:
                self._evidence[node] = rule
            self._spread(starts, rule)
        return self._sums()

    def set_evidence(self, found: Sequence[Tuple[int, int]]) -> Tuple[Sum, ...]:
        """See Graph."""
        for node, rule in found:
            if node < len(self._starts) and self._evidence[node] == LEAKED:
                self._evidence[node] = rule
        return self._sums()

    def pack(self, moves: Sequence[Move], slots: bool) -> Pieces:
        """See Graph."""
        self._find_links()
        columns = zip(self._starts, self._sizes)
        return packed.pieces(list(columns), self._edges, moves, self._shape.unit_bytes, slots and self._shape.all_slots)

    def _by(self, rule: int) -> List[int]:
        """Nodes that such a pointer leads to, from what is reached, and nothing better."""
        reached = [node for node, evidence in enumerate(self._evidence) if evidence < rule]
        return [edge.node for node in reached for edge in self._edges[node] if edge.rule == rule and self._evidence[edge.node] == LEAKED]

    def _spread(self, stack: List[int], rule: int) -> None:
        while stack:
            for edge in self._edges[stack.pop()]:
                if edge.rule <= rule and self._evidence[edge.node] == LEAKED:
                    self._evidence[edge.node] = rule
                    stack.append(edge.node)

    def evidence(self, node: int) -> int:
        """See Graph."""
        return self._evidence[node]

    def with_evidence(self, kinds: Sequence[int], start: int, end: int, limit: Optional[int] = None) -> List[Tuple[int, int]]:
        """See Graph."""
        rows = [(node, self._evidence[node]) for node in range(start, end) if self._evidence[node] in kinds]
        return rows[:limit]

    def inside_offsets(self) -> List[Tuple[int, int]]:
        """See Graph."""
        counts = Counter(
            edge.inside for edges in self._edges for edge in edges if edge.rule == RULE_INSIDE and self._evidence[edge.node] == RULE_INSIDE
        )
        return sorted(counts.items(), key=lambda one: (-one[1], one[0]))

    def find_leak_roots(self) -> int:
        """See Graph."""
        leaked = [node for node in range(len(self._starts)) if self._evidence[node] == LEAKED]
        pointed = {edge.node for node in leaked for edge in self._edges[node]}
        marked: Set[int] = set()
        starts = []
        for node in [one for one in leaked if one not in pointed] + leaked:
            if node not in marked:
                starts.append(node)
                self._behind(node, marked)
        marked.clear()
        roots = []
        for node in reversed(starts):
            if node not in marked:
                behind = self._behind(node, marked)
                roots.append(LeakRoot(node, node in pointed, len(behind), sum(self._sizes[one] for one in behind)))
        self._leak_roots = roots[::-1]
        return len(roots)

    def leak_roots(self) -> List[LeakRoot]:
        """See Graph."""
        return self._leak_roots

    def leak_root_ids(self) -> "array[int]":
        """See Graph."""
        return array("I", [root.id for root in self._leak_roots])

    def leak_groups(self, labels: Optional["array[int]"] = None) -> List[LeakGroup]:
        """See Graph."""
        found: Dict[Tuple[int, bool, int], List[LeakRoot]] = {}
        for place, root in enumerate(self._leak_roots):
            found.setdefault((self._sizes[root.id], root.is_cycle, labels[place] if labels is not None else 0), []).append(root)
        return [
            LeakGroup(
                *key,
                len(roots),
                sum(root.blocks - 1 for root in roots),
                sum(root.bytes - key[0] for root in roots),
                tuple(root.id for root in roots[:LEAK_SAMPLES]),
            )
            for key, roots in found.items()
        ]

    def leak_kinds(self, ids: Sequence[int]) -> Sequence[int]:
        """See Graph."""
        known = {root.id: LEAK_CYCLE if root.is_cycle else LEAK_ROOT for root in self._leak_roots}
        return [known.get(id, NO_ROOT) for id in ids]

    def _behind(self, start: int, marked: Set[int]) -> List[int]:
        marked.add(start)
        found, stack = [start], [start]
        while stack:
            for edge in self._edges[stack.pop()]:
                if edge.node < len(self._starts) and self._evidence[edge.node] == LEAKED and edge.node not in marked:
                    marked.add(edge.node)
                    found.append(edge.node)
                    stack.append(edge.node)
        return found

    def large(self, least_bytes: int) -> List[Tuple[int, int]]:
        """See Graph."""
        return [one for one in zip(self._starts, self._sizes) if one[1] >= least_bytes]

    def find(self, address: int) -> Optional[Tuple[int, int]]:
        """See Graph."""
        place = bisect_right(self._starts, address) - 1
        if place >= 0 and (address == self._starts[place] or address - self._starts[place] < self._sizes[place]):
            return place, address - self._starts[place]
        mapping = bisect_right(self._shape.mappings, (address, 1 << 65)) - 1
        if mapping >= 0 and address < self._shape.mappings[mapping][1]:
            return len(self._starts) + mapping, address - self._shape.mappings[mapping][0]
        return None

    def columns(self, ids: "array[int]") -> Tuple["array[int]", "array[int]"]:
        """See Graph."""
        return array("Q", [self._starts[one] for one in ids]), array("Q", [self._sizes[one] for one in ids])

    def edges(self, node: int) -> List[Edge]:
        """See Graph."""
        return [Edge(edge.node, edge.rule, edge.slot) for edge in self._edges[node]]

    def referrers(self, node: int, limit: int) -> List[Referrer]:
        """See Graph."""
        found = [Referrer(source, edge.rule, edge.slot) for source, edges in enumerate(self._edges) for edge in edges if edge.node == node]
        return found[:limit]

    def parents(self, roots_from: int) -> "array[int]":
        """See Graph."""
        found = array("I", [NO_NODE]) * self.nodes
        queue = list(range(roots_from, self.nodes))
        for weak in (False, True):
            known, place = len(queue), 0
            while place < len(queue):
                node = queue[place]
                for edge in self._edges[node]:
                    is_weak = edge.rule > RULE_HABIT
                    is_done = edge.node >= roots_from or found[edge.node] != NO_NODE
                    if is_done or (is_weak and not weak) or (not is_weak and weak and place < known):
                        continue
                    found[edge.node] = node
                    queue.append(edge.node)
                place += 1
        return found

    def split(self, places: Sequence[Tuple[int, int]]) -> None:
        """See Graph."""
        more: Dict[int, List[int]] = {}
        for node, slot in places:
            more.setdefault(node, []).append(slot)
        made: List[List[TwinEdge]] = []
        for node, edges in enumerate(self._edges):
            slots = [edge.slot for edge in edges]
            bounds = [0, *(bisect_left(slots, slot) for slot in more.get(node, ())), len(edges)]
            made += [edges[low:high] for low, high in zip(bounds, bounds[1:])]
        self._edges = made

    def _find_links(self) -> None:
        if self._shape.all_slots and not self._has_links:
            dominators.list_links(self._edges, len(self._starts), self._shape.word_bytes)
        self._has_links = True

    def dominators(self, roots_from: int, weak: Tuple[int, int], list_links_are_weak: bool = True) -> Tree:
        """See Graph."""
        self._find_links()
        kept = dominators.filtered(
            self._edges, len(self._starts), roots_from, weak, list_links_are_weak, self._shape.word_bytes, self._known
        )
        owners = dominators.find(kept, roots_from)
        return dominators.added_up(owners, self._sizes)

    def reached(self, first: int, end: int) -> Sum:
        """See Graph."""
        seen, stack = set(range(first, end)), list(range(first, end))
        while stack:
            for edge in self._edges[stack.pop()]:
                if edge.node not in seen:
                    seen.add(edge.node)
                    stack.append(edge.node)
        blocks = [node for node in seen if node < len(self._starts)]
        return Sum(len(blocks), sum(self._sizes[node] for node in blocks))

    def heaviest(self, tree: Tree) -> "array[int]":
        """See Graph."""
        found = array("I", [NO_NODE]) * len(tree.owners)
        for node, owner in enumerate(tree.owners):
            if owner != NO_NODE and (found[owner] == NO_NODE or tree.retained_bytes[node] > tree.retained_bytes[found[owner]]):
                found[owner] = node
        return found

    def children(self, tree: Tree, owner: int, limit: int, until: Optional[int] = None) -> Tuple[List[int], int]:
        """See Graph."""
        end = len(tree.owners) if until is None else until
        found = [node for node in range(end) if tree.owners[node] == owner and tree.retained_bytes[node]]
        found.sort(key=lambda node: (-tree.retained_bytes[node], node))
        return found[:limit], len(found)


def weak_values(data: bytes, order: Literal["little", "big"], guard: Optional[int]) -> Iterator[Tuple[int, int]]:
    """Every value that may be a weak pointer, with its rule: see look_at in weak.c."""
    for place in range(len(data) - 7):
        value = int.from_bytes(data[place : place + 8], order)
        if place & 7:
            yield value, UNALIGNED
            continue
        masked, packed = value & (1 << 48) - 1, value >> 16
        if masked != value:
            yield masked & ~7, MASKED
        if packed != value:
            yield packed, MASKED
        if guard is not None:
            yield ((value >> 17 | value << 47) & (1 << 64) - 1) ^ guard, MANGLED


class Run:
    """Whether a pointer is the end of an array: see rule_of_start in graph.c."""

    def __init__(self) -> None:
        self._address = self._length = 0
        self._id = -1
        self._edge = 0

    def rule(self, id_: int, address: int, sizes: Sequence[int], edges: List[TwinEdge]) -> int:
        """The rule of a pointer to the start of a block, which comes after others of its node."""
        if self._length and id_ == self._id:
            return RULE_END if self._length == 2 else RULE_START
        follows = self._length and id_ == self._id + 1 and address - self._address == sizes[self._id]
        self._length = self._length + 1 if follows else 1
        self._id, self._address = id_, address
        if self._length == 2:
            self._edge = len(edges)
        if self._length == 3:
            for edge in edges[self._edge :]:
                if edge.rule == RULE_END:
                    edge.rule = RULE_START
        return RULE_END if self._length == 2 else RULE_START
