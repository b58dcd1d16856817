"""Programs that are big, or foreign, or take long to load: not for every run. GDBHEAPX_WILD=1 asks for them."""

import os
from pathlib import Path
from typing import List

import pytest

HERE = Path(__file__).parent


def pytest_collection_modifyitems(items: List[pytest.Item]) -> None:
    """Skip what lies here unless it was asked for."""
    if os.environ.get("GDBHEAPX_WILD"):
        return
    for item in items:
        if HERE in Path(str(item.fspath)).parents:
            item.add_marker(pytest.mark.skip(reason="big or foreign programs: set GDBHEAPX_WILD=1"))
