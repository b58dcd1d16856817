"""List the commands by purpose, in the order of the help, and the older names of merged commands."""

from typing import Any, Dict, Tuple

GROUPS: Tuple[Tuple[str, Tuple[str, ...]], ...] = (
    ("start", ("report", "doctor", "bill")),
    ("what and who", ("owners", "leaks", "census", "whatis", "cold")),
    ("over time", ("watch", "diff", "snapshot", "explore")),
    ("give it back", ("release", "what-if", "pins")),
    ("files and services", ("export", "query", "capture", "serve", "fleet", "mcp")),
)
"""The groups of `--help`, what is used most first."""
INTERNALS = ("allocator internals", ("arenas", "chunks", "stats", "check", "decay", "tickers", "tunables", "trim", "purge"))
"""The group that only `--help-all` lists."""
FIRST = ("report", "owners", "leaks", "census", "watch", "diff", "release")
"""Commands of which `--help` says what they do."""
ALIASES: Dict[str, Tuple[str, Dict[str, Any]]] = {
    "bins": ("arenas", {"part": "bins"}),
    "tcache": ("arenas", {"part": "caches"}),
    "malloc-info": ("stats", {"format": "xml", "merged_only": False}),
    "malloc-stats": ("stats", {"format": "text"}),
    "profile": ("export", {"of": "profile", "format": "jeprof"}),
    "refs": ("whatis", {"chains": True, "holders": None}),
    "table": ("fleet", {"table": True, "directory": None, "workers": None, "dask": None, "share": None}),
}
"""Older names: the command, and options that are set by the name, which the older name does not take."""


ADDON_COMMANDS: Dict[str, Tuple[str, ...]] = {
    "views": ("explore", "export", "fleet", "mcp", "query"),
    "monitor": ("bill", "capture", "serve", "watch"),
    "labs": ("cold", "what_if"),
    "runtimes": (),
    "allocators": (),
}
"""Folders of gdbheapx/addons, each of which may be missing, with the files of their commands."""
ADDON_CAPABILITIES: Dict[str, Tuple[str, ...]] = {
    "views": ("explore", "html", "mcp", "page_parts", "pages", "rows", "sql"),
    "monitor": ("capture", "dumped", "standby", "turn"),
    "labs": ("cold", "settings", "short_stop", "sites"),
    "runtimes": ("books", "collector", "recognisers"),
    "allocators": ("allocators",),
}
"""What the core and other add-ons ask each of them for: the keys of CAPABILITIES in its package."""
ADDON_ALLOCATORS: Dict[str, Dict[str, str]] = {
    "allocators": {"mimalloc": r"libmimalloc", "tcmalloc": r"libtcmalloc", "musl": r"ld-musl-|libc\.musl-"},
}
"""Allocators that an add-on reads, with the beginnings of their files' names, so that a target with one says what is missing."""


def file_of(name: str) -> str:
    """The file that declares the command of this name, as it is called without .py."""
    return ALIASES.get(name, (name,))[0].replace("-", "_")
