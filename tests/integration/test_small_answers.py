"""What a small answer costs beside its work: modules that are imported for it, and files of the product that run."""

import sys

import pytest

from tests.support.paths import ROOT
from tests.support.processes import Stage
from tests.support.tool import run

pytestmark = pytest.mark.once  # counts modules of the product

MODULES, FILES = 100, 80
"""Of the product, that an answer about the arenas of a small core imports and runs; the goal of files is 50. Three modules are there for
hostile cores: watchdog, roots, contradictions; three for every command and every text: catalogue
(which file has a command), hints and place (commands that texts name, whole for the place where they are read). One of them is the package's own,
which Python asks for each module before it looks for its file."""
COUNTED = """
import os, sys
ran, end = set(), os._exit

def called(frame, event, argument):
    ran.add(frame.f_code.co_filename)
    if frame.f_code.co_name == "<module>":  # what runs at import is no part of the answer
        sys.setprofile(lambda inner, event, argument: sys.setprofile(called) if inner is frame and event == "return" else None)

def told(code):
    sys.setprofile(None)
    modules = [name for name in sys.modules if name.split(".")[0] == "gdbheapx"]
    files = [file for file in ran if file.startswith((%(root)r + "/gdbheapx/", %(root)r + "/commands/"))]
    absent = [name for name in modules if name.split(".")[1:3] == ["addons", "allocators"] and name.count(".") > 3]
    print(len(modules), len(files), "tabulate" in sys.modules, len(absent), file=sys.stderr)
    end(code)

os._exit = told
from gdbheapx.cli import main
sys.setprofile(called)
main()
"""


@pytest.mark.parametrize("form", ["text", "json"])
def test_modules_and_files_of_arenas(stage: Stage, form: str) -> None:
    """No more modules are imported, and no more files run, than these; tabulate only where a table is printed, and nothing of allocators that
    are behind a gate (addons/allocators/gates.py): the program has none of them."""
    core = stage.start("recorder", "1", "2000", "5").core()
    words = [sys.executable, "-c", COUNTED % {"root": str(ROOT)}, "--core", str(core), "arenas", *["--json"] * (form == "json")]
    outcome = run(words, env={"GDBHEAPX_GDB": "none"})
    modules, files, has_tabulate, absent = outcome.stderr.split()
    assert absent == "0"
    assert outcome.code == 0 and int(modules) <= MODULES and int(files) <= FILES
    assert has_tabulate == str(form == "text")
