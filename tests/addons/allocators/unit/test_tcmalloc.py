"""tcmalloc: its structure, size classes and settings by flag and environment."""

import struct
from types import SimpleNamespace
from typing import Any, Dict, List, NamedTuple, Optional

import pytest

from gdbheapx.addons.allocators.tcmalloc import codes, entry, heap
from gdbheapx.addons.allocators.tcmalloc.entry import ALLOCATOR
from gdbheapx.addons.allocators.tcmalloc.heap import TCMALLOC_SHAPE, TcmallocHeap
from gdbheapx.addons.allocators.tcmalloc.records import TcArena, TcFacts
from gdbheapx.allocators.records import Surroundings
from gdbheapx.common import verdict
from gdbheapx.common.budget import Budget
from gdbheapx.common.hints import hint_command
from gdbheapx.common.model import AllocatorInfo
from gdbheapx.common.problems import ProblemCode
from gdbheapx.kernel.common.library import Kernel
from tests.support.builders.tcmalloc import CENTRAL, DATA, LEAF, ROOT, STATS, STRIDE, STRUCTS, Span, TcTarget
from tests.support.heap_contexts import heap_context

CLASS_48, CLASS_96 = 4, 7


class Opened(NamedTuple):
    """A heap, and the codes that it reports."""

    heap: TcmallocHeap
    codes: List[ProblemCode]


def opened(target: TcTarget, kernel: Kernel) -> Opened:
    """By its structure."""
    told: List[ProblemCode] = []
    (found,) = ALLOCATOR.find(target).located
    around = heap_context(target, kernel, Budget(), lambda code, *rest, **more: told.append(code))
    heap = ALLOCATOR.open(found, around)
    assert isinstance(heap, TcmallocHeap)
    return Opened(heap, told)


def made(**options: Any) -> "tuple[TcTarget, Span, Span]":
    """Objects of two classes on every sort of list, a large block, a free span and a returned one."""
    target = TcTarget(**options)
    small, other = target.span(1, CLASS_48), target.span(2, CLASS_96)
    target.span(5)
    target.span(3, location=1)
    target.span(4, location=2)
    target.to_central(small, small.objects[3:9])
    target.to_transfer(CLASS_48, small.objects[20:24])
    target.to_transfer(CLASS_96, other.objects[4:8])
    target.to_cache(target.caches[0], CLASS_48, small.objects[40:50])
    target.to_cache(target.caches[-1], CLASS_96, other.objects[100:101])
    return target, small, other


def rows(heap: TcmallocHeap) -> "List[tuple[int, int, str]]":
    """Address, usable bytes and status of all blocks."""
    return [(row[0], row[1], TCMALLOC_SHAPE.words[row[3]]) for batch in heap.blocks() for row in zip(*batch)]


@pytest.mark.parametrize("has_tid", [True, False])
@pytest.mark.parametrize("thread_caches", [1, 3])
def test_blocks_and_sums(kernel: Kernel, has_tid: bool, thread_caches: int) -> None:
    """Every block has its state; the sums add up to what the page heap counts; each cache has its thread."""
    target, _, _ = made(has_tid=has_tid, thread_caches=thread_caches)
    heap, told = opened(target, kernel)
    listed = rows(heap)
    assert {row[0]: row[1] for row in listed if row[2] == "used"} == target.used
    lists = sorted((row[0], row[2]) for row in listed if row[2] in ("free", "transfer", "tcache"))
    assert lists == sorted(target.free) and not told
    (row,) = heap.arenas()
    assert (row.system_bytes, row.free_bytes, row.returned_bytes) == tuple(target.totals)
    parts = (row.used_bytes, row.central_bytes, row.transfer_bytes, row.cached_bytes, row.tail_bytes, row.free_bytes, row.returned_bytes)
    assert sum(part or 0 for part in parts) == row.system_bytes
    assert (row.central_bytes, row.transfer_bytes, row.cached_bytes) == (6 * 48, 4 * 48 + 4 * 96, 10 * 48 + 96)
    assert sum(size.used_bytes for size in heap.histogram()) == row.used_bytes == sum(target.used.values())
    assert [cache.chunks for cache in heap.caches() if cache.chunks] == ([11] if thread_caches == 1 else [10, 1])
    if has_tid:
        assert [cache.lwp for cache in heap.caches()] == list(range(100, 100 + thread_caches))
    assert list(heap.rules()) == []


def test_what_a_place_is(kernel: Kernel) -> None:
    """An object with its neighbours and its span; free pages; tcmalloc's own."""
    target, small, _ = made()
    heap, _ = opened(target, kernel)
    place = heap.block_at(small.objects[10] + 5)
    assert (place.block.address, place.block.status, place.offset, place.previous.status) == (small.objects[10], "used", 5, "used")
    assert [part.name for part in place.parts] == ["span of class 4", "spans"]
    known = heap.block_at(STRUCTS)
    assert known is not None and known.block is not None and known.block.status == "metadata"
    assert heap.block_at(DATA) is None


def broken(target: TcTarget, kernel: Kernel) -> "set[str]":
    """The codes of rules that are broken."""
    heap, _ = opened(target, kernel)
    return {rule.code for rule in heap.rules()}


def test_each_rule(kernel: Kernel) -> None:
    """A count, a list, a span, a leaf, the page heap's figures: each by its code, and the walk goes on."""

    def damaged(change: Any) -> "set[str]":
        target, small, _ = made()
        change(target, small)
        return broken(target, kernel)

    base = CENTRAL + STRIDE * CLASS_48
    assert damaged(lambda target, small: target.put_word(base + 120, 7)) == {codes.CENTRAL_COUNT}
    assert damaged(lambda target, small: target.put_word(base + 112, 9)) == {codes.CENTRAL_SPANS}
    assert damaged(lambda target, small: target.put(small.struct + 40, struct.pack("<H", 3))) == {codes.SPAN_COUNT, codes.CENTRAL_COUNT}
    assert damaged(lambda target, small: target.put_word(STATS + 8, 0)) == {codes.HEAP_BYTES}
    assert damaged(lambda target, small: target.put(target.caches[0] + 32 * CLASS_48 + 8, b"\x09")) == {codes.CACHE_COUNT}
    assert damaged(lambda target, small: target.put_word(small.objects[23], small.objects[30])) == {codes.FREE_LIST_BROKEN}
    assert codes.FREED_TWICE in damaged(lambda target, small: target.put_word(small.objects[49], small.objects[40]))
    assert codes.FREE_LIST_BROKEN in damaged(lambda target, small: target.put_word(small.objects[5], 0x4141414141414141))
    assert codes.SPAN_WRONG in damaged(lambda target, small: target.put(STRUCTS + 2 * 48 + 43, b"\x03"))
    assert codes.LEAF_BROKEN in damaged(lambda target, small: target.put_word(ROOT + 8, LEAF))
    assert codes.TC_CACHE_BROKEN in damaged(lambda target, small: target.put_word(target.caches[1] + 4144, target.caches[0]))
    assert codes.CENTRAL_WRONG in damaged(lambda target, small: target.put(base + 1152, struct.pack("<i", 65)))


def test_sums_follow_no_list(kernel: Kernel) -> None:
    """Counters alone make them: a broken list changes none, and is told once blocks are asked for; two counters that differ are."""
    target, small, _ = made()
    target.put_word(small.objects[5], 0x4141414141414141)
    heap, told = opened(target, kernel)
    (row,), classes = heap.arenas(), heap.bins()
    assert not told and heap.facts().is_whole and (row.central_bytes, row.cached_bytes) == (6 * 48, 10 * 48 + 96)
    assert sum(size.used_bytes or 0 for size in classes) == row.used_bytes == sum(target.used.values())
    rows(heap)
    assert set(told) <= {codes.FREE_LIST_BROKEN, codes.FREE_LIST_UNREADABLE} and told
    for place, code in ((target.caches[0] + 4096, codes.CACHE_COUNT), (CENTRAL + STRIDE * CLASS_48 + 120, codes.CENTRAL_COUNT)):
        other, _, _ = made()
        other.put(place, b"\x05")
        heap, told = opened(other, kernel)
        assert heap.arenas() and told == [code] and not heap.facts().is_whole


def test_a_suspect(kernel: Kernel) -> None:
    """The block in use before a free object whose link was overwritten."""
    target, small, _ = made()
    target.put_word(small.objects[3], 0x4141414141414141)
    heap, _ = opened(target, kernel)
    rule = next(rule for rule in heap.rules() if rule.code == codes.FREE_LIST_UNREADABLE or rule.code == codes.FREE_LIST_BROKEN)
    assert rule.address == 0x4141414141414141 and rule.evidence is None


def test_a_change_is_no_damage(kernel: Kernel) -> None:
    """A thread that holds a lock explains what contradicts; the newest batch, which may be on its way, is not believed."""
    target, small, _ = made()
    base = CENTRAL + STRIDE * CLASS_48
    target.put(base, b"\1")
    target.put_word(base + 120, 7)
    heap, told = opened(target, kernel)
    assert list(heap.rules()) == [] and set(told) == {codes.LISTS_CHANGING}
    assert heap.arenas()[0].transfer_bytes == 4 * 96
    target.put_word(small.objects[49], small.objects[40])
    heap, told = opened(target, kernel)
    heap.arenas()
    assert set(told) == {codes.LISTS_CHANGING}


def test_without_thread_caches(kernel: Kernel) -> None:
    """Where their list is not found, what they hold is unknown, not 0."""
    target, _, _ = made()
    for cache in target.caches:
        target.put(cache + 24 + 32, b"\xff")
    heap, told = opened(target, kernel)
    (row,) = heap.arenas()
    assert row.cached_bytes is None and told == [codes.CACHES_UNKNOWN] and heap.bins()[1].cached_objects is None


def test_what_is_not_read(kernel: Kernel) -> None:
    """Before the first span there is none to read; a big-endian machine is named."""
    found = ALLOCATOR.find(TcTarget())
    assert not found.located and len(found.unused) == 1 and not found.unread
    target, _, _ = made()
    target.little_endian = False
    found = ALLOCATOR.find(target)
    assert not found.located and len(found.unread) == 1
    target.little_endian = True
    assert len(ALLOCATOR.find(target).located) == 1


@pytest.mark.parametrize("request_bytes, block", [(1, 8), (8, 8), (9, 16), (17, 32), (129, 144), (1025, 1152), (3329, 4096), (262144, 262144), (262145, 270336)])
def test_a_request_gets_the_smallest_block_that_holds_it(request_bytes: int, block: int) -> None:
    """Classes of which as many fit into a span are one; beyond 256 KiB a block is whole pages."""
    assert entry.ALLOCATOR.preload_bytes(request_bytes) == block


MB = 1 << 20


class Flags:
    """An object with one flag, in an environment."""

    def __init__(self, name: Optional[str], environment: Dict[str, str]) -> None:
        self._symbol, self.environment_variable = name, environment.get

    def module_symbol(self, module: Any, name: str) -> Any:
        return SimpleNamespace(address=8) if name == self._symbol else None

    def read_prefix(self, address: int, size: int) -> bytes:
        return struct.pack("<d", 2.5)[:size]


def test_a_setting_is_what_is_in_force() -> None:
    """By its flag, which the program can change; else by the environment; unknown is None."""
    name = "_ZN62FLAG__namespace_do_not_use_directly_use_DECLARE_double_instead27FLAGS_tcmalloc_release_rateE"
    target: Any = Flags(name, {"TCMALLOC_RELEASE_RATE": "10", "TCMALLOC_HEAP_LIMIT_MB": "512"})
    rows = {row.name: row for row in heap.read_tcmalloc_tunables(target, target).tunables}
    assert (rows["TCMALLOC_RELEASE_RATE"].value, rows["TCMALLOC_RELEASE_RATE"].environment) == (2.5, "10")
    assert rows["TCMALLOC_HEAP_LIMIT_MB"].value == "512" and rows["TCMALLOC_AGGRESSIVE_DECOMMIT"].value is None


@pytest.mark.parametrize("is_aggressive", [False, True])
def test_what_is_in_force_is_not_advised(is_aggressive: bool) -> None:
    """Free spans: a purge, and the setting that returns them at once unless it is set; the rate helps nobody who sleeps."""
    made: Any = TcArena("tcmalloc", *([0] * (len(TcArena._fields) - 1)))  # type: ignore[arg-type]
    row = made._replace(system_bytes=100 * MB, used_bytes=MB, free_bytes=99 * MB, free_resident_bytes=99 * MB)
    info = AllocatorInfo("tcmalloc", "tcmalloc", "2.10", "libtcmalloc.so.4", None, "table", "probe", True)
    facts = TcFacts(info, [row], {}, (), (), is_aggressive=is_aggressive)
    (judged,) = entry.ALLOCATOR.judge([facts], Surroundings(1, [], None, taken_bytes={"tcmalloc": 100 * MB}))
    said = [*judged.next_steps, *(finding.hint for finding in judged.findings)]
    assert judged.verdict.kind == verdict.KEPT and any("purge" in line for line in said)
    assert not any(hint_command("purge") in str(line) for line in said)  # nothing says that it would not be refused: a core is no process
    advisable = {"tcmalloc": frozenset(["purge"])}
    (judged,) = entry.ALLOCATOR.judge([facts], Surroundings(1, [], None, taken_bytes={"tcmalloc": 100 * MB}, advisable=advisable))
    assert any(hint_command("purge") in str(finding.hint) for finding in judged.findings)
    assert any("AGGRESSIVE_DECOMMIT" in line for line in said) != is_aggressive and not any("RELEASE_RATE=10" in line for line in said)
