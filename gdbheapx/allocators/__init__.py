"""Which allocators there are. One more is one folder and one line here."""

import importlib
from typing import TYPE_CHECKING, Any, Dict, List, Sequence

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
