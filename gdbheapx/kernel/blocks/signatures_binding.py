"""The C kernel's signer, by ctypes."""

import ctypes
from array import array
from typing import Any, Iterator, List, Optional, Sequence, Tuple

from gdbheapx.budget import Budget
from gdbheapx.kernel.blocks.binding import CBlocks
from gdbheapx.kernel.blocks.graph_binding import Listed
from gdbheapx.kernel.blocks.records import Blocks
from gdbheapx.kernel.blocks.signatures import (
    ALL,
    MOST_SAME,
    Copied,
    NumberSet,
    Referring,
    SignatureRow,
    Signed,
    Signer,
    flat_rows,
    flat_sets,
)
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

    def look_for_rust(self, constants: Sequence[Tuple[int, int]], foreign: Sequence[bool]) -> None:
        """See Signer."""
        bounds, rows = array("Q", [bound for pair in constants for bound in pair]), array("B", foreign)
        if not self._library.heapx_signer_rust(self.handle, at(bounds), len(constants), at(rows)):
            raise MemoryError()

    def vtables(self) -> List[int]:
        """See Signer."""
        count = self._library.heapx_signer_vtables(self.handle, None, 0)
        if count == ALL:
            raise MemoryError()
        out = array("Q", bytes(8 * count))
        self._library.heapx_signer_vtables(self.handle, at(out), count)
        return list(out)

    def refer(self, graph: Any, known: Sequence[int], asked: Referring) -> None:
        """See Signer."""
        library, kept = self._library, array("B", known)
        layouts = array("Q", [number for one in asked.layouts for number in one])
        numbers = (asked.most_depth, asked.roots_from, int(asked.has_classes), asked.tree_label, asked.containers)
        places = (at(layouts), len(asked.layouts), asked.least_same_bytes)
        job = library.heapx_referrals_new(graph.handle, self.handle, at(kept), len(kept), *numbers, *places)
        if not job:
            raise MemoryError()
        try:
            run(lambda seconds: library.heapx_referrals_slice(job, seconds), self._opened, self._budget)
        finally:
            library.heapx_referrals_free(job)

    def found(self, labels: Optional[Sequence[int]] = None) -> List[Signed]:
        """See Signer."""
        out = self._numbers()
        return [Signed(*out[7 * label - 7 : 7 * label]) for label in (range(1, len(out) // 7 + 1) if labels is None else labels)]

    def rest(self) -> Signed:
        """See Signer."""
        out = array("Q", bytes(56))
        self._library.heapx_signer_rest(self.handle, at(out))
        return Signed(*out)

    def keep_contents(self) -> None:
        """See Signer."""
        self._library.heapx_signer_keep_contents(self.handle)

    def copied(self) -> Copied:
        """See Signer."""
        out = array("Q", bytes(32 + 16 * MOST_SAME))
        count = self._library.heapx_signer_copied(self.handle, at(out), MOST_SAME)
        same = sorted(zip(out[4 : 4 + 2 * count : 2], out[5 : 5 + 2 * count : 2]))
        return Copied(out[0], out[1], out[2], out[3], same)

    def label_count(self) -> int:
        """See Signer."""
        return int(self._library.heapx_signer_found(self.handle, None, 0))

    def frequent(self, least_blocks: Sequence[int]) -> List[int]:
        """See Signer."""
        out, rows = self._numbers(), len(least_blocks)
        pairs = enumerate(zip(out[0::7], out[2::7]), 1)
        return [label for label, (row, blocks) in pairs if row >= rows or blocks >= least_blocks[row]]

    def _numbers(self) -> "array[int]":
        """Seven of each label."""
        count = self.label_count()
        out = array("Q", bytes(56 * count))
        self._library.heapx_signer_found(self.handle, at(out), count)
        return out

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
