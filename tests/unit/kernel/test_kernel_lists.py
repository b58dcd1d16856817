"""Lists: singly linked ones of fastbins and tcaches, and bins."""

from array import array
from typing import Any, Dict, List, Optional, Tuple

import pytest
from builders import heap
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gdbheapx.kernel import Kernel
from gdbheapx.kernel.api import Geometry
from gdbheapx.target.base import BytesSource

FAST = settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
BASE = 0x40000


def memory(geometry: Geometry, words: Dict[int, int], size: int = 0x10000) -> BytesSource:
    """A few words at their addresses, zeroes around them."""
    data = bytearray(size)
    for address, value in words.items():
        heap.put(data, geometry, address - BASE, value)
    return BytesSource(((BASE, bytes(data)),))


def linked(geometry: Geometry, entries: List[int], link_offset: int, mangled: bool, last: int = 0) -> Dict[int, int]:
    """The link words of a list."""
    return {
        entry + link_offset: following ^ (entry + link_offset >> 12 if mangled else 0) for entry, following in zip(entries, entries[1:] + [last])
    }


@FAST
@given(
    geometry=st.sampled_from(heap.GEOMETRIES),
    slots=st.lists(st.integers(1, 500), unique=True, max_size=300),
    mangled=st.booleans(),
    fastbin=st.booleans(),
)
def test_a_list_is_followed_to_its_null_link(kernel: Kernel, geometry: Geometry, slots: List[int], mangled: bool, fastbin: bool) -> None:
    """tcache entries are mem pointers whose link is their first word; fastbin entries are chunks whose link is fd. Protected links are revealed."""
    header = 2 * geometry.word_bytes
    entries = [BASE + 64 * slot - (header if fastbin else 0) for slot in slots]
    link_offset = header if fastbin else 0
    source = memory(geometry, linked(geometry, entries, link_offset, mangled))
    head = entries[0] if entries else 0
    got = kernel.collect_list(source, geometry, head, link_offset, mangled, 1000, mem_offset=link_offset)
    assert (list(got.entries), got.problem, got.at) == (entries, None, 0)


@pytest.mark.parametrize("mangled", [False, True])
def test_a_cycle_is_too_long(kernel: Kernel, mangled: bool) -> None:
    """A list that comes back to itself ends at the limit; so does one that is merely longer."""
    entries = [BASE + 64, BASE + 128, BASE + 192]
    source = memory(heap.LP64, linked(heap.LP64, entries, 0, mangled, last=entries[1]))
    got = kernel.collect_list(source, heap.LP64, entries[0], 0, mangled, 8)
    assert (list(got.entries), got.problem, got.at) == ([entries[0]] + entries[1:] * 3 + [entries[1]], "too long", entries[2])
    assert kernel.collect_list(source, heap.LP64, entries[0], 0, mangled, 0).problem == "too long"


def test_bad_links_end_a_list(kernel: Kernel) -> None:
    """An unaligned link and an unreadable entry: `at` names them, and they are no entries."""
    entries = [BASE + 64, BASE + 128]
    for last, problem in ((BASE + 136, "unaligned"), (0x7FFF00000000, "unreadable"), ((1 << 64) - 16, "unreadable")):
        source = memory(heap.LP64, linked(heap.LP64, entries, 0, False, last=last))
        got = kernel.collect_list(source, heap.LP64, entries[0], 0, False, 100)
        assert (list(got.entries), got.problem, got.at) == (entries, problem, last)


def test_a_long_list_is_followed_in_batches(kernel: Kernel) -> None:
    """200,000 entries, more than one batch and far more than the pages that are kept."""
    entries = [BASE + 32 * ((place * 7919) % 200003) for place in range(1, 200001)]
    source = memory(heap.LP64, linked(heap.LP64, entries, 0, True), size=32 * 200004)
    got = kernel.collect_list(source, heap.LP64, entries[0], 0, True, 1 << 20)
    assert got.problem is None and got.entries == array("Q", entries)


def bin_words(geometry: Geometry, header: int, chunks: List[int], fields: List[int]) -> Dict[int, int]:
    """The words of a bin: size fields, fd and bk of the chunks and of the header."""
    word = geometry.word_bytes
    words: Dict[int, int] = {}
    ring = [header] + chunks + [header]
    for place in range(1, len(ring)):
        words[ring[place - 1] + 2 * word] = ring[place]
        words[ring[place] + 3 * word] = ring[place - 1]
    words.update({chunk + word: field for chunk, field in zip(chunks, fields)})
    return words


@FAST
@given(geometry=st.sampled_from(heap.GEOMETRIES), slots=st.lists(st.integers(2, 500), unique=True, max_size=100), flags=st.integers(0, 5))
def test_a_bin_is_followed_round(kernel: Kernel, geometry: Geometry, slots: List[int], flags: int) -> None:
    """Count, sums with and without flag bits, smallest and largest field, members in fd order."""
    header = BASE + 16
    chunks = [BASE + 64 * slot - 2 * geometry.word_bytes for slot in slots]
    fields = [16 * slot + (flags & 5) for slot in slots]
    source = memory(geometry, bin_words(geometry, header, chunks, fields))
    got = kernel.walk_bin(source, geometry, header, 1000, want_members=True)
    assert got[:5] == (len(chunks), sum(field & ~7 for field in fields), sum(fields), min(fields, default=0), max(fields, default=0))
    assert (list(got.members or ()), got.problem, got.at) == (chunks, None, 0)
    assert kernel.walk_bin(source, geometry, header, 1000).members is None


BIN_CHUNKS = [BASE + 0x100, BASE + 0x200, BASE + 0x300]
BIN_HEADER = BASE + 0x20
BIN_DAMAGE: List[Tuple[Dict[int, int], int, str, int]] = [
    ({BIN_CHUNKS[1] + 24: 0x1234}, 1, "bk of the next chunk points elsewhere", BIN_CHUNKS[1]),
    ({BIN_HEADER + 24: BIN_CHUNKS[0]}, 3, "bk of the next chunk points elsewhere", BIN_HEADER),
    ({BIN_CHUNKS[1] + 16: BASE + 0x308}, 2, "unaligned", BASE + 0x308),
    ({BIN_CHUNKS[1] + 16: 0x10}, 2, "unreadable", 0x10),
    ({BIN_HEADER + 16: 0}, 0, "unreadable", 0),
    ({BIN_CHUNKS[2] + 16: BIN_CHUNKS[1]}, 3, "bk of the next chunk points elsewhere", BIN_CHUNKS[1]),
]


@pytest.mark.parametrize("words,chunks,problem,at", BIN_DAMAGE)
def test_a_damaged_bin_is_counted_up_to_the_damage(kernel: Kernel, words: Dict[int, int], chunks: int, problem: str, at: int) -> None:
    """The chunks before it count; `at` is the chunk that does not fit, or the header."""
    whole = bin_words(heap.LP64, BIN_HEADER, BIN_CHUNKS, [65, 81, 97])
    whole.update(words)
    got = kernel.walk_bin(memory(heap.LP64, whole), heap.LP64, BIN_HEADER, 100)
    assert (got.chunks, got.problem, got.at) == (chunks, problem, at)


def test_a_bin_longer_than_the_limit_or_without_a_header(kernel: Kernel) -> None:
    """The limit bounds the walk; a header that cannot be read is unreadable."""
    source = memory(heap.LP64, bin_words(heap.LP64, BIN_HEADER, BIN_CHUNKS, [65, 81, 97]))
    got = kernel.walk_bin(source, heap.LP64, BIN_HEADER, 2)
    assert (got.chunks, got.problem, got.at) == (2, "too long", BIN_CHUNKS[2])
    got = kernel.walk_bin(source, heap.LP64, 0x10, 2)
    assert (got.chunks, got.problem, got.at) == (0, "unreadable", 0x10)


@FAST
@given(
    words=st.dictionaries(st.integers(0, 127), st.integers(0, 130), max_size=128),
    start=st.integers(0, 127),
    offset=st.sampled_from((0, 8, 16)),
    limit=st.integers(0, 70),
    mangled=st.booleans(),
    geometry=st.sampled_from(heap.GEOMETRIES),
)
def test_both_kernels_follow_garbage_alike(
    c_kernel: Kernel,
    python_kernel: Kernel,
    words: Dict[int, int],
    start: int,
    offset: int,
    limit: int,
    mangled: bool,
    geometry: Optional[Geometry],
) -> None:
    """Words that point anywhere near: no hang, equal lists and bins."""
    assert geometry
    word = geometry.word_bytes
    source = memory(geometry, {BASE + word * place: BASE + 8 * value for place, value in words.items()}, size=128 * word)

    def answers(kernel: Kernel) -> Any:
        single = kernel.collect_list(source, geometry, BASE + 8 * start, offset, mangled, limit, offset)
        return single, kernel.walk_bin(source, geometry, BASE + 8 * start, limit, True)

    assert answers(c_kernel) == answers(python_kernel)
