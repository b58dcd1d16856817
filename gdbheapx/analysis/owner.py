"""Whose malloc the process calls: glibc's own, or another allocator that was linked or preloaded."""

import re
from typing import NamedTuple, Optional

from gdbheapx.analysis import traces
from gdbheapx.target.base import Module, Target

_TELLTALES = (
    ("mallctl", "jemalloc"),
    ("je_mallctl", "jemalloc"),
    ("_rjem_mallctl", "jemalloc"),
    ("tc_malloc", "tcmalloc"),
    ("MallocExtension_Internal_GetNumericProperty", "tcmalloc"),
    ("mi_malloc", "mimalloc"),
    ("rpmalloc", "rpmalloc"),
    ("scalable_malloc", "tbbmalloc"),
    ("hoard_malloc", "Hoard"),
    ("__asan_init", "AddressSanitizer"),
    ("__tsan_init", "ThreadSanitizer"),
    ("__msan_init", "MemorySanitizer"),
    ("__lsan_init", "LeakSanitizer"),
)
"""Functions that only that allocator exports."""


_GLIBC = re.compile(r"libc\.so\.6|libc-\d|libc_malloc_debug")
"""Its objects' names; other C libraries are called libc.so or libc.musl-ARCH.so.1."""
_READABLE = ("main_arena", "mp_")
"""Variables by which glibc's malloc is read, static programs' too."""


class Owner(NamedTuple):
    """The definition of malloc that the dynamic linker chose, or the one in a static program."""

    module: Module
    allocator: Optional[str]
    """`jemalloc` and the like; None if it exports no name that tells."""
    version: Optional[str] = None
    """Where a text tells it."""
    hint: Optional[str] = None
    """What to do instead of reading it, where it is known only by a text; None where symbols tell it."""

    @property
    def file(self) -> str:
        """File name of the object."""
        return self.module.name.rsplit("/", 1)[-1]


def find(target: Target) -> Optional[Owner]:
    """Who answers the process's calls of malloc; None if nobody does, or it could not be told (unreadable tables)."""
    symbol = target.dynamic_symbol("malloc")
    if symbol is None:
        return _static(target)
    if _GLIBC.match(symbol.module.name.rsplit("/", 1)[-1]):
        return Owner(symbol.module, "glibc")
    for name, allocator in _TELLTALES:
        telltale = target.dynamic_symbol(name)
        if telltale is not None and telltale.module == symbol.module:
            return Owner(symbol.module, allocator)
    found = next(iter(traces.find(target, symbol.module, (traces.MUSL,))), None)
    return _of_trace(symbol.module, found) if found is not None else Owner(symbol.module, None)


def _of_trace(module: Module, found: traces.Trace) -> Owner:
    return Owner(module, found.known.name, found.version, found.known.hint)


def _static(target: Target) -> Optional[Owner]:
    """The malloc that is linked into a program without dynamic linking; None for a program that has one."""
    program = traces.executable(target.modules())
    if program is None or len(target.modules()) > 1:
        return None
    if all(target.module_symbol(program, name) is not None for name in _READABLE):
        return Owner(program, "glibc")
    found = next(iter(traces.find(target, program, (traces.GLIBC, traces.STATIC_MUSL))), None)
    if found is None and target.module_symbol(program, traces.MALLOCNG) is not None:
        found = traces.Trace(traces.STATIC_MUSL, None)
    if found is not None:
        return _of_trace(program, found)
    return Owner(program, None) if target.module_symbol(program, "malloc") is not None else None
