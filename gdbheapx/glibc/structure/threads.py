"""Each thread's `tcache` and `thread_arena`, found beside its thread pointer: the same distance in all threads (initial-exec TLS)."""

import sys
from array import array
from collections import Counter
from itertools import compress, count, islice
from typing import Dict, Iterator, List, NamedTuple, Optional, Sequence, Set, Tuple

from gdbheapx.glibc.layouts import is_tcache_chunk
from gdbheapx.inferior.base import StructType, Target, Thread

REACH_BYTES = 64 << 10
"""From the thread pointer: static thread-local storage of a process with many libraries; libc's came within 2,100 bytes in those seen."""
MOST_SEARCHED, MOST_ASKED = 3, 16
"""Threads whose storage is searched, and threads that must agree."""
MOST_ENTRIES = 16
"""Cached chunks that are asked how their links are stored."""
BETWEEN_BYTES = 512
"""tcache and thread_arena are static variables of one file: the linker lets them lie together, in the one order or the other."""


class ThreadLocalOffsets(NamedTuple):
    """Where the variables lie, counted from the thread pointer. None: not found, or this build has none."""

    tcache: Optional[int]
    thread_arena: Optional[int]
    tcache_bytes: Optional[int]
    """sizeof tcache_perthread_struct, by the chunks that hold the structs; None where no thread has one."""
    safe_linking: Optional[bool]
    """By links in the caches; None where none tells."""
    has_key: Optional[bool]
    """Cached chunks carry the address of their cache."""


NOTHING = ThreadLocalOffsets(None, None, None, None, None)


class _Memory:
    """Words around one thread pointer."""

    def __init__(self, target: Target, thread: Thread, reach_bytes: int) -> None:
        word, self.pointer = target.word_bytes, thread.thread_pointer or 0
        is_above = target.arch.storage.tcb_bytes is not None
        start = self.pointer if is_above else max(word, self.pointer - reach_bytes)
        start, data = _readable(target, start, self.pointer + (reach_bytes if is_above else 0), from_end=not is_above)
        self.start = start + -start % word
        data = data[-start % word :]
        self.words = array("Q" if word == 8 else "I", data[: len(data) // word * word])
        if target.little_endian != (sys.byteorder == "little"):
            self.words.byteswap()
        self._word = word

    def holding(self, values: Set[int]) -> Iterator[int]:
        """Distances from the thread pointer at which one of these words stands."""
        first = self.start - self.pointer
        return (first + self._word * place for place in compress(count(), map(values.__contains__, self.words)))

    def at(self, distance: int) -> Optional[int]:
        """The word at that distance."""
        place = (self.pointer + distance - self.start) // self._word
        return self.words[place] if 0 <= place < len(self.words) else None


def _readable(target: Target, start: int, end: int, from_end: bool) -> Tuple[int, bytes]:
    """The readable part of a range that touches its end, or its start: (address, bytes)."""
    mapping = next((mapping for mapping in target.mappings() if mapping.start <= (end - 1 if from_end else start) < mapping.end), None)
    if mapping is None:
        return start, b""
    low, high = max(start, mapping.start), min(end, mapping.end)
    return low, target.read_prefix(low, high - low)


def find_thread_locals(target: Target, ring: Sequence[int], structs: Sequence[StructType]) -> ThreadLocalOffsets:
    """Where the two variables lie.

    `ring`: all arenas. `structs`: each form of tcache_perthread_struct that the layout allows, none for builds without thread caches.
    """
    threads = [thread for thread in target.threads() if thread.thread_pointer and _is_block(target, thread.thread_pointer)]
    blocks = [_Memory(target, thread, REACH_BYTES) for thread in threads[:MOST_SEARCHED]]
    distances = _common(blocks, set(ring))
    reach = max((abs(place) for place in distances), default=0) + BETWEEN_BYTES
    blocks += [_Memory(target, thread, reach) for thread in threads[MOST_SEARCHED:MOST_ASKED]] if distances else []
    arenas = {distance: count for distance, count in _common(blocks, set(ring)).items() if distance in distances}
    steps = [step for apart in range(target.word_bytes, BETWEEN_BYTES, target.word_bytes) for step in (-apart, apart)]
    near = {arena + step for arena in arenas for step in steps}
    caches = _caches(target, blocks, near, structs) if structs else {}
    pairs = [(arena, cache) for arena in arenas for cache in caches if 0 < abs(arena - cache) <= BETWEEN_BYTES]
    if pairs:
        arena, cache = max(pairs, key=lambda place: (arenas[place[0]] + caches[place[1]][0], -abs(place[1] - place[0])))
        struct = next(struct for struct in structs if struct.size_bytes == caches[cache][1])
        return _read_release(target, blocks, ThreadLocalOffsets(cache, arena, struct.size_bytes, None, None), struct)
    best = max(arenas, key=lambda place: arenas[place], default=None)
    return NOTHING if structs else NOTHING._replace(thread_arena=best)


def _is_block(target: Target, pointer: int) -> bool:
    """A thread control block begins here; on some machines it points to itself (tcbhead_t.self)."""
    word, self_words = target.word_bytes, target.arch.storage.self_words
    data = target.read_prefix(pointer + (self_words or 2) * word, word)
    return len(data) == word and (self_words is None or int.from_bytes(data, "little") == pointer)


def _common(blocks: Sequence[_Memory], ring: Set[int]) -> Dict[int, int]:
    """Distances at which every block has an arena or 0: how many have an arena there."""
    counts = Counter(distance for block in blocks for distance in block.holding(ring))
    return {
        distance: count
        for distance, count in counts.items()
        if all(block.at(distance) in ring or not block.at(distance) for block in blocks)
    }


def _caches(target: Target, blocks: Sequence[_Memory], near: Set[int], structs: Sequence[StructType]) -> Dict[int, Tuple[int, int]]:
    """Those of these distances at which every block has a cache, or a pointer to none: (how many have one, sizeof it)."""
    known: Dict[int, int] = {}
    seen: Dict[int, List[int]] = {}
    for block in blocks:
        for distance in near:
            value = block.at(distance)
            if value and value % (2 * target.word_bytes) == 0:
                if value not in known:
                    known[value] = _cache_bytes(target, value, structs)
                if known[value]:
                    seen.setdefault(distance, []).append(known[value])
    caches = {}
    for distance, sizes in seen.items():
        pointers = [block.at(distance) or 0 for block in blocks]
        others = [pointer for pointer in pointers if pointer and not known.get(pointer)]
        owned = [pointer for pointer in pointers if known.get(pointer)]
        if len(set(sizes)) == 1 and len(set(owned)) == len(owned) and (not others or _are_dummies(target, others)):
            caches[distance] = (len(sizes), sizes[0])
    return caches


def _are_dummies(target: Target, pointers: Sequence[int]) -> bool:
    """2.43 has all threads without a cache point to one of two stand-ins inside libc (malloc.c: __tcache_dummy)."""
    spans = target.file_ranges()
    return all(any(start <= pointer < end for start, end in spans) for pointer in pointers)


def _cache_bytes(target: Target, address: int, structs: Sequence[StructType]) -> int:
    """sizeof the tcache_perthread_struct that stands here in a chunk of its own; 0 if none does."""
    word, align = target.word_bytes, 2 * target.word_bytes
    head = target.read_prefix(address - word, word)
    size = int.from_bytes(head, target.byte_order)
    for struct in structs:
        if size & 2 or not is_tcache_chunk(size & ~7, struct, word, align):
            continue
        entries = struct.members["entries"]
        data = target.read_prefix(address, struct.size_bytes)
        if len(data) == struct.size_bytes and all(
            _is_entry(target, number, align) for number in _numbers(target, data, entries.offset, entries.count)
        ):
            return struct.size_bytes
    return 0


def _numbers(target: Target, data: bytes, offset: int, count: int) -> List[int]:
    size = count * target.word_bytes
    return target.words_in(data[offset : offset + size].ljust(size, b"\0"))


def _is_entry(target: Target, entry: int, align: int) -> bool:
    return not entry or (entry % align == 0 and len(target.read_prefix(entry, target.word_bytes)) == target.word_bytes)


def _read_release(target: Target, blocks: Sequence[_Memory], found: ThreadLocalOffsets, struct: StructType) -> ThreadLocalOffsets:
    """Infer safe-linking (2.32) and tcache keys (2.29) from cached chunks."""
    links, keys = [], []
    addresses = [block.at(found.tcache or 0) or 0 for block in blocks]
    entries = ((address, entry) for address in addresses for entry in _heads(target, address, struct))
    for address, entry in islice(entries, MOST_ENTRIES):
        link, key = _numbers(target, target.read_prefix(entry, 2 * target.word_bytes), 0, 2)
        links.append(_is_protected(target, entry, link))
        keys.append(key == address)
    clear = [link for link in links if link is not None]
    safe_linking = Counter(clear).most_common(1)[0][0] if clear else None
    return found._replace(safe_linking=safe_linking, has_key=2 * sum(keys) > len(keys) if keys else None)


def _heads(target: Target, address: int, struct: StructType) -> Iterator[int]:
    data = target.read_prefix(address, struct.size_bytes) if address else b""
    entries = struct.members["entries"]
    for entry in _numbers(target, data, entries.offset, entries.count) if len(data) == struct.size_bytes else ():
        if entry and len(target.read_prefix(entry, 2 * target.word_bytes)) == 2 * target.word_bytes:
            yield entry


def _is_protected(target: Target, entry: int, link: int) -> Optional[bool]:
    """The link is stored xor-ed with its own address (PROTECT_PTR, 2.32); None where both readings are possible."""
    align = 2 * target.word_bytes
    plain, revealed = (_is_entry(target, value, align) for value in (link, link ^ entry >> 12))
    return None if plain == revealed else revealed
