"""Fixtures of several modules of this folder."""

import signal
from pathlib import Path
from typing import Any, Callable, Iterator, Optional

import pytest

from tests.support import crashes
from tests.support.processes import Stage


@pytest.fixture
def started(stage: Stage) -> Iterator[Callable[..., crashes.Server]]:
    """Starts servers of `capture`, in folders of their own unless one is given; ended with the test."""
    servers = []

    def start(command: str = "cat > /dev/null", *more: str, folder: Optional[Path] = None, **options: Any) -> crashes.Server:
        servers.append(crashes.Server(folder or stage.folder(), command, *more, **options))
        return servers[-1]

    yield start
    for server in servers:
        if server.popen.poll() is None:
            server.end(signal.SIGKILL)
