"""A small program that tells the truth about itself, live and as a core, for every test of this folder."""

import json
import os
import subprocess
from pathlib import Path
from typing import Any, Dict, Iterator, NamedTuple

import pytest

from tests.support import kernelcore
from tests.support.compilers import compile_c
from tests.support.paths import PROGRAMS

PROGRAM = (PROGRAMS / "specimen.c").read_text()
PLUGIN = "__thread long plugin_tls = 42;\nlong *plugin_where(void) { return &plugin_tls; }\n"


class Specimen(NamedTuple):
    """A program that was started, and what it said about itself."""

    popen: Any
    truth: Dict[str, Any]
    executable: str
    plugin: str


@pytest.fixture(scope="session")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder with the compiled program and its plugin."""
    folder = tmp_path_factory.mktemp("specimen")
    compile_c(PLUGIN, folder / "plugin.so", "-O0", "-shared", "-fPIC", "-ftls-model=global-dynamic", "-Wl,--build-id")
    compile_c(PROGRAM, folder / "specimen", "-O0", "-pthread", "-ldl", "-Wl,--build-id")
    return folder


def start(programs: Path) -> Specimen:
    """Start the program and wait for what it says."""
    executable, plugin = str(programs / "specimen"), str(programs / "plugin.so")
    popen = subprocess.Popen([executable, plugin], stdout=subprocess.PIPE, cwd=str(programs), preexec_fn=kernelcore.allow)
    return Specimen(popen, json.loads(popen.stdout.readline()), executable, plugin)


@pytest.fixture
def live(programs: Path) -> Iterator[Specimen]:
    """The program, running."""
    specimen = start(programs)
    yield specimen
    specimen.popen.kill()
    specimen.popen.wait()


@pytest.fixture(scope="session")
def core(programs: Path) -> Any:
    """(path of the core, what the program had said)."""
    if kernelcore.reason():
        pytest.skip(kernelcore.reason())
    specimen = start(programs)
    path = kernelcore.take(specimen.popen, str(programs / "specimen.core"))
    assert os.path.getsize(path)
    return path, specimen
