"""Paths of names for objects of every CPython that is installed here beside the system's, with every allocator that it has."""

import os
from pathlib import Path

import pytest

from gdbheapx.allocators.session import Session
from gdbheapx.analysis.census import block
from gdbheapx.inferior.target import open_elf_target
from tests.support.gcores import gcore
from tests.support.processes import Stage
from tests.support.python_service import Service

pytestmark = pytest.mark.wild  # interpreters that may not be here
FOLDERS = sorted(Path("/root/.pyenv/versions").glob("3.*"))
PYTHONS = [folder / "bin" / "python3" for folder in FOLDERS if int(folder.name.split(".")[1]) >= 8]
PYTHONS += [Path(path) for path in os.environ.get("HEAPX_TEST_PYTHONS", "").split(os.pathsep) if path]
"""More of them by that variable, such as one unpacked from a later Debian."""


@pytest.mark.parametrize("seed", [1, 2])
@pytest.mark.parametrize("malloc", ["", "malloc", "debug"])
@pytest.mark.parametrize("python", PYTHONS, ids=str)
def test_paths_lead_where_they_say(stage: Stage, python: Path, malloc: str, seed: int) -> None:
    """Of 1,000 random objects none is called what it is not, and 95 % have a name without an offset."""
    service = Service(stage, str(python), malloc, seed)
    session = Session(open_elf_target(core=str(gcore(service.process))))
    session.prepare()
    found = service.truth(block.make_named_graph(session))
    assert not found.wrong
    assert found.counts["named"] >= 0.95 * (len(service.objects) - found.counts["static"]) >= 800


@pytest.mark.parametrize("python", PYTHONS, ids=str)
def test_a_core_alone_has_names(stage: Stage, python: Path) -> None:
    """Where its files are not here: none is called what it is not, and nine of ten have a name without an offset."""
    service = Service(stage, str(python))
    session = Session(open_elf_target(core=str(gcore(service.process)), sysroot=str(stage.folder())))
    session.prepare()
    found = service.truth(block.make_named_graph(session))
    assert not found.wrong
    assert found.counts["named"] >= 0.9 * (len(service.objects) - found.counts["static"]) >= 800
