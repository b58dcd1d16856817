"""How long a watch takes samples."""

import pytest

from gdbheapx import command
from gdbheapx.addons.monitor.commands import watch as watching
from gdbheapx.errors import UsageError


def test_how_long_a_watch_lasts() -> None:
    """--for has a unit; samples are counted from the first."""
    command.load_commands()
    for text, number in (("60", 13), ("60s", 13), ("2m", 25), ("1h", 721), ("9", 2)):
        options = command.parse(["watch", "--for", text], "gdbheapx").options
        assert watching.times(options) == number
    assert watching.times(command.parse(["watch", "--for", "1h", "--times", "3"], "gdbheapx").options) == 3
    for text in ("x", "", "-5", "0m", "5w"):
        with pytest.raises(UsageError):
            command.parse(["watch", "--for=%s" % text], "gdbheapx")
