"""What is in a target: allocators that can be read, those that cannot, the owner of malloc. Told once; no heap is opened for it.

Whose malloc the process calls: each allocator's fingerprint says so, and those of others that are not read here.
"""

import copy
from typing import TYPE_CHECKING, Any, Dict, List, NamedTuple, Optional, Sequence

from gdbheapx import allocators
from gdbheapx.allocators import fingerprints
from gdbheapx.allocators.heap import Allocator
from gdbheapx.allocators.records import Instance, Instances, NotRead, Unread
from gdbheapx.inferior.base import Module, Target
from gdbheapx.model import AllocatorInfo

if TYPE_CHECKING:
    from gdbheapx.allocators.inner import Inner


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


def find_owner(target: Target, allocators: Sequence[Allocator[Any, Any]]) -> Optional[Owner]:
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


class Listed(NamedTuple):
    """One copy of an allocator."""

    allocator: Allocator[Any, Any]
    located: Instance


class Discovery:
    """One for each time that a live process stood still; the parts are looked for when they are asked for."""

    def __init__(self, target: Target, pack_directories: Sequence[str]) -> None:
        self._target = target
        self._pack_directories = pack_directories
        self._found: Dict[str, Instances] = {}
        self._owner: List[Optional[Owner]] = []
        self._inner: List[Sequence[Inner]] = []
        self._runtime: List[Optional[str]] = []

    def for_rehearsal(self) -> "Discovery":
        """One that knows what this one has found, and keeps what it finds itself from it: but for what files tell."""
        made = copy.copy(self)
        made._found = dict(self._found)
        return made

    @property
    def target(self) -> Target:
        """Where it looks."""
        return self._target

    def found(self, allocator: Allocator[Any, Any]) -> Instances:
        """Every copy of one allocator."""
        if allocator.name not in self._found:
            self._found[allocator.name] = allocator.find(self._target, self._pack_directories)
        return self._found[allocator.name]

    def copies(self) -> List[Listed]:
        """All that can be read, in the registry's order."""
        return [Listed(allocator, one) for allocator in allocators.every() for one in self.found(allocator).located]

    def with_capability(self, capability: str) -> List[Allocator[Any, Any]]:
        """Allocators that may have a capability."""
        return [one for one in allocators.every() if capability in one.known_capabilities]

    def unread(self) -> List[Unread]:
        """All that are there and cannot be read."""
        return [one for allocator in allocators.every() for one in self.found(allocator).unread]

    def missing(self) -> List[NotRead]:
        """What is missing to look for allocators of which no copy was found."""
        known = [self.found(allocator) for allocator in allocators.every()]
        return [one for found in known if not found.located for one in found.missing]

    def unused(self) -> List[NotRead]:
        """All that are there, and from which nothing was ever allocated."""
        return [one for allocator in allocators.every() for one in self.found(allocator).unused]

    def ids(self) -> List[str]:
        """Of the allocators that can be read."""
        return [one.located.id for one in self.copies()]

    @property
    def owner(self) -> Optional[Owner]:
        """Whose malloc the process calls."""
        if not self._owner:
            self._owner.append(find_owner(self._target, allocators.every()))
        return self._owner[0]

    def foreign_owner(self) -> Optional[Owner]:
        """The owner of malloc, if it is an allocator that cannot be read here, and not for lack of a file alone."""
        found = self.owner
        if found is None:
            return None
        every = [self.found(allocator) for allocator in allocators.every()]
        known = [one.module for of_one in every for one in of_one.located]
        known += [one.module for of_one in every for one in (*of_one.missing, *of_one.unused)]
        return found if found.module not in known else None

    def may_be_hidden(self) -> bool:
        """Malloc may belong to an allocator of which nothing was seen: what is loaded is not known, or what a core lacks has it."""
        if not self._target.knows_objects():
            return True
        return self._target.lost_bytes() != 0 and self.owner is None and self.runtime is None

    def inner(self) -> "Sequence[Inner]":
        """Allocators inside a library, for its own use, that are not read."""
        if not self._inner:
            from gdbheapx.allocators import inner

            self._inner.append([one for one in inner.find(self._target) if self.owner is None or one.module != self.owner.module])
        return self._inner[0]

    @property
    def runtime(self) -> Optional[str]:
        """The runtime of a program that has no malloc at all, such as `Go`; None where that is not so, or not known."""
        if not self._runtime:
            program = fingerprints.executable(self._target.modules()) if self.owner is None else None
            found = fingerprints.find(self._target, program, (fingerprints.GO,)) if program is not None else []
            self._runtime.append(found[0].known.name if found else None)
        return self._runtime[0]

    def infos(self) -> List[AllocatorInfo]:
        """What the envelope lists, the owner of malloc first."""
        found = [one.located.info() for one in self.copies()]
        foreign = self.foreign_owner()
        if foreign is not None:
            name = foreign.allocator or "unknown"
            found.append(AllocatorInfo(name, name, foreign.version, foreign.file, foreign.module.build_id, None, None, True))
        return sorted(found, key=lambda info: info.owns_malloc is not True)

    def confirm(self) -> bool:
        """The process stands still now: what was found while it ran is proved again, and searched again where it does not hold. False if it
        was."""
        is_same = True
        for allocator in allocators.every():
            found = self._found.get(allocator.name)
            if found is None:
                continue
            held = [allocator.confirm(self._target, one) for one in found.located]
            if None in held:
                del self._found[allocator.name]
                is_same = False
            else:
                self._found[allocator.name] = found._replace(located=[one for one in held if one is not None])
        return is_same

    def prepare(self) -> None:
        """Do now, before a live process is stopped, whatever does not need it stopped (symbols, types, addresses)."""
        _ = self.owner, self.runtime
        for one in self.copies():
            one.allocator.prepare(self._target, one.located)
        for allocator in allocators.every():
            if self.found(allocator).is_provisional:
                del self._found[allocator.name]
