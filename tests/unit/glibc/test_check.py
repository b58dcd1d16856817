"""The rules of glibc malloc on synthetic processes of every release and geometry, and which contradictions are called a change under way.

Files: glibc/arenas.py, inferior/base.py, allocators/answers.py.
"""

from types import SimpleNamespace
from typing import Any, Callable, List, Sequence, Set, Tuple

import pytest

from gdbheapx.allocators import answers
from gdbheapx.allocators.answers import LOCKED, BrokenRule
from gdbheapx.allocators.session import Session
from gdbheapx.common.problems import Diagnostic, ProblemCode
from gdbheapx.glibc import codes, layouts
from gdbheapx.glibc.arenas import Context, report_arena, tell_unless_changing
from gdbheapx.glibc.layouts import make_geometry
from gdbheapx.glibc.plan import find_glibc_code_spans
from gdbheapx.glibc.rules import RULES, abort_of, choose_header_rule
from gdbheapx.inferior import base
from gdbheapx.inferior.base import Thread
from gdbheapx.kernel.glibc.records import STATUS_FREE, STATUS_TCACHE, STATUS_USED
from gdbheapx.layout.view import Shape, lay_out_struct
from tests.support.builders.process import ON_X86_64, WORLDS, Fake, GlibcMachine, make


def broken(fake: Fake) -> Tuple[List[BrokenRule], Session]:
    session = Session(fake.target)
    return list(session.heaps.one().rules()), session


@pytest.mark.parametrize("world", WORLDS, ids=str)
@pytest.mark.parametrize("seed", [1, 2])
def test_a_whole_process_breaks_no_rule(world: GlibcMachine, seed: int) -> None:
    """In every release and geometry."""
    rows, session = broken(make(world, seed))
    assert (rows, session.problems) == ([], [])


def state(fake: Fake, world: GlibcMachine, field: str) -> int:
    """Address of a field of main_arena."""
    return fake.target.symbols["main_arena"] + lay_out_struct(layouts.MALLOC_STATE, world.version, Shape(world.word_bytes, world.alignment_bytes)).members[field].offset


def chunk(fake: Fake, arena: int, status: int, number: int = 3) -> int:
    return [one[0] for one in fake.arenas[arena][0].chunks if one[2] == status][number]


Plant = Callable[[Fake, GlibcMachine], None]
PLANTS: Tuple[Tuple[str, Plant, Tuple[str, ...]], ...] = (
    ("size", lambda fake, world: fake.target.put_word(chunk(fake, 0, STATUS_USED) + world.word_bytes, 0xFFFFFFF1), ("chunk-overrun", "chunk-size-misaligned")),
    ("size of a thread's chunk", lambda fake, world: fake.target.put_word(chunk(fake, 1, STATUS_USED) + world.word_bytes, 9), ("chunk-size-small", "chunk-size-zero", "unsorted-next-size")),
    ("fd", lambda fake, world: fake.target.put_word(chunk(fake, 0, STATUS_FREE) + 2 * world.word_bytes, 0x40), ("smallbin-links", "largebin-links", "unsorted-links")),
    ("bk", lambda fake, world: fake.target.put_word(chunk(fake, 1, STATUS_FREE) + 3 * world.word_bytes, 0x41), ("smallbin-links", "largebin-links", "unsorted-links", "smallbin-head", "largebin-head", "unsorted-head")),
    ("key", lambda fake, world: fake.target.put_word(chunk(fake, 0, STATUS_TCACHE) + 3 * world.word_bytes, 0x41), ("tcache-key",)),
    ("max_system_mem", lambda fake, world: fake.target.put_word(state(fake, world, "max_system_mem"), 4096), ("system-mem-max",)),
    ("top", lambda fake, world: fake.target.put_word(fake.arenas[0][0].region.top + world.word_bytes, 0x7FFFFFF1), ("top-size",)),
)


@pytest.mark.parametrize("world", WORLDS, ids=str)
@pytest.mark.parametrize("plant", PLANTS, ids=lambda plant: plant[0])
def test_a_plant_is_found(world: GlibcMachine, plant: Tuple[str, Plant, Tuple[str, ...]]) -> None:
    """Under its rule, in every release and geometry."""
    fake = make(world)
    plant[1](fake, world)
    rows, _ = broken(fake)
    assert {row.rule for row in rows} & set(plant[2]), rows
    assert all(row.is_sure and row.code == RULES[row.rule][0] for row in rows)


@pytest.mark.parametrize("release, size, rule", [((2, 41), 0x20, "chunk-mmapped-bit"), ((2, 42), 0x20, "chunk-mmapped-cached"), ((2, 42), 0x420, "chunk-mmapped-bit")])
def test_a_mapped_chunks_flag_inside_an_arena(release: Tuple[int, int], size: int, rule: str) -> None:
    """Thread caches of 2.42 take what has a small size, whatever its flags say; else munmap_chunk() aborts."""
    fake = make(ON_X86_64[release])
    place = chunk(fake, 0, STATUS_USED)
    fake.target.put_word(place + 8, size | 3)
    assert [row.rule for row in broken(fake)[0] if row.address == place] == [rule]


def test_a_held_lock_is_evidence() -> None:
    """What is broken in an arena whose mutex is held is not sure; in another arena it is."""
    world = ON_X86_64[2, 36]
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
        ("mmapped-as-wild", (2, 41), "free(): invalid pointer"),
        ("mmapped-as-wild", (2, 42), "free(): invalid size"),
        ("smallbin-head", (2, 41), "free(): chunks in smallbin corrupted"),
        ("prev-size", None, "corrupted size vs. prev_size"),
        ("fastbin-unaligned", None, "malloc(): unaligned fastbin chunk detected"),
        ("tcache-count", (2, 36), None),
    ],
)
def test_messages_are_those_of_the_release(rule: str, release: Any, text: object) -> None:
    """malloc's own words; None where that release does not notice."""
    assert abort_of(rule, release) == text


@pytest.mark.parametrize(
    "field, of_flags, of_size",
    [
        (2, "mmapped-size", "mmapped-as-wild"),
        (8 | 2, "mmapped-header", "mmapped-as-small"),
        (0x30 | 2, "mmapped-header", "mmapped-size"),
        (0x410 | 2, "mmapped-header", "mmapped-size"),
        (0x420 | 2, "mmapped-header", "mmapped-header"),
        (8, "mmapped-as-small", "mmapped-as-small"),
        (0x1000, "mmapped-as-used", "mmapped-as-used"),
        ((1 << 64) - 1, "mmapped-header", "mmapped-as-wild"),
    ],
)
def test_what_free_looks_at_first_decides_what_a_damaged_header_breaks(field: int, of_flags: str, of_size: str) -> None:
    """Up to 2.41 the flags, then the size, by which a thread cache may take a mapped chunk: as programs ended under 2.41 and 2.42."""
    geometry = make_geometry(8, 16, 4096, True)
    assert [choose_header_rule(0, field, 0x7F0000000000, geometry, 0, cached) for cached in (None, 1041)] == [of_flags, of_size]


def test_every_rule_has_a_code() -> None:
    """And a short name of its own."""
    assert all(RULES[rule][0] and len(rule) < 24 for rule in RULES)


@pytest.mark.parametrize("name, is_inside", [("unlink_chunk.constprop.0", True), ("_int_free_create_chunk", True), ("qsort", False)])
def test_static_functions_far_below_malloc_are_its_code(name: str, is_inside: bool) -> None:
    """As in an upstream build of 2.42: unlink_chunk 0x3c70 bytes below malloc, farther than in any of Debian's."""
    malloc = 0x45F0
    function = SimpleNamespace(name=name, start=malloc - 0x3C70, end=malloc - 0x3C00)
    symbols = {"malloc": SimpleNamespace(address=malloc), "free": SimpleNamespace(address=malloc + 0x540)}
    target: Any = SimpleNamespace(module_symbol=lambda module, name: symbols.get(name), functions=lambda module: [function], modules=list)
    spans = find_glibc_code_spans(target, None)  # type: ignore[arg-type]
    assert spans is not None and any(span.start <= function.start < span.end for span in spans) == is_inside


CODE, WAITING = 0x1000, 0x2000
"""Where the object's code lies, and what stands behind a system call there."""
GETPID, MUNMAP = 39, 11


class FakeTarget:
    """A process of which each thread stands at one of these places, in a system call or not."""

    def __init__(self, kind: str, pcs: Sequence[int], system_call: int = GETPID) -> None:
        from gdbheapx.inferior.arch import architecture_named

        self.kind, self._pcs, self.arch, self._call = kind, pcs, architecture_named("i386:x86-64"), system_call

    def threads(self) -> List[Thread]:
        return [Thread(lwp, None, None, None, pc) for lwp, pc in enumerate(self._pcs, 1)]

    def code_ranges(self, module: Any) -> Sequence[Any]:
        return [(CODE, WAITING + 1)]

    def read_prefix(self, address: int, size: int) -> bytes:
        return b"\x0f\x05" if address == WAITING - 2 else b"\x90\x90"

    def register_words(self, thread: Thread) -> Sequence[int]:
        names = self.arch.registers.names  # type: ignore[union-attr]
        return [self._call if name == "orig_rax" else 0 for name in names]


def context_of(target: Any, told: List[ProblemCode]) -> Any:
    """A context that collects codes."""
    glibc: Any = SimpleNamespace(module=None)
    return Context(target, glibc, None, None, None, lambda code, *rest: told.append(code), None, tuple)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "pcs, system_call, running",
    [([CODE], GETPID, {1}), ([WAITING], GETPID, set()), ([WAITING], MUNMAP, {1}), ([WAITING], (1 << 64) - 1, {1}), ([0x9000, CODE], GETPID, {2})],
)
def test_who_runs_in_an_object(pcs: Sequence[int], system_call: int, running: Set[int]) -> None:
    """Not who waits in a system call, but for those that an allocator itself makes; not who has just come back from one."""
    target: Any = FakeTarget("live", pcs, system_call)
    assert base.find_running_threads(target, None) == running  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "kind, mutex, pcs, is_changing",
    [
        ("live", 0, [WAITING], False),
        ("live", 1, [WAITING], True),
        ("live", 0, [CODE], True),
        ("live", 0, [CODE, CODE], False),
        ("core", 1, [CODE], False),
    ],
)
def test_an_arena_in_the_middle_of_a_change(kind: str, mutex: int, pcs: Sequence[int], is_changing: bool) -> None:
    """Its mutex is held, or the only thread, which takes none, stands in malloc's object. A core tells what does not add up."""
    told: List[ProblemCode] = []
    arena: Any = SimpleNamespace(address=0x5000, state={"mutex": mutex}, title="arena 0")
    report_arena(context_of(FakeTarget(kind, pcs), told), arena, [Diagnostic(codes.CHUNK_SMALL, 0x5010, "too small", None)])
    assert told == [codes.ARENA_CHANGING if is_changing else codes.CHUNK_SMALL]


@pytest.mark.parametrize("kind, pcs, code", [("live", [CODE, WAITING], codes.MAPPED_CHANGING), ("live", [WAITING], codes.MAPPED_MISSING), ("core", [CODE], codes.MAPPED_MISSING)])
def test_what_no_mutex_guards(kind: str, pcs: Sequence[int], code: ProblemCode) -> None:
    """It may be changed by each thread that stands in malloc's object."""
    told: List[ProblemCode] = []
    complaint = Diagnostic(codes.MAPPED_MISSING, None, "one is missing", None)
    tell_unless_changing(context_of(FakeTarget(kind, pcs), told), [complaint], codes.MAPPED_CHANGING, "being made or freed")
    assert told == [code]


@pytest.mark.parametrize("pcs, code", [([CODE], codes.ARENA_CHANGING), ([WAITING], codes.CHUNK_SMALL)])
def test_allocators_without_a_lock_for_each_arena(pcs: Sequence[int], code: ProblemCode) -> None:
    """Damage is called a change while a thread stands in their object; what cannot be read stays what it is."""
    told: List[ProblemCode] = []
    target: Any = FakeTarget("live", pcs)
    report = answers.call_changing(target, None, codes.ARENA_CHANGING, context_of(target, told).report)  # type: ignore[arg-type]
    report(codes.CHUNK_SMALL, 1, "too small", None)
    report(codes.LIST_UNREAD, 1, "unread", None)
    assert told == [code, codes.LIST_UNREAD]
