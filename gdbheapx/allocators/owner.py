"""Whose malloc the process calls: each allocator's fingerprint says so, and those of others that are not read here."""

from typing import Any, NamedTuple, Optional, Sequence

from gdbheapx.allocators import fingerprints
from gdbheapx.allocators.heap import Allocator
from gdbheapx.inferior.base import Module, Target


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
    tool = next((one for one in target.mappings() if one.name and fingerprints.VALGRIND.fullmatch(one.name.rsplit("/", 1)[-1])), None)
    if tool is not None:  # no list of the dynamic linker leads there: the process is the tool's, which loads the program itself
        module = Module(tool.name, tool.start - tool.offset, False, None, None)
        return Owner(module, "Valgrind", None, fingerprints.VALGRIND_HINT, is_anywhere=True)
    symbol = target.dynamic_symbol("malloc")
    if symbol is None:
        return _static(target, allocators)
    name = symbol.module.file_name
    for allocator in allocators:
        if allocator.fingerprint.files is not None and allocator.fingerprint.files.match(name):
            return Owner(symbol.module, allocator.name)
    for function, owner in [
        *((one, allocator.name) for allocator in allocators for one in allocator.fingerprint.functions),
        *fingerprints.BY_FUNCTION,
    ]:
        exported = target.dynamic_symbol(function)
        if exported is not None and exported.module == symbol.module:
            return Owner(symbol.module, owner)
    found = next(iter(fingerprints.find(target, symbol.module, (fingerprints.MUSL,))), None)
    return _of_text(symbol.module, found) if found is not None else Owner(symbol.module, None)


def _of_text(module: Module, found: fingerprints.TextMatch) -> Owner:
    return Owner(module, found.known.name, found.version, found.known.hint)


def _static(target: Target, allocators: Sequence[Allocator[Any, Any]]) -> Optional[Owner]:
    """The malloc that is linked into a program without dynamic linking; None for a program that has one."""
    program = fingerprints.executable(target.modules())
    if program is None or len(target.modules()) > 1:
        return None
    for allocator in allocators:
        variables = allocator.fingerprint.variables
        if variables and all(target.module_symbol(program, name) is not None for name in variables):
            return Owner(program, allocator.name)
    texts = [one for allocator in allocators for one in allocator.fingerprint.texts]
    found = next(iter(fingerprints.find(target, program, (*texts, fingerprints.STATIC_MUSL))), None)
    if found is None and target.module_symbol(program, fingerprints.MALLOCNG) is not None:
        found = fingerprints.TextMatch(fingerprints.STATIC_MUSL, None)
    if found is not None:
        return _of_text(program, found)
    return Owner(program, None) if target.module_symbol(program, "malloc") is not None else None
