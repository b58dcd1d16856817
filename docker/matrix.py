"""The one list of systems that gdbheapx is tested on. CI, tests, the support table and the README's line read it.

A new glibc release is one row here (of STRUCTURES too, if its layouts differ), rows in gdbheapx/glibc/layouts.py, and a changelog fragment.
"""

from typing import List, NamedTuple, Optional, Tuple

Version = Tuple[int, ...]


class Row(NamedTuple):
    """One Debian release and what it comes with."""

    suite: str
    """Debian's name of the release, as debootstrap and the tag of the image `debian` have it."""
    title: str
    """How the release is called in documentation."""
    glibc: Version
    """Its C library."""
    jemalloc: Version
    """Upstream version of its package libjemalloc2."""
    gdb: Version
    """Its debugger."""
    python: Version
    """Its python3, which its gdb embeds and the tests run on."""
    packages: Tuple[str, ...] = ()
    """Debian packages that only this row's image needs, beside those of the Dockerfile."""
    found: Optional[str] = None
    """For a release that moves: the exact packages that the versions above were read from. None for one that stands still."""

    @property
    def base(self) -> str:
        """The image that the release itself is."""
        return "debian:" + self.suite

    @property
    def image(self) -> str:
        """The image that the tests run in."""
        return "gdbheapx-test:" + self.suite

    @property
    def moves(self) -> bool:
        """The release gets new versions: another one than listed is told and is no failure by itself."""
        return self.found is not None


ROWS = (
    Row("bullseye", "Debian 11", (2, 31), (5, 2, 1), (10, 1), (3, 9), packages=("libgoogle-perftools4",)),
    Row("bookworm", "Debian 12", (2, 36), (5, 3, 0), (13, 1), (3, 11), packages=("libgoogle-perftools4", "libmimalloc2.0")),
    Row("trixie", "Debian 13", (2, 41), (5, 3, 0), (16, 3), (3, 13), packages=("libgoogle-perftools4t64", "libmimalloc3", "php8.4-cli")),
    Row(
        "sid",
        "Debian sid",
        (2, 43),
        (5, 3, 1),
        (18, 1),
        (3, 14),
        packages=("libgoogle-perftools4t64", "libmimalloc3"),
        found="libc6 2.43-7, gdb 18.1-3, libjemalloc2 5.3.1-2, Python 3.14.10",
    ),
)  # type: Tuple[Row, ...]


class Jemalloc(NamedTuple):
    """One release of jemalloc and what it was tried on, beside the libjemalloc2 of the rows above."""

    version: Version
    rust: Tuple[str, ...] = ()
    """Releases of tikv-jemallocator that have it and are tested, with what they need."""
    synthetic: bool = False
    """No build was tried: its layouts and the decision table on memory made by hand."""
    name: Optional[str] = None
    """Of a build between releases."""
    built: Optional[str] = None
    """Builds from source that were tried too; the tests take them from GDBHEAPX_JEMALLOCS."""


JEMALLOCS = (
    Jemalloc((5, 0, 1), synthetic=True),
    Jemalloc((5, 1, 0), synthetic=True),
    Jemalloc((5, 2, 1), ("0.4",)),
    Jemalloc((5, 3, 0), ("0.5", "0.6"), built="with pages of 64 KiB, with debug information and stripped; Debian 12's for arm64, stripped"),
    Jemalloc((5, 3, 1), ("0.7 with its feature `stats`",), built="stripped, with profiling and statistics; with pages of 64 KiB"),
    Jemalloc(
        (5, 3, 1, 47),
        name="5.3.1-47-g295e4894 (development, May 2026)",
        built="with debug information and stripped: with and without profiling, statistics, a prefix (quantum of 8, static). "
        "Pages of 64 KiB: with debug information",
    ),
)
class Machine(NamedTuple):
    """A processor's architecture and what was run on it."""

    name: str
    reads: str
    calls: str


MACHINES = (
    Machine("x86-64", "every release above, live and cores", "every release above"),
    Machine(
        "aarch64",
        "Debian 12 emulated by qemu (SVE, PAC, BTI, MTE), with Debian's kernels of 4 KiB (6.1) and 16 KiB pages (6.12): glibc 2.36, jemalloc of Debian 12, 13 and "
        "sid (pages of 64 KiB), mimalloc 2.0, tcmalloc 2.10, musl 1.2.3 (16 KiB), live and cores; wheel and Debian package; a few cores exchanged with x86-64. Not tried: real hardware, "
        "kernels with pages of 64 KiB",
        "`trim`, `purge` (both), `--short-stop` (16 KiB), there",
    ),
    Machine(
        "i386",
        "glibc 2.36, jemalloc 5.3.0 built from source, musl 1.2.3, under a kernel of x86-64, live and cores; "
        "mimalloc and tcmalloc are named, not read",
        "refused",
    ),
    Machine("32-bit ARM, RISC-V, POWER, s390x, x32", "synthetic memory alone", "refused"),
)  # type: Tuple[Machine, ...]


def machine_table() -> List[List[str]]:
    """Which architectures were tried, header first."""
    return [["machine", "reading was run on", "calls"], *[list(one) for one in MACHINES]]


TICKER_BUG = ((5, 0, 1), (5, 2, 1))
"""The first and the last release in which a thread that frees first never purges."""


class Structure(NamedTuple):
    """Releases of glibc with the same layouts, and on what finding them by structure was tried."""

    releases: str
    tried: str


STRUCTURES = (
    Structure("2.12 to 2.15", "foreign cores of 2.12 (Red Hat 6; x86-64, i386), by hand"),
    Structure("2.16 to 2.22", "by source, not tried (2.17 of Red Hat 7 has the layouts of 2.23)"),
    Structure("2.23", "foreign cores of Red Hat 7's 2.17 and of 2.23 (x86-64, i386), by hand"),
    Structure("2.24 to 2.25", "by source, not tried"),
    Structure("2.26", "by source, not tried"),
    Structure("2.27 to 2.29", "a foreign core of 2.29, by hand"),
    Structure("2.30 to 2.34", "Debian 11 (2.31)"),
    Structure("2.35 to 2.41", "Debian 12 (2.36), Debian 13 (2.41); a foreign core of 2.35, by hand"),
    Structure("2.42", "by source, not tried"),
    Structure("2.43", "Debian sid"),
)


def structure_table() -> List[List[str]]:
    """What docs/reference/support.md shows of reading glibc without symbols, header first."""
    return [["glibc", "tried on"], *[[one.releases, one.tried] for one in STRUCTURES]]


def text(version: Version) -> str:
    """A version as it is written."""
    return ".".join(map(str, version))


def row(suite: str) -> Row:
    """The row of that release."""
    for one in ROWS:
        if one.suite == suite:
            return one
    raise KeyError("no row %s; there are %s" % (suite, ", ".join(one.suite for one in ROWS)))


def summary() -> str:
    """The README's line."""
    first, last = ROWS[0], ROWS[-1]
    releases = ", ".join(one.title for one in ROWS)
    machines = "x86-64; aarch64, emulated, with pages of 4 and 16 KiB; i386, to read"
    return "Tested on %s: glibc %s to %s, jemalloc %s to %s, gdb %s to %s, Python %s to %s. Machines: %s." % (
        releases,
        text(first.glibc),
        text(last.glibc),
        text(first.jemalloc),
        text(last.jemalloc),
        text(first.gdb),
        text(last.gdb),
        text(first.python),
        text(last.python),
        machines,
    )


def table() -> List[List[str]]:
    """The support table, header first."""
    lines = [["release", "glibc", "gdb", "gdb's Python", "jemalloc"]]
    for one in ROWS:
        lines.append([one.title, text(one.glibc), text(one.gdb), text(one.python), text(one.jemalloc)])
    return lines


def jemalloc_table() -> List[List[str]]:
    """What each release of jemalloc was tried on, header first."""
    lines = [["jemalloc", "tested on", "threads can be blind"]]
    for one in JEMALLOCS:
        titles = [row.title for row in ROWS if row.jemalloc == one.version]
        debian = ["libjemalloc2 of " + ", ".join(titles)] if titles else []
        rust = ["tikv-jemallocator " + ", ".join(one.rust)] if one.rust else []
        source = ["built from source (x86-64), " + one.built] if one.built else []
        tried = "no build: layouts and decision table on synthetic memory" if one.synthetic else "; ".join(debian + rust + source)
        lines.append([one.name or text(one.version), tried, "yes" if TICKER_BUG[0] <= one.version <= TICKER_BUG[1] else "no"])
    return lines
