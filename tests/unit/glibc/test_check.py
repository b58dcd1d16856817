"""The rules of glibc malloc on synthetic processes of every release and geometry: none is broken in a whole one, each plant is found."""

from typing import Any, Callable, List, Tuple

import pytest

from gdbheapx.allocators.answers import LOCKED, BrokenRule
from gdbheapx.glibc import layouts
from gdbheapx.glibc.rules import RULES, abort_of
from gdbheapx.kernel.glibc.records import STATUS_FREE, STATUS_TCACHE, STATUS_USED
from gdbheapx.layout.view import Shape, lay_out_struct
from gdbheapx.session import Session
from tests.support.builders.process import WORLDS, Fake, World, make


def name(world: World) -> str:
    return "%d.%d-%s" % (*world.version, world.machine)


def broken(fake: Fake) -> Tuple[List[BrokenRule], Session]:
    session = Session(fake.target)
    return list(session.heaps.one().rules()), session


@pytest.mark.parametrize("world", WORLDS, ids=name)
@pytest.mark.parametrize("seed", [1, 2])
def test_a_whole_process_breaks_no_rule(world: World, seed: int) -> None:
    """2.29 to 2.43, 32 and 64 bits, both byte orders, 64 KiB pages."""
    rows, session = broken(make(world, seed))
    assert (rows, session.problems) == ([], [])


def state(fake: Fake, world: World, field: str) -> int:
    """Address of a field of main_arena."""
    return fake.target.symbols["main_arena"] + lay_out_struct(layouts.MALLOC_STATE, world.version, Shape(world.word_bytes, world.alignment_bytes)).members[field].offset


def chunk(fake: Fake, arena: int, status: int, number: int = 3) -> int:
    return [one[0] for one in fake.arenas[arena][0].chunks if one[2] == status][number]


Plant = Callable[[Fake, World], None]
PLANTS: Tuple[Tuple[str, Plant, Tuple[str, ...]], ...] = (
    ("size", lambda fake, world: fake.target.put_word(chunk(fake, 0, STATUS_USED) + world.word_bytes, 0xFFFFFFF1), ("chunk-overrun", "chunk-size-misaligned")),
    ("size of a thread's chunk", lambda fake, world: fake.target.put_word(chunk(fake, 1, STATUS_USED) + world.word_bytes, 9), ("chunk-size-small", "chunk-size-zero", "unsorted-next-size")),
    ("fd", lambda fake, world: fake.target.put_word(chunk(fake, 0, STATUS_FREE) + 2 * world.word_bytes, 0x40), ("smallbin-links", "largebin-links", "unsorted-links")),
    ("bk", lambda fake, world: fake.target.put_word(chunk(fake, 1, STATUS_FREE) + 3 * world.word_bytes, 0x41), ("smallbin-links", "largebin-links", "unsorted-links", "smallbin-head", "largebin-head", "unsorted-head")),
    ("key", lambda fake, world: fake.target.put_word(chunk(fake, 0, STATUS_TCACHE) + 3 * world.word_bytes, 0x41), ("tcache-key",)),
    ("max_system_mem", lambda fake, world: fake.target.put_word(state(fake, world, "max_system_mem"), 4096), ("system-mem-max",)),
    ("top", lambda fake, world: fake.target.put_word(fake.arenas[0][0].region.top + world.word_bytes, 0x7FFFFFF1), ("top-size",)),
)


@pytest.mark.parametrize("world", WORLDS, ids=name)
@pytest.mark.parametrize("plant", PLANTS, ids=lambda plant: plant[0])
def test_a_plant_is_found(world: World, plant: Tuple[str, Plant, Tuple[str, ...]]) -> None:
    """Under its rule, in every release and geometry."""
    fake = make(world)
    plant[1](fake, world)
    rows, _ = broken(fake)
    assert {row.rule for row in rows} & set(plant[2]), rows
    assert all(row.is_sure and row.code == RULES[row.rule][0] for row in rows)


def test_a_held_lock_is_evidence() -> None:
    """What is broken in an arena whose mutex is held is not sure; in another arena it is."""
    world = WORLDS[10]
    fake = make(world)
    for arena in (0, 1):
        fake.target.put_word(chunk(fake, arena, STATUS_USED) + world.word_bytes, 0xFFFFFFF1)
    start, data = fake.target._piece(fake.target.symbols["main_arena"])
    data[fake.target.symbols["main_arena"] - start] = 1
    rows, _ = broken(fake)
    assert {(row.arena, row.evidence) for row in rows} == {(0, LOCKED), (1, None)}


@pytest.mark.parametrize(
    "rule, release, text",
    [
        ("top-size", (2, 28), None),
        ("top-size", (2, 29), "malloc(): corrupted top size"),
        ("unsorted-size", (2, 28), "malloc(): memory corruption"),
        ("unsorted-size", (2, 36), "malloc(): invalid size (unsorted)"),
        ("fastbin-unaligned", (2, 42), "malloc(): unaligned fastbin chunk detected"),
        ("fastbin-unaligned", (2, 43), None),
        ("prev-size", (2, 26), "corrupted size vs. prev_size"),
        ("mmapped-as-wild", (2, 42), "free(): invalid pointer"),
        ("mmapped-as-wild", (2, 43), "free(): invalid size"),
        ("smallbin-head", (2, 41), "free(): chunks in smallbin corrupted"),
        ("prev-size", None, "corrupted size vs. prev_size"),
        ("fastbin-unaligned", None, "malloc(): unaligned fastbin chunk detected"),
        ("tcache-count", (2, 36), None),
    ],
)
def test_messages_are_those_of_the_release(rule: str, release: Any, text: object) -> None:
    """malloc's own words; None where that release does not notice."""
    assert abort_of(rule, release) == text


def test_every_rule_has_a_code() -> None:
    """And a short name of its own."""
    assert all(RULES[rule][0] and len(rule) < 24 for rule in RULES)
