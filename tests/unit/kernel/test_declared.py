"""What crosses between Python and C is declared once: prototypes, numbers and records become headers that the compiler checks.

Files: kernel/glibc/walkers.py, kernel/jemalloc/layouts.py, kernel/jemalloc/walkers.py.
"""

import ctypes
from pathlib import Path
from typing import Dict

import pytest

from gdbheapx.kernel import build
from gdbheapx.kernel.common import library
from tools import arrows

pytestmark = pytest.mark.once  # reads the sources

KERNEL = Path(__file__).parents[3] / "gdbheapx" / "kernel"
DECLARED = '''
from typing import NamedTuple, Optional, Tuple

IN_C = "TINY_* Block Held"
PROTOTYPES = """
struct tiny *heapx_tiny_new(const struct held *held, uint64_t count);
double heapx_tiny_share(void);
"""
TINY_A, TINY_B = range(2)
TINY_HIGH = 1 << 40
OTHER = 3


class Block(NamedTuple):
    address: int
    name: Tuple[str, ...]
    is_free: bool = False


class Held(NamedTuple):
    block: Block
    size_bytes: Optional[int]
'''
HEADER = """\
#pragma once
#include "declared_common.h"
enum { TINY_A = 0 };
enum { TINY_B = 1 };
#define TINY_HIGH 1099511627776ull
struct block { uint64_t address; uint64_t is_free; };
struct held { struct block block; uint64_t size_bytes; };
struct tiny;
struct held;
extern __attribute__((visibility("default"))) struct tiny *heapx_tiny_new(const struct held *held, uint64_t count);
extern __attribute__((visibility("default"))) double heapx_tiny_share(void);
"""


@pytest.fixture
def sources(tmp_path: Path) -> Dict[str, str]:
    """A folder that declares something."""
    (tmp_path / "tiny").mkdir()
    (tmp_path / "tiny" / "records.py").write_text(DECLARED)
    return build.sources(str(tmp_path))


def test_a_folder_has_one_header(sources: Dict[str, str]) -> None:
    """Numbers, structs of a record's numbers, and functions."""
    assert sources == {"declared_tiny.h": HEADER}


@pytest.mark.parametrize("result", ["double", "int"])
def test_a_function_that_is_declared_otherwise_is_not_compiled(sources: Dict[str, str], tmp_path: Path, result: str) -> None:
    """Nor is one that is not declared at all."""
    words = build.compiler()
    if not words:
        pytest.skip("no compiler here")
    texts = {**sources, "declared_common.h": "#include <stdint.h>\n"}
    function = "%s heapx_tiny_share(void)\n{\n    return 1;\n}\n" % result
    texts["tiny/a.c"] = '#include "declared_tiny.h"\n' + function
    assert (build.compile_into(str(tmp_path / "a.so"), words, texts, 1).returncode == 0) == (result == "double")
    texts["tiny/a.c"] = function
    assert build.compile_into(str(tmp_path / "b.so"), words, texts, 1).returncode != 0


def test_types_of_functions(c_library: str) -> None:
    """As their prototypes say, from the moment that somebody declares them."""
    loaded = library.load(c_library)
    assert (loaded.heapx_source_new.restype, loaded.heapx_source_free.restype) == (ctypes.c_void_p, None)
    assert loaded.heapx_source_new.argtypes == [ctypes.c_int, ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_uint64]
    assert loaded.heapx_abi.argtypes == [] and loaded.heapx_marks_open.argtypes is None
    library.declared(loaded, "int heapx_marks_open(struct graph *graph, uint32_t roots_from);")
    assert loaded.heapx_marks_open.argtypes == [ctypes.c_void_p, ctypes.c_uint32]


def test_rooms() -> None:
    """No file and no folder of the kernel goes round in a circle; an allocator's folder knows blocks and what is common, not the other's."""
    assert not arrows.circles({str(one): {str(other) for other in others} for one, others in arrows.joined(arrows.arrows(KERNEL)).items()})
    rooms = {(one, other) for one, other in arrows.between(arrows.arrows(KERNEL), KERNEL) if (KERNEL / one).is_dir() and other != "build.py"}
    named = {one.parent.name for one in KERNEL.glob("*/*.c")} - {"blocks", "common"}
    assert rooms == {("blocks", "common")} | {(one, other) for one in named for other in ("blocks", "common")}
