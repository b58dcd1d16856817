"""Tests of the core that ask about what an add-on reads."""

import pytest

from gdbheapx import addon_loader


def require_addon(addon: str) -> None:
    """Skip the test if the add-on's folder was deleted."""
    if addon_loader.import_addon(addon) is None:
        pytest.skip("the add-on %s is not here" % addon)
