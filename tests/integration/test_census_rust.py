"""Blocks that begin with trait objects of Rust."""

import shutil
import subprocess
from typing import List

import pytest

from gdbheapx.analysis.census.rust import TraitObjects
from gdbheapx.analysis.census.signature import PLACE, SHAPE
from tests.support.censuses import told, where
from tests.support.paths import PROGRAMS
from tests.support.processes import Process, Stage
from tests.support.tool import alone

pytestmark = pytest.mark.once  # its compiler alone says how a vtable is laid out


def started(stage: Stage, name: str) -> Process:
    """The program at rest, stripped."""
    if not shutil.which("rustc"):
        pytest.skip("rustc is not installed")
    folder = stage.folder()
    command = ["rustc", "-O", "-C", "strip=symbols", "-o", str(folder / name), str(PROGRAMS / "rust" / (name + ".rs"))]
    subprocess.run(command, check=True, capture_output=True)
    process = stage.spawn([str(folder / name)], folder)
    process.wait_ready()
    return process


def test_tables(stage: Stage, kind: str) -> None:
    """Tables of hash maps are as many as it made, with the program's file and without, by both kernels."""
    process = started(stage, "holds")
    where_: List[str] = [] if kind == "live" else ["--sysroot", str(stage.folder())]
    for kernel in ("c", "python"):
        answer = alone([*process.target(kind), *where_], "census", "--json", env={"GDBHEAPX_KERNEL": kernel}).envelope
        assert [row["blocks"] for row in answer["data"]["rows"] if row["signature"] == "table of a HashMap or HashSet"] == [301]


def test_trait_objects(stage: Stage, kind: str) -> None:
    """Vectors of boxed trait objects and structs that begin with one, in a stripped program: as many as it made, and no other block."""
    process = started(stage, "dyns")
    every = told([TraitObjects()], **where(process, kind))
    assert sorted((one.sure, one.module, count) for one, count in every.items()) == [(PLACE, "dyns", 500), (SHAPE, "dyns", 500)]
    assert {one.name.split(" dyns+")[0] for one in every} == {"Box<dyn>[]", "begins with Box<dyn"}
    bare = told([TraitObjects()], **where(process, kind), sysroot=str(stage.folder())) if kind == "core" else every
    assert sorted(bare.values()) == [500, 500]
