"""Contents that several blocks have: what could be in memory once. Compared byte by byte, on memory that is as it was."""

from typing import Annotated, Dict, List, NamedTuple, Optional, Sequence, Tuple

from gdbheapx.analysis.census import find
from gdbheapx.analysis.census.world import Signature, World
from gdbheapx.analysis.reachability import heap_graph
from gdbheapx.columns import BYTES, IF_ANY, TEXT, Column
from gdbheapx.errors import HeapxError
from gdbheapx.hints import hint_again
from gdbheapx.kernel.blocks import copies as kernel
from gdbheapx.model import TargetAddress
from gdbheapx.problems import NO_ANSWER, NOT_IN_SNAPSHOT, OUT_OF_MEMORY
from gdbheapx.session import Session
from gdbheapx.units import SentenceSize, make_sentence

MOST_CONTENTS = 1 << 16
"""That are told one by one: those with most to spare."""


class CopyRow(NamedTuple):
    """Blocks with one content."""

    signature: Annotated[Optional[str], Column("content", TEXT)]
    """Of the first one; None: nothing but its size is known."""
    module: Annotated[str, Column("module", TEXT, goes=2)]
    size_bytes: Annotated[int, Column("size", BYTES, goes=1)]
    """Of each: usable bytes."""
    blocks: Annotated[int, Column("blocks")]
    bytes: Annotated[int, Column("bytes", BYTES)]
    spare_bytes: Annotated[int, Column("would save", BYTES)]
    """All but one of them."""
    sample: Annotated[TargetAddress, Column("example", TEXT, goes=3)]


class CopyClass(NamedTuple):
    """Copies whose first block has one signature."""

    signature: Annotated[Optional[str], Column("type", TEXT)]
    module: Annotated[str, Column("module", TEXT, shown=IF_ANY, goes=2)]
    contents: Annotated[int, Column("contents")]
    """That differ."""
    blocks: Annotated[int, Column("blocks")]
    bytes: Annotated[int, Column("bytes", BYTES)]
    spare_bytes: Annotated[int, Column("would save", BYTES)]


class Zeros(NamedTuple):
    """Blocks that have nothing but zeros; some may never have been written to."""

    blocks: int
    bytes: int


class CopySearch(NamedTuple):
    """The answer."""

    rows: Sequence[CopyRow]
    """At most MOST_CONTENTS, those with most to spare first."""
    classes: Sequence[CopyClass]
    contents: int
    """That several blocks have: four or more blocks, or 64 KiB of them."""
    blocks: int
    bytes: int
    spare_bytes: int
    """If each content were there once."""
    zeros: Zeros
    unlike_blocks: int
    """Left out: numbers made of their contents are the same, the contents are not, or could not be read once more."""
    used_blocks: int
    used_bytes: int


def find_copies(session: Session, like: Optional[str], world: Optional[World]) -> Tuple[CopySearch, find.CensusLook]:
    """Find blocks with equal contents. `like`: only rows and classes that have this in their name. HeapxError if contents cannot be
    compared.
    """
    if world is None:
        what, next_step = "a snapshot has no contents to compare", "ask the process or its core: %s" % hint_again()
        raise HeapxError(what, next_step, code=NOT_IN_SNAPSHOT)
    lacking = heap_graph.check_fit(session, find.CENSUS_BYTES + kernel.COPIES_BYTES)
    if lacking is not None:
        what = make_sentence("comparing contents takes about %s of memory, and this process may use %s", *map(SentenceSize, lacking))
        raise HeapxError(what, "run it where there is more memory", code=OUT_OF_MEMORY)
    looked = find.take_census(session, world, owning=False, beyond=True)
    if not session.target.can_read_on or looked.told is None or looked.signer is None:
        raise HeapxError(
            "contents cannot be compared: the process was not copied, and runs on", "take a core and ask that: gcore PID", code=NO_ANSWER
        )
    session.budget.progress.stage = "comparing contents"
    compared = kernel.compare_contents(looked.signer, looked.told.reach.graph, MOST_CONTENTS)
    heap_graph.check_time(session)
    rows = [row for row in _make_copy_rows(looked.told, compared) if find.has_in_name(row.signature, like)]
    classes = [row for row in _make_copy_classes(looked.told, compared) if find.has_in_name(row.signature, like)]
    zeros, used = Zeros(compared.zero_blocks, compared.zero_bytes), (looked.census.blocks, looked.census.bytes)
    return CopySearch(rows, classes, *compared.all, zeros, compared.unlike_blocks, *used), looked


def _make_copy_rows(labels: find.LabelSet, compared: kernel.Compared) -> List[CopyRow]:
    places = labels.reach.graph.blocks([first for first, _ in compared.largest])
    rows = []
    for (first, blocks), (address, size) in zip(compared.largest, places):
        name, module = _name_label(labels, labels.labels[first])
        rows.append(CopyRow(name, module, size, blocks, blocks * size, (blocks - 1) * size, TargetAddress(address)))
    return rows


def _make_copy_classes(labels: find.LabelSet, compared: kernel.Compared) -> List[CopyClass]:
    sums: Dict[Tuple[Optional[str], str], CopyClass] = {}
    for label, tallied in enumerate(compared.by_label):
        if tallied.contents:
            key = _name_label(labels, label)
            before = sums.get(key, CopyClass(*key, 0, 0, 0, 0))
            sums[key] = CopyClass(*key, *map(sum, zip(before[2:], tallied)))
    return sorted(sums.values(), key=lambda row: (-row.spare_bytes, row.signature or "", row.module))


def _name_label(labels: find.LabelSet, label: int) -> Tuple[Optional[str], str]:
    name: Optional[Signature] = labels.names[label - 1] if label else None
    return (name.name, name.module) if name is not None else (None, "")
