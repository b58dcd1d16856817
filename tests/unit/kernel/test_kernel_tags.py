"""Pointers with tags: bits that the processor ignores in a process are none of an address, and all bits are where it ignores none."""

import random
from typing import List, Tuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gdbheapx.inferior.base import BytesSource
from gdbheapx.kernel.binding import CKernel
from gdbheapx.kernel.blocks.graph import LEAKED, MASKED, RULE_START, UNALIGNED, GraphShape
from gdbheapx.kernel.blocks.stream import CLASS_USED
from tests.support.plain_graph import PlainGraph
from tests.support.worlds import DATA, HEAP, World, build, make, roots_from, word

TOP_BYTE, LAM, SIGNED = 0xFF << 56, 0x3F << 57, 0xFF7F << 48
"""The top byte; what x86-64 has processes ask for; the top byte and a signature of seven bits."""


def tagged(world: World, ignored: int, rng: random.Random) -> World:
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


def chain(count: int, tag: int, ignored: int) -> Tuple[World, List[int]]:
    """Blocks each of which points to the next one, with a tag in every pointer, and a root that points to the first."""
    places = [HEAP + 32 * one for one in range(count)]
    pieces = [(place, word(after | tag if after else 0, 8, "little") + bytes(8)) for place, after in zip(places, [*places[1:], 0])]
    pieces.append((DATA, word(places[0] | tag, 8, "little")))
    shape = GraphShape([(HEAP, HEAP + 32 * count)], [], 8, True, 16, False, ignored_bits=ignored)
    rows = [(place, 16, CLASS_USED, 0, 0) for place in places]
    return World(BytesSource(tuple(sorted(pieces))), shape, rows, [(DATA, DATA + 8)], "little"), places


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
        pieces = [(DATA, bytes(3) + word(lost | tag, 8, "little") + bytes(13)), (lost, bytes(16))]
        shape = GraphShape([(HEAP, HEAP + 4096)], [], 8, True, 16, False, ignored_bits=ignored)
        world = World(BytesSource(tuple(sorted(pieces))), shape, [(lost, 16, CLASS_USED, 0, 0)], [(DATA, DATA + 24)], "little")
        graph = build(c_kernel, world)
        graph.mark(roots_from(graph, world))
        graph.look_again([(DATA, DATA + 24)], None)
        assert graph.evidence(0) == wanted


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
