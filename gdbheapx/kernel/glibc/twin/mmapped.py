"""Chunks with a mapping of their own, in Python: what mmapped.c does, in the same order."""

from array import array
from bisect import bisect_right, insort
from itertools import combinations, islice
from typing import Iterator, List, Optional, Sequence, Set, Tuple

from gdbheapx.budget import Budget
from gdbheapx.kernel.common.twin.pagemap import open_pages
from gdbheapx.kernel.common.twin.source import Reader
from gdbheapx.kernel.glibc.records import Geometry, MmappedChunks, MmappedFound, MmappedSearch, adds_up
from gdbheapx.kernel.glibc.twin.step import FLAGS, IS_MMAPPED

MAX_PLACES = 96
MOST_DOUBTED = 4096
"""Of which pairs are tried."""
PAGES_BETWEEN_CLOCKS = 1024


class Enough(Exception):
    """All wanted chunks are found, the time is up, or no more pages may be looked at."""


class Scan:
    """One scan; `hits` are (block, total, chunk, size), sorted."""

    def __init__(self, reader: Reader, geometry: Geometry, search: MmappedSearch, budget: Budget) -> None:
        self.hits: List[Tuple[int, int, int, int]] = []
        self.cut = False
        self._bytes = 0
        self._reader, self._pages = reader, open_pages(search.pages)
        self._geometry, self._search, self._budget = geometry, search, budget
        self._head = 2 * geometry.word_bytes
        self._trailer = self._head if search.has_trailer else 0
        self._plain = geometry.alignment_bytes - self._head
        self._order = "little" if geometry.little_endian else "big"
        self._ticks, self._pages_left, self._likely = 0, search.most_pages, True
        self._doubted: Set[Tuple[int, int, int, int]] = set()
        """Come upon page by page: anything may look like a header."""

    def run(self, ranges: Sequence[Tuple[int, int]]) -> None:
        """All passes; ends by Enough as soon as the wanted figures are reached."""
        if not self._search.wanted_chunks:
            return
        reaching = list(zip(ranges, self._search.limits_of(ranges)))
        for (begin, _), limit in reaching:
            for chunk in self._search.known:
                if begin <= chunk < limit and self._covered_until(chunk) is None:
                    self._meet(chunk, begin, limit)
        for (begin, _), limit in reaching:
            self._tick()
            self._hop(begin, begin, limit)
        self._likely = False
        for (begin, end), limit in reaching:
            for page in self._open_pages(begin, end):
                self._meet(page - self._head, begin, limit)
                self._meet(page + self._plain, begin, limit)
        for (begin, end), limit in reaching:
            for page in self._open_pages(begin, end):
                self._look_inside(page, begin, limit)

    def _tick(self) -> None:
        self._ticks += 1
        if self._ticks % PAGES_BETWEEN_CLOCKS == 1 and self._budget.expired():
            raise Enough

    def _read(self, address: int) -> bytes:
        """The two words at `address`, as header_at (mmapped.c) gives them."""
        if not self._may_hold(address & -self._geometry.page_bytes) and not (
            self._likely and self._pages is not None and self._pages.is_swapped(address)
        ):
            return b""
        return self._reader.read(address, self._head)

    def _may_hold(self, page: int) -> bool:
        """Anything but zeros can be in this page."""
        if self._pages is not None:
            return self._pages.is_resident(page)
        place = bisect_right(self._search.data, (page, 1 << 65)) - 1
        behind = place + 1 < len(self._search.data) and self._search.data[place + 1][0] < page + self._geometry.page_bytes
        return not self._search.data or behind or (place >= 0 and page < self._search.data[place][1])

    def _open_pages(self, begin: int, end: int) -> Iterator[int]:
        page = begin
        while page < end:
            known = self._covered_until(page)
            following = page if known is not None else self._next_data(page, end)
            if following != page:
                page = following
            elif known is None:
                self._tick()
                if self._may_hold(page):
                    self._count_page()
                    yield page
                page += self._geometry.page_bytes
            else:
                page = known

    def _next_data(self, page: int, end: int) -> int:
        """The first page from `page` on that has data: a core may have a terabyte of holes."""
        data = self._search.data
        if not data or self._pages is not None or self._may_hold(page):
            return page
        place = bisect_right(data, (page, 1 << 65))
        return max(page, data[place][0] & -self._geometry.page_bytes) if place < len(data) and data[place][0] < end else end

    def _count_page(self) -> None:
        if self._pages_left is not None:
            if not self._pages_left:
                self.cut = True
                raise Enough
            self._pages_left -= 1

    def _covered_until(self, address: int) -> Optional[int]:
        place = bisect_right(self.hits, (address, 1 << 65))
        if place:
            block, total = self.hits[place - 1][:2]
            if address < block + total:
                return block + total
        return None

    def _add(self, hit: Tuple[int, int, int, int]) -> bool:
        place = bisect_right(self.hits, (hit[0], 1 << 65))
        if place and hit[0] < self.hits[place - 1][0] + self.hits[place - 1][1]:
            return False
        if place < len(self.hits) and self.hits[place][0] < hit[0] + hit[1]:
            return False
        insort(self.hits, hit)
        self._bytes += hit[1]
        if not self._likely:
            self._doubted.add(hit)
        if self._adds_up(len(self.hits), self._bytes) or self._drops_strangers():
            raise Enough
        return True

    def _adds_up(self, count: int, bytes_: int) -> bool:
        return adds_up(count, bytes_, self._search, self._geometry.word_bytes)

    def _drops_strangers(self) -> bool:
        """One or two too many, that a program's own data looks like: they go where one choice alone adds up then."""
        extra = len(self.hits) - self._search.wanted_chunks
        if not 1 <= extra <= 2 or len(self.hits) > MOST_DOUBTED:
            return False
        doubted = [hit for hit in self.hits if hit in self._doubted]
        choices = combinations(doubted, extra)
        fitting = (some for some in choices if self._adds_up(self._search.wanted_chunks, self._bytes - sum(hit[1] for hit in some)))
        found = list(islice(fitting, 2))
        if len(found) == 1:
            self.hits = [hit for hit in self.hits if hit not in found[0]]
        return len(found) == 1

    def _judge(self, address: int, header: bytes, begin: int, end: int) -> Optional[Tuple[int, int, int, int]]:
        """The hit if the header of a chunk at `address` is that of an mmapped chunk within [begin, end)."""
        word, page = self._geometry.word_bytes, self._geometry.page_bytes
        if len(header) < 2 * word:
            return None
        offset = int.from_bytes(header[:word], self._order)  # type: ignore[arg-type]
        field = int.from_bytes(header[word : 2 * word], self._order)  # type: ignore[arg-type]
        if field & FLAGS != IS_MMAPPED:
            return None
        if self._trailer:
            offset &= ~1  # 2.43: the block is of huge pages
        size = field & ~FLAGS
        if address < begin or offset > address - begin or (address - offset) % page or (not address % page and offset):
            return None
        if size < self._geometry.min_chunk_bytes or address + size + self._trailer > end:
            return None
        total = offset + size + self._trailer
        return None if total % page else (address - offset, total, address, size)

    def _places(self, block: int, end: int) -> List[int]:
        """Where the header of a block that begins at `block` can be, by ascending alignment of what memalign gave."""
        places: List[int] = []
        alignment = self._geometry.alignment_bytes
        while alignment < end - block and len(places) + 2 < MAX_PLACES:
            place = (block + self._head + alignment - 1) // alignment * alignment - self._head
            if not block <= place < end:
                break
            if not places or places[-1] != place:
                places.append(place)
            # _int_memalign: a gap too small for a chunk is made larger by one alignment.
            if 0 < place - block - self._plain < self._geometry.min_chunk_bytes and place + alignment < end:
                places.append(place + alignment)
            alignment *= 2
        return places

    def _moved_up(self, hit: Tuple[int, int, int, int], end: int) -> Tuple[int, int, int, int]:
        """memalign moves the header of a mapped block up and leaves the old one as it was (_int_memalign): the one further in is the
        chunk's. realloc changes its size alone (mremap_chunk)."""
        block, total, chunk, _ = hit
        if chunk != block + self._plain:
            return hit
        for place in self._places(block, block + total)[1:]:
            inner = self._judge(place, self._read(place), block, end)
            if inner and inner[0] == block:
                return inner
        return hit

    def _try_block(self, block: int, begin: int, end: int) -> int:
        for place in self._places(block, end):
            hit = self._judge(place, self._read(place), begin, end)
            if hit and hit[0] == block:
                hit = self._moved_up(hit, end)
                if self._add(hit):
                    return hit[1]
        return 0

    def _hop(self, block: int, begin: int, end: int) -> None:
        """From `block` on along adjacent blocks."""
        while block < end:
            known = self._covered_until(block)
            length = known - block if known else self._try_block(block, begin, end)
            if not length:
                break
            block += length

    def _meet(self, address: int, begin: int, end: int) -> None:
        hit = self._judge(address, self._read(address), begin, end)
        hit = hit and self._moved_up(hit, end)
        if hit and self._add(hit):
            self._hop(hit[0] + hit[1], begin, end)

    def _look_inside(self, page: int, begin: int, end: int) -> None:
        """The other places within a page."""
        power = 2 * self._geometry.alignment_bytes
        while power < self._geometry.page_bytes:
            self._meet(page + power - self._head, begin, end)
            power *= 2


def scan_mmapped(
    reader: Reader, geometry: Geometry, ranges: Sequence[Tuple[int, int]], search: MmappedSearch, budget: Budget
) -> MmappedFound:
    """See ChunkWalker."""
    scan = Scan(reader, geometry, search, budget)
    try:
        scan.run(ranges)
    except Enough:
        pass
    except KeyboardInterrupt:
        budget.interrupt()
    found = MmappedChunks(array("Q", [number for block, total, chunk, size in scan.hits for number in (chunk, size, block, total)]))
    return MmappedFound(found, adds_up(len(found), found.bytes, search, geometry.word_bytes), scan.cut)
