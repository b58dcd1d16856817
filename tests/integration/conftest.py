"""Fixtures of several modules of this folder."""

import shutil
from typing import Iterator, List

import pytest

from tests.support.gdbserver import Server


@pytest.fixture
def servers(live: str) -> Iterator[List[Server]]:
    """gdbservers that end with the test; skips where gdbserver is not installed."""
    if not shutil.which("gdbserver"):
        pytest.skip("gdbserver is not installed")
    made = []  # type: List[Server]
    yield made
    for server in made:
        server.end()
