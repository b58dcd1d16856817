"""Single reading of one target: its contents, the problems met, the time allowed."""

from typing import TYPE_CHECKING, Any, Callable, Dict, List, Optional, Protocol, Tuple, TypeVar

from gdbheapx import kernel as kernels
from gdbheapx.common import problems
from gdbheapx.common.budget import Budget, allowed_bytes
from gdbheapx.common.errors import HeapxError
from gdbheapx.common.model import Problem
from gdbheapx.common.problems import NO_TARGET, ProblemCode, Severity
from gdbheapx.common.stops import COUNTED_BYTES, GIB, READ_STOP_S, Reads, StoppedProcess, format_prediction, in_stop, predict_ms
from gdbheapx.common.units import SentenceSize, make_sentence
from gdbheapx.inferior.base import Target

if TYPE_CHECKING:
    from gdbheapx.allocators.discovery import Discovery, Heaps
    from gdbheapx.kernel.binding import CKernel
    from gdbheapx.kernel.common.in_ram import Ram

Made = TypeVar("Made")


class Store(Protocol):
    """Store where commands keep their part of a snapshot, or find it (snapshot/record.py)."""

    def kept(self, name: str, kind: Any, make: Callable[[], Made]) -> Made:
        """Return the result of make(), of this type, or the one stored under the name."""

    def shared(self, name: str) -> Any:
        """Return the value that an earlier command of the same reading has made, or None."""

    def share(self, name: str, value: Any) -> None:
        """Share a value with later commands of the same reading."""


COUNTING_S, MOST_COUNTING_S = 0.05, 2.0
"""For each GiB of small blocks in how many seconds they are counted before the process is stopped, enough for those of which the headers
alone are read; and in how many at most."""
MAX_PROBLEMS = 100
"""Problems kept; a ruined heap can have millions."""


class Session:
    """Everything a command may ask for. Made for each command; nothing outlives it but what the target caches."""

    def __init__(
        self,
        target: Optional[Target],
        budget: Optional[Budget] = None,
        allocator_id: Optional[str] = None,
        discovery: "Optional[Discovery]" = None,
    ) -> None:
        self._target = target
        self.budget = budget or Budget()
        self.allocator_id = allocator_id
        self.debugger_version: Optional[str] = None
        """Version of the gdb that serves; None without gdb."""
        self.problems: List[Problem] = []
        self.partial = False
        self.store: Optional[Store] = None
        """Only while a snapshot is taken, or answers."""
        self.in_gdb = False
        """The command was typed in a gdb, not in a shell."""
        self.refuses: Optional[Callable[[str], bool]] = None
        """Tells whether the words of a command have no answer where this one is read; None: that is not known."""
        self.without_names = self.without_keys = False
        """No answer has paths to the program's own objects; or only such as have no keys, which are data."""
        self.is_copied_whole = False
        """All memory of a small process was copied, so that its blocks are looked at as a core's are."""
        self.constants: Dict[Any, Any] = {}
        """What was made of the constants of loaded objects, and other files, before the stop; by what made it."""
        self.coverage: Optional[Dict[str, Any]] = None
        """Of an answer about blocks: how much of the memory in which they may be was looked at (analysis/memory_verdict.py)."""
        self.world: Any = None
        """What recognisers have found out of memory that does not change: see CensusTarget.of."""
        self.process: Optional[StoppedProcess] = None
        """What was known of a process before it was stopped."""
        self.copied_bytes = 0
        """What a copy of its memory takes here."""
        self._kernel: Optional[CKernel] = None
        self._ram: Optional[Ram] = None
        self._discovery = discovery
        self._heaps: Optional[Heaps] = None

    @property
    def target(self) -> Target:
        """The process or core; HeapxError if there is none."""
        if self._target is None:
            raise HeapxError("no process or core to read", "give --pid N or --core FILE; in gdb: attach or core-file first", code=NO_TARGET)
        return self._target

    @property
    def has_target(self) -> bool:
        """False for `doctor` without a target."""
        return self._target is not None

    def of_process(self, pid: int) -> "Session":
        """A session with another process of this machine, which is never stopped. OSError or HeapxError where it cannot be read."""
        from gdbheapx.inferior.live.source import LiveSource
        from gdbheapx.inferior.target import DEBUG_DIRECTORY, ElfTarget

        session = Session(ElfTarget(LiveSource(pid, "", None), (DEBUG_DIRECTORY,)))
        session._kernel = self.kernel
        return session

    def walking(self, max_seconds: float) -> "Session":
        """A new look at the same process as it runs, with what is known of its allocators, and so much time for walks."""
        session = Session(self.target, Budget(max_seconds), discovery=self.discovery)
        session._kernel, session.heaps.may_be_none = self.kernel, True
        return session

    @property
    def kernel(self) -> "CKernel":
        """The native library; HeapxError, with how to get it, where it cannot be loaded."""
        if self._kernel is None:
            self._kernel = kernels.load_native_library()
        return self._kernel

    @property
    def ram(self) -> "Ram":
        """Return the reader of residency."""
        if self._ram is None:
            from gdbheapx.kernel.common.in_ram import Ram

            self._ram = Ram(self.target, self.kernel)
        return self._ram

    @property
    def discovery(self) -> "Discovery":
        """Return the discovery of allocators in the target, and of the owner of malloc."""
        if self._discovery is None:
            from gdbheapx.allocators.discovery import Discovery

            self._discovery = Discovery(self.target)
        return self._discovery

    @property
    def heaps(self) -> "Heaps":
        """The heaps that the command is about."""
        if self._heaps is None:
            from gdbheapx.allocators.discovery import Heaps
            from gdbheapx.allocators.records import HeapContext

            def make_context() -> HeapContext:
                return HeapContext(self.target, self.kernel, self.budget, self.report, self.ram)

            self._heaps = Heaps(self.discovery, make_context, self.problem, self.allocator_id)
        return self._heaps

    def stop_for(self, reads: Reads) -> Optional[float]:
        """Return the predicted milliseconds that a process running on this machine will be stopped for these reads; None if that is not
        known, or nothing is stopped for it.
        """
        process = self.process
        return None if process is None else predict_ms(in_stop(reads, process), process)

    def stands_still(self, reads: Reads) -> str:
        """` (pauses the process for about 12 ms, at most 2 s)`; nothing where that is not known."""
        predicted_ms, process = self.stop_for(reads), self.process
        if predicted_ms is None or process is None:
            return ""
        return " " + format_prediction(predicted_ms, self.target.max_stop_s or READ_STOP_S)

    def about_ram(self) -> None:
        """Notes what could not be determined of the pages that were asked for."""
        if self._ram is None:
            return
        if self._ram.was_missed:
            what = "cannot read /proc/%s/pagemap" % self.target.pid
            self.problem(problems.PAGEMAP_UNREADABLE, None, what, "so resident sizes are unknown; run as root")
        if self._ram.left_open:
            what = "without root this kernel does not show whether pages are shared with a forked process or are the zero page"
            what += ": resident sizes are unknown"
            self.problem(problems.SHARED_PAGES_UNKNOWN, None, what, "run as root, or on Linux 6.7 or later", partial=False)

    def about_swap(self, swapped_in_bytes: Optional[int]) -> None:
        """Notes what reading has brought in from swap."""
        if swapped_in_bytes:
            what = make_sentence("reading brought %s of the process's memory back from swap into RAM", SentenceSize(swapped_in_bytes))
            self.problem(problems.SWAPPED_IN, None, what, None, partial=False)

    def problem(
        self,
        code: ProblemCode,
        where: Optional[str],
        what: str,
        hint: Optional[str] = None,
        partial: bool = True,
        first: bool = False,
    ) -> None:
        """Record what could not be read or does not hold; partial unless it leaves the answer whole. `first`: the cause of others.

        What lacks only because the process had to go on is no fault of it: that is said once, by the runner.
        """
        self.partial = self.partial or partial
        if code.nature in (Severity.DAMAGE, Severity.UNREAD) and self.budget.is_past_stop:
            return
        same = [problem for problem in self.problems if (problem.where, problem.what) == (where, what)]
        for problem in same if first else ():  # a cause is told by its own code, and once
            self.problems.remove(problem)
        if (first or not same) and len(self.problems) < MAX_PROBLEMS:
            self.problems.insert(0 if first else len(self.problems), Problem(code, where, what, hint))

    def report(self, code: ProblemCode, address: Optional[int], what: str, hint: Optional[str]) -> None:
        """Record a problem from the models, as `problem` does: with the address in the target, and always partial."""
        self.problem(code, None if address is None else "0x%x" % address, what, hint)

    def kept(self, name: str, kind: Any, make: Callable[[], Made]) -> Made:
        """Return the result of make(), which a snapshot keeps of a command and from which its answer is made without memory. `kind`: its
        type.
        """
        return make() if self.store is None else self.store.kept(name, kind, make)

    def shared(self, name: str) -> Any:
        """Return the value that an earlier command of a snapshot's reading has made of memory; None if there is none, or this is no
        snapshot.
        """
        return None if self.store is None else self.store.shared(name)

    def share(self, name: str, value: Made) -> Made:
        """The value, kept for later commands of a snapshot's look."""
        if self.store is not None:
            self.store.share(name, value)
        return value

    def again(self) -> "Session":
        """A session that knows nothing of what this one saw, for a process that ran meanwhile."""
        self.target.forget()
        session = Session(self.target, self.budget, self.allocator_id)
        session.debugger_version = self.debugger_version
        session.prepare()
        return session

    def read_copy(self) -> None:
        """Find the allocators in the copy of the process: what was found while it ran was only for the choice of the moment."""
        self._discovery = self._heaps = None
        self.discovery.prepare()

    def prepare(self) -> None:
        """Do now, before a live process is stopped, whatever does not need it stopped (symbols, types, addresses)."""
        _ = self.kernel
        self.target.identity()
        now = self.target.anonymous_use() if not getattr(self.target, "held_by_gdb", True) else None
        self.discovery.prepare()
        if now is not None:
            anonymous_bytes, swapped_bytes, threads = now
            anonymous_bytes, count = anonymous_bytes + swapped_bytes, len(self.target.mappings())
            small_bytes, large_bytes = self._kinds_of_blocks()
            counted: Tuple[Optional[int], Optional[int]] = (None, None)
            if small_bytes and small_bytes >= COUNTED_BYTES and not swapped_bytes:
                counted = self._count_blocks(small_bytes)
            self.process = StoppedProcess(
                anonymous_bytes, threads, count, small_bytes, large_bytes, allowed_bytes(), *counted, has_swapped=bool(swapped_bytes)
            )

    def _count_blocks(self, small_bytes: int) -> Tuple[Optional[int], Optional[int]]:
        """Count the small blocks of a running process, and their words that may point to others; None if there are too many to be counted
        in so short a time, or they change meanwhile.
        """
        from gdbheapx.allocators.answers import most_pointers

        session = self.walking(min(COUNTING_S * small_bytes / GIB, MOST_COUNTING_S))
        try:
            heaps = session.heaps.all()
            blocks = sum(row.used_chunks + row.free_chunks for heap in heaps for row in heap.histogram())
            if session.budget.reason is not None or any(one.code.nature in (Severity.DAMAGE, Severity.UNREAD) for one in session.problems):
                return None, None
            return blocks, most_pointers(self.target, [claim for heap in heaps for claim in heap.claims()], small_bytes)
        except (HeapxError, MemoryError):
            return None, None

    def _kinds_of_blocks(self) -> Tuple[Optional[int], int]:
        """Bytes of small blocks, and of large ones, by the counters of a process that may run; None where an allocator has none."""
        from gdbheapx.allocators.answers import make_empty_reading

        try:
            meters = [heap.capabilities["meter"]() if "meter" in heap.capabilities else None for heap in self.walking(0.0).heaps.all()]
            readings = [make_empty_reading(()) if meter is None else meter.read(0.0) for meter in meters]
        except HeapxError:
            return None, 0
        large_bytes = sum(reading.large_bytes or 0 for reading in readings)
        small = [reading.walked_bytes for reading in readings]
        return (None if None in small else sum(reading or 0 for reading in small)), large_bytes
