"""The loops over memory: a C library called by ctypes.

`load()` gives the kernel, and walkers.py of an allocator's folder walks by it; what it takes and gives is in records.py of
its folder. What follows pointers is in binding.py alone.
Nothing is loaded or compiled at import.
"""

from typing import TYPE_CHECKING, Any, List, Optional

from gdbheapx.common.errors import HeapxError
from gdbheapx.common.problems import KERNEL_MISSING

if TYPE_CHECKING:
    from gdbheapx.kernel.binding import CKernel

__all__ = ["load_native_library", "loaded_library", "swapped_in_bytes"]

NEXT_STEP = "or install gdbheapx's wheel for this machine, or use the single file"

_loaded: "List[CKernel]" = []
"""One for the life of this process."""


def load_native_library() -> "CKernel":
    """Return the native library; HeapxError, with how to get it, where it cannot be loaded."""
    from gdbheapx.kernel import binding

    if not _loaded:
        try:
            _loaded.append(binding.open_kernel())
        except binding.Unusable as reason:
            raise HeapxError("the native library is missing: %s" % reason, NEXT_STEP, code=KERNEL_MISSING) from None
    return _loaded[0]


def loaded_library() -> Optional[Any]:
    """Return the library itself, or None where it cannot be loaded."""
    try:
        return load_native_library().library
    except HeapxError:
        return None


def swapped_in_bytes() -> int:
    """Return the bytes that were in swap when they were read, since this process began; see Kernel.swapped_in_bytes. Loads nothing."""
    return sum(kernel.swapped_in_bytes for kernel in _loaded)
