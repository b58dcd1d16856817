"""Find the used blocks that keep free memory from being returned, their types and owners: each free byte once; and put that in a
sentence.
"""

from array import array
from typing import Annotated, Dict, Iterable, Iterator, List, NamedTuple, Optional, Sequence, Tuple

from gdbheapx import problems
from gdbheapx.allocators.answers import ArenaKeeps, Keeping, Term
from gdbheapx.allocators.heap import AllocatorInstance, plain_shape
from gdbheapx.analysis.census import find as census
from gdbheapx.analysis.census.world import PLACE, Signature
from gdbheapx.analysis.reachability import heap_graph
from gdbheapx.analysis.reachability.dominance import LEAST_SHARED, OwnerTally, tally_owners
from gdbheapx.columns import BYTES, IF_ANY, TEXT, Column
from gdbheapx.findings import PINNED
from gdbheapx.hints import hint_command
from gdbheapx.kernel.blocks.graph import NO_NODE
from gdbheapx.kernel.blocks.pages import BY_NOBODY, BY_SEVERAL, PIN_CACHED, PIN_OWN, PIN_USED, RESERVE, PinGroup, PinLabels
from gdbheapx.kernel.blocks.stream import NativeBlocks
from gdbheapx.model import Finding, TargetAddress
from gdbheapx.session import Session
from gdbheapx.units import Sentence, SentenceSize, count_noun, format_share, join_sentences, make_sentence

SEVERAL, LEAKED = "several", "leaked"
"""In place of an owner: no single one; nothing leads there."""
SMALL_SHARE = 0.05
"""Of all that is kept: what keeps less is not ranked by how little it is itself, since that shows nothing."""
COPY_BYTES = 50
"""Of each block of a living process, which runs on before its blocks are looked at."""
PINS_BYTES = heap_graph.OWNERS_BYTES + census.CENSUS_BYTES + COPY_BYTES
"""Of each block, at the peak."""
USED, CACHED, OWN = "used", "cached", "own"
STATUSES = {PIN_USED: USED, PIN_CACHED: CACHED, PIN_OWN: OWN}
HEAPS = "pins: heaps"
"""What was asked of heaps when a snapshot's look began."""
STATUS_WORDS = {CACHED: "in thread caches", OWN: "the allocator's own"}
HELD = {SEVERAL: "held by several owners", LEAKED: "leaked"}


class PinOwners:
    """Owners of blocks, in words; each node is named once."""

    def __init__(self, told: census.LabelSet, tallied: OwnerTally) -> None:
        self._told, self._tallied = told, tallied
        self._names: Dict[int, str] = {BY_SEVERAL: SEVERAL, BY_NOBODY: LEAKED}
        self._parents: Sequence[int] = ()

    def name(self, node: int) -> str:
        """Return the name of the topmost owner."""
        if node not in self._names:
            self._names[node] = self._name_shared(node) if node < self._told.reach.numbers.blocks else self._tallied.name(node)
        return self._names[node]

    def _name_shared(self, node: int) -> str:
        """`g_server in app and others, by Config 0x...`: a block that several own, and the nearest of them."""
        reach = self._told.reach
        if not self._parents:
            self._parents = reach.graph.parents(reach.roots_from)
        above = node
        while above < reach.roots_from and self._parents[above] != NO_NODE:
            above = self._parents[above]
        label = self._told.labels[node] if node < len(self._told.labels) else 0
        known = self._told.names[label - 1] if label else None
        what = known.name if known is not None else "block"
        by = "%s 0x%x" % (what, reach.graph.blocks([node])[0][0])
        return "%s and others, by %s" % (self._tallied.name(above), by) if above >= reach.roots_from else by


class PinRow(NamedTuple):
    """Blocks that are alike, and the free bytes that they keep."""

    kept_bytes: Annotated[int, Column("pinned", BYTES)]
    pins_blocks: Annotated[int, Column("blocks")]
    """Blocks of this group that lie on the same page or in the same slab, or directly below what is kept."""
    pins_bytes: Annotated[int, Column("bytes", BYTES, goes=1)]
    """Of them, usable."""
    kept_for_each: Annotated[Optional[float], Column("per byte", TEXT, goes=3)]
    """kept_bytes / pins_bytes; None without pins."""
    size_bytes: Annotated[Optional[int], Column("size", BYTES, shown=IF_ANY, goes=2)]
    """Usable bytes of each block, where all have the same."""
    signature: Annotated[Optional[str], Column("type", TEXT)]
    """As in `census`; None: not known, or no blocks in use."""
    module: str
    sure: str
    """One of census.signature.SURE; empty where nothing is known."""
    owner: Annotated[Optional[str], Column("held by", TEXT)]
    """As in `owners`; `several`: no single one; `leaked`; None: not known."""
    where: Annotated[str, Column("where", TEXT)]
    """One of the words of allocators/answers.py."""
    status: Optional[str]
    """`used`; `cached`: blocks in thread caches; `own`: the allocator's; None: nothing in use keeps it."""
    places: int
    """Pages, slabs or ends of arenas."""
    alone_bytes: int
    """Of kept_bytes those on places where only blocks of this group are: they are all that is in the way."""
    allocator: str
    arenas: Sequence[int]
    sample: Annotated[Optional[TargetAddress], Column("example", TEXT, shown=IF_ANY, goes=4)]


class PinsSum(NamedTuple):
    """Sums of one heap, next to the figures of `arenas`."""

    allocator: str
    kept_bytes: int
    arenas_bytes: Optional[int]
    """What `arenas` says is kept; None where its figures are not known."""
    difference_bytes: Optional[int]
    """The first less the second: not 0 where the heap is damaged, or was not read to its end."""
    terms: Sequence[Term]
    returnable_bytes: Optional[int]
    """Free memory next to that which can be returned; None where it is not known."""
    command: Optional[str]
    """What returns it; None where nothing does here."""


class PinsAnswer(NamedTuple):
    """The answer."""

    kept_bytes: Optional[int]
    """None: nothing was found, and an arena of which it is not known may keep some."""
    groups: Sequence[PinRow]
    sums: Sequence[PinsSum]
    has_owners: bool
    """Owners were looked for; and blocks named by what points to them."""
    held_bytes: int
    """What the arenas hold, used or not."""
    is_cut: bool
    """Not all blocks were looked at, or an arena could not be read: more is kept."""
    may_be_stale: bool
    """As in a census: a class may be that of an object that was freed."""


class Labelled(NamedTuple):
    """Labels and owners of the blocks."""

    labels: PinLabels
    names: Sequence[Optional[Signature]]
    owners: Optional[PinOwners]


class PinsReading(NamedTuple):
    """State of one heap when the process was stopped."""

    heap: AllocatorInstance
    keeping: Optional[Keeping]
    """None: by what rule it keeps free memory is not known."""
    blocks: Iterable[NativeBlocks]
    held_bytes: int


def find_pins(session: Session, owners: bool = True) -> PinsAnswer:
    """Find all groups, first those that keep most for each byte of their own. `owners`: look for their owners."""
    heaps: List[PinsReading] = []
    labelled = _label_blocks(session, owners, heaps)
    heaps = session.shared(HEAPS) or heaps
    session.budget.progress.stage = "finding free memory between blocks in use"
    groups, sums = [], []  # type: List[PinRow], List[PinsSum]
    for asked, pinned in _find_pinned(session, heaps, labelled.labels):
        keeping = asked.keeping
        if keeping is None:
            what = "which free memory %s cannot return is not known: there is no rule for it here" % asked.heap.info.id
            session.problem(
                problems.NO_RULE, None, what, "free memory: %s; by size: %s" % (hint_command("arenas"), hint_command("arenas --sizes"))
            )
            continue
        made = _make_rows(asked.heap, keeping, pinned, labelled)
        total, known = sum(row.kept_bytes for row in made), keeping.kept_bytes
        sums.append(
            PinsSum(
                allocator=asked.heap.info.id,
                kept_bytes=total,
                arenas_bytes=known,
                difference_bytes=None if known is None else total - known,
                terms=keeping.terms,
                returnable_bytes=keeping.returnable_bytes,
                command=asked.heap.returning.command if asked.heap.returning is not None and session.heaps.dry_run(asked.heap) else None,
            )
        )
        groups += made
    session.target.let_go()
    whole, is_cut = sum(group.kept_bytes for group in groups), session.budget.expired()
    if is_cut and not groups:
        raise session.budget.cut("the pinned memory was known")
    if is_cut:
        what = "%s before all blocks were read: more is pinned" % session.budget.reason
        session.problem(session.budget.code, None, what, session.budget.next_step)
    is_unknown = any(asked.keeping is None or any(arena.kept_bytes is None for arena in asked.keeping.arenas) for asked in heaps)
    return PinsAnswer(
        kept_bytes=None if is_unknown and not whole else whole,
        groups=rank_pin_groups(groups, whole),
        sums=sums,
        has_owners=labelled.owners is not None,
        held_bytes=sum(asked.held_bytes for asked in heaps),
        is_cut=is_cut or is_unknown,
        may_be_stale=any(asked.heap.shape.keeps_freed_content for asked in heaps),
    )


def _find_pinned(session: Session, heaps: Sequence[PinsReading], labels: PinLabels) -> Iterator[Tuple[PinsReading, List[PinGroup]]]:
    first = 0
    for asked in heaps:
        keeping, page = asked.keeping, session.target.page_bytes
        shape = plain_shape(asked.heap.shape) if keeping is None else keeping.shape
        shape = shape._replace(page_bytes=max(page, shape.page_bytes))
        own = labels._replace(own=array("Q", sorted(asked.heap.own_places())))
        pins = session.kernel.pins(session.target.bulk_source(), shape, own, first, session.budget)
        pins.stream(iter(asked.blocks))
        groups = pins.found()
        first = pins.used_blocks
        yield asked, groups


def kept_by_label(session: Session, heaps: Sequence[PinsReading], labels: PinLabels) -> Optional[Dict[Tuple[Optional[str], int], int]]:
    """Free bytes by what keeps them: (a word of STATUSES, label; 0: not known) -> bytes. None where it is not known of some heap."""
    kept: Dict[Tuple[Optional[str], int], int] = {}
    for asked, groups in _find_pinned(session, heaps, labels):
        if asked.keeping is None or any(arena.kept_bytes is None for arena in asked.keeping.arenas):
            return None
        arenas = {arena.arena: arena for arena in asked.keeping.arenas}
        for group in groups:
            row = _make_row(asked.heap, asked.keeping, arenas.get(group.arena), group._replace(label=0), Labelled(labels, (), None))
            key = row.status, group.label if row.status == USED else 0
            kept[key] = kept.get(key, 0) + row.kept_bytes
    return None if session.budget.expired() else kept


def read_stopped_heaps(session: Session) -> List[PinsReading]:
    """Read the heaps, before the snapshot releases the process."""
    heaps: List[PinsReading] = []
    ask_heaps(session, heaps, session.target.kind != "core")
    return heaps


def ask_heaps(session: Session, heaps: List[PinsReading], copy: bool) -> None:
    """Read the heaps while the process is stopped. `copy`: their blocks are looked at when the process runs again."""
    if session.shared(HEAPS) is not None:
        return
    for heap in session.heaps.all():
        keeping = heap.kept()
        held = sum(row.held_bytes for row in heap.arenas())
        heaps.append(PinsReading(heap, keeping, list(heap.blocks()) if copy else heap.blocks(), held))


def rank_pin_groups(groups: Sequence[PinRow], whole: int) -> List[PinRow]:
    """Sort the groups: those that keep a hundredth or more by the bytes they keep for each byte of their own, then the rest by the bytes
    they keep.
    """

    def rank_key(group: PinRow) -> Tuple[bool, float, int, int]:
        is_small = group.kept_for_each is None or group.kept_bytes < SMALL_SHARE * whole
        return is_small, 0.0 if is_small else -(group.kept_for_each or 0.0), -group.kept_bytes, group.sample or 0

    return sorted(groups, key=rank_key)


def _label_blocks(session: Session, owners: bool, heaps: List[PinsReading]) -> Labelled:
    """Label the blocks by type, and with `owners` find their owners."""
    lacking = heap_graph.check_fit(session, PINS_BYTES) if owners else None
    if lacking is not None:
        what = make_sentence(
            "who owns the blocks was left out: that takes about %s, and this process may use %s", *map(SentenceSize, lacking)
        )
        session.problem(problems.GRAPH_TOO_LARGE, None, what, "run it where there is more memory")
    if not owners or lacking is not None:
        heap_graph.check_least(session, heap_graph.PINNED_BYTES)
        session.budget.progress.stage = "reading all blocks"
        known, names = census.label_by_rows(session, (heap.blocks() for heap in session.heaps.all()))
        ask_heaps(session, heaps, False)
        return Labelled(PinLabels(known), names, None)
    told = census.label_blocks(session, lambda graph: ask_heaps(session, heaps, session.target.kind != "core"))
    session.budget.progress.stage = "finding the owners of blocks"
    tallied = tally_owners(session, told.reach, told.called)
    least = int(LEAST_SHARED * tallied.used.bytes) + 1
    return Labelled(PinLabels(told.labels, told.reach.graph, tallied.tree, least), told.names, PinOwners(told, tallied))


def _make_rows(heap: AllocatorInstance, keeping: Keeping, groups: Sequence[PinGroup], labelled: Labelled) -> List[PinRow]:
    """Named, the same of all arenas together."""
    arenas: Dict[int, ArenaKeeps] = {kept.arena: kept for kept in keeping.arenas}
    sums: Dict[Tuple[object, ...], PinRow] = {}
    for group in groups:
        arena = arenas.get(group.arena)
        row = _make_row(heap, keeping, arena, group, labelled)
        if not row.kept_bytes:
            continue
        key = (row.signature, row.module, row.sure, row.owner, row.where, row.status, group.size)
        sums[key] = _merge_rows(sums[key], row) if key in sums else row
    return [row._replace(kept_for_each=round(row.kept_bytes / row.pins_bytes, 1) if row.pins_bytes else None) for row in sums.values()]


def _make_row(heap: AllocatorInstance, keeping: Keeping, arena: Optional[ArenaKeeps], group: PinGroup, labelled: Labelled) -> PinRow:
    returned = arena.returned_end_bytes if arena is not None and group.situation == RESERVE else 0
    where = keeping.words.get(group.situation, "")
    if arena is not None and group.situation == RESERVE:
        where = arena.reserve or where
    is_rest = group.situation == RESERVE and arena is not None and not arena.is_end_pinned
    name = labelled.names[group.label - 1] if group.label and group.status == PIN_USED and not is_rest else None
    return PinRow(
        kept_bytes=group.kept_bytes - returned,
        pins_blocks=0 if is_rest else group.blocks,
        pins_bytes=0 if is_rest else group.block_bytes,
        kept_for_each=None,
        size_bytes=group.least_bytes if group.blocks and group.least_bytes == group.most_bytes and not is_rest else None,
        signature=name.name if name is not None else None,
        module=name.module if name is not None else "",
        sure=name.sure if name is not None else "",
        owner=_find_owner(group, labelled) if not is_rest else None,
        where=where,
        status=None if is_rest else STATUSES.get(group.status),
        places=group.places,
        alone_bytes=0 if is_rest else group.alone_bytes,
        allocator=heap.info.id,
        arenas=[group.arena],
        sample=TargetAddress(group.sample) if group.sample and not is_rest else None,
    )


def _find_owner(group: PinGroup, labelled: Labelled) -> Optional[str]:
    return None if labelled.owners is None or group.status != PIN_USED else labelled.owners.name(group.top)


def _merge_rows(group: PinRow, other: PinRow) -> PinRow:
    return group._replace(
        kept_bytes=group.kept_bytes + other.kept_bytes,
        pins_blocks=group.pins_blocks + other.pins_blocks,
        pins_bytes=group.pins_bytes + other.pins_bytes,
        size_bytes=group.size_bytes if group.size_bytes == other.size_bytes else None,
        places=group.places + other.places,
        alone_bytes=group.alone_bytes + other.alone_bytes,
        arenas=sorted({*group.arenas, *other.arenas}),
        sample=group.sample if group.sample is not None else other.sample,
    )


def blocks_sentence(group: PinRow) -> Sentence:
    """`1204 blocks (96.0 KiB, Entry, held by g_index)`."""
    parts: List[Sentence] = [make_sentence("%s", SentenceSize(group.pins_bytes))]
    if group.status in STATUS_WORDS:
        parts.append(make_sentence(STATUS_WORDS[group.status]))
    elif group.signature is not None:
        parts.append(make_sentence("pointed to by %s" if group.sure == PLACE else "%s", group.signature))
    elif group.size_bytes is not None and group.pins_blocks > 1:
        parts.append(make_sentence("of %s each", SentenceSize(group.size_bytes)))
    if group.owner is not None:
        parts.append(make_sentence("%s", HELD.get(group.owner, "held by %s" % group.owner)))
    return make_sentence("%s (%s)", count_noun(group.pins_blocks, "block"), join_sentences(", ", parts))


def group_sentence(group: PinRow) -> Sentence:
    """The sentence on one group that has blocks."""
    return make_sentence("%s %s %s", blocks_sentence(group), "keeps" if group.pins_blocks == 1 else "keep", SentenceSize(group.kept_bytes))


def largest_group(kept: PinsAnswer) -> Optional[PinRow]:
    """The group that keeps most; None where no block keeps anything."""
    return max((group for group in kept.groups if group.pins_blocks), key=lambda group: group.kept_bytes, default=None)


def pins_finding(kept: PinsAnswer) -> Optional[Finding]:
    """The group that keeps most, for an answer about all of memory; None where no block keeps anything."""
    group = largest_group(kept)
    if group is None:
        return None
    part = format_share(group.kept_bytes, kept.kept_bytes or 0)
    evidence = "%s of %s of free memory that cannot be returned; nothing but these blocks keeps %s"
    what = make_sentence("%s of free memory from being returned", group_sentence(group))
    return Finding(
        what,
        make_sentence(evidence, part, SentenceSize(kept.kept_bytes), SentenceSize(group.alone_bytes)),
        "`%s` lists all such blocks" % hint_command("pins"),
        PINNED,
    )
