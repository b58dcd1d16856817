"""The native library, for every test of this folder."""

import contextlib
import os

import pytest

from gdbheapx.kernel import binding, build
from gdbheapx.kernel.binding import CKernel
from gdbheapx.kernel.common import library


@pytest.fixture(scope="session")
def c_library(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The library, compiled from the files as they are now: the checkout's own, where it is of today's sources, or one that is built."""
    named = os.environ.get("HEAPX_TEST_LIBRARY")
    if named:
        return named
    with contextlib.suppress(binding.Unusable):
        binding.open_kernel()
        return library.LIBRARY
    path = build.build_library(str(tmp_path_factory.mktemp("kernel")))
    if not path:
        pytest.skip("no C compiler here")
    return path


@pytest.fixture(scope="session")
def c_kernel(c_library: str) -> CKernel:
    """That library, loaded."""
    return binding.open_kernel(c_library)


@pytest.fixture
def the_c_kernel(c_kernel: CKernel, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is the one that is loaded: it alone makes copies."""
    monkeypatch.setattr("gdbheapx.kernel.load_native_library", lambda: c_kernel)


@pytest.fixture(scope="session")
def kernel(c_kernel: CKernel) -> CKernel:
    """The same."""
    return c_kernel
