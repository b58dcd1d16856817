"""Programs that have commands of their own for what their jemalloc should do."""

from typing import List, Optional, Sequence

from gdbheapx.inferior.base import Module
from gdbheapx.model import Step

_PURGE = "returns the unused pages of every arena to the OS now"
_REDIS = Step("redis-cli MEMORY PURGE", _PURGE)
_PURGING = (
    ("redis-server", _REDIS),
    ("redis-check-rdb", _REDIS),  # Debian's redis-server is a link to it
    ("valkey-server", Step("valkey-cli MEMORY PURGE", _PURGE)),
    ("keydb-server", Step("keydb-cli MEMORY PURGE", _PURGE)),
)
"""Programs that have a command of their own for it."""

_REDIS_DEFRAG = Step(
    "redis-cli CONFIG SET activedefrag yes", "moves values together, if redis was built with its own jemalloc (Debian's was not)"
)
_DEFRAGMENTING = ("redis-server", "redis-check-rdb", "valkey-server", "keydb-server")


def _names(modules: Sequence[Module]) -> List[str]:
    return [module.file_name for module in modules]


def defragment_hint(modules: Sequence[Module]) -> Optional[str]:
    """The program's own way to move its blocks together; None if it has none that is known here."""
    return _REDIS_DEFRAG if any(name in _DEFRAGMENTING for name in _names(modules)) else None


def purge_hint(modules: Sequence[Module]) -> Optional[str]:
    """The program's own way to have jemalloc purge; None if it has none that is known here."""
    names = _names(modules)
    return next((step for program, step in _PURGING if program in names), None)
