"""Objects of C++ classes are told by their vtables: in a core or a process, with the program's file or without."""

from collections import Counter
from typing import Dict, Optional, Tuple

import pytest

from gdbheapx.analysis.census.cplusplus import CPlusPlus
from gdbheapx.analysis.census.world import EXACT, PLACE, SHAPE
from tests.support import gcores
from tests.support.censuses import Told, told, where
from tests.support.jemallocs import library
from tests.support.processes import Process, Stage, by_turns
from tests.support.tool import heapx

pytestmark = pytest.mark.image  # its compiler, its C++ library and its allocators lay out what is looked at

FIXED = {"at a fixed address": ("-no-pie", "-fno-pie"), "static, at a fixed address": ("-static", "-no-pie", "-fno-pie")}
WAYS = {"movable": (), **FIXED, "static and movable": ("-static-pie",), "another linking": ("-Wl,-z,norelro",)}
RECORDED = {"shop::Car": 32768, "Holder<int, 5>": 1000, "(anonymous namespace)::Hidden": 500, "shop::Item[]": 300}
PLAIN = [CPlusPlus()]


def started(stage: Stage, flags: Tuple[str, ...] = (), env: Optional[Dict[str, str]] = None) -> Process:
    """The program at rest, stripped; skips without a C++ compiler."""
    made, folder = stage.builder.build_by("g++", "-O1", "-s", "-Wl,--build-id", *flags, name="census.cpp"), stage.folder()
    process = stage.spawn_ready([str(made), str(folder / "record")], folder, env)
    lines = [line.split(" ", 1) for line in (folder / "record").read_text().splitlines()]
    assert {name: int(count) for count, name in lines} == RECORDED
    return process


def classes(every: Told) -> Dict[str, int]:
    """By name: what is said to be a class, of the program."""
    return {one.name: count for one, count in every.items() if one.sure != PLACE and one.module == "census"}


@by_turns("way", sorted(WAYS))
def test_every_object_is_told(stage: Stage, kind: str, way: str) -> None:
    """The blocks of each class are as many as the program made, none of another kind is among them, and the classes have their names."""
    every = told(PLAIN, **where(started(stage, WAYS[way]), kind))
    assert classes(every) == RECORDED
    assert all(one.sure == (SHAPE if one.name.endswith("[]") else EXACT) for one in every if one.sure != PLACE)
    constants = [count for one, count in every.items() if one.sure == PLACE and one.module == "census"]
    assert constants == ([100] if way in FIXED else [])  # a table; strings, which can be read, are told by nobody


def test_leaked_objects_have_their_class(stage: Stage, core: str) -> None:
    """The program lets go of all: the groups of `leaks` tell classes apart, also those of one size."""
    process = started(stage)
    process.command(b"d")
    data = heapx(process.target(core), "leaks", "--json").data
    sums: Dict[Optional[str], int] = Counter()
    for group in data["groups"]:
        sums[group["signature"]] += group["blocks"]
    for name, count in RECORDED.items():
        assert count - 3 <= sums[name] <= count, sums  # a register or a stack may still lead to one
    assert sum(sums.values()) == data["classes"]["leaked"]["roots"]


@pytest.mark.parametrize("way", sorted(set(WAYS) - set(FIXED)))
def test_a_core_without_any_file(stage: Stage, core: str, way: str) -> None:
    """The core alone has the vtables: as many blocks of as many classes, which are called by build-id and place."""
    process, nothing = started(stage, WAYS[way]), stage.folder()
    every = told(PLAIN, **where(process, core), sysroot=str(nothing))
    assert sorted(classes(every).values()) == sorted(RECORDED.values())
    assert all(one.name.startswith("CLASS@") and "+0x" in one.name for one in every if one.sure != PLACE)


def test_a_fixed_address_without_its_file(stage: Stage, core: str) -> None:
    """Vtables that are constants of a file which is not here are no classes, but places in it that blocks begin with."""
    process, nothing = started(stage, FIXED["at a fixed address"]), stage.folder()
    every = told(PLAIN, **where(process, core), sysroot=str(nothing))
    assert not classes(every)
    assert {32768, 1000, 500} <= {count for one, count in every.items() if one.sure == PLACE and one.name.startswith("constant census+0x")}


def test_a_core_of_gdb(stage: Stage, live: str) -> None:
    """gcore leaves out code, with its rights."""
    process = started(stage)
    core, nothing = str(gcores.gcore(process)), str(stage.folder())
    assert classes(told(PLAIN, core=core)) == RECORDED
    assert sorted(classes(told(PLAIN, core=core, sysroot=nothing)).values()) == sorted(RECORDED.values())


def test_another_allocator(stage: Stage, kind: str) -> None:
    """Under jemalloc the counts are the same."""
    assert classes(told(PLAIN, **where(started(stage, (), {"LD_PRELOAD": str(library())}), kind))) == RECORDED


@by_turns("way", ["movable", "at a fixed address"])
def test_without_type_infos(stage: Stage, kind: str, way: str) -> None:
    """-fno-rtti leaves vtables without type_infos: objects are told by what stands at their vtable's address, arrays not."""
    every = told(PLAIN, **where(started(stage, (*WAYS[way], "-fno-rtti")), kind))
    assert sorted(classes(every).values()) == [500, 1000, 32768]
    assert {one.sure for one in every if one.module == "census" and one.sure != PLACE} == {SHAPE}
