"""Who keeps the used memory alive: dominators of the graph, from globals and threads down to where the memory piles up."""

from typing import Annotated, Dict, Iterator, List, Mapping, NamedTuple, Optional, Sequence, Set, Tuple

from gdbheapx.analysis.reachability import regions
from gdbheapx.analysis.reachability.heap_graph import Reach
from gdbheapx.analysis.reachability.held import Container
from gdbheapx.analysis.reachability.names import Names, Path, Paths, PathStep
from gdbheapx.columns import BYTES, IF_ANY, TEXT, Column
from gdbheapx.kernel.blocks.graph import LEAKED, NO_NODE, NO_SLOT, RULE_HABIT, Joint, Others, Sum, Tree
from gdbheapx.model import Address
from gdbheapx.session import Session

SUSPECT_SHARE = 0.2
"""Of the heap: who keeps so much is a suspect (Eclipse MAT, Leak Suspects: threshold_percent 20)."""
MOST_SUSPECTS = 5
"""There can be no more of a fifth each."""
DROP_RATIO = 0.7
"""Where the largest part of what a node keeps has less than this share of it, the memory piles up there (MAT: big_drop_ratio)."""
GAP_BYTES = 64
"""Pointers of an object without symbols that stand further apart belong to different variables."""
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
MOST_VOTES, MOST_VOTED = 1000, 3
"""Blocks that several owners hold, by which those variables are chosen of which it is counted how much they lead to."""
MOST_JOINT, MOST_TOGETHER, LEAST_TOGETHER = 24, 5, 0.05
"""Blocks with most pointers of which it is counted how much they lead to; how many of them are told, and from which part of the heap on."""
MOST_HOLDERS, MOST_POINTERS = 16, 1000
"""Of a suspect that several hold: told by name, and pointers to it that are looked at."""
MOST_REACHED = 20
"""Owners for which the upper bound is counted: each takes a pass over the graph."""
GLOBAL, THREAD, LOCAL, MAPPING, BLOCK, SHARED = "global", "thread", "thread-local", "mapping", "block", "shared"
KINDS = {regions.DATA: GLOBAL, regions.THREAD_LOCAL: LOCAL, regions.STACK: THREAD, regions.REGISTERS: THREAD}


NOWHERE = Path("", ())


class Part(NamedTuple):
    """A root, or one variable of it."""

    root: regions.Root
    slot: int
    """Its first pointer."""


class Owned(NamedTuple):
    """One owner, or something that it owns."""

    owner: Annotated[str, Column("owner", TEXT)]
    kind: Annotated[str, Column("kind", TEXT, goes=2)]
    """`global`, `thread`, `thread-local`, `mapping`, `block`, or `shared` for a block that several owners hold."""
    address: Optional[Address]
    """Of a block, mapping or variable."""
    retained_bytes: Annotated[int, Column("retained", BYTES)]
    """What would be lost with it: the lower bound."""
    share_percent: Annotated[float, Column("share", "percent", goes=1)]
    retained_blocks: Annotated[int, Column("blocks", goes=3)]
    reached_bytes: Annotated[Optional[int], Column("reached", BYTES, goes=4)]
    """What it leads to, others too: the upper bound; None where it was not counted."""
    reached_blocks: Optional[int]
    children: Sequence["Owned"] = ()
    signature: Annotated[Optional[str], Column("what", TEXT, shown=IF_ANY)] = None
    """What the block is; None where nothing knows it, where it is no block, and of a process, whose blocks are not read once more."""
    path: Optional[str] = None
    """How the program itself gets there, as its language writes it; None where nothing gives it a name."""
    path_steps: Optional[Sequence[PathStep]] = None
    containers: Sequence[Container] = ()
    """Those that lie in the variable or block, what has most elements first; none where memory could not be read any more."""


class Division(NamedTuple):
    """A large part of what a suspect keeps."""

    name: str
    address: Optional[Address]
    retained_bytes: int
    share_percent: float


class Accumulation(NamedTuple):
    """Where the memory of a suspect piles up."""

    address: Optional[Address]
    signature: Optional[str]
    name: str
    size_bytes: int
    children: int
    """Blocks that it owns directly."""
    retained_bytes: int
    steps: int
    """From the owner to here."""
    parts: Sequence[Division] = ()
    """Those directly below that keep a fifth of the heap or more themselves."""
    containers: Sequence[Container] = ()


class Suspect(NamedTuple):
    """Who keeps a fifth of the heap or more."""

    owner: str
    kind: str
    retained_bytes: int
    share_percent: float
    accumulation: Accumulation
    signature: Optional[str] = None
    """What the owner is, if it is a block."""
    containers: Sequence[Container] = ()
    others: Optional[Others] = None
    """What else leads to what it keeps, and speaks against it."""
    holders: Sequence[str] = ()
    """If several hold it, some of them: in whose memory pointers to it stand, who retains most first."""


class Owners(NamedTuple):
    """The answer."""

    suspects: Sequence[Suspect]
    owners: Sequence[Owned]
    """Those that retain most first."""
    used: Sum
    leaked: Sum
    shared_bytes: int
    """Held by several owners: retained by none of them."""
    leaked_is_upper_bound: bool = False
    """Something that may hold blocks was not read."""
    together: Sequence[Owned] = ()
    """Where several owners hold a fifth of the heap or more, who leads to it (`reached_bytes`), most first. Of a runtime whose objects have
    no names its heap, and what its words lead to at once. Where runtimes give names, blocks with many pointers, such as dicts and lists,
    and what each leads to without the others and nothing else does; else variables that lead to a fifth or more, those first from which the
    shortest ways lead to most."""


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
        self._tree: Optional[Tree] = None
        self.used = Sum(sum(part.blocks for part in self._sums), sum(part.bytes for part in self._sums))
        self.leaked = self._sums[LEAKED]

    @property
    def tree(self) -> Tree:
        """Who owns what; made when it is asked for, since it takes most of the time and room."""
        if self._tree is None:
            self._tree = self.graph.dominators(self.reach.roots_from, self.weak)
        return self._tree

    def _split(self) -> List[Part]:
        """Makes one root of each variable that points somewhere."""
        if self.reach.kept is not None:
            return [Part(root, slot) for root, slot in zip(self.reach.regions.roots, self.reach.kept.slots)]
        parts: List[Part] = []
        places: List[Tuple[int, int]] = []
        for number, root in enumerate(self.reach.regions.roots):
            parts.append(Part(root, NO_SLOT))
            if root.kind != regions.DATA or root.module is None:
                continue
            first = True
            for slot in self._starts(root):
                if first:  # the root itself begins with its first variable
                    parts[-1], first = Part(root, slot), False
                else:
                    places.append((self.reach.roots_from + number, slot))
                    parts.append(Part(root, slot))
        self.graph.split(places)
        return parts

    def _starts(self, root: regions.Root) -> List[int]:
        """Slots of the first pointer of each variable."""
        word, slots, end, last = self.reach.word_bytes, [], 0, None
        for edge in self.graph.edges(self.reach.roots_from + self.reach.regions.roots.index(root)):
            address = root.start + edge.slot * word
            if address < end:
                continue
            assert root.module is not None
            variable = self.names.variable(root.module, address)
            if variable is None and last is not None and address - last <= GAP_BYTES:
                last = address
                continue
            slots.append(edge.slot)
            end = variable.end if variable is not None else 0
            last = address if variable is None else None
        return slots

    def kind(self, node: int) -> str:
        """What sort of owner it is."""
        if node >= self.reach.roots_from:
            return KINDS[self.parts[node - self.reach.roots_from].root.kind]
        return MAPPING if self.reach.mapping(node) is not None else BLOCK

    def path(self, node: int) -> Optional[Path]:
        """How the program itself gets there; None where nothing gives it a name."""
        return self.paths.of(node) if self.paths is not None else None

    def is_start(self, node: int) -> bool:
        """It has a name by itself."""
        return node in self._named

    def is_variable(self, node: int) -> bool:
        """It has a name by itself, and is no module, whose variables have such names."""
        path = self.path(node) if self.is_start(node) else None
        return path is not None and not path.is_module

    def name(self, node: int) -> str:
        """What it is called."""
        if node >= self.reach.roots_from:
            part = self.parts[node - self.reach.roots_from]
            if part.root.kind == regions.DATA and part.root.module is not None and part.slot != NO_SLOT:
                address = part.root.start + part.slot * self.reach.word_bytes
                variable = self.names.variable(part.root.module, address)
                return self.names.at(part.root.module, variable.start if variable is not None else address)
            return self.names.of_root(part.root, NO_SLOT)
        if self.reach.mapping(node) is not None:
            return self.names.of_mapping(node)
        path = self.path(node)
        if path is not None:
            return path.text
        address, size = self.graph.blocks([node])[0]
        return "block 0x%x (%d bytes)" % (address, size)

    def address(self, node: int) -> Optional[Address]:
        """Where it is."""
        if node >= self.reach.roots_from:
            part = self.parts[node - self.reach.roots_from]
            start = part.root.start + (part.slot * self.reach.word_bytes if part.slot != NO_SLOT else 0)
            return Address(start) if part.root.start else None
        mapping = self.reach.mapping(node)
        return Address(self.graph.blocks([node])[0][0] if mapping is None else mapping.start)

    def owned(self, node: int, kind: Optional[str] = None, reached: bool = False) -> Owned:
        """One row."""
        bound = self.graph.reached(node, self.tree if self.has_starts else None) if reached else None
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
            signature=self.paths.contents(node) if self.paths is not None else None,
            path=path.text if path is not None else None,
            path_steps=path.steps if path is not None else None,
        )

    def is_told(self, node: int) -> bool:
        """A runtime says what the block is, or has a path for it."""
        return self.has_starts and self.paths is not None and (self.paths.contents(node) is not None or self.path(node) is not None)

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
        return [
            self.owned(child)._replace(children=self.children(child, depth - 1, limit) if depth > 1 else ())
            for child in self.below(node, limit)
        ]

    def below(self, node: int, limit: int) -> List[int]:
        """What it owns directly, most first. What the program has no name of its own for, such as the keys of a dict, is passed."""
        path, waiting = self.path(node), [node]
        found: List[int] = []
        for _ in range(MOST_PASSED):
            at = waiting.pop()
            for child in self.graph.children(self.tree, at, limit)[0]:
                (waiting if path is not None and self._is_passed(child, path) else found).append(child)
            if not waiting:
                break
        found += waiting
        return sorted(found, key=lambda child: -self.tree.retained_bytes[child])[:limit]

    def _is_passed(self, node: int, above: Path) -> bool:
        """It has no name of its own, or what it owns has a shorter one: `shop._cache` lies in `shop.__dict__`."""
        path, at = self.path(node), node
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

    def suspect(self, node: int, heaviest: Sequence[int], kind: str) -> Suspect:
        """Goes down from an owner to where its memory piles up, or divides."""
        at, steps, retained = node, 0, self.tree.retained_bytes
        while heaviest[at] != NO_NODE and retained[heaviest[at]] >= DROP_RATIO * retained[at]:
            at = heaviest[at]
            steps += 1
        largest, count = self.graph.children(self.tree, at, MOST_PARTS)
        parts = [block for block in largest if retained[block] >= SUSPECT_SHARE * self.used.bytes]
        size = self.graph.blocks([at])[0][1] if at < self.reach.numbers.blocks else 0
        point = Accumulation(
            address=self.address(at),
            signature=self.paths.contents(at) if self.paths is not None else None,
            name=self.name(at),
            size_bytes=size,
            children=count,
            retained_bytes=retained[at],
            steps=steps,
            parts=[Division(self.name(part), self.address(part), retained[part], self.share(retained[part])) for part in parts],
        )
        what = self.paths.contents(node) if self.paths is not None else None
        holders = self._holders(node) if kind == SHARED else ()
        return Suspect(self.name(node), kind, retained[node], self.share(retained[node]), point, what, holders=holders)

    def _holders(self, node: int) -> List[str]:
        found: Dict[int, None] = {}
        for referrer in self.graph.referrers(node, MOST_POINTERS):
            at = referrer.node
            while at != node and self.tree.owners[at] != NO_NODE:
                at = self.tree.owners[at]
            if at != node and referrer.rule <= RULE_HABIT and not self.weak[0] <= at < self.weak[1]:
                found[at] = None
        return [self.name(one) for one in sorted(found, key=lambda one: -self.tree.retained_bytes[one])[:MOST_HOLDERS]]


def blocks(tallied: Tallied, owners: Owners) -> List[Tuple[int, int]]:
    """Blocks in the answer, as (address, usable bytes): those that own, and those below which the memory of suspects piles up."""
    points = {suspect.accumulation.address for suspect in owners.suspects if suspect.accumulation.size_bytes}
    addresses = sorted({point for point in (*points, *_addresses(owners.owners)) if point is not None})
    places = [tallied.graph.find(address) for address in addresses]
    nodes = [place[0] for place in places if place is not None and not place[1] and place[0] < tallied.reach.numbers.blocks]
    return list(tallied.graph.blocks(nodes))


def _is_block(row: Owned) -> bool:
    return row.kind in (BLOCK, SHARED) or row.path is not None


def _addresses(rows: Sequence[Owned]) -> Iterator[Optional[int]]:
    for row in rows:
        yield row.address if _is_block(row) else None
        yield from _addresses(row.children)


def places(tallied: Tallied, owners: Owners) -> Dict[int, Tuple[int, int]]:
    """By the addresses in the answer where each variable begins and ends, and each block that is none of a runtime's objects."""
    wanted = {suspect.accumulation.address for suspect in owners.suspects}
    wanted.update(row.address for row in _all([*owners.owners, *owners.together]))
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


def _all(rows: Sequence[Owned]) -> Iterator[Owned]:
    for row in rows:
        yield row
        yield from _all(row.children)


def with_containers(owners: Owners, held: Mapping[int, Sequence[Container]]) -> Owners:
    """With what these variables and blocks have in them, by their addresses in the answer."""
    rows = [_with_containers(row, held) for row in owners.owners]
    of_owner = {row.owner: row.containers for row in rows}
    suspects = []
    for suspect in owners.suspects:
        point = suspect.accumulation._replace(containers=held.get(suspect.accumulation.address or 0, ()))
        suspects.append(suspect._replace(accumulation=point, containers=of_owner.get(suspect.owner, ())))
    return owners._replace(suspects=suspects, owners=rows, together=[_with_containers(row, held) for row in owners.together])


def _with_containers(row: Owned, held: Mapping[int, Sequence[Container]]) -> Owned:
    return row._replace(containers=held.get(row.address or 0, ()), children=[_with_containers(child, held) for child in row.children])


def named(owners: Owners, names: Mapping[int, str]) -> Owners:
    """With what these blocks are, by their addresses."""
    rows = [_named(row, names) for row in owners.owners]
    whats = {row.owner: row.signature for row in rows}
    suspects = []
    for suspect in owners.suspects:
        point = suspect.accumulation
        point = point._replace(signature=point.signature or names.get(point.address or 0))
        suspects.append(suspect._replace(accumulation=point, signature=suspect.signature or whats.get(suspect.owner)))
    return owners._replace(suspects=suspects, owners=rows)


def _named(row: Owned, names: Mapping[int, str]) -> Owned:
    signature = row.signature or (names.get(row.address or 0) if _is_block(row) else None)
    return row._replace(signature=signature, children=[_named(child, names) for child in row.children])


TALLIED = "tallied"
"""What commands share while a snapshot is taken: it splits the roots of the graph, which can be done once."""


def tally(session: Session, reach: Reach, names: Names, paths: Optional[Paths] = None) -> Tallied:
    """The dominators of this look."""
    shared: Optional[Tallied] = session.shared(TALLIED)
    return shared if shared is not None else session.share(TALLIED, Tallied(reach, names, paths))


def find(tallied: Tallied, depth: int, limit: int) -> Owners:
    """All owners, and the suspects among them."""
    reach = tallied.reach
    rows: List[Owned] = []
    suspects: List[Tuple[int, Suspect]] = []
    heaviest = tallied.graph.heaviest(tallied.tree)
    tops = tallied.tops(max(limit, MOST_KEEPING))
    for number, (node, kind) in enumerate(tops[: max(limit, MOST_SUSPECTS)]):
        if kind == SHARED and tallied.tree.retained_bytes[node] < LEAST_SHARED * tallied.used.bytes:
            continue
        is_large = tallied.tree.retained_bytes[node] >= LEAST_SHARED * tallied.used.bytes
        row = tallied.owned(node, kind, reached=number < MOST_REACHED and (is_large or not tallied.has_starts))
        if len(rows) < limit:
            rows.append(row._replace(children=tallied.children(node, depth - 1, limit) if depth > 1 else ()))
        if row.retained_bytes >= SUSPECT_SHARE * tallied.used.bytes and row.retained_bytes:
            suspects.append((node, tallied.suspect(node, heaviest, kind)))
    roots = range(reach.roots_from, reach.roots_from + len(tallied.parts))
    kept = sum(tallied.tree.retained_bytes[node] for node in roots) + tallied.started_bytes(tops)
    shared = tallied.used.bytes - tallied.leaked.bytes - kept
    is_wanted = 0 < SUSPECT_SHARE * tallied.used.bytes <= shared
    others = tallied.graph.others(tallied.tree, [node for node, _ in suspects], tallied.weak) if suspects else []
    told = [suspect._replace(others=against) for (_, suspect), against in zip(suspects, others)]
    names = {name for suspect in told for name in (suspect.owner, *suspect.holders)}
    together = [row for row in (_together(tallied) if is_wanted else []) if row.owner not in names][:MOST_TOGETHER]
    return Owners(told, rows, tallied.used, tallied.leaked, shared, together=together)


def _together(tallied: Tallied) -> List[Owned]:
    heaps = _from_heaps(tallied) if not tallied.has_starts else []
    if heaps:
        return heaps
    joints = tallied.graph.joint(tallied.tree, tallied.strong, MOST_JOINT)
    return (tallied.has_starts and _joint(tallied, joints)) or _voted(tallied, joints)


def _from_heaps(tallied: Tallied) -> List[Owned]:
    """Heaps of runtimes whose objects have no names here, and what their words lead to at once: the program's objects are what holds it,
    and other ways, such as lists of all buffers, pass through the runtime."""
    reach, owners = tallied.reach, tallied.tree.owners
    tops: Dict[str, Set[int]] = {}
    for place, heap in enumerate(reach.regions.nodes):
        for edge in tallied.graph.edges(reach.numbers.blocks + place) if heap.whose is not None else ():
            at = edge.node
            while edge.rule <= RULE_HABIT and owners[at] != NO_NODE:
                at = owners[at]
            if edge.rule <= RULE_HABIT and at < reach.roots_from:
                tops.setdefault(heap.whose or "" if reach.mapping(at) is None else tallied.name(at), set()).add(at)
    found = []
    for whose, nodes in tops.items():
        sizes = [sum(column[node] for node in nodes) for column in (tallied.tree.retained_bytes, tallied.tree.retained_blocks)]
        if sizes[0] >= SUSPECT_SHARE * tallied.used.bytes:
            found.append(Owned(whose, MAPPING, None, 0, 0.0, 0, sizes[0], sizes[1]))
    return sorted(found, key=lambda row: -(row.reached_bytes or 0))


def _joint(tallied: Tallied, joints: Sequence[Joint]) -> List[Owned]:
    """Blocks with many pointers, by the paths of the objects that they belong to, and what they lead to without each other. What their
    owners keep is not held by others."""
    found: Dict[str, Owned] = {}
    owners = {node for node, _ in tallied.tops(MOST_KEEPING)}
    for joint in joints:
        at = joint.node
        while at not in owners and tallied.tree.owners[at] != NO_NODE:
            at = tallied.tree.owners[at]
        if joint.bytes - tallied.tree.retained_bytes[at] * (at in owners) < LEAST_TOGETHER * tallied.used.bytes:
            continue
        row = tallied.owned(joint.node)._replace(reached_bytes=joint.bytes, reached_blocks=joint.blocks)
        found.setdefault(row.owner, row._replace(signature=row.signature or tallied.contents_of(row.path_steps)))
    return list(found.values())


def _voted(tallied: Tallied, joints: Sequence[Joint]) -> List[Owned]:
    """Variables: those from which the shortest ways lead to most of what several hold, and those that own blocks with many pointers. Where
    runtimes give names, what has one by itself is such a variable, but a module."""
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
    variables = (node for node in votes if node >= roots_from or tallied.is_variable(node))
    chosen = sorted(variables, key=lambda node: -votes[node])[:MOST_VOTED]
    for joint in joints[:MOST_VOTED]:
        at = joint.node
        while tallied.tree.owners[at] != NO_NODE:
            at = tallied.tree.owners[at]
        chosen += [at] if at >= roots_from and at not in chosen else []
    found = (tallied.owned(node, reached=True) for node in chosen)
    return [row for row in found if (row.reached_bytes or 0) >= SUSPECT_SHARE * tallied.used.bytes]


def cut(owners: Owners, depth: int, limit: int) -> Owners:
    """No more than so many levels and rows of each."""
    return owners._replace(owners=_cut(owners.owners, depth, limit))


def _cut(rows: Sequence[Owned], depth: int, limit: int) -> List[Owned]:
    return [row._replace(children=_cut(row.children, depth - 1, limit) if depth > 1 else ()) for row in rows[:limit]]


def among(owners: Owners, what: str, address: Optional[int], depth: int, limit: int) -> Optional[Owned]:
    """The owner of that name or address, in an answer that was made before; None where it is not in it."""
    row = _among(owners.owners, what, address)
    return None if row is None else row._replace(children=_cut(row.children, max(1, depth), limit))


def _among(rows: Sequence[Owned], what: str, address: Optional[int]) -> Optional[Owned]:
    for row in rows:
        if row.address == address if address is not None else row.owner.split(" in ")[0] == what:
            return row
    return next((owned for owned in (_among(row.children, what, address) for row in rows) if owned is not None), None)


def of(tallied: Tallied, what: str, address: Optional[int], depth: int, limit: int) -> Optional[Owned]:
    """One owner with what it owns: the block that has the address, the variable of that name, or what the program itself calls so; None
    where there is none."""
    reach = tallied.reach
    node: Optional[int] = None
    if address is not None:
        place = tallied.graph.find(address)
        node = place[0] if place is not None else None
    for number, part in enumerate(tallied.parts):
        here = reach.roots_from + number
        if node is None and part.root.kind == regions.DATA and tallied.name(here).split(" in ")[0] == what:
            node = here
        start = tallied.address(here)
        if node is None and address is not None and start == address:
            node = here
    if node is None and address is None and tallied.paths is not None:
        node = _by_path(tallied, what)
    if node is None:
        return None
    return tallied.owned(node, reached=True)._replace(children=tallied.children(node, max(1, depth), limit))


def _by_path(tallied: Tallied, what: str) -> Optional[int]:
    """The owner that is shown under this path: each owner on the way has a path with which it begins."""
    shown = [node for node, _ in tallied.tops(MOST_KEEPING)]
    for _ in range(MOST_PASSED):
        names = {tallied.name(node): node for node in reversed(shown)}
        nearest = max((name for name in names if what.startswith(name)), key=len, default=None)
        if nearest is None or nearest == what:
            return None if nearest is None else names[nearest]
        shown = tallied.below(names[nearest], MOST_KEEPING)
    return None
