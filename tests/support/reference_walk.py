"""The walks over glibc and jemalloc once more: plain and slow, one word at a time, for tests that compare with the native library."""

from array import array
from collections import Counter
from typing import Any, Dict, Iterator, List, NamedTuple, Optional, Sequence, Set, Tuple

from gdbheapx.inferior.base import BulkSource, BytesSource
from gdbheapx.kernel.blocks.stream import EVERYTHING, BlockFilter, BlockState
from gdbheapx.kernel.common import library as common
from gdbheapx.kernel.common.library import ADDRESS_MASK, STOP_END, STOP_FENCE, STOP_OVERRUN, STOP_TOP, STOP_UNREADABLE, histogram_class
from gdbheapx.kernel.glibc import records as glibc
from gdbheapx.kernel.glibc.records import Geometry, NativeListed, NativeRules
from gdbheapx.kernel.jemalloc import records as api

PREV_INUSE, IS_MMAPPED, NON_MAIN, FLAGS = 1, 2, 4, 7
PROVEN_CHUNKS = 16
ADDRESSES = 1 << 64


class Memory:
    """Pieces of bytes, read word by word."""

    def __init__(self, source: BulkSource, word: int, little_endian: bool) -> None:
        assert isinstance(source, BytesSource)
        self.pieces, self.word, self.order = source.pieces, word, "little" if little_endian else "big"

    def read(self, address: int, size: int) -> bytes:
        """The readable prefix of [address, address + size)."""
        found = b""
        for start, data in self.pieces:
            at = address + len(found)
            if start <= at < start + len(data):
                found += data[at - start : at - start + size - len(found)]
        return found

    def words(self, address: int, count: int, low: int = 0, high: int = ADDRESSES - 1) -> Optional[Tuple[int, ...]]:
        """So many words, None if they cannot all be read, or do not lie in [low, high)."""
        size = count * self.word
        data = self.read(address, size) if low <= address <= high - size else b""
        return tuple(self.number(data, place) for place in range(0, size, self.word)) if len(data) == size else None

    def number(self, data: bytes, place: int, size: Optional[int] = None) -> int:
        """A number in a structure; a word unless told."""
        return int.from_bytes(data[place : place + (size or self.word)], self.order)  # type: ignore[arg-type]


# ------------------------------------------------------------------------------------------------ glibc: one region


class Chunk(NamedTuple):
    """One chunk met. `previous`: the chunk before it, 0 if none; `repeated`: prev_size of the next one."""

    at: int
    field: int
    size: int
    fd: int
    bk: int
    previous: int
    repeated: int
    status: int


class RegionWalk:
    """The chunks of one region, piece by piece; `stop`, `at`, `size` and what was noted count once all were met."""

    def __init__(self, memory: Memory, geometry: Geometry, region: glibc.Region, specials: Sequence[int]) -> None:
        self.memory, self.geometry, self.region = memory, geometry, region
        self.specials = [special for special in specials if region.begin <= special < region.end]
        self.kinds: Dict[int, int] = {}
        for special in self.specials:
            self.kinds[special & ~FLAGS] = self.kinds.get(special & ~FLAGS) or special & FLAGS
        self.at, self.previous, self.field, self.size, self.stop = region.begin, 0, 0, 0, STOP_END
        self.met: Set[int] = set()
        self.pieces: List[Tuple[int, int, int]] = []
        """Of each further piece: where the last chunk before it ends, where it begins, and whether top came before."""

    def words(self, address: int, count: int) -> Optional[Tuple[int, ...]]:
        """As of memory, within the region."""
        return self.memory.words(address, count, self.region.begin, self.region.end)

    def chunks(self) -> Iterator[Chunk]:
        """All of them; top is none."""
        while True:
            chunk = self._next()
            if chunk is not None:
                yield chunk
                continue
            first = self._further_piece()
            if first is None:
                return
            is_top = self.stop == STOP_TOP
            yield Chunk(self.at, self.field, self.size if is_top else 0, first, 0, self.previous, 0, glibc.STATUS_TOP)
            self.at, self.previous = first, 0

    def _next(self) -> Optional[Chunk]:
        word, room, at = self.geometry.word_bytes, self.region.end - self.at, self.at
        if room <= 0 or room < 2 * word:
            self.stop = STOP_END if room <= 0 else STOP_OVERRUN
            return None
        head = self.words(at, 4) or self.words(at, 2)
        if head is None:
            self.stop = STOP_UNREADABLE
            return None
        self.field, self.size = head[1], head[1] & ~FLAGS
        stop = self._judge(room)
        if stop is not None:
            self.stop = stop
            return None
        after = self.words(at + self.size, 2)
        self.met.add(at)
        fd, bk = head[2:] if len(head) == 4 else (0, 0)
        chunk = Chunk(at, self.field, self.size, fd, bk, self.previous, after[0] if after else 0, self._status(after))
        self.previous, self.at = at, at + self.size
        return chunk

    def _judge(self, room: int) -> Optional[int]:
        geometry, size, top = self.geometry, self.size, self.region.top
        if self.at == top:
            return STOP_OVERRUN if size > room else STOP_TOP
        if self.field & ~PREV_INUSE in (0, 2 * geometry.word_bytes):
            return STOP_FENCE
        if size < geometry.min_chunk_bytes:
            return common.STOP_SMALL
        if size % geometry.alignment_bytes:
            return common.STOP_MISALIGNED
        if self.field & IS_MMAPPED:
            return common.STOP_MMAPPED_BIT
        return STOP_OVERRUN if size > room or self.at < top < self.at + size else None

    def _status(self, after: Optional[Tuple[int, ...]]) -> int:
        kind = self.kinds.get(self.at, 0)
        if after and not after[1] & PREV_INUSE:
            return glibc.STATUS_FREE
        if glibc.SPECIAL_FAST <= kind <= glibc.SPECIAL_TCACHE_STRUCT:
            return kind
        is_fence = after and self.size == self.geometry.min_chunk_bytes and after[1] == PREV_INUSE
        return glibc.STATUS_FENCE if is_fence and self.at + self.size != self.region.top else glibc.STATUS_USED

    def _further_piece(self) -> Optional[int]:
        """Where the main arena goes on behind fenceposts, or behind top, that end with a page."""
        if not self.region.joined or self.stop not in (STOP_FENCE, STOP_TOP):
            return None
        end = self.at + self.size if self.stop == STOP_TOP else self._fences_end(self.at)
        first = end + -(end + 2 * self.geometry.word_bytes) % self.geometry.alignment_bytes
        begins = end and not end % self.geometry.page_bytes and first < self.region.end and self._begins_piece(first)
        return first if begins else None

    def _fences_end(self, at: int) -> int:
        size, align, count = 2 * self.geometry.word_bytes, self.geometry.alignment_bytes, 0
        while count < 3:
            header = self.words(at + size * count, 2)
            if header is None or header[1] & ~FLAGS != size:
                break
            count += 1
        return -(-(at + size * count) // align) * align if count >= 2 else 0

    def _begins_piece(self, first: int) -> bool:
        geometry, region, at, before = self.geometry, self.region, first, 0
        for count in range(PROVEN_CHUNKS):
            end = self._fences_end(at) if count else 0
            if region.end - at < 2 * geometry.word_bytes:
                return False
            if count and (at == region.top or at in self.kinds or (end and not end % geometry.page_bytes)):
                return True
            header = self.words(at, 2)
            if header is None:
                return False
            size = header[1] & ~FLAGS
            fits = geometry.min_chunk_bytes <= size <= region.end - at and not size % geometry.alignment_bytes
            if not fits or header[1] & (IS_MMAPPED | NON_MAIN):
                return False
            if not header[1] & PREV_INUSE and (not before or header[0] != before):
                return False
            if at == region.top:
                return True
            at, before = at + size, size
        return True


NAMES = {glibc.STATUS_TCACHE_STRUCT: "tcache_struct", glibc.STATUS_TCACHE: "tcache", glibc.STATUS_FAST: "fast", glibc.STATUS_FREE: "free"}


class RegionTotals:
    """What a walk counts."""

    def __init__(self, geometry: Geometry) -> None:
        self.geometry, self.run = geometry, 0
        self.counts: Dict[str, int] = dict.fromkeys(glibc.WalkResult._fields, 0)
        self.rows: Dict[int, List[int]] = {}

    def count(self, chunk: Chunk) -> None:
        """One more chunk."""
        counts, status, size = self.counts, chunk.status, chunk.size
        if status == glibc.STATUS_TOP:  # a further piece begins, at chunk.fd
            if size:
                self.reach_top(chunk.field, size, chunk.previous)
            self.close_run(chunk.at + size)
            counts["fence_bytes"] += chunk.fd - chunk.at - size
            counts["further_pieces"] += 1
            return
        row = self.rows.setdefault(histogram_class(size, self.geometry.alignment_bytes), [0] * 5)
        if status in (glibc.STATUS_FREE, glibc.STATUS_FAST):
            row[2] += 1
            row[3] += size
            starts_before = not chunk.field & PREV_INUSE and chunk.previous
            self.run = self.run or (chunk.previous if starts_before else chunk.at)
        else:
            self.close_run(chunk.at)
        if status == glibc.STATUS_FENCE:
            counts["fence_bytes"] += size
            return
        name = NAMES.get(status, "used")
        counts[name + "_chunks"] += 1
        counts[name + "_bytes"] += size
        if name == "used":
            row[0] += 1
            row[1] += size
        row[4] += name == "tcache"
        if name == "free":
            self._count_free(chunk)

    def _count_free(self, chunk: Chunk) -> None:
        counts = self.counts
        counts["largest_free_bytes"] = max(counts["largest_free_bytes"], chunk.size)
        for name, value in (("free_sum", chunk.at), ("fd_sum", chunk.fd), ("bk_sum", chunk.bk)):
            counts[name] = counts[name] + value & ADDRESS_MASK
        for name, is_bad in (
            ("bad_prev_size", chunk.repeated != chunk.size),
            ("bad_neighbour", not chunk.field & PREV_INUSE and chunk.previous != 0),
        ):
            counts[name] = counts[name] or is_bad * chunk.at
            counts[name + "_chunks"] += is_bad

    def close_run(self, end: int) -> None:
        """A run of free and fast chunks ends, and not at top: its whole pages are what mtrim (malloc.c) gives back."""
        start, page, kept = self.run, self.geometry.page_bytes, self.geometry.chunk_struct_bytes
        self.run = 0
        length = (end - ((start + kept + page - 1) & -page)) & -page
        if start and end - start > page - 1 + kept and length > 0:
            self.counts["interior_ranges"] += 1
            self.counts["interior_bytes"] += length

    def reach_top(self, field: int, size: int, previous: int) -> None:
        """Top comes next."""
        self.counts["top_bytes"] = size
        self.counts["top_run_start"] = self.run or (0 if field & PREV_INUSE else previous)
        self.run = 0


def walk(source: BulkSource, geometry: Geometry, region: glibc.Region, specials: Sequence[int] = ()) -> glibc.WalkResult:
    """As ChunkWalker.walk of one region, without a page table."""
    memory = Memory(source, geometry.word_bytes, geometry.little_endian)
    region_walk, totals = RegionWalk(memory, geometry, region, specials), RegionTotals(geometry)
    for chunk in region_walk.chunks():
        totals.count(chunk)
    if region_walk.stop == STOP_TOP:
        totals.reach_top(region_walk.field, region_walk.size, region_walk.previous)
    totals.close_run(region_walk.at)
    passed = [special for special in region_walk.specials if special & ~FLAGS <= region_walk.at]
    met = region_walk.met | {region_walk.at}
    missed = [special for special in passed if special & ~FLAGS not in met]
    counts: Dict[str, Any] = dict(totals.counts, stop=region_walk.stop, at=region_walk.at)
    counts.update(specials_met=len(passed) - len(missed), missed_special=min(missed, default=0), missed_specials=len(missed))
    counts.update(dict.fromkeys(glibc.PAGE_COUNTERS))
    counts["histogram"] = tuple((index, *row) for index, row in sorted(totals.rows.items()) if row[0] or row[2] or row[4])
    return glibc.WalkResult(**counts)


class _Lane:
    """The wanted chunks of one region, of which the next one is known."""

    def __init__(self, walked: RegionWalk, arena: int, wanted: BlockFilter) -> None:
        self.walked, self.arena, self.wanted, self.lead = walked, arena, wanted, 2 * walked.geometry.word_bytes
        self.rows = self._rows()
        self.row = next(self.rows, None)

    def _rows(self) -> Iterator[Tuple[int, int, int]]:
        walked = self.walked
        for chunk in walked.chunks():
            if chunk.size and self._has(chunk.at, chunk.size, chunk.status):
                yield chunk.at, chunk.size, chunk.status
        if walked.stop == STOP_TOP and walked.size and self._has(walked.at, walked.size, glibc.STATUS_TOP):
            yield walked.at, walked.size, glibc.STATUS_TOP

    def _has(self, address: int, size: int, status: int) -> bool:
        return self.wanted.has(status, size) and address + self.lead >= self.wanted.start


def list_chunks(
    source: BulkSource, geometry: Geometry, regions: Sequence[NativeListed], specials: Sequence[int] = (), wanted: BlockFilter = EVERYTHING
) -> Tuple[List[Tuple[int, int, int, int]], BlockState]:
    """As ChunkWalker.blocks: (address, usable bytes, status, arena) of each, and how the region that ended last did."""
    memory, left, lanes = Memory(source, geometry.word_bytes, geometry.little_endian), sorted(regions), []  # type: ignore[var-annotated]
    rows: List[Tuple[int, int, int, int]] = []
    end = BlockState(1, STOP_END, 0)
    while True:
        for lane in [lane for lane in lanes if lane.row is None]:
            lanes.remove(lane)
            end = BlockState(1, lane.walked.stop, lane.walked.at)
        if left and not (lanes and left[0].region.begin > min(lane.row[0] for lane in lanes if lane.row)):
            region, arena = left.pop(0)
            if region.end > wanted.start:
                lanes.append(_Lane(RegionWalk(memory, geometry, region, specials), arena, wanted))
            continue
        if not lanes:
            return rows, end
        lane = min(lanes, key=lambda lane: lane.row[0])
        address, size, status = lane.row
        rows.append((address + 2 * geometry.word_bytes, size - geometry.overhead_bytes, status, lane.arena))
        lane.row = next(lane.rows, None)


# ------------------------------------------------------------------------------------------------ glibc: lists, chains


class _Lists:
    """Follows lists link by link."""

    def __init__(self, memory: Memory, geometry: Geometry, rules: NativeRules) -> None:
        self.memory, self.geometry, self.rules = memory, geometry, rules
        self.members: List[int] = []
        self.mapped: Set[int] = set()

    def single(self, kind: int, entry: int, limit: int) -> List[int]:
        """A thread cache's list or a fastbin."""
        word, mask = self.geometry.word_bytes, (1 << 8 * self.geometry.word_bytes) - 1
        offset, sizes = 2 * word if kind == glibc.FAST else 0, {}  # type: ignore[var-annotated]
        has_size = kind == glibc.TCACHE_SIZED
        while entry:
            field = (entry + offset) & mask
            if entry in sizes:
                return _figures(glibc.CYCLE, entry, sizes)
            if field % self.geometry.alignment_bytes:
                return _figures(glibc.UNALIGNED, entry, sizes)
            if len(sizes) >= limit:
                return _figures(glibc.TOO_LONG, entry, sizes)
            found = self.memory.words((field - word) & mask, 2) if has_size else self.memory.words(field, 1)
            if found is None:
                return _figures(glibc.UNREADABLE, entry, sizes)
            sizes[entry] = found[0] if has_size else 0
            self._collect(kind, entry, sizes[entry])
            entry = (found[-1] ^ field >> 12 if self.rules.mangled else found[-1]) & mask
        return _figures(0, 0, sizes)

    def _collect(self, kind: int, entry: int, field: int) -> None:
        chunk = entry - 2 * self.geometry.word_bytes
        if kind == glibc.TCACHE_SIZED and field & IS_MMAPPED:
            self.mapped.add(chunk & ADDRESS_MASK)
        else:
            self.members.append((entry | glibc.SPECIAL_FAST if kind == glibc.FAST else chunk | glibc.SPECIAL_TCACHE) & ADDRESS_MASK)

    def bin(self, header: int, limit: int) -> List[int]:
        """A bin, from its header to its header."""
        word, fields = self.geometry.word_bytes, {}  # type: ignore[var-annotated]
        first, previous, count = self.memory.words(header + 2 * word, 2), header, 0
        if first is None:
            return _figures(glibc.UNREADABLE, header, fields)
        chunk = first[0]
        while chunk != header:
            if (chunk + 2 * word) % self.geometry.alignment_bytes:
                return _figures(glibc.UNALIGNED, chunk, fields)
            if count >= limit:
                return _figures(glibc.TOO_LONG, chunk, fields)
            found = self.memory.words(chunk, 4)
            if found is None or found[3] != previous:
                return _figures(glibc.UNREADABLE if found is None else glibc.BACK_LINK, chunk, fields)
            fields[chunk], count = found[1], count + 1
            self.members.append(chunk)
            previous, chunk = chunk, found[2]
        return _figures(0, 0, fields) if first[1] == previous else _figures(glibc.BACK_LINK, header, fields)


def _figures(problem: int, at: int, members: Dict[int, int]) -> List[int]:
    fields, last = list(members.values()), list(members)[-1] if members else 0
    sums = sum(field & ~FLAGS for field in fields) & ADDRESS_MASK, sum(fields) & ADDRESS_MASK
    return [len(members), problem, at, last, *sums, min(fields, default=0), max(fields, default=0)]


def follow(source: BulkSource, geometry: Geometry, lists: glibc.NativeFreeLists, rules: NativeRules) -> glibc.NativeFollowedList:
    """As ChunkWalker.follow."""
    follower = _Lists(Memory(source, geometry.word_bytes, geometry.little_endian), geometry, rules)
    asked = zip(lists.heads, lists.kinds, lists.limits)
    rows = [follower.bin(head, limit) if kind == glibc.BIN else follower.single(kind, head, limit) for head, kind, limit in asked]
    every = [*follower.members, *lists.also] if rules.collect else [*lists.also]
    lowest = {special & ~FLAGS: special for special in sorted(every, reverse=True)}
    twice = sorted(chunk for chunk, count in Counter(special & ~FLAGS for special in every).items() if count > 1)
    mapped = sorted(follower.mapped) if rules.collect else []
    columns: List[Any] = [array("Q", column) for column in zip(*rows)] or [array("Q")] * 8
    return glibc.NativeFollowedList._make([*columns, array("Q", sorted(lowest.values())), array("Q", twice), array("Q", mapped)])


def find_chain(source: BulkSource, geometry: Geometry, low: int, high: int, anchors: Sequence[int], strict: bool = False) -> Optional[int]:
    """As ChunkWalker.find_chain, of every aligned address in turn."""
    memory = Memory(source, geometry.word_bytes, geometry.little_endian)
    start = low + -(low + 2 * geometry.word_bytes) % geometry.alignment_bytes
    candidates = range(start, min(high, anchors[-1] + 1), geometry.alignment_bytes)
    return next((one for one in candidates if _leads_on(memory, geometry, one, anchors, strict)), None)


def _leads_on(memory: Memory, geometry: Geometry, at: int, anchors: Sequence[int], strict: bool) -> bool:
    before = 0
    while strict or at not in anchors:
        header = memory.words(at, 2)
        if header is None or (strict and not header[1] & PREV_INUSE and (not before or header[0] != before)):
            return False
        if at in anchors:
            return True
        before = header[1] & ~FLAGS
        is_size = geometry.min_chunk_bytes <= before <= anchors[-1] - at and not before % geometry.alignment_bytes
        if not is_size or header[1] & IS_MMAPPED:
            return False
        at += before
    return True


# ------------------------------------------------------------------------------------------------ jemalloc

GOOD, NOWHERE = -1, ADDRESSES - 2


class Extent:
    """One extent; `code` is GOOD or what is wrong with it, `free` a slab's bitmap with a set bit for each free region."""

    def __init__(self, pointer: int) -> None:
        self.pointer, self.code, self.begin = pointer, api.EXTENT_UNREADABLE, ADDRESSES - 1
        self.end = self.address = self.arena = self.slab = self.state = self.szind = self.nfree = self.free = 0
        self.has_range = self.unassociated = False


class Span:
    """The smallest span of addresses that holds what was added; empty if begin == end."""

    def __init__(self) -> None:
        self.begin = self.end = 0

    def add(self, begin: int, end: int) -> None:
        """Grow."""
        is_empty = self.begin == self.end
        self.begin, self.end = (begin, end) if is_empty else (min(begin, self.begin), max(end, self.end))


class Told:
    """What contradicts: the first ones, and how many of each code."""

    def __init__(self, codes: int) -> None:
        self.counts, self.rows = [0] * codes, []  # type: ignore[var-annotated]

    def add(self, code: int, row: Any) -> None:
        """One more."""
        self.counts[code] += 1
        if len(self.rows) < api.MOST_PROBLEMS:
            self.rows.append(row)


class Extents:
    """The extents of one rtree: `good()` gives those that are to be counted."""

    def __init__(self, source: BulkSource, heap: api.HeapLayout) -> None:
        self.heap, self.rtree, self.layout, self.word = heap, heap.rtree, heap.extent, heap.extent.word_bytes
        self.memory = Memory(source, self.word, heap.extent.little_endian)
        self.problems, self.details = Told(api.EXTENT_CODES), Told(api.EXTENT_CODES)
        self.unknown, self.hole = Span(), Span()
        self.nodes = self.leaf_nodes = self.unreadable_bytes = self.unassociated = self.unparsed_bytes = self.at = 0
        self.page_bytes, self.mask = 1 << self.rtree.lg_page, (1 << self.rtree.lg_vaddr) - 1
        self.seen, self.room, self.given_up = {self.rtree.root}, heap.mapped_bytes - self._node_bytes(0), False
        self.pending: Optional[Extent] = None
        self.bad_pointer = self.bad_begin = self.skipped = self.odd_page = self.bits = 0

    def problem(self, code: int, page: int, pointer: int = 0) -> None:
        """One more contradiction."""
        self.problems.add(code, api.ExtentProblem(code, page, pointer))

    def detail(self, code: int, page: int, pointer: int) -> None:
        """One that leaves the extent good."""
        self.details.add(code, api.ExtentProblem(code, page, pointer))

    # -------------------------------------------------------------------- leaf elements

    def _element(self, depth: int) -> int:
        return self.rtree.leaf_bytes if depth + 1 == len(self.rtree.levels) else self.word

    def _node_bytes(self, depth: int) -> int:
        return self._element(depth) << self.rtree.levels[depth]

    def _extended(self, address: int) -> int:
        address &= self.mask
        is_high = self.rtree.sign_extend and self.word == 8 and address >> (self.rtree.lg_vaddr - 1)
        return address | (ADDRESSES - 1 ^ self.mask) if is_high else address

    def _behind(self, key: int, shift: int) -> int:
        return min(self._extended(key) + (1 << shift), ADDRESSES - 1)

    def _lose(self, begin: int, end: int) -> None:
        self.hole.add(begin, end)
        self.unknown.add(self.hole.begin, self.hole.end)

    def _elements(self, depth: int, node: int, key: int) -> Iterator[Tuple[int, int, int]]:
        """(page, extent, what the element says of it) of each leaf element below a node that names one; `key`: where its pages begin."""
        levels, element = self.rtree.levels, self._element(depth)
        count, shift, is_leaf = 1 << levels[depth], self.rtree.lg_page + sum(levels[depth + 1 :]), depth + 1 == len(levels)
        data, index, missing, hole, is_counted = b"", 0, 0, 0, False
        while index < count and not self.given_up:
            data = self.memory.read(node + index * element, (count - index) * element)
            if len(data) < element:
                hole = hole if missing else node + index * element
                behind = min(-(-((node + index * element | 4095) + 1 - node) // element), count)
                self.unreadable_bytes += (behind - index) * element
                self._lose(self._extended(key + (index << shift)), self._behind(key + (behind - 1 << shift), shift))
                missing, index = missing + behind - index, behind
                continue
            self.nodes += not is_counted
            self.leaf_nodes += is_leaf and not is_counted
            is_counted = True
            for place in range(0, len(data) // element * element, element):
                value, here = self.memory.number(data, place), key + (index << shift)
                index += 1
                if is_leaf:
                    yield from self._leaf_element(data[place : place + element], value, here)
                elif value and not self.given_up:
                    yield from self._child(depth, here, shift, value)
        self.at = self._behind(key + (count - 1 << shift), shift)
        if missing:
            is_whole = missing == count
            self.problem(api.EXTENT_NODE_UNREADABLE if is_whole else api.EXTENT_NODE_HOLE, node if is_whole else hole)

    def _child(self, depth: int, key: int, shift: int, node: int) -> Iterator[Tuple[int, int, int]]:
        size = self._node_bytes(depth + 1)
        code = api.EXTENT_NODE_MISALIGNED if node % self.word or node + size >= ADDRESSES else GOOD
        if code == GOOD and size > self.room:
            self.problem(api.EXTENT_TOO_MANY_NODES, node)
            self._lose(self._extended(key), ADDRESSES - 1)
            self.given_up = True
        elif code == GOOD and node not in self.seen:
            self.seen.add(node)
            self.room -= size
            yield from self._elements(depth + 1, node, key)
        else:
            self.problem(code if code != GOOD else api.EXTENT_NODE_TWICE, node)
            self._lose(self._extended(key), self._behind(key, shift))

    def _leaf_element(self, data: bytes, value: int, key: int) -> Iterator[Tuple[int, int, int]]:
        kind, more, bits = self.rtree.leaf_kind, self.memory.number(data, self.word, 4), 0
        if kind in (api.LEAF_COMPACT, api.LEAF_COMPACT_STATE):
            bits = self._leaf_bits(value & 1, value >> 2 & 7, value >> self.rtree.lg_vaddr)
        elif kind == api.LEAF_METADATA:
            bits = self._leaf_bits(more & 1, more >> 2 & 7, more >> 5)
        elif kind != api.LEAF_UNKNOWN:
            bits = self._leaf_bits(data[self.word + 4] & 1, 0, more)
        if self.rtree.compact:  # the word may be non-zero and name no extent
            value = self._extended(value) & -(1 << self.rtree.extent_low_bits)
        if value:
            yield self._extended(key), value, bits

    def _leaf_bits(self, slab: int, state: int, szind: int) -> int:
        kind = self.rtree.leaf_kind
        has_state = kind in (api.LEAF_COMPACT_STATE, api.LEAF_METADATA)
        return 0 if kind == api.LEAF_UNKNOWN else slab | state * has_state << 1 | szind << 8

    # -------------------------------------------------------------------- extents

    def good(self) -> Iterator[Extent]:
        """Those whose first and last page name them, in address order."""
        for page, pointer, bits in self._elements(0, self.rtree.root, 0):
            pending = self.pending
            if pending and pointer == pending.pointer and page < pending.end - self.page_bytes:
                self.skipped += 1
                if bits != self._bits_of(pending):
                    self.odd_page = self.odd_page or page
                continue
            self.bits = bits
            if pending and page >= pending.end:
                if self._ends_in_hole(pending):
                    yield pending
                pending = self.pending
            if pending and pointer == pending.pointer:
                self._check_last_leaf(page, pending)
                if self._settle(pending):
                    yield pending
            elif pointer != self.bad_pointer or page == self.bad_begin:
                fresh = self._read(page, pointer)
                if self._take(page, fresh) and self._settle(fresh):
                    yield fresh
        last = self.pending
        if last and self._ends_in_hole(last):
            yield last

    def _bits_of(self, extent: Extent) -> int:
        return self._leaf_bits(extent.slab, extent.state, extent.szind)

    def _take(self, page: int, fresh: Extent) -> bool:
        """It becomes the pending one, if it is more than a contradiction. Whether its only page was its last."""
        pending = self.pending
        if not fresh.has_range or (pending and fresh.code == api.EXTENT_FIRST_PAGE):
            self.problem(fresh.code, page, fresh.pointer)
            self.unknown.add(page, page + self.page_bytes)
            self.bad_pointer, self.bad_begin = fresh.pointer, ADDRESSES - 1 if fresh.has_range else fresh.begin
            return False
        if pending:
            self._throw_away(pending, fresh.begin, api.EXTENT_OVERLAP)
        if fresh.code != GOOD:
            self.problem(fresh.code, page, fresh.pointer)
        self.pending, self.hole.begin, self.hole.end, self.skipped, self.odd_page = fresh, 0, 0, 0, 0
        if self._is_active(fresh) and self.bits != self._bits_of(fresh):
            self.detail(api.EXTENT_LEAF, page, fresh.pointer)
        return fresh.end - fresh.begin == self.page_bytes

    def _is_active(self, extent: Extent) -> bool:
        return extent.code == GOOD and not extent.unassociated and extent.state == self.layout.active

    def _check_last_leaf(self, page: int, pending: Extent) -> None:
        if not self._is_active(pending) or not self.rtree.leaf_kind:
            return
        if (self.bits ^ self._bits_of(pending)) & (-1 if pending.slab else 14):  # of a large one only its state is kept (emap_remap)
            self.detail(api.EXTENT_LEAF, page, pending.pointer)
        if pending.slab and self.odd_page:
            self.detail(api.EXTENT_LEAF, self.odd_page, pending.pointer)
        inner = (pending.end - pending.begin) // self.page_bytes - 2
        if pending.slab and self.skipped != inner and self.hole.begin == self.hole.end:
            self.detail(api.EXTENT_INTERIOR, pending.begin, pending.pointer)

    def _throw_away(self, pending: Extent, end: int, code: int) -> None:
        if pending.code == GOOD:
            self.problem(code, pending.begin, pending.pointer)
        self.unparsed_bytes += end - pending.begin
        self.unknown.add(pending.begin, end)
        self.bad_pointer, self.bad_begin, self.pending = pending.pointer, ADDRESSES - 1, None

    def _settle(self, pending: Extent) -> bool:
        """It ends where it says. Whether it is one to be counted."""
        self.pending = None
        if pending.code != GOOD:
            self._throw_away(pending, pending.end, pending.code)
            return False
        self.unassociated += pending.unassociated
        return not pending.unassociated

    def _ends_in_hole(self, pending: Extent) -> bool:
        """No element of its last page named it. Whether it is one to be counted, since that one could not be read."""
        if self.hole.begin <= pending.end - self.page_bytes < self.hole.end:
            return self._settle(pending)
        self._throw_away(pending, pending.end, api.EXTENT_LAST_PAGE)
        return False

    def _read(self, page: int, pointer: int) -> Extent:
        """The extent that the leaf element of a page names."""
        layout, extent = self.layout, Extent(pointer)
        data = self.memory.read(pointer, layout.size_bytes) if pointer + layout.size_bytes < ADDRESSES else b""
        if len(data) < layout.size_bytes:
            return extent
        extent.address = self.memory.number(data, layout.addr_offset)
        size, begin = self.memory.number(data, layout.size_offset) & -self.page_bytes, extent.address & -self.page_bytes
        if not size:
            extent.code = api.EXTENT_SIZE
        elif page - begin & ADDRESSES - 1 >= size:
            extent.code, extent.begin = api.EXTENT_STALE, begin
        elif size - 1 > self.mask - (begin & self.mask):
            extent.code = api.EXTENT_SIZE
        else:
            extent.has_range, extent.begin, extent.end = True, page, begin + size
            extent.code = self._judge(extent, data) if page == begin else api.EXTENT_FIRST_PAGE
        return extent

    def _judge(self, extent: Extent, data: bytes) -> int:
        layout, heap, bits = self.layout, self.heap, self.memory.number(data, self.layout.bits_offset, 8)
        fields = (layout.arena, layout.slab, layout.state, layout.szind, layout.nfree)
        values = [bits >> field.shift & (1 << field.width) - 1 for field in fields]
        extent.arena, extent.slab, extent.state, extent.szind, extent.nfree = values
        extent.unassociated = extent.arena == (1 << layout.arena.width) - 1
        if extent.unassociated:
            return GOOD
        if extent.arena >= heap.narenas or extent.state >= layout.states:
            return api.EXTENT_ARENA if extent.arena >= heap.narenas else api.EXTENT_STATE
        if extent.state == layout.active and extent.szind == len(heap.size_classes):
            extent.state = layout.states  # in nobody's list just then
        if extent.state != layout.active:
            return GOOD
        if extent.szind >= len(heap.bins if extent.slab else heap.size_classes):
            return api.EXTENT_SZIND
        return self._judge_slab(extent, data, bits) if extent.slab else GOOD

    def _judge_slab(self, extent: Extent, data: bytes, bits: int) -> int:
        layout, shape = self.layout, self.heap.bins[extent.szind]
        if extent.end - extent.begin != shape.slab_size_bytes:
            return api.EXTENT_SLAB_SIZE
        if shape.shards and bits >> layout.binshard.shift & (1 << layout.binshard.width) - 1 >= shape.shards:
            self.detail(api.EXTENT_SHARD, extent.begin, extent.pointer)
        places = range(0, -(-shape.nregs // (8 * self.word)) * self.word, self.word)
        groups = [self.memory.number(data, layout.bitmap_offset + place) << 8 * place for place in places]
        bitmap = sum(groups) & (1 << -(-shape.nregs // 64) * 64) - 1
        extent.free = bitmap & (1 << shape.nregs) - 1
        if bin(extent.free).count("1") != extent.nfree:
            return api.EXTENT_BITMAP
        if bitmap != extent.free:
            self.detail(api.EXTENT_BITMAP_REST, extent.begin, extent.pointer)
        return GOOD

    def state_of(self, extent: Extent) -> int:
        """Its place among active, dirty, muzzy, retained, pinned and other."""
        layout = self.layout
        known = [layout.active, layout.dirty, layout.muzzy, layout.retained, layout.pinned]
        return known.index(extent.state) if extent.state in known else len(known)


def walk_extents(source: BulkSource, heap: api.HeapLayout, cached: Sequence[int]) -> api.ExtentsResult:
    """As ExtentWalker.walk of a process without a page table."""
    extents, left, misplaced = Extents(source, heap), sorted(cached), Told(api.CACHED_REASONS)
    arenas: Dict[int, Any] = {}
    ranges: List[List[int]] = []

    def misplace(address: int, reason: int) -> None:
        misplaced.add(reason, api.CachedProblem(address, reason))

    def below(end: int) -> Iterator[int]:
        while left and left[0] < end:
            address = left.pop(0)
            if address in taken:
                misplace(address, api.CACHED_TWICE)
            else:
                taken.add(address)
                yield address

    def outside(end: int) -> None:
        for address in below(end):
            is_unknown = extents.unknown.begin <= address < extents.unknown.end
            misplace(address, api.CACHED_UNKNOWN if is_unknown else api.CACHED_OUTSIDE)

    taken: Set[int] = set()
    for extent in extents.good():
        states, bins, larges, rows = arenas.setdefault(extent.arena, ([[0, 0] for _ in range(api.STATES)], {}, {}, {}))
        place, size = extents.state_of(extent), extent.end - extent.begin
        if ranges and (ranges[-1][1] == extent.begin or len(ranges) == api.MOST_RANGES):
            ranges[-1][1] = extent.end
        else:
            ranges.append([extent.begin, extent.end])
        states[place][0] += 1
        states[place][1] += size
        outside(extent.begin)
        if extents.unknown.begin < extent.end:
            extents.unknown.begin = min(extents.unknown.end, extent.end)
        if place:
            if place < 5:
                row = rows.setdefault(histogram_class(size, extents.page_bytes), [0] * api.UNUSED_NUMBERS)
                row[2 * place - 2] += 1
                row[2 * place - 1] += size
            outside(extent.end)
        elif extent.slab:
            shape, row = heap.bins[extent.szind], bins.setdefault(extent.szind, [0, 0, 0, 0])
            row[:] = row[0] + 1, row[1] + shape.nregs - extent.nfree, row[2], row[3] + (extent.nfree != 0)
            for address in below(extent.end):
                region, rest = divmod(address - extent.begin, shape.reg_size_bytes)
                if rest or region >= shape.nregs or extent.free >> region & 1:
                    misplace(address, api.CACHED_NOT_START if rest or region >= shape.nregs else api.CACHED_FREE)
                else:
                    row[2] += 1
        else:
            row = larges.setdefault(extent.szind, [0, 0, 0, 0])
            row[:] = row[0] + 1, row[1] + size, row[2], row[3]
            for address in below(extent.end):
                if address != extent.address:
                    misplace(address, api.CACHED_NOT_START)
                else:
                    row[2:] = row[2] + 1, row[3] + size
    outside(ADDRESS_MASK)
    return api.ExtentsResult(
        summary=api.ExtentsSummary(
            done=1, at=extents.at, nodes=extents.nodes, leaf_nodes=extents.leaf_nodes,
            extents=sum(state[0] for states, *_ in arenas.values() for state in states), unassociated_extents=extents.unassociated,
            unparsed_bytes=extents.unparsed_bytes, unreadable_bytes=extents.unreadable_bytes, problems=len(extents.problems.rows),
            details=len(extents.details.rows), cached_problems=len(misplaced.rows),
        ),
        arenas=tuple(_arena(index, *arenas[index]) for index in sorted(arenas)),
        ranges=tuple((begin, end) for begin, end in ranges),
        problems=tuple(extents.problems.rows),
        problem_counts=tuple(extents.problems.counts),
        details=tuple(extents.details.rows),
        detail_counts=tuple(extents.details.counts),
        cached_problems=tuple(misplaced.rows),
        cached_problem_counts=tuple(misplaced.counts),
    )


def _arena(index: int, states: Any, bins: Any, larges: Any, rows: Any) -> api.ArenaExtents:
    totals = [api.StateTotals(*state, None) for state in states]
    slabs = tuple(api.BinTotals(szind, *row) for szind, row in sorted(bins.items()))
    large = tuple(api.LargeTotals(szind, *row) for szind, row in sorted(larges.items()))
    return api.ArenaExtents._make([index, *totals, slabs, large, tuple((place, *row) for place, row in sorted(rows.items())), None])


KINDS = (api.BLOCK_DIRTY, api.BLOCK_MUZZY, api.BLOCK_RETAINED, api.BLOCK_PINNED, api.BLOCK_OTHER)


def list_extents(source: BulkSource, heap: api.HeapLayout, cached: Sequence[int]) -> List[Tuple[int, int, int, int]]:
    """As ExtentWalker.blocks: (address, usable bytes, kind, arena) of each."""
    extents, rows = Extents(source, heap), []
    for extent in extents.good():
        place, size = extents.state_of(extent), extent.end - extent.begin
        if place:
            rows.append((extent.begin, size, KINDS[place - 1], extent.arena))
        elif not extent.slab:
            kind = api.BLOCK_CACHED if extent.address in cached else api.BLOCK_USED
            pad, is_class = heap.sizes.large_pad_bytes, not heap.sizes.from_extent or extent.szind < len(heap.bins)
            usable = heap.size_classes[extent.szind] if is_class else size - pad if size > pad else size
            rows.append((extent.address, usable, kind, extent.arena))
        else:
            shape = heap.bins[extent.szind]
            for region in range(shape.nregs):
                address = extent.begin + region * shape.reg_size_bytes
                kind = api.BLOCK_FREE if extent.free >> region & 1 else api.BLOCK_CACHED if address in cached else api.BLOCK_USED
                rows.append((address, shape.reg_size_bytes, kind, extent.arena))
    return rows
