"""Addresses of the code of glibc's malloc, and the locks of it that are held."""

from typing import List, Optional

from gdbheapx.allocators.plan import Held, Span, Troubles, whole_code
from gdbheapx.glibc.arenas import Glibc, read_ring
from gdbheapx.inferior.base import Module, StackCopy, Target

PUBLIC = (
    "malloc",
    "free",
    "realloc",
    "calloc",
    "memalign",
    "aligned_alloc",
    "posix_memalign",
    "valloc",
    "pvalloc",
    "malloc_trim",
    "malloc_usable_size",
    "mallinfo",
    "mallinfo2",
    "malloc_stats",
    "malloc_info",
    "mallopt",
)
"""Exported functions of glibc's malloc.o, which the linker keeps together."""
BELOW, ABOVE = 0x3800, 0x1000
"""malloc.o's static functions lie below its exported ones: within 0x2c00 bytes in 2.31 to 2.43."""
SIGABRT = 6
ABORT_STACK_BYTES = 64 << 10
"""More than lies between abort() and the function of malloc that led to it."""
LISTS = ("list_lock", "free_list_lock")
"""Static ints of arena.c; fork's handlers hold the first."""


def find_glibc_code_spans(target: Target, module: Module) -> Optional[List[Span]]:
    """The code of glibc's malloc in this object; None if its functions cannot be found."""
    named = {name: target.module_symbol(module, name) for name in PUBLIC}
    addresses = {name: symbol.address for name, symbol in named.items() if symbol is not None}
    if "malloc" not in addresses or "free" not in addresses:
        return None
    near = [one for one in addresses.values() if abs(one - addresses["malloc"]) < 0x10000]
    low, high = min(near) - BELOW, max(near) + ABOVE
    found = [Span(low, high, "malloc")]
    every = target.functions(module)
    parts = {one.name for one in every if low <= one.start < high}
    found += [Span(one.start, one.end, "malloc") for one in every if ".cold" in one.name and one.name.split(".cold")[0] in parts]
    for other in target.modules():
        if other.file_name.startswith("libc_malloc_debug"):
            found += whole_code(target, other, "malloc")
    return found


def has_aborted(target: Target, module: Module) -> bool:
    """A core of a process that ended by abort(), called by malloc: as it does where it finds its heap damaged."""
    thread = next(iter(target.threads()), None)
    if thread is None or thread.signal != SIGABRT or thread.pc is None or thread.stack_pointer is None:
        return False
    data = target.read_prefix(thread.stack_pointer, ABORT_STACK_BYTES)
    calls = target.calls(StackCopy(thread.stack_pointer, thread.pc, target.register_words(thread), data))
    ours = find_glibc_code_spans(target, module) or []
    return any(span.start <= call.pc - call.is_return < span.end for call in calls for span in ours)


def find_glibc_held_locks(target: Target, glibc: Glibc) -> List[Held]:
    """Arena mutexes and the locks of the lists of arenas that are not 0. An arena's mutex has no owner (lowlevellock)."""
    broken = Troubles()
    ring = read_ring(target, glibc, broken.report)
    found = [Held("the lock of %s" % arena.title, None) for arena in ring if arena.state["mutex"]]
    for name in LISTS:
        symbol = target.module_symbol(glibc.module, name)
        data = target.read_prefix(symbol.address, 4) if symbol is not None else b""
        if data.strip(b"\0"):
            found.append(Held(name, None))
    return found + [Held("the ring of arenas (%s)" % one, None) for one in broken.found]
