"""Which used blocks keep free memory: each free byte in one group, as the definition says."""

import random
from array import array
from typing import Any, Callable, Dict, List, Sequence, Tuple

import pytest

from gdbheapx.common.budget import Budget
from gdbheapx.inferior.base import BytesSource
from gdbheapx.kernel.binding import CKernel
from gdbheapx.kernel.blocks.graph import LEAKED, NO_NODE
from gdbheapx.kernel.blocks.pages import (
    BY_NOBODY,
    BY_SEVERAL,
    PIN_CACHED,
    PIN_NONE,
    PIN_OWN,
    PIN_USED,
    ROOM,
    PinGroup,
    PinLabels,
    Pins,
    PinShape,
)
from gdbheapx.kernel.blocks.stream import CLASS_CACHED, CLASS_FREE, CLASS_USED, EVERYTHING, make_blocks
from gdbheapx.kernel.glibc.records import STATUS_FAST, STATUS_FREE, STATUS_TCACHE, STATUS_USED, NativeListed
from gdbheapx.kernel.glibc.walkers import ChunkWalker
from gdbheapx.kernel.jemalloc.walkers import ExtentWalker
from tests.support.builders import heap, rtree
from tests.support.builders.extent_cases import BINS, Spec, some_heap
from tests.support.builders.rtree import Variant
from tests.support.plain_pins import Key, PlainPins, Row
from tests.support.worlds import build, make, roots_from

NOTHING, UNLABELLED = BytesSource(()), PinLabels()
AT = 0x100000
PAGE = PinShape(4096, head_bytes=48)


def pins(kernel: CKernel, rows: Sequence[Tuple[int, int, int, int, int]], shape: PinShape = PAGE, labels: PinLabels = UNLABELLED) -> Pins:
    """That has taken these blocks, in two streams."""
    made = kernel.pins(NOTHING, shape, labels, 0, Budget())
    half = len(rows) // 2
    for part in (rows[:half], rows[half:]):
        made.stream(iter([make_blocks(part, in_order=False)]))
    return made


def side_by_side(*parts: Tuple[int, int]) -> List[Tuple[int, int, int, int, int]]:
    """(class, bytes) one after the other, from AT on, in arena 0; kinds are classes."""
    rows, at = [], AT
    for class_, size in parts:
        rows.append((at, size, class_, class_, 0))
        at += size
    return rows


def keys(labels: Sequence[int], has_sizes: bool = False) -> Callable[[Row, int], Key]:
    """Blocks are alike by their labels; those without one, and all of rooms, by their size."""

    def key(row: Row, ordinal: int) -> Key:
        status = PIN_USED if row[2] == CLASS_USED else PIN_CACHED if row[2] == CLASS_CACHED else PIN_OWN
        label = labels[ordinal] if status == PIN_USED and ordinal < len(labels) else 0
        return status, (label, BY_SEVERAL, row[1] if has_sizes or (status == PIN_USED and not label) else 0)

    return key


def sums(groups: Sequence[PinGroup]) -> Dict[Any, List[int]]:
    """As PlainPins has them."""
    keyed = (((one.status, one.size if one.status == PIN_NONE else (one.label, one.top, one.size)), one) for one in groups)
    return {(key, one.situation, one.arena): list(one[6:]) for key, one in keyed}


def told(group: PinGroup) -> Tuple[int, int, int, int, int]:
    return group.situation, group.status, group.kept_bytes, group.blocks, group.block_bytes


def test_the_allocators_own_blocks(c_kernel: CKernel) -> None:
    """A block that holds an address of the allocator's own is none of the program's."""
    rows = side_by_side((CLASS_USED, 64), (CLASS_FREE, 100), (CLASS_USED, 64))
    labels = PinLabels(array("I", [1, 1]), own=array("Q", [AT + 70, AT + 164 + 63]))
    assert [one[1:] for one in map(told, pins(c_kernel, rows[:2], labels=labels).found())] == [(PIN_USED, 100, 1, 64)]
    assert [one[1:] for one in map(told, pins(c_kernel, rows[1:], labels=labels).found())] == [(PIN_OWN, 100, 1, 64)]


@pytest.mark.parametrize("geometry", heap.GEOMETRIES)
@pytest.mark.parametrize("seed", range(6))
def test_heaps_of_chunks(c_kernel: CKernel, geometry: Any, seed: int) -> None:
    """What is kept is free + fast + top - what the walk counts as returned, by page sizes and words; the groups are those of the definition."""
    rng = random.Random(seed)
    spec: List[Tuple[int, int]] = []
    for _ in range(150):
        status = rng.choice((STATUS_USED, STATUS_USED, STATUS_FREE, STATUS_FAST, STATUS_TCACHE))
        if status == STATUS_FREE and spec and spec[-1][0] == STATUS_FREE:
            status = STATUS_USED
        unit = geometry.alignment_bytes
        size = rng.choice((geometry.min_chunk_bytes, 96, 1000, 4096, 4144, 30000)) if status != STATUS_FAST else rng.choice((64, 96))
        spec.append((status, max(geometry.min_chunk_bytes, (size + rng.randrange(64)) // unit * unit)))
    while spec[-1][0] == STATUS_FREE:
        spec.pop()
    built = heap.build(spec, geometry, rng.choice(("top", "fence")), seed=seed)
    word = geometry.word_bytes
    shape = PinShape(geometry.page_bytes, geometry.chunk_struct_bytes, 2 * word, [word] * 7, frozenset({STATUS_FAST}), (), ())
    labels = PinLabels(array("I", [rng.randrange(4) for _ in range(120)]))

    def stream() -> Any:
        return ChunkWalker(c_kernel, built.source, geometry, Budget()).blocks([NativeListed(built.region, 3)], built.cached_chunks, EVERYTHING, None)

    made = c_kernel.pins(built.source, shape, labels, 0, Budget())
    made.stream(stream())
    found, returned, used = made.found(), made.returned_bytes, made.used_blocks
    plain = PlainPins([row for batch in stream() for row in zip(*batch)], shape, keys(labels.labels))
    assert (sums(found), returned) == (plain.sums, plain.returned_bytes)
    expected = built.expected
    assert (returned, used) == (expected.interior_bytes, expected.used_chunks)
    free = expected.free_bytes + expected.fast_bytes + expected.top_bytes
    assert sum(one.kept_bytes for one in found) == free - returned
    assert all(one.alone_bytes <= one.kept_bytes and one.arena == 3 for one in found)
    assert all(one.blocks for one in found if one.status != PIN_NONE)


@pytest.mark.parametrize("seed", range(20))
def test_rooms(c_kernel: CKernel, seed: int) -> None:
    """Slabs: their free regions, with what is in use in the same slab; never two slabs together."""
    rng = random.Random(seed)
    made = [Spec(0, szind=rng.randrange(BINS), free=rng.getrandbits(320), gap=rng.choice((0, 0, 1))) for _ in range(12)]
    built = rtree.build(made, Variant((5, 8))) if seed else some_heap()
    sizes = sorted((one.reg_size_bytes, one.slab_size_bytes) for one in built.heap().bins)
    blocks = list(ExtentWalker(c_kernel, built.source, built.heap(), Budget()).blocks(array("Q")))
    shape, labels = PinShape(4096, rooms=sizes), PinLabels(array("I", [rng.randrange(3) for _ in range(200)]))
    one = c_kernel.pins(NOTHING, shape, labels, 0, Budget())
    one.stream(iter(blocks))
    found = one.found()
    rows = [row for batch in blocks for row in zip(*batch)]
    assert sums(found) == PlainPins(rows, shape, keys(labels.labels, has_sizes=True)).sums
    assert sum(one.kept_bytes for one in found) == sum(size for _, size, class_, _, _ in rows if class_ == CLASS_FREE)
    slabs = sum(1 for spec in made if spec.free is not None) if seed else 2
    assert 0 < sum(one.places for one in found) <= slabs and {one.situation for one in found} == {ROOM}


@pytest.mark.parametrize("seed", range(12))
def test_rooms_that_are_told_one_by_one(c_kernel: CKernel, seed: int) -> None:
    """Blocks lie anywhere in their regions and have any size: what is free in a room is kept by those in use there."""
    rng, rows, spans, at = random.Random(seed), [], array("Q"), 0x10000
    for _ in range(20):
        size, regions = rng.choice((64, 160, 4096)), rng.randrange(1, 9)
        at += rng.choice((0, 16, 8192))
        spans.extend((at, at + size * regions, size))
        for region in range(regions):
            is_free, lead = rng.random() < 0.5, rng.randrange(3) * 16
            usable = size - 4 if is_free else size - 4 - lead - rng.randrange(8)
            rows.append((at + size * region + (0 if is_free else lead), usable, CLASS_FREE if is_free else CLASS_USED, 0, 0))
        at += size * regions
    shape, labels = PinShape(4096, spans=spans), PinLabels(array("I", [1 + rng.randrange(3) for _ in rows]))
    one = c_kernel.pins(NOTHING, shape, labels, 0, Budget())
    one.stream(iter([make_blocks(rows)]))
    found = one.found()
    assert shape.by_rooms and {group.situation for group in found} <= {ROOM}
    assert sum(group.kept_bytes for group in found) == sum(row[1] for row in rows if row[2] == CLASS_FREE)
    has_pin = [any(begin <= row[0] < end and row[2] == CLASS_USED for row in rows) for begin, end in zip(spans[::3], spans[1::3])]
    has_free = [any(begin <= row[0] < end and row[2] == CLASS_FREE for row in rows) for begin, end in zip(spans[::3], spans[1::3])]
    assert sum(group.places for group in found if group.status != PIN_NONE) == sum(map(min, zip(has_pin, has_free)))
    assert {group.size for group in found} <= set(spans[2::3])


@pytest.mark.parametrize("seed", range(12))
def test_owners(c_kernel: CKernel, seed: int) -> None:
    """With a graph blocks are told by its numbers, and by the root, mapping or large shared block at the top of those that own them."""
    world, rng = make(seed, blocks=120), random.Random(seed)
    rows: List[Tuple[int, int, int, int, int]] = []
    for row in world.rows:
        gap = row[0] - (rows[-1][0] + rows[-1][1]) if rows else 0
        if 0 < gap < 4096:
            rows.append((rows[-1][0] + rows[-1][1], gap, CLASS_FREE, 0, 0))
        rows.append(row)
    chosen = array("I", [rng.randrange(3) for _ in world.rows])
    graph = build(c_kernel, world)
    first, blocks = roots_from(graph, world), graph.numbers().blocks
    graph.mark(first)
    tree = graph.dominators(first, (graph.nodes, graph.nodes))

    def key(row: Row, ordinal: int) -> Key:
        place = graph.find(row[0]) if row[2] == CLASS_USED else None
        if place is None or place[1]:
            return keys(())(row, 0)
        top = place[0]
        while tree.owners[top] != NO_NODE:
            top = tree.owners[top]
        is_leaked = top < blocks and graph.evidence(top) == LEAKED
        known = top >= blocks or (not is_leaked and tree.retained_bytes[top] >= 200)
        label = chosen[place[0]]
        return PIN_USED, (label, top if known else BY_NOBODY if is_leaked else BY_SEVERAL, 0 if label else row[1])

    found = pins(c_kernel, rows, labels=PinLabels(chosen, graph, tree, 200)).found()
    assert sums(found) == PlainPins(rows, PAGE, key).sums


@pytest.mark.parametrize("seed", range(30))
def test_blocks_in_any_disorder(c_kernel: CKernel, seed: int) -> None:
    """What damage makes of a stream (blocks that overlap, go back, or reach beyond all addresses) ends, in however many parts it comes."""
    rng = random.Random(seed)
    ends = ((1 << 64) - 4096, 0, 4096, AT, AT + 4096, AT + 9000)
    rows = [
        (rng.choice(ends) + rng.randrange(4000), rng.choice((0, 16, 100, 5000, (1 << 64) - 1, 1 << 40)), rng.randrange(6), rng.randrange(20), rng.randrange(3))
        for _ in range(60)
    ]
    shape = rng.choice((PAGE._replace(lead_bytes=16, overheads=(8, -8, 0)), PinShape(4096, rooms=((16, 4096), (100, 4096), (5000, 12288)))))
    labels = PinLabels(array("I", range(10)))
    whole = c_kernel.pins(NOTHING, shape, labels, 0, Budget())
    whole.stream(iter([make_blocks(rows, in_order=False)]))
    found = whole.found()
    assert found == pins(c_kernel, rows, shape, labels).found()
    assert all(one.alone_bytes <= one.kept_bytes and (one.blocks > 0 or one.status == PIN_NONE) for one in found)
