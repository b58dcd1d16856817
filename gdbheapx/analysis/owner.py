"""Whose malloc the process calls: glibc's own, or another allocator that was linked or preloaded."""

from typing import NamedTuple, Optional

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


class Owner(NamedTuple):
    """The definition of malloc that the dynamic linker chose."""

    module: Module
    allocator: Optional[str]
    """`jemalloc` and the like; None if it exports no name that tells."""

    @property
    def file(self) -> str:
        """File name of the object."""
        return self.module.name.rsplit("/", 1)[-1]


def find(target: Target) -> Optional[Owner]:
    """Who answers the process's calls of malloc; None if it could not be told (static executables, unreadable tables)."""
    symbol = target.dynamic_symbol("malloc")
    if symbol is None:
        return None
    if symbol.module.name.rsplit("/", 1)[-1].startswith(("libc.", "libc-", "libc_malloc_debug")):
        return Owner(symbol.module, "glibc")
    for name, allocator in _TELLTALES:
        telltale = target.dynamic_symbol(name)
        if telltale is not None and telltale.module == symbol.module:
            return Owner(symbol.module, allocator)
    return Owner(symbol.module, None)
