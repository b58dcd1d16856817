"""A command under what a systemd unit leaves it: capabilities, system calls and writable code; without systemd, as root.

python -m tests.support.units UNIT COMMAND [WORD...]
"""

import ctypes
import os
import re
import subprocess
import sys
from typing import List, Set

REFUSED, ALLOWED = 0x00050001, 0x7FFF0000
"""As libseccomp says EPERM and yes."""
SET_MDWE = 65


def setting(unit: str, name: str) -> List[str]:
    """The words of a setting of a unit's text."""
    return [word for line in re.findall(r"^%s=(.*)$" % name, unit, re.MULTILINE) for word in line.split()]


def calls(words: List[str]) -> Set[str]:
    """The system calls of these names and groups."""
    found: Set[str] = set()
    left = list(words)
    while left:
        name = left.pop()
        if name.startswith("@"):
            said = subprocess.run(["systemd-analyze", "syscall-filter", name], stdout=subprocess.PIPE, text=True, check=True).stdout
            left += [line.strip() for line in said.splitlines()[1:] if line.strip() and not line.strip().startswith("#")]
        else:
            found.add(name)
    return found


def filter_calls(words: List[str]) -> None:
    """From now on all others are refused."""
    allowed = calls(words)
    library = ctypes.CDLL("libseccomp.so.2")
    library.seccomp_init.restype = ctypes.c_void_p
    context = ctypes.c_void_p(library.seccomp_init(REFUSED))
    for name in allowed:
        number = library.seccomp_syscall_resolve_name(name.encode())
        if number >= 0:
            library.seccomp_rule_add(context, ALLOWED, number, 0)
    if library.seccomp_load(context) != 0:
        raise SystemExit("no filter can be set here")


def main(words: List[str]) -> None:
    """Become the command."""
    with open(words[0]) as file:
        unit = file.read()
    if setting(unit, "MemoryDenyWriteExecute") == ["yes"]:
        ctypes.CDLL(None).prctl(SET_MDWE, 1, 0, 0, 0)  # Linux 6.3; an older one refuses
    filter_calls(setting(unit, "SystemCallFilter"))
    os.execvp(words[1], words[1:])


def under(unit: str, command: List[str]) -> List[str]:
    """The command line that runs it so."""
    with open(unit) as file:
        kept = [name.lower().replace("cap_", "+") for name in setting(file.read(), "CapabilityBoundingSet")]
    return ["setpriv", "--bounding-set=" + ",".join(["-all", *kept]), "--inh-caps=-all", "--no-new-privs", sys.executable, "-m", "tests.support.units", unit, *command]


if __name__ == "__main__":
    main(sys.argv[1:])
