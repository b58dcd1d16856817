"""Show where a process's memory went, from gdb, without rebuilding, restarting or recording anything."""

from typing import TYPE_CHECKING, Any

from gdbheapx.common import __version__

if TYPE_CHECKING:
    from gdbheapx.api import Answer, Block, Blocks, Heap, HeapxError, Problem, UsageError, current, open

__all__ = ["Answer", "Block", "Blocks", "Heap", "HeapxError", "Problem", "UsageError", "__version__", "current", "open"]


def __getattr__(name: str) -> Any:
    """Import the library's names on first use, so that the command line does not pay for them."""
    if name not in __all__:
        raise AttributeError("module %r has no attribute %r" % (__name__, name))
    from gdbheapx import api

    return getattr(api, name)
