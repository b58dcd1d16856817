"""Tests of the core that ask about what an add-on reads."""

import pytest

from gdbheapx.common import addon_loader


def require_addon(addon: str) -> None:
    """Skip the test if the add-on's folder was deleted."""
    if addon_loader.import_addon(addon) is None:
        pytest.skip("the add-on %s is not here" % addon)


def require_command(name: str) -> None:
    """Skip where the add-on with this command is not here."""
    addon = addon_loader.addon_of_command(name)
    if addon is not None:
        require_addon(addon)


def require_every_addon() -> None:
    """Skip where one is not here: the test is about words of several."""
    if not addon_loader.has_every_addon():
        pytest.skip("an add-on is not here")
