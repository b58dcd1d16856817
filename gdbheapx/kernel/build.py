"""Compiles the C kernel with whatever compiler there is. Standard library only: setup.py runs this before anything is installed.

What crosses between Python and C is declared in Python, beside what calls it: PROTOTYPES are functions as C writes them, IN_C names the
numbers and records that C knows, too (`STOP_*`: all that begin so). A record is a struct of its numbers, in their order. Of each folder
one header is made, declared_FOLDER.h, which exists while the library is compiled: a function that is declared otherwise is an error then.

common/library.py asks for `source_id` whenever it loads the library, so what only building needs is imported there.
"""

import os
import sys
import zlib
from typing import TYPE_CHECKING, Any, Dict, Iterator, List, Optional

if TYPE_CHECKING:
    import ast
    import subprocess

    Compiled = subprocess.CompletedProcess[bytes]

DECLARING = (b"PROTOTYPES = ", b"IN_C = ")

LIBRARY = "_kernel.so"
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


def folder() -> str:
    """Where the C files are."""
    return os.path.dirname(os.path.abspath(__file__))


def files(suffix: str, root: Optional[str] = None) -> List[str]:
    """The files in the folders of `root`, of the kernel unless told, whose names end so: by path, always in one order."""
    found = []
    root = root or folder()
    for room in sorted(os.listdir(root)) if os.path.isdir(root) else ():
        where = os.path.join(root, room)
        if os.path.isdir(where):
            found += [os.path.join(where, file) for file in sorted(os.listdir(where)) if file.endswith(suffix)]
    return found


def source_id() -> Optional[int]:
    """A checksum of the C files, and of the Python files that declare what they have in common; None if they are not installed."""
    checksum, sources = 0, files(".c")
    for path in sources + files(".h") + files(".py"):
        try:
            with open(path, "rb") as file:
                data = file.read()
        except OSError:
            return None
        if not path.endswith(".py") or any(mark in data for mark in DECLARING):
            checksum = zlib.crc32(data, checksum)
    return checksum if sources else None


def sources(root: Optional[str] = None) -> Dict[str, str]:
    """What a compiler takes in, by path below `root`: the C files there, and the headers that are made."""
    texts = _headers(root)
    for path in files(".c", root) + files(".h", root):
        with open(path, encoding="utf-8") as file:
            texts[os.path.relpath(path, root or folder())] = file.read()
    return texts


def _headers(root: Optional[str]) -> Dict[str, str]:
    import ast

    rooms: Dict[str, List[ast.stmt]] = {}
    for path in files(".py", root):
        with open(path, encoding="utf-8") as file:
            rooms.setdefault(os.path.basename(os.path.dirname(path)), []).append(ast.parse(file.read()))  # type: ignore[arg-type]
    made = {}
    for room, trees in rooms.items():
        records = {node.name: node for tree in trees for node in tree.body if isinstance(node, ast.ClassDef)}  # type: ignore[attr-defined]
        lines = [line for tree in trees for line in _declared(tree, records)]
        if lines:
            first = "#include <stdint.h>" if room == "common" else '#include "declared_common.h"'
            made["declared_%s.h" % room] = "\n".join(["#pragma once", first, *dict.fromkeys(lines), ""])
    return made


def _declared(tree: Any, records: "Dict[str, ast.ClassDef]") -> Iterator[str]:
    """What one Python file declares; `records`: those of its folder."""
    import ast
    from fnmatch import fnmatchcase

    numbers: Dict[str, Any] = {}
    for node in tree.body:
        if isinstance(node, ast.Assign):
            try:
                value = eval(compile(ast.Expression(node.value), "", "eval"), {"__builtins__": {"range": range}}, numbers)
            except (NameError, TypeError, AttributeError):  # none of those that stand by themselves
                continue
            for target in node.targets:
                names = target.elts if isinstance(target, ast.Tuple) else [target]
                numbers.update(zip([ast.unparse(name) for name in names], value if isinstance(target, ast.Tuple) else [value]))
    for name in numbers.get("IN_C", "").split():
        yield from _structs(name, records)
        for number in [number for number in numbers if fnmatchcase(number, name)]:
            yield _constant(number, numbers[number])
    for prototype in filter(None, map(str.strip, numbers.get("PROTOTYPES", "").split(";"))):
        words = prototype.replace("(", " ").split()
        yield from ("struct %s;" % tag for word, tag in zip(words, words[1:]) if word == "struct")
        yield 'extern __attribute__((visibility("default"))) %s;' % " ".join(prototype.split())


def _constant(name: str, value: int) -> str:
    return (
        "enum { %s = %d };" % (name, value)
        if -(1 << 31) <= value < 1 << 31
        else "#define %s %du%s" % (name, value, "ll" * (value >> 32 > 0))
    )


def _structs(name: str, records: "Dict[str, ast.ClassDef]") -> Iterator[str]:
    """The record of that name, after those of its folder that are in it."""
    import ast

    members = []
    for node in records[name].body if name in records else ():
        kind = ast.unparse(node.annotation).replace("Optional[", "").rstrip("]") if isinstance(node, ast.AnnAssign) else ""
        is_record = kind.isidentifier() and kind[0].isupper()
        if is_record:
            yield from _structs(kind, records)
        if kind.startswith("Tuple[int") and "..." not in kind:
            members.append("uint64_t %s[%d];" % (ast.unparse(node.target), kind.count("int")))  # type: ignore[attr-defined]
        elif is_record or kind in ("int", "bool"):
            type_ = "struct " + _tag(kind) if is_record else "uint64_t"
            members.append("%s %s;" % (type_, ast.unparse(node.target)))  # type: ignore[attr-defined]
    if members:
        yield "struct %s { %s };" % (_tag(name), " ".join(members))


def _tag(name: str) -> str:
    """A record's name as C has it: WalkResult is struct walk_result."""
    return "".join("_" * (place > 0 and letter.isupper()) + letter.lower() for place, letter in enumerate(name))


def compiler() -> Optional[List[str]]:
    """The compiler's command line: $CC, or the first of cc, gcc, clang on the path."""
    import shlex
    import shutil

    named = shlex.split(os.environ.get("CC", ""))
    for words in [named] if named else [["cc"], ["gcc"], ["clang"]]:
        if shutil.which(words[0]):
            return words
    return None


def compile_into(target: str, words: List[str], texts: Dict[str, str], checksum: int, portable: Optional[str] = None) -> "Compiled":
    """Compiles `texts`, as sources() gives them; `portable`: a machine of OF_MACHINE. The compiler's exit code, and what it said."""
    import subprocess
    import tempfile

    flags, last = (FLAGS, ()) if portable is None else ((*FLAGS, *PORTABLE), OF_MACHINE[portable])
    with tempfile.TemporaryDirectory(prefix="gdbheapx") as where:
        for path, text in texts.items():
            os.makedirs(os.path.dirname(os.path.join(where, path)), exist_ok=True)
            with open(os.path.join(where, path), "w", encoding="utf-8") as file:
                file.write(text)
        c_files = sorted(path for path in texts if path.endswith(".c"))
        command = [*words, *flags, "-I.", "-DHEAPX_SOURCE_ID=%du" % checksum, "-o", os.path.abspath(target), *c_files, *last]
        return subprocess.run(command, cwd=where, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False)


def build(destination_dir: str, quiet: bool = True) -> Optional[str]:
    """Compiles into `destination_dir`; the library's path, or None if there is no compiler or it fails."""
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
        done = compile_into(unfinished, words, sources(), source_id() or 0, os.environ.get("GDBHEAPX_PORTABLE"))
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
    """Builds in place."""
    path = build(folder(), quiet=False)
    if path:
        print(path)
    return 0 if path else 1


if __name__ == "__main__":
    sys.exit(main())
