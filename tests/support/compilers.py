"""The compiler of this machine: for small programs, and made quicker for the kernel, of which optimising takes two thirds of the time."""

import shutil
import subprocess
from pathlib import Path
from typing import List, Sequence

import pytest


def compile_c(text: str, out: Path, *flags: str) -> str:
    """Compile, or skip where there is no compiler; returns the path of what was made."""
    compiler = shutil.which("cc") or shutil.which("gcc")
    if not compiler:
        pytest.skip("no C compiler here")
    source = out.with_suffix(".c")
    source.write_text(text)
    subprocess.run([compiler, "-w", "-o", str(out), str(source), *flags], check=True)
    return str(out)


def with_last(words: Sequence[str], folder: Path, *flags: str) -> List[str]:
    """A program that is this compiler with these flags behind all others, so that they win."""
    program = folder / "cc"
    program.write_text('#!/bin/sh\nexec %s "$@" %s\n' % (" ".join(words), " ".join(flags)))
    program.chmod(0o755)
    return [str(program)]
