"""Compiles the C kernel with whatever compiler there is. Standard library only: setup.py runs this before anything is installed.

common/library.py asks for `source_id` whenever it loads the library, so what only building needs is imported there.
"""

import os
import sys
import zlib
from typing import List, Optional

LIBRARY = "_kernel.so"
FLAGS = ("-std=c99", "-O2", "-g0", "-Wall", "-Wextra", "-fPIC", "-fvisibility=hidden", "-D_FILE_OFFSET_BITS=64", "-pthread", "-shared")
PORTABLE = ("-U_FILE_OFFSET_BITS", "-U_FORTIFY_SOURCE", "-fno-stack-protector", "-nostdlib", "-s")
"""For a library that names no libc and no version of a symbol: those of Linux, old and new, have what it calls where Python runs."""
OF_MACHINE = {"x86_64": "-lgcc", "aarch64": "-mno-outline-atomics"}
"""The machines where this is so, and what each needs besides: of 32-bit ones functions without a version are those of an older ABI. Who
makes wheels names one in GDBHEAPX_PORTABLE."""


def folder() -> str:
    """Where the C files are."""
    return os.path.dirname(os.path.abspath(__file__))


def files(suffix: str) -> List[str]:
    """The C files whose names end so, by path, always in one order."""
    found = []
    for room in sorted(os.listdir(folder())) if os.path.isdir(folder()) else ():
        where = os.path.join(folder(), room)
        if os.path.isdir(where):
            found += [os.path.join(where, file) for file in sorted(os.listdir(where)) if file.endswith(suffix)]
    return found


def source_id() -> Optional[int]:
    """A checksum of the C files; None if they are not installed."""
    checksum = 0
    sources = files(".c")
    for path in sources + files(".h"):
        try:
            with open(path, "rb") as file:
                checksum = zlib.crc32(file.read(), checksum)
        except OSError:
            return None
    return checksum if sources else None


def compiler() -> Optional[List[str]]:
    """The compiler's command line: $CC, or the first of cc, gcc, clang on the path."""
    import shlex
    import shutil

    named = shlex.split(os.environ.get("CC", ""))
    for words in [named] if named else [["cc"], ["gcc"], ["clang"]]:
        if shutil.which(words[0]):
            return words
    return None


def command(words: List[str], target: str, sources: List[str], checksum: int, portable: Optional[str] = None) -> List[str]:
    """The command that compiles C files into `target`; `portable`: a machine of OF_MACHINE."""
    flags, last = (FLAGS, []) if portable is None else ((*FLAGS, *PORTABLE), [OF_MACHINE[portable]])
    return [*words, *flags, "-DHEAPX_SOURCE_ID=%du" % checksum, "-o", target, *sources, *last]


def command_here(words: List[str], target: str, portable: Optional[str] = None) -> List[str]:
    """The same of those that lie here."""
    return command(words, target, files(".c"), source_id() or 0, portable)


def build(destination_dir: str, quiet: bool = True) -> Optional[str]:
    """Compiles into `destination_dir`; the library's path, or None if there is no compiler or it fails."""
    import subprocess

    words = compiler()
    if words is None:
        if not quiet:
            sys.stderr.write("no C compiler found (looked for $CC, cc, gcc, clang)\n")
        return None
    target = os.path.join(destination_dir, LIBRARY)
    # Built aside and renamed: a running gdb may have the old library mapped.
    unfinished = "%s.%d" % (target, os.getpid())
    try:
        os.makedirs(destination_dir, exist_ok=True)
        made = command_here(words, unfinished, os.environ.get("GDBHEAPX_PORTABLE"))
        done = subprocess.run(made, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False)
        if done.returncode == 0:
            os.replace(unfinished, target)
            return target
        if not quiet:
            sys.stderr.write(done.stdout.decode("utf-8", "replace"))
    except OSError as error:
        if not quiet:
            sys.stderr.write("cannot build the C kernel: %s\n" % error)
    finally:
        if os.path.exists(unfinished):
            os.unlink(unfinished)
    return None


def main() -> int:
    """Builds in place."""
    path = build(folder(), quiet=False)
    if path:
        print(path)
    return 0 if path else 1


if __name__ == "__main__":
    sys.exit(main())
