"""Every block by the stack of its owners, ways that are looked for one after the other, and by which slot: as their definitions give them.

Files: kernel/blocks/graph_queries.py, kernel/blocks/slots.py.
"""

import random
from array import array
from typing import Any, Dict, List, Tuple

import pytest

from gdbheapx.common.budget import Budget
from gdbheapx.kernel.binding import CKernel
from gdbheapx.kernel.blocks.graph import LEAKED, NO_NODE
from gdbheapx.kernel.blocks.graph_queries import encode_begin, owner_stacks
from gdbheapx.kernel.blocks.slots import SLOT_STRAY, SLOT_TWICE, Frees, SlotRun, SlotTally, SlotWalker
from gdbheapx.kernel.blocks.stream import CLASS_CACHED, CLASS_FREE, CLASS_OVERHEAD, CLASS_USED, BlockFilter, make_blocks
from gdbheapx.kernel.common.library import STOP_END, Kernel
from tests.support.worlds import build, make, roots_from

SHARED, LOST = 100, 101


@pytest.mark.parametrize("seed", range(12))
def test_stacks_of_owners(c_kernel: CKernel, seed: int) -> None:
    """A frame for each owner from the outermost in, equal ones in a row as one, no more than so many; each block counts once."""
    world, pick = make(seed), random.Random(seed)
    graph, most = build(c_kernel, world, [world.rows[0][0]]), 3 + seed
    first = roots_from(graph, world)
    graph.mark(first)
    tree, blocks = graph.dominators(first, (first, first)), graph.numbers().blocks
    labels, of_label = array("I", (pick.randrange(5) for _ in range(blocks))), [0, 1, 2, 2, 3]
    of_root = array("I", (200 + node % 3 for node in range(blocks, graph.nodes)))
    begins = array("I", (pick.choice((0, 0, 0, encode_begin(300, False), encode_begin(301, True))) for _ in range(blocks)))
    made = owner_stacks(c_kernel.library, graph, tree, labels, of_label, of_root, begins, LOST, SHARED, most)
    lost = {node for node, _ in graph.with_evidence((LEAKED,), 0, blocks)}
    sums: Dict[Tuple[int, ...], List[int]] = {}
    for node in range(blocks):
        way = [node]
        while tree.owners[way[-1]] != NO_NODE:
            way.append(tree.owners[way[-1]])
        frames: List[int] = []
        for step in reversed(way):
            told = begins[step] if step < blocks else 0
            if told & 1:
                frames = [told // 2 - 1]
            elif step < blocks and not frames:
                frames = [told // 2 - 1 if told else LOST if step in lost else SHARED]
            frame = of_label[labels[step]] if step < blocks else of_root[step - blocks]
            frames += [frame] if not frames or (frames[-1] != frame and len(frames) < most) else []
        row = sums.setdefault(tuple(frames), [0, 0])
        row[0], row[1] = row[0] + 1, row[1] + graph.blocks([node])[0][1]
    stacks: List[Tuple[int, ...]] = []
    for above, frame in zip(made.above, made.frames):
        stacks.append((*(() if above == NO_NODE else stacks[above]), frame))
    assert len(set(stacks)) == len(stacks)
    assert {stack: [count, size] for stack, count, size in zip(stacks, made.blocks, made.bytes) if count} == sums


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("is_any", [False, True])
def test_a_way_is_the_same_whenever_it_is_asked_for(c_kernel: CKernel, seed: int, is_any: bool) -> None:
    """One node after the other, in any order: each has the way that it has where all are looked for at once."""
    world = make(seed)
    graph = build(c_kernel, world, [world.rows[0][0]])
    first = roots_from(graph, world)
    graph.mark(first)
    expected, ways, nodes = graph.named_parents(first, is_any, 1), graph.ways(first, is_any, 1), list(range(first))
    random.Random(seed).shuffle(nodes)
    for node in nodes:
        parents = ways.parents_to(node)
        assert parents[node] == expected[node]
        while parents[node] != NO_NODE and node < first:
            node = parents[node]
            assert parents[node] == expected[node]


USED, FREE, CACHED, OWN = range(4)
CLASSES = (CLASS_USED, CLASS_FREE, CLASS_CACHED, CLASS_OVERHEAD)
LABELS = 5
Row = Tuple[int, int, int, int, int]


def flat(runs: List[SlotRun]) -> "array[int]":
    """As the kernel takes them."""
    return array("Q", [number for run in runs for number in run])


class Made:
    """Random runs, some right behind each other, with masks and lists; `rows`: what each slot is, by plain definition."""

    def __init__(self, seed: int, count: int = 30, most_slots: int = 200) -> None:
        rng, at = random.Random(seed), 0x10000
        self.runs: List[SlotRun] = []
        self.rows: List[Row] = []
        frees: Dict[int, int] = {}
        self.sums = [[0] * len(SlotTally._fields) for _ in range(LABELS)]
        for index in range(count):
            at += rng.choice((0, 16, 4096, 1 << 20))
            size, slots = 16 * rng.randrange(1, 40), rng.choice((1, 1, 5, 32, 64, most_slots))
            usable, mask = size - rng.choice((0, 4, 8)), rng.getrandbits(64)
            run = SlotRun(at, size, slots, usable, index, index % LABELS, rng.choice((USED, OWN)), FREE, mask, 7, True, 0)
            self.runs.append(run)
            for slot in range(slots):
                address = at + size * slot
                if rng.random() < 0.2:
                    frees[address] = rng.choice((FREE, CACHED))
                is_masked = slot < 64 and bool(mask >> slot & 1)
                kind = frees.get(address, FREE if is_masked else run.kind)
                self.rows.append((address, usable, CLASSES[kind], kind, index))
                sums, listed = self.sums[run.label], address in frees
                is_used = not listed and not is_masked
                for place, more in enumerate((is_used, is_masked and not listed, listed, usable * is_used, usable * (not is_used), size)):
                    sums[place] += more
            at += size * slots
        addresses = sorted(frees)
        self.frees = Frees(array("Q", addresses), array("B", [frees[address] for address in addresses]))

    def walker(self, kernel: Kernel, budget: Any = None) -> SlotWalker:
        """Over all of them."""
        return SlotWalker(kernel, None, flat(self.runs), CLASSES, LABELS, budget or Budget(), self.frees)


def rows(stream: Any) -> List[Row]:
    """All of them, one by one."""
    return [row for blocks in stream for row in zip(*blocks)]


@pytest.mark.parametrize("seed", range(12))
def test_slots_come_in_address_order_as_masks_and_lists_have_them(kernel: Kernel, seed: int) -> None:
    """Each slot once, with its status and what it belongs to; and the sums of all by label."""
    made = Made(seed)
    stream = made.walker(kernel).blocks()
    assert rows(stream) == made.rows
    assert stream.result is not None and stream.result.stop == STOP_END
    tallies = made.walker(kernel).tally()
    assert tallies.is_whole and not tallies.problem_count and not tallies.strays
    assert [list(row) for row in tallies.tallies] == made.sums


@pytest.mark.parametrize("seed", range(4))
def test_a_stream_begins_where_it_is_asked_to_and_leaves_out_what_is_not_wanted(kernel: Kernel, seed: int) -> None:
    """From any address, of any kinds and sizes, with blocks that lie apart."""
    made, rng = Made(seed), random.Random(seed)
    apart = make_blocks([(0x10000 - 64, 8, CLASS_OVERHEAD, OWN, 0), (made.rows[-1][0] + (1 << 30), 8, CLASS_OVERHEAD, OWN, 0)])
    for start in [0, 1 << 50] + [rng.choice(made.rows)[0] + rng.choice((-1, 0, 1)) for _ in range(20)]:
        wanted = BlockFilter(frozenset((USED, CACHED)), rng.randrange(300), rng.choice((None, 400)), start)
        expected = [row for row in made.rows if row[0] >= start and wanted.has(row[3], row[1])]
        expected += [row for row in zip(*apart) if row[0] >= start]
        assert rows(made.walker(kernel).blocks(wanted, apart)) == sorted(expected)


def test_addresses_of_a_list_that_are_no_slots_are_told(kernel: Kernel) -> None:
    """Inside a slot, between runs, behind all of them, and twice: each is named, and the others count."""
    run = SlotRun(0x1000, 32, 4, 32, 0, 0, USED, FREE, 0, 0, True, 0)
    addresses = [0x800, 0x1010, 0x1020, 0x1020, 0x1040, 0x9000]
    walker = SlotWalker(kernel, None, flat([run]), CLASSES, 1, Budget(), Frees(array("Q", addresses), array("B", [FREE] * 6)))
    tallies = walker.tally()
    codes = {(problem.address, problem.code) for problem in tallies.problems}
    assert codes == {(0x800, SLOT_STRAY), (0x1010, SLOT_STRAY), (0x1020, SLOT_TWICE), (0x9000, SLOT_STRAY)}
    assert (tallies.strays, tallies.problem_count) == (4, 4)
    assert tallies.tallies[0] == SlotTally(2, 0, 2, 64, 64, 128, 0)


@pytest.mark.parametrize(
    "runs",
    [
        [(0x1000, 32, 4), (0x1070, 16, 1)],
        [(0x2000, 32, 4), (0x1000, 16, 1)],
        [(0x1000, 0, 4)],
        [(0x1000, 32, 0)],
        [((1 << 64) - 32, 32, 2)],
    ],
)
def test_runs_that_overlap_or_leave_the_address_space_are_refused(kernel: Kernel, runs: Any) -> None:
    """The walks rely on it; so are labels and kinds that there are none of, and a list whose kinds are lacking."""
    made = [SlotRun(*run, run[1], 0, 0, USED, FREE, 0, 0, True, 0) for run in runs]
    with pytest.raises(ValueError):
        SlotWalker(kernel, None, flat(made), CLASSES, 1, Budget())
    good = SlotRun(0x1000, 32, 4, 32, 0, 0, USED, FREE, 0, 0, True, 0)
    for bad in (good._replace(label=1), good._replace(kind=64), good._replace(usable_bytes=33)):
        with pytest.raises(ValueError):
            SlotWalker(kernel, None, flat([bad]), CLASSES, 1, Budget())
    with pytest.raises(ValueError):
        SlotWalker(kernel, None, flat([good]), CLASSES, 1, Budget(), Frees(array("Q", [0x1000])))
