"""Extent hooks of the program's own: a purge calls them, and what they do and lock cannot be told."""

from typing import Sequence, Set

from gdbheapx.errors import Refusal
from gdbheapx.jemalloc.context import Context
from gdbheapx.jemalloc.heap.arenas import Arena

DEFAULTS = ("ehooks_default_extent_hooks", "extent_hooks_default")
"""jemalloc's own: from 5.3.0 in ehooks.c, before in extent.c."""


def check(context: Context, arenas: Sequence[Arena], wanted: Set[int]) -> None:
    """Refusal unless all of the wanted arenas have jemalloc's own. Unknown ones are not believed to be."""
    own = [symbol.address for symbol in map(context.symbols.find, DEFAULTS) if symbol is not None]
    for arena in arenas:
        if arena.index not in wanted:
            continue
        base = arena.read().get("base")
        hooks = context.view("base_s", base).get("ehooks.ptr", "extent_hooks") if base else None
        if not own or not hooks:
            raise Refusal("cannot determine whether arena %d uses custom extent hooks" % arena.index, "see `gdbheapx doctor`")
        if hooks not in own:
            raise Refusal(
                "arena %d uses custom extent hooks; their side effects are unknown" % arena.index, "purge another arena with --arena I"
            )
