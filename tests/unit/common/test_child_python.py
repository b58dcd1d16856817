"""gdbheapx/common/child_python.py: whichever way starts a child interpreter, it imports our modules, whatever lies in its working folder."""

import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Callable, Dict, List

import pytest

from gdbheapx import api
from gdbheapx.common import __version__, child_python
from gdbheapx.common.errors import HeapxError
from gdbheapx.snapshot import take
from tests.support.hostile import plant
from tests.support.paths import GDB, GDBINIT, ROOT

NO_CORE = "is not an ELF core"
"""What a child of ours says of what `hostile` has for a core."""
DIFF = ["diff", "old.core", "new.core"]
OURS = "import sys; sys.path[0] = %r; " % str(ROOT)
"""A Python program that has the package, and not its working folder."""


@pytest.fixture
def hostile(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working folder: a stranger's modules, which PYTHONPATH names as well, beside two files that are no cores."""
    plant(tmp_path)
    for name in ("old.core", "new.core"):
        (tmp_path / name).write_bytes(b"no core")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def looked(words: List[str]) -> str:
    """What a look of `fleet` says."""
    run = pytest.importorskip("gdbheapx.addons.views.fleet.run", reason="the add-on views was deleted")
    begun = run.start_child(words, "old.core", run.report_words(None))
    begun.process.wait(60)
    return str(run.collect_child(begun).said)


def explored() -> str:
    """What a page of `explore` says."""
    exploring = pytest.importorskip("gdbheapx.addons.views.explore.command", reason="the add-on views was deleted")
    return str(exploring.write_report_page("old.core", "page.html"))


def asked(step: Callable[[], object]) -> str:
    """The error that it raises."""
    with pytest.raises(HeapxError) as raised:
        step()
    return raised.value.line()


DOORS: Dict[str, Callable[[], str]] = {
    "diff": lambda: asked(lambda: take.take_by_child(["--core", "old.core"], "made.snap")),
    "api": lambda: asked(lambda: api.Heap(lambda: None).ask(*DIFF)),
    "standby": lambda: asked(lambda: take.SnapshotStandby(1 << 30).take("made.snap")),
    "explore": explored,
    "fleet": lambda: looked(["--gdb", "none"]),
}


@pytest.mark.parametrize("door", sorted(DOORS))
def test_a_child_imports_ours_alone(door: str, hostile: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its own answer comes back, and nothing of the working folder or of PYTHONPATH was run."""
    if door == "explore":
        pytest.importorskip("jinja2")
    monkeypatch.setenv("PYTHONPATH", str(hostile))
    assert ("no such process" if door == "standby" else NO_CORE) in DOORS[door]()
    assert not (hostile / "RAN").exists()


@pytest.mark.parametrize("words", [DIFF, ["fleet", "old.core", "-o", "documents"]])
def test_a_command_of_the_shell(words: List[str], hostile: Path) -> None:
    """The same of a whole command line."""
    program = OURS + "from gdbheapx.app.cli import main; sys.exit(main())"
    done = subprocess.run([sys.executable, "-c", program, *words], capture_output=True, text=True, timeout=120)
    documents = "".join(path.read_text() for path in hostile.glob("documents/*.json"))
    assert NO_CORE in done.stderr + documents and not (hostile / "RAN").exists(), done.stderr


@pytest.mark.gdb
@pytest.mark.skipif(not shutil.which(GDB), reason="gdb is not installed")
def test_inside_gdb(hostile: Path) -> None:
    """sys.executable may be gdb there: the machine's python3 takes the look."""
    words = [GDB, "-nx", "-q", "-batch", "-x", str(GDBINIT), "-ex", "heapx " + " ".join(DIFF)]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    done = subprocess.run(words, capture_output=True, text=True, timeout=120, env=environment, stdin=subprocess.DEVNULL)
    assert NO_CORE in done.stderr and not (hostile / "RAN").exists()


def test_a_package_in_a_zip_file(hostile: Path) -> None:
    """The child finds it there, and first of all the standard library."""
    with zipfile.ZipFile("tool.zip", "w") as file:
        file.writestr("json.py", "open('RAN', 'w')")
        for path in (ROOT / "gdbheapx").glob("*.py"):
            file.write(path, "gdbheapx/" + path.name)
    words = [sys.executable, "-I", "-c", child_python.PROGRAM, str(os.getpid()), "tool.zip", "tool.zip", "--version"]
    done = subprocess.run(words, capture_output=True, text=True, timeout=60)
    assert done.stdout == "gdbheapx %s\n" % __version__ and not (hostile / "RAN").exists(), done.stderr


def test_the_single_file_is_run_by_its_path(monkeypatch: pytest.MonkeyPatch) -> None:
    """Isolated, so that its own folder is not searched."""
    monkeypatch.setattr(child_python, "SINGLE", "/tmp/gdbheapx-single.py")
    assert child_python._program_words()[1:] == ["-I", "/tmp/gdbheapx-single.py"]


def test_programs_of_absolute_folders_alone(hostile: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The working folder is none of PATH, whatever PATH says; a path is taken as it is."""
    (hostile / "bin").mkdir()
    for path in (hostile / "python3", hostile / "bin" / "python3"):
        path.write_text("#!/bin/sh\n")
        path.chmod(0o755)
    (hostile / "bin" / "none").write_text("not executable")
    monkeypatch.setattr(sys, "executable", "/usr/bin/gdb")
    monkeypatch.setenv("PATH", ":.:bin")
    assert child_python.find_program("python3") is None and child_python.find_program("./python3") == "./python3"
    assert "no python3" in asked(child_python._find_python)
    monkeypatch.setenv("PATH", ".:%s/bin" % hostile)
    assert child_python._find_python() == str(hostile / "bin" / "python3") and child_python.find_program("none") is None


def test_what_a_child_gets_of_the_environment(hostile: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing for another Python, and no target of ours."""
    for name in ("PYTHONPATH", "PYTHONHOME", "PYTHONSTARTUP", "GDBHEAPX_GLOBALS", "HOME"):
        monkeypatch.setenv(name, str(hostile))
    environment = child_python._child_environment()
    assert environment["HOME"] == str(hostile) and not [name for name in environment if name.startswith("PYTHON")]
    assert "GDBHEAPX_GLOBALS" not in environment
