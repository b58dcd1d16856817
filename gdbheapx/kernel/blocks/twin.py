"""The stream of blocks in Python: what stream.c does."""

from abc import ABC, abstractmethod
from array import array
from bisect import bisect_left
from typing import Optional

from gdbheapx.budget import Budget
from gdbheapx.kernel.blocks.records import LETTERS, Blocks, BlockStream, ListingEnd

ROWS_AT_ONCE = 4096


class Rows:
    """Columns that are filled."""

    def __init__(self, room: int = ROWS_AT_ONCE) -> None:
        self.blocks = Blocks(*(array(letter) for letter in LETTERS))
        self.room = room

    def __len__(self) -> int:
        return len(self.blocks.addresses)

    @property
    def left(self) -> int:
        """How many more there is room for."""
        return self.room - len(self)

    def add(self, address: int, usable_bytes: int, class_: int, kind: int, arena: int) -> None:
        """One more."""
        addresses, usable, classes, kinds, arenas = self.blocks
        addresses.append(address)
        usable.append(usable_bytes)
        classes.append(class_)
        kinds.append(kind)
        arenas.append(arena)

    def extend(self, blocks: Blocks) -> None:
        """All of them."""
        for mine, column in zip(self.blocks, blocks):
            mine.extend(column)


class Source(ABC):
    """What an allocator writes: struct block_source."""

    lead = 0
    """Bytes of a block before its address."""
    stop = 0
    """A STOP_ number, once it has ended."""

    @property
    @abstractmethod
    def ended(self) -> bool:
        """Nothing more comes."""

    @property
    @abstractmethod
    def at(self) -> int:
        """Where reading goes on."""

    @abstractmethod
    def fill(self, rows: Rows) -> None:
        """Adds rows: as many as there is room for, or fewer and maybe a few more."""


class Merged(Source):
    """A source, and blocks that lie apart."""

    def __init__(self, inner: Source, apart: Blocks) -> None:
        self._inner, self._apart, self._held = inner, apart, Rows().blocks

    @property
    def stop(self) -> int:  # type: ignore[override]
        """That of the inner source."""
        return self._inner.stop

    @property
    def ended(self) -> bool:
        """See Source."""
        return self._inner.ended and not len(self._held.addresses) and not len(self._apart.addresses)

    @property
    def at(self) -> int:
        """See Source."""
        places = [] if self._inner.ended else [self._inner.at]
        if len(self._held.addresses):
            places = [self._held.addresses[0] - self._inner.lead]
        if len(self._apart.addresses):
            places.append(self._apart.addresses[0])
        return min(places, default=self._inner.at)

    def fill(self, rows: Rows) -> None:
        """See Source."""
        while rows.left > 0:
            if not len(self._held.addresses) and not self._inner.ended:
                fresh = Rows(rows.left)
                self._held = fresh.blocks  # before it is filled: Ctrl-C may come meanwhile
                self._inner.fill(fresh)
                if not len(fresh) and not self._inner.ended:
                    return
                continue
            if not len(self._held.addresses):
                rows.extend(self._apart)
                self._apart = self._apart.part(len(self._apart.addresses))
                return
            first = self._apart.addresses[0] if len(self._apart.addresses) else None
            count = len(self._held.addresses) if first is None else bisect_left(self._held.addresses, first)
            rows.extend(self._held.part(0, count))
            self._held = self._held.part(count)
            if first is not None and len(self._held.addresses):
                rows.extend(self._apart.part(0, 1))
                self._apart = self._apart.part(1)


class TwinBlocks(BlockStream):
    """A source's blocks."""

    def __init__(self, source: Source, apart: Optional[Blocks], budget: Budget) -> None:
        super().__init__(budget)
        self._source = source if apart is None else Merged(source, apart)
        self._was_interrupted = False

    @property
    def at(self) -> int:
        """See BlockStream."""
        return self._source.at

    def _batch(self) -> Optional[Blocks]:
        if self._was_interrupted:
            raise KeyboardInterrupt
        rows = Rows()
        try:
            self._source.fill(rows)
        except KeyboardInterrupt:  # what was read before it comes first, but no half of a row
            self._was_interrupted = True
            return rows.blocks.part(0, min(map(len, rows.blocks))) if len(rows) else None
        if self._source.ended:
            self._end = ListingEnd(self._source.stop, self._source.at)
        return rows.blocks if len(rows) else None
