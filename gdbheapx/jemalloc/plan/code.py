"""Where the code of a jemalloc lies."""

from typing import Iterable, List, Optional, Sequence

from gdbheapx.allocators.plan import Span, whole
from gdbheapx.inferior.base import Function, Module, Target

PUBLIC = frozenset(
    [
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
        "free_aligned_sized",
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
        "smallocx",
        "__libc_malloc",
        "__libc_free",
        "__libc_calloc",
        "__libc_realloc",
        "__libc_memalign",
        "__libc_valloc",
        "__libc_pvalloc",
        "__posix_memalign",
    ]
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
    names = set(exported)
    return public + "mallctl" in names and all(_offers(name, prefix, public) for name in names)


def _offers(name: str, prefix: str, public: str) -> bool:
    is_own = _is_public(name, public) or bool(prefix) and name.startswith(prefix)
    return is_own or name in ("_init", "_fini") or name.startswith(OPERATORS)


def _is_public(name: str, public: str) -> bool:
    return name.startswith(public) and name[len(public) :] in PUBLIC


def enclosed(functions: Sequence[Function], prefix: str, public: Optional[str]) -> List[Span]:
    """What functions that bear one of jemalloc's names enclose; `functions` by address.

    Between two of them lie static ones, which have no prefix. A function that others may call and that has none is not jemalloc's, nor is
    one with a name that a C++ or Rust compiler made: no span reaches over it.
    """
    spans: List[Span] = []
    barrier, before = 0, 0
    """End of the last function that is not jemalloc's; of those before the span at hand."""
    for function in functions:
        name = function.name.split(".")[0]
        last, is_open = (spans[-1], barrier <= spans[-1].end) if spans else (None, False)
        if name.startswith(prefix) or public is not None and _is_public(name, public):
            if last is not None and is_open and function.start - last.end < GAP_BYTES:
                spans[-1] = last._replace(end=max(function.end, last.end))
            else:
                before = barrier
                spans.append(Span(max(function.start - MARGIN_BYTES, before), function.end, "jemalloc"))
        elif not function.local or name.startswith(("_Z", "_R")):
            if last is not None and is_open:
                spans[-1] = last._replace(end=max(last.end, min(function.start, last.end + MARGIN_BYTES)))
            barrier = max(barrier, function.end)
    if spans and barrier <= spans[-1].end:
        spans[-1] = spans[-1]._replace(end=spans[-1].end + MARGIN_BYTES)
    return spans
