"""Where each thread has its tsd, where no symbol tells it: by the thread-local image, else by what the threads' own storage holds."""

from array import array
from typing import Callable, Dict, Iterable, Iterator, List, NamedTuple, Optional, Sequence, Tuple

from gdbheapx import kernel as kernels
from gdbheapx.inferior.base import Module, Target, ThreadLocal, TypeSet
from gdbheapx.jemalloc.detection.fingerprint import Arenas
from gdbheapx.jemalloc.detection.tables import Table
from gdbheapx.jemalloc.detection.traces import Thread
from gdbheapx.ranges import union

LINKS = ("tsd_link", "tcache.tsd_link")
"""Where tsd_nominal_tsds links its members: from 5.3.0 on, in 5.2."""
MOST_BLOCK_BYTES = 1 << 18
"""Of one thread's block that is searched; tsd_s has 2 to 6 KB."""
MOST_THREADS = 64
"""Threads that are asked for the place, which is the same in all."""
MOST_POINTERS = 1 << 16
"""Words that are tried as the head of a list."""
ENTRIES_TRIED = 4
MOST_BESIDE_BYTES = 1 << 16
"""Below a thread pointer, or above it where the machine has them there, where no file tells which object has its block where: static blocks
are a few KB, and a stack follows."""
PAGE_BYTES = 4096
NOMINAL_STATES = 3
"""tsd_state_nominal to nominal_recompute; before 5.2.0 one fewer."""


class _Tsd(NamedTuple):
    """tsd_s of one build: the offsets that tell whether one begins at an address."""

    types: TypeSet

    def offset(self, path: str) -> Optional[int]:
        place = self.types.place("tsd_s", path)
        return place.offset if place is not None else None

    def holds(self, read: Callable[[int, int], int], address: int, arenas: Sequence[int]) -> bool:
        """A thread that uses jemalloc has its tsd here: state, arenas, and what its cache says of itself."""
        state, arena, enabled = self.offset("state"), self.offset("arena"), self.offset("tcache_enabled")
        if state is None or arena is None or enabled is None or read(address + state, 1) >= NOMINAL_STATES:
            return False
        if read(address + arena, 8) not in arenas or read(address + enabled, 1) > 1:
            return False
        return not read(address + enabled, 1) or self._has_cache(read, address, arenas)

    def _has_cache(self, read: Callable[[int, int], int], address: int, arenas: Sequence[int]) -> bool:
        cache, slow = self.offset("tcache"), self.offset("tcache_slow")
        if cache is None:
            return False
        if slow is not None:
            back = self.types.place("tcache_slow_s", "tcache")
            return (
                back is not None and read(address + cache, 8) == address + slow and read(address + slow + back.offset, 8) == address + cache
            )
        inner = self.types.place("tcache_s", "cache_bin_array_descriptor.bins_small")
        small, owner = self.types.place("tcache_s", "bins_small"), self.types.place("tcache_s", "arena")
        if inner is not None and small is not None:
            return read(address + cache + inner.offset, 8) == address + cache + small.offset
        return owner is not None and read(address + cache + owner.offset, 8) in arenas

    def counts(self, read: Callable[[int, int], int], address: int) -> bool:
        """What this thread has allocated lies between two events, and both places say the same of the next (thread_event.h)."""
        names = ("thread_allocated_last_event", "thread_allocated", "thread_allocated_next_event", "thread_allocated_next_event_fast")
        places = [self.offset(name) for name in names]
        last, allocated, following, fast = (read(address + place, 8) if place is not None else 0 for place in places)
        return last <= allocated <= following and fast in (following, 0) and bool(following)


def choose(
    target: Target, module: Module, tables: Sequence[Table], arenas: Arenas, memory: Sequence[Tuple[int, bytes]], thread: Optional[Thread]
) -> Optional[Table]:
    """Of builds that differ in tsd_s alone the one that the threads have; None where none shows."""
    read, known = _Pages(target).number, sorted(arenas.pointers.values())
    words = _pointers(target, memory)
    votes = {table.name: 0 for table in tables}
    rings: Dict[int, List[int]] = {}
    for table in tables:
        tsd, link = _Tsd(table.types), _link(table.types)
        if link is not None and link not in rings:
            rings[link] = list(_in_rings(words, link, read))
        listed = rings[link] if link is not None else _behind_descriptors(table.types, known, read)
        addresses = {*listed, *_in_blocks(target, module, table.types, thread)}
        votes[table.name] = sum(1 for address in addresses if tsd.holds(read, address, (0, *known)) and tsd.counts(read, address))
    best = max(tables, key=lambda table: votes[table.name])
    return best if votes[best.name] and list(votes.values()).count(votes[best.name]) == 1 else None


def is_undecided(types: TypeSet) -> bool:
    """tsd_s is one of several kinds of a release, none of which is proven."""
    return "te_data" in types.structs["tsd_s"].members and "te_data_s" not in types.structs


def explicit_caches(target: Target, types: TypeSet, memory: Sequence[Tuple[int, bytes]]) -> Optional[int]:
    """Address of the variable `tcaches`, which leads to the array of caches that tcache.create made; None if there never was one.

    One of the first entries leads to a cache that knows itself: so it is found also where caches hang on no list (builds without
    statistics).
    """
    read = _Pages(target).number
    first = _pointers(target, memory)
    for pointer in first:
        for entry in range(pointer, pointer + 8 * ENTRIES_TRIED, 8):
            if knows_itself(types, read, read(entry, 8)):
                return first[pointer]
    return None


def knows_itself(types: TypeSet, read: Callable[[int, int], int], cache: int) -> bool:
    """A tcache_t lies here: what it points to points back (tcache_slow_t from 5.3.0, its descriptor in 5.1 and 5.2)."""
    if not cache or cache & 7 or cache >> 56:
        return False
    forth, back = types.place("tcache_s", "tcache_slow"), types.place("tcache_slow_s", "tcache")
    if forth is not None and back is not None:
        slow = read(cache + forth.offset, 8)
        return not slow & 7 and not slow >> 56 and read(slow + back.offset, 8) == cache
    inner, small = types.place("tcache_s", "cache_bin_array_descriptor.bins_small"), types.place("tcache_s", "bins_small")
    return inner is not None and small is not None and read(cache + inner.offset, 8) == cache + small.offset


class _Pages:
    """Numbers out of memory, each page read once."""

    def __init__(self, target: Target) -> None:
        self._target = target
        self._known: Dict[int, bytes] = {}

    def number(self, address: int, size_bytes: int) -> int:
        """All ones where it cannot be read. Nothing that is asked for here crosses a page."""
        page, at = address & -PAGE_BYTES, address & PAGE_BYTES - 1
        if page not in self._known:
            self._known[page] = self._target.read_prefix(page, PAGE_BYTES)
        return int.from_bytes(self._known[page][at : at + size_bytes].ljust(size_bytes, b"\xff"), "little")


def _pointers(target: Target, memory: Sequence[Tuple[int, bytes]]) -> Dict[int, int]:
    """The words of the object's memory that lead into anonymous memory or a stack, where threads have their blocks, in ascending order, and
    where each is first."""
    spans = union([(mapping.start, mapping.end) for mapping in target.mappings() if mapping.writable and not mapping.is_file])
    first: Dict[int, int] = {}
    for address, word in kernels.load().find_addresses(memory, spans, 7):
        first.setdefault(word, address)
    return dict(sorted(first.items())[:MOST_POINTERS])


def _link(types: TypeSet) -> Optional[int]:
    """Where tsd_nominal_tsds links a tsd."""
    return next((place.offset for place in (types.place("tsd_s", path) for path in LINKS) if place is not None), None)


def _in_rings(words: Iterable[int], link: int, read: Callable[[int, int], int]) -> Iterator[int]:
    """Members of circular lists whose head is one of these words: each leads to the next, and back."""
    for word in words:
        members, following = [word], read(word + link, 8)
        while following != word and not (following >> 56 or following & 7) and len(members) < MOST_THREADS:
            if read(following + link + 8, 8) != members[-1]:
                break
            members.append(following)
            following = read(following + link, 8)
        if len(members) >= MOST_THREADS or (following == word and read(word + link + 8, 8) == members[-1]):
            yield from members


def _behind_descriptors(types: TypeSet, arenas: Sequence[int], read: Callable[[int, int], int]) -> Iterator[int]:
    """Where tsds would lie around the descriptors of automatic caches, on the arenas' lists: after 5.3.1 there is no list of tsds.

    In builds without statistics these are empty."""
    head = types.place("arena_s", "cache_bin_array_descriptor_ql.qlh_first")
    link = types.place("cache_bin_array_descriptor_s", "link.qre_next")
    own = types.place("tsd_s", "tcache_slow.cache_bin_array_descriptor")
    if head is None or link is None or own is None:
        return
    for arena in arenas:
        first = at = read(arena + head.offset, 8)
        for _ in range(MOST_THREADS):
            if not at or at & 7 or at >> 56:
                break
            yield at - own.offset
            at = read(at + link.offset, 8)
            if at == first:
                break


def _in_blocks(target: Target, module: Module, types: TypeSet, thread: Optional[Thread]) -> Iterator[int]:
    """Where the thread-local image says that each thread has its tsd; nothing while a process runs, whose registers are not known."""
    place = types.place("tsd_s", "rtree_ctx")
    if thread is None or place is None or not any(thread.thread_pointer for thread in target.threads()):
        return
    local = target.thread_local_at(module, thread.rtree_ctx - place.offset)
    yield from (address for address in (local.addresses.values() if local is not None else ()) if address is not None)


class Finder:
    """The place in every thread; looked for once, when the threads' registers are known."""

    def __init__(self, target: Target, module: Module, types: TypeSet, arenas: Sequence[int], thread: Optional[Thread]) -> None:
        self._target, self._module, self._types, self._arenas = target, module, types, arenas
        self._tsd = _Tsd(types)
        place = types.place("tsd_s", "rtree_ctx")
        self._offset = thread.rtree_ctx - place.offset if thread is not None and place is not None else None
        self._distance: Optional[int] = None

    def find(self) -> Optional[ThreadLocal]:
        """Where each thread has it; None where that is not known."""
        if is_undecided(self._types):
            return None
        if self._distance is None and self._target.thread_local_at(self._module, 0) is None:
            self._distance = self._search_beside()
        if self._distance is not None:
            return self._target.beside_thread_pointer(self._distance)
        if self._offset is None:
            self._offset = self._search()
        return self._target.thread_local_at(self._module, self._offset) if self._offset is not None else None

    def _search_beside(self) -> Optional[int]:
        """The distance from the thread pointer at which most threads have what is a tsd, where the object's block is not known: the file
        with the relocations that tell it is not here. None where two distances have as many."""
        arena, internal = self._tsd.offset("arena"), self._tsd.offset("iarena")
        storage = self._target.arch.storage
        if arena is None or internal is None or storage.tcb_bytes is storage.self_words is None:
            return None
        votes: Dict[int, int] = {}
        for thread in list(self._target.threads())[:MOST_THREADS]:
            pointer = thread.thread_pointer or 0
            mapping = next((mapping for mapping in self._target.mappings() if mapping.start <= pointer < mapping.end), None)
            if mapping is None:
                continue
            start, end = max(pointer - MOST_BESIDE_BYTES, mapping.start), pointer
            if storage.tcb_bytes is not None:
                start, end = pointer + storage.tcb_bytes, min(pointer + MOST_BESIDE_BYTES, mapping.end)
            data = self._target.read_prefix(start, end - start)
            for offset in self._within(start, data, arena):
                pair = int.from_bytes(data[offset + internal : offset + internal + 8], "little")
                if pair in self._arenas:  # a stack may hold one pointer
                    distance = start + offset - pointer
                    votes[distance] = votes.get(distance, 0) + 1
        most = [distance for distance, count in votes.items() if count == max(votes.values())]
        return most[0] if len(most) == 1 else None

    def _search(self) -> Optional[int]:
        """The offset in the object's block at which most threads have what is a tsd."""
        blocks = self._target.thread_local_at(self._module, 0)
        arena, pair = self._tsd.offset("arena"), self._tsd.offset("iarena")
        if blocks is None or arena is None or pair is None:
            return None
        pointers = {thread.lwp: thread.thread_pointer for thread in self._target.threads()}
        votes: Dict[int, int] = {}
        for lwp, block in list(blocks.addresses.items())[:MOST_THREADS]:
            if block is None:
                continue
            below = (pointers.get(lwp) or 0) - block
            size_bytes = min(below, MOST_BLOCK_BYTES) if below > 0 and blocks.way == "static-tls" else MOST_BLOCK_BYTES // 8
            for offset in self._within(block, self._target.read_prefix(block, size_bytes), arena):
                votes[offset] = votes.get(offset, 0) + 1
        return max(votes, key=lambda offset: (votes[offset], -offset)) if votes else None

    def _within(self, block: int, data: bytes, arena: int) -> Iterator[int]:
        known = set(self._arenas)

        def read(address: int, size_bytes: int) -> int:
            part = data[address - block : address - block + size_bytes] if address >= block else b""
            return int.from_bytes(part.ljust(size_bytes, b"\xff"), "little")

        for number, word in enumerate(array("Q", data[: len(data) & -8])):
            offset = 8 * number - arena
            if word in known and offset >= 0 and self._tsd.holds(read, block + offset, self._arenas):
                yield offset
