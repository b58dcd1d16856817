"""Weak pointers, and pointers with tags: what owns nothing, and which bits are none of an address.

Files: kernel/blocks/graph.py.
"""

import random
from typing import Dict, List, NamedTuple, Sequence, Set, Tuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gdbheapx.inferior.base import BytesSource
from gdbheapx.kernel.binding import CKernel
from gdbheapx.kernel.blocks.graph import LEAKED, MANGLED, MASKED, RULE_START, UNALIGNED
from tests.support.plain_graph import PlainGraph
from tests.support.worlds import DATA, HEAP, GraphMemory, build, lay_out, make, pack_words, roots_from, word

GUARD, TURNS = 0x1234567890ABCDEF, (17, 64)
"""By how many bits a word is turned; 64: it is not."""
ALL = (1 << 64) - 1
THREADS = (1, 2, 3, 8)


class Made(NamedTuple):
    """A heap of which `held` blocks have all their bytes at random, and what they say of the others."""

    world: GraphMemory
    held: List[Tuple[int, bytes]]
    lost: List[int]
    turn: int


def mangled(address: int, turn: int) -> int:
    """As the C library writes it."""
    value = address ^ GUARD
    return (value << turn | value >> 64 - turn) & ALL


def junk(rng: random.Random, lost: Sequence[int], turn: int) -> bytes:
    """Bytes among which addresses stand in every weak way, and nearly do: most of a block's in one way only."""
    kind = rng.randrange(9)
    target = rng.choice((lost[kind // 2 :: 5] if rng.random() < 0.995 else []) or lost) + rng.choice((0, 0, 0, 0, 1, 8))
    plain = target.to_bytes(8, "little")
    kinds = (
        lambda: ((rng.randrange(1, 1 << 16) << 48 | target) & ALL).to_bytes(8, "little"),
        lambda: (target << 16 & ALL | rng.randrange(1 << 16)).to_bytes(8, "little"),
        lambda: bytes(8 * rng.randrange(1, 4)),
        lambda: mangled(target, turn).to_bytes(8, "little"),
        lambda: bytes(rng.randrange(1, 8)) + plain,
        lambda: rng.randbytes(rng.randrange(8)) + plain + rng.randbytes(rng.randrange(8)),
        lambda: plain[: rng.randrange(5, 8)] + rng.randbytes(3),
        lambda: rng.randbytes(8),
        lambda: b"U" * rng.randrange(1, 20),
    )
    return kinds[kind]()


def made(seed: int, rooms: Sequence[int]) -> Made:
    """Blocks one behind the other, a third of which nothing leads to; a root has the addresses of the others."""
    rng, turn = random.Random(seed), TURNS[seed % 2]
    blocks: List[Tuple[int, int]] = []
    lost: List[Tuple[int, int]] = []
    for room in rooms:
        at = room
        for _ in range(rng.choice((4, 150, 400))):
            size = rng.choice((24, 56, 136, 1000, 4))
            (lost if rng.random() < 0.3 or not lost else blocks).append((at, size))
            at += size + 8 + 15 & ~15
    places = [address for address, _ in lost]
    held = []
    for address, size in blocks:
        data = b""
        while len(data) < size:
            data += junk(rng, places, turn)
            data += bytes(-len(data) % 8) if rng.random() < 0.4 else b""
        kept = data[:size]
        words = [kept[place : place + 8] for place in range(0, size, 8)]    # no pointer that the first look sees
        strong = [len(one) == 8 and any(address <= int.from_bytes(one, "little") <= address + 2048 for address in places) for one in words]
        held.append((address, b"".join(bytes(len(one)) if is_strong else one for one, is_strong in zip(words, strong))))
    root = pack_words([address for address, _ in held]) or bytes(8)
    heaps = [(room, room + 0x200000) for room in rooms]
    world = lay_out({**dict(held), **{address: bytes(size) for address, size in lost}}, {DATA: root}, heaps=heaps, all_slots=False)
    return Made(world, held, places, turn)


def expected(one: Made) -> Dict[int, int]:
    """By the definition: the strongest way in which a held block has the begin of one of the others."""
    found: Dict[int, int] = {}
    lost = set(one.lost)

    def hit(value: int, kind: int) -> None:
        if value in lost:
            found[value] = min(kind, found.get(value, LEAKED))

    for _, data in one.held:
        for place in range(0, len(data) - 7, 8):
            value = int.from_bytes(data[place : place + 8], "little")
            low = value & (1 << 48) - 1
            if low != value:
                hit(low & ~7, MASKED)
            hit(value >> 16, MASKED)
            hit((value >> one.turn | value << 64 - one.turn) & ALL ^ GUARD, MANGLED)
            for odd in range(place + 1, min(place + 8, len(data) - 7)):
                hit(int.from_bytes(data[odd : odd + 8], "little"), UNALIGNED)
    return found


ROOMS = (
    (HEAP,),
    (0x555500000000,),
    (0x555500000000, 0x7E0000000000),
    (0x910000000000,),
    (0x1A30000, 0x7E0000000000),
    (0x2A300000, 0x555500000000, 0x910000000000),
)


@pytest.mark.parametrize("rooms", ROOMS)
def test_any_number_of_threads_finds_what_the_definition_gives(c_kernel: CKernel, rooms: Sequence[int]) -> None:
    """Heaps of one sixth byte, of many, of one that is none of a program's; of addresses with fewer bytes; in three places."""
    seen: Set[int] = set()
    for seed in range(12):
        one = made(seed, rooms)
        wanted = expected(one)
        seen.update(wanted.values())
        for threads in THREADS:
            graph = build(c_kernel, one.world)
            graph.mark(roots_from(graph, one.world))
            assert {address for node, (address, _) in enumerate(graph.blocks(range(graph.numbers().blocks))) if graph.evidence(node) == LEAKED} == set(
                one.lost
            )
            sums = graph.look_again([], (GUARD, one.turn), threads)
            evidence = {address: graph.evidence(graph.find(address)[0]) for address in one.lost}  # type: ignore[index]
            assert {address: kind for address, kind in evidence.items() if kind != LEAKED} == wanted
            assert sums[LEAKED].blocks == len(one.lost) - len(wanted)
    assert seen == {MASKED, UNALIGNED, MANGLED}


def test_a_look_in_many_slices_forgets_no_part(c_kernel: CKernel) -> None:
    """Threads that stop at each slice's end go on in the next."""
    one = made(3, (0x555500000000,))
    graph = build(c_kernel, one.world)
    graph.mark(roots_from(graph, one.world))
    library, slices = graph.library, 0
    job = library.heapx_weak_new(graph.handle, GUARD, one.turn, 0, 3)
    while library.heapx_weak_blocks(job, -1.0) == 1:
        slices += 1
    while library.heapx_weak_settle(job, 1e-9) == 1:
        slices += 1
    assert not library.heapx_weak_settle(job, 0.0)
    library.heapx_weak_free(job)
    assert slices < 10000 and {address for address in one.lost if graph.evidence(graph.find(address)[0]) != LEAKED} == set(expected(one))  # type: ignore[index]


TOP_BYTE, LAM, SIGNED = 0xFF << 56, 0x3F << 57, 0xFF7F << 48
"""The top byte; what x86-64 has processes ask for; the top byte and a signature of seven bits."""


def tagged(world: GraphMemory, ignored: int, rng: random.Random) -> GraphMemory:
    """The same world, where each word that leads into a heap or a mapping has a tag."""
    spans = [*world.shape.heaps, *world.shape.mappings]
    pieces = []
    for address, data in world.source.pieces:
        words = [int.from_bytes(data[at : at + 8], world.order) for at in range(0, len(data) - 7, 8)]  # type: ignore[arg-type]
        marked = [one | rng.getrandbits(64) & ignored if any(start <= one < end for start, end in spans) else one for one in words]
        pieces.append((address, b"".join(word(one, 8, world.order) for one in marked) + data[len(data) & ~7 :]))
    return world._replace(source=BytesSource(tuple(pieces)), shape=world.shape._replace(ignored_bits=ignored))


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 1 << 32), st.sampled_from((TOP_BYTE, LAM, SIGNED)), st.booleans(), st.sampled_from(("little", "big")), st.sampled_from((60, 900)))
def test_a_graph_does_not_see_what_the_processor_ignores(c_kernel: CKernel, seed: int, ignored: int, slots: bool, order: str, blocks: int) -> None:
    """With tags in every pointer, also those in registers, the edges are those that the definitions give without any; so is what holds each
    block."""
    world = make(seed, blocks=blocks, slots=slots, order=order)
    rng, more = random.Random(seed), [world.rows[0][0], world.rows[-1][0] + 4]
    marked = tagged(world, ignored, rng)
    graph = build(c_kernel, marked, [one | rng.getrandbits(64) & ignored for one in more])
    plain = build(c_kernel, world, more)
    assert [graph.edges(node) for node in range(graph.nodes)] == [plain.edges(node) for node in range(plain.nodes)]
    if blocks < 100:
        assert [graph.edges(node) for node in range(graph.nodes)] == [[edge[:3] for edge in some] for some in PlainGraph(world, more).edges]
    sums = graph.mark(roots_from(graph, world))
    assert sums == plain.mark(roots_from(plain, world)) and graph.numbers() == plain.numbers()


def chain(count: int, tag: int, ignored: int) -> Tuple[GraphMemory, List[int]]:
    """Blocks each of which points to the next one, with a tag in every pointer, and a root that points to the first."""
    places = [HEAP + 32 * one for one in range(count)]
    blocks = {place: pack_words([after | tag if after else 0, 0]) for place, after in zip(places, [*places[1:], 0])}
    return lay_out(blocks, {DATA: pack_words([places[0] | tag])}, all_slots=False, ignored_bits=ignored), places


@pytest.mark.parametrize(
    "tag,ignored,held",
    [(0x5A << 56, TOP_BYTE, True), (0x5A << 56, 0, False), (0x15 << 57, LAM, True), (0x5A << 56 | 1 << 63, LAM, False), (1 << 48, TOP_BYTE, False)],
    ids=["ignored", "none-is-ignored", "lam", "not-bit-63", "not-an-address-bit"],
)
def test_a_chain_is_held_where_its_tags_are_ignored(c_kernel: CKernel, tag: int, ignored: int, held: bool) -> None:
    """A tag in other bits makes a word that is no pointer: no block is held by it, and the first look says so."""
    world, places = chain(1000, tag, ignored)
    graph = build(c_kernel, world)
    sums = graph.mark(roots_from(graph, world))
    assert (sums[RULE_START].blocks, sums[LEAKED].blocks) == ((1000, 0) if held else (0, 1000))
    assert graph.numbers().edges == (1000 if held else 0)


def test_unaligned_pointers_may_have_tags(c_kernel: CKernel) -> None:
    """The second look finds a pointer at an odd address whose tag is ignored, and takes no other bit for one."""
    for tag, ignored, wanted in ((0x5A << 56, TOP_BYTE, UNALIGNED), (0x0A << 57, LAM, UNALIGNED), (0x3F << 48, SIGNED, UNALIGNED), (0x5A << 56, 0, LEAKED)):
        lost = HEAP + 64
        root = bytes(3) + pack_words([lost | tag]) + bytes(13)
        world = lay_out({lost: bytes(16)}, {DATA: root}, all_slots=False, ignored_bits=ignored)
        graph = build(c_kernel, world)
        graph.mark(roots_from(graph, world))
        graph.look_again([(DATA, DATA + 24)], None)
        assert graph.evidence(0) == wanted


def test_what_hangs_behind_a_weak_pointer_is_found_with_it(c_kernel: CKernel) -> None:
    """By a plain pointer of the block that was found; what nothing leads to stays lost."""
    places = [HEAP + 64 * one for one in range(5)]
    blocks = {place: pack_words([behind, 0]) for place, behind in zip(places, [places[1], 0, places[3], 0, 0])}
    world = lay_out(blocks, {DATA: pack_words([places[0] | 0xABCD << 48, mangled(places[2], 17)])}, all_slots=False)
    graph = build(c_kernel, world)
    graph.mark(roots_from(graph, world))
    sums = graph.look_again([(DATA, DATA + 16)], (GUARD, 17))
    assert [graph.evidence(node) for node in range(5)] == [MASKED, MASKED, MANGLED, MANGLED, LEAKED]
    assert (sums[MANGLED], sums[LEAKED], graph.find_leak_roots()) == ((2, 32), (1, 16), 1)


@pytest.mark.parametrize("count", [3, 1000, 70_000])
def test_the_second_look_goes_on_behind_what_it_finds(c_kernel: CKernel, count: int) -> None:
    """A chain whose pointers all have a counter in their upper bits is masked to its end, in either direction of its addresses; and all of
    its words would be pointers if the processor ignored these bits."""
    for ignorable, tag, told in ((LAM, 0x15 << 57, True), (LAM, 0x0003 << 48, False), (0, 0x15 << 57, False)):
        world, places = chain(count, tag, 0)
        graph = build(c_kernel, world)
        graph.mark(roots_from(graph, world))
        sums = graph.look_again([(DATA, DATA + 8)], None, ignorable_bits=ignorable)
        assert (sums[MASKED].blocks, sums[LEAKED].blocks, len(places)) == (count, 0, count)
        assert (graph.tagged_words >= 1) == told


WAYS = {
    MASKED: lambda address: pack_words([address | 0xABCD << 48, 0, 0]),
    UNALIGNED: lambda address: bytes(3) + pack_words([address, 0]) + bytes(5),
    MANGLED: lambda address: pack_words([mangled(address, 17), 0, 0]),
}
"""Of three words one weak pointer."""


@pytest.mark.parametrize("second", WAYS)
@pytest.mark.parametrize("first", WAYS)
@pytest.mark.parametrize("found, behind", [(0, 1), (1, 0)])
def test_a_block_behind_two_weak_pointers_is_held_by_the_weaker_one(c_kernel: CKernel, found: int, behind: int, first: int, second: int) -> None:
    """Whichever of the two is in the root, and comes first in the heap: blocks that are found are read, whatever found them."""
    places = [HEAP, HEAP + 64]
    blocks = {places[found]: WAYS[second](places[behind]), places[behind]: bytes(24), HEAP + 128: bytes(24)}
    world = lay_out(blocks, {DATA: WAYS[first](places[found])}, all_slots=False)
    graph = build(c_kernel, world)
    graph.mark(roots_from(graph, world))
    graph.look_again([(DATA, DATA + 24)], (GUARD, 17))
    assert [graph.evidence(node) for node in (found, behind, 2)] == [first, max(first, second), LEAKED]
