"""Stopped threads: with their stacks, how a call on one ended (gdb/hold.py, gdb/call.py), and which ran in an object."""

from typing import NamedTuple, Optional, Sequence, Set

from gdbheapx.inferior.base import Module, Target, Thread

MEMORY_CALLS = ("brk", "mmap", "munmap", "mprotect", "madvise")
"""System calls that an allocator makes in the middle of a change."""


class Frame(NamedTuple):
    """A frame of a stack."""

    pc: int
    name: Optional[str]
    is_signal: bool
    """The kernel's frame of a signal handler."""


class StoppedThread(NamedTuple):
    """A stopped thread."""

    lwp: int
    name: Optional[str]
    pc: int
    sp: int
    system_call: Optional[int]
    """Number of the system call that the kernel interrupted it in, its program counter behind the instruction; None if it is in none."""
    frames: Sequence[Frame]
    """Innermost first."""
    whole: bool
    """Unwound to the thread's first function; otherwise frames may be missing."""

    @property
    def in_system_call(self) -> bool:
        """True if the kernel interrupted it in a system call."""
        return self.system_call is not None

    @property
    def who(self) -> str:
        """Name in messages."""
        return "thread %d (%s)" % (self.lwp, self.name) if self.name else "thread %d" % self.lwp


class ProcessRun(NamedTuple):
    """Reason why a process that was let run stopped again."""

    signals: Sequence[str]
    """Names of those that stopped it."""
    late: bool
    """Its time was up."""
    error: Optional[str]
    """What gdb said where it could not let it run, or was interrupted."""


class CallOutcome(NamedTuple):
    """Result of a call into the process."""

    returned: Optional[int]
    """None if it did not return in the ordinary way, see `trouble`."""
    elapsed_ms: float
    trouble: Optional[str]
    """What went wrong."""
    finished: bool = True
    """The function ran to its end, whatever gdb says."""


def find_running_threads(target: Target, module: Module) -> Set[int]:
    """Return the ids of threads that were stopped in the code of an object, but for those that wait in a system call."""
    ranges = target.code_ranges(module)
    inside = (thread for thread in target.threads() if thread.pc is not None and any(start <= thread.pc < end for start, end in ranges))
    return {thread.lwp for thread in inside if not _is_waiting(target, thread)}


def _is_waiting(target: Target, thread: Thread) -> bool:
    shown, layout, calls = target.arch.in_system_call, target.arch.registers, target.arch.system_calls
    if shown is None or not shown.shows(thread.pc or 0, target.read_prefix):
        return False
    words = target.register_words(thread)
    if layout is None or calls is None or len(words) < len(layout.names):
        return True
    number = words[layout.names.index(shown.number)]
    return number >> 63 == 0 and number not in [calls.numbers[name] for name in MEMORY_CALLS]
