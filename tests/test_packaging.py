"""setup.py and tools/make_dist.py: what is in the sdist and the wheels, and that each wheel answers from a venv of its own.

With GDBHEAPX_DIST=FOLDER the files of that folder are tried: so does `make dist` with what it has made.
"""

import email
import importlib.metadata
import importlib.util
import json
import os
import platform
import re
import runpy
import shutil
import subprocess
import sys
import tarfile
import venv
import zipfile
from email.message import Message
from pathlib import Path
from typing import Dict, Iterator, List, NamedTuple, Set

import pytest
from elftools.elf.elffile import ELFFile

from tests.support import hardened
from tests.support.hostile import plant
from tests.support.paths import GDB
from tools import libraries, make_dist

pytestmark = pytest.mark.image  # its Python's pip and setuptools make the wheels

ROOT = Path(__file__).parents[1]
FOLDER = os.environ.get("GDBHEAPX_DIST")


class Made(NamedTuple):
    """What `make dist` gives."""

    sdist: Path
    wheel: Path
    """For this machine."""


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Made:
    """The files of GDBHEAPX_DIST, or made here, the wheels from the sdist, the kernel by this machine's compiler."""
    folder = Path(FOLDER) if FOLDER else tmp_path_factory.mktemp("dist")
    if not FOLDER:
        if not (shutil.which("cc") or shutil.which("gcc")):
            pytest.skip("no C compiler here")
        if importlib.util.find_spec("setuptools") is None or importlib.util.find_spec("wheel") is None:
            pytest.skip("setuptools and wheel are not installed in this environment")
        make_dist.make(folder)
    (sdist,), (wheel,) = (list(folder.glob("gdbheapx-*" + end)) for end in (".tar.gz", "-manylinux*_%s.whl" % platform.machine()))
    return Made(sdist, wheel)


def names_in(wheel: Path) -> Set[str]:
    """The files in the wheel."""
    with zipfile.ZipFile(wheel) as archive:
        return set(archive.namelist())


def kept(*folders: str) -> Set[str]:
    """What the checkout has in these folders, without what was built there."""
    return {
        str(path.relative_to(ROOT))
        for folder in folders
        for path in (ROOT / folder).rglob("*")
        if path.is_file() and "__pycache__" not in path.parts and path.suffix not in (".so", ".pyc") and not {"target", ".pyarrow", "Cargo.lock"}.intersection(path.parts)
    }


def test_sdist_is_whole(made: Made) -> None:
    """The sdist has all sources, their tests and tools, the documentation, Debian's files, man page and completion, and nothing that was built."""
    with tarfile.open(made.sdist) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    wanted = kept("gdbheapx", "commands", "docs", "debian", "share", "tests", "tools", "docker", "bench", "demo", "changelog.d") | {"setup.py", "pyproject.toml", "README.md", "CHANGELOG.md", "LICENSE"}
    assert not wanted - names
    assert not [name for name in names if name.endswith((".so", ".pyc"))]


def test_the_wheel_is_whole(made: Made) -> None:
    """The wheel, which is made from the sdist, holds every module, the commands as gdbheapx.commands, packs, man page and completion."""
    names = names_in(made.wheel)
    for path in (ROOT / "gdbheapx").rglob("*.py"):
        assert str(path.relative_to(ROOT)) in names
    for path in (ROOT / "commands").glob("*.py"):
        assert "gdbheapx/%s" % path.relative_to(ROOT) in names
    packs = list((ROOT / "gdbheapx" / "packs").glob("*.json"))
    assert len(packs) >= 8 and all(str(path.relative_to(ROOT)) in names for path in packs)
    assert "gdbheapx/packs/jemalloc.structs" in names and "gdbheapx/packs/jemalloc.options" in names
    ends = [name.partition(".data/data/")[2] for name in names if ".data/data/" in name]
    assert sorted(ends) == ["share/bash-completion/completions/gdbheapx", "share/man/man1/gdbheapx.1", "share/zsh/site-functions/_gdbheapx"]
    assert [name for name in names if name.endswith(".so")] == ["gdbheapx/kernel/_kernel.so"]


def test_an_sdist_is_the_same_each_time(made: Made, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Packed again it has the same bytes, one time, and nobody's name."""
    sdist = tmp_path / made.sdist.name
    shutil.copy(made.sdist, sdist)
    with tarfile.open(sdist) as archive:
        ((name, number, mtime),) = {(entry.uname, entry.uid, entry.mtime) for entry in archive}
    monkeypatch.setenv("SOURCE_DATE_EPOCH", str(int(mtime)))
    assert (name, number) == ("", 0) and make_dist.pack_again(sdist).read_bytes() == made.sdist.read_bytes()


@pytest.mark.once  # the images run the same tests from the checkout
def test_the_sdist_runs_its_tests(made: Made, tmp_path: Path) -> None:
    """Unpacked elsewhere, tests run with the sources beside them: some that start nothing, as all would."""
    tree = make_dist.unpack(made.sdist, tmp_path)
    words = ["-q", "-p", "no:cacheprovider", "tests/unit/common/test_units.py", "tests/unit/common/test_problems.py", "tests/unit/packs"]
    done = subprocess.run([sys.executable, "-m", "pytest", *words], cwd=tree, env=outside(), capture_output=True, text=True)
    assert done.returncode == 0 and str(ROOT) + "/" not in done.stdout, done.stdout[-3000:]


def outside() -> Dict[str, str]:
    """The environment without what leads to the checkout."""
    return {name: value for name, value in os.environ.items() if not name.startswith(("PYTEST_", "HEAPX_", "PYTHONPATH"))}


def metadata(made: Made) -> List[Message]:
    """What sdist and wheels say of themselves."""
    found = [email.message_from_string(zipfile.ZipFile(wheel).read(name).decode()) for wheel in [made.wheel] for name in names_in(wheel) if name.endswith("/METADATA")]
    with tarfile.open(made.sdist) as archive:
        file = archive.extractfile("%s/PKG-INFO" % made.sdist.name[: -len(".tar.gz")])
        assert file is not None
        return [*found, email.message_from_bytes(file.read())]


def test_metadata_stand_alone(made: Made) -> None:
    """No link of the long description is relative, the licence is said once, and the licence files are there, that of the packs too."""
    for said in metadata(made):
        page = str(said.get_payload() or said["Description"])  # the latter by setuptools of Debian 11
        assert "Your process keeps growing" in page and not re.search(r"\]\((?!https?://)", page)
        classifiers = said.get_all("Classifier") or []
        assert (said["License-Expression"] or said["License"]) == "Apache-2.0" and not [one for one in classifiers if one.startswith("License ::")]
        assert {"Programming Language :: Python :: 3.%d" % minor for minor in range(9, 15)} <= set(classifiers)
        files = {Path(name).name for name in said.get_all("License-File") or ()}  # none there either
        assert files == {"LICENSE", "LICENSES.md"} or (not files and not said["License-Expression"])


def test_an_index_takes_them(made: Made) -> None:
    """twine, strictly: metadata are valid, and the long description can be shown."""
    pytest.importorskip("twine", reason="twine is not installed")
    done = subprocess.run([sys.executable, "-m", "twine", "--no-color", "check", "--strict", str(made.sdist), str(made.wheel)], capture_output=True, text=True)
    assert done.returncode == 0 and done.stdout.count("PASSED") == 2, done.stdout + done.stderr


def test_links_lead_to_the_repository(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where it has an address, links and pictures lead to the files of this version; without one their words stay, and addresses as they are."""
    setuptools = pytest.importorskip("setuptools")
    monkeypatch.setattr(setuptools, "setup", lambda **_: None)
    monkeypatch.chdir(ROOT)
    shown = runpy.run_path(str(ROOT / "setup.py"))["for_an_index"]
    page = "![P](docs/p.png) see [two\nwords](docs/a.md#there), [out](https://example.org), [below](#x)"
    there = "https://example.org/heap"
    assert shown(page, None, "1.0") == " see two\nwords, [out](https://example.org), [below](#x)"
    wanted = "![P](%s/raw/v1.0/docs/p.png) see [two\nwords](%s/blob/v1.0/docs/a.md#there), [out](https://example.org), [below](#x)" % (there, there)
    assert shown(page, there, "1.0") == wanted


def test_tags_promise_no_more_than_the_kernel_keeps(made: Made, tmp_path: Path) -> None:
    """The kernel's wheel is marked for glibc and musl of its machine, and its library names neither."""
    for machine in libraries.compilers():
        (wheel,) = made.sdist.parent.glob("gdbheapx-*_%s.whl" % machine)
        with zipfile.ZipFile(wheel) as archive:
            (metadata,) = (name for name in archive.namelist() if name.endswith(".dist-info/WHEEL"))
            tags = {line.rpartition("-")[2] for line in archive.read(metadata).decode().split("\n") if line.startswith("Tag: py3-none-")}
            library = Path(archive.extract("gdbheapx/kernel/_kernel.so", tmp_path / machine))
        make_dist.check_portable(library, machine)
        with open(library, "rb") as file:
            names = hardened.undefined(ELFFile(file))
        assert any(name.startswith("__stack_chk_") for name in names)
        assert not {name for name in names if name.endswith("_chk")}  # musl has none of these
        assert tags == {"%s_%s" % (system, machine) for system in make_dist.SYSTEMS}


def test_a_library_that_no_tag_promises() -> None:
    """A kernel that required a library would be in no such wheel, and is refused; so is that of another machine."""
    found = [Path(folder) / "libstdc++.so.6" for folder in ("/usr/lib/x86_64-linux-gnu", "/lib64", "/usr/lib")]
    library = next((path for path in found if path.exists()), None)
    if library is None:
        pytest.skip("libstdc++ is not installed here")
    with pytest.raises(make_dist.CannotBuild, match="which no tag promises"):
        make_dist.check_portable(library, "x86_64")
    with pytest.raises(make_dist.CannotBuild, match="is for"):
        make_dist.check_portable(library, "aarch64")


def install(wheel: Path, folder: Path) -> Path:
    """A venv with the wheel, and with what it requires as this Python has it; its entry point."""
    venv.create(folder, with_pip=False, symlinks=True)
    (packages,) = (folder / "lib").glob("python3*/site-packages")
    for name in ("tabulate",):
        for file in importlib.metadata.files(name) or ():
            if ".." not in file.parts and "__pycache__" not in file.parts:
                (packages / file).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(str(file.locate()), packages / file)
    pip = [sys.executable, "-m", "pip", "--python", str(folder / "bin" / "python"), "--disable-pip-version-check"]
    done = subprocess.run([*pip, "install", "-q", "--no-index", "--no-compile", str(wheel)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return folder / "bin" / "gdbheapx"


@pytest.fixture(scope="module")
def idle() -> Iterator[int]:
    """A process with a small heap."""
    with subprocess.Popen(["sleep", "600"]) as process:
        yield process.pid
        process.kill()


@pytest.fixture(scope="module")
def installed(made: Made, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel with the library in a venv: its entry point."""
    return install(made.wheel, tmp_path_factory.mktemp("venv"))


def test_no_wheel_without_a_compiler(made: Made, tmp_path: Path) -> None:
    """A wheel always has the native library: where nothing compiles it, the build ends with what to do."""
    with pytest.raises(make_dist.CannotBuild, match="needs its native library: install a C compiler"):
        make_dist.make_wheel(made.sdist, tmp_path, {"CC": "/nowhere/cc"})


def said(entry: Path, *words: str, cwd: Path = Path("/")) -> str:
    """What the installed tool prints, which must be a whole answer; nothing of the checkout is in its way."""
    environment = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "VIRTUAL_ENV", "GDBHEAPX_GDB")}
    done = subprocess.run([str(entry), *words], capture_output=True, text=True, env=environment, cwd=cwd, stdin=subprocess.DEVNULL, timeout=120)
    assert done.returncode == 0, (words, done.stdout[-1000:], done.stderr)
    return done.stdout


def test_installed_wheel_tells_of_itself(installed: Path) -> None:
    """From a venv the entry point tells its version, the gdbinit.py beside it and its commands; man page and completion lie below the prefix."""
    from gdbheapx import __version__

    entry, prefix = installed, installed.parent.parent
    assert said(entry, "--version") == "gdbheapx %s\n" % __version__
    assert prefix in Path(said(entry, "gdbinit").strip()).parents
    assert "arenas" in said(entry, "--help-all")
    assert "gdbheapx" in (prefix / "share" / "man" / "man1" / "gdbheapx.1").read_text()
    assert (prefix / "share" / "bash-completion" / "completions" / "gdbheapx").is_file()


@pytest.mark.gdb
@pytest.mark.live
def test_installed_wheel_answers(installed: Path, idle: int, tmp_path: Path) -> None:
    """doctor, arenas and a snapshot of a living process, by gdb and without it, with the wheel's own kernel; a snapshot answers as it did."""
    entry = installed
    ways: List[List[str]] = [["--gdb", "none"]] + ([["--gdb", GDB]] if shutil.which(GDB) else [])
    for way in ways:
        doctor, arenas = (json.loads(said(entry, *way, "--pid", str(idle), command, "--json")) for command in ("doctor", "arenas"))
        assert doctor["tool"]["kernel"] == arenas["tool"]["kernel"] == "c"
        assert arenas["data"]["totals"]["glibc"]["used_bytes"] > 0
        file = tmp_path / "look.heapx"
        said(entry, *way, "--pid", str(idle), "snapshot", str(file))
        again = json.loads(said(entry, "--snapshot", str(file), "arenas", "--json"))
        assert again["data"]["totals"]["glibc"]["used_bytes"] == arenas["data"]["totals"]["glibc"]["used_bytes"]
        assert "Verdict" in said(entry, "--snapshot", str(file), "report")


@pytest.fixture(scope="module")
def single(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The one file of `make single`."""
    path = tmp_path_factory.mktemp("single") / "gdbheapx-single.py"
    subprocess.run([sys.executable, "-m", "tools.make_single", str(path)], cwd=ROOT, check=True, stdout=subprocess.DEVNULL)
    path.chmod(0o755)
    return path


def by_python(single: Path, *words: str, code: int = 0) -> "subprocess.CompletedProcess[str]":
    """The single file as a program of a Python that has nothing installed beside it."""
    environment = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "GDBHEAPX_GDB")}
    done = subprocess.run([sys.executable, "-I", "-S", str(single), *words], capture_output=True, text=True, env=environment, cwd=single.parent, timeout=120)
    assert done.returncode == code and "Traceback" not in done.stderr, (words, done.stdout[-1000:], done.stderr)
    return done


@pytest.mark.gdb
@pytest.mark.live
@pytest.mark.parametrize("gdb", ["none", GDB])
def test_single_file_from_a_shell(single: Path, idle: int, gdb: str) -> None:
    """Python runs the single file as the shell's command, with gdb and without: it takes a snapshot and answers from it as it did from the process."""
    from gdbheapx import __version__

    assert by_python(single, "--version").stdout == "gdbheapx %s\n" % __version__
    look = single.parent / ("look-" + Path(gdb).name)
    arenas = json.loads(by_python(single, "--gdb", gdb, "--pid", str(idle), "arenas", "--json").stdout)
    assert arenas["tool"]["kernel"] == "c" and (arenas["tool"]["gdb"] is None) == (gdb == "none")
    by_python(single, "--gdb", gdb, "--pid", str(idle), "snapshot", str(look))
    again = json.loads(by_python(single, "--snapshot", str(look), "arenas", "--json").stdout)
    assert again["data"]["totals"]["glibc"]["used_bytes"] == arenas["data"]["totals"]["glibc"]["used_bytes"] > 0
    assert again["target"]["kind"] == "snapshot" and "Verdict" in by_python(single, "--snapshot", str(look), "report").stdout
    assert "in use" in by_python(single, "--gdb", gdb, "diff", str(look), str(idle)).stdout


def test_single_file_says_what_it_lacks(single: Path, idle: int) -> None:
    """Pages are not in the file, and a call needs gdb: one line each, with the next step."""
    for words in (["report", "--html", "page.html"], ["--gdb", "none", "trim", "--yes"]):
        done = by_python(single, "--pid", str(idle), *words, code=1)
        assert done.stderr.startswith("gdbheapx: ") and done.stderr.count("\n") == 1 and ";" in done.stderr
    assert not (single.parent / "page.html").exists()


@pytest.mark.gdb
def test_single_file_beside_other_modules(single: Path, tmp_path: Path) -> None:
    """In a folder of anybody's, such as /tmp, it imports nothing from there, nor does a child of it, from a shell and inside gdb."""
    plant(tmp_path)
    path = shutil.copy(single, tmp_path)
    for name in ("old", "new"):
        (tmp_path / name).write_bytes(b"no core")
    ways = [[sys.executable, path, "diff", "old", "new"]]
    ways += [[GDB, "-nx", "-q", "-batch", "-x", path, "-ex", "heapx diff old new"]] if shutil.which(GDB) else []
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "GDBHEAPX"))}
    for words in ways:
        done = subprocess.run(words, capture_output=True, text=True, env=environment, cwd=tmp_path, timeout=120, stdin=subprocess.DEVNULL)
        assert "no snapshot of old: old is not an ELF core" in done.stderr and not (tmp_path / "RAN").exists(), (words, done.stderr)


@pytest.mark.gdb
@pytest.mark.live
def test_single_file_in_gdb(single: Path, idle: int) -> None:
    """Sourced by gdb it takes the same snapshot, and its API answers."""
    look = single.parent / "look-in-gdb"
    words = [GDB, "-nx", "-q", "-batch", "-iex", "set auto-load no", "-p", str(idle), "-x", str(single), "-ex", "heapx snapshot %s" % look]
    words += ["-ex", "python from gdbheapx import api; print('API', api.ask('arenas').data['totals']['glibc']['used_bytes'])"]
    done = subprocess.run(words, capture_output=True, text=True, timeout=120, stdin=subprocess.DEVNULL)
    again = json.loads(by_python(single, "--snapshot", str(look), "arenas", "--json").stdout)
    assert "API %d\n" % again["data"]["totals"]["glibc"]["used_bytes"] in done.stdout, done.stdout + done.stderr
