"""Answers in batches, bounded by a budget, with a word on how they ended."""

from abc import ABC, abstractmethod
from typing import Generic, Iterator, NamedTuple, Optional, TypeVar

from gdbheapx.budget import Budget
from gdbheapx.kernel.common.records import STOP_TIME

BatchType = TypeVar("BatchType")


class ListingEnd(NamedTuple):
    """Where and why a listing ended: a STOP_ number and the address that was next."""

    stop: int
    at: int


class Batches(ABC, Generic[BatchType]):
    """One batch after the other; `result` says how it ended once they are exhausted.

    Ctrl-C while the kernel works ends the listing with STOP_TIME; in the caller's own code it is the caller's.
    """

    result: Optional[ListingEnd] = None
    """How it ended; None until then."""

    def __init__(self, budget: Budget) -> None:
        self._budget = budget
        self._end: Optional[ListingEnd] = None

    def __iter__(self) -> Iterator[BatchType]:
        return self

    def __next__(self) -> BatchType:
        while self._end is None:
            try:
                if self._budget.expired():
                    break
                batch = self._batch()
            except KeyboardInterrupt:
                self._budget.interrupt()
                break
            if batch is not None:
                return batch
        self.result = self._end = self._end or ListingEnd(STOP_TIME, self.at)
        raise StopIteration

    @abstractmethod
    def _batch(self) -> Optional[BatchType]:
        """The next one, maybe none yet; sets `_end` when the walk ends."""

    @property
    @abstractmethod
    def at(self) -> int:
        """What is next."""
