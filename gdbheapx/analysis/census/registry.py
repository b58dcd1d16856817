"""All recognisers: a new one is a file, and a line here."""

from typing import List

from gdbheapx.analysis.census import (
    bind,
    cplusplus,
    cpython,
    glib,
    lua,
    openssl,
    php,
    postgresql,
    redis,
    ruby,
    runtimes,
    rust,
    tables,
    v8,
    zlib,
)
from gdbheapx.analysis.census.world import Recogniser, World

MODULES = (runtimes, zlib, v8, bind, postgresql, redis, openssl, glib, cpython, cplusplus, rust, php, ruby, lua, tables)
"""Each has a list RECOGNISERS."""


def cutting(world: World) -> List[Recogniser]:
    """Those of them that cut memory up themselves."""
    recognisers = [recogniser for module in MODULES for recogniser in module.RECOGNISERS if type(recogniser).inner is not Recogniser.inner]
    return [recogniser for recogniser in recognisers if recogniser.is_here(world)]


def naming(world: World) -> List[Recogniser]:
    """Those that cut memory up themselves, or give their objects paths."""
    recognisers = [recogniser for module in MODULES for recogniser in module.RECOGNISERS if type(recogniser).namer is not Recogniser.namer]
    return [*(one for one in cutting(world) if one not in recognisers), *(one for one in recognisers if one.is_here(world))]


def here(world: World) -> List[Recogniser]:
    """Those of which the process has something."""
    return [recogniser for module in MODULES for recogniser in module.RECOGNISERS if recogniser.is_here(world)]
