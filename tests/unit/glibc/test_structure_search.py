"""glibc's malloc is found by structure in every release and geometry, told apart from what it is not, and not believed where it does not hold.

Files: glibc/structure_search.py.
"""

import os
import random
from typing import Dict, Optional, Sequence, Tuple

import pytest

from gdbheapx.glibc import detect, layouts
from gdbheapx.glibc import structure_search as structure
from gdbheapx.inferior.base import Module, Thread, ThreadLocal
from gdbheapx.layout.view import Shape, lay_out_struct
from tests.support.builders.process import WORLDS, Fake, FakeTarget, GlibcMachine, make

OLD = [
    GlibcMachine(version, word, align, page, little, machine)
    for version in ((2, 12), (2, 17), (2, 23), (2, 24), (2, 26), (2, 28))
    for word, align, page, little, machine in (
        (8, 16, 4096, True, "i386:x86-64"),
        (4, 16 if version >= (2, 26) else 8, 4096, True, "i386"),
        (4, 8, 4096, True, "arm"),
        (8, 16, 65536, True, "aarch64"),
    )
]
EVERY = [*OLD, *WORLDS]
SEEDS = int(os.environ.get("GDBHEAPX_SEEDS", "20"))
"""Damaged copies of each of four releases; by hand more."""
TCACHE, ARENA = -72, -56
"""From the thread pointer, as in Debian's 2.36 of x86-64."""
TCACHE_ABOVE, ARENA_ABOVE = 96, 88
"""The same of aarch64, whose linker orders them otherwise."""


class Stripped(FakeTarget):
    """The same process without symbols, with thread pointers instead of addresses of variables."""

    def __init__(self, fake: Fake) -> None:
        target = fake.target
        FakeTarget.__init__(self, fake.geometry, target.machine)
        self.pieces = target.pieces
        self.data = min(start for start, data in self.pieces.items() if start <= target.symbols["main_arena"] < start + len(data))
        self.pointers: Dict[int, int] = {}
        self.is_above = not self.machine.startswith("i386")
        word = self.word_bytes
        for number, lwp in enumerate(target.locals["thread_arena"]):
            start = (0x7D0000000000 if word == 8 else 0x30000000) + number * 0x100000
            self.pieces[start] = bytearray(0x40000)
            pointer = self.pointers[lwp] = start + 0x20000
            self.put_word(pointer + 2 * word, pointer)
            distances = (TCACHE_ABOVE, ARENA_ABOVE) if self.is_above else (TCACHE, ARENA)
            for name, distance in zip(("tcache", "thread_arena"), distances):
                slot = target.locals[name][lwp]
                assert slot is not None
                self.put_word(pointer + distance, target.read_word(slot))

    def threads(self) -> Sequence[Thread]:
        return [Thread(lwp, None, pointer, None, None) for lwp, pointer in self.pointers.items()]

    def writable_segments(self, module: Module) -> Sequence[Tuple[int, int, int]]:
        return [(self.data, self.data + 0x10000, self.data + 0x10000)]

    def present_ranges(self, start: int, end: int) -> Sequence[Tuple[int, int]]:
        return [(start, end)]

    def beside_thread_pointer(self, distance: int) -> Optional[ThreadLocal]:
        return ThreadLocal({lwp: pointer + distance for lwp, pointer in self.pointers.items()}, "static-tls")


@pytest.mark.parametrize("world", EVERY, ids=str)
def test_every_release(world: GlibcMachine) -> None:
    """Addresses, layout, ring and thread-local variables are those that the process was made with."""
    fake = make(world, threads=3, chunks=60)
    known = dict(fake.target.symbols)
    target = Stripped(fake)
    (found,) = structure.find_arena_places(target, set())
    assert (found.main_arena, found.mp, found.bins, found.arenas) == (known["main_arena"], known["mp_"], 127, 4)
    shape = Shape(world.word_bytes, world.alignment_bytes)
    for struct in (layouts.MALLOC_STATE, layouts.MALLOC_PAR, layouts.HEAP_INFO):
        mine, theirs = found.types.structs[struct.name], lay_out_struct(struct, world.version, shape)
        assert {name: (one.offset, one.size_bytes) for name, one in mine.members.items() if name in theirs.members} == {
            name: (one.offset, one.size_bytes) for name, one in theirs.members.items() if name in mine.members
        }
    (glibc,) = detect.find_glibc_copies(target)
    assert (glibc.layout_source, glibc.main_arena.source, glibc.version_text) == ("table", "probe", None)
    assert (glibc.tcache is None) == (world.version < (2, 26))
    for name in ("thread_arena", "tcache")[: 1 if glibc.tcache is None else 2]:
        local = glibc.thread_local(target, name)
        assert local is not None
        for lwp, at in local.addresses.items():
            slot = fake.target.locals[name][lwp]
            assert at is not None and slot is not None and target.read_word(at) == fake.target.read_word(slot)
    if glibc.tcache is not None:
        assert glibc.tcache.size_bytes == world.size_of(layouts.TCACHE)
        assert glibc.traits.safe_linking == (world.version >= (2, 32))


@pytest.mark.parametrize("version", [(2, 43), (2, 44)])
def test_two_releases_whose_thread_caches_have_one_size(version: Tuple[int, int], monkeypatch: pytest.MonkeyPatch) -> None:
    """Their lists tell them apart. 2.44 is made up: it has the heads of the lists before their counts."""
    counts, heads = (next(field for field in layouts.TCACHE.fields if field.name == name and not field.until) for name in ("num_slots", "entries"))
    older = tuple(field if field.until else field._replace(until=(2, 44)) for field in layouts.TCACHE.fields)
    made_up = layouts.TCACHE._replace(fields=(*older, heads._replace(since=(2, 44)), counts._replace(since=(2, 44))))
    monkeypatch.setattr(layouts, "TCACHE", made_up)
    monkeypatch.setattr(layouts, "ROWS", ((2, 44), *layouts.ROWS))
    monkeypatch.setattr(structure, "STRUCTS", (*structure.STRUCTS[:3], made_up))
    monkeypatch.setattr(structure, "list_arena_layouts", structure.list_arena_layouts.__wrapped__)
    fake = make(GlibcMachine(version, 8, 16, 4096, True, "i386:x86-64"), chunks=60)
    target = Stripped(fake)
    (found,) = structure.find_arena_places(target, set())
    assert found.rows == [version] and found.locals.struct == found.types.structs[made_up.name]
    caches = [target.read_word(slot) for slot in fake.target.locals["tcache"].values() if slot]
    assert structure.fit_version(target, found.main_arena, found.mp, caches) == version


LP64 = [world for world in EVERY if world.machine == "i386:x86-64"]


def field(target: FakeTarget, fake: Fake, world: GlibcMachine, struct: layouts.Struct, name: str) -> int:
    """Where a member of main_arena or mp_ lies."""
    base = fake.target.symbols["main_arena" if struct is layouts.MALLOC_STATE else "mp_"]
    return base + lay_out_struct(struct, world.version, Shape(world.word_bytes, world.alignment_bytes)).members[name].offset


@pytest.mark.once  # bytes alone
@pytest.mark.parametrize("world", EVERY, ids=str)
def test_one_thread(world: GlibcMachine) -> None:
    """A process with main_arena alone, whose ring tells little, is found as well."""
    fake = make(world, threads=0, chunks=60)
    (found,) = structure.find_arena_places(Stripped(fake), set())
    assert (found.main_arena, found.mp, found.arenas) == (fake.target.symbols["main_arena"], fake.target.symbols["mp_"], 1)


@pytest.mark.parametrize("world", LP64, ids=str)
def test_not_from_brk(world: GlibcMachine) -> None:
    """Where the main arena has pieces from mmap, mp_ is found by what its fields begin with."""
    fake = make(world, threads=1, chunks=60)
    target = Stripped(fake)
    at = field(target, fake, world, layouts.MALLOC_STATE, "flags")
    start, data = target._piece(at)
    data[at - start] |= 2
    target.put_word(field(target, fake, world, layouts.MALLOC_PAR, "sbrk_base"), 0)
    (found,) = structure.find_arena_places(target, set())
    assert (found.main_arena, found.mp) == (fake.target.symbols["main_arena"], fake.target.symbols["mp_"])


@pytest.mark.parametrize("world", [one for one in LP64 if one.version < (2, 42)], ids=str)
def test_malloc_was_never_used(world: GlibcMachine) -> None:
    """main_arena as the libc's file has it is found by `next`, which leads to itself; its figures are all 0, not unknown."""
    fake = make(world, threads=0, chunks=60)
    target = Stripped(fake)
    main = fake.target.symbols["main_arena"]
    state = lay_out_struct(layouts.MALLOC_STATE, world.version, Shape(world.word_bytes, world.alignment_bytes))
    start, data = target._piece(main)
    data[main - start : main - start + state.size_bytes] = bytes(state.size_bytes)
    target.put_word(main + state.members["next"].offset, main)
    target.put_word(field(target, fake, world, layouts.MALLOC_PAR, "sbrk_base"), 0)
    (found,) = structure.find_arena_places(target, set())
    assert (found.main_arena, found.mp, found.bins) == (main, fake.target.symbols["mp_"], 0)


@pytest.mark.parametrize("world", LP64, ids=str)
def test_a_broken_last_bin(world: GlibcMachine) -> None:
    """The last bin is what the search begins with; where it is damaged, the others lead there."""
    fake = make(world, threads=2, chunks=60)
    target = Stripped(fake)
    bins = lay_out_struct(layouts.MALLOC_STATE, world.version, Shape(world.word_bytes, world.alignment_bytes)).members["bins"]
    target.put_word(fake.target.symbols["main_arena"] + bins.offset + 8 * (bins.count - 1), 0x4141414141414141)
    (found,) = structure.find_arena_places(target, set())
    assert (found.main_arena, found.bins) == (fake.target.symbols["main_arena"], 126)


@pytest.mark.parametrize("member, is_found", [("next", False), ("system_mem", False), ("flags", False), ("top", True), ("max_system_mem", True)])
@pytest.mark.parametrize("world", LP64, ids=str)
def test_what_must_hold(world: GlibcMachine, member: str, is_found: bool) -> None:
    """One damaged field around the bins: the arena is not believed, or it is where it is, and whoever walks it tells the damage."""
    fake = make(world, threads=2, chunks=60)
    target = Stripped(fake)
    target.put_word(field(target, fake, world, layouts.MALLOC_STATE, member), 0x4141414141414140)
    right = [fake.target.symbols["main_arena"]]
    assert [one.main_arena for one in structure.find_arena_places(target, set())] in ([right] if is_found else [right, []])


@pytest.mark.once  # bytes alone
@pytest.mark.parametrize("world", LP64[::3], ids=str)
@pytest.mark.slow
def test_damage_at_random(world: GlibcMachine) -> None:
    """With any ten bytes of the libc's data overwritten it is found where it is, or not at all: never anywhere else, and nothing raises."""
    fake = make(world, threads=2, chunks=60)
    target = Stripped(fake)
    known = (fake.target.symbols["main_arena"], fake.target.symbols["mp_"])
    before = bytes(target.pieces[target.data])
    seen = set()
    for seed in range(SEEDS):
        rng = random.Random(seed)
        data = target.pieces[target.data]
        for _ in range(10):
            data[rng.choice((0x2000, 0x4000)) + rng.randrange(0x900)] = rng.randrange(256)
        found = structure.find_arena_places(target, set())
        assert [(one.main_arena, one.mp) for one in found] in ([known], [])
        seen.add(len(found))
        data[:] = before
    assert seen == {0, 1}


def test_nothing_there() -> None:
    """Random words, zeros and a lone list head are no arena."""
    fake = make(LP64[-1], threads=0, chunks=60)
    target = Stripped(fake)
    data = target.pieces[target.data]
    for content in (bytes(len(data)), random.Random(1).randbytes(len(data))):
        data[:] = content
        assert structure.find_arena_places(target, set()) == []
    target.put_word(target.data + 0x110, target.data + 0x100)
    target.put_word(target.data + 0x118, target.data + 0x100)
    assert structure.find_arena_places(target, set()) == []
