"""The registry of allocators: those of the core, and those of an add-on where it is there."""

import importlib
import sys
from typing import TYPE_CHECKING, Any, Dict, Iterable, List, Mapping, Sequence, Union

from gdbheapx.common import addon_loader
from gdbheapx.common.errors import HeapxError
from gdbheapx.common.problems import NOT_IN_SNAPSHOT, SNAPSHOT_DAMAGED

if TYPE_CHECKING:
    from gdbheapx.allocators.fingerprints import Gate
    from gdbheapx.allocators.heap import Allocator
    from gdbheapx.allocators.records import Instances, OfAllocator
    from gdbheapx.inferior.base import Target

OF_ADDON = "allocators"
"""The capability of an add-on that has allocators: a module with GATES."""
REGISTRY: Sequence[str] = ("gdbheapx.jemalloc.entry", OF_ADDON, "gdbheapx.glibc.entry")
"""Modules, imported when they are asked for; each has an ALLOCATOR. OF_ADDON means those of the add-on. The order is the one in which
they are shown where no one owns malloc."""


def addon_gates() -> "Mapping[str, Gate]":
    """Return the gates of the add-on's allocators by their modules; empty if it is not there."""
    gates: Mapping[str, Gate] = addon_loader.load_capability(OF_ADDON, "").GATES if addon_loader.has_capability(OF_ADDON) else {}
    return gates


def list_allocator_modules() -> List[str]:
    """Return the modules of the registry, those of the add-on in their place."""
    return [module for name in REGISTRY for module in (addon_gates() if name == OF_ADDON else [name])]


class Behind:
    """An allocator of an add-on, reached through its gate: its module is imported only for a target that may have it."""

    def __init__(self, module: str, gate: "Gate") -> None:
        self._module, self._gate, self.name, self.fingerprint = module, gate, gate.name, gate.fingerprint

    def can(self, capability: str) -> bool:
        """See Allocator.can."""
        return capability in self._gate.capabilities or capability == self._gate.returns

    def find(self, target: "Target") -> "Instances":
        """Every copy in the target."""
        if self._gate.may_be_in(target):
            return importlib.import_module(self._module).ALLOCATOR.find(target)  # type: ignore[no-any-return]
        from gdbheapx.allocators.records import Instances

        return Instances(())

    def __getattr__(self, name: str) -> Any:
        return getattr(importlib.import_module(self._module).ALLOCATOR, name)


def all_allocators() -> "List[Allocator[Any, Any]]":
    """Return all allocators in the registry's order."""
    behind = {name: Behind(name, gate) for name, gate in addon_gates().items() if name not in sys.modules}
    known: List[Any] = [behind[name] if name in behind else importlib.import_module(name).ALLOCATOR for name in list_allocator_modules()]
    return known


def by_name() -> "Dict[str, Allocator[Any, Any]]":
    """Return all allocators by name."""
    return {allocator.name: allocator for allocator in all_allocators()}


def find_allocator(name: str, records: Iterable[object] = ()) -> "Allocator[Any, Any]":
    """Return an allocator, which shows its own records. HeapxError where a snapshot names one that this version lacks, or where one made
    by hand has another's records.
    """
    known, again = by_name(), "read the snapshot with the version that took it"
    if name not in known:
        missing = addon_loader.missing_allocator(name)
        if missing is not None:
            raise missing
        raise HeapxError("this version has no allocator %s" % name, again, code=NOT_IN_SNAPSHOT)
    others = tuple(module.rpartition(".")[0] + "." for other, module in zip(known, list_allocator_modules()) if other != name)
    if any(type(record).__module__.startswith(others) for record in records):
        raise HeapxError("the snapshot has records of another allocator under the name %s" % name, again, code=SNAPSHOT_DAMAGED)
    return known[name]


def find_record_kinds(mark: "OfAllocator") -> Any:
    """Return the union of the records that allocators have under the name of a mark."""
    places = [allocator.records[mark.name].rpartition(".") for allocator in all_allocators() if mark.name in allocator.records]
    return Union[tuple(getattr(importlib.import_module(module), name) for module, _, name in places)]


def help_paragraphs(command: str) -> List[str]:
    """Return what allocators add to the help of a command: of the core's by HELP of the module `help` next to theirs, of others by their
    gates."""
    texts, gates = [], addon_gates()
    for name in reversed(list_allocator_modules()):
        try:
            helped = gates[name].help if name in gates else importlib.import_module(name.rpartition(".")[0] + ".help").HELP
        except ModuleNotFoundError:
            continue
        texts.append(helped.get(command))
    return [text for text in texts if text]
