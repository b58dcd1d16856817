"""What blocks say at their begin about pointers to their inside: both kernels read it off while they read the blocks."""

import random
from typing import Any, Dict, List, Optional, Sequence, Tuple

import pytest

from gdbheapx.budget import Budget
from gdbheapx.inferior.base import BytesSource, CallSource
from gdbheapx.kernel import Kernel
from gdbheapx.kernel.blocks.graph import RULE_BASE, RULE_HABIT, RULE_INSIDE, Graph, GraphShape
from gdbheapx.kernel.blocks.records import CLASS_USED, make_blocks

HEAP, DATA, IMAGE, OTHER = 0x10000000, 0x60000000, 0x20000000, 0x70000000
WORD = 8


def packed(words: Sequence[int], word: int = WORD, order: Any = "little") -> bytes:
    """As the target has them."""
    return b"".join((one & (1 << 8 * word) - 1).to_bytes(word, order) for one in words)


def made_class(at: int, bases: Sequence[int], functions: int = 3, word: int = WORD) -> Tuple[List[int], Dict[int, int]]:
    """The words of a class's vtables from `at` on, and what its object has at each offset."""
    type_info, words, vtables = IMAGE + 0x8000 + (at & 0xFFF0), [], {}  # type: int, List[int], Dict[int, int]
    for offset in [0, *bases]:
        words += [-offset, type_info]
        vtables[offset] = at + word * len(words)
        words += [IMAGE + 0x9000 + one for one in range(functions)]
    return words, vtables


def graph_of(
    kernel: Kernel, blocks: Sequence[Sequence[int]], pointers: Sequence[int], image: bytes, images: Optional[Sequence[Tuple[int, int]]] = None, word: int = WORD, order: str = "little"
) -> Graph:
    """Blocks side by side, 16 bytes apart, and one root with these pointers."""
    pieces, rows, at = [], [], HEAP
    for words in blocks:
        data = packed(words, word, order)
        pieces.append((at, data))
        rows.append((at, len(data), CLASS_USED, 0, 0))
        at += -(-len(data) // 16) * 16 + 16
    root = packed(pointers, word, order)
    spans = [(IMAGE, IMAGE + len(image))] if images is None else images
    shape = GraphShape([(HEAP, HEAP + 0x100000)], [], word, order == "little", 16, True, spans)
    graph = kernel.graph(BytesSource((*pieces, (DATA, root))), shape, Budget(), BytesSource(((IMAGE, image),)) if spans else None)
    graph.gather([iter([make_blocks(rows)])])
    graph.scan(DATA, DATA, DATA + len(root))
    graph.end_node()
    graph.settle()
    graph.resolve()
    graph.mark(len(rows))
    return graph


def place(blocks: Sequence[Sequence[int]], number: int, word: int = WORD) -> int:
    """Where the block begins."""
    return HEAP + sum(-(-len(words) * word // 16) * 16 + 16 for words in blocks[:number])


def test_second_bases(kernel: Kernel) -> None:
    """A pointer to where a class has its second or third vtable holds; beside it, in a torn object, or without images it is one to the inside."""
    words, vtables = made_class(IMAGE + 0x100, (16, 40))
    image = bytes(0x100) + packed(words) + bytes(0x1000)
    whole = [vtables[0], 1, vtables[16], 2, 3, vtables[40], 4, 5]
    torn = [vtables[0], 1, vtables[40], 2, 3, vtables[40], 4, 5]
    blocks = [whole, whole, whole, torn, [*whole, *[0] * 500]]
    pointers = [place(blocks, 0) + 16, place(blocks, 1) + 40, place(blocks, 2) + 48, place(blocks, 3) + 16, place(blocks, 4) + 40]
    found = [graph_of(kernel, blocks, pointers, image).evidence(node) for node in range(5)]
    assert found == [RULE_BASE, RULE_BASE, RULE_INSIDE, RULE_INSIDE, RULE_BASE]
    none = graph_of(kernel, blocks, pointers, image, images=())
    assert [none.evidence(node) for node in range(5)] == [RULE_INSIDE] * 5


def test_arrays_lengths_and_strings(kernel: Kernel) -> None:
    """Behind the number of elements, behind a length, behind the head of an old string; nothing of it in a block of zeros."""
    blocks = [
        [7, *[0] * 35],
        [99, 3, *[1] * 15],
        [100, *[0] * 13],
        [50, 100, 0, *[0x2020202020202020] * 13],
        [0] * 6,
        [1 << 40, 1 << 41, *[0] * 6],
    ]
    offsets = (8, 16, 8, 24, 24, 8)
    graph = graph_of(kernel, blocks, [place(blocks, number) + offset for number, offset in enumerate(offsets)], b"")
    assert [graph.evidence(node) for node in range(6)] == [*[RULE_HABIT] * 4, RULE_INSIDE, RULE_INSIDE]


@pytest.mark.parametrize("word, order", [(8, "little"), (8, "big"), (4, "little"), (4, "big")])
def test_both_kernels_agree(c_kernel: Kernel, python_kernel: Kernel, word: int, order: str) -> None:
    """On random blocks of random classes, also where vtables end with the image."""
    rng = random.Random(word)
    for _ in range(20):
        words: List[int] = []
        classes = []
        for _ in range(6):
            at = IMAGE + word * len(words)
            more, vtables = made_class(at, sorted(rng.sample(range(word, 12 * word, word), rng.randrange(4))), rng.randrange(4), word)
            words += more
            classes.append(vtables)
        image = packed(words[: len(words) - rng.randrange(3)], word, order)
        blocks = []
        for _ in range(60):
            block = [rng.choice((0, 1, 2, 7, 20, 60, 100, IMAGE + rng.randrange(len(image)))) for _ in range(rng.randrange(1, 20))]
            for offset, vtable in rng.choice(classes).items() if rng.random() < 0.7 else ():
                if offset // word < len(block) and rng.random() < 0.95:
                    block[offset // word] = vtable
            blocks.append(block + [0] * (900 if rng.random() < 0.1 else 0))
        pointers = [place(blocks, number, word) + word * rng.randrange(1, 12) for number in range(len(blocks)) for _ in range(3)]
        both = [graph_of(kernel, blocks, pointers, image, None, word, order) for kernel in (c_kernel, python_kernel)]
        root = len(blocks)
        assert both[0].edges(root) == both[1].edges(root)
        assert both[0].numbers().by_rule == both[1].numbers().by_rule
    assert min(both[0].numbers().by_rule[rule] for rule in (RULE_BASE, RULE_HABIT, RULE_INSIDE)) > 0


def test_many_first_words(c_kernel: Kernel) -> None:
    """More first words than are kept cost no more reads."""
    image, reads = bytes(1 << 20), []  # type: bytes, List[int]

    def read(address: int, size: int) -> bytes:
        reads.append(address)
        return image[address - IMAGE : address - IMAGE + size]

    blocks = [[IMAGE + 16 + 8 * number, 0] for number in range(40_000)]
    pieces = b"".join(packed(words) + bytes(16) for words in blocks)
    shape = GraphShape([(HEAP, HEAP + 0x1000000)], [], 8, True, 16, False, [(IMAGE, IMAGE + len(image))])
    graph = c_kernel.graph(BytesSource(((HEAP, pieces),)), shape, Budget(), CallSource(read))
    graph.gather([iter([make_blocks([(HEAP + 32 * number, 16, CLASS_USED, 0, 0) for number in range(40_000)])])])
    graph.settle()
    graph.resolve()
    assert len(reads) == 1 << 15 and graph.numbers().blocks == 40_000
