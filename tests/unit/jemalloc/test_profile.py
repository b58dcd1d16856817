"""The heap profile: the text that prof.dump would write, from tables and trees in memory, whole or damaged.

Files: jemalloc/profile.py.
"""

import math

import pytest

from gdbheapx.jemalloc import profile
from tests.support.builders.profile import INITIALIZING, PURGATORY, ProfileWorld, Share

VERSIONS = ((5, 2, 1), (5, 3, 0), (5, 3, 1))
MAIN, WORKER, GONE = 0, 1, 7
A, B, DEEP = (0x401000, 0x402000), (0x400FFF, 0x402000, 0x403000), tuple(range(0x500000, 0x500000 + 16 * 100, 16))


@pytest.fixture(params=VERSIONS, ids=lambda version: "%d.%d.%d" % version)
def version(request):
    """A release of each layout."""
    return request.param


def plain(version):
    """A process whose dump shows its counters as they are."""
    return ProfileWorld(version, unbias=False)


def text(world, maps=""):
    """The profile's lines."""
    return list(profile.read_profile(world.context).lines(maps))


def test_the_whole_text(version):
    """Head, threads in the order of their numbers, backtraces in memcmp's order, each thread's share, then the mappings."""
    world = plain(version)
    world.threads({WORKER: "worker", MAIN: None})
    world.backtraces({A: [Share(MAIN, 2, 300), Share(WORKER, 1, 50)], B: [Share(WORKER, 4, 4096)]})
    assert text(world, "400000-401000 r-xp 00000000 00:00 0 /bin/fake") == [
        "heap_v2/4096",
        "  t*: 7: 4446 [0: 0]",
        "  t0: 2: 300 [0: 0]",
        "  t1: 5: 4146 [0: 0] worker",
        "@ 0x401000 0x402000",
        "  t*: 3: 350 [0: 0]",
        "  t0: 2: 300 [0: 0]",
        "  t1: 1: 50 [0: 0]",
        "@ 0x400fff 0x402000 0x403000",
        "  t*: 4: 4096 [0: 0]",
        "  t1: 4: 4096 [0: 0]",
        "",
        "MAPPED_LIBRARIES:",
        "400000-401000 r-xp 00000000 00:00 0 /bin/fake",
    ]
    assert not world.problems


def test_many(version):
    """Backtraces of many threads in deep trees: every one is there once, and the sums are theirs."""
    world = plain(version)
    world.threads(dict.fromkeys(range(20)))
    traces = {(0x400000 + 16 * i, *DEEP): [Share(uid, 1 + i, 10 * uid + 1) for uid in range(i % 20 + 1)] for i in range(40)}
    world.backtraces(traces)
    found = profile.read_profile(world.context)
    assert {one.frames for one in found.backtraces} == set(traces)
    for one in found.backtraces:
        assert [uid for uid, _ in one.shares] == [share.uid for share in traces[one.frames]]
        assert one.total.curbytes == sum(share.bytes for share in traces[one.frames])
    assert found.total.curbytes == sum(total.curbytes for _, _, total in found.threads) == sum(one.total.curbytes for one in found.backtraces)
    assert not world.problems


def test_what_the_dump_leaves_out(version):
    """Entries in the making or on their way out, and all of a thread whose data prof.reset dropped."""
    world = plain(version)
    world.threads({MAIN: None, WORKER: None, GONE: None}, expired=[GONE])
    world.backtraces(
        {A: [Share(MAIN, 1, 10), Share(GONE, 5, 500)], B: [Share(MAIN, 9, 90, state=INITIALIZING), Share(WORKER, 8, 80, state=PURGATORY)]}
    )
    lines = text(world)
    assert lines == [
        "heap_v2/4096",
        "  t*: 1: 10 [0: 0]",
        "  t0: 1: 10 [0: 0]",
        "  t1: 0: 0 [0: 0]",
        "@ 0x401000 0x402000",
        "  t*: 1: 10 [0: 0]",
        "  t0: 1: 10 [0: 0]",
    ]


@pytest.mark.parametrize("accum", [False, True])
def test_accumulated(version, accum):
    """A backtrace by which nothing lives any more is there only if all that ever was is counted."""
    world = ProfileWorld(version, accum=accum, unbias=False)
    world.threads({MAIN: None})
    world.backtraces({A: [Share(MAIN, 0, 0, 3, 30)], B: [Share(MAIN, 1, 10, 2, 20)]})
    lines = text(world)
    assert ("@ 0x401000 0x402000" in lines) == accum
    assert lines[1] == ("  t*: 1: 10 [5: 50]" if accum else "  t*: 1: 10 [0: 0]")


def test_corrected_block_by_block():
    """From 5.3.0 the text shows what jeprof, correcting by the mean size, turns back into the sums that jemalloc keeps."""
    world = ProfileWorld((5, 3, 0), lg_sample=10)
    world.threads({MAIN: None})
    world.backtraces({A: [Share(MAIN, 1000, 64000)]})
    objects, size = map(int, text(world)[1][len("  t*: ") : -len(" [0: 0]")].split(": "))
    factor = 1 / (1 - math.exp(-(size / objects) / 1024))
    assert objects < 100
    assert objects * factor == pytest.approx(1000, rel=0.02)
    assert size * factor == pytest.approx(64000, rel=0.02)


def test_rounding():
    """Halves away from 0, nothing from nothing, and never more than 64 bits."""
    assert profile._round_half_up(0.49999999999999994) == 0
    assert [profile._round_half_up(number) for number in (0.5, 1.5, 2.5, 2.4)] == [1, 2, 3, 2]
    assert profile._round_half_up(2.0**70) == 2**64 - 1
    assert profile.rebias_counts(0, 100, 12) == (0, 0)
    assert profile.rebias_counts(8, 0, 12) == (0, 0)


def test_memory_in_use(version):
    """Sampled small blocks count as they are: up to 5.3.0 the counters have 16 KiB for each, from 5.3.1 on nothing."""
    world = plain(version)
    world.threads({MAIN: None})
    world.backtraces({A: [Share(MAIN, 10, 1000)], B: [Share(MAIN, 2, 2 << 20)]})
    used_bytes = (3 << 20) + 1000
    counted_bytes = 3 << 20 if version >= (5, 3, 1) else (3 << 20) + 10 * 16384
    assert profile.read_profile(world.context, counted_bytes).used_bytes == used_bytes
    assert profile.read_profile(world.context).used_bytes is None


# ---------------------------------------------------------------------------------------------------- damage


def world_with_two(version):
    """Two backtraces of two threads."""
    world = plain(version)
    world.threads({MAIN: None, WORKER: None, GONE: None})
    world.backtraces({A: [Share(MAIN, 2, 300), Share(WORKER, 1, 50), Share(GONE, 1, 1)], B: [Share(WORKER, 4, 4096)]})
    return world


def test_node_of_another_tree(version):
    """A node that says it belongs to another backtrace is not counted here."""
    world = world_with_two(version)
    world.put("prof_tctx_s", world.tctxs[(B, WORKER)], gctx=world.gctxs[A])
    found = profile.read_profile(world.context)
    assert [one.frames for one in found.backtraces] == [A]
    assert world.problems[0].address == world.tctxs[(B, WORKER)]


def test_unreadable(version):
    """What is not in the core is named, the rest is there."""
    world = world_with_two(version)
    del world.memory.pieces[world.tctxs[(A, MAIN)]]
    found = profile.read_profile(world.context)
    assert found.total.curobjs == 6
    assert world.problems[0].address == world.tctxs[(A, MAIN)]


def test_unreadable_backtrace(version):
    """The addresses of one backtrace are missing: its thread counts still, it is not written."""
    world = world_with_two(version)
    view = world.context.view("prof_gctx_s", world.gctxs[B])
    del world.memory.pieces[view["bt.vec"]]
    assert [one.frames for one in profile.read_profile(world.context).backtraces] == [A]
    assert world.problems[0].address == view["bt.vec"]


@pytest.mark.parametrize("lg", [29, 63, 2**32 - 1])
def test_table_without_end(version, lg):
    """A size that no table has is not followed."""
    world = world_with_two(version)
    world.put("ckh_t", world.symbols.places["bt2gctx"][0], lg_curbuckets=lg)
    assert profile.read_profile(world.context).backtraces == []
    assert len(world.problems) == 1


# ---------------------------------------------------------------------------------------------------- no profile


@pytest.mark.parametrize(
    "objects, block_bytes, used, is_active, told",
    [
        (300, 1 << 20, 310 << 20, True, None),
        (0, 1 << 20, 107 << 20, False, "0 % of the memory in use: 0 B of 107.0 MiB; sampling is off now"),
        (27, 1 << 20, 107 << 20, True, "of 107.0 MiB; memory allocated while sampling was off"),
        (0, 1 << 20, 8 << 20, True, None),
        (0, 1 << 20, None, False, None),
    ],
    ids=["all", "off", "late", "a few samples less", "no counters"],
)
def test_how_much_a_profile_covers(objects, block_bytes, used, is_active, told):
    """A part is missing if a quarter is, and more than chance explains."""
    counts = profile.NO_COUNTS._replace(curobjs=objects, curbytes=objects * block_bytes)
    sampled = profile.Profile(19, False, False, [], [profile.Backtrace((1,), [], counts)] if objects else [], counts, used, is_active)
    shortfall = sampled.shortfall
    assert (shortfall is None) is (told is None)
    assert told is None or shortfall is None or told in "; ".join(shortfall)
