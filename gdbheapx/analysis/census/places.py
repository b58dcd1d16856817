"""Names of blocks that no row knows: by who points to them, by the container whose elements they are, by what trait objects lead there."""

from typing import Callable, Dict, List, Mapping, NamedTuple, Optional, Tuple

from gdbheapx.analysis.census import rust
from gdbheapx.analysis.census.world import CONTENT, PLACE, SHAPE, Signature
from gdbheapx.analysis.reachability import heap_graph, regions
from gdbheapx.analysis.reachability.names import Names
from gdbheapx.analysis.reachability.owners import SHAPES
from gdbheapx.kernel.blocks import signatures
from gdbheapx.kernel.blocks.graph import NO_SLOT
from gdbheapx.kernel.blocks.graph import SHAPES as GRAPH_SHAPES
from gdbheapx.kernel.blocks.signatures import Signed

BEYOND = {
    signatures.BEGINS_TEXT: Signature("text", "", CONTENT),
    signatures.ONLY_ZEROS: Signature("zeros", "", CONTENT),
    signatures.NUMBERS: Signature("numbers (double)", "", CONTENT),
    signatures.POINTERS: Signature("mostly pointers", "", CONTENT),
    signatures.STRING: Signature("string {block, length, capacity}", "", SHAPE),
    signatures.VECTOR: Signature("vector {begin, end, capacity}", "", SHAPE),
    signatures.TREE: Signature("node of a map or set", "", SHAPE),
    signatures.BUCKETS: Signature("table of an unordered map or set", "", SHAPE),
    signatures.CHAIN: Signature("node of an unordered map or set", "", SHAPE),
    signatures.LIST: Signature("node of a list", "", SHAPE),
    signatures.DEQUE: Signature("map of a deque", "", SHAPE),
    signatures.BUFFERS: Signature("buffer of a deque", "", SHAPE),
    signatures.HASHES: Signature("table of a HashMap or HashSet", "", SHAPE),
    signatures.VECS: Signature("Vec or String", "", SHAPE),
    signatures.BTREES: Signature("node of a BTreeMap or BTreeSet", "", SHAPE),
    signatures.COUNTED: Signature("Rc or Arc", "", SHAPE),
}
BUFFER = Signature("buffer or string {block, length, capacity}", "", SHAPE)
"""STRING where a runtime's buffers have such words, too."""
VEC_WORDS = {
    signatures.CAPACITY_POINTER_LENGTH: " {capacity, pointer, length}",
    signatures.POINTER_CAPACITY_LENGTH: " {pointer, capacity, length}",
}
"""Of VECS, by key."""
SAME = (Signature("the same content", "", CONTENT), Signature("the same text", "", CONTENT))
"""Of blocks with one content, if they are many of those in use."""
MEMBERS = signatures.MEMBERS, signatures.ROOTED_MEMBERS
SHARED = signatures.REFERRED, signatures.ROOTED, *MEMBERS
"""Kinds of labels of which there may be more places than labels: all others share one."""
MEMBER_OF_ARRAY = signatures.ELEMENT & signatures.MEMBER_SLOT
Fields = Mapping[Tuple[str, int], str]
"""See Recogniser.fields."""


def _vecs(order: int) -> Signature:
    return BEYOND[signatures.VECS]._replace(name=BEYOND[signatures.VECS].name + VEC_WORDS[order])


class Beyond(NamedTuple):
    """What names blocks that no row knows."""

    fields: Fields
    containers: int
    """CPLUSPLUS, RUST."""
    objects: rust.Objects
    has_buffers: bool = False
    """See Recogniser.has_buffers."""


class Way(NamedTuple):
    """From the elements of a container down to a block."""

    offsets: str
    """`+0x38 -> +0x10`."""
    elements: str
    """`elements of the list g_queue`."""


class Places:
    """The names of labels, by number from 1 on: rows gave the first ones theirs."""

    def __init__(self, rows: int, names: List[Optional[Signature]], roots: Names, reach: heap_graph.Reach, beyond: Beyond) -> None:
        self.names = names
        self._rows, self._roots, self._reach, self._beyond = rows, roots, reach, beyond
        self._matches: Mapping[int, Signed] = {}
        self._makers: Dict[int, Callable[[Signed], Optional[Signature]]] = {
            signatures.REFERRED: lambda match: self._referred(match.key >> 32, match.key & NO_SLOT),
            signatures.ROOTED: lambda match: self._rooted(match.key >> 32, match.key & NO_SLOT),
            signatures.MEMBERS: self._member,
            signatures.ROOTED_MEMBERS: self._member,
            signatures.COPIES: lambda match: SAME[match.key & 1],
            signatures.DYNS: lambda match: beyond.objects.name(match.key, False),
            signatures.SHARED_DYNS: lambda match: beyond.objects.name(match.key, True),
            signatures.STRING: lambda match: BUFFER if beyond.has_buffers else BEYOND[signatures.STRING],
            signatures.VECS: lambda match: _vecs(match.key),
        }

    def name_all(self, matches: Mapping[int, Signed]) -> None:
        """Appends the names of the labels that have none yet. `matches`: of these, and of those that have one."""
        self._matches = matches
        for label in range(len(self.names) + 1, max(matches, default=0) + 1):
            kind, match = self._kind(label), matches[label]
            make = self._makers.get(kind)
            is_shared = match.key == signatures.OTHERS and kind in SHARED
            self.names.append(None if is_shared else make(match) if make is not None else BEYOND.get(kind))

    def _kind(self, label: int) -> int:
        return self._matches[label].row - self._rows

    def _referred(self, above: int, slot: int) -> Optional[Signature]:
        """A name by the block that alone points there."""
        parent = self.names[above - 1]
        if parent is None:
            return None
        known = self._beyond.fields.get((parent.name, slot * self._reach.word_bytes))
        if known is not None:
            return Signature(known, parent.module, parent.sure)
        is_held = self._kind(above) == signatures.ROOTED
        if slot == signatures.ELEMENT:
            name = "%s %s" % ("in an array held by" if is_held else "element of", self._all_of(above))
        else:  # what a variable holds has no type, and the offset is not one in the variable
            way = self._way_below(above, slot)
            name = "%s of %s" % way if way is not None else "%s%s%s" % (parent.name, " -> " if is_held else "", self._offset(slot))
        return Signature(name, parent.module, PLACE)

    def _offset(self, slot: int) -> str:
        return "+0x%x" % (slot * self._reach.word_bytes)

    def _way(self, label: int) -> Optional[Way]:
        """To the block, if it lies below elements of a container."""
        key = self._matches[label].key
        is_below = self._kind(label) == signatures.REFERRED and key & NO_SLOT != signatures.ELEMENT
        return self._way_below(key >> 32, key & NO_SLOT) if is_below else None

    def _way_below(self, above: int, slot: int) -> Optional[Way]:
        if self._is_member(above):
            return Way(self._offset(slot), self._all_of(above))
        way = self._way(above)
        return None if way is None else way._replace(offsets="%s -> %s" % (way.offsets, self._offset(slot)))

    def _is_member(self, label: int) -> bool:
        """It is called an element of its container; another has a name by what holds that."""
        name = self.names[label - 1]
        return self._kind(label) in MEMBERS and name is not None and name.sure == PLACE

    def _is_element(self, label: int) -> bool:
        """The same, or an element of an array that is no variable's."""
        key = self._matches[label].key
        is_of_array = self._kind(label) == signatures.REFERRED and key & NO_SLOT == signatures.ELEMENT
        return self._is_member(label) or (is_of_array and self._kind(key >> 32) != signatures.ROOTED)

    def _all_of(self, label: int) -> str:
        """What elements of a container are called together."""
        name = self.names[label - 1]
        assert name is not None
        return name.name.replace("element", "elements", 1) if self._is_element(label) else name.name

    def _member(self, match: Signed) -> Signature:
        """`element of the list g_queue`: a name by the word that holds the container, or by the table that does."""
        above, slot, shape = match.key >> 32, match.key & signatures.MEMBER_SLOT, (match.key & NO_SLOT) >> signatures.MEMBER_SHAPE
        name, is_table = SHAPES.get(GRAPH_SHAPES[shape], GRAPH_SHAPES[shape]), slot == MEMBER_OF_ARRAY
        parent = self.names[above - 1] if match.row - self._rows == signatures.MEMBERS and above else None
        place, module = None, ""
        if match.row - self._rows == signatures.ROOTED_MEMBERS:
            place, module = self._called(above, slot)
        elif parent is not None and self._kind(above) == signatures.ROOTED:
            place, module = self._called(self._matches[above].key >> 32, self._matches[above].key & NO_SLOT)
            place += "" if is_table else " -> " + self._offset(slot)
        elif parent is not None and is_table:
            at = "of " if self._is_element(above) else "at " if self._way(above) is not None else ""
            place, module = at + self._all_of(above), parent.module
        elif parent is not None:
            below = self._referred(above, slot)
            if below is not None and below.sure != PLACE:
                return below
            if below is not None:
                place, module = ("at " if self._way_below(above, slot) is not None else "") + below.name, below.module
        if place is None:
            return Signature("element of a%s %s" % ("n" if name[0] == "a" else "", name), module, PLACE)
        return Signature("element of the %s %s" % (name, place), module, PLACE)

    def _called(self, number: int, slot: int) -> Tuple[str, str]:
        """A word of a root, and its module."""
        root = self._reach.regions.roots[number]
        if root.kind == regions.DATA and root.module is not None:
            return self._roots.at(root.module, root.start + slot * self._reach.word_bytes, is_short=True), root.module.shown_name
        return self._roots.of_root(root, NO_SLOT), root.module.shown_name if root.module is not None else ""

    def _rooted(self, number: int, slot: int) -> Signature:
        """A variable, or whose memory it is where variables have no names."""
        root = self._reach.regions.roots[number]
        if root.kind == regions.DATA and root.module is not None:
            variable = self._roots.variable(root.module, root.start + slot * self._reach.word_bytes)
            return Signature(variable.name if variable is not None else "data", root.module.shown_name, PLACE)
        return Signature(self._roots.of_root(root, NO_SLOT), "", PLACE)
