"""Linked lists in Python: what lists.c does, link by link."""

from array import array
from collections import Counter
from typing import Any, Dict, List, Optional, Sequence, Set, Tuple

from gdbheapx.budget import Budget
from gdbheapx.kernel.common.twin.source import END, Reader
from gdbheapx.kernel.glibc.lists import (
    BACK_LINK,
    BIN,
    CUT,
    CYCLE,
    FAST,
    TCACHE_SIZED,
    TOO_LONG,
    UNALIGNED,
    UNREADABLE,
    Followed,
    Lists,
    Rules,
)
from gdbheapx.kernel.glibc.records import SPECIAL_FAST, SPECIAL_TCACHE, Geometry
from gdbheapx.kernel.glibc.twin.step import FLAGS, IS_MMAPPED

CACHE_PAGE = 4096
CACHE_PAGES = 256
DIRECT_READS = 32
STEPS_BETWEEN_CLOCKS = 256


class Words:
    """Small reads all over memory: direct ones first, whole pages once they prove to be many. Lives for one question."""

    def __init__(self, reader: Reader, geometry: Geometry, direct_reads: int = DIRECT_READS) -> None:
        self._reader = reader
        self._word = geometry.word_bytes
        self._order: Any = "little" if geometry.little_endian else "big"
        self._direct_reads = direct_reads
        self._pages: Dict[int, bytes] = {}

    def at(self, address: int, count: int) -> Optional[Tuple[int, ...]]:
        """`count` words at `address`, None if they cannot all be read."""
        word, size = self._word, count * self._word
        data = self._bytes(address, size)
        if len(data) < size:
            return None
        return tuple(int.from_bytes(data[place : place + word], self._order) for place in range(0, size, word))

    def _bytes(self, address: int, size: int) -> bytes:
        offset = address & (CACHE_PAGE - 1)
        if self._direct_reads or offset + size > CACHE_PAGE:
            self._direct_reads = max(self._direct_reads - 1, 0)
            return self._reader.read(address, size)
        part = self._page(address - offset)[offset : offset + size]
        # A page may begin in a hole.
        return part if len(part) == size else self._reader.read(address, size)

    def _page(self, page: int) -> bytes:
        data = self._pages.get(page)
        if data is None:
            if len(self._pages) >= CACHE_PAGES:
                self._pages.clear()
            data = self._pages[page] = self._reader.read(page, CACHE_PAGE)
        return data

    def has_hole(self, page: int) -> bool:
        """Neither the first nor the last byte of the page of 4,096 bytes can be read."""
        return not self._page(page) and not self._reader.read(page + CACHE_PAGE - 1, 1)


class Follower:
    """Follows the lists of one call."""

    def __init__(self, reader: Reader, geometry: Geometry, rules: Rules, budget: Budget) -> None:
        self.words, self.geometry, self.rules, self.budget = Words(reader, geometry), geometry, rules, budget
        self.mask = (1 << 8 * geometry.word_bytes) - 1
        self.members = array("Q")
        self.mapped: Set[int] = set()
        self.steps = 0

    def late(self) -> bool:
        """Time is up, asked for now and then."""
        self.steps += 1
        return self.steps % STEPS_BETWEEN_CLOCKS == 1 and self.budget.expired()

    def single(self, kind: int, entry: int, limit: int) -> List[int]:
        """A thread cache's list or a fastbin: the figures of Followed."""
        word, header = self.geometry.word_bytes, 2 * self.geometry.word_bytes
        offset = header if kind == FAST else 0
        seen: Dict[int, int] = {}
        problem = at = 0
        while entry:
            field = (entry + offset) & self.mask
            if self.late():
                problem = CUT
            elif entry in seen:
                problem, at = CYCLE, entry
            elif field % self.geometry.alignment_bytes:
                problem, at = UNALIGNED, entry
            elif len(seen) >= limit:
                problem, at = TOO_LONG, entry
            if problem:
                break
            found = self.words.at((field - word) & self.mask, 2) if kind == TCACHE_SIZED else self.words.at(field, 1)
            if found is None:
                problem, at = UNREADABLE, entry
                break
            seen[entry] = raw = found[0] if kind == TCACHE_SIZED else 0
            if self.rules.collect:
                self._keep(kind, entry, raw)
            entry = (found[-1] ^ field >> 12) & self.mask if self.rules.mangled else found[-1]
        return _figures(problem, at, list(seen), list(seen.values()))

    def _keep(self, kind: int, entry: int, raw: int) -> None:
        header = 2 * self.geometry.word_bytes
        if kind == TCACHE_SIZED and raw & IS_MMAPPED:
            self.mapped.add(entry - header & END)
        else:
            self.members.append((entry | SPECIAL_FAST if kind == FAST else entry - header | SPECIAL_TCACHE) & END)

    def bin(self, header: int, limit: int) -> List[int]:
        """A bin: the figures of Followed."""
        words, word = self.words, self.geometry.word_bytes
        chunks: List[int] = []
        fields: List[int] = []
        first = words.at(header + 2 * word, 2)
        if first is None:
            return _figures(UNREADABLE, header, chunks, fields)
        chunk, previous, problem = first[0], header, 0
        while chunk != header:
            found = None
            if self.late():
                return _figures(CUT, 0, chunks, fields)
            if (chunk + 2 * word) % self.geometry.alignment_bytes:
                problem = UNALIGNED
            elif len(chunks) >= limit:
                problem = TOO_LONG
            else:
                found = words.at(chunk, 4)
                problem = UNREADABLE if found is None else BACK_LINK if found[3] != previous else 0
            if problem or found is None:
                return _figures(problem, chunk, chunks, fields)
            chunks.append(chunk)
            fields.append(found[1])
            if self.rules.collect:
                self.members.append(chunk)
            chunk, previous = found[2], chunk
        return _figures(0, 0, chunks, fields) if first[1] == previous else _figures(BACK_LINK, header, chunks, fields)


def _figures(problem: int, at: int, entries: Sequence[int], fields: Sequence[int]) -> List[int]:
    return [
        len(entries),
        problem,
        at,
        entries[-1] if entries else 0,
        sum(field & ~FLAGS for field in fields) & END,
        sum(fields) & END,
        min(fields, default=0),
        max(fields, default=0),
    ]


def follow(reader: Reader, geometry: Geometry, lists: Lists, rules: Rules, budget: Budget) -> Followed:
    """See ChunkWalker."""
    follower, rows = Follower(reader, geometry, rules, budget), []
    try:
        for head, kind, limit in zip(lists.heads, lists.kinds, lists.limits):
            rows.append(follower.bin(head, limit) if kind == BIN else follower.single(kind, head, limit))
    except KeyboardInterrupt:
        budget.interrupt()
    rows += [[0, CUT, 0, 0, 0, 0, 0, 0]] * (len(lists) - len(rows))
    columns: List[Any] = [array("Q", column) for column in zip(*rows)] or [array("Q")] * 8
    once = (array("Q"), array("Q")) if CUT in columns[1] else _once(follower.members + lists.also)
    return Followed._make([*columns, *once, array("Q", sorted(follower.mapped))])


def _once(found: Sequence[int]) -> Tuple[Sequence[int], Sequence[int]]:
    """(the members sorted, each chunk once with its lowest kind, the chunks that were there more than once)."""
    chunks: Dict[int, int] = {}
    for special in sorted(found, reverse=True):
        chunks[special & ~FLAGS] = special
    counted = Counter(special & ~FLAGS for special in found)
    return array("Q", sorted(chunks.values())), array("Q", sorted(chunk for chunk, count in counted.items() if count > 1))
