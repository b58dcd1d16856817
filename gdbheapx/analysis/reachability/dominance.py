"""Dominators of the graph, from globals and threads down to where the memory piles up."""

from typing import Dict, List, NamedTuple, Optional, Sequence, Tuple

from gdbheapx.analysis.reachability import regions
from gdbheapx.analysis.reachability.contained import LARGE, Contained
from gdbheapx.analysis.reachability.heap_graph import Reach
from gdbheapx.analysis.reachability.kin import Kin
from gdbheapx.analysis.reachability.names import Names, Path, Paths, PathStep
from gdbheapx.analysis.reachability.owners import (
    BLOCK,
    CONTAINER,
    ELEMENTS,
    GLOBAL,
    LOCAL,
    MAPPING,
    SHARED,
    THREAD,
    Accumulation,
    Division,
    HoldingBlock,
    Linked,
    Owned,
    Owners,
    Suspect,
    addresses_of,
    each,
)
from gdbheapx.kernel.blocks.graph import LEAKED, NO_NODE, NO_SLOT, RULE_HABIT, Container, Edge, Sum, Tree
from gdbheapx.model import Address
from gdbheapx.session import Session

SUSPECT_SHARE = 0.2
"""Of the heap: who keeps so much is a suspect (Eclipse MAT, Leak Suspects: threshold_percent 20)."""
DROP_RATIO = 0.7
"""Where the largest part of what a node keeps has less than this share of it, the memory piles up there (MAT: big_drop_ratio)."""
GAP_BYTES = 64
"""Pointers of an object without symbols that stand further apart belong to different variables; nearer ones may."""
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
"""Where all blocks are told by their owners: those that retain most; what others own is put together."""
MOST_KEEPING = 60
"""Owners that are looked at for how much several hold."""
MOST_HOLDERS, MOST_POINTERS = 16, 1000
"""Of a suspect that several hold: told by name, and pointers to it that are looked at."""
KINDS = {regions.DATA: GLOBAL, regions.THREAD_LOCAL: LOCAL, regions.STACK: THREAD, regions.REGISTERS: THREAD}
NOWHERE = Path("", ())


class Part(NamedTuple):
    """A root, or one variable of it."""

    root: regions.Root
    slot: int
    """Its first pointer."""


class Tallied:
    """Dominators of one graph, whose roots are split into variables."""

    def __init__(self, reach: Reach, names: Names, paths: Optional[Paths] = None) -> None:
        self.reach, self.names, self.graph, self.paths = reach, names, reach.graph, paths
        self._sums = self.graph.mark(reach.roots_from)
        self.parts = self._split()
        self._named = frozenset(paths.starts() if paths is not None else ())
        self.has_starts = bool(self._named)
        """Runtimes give names, and say which words own: else only what containers tell has paths."""
        if paths is not None:
            paths.split([part.root for part in self.parts])
        strong = sum(part.root.kind in (regions.DATA, regions.THREAD_LOCAL) for part in self.parts)
        self.strong = reach.roots_from, reach.roots_from + strong
        self.weak = reach.roots_from + strong, reach.roots_from + len(self.parts)
        self._locals_from = reach.roots_from + sum(part.root.kind == regions.DATA for part in self.parts)
        self._tree: Optional[Tree] = None
        self._contained: Optional[Contained] = None
        self.used = Sum(sum(part.blocks for part in self._sums), sum(part.bytes for part in self._sums))
        self.leaked = self._sums[LEAKED]

    @property
    def tree(self) -> Tree:
        """Who owns what; made when it is asked for, since it takes most of the time and room."""
        if self._tree is None:
            self._tree = self.graph.dominators(self.reach.roots_from, self.weak, locals_from=self._locals_from, containers=True)
        return self._tree

    @property
    def reach_of_parts(self) -> Reach:
        """The graph as it is now: its roots are variables."""
        if self.reach.kept is not None:
            return self.reach
        return self.reach._replace(regions=self.reach.regions._replace(roots=[part.root for part in self.parts]))

    @property
    def contained(self) -> Contained:
        """The tree's containers."""
        if self._contained is None:
            self._contained = Contained(self)
        return self._contained

    def root(self, node: int) -> Optional[Part]:
        """The root, or one variable of it; None of what lies in memory, and of a container."""
        place = node - self.reach.roots_from
        return self.parts[place] if 0 <= place < len(self.parts) else None

    def is_data(self, node: int) -> bool:
        """It is a global variable."""
        part = self.root(node)
        return part is not None and part.root.kind == regions.DATA

    def is_container(self, node: int) -> bool:
        """Its blocks are nodes of their own."""
        return node >= self.reach.roots_from + len(self.parts)

    def _split(self) -> List[Part]:
        """Makes one root of each variable that points somewhere."""
        if self.reach.kept is not None:
            return [Part(root, slot) for root, slot in zip(self.reach.regions.roots, self.reach.kept.slots)]
        parts: List[Part] = []
        places: List[Tuple[int, int]] = []
        kin = Kin(self.reach)
        for number, root in enumerate(self.reach.regions.roots):
            parts.append(Part(root, NO_SLOT))
            if root.kind != regions.DATA or root.module is None:
                continue
            first = True
            for slot in self._starts(root, kin):
                if first:  # the root itself begins with its first variable
                    parts[-1], first = Part(root, slot), False
                else:
                    places.append((self.reach.roots_from + number, slot))
                    parts.append(Part(root, slot))
        self.graph.split(places)
        return parts

    def _starts(self, root: regions.Root, kin: Kin) -> List[int]:
        """Slots of the first pointer of each variable."""
        word, end, slots = self.reach.word_bytes, 0, []
        unnamed: List[Edge] = []
        for edge in self.graph.edges(self.reach.roots_from + self.reach.regions.roots.index(root)):
            address = root.start + edge.slot * word
            if address < end:
                continue
            assert root.module is not None
            variable = self.names.variable(root.module, address)
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
        """What sort of owner it is."""
        part = self.root(node)
        if part is not None:
            return KINDS[part.root.kind]
        if self.is_container(node):
            return SHARED if self.tree.owners[node] == NO_NODE else CONTAINER
        return MAPPING if self.reach.mapping(node) is not None else BLOCK

    def path(self, node: int) -> Optional[Path]:
        """How the program itself gets there; None where nothing gives it a name."""
        return self.paths.of(node) if self.paths is not None and not self.is_container(node) else None

    def is_start(self, node: int) -> bool:
        """It has a name by itself."""
        return node in self._named

    def is_variable(self, node: int) -> bool:
        """It has a name by itself, and is no module, whose variables have such names."""
        path = self.path(node) if self.is_start(node) else None
        return path is not None and not path.is_module

    def name(self, node: int) -> str:
        """What it is called."""
        container = self.tree.container(node) if self.is_container(node) else None
        if container is not None:
            return self.contained.name(container)
        element = self.contained.element(node) if not self.has_name(node) else None
        return element if element is not None else self.plain_name(node)

    def has_name(self, node: int) -> bool:
        """It is called by itself, not by what holds it."""
        return node >= self.reach.numbers.blocks or self.path(node) is not None

    def plain_name(self, node: int) -> str:
        """The same of what is no container; a block without a name is called by its address."""
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
        """What a word of a root is called. `is_whole`: the variable, whichever of its words it is; `is_short`: without its module."""
        root = self.parts[node - self.reach.roots_from].root
        if root.kind != regions.DATA or root.module is None or slot == NO_SLOT:
            return self.names.of_root(root, NO_SLOT if is_whole else slot)
        address = root.start + slot * self.reach.word_bytes
        variable = self.names.variable(root.module, address) if is_whole else None
        return self.names.at(root.module, variable.start if variable is not None else address, is_short)

    def offset(self, node: int, slot: int) -> int:
        """Of a word in its block or variable; of a stack in all of it."""
        part = self.root(node)
        if part is None or not self.is_data(node) or part.root.module is None:
            return slot * self.reach.word_bytes
        address = part.root.start + slot * self.reach.word_bytes
        variable = self.names.variable(part.root.module, address)
        start = variable.start if variable is not None else part.root.start + part.slot * self.reach.word_bytes
        return max(0, address - start)

    def address(self, node: int) -> Optional[Address]:
        """Where it is."""
        part, container = self.root(node), self.tree.container(node) if self.is_container(node) else None
        if container is not None:
            return self.contained.first(container)
        if part is not None:
            start = part.root.start + (part.slot * self.reach.word_bytes if part.slot != NO_SLOT else 0)
            return Address(start) if part.root.start else None
        mapping = self.reach.mapping(node)
        return Address(self.graph.blocks([node])[0][0] if mapping is None else mapping.start)

    def owned(self, node: int, kind: Optional[str] = None, reached: bool = False) -> Owned:
        """One row."""
        bound = self.graph.reached(node, self.tree if self.has_starts or self.is_container(node) else None) if reached else None
        retained, path = self.tree.retained_bytes[node], self.path(node)
        return Owned(
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
            **self.contained.told(node)._asdict(),
            has_names=self.contained.has_names(node),
        )

    def is_told(self, node: int) -> bool:
        """A runtime says what the block is, or has a path for it."""
        return self.has_starts and self.paths is not None and (self.paths.contents(node) is not None or self.path(node) is not None)

    def contents(self, node: int) -> Optional[str]:
        """What a runtime says that the block is."""
        return self.paths.contents(node) if self.paths is not None and not self.is_container(node) else None

    def contents_of(self, steps: Optional[Sequence[PathStep]]) -> Optional[str]:
        """What the object is that a path leads to; None where it is no container."""
        place = self.graph.find(steps[-1].address) if steps and steps[-1].address else None
        return self.paths.contents(place[0]) if self.paths is not None and place is not None else None

    def started_bytes(self, tops: Sequence[Tuple[int, str]]) -> int:
        """What is retained by what has a name by itself, and by those of `tops` that are in a module's dict, which functions hold, too."""
        found = sum(self.tree.retained_bytes[node] for node in self._named)
        for node, kind in tops:
            if kind != SHARED and node < self.reach.roots_from:
                above = node
                while self.tree.owners[above] != NO_NODE:
                    above = self.tree.owners[above]
                found += 0 if above in self._named else self.tree.retained_bytes[node]
        return found

    def share(self, retained: int) -> float:
        """Of all that is in use."""
        return round(100.0 * retained / self.used.bytes, 1) if self.used.bytes else 0.0

    def children(self, node: int, depth: int, limit: int) -> List[Owned]:
        """What it owns, `depth` levels down."""
        rows, nodes = self.parts_of(node, limit)
        return rows + [
            self.owned(child)._replace(children=self.children(child, depth - 1, limit) if depth > 1 else ()) for child in nodes
        ]

    def parts_of(self, node: int, limit: int) -> Tuple[List[Owned], List[int]]:
        """What it owns directly: elements of a container that are alike as one row, then what is told by itself, most first."""
        container = self.contained.of(node)
        return ([], self.below(node, limit)) if container is None else self.contained.below(container, limit)

    def below(self, node: int, limit: int) -> List[int]:
        """What it owns directly, most first. What the program has no name of its own for, such as the keys of a dict, is passed."""
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
        """It has no name of its own, or what it owns has a shorter one: `shop._cache` lies in `shop.__dict__`."""
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
        """What nobody owns, with its kind, most first. What a module owns comes in its place, and what its dict does: every function of
        the module has that, too."""
        found: List[Tuple[int, str]] = []
        for node in self.graph.children(self.tree, NO_NODE, 2 * limit)[0]:
            is_start, is_small = self.is_start(node), self.tree.retained_bytes[node] < LEAST_SHARED * self.used.bytes
            path = self.path(node) if self.has_starts and (is_start or not is_small) else None
            kind = THREAD if path is not None and path.is_local else GLOBAL
            if node >= self.reach.roots_from:
                found.append((node, self.kind(node)))
            elif path is not None and not is_small and (path.is_module if is_start else self._is_passed(node, NOWHERE)):
                found += [(child, kind) for child in self.below(node, limit) or [node]]
            else:
                found.append((node, kind if is_start else SHARED))
        return sorted(found, key=lambda top: -self.tree.retained_bytes[top[0]])[:limit]

    def suspect(self, node: int, kind: str) -> Suspect:
        """Goes down from an owner to where its memory piles up, or divides; what several hold is told as it is."""
        retained = self.tree.retained_bytes
        at, steps = (node, 0) if self.is_container(node) else self._piled_up(node)
        largest, count = self.graph.children(self.tree, at, MOST_PARTS)
        container = self.contained.of(at)
        least = SUSPECT_SHARE * (self.used.bytes if container is None else retained[at])
        least = max(least, LARGE * retained[at] // container.elements if container is not None else 0)
        parts = [block for block in largest if retained[block] >= least]
        size = self.graph.blocks([at])[0][1] if at < self.reach.numbers.blocks else 0
        point = Accumulation(
            address=self.address(at),
            signature=self.contents(at),
            name=self.contained.way(at) if at < self.reach.numbers.blocks else self.name(at),
            size_bytes=size,
            children=count,
            retained_bytes=retained[at],
            steps=steps,
            parts=[self._part(part, container) for part in parts],
            **self.contained.told(at)._asdict(),
            is_below=container is not None and self.contained.is_below(container, node),
        )
        what = self.contents(node)
        holders = self._holders(node) if kind == SHARED and not self.is_container(node) else {}
        names = [self.name(holder) for holder in holders]
        holding = [
            HoldingBlock(name, self.address(at), at == holder)
            for name, (holder, first) in zip(names, holders.items())
            for at in sorted({first, holder}, key=lambda at: at == holder)
            if at < self.reach.numbers.blocks
        ]
        return Suspect(self.name(node), kind, retained[node], self.share(retained[node]), point, what, holders=names, holding=holding)

    def _piled_up(self, node: int, is_container_enough: bool = False) -> Tuple[int, int]:
        """Where what a node keeps divides, and how many steps that is below it."""
        at, steps, retained = node, 0, self.tree.retained_bytes
        largest = self.graph.children(self.tree, at, 1)[0]
        while largest and retained[largest[0]] >= DROP_RATIO * retained[at] and not (is_container_enough and self.is_container(at)):
            at, steps = largest[0], steps + 1
            largest = self.graph.children(self.tree, at, 1)[0]
        return at, steps

    def _part(self, node: int, container: Optional[Container]) -> Division:
        """One part of what another keeps: a container is told in place of the block that has little else, and a block without a name is
        called an element by its address."""
        retained, name = self.tree.retained_bytes[node], self.name(node)
        one = self.tree.container(self._piled_up(node, True)[0])
        linked = None
        if one is not None and self.tree.retained_bytes[one.node] >= DROP_RATIO * retained:
            name, linked = self.contained.name(one), Linked(one.shape, one.elements, one.element_bytes or None, one.own_bytes)
        elif container is not None and not self.has_name(node) and name == self.plain_name(node):
            name = "element 0x%x (%d bytes)" % self.graph.blocks([node])[0]
        return Division(name, self.address(node), retained, self.share(retained), container=linked)

    def _holders(self, node: int) -> Dict[int, int]:
        """Who holds it, most first, each with what has the first of the pointers."""
        found: Dict[int, int] = {}
        for referrer in self.graph.referrers(node, MOST_POINTERS):
            at = referrer.node
            while at != node and self.tree.owners[at] != NO_NODE:
                at = self.tree.owners[at]
            if at != node and referrer.rule <= RULE_HABIT and not self.weak[0] <= at < self.weak[1]:
                found.setdefault(at, referrer.node)
        return {at: found[at] for at in sorted(found, key=lambda holder: -self.tree.retained_bytes[holder])[:MOST_HOLDERS]}


def blocks(tallied: Tallied, owners: Owners) -> List[Tuple[int, int]]:
    """Blocks in the answer, as (address, usable bytes): those that own, and those below which the memory of suspects piles up."""
    points = {suspect.accumulation.address for suspect in owners.suspects if suspect.accumulation.size_bytes}
    points.update(holder.address for suspect in owners.suspects for holder in suspect.holding)
    points.update(part.address for suspect in owners.suspects for part in suspect.accumulation.parts)
    addresses = sorted({point for point in (*points, *addresses_of(owners.owners), *addresses_of(owners.together)) if point is not None})
    places = [tallied.graph.find(address) for address in addresses]
    nodes = [place[0] for place in places if place is not None and not place[1] and place[0] < tallied.reach.numbers.blocks]
    return list(tallied.graph.blocks(nodes))


def places(tallied: Tallied, owners: Owners) -> Dict[int, Tuple[int, int]]:
    """By the addresses in the answer where each variable begins and ends, and each block that is none of a runtime's objects."""
    wanted = {suspect.accumulation.address for suspect in owners.suspects}
    wanted.update(row.address for row in each([*owners.owners, *owners.together]) if row.kind not in (CONTAINER, ELEMENTS))
    found: Dict[int, Tuple[int, int]] = {}
    for number, part in enumerate(tallied.parts):
        address = tallied.address(tallied.reach.roots_from + number)
        if address in wanted and address and part.root.kind == regions.DATA and part.root.module is not None:
            variable = tallied.names.variable(part.root.module, address)
            following = [one for one in tallied.parts[number + 1 : number + 2] if one.root is part.root]
            end = part.root.start + following[0].slot * tallied.reach.word_bytes if following else part.root.end
            before = max(part.root.start, address - HEAD_WORDS * tallied.reach.word_bytes)
            found[address] = (variable.start, variable.end) if variable is not None else (before, end)
    for address in wanted - set(found):
        place = tallied.graph.find(address) if address else None
        if address and place is not None and place[0] < tallied.reach.numbers.blocks and not tallied.is_told(place[0]):
            start, size = tallied.graph.blocks([place[0]])[0]
            found[address] = start, start + size
    return found


TALLIED = "tallied"
"""What commands share while a snapshot is taken: it splits the roots of the graph, which can be done once."""


def tally(session: Session, reach: Reach, names: Names, paths: Optional[Paths] = None) -> Tallied:
    """The dominators of this look."""
    shared: Optional[Tallied] = session.shared(TALLIED)
    if shared is not None:
        return shared
    session.budget.progress.stage = "finding owners"
    return session.share(TALLIED, Tallied(reach, names, paths))
