"""The C headers against Python: every number and every order of fields that crosses by place.

Files: kernel/glibc/binding.py, kernel/jemalloc/binding.py, kernel/jemalloc/interface.py.
"""

import re
from pathlib import Path
from types import ModuleType
from typing import Any, Dict, List, Sequence

import pytest

from gdbheapx.kernel.blocks import heapmap, packed, pins
from gdbheapx.kernel.blocks import records as blocks
from gdbheapx.kernel.common import library
from gdbheapx.kernel.common import records as common
from gdbheapx.kernel.glibc import binding as chunk_binding
from gdbheapx.kernel.glibc import check_records as checks
from gdbheapx.kernel.glibc import list_records as lists
from gdbheapx.kernel.glibc import records as chunks
from gdbheapx.kernel.jemalloc import binding as extent_binding
from gdbheapx.kernel.jemalloc import interface as extents
from gdbheapx.kernel.jemalloc import records as jemalloc
from gdbheapx.model import HistogramRow
from tools import arrows

pytestmark = pytest.mark.once  # reads the sources

KERNEL = Path(__file__).parents[3] / "gdbheapx" / "kernel"


def text(name: str) -> str:
    """A C file without its comments."""
    return re.sub(r"/\*.*?\*/", "", (KERNEL / name).read_text(), flags=re.DOTALL)


def constants(name: str) -> Dict[str, int]:
    """Every enumerator, and every #define that is a number; those that stand on others by what these are."""
    source, found = text(name), {}  # type: ignore[var-annotated]
    for word, value in re.findall(r"^#define (\w+) (\(?-?[\w<() ]+)$", source, re.MULTILINE):
        plain = re.sub(r"(?<=\d)u\b", "", value).replace("UINT32_MAX", str((1 << 32) - 1))
        if re.fullmatch(r"[\d<() -]+", plain):
            found[word] = int(eval(plain))  # digits and shifts of this project's own headers
    for body in re.findall(r"\benum\s*\w*\s*\{(.*?)\}", source, re.DOTALL):
        number = 0
        for entry in filter(None, (part.strip() for part in body.split(","))):
            word, _, value = (part.strip() for part in entry.partition("="))
            if re.fullmatch(r"-?\d+", value):
                number = int(value)
            found[word] = number
            number += 1
    return found


def fields(name: str, struct: str) -> List[str]:
    """The members of a struct in order."""
    body = re.search(r"\bstruct %s \{(.*?)\n\};" % struct, text(name), re.DOTALL)
    assert body, struct
    lines = [re.sub(r"^\s*(?:const )?(?:struct )?\w+ ", "", line) for line in body[1].split(";") if line.strip()]
    return [re.sub(r"[*\s]|\[.*?\]", "", word) for line in lines for word in line.split(",")]


def named(module: ModuleType, start: str, leave: Sequence[str] = ()) -> Dict[str, int]:
    """The numbers of a Python module whose names begin so."""
    return {word: value for word, value in vars(module).items() if word.startswith(start) and isinstance(value, int) and word not in leave}


@pytest.mark.parametrize(
    "header, start, module, leave",
    [
        ("common/heapx.h", "STOP_", common, ()),
        ("common/heapx.h", "HISTOGRAM_EXACT_BYTES", common, ()),
        ("glibc/chunk.h", "SPECIAL_", chunks, ()),
        ("glibc/chunk.h", "STATUS_", chunks, ("STATUS_MAPPED", "STATUS_MAPPED_TCACHE")),
        ("glibc/check.h", "BROKEN_", checks, ()),
        ("glibc/check.h", "MEMBER_", checks, ()),
        ("glibc/check.h", "REGION_", checks, ()),
        ("glibc/check.h", "MOST_ROWS", checks, ()),
        ("jemalloc/extents.h", "BLOCK_", jemalloc, ("BLOCK_STATUSES", "BLOCK_METADATA")),
        ("jemalloc/extents.h", "CACHED_", jemalloc, ()),
        ("jemalloc/extents.h", "MOST_RANGES", jemalloc, ()),
        ("jemalloc/extents.h", "MOST_EXTENT_BYTES", extents, ()),
        ("jemalloc/rtree.h", "EXTENT_", jemalloc, ()),
        ("jemalloc/rtree.h", "MOST_PROBLEMS", jemalloc, ()),
        ("blocks/stream.h", "CLASS_", blocks, ()),
        ("blocks/stream.h", "NO_ARENA", blocks, ()),
        ("blocks/heapmap.c", "MOST_KINDS", heapmap, ()),
        ("blocks/pins.h", "PIN_", pins, ()),
        ("blocks/pins.h", "MOST_KINDS", pins, ()),
    ],
)
def test_numbers(header: str, start: str, module: ModuleType, leave: Sequence[str]) -> None:
    """The same names with the same numbers on both sides."""
    there = {word: value for word, value in constants(header).items() if word.startswith(start) and value >= 0}
    assert there and named(module, start, leave) == there


def test_numbers_with_other_names() -> None:
    """Lists, what is wrong with them, what a slice returns, the ABI; kinds that only Python gives come after those of C."""
    links, stream, heapx = constants("glibc/links.h"), constants("blocks/stream.h"), constants("common/heapx.h")
    assert {word: getattr(lists, word[5:]) for word in ("LIST_TCACHE", "LIST_FAST", "LIST_BIN", "LIST_TCACHE_SIZED")}.items() <= links.items()
    problems = {word: value for word, value in links.items() if word.startswith("PROBLEM_")}
    assert problems == {"PROBLEM_NONE": 0, **{"PROBLEM_" + word: getattr(lists, word) for word in ["UNALIGNED", "UNREADABLE", "TOO_LONG", "BACK_LINK", "CYCLE", "CUT"]}}
    assert (heapx["HEAPX_ABI"], heapx["READ_INTERRUPTED"], stream["BLOCKS_NO_MEMORY"]) == (library.ABI, library.INTERRUPTED, library.NO_MEMORY)
    assert max(value for word, value in constants("glibc/chunk.h").items() if word.startswith("STATUS_")) + 1 == chunks.STATUS_MAPPED
    assert jemalloc.BLOCK_METADATA == jemalloc.BLOCK_STATUSES == max(named(jemalloc, "BLOCK_", ("BLOCK_STATUSES", "BLOCK_METADATA")).values()) + 1
    assert 64 * constants("jemalloc/extents.h")["MOST_GROUPS"] == extents.MOST_REGIONS
    regions = constants("glibc/walk.h")["REGION_NUMBERS"], constants("glibc/blocks.c")["LISTED_REGION_NUMBERS"]
    assert regions == (len(chunks.Region._fields), len(chunks.Region._fields) + 1) and regions[0] == chunk_binding.REGION_NUMBERS


def test_streams_of_a_graph() -> None:
    """Their numbers, and the limits of both readers."""
    there = constants("blocks/packed.h")
    assert [there["PACKED_" + name.upper()] for name in packed.STREAMS] == list(range(there["PACKED_STREAMS"]))
    assert [getattr(packed, name.upper()) for name in packed.STREAMS] == list(range(there["PACKED_STREAMS"]))
    limits = {**constants("blocks/unpack.c"), **constants("blocks/index.h")}
    assert (there["PACKED_LINK"], limits["SLOT_SHIFT"], limits["MOST_SLOTS"]) == (packed.LINK, packed.SLOT_SHIFT, packed.MOST_SLOTS)


def test_numbers_of_pins() -> None:
    """Situations."""
    words = ("EDGE", "HOLE", "LISTED", "RESERVE", "ROOM", "APART")
    there = constants("blocks/pins.h")
    assert {word: there[word] for word in words} == {word: getattr(pins, word) for word in words}
    assert there["SITUATIONS"] == len(words)
    assert len(pins.PinShape(4096).numbers()) == 4 + pins.MOST_KINDS and fields("blocks/pins.h", "pin_shape") == ["page", "head", "lead", "listed_kinds", "overheads"]


def test_numbers_of_the_map() -> None:
    """The shape, and a cell: bytes of each state, then what is in RAM."""
    assert fields("blocks/heapmap.c", "map_shape") == ["page", "lead", "cell", "free_kinds", "free_is_pinned", "overheads"]
    assert len(heapmap.MapShape(4096, 0, 4096).numbers()) == 5 + heapmap.MOST_KINDS
    assert fields("blocks/heapmap.c", "map_cell") == ["bytes", "free_resident", "returned_resident", "unsure"]
    states = sorted((number, word[5:].lower() + "_bytes") for word, number in constants("blocks/heapmap.c").items() if word.startswith("PAGE_"))
    assert [word for _, word in states][:-1] == list(heapmap.Cell._fields[: states[-1][0]]) and states[-1][1] == "states_bytes"


@pytest.mark.parametrize(
    "header, struct, wanted",
    [
        ("common/heapx.h", "residency", common.Residency._fields),
        ("glibc/chunk.h", "totals", chunks.WalkResult._fields[2:-4]),
        ("glibc/chunk.h", "histogram_row", HistogramRow._fields[2:]),
        ("jemalloc/rtree.h", "problem", jemalloc.ExtentProblem._fields),
        ("jemalloc/extents.h", "bin", [word.replace("_bytes", "") for word in jemalloc.BinLayout._fields]),
        ("jemalloc/extent_totals.h", "state_totals", jemalloc.StateTotals._fields),
        ("jemalloc/extent_totals.h", "large_totals", [word.replace("cached_extents", "cached") for word in jemalloc.LargeTotals._fields[1:]]),
        ("blocks/stream.h", "block_wanted", blocks.BlockFilter._fields),
        ("blocks/stream.h", "block_state", ("ended", "stop", "at")),
        ("blocks/stream.h", "block_rows", ("addresses", "usable", "classes", "kinds", "arenas", "count", "room")),
    ],
)
def test_orders(header: str, struct: str, wanted: Sequence[str]) -> None:
    """The members of a struct that crosses as flat numbers stand in the order of its record."""
    assert fields(header, struct) == list(wanted)


def test_what_is_read_number_by_number() -> None:
    """The geometry, the four kinds of a slab's counters, and the widths of the columns of blocks."""
    names = {"word": "word_bytes", "alignment": "alignment_bytes", "min_chunk": "min_chunk_bytes", "chunk_struct": "chunk_struct_bytes", "page": "page_bytes"}
    places = dict(re.findall(r"geometry->(\w+) = [^;]*numbers\[(\d)\]", text("glibc/step.c")))
    wanted = {names.get(word, "little_endian"): int(place) for word, place in places.items()}
    assert wanted == {word: place for place, word in enumerate(chunks.Geometry._fields)}
    assert len(fields("jemalloc/extent_totals.h", "bin_totals")) == len(jemalloc.BinTotals._fields) - 1
    assert 2 + len(common.Residency._fields) == extent_binding.STATE_NUMBERS
    assert constants("jemalloc/extent_totals.h")["STATES"] == extent_binding.STATES
    columns: Any = re.search(r"struct block_rows \{(.*?)\};", text("blocks/stream.h"), re.DOTALL)
    widths = re.findall(r"(uint\d+)_t ((?:\*\w+(?:, )?)+)", columns[1])
    letters = "".join({"uint64": "Q", "uint32": "I", "uint8": "B"}[width] * names.count("*") for width, names in widths)
    assert letters == blocks.LETTERS == "QQBBI" and blocks.Blocks._fields == ("addresses", "usable_bytes", "classes", "kinds", "arenas")


def test_rooms() -> None:
    """No file and no folder of the kernel goes round in a circle; an allocator's folder knows blocks and what is common, not the other's."""
    assert not arrows.circles({str(one): {str(other) for other in others} for one, others in arrows.joined(arrows.arrows(KERNEL)).items()})
    rooms = {(one, other) for one, other in arrows.between(arrows.arrows(KERNEL), KERNEL) if (KERNEL / one).is_dir() and other != "build.py"}
    assert rooms == {("blocks", "common"), ("glibc", "blocks"), ("glibc", "common"), ("jemalloc", "blocks"), ("jemalloc", "common")}
