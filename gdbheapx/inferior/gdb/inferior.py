"""Access a process that gdb holds: threads, frames, registers, memory, breakpoints, one function for each of them. call.py
determines the order and sees nothing of gdb itself: addresses and registers are integers, a thread is identified by its lwp, and gdb's
errors are raised as GdbError with gdb's text in one line.
"""

import signal
from typing import Any, Callable, Dict, List, Optional, Sequence, Tuple, TypeVar

import gdb

from gdbheapx.common.errors import HeapxError
from gdbheapx.common.problems import GDB_FAILED, NOT_FOUND
from gdbheapx.inferior.base import Frame, StoppedThread
from gdbheapx.inferior.gdb.target import call_in_every_thread, execute_gdb, try_gdb, unsigned_register

MAX_FRAMES = 4096
"""Deeper stacks count as not unwound to their end."""

Function = TypeVar("Function", bound=Callable[..., Any])


class GdbError(HeapxError):
    """gdb could not do it; the message is gdb's."""

    code = GDB_FAILED


def raise_gdb_errors(function: Function) -> Function:
    """The function with gdb's errors as GdbError."""

    def call_raising(*arguments: Any) -> Any:
        try:
            return function(*arguments)
        except gdb.error as error:  # gdb.MemoryError is one
            raise GdbError(" ".join(str(error).split()))

    call_raising.__doc__ = function.__doc__
    return call_raising  # type: ignore[return-value]


# ---------------------------------------------------------------------------------------------------- threads and frames


@raise_gdb_errors
def read_stacks(in_time: Callable[[], None], asking: Optional[str]) -> List[StoppedThread]:
    """Return every thread, with gdb's name for it. `in_time` raises where there is no time for a further one. `asking`: the register with
    the number of a system call, which counts as one here whatever it is."""

    def read_stack(thread: Any) -> StoppedThread:
        in_time()
        frame = gdb.newest_frame()
        pc, sp = unsigned_register(frame.read_register("pc")), unsigned_register(frame.read_register("sp"))
        try:
            asked = unsigned_register(frame.read_register(asking)) if asking is not None else None
        except (ValueError, gdb.error):
            asked = None
        return StoppedThread(thread.ptid[1], thread.name, pc, sp, asked, *unwind_frames(frame))

    past_main = gdb.parameter("backtrace past-main")
    try_gdb("set backtrace past-main on")
    try:
        return call_in_every_thread(read_stack)
    finally:
        try_gdb("set backtrace past-main %s" % ("on" if past_main else "off"))


def unwind_frames(frame: Any) -> Tuple[List[Frame], bool]:
    """The frames from this one on, and whether the last one is the thread's first function."""
    frames: List[Frame] = []
    while frame is not None and len(frames) < MAX_FRAMES:
        try:
            frames.append(Frame(unsigned_register(frame.pc()), frame.name(), frame.type() == gdb.SIGTRAMP_FRAME))
            older = frame.older()
            reason = frame.unwind_stop_reason()
        except (gdb.error, ValueError):
            return frames, False
        if older is None:
            return frames, reason == gdb.FRAME_UNWIND_OUTERMOST
        frame = older
    return frames, False


def disassemble_range(start: int, end: int) -> Optional[List[str]]:
    """The instructions of a range; None if gdb cannot."""
    try:
        return [str(instruction["asm"]) for instruction in gdb.newest_frame().architecture().disassemble(start, end - 1)]
    except gdb.error:
        return None


@raise_gdb_errors
def select_thread(lwp: int) -> None:
    """Select a thread and its newest frame; HeapxError if it is gone."""
    for thread in gdb.selected_inferior().threads():
        if thread.ptid[1] == lwp:
            thread.switch()
            gdb.newest_frame().select()
            return
    raise HeapxError("thread %d has exited" % lwp, code=NOT_FOUND)


@raise_gdb_errors
def find_call_in_progress() -> Optional[Tuple[int, int]]:
    """Return pc and sp of the frame from which gdb's own call was made, if one is still on the selected thread's stack."""
    frame: Any = gdb.newest_frame()
    for _ in range(MAX_FRAMES):
        if frame is None:
            return None
        if frame.type() == gdb.DUMMY_FRAME:
            return unsigned_register(frame.pc()), unsigned_register(frame.read_register("sp"))
        try:
            frame = frame.older()
        except gdb.error:
            return None
    return None


@raise_gdb_errors
def leave_function() -> None:
    """gdb's `return` from the newest frame: of a call of its own it sets the registers back."""
    gdb.newest_frame().select()
    try_gdb("with confirm off -- return")


# ---------------------------------------------------------------------------------------------------- registers and memory


@raise_gdb_errors
def read_register(name: str) -> int:
    """Read a register of the selected thread's newest frame, as an unsigned 64-bit integer."""
    return unsigned_register(gdb.newest_frame().read_register(name))


@raise_gdb_errors
def read_registers(names: Sequence[str]) -> Dict[str, int]:
    """Read several registers of the selected thread."""
    frame = gdb.newest_frame()
    return {name: unsigned_register(frame.read_register(name)) for name in names}


@raise_gdb_errors
def set_register(name: str, value: int) -> None:
    """Write one general register of the selected thread; a value of 64 bits, signed or not.

    In an older frame a register is the place where it was saved, so the newest one is selected first each time: after a write to
    the stack pointer gdb selects the frame that has the id of the one before, and stale frames below can have it. Flags take a number
    of their own size alone.
    """
    gdb.newest_frame().select()
    bits = 8 * int(gdb.newest_frame().read_register(name).type.sizeof)
    value &= (1 << bits) - 1
    given = "%d" % (value - (1 << bits) if value >> bits - 1 else value)
    gdb.execute("set $%s = %s" % (name, "(int) " + given if bits == 32 else given), False, True)


@raise_gdb_errors
def read_vector_register(halves: str) -> int:
    """A register of the selected thread as one integer, by gdb's expression for its two halves."""
    value = gdb.parse_and_eval(halves)
    return (unsigned_register(value[1]) << 64) | unsigned_register(value[0])


@raise_gdb_errors
def write_vector(halves: str, value: int) -> None:
    """Write its lower half: gdb errors where it cannot write the CPU's extended state."""
    lower = value & 0xFFFFFFFFFFFFFFFF
    gdb.execute("set %s[0] = (long) 0x%xUL" % (halves, lower), False, True)


def flush_registers() -> None:
    """Have gdb read the registers again."""
    if try_gdb("maint flush register-cache") is None:
        try_gdb("flushregs")


@raise_gdb_errors
def write_inferior_memory(address: int, data: bytes) -> None:
    """Write memory of the process."""
    gdb.selected_inferior().write_memory(address, data)


# ---------------------------------------------------------------------------------------------------- letting it run


@raise_gdb_errors
def evaluate_integer(expression: str) -> int:
    """An integer by gdb's own evaluation; it may call functions of the process. KeyboardInterrupt comes through."""
    return int(gdb.parse_and_eval(expression))


@raise_gdb_errors
def continue_process() -> None:
    """Let the process run until something stops it. KeyboardInterrupt comes through."""
    gdb.execute("continue", False, True)


class StopSignals:
    """The names of the signals that stop the process, from `listen` to `close`; other stops count as empty names."""

    def __init__(self) -> None:
        self.names: List[str] = []

    def listen(self) -> None:
        """Start to record."""
        gdb.events.stop.connect(self._record_stop)

    def close(self) -> None:
        """No longer."""
        gdb.events.stop.disconnect(self._record_stop)

    def _record_stop(self, event: Any) -> None:
        self.names.append(getattr(event, "stop_signal", ""))


@raise_gdb_errors
def set_hardware_breakpoint(address: int) -> Any:
    """Set a breakpoint that writes nothing into the program's code; it has `delete`."""
    kind = getattr(gdb, "BP_HARDWARE_BREAKPOINT", None)
    return TypedBreakpoint(address) if kind is None else gdb.Breakpoint("*0x%x" % address, kind, internal=True)


class TypedBreakpoint:
    """A hardware breakpoint set by gdb's command, for gdb 10, whose Python has none; it takes a number of the user's."""

    def __init__(self, address: int) -> None:
        execute_gdb("hbreak *0x%x" % address)
        self.number = unsigned_register(gdb.parse_and_eval("$bpnum"))

    def delete(self) -> None:
        """Delete it."""
        try_gdb("delete %d" % self.number)


def explain_end() -> Optional[str]:
    """Return how the process ended while gdb held it, or None."""
    if gdb.selected_inferior().pid:
        return None
    for name, what in (("_exitsignal", "signal %s"), ("_exitcode", "exit code %d")):
        value = gdb.parse_and_eval("$" + name)
        if value.type.code != gdb.TYPE_CODE_VOID:
            return what % (format_signal(int(value)) if name == "_exitsignal" else int(value))
    return "the cause is unknown"


def format_signal(value: int) -> str:
    """`31 (SIGSYS, seccomp)`."""
    try:
        name = signal.Signals(value).name
    except ValueError:
        return str(value)
    return "%d (%s)" % (value, {"SIGSYS": "SIGSYS, seccomp", "SIGKILL": "SIGKILL, by somebody or for lack of memory"}.get(name, name))


def unwinds_failed_calls() -> bool:
    """gdb 10 takes a call that a signal ended off the stack itself: gdb can freeze when registers are written during one.

    So its calls get no second chance with the other threads running.
    """
    return not hasattr(gdb, "BP_HARDWARE_BREAKPOINT")


def read_whole_version() -> str:
    """gdb's version with what the distribution adds."""
    return str(gdb.VERSION)
