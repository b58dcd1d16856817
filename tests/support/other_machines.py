"""Programs of other architectures, and the libcs that were fetched for them."""

import subprocess
import sysconfig
import zlib
from pathlib import Path
from typing import Sequence

import pytest

from tests.support.paths import PROGRAMS, ROOT
from tests.support.processes import Builder, Process, Stage, compile_once
from tests.support.programs import need

FOREIGN = ROOT / ".cache" / "foreign"
FLAGS = ("-std=gnu11", "-O1", "-g", "-fno-builtin-malloc", "-fno-builtin-free")
I386 = ("-m32", "-isystem", "/usr/include/%s" % (sysconfig.get_config_var("MULTIARCH") or ""))
"""For this machine's gcc; the headers for i386 are those of this machine."""


def tree(architecture: str) -> Path:
    """The libc of that architecture with its debug file; skips where it was not fetched."""
    folder = FOREIGN / architecture
    if not (folder / "complete").exists():
        pytest.skip("no libc of %s here; tools/foreign_libc.sh %s %s unpacks Debian's" % (architecture, architecture, folder.relative_to(ROOT)))
    return folder


def compiled(builder: Builder, compiler: str, architecture: str, *flags: str, name: str = "accounts") -> Path:
    """A C program of tests/programs/ for that architecture; skips with the reason where that cannot be."""
    made = builder.folder / ("%s-%s-%08x" % (name, architecture, zlib.crc32(" ".join(flags).encode())))
    try:
        return compile_once(made, [compiler, *FLAGS, *flags, str(PROGRAMS / ("%s.c" % name)), "-pthread"])
    except AssertionError as error:
        pytest.skip("%s cannot build for %s here: %s" % (compiler, architecture, (str(error).strip().splitlines() or ["?"])[-1]))


def i386_program(builder: Builder, *flags: str) -> Path:
    """accounts.c for i386; skips where that cannot be built."""
    need("gcc")
    return compiled(builder, "gcc", "i386", *I386, *flags)


def i386_flags(builder: Builder) -> Sequence[str]:
    """Flags of any test program for i386 that this machine can build and run; skips where it cannot."""
    try:
        subprocess.run([str(i386_program(builder))], stdin=subprocess.DEVNULL, capture_output=True)  # says how it is used
    except OSError:
        pytest.skip("no C library of i386 is installed (Debian: libc6-i386)")
    return I386


def start(stage: Stage, command: Sequence[str], state: str) -> Process:
    """The program in that state."""
    folder = stage.folder()
    process = stage.spawn([*command, str(folder / "record"), state], folder)
    process.wait_ready()
    return process
