"""Allocators that live inside a library for its own use and are not read here: known by their texts, as no symbol need be left of them."""

from typing import List, NamedTuple, Sequence, Tuple

from gdbheapx.inferior.base import Module, Target


class Known(NamedTuple):
    """One allocator."""

    name: str
    texts: Tuple[bytes, ...]
    """In the constant data of every build seen; all of them must be there."""
    hint: str


KNOWN = (
    Known(
        "mimalloc",
        (b"mimalloc: error: ", b"mimalloc: warning: "),
        "mi_stats_print in the program shows what it holds, and so does MIMALLOC_SHOW_STATS=1 when the program exits",
    ),
)
"""mimalloc: options.c (pyarrow 14.0.2 and 26.0.1)."""

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
    return [Inner(known.name, module, _hint(module, known)) for module in target.modules() for known in _in_object(target, module)]


def _in_object(target: Target, module: Module) -> Sequence[Known]:
    missing = {known: set(known.texts) for known in KNOWN}
    for data in target.constant_data(module):
        for texts in missing.values():
            texts.difference_update([text for text in texts if text in data])
    return [known for known, texts in missing.items() if not texts]


def _hint(module: Module, known: Known) -> str:
    name = module.file_name
    return next((hint for start, hint in BY_OBJECT if name.startswith(start)), known.hint)


def steps(found: Sequence[Inner]) -> List[str]:
    """What to do about each where much memory lies outside the allocators that are read."""
    return ["%s in %s may hold part of it, and gdbheapx does not read it: %s" % (one.name, one.file, one.hint) for one in found]
