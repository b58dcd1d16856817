"""Paths through the containers of libstdc++: `g_sessions["u:1234"][3] -> +0x18`, without debug information.

A way enters a container by one of its own words (containers.py), goes along its table and nodes, which have no name, and leaves it from an
element: that is called by its key (cplusplus_keys.py) or its place (cplusplus_keys.py). Where neither is proven it is `[...]`, or the
bytes from the first element on: `[+0x88]`.
"""

import functools
import struct
from array import array
from typing import List, NamedTuple, Optional, Sequence, Tuple

from gdbheapx.analysis.census.containers import ContainerFinder
from gdbheapx.analysis.census.cplusplus_keys import HASHED_AT, ORDERED_AT, STRING_BYTES, TREE_AT, CppElements, CppKeys
from gdbheapx.analysis.census.world import World
from gdbheapx.analysis.naming.namer import FIELD, INDEX, KEY, Hop, Namer, PathMove, PathStep, Start
from gdbheapx.analysis.reachability.heap_graph import Reach, find_module_at
from gdbheapx.analysis.reachability.owners import HeldContainer
from gdbheapx.inferior.base import TypeLayout
from gdbheapx.model import TargetAddress
from gdbheapx.session import Session

UNORDERED, ORDERED, LIST, DEQUE, VECTOR = "unordered map or set", "map or set", "list", "deque", "vector"
BYTES = {UNORDERED: 56, ORDERED: 40, LIST: 24, DEQUE: 80, VECTOR: 24}
"""Of the heads as libstdc++ has them: libc++'s are not named."""
WAYS = {UNORDERED: (0, 2), ORDERED: (1, 2, 3), LIST: (0, 1), DEQUE: (0, 2, 3, 5, 6, 7, 9), VECTOR: (0,)}
"""Words of heads that lead to their blocks: an end may be where another block begins."""
MOST_NAMES = 32
"""Steps of a path: more are a list of the program's own that was followed, and no name."""
MOST_KNOWN = 1 << 14
PAGE_BYTES, MOST_PAGES = 1024, 1 << 13
MOST_BYTES, SLACK_BYTES = 1 << 62, 24
"""Of a variable; and at the end of a block what a program may not have asked for."""
MEMBER, POINTED, ELEMENT, UNKNOWN = ".+0x%x", " -> +0x%x", "[+0x%x]", "[...]"
NODES = {UNORDERED: (HASHED_AT, (0,)), ORDERED: (ORDERED_AT, (8, 16, 24)), LIST: (16, (0, 8))}
"""Where the element begins in a node, and pointers to other nodes."""


class MemberPosition(NamedTuple):
    """Variable, container, element or object that a path has come to."""

    base: int
    """Offsets count from here."""
    low: int
    """Containers begin here or behind."""
    form: str = MEMBER
    """Of an offset."""
    container: Optional[HeldContainer] = None
    """In whose own memory the way is."""
    is_table: bool = False
    """In the table of an unordered map or a deque, which leads to the others."""
    block: int = 0
    """Of a node or an object, which has less than its block: what leads on may be left over from who had the memory before."""
    beside: Sequence[int] = ()
    """Other nodes of the same container."""
    layout: Optional[TypeLayout] = None
    """Of what begins at `base`, by debug information."""
    step_count: int = 1
    """Of the path so far."""
    is_named: bool = False
    """The path led through a container."""

    def member(self, away: int) -> Tuple[str, Optional[TypeLayout]]:
        """Return name and type of the member at an offset from `base`; an empty name for what begins there itself."""
        inner = self.layout.member(away) if self.layout is not None and self.form != ELEMENT else None
        name, layout = inner if inner is not None else ("", None)
        if not name:
            return self.form % away if away or self.form == ELEMENT else "", layout
        return name if self.form == MEMBER else "->" + name[1:], layout


Moved = Optional[Tuple[MemberPosition, Sequence[PathStep]]]


class Paged(World):
    """A world that is asked for a few words position and there, most of them near each other."""

    def __init__(self, session: Session) -> None:
        super().__init__(session)
        self._page = functools.lru_cache(MOST_PAGES)(self._read_page)

    def _read_page(self, number: int) -> bytes:
        return super().read(number * PAGE_BYTES, PAGE_BYTES)

    def read(self, address: int, size_bytes: int) -> bytes:
        """See World."""
        number, away = divmod(address, PAGE_BYTES)
        if away + size_bytes > PAGE_BYTES:
            return super().read(address, size_bytes)
        return self._page(number)[away : away + size_bytes]

    def words(self, address: int, count: int) -> Optional[Tuple[int, ...]]:
        """See World."""
        data = self.read(address, 8 * count)
        return tuple(self.target.bare(struct.unpack("<%dQ" % count, data))) if len(data) == 8 * count else None


class ContainerNamer(Namer):
    """Namer of C++ containers, in 64-bit little-endian targets."""

    def __init__(self, session: Session, reach: Reach) -> None:
        world = Paged(session)
        containers = ContainerFinder(world, reach)
        self._world, self._graph, self._containers, self._keys = world, reach.graph, containers, CppKeys(world, containers)
        self._holders: Optional[array[int]] = None
        self._elements = CppElements(world, containers, self._keys)
        self._around = functools.lru_cache(MOST_KNOWN)(containers.around)
        self._layout = functools.lru_cache(MOST_KNOWN)(self._layout_of)

    def find_begin(self, place: int, start: int) -> Optional[int]:
        found = self._find_whole_container(place, start)
        return None if found is None else _find_container_begin(found)

    def begin_path(self, start: Start) -> PathMove:
        """See Namer."""
        return PathMove(MemberPosition(start.address, start.address, layout=self._layout(start.address)), start.steps)

    def follow_pointer(self, position: MemberPosition, hop: Hop, below: Hop) -> Optional[PathMove]:
        """Follow a pointer; None also if nothing proves that it is no leftover of the memory's last use. See Namer."""
        if position.is_table and position.container is not None and _find_container_kind(position.container) == UNORDERED:
            return PathMove(position._replace(is_table=False))
        offset = hop.find_offset()
        moved = self._move_into_block(position, hop.address, hop.address + offset, below.address) if offset is not None else None
        if moved is None:
            return None
        reached, steps = moved
        step_count = position.step_count + len(steps)
        if step_count > MOST_NAMES:
            return None
        is_named = position.is_named or reached.container is not None
        end_address = below.address if reached.form == POINTED else None
        return PathMove(reached._replace(step_count=step_count, is_named=is_named), steps, end_address=end_address)

    def finish_path(self, position: MemberPosition, steps: List[PathStep], block: int) -> List[PathStep]:
        """Return the path; empty without a container on the way, since that is a chain of offsets. See Namer."""
        if len(steps) == 1 and position.form == POINTED and position.layout is not None:
            return [steps[0]._replace(name="*" + steps[0].name, address=TargetAddress(block))]
        if not position.is_named:
            return []
        container = position.container
        is_node = container is not None and _find_container_kind(container) in NODES and not position.is_table
        return [*steps, *([self._step_to_entry(container, block)[0]] if container is not None and is_node else [])]

    def _layout_of(self, variable: int) -> Optional[TypeLayout]:
        module = find_module_at(self._world.target, variable)
        return self._world.target.layout(module, variable) if module is not None else None

    def _find_whole_container(self, place: int, low: int) -> Optional[HeldContainer]:
        found = self._around(place, low)
        if found is None or BYTES.get(_find_container_kind(found)) != found.size_bytes:
            return None
        return found if self._count_bytes_left(found.address) >= found.size_bytes else None

    def _count_bytes_left(self, address: int) -> int:
        """Return the bytes from the address to the end of the block; of a variable, all."""
        inside = self._containers.inside(address)
        return MOST_BYTES if inside is None else inside[0] + inside[1] - address

    def _move_into_block(self, position: MemberPosition, block: int, place: int, below: int) -> Moved:
        if position.container is None:
            return self._follow_member(position, place, below)
        inner = self._move_inside(position, position.container, block, place)
        if inner is None or inner[0].container is not None:
            return inner
        left = self._follow_member(inner[0], place, below)
        return None if left is None else (left[0], [*inner[1], *left[1]])

    def _follow_member(self, position: MemberPosition, place: int, below: int) -> Moved:
        found = self._find_whole_container(place, position.low)
        if found is None:
            away = place - position.base
            if not self._is_proven(position, place, below):
                return None
            name, layout = position.member(away)
            name = name or ("" if position.form == MEMBER else position.form % away)
            steps = [PathStep(FIELD, name, TargetAddress(below))] if name else []
            target = layout.target() if layout is not None else None
            return (MemberPosition(below, below, POINTED, block=below, layout=target), steps) if away >= 0 else None
        begin = _find_container_begin(found)
        name, layout = position.member(begin - position.base)
        steps = [PathStep(FIELD, name, TargetAddress(begin))] if name else []
        word, kind = (place - found.address) // 8, _find_container_kind(found)
        is_table = (kind == UNORDERED and word == 0) or (kind == DEQUE and word in (0, 5, 9))
        return (MemberPosition(begin, begin, MEMBER, found, is_table, layout=layout), steps) if word in WAYS[kind] else None

    def _is_proven(self, position: MemberPosition, place: int, below: int) -> bool:
        """Return True if the word is no leftover: an object of a class has it, or a string, no other word leads there, or other nodes
        have pointers there.
        """
        left = self._count_bytes_left(place)
        if self._is_end(place, below) or (position.block and self._elements.is_comparison(place)):
            return False
        if not position.block or (left >= STRING_BYTES and self._keys.string(place) is not None):
            return True
        if left > SLACK_BYTES and position.form == POINTED and self._elements.vtable(position.block):
            return True
        if self._holders is None:
            self._holders = self._graph.only_holders()
        block, held = self._graph.find(position.block), self._graph.find(below)
        if block is not None and held is not None and self._holders[held[0]] == block[0]:
            return True
        words = [self._world.words(node + place - position.block, 1) or (1,) for node in position.beside]
        pointers = [word for (word,) in words if word and self._containers.size(word) is not None]
        return 2 * len(pointers) > len(words) and all(not word or word in pointers for (word,) in words)

    def _is_end(self, place: int, below: int) -> bool:
        """Return True for the end of a vector without elements, or of its room: another block may begin there."""
        words = self._world.words(place - 16, 4) or (0,) * 4
        begin = words[0] if words[0] <= words[1] <= below else words[1] if words[2] == words[3] else 0
        usable = self._containers.size(begin) if begin else None
        return usable is not None and begin + usable == below

    def _move_inside(self, position: MemberPosition, container: HeldContainer, block: int, place: int) -> Moved:
        kind = _find_container_kind(container)
        if position.is_table:
            return (position._replace(is_table=False), []) if self._is_used(container, place) else None
        if kind in (VECTOR, DEQUE):
            return self._with_element(position, (self._of_vector if kind == VECTOR else self._of_deque)(container, block, place))
        element_at, links = NODES[kind]
        if place - block in links:
            return position, []
        step, end = self._step_to_entry(container, block)
        if place - block < element_at:
            return None
        if end is not None and place < end:  # the key's own characters
            return MemberPosition(place, place), [step._replace(name=".<key %s>" % step.name[1:-1])]
        at = end if end is not None else block + element_at
        layout = position.layout.element() if position.layout is not None and (end is not None or kind == LIST) else None
        if kind == LIST and place == at:
            return MemberPosition(at, at, layout=layout), [step]
        return MemberPosition(at, at, block=block, beside=self._sample_nodes(container), layout=layout), [step]

    @staticmethod
    def _with_element(position: MemberPosition, moved: Moved) -> Moved:
        if moved is None or position.layout is None or not moved[1]:
            return moved
        return moved[0]._replace(layout=position.layout.element()), moved[1]

    def _is_used(self, container: HeldContainer, place: int) -> bool:
        words = self._world.words(container.address, 10)
        return words is not None and words[5] <= place <= words[9]

    def _sample_nodes(self, container: HeldContainer) -> Sequence[int]:
        return (
            ()
            if _find_container_kind(container) == LIST
            else self._keys.sample(container.address, _find_container_kind(container) == ORDERED)
        )

    def _step_to_entry(self, container: HeldContainer, node: int) -> Tuple[PathStep, Optional[int]]:
        """Return the step to a node's element, and the begin of the value after the key, or None if that is not known."""
        if _find_container_kind(container) == LIST:
            place = self._elements.place_in_list(container.address, node)
            return PathStep(INDEX, UNKNOWN if place is None else "[%d]" % place, TargetAddress(node)), None
        read = self._keys.hashed if _find_container_kind(container) == UNORDERED else self._keys.ordered
        key = read(container.address, node)
        return PathStep(KEY, UNKNOWN if key is None else "[%s]" % key.text, TargetAddress(node)), None if key is None else key.end

    def _of_vector(self, container: HeldContainer, block: int, place: int) -> Moved:
        words = self._world.words(container.address, 2)
        if words is None or not words[0] <= place < words[1]:
            return None
        return self._move_to_element(words[0], place - words[0], place, self._elements.stride(*words))

    def _of_deque(self, container: HeldContainer, block: int, place: int) -> Moved:
        words = self._world.words(container.address, 10)
        if words is None:
            return None
        current, first, last, node, end, end_first, end_node = (words[number] for number in (2, 3, 4, 5, 6, 7, 9))
        number = self._elements.place_of_buffer(node, end_node, block)
        is_used = number is not None and (number or place >= current) and (block != end_first or place < end)
        if not is_used or number is None:
            return None
        stride = self._elements.stride(current, end if end_first == first else last, last - first)
        return self._move_to_element(block, number * (last - first) + place - block - (current - first), place, stride)

    def _move_to_element(self, first: int, away: int, place: int, stride: Optional[int]) -> Moved:
        if stride is None:
            return MemberPosition(place - away, first, ELEMENT), []
        begin = place - away % stride
        return MemberPosition(begin, begin), [PathStep(INDEX, "[%d]" % (away // stride), TargetAddress(begin))]


def _find_container_kind(container: HeldContainer) -> str:
    return container.kind.partition(" of ")[0]


def _find_container_begin(container: HeldContainer) -> int:
    return container.address - (TREE_AT if _find_container_kind(container) == ORDERED else 0)
