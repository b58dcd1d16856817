"""Choose the thread that makes the call: one in a system call, outside the allocator, on a stack of its own with room left."""

import re
from typing import TYPE_CHECKING, Callable, List, NamedTuple, Optional, Sequence, Tuple

from gdbheapx.actions.inside import ThreadsInside
from gdbheapx.inferior.base import Mapping, Module
from gdbheapx.inferior.standing import StoppedThread

if TYPE_CHECKING:
    from gdbheapx.inferior.gdb.call import GdbControl

ROOM_BYTES = 32 << 10
"""What must be left of a thread's stack; malloc_trim and purging take a few kilobytes."""
LOADER = ("ld-linux", "ld-2", "ld-musl", "ld.so", "ld64")
LIBC = re.compile(r"(libc|libpthread)[.-]")


class Choice(NamedTuple):
    """The thread that may be called on, or why none may."""

    thread: Optional[StoppedThread]
    reasons: Sequence[str]
    """One sentence for each thread that may not."""


def choose_caller(
    threads: Sequence[StoppedThread],
    inside: ThreadsInside,
    mappings: Sequence[Mapping],
    pointers: Sequence[Tuple[int, Optional[int]]],
    pid: int,
    suits: Callable[[StoppedThread], Optional[str]],
    system_call_only: bool,
) -> Choice:
    """The best thread: the main thread in a system call, another in one, one that runs the program's own code.

    pointers: (lwp, thread pointer). suits: what the allocator says against a thread. system_call_only: the last is not enough.
    """
    ranked: List[Tuple[int, StoppedThread]] = []
    reasons = []
    known = dict(pointers)
    for thread in threads:
        reason = inside.why(thread) or _find_objection(thread, mappings, known.get(thread.lwp), pid, system_call_only) or suits(thread)
        if reason is not None:
            reasons.append(reason)
        else:
            ranked.append(((0 if thread.lwp == pid else 1) if thread.in_system_call else 2, thread))
    return Choice(min(ranked, key=lambda one: one[0])[1] if ranked else None, reasons)


def _find_objection(
    thread: StoppedThread, mappings: Sequence[Mapping], pointer: Optional[int], pid: int, system_call_only: bool
) -> Optional[str]:
    if system_call_only and not thread.in_system_call:
        return "%s is not in a system call" % thread.who
    if any(frame.is_signal for frame in thread.frames):
        return "%s is handling a signal, and the interrupted code is unknown" % thread.who
    if not thread.in_system_call and not thread.whole:
        return "%s runs code that gdb cannot unwind" % thread.who
    for frame in thread.frames:
        place = next((mapping for mapping in mappings if mapping.start <= frame.pc < mapping.end), None)
        if place is not None and place.name.rsplit("/", 1)[-1].startswith(LOADER):
            return "%s is in the dynamic linker" % thread.who
    span = next((mapping for mapping in mappings if mapping.start <= thread.sp < mapping.end), None)
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


def _is_libc(module: Module) -> bool:
    return LIBC.match(module.file_name) is not None


def against_registers(control: "GdbControl", thread: StoppedThread) -> List[str]:
    """Return the reason why the call may not be made with the general registers alone on this thread; empty if there is none. Its
    innermost frame must be a function of the C library that uses no vector register and was entered by an ordinary call: there the ABI
    lets the callee change all of them, so that the caller keeps nothing there. A system call that a compiler put into the program itself
    may have values in them.
    """
    who, target = thread.who, control.target
    if len(thread.frames) < 2 or any(frame.is_signal for frame in thread.frames):
        return ["%s: the caller of its system call is unknown" % who]
    modules = [target.module_at(frame.pc) for frame in thread.frames]
    first, outer = modules[0], next((module for module in modules if module is None or not _is_libc(module)), None)
    if first is None or not _is_libc(first):
        return ["%s: its system call is not in the C library: vector registers may hold live values" % who]
    if outer is None:
        return ["%s: its system call was not called from a loaded object" % who]
    span = control.function_span(first, thread.frames[0])
    code = control.disassemble(*span) if span is not None else None
    if code is None:
        return ["%s: the bounds of the function with its system call are unknown" % who]
    if any(re.search(control.machine.vector_operand, line) for line in code):
        return ["%s: the function with its system call uses vector registers" % who]
    return []
