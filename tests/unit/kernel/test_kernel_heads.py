"""What blocks say at their begin about pointers to their inside: read off while the blocks are read."""

import random
from collections import Counter
from typing import Dict, List, Optional, Sequence, Tuple

import pytest

from gdbheapx.allocators.answers import four_to_a_doubling
from gdbheapx.inferior.base import BytesSource
from gdbheapx.kernel.binding import CKernel
from gdbheapx.kernel.blocks.graph import RULE_BASE, RULE_HABIT, RULE_INSIDE, RULE_TAG, Graph
from tests.support.worlds import DATA, HEAP, build, lay_out, pack_words, roots_from

IMAGE = 0x20000000
WORD = 8


def made_class(at: int, bases: Sequence[int], functions: int = 3, word: int = WORD) -> Tuple[List[int], Dict[int, int]]:
    """The words of a class's vtables from `at` on, and what its object has at each offset."""
    type_info, words, vtables = IMAGE + 0x8000 + (at & 0xFFF0), [], {}  # type: int, List[int], Dict[int, int]
    for offset in [0, *bases]:
        words += [-offset, type_info]
        vtables[offset] = at + word * len(words)
        words += [IMAGE + 0x9000 + one for one in range(functions)]
    return words, vtables


def graph_of(
    kernel: CKernel, blocks: Sequence[Sequence[int]], pointers: Sequence[int], image: bytes = b"", word: int = WORD, order: str = "little"
) -> Graph:
    """Blocks side by side, 16 bytes apart, and one root with these pointers."""
    data = {place(blocks, number, word): pack_words(words, word, order) for number, words in enumerate(blocks)}
    spans = [(IMAGE, IMAGE + len(image))] if image else []
    world = lay_out(data, {DATA: pack_words(pointers, word, order)}, order, word_bytes=word, images=spans)
    graph = build(kernel, world, image=BytesSource(((IMAGE, image),)) if spans else None)
    graph.mark(roots_from(graph, world))
    return graph


def place(blocks: Sequence[Sequence[int]], number: int, word: int = WORD) -> int:
    """Where the block begins."""
    return HEAP + sum(-(-len(words) * word // 16) * 16 + 16 for words in blocks[:number])


def values(places: int, order: Sequence[int], prefix: Optional[int] = None) -> List[int]:
    """An instance's attributes as CPython 3.11 and 3.12 keep them, set in that order."""
    own = 8 * (1 + (len(order) + 1) // 8)
    head = bytes(own - 2 - len(order)) + bytes(reversed(order)) + bytes((len(order), own if prefix is None else prefix))
    return [int.from_bytes(head[i : i + 8], "little") for i in range(0, own, 8)] + [1 << 50] * places


def test_attributes_of_instances(c_kernel: CKernel) -> None:
    """Behind what an instance's attributes say of themselves, also by 3.12's tag; nothing where an order is none, or tells another place."""
    good = [values(5, (1, 0)), values(10, tuple(range(9))), values(21, tuple(range(20, 0, -1)))]
    bad = [values(5, (1, 1)), values(5, (1, 7)), values(5, (1, 0), prefix=16), values(5, ()), values(2, (1, 2, 0))]
    blocks = [*good, *good, *bad]
    pointers = [place(blocks, i) + at for i, at in enumerate((8, 16, 24, 7, 15, 23, 8, 8, 8, 8, 8))]
    graph = graph_of(c_kernel, blocks, pointers)
    found = [graph.evidence(node) for node in range(len(blocks))]
    assert found == [RULE_HABIT] * 3 + [RULE_TAG, RULE_HABIT, RULE_HABIT] + [RULE_INSIDE] * 5
    beside = graph_of(c_kernel, good, [place(good, i) + at for i, at in enumerate((16, 8, 16))])
    assert [beside.evidence(node) for node in range(3)] == [RULE_INSIDE] * 3


def test_a_large_block_has_the_rest_of_a_page_or_class(c_kernel: CKernel) -> None:
    """SQLite's hash table of 256 KiB is a mapping of its own, and jemalloc gives 5,120 bytes for 4,368: behind its length is the block's begin."""
    good = ((0x40000, 266_224), (4368, 5120), (168, 192), (840, 896), (100, 112))
    bad = ((0x40000, 270_336), (4368, 6144), (200, 328), (5200, 5120), (110, 144))
    blocks = [[length] + [0] * (size // 8 - 1) for length, size in (*good, *bad)]
    graph = graph_of(c_kernel, blocks, [place(blocks, number) + 8 for number in range(10)])
    assert [graph.evidence(node) for node in range(10)] == [RULE_HABIT] * 5 + [RULE_INSIDE] * 5


def bases(image: Sequence[int], value: int, word: int) -> Dict[int, int]:
    """The second bases of a class whose own vtable is there, by the definition: pairs of an offset and the class's own type_info behind it."""
    at, rest = divmod(value - IMAGE, word)
    if rest or not 2 <= at < len(image) or image[at - 2] or not image[at - 1] or image[at - 1] % word:
        return {}
    pairs = [(-image[place] % (1 << 8 * word), IMAGE + word * (place + 2)) for place in range(at, len(image) - 1) if image[place + 1] == image[at - 1]]
    return {offset: vtable for offset, vtable in pairs if 0 < offset < 65535 and not offset % word}


def expected_rule(block: Sequence[int], offset: int, image: Sequence[int], word: int) -> int:
    """Of a pointer to an offset of a block: behind a number of elements, a length or the head of an old string; to a second base."""
    size, (first, second) = word * len(block), [*block, 0, 0][:2]
    if offset < word:
        return RULE_TAG
    if offset in (word, 2 * word) and offset + word <= size:
        count, room = block[offset // word - 1], size - offset
        is_array = 2 <= count <= room // word and room - count * (room // count // word * word) < 16
        slack = 16 if size < 65536 else 4096
        is_counted = first > 0 and (any(0 <= size - more - first < slack for more in (0, offset)) or size == four_to_a_doubling(first + offset))
        if is_array or is_counted:
            return RULE_HABIT
    if offset == 3 * word and size >= 4 * word and first <= second and second and 0 <= size - (second + 3 * word + 1) < 32:
        return RULE_HABIT
    known = bases(image, first, word)
    is_whole = all(place // word < len(block) and block[place // word] == vtable for place, vtable in known.items())
    return RULE_BASE if offset in known and is_whole else RULE_INSIDE


@pytest.mark.parametrize("word, order", [(8, "little"), (8, "big"), (4, "little"), (4, "big")])
def test_random_blocks_of_random_classes(c_kernel: CKernel, word: int, order: str) -> None:
    """Each pointer has the rule of the definition, also where vtables end with the image."""
    rng, met = random.Random(word), Counter()  # type: random.Random, Counter[int]
    for _ in range(20):
        words: List[int] = []
        classes = []
        for _ in range(6):
            at = IMAGE + word * len(words)
            more, vtables = made_class(at, sorted(rng.sample(range(word, 12 * word, word), rng.randrange(4))), rng.randrange(4), word)
            words += more
            classes.append(vtables)
        words = [one % (1 << 8 * word) for one in words[: len(words) - rng.randrange(3)]]
        blocks = []
        for _ in range(60):
            block = [rng.choice((0, 1, 2, 7, 20, 60, 100, IMAGE + rng.randrange(word * len(words)))) for _ in range(rng.randrange(1, 20))]
            for offset, vtable in rng.choice(classes).items() if rng.random() < 0.7 else ():
                if offset // word < len(block) and rng.random() < 0.95:
                    block[offset // word] = vtable
            blocks.append(block + [0] * (900 if rng.random() < 0.1 else 0))
        aims = [(number, word * rng.randrange(1, 12)) for number in range(len(blocks)) for _ in range(3)]
        pointers = [place(blocks, number, word) + offset for number, offset in aims]
        graph = graph_of(c_kernel, blocks, pointers, pack_words(words, word, order), word, order)
        inside = [(slot, number, offset) for slot, (number, offset) in enumerate(aims) if offset < word * len(blocks[number])]
        expected = [(number, expected_rule(blocks[number], offset, words, word), slot) for slot, number, offset in inside]
        found = {edge.slot: tuple(edge) for edge in graph.edges(len(blocks))}
        assert [found[slot] for slot, _, _ in inside] == expected
        met.update(rule for _, rule, _ in expected)
    assert min(met[rule] for rule in (RULE_BASE, RULE_HABIT, RULE_INSIDE)) > 0


def test_many_first_words(c_kernel: CKernel) -> None:
    """More first words than are kept cost no more reads."""
    image, reads = bytes(1 << 20), []  # type: bytes, List[int]

    def read(address: int, size: int) -> bytes:
        reads.append(address)
        return image[address - IMAGE : address - IMAGE + size]

    blocks = {HEAP + 32 * number: pack_words([IMAGE + 16 + 8 * number, 0]) for number in range(40_000)}
    graph = build(c_kernel, lay_out(blocks, {}, all_slots=False, images=[(IMAGE, IMAGE + len(image))]), image=read)
    assert len(reads) == 1 << 15 and graph.numbers().blocks == 40_000
