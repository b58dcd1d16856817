"""Both kernels."""

import pytest

from gdbheapx.kernel import Kernel, load


@pytest.fixture(params=["c", "python"])
def kernel(request: pytest.FixtureRequest) -> Kernel:
    """Each in turn; skips where the C kernel is not built."""
    chosen = load(request.param)
    if chosen.name != request.param:
        pytest.skip("no C kernel here")
    return chosen
