"""What MallocExtension_ReleaseFreeMemory() would return, and the plan of calling it (src/page_heap.cc: ReleaseAtLeastNPages)."""

from typing import Any, Callable, List, Mapping, Optional, Sequence

from gdbheapx.addons.allocators.tcmalloc import caches
from gdbheapx.addons.allocators.tcmalloc.detect import Tcmalloc, numbers_of
from gdbheapx.addons.allocators.tcmalloc.entry import RELEASE
from gdbheapx.addons.allocators.tcmalloc.records import TcArena
from gdbheapx.allocators.plan import FUTEX, Held, Plan, SystemCall
from gdbheapx.allocators.records import HeapContext
from gdbheapx.allocators.returning import DryRun, Portion, Predicted
from gdbheapx.columns import BYTES, TEXT, Column, Table, add
from gdbheapx.errors import Refusal
from gdbheapx.hints import ask
from gdbheapx.problems import Report

FUNCTION = "MallocExtension_ReleaseFreeMemory"
KEYS = ("allocator", "index", "free_bytes", "free_resident_bytes", "free_exclusive_bytes")
PAGE_HEAP_LOCK = "_ZN8tcmalloc6Static14pageheap_lock_E"
LOCK_BEFORE_ROOT = 524_296
"""PageHeap::lock_ lies so far before the root of the page map, since 2.15 with pages of 8 KiB; before, the lock is a variable."""
LOCK_IN_HEAP = (2, 15)
_COLUMNS = (
    Column("arena", TEXT, field="index"),
    Column("free spans", BYTES, field="free_bytes"),
    Column("resident", BYTES, field="free_resident_bytes"),
)


def predicted(rows: Sequence[TcArena], page_bytes: int) -> Predicted:
    """Every span that is free, also in tcmalloc's own pages; what caches hold is not flushed."""
    size, resident, exclusive = (add(getattr(row, name) for row in rows) for name in KEYS[2:])
    return Predicted(size, resident, exclusive, {"free_pages": None if size is None else size // page_bytes})


def dry_run(rows: Sequence[TcArena], page_bytes: int, is_live: bool) -> DryRun:
    """What it would return."""
    arenas = [{key: getattr(row, key) for key in KEYS} for row in rows]
    return DryRun(RELEASE, predicted(rows, page_bytes), arenas, Table(_COLUMNS, rows), is_live)


class Purge(Plan):
    """The call, which takes the page heap's lock alone and asks the system for one range at a time."""

    system_calls = (SystemCall("madvise", (None, None, 4)), *FUTEX, *map(SystemCall, ("sched_yield", "nanosleep", "clock_nanosleep")))
    damaged = ("tcmalloc's heap", "a call could crash the process", "see " + ask("check"))

    def __init__(self, around: HeapContext, anew: Callable[[Report], Any], portion: Portion, tcmalloc: Tcmalloc) -> None:
        super().__init__(around, anew, portion, tcmalloc.module, FUNCTION)
        self._tcmalloc = tcmalloc

    def check(self) -> None:
        super().check()
        if self.target.environment_variable("TCMALLOC_DISABLE_MEMORY_RELEASE") not in (None, "", "0", "false", "f", "n", "no"):
            raise Refusal("TCMALLOC_DISABLE_MEMORY_RELEASE is set: the call would return nothing", "start the program without it")

    def locks(self) -> List[Held]:
        target, known = self.target, self._tcmalloc.structure
        rows = caches.central_lists(target, known, _unheard)
        held = [Held("the central list of class %d" % row.size_class, None) for row in rows if row.lock]
        symbol = target.module_symbol(self.module, PAGE_HEAP_LOCK)
        version = numbers_of(self._tcmalloc.version) or (0,)
        address = symbol.address if symbol is not None else 0
        if not address and version >= LOCK_IN_HEAP and known.page_map.page_shift == 13:
            address = known.page_map.root - LOCK_BEFORE_ROOT
        if address and any(target.read_prefix(address, 4)):
            held.append(Held("the page heap's lock", None))
        return held

    def look(self, heap: Any) -> Predicted:
        return predicted(heap.arenas(), self._tcmalloc.structure.page_map.page_bytes)

    def kept(self) -> Optional[Mapping[str, Optional[int]]]:
        return self.look(self.anew(_unheard)).kept


def _unheard(*complaint: Any, **more: Any) -> None:
    """predict() hears it."""
