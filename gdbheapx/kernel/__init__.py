"""The loops over memory: a C library behind ctypes; totals and listings also in Python, where it cannot be used.

`load()` gives the kernel, and walkers.py of an allocator's folder walks by it; what each can do is in interface.py of
its folder, what it takes and gives in records.py. What follows pointers is in binding.py alone.
Nothing is loaded or compiled at import.
"""

import os
from typing import TYPE_CHECKING, Dict, Optional

from gdbheapx.errors import HeapxError
from gdbheapx.kernel.blocks.records import Blocks, BlockStream, ListingEnd
from gdbheapx.kernel.common.records import Kernel, Residency
from gdbheapx.problems import KERNEL_MISSING

if TYPE_CHECKING:
    from gdbheapx.kernel.binding import CKernel

__all__ = ["BlockStream", "Blocks", "Kernel", "ListingEnd", "Residency", "compiled", "load", "swapped_in_bytes"]

NEXT_STEP = (
    "install a C compiler or gdbheapx's wheel for this machine, or use the single file; `arenas`, `report` and `chunks` need neither"
)

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


def compiled(kernel: Kernel) -> "CKernel":
    """That kernel, which is the C one; HeapxError where it is not."""
    from gdbheapx.kernel.binding import CKernel

    if not isinstance(kernel, CKernel):
        raise HeapxError("this needs the native library, which is not in use: %s" % kernel.why, NEXT_STEP, code=KERNEL_MISSING)
    return kernel


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
    from gdbheapx.kernel.common.twin.kernel import PythonKernel

    return PythonKernel(why)
