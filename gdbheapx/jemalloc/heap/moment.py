"""Contradictions that come from looking while a thread was inside jemalloc: they are gone at another moment."""

import os
from typing import List, NamedTuple, Optional, Sequence

from gdbheapx.inferior.base import Mapping, Thread
from gdbheapx.jemalloc.context import Context

NAMED = 4
"""Threads that are named."""
FRAMES_BYTES = 1024
"""So much of a thread's stack is searched: the frames of a lock or a system call that jemalloc waits in."""


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
            (found.surely if returns[0] or _called_libc(mappings, thread, words[: returns.index(True)]) else found.maybe).append(thread.lwp)
    return found


def _called_libc(mappings: Sequence[Mapping], thread: Thread, words: Sequence[int]) -> bool:
    """The thread is in libc (libpthread of older releases), and no other code stands in these words, the top of its stack."""
    code = [one for one in mappings if one.executable]
    here = next((one for one in code if thread.pc is not None and one.start <= thread.pc < one.end), None)
    if here is None or not os.path.basename(here.name).startswith(("libc.", "libc-", "libpthread")):
        return False
    return not any(one.start <= word < one.end and one.name != here.name for one in code for word in words)


def _top_of_stack(context: Context, thread: Thread) -> List[int]:
    if thread.stack_pointer is None:
        return []
    word, order = context.geometry.word_bytes, "little" if context.geometry.little_endian else "big"
    data = context.target.read_prefix(thread.stack_pointer & -word, FRAMES_BYTES)
    return [int.from_bytes(data[at : at + word], order) for at in range(0, len(data) - word + 1, word)]  # type: ignore[arg-type]


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
