"""Candidates for the functions that may have allocated the blocks of a row of the census, with reasons for each; never a stack. A row is
tied to a site by words that the code stores into the new block and that nearly all blocks of the row have. Size alone ties nothing: where
a runtime calls malloc through a pointer, functions that ask for just such a size had allocated none of the blocks (docs/explanation/call-
sites.md).
"""

import struct
from collections import Counter
from functools import cache
from typing import Callable, Dict, Iterable, List, Mapping, Optional, Sequence, Tuple

from gdbheapx.addons.labs.sites.scan import Read, import_capstone, read_object_code, scan_code
from gdbheapx.allocators.session import Session
from gdbheapx.analysis import addon_answers
from gdbheapx.analysis.addon_answers import Joined
from gdbheapx.analysis.census import registry
from gdbheapx.analysis.census.cplusplus import ARRAY, SLAB
from gdbheapx.analysis.census.find import CensusRow, LabelSet
from gdbheapx.analysis.census.world import EXACT, SHAPE, CensusTarget
from gdbheapx.common.budget import allowed_bytes
from gdbheapx.common.errors import HeapxError
from gdbheapx.common.hints import hint_again
from gdbheapx.common.model import TargetAddress
from gdbheapx.common.problems import NOT_COPIED, NOT_IN_SNAPSHOT
from gdbheapx.inferior.base import Module

STORES, SIZE = "stores the address that they have at +0x%x", "asks for this size"
INNER = "lets +0x%x point into the block itself, as theirs does"
LINKS = "hands it to what links such nodes"
PUSHES = "stores its address at +0x%x of others, like those"
BEGINS = "stores its begin in it, as at +0x%x of theirs"
ALLOC = "their type's tp_alloc"
SAMPLE_BYTES, MOST_SAMPLE_BYTES, MOST_SAMPLES, MOST_SHARE = 128, 16 << 10, 32, 0.8
LEAST_LINKED = 3
NODE_BYTES = 16
MASK = (1 << 64) - 1
Sample = Tuple[int, bytes]
"""(address, what the block begins with)."""
MOST_SAMPLED = 200_000
LEAST_SHARE = 0.05
"""Of a row's blocks one size must have, to be looked for; of nodes each size counts."""
SLACK_BYTES, CLASS_SHARE, MAPPED_BYTES, PAGE_BYTES = 32, 4, 128 << 10, 4096
"""What malloc gives beyond what was asked for: less than so much, or a quarter of the block where it has size
classes, or a page where a block has a mapping of its own."""
Why = Callable[[addon_answers.Site], List[str]]
IsOne = Callable[[int], bool]
"""A block of the row begins at the address."""
Key = Tuple[Optional[str], str]
"""(signature, module) of a row."""


def join_sites(rows: Sequence[CensusRow], told: Optional[LabelSet], world: CensusTarget, scan: addon_answers.Scan) -> addon_answers.Joined:
    """Return the candidates of each row, by words that code stores into new blocks and that blocks of the row have."""
    by_address: Dict[int, List[addon_answers.Site]] = {}
    for site in scan.sites:
        for value in {word.value for word in site.words if word.kind == addon_answers.ADDRESS}.union(site.loose):
            by_address.setdefault(value, []).append(site)
    blocks = _sample_blocks(told) if told is not None else {}
    in_classes = any(heap.shape.in_size_classes for heap in world.session.heaps.all())
    made: List[addon_answers.RowSites] = []
    typed = few = 0
    for row in rows:
        own = blocks.get((row.signature, row.module)) or ([(int(row.sample), row.size_bytes or 0)] if row.sample is not None else [])
        samples = [
            (address, world.read(address, min(max(usable, SAMPLE_BYTES), MOST_SAMPLE_BYTES)))
            for address, usable in own[:: len(own) // MOST_SAMPLES + 1]
        ]
        sizes = Counter(usable for _, usable in own if usable)
        found = find_row_candidates(row, by_address, scan.sites, sizes, samples, in_classes, _make_row_test(row, told))
        if row.sure == EXACT and registry.has_typed_objects(row.module):
            more = [one for one in _by_type(world, samples, bool(found.sites)) if one.address not in {site.address for site in found.sites}]
            found = found._replace(sites=[*found.sites, *more])
        made.append(found)
        if row.sure in (EXACT, SHAPE):
            typed += row.bytes
            few += few_bytes(row, found.sites, sizes, in_classes)
    return addon_answers.Joined(made, len(scan.sites), scan.unread, typed, few)


def _make_row_test(row: CensusRow, told: Optional[LabelSet]) -> IsOne:
    """Asked of single blocks: there may be more than are looked at."""

    @cache
    def is_one(address: int) -> bool:
        node, offset = (told.reach.graph.find(address) if told is not None and 0 < address <= MASK else None) or (-1, 0)
        label = told.labels[node] if told is not None and 0 <= node < told.reach.numbers.blocks and not offset else 0
        name = told.names[label - 1] if told is not None and label else None
        return name is not None and (name.name, name.module) == (row.signature, row.module)

    return is_one


def few_bytes(row: CensusRow, sites: Sequence[addon_answers.SiteCandidate], sizes: Mapping[int, int], in_classes: bool) -> int:
    """Return the row's bytes in blocks of sizes that have one to FEW candidates, extrapolated from the blocks that were looked at."""
    total = sum(size * blocks for size, blocks in sizes.items())
    counted = sum(size * blocks for size, blocks in sizes.items() if 0 < len(at_size(row, sites, size, in_classes)) <= addon_answers.FEW)
    return row.bytes * counted // total if total else 0


def at_size(
    row: CensusRow, sites: Sequence[addon_answers.SiteCandidate], usable: int, in_classes: bool
) -> Sequence[addon_answers.SiteCandidate]:
    """Return the row's candidates that fit blocks of this usable size."""
    surplus = NODE_BYTES if row.signature in addon_answers.NODES else SLACK_BYTES
    return [
        site for site in sites if site.is_open or any(asked in possible_request_sizes(usable, in_classes, surplus) for asked in site.sizes)
    ]


def find_row_candidates(
    row: CensusRow,
    by_address: Dict[int, List[addon_answers.Site]],
    sites: Sequence[addon_answers.Site],
    sizes: Mapping[int, int],
    samples: Sequence[Sample],
    in_classes: bool,
    is_one: IsOne = lambda address: False,
) -> addon_answers.RowSites:
    """Return the candidates of one row. `sizes`: usable bytes of its blocks -> count; `samples`: the first bytes of some of them;
    `is_one`: True for an address at which a block of the row begins.
    """
    is_node = row.signature in addon_answers.NODES
    often = [size for size, blocks in sizes.items() if is_node or blocks >= LEAST_SHARE * sum(sizes.values())]
    ranges = [possible_request_sizes(usable, in_classes, NODE_BYTES if is_node else SLACK_BYTES) for usable in often]
    is_array = row.signature is not None and (row.signature.endswith(ARRAY) or row.signature.startswith(SLAB))

    @cache
    def fits_size(size: Optional[int]) -> bool:
        return any(size in one for one in ranges)

    words = {word for _, data in samples for (word,) in struct.iter_unpack("<Q", data[: min(len(data), SAMPLE_BYTES) // 8 * 8])}
    is_typed = registry.has_typed_objects(row.module)
    heads = [8 + head for head in registry.object_heads()] if is_typed else None
    pointed = {id(site): site for word in words for site in by_address.get(word, ())}.values() if not is_array else ()
    stored: Dict[int, List[int]] = {}
    for site in pointed:
        # one that asks for a size that no such block has is not it: a larger class begins with this one's constructor
        if site.size_bytes is None or site.floats or not often or fits_size(site.size_bytes):
            offsets = _find_shared_offsets(site, samples, heads)
            if offsets:
                stored[id(site)] = offsets
    chosen = [site for site in pointed if id(site) in stored]
    link = addon_answers.NODES.get(row.signature or "")
    if link is not None:
        chosen = [site for site in sites if site.link == link and fits_size(site.size_bytes)]

    inner: Dict[int, List[str]] = {}
    if row.module and row.sure in (EXACT, SHAPE) and not is_array and (not chosen or is_typed):
        for site in sites:
            if site.words and id(site) not in stored and (site.size_bytes is None or site.floats or fits_size(site.size_bytes)):
                inner[id(site)] = _find_self_references(site, samples, None if is_typed else is_one)  # its collector links them as well
        tied = [site for site in sites if inner.get(id(site))]
        if len(sizes) == 1 and any(site.size_bytes is not None for site in tied):
            # many sites put blocks before others: one whose size differs from call to call made none of those that all have one
            tied = [
                site
                for site in tied
                if site.size_bytes is not None or not {addon_answers.ITSELF, addon_answers.BEGIN}.isdisjoint(w.kind for w in site.words)
            ]
        chosen += tied

    def list_reasons(site: addon_answers.Site) -> List[str]:
        reasons = [STORES % offset for offset in stored.get(id(site), ())] + inner.get(id(site), [])
        reasons += [LINKS] if link is not None else []
        return reasons + ([SIZE] if not site.floats and fits_size(site.size_bytes) else [])

    of_size = {site.start for site in sites if site.size_bytes is not None and fits_size(site.size_bytes)}
    return addon_answers.RowSites(row.signature, row.module, row.bytes, _group_by_function(chosen, list_reasons), len(of_size))


def _find_shared_offsets(site: addon_answers.Site, samples: Sequence[Sample], only: Optional[Sequence[int]]) -> List[int]:
    """Offsets at which nearly all samples have the address that the site stores there; `only`: those that decide a type."""
    if site.floats and only is None:
        return []
    heads = registry.object_heads() if site.floats else (0,)
    stored = {(word.offset + head, word.value) for word in site.words if word.kind == addon_answers.ADDRESS for head in heads}
    stored |= {(offset, value) for value in site.loose for offset in only or ()}
    return sorted(
        offset
        for offset, value in stored
        if (only is None or offset in only)
        and sum(_word_from_bytes(data[offset : offset + 8]) == value & MASK for _, data in samples) >= MOST_SHARE * len(samples)
    )


def _find_self_references(site: addon_answers.Site, samples: Sequence[Sample], is_one: Optional[IsOne]) -> List[str]:
    """Return the reasons by words that the site stores into its block, that refer to this block or to an earlier one, and that nearly all
    samples have as well.
    """
    found = []
    for word, head in [(word, head) for word in site.words for head in (registry.object_heads() if site.floats else (0,))]:
        at, nearly = slice(word.offset + head, word.offset + head + 8), MOST_SHARE * len(samples)
        if word.kind == addon_answers.ITSELF and word.value != word.offset + addon_answers.STRING_BYTES:
            if (
                len(samples) >= LEAST_LINKED - 2 * (site.size_bytes is not None)
                and sum(_word_from_bytes(data[at]) == address + head + word.value for address, data in samples) >= nearly
            ):
                found.append(INNER % (word.offset + head))
        elif word.kind == addon_answers.PUSHED and not head and is_one is not None:
            others = [other for other in (_word_from_bytes(data[at]) for _, data in samples) if other]
            if len(others) >= LEAST_LINKED and sum(is_one(other - word.value) for other in others) >= MOST_SHARE * len(others):
                found.append(PUSHES % word.offset)
    return found + _find_begin_pointers(site, samples)


def _find_begin_pointers(site: addon_answers.Site, samples: Sequence[Sample]) -> List[str]:
    """Return the places where nearly all samples have a pointer to their own begin, next to words that the site stores there."""
    begins = [word for word in site.words if word.kind == addon_answers.BEGIN]
    beside = [word for word in site.words if word.kind == addon_answers.BEYOND]
    if not begins or not beside or not samples:
        return []
    places: Counter[int] = Counter()
    for address, data in samples:
        begin = ((address + begins[0].value) & MASK).to_bytes(8, "little")
        at = data.find(begin)
        while at >= 0:
            start = at - begins[0].offset
            if all(
                _word_from_bytes(data[start + word.offset : start + word.offset + 8]) == address + start + word.value for word in beside
            ):
                places[at] += 1
            at = data.find(begin, at + 1)
    return [BEGINS % place for place, count in places.items() if count >= MOST_SHARE * len(samples)]


def _word_from_bytes(data: bytes) -> int:
    return int.from_bytes(data, "little")


def _by_type(world: CensusTarget, samples: Sequence[Sample], beside: bool) -> List[addon_answers.SiteCandidate]:
    """The function by which the objects' type allocates its objects. A type that a file has is mostly allocated by functions of its own:
    then it counts only with such functions."""
    named, allocate = world.once(_name_functions), registry.allocator_in_type()
    for head in registry.object_heads():
        types = Counter(_word_from_bytes(data[8 + head : 16 + head]) for _, data in samples)
        for of_type, count in types.most_common(1):
            words = world.words(of_type + allocate, 1) if count >= MOST_SHARE * len(samples) else None
            if words is not None and words[0] in named:
                if not beside and any(start <= of_type < end for start, end, _ in world.target.image_ranges()):
                    return []
                module, name = named[words[0]]
                return [
                    addon_answers.SiteCandidate(
                        module.shown_name, name, TargetAddress(words[0]), words[0] - module.base, 1, (), True, [ALLOC]
                    )
                ]
    return []


def _name_functions(world: CensusTarget) -> Dict[int, Tuple[Module, str]]:
    """(module, name) of functions, by where they begin."""
    return {one.start: (module, one.name) for module in world.modules() for one in world.target.functions(module, exported=True)}


def possible_request_sizes(usable: int, in_classes: bool, surplus: int = SLACK_BYTES) -> range:
    """The sizes for which malloc may have given such a block. `surplus`: NODE_BYTES leaves those out that got what was left of a chunk."""
    slack = usable // CLASS_SHARE if in_classes else PAGE_BYTES + surplus if usable >= MAPPED_BYTES else 0
    return range(max(1, usable - max(surplus, slack) + 1), usable + 1)


def _group_by_function(sites: Iterable[addon_answers.Site], why: Why) -> List[addon_answers.SiteCandidate]:
    """Return one candidate for each function, with the calls and sizes of its sites."""
    calls: Dict[int, List[addon_answers.Site]] = {}
    for site in sites:
        calls.setdefault(site.start, []).append(site)
    return [
        addon_answers.SiteCandidate(
            module=some[0].module.shown_name,
            function=some[0].function,
            address=TargetAddress(start),
            offset=start - some[0].module.base,
            calls=len({site.address for site in some}),
            sizes=sorted({site.size_bytes for site in some if site.size_bytes is not None}),
            is_open=any(site.size_bytes is None or site.floats for site in some),
            why=sorted({reason for site in some for reason in why(site)}, reverse=True),
        )
        for start, some in sorted(calls.items())
    ]


def _sample_blocks(told: LabelSet) -> Dict[Key, List[Tuple[int, int]]]:
    """Return (address, usable bytes) of the blocks by row; a sample where there are very many."""
    count = told.reach.numbers.blocks
    ids = range(0, count, max(1, count // MOST_SAMPLED))
    made: Dict[Key, List[Tuple[int, int]]] = {}
    for place, block in zip(ids, told.reach.graph.blocks(ids)):
        label = told.labels[place]
        name = told.names[label - 1] if label else None
        if name is not None:
            made.setdefault((name.name, name.module), []).append(block)
    return made


def require_code_reader(session: Session) -> None:
    """Before a process is stopped for it: HeapxError where there can be no answer."""
    if not session.target.has_memory:
        raise HeapxError("a snapshot has no code", "ask the process or its core: %s" % hint_again(), code=NOT_IN_SNAPSHOT)
    import_capstone()


def find_sites(session: Session, rows: Sequence[CensusRow], labels: Optional[LabelSet], world: CensusTarget) -> Joined:
    """Return the functions that may have allocated the blocks of these rows. All is read from the copy of the process that was made
    during its stop, while the process runs on. `labels`: the labels of its blocks; None where there was no room for them. HeapxError where
    there is no copy, since reading code takes longer than the process may be paused, or no room for code.
    """
    target = session.target
    if target.kind == "live" and not (target.is_kept or target.held_by_caller or getattr(target, "held_by_gdb", True)):
        what = "there was no room for a copy of the process, and reading its code would pause it for too long"
        raise HeapxError(what, "allow more memory here, or ask of a core of it (gcore PID)", code=NOT_COPIED)
    return join_sites(rows, labels, world, scan_code(target, session.budget, world.constant(_read_code_of)))


def _read_code_of(world: CensusTarget) -> Read:
    return read_object_code(world.target, allowed_bytes() - world.session.copied_bytes)
