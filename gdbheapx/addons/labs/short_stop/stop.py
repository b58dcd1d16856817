"""Copy a process while it runs, and what it writes to meanwhile again: it is paused for the last of that alone.

One of its threads makes two system calls, in a stop of less than a millisecond (userfaultfd.py). On older kernels it makes none: their
soft-dirty bits, which say what is written to (Linux 6.1 here), are cleared once, all at once, also those that another program waits for.
"""

import ctypes
import mmap
import os
import time
from array import array
from functools import cache
from typing import Any, Callable, List, Optional, Sequence, Tuple

from gdbheapx.actions import preflight
from gdbheapx.addons.labs.short_stop import userfaultfd
from gdbheapx.addons.labs.short_stop.running import Hold, HoldOrder, NativeFollower, copy_rest, copy_running, copy_written, is_marked
from gdbheapx.allocators.session import Session
from gdbheapx.app import runner
from gdbheapx.common.errors import HeapxError, Refusal
from gdbheapx.common.problems import NO_SHORT_STOP
from gdbheapx.inferior.arch import native_architecture
from gdbheapx.inferior.base import Target
from gdbheapx.inferior.live import procfs, seccomp
from gdbheapx.inferior.live.stopper import wanted_sets
from gdbheapx.inferior.live.usage import ENTRY_BYTES, PRESENT, kernel_release
from gdbheapx.kernel.common.copy import MOST_THREADS, TAKES_ALL, CopiedRange
from gdbheapx.kernel.common.library import usable_cpus

MARKS_QUESTION = "clear the soft-dirty bits of process %d, which CRIU uses too, for a shorter pause?"
CALLS_QUESTION = "have process %d make two system calls (userfaultfd, close), for a shorter pause?"
LONGEST_S = 10.0
"""How long the stop may be at all; it takes some milliseconds."""
PATIENCE_S = 0.05
"""How long its threads may take to stop: one that waits for a disk does not, and is waited for in the way of other looks."""
ROUNDS, CHEAP_PAGES = 6, 200
"""So many at most, until what is written in the time of one costs less than half a millisecond to read in the stop."""
MARKED, FRAME = 1 << 55, (1 << 55) - 1
"""Of an entry of pagemap: written to since the marks were cleared; which page of the machine's it is, 0 without CAP_SYS_ADMIN."""
CLEAR = b"4"
FIRST = (6, 1)
"""The oldest that this was tried on. Until 5.11 marks were cleared under too weak a lock, and 5.19 loses some by mprotect."""
OF_KERNEL = "[v"
"""How the names of vdso, vvar and vsyscall begin."""


class ShortStop:
    """Short stop of one process that `copying` (stopping.py) is prepared to copy. HeapxError if that is not possible: it is copied in the
    stop.
    """

    def __init__(self, library: Any, target: Any, copying: Any, accepts_split: bool, by_marks: bool = False) -> None:
        assert target.pid is not None
        self._copying, self._target, self._library = copying, target, library
        self.by_marks = by_marks
        self.rounds: List[int] = []
        """Pages that were read in each."""
        self._hold: Optional[Hold] = None
        self._source: Any = None
        """Says what may be brought in from swap."""
        self._follower: Optional[NativeFollower] = None
        self.first_stop_ms: Optional[float] = None
        """None: there was none."""
        if by_marks:
            modes = [seccomp.read_seccomp_rules(lwp).mode for lwp in procfs.list_thread_ids(target.pid)]
            self._is_filtered = any(mode != seccomp.DISABLED for mode in modes)
            return
        descriptor, self.first_stop_ms, self._is_filtered = userfaultfd.take_descriptor(target.pid, accepts_split)
        try:
            self._follower = NativeFollower(library, descriptor)
        except OSError as error:
            what = "this kernel does not tell which memory is written to: %s" % error.strerror
            raise HeapxError(what, userfaultfd.AS_TODAY, code=NO_SHORT_STOP)

    def begin(self) -> None:
        """Copy what there is while the process runs, and again what it has written to by then: the stop is best taken at once."""
        ranges, page = followed_ranges(self._target), os.sysconf("SC_PAGESIZE")
        if self._follower is not None:
            self._follower.follow(ranges)
        elif not self._copying.is_marked:
            clear_marks(self._target.pid)
            self._copying.is_marked = True
        copy = self._copying.copy
        self._source = self._copying.kernel.open_apart(self._target.bulk_source())
        copy_running(copy, [(start, end, TAKES_ALL) for start, end in ranges], self._source, self._copying.is_marked)
        self._copying.take_rest = self._take_rest
        self._target.foresee()
        self._hold = self._prepared_hold()
        while self._follower is not None and len(self.rounds) < ROUNDS and not is_enough(self.rounds):
            self.rounds.append(copy_written(copy, self._source, not self.rounds) // page)

    def finish(self) -> Optional[bool]:
        """Stop the process and end its copy in one go. None: that is not possible now, and it runs; else see Target.stop."""
        if self._hold is None:
            return None
        target, copying = self._target, self._copying

        def ranges_of_maps(maps: bytes) -> List[CopiedRange]:
            ranges: List[CopiedRange] = copying.list_ranges(procfs.parse_maps(os.fsdecode(maps)))
            return ranges

        maps, began_s = os.fsencode(target.maps_text()), time.monotonic()
        held = self._hold.take(copying.copy, self._source, maps, ranges_of_maps(maps), ranges_of_maps)
        copying.left = None if held is None else held.left
        if held is None:
            target.was_stopped((time.monotonic() - began_s) * 1000)  # at most
            return None
        self._note_dirty_pages()
        return bool(target.keep_held(copying.copy, held))

    def _take_rest(self, ranges: Sequence[CopiedRange], source: Any, until: Any) -> Optional[int]:
        left = copy_rest(self._copying.copy, ranges, source, until)
        self._note_dirty_pages()
        return left

    def _note_dirty_pages(self) -> None:
        taken = self._copying.copy.taken
        self._target.dirty_pages = (taken.copied_bytes + taken.unread_bytes) // mmap.PAGESIZE

    def _prepared_hold(self) -> Optional[Hold]:
        """Return the prepared hold; None where seccomp filters have to be asked about each thread."""
        target, header, machine = self._target, self._target.source.header, native_architecture()
        shown, layout = machine.in_system_call, machine.registers
        if self._is_filtered or shown is None or layout is None:
            return None
        number, result = layout.names.index(shown.number), layout.names.index(shown.result)
        limit_s = LONGEST_S if target.max_stop_s is None else min(target.max_stop_s, LONGEST_S)
        patience_s = min(PATIENCE_S, limit_s / 2)
        count, text_bytes, workers = len(procfs.list_thread_ids(target.pid)), len(target.maps_text()), min(MOST_THREADS, usable_cpus())
        order = HoldOrder(target.pid, int(limit_s * 1e9), int(patience_s * 1e9), number, result, count, text_bytes, workers)
        return Hold(self._library, order, wanted_sets(header))

    def end(self) -> None:
        """The process is as it was: nothing of it is protected. Once it runs on. Harmless when called twice."""
        self._copying.take_rest = None
        if self._follower is not None:
            self._follower.end()


def begin_short_stop(session: Session, copying: Any, options: Any, confirm: Callable[[str], None]) -> Optional[ShortStop]:
    """Return the object that has copied the process while it runs, if nothing prevents it; else the reason is reported, None returned and
    the process copied in its stop. `confirm` raises Refusal unless its question is answered yes.
    """
    target, library, short = session.target, session.kernel.library, None
    try:
        if copying is None:
            raise HeapxError("there is no room for a copy of the process", userfaultfd.AS_TODAY, code=NO_SHORT_STOP)
        by_marks = check_short_stop(target, copying, library, (options.accept_thp_split, options.accept_mark_loss))
        confirm((MARKS_QUESTION if by_marks else CALLS_QUESTION) % target.pid)
        short = ShortStop(library, target, copying, options.accept_thp_split, by_marks)
        if short.first_stop_ms is not None:
            getattr(target, "was_stopped")(short.first_stop_ms)  # noqa: B009
        short.begin()
    except Refusal:
        raise
    except (HeapxError, MemoryError) as error:
        if short is not None:
            short.end()
        why = error if isinstance(error, HeapxError) else runner.out_of_memory()
        session.problem(NO_SHORT_STOP, None, why.message, why.hint, partial=False)
        return None
    except BaseException:
        if short is not None:
            short.end()
        raise
    return short


def check_short_stop(target: Target, copying: Any, library: Any, accepts: Tuple[bool, bool]) -> bool:
    """HeapxError where something is in the way; the process is only looked at. Whether it is done by marks. `accepts`: that huge pages are
    split, and that marks are lost."""
    if target.kind == "live" and target.pid and userfaultfd.find_lacking_injection() is not None:
        without = find_lacking_marks()
        if without is not None:
            raise userfaultfd.make_no_injection_error("%s; %s" % (userfaultfd.find_lacking_injection(), without))
        if not copying.is_marked:
            check_marks(target, library, accepts[1])
        return True
    userfaultfd.check_injection(target, accepts[0])
    return False


def is_by_marks() -> bool:
    """Return True if this kernel has no userfaultfd that tracks writes, but soft-dirty bits."""
    return userfaultfd.find_lacking_injection() is not None and find_lacking_marks() is None


def is_enough(rounds: List[int]) -> bool:
    """Another round would not make the stop shorter."""
    return bool(rounds) and (rounds[-1] <= CHEAP_PAGES or (len(rounds) > 1 and rounds[-1] >= rounds[-2]))


def followed_ranges(target: Target) -> List[Tuple[int, int]]:
    """Return private writable memory, which only the process writes to; other memory is read in the stop."""
    return [
        (mapping.start, mapping.end)
        for mapping in target.mappings()
        if mapping.is_untouched_zero and mapping.readable and mapping.writable and not mapping.is_hugetlb
    ]


@cache
def find_lacking_marks() -> Optional[str]:
    """Describe the feature that the kernel lacks, or forbids this process; tried in a child. None if it is all there."""
    if kernel_release() < FIRST:
        return "soft-dirty bits are used from Linux %d.%d on" % FIRST
    return userfaultfd.in_child(_try_marks, "this process may not clear its own soft-dirty bits")


def _try_marks() -> Optional[str]:
    """On this process, which ends then."""
    with mmap.mmap(-1, mmap.PAGESIZE, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS) as page:
        page[0] = 1
        if not _read_entry(page) & MARKED:
            return "this kernel has no soft-dirty bits (CONFIG_MEM_SOFT_DIRTY)"
        if not _read_entry(page) & FRAME:
            return "soft-dirty bits need CAP_SYS_ADMIN here: only page frames show that a page was moved"
        clear_marks(os.getpid())
        if page[0] != 1 or _read_entry(page) & (PRESENT | MARKED) != PRESENT:
            return "this kernel does not clear soft-dirty bits"
        _protect_page(page, mmap.PROT_READ)
        _protect_page(page, mmap.PROT_READ | mmap.PROT_WRITE)  # after which Linux 5.19 marks nothing
        page[0] = 2
        return None if _read_entry(page) & MARKED else "this kernel does not set soft-dirty bits again"


def _page_address(page: Any) -> int:
    return ctypes.addressof(ctypes.c_char.from_buffer(page))


def _protect_page(page: Any, how: int) -> None:
    if ctypes.CDLL(None, use_errno=True).mprotect(ctypes.c_void_p(_page_address(page)), ctypes.c_size_t(mmap.PAGESIZE), how):
        raise OSError(ctypes.get_errno(), "mprotect")


def _read_entry(page: Any) -> int:
    number = _page_address(page) // mmap.PAGESIZE
    with open("/proc/self/pagemap", "rb", buffering=0) as pagemap:
        return array("Q", os.pread(pagemap.fileno(), ENTRY_BYTES, number * ENTRY_BYTES))[0]


def check_marks(target: Target, library: Any, accepts_loss: bool) -> None:
    """HeapxError where something is in the way of that; the process is only looked at."""
    what, table = find_lacking_marks(), target.page_table()
    if what or table is None or not target.pid:
        raise userfaultfd.make_no_injection_error(what or "the page table of this process cannot be read")
    try:
        preflight.require_writable(target.pid)
    except HeapxError as error:
        raise HeapxError(error.message, error.hint, code=NO_SHORT_STOP)
    ranges = [(one.start, one.end) for one in target.mappings() if not one.name.startswith(OF_KERNEL)]
    if not accepts_loss and not is_marked(library, table, ranges):
        raise userfaultfd.make_no_injection_error(
            "the soft-dirty bits of process %d were cleared already, by an earlier --short-stop or a program that relies on them (CRIU)"
            % target.pid,
            "if no other program relies on them, add --accept-mark-loss; or " + userfaultfd.AS_TODAY,
        )


def clear_marks(pid: int) -> None:
    """Clear all marks of the process. Its page faults wait meanwhile."""
    try:
        with open("/proc/%d/clear_refs" % procfs.proc_entry_number(pid), "wb", buffering=0) as file:
            file.write(CLEAR)
    except OSError as error:
        raise userfaultfd.make_no_injection_error("the soft-dirty bits of process %d cannot be cleared: %s" % (pid, error.strerror))
