"""How much an answer about blocks has looked at, what it leaves out, and tables of parts made by hand: each byte once.

Files: jemalloc/text.py.
"""

from types import SimpleNamespace
from typing import Any, Dict, List, Optional, Tuple

import pytest

from gdbheapx.analysis import inside, memory_verdict
from gdbheapx.analysis.census import block, registry
from gdbheapx.analysis.census.find import Census, CensusLook, Managed
from gdbheapx.analysis.census.world import EXACT, PLACE, Inner, Recogniser, RuntimeLabels, Signature
from gdbheapx.analysis.inside import Watch
from gdbheapx.analysis.memory import kinds
from gdbheapx.analysis.memory.attribute import MappingPiece
from gdbheapx.analysis.memory.kinds import MemoryOwner
from gdbheapx.analysis.memory_verdict import SMALL_BYTES, Coverage, hide_unread_zero
from gdbheapx.analysis.reachability.leaks import Leaks
from gdbheapx.command import TextStyle
from gdbheapx.common.model import TargetAddress
from gdbheapx.common.problems import MEMORY_UNREAD
from gdbheapx.kernel.blocks.graph import NativeSum
from gdbheapx.report import pages, reach_text
from tests.support.builders.records import MB, part, split

PLAIN = TextStyle(False, False)


def covered(*rows: Tuple[str, int]) -> Coverage:
    """Of pieces of these kinds."""
    pieces = [MappingPiece(place, kinds.MemoryOwner(kind, "anything"), size_bytes, None) for place, (kind, size_bytes) in enumerate(rows)]
    uses: Any = [SimpleNamespace(mapping=SimpleNamespace(start=0x1000 * (place + 1))) for place in range(len(rows))]
    return memory_verdict._sum_coverage(pieces, uses)


def test_kinds() -> None:
    """Allocators and runtimes are readers; stacks, bss, code, files and shared memory are in neither sum."""
    aside = [(kind, 100 * MB) for kind in (kinds.STACK, kinds.BSS, kinds.JIT, kinds.CACHE, kinds.COPIED, kinds.SHARED, kinds.HUGETLB)]
    found = covered((kinds.ALLOCATOR, 3), (kinds.RUNTIME, 4), (kinds.ANONYMOUS, 5), (kinds.NAMED, 6), (kinds.BRK, 1), *aside)
    assert found == (19, 7, TargetAddress(0x4000))


@pytest.mark.parametrize(
    "read_bytes, unread_bytes, is_low",
    [
        (0, 200 * MB, True),
        (9 * MB - 1, SMALL_BYTES, True),
        (9 * MB, SMALL_BYTES, False),  # 90 %
        (0, SMALL_BYTES - 1, False),  # what a loader maps
        (0, 0, False),
    ],
)
def test_from_where_on_it_is_low(read_bytes: int, unread_bytes: int, is_low: bool) -> None:
    """Below 90 %, and not for a few pages."""
    assert Coverage(read_bytes + unread_bytes, read_bytes).is_low is is_low


def test_zero_is_unknown() -> None:
    """Of what was found there is that much at least; of nothing nobody knows how much there is."""
    low, whole = Coverage(100 * MB, 0), Coverage(100 * MB, 95 * MB)
    assert [hide_unread_zero(NativeSum(0, 0), one) for one in (low, whole, None)] == [None, (0, 0), (0, 0)]
    assert hide_unread_zero(NativeSum(2, 64), low) == (2, 64)


class FakeSession:
    """Takes notes."""

    def __init__(self) -> None:
        self.coverage: Any = None
        self.codes: List[str] = []

    def problem(self, code: str, where: object, what: str, hint: object) -> None:
        """As Session.problem."""
        self.codes.append(code)


@pytest.mark.parametrize(
    "read_bytes, percent, codes", [(0, 0.0, [MEMORY_UNREAD]), (90 * MB, 90.0, []), (90 * MB - 1, 89.9, [MEMORY_UNREAD])]
)
def test_what_an_answer_says(read_bytes: int, percent: float, codes: List[str]) -> None:
    """The share is rounded down: an answer that is whole has 90 % or more."""
    session: Any = FakeSession()
    memory_verdict.note_coverage(session, Coverage(100 * MB, read_bytes))
    assert session.coverage == {"anonymous_bytes": 100 * MB, "read_bytes": read_bytes, "share_percent": percent}
    assert session.codes == codes


def test_leaks_in_words() -> None:
    """Nothing is not said of what was not looked at."""
    none, some, nothing = (Leaks(NativeSum(1, 8), NativeSum(0, 0), {}, leaked, 0) for leaked in (None, NativeSum(1, 8), NativeSum(0, 0)))
    seen = Coverage(200 * MB, 8192)
    assert next(iter(reach_text.make_leaks_page(none, None, coverage=seen))) == "Leaked: unknown (looked at 8.0 KiB of 200.0 MiB (0 %))"
    assert str(next(iter(reach_text.make_leaks_page(some, None, coverage=seen)))).startswith("Leaked: at least 8 bytes in 1 block")
    assert next(iter(reach_text.make_leaks_page(nothing, None))) == "Leaked: nothing"
    perl = list(reach_text.make_leaks_page(nothing._replace(runtime="Perl"), None))[-1]
    assert perl == "Perl's arenas point to all of its objects: those that the program has lost in cycles count as reachable."
    inner = list(reach_text.make_leaks_page(nothing._replace(offsets=[(65535, 2634), (15571, 9)]), None))[-1]
    assert inner == "Blocks reachable only through a pointer into their middle, by its offset: 65,535 or more (2,634), 15,571 (9)"
    assert reach_text.make_leaks_data(none, None, None, seen)["classes"]["leaked"] == {
        "blocks": None,
        "bytes": None,
        "roots": None,
        "is_upper_bound": False,
    }


def test_check_in_words() -> None:
    """It claims no more than was looked at."""
    low, whole = Coverage(200 * MB, 8192), Coverage(200 * MB, 199 * MB)
    said = [list(pages.format_broken_rules(PLAIN, [], one)) for one in (low, whole, None)]
    assert said == [["No corruption found: looked at 8.0 KiB of 200.0 MiB (0 %)"], ["No corruption found."], ["No corruption found."]]


def holding(size_bytes: Optional[int]) -> Any:
    """A jemalloc with so many bytes in pages."""
    return SimpleNamespace(info=SimpleNamespace(id="jemalloc", object="libarrow.so.2600"), capabilities={"held-bytes": lambda: size_bytes})


def test_who_holds_more_than_what_is_shown_is_named() -> None:
    """With both figures and the option that shows it."""
    ((what, hint),) = block.find_larger(3 * MB, [holding(300 * MB)])
    assert "jemalloc in libarrow.so.2600 holds 300.0 MiB (100 times as much)" in what and "3.0 MiB" in what
    assert hint == "malloc-stats --allocator jemalloc shows it"
    assert block.find_larger(0, [holding(MB)])[0][0].endswith("holds 1.0 MiB")


@pytest.mark.parametrize("size_bytes", [None, 0, 3 * MB, 5 * MB])
def test_who_holds_little_or_an_unknown_amount_is_not(size_bytes: Optional[int]) -> None:
    """Half as much again is no reason to look elsewhere."""
    assert block.find_larger(3 * MB, [holding(size_bytes)]) == []


def test_garbage_is_no_leak(monkeypatch: pytest.MonkeyPatch) -> None:
    """What waits for its collector is left out for who asks what is leaked; what is freed at once is not."""
    pools = Inner(iter(()), "python", "block of a pool", [(0, 4096)])
    slots = Inner(iter(()), "ruby", "object in a slot", [(8192, 12288)], is_collected=True)
    monkeypatch.setattr(registry, "find_runtime_memory", lambda session: [pools, slots])
    session: Any = SimpleNamespace(shared=lambda name: None)
    every, leakable = registry.find_further(session), registry.find_further(session, garbage=False)
    assert (list(every.taken), list(leakable.taken)) == ([(0, 4096), (8192, 12288)], [(0, 4096)])
    assert len(leakable.blocks) == 1


OBJECT, BODY, TAG = Signature("dict", "python"), Signature("dict+0x8", "python", PLACE), Signature("NMT GC", "jvm", EXACT)
POOLS = MemoryOwner(kinds.RUNTIME, "CPython: object arenas (obmalloc)", program="CPython")


class Known(Recogniser):
    """A recogniser, as far as a table asks."""

    def __init__(self, module: str) -> None:
        self.module = module
        name, owned = {"python": ("CPython", "malloc: of objects"), "jvm": ("JVM", "")}[module]
        self.table = RuntimeLabels(name, "obmalloc", owned, "malloc: other blocks", "malloc: blocks")


def table(module: str, outside: Dict[Optional[Signature], int], held: Dict[MemoryOwner, int], absent: int = 0) -> Dict[str, int]:
    """Kinds with their bytes, of 1000 bytes of malloc, 500 of the runtime, 100 of a file and 50 that nothing names."""
    parts = [
        part(kinds.ALLOCATOR, 1000),
        part(kinds.RUNTIME, 500, name=POOLS.name, program="CPython"),
        part(kinds.CACHE, 100),
        part(kinds.ANONYMOUS, 30),
        part(kinds.RUNTIME, 20, name="JVM: tables", program="JVM", sure="guess"),
    ]
    whole = split(parts)
    managed = [Managed("python", "block of a pool", 600, 300, 250, 50)] if held else []
    watch = Watch(whole, 4096)
    watch.pools, watch.absent_bytes = {"python": held}, absent
    made = inside.make_runtime_table(Known(module), whole, CensusLook(Census([], 0, 0, 0, 0, managed, False), outside), watch)
    assert made.sum_bytes == 1650 == sum(row.bytes for row in made.rows)
    found: Dict[str, int] = {}
    for row in made.rows:
        found[row.kind] = found.get(row.kind, 0) + row.bytes
    return found


def test_pools_in_their_own_mappings() -> None:
    """What of the mapping is no pool stays as the remainder; blocks that objects alone point to are theirs."""
    found = table("python", {OBJECT: 400, BODY: 100, None: 200}, {POOLS: 450})
    assert [found[kind] for kind in ("runtime-used", "runtime-free", "runtime-overhead", "not-in-ram")] == [300, 250, 50, -150]
    assert [found[kind] for kind in ("malloc-owned", "malloc-other", "malloc-free", "remainder")] == [500, 200, 300, 100]


def test_pools_in_memory_of_mallocs() -> None:
    """They are taken off it; a mapping of the runtime's in which none lies keeps its name."""
    found = table("python", {OBJECT: 400}, {MemoryOwner(kinds.ALLOCATOR, "malloc", allocator="glibc"): 600})
    assert (found["malloc-owned"], found["malloc-free"], found["remainder"], found[kinds.RUNTIME]) == (400, 0, 50, 500)


@pytest.mark.parametrize("used, absent, kept, missing", [(900, 0, 100, 0), (900, 200, 300, -200), (1500, 600, 100, -600), (1500, 200, 0, -500)])
def test_blocks_that_are_not_in_ram(used: int, absent: int, kept: int, missing: int) -> None:
    """Large ones by their pages; what malloc keeps is never below 0."""
    found = table("jvm", {TAG: used - 100, Signature("NMT GC+0x8", "jvm", PLACE): 60, None: 40}, {}, absent)
    assert (found["malloc-owned"], found["malloc-other"]) == (used - 100, 100)
    assert (found["malloc-free"], found.get("not-in-ram", 0)) == (kept, missing)


@pytest.mark.parametrize("is_loaded, name", [(True, "Perl"), (False, None)])
def test_a_runtime_whose_arenas_lead_to_all_is_named(is_loaded: bool, name: Optional[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Only where it is in the process; others have no word in it."""
    table = SimpleNamespace(name="Perl")
    others = [SimpleNamespace(leads_to_all=False, table=table, is_here=lambda world: True), SimpleNamespace(leads_to_all=True, table=None, is_here=lambda world: True)]
    monkeypatch.setattr(registry, "list_recognisers", lambda: [*others, SimpleNamespace(leads_to_all=True, table=table, is_here=lambda world: is_loaded)])
    target = SimpleNamespace(word_bytes=8, little_endian=True, kind="core", has_memory=True)
    assert registry.find_leading_to_all(SimpleNamespace(target=target, world=None)) == name  # type: ignore[arg-type]
