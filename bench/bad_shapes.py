"""Heaps that are bad to read, and what each must be."""

from pathlib import Path
from typing import Dict, List, NamedTuple, Tuple

from bench import shape_programs
from bench.shape_process import ShapeProcess, measure, unsorted_chunks
from bench.timing import HERE

NO_CACHES = {"GLIBC_TUNABLES": "glibc.malloc.tcache_count=0"}
BY_MMAP = {"GLIBC_TUNABLES": "glibc.malloc.hugetlb=2"}


class Shape(NamedTuple):
    """A process to look at."""

    title: str
    program: str
    """Of shapes/: a C file, `arrow.py`, or `symbols` with its library."""
    arguments: Tuple[str, ...]
    must: Dict[str, int]
    """What makes the shape what it is: at least so many of each."""
    env: Dict[str, str] = {}
    jemalloc: str = ""
    """`preload` or `inside`, where there is one."""


SHAPES = {
    "fastbins": Shape("5 million fastbin members in random order", "scattered", ("5000000", "24", "120"), {"fast_chunks": 5_000_000}, NO_CACHES),
    "unsorted": Shape("2 million unsorted chunks", "scattered", ("2000000", "200", "400"), {"unsorted_chunks": 2_000_000}, NO_CACHES),
    "mapped": Shape("200,000 mapped chunks", "mapped", ("200000",), {"mmapped_chunks": 200_000}),
    "arenas": Shape("500 arenas", "arenas", ("500", "1024"), {"arenas": 500, "free_chunks": 200_000}),
    "threads": Shape("2,000 threads with full caches", "threads", ("2000", "64", "7"), {"threads": 2000, "tcache_chunks": 2000 * 64 * 7}),
    "threads-jemalloc": Shape(
        "jemalloc: 2,000 threads with full caches",
        "threads",
        ("2000", "36", "20"),
        {"threads": 2000, "cached_blocks": 2000 * 36 * 20},
        jemalloc="preload",
    ),
    "arrow": Shape("python3 with pyarrow, 2 GB", "arrow.py", ("2048",), {"resident_bytes": 2 << 30}, jemalloc="inside"),
    "symbols": Shape("a library of 200,000 symbols", "symbols", (), {"system_bytes": 30_000_000}),
    "symbols-jemalloc": Shape("jemalloc in a library of 200,000 symbols", "symbols", (), {"jemalloc_bytes": 30_000_000}, jemalloc="inside"),
    "untouched": Shape("8 GB untouched", "untouched", ("8", "below"), {"untouched_bytes": 8 << 30}),
    "untouched-jemalloc": Shape("jemalloc: 8 GB untouched", "untouched", ("8",), {"untouched_bytes": 8 << 30}, jemalloc="preload"),
    "pieces": Shape(
        "main arena in pieces (no break), 800,000 free chunks",
        "pieces",
        ("805000", "block"),
        {"free_chunks": 800_000, "heaps": 1000, "beside_the_break_bytes": 500_000_000},
    ),
    "pieces-hugetlb": Shape(
        "main arena in pieces (hugetlb=2), 800,000 free chunks",
        "pieces",
        ("805000",),
        {"free_chunks": 800_000, "heaps": 1000, "beside_the_break_bytes": 500_000_000},
        BY_MMAP,
    ),
}
SYMBOLS = 200_000


def build(shape: Shape, folder: Path) -> List[str]:
    """The command that becomes the shape; Unavailable where this machine cannot make it."""
    if shape.program == "arrow.py":
        command = [shape_programs.python_with_arrow(), str(HERE / "shapes" / "arrow.py")]
    elif shape.program == "symbols":
        command = shape_programs.with_symbols(folder, SYMBOLS, bool(shape.jemalloc))
    else:
        command = [shape_programs.program(folder, shape.program)]
    return [*command, str(folder / "shape.record"), *shape.arguments]


def start(shape: Shape, command: List[str]) -> ShapeProcess:
    """The shape, ready; each time the same."""
    env = dict(shape.env)
    if shape.jemalloc == "preload":
        env["LD_PRELOAD"] = shape_programs.jemalloc_library()
    return ShapeProcess(command, Path(command[-1 - len(shape.arguments)]), env)


def prove(shape: Shape, process: ShapeProcess) -> Dict[str, int]:
    """What the process is, which must be what the shape is about."""
    facts = measure(process)
    if "unsorted_chunks" in shape.must:
        facts["unsorted_chunks"] = unsorted_chunks(process.pid)
    short = ["%s is %d, not %d" % (key, facts[key], least) for key, least in shape.must.items() if facts[key] < least]
    if short:
        raise shape_programs.Broken("%s: %s" % (shape.title, ", ".join(short)))
    return facts
