"""Names that a stripped library exports, of a core alone: its first page is in the core, with its .dynsym.

Files: inferior/elf/link_map.py.
"""

import shutil
import subprocess
from pathlib import Path

import pytest

from tests.support.paths import PROGRAMS
from tests.support.processes import Process, Stage
from tests.support.tool import heapx

pytestmark = pytest.mark.once  # the compiler and the kernel alone decide what is there

LIBRARY = (PROGRAMS / "exported_names.cpp").read_text()
PROGRAM = '#include <stdio.h>\n#include <unistd.h>\nvoid fill(void);\nint main(void) { fill(); puts("ready"); fflush(stdout); pause(); return 0; }\n'


def started(stage: Stage) -> Process:
    if not shutil.which("g++"):
        pytest.skip("g++ is not installed")
    folder = stage.folder()
    (folder / "gatekit.cpp").write_text(LIBRARY)
    (folder / "gate.c").write_text(PROGRAM)
    library, program = str(folder / "libgatekit.so"), str(folder / "gate")
    subprocess.run(["g++", "-O2", "-s", "-shared", "-fPIC", "-o", library, str(folder / "gatekit.cpp")], check=True)
    subprocess.run(["gcc", "-O2", "-s", "-o", program, str(folder / "gate.c"), library], check=True)
    return stage.spawn_ready([program], folder)


@pytest.mark.parametrize("alone", [True, False])
def test_of_a_core(stage: Stage, core: str, tmp_path: Path, alone: bool) -> None:
    """Variables, containers and classes have their names, with the library's file and without any file."""
    target = [*started(stage).target(core), *(["--sysroot", str(tmp_path)] if alone else [])]
    rows = {row["owner"]: row for row in heapx(target, "owners", "--json").data["owners"]}
    assert [(one["kind"], one["elements"]) for one in rows["gate::Resolver::cache_ in libgatekit.so"]["containers"]] == [("unordered map or set", 5000)]
    assert rows["gate::shapes in libgatekit.so"]["retained_blocks"] == 2000
    kinds = {row["signature"]: row["blocks"] for row in heapx(target, "census", "--json").data["rows"]}
    assert kinds["gate::Shape"] == 2000
