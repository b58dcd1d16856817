"""All recognisers: a new one is a file, and a line here."""

from typing import List

from gdbheapx.analysis.census import bind, cplusplus, cpython, glib, openssl, php, postgresql, redis, ruby, runtimes, rust, tables
from gdbheapx.analysis.census.world import Recogniser, World

MODULES = (runtimes, bind, postgresql, redis, openssl, glib, cpython, cplusplus, rust, php, ruby, tables)
"""Each has a list RECOGNISERS."""


def cutting(world: World) -> List[Recogniser]:
    """Those of them that cut memory up themselves."""
    every = [one for module in MODULES for one in module.RECOGNISERS if type(one).inner is not Recogniser.inner]
    return [one for one in every if one.is_here(world)]


def here(world: World) -> List[Recogniser]:
    """Those of which the process has something."""
    return [one for module in MODULES for one in module.RECOGNISERS if one.is_here(world)]
