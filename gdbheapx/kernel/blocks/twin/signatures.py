"""The signer in Python: equal answers."""

from array import array
from bisect import bisect_right
from typing import Any, Dict, FrozenSet, Iterator, List, Optional, Sequence, Tuple

from gdbheapx.budget import Budget
from gdbheapx.kernel.blocks.graph import RULE_END, RULE_INSIDE, RULE_START
from gdbheapx.kernel.blocks.records import CLASS_USED, Blocks
from gdbheapx.kernel.blocks.signatures import (
    ADDRESS,
    ALL,
    AT_LEAST,
    AT_MOST,
    BEGINS_TEXT,
    BUCKETS,
    BUFFERS,
    BY_BEGIN,
    BY_CONTENT,
    CHAIN,
    COPIES,
    CPLUSPLUS,
    DEQUE,
    DYNS,
    ELEMENT,
    EQUAL,
    EXPONENTS,
    FIELD,
    HASHES,
    IN_RANGES,
    IN_SET,
    KNOWN,
    LEAST_CONTENT,
    LEAST_COPIED,
    LEAST_COPIES,
    LEAST_EXPONENT,
    LEAST_NUMBERS,
    LEAST_TEXT,
    LIST,
    MOST_KEYS,
    MOST_OBJECT_BYTES,
    MOST_SAME,
    MOST_SIZED,
    MOST_TEXT,
    NOT_EQUAL,
    NUMBERS,
    ONLY_ZEROS,
    OTHERS,
    POINTERS,
    REFERRED,
    ROOTED,
    RUST,
    SHARED_DYNS,
    SIGNED_BYTES,
    SIZED,
    SIZED_BITS,
    STRING,
    TREE,
    UNKNOWN,
    UNSIGNED,
    USABLE,
    VECS,
    VECTOR,
    Condition,
    Copied,
    Hint,
    NumberSet,
    Referring,
    SignatureRow,
    Signed,
    Signer,
    hinted,
    place_of,
    vecs,
)
from gdbheapx.kernel.blocks.twin.rust import Rust, RustHints
from gdbheapx.kernel.common.twin.source import Reader

PARENT, LEFT, RIGHT = 1, 2, 3
MOST_WALKS = 1_000_000
NAMED = (KNOWN, BY_CONTENT, BY_BEGIN)
"""What a label is worth that stays."""
WITH_ELEMENTS = (VECTOR, BUCKETS, DEQUE, BUFFERS, HASHES, VECS)
"""Their places mean nothing."""
LEAST_MAPPED, PAGE_BYTES = 128 << 10, 4096
TEXT_BYTES = frozenset([*range(0x20, 0x7F), *range(9, 14)])


def _content(data: bytes, usable: int, order: Any) -> Optional[int]:
    """BEGINS_TEXT, ONLY_ZEROS, NUMBERS or none of them."""
    start = data[:MOST_TEXT]
    count = next((place for place, byte in enumerate(start) if byte not in TEXT_BYTES), len(start))
    if count >= LEAST_TEXT and (count == len(start) or not start[count]):
        return BEGINS_TEXT
    if not count and len(data) == usable and data and not any(data):
        return ONLY_ZEROS
    words = [word for word in (int.from_bytes(data[at : at + 8], order) for at in range(0, len(data) - 7, 8)) if word]
    numbers = sum(LEAST_EXPONENT <= word >> 52 & 0x7FF < LEAST_EXPONENT + EXPONENTS for word in words)
    return NUMBERS if numbers >= LEAST_NUMBERS and 10 * (len(words) - numbers) <= len(words) else None


class _Referrals:
    """Names what only one block or root points to."""

    def __init__(self, signer: "TwinSigner", graph: Any, only: Dict[int, Any], known: Sequence[int], asked: Referring) -> None:
        self._signer, self._graph, self._only, self._known, self._asked = signer, graph, only, known, asked
        self._depths: Dict[int, int] = {}
        self._blocks = graph.numbers().blocks
        self._rings: Dict[int, int] = {}
        self._walks_left = 8 * self._blocks + MOST_WALKS

    def containers(self, hints: Sequence[Hint]) -> None:
        """Blocks of tables, deques and lists, then those of strings and vectors, then nodes of trees."""
        given = hints if self._asked.containers else []
        is_cplusplus = bool(self._asked.containers & CPLUSPLUS)
        for place, one in enumerate(given):
            self._container(one, given[place + 1] if place + 1 < len(given) else None)
        if self._asked.containers & RUST:
            Rust(self, self._signer, self._graph, self._asked, self._signer.rust).look()
        for address, row, size in given:
            node = self.nameless_at(address) if is_cplusplus and row in (STRING, VECTOR) else None
            if node is not None and self.may_hold(node, size):
                self.give(node, row, 0, 0)
        for node in range(self._blocks if self._asked.tree_label else 0):
            if self._signer.labels()[node] == self._asked.tree_label and self._is_tree_node(node):
                self.give(node, TREE, 0, 0)

    def nameless_at(self, address: int) -> Optional[int]:
        """The block that begins there and may be a container's."""
        found = self._graph.find(address)
        if found is None or found[0] >= self._blocks or found[1] or self.worth(self._signer.labels()[found[0]]) == KNOWN:
            return None
        return int(found[0])

    def may_hold(self, node: int, size: int) -> bool:
        """So many bytes were asked for when the block was made, as far as its size tells."""
        usable = self._graph.blocks([node])[0][1]
        rest = usable - size
        is_mapped = usable >= LEAST_MAPPED and rest < 2 * PAGE_BYTES
        return bool(rest >= 0 and (rest < 32 or usable == 24 or is_mapped or (self._asked.has_classes and rest <= usable // 5 + 16)))

    def _container(self, hint: Hint, behind: Optional[Hint]) -> None:
        address, row, size = hint
        if row == HASHES and self._asked.containers & RUST:
            self._hashes(address, size)
        if not self._asked.containers & CPLUSPLUS:
            return
        node = self.nameless_at(address) if row in (LIST, BUCKETS, DEQUE) else None
        if node is None:
            return
        if row == LIST:
            self._give_all(self._list(node, size), LIST)
        elif behind is not None and self.may_hold(node, size):
            if row == DEQUE and behind[1] == BUFFERS:
                self._give_all(self._buffers(node, behind), BUFFERS, node, DEQUE)
            first = self.nameless_at(behind[0]) if row == BUCKETS and behind[1] == CHAIN else None
            if first is not None and first != node:
                self._give_all(self._chain(first, behind[2], False), CHAIN, node, BUCKETS)

    def _hashes(self, address: int, size: int) -> None:
        """See take_hashes in C."""
        node, offset, *_ = self._graph.find(address) or (self._blocks, 0)
        places = size - 16
        if node >= self._blocks or self.is_known(self._signer.labels()[node]) or offset < places or offset % places >= 16:
            return
        if self.may_hold(node, offset + size):
            self.give(node, HASHES, 0, 0)

    def _give_all(self, nodes: Sequence[int], kind: int, owner: Optional[int] = None, owner_kind: int = 0) -> None:
        for node in nodes:
            self.give(node, kind, 0, 0)
        if nodes and owner is not None:
            self.give(owner, owner_kind, 0, 0)

    def _chain(self, first: int, count: int, is_list: bool) -> List[int]:
        """See is_chain in C; empty: none."""
        found = [first]
        while len(found) < count:
            following = self.at(found[-1], 0)
            if not self._walks_left or following is None or following == first or self.is_known(self._signer.labels()[following]):
                return []
            if is_list and self.at(following, 1) != found[-1]:
                return []
            found.append(following)
            self._walks_left -= 1
        return found if self.at(found[-1], 0) is None else []

    def _ring_of(self, node: int) -> int:
        """See ring_of in C."""
        if node in self._rings:
            return self._rings[node]
        at, passed, is_ring = node, [node], False
        while True:
            following = self.at(at, 0)
            if following is None or self.at(following, 1) != at:
                break
            is_ring = following == node
            if is_ring or following in self._rings:
                break
            passed.append(following)
            at = following
        self._rings.update(dict.fromkeys(passed, len(passed) if is_ring else 0))
        return self._rings[node]

    def _list(self, first: int, count: int) -> List[int]:
        """See is_list in C; empty: none."""
        before = self.at(first, 1)
        if before is None:
            return self._chain(first, count, True)
        if self.at(before, 0) != first or self._ring_of(before) != count + 1:
            return []
        found: List[Optional[int]] = [first]
        while len(found) < count:
            found.append(self.at(found[-1], 0))
        return [node for node in found if node is not None]

    def _buffers(self, node: int, hint: Hint) -> List[int]:
        """The buffers of a deque's map; empty: one is missing."""
        want, last, found = hint[0] >> 32, hint[0] & 0xFFFFFFFF, []
        for edge in self._graph.edges(node):
            if want > last or edge.slot < want:
                continue
            if edge.slot > want or edge.rule not in (RULE_START, RULE_END) or edge.node >= self._blocks:
                return []
            if self.is_known(self._signer.labels()[edge.node]) or not self.may_hold(edge.node, hint[2]):
                return []
            found.append(edge.node)
            want += 1
        return found if want > last else []

    def at(self, node: Optional[int], slot: int) -> Optional[int]:
        """The block to whose begin the word there points."""
        edges = self._graph.edges(node) if node is not None else ()
        edge = next((edge for edge in edges if edge.slot == slot), None)
        return edge.node if edge is not None and edge.rule in (RULE_START, RULE_END) and edge.node < self._blocks else None

    def copies(self, contents: Dict[int, bytes]) -> Copied:
        """See take_copies in C. `contents`: by number, in this order."""
        equal: Dict[Tuple[int, bytes], List[int]] = {}
        sizes = dict(zip(contents, (size for _, size in self._graph.blocks(list(contents)))))
        for node, data in contents.items():
            equal.setdefault((sizes[node], data), []).append(node)
        copied: List[int] = [0, 0, 0, 0]
        same: List[Tuple[int, int]] = []
        for (size, data), nodes in equal.items():
            together = len(nodes) * size
            if not any(data) or len(nodes) < 2 or (len(nodes) < LEAST_COPIES and together < LEAST_COPIED):
                continue
            copied = [old + new for old, new in zip(copied, (1, len(nodes), together, together - size))]
            if together >= self._asked.least_same_bytes:
                same.append((nodes[0], len(nodes)))
        firsts = {first for first, _ in same}
        for node, data in contents.items():
            label, first = self._signer.labels()[node], equal[sizes[node], data][0]
            is_text = label != UNSIGNED and self._signer.row_and_key(label)[0] == self._signer.row_count + BEGINS_TEXT
            if not is_text and self.is_known(label):
                continue
            if not any(data):
                self.give(node, ONLY_ZEROS, 0, 0)
            elif first in firsts:
                self.give(node, COPIES, first << 1 | is_text, 0)
        return Copied(copied[0], copied[1], copied[2], copied[3], sorted(same[:MOST_SAME]))

    def _is_tree_node(self, node: int) -> bool:
        parent = self.at(node, PARENT)
        children = [child for child in (self.at(node, LEFT), self.at(node, RIGHT)) if child is not None]
        if any(self.at(child, PARENT) != node for child in children):
            return False
        return bool(children) or (parent is not None and node in (self.at(parent, LEFT), self.at(parent, RIGHT)))

    def worth(self, label: int) -> int:
        """What the label is worth; one that was given meanwhile is a name."""
        return KNOWN if label > len(self._known) else UNKNOWN if label == UNSIGNED else self._known[label - 1]

    def is_known(self, label: int) -> bool:
        """It has a name."""
        return self.worth(label) in (KNOWN, BY_BEGIN)

    def give(self, node: int, kind: int, key: int, depth: int) -> None:
        """The node's label from now on."""
        address, size = self._graph.blocks([node])[0]
        label = self._signer.count(self._signer.row_count + kind, key, address, size)
        self._depths[label] = depth
        before = self._signer.labels()[node]
        if before:
            self._signer.take_back(before, size)
        self._signer.labels()[node] = label

    def spread(self, start: int) -> None:
        """All that hangs on it, the last pointer first."""
        stack = [start]
        while stack:
            node = stack.pop()
            if node < self._blocks and self._signer.row_and_key(self._signer.labels()[node])[0] == self._signer.row_count + STRING:
                continue  # characters are no pointers
            for edge in self._graph.edges(node):
                target = edge.node
                only = self._only.get(target) if target < self._blocks else None
                if only is None or only[0] != node or only[1] != edge or self.is_known(self._signer.labels()[target]):
                    continue
                if self._name(node, target, edge.slot):
                    stack.append(target)

    def _name(self, node: int, target: int, slot: int) -> bool:
        if node >= self._blocks:
            self.give(target, ROOTED, (node - self._asked.roots_from) << 32 | slot, 1)
            return True
        label = self._signer.labels()[node]
        row, key = self._signer.row_and_key(label)
        kind, is_large = row - self._signer.row_count, self._graph.blocks([node])[0][1] > MOST_OBJECT_BYTES
        is_element = kind in WITH_ELEMENTS or (is_large and kind not in (DYNS, SHARED_DYNS))
        slot = ELEMENT if is_element else slot
        if not is_element and row == self._signer.row_count + REFERRED and key & 0xFFFFFFFF == slot:  # node after node of one list
            self.give(target, REFERRED, key, self._depths.get(label, 0))
            return True
        depth = self._depths.get(label, 0)
        if depth >= self._asked.most_depth:
            return False
        self.give(target, REFERRED, label << 32 | slot, depth + 1)
        return True


class TwinSigner(Signer):
    """See Signer."""

    def __init__(
        self, reader: Reader, shape: Tuple[int, bool], rows: Sequence[SignatureRow], sets: Sequence[NumberSet], budget: Budget
    ) -> None:
        self._reader, self._rows, self._budget = reader, rows, budget
        self._word_bytes = shape[0]
        self._order = "little" if shape[1] else "big"
        self._numbers: List[FrozenSet[int]] = [frozenset(one.numbers) for one in sets]
        self._ranges = [([low for low, _ in one.ranges], [high for _, high in one.ranges]) for one in sets]
        self._keys: Dict[Tuple[int, int], int] = {}
        self._found: List[List[int]] = []
        self._rest: List[int] = []
        self._labels = array("I")
        self._hints: List[Hint] = []
        self.rust = RustHints()
        self._foreign: Sequence[bool] = ()
        self._keeps_contents = False
        self._contents: Dict[int, bytes] = {}
        """By number."""
        self._copied = Copied(0, 0, 0, 0)
        self._weak: List[Tuple[int, int]] = []
        """(number, content) of blocks that met a weak row."""

    def keep_contents(self) -> None:
        """See Signer."""
        self._keeps_contents = True

    def copied(self) -> Copied:
        """See Signer."""
        return self._copied

    def wants_content(self, usable: int) -> bool:
        """All of a block of this size should be looked at."""
        return self._keeps_contents and usable >= LEAST_CONTENT

    def keep_content(self, data: bytes) -> None:
        """All words of that block."""
        self._contents[len(self._labels) - 1] = data

    def sign(self, address: int, usable: int, data: bytes) -> None:
        """One block that begins with these bytes."""
        label = UNSIGNED
        for number, row in enumerate(self._rows):
            offset, width, mask = row.key or (0, 0, 0)
            if not row.least_usable <= usable <= row.most_usable or offset + width > len(data):
                continue
            if not all(self._meets(one, address, usable, data) for one in row.conditions):
                continue
            key = self._load(data, offset, width) & mask if row.key else 0
            content = _content(data, usable, self._order) if row.weak and self._keeps_contents else None
            if content is not None:
                self._weak.append((len(self._labels), content))
            if row.sized:
                key = key & ((1 << SIZED_BITS) - 1) | min(usable // 8, MOST_SIZED) << SIZED_BITS
            label = self.count(number, key, address, usable)
            break
        content = _content(data, usable, self._order) if label == UNSIGNED else None
        if content is not None:
            label = self.count(len(self._rows) + content, 0, address, usable)
        if label == UNSIGNED:
            self._rest = self._rest or [0, 0, 0, 0, address, usable, usable]
            self._add(self._rest, usable)
        self._labels.append(label)

    def count(self, row: int, key: int, address: int, usable: int) -> int:
        """One more block of the row and key; the label."""
        if (row, key) not in self._keys and len(self._keys) >= MOST_KEYS:
            key = OTHERS
        label = self._keys.setdefault((row, key), len(self._keys) + 1)
        if label > len(self._found):
            self._found.append([row, key, 0, 0, address, usable, usable])
        self._add(self._found[label - 1], usable)
        return label

    @staticmethod
    def _add(one: List[int], usable: int) -> None:
        one[2] += 1
        one[3] += usable
        one[5], one[6] = min(one[5], usable), max(one[6], usable)

    def rest(self) -> Signed:
        """See Signer."""
        return Signed(*(self._rest or [0] * 7))

    def take_back(self, label: int, usable: int) -> None:
        """A block has another label now."""
        self._found[label - 1][2] -= 1
        self._found[label - 1][3] -= usable

    def row_and_key(self, label: int) -> Tuple[int, int]:
        """Of a label."""
        return self._found[label - 1][0], self._found[label - 1][1]

    @property
    def row_count(self) -> int:
        """How many rows were asked."""
        return len(self._rows)

    def _load(self, data: bytes, offset: int, width: int) -> int:
        return int.from_bytes(data[offset : offset + width], self._order)  # type: ignore[arg-type]

    def _meets(self, one: Condition, address: int, usable: int, data: bytes) -> bool:
        if one.offset + one.width > len(data):
            return False
        value = self._load(data, one.offset, one.width) & one.mask
        if one.op == IN_SET:
            return bool(value) and value in self._numbers[one.operand]
        if one.op == IN_RANGES:
            lows, highs = self._ranges[one.operand]
            place = bisect_right(lows, value) - 1
            return place >= 0 and bool(value) and value < highs[place]
        with_ = one.operand
        if one.base == USABLE:
            with_ += usable
        elif one.base == ADDRESS:
            with_ += address
        elif one.base == FIELD:
            if one.other + one.width > len(data):
                return False
            with_ += self._load(data, one.other, one.width) & one.mask
        with_ &= ALL
        return {EQUAL: value == with_, NOT_EQUAL: value != with_, AT_MOST: value <= with_, AT_LEAST: value >= with_}[one.op]

    def stream(self, blocks: Iterator[Blocks]) -> None:
        """See Signer."""
        for batch in blocks:
            for address, usable, class_ in zip(batch.addresses, batch.usable_bytes, batch.classes):
                if class_ == CLASS_USED:
                    self.sign(address, usable, self._reader.read(address, min(usable, SIGNED_BYTES)))
            if self._budget.expired():
                return

    def hint(self, words: Sequence[int]) -> None:
        """Words side by side, at least three, the first one in the span of the index."""
        self._hints.extend(hinted(words, self._word_bytes))

    def look_for_rust(self, constants: Sequence[Tuple[int, int]], foreign: Sequence[bool]) -> None:
        """See Signer."""
        self.rust.constants, self._foreign = constants, foreign

    def vtables(self) -> List[int]:
        """See Signer."""
        return sorted({vtable for _, vtable in self.rust.dyns})

    def hint_rust(self, words: Sequence[int], at: int, node: int, own_bytes: int, slot: int) -> None:
        """What stands beside the pointer at a place in these words: see signer_look_rust in C."""
        if not self.rust.constants or at + 1 >= len(words) or words[at] & 7:
            return
        if not words[at + 1] & 7 and self.rust.has(words[at + 1]):
            self.rust.dyns.append((words[at], words[at + 1]))
        elif not own_bytes or not self._is_foreign(self._labels[-1]):
            self.rust.vecs.extend((words[at], one) for one in vecs(words, at, place_of(node, own_bytes, slot)))

    def _is_foreign(self, label: int) -> bool:
        row = self._found[label - 1][0] if label != UNSIGNED else len(self._rows)
        return row < len(self._rows) and self._foreign[row]

    def refer(self, graph: Any, known: Sequence[int], asked: Referring) -> None:
        """See Signer."""
        numbers = graph.numbers()
        inside: Dict[int, Any] = {}
        others: Dict[int, Any] = {}
        for node in range(numbers.nodes):
            for edge in graph.edges(node):
                if edge.node >= numbers.blocks or edge.rule == RULE_END:
                    continue
                only = inside if edge.rule == RULE_INSIDE else others
                before = only.setdefault(edge.node, (node, edge))
                if before is not None and before[0] != node:
                    only[edge.node] = None
        work = _Referrals(self, graph, {**inside, **others}, known, asked)
        work.containers(self._hints)
        for node in range(numbers.blocks):
            if work.is_known(self._labels[node]) and self._found[self._labels[node] - 1][0] - len(self._rows) not in (REFERRED, ROOTED):
                work.spread(node)
        for node in range(asked.roots_from, numbers.nodes):
            work.spread(node)
        for node, content in self._weak:
            label = self._labels[node]
            if work.worth(label) not in NAMED:
                work.give(node, content, 0, 0)
        self._copied = work.copies(self._contents)
        for node, (_, size) in enumerate(graph.blocks(list(range(numbers.blocks)))):
            label = self._labels[node]
            if work.worth(label) not in NAMED:
                is_dense = size >= LEAST_CONTENT and 2 * len(graph.edges(node)) >= size // self._word_bytes
                kind, key = (POINTERS, 0) if is_dense else (SIZED, size)
                work.give(node, kind, key, 0)

    def found(self, labels: Optional[Sequence[int]] = None) -> List[Signed]:
        """See Signer."""
        return [Signed(*one) for one in (self._found if labels is None else [self._found[label - 1] for label in labels])]

    def label_count(self) -> int:
        """See Signer."""
        return len(self._found)

    def frequent(self, least_blocks: Sequence[int]) -> List[int]:
        """See Signer."""
        rows = len(least_blocks)
        return [label for label, one in enumerate(self._found, 1) if one[0] >= rows or one[2] >= least_blocks[one[0]]]

    def within(self, graph: Any, ranges: Sequence[Tuple[int, int]]) -> List[int]:
        """See Signer."""
        found, begins = [0] * len(self._found), [start for start, _ in ranges]
        for label, (address, size) in zip(self._labels, graph.blocks(list(range(len(self._labels))))):
            place = bisect_right(begins, address) - 1
            if label and place >= 0 and address < ranges[place][1]:
                found[label - 1] += size
        return found

    def labels(self) -> "array[int]":
        """See Signer."""
        return self._labels
