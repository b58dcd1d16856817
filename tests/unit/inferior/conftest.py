"""A small program that tells the truth about itself, live and as a core, for every test of this folder."""

import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any, Dict, Iterator, NamedTuple

import pytest

from tests.support import kernelcore
from tests.support.paths import PROGRAMS

PROGRAM = (PROGRAMS / "specimen.c").read_text()
PLUGIN = "__thread long plugin_tls = 42;\nlong *plugin_where(void) { return &plugin_tls; }\n"


class Specimen(NamedTuple):
    """A program that was started, and what it said about itself."""

    popen: Any
    truth: Dict[str, Any]
    executable: str
    plugin: str


def compile_c(text: str, out: Path, *flags: str) -> str:
    """Compile, or skip where there is no compiler."""
    compiler = shutil.which("cc") or shutil.which("gcc")
    if not compiler:
        pytest.skip("no C compiler here")
    source = out.with_suffix(".c")
    source.write_text(text)
    subprocess.run([compiler, "-O0", "-o", str(out), str(source), *flags], check=True)
    return str(out)


@pytest.fixture(scope="session")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder with the compiled program and its plugin."""
    folder = tmp_path_factory.mktemp("specimen")
    compile_c(PLUGIN, folder / "plugin.so", "-shared", "-fPIC", "-ftls-model=global-dynamic", "-Wl,--build-id")
    compile_c(PROGRAM, folder / "specimen", "-pthread", "-ldl", "-Wl,--build-id")
    return folder


def start(programs: Path) -> Specimen:
    """Start the program and wait for what it says."""
    executable, plugin = str(programs / "specimen"), str(programs / "plugin.so")
    popen = subprocess.Popen([executable, plugin], stdout=subprocess.PIPE, cwd=str(programs), preexec_fn=kernelcore.allow)
    assert popen.stdout
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
