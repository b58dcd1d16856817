"""Compile the C kernel with any compiler at hand. Standard library only: setup.py runs this before anything is installed.

C and Python both declare the numbers and structs that cross between them: C in the gdbheapx*.h of each folder, Python next to its calls.
tests/unit/kernel/test_declared.py compares the two. The prototypes of these headers are compiled into the library, and ctypes takes the
types of the functions from there.

common/library.py calls `source_id` whenever it loads the library, so the imports that only building needs are inside functions.
"""

import os
import sys
import zlib
from typing import TYPE_CHECKING, Collection, Dict, List, Optional

if TYPE_CHECKING:
    import subprocess

    Compiled = subprocess.CompletedProcess[bytes]

LIBRARY = "_kernel.so"
PROTOTYPES = "prototypes.c"
"""A file that is made of the headers while the library is compiled."""
FLAGS = (
    "-std=c99",
    "-O2",
    "-g0",
    "-Wall",
    "-Wextra",
    "-Werror=missing-prototypes",
    "-fPIC",
    "-fvisibility=hidden",
    "-D_FILE_OFFSET_BITS=64",
    "-pthread",
    "-shared",
    "-fstack-protector-strong",
    "-U_FORTIFY_SOURCE",
    "-D_FORTIFY_SOURCE=2",
    "-Wl,-z,relro,-z,now,-z,noexecstack",
)
PORTABLE = ("-U_FILE_OFFSET_BITS", "-DHEAPX_PORTABLE", "-nostdlib", "-s")
"""For a library that names no libc and no version of a symbol: those of Linux, old and new, have what it calls where Python runs."""
OF_MACHINE = {"x86_64": ("-fcf-protection=full", "-lgcc"), "aarch64": ("-mbranch-protection=standard", "-mno-outline-atomics")}
"""The machines where this is so, and what each needs besides: of 32-bit ones functions without a version are those of an older ABI. Who
makes wheels names one in GDBHEAPX_PORTABLE."""


def native_folder() -> str:
    """Return the folder of the C files."""
    return os.path.dirname(os.path.abspath(__file__))


def source_roots(addons: Optional[Collection[str]] = None) -> List[str]:
    """Return the folders whose rooms have C files: this one, and those of the add-ons that are there. `addons`: of these alone."""
    folder = os.path.join(os.path.dirname(native_folder()), "addons")
    names = [name for name in sorted(os.listdir(folder)) if addons is None or name in addons] if os.path.isdir(folder) else []
    return [native_folder(), *(root for root in (os.path.join(folder, name) for name in names) if list_sources(root))]


def list_sources(root: str) -> List[str]:
    """Return the paths of the C files and headers in the folders of `root`, sorted."""
    found = []
    for room in sorted(os.listdir(root)) if os.path.isdir(root) else ():
        where = os.path.join(root, room)
        if os.path.isdir(where):
            found += [os.path.join(where, file) for file in sorted(os.listdir(where)) if file.endswith((".c", ".h"))]
    return found


def source_id(addons: Optional[Collection[str]] = None) -> Optional[int]:
    """Return a checksum of the C files and headers; None if they are not installed."""
    checksum, paths = 0, [path for root in source_roots(addons) for path in list_sources(root)]
    for path in paths:
        try:
            with open(path, "rb") as file:
                checksum = zlib.crc32(file.read(), checksum)
        except OSError:
            return None
    return checksum if paths else None


def all_sources(addons: Optional[Collection[str]] = None) -> Dict[str, str]:
    """Return the text of each C file and header of the library, by path below its root."""
    return {path: text for root in source_roots(addons) for path, text in read_sources(root).items()}


def read_sources(root: str) -> Dict[str, str]:
    """Return the text of each C file and header, by path below `root`."""
    texts = {}
    for path in list_sources(root):
        with open(path, encoding="utf-8") as file:
            texts[os.path.relpath(path, root)] = file.read()
    return texts


def find_compiler() -> Optional[List[str]]:
    """Return the compiler's command line: $CC, or the first of cc, gcc, clang on the path; None if there is none."""
    import shlex
    import shutil

    named = shlex.split(os.environ.get("CC", ""))
    for words in [named] if named else [["cc"], ["gcc"], ["clang"]]:
        if shutil.which(words[0]):
            return words
    return None


def list_prototypes(texts: Dict[str, str]) -> List[str]:
    """Return the prototypes of the functions that the headers export, each on one line."""
    import re

    prototypes: List[str] = []
    for path, text in sorted(texts.items()):
        if os.path.basename(path).startswith("gdbheapx") and path.endswith(".h"):
            exported = text.partition("#pragma GCC visibility push(default)")[2].partition("#pragma")[0]
            declarations = re.sub(r"/\*.*?\*/", "", exported, flags=re.DOTALL).split(";")
            prototypes += [" ".join(declaration.split()) for declaration in declarations if declaration.strip()]
    return prototypes


def _make_prototypes_source(texts: Dict[str, str]) -> str:
    """Return a C file with one function, which returns the prototypes, one on a line."""
    declared = '__attribute__((visibility("default"))) const char *heapx_prototypes(void)'
    lines = "\n".join('    "%s\\n"' % prototype for prototype in list_prototypes(texts))
    return '%s;\n%s\n{\n    return ""\n%s;\n}\n' % (declared, declared, lines)


def compile_into(target: str, words: List[str], texts: Dict[str, str], checksum: int, portable: Optional[str] = None) -> "Compiled":
    """Compile `texts`, as sources() returns them, into the library `target`. `portable`: a machine of OF_MACHINE."""
    import subprocess
    import tempfile

    flags, last = (FLAGS, ()) if portable is None else ((*FLAGS, *PORTABLE), OF_MACHINE[portable])
    with tempfile.TemporaryDirectory(prefix="gdbheapx") as where:
        for path, text in {**texts, PROTOTYPES: _make_prototypes_source(texts)}.items():
            os.makedirs(os.path.dirname(os.path.join(where, path)), exist_ok=True)
            with open(os.path.join(where, path), "w", encoding="utf-8") as file:
                file.write(text)
        c_files = sorted(path for path in (*texts, PROTOTYPES) if path.endswith(".c"))
        command = [*words, *flags, "-I.", "-DHEAPX_SOURCE_ID=%du" % checksum, "-o", os.path.abspath(target), *c_files, *last]
        return subprocess.run(command, cwd=where, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False)


def build_library(destination_dir: str, quiet: bool = True) -> Optional[str]:
    """Compile into `destination_dir` and return the library's path, or None if there is no compiler or it fails."""
    words = find_compiler()
    if words is None:
        if not quiet:
            sys.stderr.write("no C compiler found (looked for $CC, cc, gcc, clang)\n")
        return None
    target = os.path.join(destination_dir, LIBRARY)
    # Built aside and renamed: a running gdb may have the old library mapped.
    unfinished = "%s.%d" % (target, os.getpid())
    try:
        os.makedirs(destination_dir, exist_ok=True)
        done = compile_into(unfinished, words, all_sources(), source_id() or 0, os.environ.get("GDBHEAPX_PORTABLE"))
        if not quiet:
            sys.stderr.write(done.stdout.decode("utf-8", "replace"))
        if done.returncode == 0:
            os.replace(unfinished, target)
            return target
    except OSError as error:
        if not quiet:
            sys.stderr.write("cannot build the native library: %s\n" % error)
    finally:
        if os.path.exists(unfinished):
            os.unlink(unfinished)
    return None


def main() -> int:
    """Build in place."""
    path = build_library(native_folder(), quiet=False)
    if path:
        print(path)
    return 0 if path else 1


if __name__ == "__main__":
    sys.exit(main())
