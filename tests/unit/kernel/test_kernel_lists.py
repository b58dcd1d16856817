"""Lists: singly linked ones of fastbins and thread caches, and bins; both kernels against a follower of a few lines.

Files: kernel/glibc/records.py, kernel/glibc/walkers.py.
"""

import os
import random
from typing import Dict, List, NamedTuple, Sequence, Tuple

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from gdbheapx.common.budget import Budget
from gdbheapx.inferior.base import BytesSource, CallSource
from gdbheapx.kernel.common.library import Kernel
from gdbheapx.kernel.glibc.records import (
    BIN,
    CUT,
    FAST,
    SPECIAL_FAST,
    SPECIAL_TCACHE,
    TCACHE,
    TCACHE_SIZED,
    Geometry,
    NativeFollowedList,
    NativeFreeLists,
    NativeRules,
    describe_damage,
)
from gdbheapx.kernel.glibc.walkers import ChunkWalker
from tests.support import reference_walk
from tests.support.builders import heap
from tests.support.searches import search

FAST_RUNS = search(150)
BASE = 0x40000


def memory(geometry: Geometry, words: Dict[int, int], size: int = 0x10000) -> BytesSource:
    """A few words at their addresses, zeroes around them."""
    data = bytearray(size)
    for address, value in words.items():
        heap.put(data, geometry, address - BASE, value)
    return BytesSource(((BASE, bytes(data)),))


def linked(geometry: Geometry, entries: List[int], offset: int, mangled: bool, last: int = 0) -> Dict[int, int]:
    """The link words of a list, and before each the size field of a chunk of 32 bytes."""
    words = {entry + offset: following ^ (entry + offset >> 12 if mangled else 0) for entry, following in zip(entries, entries[1:] + [last])}
    words.update({entry + offset - geometry.word_bytes: 0x21 for entry in entries})
    return words


def asked(kind: int, heads: Sequence[int], limit: int) -> NativeFreeLists:
    """Lists of one kind."""
    lists = NativeFreeLists()
    lists.add(kind, heads, limit)
    return lists


class One(NamedTuple):
    """What one list gave."""

    count: int  # type: ignore[assignment]
    problem: int
    at: int
    last: int


def ones(found: NativeFollowedList) -> List[One]:
    """The lists one by one."""
    return [One(*row) for row in zip(found.counts, found.problems, found.ats, found.lasts)]


def chunks_of(geometry: Geometry, kind: int, entries: Sequence[int]) -> List[int]:
    """As they stand among the members."""
    header = 2 * geometry.word_bytes
    return sorted(entry | SPECIAL_FAST if kind == FAST else entry - header | SPECIAL_TCACHE for entry in entries)


PLAIN = NativeRules(mangled=False, collect=True)


@FAST_RUNS
@given(
    geometry=st.sampled_from(heap.GEOMETRIES),
    slots=st.lists(st.integers(1, 500), unique=True, max_size=300),
    mangled=st.booleans(),
    kind=st.sampled_from((TCACHE, FAST, TCACHE_SIZED)),
)
def test_a_list_is_followed_to_its_null_link(kernel: Kernel, geometry: Geometry, slots: List[int], mangled: bool, kind: int) -> None:
    """tcache entries are mem pointers whose link is their first word; fastbin entries are chunks whose link is fd. Protected links are revealed."""
    header = 2 * geometry.word_bytes
    offset = header if kind == FAST else 0
    entries = [BASE + 64 * slot - offset for slot in slots]
    source = memory(geometry, linked(geometry, entries, offset, mangled))
    head = entries[0] if entries else 0
    rules = NativeRules(mangled, True)
    found = ChunkWalker(kernel, source, geometry, Budget()).follow(asked(kind, [head], 1000), rules)
    assert ones(found) == [(len(entries), 0, 0, entries[-1] if entries else 0)]
    assert list(found.members) == chunks_of(geometry, kind, entries) and not len(found.twice) and not len(found.mapped)
    assert list(found.bytes) == [32 * len(entries) if kind == TCACHE_SIZED else 0]


def shuffled(count: int, order: str) -> List[int]:
    """Places 1 to `count` in one of three orders."""
    return {"up": list(range(1, count + 1)), "down": list(range(count, 0, -1)), "random": [1 + place * 7919 % count for place in range(count)]}[order]


def counted(source: BytesSource) -> Tuple[CallSource, List[int]]:
    """The source behind a call, and the bytes of each read."""
    start, data = source.pieces[0]
    reads: List[int] = []

    def read(address: int, size_bytes: int) -> bytes:
        reads.append(size_bytes)
        return data[max(address - start, 0) : max(address - start + size_bytes, 0)] if address >= start else b""

    return read, reads


@pytest.mark.parametrize("order", ["up", "down"])
def test_no_read_for_each_member(c_kernel: Kernel, order: str) -> None:
    """A list of 200,000 neighbours costs fewer reads than one for 50 members, and reads its memory at most twice."""
    size = 32 * 200004
    entries = [BASE + 32 * place for place in shuffled(200000, order)]
    source, reads = counted(memory(heap.LP64, linked(heap.LP64, entries, 0, True), size=size))
    found = ChunkWalker(c_kernel, source, heap.LP64, Budget()).follow(asked(TCACHE, entries[:1], 1 << 20), NativeRules(True, True))
    assert found.counts[0] == 200000
    assert len(reads) < 4000 and sum(reads) < 2 * size + 4096 * 1000


def bin_words(geometry: Geometry, header: int, chunks: List[int], fields: List[int]) -> Dict[int, int]:
    """The words of a bin: size fields, fd and bk of the chunks and of the header."""
    word = geometry.word_bytes
    words: Dict[int, int] = {}
    ring = [header] + chunks + [header]
    for place in range(1, len(ring)):
        words[ring[place - 1] + 2 * word] = ring[place]
        words[ring[place] + 3 * word] = ring[place - 1]
    words.update({chunk + word: field for chunk, field in zip(chunks, fields)})
    words.update({chunk + (field & ~7): field & ~7 for chunk, field in zip(chunks, fields) if field <= 64})
    return words


PLACES = 192

ONE_COMES_BACK = {
    "values": [0, 0, 3] + [0] * (PLACES - 3),
    "shapes": [0] * 8,
    "heads": [2, 11],
    "kinds": [TCACHE_SIZED, TCACHE_SIZED] + [TCACHE] * 10,
    "limit": 60,
    "mangled": True,
    "geometry": heap.LP64,
}


@search(400)
@given(
    values=st.lists(st.integers(0, PLACES + 3), min_size=PLACES, max_size=PLACES),
    shapes=st.lists(st.sampled_from((0, 0x21, 0x31, 0x25, 0x43, 0x1000000, 8)), min_size=8, max_size=8),
    heads=st.lists(st.integers(0, PLACES + 2), min_size=1, max_size=12),
    kinds=st.lists(st.sampled_from((TCACHE, FAST, TCACHE_SIZED, BIN)), min_size=12, max_size=12),
    limit=st.integers(0, 70),
    mangled=st.booleans(),
    geometry=st.sampled_from(heap.GEOMETRIES),
)
@example(**ONE_COMES_BACK)
def test_garbage_is_followed_as_defined(
    c_kernel: Kernel,
    values: List[int],
    shapes: List[int],
    heads: List[int],
    kinds: List[int],
    limit: int,
    mangled: bool,
    geometry: Geometry,
) -> None:
    """Words that point anywhere near, with what may be size fields between them: found is what the definition gives."""
    word, step, header = geometry.word_bytes, geometry.alignment_bytes, 2 * geometry.word_bytes
    size = PLACES * step
    words: Dict[int, int] = {}
    for place, value in enumerate(values):
        mem = BASE + place * step
        target = BASE + value * step - (value % 3 == 0) * header
        words[mem] = (target if value < PLACES + 2 else 0) ^ (mem >> 12 if mangled and place % 5 else 0)
        words[mem + step - word] = shapes[place % 8] if place % 7 else BASE + value * step
    source = memory(geometry, words, size=size)
    lists = NativeFreeLists()
    single = [kind if kind != BIN else FAST for kind in kinds]
    every = kinds if sum(kinds[: len(heads)]) % 2 else single
    for head, kind in zip(heads, every):
        lists.add(kind, [BASE + head * step - (header if kind in (FAST, BIN) else 0)], limit)
    collect = BIN not in lists.kinds
    rules = NativeRules(mangled, collect)
    found = ChunkWalker(c_kernel, source, geometry, Budget()).follow(lists, rules)
    assert found == reference_walk.follow(source, geometry, lists, rules)


@search(25)
@given(seed=st.integers(0, 1 << 32), kind=st.sampled_from((TCACHE, FAST, BIN)), order=st.sampled_from(("up", "down", "random")), hurt=st.integers(0, 4))
def test_long_lists_with_stale_links_and_damage(c_kernel: Kernel, seed: int, kind: int, order: str, hurt: int) -> None:
    """Lists of thousands among chunks whose stale links lead into them, some with a bad link: as the reference walk to the last figure."""
    data, count = random.Random(seed), 1500 if "HEAPX_TEST_LIBRARY" in os.environ else 6000  # a sanitizer takes four times as long
    places = list(range(1, 2 * count))
    if order == "random":
        data.shuffle(places)
    elif order == "down":
        places.reverse()
    chunks = [BASE + 64 * place for place in places]
    cut = data.randrange(1, count)
    lists_there = [chunks[:cut], chunks[cut:count], []]
    words: Dict[int, int] = {}
    header = BASE + 16
    if kind == BIN:
        words.update(bin_words(heap.LP64, header, chunks[:count], [65] * count))
        heads = [header]
    else:
        offset = 16 if kind == FAST else 0
        entries = [[chunk + 16 - offset for chunk in one] for one in lists_there]
        for one in entries:
            words.update(linked(heap.LP64, one, offset, True))
        heads = [one[0] if one else 0 for one in entries]
    for stale in chunks[count:]:  # freed once, in use again: what looks like a link leads to a member, or to another such
        aim = data.choice(chunks)
        words.update({stale + 16: aim + (0 if kind != TCACHE else 16) if kind == BIN else (aim + (16 if kind == TCACHE else 0)) ^ (stale + 16 >> 12)})
        words.update({stale + 8: 65, stale + 64: 64, stale + 24: data.choice(chunks)})
    for _ in range(hurt):
        victim = chunks[data.randrange(count)]
        words[victim + data.choice((8, 16, 16, 24))] = data.choice((0, 0x1234, 8, chunks[0], chunks[data.randrange(len(chunks))], 1 << 47))
    source = memory(heap.LP64, words, size=64 * (2 * count + 4))
    wanted = reference_walk.follow(source, heap.LP64, asked(kind, heads, 1 << 14), NativeRules(True, True))
    found = ChunkWalker(c_kernel, source, heap.LP64, Budget()).follow(asked(kind, heads, 1 << 14), NativeRules(True, True))
    assert found == wanted


def test_time_that_is_up_is_told_as_such(kernel: Kernel) -> None:
    """Lists that were not reached have no damage: they are cut."""
    entries = [BASE + 32 * place for place in shuffled(2000, "random")]
    source = memory(heap.LP64, linked(heap.LP64, entries, 0, False))
    found = ChunkWalker(kernel, source, heap.LP64, Budget(0.0)).follow(asked(TCACHE, entries[:1], 1 << 20), PLAIN)
    assert CUT in found.problems and describe_damage(found, 0) is None and not len(found.members)
