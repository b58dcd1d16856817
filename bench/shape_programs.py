"""Builds what the shapes run: the C programs of shapes/, libraries with large symbol tables, a python3 with pyarrow."""

import subprocess
import sys
from pathlib import Path
from typing import List, Optional, Sequence

from bench.timing import HERE

VENV = HERE / ".pyarrow"
"""python3 with pyarrow, from PyPI once; not part of the checkout."""
NAME = "_ZN5bench6shapes7symbolsINS_9parameterILm%dEEENS_5otherILm%dEEEE28member_function_of_a_templateEv"
"""As long as names of C++ are."""
JEMALLOC_PIC = "-l:libjemalloc_pic.a"

CFLAGS = ("-std=gnu11", "-O2", "-g", "-fno-builtin-malloc", "-fno-builtin-calloc", "-Wall", "-Wextra")


class Broken(Exception):
    """Something is not what it was made to be: the bench itself, or the tool's counts."""


class Unavailable(Exception):
    """This machine cannot make the shape; the message says why."""


def gcc(*words: str) -> None:
    """Compile; Unavailable with the compiler's last line."""
    done = subprocess.run(["gcc", *words], stdin=subprocess.DEVNULL, capture_output=True, text=True)
    if done.returncode:
        raise Unavailable("gcc: " + (done.stderr.strip().splitlines() or ["?"])[-1])


def program(folder: Path, name: str, *more: str) -> str:
    """shapes/NAME.c, compiled."""
    made = folder / name
    gcc(*CFLAGS, "-o", str(made), str(HERE / "shapes" / (name + ".c")), "-pthread", *more)
    return str(made)


def library(folder: Path, symbols: int, jemalloc: bool) -> Path:
    """A library of that many functions, not stripped, with a jemalloc among them if asked for."""
    made = folder / ("libsymbols%s.so" % ("-jemalloc" if jemalloc else ""))
    source = folder / "symbols.s"
    with open(source, "w") as file:
        file.write('.section .note.GNU-stack,"",@progbits\n.text\n')
        for i in range(symbols):
            name = NAME % (i, i * 7919 % symbols)
            file.write(".globl %s\n.type %s,@function\n%s: ret\n.size %s,1\n" % (name, name, name, name))
    inside: Sequence[str] = ("-Wl,--whole-archive", JEMALLOC_PIC, "-Wl,--no-whole-archive", "-l:libstdc++.so.6", "-lm") if jemalloc else ()
    try:
        gcc("-shared", "-o", str(made), str(source), *inside, "-pthread")
    except Unavailable:
        if not jemalloc:
            raise
        raise Unavailable("libjemalloc_pic.a cannot be linked here (Debian: libjemalloc-dev)") from None
    finally:
        source.unlink()
    counted = subprocess.check_output(["nm", str(made)]).count(b"\n")
    if counted < symbols:
        raise Broken("%s has %d symbols, not %d" % (made, counted, symbols))
    return made


def with_symbols(folder: Path, symbols: int, jemalloc: bool) -> List[str]:
    """shapes/symbols.c, linked with that library."""
    library(folder, symbols, jemalloc)
    name = "symbols-jemalloc" if jemalloc else "symbols"
    gcc(*CFLAGS, "-o", str(folder / name), str(HERE / "shapes" / "symbols.c"), "-pthread", "-Wl,--no-as-needed", "-L" + str(folder),
        "-l:libsymbols%s.so" % ("-jemalloc" if jemalloc else ""), "-Wl,-rpath," + str(folder))  # fmt: skip
    return [str(folder / name)]


def jemalloc_library() -> str:
    """This system's libjemalloc.so.2."""
    for folder in sorted(Path("/usr/lib").glob("*-linux-gnu*")):
        if (folder / "libjemalloc.so.2").exists():
            return str(folder / "libjemalloc.so.2")
    raise Unavailable("libjemalloc.so.2 is not installed (Debian: libjemalloc2)")


def python_with_arrow() -> str:
    """A python3 that has pyarrow."""
    python = str(VENV / "bin" / "python")
    if not imports_arrow(python):
        base = next(one for one in ("/usr/bin/python3", sys.executable) if Path(one).exists())
        for words in (
            [base, "-m", "venv", "--clear", str(VENV)],
            [python, "-m", "pip", "install", "-q", "--disable-pip-version-check", "--only-binary", ":all:", "pyarrow"],
        ):
            done = subprocess.run(words, stdin=subprocess.DEVNULL, capture_output=True, text=True)
            if done.returncode:
                raise Unavailable("pyarrow cannot be had: " + (done.stderr.strip().splitlines() or ["?"])[-1])
    why = imports_arrow(python)
    if not why:
        raise Unavailable("pyarrow was installed and cannot be imported")
    return python


def imports_arrow(python: str) -> Optional[str]:
    """pyarrow's version; None without it."""
    if not Path(python).exists():
        return None
    done = subprocess.run([python, "-c", "import pyarrow.compute as c, pyarrow; print(pyarrow.__version__)"], capture_output=True, text=True)
    return done.stdout.strip() if done.returncode == 0 else None
