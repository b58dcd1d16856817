"""Every block by the stack of its owners, and ways that are looked for one after the other: as their definitions give them.

Files: kernel/blocks/graph_queries.py.
"""

import random
from array import array
from typing import Dict, List, Tuple

import pytest

from gdbheapx.kernel.binding import CKernel
from gdbheapx.kernel.blocks.graph import LEAKED, NO_NODE
from gdbheapx.kernel.blocks.graph_queries import encode_begin, owner_stacks
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
