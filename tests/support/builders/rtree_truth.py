"""What a walk and a listing must say of the extents that builders.rtree made."""

from typing import Dict, List, Sequence, Tuple

from gdbheapx.kernel.common.library import histogram_class
from gdbheapx.kernel.jemalloc import records as api
from gdbheapx.kernel.jemalloc.records import BlockSizes
from tests.support.builders.rtree import ACTIVE, BINS, DIRTY, MUZZY, RETAINED, UNASSOCIATED, Built, Spec


def state_of(built: Built, spec: Spec) -> int:
    """As it is counted: what is active and has no size class is on its way."""
    if spec.state > RETAINED:
        return api.STATE_PINNED if spec.state == built.extent.pinned else api.STATE_OTHER
    return api.STATE_OTHER if spec.state == ACTIVE and spec.szind == len(built.size_classes) else spec.state


def regions(built: Built, number: int) -> List[Tuple[int, bool]]:
    """(address, free) of each region of a slab."""
    spec, begin, _ = built.placed[number]
    assert spec.free is not None
    shape = built.bins[spec.szind]
    return [(begin + place * shape.reg_size_bytes, bool(spec.free >> place & 1)) for place in range(shape.nregs)]


def allocated(built: Built) -> List[int]:
    """Every address that a thread cache may hold."""
    extents = []
    for number, (spec, begin, _) in enumerate(built.placed):
        if state_of(built, spec) == ACTIVE and spec.arena != UNASSOCIATED:
            extents += [begin + spec.offset] if spec.free is None else [address for address, free in regions(built, number) if not free]
    return extents


def expected(built: Built, cached: Sequence[int] = ()) -> api.ExtentsResult:
    """What a walk says, if every cached pointer is an allocated block."""
    counted = [(number, *row) for number, row in enumerate(built.placed) if row[0].arena != UNASSOCIATED]
    arenas = tuple(_arena(built, index, counted, set(cached)) for index in sorted({row[1].arena for row in counted}))
    ranges: List[Tuple[int, int]] = []
    for _, _, begin, end in counted:
        ranges = [*ranges[:-1], (ranges[-1][0], end)] if ranges and ranges[-1][1] == begin else [*ranges, (begin, end)]
    nodes = len(built.pieces) - bool(built.placed)
    leaf_size = built.rtree.leaf_bytes << built.rtree.levels[-1]
    leaves = len({built.leaf[page] for page in built.leaf} and {_node_of(built, built.leaf[page]) for page in built.leaf})
    leaves = 1 if len(built.rtree.levels) == 1 else leaves
    assert all(len(built.pieces[_node_of(built, place)]) == leaf_size for place in built.leaf.values())
    bits = 1 << built.rtree.lg_vaddr
    at = min(bits if not built.rtree.sign_extend else 1 << 64, (1 << 64) - 1)
    unassociated = len(built.placed) - len(counted)
    rests = [(number, begin) for number, spec, begin, _ in counted if _rest(built, spec)]
    details = tuple(api.ExtentProblem(api.EXTENT_BITMAP_REST, begin, built.structs + number * built.extent.size_bytes) for number, begin in rests)
    no_counts = (0,) * api.EXTENT_CODES
    return api.ExtentsResult(
        api.ExtentsSummary(1, at, nodes, leaves, len(counted), unassociated, 0, 0, 0, min(len(details), api.MOST_PROBLEMS), 0),
        arenas,
        tuple(ranges),
        (),
        no_counts,
        (),
        (0,) * api.CACHED_REASONS,
        details[: api.MOST_PROBLEMS],
        (*no_counts[:-1], len(details)),
    )


def _rest(built: Built, spec: Spec) -> int:
    """What the last group of a slab's bitmap has beyond its regions."""
    if spec.free is None or state_of(built, spec) != ACTIVE:
        return 0
    nregs, bits = built.bins[spec.szind].nregs, 8 * built.extent.word_bytes
    return spec.free >> nregs & (1 << -nregs % bits) - 1


def _node_of(built: Built, address: int) -> int:
    return max(begin for begin in built.pieces if begin <= address)


def _arena(built: Built, index: int, counted: Sequence[Tuple[int, Spec, int, int]], cached: "set[int]") -> api.ArenaExtents:
    mine = [row for row in counted if row[1].arena == index]
    states = [[row for row in mine if state_of(built, row[1]) == state] for state in range(api.STATES)]
    totals = [api.StateTotals(len(rows), sum(end - begin for _, _, begin, end in rows), None) for rows in states]
    bins: Dict[int, List[int]] = {}
    larges: Dict[int, List[int]] = {}
    rows: Dict[int, List[int]] = {}
    for number, spec, begin, end in states[ACTIVE]:
        if spec.free is None:
            hit = begin + spec.offset in cached
            _add(larges.setdefault(spec.szind, [0] * 4), (1, end - begin, hit, (end - begin) * hit))
        else:
            free = [free for _, free in regions(built, number)]
            held = sum(address in cached for address, _ in regions(built, number))
            _add(bins.setdefault(spec.szind, [0] * 4), (1, free.count(False), held, True in free))
    for state in (DIRTY, MUZZY, RETAINED, api.STATE_PINNED):
        for _, _, begin, end in states[state]:
            row = rows.setdefault(histogram_class(end - begin, 1 << built.rtree.lg_page), [0] * api.UNUSED_NUMBERS)
            row[2 * state - 2] += 1
            row[2 * state - 1] += end - begin
    return api.ArenaExtents(
        index, *totals, tuple(api.BinTotals(szind, *row) for szind, row in sorted(bins.items())),
        tuple(api.LargeTotals(szind, *row) for szind, row in sorted(larges.items())),
        tuple((place, *row) for place, row in sorted(rows.items())),
    )


def _add(sums: List[int], parts: Sequence[int]) -> None:
    for place, part in enumerate(parts):
        sums[place] += part


def blocks(built: Built, cached: Sequence[int], sizes: BlockSizes) -> List[Tuple[int, int, int, int]]:
    """Every block, in order."""
    rows = []
    held = set(cached)
    for number, (spec, begin, end) in enumerate(built.placed):
        if spec.arena == UNASSOCIATED:
            continue
        state = state_of(built, spec)
        if state != ACTIVE:
            status = (api.BLOCK_DIRTY, api.BLOCK_MUZZY, api.BLOCK_RETAINED, api.BLOCK_PINNED, api.BLOCK_OTHER)[state - 1]
            rows.append((begin, end - begin, status, spec.arena))
        elif spec.free is None:
            size = end - begin - sizes.large_pad_bytes if sizes.from_extent and spec.szind >= BINS else built.size_classes[spec.szind]
            rows.append((begin + spec.offset, size, api.BLOCK_CACHED if begin + spec.offset in held else api.BLOCK_USED, spec.arena))
        else:
            for address, free in regions(built, number):
                status = api.BLOCK_FREE if free else api.BLOCK_CACHED if address in held else api.BLOCK_USED
                rows.append((address, built.bins[spec.szind].reg_size_bytes, status, spec.arena))
    return rows


ABSENT = {api.BLOCK_USED: "used", api.BLOCK_CACHED: "cached", api.BLOCK_FREE: "free", api.BLOCK_DIRTY: "dirty", api.BLOCK_MUZZY: "muzzy", api.BLOCK_RETAINED: "retained"}
ABSENT.update({api.BLOCK_PINNED: "pinned", api.BLOCK_OTHER: "other"})


def absent(built: Built, cached: Sequence[int], runs: Sequence[int]) -> Dict[int, api.AbsentTotals]:
    """By arena: what is not in memory where these runs of pages are all that is, a byte at a time."""
    there = {byte for begin, end in zip(runs[::2], runs[1::2]) for byte in range(begin // UNIT, end // UNIT)}
    sums: Dict[int, Dict[str, int]] = {}

    def gone(begin: int, end: int) -> int:
        return sum(min(end, (unit + 1) * UNIT) - max(begin, unit * UNIT) for unit in range(begin // UNIT, -(-end // UNIT)) if unit not in there)

    rows = blocks(built, cached, built.heap().sizes)
    for spec, begin, end in built.placed:
        if spec.arena == UNASSOCIATED:
            continue
        parts = sums.setdefault(spec.arena, dict.fromkeys(api.AbsentTotals._fields, 0))
        left = gone(begin, end)
        for address, size, status, _ in (row for row in rows if begin <= row[0] < end):
            part = gone(address, min(end, address + size))
            parts[ABSENT[status]] += part
            left -= part
        parts["sampled" if spec.free is None and spec.szind < BINS else "rounding"] += left
    return {arena: api.AbsentTotals(**parts) for arena, parts in sums.items()}


UNIT = 256
