"""Whether a call may be made with the general registers alone: only where the vector registers hold nothing that is needed again."""

import re
from typing import List

from gdbheapx.target.gdb_control import Control
from gdbheapx.target.standing import Standing

LIBC = re.compile(r"(libc|libpthread)[.-]")
VECTOR = re.compile(r"%?\b([xyz]mm\d|k[0-7]\b|mm[0-7]|st\()")


def against(control: Control, thread: Standing) -> List[str]:
    """Why not on this thread; empty if nothing speaks against it.

    Its innermost frame must be a function of the C library that uses no vector register and was entered by an ordinary call: there
    the ABI lets the callee change all of them, so that the caller keeps nothing there. A system call that a compiler put into the
    program itself may have values in them.
    """
    who, target = thread.who, control.target
    if len(thread.frames) < 2 or any(frame.is_signal for frame in thread.frames):
        return ["%s: what called its system call is not known" % who]
    modules = {module.name: module for module in target.modules()}
    names = [next((one.name for one in target.mappings() if one.start <= frame.pc < one.end), "") for frame in thread.frames]
    outer = next((name for name in names if not LIBC.match(name.rsplit("/", 1)[-1])), None)
    if not LIBC.match(names[0].rsplit("/", 1)[-1]) or names[0] not in modules:
        return ["%s: its system call is not the C library's own: vector registers may hold values across it" % who]
    if outer is None or outer not in modules:
        return ["%s: its system call was not called from a loaded object" % who]
    span = control.function_span(modules[names[0]], thread.frames[0])
    code = control.disassemble(*span) if span is not None else None
    if code is None:
        return ["%s: the bounds of the function with its system call are not known" % who]
    if any(VECTOR.search(line) for line in code):
        return ["%s: the function with its system call uses vector registers" % who]
    return []
