"""Registry of recognisers: those of the core, and those of the add-on for runtimes and libraries."""

import functools
from typing import Dict, FrozenSet, List, Optional, Sequence

from gdbheapx import addon_loader, problems
from gdbheapx.analysis.census import cplusplus, rust, tables
from gdbheapx.analysis.census.books import Books
from gdbheapx.analysis.census.world import Recogniser, World
from gdbheapx.analysis.memory import attribute
from gdbheapx.session import Session

OF_CORE = (cplusplus, rust, tables)
"""Modules with a list RECOGNISERS."""


@functools.cache
def list_recognisers() -> Sequence[Recogniser]:
    """Return all; where two rows of one order fit a block, the earlier one counts."""
    return (*addon_loader.load_recognisers(), *(recogniser for module in OF_CORE for recogniser in module.RECOGNISERS))


def find_cutting(world: World) -> List[Recogniser]:
    """Return those in this process that cut memory up themselves."""
    return [recogniser for recogniser in list_recognisers() if type(recogniser).inner is not Recogniser.inner and recogniser.is_here(world)]


def find_naming(world: World) -> List[Recogniser]:
    """Return those in this process that cut memory up themselves, or give their objects paths."""
    named = [recogniser for recogniser in list_recognisers() if type(recogniser).namer is not Recogniser.namer]
    cutting = [recogniser for recogniser in find_cutting(world) if recogniser not in named]
    return [*cutting, *(recogniser for recogniser in named if recogniser.is_here(world))]


def find_present(world: World) -> List[Recogniser]:
    """Return those of which the process has something."""
    return [recogniser for recogniser in list_recognisers() if recogniser.is_here(world)]


def find_with_containers(world: World) -> List[Recogniser]:
    """Return those in this process that have containers of their own."""
    own = [recogniser for recogniser in list_recognisers() if type(recogniser).read_container is not Recogniser.read_container]
    return [recogniser for recogniser in own if recogniser.is_here(world)]


def find_tabled(world: World) -> List[Recogniser]:
    """Return the runtimes in this process that have a table of the whole memory."""
    return [recogniser for recogniser in list_recognisers() if recogniser.table is not None and recogniser.is_here(world)]


def has_typed_objects(module: str) -> bool:
    """Return whether objects of this recogniser's module lead to a type that has the function that allocates them."""
    return any(recogniser.module == module and recogniser.object_heads for recogniser in list_recognisers())


def object_heads() -> Sequence[int]:
    """Return how many bytes may stand before an object that has a type."""
    return next((recogniser.object_heads for recogniser in list_recognisers() if recogniser.object_heads), (0,))


def allocator_in_type() -> int:
    """Return the offset in a type of the function that allocates its objects."""
    return next((recogniser.allocator_in_type for recogniser in list_recognisers() if recogniser.object_heads), 0)


def lines_of_libraries() -> Dict[str, str]:
    """Return the lines that blocks of libraries have in tables of runtimes, by the recogniser's module."""
    return {recogniser.module: recogniser.line_of_library for recogniser in list_recognisers() if recogniser.line_of_library}


def names_with_tables() -> FrozenSet[str]:
    """Return the names of the runtimes that have a table."""
    return frozenset(recogniser.table.name for recogniser in list_recognisers() if recogniser.table is not None)


def shown_name(module: str) -> str:
    """Return what tables call a recogniser's module: `CPython` for `python`."""
    return next((one.table.name for one in list_recognisers() if one.module == module and one.table is not None), module)


def find_books(session: Session, used_bytes: int) -> Optional[Books]:
    """Return what the program counts itself; None where no add-on reads it. `used_bytes`: what allocators have in use."""
    find = addon_loader.load_books()
    return find(session, used_bytes) if find is not None else None


def report_missing(session: Session) -> None:
    """Say which runtimes of this process are not looked into, because the add-on for them is not installed."""
    present = () if addon_loader.has_capability("recognisers") else attribute.find_present_runtimes(session.target)
    if present:
        names = " and ".join(dict.fromkeys(runtime.name for runtime in present))
        what = "objects of %s have no names here: they are read by the add-on runtimes, which is not installed" % names
        session.problem(problems.RUNTIME_UNREAD, None, what, addon_loader.hint_to_install("runtimes"), partial=False)
