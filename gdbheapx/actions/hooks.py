"""Extent hooks of the program's own: a purge calls them, and what they do and lock cannot be told."""

from typing import Set

from gdbheapx.actions.refusal import Refusal
from gdbheapx.jemalloc.allocator import JemallocMalloc
from gdbheapx.jemalloc.detect import Jemalloc

DEFAULTS = ("ehooks_default_extent_hooks", "extent_hooks_default")
"""jemalloc's own: from 5.3.0 in ehooks.c, before in extent.c."""


def check(found: Jemalloc, malloc: JemallocMalloc, arenas: Set[int]) -> None:
    """Refusal unless all of these arenas have jemalloc's own. Unknown ones are not believed to be."""
    own = [symbol.address for symbol in map(found.symbols.find, DEFAULTS) if symbol is not None]
    for arena in malloc.arena_list():
        if arena.index not in arenas:
            continue
        base = arena.read().get("base")
        hooks = malloc.context.view("base_s", base).get("ehooks.ptr", "extent_hooks") if base else None
        if not own or not hooks:
            raise Refusal("cannot determine whether arena %d uses custom extent hooks" % arena.index, "see `gdbheapx doctor`")
        if hooks not in own:
            raise Refusal("arena %d uses custom extent hooks; their side effects are unknown" % arena.index, "purge another arena with --arena I")
