"""Tables of one look, for `explore`: everything is made of it, and kept; opening a node or a class reads no more than is shown."""

from array import array
from typing import AbstractSet, Any, Callable, Dict, Iterable, List, NamedTuple, Optional, Sequence, Tuple

from gdbheapx import command
from gdbheapx.allocators.session import Session
from gdbheapx.analysis.census import block, find, owned
from gdbheapx.analysis.reachability import dominance, heap_graph, owners, refs
from gdbheapx.analysis.reachability.paths import NodeNames
from gdbheapx.command import CommandAnswer, TextStyle
from gdbheapx.common.errors import HeapxError
from gdbheapx.common.model import TargetAddress
from gdbheapx.common.problems import NOT_IN_SNAPSHOT
from gdbheapx.kernel.blocks.graph import NO_NODE
from gdbheapx.report import reach_text
from gdbheapx.snapshot.record import RecordingSession

REACHES = "reaches"
MOST_ROWS = 200
"""Below one node, and of one class."""
MOST_CLASSES = 12
"""Of an owner, before what it owns directly."""
MOST_CHAINS, MOST_STEPS = 8, 40
AT_ONCE, MOST_SOUGHT = 1 << 16, 8
PLAIN = TextStyle(False, False)


class Node(NamedTuple):
    """A row of the dominator tree."""

    number: int
    owned: owners.OwnedMemory
    can_open: bool
    """It owns others."""
    is_block: bool
    """It is no variable, thread or mapping, at which paths end."""


class ExplorerClass(NamedTuple):
    """A row of the census."""

    signature: Optional[str]
    """None: only their size is known."""
    size_bytes: Optional[int]

    def is_of(self, other: "ExplorerClass") -> bool:
        """Return True if both are the same class."""
        return self == other if other.signature is None else self.signature == other.signature


class Shown(NamedTuple):
    """A table."""

    columns: Sequence[str]
    rows: Sequence[Sequence[Any]]
    keys: Sequence[Any] = ()
    """What each row opens: a class, an address."""


def find_positions(values: "array[int]", wanted: AbstractSet[int]) -> List[int]:
    """Return the positions of these numbers in an array. For up to MOST_SOUGHT numbers only the first MOST_ROWS positions of each,
    searched by bytes, since a heap has many millions.
    """
    if len(wanted) > MOST_SOUGHT:
        return [place for place, value in enumerate(values) if value in wanted] if not wanted.isdisjoint(values) else []
    data, width, found = values.tobytes(), values.itemsize, []
    for number in wanted:
        sought, count = array(values.typecode, (number,)).tobytes(), 0
        at = data.find(sought)
        while at >= 0 and count < MOST_ROWS:
            is_one = at % width == 0
            if is_one:
                found.append(at // width)
                count += 1
            at = data.find(sought, at + (width if is_one else 1))
    return sorted(found)


class ExplorerView:
    """Reading of a core or snapshot, with the answers made of it."""

    def __init__(self, session: Session) -> None:
        """HeapxError where there is no room for the graph of all blocks."""
        session.store = session.store or RecordingSession()
        if not session.target.has_memory and session.shared(find.TOLD) is None:
            hint = "take it where there is more memory, or explore a core"
            raise HeapxError("this snapshot does not have the single blocks", hint, code=NOT_IN_SNAPSHOT)
        heap_graph.check_owners_fit(session)
        self._session = session
        self._answers: Dict[str, CommandAnswer] = {}
        self.told = find.label_blocks(session, lambda graph: None, is_cut=True, contents=True)
        self.tallied = dominance.tally_owners(session, self.told.reach, self.told.called, self.told.paths)
        self.census: find.Census = self._run_command("census").found()
        reach = self.tallied.reach_of_parts
        self._reach, self._called = reach, NodeNames(session.target, reach)
        self._marks = refs.RefsMarks(reach, self.told.paths, self.tallied)
        self._held = list(owned.by_owner(session).rows)
        self.owners: owners.Owners = self._run_command("owners").found()
        self._signatures = {row.owner: row.signature for row in self.owners.owners}
        self.text("report", "--no-deep")

    def _run_command(self, *words: str) -> CommandAnswer:
        """Return what a command finds in this reading."""
        asked = " ".join(words)
        if asked not in self._answers:
            command.load_commands(words[0])
            parsed = command.parse_command(words, "gdbheapx")
            self._answers[asked] = parsed.command.run(self._session, parsed.options)
        return self._answers[asked]

    def text(self, *words: str, width: Optional[int] = None) -> str:
        """Return the output of a command, or its error; wrapped to `width` characters, if given."""
        try:
            return "\n".join(self._run_command(*words).text(TextStyle(False, False, width, width is not None)))
        except HeapxError as error:
            return error.line()

    def suspicions(self) -> List[str]:
        """Return the sentences of `owners` on blocks that keep much memory, and on those that lead to memory with several owners."""
        told = [reach_text.describe_suspicion(one) for one in self.owners.suspects] or [reach_text.NOBODY]
        return [*told, *(reach_text.describe_joint(row) for row in self.owners.together)]

    def notes(self) -> List[str]:
        """Return the problems of this reading, with their hints."""
        return ["%s; %s" % (one.what, one.hint) if one.hint else one.what for one in self._session.problems]

    def tops(self) -> List[Node]:
        """Return the nodes that have no owner, those that keep most first."""
        return self._make_nodes(self.tallied.tops(MOST_ROWS))

    def classes_below(self, owner: str) -> List[find.CensusRow]:
        """Return the memory of a top owner by class, the largest first."""
        rows = [row for row in self._held if row.owner == owner]
        return sorted(rows, key=lambda row: -row.bytes)[:MOST_CLASSES]

    def below(self, number: int) -> Tuple[List[Node], int]:
        """Return the nodes that this node owns, the largest first, and the bytes of the remaining ones, 0 if there are none."""
        alike, found = self.tallied.parts_of(number, MOST_ROWS + 1)
        nodes = [Node(NO_NODE, row, False, True) for row in alike] + self._make_nodes([(node, None) for node in found[:MOST_ROWS]])
        if alike or len(found) <= MOST_ROWS:
            return nodes, 0
        kept = self.tallied.tree.retained_bytes
        return nodes, kept[number] - self._count_own_bytes(number) - sum(kept[node] for node in found[:MOST_ROWS])

    def _make_nodes(self, nodes: Iterable[Tuple[int, Optional[str]]]) -> List[Node]:
        tallied, made = self.tallied, []
        for number, kind in nodes:
            row = tallied.owned(number, kind)
            label = self.told.labels[number] if number < len(self.told.labels) else 0
            signature = self.told.names[label - 1] if label and row.signature is None else None
            called = signature.name if signature is not None else self._signatures.get(row.owner)
            own_bytes = self._count_own_bytes(number)
            made.append(Node(number, row._replace(signature=row.signature or called), row.retained_bytes > own_bytes, own_bytes > 0))
        return made

    def _count_own_bytes(self, number: int) -> int:
        """Return the bytes of the block itself; 0 for a root."""
        return self.tallied.graph.blocks([number])[0][1] if number < self.tallied.reach.numbers.blocks else 0

    def classes(self, like: str = "", by: str = "bytes") -> List[find.CensusRow]:
        """Return the classes with this text in their names, ordered by `bytes`, `blocks`, `size` or `name`."""
        rows = [row for row in self.census.rows if like.lower() in (row.signature or "").lower()]
        order: Dict[str, Callable[[find.CensusRow], Any]] = {
            "bytes": lambda row: -row.bytes,
            "blocks": lambda row: -row.blocks,
            "size": lambda row: -(row.size_bytes or 0),
            "name": lambda row: row.signature or "",
        }
        return sorted(rows, key=order[by])

    def owners_of(self, wanted: ExplorerClass) -> List[find.CensusRow]:
        """Return the owners of the blocks of a class, the largest first; if only the size of the class is known, the owners of all such
        blocks, of any size.
        """
        return sorted((row for row in self._held if row.signature == wanted.signature), key=lambda row: -row.bytes)

    def blocks_of(self, wanted: ExplorerClass) -> List[Tuple[TargetAddress, int]]:
        """The first blocks of a class, with usable bytes."""
        numbered = enumerate((None, *self.told.names))
        labels = {label for label, name in numbered if (name.name if name is not None else None) == wanted.signature}
        found: List[Tuple[TargetAddress, int]] = []
        blocks = self.told.reach.numbers.blocks
        size_bytes = wanted.size_bytes if wanted.signature is None else None
        counted = sum(row.blocks for row in self.census.rows if ExplorerClass(row.signature, row.size_bytes).is_of(wanted))
        most = min(MOST_ROWS, counted or MOST_ROWS)  # what is rare may be among the first blocks
        for first in range(0, blocks, AT_ONCE):
            some = self.told.labels[first : min(first + AT_ONCE, blocks)]
            nodes = [first + place for place in find_positions(some, labels)]
            if size_bytes is not None and nodes:
                sizes = self.told.reach.graph.columns(array("I", range(first, first + len(some))))[1]
                alike = [place for place, size in enumerate(sizes) if size == size_bytes] if size_bytes in sizes else []
                nodes = [first + place for place in alike if some[place] in labels]
            rows = zip(*self.told.reach.graph.columns(array("I", nodes[: MOST_ROWS - len(found)])))
            found += [(TargetAddress(address), size) for address, size in rows]
            if len(found) >= most:
                break
        return sorted(found, key=lambda row: -row[1])

    def block(self, address: int) -> List[str]:
        """Return the lines about the address, and its paths to roots."""
        lines = self.text("whatis", "0x%x" % address, "--no-holders").split("\n")
        answer = refs.find_refs(self._reach, self._called, address, self._marks, self.told.paths)
        if answer is None:
            return lines
        answer = refs.add_refs_containers(
            answer, block.find_pointed_containers(self._session, self._reach, refs.list_pointers(answer, MOST_CHAINS))
        )
        return [*lines, "", *reach_text.format_refs(PLAIN, answer, MOST_CHAINS, MOST_STEPS)]

    def search(self, text: str) -> Shown:
        """Blocks by address, owners and classes by name."""
        try:
            address = int(text, 16 if text[:2] in ("0x", "0X") else 10)
        except ValueError:
            address = -1
        rows: List[Tuple[Optional[int], str, str]] = []
        keys: List[Any] = []
        if address >= 0:
            place = self.tallied.graph.find(address)
            if place is not None and place[0] < self.tallied.reach.numbers.blocks:
                start, size = self.tallied.graph.blocks([place[0]])[0]
                rows.append((size, "block", "0x%x%s" % (start, "+%d" % place[1] if place[1] else "")))
                keys.append(TargetAddress(start))
        wanted = text.lower()
        tops = [(node.owned, node.owned.retained_bytes, "owner") for node in self.tops()]
        leads = [(row, row.reached_bytes, REACHES) for row in self.owners.together]
        for row, counted_bytes, what in [*tops, *leads] if wanted else ():
            if wanted in row.owner.lower():
                rows.append((counted_bytes, what, row.owner))
                keys.append(row.address if what == REACHES else row.owner)
        for of_class in self.classes(text) if wanted else ():
            rows.append((of_class.bytes, "class", of_class.signature or ""))
            keys.append(ExplorerClass(of_class.signature, of_class.size_bytes))
        return Shown(("bytes", "what", "name"), rows[:MOST_ROWS], keys[:MOST_ROWS])
