"""The C kernel's signer, by ctypes."""

import ctypes
from array import array
from typing import Any, Iterator, List, Sequence, Tuple

from gdbheapx.budget import Budget
from gdbheapx.kernel.blocks.binding import CBlocks
from gdbheapx.kernel.blocks.graph_binding import Listed
from gdbheapx.kernel.blocks.records import Blocks
from gdbheapx.kernel.blocks.signatures import NumberSet, Referring, SignatureRow, Signed, Signer, flat_rows, flat_sets
from gdbheapx.kernel.common.library import OpenSource, at, run

READ_BYTES = 128 << 10


class CSigner(Signer):
    """See Signer."""

    def __init__(
        self, library: Any, opened: OpenSource, shape: Any, rows: Sequence[SignatureRow], sets: Sequence[NumberSet], budget: Budget
    ) -> None:
        self._library, self._opened, self._budget = library, opened, budget
        word_bytes, little_endian = shape
        self._kept = (*flat_rows(rows), *flat_sets(sets))
        conditions, flat, places, numbers = self._kept
        tables = (at(conditions), at(flat), len(rows), at(places), len(sets), at(numbers))
        self.handle = library.heapx_signer_new(word_bytes, int(not little_endian), 1, *tables)
        if not self.handle:
            raise MemoryError()

    def __del__(self) -> None:
        if getattr(self, "handle", None):
            self._library.heapx_signer_free(self.handle)
            self.handle = None

    def stream(self, blocks: Iterator[Blocks]) -> None:
        """See Signer."""
        source: Any = blocks if isinstance(blocks, CBlocks) else Listed(self._library, blocks)
        buffer = array("B", bytes(READ_BYTES))
        work = (self.handle, self._opened.handle, source.handle, at(buffer))
        run(lambda seconds: self._library.heapx_signer_slice(*work, seconds), self._opened, self._budget)

    def refer(self, graph: Any, known: Sequence[int], asked: Referring) -> None:
        """See Signer."""
        library, kept = self._library, array("B", known)
        numbers = (asked.most_depth, asked.roots_from, int(asked.has_classes), asked.tree_label, asked.containers)
        job = library.heapx_referrals_new(graph.handle, self.handle, at(kept), len(kept), *numbers)
        if not job:
            raise MemoryError()
        try:
            run(lambda seconds: library.heapx_referrals_slice(job, seconds), self._opened, self._budget)
        finally:
            library.heapx_referrals_free(job)

    def found(self) -> List[Signed]:
        """See Signer."""
        count = self._library.heapx_signer_found(self.handle, None, 0)
        out = array("Q", bytes(56 * count))
        self._library.heapx_signer_found(self.handle, at(out), count)
        return [Signed(*out[place : place + 7]) for place in range(0, len(out), 7)]

    def within(self, graph: Any, ranges: Sequence[Tuple[int, int]]) -> List[int]:
        """See Signer."""
        bounds = array("Q", [bound for pair in ranges for bound in pair])
        out = array("Q", bytes(8 * self._library.heapx_signer_found(self.handle, None, 0)))
        self._library.heapx_signer_within(self.handle, graph.handle, at(bounds), len(ranges), at(out))
        return list(out)

    def labels(self) -> "array[int]":
        """See Signer."""
        count = array("Q", [0])
        address = self._library.heapx_signer_labels(self.handle, at(count))
        kept = array("I")
        if count[0]:
            kept.frombytes(ctypes.string_at(address, 4 * count[0]))
        return kept
