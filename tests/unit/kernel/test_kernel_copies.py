"""Contents compared byte by byte, against plain groups of equal bytes.

Files: kernel/blocks/graph_queries.py, analysis/census/contents.py.
"""

import random
from collections import Counter
from typing import Dict, List, Tuple

from gdbheapx.budget import Budget
from gdbheapx.inferior.base import BytesSource
from gdbheapx.kernel.binding import CKernel
from gdbheapx.kernel.blocks.graph_queries import Compared, compare_contents
from gdbheapx.kernel.blocks.signatures import EQUAL, KNOWN, UNKNOWN, Condition, Referring, SignatureRow
from gdbheapx.kernel.blocks.stream import CLASS_USED, NO_ARENA, make_blocks
from tests.support.worlds import make, roots_from

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
    blank = make(0)
    shape = blank.shape._replace(heaps=[(HEAP, at)], mappings=[])

    def source(contents: List[bytes]) -> BytesSource:
        return BytesSource(((HEAP, b"".join(part.ljust((len(part) + 31) // 16 * 16, b"\x07") for part in contents)),))

    signer = kernel.signer(source(made), (8, True), [SignatureRow([Condition(0, 1, EQUAL, made[0][0])])], [], Budget())
    graph = kernel.graph(source(made), shape, Budget())
    signer.keep_contents(beyond=True)
    graph.sign(signer)
    graph.gather([iter([make_blocks([(place, len(part), CLASS_USED, 0, NO_ARENA) for place, part in zip(places, made)])])])
    graph.settle()
    graph.resolve()
    known = [KNOWN if one.row == 0 else UNKNOWN for one in signer.found()]
    signer.refer(graph, known, Referring(2, roots_from(graph, blank._replace(shape=shape, roots=[])), False, 0, least_same_bytes=1 << 40))
    signer.opened = kernel.open(source([later.get(number, part) for number, part in enumerate(made)]))
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
