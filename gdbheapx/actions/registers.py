"""Whether a call may be made with the general registers alone: only where the vector registers hold nothing that is needed again."""

import re
from typing import List

from gdbheapx.inferior.base import Module
from gdbheapx.inferior.gdb.call import Control
from gdbheapx.inferior.standing import Standing

LIBC = re.compile(r"(libc|libpthread)[.-]")


def _is_libc(module: Module) -> bool:
    return LIBC.match(module.file_name) is not None


def against(control: Control, thread: Standing) -> List[str]:
    """Why not on this thread; empty if nothing speaks against it.

    Its innermost frame must be a function of the C library that uses no vector register and was entered by an ordinary call: there
    the ABI lets the callee change all of them, so that the caller keeps nothing there. A system call that a compiler put into the
    program itself may have values in them.
    """
    who, target = thread.who, control.target
    if len(thread.frames) < 2 or any(frame.is_signal for frame in thread.frames):
        return ["%s: the caller of its system call is unknown" % who]
    modules = [target.module_at(frame.pc) for frame in thread.frames]
    first, outer = modules[0], next((one for one in modules if one is None or not _is_libc(one)), None)
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
