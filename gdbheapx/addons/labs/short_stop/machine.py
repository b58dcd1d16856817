"""Requirements of a machine for two system calls of a thread that then goes on by itself."""

from typing import Callable, NamedTuple, Optional, Sequence, Tuple

NO_STACK_FLAGS = 0x10
"""ss_flags that sigaltstack(2) refuses, so that sigreturn leaves the thread's other stack as it is, which ptrace does not show."""
ALL_SIGNALS = (1 << 64) - 1


class Injecting(NamedTuple):
    """Requirements for a thread to make two system calls and continue by itself, even if no tracer holds it any more. Frames below its
    stack, as the kernel makes them for a signal, bring it from one call to the next and back. `words` are its general registers, in the
    order of Architecture.registers, `state` what Calling.state_set has.
    """

    call_and_return: bytes
    """Code that makes a system call and returns."""
    come_back: Sequence[bytes]
    """Code that goes on as the frame below the stack pointer says, as at the end of signal handlers in the C library. The first found."""
    against: Callable[[Sequence[int], bytes, Callable[[int], bytes]], Optional[str]]
    """(words, state, a register set by its number) -> why not on this thread."""
    rank: Callable[[Sequence[int]], int]
    """How well it suits; the lowest first."""
    base: Callable[[Sequence[int], bytes], int]
    """(words, state) -> where the frames begin, which end below the part of the stack that is in use."""
    frames: Callable[..., bytes]
    """(words, state, signal mask, base, call_and_return's address, come_back's, number and argument of the second call) -> what is there
    before the first call."""
    call: Callable[[Sequence[int], int, int, int, int, int], Sequence[int]]
    """(words, where the frame behind the call begins, call_and_return's address, come_back's, number, argument) -> registers with which the
    thread makes a call."""
    frame_bytes: int
    """Of the first frame, which is behind the first call; then comes that of the second."""
    argument_at: int
    """Where the frames have the second call's argument, in bytes from their base."""
    cancelled: Callable[[Sequence[int]], Tuple[int, bytes]]
    """(words at the entry of a system call) -> a register set, and with which contents of it the kernel makes no call."""
