"""Contradictions that come from looking while a thread was inside jemalloc: they are gone at another moment."""

import os
from typing import List, NamedTuple, Optional, Sequence

from gdbheapx.inferior.base import Mapping, Thread
from gdbheapx.jemalloc.context import Context

NAMED = 4
"""Threads that are named."""
FRAMES_BYTES = 1024
"""So much of a thread's stack is searched: the frames of a lock or a system call that jemalloc waits in."""
SYSTEM = ("libc.", "libc-", "libpthread", "[vdso]")
"""How the names of what jemalloc calls begin; libpthread of older releases."""
CALLERS_BYTES = 4096
"""So much for who called jemalloc: what flushes a thread cache has arrays there."""


class Inside(NamedTuple):
    """Kernel ids of threads."""

    surely: List[int]
    """Their pc lies in the code of the object that holds this jemalloc, or the word that a leaf function returns to does, or they wait in
    libc, which it has called: for a lock that was free again, and they have not run since, or in a system call."""
    maybe: List[int]
    """A return address into that code stands near the top of their stack."""


def threads_inside(context: Context) -> Inside:
    """Who was inside jemalloc, as far as registers and the top of each stack tell."""
    mappings = context.target.mappings()
    base = context.jemalloc.module.base
    name = next(
        (one.name for one in mappings if one.start <= base < one.end), context.jemalloc.module.name
    )  # ld.so's path may have symlinks
    code = [
        range(one.start, one.end) for one in mappings if one.executable and one.name and one.name in (name, context.jemalloc.module.name)
    ]
    found = Inside([], [])
    for thread in context.target.threads():
        if thread.pc is not None and any(thread.pc in span for span in code):
            found.surely.append(thread.lwp)
            continue
        words = _top_of_stack(context, thread)
        returns = [any(word in span for span in code) for word in words]
        if any(returns):
            (found.surely if returns[0] or _waits(context, mappings, code, thread) else found.maybe).append(thread.lwp)
    return found


def _waits(context: Context, mappings: Sequence[Mapping], code: Sequence[range], thread: Thread) -> bool:
    """The thread is in libc, which this jemalloc has called for somebody else, as its stack tells. A
    background thread, which rests there for most of its life, works for nobody."""
    if not os.path.basename(_object_at(mappings, thread.pc or 0)).startswith(SYSTEM):
        return False
    words = _top_of_stack(context, thread, CALLERS_BYTES)
    names = ((word, _object_at(mappings, word)) for word in words)
    callers = [word for word, name in names if name and not os.path.basename(name).startswith(SYSTEM)]
    are_own = [any(word in span for span in code) for word in callers]
    return are_own[:1] == [True] and not all(are_own)


def _object_at(mappings: Sequence[Mapping], address: int) -> str:
    """The file whose code is there; empty: none."""
    return next((one.name for one in mappings if one.executable and one.start <= address < one.end), "")


def _top_of_stack(context: Context, thread: Thread, most_bytes: int = FRAMES_BYTES) -> List[int]:
    if thread.stack_pointer is None:
        return []
    start, end = thread.stack_pointer & -context.geometry.word_bytes, thread.thread_pointer or 0
    return context.target.words_in(context.target.read_prefix(start, min(most_bytes, end - start) if end > start else most_bytes))


class Explanation(NamedTuple):
    """What to think of a contradiction."""

    hint: Optional[str]
    is_passing: bool
    """Another look may not show it."""


def explain(context: Context) -> Explanation:
    """What to think of a contradiction between extents, or with thread caches; no hint where nobody was inside and there is no other
    moment."""
    inside = threads_inside(context)
    who = inside.surely or inside.maybe
    is_core = context.target.kind == "core"
    if not who:
        return Explanation(None if is_core else "retry to see whether it persists", not is_core)
    is_sure = bool(inside.surely) and not context.jemalloc.module.is_executable  # else the program's own code may be meant
    verb = ("were" if len(who) > 1 else "was") if is_sure else "may have been"
    inside_it = "%s %s inside jemalloc" % (_names(who), verb)
    if is_core:
        return Explanation("%s when the core was written: this may be an unfinished change" % inside_it, False)
    return Explanation("%s at that moment: retry to see whether it persists" % inside_it, True)


def _names(lwps: Sequence[int]) -> str:
    more = " and %d more" % (len(lwps) - NAMED) if len(lwps) > NAMED else ""
    return "thread%s %s%s" % ("s" if len(lwps) > 1 else "", ", ".join(str(lwp) for lwp in lwps[:NAMED]), more)
