"""A process of this machine as a place where bytes come from."""

import os
from typing import Dict, List, Optional, Sequence, Tuple

from gdbheapx.budget import Still
from gdbheapx.errors import HeapxError
from gdbheapx.inferior.base import BulkSource, Counting, HugePages, Mapping, MemoryUse, PageTable, ProcessSource, SwapRoom, Thread
from gdbheapx.inferior.live import page_table, procfs
from gdbheapx.inferior.live.headroom import Deaths
from gdbheapx.inferior.live.memory import LiveMemory
from gdbheapx.inferior.live.swap_room import LiveSwapRoom
from gdbheapx.inferior.source import Source
from gdbheapx.problems import PROCESS_ENDED, Diagnostic
from gdbheapx.ranges import union


class LiveSource(Source):
    """A process of this machine, running or stopped."""

    kind = "live"

    def __init__(self, pid: int, sysroot: str = "", executable: Optional[str] = None) -> None:
        self.given_executable = executable
        self.pid = self._pid = pid
        self.still: Still = Still()
        procfs.check_numbers()
        header = procfs.executable_header(pid)
        try:
            self.swap = LiveSwapRoom(pid)
            self._deaths = Deaths(pid)
            self._memory = LiveMemory(procfs.entry(pid), self.mappings, self.host_path, self.still, self.swap)
        except FileNotFoundError:
            raise HeapxError("process %d crashed or exited" % pid, "give the pid of a running process", code=PROCESS_ENDED)
        except OSError:
            raise procfs.why_not_permitted(pid)
        if header is None:
            raise procfs.why_not_permitted(pid)
        Source.__init__(self, header)
        self.executable = procfs.executable(pid)
        self.sysroot = sysroot or procfs.root_prefix(pid)
        self._huge_setting: Optional[Tuple[Optional[str]]] = None
        self.forget()
        self._page_tables = page_table.Finder(pid)

    def read_prefix(self, address: int, size_bytes: int) -> bytes:
        return self._memory.read_prefix(address, size_bytes)

    def swapped_in_bytes(self) -> Optional[int]:
        return self._memory.swapped_in_bytes + self.swap.shared_in_bytes if self._memory.knows_swap else None

    def swappable_ranges(self, start: int, end: int) -> Optional[Sequence[Tuple[int, int]]]:
        return self._memory.swappable_ranges(start, end)

    def host_path(self, name: str) -> str:
        if self.given_executable and name == self.executable:
            return self.given_executable
        return super().host_path(name)

    def forget(self) -> None:
        self._maps: Optional[List[Mapping]] = None
        self._use: Optional[MemoryUse] = None

    def memory_use(self) -> Optional[MemoryUse]:
        if self._use is None:
            from gdbheapx.inferior.live import smaps

            self._use = smaps.resident(self._pid)
        return self._use

    def huge_pages(self) -> HugePages:
        from gdbheapx.inferior.live import smaps

        if self._huge_setting is None:
            self._huge_setting = (smaps.machine_setting(),)  # the machine's: asked once
        return smaps.find_huge_pages(self._pid, self._huge_setting[0])

    def counters(self) -> Counting:
        from gdbheapx.inferior.live.counters import Counters

        return Counters(self._pid)

    def swap_room(self) -> SwapRoom:
        return self.swap

    def has_ended(self) -> bool:
        return self._memory.is_gone()

    def cause_of_death(self) -> Optional[Diagnostic]:
        return self._deaths.cause()

    def stands_still(self, still: bool, ended: Optional[int] = None) -> None:
        self._memory.keep(still)
        self._deaths.status = self._deaths.status if ended is None else ended

    def mappings(self) -> List[Mapping]:
        if self._maps is None:
            self._maps = procfs.maps(self._pid)
        return self._maps

    def auxv(self) -> Dict[int, int]:
        return procfs.auxv(self._pid, self.header)

    def threads(self) -> List[Thread]:
        return [Thread(lwp, procfs.thread_name(self._pid, lwp), None, None, None) for lwp in procfs.threads(self._pid)]

    def environment_variable(self, name: str) -> Optional[str]:
        place, wanted = procfs.environment_range(self._pid), name.encode() + b"="
        for entry in self.read_prefix(place[0], place[1] - place[0]).split(b"\0") if place else ():
            if entry.startswith(wanted):
                return entry[len(wanted) :].decode("utf-8", "surrogateescape")
        return None

    def bulk_source(self) -> BulkSource:
        zeros = union((one.start, one.end) for one in self.mappings() if one.is_untouched_zero)
        table = self.page_table()
        return ProcessSource(procfs.entry(self._pid), tuple(zeros), self.still, self.swap, table is not None and table.scans)

    def present_ranges(self, start: int, end: int) -> Sequence[Tuple[int, int]]:
        return page_table.present(self._pid, start, end)

    def touched_ranges(self, start: int, end: int) -> Sequence[Tuple[int, int]]:
        return page_table.touched(self._pid, start, end)

    def maps_text(self) -> str:
        return procfs.maps_text(self._pid)

    def monotonic_ns(self) -> Optional[int]:
        return procfs.monotonic_ns(self._pid)

    def page_table(self) -> Optional[PageTable]:
        return self._page_tables.find(self.mappings())

    def problems(self) -> List[Diagnostic]:
        return self.swap.problems()

    def file_in_memory(self, name: str) -> Optional[str]:
        """For others' processes it needs CAP_CHECKPOINT_RESTORE, but for the program."""
        if name == self.executable:
            return "/proc/%d/exe" % procfs.entry(self._pid)
        for mapping in self.mappings():
            if mapping.name in (name, name + " (deleted)"):
                path = "/proc/%d/map_files/%x-%x" % (procfs.entry(self._pid), mapping.start, mapping.end)
                return path if os.path.exists(path) else None
        return None
