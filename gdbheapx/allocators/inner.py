"""Allocators that live inside a library for its own use and are not read here: known by their texts, as no symbol need be left of them."""

from typing import List, NamedTuple, Sequence

from gdbheapx.allocators import fingerprints
from gdbheapx.allocators.fingerprints import INSIDE_LIBRARIES, TextFingerprint
from gdbheapx.inferior.base import Module, Target

BY_OBJECT = (
    (
        "libarrow.so",
        "pyarrow.default_memory_pool() shows which pool is in use (backend_name) and how much it has allocated (bytes_allocated)",
    ),
)
"""Libraries whose own interface tells more."""


class Inner(NamedTuple):
    """One found in an object. Whether the object uses it is not known."""

    name: str
    module: Module
    hint: str

    @property
    def file(self) -> str:
        """File name of the object."""
        return self.module.file_name


def find(target: Target) -> List[Inner]:
    """Every one of them, by reading the constants of each object's file; a few milliseconds for 60 objects."""
    every = ((module, match.known) for module in target.modules() for match in fingerprints.find(target, module, INSIDE_LIBRARIES))
    return [Inner(known.name, module, _hint(module, known)) for module, known in every]


def _hint(module: Module, known: TextFingerprint) -> str:
    name = module.file_name
    return next((hint for start, hint in BY_OBJECT if name.startswith(start)), known.hint)


def steps(found: Sequence[Inner]) -> List[str]:
    """What to do about each where much memory lies outside the allocators that are read."""
    return ["%s in %s may hold part of it, and gdbheapx does not read it: %s" % (one.name, one.file, one.hint) for one in found]
