"""The native library."""

import pytest

from gdbheapx.kernel import load
from gdbheapx.kernel.binding import CKernel


@pytest.fixture(name="kernel")
def load_kernel() -> CKernel:
    """Load it."""
    return load()


@pytest.fixture
def c_kernel(kernel: CKernel) -> CKernel:
    """The same."""
    return kernel
