"""Find the pages of a process that are not touched for a while: mark them, let the process run on, and read the marks. Two ways. `idle`:
the kernel's idle page tracking, which notices reads and writes; no call is made in the process and it is not stopped, but the marks are
shared by all their users. `written`: a userfaultfd of the process's own (userfaultfd.py), which notices writes alone.
"""

import contextlib
import ctypes
import fcntl
import glob
import os
import re
import struct
import time
from array import array
from bisect import bisect_left, bisect_right
from typing import Any, Callable, Dict, Iterable, Iterator, List, NamedTuple, Optional, Sequence, Tuple

from gdbheapx.actions import preflight
from gdbheapx.addons.labs.cold.find import AGES, IDLE, KNOWN, STALE, WRITTEN, Ages
from gdbheapx.addons.labs.short_stop import stop, userfaultfd
from gdbheapx.addons.labs.short_stop.running import NativeFollower
from gdbheapx.allocators.session import Session
from gdbheapx.common.errors import HeapxError
from gdbheapx.common.problems import NO_PROCESS, NO_SHORT_STOP
from gdbheapx.inferior.live import procfs
from gdbheapx.inferior.live.usage import BYTES_AT_ONCE, ENTRY_BYTES, PRESENT

FRAME = (1 << 55) - 1
LRU, HEAD, TAIL = 1 << 5, 1 << 15, 1 << 16
"""Of /proc/kpageflags (linux/kernel-page-flags.h). Only pages on a list of the kernel's reclaim are tracked; of a huge one the first."""
BATCH_PAGES = 1 << 16
WORD_BITS = 64
WITHOUT = "omit --for to show RAM and swap only"
MARKS = "marks"
QUESTION = {
    IDLE: "mark the memory of process %d as idle (/sys/kernel/mm/page_idle), and read the marks again after %g s?",
    MARKS: "clear the soft-dirty bits of process %d, which other programs (CRIU) may rely on, and read them again after %g s?",
    WRITTEN: "have process %d make two system calls (userfaultfd, close), and take a page fault for each page that it writes to in %g s?",
}
FORGETS = "clear the accessed bits by which the kernel knows its pages in use, and "
PAGE_WPALLOWED, PAGE_WRITTEN, PAGE_PRESENT = 1 << 0, 1 << 1, 1 << 3
REGIONS = 1 << 12
SCANS = (b"pgscan_anon ", b"pgscan_file ")
"""Of /proc/vmstat: by whomever. Those by reason (pgscan_direct, ...) leave out what a memory cgroup reclaims at its limit."""
STEP_S = 0.25
"""How long a signal may have to wait, which does not end a sleep by itself."""
REFERENCED = re.compile(rb"^([0-9a-f]+)-([0-9a-f]+) [^\n]*\n(?:[A-Z][^\n]*\n)*?Referenced: +(\d+) kB", re.MULTILINE)
"""Of smaps."""
Range = Tuple[int, int]
Aged = Tuple[int, int, bytes]
Unwritten = Callable[[int, int, int], bytes]
"""By a descriptor of pagemap, from where to where: the bits of each page."""
Check = Callable[[], None]
"""HeapxError where a watch is in vain by now."""
Wait = Callable[[Session, float, int, Check], None]


class AgingFiles(NamedTuple):
    """Paths of the kernel's files; tests replace them."""

    bitmap: str = "/sys/kernel/mm/page_idle/bitmap"
    flags: str = "/proc/kpageflags"
    damon: str = "/sys/kernel/mm/damon/admin/kdamonds/*/state"
    modules: str = "/sys/module/damon_*/parameters/enabled"
    generations: str = "/sys/kernel/mm/lru_gen/enabled"
    events: str = "/proc/vmstat"


def make_no_watch_error(what: str, hint: str = WITHOUT) -> HeapxError:
    """Return the error that says why no page is watched."""
    return HeapxError(what, hint, code=NO_SHORT_STOP)


def wait_for_accesses(session: Session, seconds: float, pagemap: int, check: Check = lambda: None) -> None:
    """Wait so long, or until the user ends it. HeapxError when the memory that `pagemap` is of is no more: it was opened before, and
    does not show what the process executes next; or when check() says so."""
    until = time.monotonic() + seconds
    while True:
        if session.budget.reason is not None:
            raise KeyboardInterrupt
        if not os.pread(pagemap, ENTRY_BYTES, 0):
            what = "process %d has ended, or executed another program, while its pages were watched" % (session.target.pid or 0)
            raise HeapxError(what, "look whether it still runs, and start again", code=NO_PROCESS)
        check()
        left_s = until - time.monotonic()
        if left_s <= 0:
            return
        time.sleep(min(STEP_S, left_s))


def by_generations(files: AgingFiles) -> bool:
    """The kernel reclaims memory by generations (MGLRU). These clear accessed bits and leave marks of idle pages as they are (mm/vmscan.c,
    walk_pte_range and lru_gen_look_around)."""
    return int((procfs.slurp_file(files.generations) or b"0").strip() or b"0", 16) != 0


def read_scanned_pages(files: AgingFiles) -> int:
    """Return the number of pages that the kernel has scanned to reclaim memory since its start."""
    return sum(int(line.split()[1]) for line in (procfs.slurp_file(files.events) or b"").splitlines() if line.startswith(SCANS))


def damon_is_on(files: AgingFiles) -> bool:
    """Return True if the kernel samples accesses for someone (DAMON): it sets the same marks, on pages that were touched, too."""
    for pattern, on in ((files.damon, (b"on",)), (files.modules, (b"Y", b"1"))):
        if any((procfs.slurp_file(path) or b"").strip() in on for path in glob.glob(pattern)):
            return True
    return False


def means_here(files: AgingFiles) -> str:
    """Return the most informative way to watch pages that this kernel offers and that is not likely to end in an error."""
    has_written = stop.is_by_marks() or userfaultfd.find_lacking_injection() is None
    return WRITTEN if not os.path.exists(files.bitmap) or (by_generations(files) and has_written) else IDLE


def watch_pages(session: Session, options: Any, files: Optional[AgingFiles] = None) -> None:
    """Before the process is stopped: mark its pages, wait, and keep what became of them. HeapxError where that may not be."""
    target, files = session.target, files or AgingFiles()
    assert target.pid is not None
    means = options.age or means_here(files)
    check = check_idle if means == IDLE else check_written
    check(session, files, options)
    if options.reads and means == IDLE:
        raise make_no_watch_error("--reads is for --age written: idle page tracking tells reads by itself", "omit --reads")
    question = QUESTION[MARKS if means == WRITTEN and stop.is_by_marks() else means] % (target.pid, options.for_s)
    preflight.require_confirmed(options, (FORGETS if options.reads else "") + question, WITHOUT)
    ranges = stop.followed_ranges(target)
    make = watch_idle_pages if means == IDLE else watch_written_pages
    session.constants[AGES] = make(session, ranges, files, options)


def check_idle(session: Session, files: AgingFiles, options: Any) -> None:
    """HeapxError where something is in the way of idle page tracking."""
    if not os.path.exists(files.bitmap):
        raise make_no_watch_error("this kernel has no idle page tracking (CONFIG_IDLE_PAGE_TRACKING)", "use --age written, or " + WITHOUT)
    if not os.access(files.bitmap, os.R_OK | os.W_OK) or not os.access(files.flags, os.R_OK):
        raise make_no_watch_error("only root may use the marks of idle pages", "run as root, or " + WITHOUT)
    if damon_is_on(files):
        raise make_no_watch_error(
            "DAMON samples accesses on this machine, and sets the same marks: pages in use would look idle", "use --age written"
        )


def check_written(session: Session, files: AgingFiles, options: Any) -> None:
    """HeapxError where something is in the way of a userfaultfd, or of the marks of what is written to."""
    try:
        if stop.is_by_marks():
            stop.check_marks(session.target, session.kernel.library, options.accept_mark_loss)
        elif not options.yes:  # else all is asked a moment later, and once is a quarter of what a watch costs
            userfaultfd.check_injection(session.target, options.accept_thp_split)
    except HeapxError as error:
        raise _hint_other_means(error)


def _hint_other_means(error: HeapxError) -> HeapxError:
    hint = error.hint or WITHOUT
    for theirs, ours in ((userfaultfd.AS_TODAY, WITHOUT), ("omit --short-stop", "omit --for")):
        hint = hint.replace(theirs, ours)
    return make_no_watch_error(error.message, hint)


@contextlib.contextmanager
def pagemap_of(pid: int) -> Iterator[int]:
    """Open the pagemap of the memory that the process has now."""
    descriptor = os.open("/proc/%d/pagemap" % procfs.proc_entry_number(pid), os.O_RDONLY | os.O_CLOEXEC)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def split_ranges(ranges: Iterable[Range]) -> Iterator[Range]:
    """Split the ranges into parts of at most BATCH_PAGES pages, which are held at once; none cuts a huge page."""
    step = BATCH_PAGES * os.sysconf("SC_PAGESIZE")
    for start, end in ranges:
        while start < end:
            behind = min(end, (start // step + 1) * step)
            yield start, behind
            start = behind


def read_page_entries(pagemap: int, start: int, end: int) -> "array[int]":
    """Read the pagemap entry of each page; 0 where it has none."""
    page = os.sysconf("SC_PAGESIZE")
    size = ENTRY_BYTES * (end - start) // page
    data = os.pread(pagemap, size, ENTRY_BYTES * (start // page))
    return array("Q", data[: len(data) & -ENTRY_BYTES].ljust(size, b"\0"))


def read_page_frames(pagemap: int, start: int, end: int) -> "array[int]":
    """The page frames, 0 where a page is not in RAM. HeapxError where they are hidden."""
    found = read_page_entries(pagemap, start, end)
    if any(entry & PRESENT and not entry & FRAME for entry in found):
        raise make_no_watch_error(
            "the kernel shows page frames only with CAP_SYS_ADMIN", "run as root outside the container, or " + WITHOUT
        )
    return array("Q", [entry & FRAME if entry & PRESENT else 0 for entry in found])


def words_at(descriptor: int, numbers: Sequence[int]) -> Dict[int, int]:
    """Words of 8 bytes of a file by their numbers, ascending; what is next to each other in one read. What is missing has none."""
    found: Dict[int, int] = {}
    for first, last in group_page_runs(numbers):
        data = os.pread(descriptor, 8 * (last - first), 8 * first)
        found.update(enumerate(array("Q", data[: len(data) & -8]), first))
    return found


def group_page_runs(numbers: Sequence[int]) -> Iterator[Range]:
    """Ascending numbers as runs (first, end) of at most BATCH_PAGES."""
    first = last = None
    for number in numbers:
        if last is not None and first is not None and (number != last or number - first >= BATCH_PAGES):
            yield first, last
            first = None
        first, last = number if first is None else first, number + 1
    if first is not None and last is not None:
        yield first, last


def map_tracked_frames(flags: int, numbers: Sequence[int]) -> Dict[int, int]:
    """Map each page frame to the frame whose mark counts for it: itself, or the first of its huge page. Frames that the kernel does not
    track are left out.
    """
    made: Dict[int, int] = {}
    head, previous = 0, -2
    known = words_at(flags, numbers)
    for number in numbers:
        bits = known.get(number, 0)
        if bits & TAIL:
            if number != previous + 1 or not head:
                head = 0
        else:
            head = number if bits & LRU else 0
        if head:
            made[number] = head
        previous = number
    return made


def mark_idle(bitmap: int, numbers: Iterable[int]) -> None:
    """Mark page frames as idle. A mark set by others stays as it is, since 0 bits change nothing."""
    words: Dict[int, int] = {}
    for number in numbers:
        place = number // WORD_BITS
        words[place] = words.get(place, 0) | 1 << number % WORD_BITS
    for first, last in group_page_runs(sorted(words)):
        os.pwrite(bitmap, array("Q", [words[place] for place in range(first, last)]).tobytes(), 8 * first)


def idle_among(bitmap: int, numbers: Iterable[int]) -> "set[int]":
    """Return the page frames that were not touched since they were marked."""
    wanted = sorted(set(numbers))
    words = words_at(bitmap, sorted({number // WORD_BITS for number in wanted}))
    return {number for number in wanted if words.get(number // WORD_BITS, 0) >> number % WORD_BITS & 1}


def reclaim_check(files: AgingFiles) -> Check:
    """Return a check that raises HeapxError if the kernel has from now on reclaimed memory in a way that clears accessed bits (MGLRU)."""
    before = read_scanned_pages(files)

    def check_no_reclaim() -> None:
        if by_generations(files) and read_scanned_pages(files) != before:
            what = "the kernel has reclaimed memory meanwhile, by generations (MGLRU): pages in use may look idle"
            raise make_no_watch_error(what, "use --age written")

    return check_no_reclaim


def watch_idle_pages(session: Session, ranges: Sequence[Range], files: AgingFiles, options: Any, wait: Wait = wait_for_accesses) -> Ages:
    """Watch pages by idle page tracking."""
    pid, parts = session.target.pid, list(split_ranges(ranges))
    assert pid is not None
    bitmap, flags = os.open(files.bitmap, os.O_RDWR | os.O_CLOEXEC), os.open(files.flags, os.O_RDONLY | os.O_CLOEXEC)
    try:
        with pagemap_of(pid) as pagemap:
            if not options.accept_mark_loss and any(idle_among(bitmap, find_marked_frames(pagemap, flags, part)) for part in parts):
                what = "pages of process %d are marked as idle already, by an earlier `cold` or a program that relies on it" % pid
                raise make_no_watch_error(what, "if no other program relies on the marks, add --accept-mark-loss; or " + WITHOUT)
            check = reclaim_check(files)
            for part in parts:
                mark_idle(bitmap, find_marked_frames(pagemap, flags, part))
            began = time.monotonic()
            wait(session, options.for_s, pagemap, check)
            watched_s = time.monotonic() - began
            made = [(*part, still_idle(pagemap, flags, bitmap, part)) for part in parts]
            check()
    except OSError as error:
        raise make_no_watch_error("the marks of idle pages cannot be used: %s" % error.strerror)
    finally:
        os.close(bitmap)
        os.close(flags)
    return Ages(IDLE, watched_s, os.sysconf("SC_PAGESIZE"), made)


def find_marked_frames(pagemap: int, flags: int, part: Range) -> "set[int]":
    """The frames whose marks count for these pages."""
    return set(map_tracked_frames(flags, sorted(set(read_page_frames(pagemap, *part)) - {0})).values())


def still_idle(pagemap: int, flags: int, bitmap: int, part: Range) -> bytes:
    """The bits of these pages. What has moved to another frame while this looks is not known."""
    found = read_page_frames(pagemap, *part)
    owners = map_tracked_frames(flags, sorted(set(found) - {0}))
    untouched = idle_among(bitmap, owners.values())
    again = read_page_frames(pagemap, *part)
    kinds = []
    for number, later in zip(found, again):
        owner = owners.get(number) if number == later else None
        kinds.append(0 if owner is None else KNOWN | STALE if owner in untouched else KNOWN)
    return bytes(kinds)


def watch_written_pages(session: Session, ranges: Sequence[Range], files: AgingFiles, options: Any, wait: Wait = wait_for_accesses) -> Ages:
    """Watch pages by a userfaultfd of the process, or on older kernels by its soft-dirty bits."""
    pid = session.target.pid
    assert pid is not None
    make = by_marks if stop.is_by_marks() else by_userfaultfd
    try:
        with make(session, ranges, options) as unwritten_of, pagemap_of(pid) as pagemap:
            began = time.monotonic()
            wait(session, options.for_s, pagemap, lambda: None)
            watched_s = time.monotonic() - began
            made = [(*part, unwritten_of(pagemap, *part)) for part in split_ranges(ranges)]
        told = without_read(made, read_referenced(pid)) if options.reads else (made, None)
    except OSError as error:
        raise make_no_watch_error("the pages of process %d cannot be looked at: %s" % (pid, error.strerror))
    return Ages(WRITTEN, watched_s, os.sysconf("SC_PAGESIZE"), *told)


@contextlib.contextmanager
def by_userfaultfd(session: Session, ranges: Sequence[Range], options: Any) -> Iterator[Unwritten]:
    """The pages are protected, for so long; a write takes the protection away."""
    target = session.target
    assert target.pid is not None
    try:
        descriptor, stopped_ms, _ = userfaultfd.take_descriptor(target.pid, options.accept_thp_split)
    except HeapxError as error:
        raise _hint_other_means(error)
    getattr(target, "was_stopped")(stopped_ms)  # noqa: B009
    try:
        follower = NativeFollower(session.kernel.library, descriptor)
    except OSError as error:
        raise make_no_watch_error("this kernel does not tell which memory is written to: %s" % error.strerror)
    try:
        with pagemap_of(target.pid) as pagemap:
            if options.reads:
                forget_accesses(target.pid)
            follower.follow(ranges, pagemap)
        yield scan_unwritten
    finally:
        follower.end()


@contextlib.contextmanager
def by_marks(session: Session, ranges: Sequence[Range], options: Any) -> Iterator[Unwritten]:
    """Clear all soft-dirty bits, and yield a reader of them: a write sets one. A page that moved meanwhile may have lost its own: its
    state is not known.
    """
    pid = session.target.pid
    assert pid is not None
    with pagemap_of(pid) as pagemap:
        before = {part: read_page_frames(pagemap, *part) for part in split_ranges(ranges)}
    try:
        if options.reads:
            forget_accesses(pid)
        stop.clear_marks(pid)
    except HeapxError as error:
        raise _hint_other_means(error)

    def read_unmarked_pages(pagemap: int, start: int, end: int) -> bytes:
        kinds = []
        for entry, frame in zip(read_page_entries(pagemap, start, end), before[start, end]):
            known = KNOWN if entry & stop.MARKED else KNOWN | STALE if entry & FRAME == frame else 0
            kinds.append(known if entry & PRESENT else 0)
        return bytes(kinds)

    yield read_unmarked_pages


def forget_accesses(pid: int) -> None:
    """Clear the accessed bits of all pages of the process. The kernel has only these bits to know the pages in use, until the next access
    sets them again. To be called before pages are protected: a processor that has a page in its TLB does not set its bit again, and the
    protection flushes them all.
    """
    with open("/proc/%d/clear_refs" % procfs.proc_entry_number(pid), "wb", buffering=0) as file:
        file.write(b"1")


def read_referenced(pid: int) -> List[Tuple[int, int, int]]:
    """Return start, end and bytes accessed since the clearing for each mapping."""
    text = procfs.slurp_file("/proc/%d/smaps" % procfs.proc_entry_number(pid), BYTES_AT_ONCE) or b""
    return [(int(start, 16), int(end, 16), int(kib) << 10) for start, end, kib in REFERENCED.findall(text)]


def join_watched_parts(watched: Iterable[Aged]) -> List[Tuple[int, int, bytearray]]:
    """Parts side by side as one: a mapping may lie in several."""
    made: List[Tuple[int, int, bytearray]] = []
    for start, end, kinds in watched:
        if made and made[-1][1] == start:
            made[-1][2].extend(kinds)
            made[-1] = (made[-1][0], end, made[-1][2])
        else:
            made.append((start, end, bytearray(kinds)))
    return made


def without_read(watched: Sequence[Aged], accessed: Sequence[Tuple[int, int, int]]) -> Tuple[List[Aged], int]:
    """Return the pages that were not written to, where they may not have been read either, and at most how many bytes of those were read
    all the same. The kernel counts accesses by mapping alone: where all pages that were not written to were read, none is stale; where
    none was read, all are; between the two it is not known which. In a mapping that has grown the fresh pages may be those that were
    read.
    """
    page, read_bytes, made = os.sysconf("SC_PAGESIZE"), 0, join_watched_parts(sorted(watched))
    starts = [start for start, _, _ in made]
    for start, end, touched_bytes in accessed:
        for first, behind, kinds in made[max(0, bisect_right(starts, start) - 1) : bisect_left(starts, end)]:
            low, high = max(start, first), min(end, behind)
            if low >= high:
                continue
            place = slice((low - first) // page, (high - first) // page)
            stale, warm = (kinds[place].count(bits) * page for bits in (KNOWN | STALE, KNOWN))
            only_read = max(0, touched_bytes - warm)
            if stale and only_read >= stale:
                is_whole = (low, high) == (start, end)
                kinds[place] = kinds[place].replace(bytes([KNOWN | STALE]), bytes([KNOWN if is_whole else 0]))
            else:
                read_bytes += only_read
    return [(start, end, bytes(kinds)) for start, end, kinds in made], read_bytes


def scan_unwritten(pagemap: int, start: int, end: int) -> bytes:
    """Return the bits STALE and KNOWN of each page, by PAGEMAP_SCAN. A page that is not protected, or not in RAM, is not known."""
    page = os.sysconf("SC_PAGESIZE")
    kinds = bytearray((end - start) // page)
    regions = (ctypes.c_uint64 * (3 * REGIONS))()
    told, at = PAGE_WPALLOWED | PAGE_WRITTEN | PAGE_PRESENT, start
    while at < end:
        fields = [userfaultfd.SCAN_BYTES, 0, at, end, 0, ctypes.addressof(regions), REGIONS, 0, 0, PAGE_PRESENT | PAGE_WPALLOWED, 0, told]
        argument = bytearray(struct.pack("12Q", *fields))
        count = fcntl.ioctl(pagemap, userfaultfd.PAGEMAP_SCAN, argument, True)
        for number in range(count):
            first, last, categories = regions[3 * number : 3 * number + 3]
            kind = KNOWN if categories & PAGE_WRITTEN else KNOWN | STALE
            kinds[(first - start) // page : (last - start) // page] = bytes([kind]) * ((last - first) // page)
        reached = struct.unpack_from("Q", argument, 32)[0]
        if reached <= at:
            break
        at = reached
    return bytes(kinds)
