"""The compiler of this machine, made quicker: optimising takes two thirds of the time in which the kernel is compiled."""

from pathlib import Path
from typing import List, Sequence


def with_last(words: Sequence[str], folder: Path, *flags: str) -> List[str]:
    """A program that is this compiler with these flags behind all others, so that they win."""
    program = folder / "cc"
    program.write_text('#!/bin/sh\nexec %s "$@" %s\n' % (" ".join(words), " ".join(flags)))
    program.chmod(0o755)
    return [str(program)]
