"""Programs that have commands of their own for what their jemalloc should do."""

from typing import Optional, Sequence

from gdbheapx.inferior.base import Module
from gdbheapx.jemalloc.records import PublicNames
from gdbheapx.model import Step

_PURGE = "returns the unused pages of every arena to the OS now"
_DEFRAGMENT = "moves values together, if redis was built with its own jemalloc (Debian's was not)"
_PROGRAMS = {
    "redis-server": "redis-cli",
    "redis-check-rdb": "redis-cli",  # Debian's redis-server is a link to it
    "valkey-server": "valkey-cli",
    "keydb-server": "keydb-cli",
}
"""Programs that have commands of their own for it, and their clients."""


def background_hint(names: PublicNames) -> Optional[str]:
    """The program's own switch of jemalloc's background threads, where it overrides what the environment asks for; None if that is not
    known. DuckDB 1 sets background_thread at its start (allocator_background_threads), DuckDB 2 heeds both."""
    is_duckdb = names.prefix == "duckdb_je_"
    return Step("SET allocator_background_threads=true", "in DuckDB has its jemalloc purge on time") if is_duckdb else None


def _client(modules: Sequence[Module]) -> Optional[str]:
    files = {module.file_name for module in modules}
    return next((client for program, client in _PROGRAMS.items() if program in files), None)


def defragment_hint(modules: Sequence[Module]) -> Optional[str]:
    """The program's own way to move its blocks together; None if it has none that is known here."""
    return Step("redis-cli CONFIG SET activedefrag yes", _DEFRAGMENT) if _client(modules) is not None else None


def purge_hint(modules: Sequence[Module], purgeable_bytes: Optional[int] = None) -> Optional[str]:
    """The program's own way to have jemalloc purge; None if it has none that is known here."""
    client = _client(modules)
    return Step("%s MEMORY PURGE" % client, _PURGE, purgeable_bytes) if client is not None else None
