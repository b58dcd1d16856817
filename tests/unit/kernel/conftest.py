"""Both kernels, for every test of this folder."""

import os

import pytest

from gdbheapx.kernel import Kernel, binding, build, twin


@pytest.fixture(scope="session")
def c_kernel(tmp_path_factory: pytest.TempPathFactory) -> Kernel:
    """The C kernel, compiled from the files as they are now."""
    named = os.environ.get("HEAPX_TEST_LIBRARY")
    path = named or build.build(str(tmp_path_factory.mktemp("kernel")))
    if not path:
        pytest.skip("no C compiler here")
    return binding.open_kernel(path)


@pytest.fixture(scope="session")
def python_kernel() -> Kernel:
    """The twin."""
    return twin.PythonKernel()


@pytest.fixture(params=["c", "python"])
def kernel(request: pytest.FixtureRequest) -> Kernel:
    """Each kernel in turn."""
    chosen = request.getfixturevalue(request.param + "_kernel")
    assert isinstance(chosen, Kernel)
    return chosen
