"""Which thread makes the call: one in a system call, outside the allocator, on a stack of its own with room left."""

from typing import Callable, List, NamedTuple, Optional, Sequence, Tuple

from gdbheapx.actions.inside import Inside
from gdbheapx.inferior.base import Mapping, Module
from gdbheapx.inferior.standing import Standing

ROOM_BYTES = 32 << 10
"""What must be left of a thread's stack; malloc_trim and purging take a few kilobytes."""
LOADER = ("ld-linux", "ld-2", "ld-musl", "ld.so", "ld64")


class Choice(NamedTuple):
    """The thread that may be called on, or why none may."""

    thread: Optional[Standing]
    reasons: Sequence[str]
    """One sentence for each thread that may not."""


def choose(
    threads: Sequence[Standing],
    inside: Inside,
    mappings: Sequence[Mapping],
    modules: Sequence[Module],
    pointers: Sequence[Tuple[int, Optional[int]]],
    pid: int,
    suits: Callable[[Standing], Optional[str]],
    system_call_only: bool,
) -> Choice:
    """The best thread: the main thread in a system call, another in one, one that runs the program's own code.

    pointers: (lwp, thread pointer). suits: what the allocator says against a thread. system_call_only: the last is not enough.
    """
    ranked: List[Tuple[int, Standing]] = []
    reasons = []
    known = dict(pointers)
    for thread in threads:
        reason = inside.why(thread) or _against(thread, mappings, modules, known.get(thread.lwp), pid, system_call_only) or suits(thread)
        if reason is not None:
            reasons.append(reason)
        else:
            ranked.append(((0 if thread.lwp == pid else 1) if thread.in_system_call else 2, thread))
    return Choice(min(ranked, key=lambda one: one[0])[1] if ranked else None, reasons)


def _against(
    thread: Standing, mappings: Sequence[Mapping], modules: Sequence[Module], pointer: Optional[int], pid: int, system_call_only: bool
) -> Optional[str]:
    if system_call_only and not thread.in_system_call:
        return "%s is not in a system call" % thread.who
    if any(frame.is_signal for frame in thread.frames):
        return "%s is handling a signal: it is unknown what the signal interrupted" % thread.who
    if not thread.in_system_call and not thread.whole:
        return "%s runs code that gdb cannot unwind" % thread.who
    for frame in thread.frames:
        place = next((one for one in mappings if one.start <= frame.pc < one.end), None)
        if place is not None and place.name.rsplit("/", 1)[-1].startswith(LOADER):
            return "%s is in the dynamic linker" % thread.who
    span = next((one for one in mappings if one.start <= thread.sp < one.end), None)
    if span is None:
        return "the stack pointer of %s is in no mapping" % thread.who
    if span.name == "[stack]" and thread.lwp == pid:
        return None
    # a pthread's thread pointer is above its stack in one mapping, to which the kernel may have joined what was mapped behind it
    if thread.lwp == pid or pointer is None or not span.start <= thread.sp < pointer < span.end:
        return "%s runs on a stack that is not its own (a coroutine or a signal stack)" % thread.who
    if thread.sp - span.start < ROOM_BYTES:
        return "%s has only %d bytes of its stack left" % (thread.who, thread.sp - span.start)
    return None
