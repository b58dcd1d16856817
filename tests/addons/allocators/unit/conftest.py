"""The native library."""

import pytest

from gdbheapx.kernel import load
from gdbheapx.kernel.common.library import Kernel


@pytest.fixture
def kernel() -> Kernel:
    """Loaded."""
    return load()
