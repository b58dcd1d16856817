"""The loops over memory: a C library behind ctypes, and the same functions in Python where it cannot be used.

`load()` gives the kernel; what it can do is in interface.py and in those of the folders, what it takes and gives in their records.py.
Nothing is loaded or compiled at import.
"""

import os
from typing import Dict, Optional

from gdbheapx.kernel.blocks.batches import Batches, ListingEnd
from gdbheapx.kernel.blocks.records import Blocks, BlockStream
from gdbheapx.kernel.common.records import Residency
from gdbheapx.kernel.interface import Kernel

__all__ = ["Batches", "BlockStream", "Blocks", "Kernel", "ListingEnd", "Residency", "load", "swapped_in_bytes"]

_loaded: Dict[str, Kernel] = {}
"""One library for the life of this process, by what was asked for."""


def load(prefer: Optional[str] = None) -> Kernel:
    """The C kernel if it can be used, else its twin, whose `why` says what is in the way.

    `prefer`: "python" for the twin, "c" for the C kernel even where the environment variable GDBHEAPX_KERNEL says python.
    """
    wanted = prefer or os.environ.get("GDBHEAPX_KERNEL") or "c"
    if wanted not in _loaded:
        _loaded[wanted] = _twin("GDBHEAPX_KERNEL=python" if prefer is None else "asked for") if wanted == "python" else _c()
    return _loaded[wanted]


def swapped_in_bytes() -> int:
    """What kernels have read that was in swap, in bytes, since this process began: see Kernel.swapped_in_bytes. Loads none."""
    return sum(one.swapped_in_bytes for one in _loaded.values())


def _c() -> Kernel:
    from gdbheapx.kernel import binding

    try:
        return binding.open_kernel()
    except binding.Unusable as reason:
        return _twin(str(reason))


def _twin(why: str) -> Kernel:
    from gdbheapx.kernel import twin

    return twin.PythonKernel(why)
