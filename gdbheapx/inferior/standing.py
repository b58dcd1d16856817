"""A stopped thread with its stack, and how a call on it ended: the records of gdb/hold.py and gdb/call.py."""

from typing import NamedTuple, Optional, Sequence


class Frame(NamedTuple):
    """One frame of a stack."""

    pc: int
    name: Optional[str]
    is_signal: bool
    """The kernel's frame of a signal handler."""


class Standing(NamedTuple):
    """One stopped thread."""

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
        """It is in one."""
        return self.system_call is not None

    @property
    def who(self) -> str:
        """For messages."""
        return "thread %d (%s)" % (self.lwp, self.name) if self.name else "thread %d" % self.lwp


class Ran(NamedTuple):
    """Why a process that was let run stopped again."""

    signals: Sequence[str]
    """Names of those that stopped it."""
    late: bool
    """Its time was up."""
    error: Optional[str]
    """What gdb said where it could not let it run, or was interrupted."""


class Outcome(NamedTuple):
    """How a call ended."""

    returned: Optional[int]
    """None if it did not return in the ordinary way, see `trouble`."""
    elapsed_ms: float
    trouble: Optional[str]
    """What went wrong."""
    finished: bool = True
    """The function ran to its end, whatever gdb says."""
