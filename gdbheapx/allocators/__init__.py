"""Which allocators there are. One more is one folder and one line here."""

import importlib
from typing import TYPE_CHECKING, Any, Dict, Iterable, List, NamedTuple, Sequence, Union

from gdbheapx.errors import HeapxError
from gdbheapx.problems import NOT_IN_SNAPSHOT, SNAPSHOT_DAMAGED

if TYPE_CHECKING:
    from gdbheapx.allocators.heap import Allocator

REGISTRY: Sequence[str] = (
    "gdbheapx.jemalloc.entry",
    "gdbheapx.mimalloc.entry",
    "gdbheapx.tcmalloc.entry",
    "gdbheapx.musl.entry",
    "gdbheapx.glibc.entry",
)
"""Modules, imported when they are asked for; each has an ALLOCATOR. The order is the one in which they are shown where nobody owns
malloc."""


def every() -> "List[Allocator[Any, Any]]":
    """All of them."""
    return [importlib.import_module(name).ALLOCATOR for name in REGISTRY]


def by_name() -> "Dict[str, Allocator[Any, Any]]":
    """The same, by name."""
    return {allocator.name: allocator for allocator in every()}


def named(name: str, records: Iterable[object] = ()) -> "Allocator[Any, Any]":
    """One of them, to show its own records. HeapxError where there is none, for a snapshot may come from a gdbheapx that has others, and
    where a record is another's, for a snapshot may be made by hand."""
    known, again = by_name(), "read the snapshot with the version that took it"
    if name not in known:
        raise HeapxError("this version has no allocator %s" % name, again, code=NOT_IN_SNAPSHOT)
    others = tuple(module.rpartition(".")[0] + "." for other, module in zip(known, REGISTRY) if other != name)
    if any(type(record).__module__.startswith(others) for record in records):
        raise HeapxError("the snapshot has records of another allocator under the name %s" % name, again, code=SNAPSHOT_DAMAGED)
    return known[name]


class OfAllocator(NamedTuple):
    """Marks a field of `Any` whose record is each allocator's own, by its name in Allocator.records(): a file is read by that."""

    name: str

    def kind(self) -> Any:
        """What may stand there."""
        places = [allocator.records[self.name].rpartition(".") for allocator in every() if self.name in allocator.records]
        return Union[tuple(getattr(importlib.import_module(module), name) for module, _, name in places)]


def paragraphs(command: str) -> List[str]:
    """What allocators add to the help of a command: HELP of the module `help` beside theirs, if there is one. Imports nothing else of
    them."""
    texts = []
    for name in reversed(REGISTRY):
        beside = name.rpartition(".")[0] + ".help"
        try:
            texts.append(importlib.import_module(beside).HELP.get(command))
        except ModuleNotFoundError:
            continue
    return [text for text in texts if text]
