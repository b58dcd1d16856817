"""Writes docs/reference/support.md and the README's line about supported systems from docker/matrix.py; `--check` only looks."""

import importlib.util
import re
import sys
from pathlib import Path
from typing import Any, List

from tools import generated

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "reference" / "support.md"
README = ROOT / "README.md"
MARKS = re.compile(r"(<!-- matrix: begin -->\n).*?(<!-- matrix: end -->)", re.S)

HEAD = """# Supported systems

Generated from `docker/matrix.py` by `make docs`; do not edit.

`make matrix` runs the tests that depend on libc, gdb or Python in an image of each of these. Other distributions with the same glibc
and gdb work too: gdbheapx takes the differences between releases from libc's debug information, or from what memory shows. gdb's Python must be 3.9 or
later. The last column is the version of libjemalloc2.
"""

TAIL = """
If a glibc is newer than the last row, gdbheapx reads it by its debug information; where that says nothing, it assumes the last row.

## Machines

| machines |
## Targets

| target | tested |
| --- | --- |
| live process, core of the kernel, with gdb and without | on every release above |
| remote target by gdbserver | on every release above |
| snapshot | taken and read on every release above, by wheel, by the one file and by the package |
| compressed core | on every release above |
| core of gcore | on one release: Debian 12 |
| replay of `rr` | **not tried.** `rr record` requires hardware performance counters, and the virtual machines on which gdbheapx is tested have none (rr 5.6 stops at once). A replay is a remote target of gdb's, which `heapx` would read as it reads gdbserver's; `trim` and `purge` refuse remote targets |

## glibc without symbols

Where no debug file, symbol table or [pack](../how-to/packs.md) tells of a libc, gdbheapx finds its malloc by structure, live and in a core that comes
alone. Each release was tried on synthetic memory of x86-64, i386, 32-bit ARM and aarch64 (from 2.29 on also of big-endian machines), and on this:

| structures |
## jemalloc

| jemallocs |
gdbheapx reads a build by its debug information; otherwise by a bundled [pack](../how-to/packs.md) of it (packs for Debian's libjemalloc2 are
included); otherwise by the layouts of the releases that it knows, chosen by the places at which an arena points to its base; the variables come
from the symbol table, as Rust programs keep it, or by structure if the build is stripped. It verifies each of these on the slabs of the process
before use. It recognises builds with other options (page size, quantum, radix tree, statistics, profiling) by their own constants. It reads a
release that is not listed by the fields that it has, and reports it as unlisted. What a stripped build does not tell is `null`: the heap profile,
background threads' counters; `purge` and `tickers --cure` refuse there, because not all locks can be seen.

## mimalloc

| mimalloc | tested on |
| --- | --- |
| 1.8, 1.9 | 1.8.2, 1.8.7, 1.9.4, 1.9.9, stripped, and a debug build of 1.9.9 |
| 2.0.6 to 2.4 | 2.0.9 of Debian 12; 2.0.6, 2.0.7, 2.0.9, 2.1.2, 2.1.7, 2.2.4, 2.3.2, 2.4.1, stripped, secure builds of 2.0.7, 2.0.9 and 2.2.4, debug builds of 2.0.7, 2.0.9 and 2.2.4; pyarrow 14.0.2 (2.0.6); CPython 3.13.0 with `PYTHONMALLOC=mimalloc` |
| 3.0 | 3.0.1 of Debian 13; 3.0.2, 3.0.3, 3.0.8, 3.0.10, 3.0.12, stripped, and a secure and a debug build of 3.0.1 |
| 3.1 to 3.4 | 3.1.5, 3.1.6, 3.2.8, 3.3.2, 3.4.3, stripped, secure builds of 3.1.6, 3.2.8, 3.3.2 and 3.4.3, a debug build of 3.4.3; a stripped Rust program with the mimalloc crate (3.3); pyarrow 26.0.1 (3.4) |
| 1.7, 2.0.5 and older; 3.6 (Debian sid's libmimalloc3) | named, not read |

gdbheapx finds it by its structure: no symbol, debug file or pack is needed. It is read on 64-bit little-endian machines. See [mimalloc](../how-to/mimalloc.md).

## tcmalloc

| tcmalloc | tested on |
| --- | --- |
| gperftools 2.7 to 2.18 | 2.8.1, 2.10, 2.16 and 2.18.1 of Debian 11, 12, 13 and sid, stripped (libtcmalloc, libtcmalloc_minimal); 2.7, 2.15 and 2.18 built from source (x86-64, pages of 8 KiB) |
| libtcmalloc_debug | named, not read: blocks have headers and guard words |
| google/tcmalloc | named, not read: it has no releases, and each build has its own layout |

gdbheapx finds it by its structure: no symbol, debug file or pack is needed. It is read on 64-bit little-endian machines. See [tcmalloc](../how-to/tcmalloc.md).

## musl

| musl | tested on |
| --- | --- |
| 1.2.1 to 1.2.6 (mallocng) | musl 1.2.1, 1.2.2, 1.2.4 and 1.2.5 built from source; 1.2.2, 1.2.3, 1.2.5 and 1.2.6 of Debian 11, 12, 13 and sid (x86-64): shared, static, static and stripped, live and cores; static-pie programs of Rust for x86_64-unknown-linux-musl. Words of 32 bits and big-endian machines on synthetic memory |
| up to 1.2.0 (Alpine up to 3.12) | named, not read: it keeps no list of its memory |
| the bump allocator of static programs that never free | named, not read: all that it has given out is in use |

gdbheapx finds it by its structure: no symbol, debug file or pack is needed. See [musl](../how-to/musl.md).
"""


def load_matrix() -> Any:
    """docker/matrix.py by its path: docker/ is no package."""
    spec = importlib.util.spec_from_file_location("matrix", str(ROOT / "docker" / "matrix.py"))
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


matrix = load_matrix()


def page() -> str:
    """docs/reference/support.md."""
    out = [HEAD, *table(matrix.table())]
    for row in matrix.ROWS:
        if row.found:
            out.append("\n%s changes over time. When it was tested it had %s." % (row.title, row.found))
    text = TAIL
    for name, lines in (("machines", matrix.machine_table()), ("structures", matrix.structure_table()), ("jemallocs", matrix.jemalloc_table())):
        text = text.replace("| %s |\n" % name, "\n".join(table(lines)) + "\n\n")
    return "\n".join(out) + "\n" + text


def table(lines: List[List[str]]) -> List[str]:
    """A table of Markdown, header first."""
    out = ["| %s |" % " | ".join(line) for line in lines]
    out.insert(1, "|%s" % (" --- |" * len(lines[0])))
    return out


def readme() -> str:
    """README.md with today's line."""
    text = README.read_text()
    if not MARKS.search(text):
        raise SystemExit("README.md has lost its <!-- matrix --> marks")
    return MARKS.sub(lambda match: match.group(1) + matrix.summary() + "\n" + match.group(2), text)


if __name__ == "__main__":
    sys.exit(generated.main({PAGE: page(), README: readme()}, __doc__))
