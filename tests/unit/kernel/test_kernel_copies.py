"""Contents compared byte by byte against plain groups of equal bytes, blocks by label, words that may be addresses, and numbers by keys that a target chooses.

Files: kernel/blocks/graph_queries.py, analysis/census/contents.py, kernel/common/library.py, kernel/blocks/tally.h.
"""

import ctypes
import random
from array import array
from collections import Counter
from pathlib import Path
from typing import Dict, List, Tuple

import pytest

from gdbheapx.common.budget import Budget
from gdbheapx.kernel import build as compiling
from gdbheapx.kernel.binding import CKernel
from gdbheapx.kernel.blocks.graph_queries import Compared, compare_contents, find_labelled, renumber_labels
from gdbheapx.kernel.blocks.signatures import EQUAL, KNOWN, UNKNOWN, Condition, Referring, SignatureRow
from gdbheapx.kernel.common.library import Kernel, address_of
from tests.support.paths import PROGRAMS
from tests.support.worlds import GraphMemory, build, lay_out, roots_from

HEAP = 0x4000_0000


def parts() -> List[bytes]:
    """Contents of several sizes, some of them many times, the largest of more than is compared at once."""
    rng = random.Random(5)
    some = [(rng.randbytes(size - 1) + b"\x01", count) for size, count in ((64, 9), (96, 4), (96, 3), (2000, 40), (8192, 5), (200_000, 2), (56, 20))]
    made = [content for content, count in some for _ in range(count)] + [bytes(800)] * 6 + [rng.randbytes(800) for _ in range(50)]
    rng.shuffle(made)
    return made


def compared(kernel: CKernel, made: List[bytes], later: Dict[int, bytes], most: int = 100) -> Tuple[Compared, List[int]]:
    """What is said of blocks with these contents, when some have become others before they are compared; and where the blocks are."""
    places, at = [], HEAP
    for part in made:
        places.append(at)
        at += (len(part) + 31) // 16 * 16

    def contents(parts: List[bytes]) -> GraphMemory:
        return lay_out(dict(zip(places, parts)), {}, heaps=[(HEAP, at)])

    world = contents(made)
    signer = kernel.signer(world.source, (8, True), [SignatureRow([Condition(0, 1, EQUAL, made[0][0])])], [], Budget())
    signer.keep_contents(beyond=True)
    graph = build(kernel, world, prepare=lambda graph: graph.sign(signer))
    known = [KNOWN if one.row == 0 else UNKNOWN for one in signer.found()]
    signer.refer(graph, known, Referring(2, roots_from(graph, world), False, 0, least_same_bytes=1 << 40))
    signer.opened = kernel.open(contents([later.get(number, part) for number, part in enumerate(made)]).source)
    return compare_contents(signer, graph, most), places


def groups(made: List[bytes]) -> List[Tuple[int, bytes, int]]:
    """(bytes to spare, content, blocks) of contents that enough blocks have, most first."""
    counts = {part: count for part, count in Counter(made).items() if len(part) >= 64 and any(part)}
    often = [(part, count) for part, count in counts.items() if count >= 4 or (count > 1 and count * len(part) >= 64 << 10)]
    return sorted(((len(part) * (count - 1), part, count) for part, count in often), reverse=True)


def test_equal_ones_are_told(c_kernel: CKernel) -> None:
    """Each content with its blocks, those first that would save most; zeros apart; the sums of all, and of each label."""
    made = parts()
    found, _ = compared(c_kernel, made, {})
    expected = groups(made)
    assert [(made[first], blocks) for first, blocks in found.largest] == [(part, count) for _, part, count in expected]
    assert all(first == made.index(made[first]) for first, _ in found.largest)
    sums = [len(expected), sum(count for _, _, count in expected), sum(len(part) * count for _, part, count in expected)]
    assert list(found.all) == [*sums, sum(spare for spare, _, _ in expected)]
    assert (found.zero_blocks, found.zero_bytes, found.unlike_blocks) == (6, 4800, 0)
    assert [sum(column) for column in zip(*found.by_label)] == list(found.all)
    few, _ = compared(c_kernel, made, {}, most=2)
    assert few.largest == found.largest[:2] and few.all == found.all


@pytest.mark.parametrize("most", [0, 3, 1000])
def test_blocks_of_some_labels(c_kernel: CKernel, most: int) -> None:
    """In their order, no more than so many."""
    labels = array("I", random.Random(most).choices(range(9), k=500))
    expected = [block for block, label in enumerate(labels) if label in (2, 5)]
    assert list(find_labelled(c_kernel.library, labels, (2, 5), 7, most)) == expected[:most]


@pytest.mark.parametrize("letter", "BHI")
def test_labels_by_other_numbers(c_kernel: CKernel, letter: str) -> None:
    """Little endian, of the first blocks; a label without a number is refused."""
    width, labels = array(letter).itemsize, array("I", random.Random(letter).choices(range(9), k=500))
    numbers = [(label * 0x01234567) & ((1 << 8 * width) - 1) for label in range(9)]
    expected = b"".join(numbers[label].to_bytes(width, "little") for label in labels[:400])
    assert renumber_labels(c_kernel.library, labels, 400, numbers, width) == expected
    with pytest.raises(ValueError, match="a number for each label"):
        renumber_labels(c_kernel.library, labels, 400, numbers[:3], width)
    with pytest.raises(ValueError, match="a number for each label"):
        renumber_labels(c_kernel.library, labels, 501, numbers, width)


BASE = 0x7F0000001003
RANGES = [[], [(0x1000, 0x2000)], [(0x1000, 0x2000), (0x2000, 0x3000)], [(64 * n, 64 * n + 24) for n in range(1, 400)], [(1, (1 << 64) - 1)]]


@pytest.mark.parametrize("ranges", RANGES)
@pytest.mark.parametrize("mask", [0, 7, 63])
def test_words_into_ranges(kernel: Kernel, ranges: List[Tuple[int, int]], mask: int) -> None:
    """As each word by itself tells; zeros lead nowhere, and bytes before the first aligned word and behind the last are no words."""
    pick = random.Random(mask + len(ranges))
    memory: List[Tuple[int, bytes]] = []
    for start in (BASE, BASE + 0x5005, BASE + 0x8000):
        words = [pick.choice((0, 8 * pick.randrange(1 << 12), pick.randrange(1 << 15), pick.randrange(1 << 64))) for _ in range(500)]
        memory.append((start, bytes(-start & 7) + b"".join(word.to_bytes(8, "little") for word in words) + b"\1\2\3"))
    expected = []
    for start, data in memory:
        for at in range(-start & 7, len(data) - 7, 8):
            word = int.from_bytes(data[at : at + 8], "little")
            if not word & mask and any(low <= word < high for low, high in ranges):
                expected.append((start + at, word))
    before = kernel.searched_words
    assert kernel.find_addresses(memory, ranges, mask) == expected and (expected or not ranges)
    assert kernel.searched_words - before == 1500
    assert kernel.find_addresses([(BASE, b"short")], ranges, mask) == []


LONGEST_ROW = (PROGRAMS / "longest_row.c").read_text()
"""Of the table's places, those in a row that are taken: a look at a key may take as many steps."""
FACTOR, WORD_MASK = 0x9E3779B97F4A7C15, (1 << 64) - 1


def unmixed(place: int) -> int:
    """The key that the function mixed() makes this of."""
    place = place ^ place >> 29 ^ place >> 58
    place = place * pow(FACTOR, -1, 1 << 64) & WORD_MASK
    return place ^ place >> 31 ^ place >> 62


@pytest.mark.parametrize("step", (1 << 24, 1))
def test_chosen_keys_stand_in_no_long_row(tmp_path: Path, step: int) -> None:
    """Keys whose lower bits are all alike when they are mixed in a way that is known, and keys that follow each other."""
    words, texts = compiling.find_compiler(), compiling.all_sources()
    if words is None:
        pytest.skip("no C compiler here")
    texts = {path: text for path, text in texts.items() if path.endswith(".h") or path.startswith("common")}
    texts["blocks/longest_row.c"] = LONGEST_ROW
    done = compiling.compile_into(str(tmp_path / "row.so"), words, texts, 0)
    assert done.returncode == 0, done.stdout
    function = ctypes.CDLL(str(tmp_path / "row.so")).longest_row
    function.argtypes, function.restype = (ctypes.c_void_p, ctypes.c_uint32), ctypes.c_uint32
    keys = array("Q", (unmixed(number * step) if step > 1 else number << 16 for number in range(1, 20001)))
    assert function(address_of(keys), len(keys)) < 1000
