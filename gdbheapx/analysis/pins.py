"""Find the used blocks that keep free memory from being returned, their types and owners: each free byte once; and put that in a
sentence.
"""

from array import array
from typing import Annotated, Dict, Iterable, Iterator, List, NamedTuple, Optional, Sequence, Tuple

from gdbheapx.allocators.answers import Keeping, Term
from gdbheapx.allocators.heap import AllocatorInstance, plain_shape
from gdbheapx.allocators.session import Session
from gdbheapx.analysis.census import find as census
from gdbheapx.analysis.census.world import PLACE, Signature
from gdbheapx.analysis.reachability import heap_graph
from gdbheapx.analysis.reachability.dominance import LEAST_SHARED, OwnerTally, tally_owners
from gdbheapx.common import problems
from gdbheapx.common.columns import BYTES, IF_ANY, TEXT, Column
from gdbheapx.common.findings import PINNED
from gdbheapx.common.hints import hint_command
from gdbheapx.common.model import Finding, TargetAddress
from gdbheapx.common.units import Sentence, SentenceSize, count_noun, format_share, join_sentences, make_sentence
from gdbheapx.kernel.blocks.graph import NO_NODE
from gdbheapx.kernel.blocks.pages import BY_NOBODY, BY_SEVERAL, PIN_CACHED, PIN_OWN, PIN_USED, RESERVE, PinGroup, PinLabels
from gdbheapx.kernel.blocks.stream import NativeBlocks

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
        known = self._told.name_block(node) if node < len(self._told.labels) else None
        by = "%s 0x%x" % (known.name if known is not None else "block", reach.graph.blocks([node])[0][0])
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
    labels, names, pin_owners = _label_blocks(session, owners, heaps)
    heaps = session.shared(HEAPS) or heaps
    session.budget.progress.stage = "finding free memory between blocks in use"
    groups, sums = [], []  # type: List[PinRow], List[PinsSum]
    for asked, pinned in _find_pinned(session, heaps, labels):
        heap, keeping = asked.heap, asked.keeping
        if keeping is None:
            what = "which free memory %s cannot return is not known: there is no rule for it here" % heap.info.id
            hint = "free memory: %s; by size: %s" % (hint_command("arenas"), hint_command("arenas --sizes"))
            session.problem(problems.NO_RULE, None, what, hint)
            continue
        made = _make_rows(asked, pinned, names, pin_owners)
        total, known, returnable = sum(row.kept_bytes for row in made), keeping.kept_bytes, keeping.returnable_bytes
        command = heap.returning.command if heap.returning is not None and session.heaps.dry_run(heap) else None
        difference = None if known is None else total - known
        sums.append(PinsSum(heap.info.id, total, known, difference, keeping.terms, returnable, command))
        groups += made
    session.target.let_go()
    whole, is_cut = sum(group.kept_bytes for group in groups), session.budget.expired()
    if is_cut and not groups:
        raise session.budget.cut("the pinned memory was known")
    if is_cut:
        what = "%s before all blocks were read: more is pinned" % session.budget.reason
        session.problem(session.budget.code, None, what, session.budget.next_step)
    is_unknown = not all(map(_is_known, heaps))
    return PinsAnswer(
        kept_bytes=None if is_unknown and not whole else whole,
        groups=rank_pin_groups(groups, whole),
        sums=sums,
        has_owners=pin_owners is not None,
        held_bytes=sum(asked.held_bytes for asked in heaps),
        is_cut=is_cut or is_unknown,
        may_be_stale=any(asked.heap.shape.keeps_freed_content for asked in heaps),
    )


def _is_known(reading: PinsReading) -> bool:
    return reading.keeping is not None and all(arena.kept_bytes is not None for arena in reading.keeping.arenas)


def _find_pinned(session: Session, heaps: Sequence[PinsReading], labels: PinLabels) -> Iterator[Tuple[PinsReading, List[PinGroup]]]:
    first = 0
    for asked in heaps:
        shape = plain_shape(asked.heap.shape) if asked.keeping is None else asked.keeping.shape
        shape = shape._replace(page_bytes=max(session.target.page_bytes, shape.page_bytes))
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
        if not _is_known(asked):
            return None
        for group in groups:
            row = _make_row(asked, group, None, None)
            key = row.status, group.label if row.status == USED else 0
            kept[key] = kept.get(key, 0) + row.kept_bytes
    return None if session.budget.expired() else kept


def read_heaps(session: Session, is_whole: bool = True) -> List[PinsReading]:
    """Read the heaps while the process is stopped, unless the snapshot has them. `is_whole`: a process's blocks, which are looked at when
    it runs again, too.
    """
    if session.shared(HEAPS) is not None:
        return []
    heaps = []
    for heap in session.heaps.all():
        keeping, held = heap.kept(), sum(row.held_bytes for row in heap.arenas())
        is_copied = is_whole and session.target.kind != "core"
        heaps.append(PinsReading(heap, keeping, list(heap.blocks()) if is_copied else heap.blocks(), held))
    return heaps


def rank_pin_groups(groups: Sequence[PinRow], whole: int) -> List[PinRow]:
    """Sort the groups: those that keep a hundredth or more by the bytes they keep for each byte of their own, then the rest by the bytes
    they keep.
    """

    def rank_key(group: PinRow) -> Tuple[bool, float, int, int]:
        is_small = group.kept_for_each is None or group.kept_bytes < SMALL_SHARE * whole
        return is_small, 0.0 if is_small else -(group.kept_for_each or 0.0), -group.kept_bytes, group.sample or 0

    return sorted(groups, key=rank_key)


def _label_blocks(
    session: Session, owners: bool, heaps: List[PinsReading]
) -> Tuple[PinLabels, Sequence[Optional[Signature]], Optional[PinOwners]]:
    """Label the blocks by type, and with `owners` find their owners: return labels, their names and the owners."""
    lacking = heap_graph.check_fit(session, PINS_BYTES) if owners else None
    if lacking is not None:
        text = "who owns the blocks was left out: that takes about %s, and this process may use %s"
        what = make_sentence(text, *map(SentenceSize, lacking))
        session.problem(problems.GRAPH_TOO_LARGE, None, what, "run it where there is more memory")
    if not owners or lacking is not None:
        heap_graph.check_least(session, heap_graph.PINNED_BYTES)
        session.budget.progress.stage = "reading all blocks"
        known, names = census.label_by_rows(session, (heap.blocks() for heap in session.heaps.all()))
        heaps += read_heaps(session, False)
        return PinLabels(known), names, None
    told = census.label_blocks(session, lambda graph: heaps.extend(read_heaps(session)))
    session.budget.progress.stage = "finding the owners of blocks"
    tallied = tally_owners(session, told.reach, told.called)
    least = int(LEAST_SHARED * tallied.used.bytes) + 1
    return PinLabels(told.labels, told.reach.graph, tallied.tree, least), told.names, PinOwners(told, tallied)


def _make_rows(
    asked: PinsReading, groups: Sequence[PinGroup], names: Sequence[Optional[Signature]], owners: Optional[PinOwners]
) -> List[PinRow]:
    """Named, the same of all arenas together."""
    sums: Dict[Tuple[object, ...], PinRow] = {}
    for group in groups:
        is_used = group.status == PIN_USED
        name = names[group.label - 1] if group.label and is_used else None
        row = _make_row(asked, group, name, owners.name(group.top) if owners is not None and is_used else None)
        if row.kept_bytes:
            key = (row.signature, row.module, row.sure, row.owner, row.where, row.status, group.size)
            sums[key] = _merge_rows(sums[key], row) if key in sums else row
    return [row._replace(kept_for_each=round(row.kept_bytes / row.pins_bytes, 1) if row.pins_bytes else None) for row in sums.values()]


def _make_row(asked: PinsReading, group: PinGroup, name: Optional[Signature], owner: Optional[str]) -> PinRow:
    heap, keeping = asked.heap, asked.keeping
    assert keeping is not None
    where, kept, is_rest = keeping.words.get(group.situation, ""), group.kept_bytes, False
    arena = next((arena for arena in keeping.arenas if arena.arena == group.arena), None) if group.situation == RESERVE else None
    if arena is not None:
        where, kept, is_rest = arena.reserve or where, kept - arena.returned_end_bytes, not arena.is_end_pinned
    if is_rest:
        group, name, owner = group._replace(blocks=0, block_bytes=0, alone_bytes=0, sample=0), None, None
    signature, module, sure = name or (None, "", "")
    return PinRow(
        kept_bytes=kept,
        pins_blocks=group.blocks,
        pins_bytes=group.block_bytes,
        kept_for_each=None,
        size_bytes=group.least_bytes if group.blocks and group.least_bytes == group.most_bytes else None,
        signature=signature,
        module=module,
        sure=sure,
        owner=owner,
        where=where,
        status=None if is_rest else STATUSES.get(group.status),
        places=group.places,
        alone_bytes=group.alone_bytes,
        allocator=heap.info.id,
        arenas=[group.arena],
        sample=TargetAddress(group.sample) if group.sample else None,
    )


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


def group_sentence(group: PinRow) -> Sentence:
    """The sentence on one group that has blocks: `1204 blocks (96.0 KiB, Entry, held by g_index) keep 1.2 MiB`."""
    parts: List[Sentence] = [make_sentence("%s", SentenceSize(group.pins_bytes))]
    if group.status in STATUS_WORDS:
        parts.append(make_sentence(STATUS_WORDS[group.status]))
    elif group.signature is not None:
        parts.append(make_sentence("pointed to by %s" if group.sure == PLACE else "%s", group.signature))
    elif group.size_bytes is not None and group.pins_blocks > 1:
        parts.append(make_sentence("of %s each", SentenceSize(group.size_bytes)))
    if group.owner is not None:
        parts.append(make_sentence("%s", HELD.get(group.owner, "held by %s" % group.owner)))
    verb, blocks = "keeps" if group.pins_blocks == 1 else "keep", count_noun(group.pins_blocks, "block")
    return make_sentence("%s (%s) %s %s", blocks, join_sentences(", ", parts), verb, SentenceSize(group.kept_bytes))


def largest_group(kept: PinsAnswer) -> Optional[PinRow]:
    """The group that keeps most; None where no block keeps anything."""
    return max((group for group in kept.groups if group.pins_blocks), key=lambda group: group.kept_bytes, default=None)


def pins_finding(kept: PinsAnswer) -> Optional[Finding]:
    """The group that keeps most, for an answer about all of memory; None where no block keeps anything."""
    group = largest_group(kept)
    if group is None:
        return None
    figures = format_share(group.kept_bytes, kept.kept_bytes or 0), SentenceSize(kept.kept_bytes), SentenceSize(group.alone_bytes)
    evidence = make_sentence("%s of %s of free memory that cannot be returned; nothing but these blocks keeps %s", *figures)
    what = make_sentence("%s of free memory from being returned", group_sentence(group))
    return Finding(what, evidence, "`%s` lists all such blocks" % hint_command("pins"), PINNED)
