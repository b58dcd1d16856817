"""`make dist`: the sdist, and made of it a wheel with the C kernel and one for any platform with its Python twin.

The kernel is compiled in the image of the oldest release of docker/matrix.py; where there is no engine, on this machine, and the output says so.
Either way the wheel's tag names the glibc that the compiled kernel requires, as its symbol versions say.
"""

import argparse
import os
import platform
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from pathlib import Path
from typing import Dict, List, Optional, Tuple

from elftools.elf.elffile import ELFFile
from elftools.elf.gnuversions import GNUVerNeedSection

ROOT = Path(__file__).resolve().parent.parent
KERNEL = "gdbheapx/kernel/_kernel.so"
FOLDERS = ("gdbheapx", "commands", "docs", "share", "debian")
"""What MANIFEST.in takes from."""
NO_COMPILER = {"CC": "/nowhere/cc"}
BEGIN_OF_ZIP = "315532800"
"""1980: no file in a wheel can be older."""
NO_ENGINE = 3
"""Exit code of docker/build_wheel.py where no image can be used."""
EVERYWHERE = re.compile(r"(libc|libpthread|ld-linux.*)\.so\.\d+")
"""Libraries that each system of a manylinux tag has, as far as the kernel is concerned."""


class CannotBuild(Exception):
    """Something cannot be made; the message says why."""


def source_date() -> str:
    """When the last commit was made, for files that are the same whenever they are built."""
    if os.environ.get("SOURCE_DATE_EPOCH"):
        return os.environ["SOURCE_DATE_EPOCH"]
    if not shutil.which("git"):
        return BEGIN_OF_ZIP
    done = subprocess.run(["git", "log", "-1", "--format=%ct"], cwd=ROOT, capture_output=True, text=True)
    return (done.stdout.strip() if done.returncode == 0 else "") or BEGIN_OF_ZIP


def run(words: List[str], cwd: Optional[Path] = None, extra: Optional[Dict[str, str]] = None) -> str:
    """A command that has to succeed; what it printed."""
    environment = {**os.environ, "SOURCE_DATE_EPOCH": source_date(), **(extra or {})}
    done = subprocess.run(words, cwd=cwd, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    if done.returncode != 0:
        raise CannotBuild("%s ended with %d:\n%s" % (" ".join(words[:5]), done.returncode, done.stdout[-4000:]))
    return done.stdout


def make_sdist(folder: Path) -> Path:
    """The sdist of this checkout, from a copy: setuptools takes what an earlier build has left for a part of the project."""
    with tempfile.TemporaryDirectory() as temporary:
        copy = Path(temporary) / "source"
        copy.mkdir()
        for path in sorted(ROOT.iterdir()):
            if path.name in FOLDERS:
                shutil.copytree(path, copy / path.name, ignore=shutil.ignore_patterns("*.so", "__pycache__"))
            elif path.is_file():
                shutil.copy(path, copy / path.name)
        program = "import sys; from setuptools import build_meta; print('made ' + build_meta.build_sdist(sys.argv[1]))"
        said = run([sys.executable, "-c", program, str(folder)], cwd=copy)
    return folder / said.split("made ")[-1].strip()


def unpack(sdist: Path, folder: Path) -> Path:
    """The tree that the sdist contains."""
    with tarfile.open(sdist) as archive:
        archive.extractall(folder)  # our own file
    return folder / sdist.name[: -len(".tar.gz")]


def make_wheel(sdist: Path, folder: Path, extra: Optional[Dict[str, str]] = None) -> Path:
    """The wheel that pip makes of the sdist, without a network."""
    with tempfile.TemporaryDirectory() as temporary:
        words = [sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "--no-index", "--no-build-isolation", "--disable-pip-version-check"]
        run([*words, "-w", temporary, str(sdist)], extra=extra)
        (wheel,) = Path(temporary).glob("*.whl")
        return Path(shutil.move(str(wheel), str(folder / wheel.name)))


def in_oldest_image(sdist: Path, folder: Path) -> Tuple[Optional[Path], str]:
    """The wheel made in the oldest image, and how; None and the reason where that cannot be used."""
    with tempfile.TemporaryDirectory() as temporary:
        words = [sys.executable, str(ROOT / "docker" / "build_wheel.py"), str(sdist), temporary]
        environment = {**os.environ, "SOURCE_DATE_EPOCH": source_date()}
        done = subprocess.run(words, env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True)
        if done.returncode == NO_ENGINE:
            return None, done.stderr.strip().splitlines()[-1]
        if done.returncode != 0:
            raise CannotBuild(done.stderr[-4000:])
        (wheel,) = Path(temporary).glob("*.whl")
        return Path(shutil.move(str(wheel), str(folder / wheel.name))), done.stdout.strip()


def glibc_needed(library: Path) -> Tuple[int, int]:
    """The newest version of glibc whose symbols an ELF library requires; CannotBuild if it requires another library."""
    newest = (2, 0)
    with open(library, "rb") as file:
        sections = [one for one in ELFFile(file).iter_sections() if isinstance(one, GNUVerNeedSection)]
        for needed, versions in (pair for section in sections for pair in section.iter_versions()):
            if not EVERYWHERE.fullmatch(needed.name):
                raise CannotBuild("%s requires %s, which no manylinux tag promises" % (library.name, needed.name))
            for version in versions:
                found = re.fullmatch(r"GLIBC_(\d+)\.(\d+)(?:\.\d+)?", version.name)
                if found is None:
                    raise CannotBuild("%s requires %s of %s" % (library.name, version.name, needed.name))
                newest = max(newest, (int(found[1]), int(found[2])))
    return newest


def platform_tag(wheel: Path) -> str:
    """The tag that the kernel in the wheel deserves."""
    with tempfile.TemporaryDirectory() as temporary, zipfile.ZipFile(wheel) as archive:
        major, minor = glibc_needed(Path(archive.extract(KERNEL, temporary)))
    return "manylinux_%d_%d_%s" % (major, max(minor, 5), platform.machine())  # pip knows none before 2.5


def tag(wheel: Path) -> Path:
    """The wheel under the name and with the metadata of the platform that it requires."""
    said = run([sys.executable, "-m", "wheel", "tags", "--remove", "--platform-tag", platform_tag(wheel), str(wheel)])
    return wheel.parent / said.strip().splitlines()[-1]


def make(folder: Path, use_images: bool = True) -> Tuple[List[Path], str]:
    """Everything, and how the kernel was built. What an earlier run has made of this project goes."""
    folder.mkdir(parents=True, exist_ok=True)
    for old in (*folder.glob("gdbheapx-*.whl"), *folder.glob("gdbheapx-*.tar.gz")):
        old.unlink()
    sdist = make_sdist(folder)
    pure = make_wheel(sdist, folder, NO_COMPILER)
    if not pure.name.endswith("-py3-none-any.whl"):
        raise CannotBuild("%s is not for any platform" % pure.name)
    wheel, how = in_oldest_image(sdist, folder) if use_images else (None, "images were not wanted")
    if wheel is None:
        how = "kernel built on this machine, not in the oldest image (%s)" % how
        wheel = make_wheel(sdist, folder)
        if wheel.name.endswith("-any.whl"):
            raise CannotBuild("no C compiler here; gcc makes the wheel with the kernel")
    return [sdist, tag(wheel), pure], how


def main() -> int:
    """Make them, say what was made, and try them."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--folder", type=Path, default=ROOT / "dist", help="where the files go (default: dist)")
    parser.add_argument("--no-images", action="store_true", help="compile the kernel on this machine")
    asked = parser.parse_args()
    try:
        made, how = make(asked.folder.resolve(), not asked.no_images)
    except CannotBuild as error:
        print("dist: %s" % error, file=sys.stderr)
        return 1
    print(how)
    for path in made:
        print("%8.1f KiB  %s" % (path.stat().st_size / 1024, path.relative_to(Path.cwd()) if Path.cwd() in path.parents else path), flush=True)
    words = [sys.executable, "-m", "pytest", "-q", "tests/test_packaging.py"]
    here = subprocess.run(words, cwd=ROOT, env=dict(os.environ, GDBHEAPX_DIST=str(asked.folder.resolve()))).returncode
    if here or asked.no_images:
        return here
    there = subprocess.run([sys.executable, str(ROOT / "docker" / "try_dist.py"), str(asked.folder.resolve())]).returncode
    if there == NO_ENGINE:
        print("tried on this machine alone, in no image")
    return 0 if there == NO_ENGINE else there


if __name__ == "__main__":
    sys.exit(main())
