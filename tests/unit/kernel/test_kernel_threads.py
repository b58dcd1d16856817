"""The graph of a heap that is large enough for several threads is the same whatever their number.

Files: kernel/blocks/graph.py.
"""

import random
from array import array
from typing import Any, Dict, List, Optional, Sequence, Tuple

import pytest

from gdbheapx.common.budget import Budget, Progress
from gdbheapx.inferior.base import BulkSource, BytesSource
from gdbheapx.kernel.binding import CKernel
from gdbheapx.kernel.blocks import graph as graph_module
from gdbheapx.kernel.blocks.graph import Graph, GraphShape
from gdbheapx.kernel.blocks.signatures import ALL, AT_MOST, UNKNOWN, Condition, Referring, SignatureRow, Signer
from gdbheapx.kernel.blocks.stream import CLASS_USED, make_blocks
from gdbheapx.kernel.glibc.records import STATUS_USED, NativeListed
from gdbheapx.kernel.glibc.walkers import ChunkWalker
from gdbheapx.kernel.jemalloc.records import BLOCK_USED
from gdbheapx.kernel.jemalloc.walkers import ExtentWalker
from tests.support.builders import heap, rtree, rtree_truth
from tests.support.builders.extent_cases import PADDED

ROOT, IMAGE, APART = 0x60000000, 0x70000000, 0x7F0000000010
MEGABYTES = 24
THREADS = (1, 2, 3)
pytestmark = pytest.mark.once  # no Python changes where threads meet


class Made:
    """A heap of some MiB with pointers in it, a mapped chunk apart, and a root."""

    def __init__(self, kernel: CKernel, seed: int, values: int = 12) -> None:
        self.rng = random.Random(seed)
        data, self.region, self.cached_chunks = heap.large(seed, MEGABYTES, largest=3000)
        source = BytesSource(((self.region.begin, data),))
        rows = [row for blocks in self.blocks(kernel, source) for row in zip(*blocks)]
        self.used = [(address, usable) for address, usable, _, kind, _ in rows if kind == STATUS_USED and address < APART]
        self.words = array("Q", data)
        self.image = self._classes(values)
        for address, usable in self.used:
            self._fill(self.words, (address - self.region.begin) // 8, usable // 8)
        self.far = array("Q", bytes(1 << 20))
        self._fill(self.far, 0, len(self.far), 100_000)
        self.root = array("Q", bytes(65536))
        self._fill(self.root, 0, len(self.root), 500)

    def blocks(self, kernel: CKernel, source: BulkSource) -> Any:
        """The stream, with a block of a MiB beside it."""
        apart = make_blocks([(APART, 1 << 20, CLASS_USED, STATUS_USED, 0)])
        return ChunkWalker(kernel, source, heap.LP64, Budget()).blocks([NativeListed(self.region, 0)], self.cached_chunks, apart=apart)

    def _classes(self, values: int) -> bytes:
        """An image of classes with two vtables each, and as many places that are none."""
        words = array("Q")
        for place in range(values):
            at = IMAGE + 8 * len(words)
            words.extend((0, IMAGE + 8, at, at, (1 << 64) - 16, IMAGE + 8, at, at) if place % 2 else [0] * 8)
        return words.tobytes()

    def _fill(self, words: "array[int]", first: int, count: int, most: int = 4) -> None:
        rng, used = self.rng, self.used
        if count > 6 and rng.random() < 0.3:
            at = IMAGE + 64 * rng.randrange(len(self.image) // 64) + 16
            words[first], words[first + 2] = at, at + 32
        for _ in range(rng.randrange(most + 1)):
            address, usable = used[rng.randrange(len(used))]
            kind, slot = rng.random(), first + rng.randrange(count)
            words[slot] = address + (0 if kind < 0.7 else rng.randrange(usable) if kind < 0.9 else 16 - rng.randrange(16))
            if kind < 0.05 and slot + 1 < first + count:
                words[slot + 1] = address + usable + 8

    def pieces(self) -> List[Tuple[int, bytes]]:
        """Memory."""
        return [(self.region.begin, self.words.tobytes()), (ROOT, self.root.tobytes()), (APART, self.far.tobytes())]

    def graph(self, kernel: CKernel, source: BulkSource, slots: bool, own: Sequence[int] = (), signer: Optional[Signer] = None) -> Graph:
        """Everything is read and resolved."""
        heaps = [(self.region.begin, self.region.end), (APART - 16, APART + (1 << 20))]
        shape = GraphShape(heaps, [], 8, True, 16, slots, [(IMAGE, IMAGE + len(self.image))])

        def read(address: int, size_bytes: int) -> bytes:
            return self.image[address - IMAGE : address - IMAGE + size_bytes]

        graph = kernel.graph(source, shape, Budget(), read)
        if signer is not None:
            graph.sign(signer)
        graph.gather([self.blocks(kernel, source)], own)
        graph.scan(ROOT, ROOT, ROOT + 8 * len(self.root))
        graph.end_node()
        graph.settle()
        graph.resolve()
        return graph


def told(graph: Graph) -> Dict[str, Any]:
    """All that a file has of it, and what it was made of."""
    streams: Dict[int, bytes] = {}
    for stream, data in graph.pack([(0, 1 << 47, 0)], True):
        streams[stream] = streams.get(stream, b"") + data
    numbers = graph.numbers()
    sums = graph.mark(numbers.blocks)
    kinds = [kind for kind, one in enumerate(sums) if one.blocks]
    evidence = graph.with_evidence(kinds, 0, numbers.blocks)
    numbers = numbers._replace(bytes_read=0)  # a part begins with a read of its own
    return {"numbers": numbers, "streams": streams, "sums": sums, "evidence": evidence, "leaks": (graph.find_leak_roots(), graph.leak_groups())}


def alike(monkeypatch: pytest.MonkeyPatch, made: Made, kernel: CKernel, source: BulkSource, slots: bool = False, own: Sequence[int] = ()) -> Dict[str, Any]:
    """What any number of threads tells."""
    first: Optional[Dict[str, Any]] = None
    for threads in THREADS:
        monkeypatch.setattr(graph_module, "usable_cpus", lambda threads=threads: threads)
        found = told(made.graph(kernel, source, slots, own))
        first = first or found
        assert [key for key in first if found[key] != first[key]] == [], threads
    assert first is not None
    return first


@pytest.fixture(scope="module")
def made(c_kernel: CKernel) -> Made:
    """One heap for all tests that leave it as it is."""
    return Made(c_kernel, 5)


@pytest.mark.parametrize("slots", [False, True])
def test_a_graph_does_not_depend_on_the_number_of_threads(monkeypatch: pytest.MonkeyPatch, c_kernel: CKernel, made: Made, slots: bool) -> None:
    """Blocks, edges with all that is told of them, evidence and leaks; the allocator's own blocks are left out."""
    own = [address + 8 for address, _ in made.used[1000:2000:7]]
    found = alike(monkeypatch, made, c_kernel, BytesSource(tuple(made.pieces())), slots, own)
    assert found["numbers"].blocks == len(made.used) + 1 - len(own) and found["numbers"].candidates > 1 << 17
    assert all(found["numbers"].by_rule[:3]), "starts, tags and second bases"


def test_what_is_read_is_told_to_who_waits(monkeypatch: pytest.MonkeyPatch, c_kernel: CKernel, made: Made) -> None:
    """In thousandths that only grow: what several threads have read, not what one has; and how many pointers were followed."""
    for threads in (1, 2):
        seen: Dict[Any, List[int]] = {}

        def tick(progress: Progress, seen: Dict[Any, List[int]] = seen) -> None:
            if progress._done is not None:
                seen.setdefault(progress._done, []).append(progress._done())

        with monkeypatch.context() as patched:
            patched.setattr(graph_module, "usable_cpus", lambda threads=threads: threads)
            patched.setattr(Budget, "slice_s", lambda budget, seconds: 0.0005)
            patched.setattr(Progress, "tick", tick)
            made.graph(c_kernel, BytesSource(tuple(made.pieces())), False)
        read, followed = seen.values()
        assert all(one == sorted(one) and max(one) < 1000 for one in (read, followed)) and len(set(followed)) > 3, followed
        assert (len(set(read)) > 1) == (threads > 1), read  # how often one looks in between is the machine's affair


def test_nor_do_signatures(monkeypatch: pytest.MonkeyPatch, c_kernel: CKernel, made: Made) -> None:
    """Labels and their numbers, what had none, names by referrers, and equal contents."""
    rows = [
        SignatureRow([Condition(0, 8, AT_MOST, IMAGE + (1 << 20))], least_usable=40, key=(0, 8, ALL)),
        SignatureRow([Condition(0, 1, AT_MOST, 60)], key=(1, 1, 15), sized=True),
        SignatureRow([Condition(0, 1, AT_MOST, 130)], weak=True),
    ]
    source, first = BytesSource(tuple(made.pieces())), None
    for threads in THREADS:
        monkeypatch.setattr(graph_module, "usable_cpus", lambda threads=threads: threads)
        signer = c_kernel.signer(source, (8, True), rows, [], Budget())
        signer.keep_contents()
        graph = made.graph(c_kernel, source, True, signer=signer)
        found = [signer.found(), signer.rest(), signer.labels()]
        signer.refer(graph, [UNKNOWN] * signer.label_count(), Referring(2, graph.numbers().blocks, False, 0))
        found += [signer.found(), signer.labels(), signer.copied()]
        first = first or found
        assert found == first, threads
        assert signer.rest().blocks and {one.row for one in signer.found()} > {0, 1, 2}


def test_nor_where_memory_cannot_be_read(monkeypatch: pytest.MonkeyPatch, c_kernel: CKernel, made: Made) -> None:
    """A hole inside the block apart, and one where the heap goes on: the walk ends there, and what was cut behind it is thrown away."""
    main, root, far = made.pieces()
    torn = [(APART, far[1][:300_000]), (APART + 400_000, far[1][400_000:])]
    found = alike(monkeypatch, made, c_kernel, BytesSource((main, root, *torn)))
    assert found["numbers"].unread_bytes >= 100_000
    end = made.used[len(made.used) // 2][0] - made.region.begin + 4
    found = alike(monkeypatch, made, c_kernel, BytesSource(((main[0], main[1][:end]), root, far)))
    assert len(made.used) // 2 <= found["numbers"].blocks < len(made.used)


def test_nor_where_classes_are_more_than_are_looked_at(monkeypatch: pytest.MonkeyPatch, c_kernel: CKernel) -> None:
    """Which values are known then depends on the order in which blocks are read: one thread reads them."""
    made = Made(c_kernel, 11, 120_000)
    for address, usable in made.used:
        place = (address - made.region.begin) // 8
        at = IMAGE + 64 * made.rng.randrange(len(made.image) // 64) + 16
        made.words[place] = at
        if usable > 24:
            made.words[place + 2] = at + 32
    alike(monkeypatch, made, c_kernel, BytesSource(tuple(made.pieces())))


class MadeExtents:
    """A heap of jemalloc's of some MiB, with pointers in it; of the damaged one some structures are at random."""

    def __init__(self, seed: int, is_damaged: bool) -> None:
        rng = random.Random(seed)
        slab = [rtree.Spec(0, rtree.ACTIVE, 0, rng.randrange(rtree.BINS), rng.getrandbits(300)) for _ in range(2500)]
        large = [rtree.Spec(rng.choice((1, 4, 30, 300)), rng.choice((rtree.ACTIVE, rtree.ACTIVE, rtree.DIRTY)), 0, rtree.BINS + 1) for _ in range(150)]
        specs = slab + large
        rng.shuffle(specs)
        self.built = rtree.build(specs, rtree.Variant())
        self.used = [row[:2] for row in rtree_truth.blocks(self.built, [], PADDED) if row[2] == BLOCK_USED]
        self.begin, self.end = min(begin for _, begin, _ in self.built.placed), max(end for _, _, end in self.built.placed)
        words = array("Q", bytes(self.end - self.begin))
        for address, size in self.used:
            for _ in range(rng.randrange(4)):
                words[(address - self.begin) // 8 + rng.randrange(size // 8)] = rng.choice(self.used)[0] + rng.choice((0, 0, 0, 8))
        for number in rng.sample(range(len(specs)), 25 if is_damaged else 0):
            self.built.put(self.built.struct_of(number) + 8 * rng.randrange(4), rng.getrandbits(40), 8)
        pieces = [(address, bytes(data)) for address, data in self.built.pieces.items()]
        self.source = BytesSource(tuple(sorted([*pieces, (self.begin, words.tobytes())])))

    def graph(self, kernel: CKernel) -> Graph:
        """Everything is read and resolved; beside a heap of glibc's that has no arena."""
        graph = kernel.graph(self.source, GraphShape([(self.begin, self.end)], [], 8, True, 8, True), Budget())
        nothing = ChunkWalker(kernel, self.source, heap.LP64, Budget()).blocks([], [])
        graph.gather([ExtentWalker(kernel, self.source, self.built.heap(), Budget()).blocks([]), nothing])
        graph.settle()
        graph.resolve()
        return graph


@pytest.mark.parametrize("is_damaged", [False, True])
@pytest.mark.parametrize("seed", [1, 2])
def test_nor_does_one_of_jemalloc(monkeypatch: pytest.MonkeyPatch, c_kernel: CKernel, seed: int, is_damaged: bool) -> None:
    """Its blocks are read by one thread, and resolved by all; the first graph has the blocks that were built."""
    made = MadeExtents(seed, is_damaged)
    first: Optional[Dict[str, Any]] = None
    for threads in (1, 2, 3, 8):
        monkeypatch.setattr(graph_module, "usable_cpus", lambda threads=threads: threads)
        graph = made.graph(c_kernel)
        found = told(graph)
        first = first or found
        assert [key for key in first if found[key] != first[key]] == [], threads
    assert first is not None
    if is_damaged:
        assert 0 < first["numbers"].blocks < len(made.used)
    else:
        assert first["numbers"].blocks == len(made.used)
