"""Copy a process while it runs: a pause of milliseconds for the last of what it wrote meanwhile."""

from typing import Optional

from gdbheapx.addons.labs.short_stop.machine import Injecting
from gdbheapx.inferior.arch import native_architecture


def find_injecting() -> Optional[Injecting]:
    """Return the requirements on this machine, or None if they were never tried on it."""
    name = native_architecture().name
    if name == "i386:x86-64":
        from gdbheapx.addons.labs.short_stop import x86_64

        return x86_64.INJECTING
    if name == "aarch64":
        from gdbheapx.addons.labs.short_stop import aarch64

        return aarch64.INJECTING
    return None
