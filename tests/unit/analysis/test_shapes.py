"""Whose a mapping is, by its shape, by any word that a process has, and by name; how many libraries were unloaded.

Files: analysis/memory/kinds.py, analysis/memory/attribute.py, analysis/reachability/heap_graph.py, analysis/memory_verdict.py.
"""

import struct
from types import SimpleNamespace
from typing import Any, Dict, List, NamedTuple, Optional, Sequence, Tuple, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gdbheapx.analysis import memory_verdict
from gdbheapx.analysis.memory import attribute
from gdbheapx.analysis.memory.attribute import Attribution, HeldMemory
from gdbheapx.analysis.memory.kinds import GIB, KIB, RUNTIMES, KnownRuntime, MappingPlaces, MappingShape
from gdbheapx.analysis.memory.stacks import WORD, ControlBlocks
from gdbheapx.analysis.reachability.heap_graph import GraphNode, ManagedField, ManagedHeap, measure_fields
from gdbheapx.analysis.reachability.leaks import LeakGroup, Leaks
from gdbheapx.analysis.reachability.paths import NodeNames
from gdbheapx.common.budget import Budget
from gdbheapx.common.model import TargetAddress
from gdbheapx.inferior.base import Mapping, MappingUse
from gdbheapx.kernel.blocks.graph import LEAKED, RULE_START, NativeSum
from gdbheapx.report import reach_text

pytestmark = pytest.mark.once  # pure functions

PAGE = 4 * KIB
SHAPES = [(runtime, shape) for runtime in RUNTIMES for shape in runtime.shapes]


class Place(NamedTuple):
    """A mapping, and what lies around it."""

    start: int
    size: int
    reserved: int
    run: Tuple[int, int]
    flags: Optional[frozenset]  # type: ignore[type-arg]

    def fits(self, shape: MappingShape, holds_pools: bool = True) -> bool:
        mapping = SimpleNamespace(start=self.start, end=self.start + self.size, size_bytes=self.size)
        places: Any = SimpleNamespace(
            uses=[SimpleNamespace(mapping=mapping, flags=self.flags)], reserve_above=lambda place: self.reserved, run=lambda place: self.run
        )
        return attribute.fits_shape(shape._replace(probe=None) if holds_pools else shape, places, 0, lambda: (), lambda address, size: b"")


def positive(shape: MappingShape) -> Place:
    """The least that has every property."""
    start = GIB if shape.below is not None else 1 << 40
    size = max(shape.min_bytes, shape.multiple_bytes, shape.end_align_bytes, PAGE)
    reserved = shape.reach[0] - size if shape.reach is not None else PAGE if shape.reserve_above else 0
    return Place(start, size, reserved, (start, start + max(shape.min_run_bytes, shape.run_align_bytes, size)), shape.flags)


def negatives(shape: MappingShape) -> Dict[str, Place]:
    """By the property that each lacks, one alone."""
    good = positive(shape)
    low, high = good.run
    made = {
        "align_bytes": good._replace(start=good.start + PAGE),
        "end_align_bytes": good._replace(size=good.size + PAGE),
        "multiple_bytes": good._replace(size=good.size + PAGE),
        "min_bytes": good._replace(size=shape.min_bytes - max(shape.multiple_bytes, PAGE)),
        "max_bytes": good._replace(size=(shape.max_bytes or 0) + max(shape.multiple_bytes, PAGE)),
        "below": good._replace(start=shape.below or 0),
        "run_align_bytes": good._replace(run=(low + PAGE, high)),
        "min_run_bytes": good._replace(run=(low, high - PAGE)),
        "reserve_above": good._replace(reserved=0),
        "reach": good._replace(reserved=0),
        "flags": good._replace(flags=frozenset()),
    }
    return {name: place for name, place in made.items() if getattr(shape, name) != MappingShape._field_defaults[name]}


@pytest.mark.parametrize("runtime, shape", SHAPES, ids=["%s-%d" % (one.name, number) for number, (one, _) in enumerate(SHAPES)])
def test_every_property_counts(runtime: KnownRuntime, shape: MappingShape) -> None:
    """WebAssembly, V8, Go, the JVM and all others; a probe that finds nothing refuses, too."""
    good = positive(shape)
    assert good.fits(shape)
    lacking = negatives(shape)
    assert (lacking or shape.probe) and not [name for name, place in lacking.items() if place.fits(shape)]
    assert shape.probe is None or not good.fits(shape, holds_pools=False)
    if shape.reach is not None:
        assert not good._replace(reserved=shape.reach[1]).fits(shape), "a sandbox's page has more behind it"


@pytest.mark.parametrize("names", [["app", "libc.so.6"], ["xlibjvm.so"], ["my-node"], []])
def test_no_runtime_where_its_objects_are_not(names: List[str]) -> None:
    """Whatever its mappings look like, a program without them has none: and then nothing is a runtime's by shape."""
    modules = [SimpleNamespace(file_name=name, is_executable=not number) for number, name in enumerate(names)]
    target: Any = SimpleNamespace(modules=lambda: modules, has_section=lambda module, section: False)
    assert (
        not attribute.find_present_runtimes(target)
        and attribute.find_owner_by_shape((), None, 0, lambda: (), lambda address, size: b"") is None
    )  # type: ignore[arg-type]


RUBY_PAGE, DESCRIPTION = 16 * KIB, 0x5000_0000


@pytest.mark.parametrize("leads_back, wanted", [(True, "Ruby: object heap"), (False, None)])
def test_pages_of_ruby_begin_behind_a_block(leads_back: bool, wanted: Optional[str]) -> None:
    """A mapping of 16 pages behind a block that malloc mapped, which the kernel joined: the mapping begins at no page of Ruby's."""
    start, first = 0x7000_0000_1000, 0x7000_0000_4000
    ends = first + 16 * RUBY_PAGE
    slots = {DESCRIPTION + 64 * number: first + RUBY_PAGE * number + (56 if leads_back else 1 << 20) for number in range(16)}

    def read(address: int, size_bytes: int) -> bytes:
        if address in slots:
            return struct.pack("<8Q", 40 | 408 << 16, 0, 0, 0, slots[address], 0, 0, 0)[:size_bytes]
        assert first <= address < ends and address % RUBY_PAGE == 0
        return struct.pack("<Q", DESCRIPTION + 64 * ((address - first) // RUBY_PAGE))[:size_bytes]

    ruby = [one for one in RUNTIMES if one.name == "Ruby"]
    mapping = SimpleNamespace(start=start, end=ends, size_bytes=ends - start)
    places: Any = SimpleNamespace(uses=[SimpleNamespace(mapping=mapping, flags=None)])
    owner = attribute.find_owner_by_shape(ruby, places, 0, lambda: [(first, ends)], read)
    assert (owner.name if owner is not None else None) == wanted


PAGE_BYTES = 4096
TOP = 1 << 64


def reader(kind: str, words: bytes) -> Any:
    """A reader of a process of which every page has these bytes, again and again; it asks for no range that there cannot be."""

    def held(ranges: Any) -> HeldMemory:
        assert all(0 <= start < end < TOP for start, end in ranges)
        return sum(end - start for start, end in ranges), None

    def read_prefix(address: int, size_bytes: int) -> bytes:
        assert 0 <= address < address + size_bytes < TOP
        return bytes(words[(address + at) % len(words)] for at in range(size_bytes))

    made = SimpleNamespace(_target=SimpleNamespace(kind=kind, page_bytes=PAGE_BYTES, read_prefix=read_prefix), _count_pages=held)
    return lambda address, size_bytes: Attribution._read_present(made, address, size_bytes)  # type: ignore[arg-type]


@given(kind=st.sampled_from(["live", "core"]), head=st.integers(0, TOP - 1), words=st.binary(min_size=8, max_size=64))
def test_lists_lead_anywhere(kind: str, head: int, words: bytes) -> None:
    """A list of stacks whose links are any words is followed as far as there can be memory, and no further."""
    assert isinstance(ControlBlocks(MappingPlaces([]), reader(kind, words), PAGE_BYTES, 704).follow(head), list)


def test_time_ends_a_list() -> None:
    """Of a list that leads on and on the node is known where there was no more time."""
    budget = Budget()
    endless = {8 * WORD * at: (8 * WORD * (at + 1), 8 * WORD * (at - 1)) for at in range(1, 9)}
    blocks = ControlBlocks(MappingPlaces([]), lambda address, size_bytes: struct.pack("<2Q", *endless[address]), PAGE_BYTES, 704, budget)
    budget.interrupt()
    assert not blocks.follow(8 * WORD) and blocks.cut_at == 2 * 8 * WORD


@pytest.mark.parametrize("address", [-8, TOP - 8, TOP - 1, TOP, TOP + 8])
@pytest.mark.parametrize("kind", ["live", "core"])
def test_nothing_is_read_outside(kind: str, address: int) -> None:
    """There is no byte below the first address nor behind the last."""
    assert reader(kind, b"12345678")(address, 16) == b""


class Known:
    """A graph whose nodes are two mappings."""

    kept = None
    stacks: Any = {}
    blocks: Any = ()

    def mapping(self, node: int) -> GraphNode:
        """See Reach."""
        plain = Mapping(0x1000, 0x3000, True, True, False, False, "", None)
        return GraphNode(0x1000, 0x3000, MappingUse(plain, 0), "JVM: Java heap" if node else None)


def test_a_runtimes_memory_is_called_as_report_calls_it() -> None:
    """By its runtime where its shape tells, with its addresses; by addresses alone where nothing does."""
    names = NodeNames(cast(Any, None), cast(Any, Known()))
    assert names.of_mapping(1) == "JVM: Java heap, mapping 0x1000-0x3000"
    assert names.of_mapping(0) == "mapping 0x1000-0x3000"


MUTEX = [0, 0, 1, 0, 0]


def session(words: Sequence[int], symbol: bool = True, size: Optional[int] = None) -> Any:
    """Of a process whose _rtld_global has these words."""
    data = struct.pack("<%dQ" % len(words), *words)
    target = SimpleNamespace(
        word_bytes=8,
        little_endian=True,
        dynamic_symbol=lambda name: SimpleNamespace(address=0x7F0000000000) if symbol else None,
        symbol_bytes=lambda found: len(data) if size is None else size,
        read_prefix=lambda address, size_bytes: data[:size_bytes],
    )
    return SimpleNamespace(target=target, kept=lambda name, kind, make: make())


def state(mutexes: int = 3, adds: int = 44, loaded: int = 4, namespaces: int = 1, lock: Sequence[int] = MUTEX) -> List[int]:
    """One namespace, entries of the others, the mutexes and the counter."""
    return [0x7F00000052E0, loaded, 0x7F00000055B8, *MUTEX, 0, 7, namespaces, *lock, *(MUTEX * (mutexes - 1)), adds, 0, 0x7F0000001000]


@pytest.mark.parametrize("mutexes", [2, 3], ids=["before 2.35", "since"])
@pytest.mark.parametrize("adds, loaded, gone", [(44, 4, 40), (4, 4, 0), (3, 4, None), (1 << 40, 4, None)])
def test_loads_that_are_gone(mutexes: int, adds: int, loaded: int, gone: Optional[int]) -> None:
    """All that were counted, without those that are there; a count that cannot be is none."""
    assert memory_verdict.count_unloaded(session(state(mutexes, adds, loaded))) == gone


def test_what_is_not_known() -> None:
    """A program without a dynamic linker, one in the middle of a load, more namespaces than one, a state that is cut off."""
    cases = [session(state(), symbol=False), session(state(lock=[1, 4711, 1, 0, 0])), session(state(namespaces=2)), session(state()[:20]), session([]), session(state(), size=1 << 20)]
    assert [memory_verdict.count_unloaded(case) for case in cases] == [None] * len(cases)


@pytest.mark.parametrize("blocks, gone, named", [((40, 80, 7), 40, 2), ((7, 41), 40, 0), ((2,), 2, 0), ((40,), None, 0), ((40,), 0, 0)])
def test_leaks_name_what_agrees(blocks: Sequence[int], gone: Optional[int], named: int) -> None:
    """The sizes of which as many are lost as libraries are gone; of few libraries nothing, for chance has it too."""
    groups = [LeakGroup(None, "root", 1 << 20 + place, count, count << 20 + place, 0, 0, [TargetAddress(0x1000)]) for place, count in enumerate(blocks)]
    answer = Leaks(NativeSum(0, 0), NativeSum(0, 0), {}, NativeSum(100, 100 << 20), sum(blocks), groups, unloaded_libraries=gone)
    said = [str(line) for line in reach_text.make_leaks_page(answer, None) if "unloaded" in str(line)]
    assert [line.count("MiB") for line in said] == [named][: named > 0]
    assert reach_text.make_leaks_data(answer, None, None)["unloaded_libraries"] == gone


def test_garbage_holds_what_nothing_else_leads_to() -> None:
    """A buffer of Java's without a Cleaner may show a library's own memory: that the buffer is garbage loses nothing of it."""
    evidence = {0: RULE_START, 1: LEAKED, 2: RULE_START}  # in use by an object; by garbage alone; by garbage, and held by the library
    graph: Any = SimpleNamespace(
        find=lambda word: (word >> 8, word & 0xFF) if word >> 8 in evidence else None,
        blocks=lambda ids: [(one << 8, 100 << one) for one in ids],
        evidence=evidence.__getitem__,
    )
    field = ManagedField("Buffer.address", [0x0], [0x9000], object_count=3, garbage_objects=2, lost_words=[0x100, 0x200, 0x0])
    row = measure_fields(graph, len(evidence), [ManagedHeap("Java", "libjvm.so", None, [field])], lambda field: None)[0]
    assert (row.blocks, row.bytes, row.garbage_objects, row.garbage_bytes) == (3, 700, 2, 200)
