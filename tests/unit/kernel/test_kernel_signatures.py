"""The signer: which row a block meets.

Files: kernel/blocks/signatures.py.
"""

import random
import struct
import zlib
from pathlib import Path
from typing import Dict, List, Tuple

import pytest

from gdbheapx.common.budget import Budget
from gdbheapx.inferior.base import NOWHERE, BytesSource, FileSource, Segment
from gdbheapx.kernel.binding import CKernel
from gdbheapx.kernel.blocks.graph import RULE_END, RULE_INSIDE
from gdbheapx.kernel.blocks.signatures import (
    ADDRESS,
    ALL,
    AT_LEAST,
    AT_MOST,
    BEGINS_TEXT,
    BTREES,
    BUCKETS,
    BUFFERS,
    BY_BEGIN,
    BY_CONTENT,
    COPIES,
    COUNTED,
    COUNTS,
    CPLUSPLUS,
    DEQUE,
    DYNS,
    ELEMENT,
    EQUAL,
    FIELD,
    IN_SET,
    KNOWN,
    NOT_EQUAL,
    NUMBERS,
    ONLY_ZEROS,
    POINTERS,
    REFERRED,
    ROOTED,
    RUST,
    SHARED_DYNS,
    SIZED,
    STRING,
    STRONG,
    USABLE,
    VECS,
    VECTOR,
    Condition,
    Copied,
    NumberSet,
    Referring,
    SignatureRow,
    Signed,
)
from gdbheapx.kernel.blocks.stream import CLASS_FREE, CLASS_USED, NO_ARENA, NativeBlocks, make_blocks
from tests.support.plain_graph import PlainGraph
from tests.support.plain_signer import PlainSigner
from tests.support.worlds import GraphMemory, build, make, roots_from

HEAP = 0x10000
MET = [
    SignatureRow([Condition(8, 8, EQUAL, -16, USABLE)], least_usable=32),
    SignatureRow([Condition(16, 8, EQUAL, 24, ADDRESS)]),
    SignatureRow([Condition(0, 8, IN_SET, 0)], key=(0, 8, ALL)),
    SignatureRow([Condition(0, 4, AT_MOST, 0, FIELD, other=4), Condition(4, 4, NOT_EQUAL, 0), Condition(0, 4, AT_LEAST, 3)], key=(4, 2, 0xFF)),
]
"""Rows that many blocks meet, beside those at random."""


def column(blocks: List[Tuple[int, int, int]]) -> NativeBlocks:
    """As a stream has them."""
    return make_blocks([(*block, 0, NO_ARENA) for block in blocks])


def world(seed: int, order: str) -> Tuple[bytes, List[Tuple[int, int, int]]]:
    """Blocks that meet the rows, nearly meet them, or not at all."""
    rng, data, blocks = random.Random(seed), bytearray(), []
    while len(data) < 300_000:
        size = rng.choice((8, 16, 24, 40, 56, 120, 504, 640, 3000))
        words = [rng.choice((0, 1, 7, 9, 0x7000, 0x8000, 0x8FFF, 0x9000, 0xA007, 1 << 63, rng.getrandbits(64))) for _ in range(size // 8)]
        address = HEAP + len(data)
        if rng.random() < 0.2 and size >= 24:
            words[1], words[2] = size - 16, address + 24
        if rng.random() < 0.2:
            words[0] = rng.randrange(1, 9) | rng.randrange(1, 300) << 32
        blocks.append((address, size, CLASS_USED if rng.random() < 0.9 else CLASS_FREE))
        data += b"".join(word.to_bytes(8, order) for word in words) + bytes(8)  # type: ignore[arg-type]
    return bytes(data[:-40]), blocks  # the last one is not wholly there


def used(blocks: List[Tuple[int, int, int]]) -> List[Tuple[int, int]]:
    """(address, usable bytes) of those in use."""
    return [(address, size) for address, size, class_ in blocks if class_ == CLASS_USED]


def random_rows(rng: random.Random) -> Tuple[List[SignatureRow], List[NumberSet]]:
    """More rows than one filter holds, with conditions of all sorts on numbers that the blocks have."""
    numbers = [0, 1, 7, 9, 0x7000, 0x8000, 0x8FFF, 0x9000, 1 << 63, ALL, 0x41424344]
    sets = [NumberSet([7, 9, 0x7000, 1 << 63]), *(NumberSet([rng.choice(numbers[1:]) for _ in range(rng.randrange(4))]) for _ in range(4))]
    sets += [NumberSet(ranges=[(low, low + rng.choice((1, 0x100, 0x1000, 1 << 40)))]) for low in (7, 0x7000, 0x8F00, (1 << 63) - 5)]
    rows = []
    for _ in range(150):
        conditions = []
        for _ in range(rng.randrange(1, 4)):
            width, op = rng.choice((1, 2, 4, 8)), rng.randrange(6)
            base = rng.choice((0, 0, 0, USABLE, ADDRESS, FIELD))
            operand = rng.choice((*numbers, -16, 24)) & ALL if op < IN_SET else rng.randrange(5) if op == IN_SET else 5 + rng.randrange(4)
            mask = rng.choice((ALL, ALL, ALL, 0xFF, 0xFFFFFFFF00000000, 0x7000, ~7 & ALL))
            conditions.append(Condition(rng.choice((0, 1, 4, 8, 8, 12, 16, 40, 61)), width, op, operand, base, mask, rng.choice((0, 8, 30))))
        sizes = rng.choice(((0, ALL), (0, ALL), (24, 120), (41, 1023), (1024, ALL), (2999, 3000)))
        rows.append(SignatureRow(conditions, *sizes, key=rng.choice((None, (0, 1, ALL), (8, 4, 0xFF), (90, 8, ALL))), sized=rng.random() < 0.2, weak=rng.random() < 0.3))
    return rows, sets


@pytest.mark.parametrize("order", ["little", "big"])
def test_no_filter_changes_an_answer(c_kernel: CKernel, order: str) -> None:
    """Each block has the label of the first row that it meets: rows are left out by a few bytes of it, the plain signer asks each one."""
    met = set()
    for seed in range(24):
        rng = random.Random(seed)
        rows, sets = random_rows(rng)
        rows = [*MET, *rng.sample(rows, (0, 60, 61, 146)[seed % 4])]
        rng.shuffle(rows)
        data, blocks = world(seed, order)
        signer = c_kernel.signer(BytesSource(((HEAP, data),)), (8, order == "little"), rows, sets, Budget())
        signer.stream(iter([column(blocks[-400:])]))
        least = [3] * (len(rows) // 2)
        frequent, found = signer.frequent(least), signer.found()
        assert signer.found(frequent) == [one for one in found if one.row >= len(least) or one.blocks >= 3]
        assert signer.label_count() == len(found)
        plain = PlainSigner(order, rows, sets).tell(data, HEAP, used(blocks[-400:]))
        assert (found, list(signer.labels()), signer.rest()) == plain
        met |= {(seed, one.row) for one in found}
    assert len(met) > 40


@pytest.mark.parametrize("length", [1, 7, 8, 9, 15, 16, 31, 63, 64, 65, 72])
def test_content(c_kernel: CKernel, length: int) -> None:
    """Text that ends anywhere, or has one byte that is none anywhere; zeros up to any byte."""
    parts = [b"", bytes(length)]
    for at in range(length):
        for byte in (0, 8, 9, 13, 14, 0x1F, 0x20, 0x7E, 0x7F, 0x80, 0xA0, 0xFF):
            parts.append(b"a" * at + bytes([byte]) + b"b" * (length - at - 1))
            parts.append(bytes(at) + bytes([byte]) + bytes(length - at - 1))
    blocks = [(HEAP + 80 * place, length, CLASS_USED) for place in range(len(parts))]
    data = b"".join(part.ljust(80, b"x") for part in parts)
    signer = c_kernel.signer(BytesSource(((HEAP, data),)), (8, True), [], [], Budget())
    signer.stream(iter([column(blocks)]))
    assert (signer.found(), list(signer.labels()), signer.rest()) == PlainSigner("little", [], []).tell(data, HEAP, used(blocks))


@pytest.mark.parametrize("order", ["little", "big"])
def test_numbers(c_kernel: CKernel, order: str) -> None:
    """Doubles of the size that programs have, some words of 0, and so many others that they are none."""
    rng, parts, expected = random.Random(1), [], []
    for count in (7, 8, 9, 10, 64, 90):
        for others in (0, 1, 2, 7):
            for zeros in (0, 1, 5):
                words = [rng.choice((1, -1)) * 2.0 ** rng.uniform(-64, 64) for _ in range(count)]
                raw = [struct.pack("<d" if order == "little" else ">d", word) for word in words]
                places = rng.sample(range(count), min(count, others + zeros))
                for at, place in enumerate(places):
                    raw[place] = bytes(8) if at >= others else (0x5555_0000_1000 + at).to_bytes(8, order)  # type: ignore[arg-type]
                seen = raw[:64]
                numbers = sum(place not in places for place in range(len(seen)))
                odd = sum(place < len(seen) for place in places[:others])
                parts.append(b"".join(raw))
                expected.append(numbers >= 8 and 10 * odd <= numbers + odd)
    blocks = [(HEAP + 1024 * place, len(part), CLASS_USED) for place, part in enumerate(parts)]
    source = BytesSource(((HEAP, b"".join(part.ljust(1024, b"\xff") for part in parts)),))
    signer = c_kernel.signer(source, (8, order == "little"), [], [], Budget())
    signer.stream(iter([column(blocks)]))
    assert [label != 0 and signer.found()[label - 1].row == NUMBERS for label in signer.labels()] == expected
    assert 8 < sum(expected) < len(expected) - 8


def copied_world() -> Tuple[GraphMemory, List[bytes]]:
    """Blocks of which several have one content, in every form: words, text, zeros, pointers, of one word's difference."""
    rng = random.Random(3)
    one, other, flips = (b"\x01" + rng.randbytes(2495) for _ in range(3))
    text = b"GET /index.html HTTP/1.1 and so on, more than 64 characters in one block\0".ljust(2496, b"\x05")
    signs = [bytes(flips[:at]) + bytes([flips[at] ^ 0x80]) + bytes(flips[at + 1 :]) for at in (7, 39)]
    both = bytes(signs[0][:39]) + bytes([signs[0][39] ^ 0x80]) + bytes(signs[0][40:])
    parts = [one[:96]] * 4 + [other[:96]] * 3 + [one[:88]] * 4 + [one[:56]] * 9 + [flips[:96], signs[0][:96], signs[1][:96], both[:96]]
    parts += [text[:120]] * 5 + [text[:1600]] * 4 + [bytes(2496)] * 3 + [other] * 2 + [one[:1604]] * 4
    parts += [b"\x02" + rng.randbytes(95) for _ in range(4)]
    large = b"\x03" + rng.randbytes(49151)
    parts += [large, large, b"\x03" + rng.randbytes(49151)]
    rng.shuffle(parts)
    places, at = [], 0x4000_0000
    for part in parts:
        places.append(at)
        at += (len(part) + 31) // 16 * 16
    dense = b"".join(place.to_bytes(8, "little") for place in places[:7]).ljust(104, b"\x01")
    places.append(at)
    parts.append(dense)
    data = b"".join(part.ljust((len(part) + 31) // 16 * 16, b"\x07") for part in parts)
    blank = make(0)
    shape = blank.shape._replace(heaps=[(places[0], places[0] + len(data))], mappings=[])
    rows = [(place, len(part), CLASS_USED, 0, NO_ARENA) for place, part in zip(places, parts)]
    return blank._replace(source=BytesSource(((places[0], data),)), shape=shape, rows=rows, roots=[]), parts


def test_contents_that_several_blocks_have(c_kernel: CKernel) -> None:
    """Groups are those of equal bytes, to the block; small blocks and pairs are none, large pairs are."""
    made, parts = copied_world()
    told = referred(c_kernel, made, 0x77)
    found: List[Signed] = told["found"]  # type: ignore[assignment]
    groups: Dict[int, List[bytes]] = {}
    for label, part in zip(told["labels"], parts):  # type: ignore[call-overload]
        one = found[label - 1]
        if one.row - 1 == COPIES:
            groups.setdefault(one.key, []).append(part)
        else:
            allowed = {ONLY_ZEROS} if not any(part) else {POINTERS} if part is parts[-1] else {SIZED, BEGINS_TEXT, REFERRED}
            assert one.row - 1 in allowed
    assert all(len(set(some)) == 1 and parts[key >> 1] == some[0] for key, some in groups.items())
    assert sorted((len(some), len(some[0]), key & 1) for key, some in groups.items()) == [
        (2, 49152, 0),
        (4, 88, 0),
        (4, 96, 0),
        (4, 1600, 1),
        (4, 1604, 0),
        (5, 120, 1),
    ]
    sizes = [len(some) * len(some[0]) for some in groups.values()]
    copied: Copied = told["copied"]  # type: ignore[assignment]
    assert copied[:4] == (6, 23, sum(sizes), sum(sizes) - sum(len(some[0]) for some in groups.values()))
    assert list(copied.same) == sorted((key >> 1, len(some)) for key, some in groups.items())
    few = referred(c_kernel, made, 0x77, 6000)
    assert few["copied"][:4] == copied[:4]  # type: ignore[index]
    assert sorted(one.bytes for one in few["found"] if one.row - 1 == COPIES) == [6400, 6416, 98304]  # type: ignore[attr-defined]


def referred(kernel: CKernel, made: GraphMemory, first_word: int = 0, least: int = 0) -> Dict[str, object]:
    """What a kernel says of the blocks of a world that are told by who points to them; known are those that begin with `first_word`."""
    shape = made.shape
    signer = kernel.signer(made.source, (shape.word_bytes, shape.little_endian), [SignatureRow([Condition(0, shape.word_bytes, EQUAL, first_word)])], [], Budget())
    signer.keep_contents()
    graph = build(kernel, made, prepare=lambda graph: graph.sign(signer))
    known = [KNOWN if one.row == 0 else BY_CONTENT for one in signer.found()]
    signer.refer(graph, known, Referring(2, roots_from(graph, made), False, 0, least_same_bytes=least))
    told = {"found": signer.found(), "labels": list(signer.labels()), "copied": signer.copied()}
    return {**told, "within": signer.within(graph, made.shape.heaps[:3:2]), "large": graph.large(40)}


def only_referrers(plain: PlainGraph) -> Dict[int, Tuple[int, int]]:
    """(node, slot) of what alone points to a block: pointers to any place inside count where there are no others, to an end never."""
    found = {}
    for block in range(len(plain.blocks)):
        leading = [(node, edge.slot, edge.rule == RULE_INSIDE) for node, some in enumerate(plain.edges) for edge in some if edge.node == block and edge.rule != RULE_END]
        some = [one for one in leading if not one[2]] or leading
        if len({node for node, _, _ in some}) == 1:
            found[block] = some[0][:2]
    return found


def check_referred(plain: PlainGraph, found: List[Signed], labels: List[int]) -> None:
    """Who alone points to a block names it, up to two steps from a block of a known label, or from a root."""
    only, kinds = only_referrers(plain), [found[label - 1].row - 1 for label in labels]
    keys = [found[label - 1].key for label in labels]

    def by(block: int) -> Tuple[int, int]:
        """The key by which the block should be named, and how many steps that are; 0: it should not."""
        node, slot = only.get(block, (-1, 0))
        if node >= plain.first:
            return (node - plain.first) << 32 | slot, 1
        if not 0 <= node < len(labels) or kinds[node] in (SIZED, POINTERS, STRING) or kinds[node] in BY_CONTENT_ALONE:
            return 0, 0
        if kinds[node] == REFERRED and keys[node] & 0xFFFFFFFF == slot:
            return keys[node], by(node)[1]
        steps = by(node)[1] if kinds[node] in (REFERRED, ROOTED) else 0
        return labels[node] << 32 | (ELEMENT if kinds[node] in (VECTOR, BUCKETS, DEQUE, BUFFERS) else slot), steps + 1

    for block, kind in enumerate(kinds):
        if kind in (REFERRED, ROOTED, SIZED):
            key, steps = by(block)
            assert (kind == SIZED) == (not 1 <= steps <= 2)
            assert keys[block] == (plain.blocks[block][1] if kind == SIZED else key)
            assert kind == SIZED or (kind == ROOTED) == (only[block][0] >= plain.first)


BY_CONTENT_ALONE = (BEGINS_TEXT, ONLY_ZEROS, NUMBERS)


@pytest.mark.parametrize("word_bytes, order", [(8, "little"), (8, "big"), (4, "little")])
@pytest.mark.parametrize("seed", range(8))
def test_who_points_there(c_kernel: CKernel, seed: int, word_bytes: int, order: str) -> None:
    """Each block has a label, by referrer, root or size as these are defined."""
    made = make(seed, 90, 8, word_bytes, order)
    found = referred(c_kernel, made)
    labels: List[int] = found["labels"]  # type: ignore[assignment]
    rows: List[Signed] = found["found"]  # type: ignore[assignment]
    assert all(labels) and sum(one.blocks for one in rows) == len(labels)
    assert sum(one.bytes for one in rows) == sum(size & ~3 for _, size, class_, *_ in made.rows if class_ == CLASS_USED)
    used = [(address, size & ~3) for address, size, class_, *_ in made.rows if class_ == CLASS_USED]
    low, high = made.shape.heaps[1]
    expected = [0] * len(rows)
    for label, (address, size) in zip(labels, used):
        expected[label - 1] += 0 if low <= address < high else size
    assert found["within"] == expected and 0 < sum(expected) < sum(size for _, size in used)
    assert found["large"] == [one for one in used if one[1] >= 40]
    check_referred(PlainGraph(made), rows, labels)
    assert {REFERRED, SIZED} <= {one.row - 1 for one in rows} <= {-1, *range(8), POINTERS}


VTABLES, CONSTANTS = (0x6000_0100, 0x6000_0140, 0x6000_0180), (0x6000_0000, 0x6000_1000)


def rust_world(seed: int) -> GraphMemory:
    """Blocks with trait objects, vectors in both orders, counts and nodes of B-trees in them, whole and broken."""
    rng = random.Random(seed)
    sizes = [rng.choice((24, 40, 56, 72, 120, 184, 1032, 2056)) for _ in range(120)] + [120, *[24] * rng.randrange(1, 9)] * 6
    places = [0x4000_0000 + sum(size + 8 for size in sizes[:at]) for at in range(len(sizes))]
    order = rng.random() < 0.5

    def words(size: int) -> List[int]:
        made: List[int] = []
        while len(made) < size // 8:
            place, target = rng.choice(list(zip(places, sizes)))
            capacity = rng.choice((target, target - 7, target // 8, target // 24, 3, 0, 1 << 33))
            length = rng.choice((capacity, capacity, 2, 0))
            vec = (place, capacity, length) if order or rng.random() < 0.02 else (capacity, place, length)
            made += rng.choice(((rng.getrandbits(6),), (place,), vec, vec, (place, rng.choice((*VTABLES, 0x6000_0104, 0x6000_2000)))))
        return made[: size // 8]

    every = [words(size) for size in sizes]
    for some in every[:40]:
        some[:2] = [rng.randrange(1, 4), rng.choice((1, 1, 2))]
    for parent in (at for at in range(120, len(sizes)) if sizes[at] == 120):
        for child in range(parent + 1, next((at for at in range(parent + 1, len(sizes)) if sizes[at] == 120), len(sizes))):
            every[parent][2 + child - parent] = places[child]
            every[child][0] = places[parent] if rng.random() < 0.9 else 0
    root = words(400)
    for at in range(0, 40, 2):
        every[at][:2] = [sum(some.count(places[at]) for some in [*every[:at], *every[at + 1 :], root]), 1]
    data = b"".join(b"".join(word.to_bytes(8, "little") for word in some) + bytes(8) for some in every)
    roots = b"".join(word.to_bytes(8, "little") for word in root)
    blank = make(0)
    shape = blank.shape._replace(heaps=[(places[0], places[0] + len(data))], mappings=[])
    rows = [(place, size, CLASS_USED, 0, NO_ARENA) for place, size in zip(places, sizes)]
    return blank._replace(source=BytesSource(((places[0], data), (0x5000_0000, roots))), shape=shape, rows=rows, roots=[(0x5000_0000, 0x5000_0000 + 400)])


def rust_referred(kernel: CKernel, made: GraphMemory, has_classes: bool, containers: int) -> Tuple[List[Signed], List[int], List[int]]:
    """What a kernel says of a world of Rust."""
    few = [Condition(0, 8, AT_LEAST, 1), Condition(0, 8, AT_MOST, 9), Condition(8, 8, AT_LEAST, 1)]
    counts = [SignatureRow([*few, Condition(8, 8, AT_MOST, most)], key=(0, 8, ALL)) for most in (1, 9)]
    signer = kernel.signer(made.source, (8, True), [*counts, SignatureRow([Condition(0, 8, AT_MOST, 20)])], [], Budget())
    signer.look_for_rust([CONSTANTS], [False, False, True])
    graph = build(kernel, made, prepare=lambda graph: graph.sign(signer))
    vtables = signer.vtables()
    assert 0x6000_2000 not in vtables and 0x6000_0104 not in vtables
    layouts = list(zip(VTABLES, (24, 40, 120), (8, 8, 32)))
    known = [(STRONG, COUNTS, BY_BEGIN)[one.row] if one.row < 3 else BY_CONTENT for one in signer.found()]
    signer.refer(graph, known, Referring(2, roots_from(graph, made), has_classes, 0, containers, layouts))
    return signer.found(), list(signer.labels()), vtables


@pytest.mark.parametrize("has_classes, containers, checksum", [(False, RUST, 664783344), (True, RUST, 2028841861), (False, RUST | CPLUSPLUS, 736576019)])
def test_rust(c_kernel: CKernel, has_classes: bool, containers: int, checksum: int) -> None:
    """For each trait object, vector, node of a B-tree and count there is a place that says so, and each is met; beside C++ only the capacity is first.

    Which of them are told is held by a checksum: that of the answers in which two implementations agreed.
    """
    met, every = set(), 0
    for seed in range(24):
        made = rust_world(seed)
        found = rust_referred(c_kernel, made, has_classes, containers)
        check_rust(made, found)
        every = zlib.crc32(repr(([tuple(one) for one in found[0]], *found[1:])).encode(), every)
        met |= {(one.row - 3, one.key if one.row - 3 == VECS else 0) for one in found[0] if one.blocks}
    assert {(DYNS, 0), (SHARED_DYNS, 0), (VECS, 0), (BTREES, 0), (COUNTED, 0)} <= met
    assert ((VECS, 1) in met) == (containers == RUST) and every == checksum


def check_rust(made: GraphMemory, told: Tuple[List[Signed], List[int], List[int]]) -> None:
    """Somewhere stand the words that make a block what it is said to be."""
    memory = [[int.from_bytes(data[at : at + 8], "little") for at in range(0, len(data), 8)] for _, data in made.source.pieces]
    pairs = {pair for words in memory for pair in zip(words, words[1:])}
    triples = {triple for words in memory for triple in zip(words, words[1:], words[2:])}
    begins = {row[0]: memory[0][(row[0] - made.rows[0][0]) // 8 :][: row[1] // 8] for row in made.rows}
    sizes = dict(zip(VTABLES, (24, 40, 120)))
    children = {(words[0], address) for address, words in begins.items() if words[0] in begins and address in begins[words[0]]}
    vecs = {(0, pointer, capacity) for capacity, pointer, length in triples if length <= capacity < 1 << 32 and capacity}
    vecs |= {(1, pointer, capacity) for pointer, capacity, length in triples if length <= capacity < 1 << 32 and capacity}
    orders = {(order, pointer) for order, pointer, _ in vecs}
    assert set(told[2]) <= {second for _, second in pairs}
    for (address, size, *_), label in zip(made.rows, told[1]):
        one = told[0][label - 1]
        kind, words = one.row - 3, begins[address]
        if kind in (DYNS, SHARED_DYNS):
            assert (address, one.key) in pairs and size >= sizes[one.key] + (16 if kind == SHARED_DYNS else 0)
        elif kind == VECS:
            assert (one.key, address) in orders
        elif kind == BTREES:
            assert any(address in pair for pair in children)
        assert kind not in (COUNTED, SHARED_DYNS) or (words[0] >= 1 and words[1] >= 1)


def test_memory_that_a_core_left_out_has_zeros(c_kernel: CKernel, tmp_path: Path) -> None:
    """What has no place in the file is read as zeros, up to its end and between what has one."""
    (tmp_path / "core").write_bytes(b"\x07" * 256)
    parts = [Segment(HEAP, 128, 0), Segment(HEAP + 128, 256, NOWHERE), Segment(HEAP + 384, 128, 128), Segment(HEAP + 8192, 4096, NOWHERE)]
    row = SignatureRow([Condition(56, 8, EQUAL, 0), Condition(0, 8, EQUAL, 0x0707070707070707)])
    signer = c_kernel.signer(FileSource(str(tmp_path / "core"), tuple(parts)), (8, True), [row], [], Budget())
    blocks = [(HEAP, 64), (HEAP + 96, 96), (HEAP + 200, 100), (HEAP + 360, 64), (HEAP + 400, 64), (HEAP + 8192, 64)]
    signer.stream(iter([make_blocks([(address, size, CLASS_USED, 0, NO_ARENA) for address, size in blocks])]))
    labels = list(signer.labels())
    found = [(one.row, one.blocks) for one in signer.found()]
    assert [labels[1], labels[2] == labels[5]] == [1 + found.index((0, 1)), True] and (2, 2) not in found
    assert labels[0] == labels[3] == labels[4] == 0
