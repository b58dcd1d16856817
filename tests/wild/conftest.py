"""What tests that take the machine for minutes have in common."""

import os
import subprocess
import sys
from typing import Iterator

import pytest


@pytest.fixture
def load() -> Iterator[None]:
    """As many busy processes as there are CPUs."""
    made = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(os.cpu_count() or 1)]
    yield
    for one in made:
        one.kill()
        one.wait()
