"""The native library."""

import pytest

from gdbheapx.kernel import load_native_library
from gdbheapx.kernel.binding import CKernel


@pytest.fixture(name="kernel")
def load_kernel() -> CKernel:
    """Load it."""
    return load_native_library()


@pytest.fixture
def c_kernel(kernel: CKernel) -> CKernel:
    """The same."""
    return kernel
