"""setup.py: what is in the wheel, and that the entry point works from there."""

import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Dict, Set

import pytest

pytestmark = pytest.mark.image  # its Python's pip and setuptools make the wheel

ROOT = Path(__file__).parents[1]


def build_wheel(folder: Path, environment: Dict[str, str]) -> Path:
    """Build a wheel from a copy of the checkout, without network."""
    source = folder / "source"
    ignore = shutil.ignore_patterns(".git", ".venv", "*.so", "__pycache__", "build", "dist", "*.egg-info", "tests", ".mypy_cache")
    shutil.copytree(ROOT, source, ignore=ignore)
    words = [
        sys.executable,
        "-m",
        "pip",
        "wheel",
        "-q",
        "--no-deps",
        "--no-build-isolation",
        "--disable-pip-version-check",
        "-w",
        str(folder),
        str(source),
    ]
    done = subprocess.run(words, capture_output=True, text=True, env=dict(os.environ, **environment))
    if done.returncode and ("setuptools" in done.stderr or "bdist_wheel" in done.stderr):
        pytest.skip("setuptools and wheel are not installed in this environment: %s" % done.stderr.strip().splitlines()[-1])
    assert done.returncode == 0, done.stderr
    (wheel,) = folder.glob("*.whl")
    return wheel


def names_in(wheel: Path) -> Set[str]:
    """The files in the wheel."""
    with zipfile.ZipFile(wheel) as archive:
        return set(archive.namelist())


def test_wheel_with_a_compiler(tmp_path: Path) -> None:
    """The wheel holds every module, the commands as gdbheapx.commands and the kernel; its tag is one platform, any Python 3."""
    if not (shutil.which("cc") or shutil.which("gcc")):
        pytest.skip("no C compiler here")
    wheel = build_wheel(tmp_path, {})
    assert "-py3-none-linux" in wheel.name
    names = names_in(wheel)
    assert "gdbheapx/kernel/_kernel.so" in names
    for path in (ROOT / "gdbheapx").rglob("*.py"):
        assert str(path.relative_to(ROOT)) in names
    for path in (ROOT / "commands").glob("*.py"):
        assert "gdbheapx/%s" % path.relative_to(ROOT) in names
    packs = list((ROOT / "gdbheapx" / "packs").glob("*.json"))
    assert len(packs) >= 8 and all(str(path.relative_to(ROOT)) in names for path in packs)
    assert "gdbheapx/packs/jemalloc.structs" in names


def test_wheel_without_a_compiler(tmp_path: Path) -> None:
    """Without a compiler the wheel is for any platform and has no kernel: the twin serves."""
    wheel = build_wheel(tmp_path, {"CC": "/nowhere/cc"})
    assert wheel.name.endswith("-py3-none-any.whl")
    assert not [name for name in names_in(wheel) if name.endswith(".so")]


def test_unpacked_wheel_answers(tmp_path: Path) -> None:
    """From an unpacked wheel the entry point tells its version, its gdbinit.py and its commands."""
    wheel = build_wheel(tmp_path, {"CC": "/nowhere/cc"})
    home = tmp_path / "home"
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(home)
    environment = dict(os.environ, PYTHONPATH=str(home))
    for words, expected in ((["--version"], "gdbheapx "), (["gdbinit"], str(home / "gdbheapx" / "gdbinit.py")), (["--help"], "arenas")):
        done = subprocess.run([sys.executable, "-m", "gdbheapx.cli", *words], capture_output=True, text=True, env=environment, cwd=str(home))
        assert done.returncode == 0 and expected in done.stdout, done.stderr
