"""Java objects as the native library walks, marks and searches them: each way to write a header, sizes, references, gaps, hostile numbers."""

import os
import random
from array import array
from pathlib import Path
from typing import Dict, Iterable, List, Optional, Sequence, Set, Tuple

import pytest

from gdbheapx.addons.runtimes.jvm import java_holders
from gdbheapx.addons.runtimes.jvm.java_classes import FINAL, MIRROR, PHANTOM, SOFT, STACK_CHUNK, WEAK
from gdbheapx.addons.runtimes.jvm.java_holders import ANY_ELEMENT, IS_OBJECT, MARK_SETS, ObjectWalker, WalkSums
from gdbheapx.common.budget import Budget
from gdbheapx.inferior.base import BulkSource, BytesSource, FileSource, Segment
from gdbheapx.kernel import load_native_library
from gdbheapx.kernel.binding import open_kernel
from gdbheapx.kernel.common import library
from gdbheapx.kernel.common.library import Kernel
from tests.support.builders.java_objects import CASES, CHUNK, HEAP, MALLOC, JavaCase, JavaObjects, make_random_objects

NARROW = CASES[0]
SKIPPED = (FINAL, PHANTOM)


@pytest.fixture(name="kernel", scope="module")
def load_kernel() -> Kernel:
    """The library, or the one that HEAPX_TEST_LIBRARY names."""
    named = os.environ.get("HEAPX_TEST_LIBRARY")
    return open_kernel(named) if named else load_native_library()


def make_walker(
    kernel: Kernel, heap: JavaObjects, source: Optional[BulkSource] = None, parts: Iterable[Tuple[int, int]] = ()
) -> ObjectWalker:
    """A walker over all of it, or over these parts."""
    return ObjectWalker(kernel, source or heap.source(), heap.shape, heap.classes, list(parts) or heap.parts, Budget(), stack_chunk=CHUNK)


def count_classes(heap: JavaObjects, addresses: Iterable[int]) -> Tuple[List[int], List[int]]:
    """Objects and bytes by class."""
    objects, sizes = [0] * len(heap.classes), [0] * len(heap.classes)
    for address in addresses:
        index, size = heap.objects[address]
        objects[index] += 1
        sizes[index] += size
    return objects, sizes


def check_walk(heap: JavaObjects, walker: ObjectWalker) -> None:
    """Each object is there, and nothing else."""
    sums, objects, sizes = walker.walk_objects()
    assert (list(objects), list(sizes)) == count_classes(heap, heap.objects)
    assert sums == WalkSums(1, 0, 0)


def count_objects(walker: ObjectWalker) -> int:
    """Walk, and return how many objects there are."""
    return sum(walker.walk_objects()[1])


def list_starts(walker: ObjectWalker, begin: int, end: int, bit: int = IS_OBJECT) -> Set[int]:
    """Addresses with this bit."""
    addresses = array("Q", range(begin, end, 8))
    return {address for address, byte in zip(addresses, walker.look_up(addresses)) if byte & bit}


def sources_of(heap: JavaObjects, folder: Path) -> Dict[str, BulkSource]:
    """The heap in bytes, behind a call, and in a file."""
    data, begin = bytes(heap.data), heap.begin
    (folder / "heap").write_bytes(bytes(4096) + data)
    return {
        "bytes": heap.source(),
        "call": lambda address, size: data[address - begin :][:size] if begin <= address < begin + len(data) else b"",
        "file": FileSource(str(folder / "heap"), (Segment(begin, len(data), 4096),)),
    }


@pytest.mark.parametrize("case", CASES, ids=str)
@pytest.mark.parametrize("seed", range(3))
def test_random_heaps(kernel: Kernel, case: JavaCase, seed: int, tmp_path: Path) -> None:
    """Objects, marks of three kinds and parents are the truth's, from any source."""
    rng = random.Random(seed)
    heap = make_random_objects(case, rng, 1500)
    addresses = list(heap.objects)
    roots = rng.sample(addresses, 5) + [addresses[0] + 4, 0, 1 << 63, (1 << 64) - 8]
    for source in sources_of(heap, tmp_path).values():
        walker = make_walker(kernel, heap, source)
        check_walk(heap, walker)
        assert list_starts(walker, heap.begin, heap.at) == set(heap.objects)
        assert (
            walker.mark_objects(0, roots, with_parents=True)
            and walker.mark_objects(1, roots, SKIPPED)
            and walker.mark_objects(2, roots[:1])
        )
        wanted = [heap.reached(roots), heap.reached(roots, SKIPPED), heap.reached(roots[:1])]
        assert [list_starts(walker, heap.begin, heap.at, 1 << bit) for bit in range(3)] == wanted
        assert walker.list_reached_classes(1) == sorted({heap.objects[address][0] for address in wanted[1]})
        for address in rng.sample(addresses, 200):
            check_path(heap, walker, roots, address, address in wanted[0])
        list(walker.iterate_border([]))
        objects, sizes = walker.count_marked()
        for marks in range(MARK_SETS):
            chosen = [one for one in addresses if sum((one in reached) << bit for bit, reached in enumerate(wanted)) == marks]
            assert (list(objects[marks::MARK_SETS]), list(sizes[marks::MARK_SETS])) == count_classes(heap, chosen)


def check_path(heap: JavaObjects, walker: ObjectWalker, roots: Sequence[int], address: int, is_reached: bool) -> None:
    """Each step of the path is a reference that was written, and the first object is a root."""
    path = walker.find_path(address)
    assert (path is not None) == is_reached
    if path is not None:
        assert (path[0].address if path else address) in roots
        for step, following in zip(path, [*(step.address for step in path[1:]), address]):
            assert heap.targets[step.address][step.place] == following
            assert step.class_index == heap.objects[step.address][0]


def test_slices_and_a_full_deque_do_not_change_the_answer(kernel: Kernel, monkeypatch: pytest.MonkeyPatch) -> None:
    """Work that is paused every few objects gives what one go gives; 200,000 objects in one array are more than wait at once."""
    heap = JavaObjects(NARROW)
    leaf, pair, array_class = heap.add_instance_class(0, 0), heap.add_instance_class(1, 0), heap.add_array_class(2, True)
    array_at, other = heap.add_array(array_class, 200_000), heap.add_array(array_class, 70_000)
    for number in range(200_000):
        heap.refer(array_at, number, heap.add_instance(pair if number < 70_000 else leaf))
        heap.refer(other, number % 70_000, heap.at - 16)
    monkeypatch.setattr(library, "FIRST_SLICE_SECONDS", 1e-6)
    monkeypatch.setattr(library, "SLICE_SECONDS", 1e-5)
    for with_parents in (False, True):
        walker = make_walker(kernel, heap)
        check_walk(heap, walker)
        assert walker.mark_objects(0, [array_at, other], with_parents=with_parents)
        list(walker.iterate_border([]))
        assert sum(walker.count_marked()[0][1::MARK_SETS]) == len(heap.objects)


def test_a_list_is_no_recursion(kernel: Kernel) -> None:
    """60,000 objects in a row, and a circle; its path is cut at the end that is asked for."""
    heap = JavaObjects(NARROW)
    node = heap.add_instance_class(1, 0)
    rows = [heap.add_instance(node) for _ in range(60_000)]
    random.Random(1).shuffle(rows)
    for one, following in zip(rows, rows[1:] + rows[:1]):
        heap.refer(one, 0, following)
    walker = make_walker(kernel, heap)
    walker.walk_objects()
    assert walker.mark_objects(0, rows[:1], with_parents=True)
    assert list_starts(walker, heap.begin, heap.at, 1) == set(rows)
    path = walker.find_path(rows[-1])
    assert path is not None and len(path) == java_holders.MOST_STEPS and path[-1].address == rows[-2]


def test_only_exact_starts_are_objects(kernel: Kernel) -> None:
    """What lies inside, between parts or outside is none."""
    heap = JavaObjects(NARROW)
    first, second = heap.add_instance_class(1, 3), heap.add_instance_class(0, 1)
    one, two, three = heap.add_instance(first), heap.add_instance(second), heap.add_instance(second)
    heap.refer(one, 0, two)
    walker = make_walker(kernel, heap, parts=[(one, two), (three, heap.at)])
    assert count_objects(walker) == 2
    assert walker.look_up([one, one + 8, two, three, heap.at, 0]) == bytes([IS_OBJECT, 0, 0, IS_OBJECT, 0, 0])
    walker.mark_objects(2, [one, one + 16])
    assert walker.look_up([one, two, three]) == bytes([IS_OBJECT | 4, 0, IS_OBJECT])


def test_references_of_references(kernel: Kernel) -> None:
    """A skipped kind's references lead to other References alone, as the list of all Cleaners does."""
    heap = JavaObjects(NARROW)
    plain, phantom, weak = heap.add_instance_class(1, 0), heap.add_instance_class(2, 0, PHANTOM), heap.add_instance_class(2, 0, WEAK)
    held, cleaner, later, other = [heap.add_instance(index) for index in (plain, phantom, weak, plain)]
    for number, target in enumerate((held, later)):
        heap.refer(cleaner, number, target)
    heap.refer(later, 0, other)
    walker = make_walker(kernel, heap)
    walker.walk_objects()
    walker.mark_objects(0, [cleaner])
    walker.mark_objects(1, [cleaner], SKIPPED)
    assert walker.look_up([cleaner, held, later, other]) == bytes([11, 9, 11, 11])
    walker.mark_objects(1, [held])
    assert walker.look_up([held]) == bytes([11])


def test_referents(kernel: Kernel) -> None:
    """Those of soft and final references are followed where their offset is known, those of weak and phantom ones never."""
    heap = JavaObjects(NARROW)
    kinds = [heap.add_class(24, kind, [(16, 2)]) for kind in (SOFT, WEAK, FINAL, PHANTOM)]
    plain = heap.add_instance_class(0, 0)
    pairs = [(heap.add_object(kind, 24, [(12, 12)]), heap.add_instance(plain)) for kind in kinds]
    for reference, held in pairs:
        heap.refer(reference, 0, held)
    budget = Budget()
    for offset, wanted in ((12, [15, 8, 13, 8]), (None, [8, 8, 8, 8])):
        walker = ObjectWalker(kernel, heap.source(), heap.shape, heap.classes, heap.parts, budget, referent_offset=offset)
        walker.walk_objects()
        for number, skipped in enumerate(((), SKIPPED, ())):
            walker.mark_objects(number, [reference for reference, _ in pairs], skipped)
        assert list(walker.look_up([held for _, held in pairs])) == wanted


@pytest.mark.parametrize("case", CASES, ids=str)
def test_border(kernel: Kernel, case: JavaCase, monkeypatch: pytest.MonkeyPatch) -> None:
    """Words of instances, of mirrors behind their static references and of long[] are rows; references, other arrays and stacks are none."""
    heap = JavaObjects(case)
    fields, wide = heap.add_instance_class(3, 2), heap.add_array_class(3, element=11)
    others = [heap.add_array_class(3, element=7), heap.add_array_class(0)]
    mirror, chunk = heap.add_class(48, MIRROR, [(24, 8 // case.oop_bytes)]), heap.add_class(48, STACK_CHUNK)
    wanted = set()
    rng = random.Random(5)
    for _ in range(300):
        one, row = heap.add_instance(fields), heap.add_array(wide, 40)
        class_object = heap.add_mirror(mirror, 3, 2)
        heap.add_chunk(chunk, 9, 0)
        for address, offset in (
            (one, heap.classes[fields].layout_helper - 8),
            (row, (heap.classes[wide].layout_helper >> 16 & 255) + 8 * rng.randrange(40)),
            (class_object, heap.objects[class_object][1] - 8),
        ):
            value = MALLOC + 8 * rng.randrange(64)
            heap.put(address + offset, value, 8)
            if value < MALLOC + 128 or value >= MALLOC + 256:
                wanted.add((heap.objects[address][0], ANY_ELEMENT if address == row else offset, value, address))
        if case.oop_bytes == 8:
            heap.put(one + heap.first, MALLOC, 8)
            heap.put(class_object + 48, MALLOC, 8)
        for index in others:
            array_at = heap.add_array(index, 40)
            heap.put(array_at + 32, MALLOC, 8)
    walker = make_walker(kernel, heap)
    walker.walk_objects()
    walker.mark_objects(1, list(heap.objects)[:1])
    monkeypatch.setattr(library, "FIRST_SLICE_SECONDS", 1e-6)
    rows = [row for batch in walker.iterate_border([(MALLOC, MALLOC + 128), (MALLOC + 256, MALLOC + 512)]) for row in zip(*batch)]
    assert [row[:4] for row in rows] == sorted((row[:4] for row in rows), key=lambda row: row[3])
    assert {row[:4] for row in rows} == wanted and len(rows) == len(wanted)
    assert {row[3] for row in rows if row[4]} <= {min(heap.objects)} and {row[4] for row in rows} <= {0, 2}
    assert sum(walker.count_marked()[0]) == len(heap.objects)


def test_more_rows_than_one_batch(kernel: Kernel) -> None:
    """An array of 200,000 words that all lead out."""
    heap = JavaObjects(NARROW)
    address = heap.add_array(heap.add_array_class(3, element=11), 200_000)
    heap.data[16:] = MALLOC.to_bytes(8, "little") * 200_000
    walker = make_walker(kernel, heap)
    walker.walk_objects()
    batches = list(walker.iterate_border([(MALLOC, MALLOC + 1)]))
    assert sum(len(batch[2]) for batch in batches) == 200_000 and len(batches) == 4
    assert {*batches[3][3]} == {address}
    assert list(walker.count_marked()[0]) == [1] + [0] * 7


def walk_plainly(heap: JavaObjects, begin: int, end: int) -> Tuple[Set[int], int]:
    """The same by the rules: an object where a known class fits into the part; four in a row end a gap. Starts, and bytes of gaps."""
    keys = {one.key: index for index, one in reversed(list(enumerate(heap.classes)))}

    def load(address: int, size: int) -> int:
        return int.from_bytes(heap.data[address - heap.begin : address - heap.begin + size], "little")

    def measure(address: int) -> int:
        if address + heap.head > end:
            return 0
        key = load(address + 8, heap.case.class_bytes) if heap.case.class_bytes else load(address, 8)
        if not heap.case.class_bytes:
            copy = key & ~7
            key = (key if key & 3 < 3 else load(copy, 8) if heap.begin <= copy <= heap.at - 8 else 0) >> 42
        if not key or key not in keys:
            return 0
        one = heap.classes[keys[key]]
        helper, size = one.layout_helper, one.layout_helper & ~7
        at = heap.shape.array_length_offset if helper < 0 else {MIRROR: 32, STACK_CHUNK: 20}.get(one.kind)
        if at is not None:
            number = load(address + at, 4)
            if address + at + 4 > end or number >= 1 << 31:
                return 0
            if helper < 0:
                size = (helper >> 16 & 255) + (number << (helper & 63))
            elif one.kind == MIRROR:
                size = 8 * number if 8 * number >= size else 0
            else:
                size += 8 * number + (number * 8 // heap.case.oop_bytes + 63) // 64 * 8
        return size and (heap.align(size) if address + heap.align(size) <= end else 0)

    def begins_row(address: int) -> bool:
        for number in range(4):
            if address == end:
                return number > 0
            size = measure(address)
            if not size:
                return False
            address += size
        return True

    starts, unparsed, address = set(), 0, begin
    while address < end:
        size = measure(address)
        if size:
            starts.add(address)
            address += size
            continue
        gap = address
        while address < end and not begins_row(address):
            address += heap.case.alignment_bytes
        unparsed += min(address, end) - gap
    return starts, unparsed


@pytest.mark.parametrize("case", CASES, ids=str)
@pytest.mark.parametrize("seed", range(4))
def test_damaged_heaps(kernel: Kernel, case: JavaCase, seed: int) -> None:
    """Bytes at random places are overwritten: starts and gaps are those of the plain rules, and marking ends."""
    rng = random.Random(seed)
    heap = make_random_objects(case, rng, 800)
    for _ in range(60):
        place = heap.begin + 4 * rng.randrange(len(heap.data) // 4)
        heap.put(place, rng.choice((0, 0xFFFFFFFF, 0x7FFFFFFF, rng.getrandbits(32), heap.classes[rng.randrange(20)].key or 0)), 4)
    walker = make_walker(kernel, heap)
    sums, objects, _ = walker.walk_objects()
    starts, unparsed = walk_plainly(heap, heap.begin, heap.at)
    assert list_starts(walker, heap.begin, heap.at) == starts
    assert (sum(objects), sums.unparsed_bytes) == (len(starts), unparsed)
    assert walker.mark_objects(0, sorted(starts), with_parents=True)
    assert list_starts(walker, heap.begin, heap.at, 1) == starts
    list(walker.iterate_border([(MALLOC, MALLOC + 4096)]))


def test_a_gap_ends_at_four_objects_in_a_row(kernel: Kernel) -> None:
    """An array whose header is not written yet, zeros behind it, then objects; a hole of the memory; zeros up to the end."""
    heap = JavaObjects(NARROW)
    pair, row = heap.add_instance_class(2, 1), heap.add_array_class(0)
    heap.add_instance(pair)
    unwritten = heap.add_array(row, 300_000)
    heap.put(unwritten, 0, 16)
    del heap.objects[unwritten]
    behind = [heap.add_instance(pair) for _ in range(5)]
    zeros = heap.at
    heap.data += bytes(1 << 20)
    walked = make_walker(kernel, heap).walk_objects()
    assert sum(walked[1]) == 6 and walked[0] == WalkSums(1, behind[0] - unwritten + heap.begin + len(heap.data) - zeros, 2)
    data = bytes(heap.data)
    page = behind[0] & -4096
    pieces = ((heap.begin, data[:4096]), (page, data[page - heap.begin :]))
    assert make_walker(kernel, heap, BytesSource(pieces)).walk_objects() == walked


def test_forwarded_objects_of_compact_headers(kernel: Kernel) -> None:
    """In a pause the header of an object that was moved leads to its copy, which has the class; one that leads nowhere is a gap."""
    heap = JavaObjects(CASES[3])
    index = heap.add_instance_class(2, 1)
    old, copy, lost = [heap.add_instance(index) for _ in range(3)]
    heap.put(old, copy | 3, 8)
    heap.put(lost, 0x1234567800 | 3, 8)
    walker = make_walker(kernel, heap)
    assert count_objects(walker) == 2
    assert walker.look_up([old, copy, lost]) == bytes([IS_OBJECT, IS_OBJECT, 0])


def test_lying_classes(kernel: Kernel) -> None:
    """Sizes of 0, blocks behind the object or in disorder, arrays without a header, keys that are there twice: ignored."""
    heap = JavaObjects(NARROW)
    good = heap.add_class(24, 0, [(12, 1), (16, 1 << 31), (20, 1), (0, 3), (1 << 63, 1 << 63)])
    bad = [
        heap.add_class(helper)
        for helper in (0, 7, -1, -(1 << 31), (-2 << 30) | 16 << 16 | 3, (-1 << 30) | 8 << 16, (-1 << 30) | 16 << 16 | 60)
    ]
    heap.classes.append(heap.classes[good]._replace(layout_helper=1 << 30))
    heap.classes.append(heap.classes[good]._replace(key=None))
    one = heap.add_object(good, 24, [(12, 12), (20, 20)])
    two, three = heap.add_object(good, 24), heap.add_object(good, 24)
    heap.refer(one, 0, two)
    heap.refer(one, 1, three)
    for index in bad:
        heap.add_object(index, 24)
    walker = make_walker(kernel, heap)
    sums, objects, _ = walker.walk_objects()
    assert (sum(objects), sums.unparsed_bytes) == (3, 24 * len(bad))
    walker.mark_objects(0, [one])
    assert walker.look_up([two, three]) == bytes([9, 9])


@pytest.mark.parametrize(
    "parts", [[], [(8, 0)], [(HEAP + 3, HEAP + 5)], [(0, 1 << 60)], [(HEAP, HEAP + 64), (1 << 63, (1 << 64) - 8)]], ids=str
)
def test_hostile_parts(kernel: Kernel, parts: Sequence[Tuple[int, int]]) -> None:
    """Parts that are empty, reversed, endless, or far from each other."""
    heap = JavaObjects(NARROW)
    heap.add_instance(heap.add_instance_class(1, 1))
    walker = ObjectWalker(kernel, heap.source(), heap.shape, heap.classes, parts, Budget(0.2))
    assert count_objects(walker) <= 1
    walker.mark_objects(0, [HEAP], with_parents=True)
    list(walker.iterate_border([(0, 1 << 64 - 1)]))
    assert walker.find_path(HEAP) in (None, [])


def test_a_read_that_raises(kernel: Kernel) -> None:
    """An exception of the source arrives."""
    heap = make_random_objects(NARROW, random.Random(1), 100)

    def fail(_address: int, _size: int) -> bytes:
        raise OSError("no more")

    with pytest.raises(OSError, match="no more"):
        make_walker(kernel, heap, fail).walk_objects()


@pytest.mark.parametrize("seed", range(40))
def test_random_bytes(kernel: Kernel, seed: int) -> None:
    """Noise with many headers of true classes, as heap, classes and roots: everything ends, within its buffers."""
    rng = random.Random(seed)
    case = CASES[seed % len(CASES)]
    heap = make_random_objects(case, rng, 30)
    kinds = [
        index._replace(layout_helper=rng.choice((index.layout_helper, rng.getrandbits(31), -rng.getrandbits(31)))) for index in heap.classes
    ]
    kinds = [
        kind._replace(oop_blocks=tuple((rng.getrandbits(8), rng.getrandbits(rng.choice((2, 40)))) for _ in range(3))) for kind in kinds
    ]
    data = bytearray(rng.randbytes(64 << 10))
    for place in range(0, len(data) - 64, 8 if case.class_bytes == 0 else 16):
        if rng.random() < 0.7:
            key = rng.choice(heap.classes).key or 0
            data[place : place + 8] = (key << 42 | 1).to_bytes(8, "little")
            if case.class_bytes:
                data[place + 8 : place + 8 + case.class_bytes] = key.to_bytes(case.class_bytes, "little")
            if rng.random() < 0.8:
                data[place + 16 : place + 24] = rng.getrandbits(8).to_bytes(4, "little") + (heap.begin >> 3 & 0xFFFFFFFF).to_bytes(
                    4, "little"
                )
    cuts = sorted(heap.begin + rng.randrange(len(data)) for _ in range(6))
    walker = ObjectWalker(
        kernel, BytesSource(((heap.begin, bytes(data)),)), heap.shape, kinds, zip(cuts[::2], cuts[1::2]), Budget(), stack_chunk=CHUNK
    )
    count = count_objects(walker)
    everything = array("Q", range(heap.begin, heap.begin + len(data), 8))
    starts = [address for address, byte in zip(everything, walker.look_up(everything)) if byte]
    assert len(starts) == count
    for number in range(3):
        assert walker.mark_objects(number, rng.sample(starts, len(starts) // 4), (SOFT, FINAL), with_parents=number == 1)
    for address in starts:
        walker.find_path(address)
    list(walker.iterate_border([(heap.begin, heap.at), (MALLOC, MALLOC + 8)]))
    assert sum(walker.count_marked()[0]) == len(starts)
