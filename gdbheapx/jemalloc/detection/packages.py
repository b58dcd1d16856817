"""Where the debug files of a distribution's own libjemalloc.so.2 come from."""

import re

from gdbheapx.inferior.base import DebugHint, Module, Target

DISTRIBUTED = re.compile(r"/(usr/)?lib(64|/[^/]+)?/libjemalloc\.so\.2$")
PACKAGES = (
    (("ubuntu",), "apt-get install libjemalloc2-dbgsym (from Ubuntu's archive ddebs)"),
    (("debian",), "apt-get install libjemalloc2-dbgsym (from Debian's archive debian-debug)"),
    (("fedora", "rhel", "centos"), "dnf debuginfo-install jemalloc"),
    (("suse", "opensuse"), "zypper install libjemalloc2-debuginfo"),
)
"""What gets them, by ID or ID_LIKE of os-release."""


def debug_hint(target: Target, module: Module) -> DebugHint:
    """How to get the debug information of a jemalloc's object."""
    return target.debug_hint(module, PACKAGES if DISTRIBUTED.match(module.name) else ())
