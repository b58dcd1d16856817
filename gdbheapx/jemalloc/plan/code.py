"""Where the code of a jemalloc lies."""

from typing import Iterable, List, Optional, Sequence

from gdbheapx.allocators.plan import Span, whole
from gdbheapx.inferior.base import Function, Module, Target

PUBLIC = frozenset(
    (
        "malloc",
        "free",
        "calloc",
        "realloc",
        "memalign",
        "valloc",
        "pvalloc",
        "aligned_alloc",
        "posix_memalign",
        "malloc_usable_size",
        "free_sized",
    )
    + (
        "mallctl",
        "mallctlnametomib",
        "mallctlbymib",
        "malloc_stats_print",
        "mallocx",
        "rallocx",
        "xallocx",
        "sallocx",
        "dallocx",
        "sdallocx",
        "nallocx",
    )
    + (
        "__libc_malloc",
        "__libc_free",
        "__libc_calloc",
        "__libc_realloc",
        "__libc_memalign",
        "__libc_valloc",
        "__libc_pvalloc",
        "__posix_memalign",
    )
    + ("smallocx", "free_aligned_sized")
)
"""Functions with the public prefix (jemalloc.h, jemalloc.c)."""
OPERATORS = ("_Znw", "_Zna", "_Zdl", "_Zda")
"""C++'s new and delete (jemalloc_cpp.cpp), in every form."""
MARGIN_BYTES = 0x400
"""Beside jemalloc's own functions, where its static ones may begin or go on."""
GAP_BYTES = 256 << 10
"""Functions of a linked-in jemalloc that lie closer than this enclose others of it: the static ones of ctl.c alone take 200 KiB."""


def spans(target: Target, module: Module, prefix: str, public: Optional[str]) -> Optional[List[Span]]:
    """The code of a jemalloc: all of its library; where it is linked into another object, what its own functions enclose. None if that is
    not known.

    `prefix`: of its private names, `public`: of malloc and mallctl.
    """
    if not module.is_executable and is_library(target.exported_functions(module), prefix, public or ""):
        return whole(target, module, "jemalloc") or None
    return (enclosed(target.functions(module), prefix, public) if prefix else None) or None


def is_library(exported: Iterable[str], prefix: str, public: str) -> bool:
    """An object that is nothing but a jemalloc, whatever its file is called: every function that it offers to others is jemalloc's."""
    has_control = False
    for name in exported:
        if not _offers(name, prefix, public):
            return False
        has_control = has_control or name == public + "mallctl"
    return has_control


def _offers(name: str, prefix: str, public: str) -> bool:
    if name.startswith(public) and name[len(public) :] in PUBLIC:
        return True
    return name in ("_init", "_fini") or name.startswith(OPERATORS) or bool(prefix) and name.startswith(prefix)


def enclosed(functions: Sequence[Function], prefix: str, public: Optional[str]) -> List[Span]:
    """What functions that bear one of jemalloc's names enclose; `functions` by address.

    Between two of them lie static ones, which have no prefix. A function that others may call and that has none is not jemalloc's, nor is
    one with a name that a C++ or Rust compiler made: no span reaches over it.
    """
    found: List[Span] = []
    barrier, before = 0, 0
    """End of the last function that is not jemalloc's; of those before the span at hand."""
    for one in functions:
        name = one.name.split(".")[0]
        if name.startswith(prefix) or (public is not None and name.startswith(public) and name[len(public) :] in PUBLIC):
            if found and one.start - found[-1].end < GAP_BYTES and barrier <= found[-1].end:
                found[-1] = found[-1]._replace(end=max(one.end, found[-1].end))
            else:
                before = barrier
                found.append(Span(max(one.start - MARGIN_BYTES, before), one.end, "jemalloc"))
        elif not one.local or name.startswith(("_Z", "_R")):
            if found and barrier <= found[-1].end:
                found[-1] = found[-1]._replace(end=max(found[-1].end, min(one.start, found[-1].end + MARGIN_BYTES)))
            barrier = max(barrier, one.end)
    if found and barrier <= found[-1].end:
        found[-1] = found[-1]._replace(end=found[-1].end + MARGIN_BYTES)
    return found
