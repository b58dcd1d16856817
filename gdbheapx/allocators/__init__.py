"""Which allocators there are. One more is one folder and one line here."""

import importlib
from typing import TYPE_CHECKING, Any, Dict, List, NamedTuple, Sequence, Union

from gdbheapx.errors import HeapxError
from gdbheapx.problems import NOT_IN_SNAPSHOT

if TYPE_CHECKING:
    from gdbheapx.allocators.heap import Allocator

REGISTRY: Sequence[str] = ("gdbheapx.jemalloc.entry", "gdbheapx.glibc.entry")
"""Modules, imported when they are asked for; each has an ALLOCATOR. The order is the one in which they are shown where nobody owns
malloc."""


def every() -> "List[Allocator[Any, Any]]":
    """All of them."""
    return [importlib.import_module(name).ALLOCATOR for name in REGISTRY]


def by_name() -> "Dict[str, Allocator[Any, Any]]":
    """The same, by name."""
    return {one.name: one for one in every()}


def named(name: str) -> "Allocator[Any, Any]":
    """One of them. HeapxError where there is none: a snapshot may come from a gdbheapx that has others."""
    known = by_name()
    if name not in known:
        raise HeapxError("this version has no allocator %s" % name, "read the snapshot with the version that took it", code=NOT_IN_SNAPSHOT)
    return known[name]


class OfAllocator(NamedTuple):
    """Marks a field of `Any` whose record is each allocator's own, by its name in Allocator.records(): a file is read by that."""

    name: str

    def kind(self) -> Any:
        """What may stand there."""
        places = [one.records[self.name].rpartition(".") for one in every() if self.name in one.records]
        return Union[tuple(getattr(importlib.import_module(module), name) for module, _, name in places)]


def paragraphs(command: str) -> List[str]:
    """What allocators add to the help of a command: HELP of the module `help` beside theirs, if there is one. Imports nothing else of
    them."""
    found = []
    for name in reversed(REGISTRY):
        beside = name.rpartition(".")[0] + ".help"
        try:
            found.append(importlib.import_module(beside).HELP.get(command))
        except ModuleNotFoundError:
            continue
    return [one for one in found if one]
