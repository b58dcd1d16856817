"""Whose malloc the process calls: each allocator's own telltales say so, and names of others that are not read here."""

import re
from typing import Any, NamedTuple, Optional, Sequence

from gdbheapx.allocators import traces
from gdbheapx.allocators.heap import Allocator
from gdbheapx.inferior.base import Module, Target

_OTHERS = (
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
"""Functions that only that allocator exports; none of these is read here."""

_VALGRIND = re.compile(r"vgpreload_(?!core-)[^/]+\.so")
"""What a tool of Valgrind that replaces malloc has preloaded (coregrind/m_initimg): memcheck, massif, dhat, helgrind, drd. It exports no
`malloc`: Valgrind redirects the calls while it translates the code. Tools that leave malloc alone load vgpreload_core by itself."""
_VALGRIND_HINT = "use Valgrind's own report: memcheck's --leak-check=full, massif or dhat; or look at the program without Valgrind"


class Owner(NamedTuple):
    """The definition of malloc that the dynamic linker chose, or the one in a static program."""

    module: Module
    allocator: Optional[str]
    """Its name; None if it exports no name that tells."""
    version: Optional[str] = None
    """Where a text tells it."""
    hint: Optional[str] = None
    """What to do instead of reading it, where it is known only by a text; None where symbols tell it."""
    is_anywhere: bool = False
    """What it holds may look like any other memory, generated code for one."""

    @property
    def file(self) -> str:
        """File name of the object."""
        return self.module.file_name


def find(target: Target, allocators: Sequence[Allocator[Any, Any]]) -> Optional[Owner]:
    """Who answers the process's calls of malloc; None if nobody does, or it could not be told (unreadable tables)."""
    tool = next((one for one in target.mappings() if one.name and _VALGRIND.fullmatch(one.name.rsplit("/", 1)[-1])), None)
    if tool is not None:  # no list of the dynamic linker leads there: the process is the tool's, which loads the program itself
        module = Module(tool.name, tool.start - tool.offset, False, None, None)
        return Owner(module, "Valgrind", None, _VALGRIND_HINT, is_anywhere=True)
    symbol = target.dynamic_symbol("malloc")
    if symbol is None:
        return _static(target, allocators)
    name = symbol.module.file_name
    for allocator in allocators:
        if allocator.telltales.files is not None and allocator.telltales.files.match(name):
            return Owner(symbol.module, allocator.name)
    for function, owner in [*((one, allocator.name) for allocator in allocators for one in allocator.telltales.functions), *_OTHERS]:
        telltale = target.dynamic_symbol(function)
        if telltale is not None and telltale.module == symbol.module:
            return Owner(symbol.module, owner)
    found = next(iter(traces.find(target, symbol.module, (traces.MUSL,))), None)
    return _of_trace(symbol.module, found) if found is not None else Owner(symbol.module, None)


def _of_trace(module: Module, found: traces.Trace) -> Owner:
    return Owner(module, found.known.name, found.version, found.known.hint)


def _static(target: Target, allocators: Sequence[Allocator[Any, Any]]) -> Optional[Owner]:
    """The malloc that is linked into a program without dynamic linking; None for a program that has one."""
    program = traces.executable(target.modules())
    if program is None or len(target.modules()) > 1:
        return None
    for allocator in allocators:
        variables = allocator.telltales.variables
        if variables and all(target.module_symbol(program, name) is not None for name in variables):
            return Owner(program, allocator.name)
    texts = [one for allocator in allocators for one in allocator.telltales.texts]
    found = next(iter(traces.find(target, program, (*texts, traces.STATIC_MUSL))), None)
    if found is None and target.module_symbol(program, traces.MALLOCNG) is not None:
        found = traces.Trace(traces.STATIC_MUSL, None)
    if found is not None:
        return _of_trace(program, found)
    return Owner(program, None) if target.module_symbol(program, "malloc") is not None else None
