"""The C kernel for each machine whose compiler is here: libraries that need no libc by name, for wheels and the single file."""

import contextlib
import fcntl
import hashlib
import os
import platform
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Collection, Dict, Optional, Tuple

from gdbheapx.kernel import build

KEPT = Path(__file__).resolve().parent.parent / "build" / "libraries"
"""What was compiled before: one takes 18 s of a processor, and tests of four modules need it."""


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


def compiled(addons: Optional[Collection[str]] = None) -> Dict[str, bytes]:
    """By machine, with the code of all add-ons or of some; what this compiler has made of the same files is not made again, nor by two at a time."""
    with contextlib.ExitStack() as stack:
        with contextlib.suppress(OSError):  # a checkout that cannot be written
            KEPT.mkdir(parents=True, exist_ok=True)
            fcntl.flock(stack.enter_context(open(KEPT / "lock", "w")), fcntl.LOCK_EX)
        return _compiled(addons)


def _compiled(addons: Optional[Collection[str]]) -> Dict[str, bytes]:
    sources, checksum = build.all_sources(addons), build.source_id(addons) or 0
    libraries = {}
    for machine, compiler in compilers().items():
        itself = subprocess.run([compiler, "-v"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=True).stdout
        flags = (build.FLAGS, build.PORTABLE, build.OF_MACHINE)
        kept = KEPT / hashlib.sha256(repr((sorted(sources.items()), checksum, flags, machine, compiler, itself)).encode()).hexdigest()
        with contextlib.suppress(OSError):
            libraries[machine] = kept.read_bytes()
            continue
        with tempfile.TemporaryDirectory() as folder:
            target = Path(folder) / build.LIBRARY
            build.compile_into(str(target), [compiler], sources, checksum, machine).check_returncode()
            libraries[machine] = target.read_bytes()
            with contextlib.suppress(OSError):
                unfinished = kept.with_suffix(".%d" % os.getpid())
                shutil.copy(target, unfinished)
                os.replace(unfinished, kept)
    return libraries
