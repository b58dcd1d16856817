"""Programs that keep memory of their own outside malloc: how they say where it is."""

import os
from typing import Optional, Sequence

from gdbheapx.target.base import Module

_BY_OBJECT = (
    ("libjvm", "a JVM: its heap, metaspace and code are no malloc memory; jcmd PID VM.native_memory (started with -XX:NativeMemoryTracking=summary) splits them"),
    ("libpython", "CPython keeps small objects in mappings of its own; tracemalloc tells who made them, PYTHONMALLOC=malloc puts them into malloc"),
    ("python", "CPython keeps small objects in mappings of its own; tracemalloc tells who made them, PYTHONMALLOC=malloc puts them into malloc"),
    ("libruby", "Ruby keeps objects in heap pages of its own; ObjectSpace.memsize_of_all and GC.stat tell about them"),
    ("ruby", "Ruby keeps objects in heap pages of its own; ObjectSpace.memsize_of_all and GC.stat tell about them"),
    ("node", "V8 keeps JavaScript objects in mappings of its own; process.memoryUsage() and a heap snapshot tell about them"),
    ("libmono", "Mono keeps objects in a heap of its own; its profiler tells about them"),
    ("libcoreclr", ".NET keeps objects in a heap of its own; dotnet-gcdump tells about them"),
)

_REDIS = "redis-cli MEMORY PURGE gives back unused pages of every arena now"
_PURGING = (
    ("redis-server", _REDIS),
    ("redis-check-rdb", _REDIS),  # Debian's redis-server is a link to it
    ("valkey-server", "valkey-cli MEMORY PURGE gives back unused pages of every arena now"),
    ("keydb-server", "keydb-cli MEMORY PURGE gives back unused pages of every arena now"),
)
"""Programs that have a command of their own for it."""


_REDIS_DEFRAG = "redis-cli CONFIG SET activedefrag yes moves values together, where redis was built with a jemalloc of its own (Debian's is not)"
_DEFRAGMENTING = ("redis-server", "redis-check-rdb", "valkey-server", "keydb-server")


def defragment_hint(modules: Sequence[Module]) -> Optional[str]:
    """The program's own way to move its blocks together; None if it has none that is known here."""
    return _REDIS_DEFRAG if any(os.path.basename(module.name) in _DEFRAGMENTING for module in modules) else None


def purge_hint(modules: Sequence[Module]) -> Optional[str]:
    """The program's own way to have jemalloc purge; None if it has none that is known here."""
    names = [os.path.basename(module.name) for module in modules]
    return next((text for program, text in _PURGING if program in names), None)


def hint(modules: Sequence[Module]) -> Optional[str]:
    """The next step for a process whose memory is not malloc's, if its runtime is one of those known; by the names of its objects."""
    names = [os.path.basename(module.name) for module in modules]
    for prefix, text in _BY_OBJECT:
        if any(name.startswith(prefix) for name in names):
            return text
    return None
