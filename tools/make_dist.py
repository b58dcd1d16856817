"""`make dist`: the sdist, and made of it a wheel with the C kernel for each machine whose compiler is here.

The kernel names no libc and no version of a symbol: one wheel serves glibc and musl.
"""

import argparse
import gzip
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from pathlib import Path
from typing import Dict, List, Optional

from elftools.elf.elffile import ELFFile
from elftools.elf.gnuversions import GNUVerNeedSection

from tools import libraries

ROOT = Path(__file__).resolve().parent.parent
KERNEL = "gdbheapx/kernel/_kernel.so"
FOLDERS = ("gdbheapx", "commands", "docs", "share", "debian", "tests", "tools", "docker", "bench", "demo", "changelog.d")
"""What MANIFEST.in takes from."""
BEGIN_OF_ZIP = "315532800"
"""1980: no file in a wheel can be older."""
NO_ENGINE = 3
"""Exit code of docker/try_dist.py where no image can be used."""
SYSTEMS = ("manylinux_2_17", "manylinux2014", "musllinux_1_1")
"""Of tags. clock_gettime is in libc itself from glibc 2.17 on."""
ARCHITECTURES = {"x86_64": "x64", "aarch64": "AArch64"}
"""As pyelftools calls them."""


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
                shutil.copytree(path, copy / path.name, ignore=shutil.ignore_patterns("*.so", "__pycache__", "target", ".pyarrow"))
            elif path.is_file():
                shutil.copy(path, copy / path.name)
        program = "import sys; from setuptools import build_meta; print('made ' + build_meta.build_sdist(sys.argv[1]))"
        said = run([sys.executable, "-c", program, str(folder)], cwd=copy)
    return pack_again(folder / said.split("made ")[-1].strip())


def pack_again(sdist: Path) -> Path:
    """The same files with the time of the last commit and no user's name: setuptools writes those of the moment."""
    seconds = int(source_date())

    def plain(entry: tarfile.TarInfo) -> tarfile.TarInfo:
        entry.mtime, entry.uid, entry.gid, entry.uname, entry.gname = seconds, 0, 0, "", ""
        entry.mode = 0o755 if entry.isdir() or entry.mode & 0o100 else 0o644
        return entry

    with tempfile.TemporaryDirectory() as temporary:
        tree = unpack(sdist, Path(temporary))
        with open(sdist, "wb") as raw, gzip.GzipFile("", "wb", mtime=seconds, fileobj=raw) as packed, tarfile.open(fileobj=packed, mode="w", format=tarfile.PAX_FORMAT) as archive:
            archive.add(str(tree), tree.name, filter=plain)
    return sdist


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


def check_portable(library: Path, machine: str) -> None:
    """CannotBuild if an ELF library is for another machine, or names a library or the version of a symbol: no tag promises these."""
    with open(library, "rb") as file:
        elf = ELFFile(file)
        if elf.get_machine_arch() != ARCHITECTURES[machine]:
            raise CannotBuild("%s is for %s" % (library.name, elf.get_machine_arch()))
        needed = [entry.needed for entry in elf.get_section_by_name(".dynamic").iter_tags() if entry.entry.d_tag == "DT_NEEDED"]
        if needed or any(isinstance(section, GNUVerNeedSection) for section in elf.iter_sections()):
            raise CannotBuild("%s requires %s, which no tag promises" % (library.name, ", ".join(needed) or "versions of symbols"))


def tag(wheel: Path, machine: str) -> Path:
    """The wheel under the name and with the metadata of every libc of its machine."""
    with tempfile.TemporaryDirectory() as temporary, zipfile.ZipFile(wheel) as archive:
        check_portable(Path(archive.extract(KERNEL, temporary)), machine)
    tags = ".".join("%s_%s" % (system, machine) for system in SYSTEMS)
    said = run([sys.executable, "-m", "wheel", "tags", "--remove", "--platform-tag", tags, str(wheel)])
    return wheel.parent / said.strip().splitlines()[-1]


def make(folder: Path) -> List[Path]:
    """Everything. What an earlier run has made of this project goes."""
    folder.mkdir(parents=True, exist_ok=True)
    for old in (*folder.glob("gdbheapx-*.whl"), *folder.glob("gdbheapx-*.tar.gz")):
        old.unlink()
    sdist = make_sdist(folder)
    made = [sdist]
    for machine, compiler in libraries.compilers().items():
        made.append(tag(make_wheel(sdist, folder, {"CC": compiler, "GDBHEAPX_PORTABLE": machine}), machine))
    return made


def main() -> int:
    """Make them, say what was made, and try them."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--folder", type=Path, default=ROOT / "dist", help="where the files go (default: dist)")
    asked = parser.parse_args()
    try:
        made = make(asked.folder.resolve())
    except CannotBuild as error:
        print("dist: %s" % error, file=sys.stderr)
        return 1
    for line in libraries.left_out():
        print("no wheel for " + line, file=sys.stderr)
    for path in made:
        print("%8.1f KiB  %s" % (path.stat().st_size / 1024, path.relative_to(Path.cwd()) if Path.cwd() in path.parents else path), flush=True)
    words = [sys.executable, "-m", "pytest", "-q", "tests/test_packaging.py"]
    here = subprocess.run(words, cwd=ROOT, env=dict(os.environ, GDBHEAPX_DIST=str(asked.folder.resolve()))).returncode
    if here:
        return here
    there = subprocess.run([sys.executable, str(ROOT / "docker" / "try_dist.py"), str(asked.folder.resolve())]).returncode
    if there == NO_ENGINE:
        print("tried on this machine alone, in no image")
    return 0 if there == NO_ENGINE else there


if __name__ == "__main__":
    sys.exit(main())
