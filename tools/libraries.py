"""The C kernel for each machine whose compiler is here: libraries that need no libc by name, for wheels and the single file."""

import platform
import shutil
import tempfile
from pathlib import Path
from typing import Dict, Tuple

from gdbheapx.kernel import build


def compilers() -> Dict[str, str]:
    """By machine; Debian's cross compilers may have their version in their names."""
    paths = {}
    for machine in build.OF_MACHINE:
        own = ["gcc", "cc"] if platform.machine() == machine else []
        names = [*own, *("%s-linux-gnu-gcc%s" % (machine, version) for version in ("", *("-%d" % number for number in range(20, 8, -1))))]
        path = next(filter(None, map(shutil.which, names)), None)
        if path:
            paths[machine] = path
    return paths


def left_out() -> Tuple[str, ...]:
    """What to install for the machines that have no compiler here."""
    return tuple("%s: install gcc-%s-linux-gnu" % (machine, machine.replace("_", "-")) for machine in build.OF_MACHINE if machine not in compilers())


def compiled() -> Dict[str, bytes]:
    """By machine."""
    libraries = {}
    for machine, compiler in compilers().items():
        with tempfile.TemporaryDirectory() as folder:
            target = Path(folder) / build.LIBRARY
            build.compile_into(str(target), [compiler], build.sources(), build.source_id() or 0, machine).check_returncode()
            libraries[machine] = target.read_bytes()
    return libraries
