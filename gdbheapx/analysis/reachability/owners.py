"""Owners of memory and what they hold: the records of the answer, and changes to them."""

from typing import Annotated, Iterator, List, Mapping, NamedTuple, Optional, Sequence

from gdbheapx.analysis.addon_answers import Garbage
from gdbheapx.analysis.reachability.heap_graph import HeldByField
from gdbheapx.analysis.reachability.paths import PathStep
from gdbheapx.common.columns import BYTES, IF_ANY, TEXT, Column
from gdbheapx.common.model import TargetAddress
from gdbheapx.common.units import add_article, count_noun, sentence_size
from gdbheapx.kernel.blocks.graph import HASH_TABLE, LRU, SKIP_LIST, NativeSum, Others

GLOBAL, THREAD, LOCAL, MAPPING, BLOCK, SHARED = "global", "thread", "thread-local", "mapping", "block", "shared"
FIELD = "field"
CONTAINER, ELEMENTS = "container", "elements"
SHAPES = {HASH_TABLE: "hash table", SKIP_LIST: "skip list", LRU: "LRU list"}
MOST_TOLD = 3
OF_ENTRIES = ("map", "set", "dict", "Map", "Set")
"""Ends of the names of what has entries."""


class HeldContainer(NamedTuple):
    """Container held by a variable or block."""

    kind: str
    """`unordered map or set`, `list`, `vector of strings`."""
    address: TargetAddress
    size_bytes: int
    """Of the container itself, without its blocks."""
    elements: Optional[int]
    elements_bytes: Optional[int]
    """Where how large an element is is not known: all of them together."""
    spare_bytes: Optional[int] = None
    """Of its table or its room, where most of that is unused."""

    def words(self) -> str:
        """`list of 4,096`, `vector of 100 strings`, `dict of 9 entries with 92.5 MiB of unused capacity`."""
        spare = " with %s of unused capacity" % sentence_size(self.spare_bytes) if self.spare_bytes is not None else ""
        kind, _, elements = self.kind.partition(" of ")
        if self.elements is None:
            return "%s%s%s" % (kind, "" if self.elements_bytes is None else " of %s" % sentence_size(self.elements_bytes), spare)
        noun = elements[:-1] or ("entry" if kind.endswith(OF_ENTRIES) else "")
        more = noun if self.elements == 1 else elements or ("entries" if noun else "")
        return ("%s of %s %s" % (kind, "{:,}".format(self.elements), more)).rstrip() + spare


class HeldContainers(NamedTuple):
    """The containers of one variable or block."""

    address: TargetAddress
    """As the owners' answers have it."""
    containers: Sequence[HeldContainer]


class LinkedContainer(NamedTuple):
    """A container: blocks that are linked with each other, such as the nodes of a list."""

    kind: str
    """`list`, `tree`, `hash-table`, `skip-list`, `array` or `lru`."""
    elements: int
    element_bytes: Optional[int]
    """Usable bytes of each; None: they have several sizes."""
    own_bytes: int
    """Of its elements by themselves, without what these keep."""
    used_elements: Optional[int] = None
    """So many are in use elsewhere, too (`users`); None: not counted;"""
    used_bytes: Optional[int] = None
    """with so many bytes by themselves."""
    other_users: Optional[int] = None
    """So many more than `users` has."""

    def words(self, name: str = "") -> str:
        """`list of 1,787 elements of 168 bytes`; `hash table g_users of 20,000 elements` of one that is called so."""
        size = " of %d bytes" % self.element_bytes if self.element_bytes is not None and not name else ""
        return "%s of %s%s" % (" ".join(filter(None, (SHAPES.get(self.kind, self.kind), name))), count_noun(self.elements, "element"), size)


class ContainerUser(NamedTuple):
    """Referrer of a container that takes nothing from its owner."""

    owner: str
    kind: str
    pointers: int


class OwnedMemory(NamedTuple):
    """Owner, or something that it owns."""

    owner: Annotated[str, Column("owner", TEXT)]
    kind: Annotated[str, Column("kind", TEXT, goes=2)]
    """`global`, `thread`, `thread-local`, `field` of a class of a runtime (`org.rocksdb.LRUCache.nativeHandle_`), `mapping`, `block`,
    `container`, `elements` of one that are alike, or `shared` for what several owners hold."""
    address: Optional[TargetAddress]
    """Of a block, mapping or variable; of a container, and of elements, the first one."""
    retained_bytes: Annotated[int, Column("retained", BYTES)]
    """What would be lost with it: the lower bound."""
    share_percent: Annotated[float, Column("%", "percent", goes=1)]
    retained_blocks: Annotated[int, Column("blocks", goes=3)]
    reached_bytes: Annotated[Optional[int], Column("reachable", BYTES, goes=4)]
    """What it leads to, others too: the upper bound; None where it was not counted."""
    reached_blocks: Optional[int]
    children: Sequence["OwnedMemory"] = ()
    signature: Annotated[Optional[str], Column("type", TEXT, shown=IF_ANY)] = None
    """What the block is; None where nothing knows it, where it is no block, and of a process, whose blocks are not read once more."""
    path: Optional[str] = None
    """How the program itself gets there, as its language writes it; None where nothing gives it a name."""
    path_steps: Optional[Sequence[PathStep]] = None
    containers: Sequence[HeldContainer] = ()
    """Those that lie in the variable or block, what has most elements first; none where memory could not be read any more."""
    container: Optional[LinkedContainer] = None
    """What it is, or all that the variable keeps: its elements are `children`."""
    confidence: Optional[str] = None
    """How sure it is that this owns the container: `certain`, `likely`, `guess`, or `shared`: all of `holders` have equal right."""
    users: Sequence[ContainerUser] = ()
    """Of a container what else points into it, most pointers first."""
    holders: Sequence[str] = ()
    """Who holds it, where several do."""
    has_names: Optional[bool] = None
    """All of `holders` are called by what has a name, none by its address; None of what is no container."""


class Division(NamedTuple):
    """A large part of what a suspect keeps."""

    name: str
    address: Optional[TargetAddress]
    retained_bytes: int
    share_percent: float
    signature: Optional[str] = None
    """What the block is; None as in Owned, and of a container."""
    container: Optional[LinkedContainer] = None
    """What it is, or has nearly all of it; `name` is that of the container then."""


class HoldingBlock(NamedTuple):
    """A block with a pointer to a suspect, or the holder in whose memory it lies."""

    owner: str
    """The holder, as in `holders`."""
    address: Optional[TargetAddress]
    is_owner: bool
    """The holder itself, which is a block."""
    signature: Optional[str] = None


class Accumulation(NamedTuple):
    """Place at which the memory of a suspect piles up."""

    address: Optional[TargetAddress]
    signature: Optional[str]
    name: str
    size_bytes: int
    children: int
    """Blocks that it owns directly."""
    retained_bytes: int
    steps: int
    """From the owner to here."""
    parts: Sequence[Division] = ()
    """Those directly below that keep a fifth of the heap or more themselves; of a container the elements that keep a fifth of it, if that
    is far more than the average."""
    containers: Sequence[HeldContainer] = ()
    container: Optional[LinkedContainer] = None
    """This and the next three as in Owned."""
    confidence: Optional[str] = None
    users: Sequence[ContainerUser] = ()
    holders: Sequence[str] = ()
    is_below: bool = False
    """A container whose name leads on from that of the suspect."""


class LeakSuspect(NamedTuple):
    """Owner that keeps a fifth of the heap or more."""

    owner: str
    kind: str
    retained_bytes: int
    share_percent: float
    accumulation: Accumulation
    signature: Optional[str] = None
    """What the owner is, if it is a block."""
    containers: Sequence[HeldContainer] = ()
    others: Optional[Others] = None
    """What else leads to what it keeps, and speaks against it."""
    holders: Sequence[str] = ()
    """If several hold it, some of them: in whose memory pointers to it are, who retains most first."""
    holding: Sequence[HoldingBlock] = ()
    """Of each of these the block with a pointer to it, and the holder itself where that is a block."""


class Owners(NamedTuple):
    """The answer."""

    suspects: Sequence[LeakSuspect]
    owners: Sequence[OwnedMemory]
    """Those that retain most first."""
    used: Optional[NativeSum]
    """These two None where they are unknown (see Leaks)."""
    leaked: Optional[NativeSum]
    shared_bytes: int
    """Held by several owners: retained by none of them."""
    leaked_is_upper_bound: bool = False
    """Something that may hold blocks was not read."""
    together: Sequence[OwnedMemory] = ()
    """Where several owners hold a fifth of the heap or more, who leads to it (`reached_bytes`), most first. Of a runtime whose objects have
    no names its heap, and what its words lead to at once. Where runtimes give names, blocks with many pointers, such as dicts and lists,
    and what each leads to without the others and nothing else does; else variables that lead to a fifth or more, those first from which the
    shortest ways lead to most."""
    garbage: Optional[Garbage] = None
    """Held by nothing but itself; None: none was found, or looked for."""
    fields: Sequence[HeldByField] = ()
    """What objects of a runtime with a collector hold, by class and field, the largest first."""


def is_block_row(row: OwnedMemory) -> bool:
    """Its address is that of a block."""
    return row.kind in (BLOCK, ELEMENTS) or (row.kind == SHARED and row.container is None) or row.path is not None


def find_block_addresses(rows: Sequence[OwnedMemory]) -> Iterator[Optional[int]]:
    """Yield the address of each block in these rows and below them; None for a row that is no block."""
    for row in rows:
        yield row.address if is_block_row(row) else None
        yield from find_block_addresses(row.children)


def walk_owned(rows: Sequence[OwnedMemory]) -> Iterator[OwnedMemory]:
    """Yield these rows and all below them."""
    for row in rows:
        yield row
        yield from walk_owned(row.children)


def add_owner_containers(owners: Owners, held: Mapping[int, Sequence[HeldContainer]]) -> Owners:
    """Add the containers in these variables and blocks, by their addresses in the answer."""
    rows = [_add_containers(row, held) for row in owners.owners]
    of_owner = {row.owner: row.containers for row in rows}
    suspects = []
    for suspect in owners.suspects:
        point = suspect.accumulation._replace(containers=held.get(suspect.accumulation.address or 0, ()))
        suspects.append(suspect._replace(accumulation=point, containers=of_owner.get(suspect.owner, ())))
    return owners._replace(suspects=suspects, owners=rows, together=[_add_containers(row, held) for row in owners.together])


def _add_containers(row: OwnedMemory, held: Mapping[int, Sequence[HeldContainer]]) -> OwnedMemory:
    return row._replace(containers=held.get(row.address or 0, ()), children=[_add_containers(child, held) for child in row.children])


def add_owner_types(owners: Owners, names: Mapping[int, str]) -> Owners:
    """Add the types of these blocks, by their addresses."""
    rows = [_add_types(row, names) for row in owners.owners]
    whats = {row.owner: row.signature for row in rows}
    suspects = []
    for suspect in owners.suspects:
        point = suspect.accumulation
        parts = [part if part.container is not None else part._replace(signature=names.get(part.address or 0)) for part in point.parts]
        holding = [holder._replace(signature=names.get(holder.address or 0)) for holder in suspect.holding]
        point = point._replace(signature=point.signature or names.get(point.address or 0), parts=parts)
        signature = suspect.signature or whats.get(suspect.owner)
        suspects.append(suspect._replace(accumulation=point, signature=signature, holding=holding))
    return owners._replace(suspects=suspects, owners=rows, together=[_add_types(row, names) for row in owners.together])


def _add_types(row: OwnedMemory, names: Mapping[int, str]) -> OwnedMemory:
    signature = row.signature or (names.get(row.address or 0) if is_block_row(row) else None)
    return row._replace(signature=signature, children=[_add_types(child, names) for child in row.children])


def cut_owners(owners: Owners, depth: int, limit: int) -> Owners:
    """No more than so many levels and rows of each."""
    return owners._replace(owners=_cut_rows(owners.owners, depth, limit))


def _cut_rows(rows: Sequence[OwnedMemory], depth: int, limit: int) -> List[OwnedMemory]:
    return [row._replace(children=_cut_rows(row.children, depth - 1, limit) if depth > 1 else ()) for row in rows[:limit]]


def find_listed_owner(owners: Owners, what: str, address: Optional[int], depth: int, limit: int) -> Optional[OwnedMemory]:
    """The owner of that name or address, in an answer that was made before; None where it is not in it."""
    row = _find_listed(owners.owners, what, address)
    return None if row is None else row._replace(children=_cut_rows(row.children, max(1, depth), limit))


def _find_listed(rows: Sequence[OwnedMemory], what: str, address: Optional[int]) -> Optional[OwnedMemory]:
    for row in rows:
        if row.address == address if address is not None else what in (row.owner, row.owner.split(" in ")[0]):
            return row
    return next((owned for owned in (_find_listed(row.children, what, address) for row in rows) if owned is not None), None)


def describe_containers(containers: Sequence[HeldContainer]) -> str:
    """Describe containers in words, those after the first in one group; empty for none."""
    told = [one.words() for one in containers[:MOST_TOLD]]
    others = [add_article(one) for one in told[1:]]
    others += ["%d others" % (len(containers) - MOST_TOLD)] if len(containers) > MOST_TOLD else []
    beside = ", ".join(others[:-1]) + (" and " if others[1:] else "") + "".join(others[-1:])
    return ", beside ".join(part for part in ("".join(told[:1]), beside) if part)
