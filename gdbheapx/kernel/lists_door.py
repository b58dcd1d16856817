"""The door to the C kernel's lists."""

import ctypes
import os
from array import array
from typing import Any, List, Optional, Sequence, Tuple

from gdbheapx.budget import Budget
from gdbheapx.kernel.api import Geometry
from gdbheapx.kernel.library import Numbers, OpenSource, at, geometry_numbers, run
from gdbheapx.kernel.list_records import Followed, Lists, Rules
from gdbheapx.target.base import BulkSource

COLUMNS = 8


class ListsDoor:
    """CKernel's part for lists."""

    _library: Any

    def _open(self, source: BulkSource) -> OpenSource:
        raise NotImplementedError

    def follow(
        self,
        source: BulkSource,
        geometry: Geometry,
        lists: Lists,
        rules: Rules,
        ranges: Sequence[Tuple[int, int]],
        budget: Budget,
        threads: Optional[int] = None,
    ) -> Followed:
        """See base.Kernel."""
        library, opened, shape = self._library, self._open(source), geometry_numbers(geometry)
        columns, count = lists.heads + lists.kinds + lists.limits, len(lists)
        flat = array("Q", [number for pair in ranges for number in pair])
        numbers = array("Q", [int(rules.mangled), int(rules.collect), rules.largest_bytes, threads or os.cpu_count() or 1, rules.patience_reads])
        job = library.heapx_lists_new(opened.handle, at(shape), at(columns), count, at(flat), len(ranges), at(numbers))
        if not job:
            raise MemoryError()
        library.heapx_lists_also(job, at(lists.also), len(lists.also))
        try:
            run(lambda seconds: library.heapx_lists_slice(job, seconds), opened, budget)
            return self._followed(job, count)
        finally:
            library.heapx_lists_free(job)

    def _followed(self, job: int, count: int) -> Followed:
        out = array("Q", bytes(8 * COLUMNS * count))
        self._library.heapx_lists_result(job, at(out))
        columns: List[Any] = [out[column * count : (column + 1) * count] for column in range(COLUMNS)]
        return Followed._make([*columns, self._members(job), self._apart(job, 0), array("Q", sorted(set(self._apart(job, 1))))])

    def _members(self, job: int) -> Sequence[int]:
        values, size = ctypes.c_void_p(), ctypes.c_uint64()
        count, free = self._library.heapx_lists_take(job, ctypes.byref(values), ctypes.byref(size)), self._library.heapx_numbers_free
        address, size_bytes = values.value, size.value
        return Numbers(address, count, lambda: free(address, size_bytes)) if address else array("Q")

    def _apart(self, job: int, mapped: int) -> Any:
        values, out = ctypes.c_void_p(), array("Q")
        count = self._library.heapx_lists_apart(job, mapped, ctypes.byref(values))
        if count:
            out.frombytes((ctypes.c_char * (8 * count)).from_address(values.value or 0))
        return out
