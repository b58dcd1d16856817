"""Stops a live process for one command: what that will take is said first, its locks are read, and it is copied where that is shorter."""

import gc
import time
from importlib import import_module
from typing import TYPE_CHECKING, Any, Callable, List, Optional, Protocol, Sequence, Set

from gdbheapx.allocators.session import Session
from gdbheapx.analysis.memory.kinds import OF_KERNEL, is_device
from gdbheapx.command import ParsedCommand
from gdbheapx.command.output import Spool
from gdbheapx.common import addon_loader, problems, stops, units
from gdbheapx.common.errors import HeapxError
from gdbheapx.common.stops import Reads
from gdbheapx.inferior.base import Mapping, MappingUse, Target
from gdbheapx.inferior.live.usage import is_fuse
from gdbheapx.kernel.common.copy import TAKES_ALL, TAKES_OWN, CopiedRange, Copy

if TYPE_CHECKING:
    from gdbheapx.inferior.target import ElfTarget
    from gdbheapx.kernel.binding import CKernel

MOST_MOMENTS, PAUSE_S = 9, 0.002
"""How often a process is stopped, and how long it runs between, until no thread is in the middle of a change of a heap."""
TRIES = 3
"""How often a live process is prepared again because it loaded or unloaded an object meanwhile."""
MOST_STOPS = 16
"""Of one copy."""
IN_SEVERAL = "it is copied in several pauses"
COPIED_IN_SEVERAL = "its memory was copied in %d pauses of at most %g s, from low addresses to high ones: later pauses may show later data"

TakeRest = Callable[[Sequence[CopiedRange], Any, Any], Optional[int]]
"""What is to be copied, the process's source and the deadline, as Copy.take has them, give where the copy ended."""


class RunningCopy(Protocol):
    """Process that an add-on copied while it ran, except its last pages."""

    by_marks: bool

    def finish(self) -> Optional[bool]:
        """Take the stop. None: it has to be taken as for other readings; else as Target.stop."""

    def end(self) -> None:
        """Leave the process as it was."""


class Copying:
    """Copy of one process, for all readings of it."""

    def __init__(self, kernel: "CKernel", copy: Copy) -> None:
        self.kernel, self.copy = kernel, copy
        self._devices: Set[int] = set()
        self._closed: Set[int] = set()
        self.left: Optional[int] = None
        """Where the copy goes on in the next stop; None: it is whole."""
        self.take_rest: Optional[TakeRest] = None
        """Copies what an add-on, which has copied the process while it ran, has left for the stop."""
        self.is_marked = False
        """The kernel's marks of writes were cleared for this copy: they are cleared once."""

    def prepare(self, target: Target) -> int:
        """Make memory present for all that there is to copy, while the process runs: its bytes."""
        use, _ = target.memory_use(), target.huge_pages()  # the machine's setting is asked for now
        room = target.swap_room()
        if room is not None:
            room.renew()  # before the first page in swap is read
        uses: Sequence[MappingUse] = use.mappings if use is not None else ()
        is_served = (use.mapping.start for use in uses if use.mapping.shared and is_fuse(use.filesystem))
        self._devices = {*(use.mapping.start for use in uses if is_device(use)), *is_served}
        self._closed = {use.mapping.start for use in uses if not use.mapping.readable and (use.resident_bytes or use.swapped_bytes)}
        return self.copy.prepare(self.list_ranges(target.mappings()))

    def take(self, target: Any) -> Optional[int]:
        """Copy it, and let it run on. None: all of it; else the address from which on there was no time: take() goes on with what is left,
        once it is stopped again."""
        source, ranges = self.kernel.open_apart(target.bulk_source()), self.list_ranges(target.mappings())

        def take_copy() -> None:
            until = target.still.until
            rest = self.take_rest
            self.left = self.copy.take(ranges, source, until, self.left or 0) if rest is None else rest(ranges, source, until)

        target.keep(self.copy, take_copy)
        return self.left

    def list_ranges(self, mappings: Sequence[Mapping]) -> List[CopiedRange]:
        """Return what is copied of a process with these mappings."""
        return copied_ranges(mappings, self._devices, self._closed)


def copied_ranges(mappings: Sequence[Mapping], devices: Set[int], closed: Set[int]) -> List[CopiedRange]:
    """Return the ranges of a process that can change, or be lost: private memory, the pages of mapped files that differ from the file,
    and shared memory that it may write to. `devices`: begins of mappings of devices, and of shared ones of files on FUSE; `closed`:
    begins of those with content that the process may not read now.
    """
    ranges: List[CopiedRange] = []
    for mapping in mappings:
        if not (mapping.readable or mapping.start in closed) or mapping.name.startswith(OF_KERNEL) or mapping.start in devices:
            continue
        if not mapping.shared:
            ranges.append((mapping.start, mapping.end, TAKES_ALL if mapping.is_untouched_zero else TAKES_OWN))
        elif mapping.writable:
            ranges.append((mapping.start, mapping.end, TAKES_ALL))
    return ranges


class LiveStop:
    """Stop of a live process for one command."""

    def __init__(
        self, target: "ElfTarget", parsed: ParsedCommand, begin_session: Callable[[], Session], warn: Callable[[str], None]
    ) -> None:
        """`begin_session`: for each try a new one. `warn`: shows one line before the process is stopped."""
        self._target, self._command, self._options = target, parsed.command, parsed.options
        self._begin_session, self._warn = begin_session, warn
        self._wants_short_stop = bool(getattr(parsed.options, "short_stop", False))
        self._copying: Optional[Copying] = None
        self._has_warned = self._is_confirmed = self._collects_garbage = False
        self.spool: Optional[Spool] = None
        """Keeps the answer back while the process is paused; None where a copy is read."""
        self.predicted_ms: Optional[float] = None
        """How long the process was to be stopped."""

    def stop_process(self) -> bool:
        """Look up what the command needs, then stop the process. False: the command has it run on, or has gdb hold it."""
        for attempt in range(TRIES):
            session = self._begin_session()
            try:
                session.prepare()
            except HeapxError:
                pass  # the command itself will say so, or do without
            if self._command.repeats or self._command.acts is not None and self._command.acts(self._options):
                return False
            for module in self._command.needs:
                import_module(module)
            if self._command.settle is not None:
                self._command.settle(session, self._options)
            reads = self._command.reads(self._options) if self._command.reads is not None else None
            self._predict_stop(session, reads)
            copying = self._make_copying(session, reads or Reads.STATE)
            if copying is None and self.spool is None:
                self.spool = Spool()
            self._collects_garbage = self._collects_garbage or gc.isenabled()
            gc.disable()
            short = self._begin_short_stop(session, copying)
            try:
                is_same = short.finish() if short is not None else None
                is_copied = is_same is not None
                if (is_same if is_copied else self._stop_between_changes(session)) or attempt == TRIES - 1:
                    if copying is not None:
                        self._copy_process(session, copying, is_copied)
                        session.read_copy()
                    break
                self._target.let_go()
                self.collect_garbage()
                self._target.forget()
            finally:
                if short is not None:
                    short.end()
        return True

    def collect_garbage(self) -> None:
        """Put Python's collector back on, if it was on."""
        if self._collects_garbage:
            gc.enable()

    def _stop_between_changes(self, session: Session) -> bool:
        """Stop the process, and again a moment later where an allocator's lock is held. False if it loaded or unloaded an object."""
        for moment in range(MOST_MOMENTS):
            is_same = bool(self._target.stop())
            if not is_same or moment == MOST_MOMENTS - 1 or not session.discovery.is_locked():
                break
            self._target.let_go()
            time.sleep(PAUSE_S)
        return is_same

    def _make_copying(self, session: Session, reads: Reads) -> Optional[Copying]:
        """Return the object that copies the process in its stop, with memory for that present, or None if the process is read in its
        stop.
        """
        if session.process is None:  # nothing is known of its size
            return None
        table = self._target.page_table()
        if table is None or stops.in_stop(reads, session.process) != Reads.COPY:
            self._say_not_copied(session, reads, "its page table cannot be read" if table is None else None)
            return None
        try:
            if self._copying is None:
                self._copying = Copying(session.kernel, session.kernel.copy(table))
            session.copied_bytes = self._copying.prepare(self._target)
        except (FileNotFoundError, ProcessLookupError):  # it is gone: what stops it says so
            self._copying = None
        except (MemoryError, OSError) as error:
            self._copying = None
            why = error.strerror if isinstance(error, OSError) else "a limit of this process or machine left no memory for that"
            self._say_not_copied(session, reads, why)
        return self._copying

    def _begin_short_stop(self, session: Session, copying: Optional[Copying]) -> Optional[RunningCopy]:
        """Return the object that has copied the process while it runs, if --short-stop asks for that and nothing prevents it; else the
        reason is reported, None returned and the process copied in its stop.
        """
        if not self._wants_short_stop or session.process is None:
            return None
        labs = addon_loader.load_capability("short_stop", "--short-stop")
        short: Optional[RunningCopy] = labs.begin_short_stop(session, copying, self._options, self._confirm_short_stop)
        if short is not None:
            self.predicted_ms = stops.predict_short_ms(session.process, short.by_marks)
        return short

    def _confirm_short_stop(self, question: str) -> None:
        """Refusal unless the user agrees that two system calls are made in the process; asked once."""
        from gdbheapx.actions import preflight

        if not self._is_confirmed:
            preflight.require_confirmed(self._options, question, "omit --short-stop")
            self._is_confirmed = True

    def _say_not_copied(self, session: Session, reads: Reads, why: Optional[str] = None) -> None:
        """Before the stop, where a copy was wanted: this stop lasts for as long as the process is looked at. `why`: not for
        its size."""
        assert session.process is not None
        if reads not in (*stops.NO_HALVES, Reads.CHECK):
            return
        process, pid = session.process, session.target.pid
        lasting = stops.format_about(stops.predict_ms(reads, process))
        if why is None:
            needed, allowed = units.SentenceSize(stops.copy_bytes(reads, process)), units.SentenceSize(process.room_bytes)
            what = units.make_sentence(
                "there was no room for a copy and its tables: they need %s, and gdbheapx may use %s", needed, allowed
            )
            stands, hint = "there is no room for a copy of process %s" % pid, "allow more memory here, or ask of a core of it (gcore PID)"
        else:
            what = units.make_sentence("it could not be copied: %s", why)
            stands, hint = "process %s cannot be copied (%s)" % (pid, why), "ask of a core of it (gcore PID)"
        session.problem(problems.NOT_COPIED, None, what, hint, partial=False)
        self._warn_once("%s: it is paused while it is read, %s" % (stands, lasting))

    def _warn_once(self, line: str) -> None:
        if not self._has_warned:
            self._has_warned = True
            self._warn(line)

    def _copy_process(self, session: Session, copying: Copying, is_begun: bool) -> None:
        """Copy a process that is stopped, and let it run on; in several stops where one would be too long. `is_begun`: the first one is
        over."""
        left, stood = copying.left if is_begun else copying.take(self._target), 1
        while left is not None and stood < MOST_STOPS:
            time.sleep(PAUSE_S)
            self._target.stop()
            before, left, stood = left, copying.take(self._target), stood + 1
            if left == before:  # one mapping alone takes longer
                break
        limit_s = self._target.max_stop_s or 0
        hint = stops.next_step(self.predicted_ms, limit_s)
        if left is not None:
            what = "the process had to run on after --max-stop %g before its memory from here on was copied" % limit_s
            session.problem(problems.STOP_LIMIT, "0x%x" % left, what, hint)
        if stood > 1:
            session.problem(problems.SEVERAL_MOMENTS, None, COPIED_IN_SEVERAL % (stood, limit_s), hint)

    def _predict_stop(self, session: Session, reads: Optional[Reads]) -> None:
        """Say before a process is stopped how long that will last; HeapxError where it may not last long enough for any answer."""
        self.predicted_ms = session.stop_for(reads) if reads is not None else None
        limit_s = self._target.max_stop_s
        if limit_s is None or reads is None:
            return
        self._target.still.next_step = stops.next_step(self.predicted_ms, limit_s)
        process = session.process
        if self.predicted_ms is None or process is None or self.predicted_ms <= limit_s * 1000:
            return
        if self._has_warned or self._wants_short_stop:
            return
        lasting = stops.format_about(self.predicted_ms)
        what = "this would stop process %s for %s, longer than --max-stop %g" % (self._target.pid, lasting, limit_s)
        is_copied = stops.in_stop(reads, process) == Reads.COPY
        if not is_copied and stops.is_hopeless(reads, self.predicted_ms, limit_s):
            raise HeapxError(what + ": it was not stopped", stops.next_step(self.predicted_ms, limit_s), code=problems.STOP_LIMIT)
        self._warn_once("%s: %s" % (what, IN_SEVERAL if is_copied else "the answer may be partial"))
