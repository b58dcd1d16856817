"""Which functions may have allocated the blocks of a row of the census: candidates, each with what speaks for it. Never a stack.

A class is tied to a site by the vtable that is stored in the new block. Size alone ties nothing: where a runtime calls malloc through a
pointer, functions that ask for just such a size had allocated none of the blocks (docs/explanation/call-sites.md).
"""

from typing import Callable, Dict, Iterable, List, NamedTuple, Optional, Sequence, Tuple

from gdbheapx.analysis.census.cplusplus import ARRAY, Classes
from gdbheapx.analysis.census.find import CensusRow, LabelSet
from gdbheapx.analysis.census.world import EXACT, SHAPE, World
from gdbheapx.analysis.sites.records import Scan, Site
from gdbheapx.model import Address

VTABLE, SIZE = "stores this class's vtable", "asks for this size"
FEW = 3
MOST_SAMPLED = 200_000
LEAST_SHARE = 0.05
"""Of a row's blocks one size must have, to be looked for."""
SLACK_BYTES, CLASS_SHARE, MAPPED_BYTES, PAGE_BYTES = 32, 4, 128 << 10, 4096
"""What malloc gives beyond what was asked for: less than so much, or a quarter of the block where it has size
classes, or a page where a block has a mapping of its own."""
Why = Callable[[Site], List[str]]
Key = Tuple[Optional[str], str]
"""(signature, module) of a row."""


class Candidate(NamedTuple):
    """A function that may have allocated such blocks."""

    module: str
    function: Optional[str]
    """None: no symbol table has its name."""
    address: Address
    """Where it begins, or a part of it."""
    calls: int
    """Of its calls that fit."""
    why: Sequence[str]


class RowSites(NamedTuple):
    """What is known for one row."""

    signature: Optional[str]
    module: str
    bytes: int
    sites: Sequence[Candidate]
    """All that store the vtable; empty: none was found, so the code that allocated the blocks is unknown."""
    size_functions: int
    """Functions with a call for such a size as a number in the code. They are no candidates: most calls ask for what differs."""


class Joined(NamedTuple):
    """The answer."""

    rows: Sequence[RowSites]
    calls: int
    """That were found in the code."""
    unread: Sequence[Tuple[str, str]]
    typed_bytes: int
    few_bytes: int
    """Of them with at most FEW candidates, and at least one."""


def join(rows: Sequence[CensusRow], told: Optional[LabelSet], world: World, scan: Scan) -> Joined:
    """By class, else by size."""
    sites = scan.sites
    by_class = _by_class(world, sites)
    by_size: Dict[int, List[Site]] = {}
    for site in sites:
        if site.size_bytes is not None:
            by_size.setdefault(site.size_bytes, []).append(site)
    sizes = _sizes(told) if told is not None else {}
    in_classes = any(heap.shape.in_size_classes for heap in world.session.heaps.all())
    made: List[RowSites] = []
    typed = few = 0
    for row in rows:
        found = candidates(row, by_class, by_size, sizes.get((row.signature, row.module), {}), in_classes)
        made.append(found)
        if row.sure in (EXACT, SHAPE):
            typed += row.bytes
            few += row.bytes if 0 < len(found.sites) <= FEW else 0
    return Joined(made, len(sites), scan.unread, typed, few)


def candidates(
    row: CensusRow, by_class: Dict[Key, List[Site]], by_size: Dict[int, List[Site]], sizes: Dict[int, int], in_classes: bool
) -> RowSites:
    """Of one row; `sizes`: usable bytes of its blocks -> how many."""
    is_array = row.signature is not None and row.signature.endswith(ARRAY)
    name = (row.signature or "")[: -len(ARRAY)] if is_array else row.signature
    stored = by_class.get((name, row.module), []) if row.sure == EXACT and not is_array else []
    if row.size_bytes is not None and not sizes:
        sizes = {row.size_bytes: row.blocks}
    often = [size for size, blocks in sizes.items() if blocks >= LEAST_SHARE * sum(sizes.values())]
    ranges = [asked_for(usable, in_classes) for usable in often]

    def fits(size: Optional[int]) -> bool:
        return any(size in one for one in ranges)

    # one that asks for a size that no such block has is not it: a larger class begins with this one's constructor
    fitting = [site for site in stored if site.size_bytes is None or not often or fits(site.size_bytes)]
    chosen = _functions(fitting, lambda site: [VTABLE, *([SIZE] if fits(site.size_bytes) else [])])
    of_size = {site.start for size, some in by_size.items() if fits(size) for site in some}
    return RowSites(row.signature, row.module, row.bytes, chosen, len(of_size))


def asked_for(usable: int, in_classes: bool) -> range:
    """The sizes for which malloc may have given such a block."""
    slack = usable // CLASS_SHARE if in_classes else PAGE_BYTES + SLACK_BYTES if usable >= MAPPED_BYTES else 0
    return range(max(1, usable - max(SLACK_BYTES, slack) + 1), usable + 1)


def _functions(sites: Iterable[Site], why: Why) -> List[Candidate]:
    """Each once."""
    calls: Dict[int, List[Site]] = {}
    for site in sites:
        calls.setdefault(site.start, []).append(site)
    return [
        Candidate(
            module=some[0].module.file_name,
            function=some[0].function,
            address=Address(start),
            calls=len({site.address for site in some}),
            why=sorted({reason for site in some for reason in why(site)}, reverse=True),
        )
        for start, some in sorted(calls.items())
    ]


def _by_class(world: World, sites: Sequence[Site]) -> Dict[Key, List[Site]]:
    """Sites by the class whose vtable they store."""
    classes = world.constant(Classes)
    found: Dict[Key, List[Site]] = {}
    for site in sites:
        known = classes.at(site.vtable) if site.vtable is not None else None
        if known is not None and not known.within:
            found.setdefault((known.name, known.module), []).append(site)
    return found


def _sizes(told: LabelSet) -> Dict[Key, Dict[int, int]]:
    """By row the sizes of its blocks, of a part of them where there are very many."""
    count = told.reach.numbers.blocks
    ids = range(0, count, max(1, count // MOST_SAMPLED))
    made: Dict[Key, Dict[int, int]] = {}
    for place, (_, usable) in zip(ids, told.reach.graph.blocks(ids)):
        label = told.labels[place]
        name = told.names[label - 1] if label else None
        if name is not None:
            sizes = made.setdefault((name.name, name.module), {})
            sizes[usable] = sizes.get(usable, 0) + 1
    return made
