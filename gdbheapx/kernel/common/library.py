"""The C library: how it is loaded and refused, its functions' types, and a bulk source in its form. Numbers cross in flat arrays only."""

import ctypes
import os
from array import array
from typing import Any, Callable, Dict, List, Optional, Sequence, Tuple

from gdbheapx.budget import Budget
from gdbheapx.inferior.base import BulkSource, BytesSource, CallSource, FileSource, PageTable, ProcessSource
from gdbheapx.kernel import build

ABI = 30
"""Must equal HEAPX_ABI in heapx.h."""

LIBRARY = os.path.join(build.folder(), build.LIBRARY)

FIRST_SLICE_SECONDS = 0.02
SLICE_SECONDS = 0.1
"""How long a kernel works before it asks the budget again: short at first, for small bounds."""

INTERRUPTED = -1
"""What a slice of work returns when a read raised: READ_INTERRUPTED in heapx.h."""

NO_MEMORY = -2
"""What a slice of work on extents returns when this machine has no memory left."""

MOST_OFFSET = 0x7FFFFFFFFFFFF000
"""/proc/PID/mem is one segment up to here: file offsets are signed."""

_READ = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_uint64, ctypes.c_void_p, ctypes.c_uint64)

_POINTER = ctypes.c_void_p
_U64 = ctypes.c_uint64
_U32 = ctypes.c_uint32
_INT = ctypes.c_int
_UINT = ctypes.c_uint
_FUNCTIONS: Dict[str, Tuple[Any, List[Any]]] = {
    "heapx_abi": (ctypes.c_uint32, []),
    "heapx_source_id": (ctypes.c_uint32, []),
    "heapx_source_new": (_POINTER, [_INT, _INT, _POINTER, _POINTER, _U64]),
    "heapx_source_free": (None, [_POINTER]),
    "heapx_source_until": (None, [_POINTER, _POINTER]),
    "heapx_source_leave_untouched": (None, [_POINTER, _INT, _INT, _POINTER, _U64, _POINTER, _POINTER]),
    "heapx_pages_new": (_POINTER, [_INT, _INT, _INT, _INT, _POINTER, _U64]),
    "heapx_pages_free": (None, [_POINTER]),
    "heapx_residency": (None, [_POINTER, _POINTER, _U64, _POINTER]),
    "heapx_walk_new": (_POINTER, [_POINTER, _POINTER, _POINTER, _U64, _POINTER, _U64, _POINTER, ctypes.c_uint]),
    "heapx_walk_slice": (ctypes.c_int64, [_POINTER, ctypes.c_double]),
    "heapx_walk_result": (_U64, [_POINTER, _U64, _POINTER]),
    "heapx_walk_numbers": (_U64, []),
    "heapx_walk_free": (None, [_POINTER]),
    "heapx_chunk_blocks": (_POINTER, [_POINTER, _POINTER, _POINTER, _U64, _POINTER, _U64, _POINTER]),
    "heapx_extent_blocks": (_POINTER, [_POINTER, _POINTER, _POINTER, _POINTER, _POINTER, _U64, _POINTER, _POINTER]),
    "heapx_blocks_merge": (_POINTER, [_POINTER, _POINTER, _POINTER, _POINTER, _POINTER, _POINTER, _U64]),
    "heapx_blocks_next": (ctypes.c_int64, [_POINTER, ctypes.c_double, _POINTER, _POINTER, _POINTER, _POINTER, _POINTER, _U64]),
    "heapx_blocks_state": (None, [_POINTER, _POINTER]),
    "heapx_blocks_free": (None, [_POINTER]),
    "heapx_blocks_join": (_POINTER, [_POINTER, _U64]),
    "heapx_blocks_listed": (_POINTER, [_POINTER, _POINTER, _POINTER, _POINTER, _POINTER, _U64]),
    "heapx_gather_new": (_POINTER, [_POINTER, _POINTER, _U64]),
    "heapx_gather_free": (None, [_POINTER]),
    "heapx_gather_slice": (ctypes.c_int64, [_POINTER, _POINTER, ctypes.c_double]),
    "heapx_graph_new": (_POINTER, [_POINTER, _UINT, _UINT, _UINT, _UINT, _POINTER, _U64, _POINTER, _U64, _POINTER, _POINTER, _U64]),
    "heapx_graph_free": (None, [_POINTER]),
    "heapx_graph_scan": (ctypes.c_int64, [_POINTER, _U64, _POINTER, _U64, ctypes.c_double]),
    "heapx_graph_scan_bytes": (ctypes.c_int64, [_POINTER, _POINTER, _U64, _U64]),
    "heapx_graph_end_node": (ctypes.c_int64, [_POINTER]),
    "heapx_graph_settle": (ctypes.c_int64, [_POINTER]),
    "heapx_graph_resolve": (ctypes.c_int64, [_POINTER, _POINTER, ctypes.c_double]),
    "heapx_graph_habits": (_U64, [_POINTER, _POINTER, _U64]),
    "heapx_graph_numbers": (None, [_POINTER, _POINTER]),
    "heapx_graph_find": (_U32, [_POINTER, _U64, _POINTER]),
    "heapx_graph_blocks": (None, [_POINTER, _POINTER, _U64, _POINTER, _POINTER]),
    "heapx_graph_edges": (_U64, [_POINTER, _U32, _POINTER, _U64]),
    "heapx_graph_split": (_INT, [_POINTER, _POINTER, _POINTER, _U32]),
    "heapx_graph_unpack": (_POINTER, [_UINT, _UINT, _UINT, _POINTER, _U64, _POINTER, _POINTER, _U64, _POINTER]),
    "heapx_packer_new": (_POINTER, [_POINTER, _POINTER, _U64, _UINT]),
    "heapx_packer_next": (ctypes.c_int64, [_POINTER, _POINTER, _U64]),
    "heapx_packer_free": (None, [_POINTER]),
    "heapx_marks_set": (None, [_POINTER, _POINTER, _POINTER, _U64]),
    "heapx_marks_open": (_INT, [_POINTER, _U32]),
    "heapx_marks_slice": (ctypes.c_int64, [_POINTER, ctypes.c_double]),
    "heapx_marks_sums": (None, [_POINTER, _POINTER]),
    "heapx_marks_evidence": (_UINT, [_POINTER, _U32]),
    "heapx_marks_list": (_U64, [_POINTER, _UINT, _U32, _U32, _POINTER, _POINTER, _U64, _POINTER]),
    "heapx_marks_offsets": (None, [_POINTER, _POINTER, _U64]),
    "heapx_weak_new": (_POINTER, [_POINTER, _U64, _INT]),
    "heapx_weak_free": (None, [_POINTER]),
    "heapx_weak_scan": (ctypes.c_int64, [_POINTER, _POINTER, _U64, ctypes.c_double]),
    "heapx_weak_blocks": (ctypes.c_int64, [_POINTER, ctypes.c_double]),
    "heapx_weak_settle": (_INT, [_POINTER]),
    "heapx_graph_sign": (None, [_POINTER, _POINTER]),
    "heapx_signer_new": (_POINTER, [_UINT, _UINT, _INT, _POINTER, _POINTER, _U64, _POINTER, _U64, _POINTER]),
    "heapx_signer_free": (None, [_POINTER]),
    "heapx_signer_slice": (ctypes.c_int64, [_POINTER, _POINTER, _POINTER, _POINTER, ctypes.c_double]),
    "heapx_signer_rest": (None, [_POINTER, _POINTER]),
    "heapx_signer_keep_contents": (None, [_POINTER]),
    "heapx_signer_copied": (_U64, [_POINTER, _POINTER, _U64]),
    "heapx_signer_found": (_U64, [_POINTER, _POINTER, _U64]),
    "heapx_signer_within": (None, [_POINTER, _POINTER, _POINTER, _U64, _POINTER]),
    "heapx_graph_large": (_U64, [_POINTER, _U64, _POINTER, _U64]),
    "heapx_signer_labels": (_POINTER, [_POINTER, _POINTER]),
    "heapx_signer_rust": (_INT, [_POINTER, _POINTER, _U64, _POINTER]),
    "heapx_signer_vtables": (_U64, [_POINTER, _POINTER, _U64]),
    "heapx_referrals_new": (_POINTER, [_POINTER, _POINTER, _POINTER, _U32, _UINT, _U32, _INT, _U32, _INT, _POINTER, _U64, _U64]),
    "heapx_referrals_free": (None, [_POINTER]),
    "heapx_referrals_slice": (ctypes.c_int64, [_POINTER, ctypes.c_double]),
    "heapx_pool_blocks": (_POINTER, [_POINTER, _UINT, _U64, _POINTER, _U64]),
    "heapx_pool_sums": (ctypes.c_int64, [_POINTER, _POINTER, ctypes.c_double]),
    "heapx_pins_new": (_POINTER, [_POINTER, _POINTER, _U64, _POINTER, _U64, _POINTER, _U64]),
    "heapx_pins_label": (None, [_POINTER, _POINTER, _POINTER, _U64, _U64]),
    "heapx_pins_own": (_INT, [_POINTER, _POINTER, _POINTER, _U64, _U64]),
    "heapx_pins_free": (None, [_POINTER]),
    "heapx_pins_slice": (ctypes.c_int64, [_POINTER, _POINTER, ctypes.c_double]),
    "heapx_pins_end": (ctypes.c_int64, [_POINTER, _POINTER]),
    "heapx_pins_groups": (None, [_POINTER, _POINTER]),
    "heapx_map_new": (_POINTER, [_POINTER, _POINTER, _U64, _POINTER]),
    "heapx_map_free": (None, [_POINTER]),
    "heapx_map_slice": (ctypes.c_int64, [_POINTER, _POINTER, ctypes.c_double]),
    "heapx_map_cells": (None, [_POINTER, _POINTER]),
    "heapx_sweep_new": (_POINTER, [_POINTER, _UINT, _UINT, _UINT, _POINTER, _U64, _POINTER, _U64]),
    "heapx_sweep_free": (None, [_POINTER]),
    "heapx_sweep_fill": (ctypes.c_int64, [_POINTER, _POINTER, _POINTER, _U64, ctypes.c_double]),
    "heapx_sweep_settle": (ctypes.c_int64, [_POINTER]),
    "heapx_sweep_open": (_INT, [_POINTER, _U32, _U32, _POINTER, _U64, _U32, _U64]),
    "heapx_sweep_bytes": (None, [_POINTER, _U32, _POINTER, _U64, _U64]),
    "heapx_sweep_slice": (ctypes.c_int64, [_POINTER, ctypes.c_double]),
    "heapx_sweep_evidence": (_UINT, [_POINTER, _U32]),
    "heapx_sweep_sums": (None, [_POINTER, _POINTER]),
    "heapx_sweep_find": (_U32, [_POINTER, _U64, _POINTER]),
    "heapx_sweep_numbers": (None, [_POINTER, _POINTER]),
    "heapx_sweep_referrers": (_U64, [_POINTER, _POINTER, _U64]),
    "heapx_leak_roots_open": (_INT, [_POINTER]),
    "heapx_leak_roots_slice": (ctypes.c_int64, [_POINTER, ctypes.c_double]),
    "heapx_leak_root_ids": (_U64, [_POINTER, _POINTER, _U64]),
    "heapx_leak_groups": (ctypes.c_int64, [_POINTER, _POINTER, _POINTER, _U64]),
    "heapx_leak_kinds": (None, [_POINTER, _POINTER, _U64, _POINTER]),
    "heapx_leak_roots_result": (_U64, [_POINTER, _U64, _POINTER, _U64]),
    "heapx_graph_referrers": (_U64, [_POINTER, _U32, _POINTER, _U64, _POINTER]),
    "heapx_graph_parents": (_INT, [_POINTER, _U32, _POINTER]),
    "heapx_graph_dominators": (_INT, [_POINTER, _U32, _U32, _U32, _INT, _POINTER, _POINTER, _POINTER]),
    "heapx_tree_heaviest": (None, [_POINTER, _POINTER, _U32, _POINTER]),
    "heapx_tree_index": (None, [_POINTER, _U32, _POINTER, _POINTER]),
    "heapx_tree_children": (_U64, [_POINTER, _POINTER, _U32, _POINTER, _U32, _U32, _POINTER, _U64]),
    "heapx_graph_reached": (_INT, [_POINTER, _U32, _U32, _POINTER, _POINTER]),
    "heapx_lists_new": (_POINTER, [_POINTER, _POINTER, _POINTER, _U64, _POINTER, _U64, _POINTER]),
    "heapx_lists_slice": (ctypes.c_int64, [_POINTER, ctypes.c_double]),
    "heapx_lists_result": (None, [_POINTER, _POINTER]),
    "heapx_lists_take": (_U64, [_POINTER, _POINTER, _POINTER]),
    "heapx_lists_apart": (_U64, [_POINTER, _INT, _POINTER]),
    "heapx_numbers_free": (None, [_POINTER, _U64]),
    "heapx_lists_also": (None, [_POINTER, _POINTER, _U64]),
    "heapx_lists_free": (None, [_POINTER]),
    "heapx_check_new": (_POINTER, [_POINTER, _POINTER, _POINTER, _U64, _POINTER, _U64, _POINTER, _U64]),
    "heapx_check_slice": (ctypes.c_int64, [_POINTER, ctypes.c_double]),
    "heapx_check_result": (_U64, [_POINTER, _U64, _POINTER, _POINTER]),
    "heapx_check_free": (None, [_POINTER]),
    "heapx_members_new": (_POINTER, [_POINTER, _POINTER, _POINTER, _U64, _INT]),
    "heapx_members_slice": (ctypes.c_int64, [_POINTER, ctypes.c_double]),
    "heapx_members_result": (_U64, [_POINTER, _U64, _POINTER, _POINTER]),
    "heapx_members_free": (None, [_POINTER]),
    "heapx_csv_rows": (ctypes.c_int64, [_POINTER, _POINTER, _POINTER, _POINTER, _POINTER, _POINTER, _U64, _POINTER, _POINTER]),
    "heapx_sort": (ctypes.c_int, [_POINTER, _U64]),
    "heapx_chain_new": (_POINTER, [_POINTER, _POINTER, _U64, _U64, _POINTER, _U64, _INT, _INT, _U64]),
    "heapx_chain_slice": (ctypes.c_int64, [_POINTER, ctypes.c_double]),
    "heapx_chain_found": (_INT, [_POINTER, _POINTER]),
    "heapx_chain_free": (None, [_POINTER]),
    "heapx_mmapped_new": (_POINTER, [_POINTER, _POINTER, _POINTER, _U64, _POINTER, _U64, _POINTER, _U64, _POINTER, _POINTER]),
    "heapx_mmapped_slice": (ctypes.c_int64, [_POINTER, ctypes.c_double]),
    "heapx_mmapped_result": (_U64, [_POINTER, _U64, _POINTER]),
    "heapx_mmapped_cut": (_INT, [_POINTER]),
    "heapx_mmapped_free": (None, [_POINTER]),
    "heapx_written_new": (_POINTER, [_POINTER, _POINTER, _U64, _U64]),
    "heapx_written_slice": (ctypes.c_int64, [_POINTER, ctypes.c_double]),
    "heapx_written_result": (_U64, [_POINTER, _U64, _POINTER, _POINTER]),
    "heapx_written_free": (None, [_POINTER]),
    "heapx_linked_new": (_POINTER, [_POINTER, _POINTER, _POINTER, _POINTER, _U64]),
    "heapx_linked_slice": (ctypes.c_int64, [_POINTER, ctypes.c_double]),
    "heapx_linked_result": (_U64, [_POINTER, _POINTER]),
    "heapx_linked_free": (None, [_POINTER]),
    "heapx_extents_new": (_POINTER, [_POINTER, _POINTER, _POINTER, _POINTER, _U64, _POINTER]),
    "heapx_extents_slice": (ctypes.c_int64, [_POINTER, ctypes.c_double]),
    "heapx_extents_summary": (None, [_POINTER, _POINTER]),
    "heapx_extents_arena": (_INT, [_POINTER, _U64, _POINTER]),
    "heapx_extents_ranges": (_U64, [_POINTER, _U64, _POINTER]),
    "heapx_extents_numbers": (_U64, [_POINTER]),
    "heapx_extents_free": (None, [_POINTER]),
}


class Unusable(Exception):
    """The C kernel cannot be used; the message says why and what to type."""


def open_library(path: str) -> Any:
    """The library at `path`; Unusable if it is missing, does not load, or is not the one that belongs to these files."""
    if not os.path.exists(path):
        raise Unusable(why_missing())
    library = load(path)
    _refuse_stale(library)
    return library


def load(path: str) -> Any:
    """The library at `path` with the types of its functions; Unusable if it does not load or is another one."""
    try:
        library = ctypes.CDLL(path)
        for name, (result, arguments) in _FUNCTIONS.items():
            function = getattr(library, name)
            function.restype = result
            function.argtypes = arguments
            if name == "heapx_abi" and function() != ABI:
                raise Unusable("stale: built from other sources; rebuild it with: python3 -m gdbheapx.kernel.build")
    except (OSError, AttributeError) as error:
        raise Unusable("cannot load it: %s" % error) from None
    return library


def why_missing() -> str:
    """Why there is no library: nobody is blamed who was not looked for."""
    if build.source_id() is None:
        return "not built at install time, and its C files are not here; with a C compiler, run: pip install --force-reinstall gdbheapx"
    words = build.compiler()
    if words is None:
        lacking = "not built, and no C compiler found here (looked for $CC, cc, gcc, clang)"
        return lacking + "; install one, then run: python3 -m gdbheapx.kernel.build"
    return "not built; build it with: python3 -m gdbheapx.kernel.build (compiler: %s)" % words[0]


def _refuse_stale(library: Any) -> None:
    wanted = build.source_id()
    if wanted is not None and wanted != library.heapx_source_id():
        raise Unusable("stale: built from other sources; rebuild it with: python3 -m gdbheapx.kernel.build")


def at(numbers: Any) -> Optional[int]:
    """Where an array's numbers are; None for an empty one."""
    return numbers.buffer_info()[0] if len(numbers) else None


def as_array(numbers: Sequence[int]) -> Any:
    """The numbers as array('Q'), or as they are where the C kernel has made them."""
    return numbers if isinstance(numbers, Numbers) or (isinstance(numbers, array) and numbers.typecode == "Q") else array("Q", numbers)


class Numbers(Sequence[int]):
    """Numbers in memory of the C kernel, which is given back with this: there may be many millions, and nobody looks at all of them."""

    def __init__(self, address: int, count: int, free: Callable[[], None]) -> None:
        self._address, self._free = address, free
        self._view = memoryview((ctypes.c_uint64 * count).from_address(address)).cast("B").cast("Q")

    def __del__(self) -> None:
        self._view.release()
        self._free()

    def buffer_info(self) -> Tuple[int, int]:
        """As of an array."""
        return self._address, len(self._view)

    def __len__(self) -> int:
        return len(self._view)

    def __getitem__(self, place: Any) -> Any:
        return array("Q", self._view[place].tobytes()) if isinstance(place, slice) else self._view[place]

    def __eq__(self, other: object) -> bool:
        return self._view == (other._view if isinstance(other, Numbers) else memoryview(other) if isinstance(other, array) else other)

    __hash__ = None  # type: ignore[assignment]


class OpenSource:
    """A bulk source in the C kernel's form, and what must live as long as it. `swapped_in`: one number to which it adds the bytes that it
    brings in from swap."""

    def __init__(self, library: Any, source: BulkSource, swapped_in: Any = None) -> None:
        self.handle: Optional[int] = None
        self.source = source
        self.error: Optional[BaseException] = None
        self._fd = self._pagemap = -1
        self._library = library
        self._swapped_in = array("Q", [0]) if swapped_in is None else swapped_in
        kind, call, segments = 0, None, array("Q")
        if isinstance(source, FileSource):
            self._fd = os.open(source.path, os.O_RDONLY | os.O_CLOEXEC)
            for segment in source.segments:
                segments.extend((segment.address, segment.size_bytes, segment.file_offset))
        elif isinstance(source, ProcessSource):
            try:
                self._fd = os.open("/proc/%d/mem" % source.pid, os.O_RDONLY | os.O_CLOEXEC)
            except OSError:  # the process is gone, or may not be read: nothing of it is readable
                pass
            if self._fd >= 0 and (source.untouched_zero or source.swap is not None):
                self._open_pagemap(source.pid)
            if self._fd >= 0 and (self._pagemap >= 0 or source.swap is None or source.swap.has_room_for_all()):
                segments.extend((0, MOST_OFFSET, 0))
        elif isinstance(source, CallSource):
            kind = 1
            self._call = _READ(self._read)
            call = ctypes.cast(self._call, ctypes.c_void_p)
        elif isinstance(source, BytesSource):
            kind = 2
            for address, data in source.pieces:
                segments.extend((address, len(data), ctypes.cast(ctypes.c_char_p(data), ctypes.c_void_p).value or 0))
        else:
            raise TypeError("no bulk source: %r" % (source,))
        self.handle = library.heapx_source_new(kind, self._fd, call, at(segments), len(segments) // 3)
        if not self.handle:
            raise MemoryError()
        if isinstance(source, ProcessSource) and source.still is not None:
            library.heapx_source_until(self.handle, at(source.still.until))
        self.swap = source.swap if isinstance(source, ProcessSource) else None
        if isinstance(source, ProcessSource) and self._pagemap >= 0:
            self._leave_untouched(source)

    def _open_pagemap(self, pid: int) -> None:
        try:
            self._pagemap = os.open("/proc/%d/pagemap" % pid, os.O_RDONLY | os.O_CLOEXEC)
        except OSError:  # not in this kernel, or the process is gone
            pass

    def _leave_untouched(self, source: ProcessSource) -> None:
        """Pages that the process has not touched are not read, nor those in swap for which there is no room."""
        self._ranges = array("Q", [bound for pair in source.untouched_zero for bound in pair])
        room = None if source.swap is None else at(source.swap.cells)
        ranges = (at(self._ranges), len(source.untouched_zero))
        found = (self.handle, self._pagemap, int(source.scans), *ranges, at(self._swapped_in), room)
        self._library.heapx_source_leave_untouched(*found)

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
        for descriptor in (self._fd, self._pagemap):
            if descriptor >= 0:
                close(descriptor)
        self._fd = self._pagemap = -1


class OpenPages:
    """A process's page table in the C kernel's form; its handle is None where there is none or it cannot be opened."""

    def __init__(self, library: Any, table: Optional[PageTable]) -> None:
        self.handle: Optional[int] = None
        self._library, self._fd = library, -1
        if table is None:
            return
        try:
            self._fd = os.open("/proc/%d/pagemap" % table.pid, os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            return
        self._outside = array("Q", [bound for pair in table.outside_rss for bound in pair])
        numbers = (self._fd, table.flags_fd, int(table.scans), int(table.knows_huge_zero), at(self._outside), len(table.outside_rss))
        self.handle = library.heapx_pages_new(*numbers)
        if not self.handle:
            raise MemoryError()

    def __del__(self, close: Callable[[int], None] = os.close) -> None:
        if self.handle:
            self._library.heapx_pages_free(self.handle)
            self.handle = None
        if self._fd >= 0:
            close(self._fd)
            self._fd = -1


def run(work: Any, opened: OpenSource, budget: Budget) -> None:
    """Calls `work(seconds)` until nothing is left, the budget expires or Ctrl-C is pressed. Work is resumable, so that is safe anywhere."""
    seconds = FIRST_SLICE_SECONDS
    try:
        while not budget.expired():
            if opened.swap is not None:
                opened.swap.renew()
            left = work(budget.slice_s(seconds))
            if left == NO_MEMORY:
                raise MemoryError()
            if left == INTERRUPTED:
                opened.raise_error()
            elif not left:
                return
            seconds = min(2 * seconds, SLICE_SECONDS)
    except KeyboardInterrupt:
        budget.interrupt()
