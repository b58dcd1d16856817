"""The compiled kernel wherever the tool runs: one library for every libc of a machine, and the ways in which the single file loads it.

Files: kernel/binding.py, kernel/build.py, kernel/common/library.py.
"""

import errno
import json
import os
import platform
import shutil
import stat
import subprocess
from pathlib import Path
from typing import Any, List

import pytest

from gdbheapx.kernel import binding, build
from gdbheapx.kernel.common import library
from tests.support import compilers
from tests.support.paths import PROGRAMS
from tools import libraries

pytestmark = pytest.mark.image  # its libc and Python load it

ASKS = (PROGRAMS / "asks_kernel.c").read_text()


@pytest.fixture(scope="module")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the library of each machine whose compiler is here, under the machine's name."""
    folder = tmp_path_factory.mktemp("libraries")
    for machine, data in libraries.compiled().items():
        (folder / machine).write_bytes(data)
    if not (folder / platform.machine()).exists():
        pytest.skip("no compiler here")
    return folder


def test_what_was_compiled_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """For each machine, as long as its files are the same; where nothing can be kept, it is made each time."""
    made: List[str] = []

    def compile_into(target: str, words: List[str], texts: Any, checksum: int, machine: str) -> "subprocess.CompletedProcess[bytes]":
        made.append(machine)
        Path(target).write_bytes(b"%d" % checksum)
        return subprocess.CompletedProcess(words, 0)

    machines = list(libraries.compilers())
    monkeypatch.setattr(build, "compile_into", compile_into)
    monkeypatch.setattr(libraries, "KEPT", tmp_path / "kept")
    assert libraries.compiled() == libraries.compiled() and made == machines
    monkeypatch.setattr(build, "source_id", lambda *folders: 7)
    assert set(libraries.compiled().values()) == {b"7"} and made == 2 * machines
    monkeypatch.setattr(libraries, "KEPT", Path("/dev/null/kept"))
    assert set(libraries.compiled().values()) == {b"7"} and made == 3 * machines
    assert {path.name.partition(".")[2] for path in (tmp_path / "kept").iterdir()} == {""}, "nothing unfinished lies there"


@pytest.mark.parametrize("compiler, machine", [("gcc", platform.machine()), ("musl-gcc", platform.machine()), ("aarch64-linux-gnu-gcc", "aarch64")])
def test_one_library_for_every_libc(compiled: Path, tmp_path: Path, compiler: str, machine: str) -> None:
    """Programs of glibc, of musl and of another machine load it and have it work."""
    path = libraries.compilers().get(machine) if compiler.startswith(machine) else shutil.which(compiler)
    if path is None:
        pytest.skip("%s is not installed" % compiler)
    (tmp_path / "asks.c").write_text(ASKS)
    subprocess.run([path, "-o", str(tmp_path / "asks"), str(tmp_path / "asks.c"), "-ldl", "-pthread"], check=True)
    runs: List[str] = []
    if machine != platform.machine():
        if not shutil.which("qemu-aarch64-static") or not Path("/usr/aarch64-linux-gnu/lib").exists():
            pytest.skip("no qemu for %s here" % machine)
        runs = ["qemu-aarch64-static", "-L", "/usr/aarch64-linux-gnu"]
    done = subprocess.run([*runs, str(tmp_path / "asks"), str(compiled / machine)], capture_output=True, text=True)
    assert (done.stdout, done.stderr) == ("%d 123\n" % library.HEAPX_ABI, "")


@pytest.fixture
def single(compiled: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As in the single file: this machine's library is in it."""
    data = (compiled / platform.machine()).read_bytes()
    monkeypatch.setattr(library, "PACKED", {os.uname().machine: library.pack_bytes(data), library.SOURCE_ID: str(build.source_id())})


def no_memfd(*words: Any) -> int:
    """As where vm.memfd_noexec forbids it."""
    raise OSError(errno.EACCES, "forbidden")


def test_else_from_a_private_file(single: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Which nobody else can open, and which is gone at once."""
    monkeypatch.setattr(os, "memfd_create", no_memfd)
    seen = []

    def load(path: str) -> Any:
        seen.append((path, stat.S_IMODE(os.stat(path).st_mode), stat.S_IMODE(os.stat(os.path.dirname(path)).st_mode)))
        return library.load_library_at(path)

    assert library.open_included(load).heapx_abi() == library.HEAPX_ABI
    ((path, file, folder),) = seen
    assert (file, folder) == (0o600, 0o700) and not os.path.exists(os.path.dirname(path))


@pytest.mark.slow
def test_else_it_is_compiled(single: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """On a machine for which there is no library; without a compiler one line says what was looked for."""
    monkeypatch.setenv("CC", *compilers.with_last(build.find_compiler() or (), tmp_path, "-O0"))  # optimising is what pip did here
    packed = library.pack_bytes(json.dumps(build.all_sources()).encode())
    monkeypatch.setattr(library, "PACKED", {library.C_FILES: packed, library.SOURCE_ID: str(build.source_id())})
    assert binding.open_kernel("/nowhere").library.heapx_abi() == library.HEAPX_ABI
    monkeypatch.setenv("CC", "/nowhere/cc")
    with pytest.raises(library.Unusable, match=r"no native library for %s; no C compiler found here" % platform.machine()):
        binding.open_kernel("/nowhere")


def test_else_it_says_why(single: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where nothing may be executed, or another kernel is loaded."""
    monkeypatch.setitem(library.PACKED, library.SOURCE_ID, "1")
    with pytest.raises(library.Unusable, match="another gdbheapx"):
        binding.open_kernel("/nowhere")
    monkeypatch.setattr(os, "memfd_create", no_memfd)
    monkeypatch.setitem(library.PACKED, os.uname().machine, library.pack_bytes(b"no library"))
    with pytest.raises(library.Unusable, match="forbidden.*cannot load it"):
        binding.open_kernel("/nowhere")
