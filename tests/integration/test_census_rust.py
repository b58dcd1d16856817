"""Blocks that begin with trait objects of Rust."""

import shutil
import subprocess

import pytest

from gdbheapx.analysis.census.rust import TraitObjects
from gdbheapx.analysis.census.signature import PLACE, SHAPE
from tests.support.censuses import told, where
from tests.support.paths import PROGRAMS
from tests.support.processes import Stage

pytestmark = pytest.mark.once  # its compiler alone says how a vtable is laid out


def test_trait_objects(stage: Stage, kind: str) -> None:
    """Vectors of boxed trait objects and structs that begin with one, in a stripped program: as many as it made, and no other block."""
    if not shutil.which("rustc"):
        pytest.skip("rustc is not installed")
    folder = stage.folder()
    command = ["rustc", "-O", "-C", "strip=symbols", "-o", str(folder / "dyns"), str(PROGRAMS / "rust" / "dyns.rs")]
    subprocess.run(command, check=True, capture_output=True)
    process = stage.spawn([str(folder / "dyns")], folder)
    process.wait_ready()
    every = told([TraitObjects()], **where(process, kind))
    assert sorted((one.sure, one.module, count) for one, count in every.items()) == [(PLACE, "dyns", 500), (SHAPE, "dyns", 500)]
    assert {one.name.split(" dyns+")[0] for one in every} == {"Box<dyn>[]", "begins with Box<dyn"}
    bare = told([TraitObjects()], **where(process, kind), sysroot=str(stage.folder())) if kind == "core" else every
    assert sorted(bare.values()) == [500, 500]
