"""The door to the C kernel: ctypes, and nothing but numbers in flat arrays across it."""

import ctypes
import os
from array import array
from typing import Any, Callable, Dict, List, Optional, Sequence, Set, Tuple

from gdbheapx.budget import Budget
from gdbheapx.kernel import base
from gdbheapx.kernel.api import BinResult, Geometry, ListResult, MmappedChunk, Region, WalkResult
from gdbheapx.target.base import BulkSource, BytesSource, CallSource, FileSource, ProcessSource

ABI = 1
"""Must equal HEAPX_ABI in heapx.h."""

LIBRARY = os.path.join(os.path.dirname(os.path.abspath(__file__)), "_kernel.so")

INTERRUPTED = -1
REGIONS_AT_ONCE = 64
"""Each piece of a walk needs 14 KB for its histogram; more regions are walked in turns."""
LIST_BATCH = 1 << 16
ROWS_AT_ONCE = 4096
MAX_THREADS = 8

_READ = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_uint64, ctypes.c_void_p, ctypes.c_uint64)

_POINTER = ctypes.c_void_p
_U64 = ctypes.c_uint64
_INT = ctypes.c_int
_FUNCTIONS = {
    "heapx_abi": (ctypes.c_uint32, []),
    "heapx_source_id": (ctypes.c_uint32, []),
    "heapx_source_new": (_POINTER, [_INT, _INT, ctypes.c_int64, _POINTER, _POINTER, _U64]),
    "heapx_source_free": (None, [_POINTER]),
    "heapx_walk_new": (_POINTER, [_POINTER, _POINTER, _POINTER, _U64, _POINTER, _U64, _INT, ctypes.c_uint]),
    "heapx_walk_slice": (ctypes.c_int64, [_POINTER, ctypes.c_double]),
    "heapx_walk_result": (_U64, [_POINTER, _U64, _POINTER]),
    "heapx_walk_numbers": (_U64, []),
    "heapx_walk_free": (None, [_POINTER]),
    "heapx_listing_new": (_POINTER, [_POINTER, _POINTER, _POINTER, _POINTER, _U64, _POINTER]),
    "heapx_listing_next": (ctypes.c_int64, [_POINTER, ctypes.c_double, _POINTER, _POINTER, _POINTER, _U64]),
    "heapx_listing_state": (None, [_POINTER, _POINTER]),
    "heapx_listing_free": (None, [_POINTER]),
    "heapx_single_new": (_POINTER, [_POINTER, _POINTER, _POINTER]),
    "heapx_single_next": (_U64, [_POINTER, _POINTER, _U64]),
    "heapx_bin_new": (_POINTER, [_POINTER, _POINTER, _POINTER]),
    "heapx_bin_next": (_U64, [_POINTER, _POINTER, _U64]),
    "heapx_list_state": (None, [_POINTER, _POINTER]),
    "heapx_list_free": (None, [_POINTER]),
    "heapx_chain_new": (_POINTER, [_POINTER, _POINTER, _U64, _U64, _POINTER, _U64, _INT]),
    "heapx_chain_slice": (ctypes.c_int64, [_POINTER, ctypes.c_double]),
    "heapx_chain_found": (_INT, [_POINTER, _POINTER]),
    "heapx_chain_free": (None, [_POINTER]),
    "heapx_mmapped_new": (_POINTER, [_POINTER, _POINTER, _POINTER, _U64, _POINTER]),
    "heapx_mmapped_slice": (ctypes.c_int64, [_POINTER, ctypes.c_double]),
    "heapx_mmapped_result": (_U64, [_POINTER, _U64, _POINTER]),
    "heapx_mmapped_free": (None, [_POINTER]),
    "heapx_resident": (None, [_INT, _POINTER, _U64, _POINTER]),
}  # type: Dict[str, Tuple[Any, List[Any]]]


class Unusable(Exception):
    """The C kernel cannot be used; the message says why and what to type."""


def open_kernel(path: str = LIBRARY) -> "CKernel":
    """The C kernel from the library at `path`; Unusable if it is missing, does not load, or is not the one that belongs to these files."""
    if not os.path.exists(path):
        raise Unusable("not built: no C compiler was found at install (`python3 -m gdbheapx.kernel.build` builds it)")
    try:
        library = ctypes.CDLL(path)
        for name, (result, arguments) in _FUNCTIONS.items():
            function = getattr(library, name)
            function.restype = result
            function.argtypes = arguments
            if name == "heapx_abi" and function() != ABI:
                raise Unusable("stale: built from other sources (`python3 -m gdbheapx.kernel.build` builds it again)")
    except (OSError, AttributeError) as error:
        raise Unusable("cannot be loaded: %s" % error) from None
    _refuse_stale(library)
    return CKernel(library)


def _refuse_stale(library: Any) -> None:
    from gdbheapx.kernel import build

    wanted = build.source_id() if os.path.dirname(LIBRARY) == build.folder() else None
    if wanted is not None and wanted != library.heapx_source_id():
        raise Unusable("stale: built from other sources (`python3 -m gdbheapx.kernel.build` builds it again)")


def _at(numbers: Any) -> Optional[int]:
    """Where an array's numbers are; None for an empty one."""
    return numbers.buffer_info()[0] if len(numbers) else None


def _as_array(numbers: Sequence[int]) -> Any:
    return numbers if isinstance(numbers, array) and numbers.typecode == "Q" else array("Q", numbers)


def _geometry(geometry: Geometry) -> Any:
    base.check_geometry(geometry)
    numbers = list(geometry)
    numbers[5] = int(geometry.little_endian)
    return array("Q", numbers)


class _Source:
    """A bulk source in the C kernel's form, and what must live as long as it."""

    def __init__(self, library: Any, source: BulkSource) -> None:
        self.handle = None  # type: Optional[int]
        self.source = source
        self.error = None  # type: Optional[BaseException]
        self._fd = -1
        self._library = library
        kind, pid, call, segments = 0, 0, None, array("Q")
        if isinstance(source, FileSource):
            self._fd = os.open(source.path, os.O_RDONLY | os.O_CLOEXEC)
            for segment in source.segments:
                segments.extend((segment.address, segment.size_bytes, segment.file_offset))
        elif isinstance(source, ProcessSource):
            kind, pid = 1, source.pid
        elif isinstance(source, CallSource):
            kind = 2
            self._call = _READ(self._read)
            call = ctypes.cast(self._call, ctypes.c_void_p)
        elif isinstance(source, BytesSource):
            kind = 3
            for address, data in source.pieces:
                segments.extend((address, len(data), ctypes.cast(ctypes.c_char_p(data), ctypes.c_void_p).value or 0))
        else:
            raise TypeError("no bulk source: %r" % (source,))
        self.handle = library.heapx_source_new(kind, self._fd, pid, call, _at(segments), len(segments) // 3)
        if not self.handle:
            raise MemoryError()

    def _read(self, address: int, to: int, size_bytes: int) -> int:
        """What C calls for a CallSource. An exception cannot cross C: it waits in `error`."""
        try:
            data = self.source.read(address, size_bytes)  # type: ignore[union-attr]
            length = min(len(data), size_bytes)
            ctypes.memmove(to, bytes(data[:length]), length)
            return length
        except BaseException as error:
            self.error = error
            return INTERRUPTED

    def raise_error(self) -> None:
        """Raises what a read raised, if anything."""
        error, self.error = self.error, None
        if error is not None:
            raise error

    def __del__(self, close: Callable[[int], None] = os.close) -> None:
        # `close` is bound early: when the interpreter ends, this module's own names may be gone before the object is
        if self.handle:
            self._library.heapx_source_free(self.handle)
            self.handle = None
        if self._fd >= 0:
            close(self._fd)
            self._fd = -1


class CKernel(base.Kernel):
    """The C kernel."""

    name = "c"

    def __init__(self, library: Any) -> None:
        self._library = library
        self._opened = None  # type: Optional[_Source]

    def _open(self, source: BulkSource) -> _Source:
        """The source opened, kept while the same one is asked for: lists are collected by thousands of calls."""
        if self._opened is None or self._opened.source is not source:
            self._opened = _Source(self._library, source)
        return self._opened

    def walk(
        self,
        source: BulkSource,
        geometry: Geometry,
        regions: Sequence[Region],
        specials: Sequence[int],
        budget: Budget,
        pagemap_pid: Optional[int] = None,
        threads: Optional[int] = None,
    ) -> List[WalkResult]:
        """See base.Kernel."""
        opened, numbers, listed = self._open(source), _geometry(geometry), _as_array(specials)
        count = min(threads or os.cpu_count() or 1, MAX_THREADS)
        pagemap = open_pagemap(pagemap_pid)
        results = []  # type: List[WalkResult]
        try:
            for start in range(0, len(regions), REGIONS_AT_ONCE):
                count = 1 if budget.expired() else count    # no search for pieces that will not be walked
                part = array("Q", [number for region in regions[start : start + REGIONS_AT_ONCE] for number in region])
                job = self._library.heapx_walk_new(opened.handle, _at(numbers), _at(part), len(part) // 3, _at(listed), len(listed), pagemap, count)
                if not job:
                    raise MemoryError()
                try:
                    _run(lambda seconds, job=job: self._library.heapx_walk_slice(job, seconds), opened, budget)
                    results += [self._walk_result(job, index, pagemap >= 0) for index in range(len(part) // 3)]
                finally:
                    self._library.heapx_walk_free(job)
        finally:
            if pagemap >= 0:
                os.close(pagemap)
        return results

    def _walk_result(self, job: int, index: int, has_pagemap: bool) -> WalkResult:
        out = array("Q", bytes(8 * self._library.heapx_walk_numbers()))
        rows = self._library.heapx_walk_result(job, index, _at(out))
        fixed = list(out[: len(WalkResult._fields) - 1])  # type: List[Any]
        if not has_pagemap:
            fixed[WalkResult._fields.index("interior_resident_bytes")] = None
        first = len(fixed)
        histogram = [tuple(out[place : place + 6]) for place in range(first, first + 6 * rows, 6)]
        return WalkResult._make(fixed + [tuple(histogram)])

    def list_chunks(
        self,
        source: BulkSource,
        geometry: Geometry,
        region: Region,
        specials: Sequence[int],
        budget: Budget,
        min_size: int = 0,
        max_size: Optional[int] = None,
        statuses: Optional[Set[int]] = None,
    ) -> base.Listing:
        """See base.Kernel."""
        mask = sum(1 << status for status in (base.ALL_STATUSES if statuses is None else base.ALL_STATUSES & statuses))
        highest = base.ADDRESS_MASK if max_size is None else max_size
        numbers = array("Q", [min_size, highest, mask])
        return _CListing(self._library, self._open(source), _geometry(geometry), array("Q", region), _as_array(specials), numbers, budget)

    def collect_list(
        self, source: BulkSource, geometry: Geometry, head: int, link_offset: int, mangled: bool, limit: int, mem_offset: int = 0
    ) -> ListResult:
        """See base.Kernel."""
        numbers = array("Q", [head, link_offset, mem_offset, int(mangled), limit])
        entries, state = self._follow("single", source, geometry, numbers, min(limit, LIST_BATCH), True)
        return ListResult(entries, base.PROBLEMS[state[1]], state[2])

    def walk_bin(self, source: BulkSource, geometry: Geometry, header: int, limit: int, want_members: bool = False) -> BinResult:
        """See base.Kernel."""
        entries, state = self._follow("bin", source, geometry, array("Q", [header, limit]), LIST_BATCH, want_members)
        members = entries if want_members else None
        return BinResult(state[3], state[4], state[5], state[6], state[7], members, base.PROBLEMS[state[1]], state[2])

    def _follow(self, kind: str, source: BulkSource, geometry: Geometry, numbers: Any, room: int, keep: bool) -> Tuple[Any, Any]:
        """Follows a list to its end in batches, so that Ctrl-C is heard."""
        library, opened = self._library, self._open(source)
        batch = array("Q", bytes(8 * max(room, 1))) if keep else array("Q")
        entries, state = array("Q"), array("Q", bytes(64))
        geometry_numbers = _geometry(geometry)
        handle = getattr(library, "heapx_%s_new" % kind)(opened.handle, _at(geometry_numbers), _at(numbers))
        if not handle:
            raise MemoryError()
        try:
            while not state[0]:
                got = getattr(library, "heapx_%s_next" % kind)(handle, _at(batch), len(batch) or LIST_BATCH)
                opened.raise_error()
                if keep:
                    entries.extend(batch[:got])
                library.heapx_list_state(handle, _at(state))
        finally:
            library.heapx_list_free(handle)
        return entries, state

    def scan_mmapped(
        self,
        source: BulkSource,
        geometry: Geometry,
        ranges: Sequence[Tuple[int, int]],
        has_trailer: bool,
        wanted_chunks: int,
        wanted_bytes: int,
        budget: Budget,
    ) -> Tuple[List[MmappedChunk], bool]:
        """See base.Kernel."""
        library, opened, numbers = self._library, self._open(source), _geometry(geometry)
        flat = array("Q", [number for pair in ranges for number in pair])
        wanted = array("Q", [int(has_trailer), wanted_chunks, wanted_bytes])
        job = library.heapx_mmapped_new(opened.handle, _at(numbers), _at(flat), len(ranges), _at(wanted))
        if not job:
            raise MemoryError()
        try:
            _run(lambda seconds: library.heapx_mmapped_slice(job, seconds), opened, budget)
            count = library.heapx_mmapped_result(job, 0, None)
            out = array("Q", bytes(32 * count))
            library.heapx_mmapped_result(job, count, _at(out))
        finally:
            library.heapx_mmapped_free(job)
        found = sorted(MmappedChunk(*out[place : place + 4]) for place in range(0, 4 * count, 4))
        return found, (len(found), sum(chunk.total_bytes for chunk in found)) == (wanted_chunks, wanted_bytes)

    def find_chain(
        self,
        source: BulkSource,
        geometry: Geometry,
        low: int,
        high: int,
        anchors: Sequence[int],
        budget: Budget,
        strict: bool = False,
    ) -> Optional[int]:
        """See base.Kernel."""
        library, opened, numbers, listed = self._library, self._open(source), _geometry(geometry), _as_array(anchors)
        if not len(listed) or low >= high:
            return None
        job = library.heapx_chain_new(opened.handle, _at(numbers), low, high, _at(listed), len(listed), int(strict))
        if not job:
            raise MemoryError()
        try:
            _run(lambda seconds: library.heapx_chain_slice(job, seconds), opened, budget)
            start = array("Q", [0])
            return start[0] if library.heapx_chain_found(job, _at(start)) else None
        finally:
            library.heapx_chain_free(job)

    def resident(self, pid: int, ranges: Sequence[Tuple[int, int]]) -> Optional[base.Residency]:
        """See base.Kernel."""
        pagemap = open_pagemap(pid)
        if pagemap < 0:
            return None
        try:
            flat, out = array("Q", [number for pair in ranges for number in pair]), array("Q", bytes(24))
            self._library.heapx_resident(pagemap, _at(flat), len(ranges), _at(out))
            return base.Residency(*out)
        finally:
            os.close(pagemap)


def _run(work: Any, opened: _Source, budget: Budget) -> None:
    """Calls `work(seconds)` until nothing is left, the budget expires or Ctrl-C is pressed. Work is resumable, so that is safe anywhere."""
    seconds = base.FIRST_SLICE_SECONDS
    try:
        while not budget.expired():
            left = work(seconds)
            if left == INTERRUPTED:
                opened.raise_error()
            elif not left:
                return
            seconds = min(2 * seconds, base.SLICE_SECONDS)
    except KeyboardInterrupt:
        budget.interrupt()


class _CListing(base.Listing):
    """A listing by the C kernel."""

    def __init__(self, library: Any, opened: _Source, geometry: Any, region: Any, specials: Any, numbers: Any, budget: Budget) -> None:
        super().__init__(budget)
        self._library = library
        self._opened = opened
        self._kept = (geometry, region, specials)
        self._columns = (array("Q", bytes(8 * ROWS_AT_ONCE)), array("Q", bytes(8 * ROWS_AT_ONCE)), array("B", bytes(ROWS_AT_ONCE)))
        self._handle = library.heapx_listing_new(opened.handle, _at(geometry), _at(region), _at(specials), len(specials), _at(numbers))
        if not self._handle:
            raise MemoryError()

    def __del__(self) -> None:
        if getattr(self, "_handle", None):
            self._library.heapx_listing_free(self._handle)
            self._handle = None

    def _state(self) -> Any:
        state = array("Q", bytes(24))
        self._library.heapx_listing_state(self._handle, _at(state))
        return state

    def _batch(self) -> List[base.Row]:
        self._opened.raise_error()
        chunks, sizes, statuses = self._columns
        got = self._library.heapx_listing_next(self._handle, base.SLICE_SECONDS, _at(chunks), _at(sizes), _at(statuses), ROWS_AT_ONCE)
        if not got:     # else what was read before the error comes first
            self._opened.raise_error()
        ended, stop, at = self._state()
        if ended:
            self._end = base.ListingEnd(stop, at)
        return list(zip(chunks[:got], sizes[:got], statuses[:got]))

    def _at(self) -> int:
        at = self._state()[2]  # type: int
        return at


def open_pagemap(pid: Optional[int]) -> int:
    """A file descriptor of the process's pagemap, or -1."""
    if pid is None:
        return -1
    try:
        return os.open("/proc/%d/pagemap" % pid, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return -1
