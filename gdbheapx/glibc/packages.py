"""Where the debug files of a distribution's own libc come from."""

import re

from gdbheapx.inferior.base import DebugHint, Module, Target

DISTRIBUTED = re.compile(r"(?!.*/lib(32|x32)/).*/(libc[.-]|libc_malloc_debug|ld-linux)")
"""Objects of which the packages have debug files: Debian has none for lib32."""
PACKAGES = (
    (("debian", "ubuntu"), "apt-get install libc6-dbg"),
    (("fedora", "rhel", "centos"), "dnf debuginfo-install glibc"),
    (("suse", "opensuse"), "zypper install glibc-debuginfo"),
)
"""What gets its debug information, by ID or ID_LIKE of os-release."""


def debug_hint(target: Target, module: Module) -> DebugHint:
    """How to get the debug information of a libc."""
    return target.debug_hint(module, PACKAGES if DISTRIBUTED.match(module.name) else ())
