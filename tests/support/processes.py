"""Test programs built once, and processes that say when they are ready; each can become a kernel core.

A test never sleeps: it waits for a byte from the program, or for a process to end.
"""

import fcntl
import os
import resource
import select
import shutil
import struct
import subprocess
import tempfile
import zlib
from pathlib import Path
from typing import Any, Callable, Dict, List, Optional, Sequence, Tuple

import pytest

from tests.support import kernelcore
from tests.support.hidden import STRIPPED
from tests.support.paths import PROGRAMS
from tests.support.programs import need

READY_SECONDS = 180
"""A program that is not ready by then has failed."""

PACKAGES = {"glib_containers": "glib-2.0"}
"""Of a program, the package of pkg-config that it needs."""


def package_flags(package: Optional[str]) -> List[str]:
    """For the compiler and the linker; skips where its headers are not installed."""
    if package is None:
        return []
    need("pkg-config")
    done = subprocess.run(["pkg-config", "--cflags", "--libs", package], capture_output=True, text=True)
    if done.returncode != 0:
        pytest.skip("the headers of %s are not installed" % package)
    return ["-Wl,--no-as-needed", *done.stdout.split()]  # libraries stand before the source


LINKING = ("-s", "-rdynamic", "-Wl,", "-l")
"""How flags begin that the linker alone reads."""


def compile_once(path: Path, command: Sequence[str]) -> Path:
    """Make `path` by this compiler's command, unless it is there: workers of one run ask for the same programs."""
    with open("%s.lock" % path, "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not path.exists():
            unfinished = path.with_name("unfinished-" + path.name)
            done = subprocess.run([*command, "-o", str(unfinished)], stdin=subprocess.DEVNULL, capture_output=True, text=True)
            assert done.returncode == 0, done.stderr
            unfinished.rename(path)
    return path


def by_turns(name: str, values: Sequence[Any], first: str = "live") -> pytest.MarkDecorator:
    """Each of the values once, of a process and of a core by turns: where neither says anything of the other, every pair would cost twice as much."""
    kinds = ("live", "core") if first == "live" else ("core", "live")
    found = []
    for number, value in enumerate(values):
        if hasattr(value, "marks"):
            found.append(pytest.param(kinds[number % 2], *value.values, marks=value.marks))
        else:
            found.append(pytest.param(kinds[number % 2], *(value if "," in name else (value,))))
    return pytest.mark.parametrize("kind, " + name, found, indirect=["kind"])


class Builder:
    """Compiles test programs once for all workers of a run; programs that differ in linking alone have one object file."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.made = {}  # type: Dict[Tuple[str, Tuple[str, ...]], Path]

    def build(self, name: str, *flags: str) -> Path:
        """The executable made of NAME.c, NAME.cpp, or rust/NAME.rs in tests/programs, or NAME.c where NAME is a path; skips without its compiler."""
        key = (name, flags)
        if key not in self.made:
            self.made[key] = self._link(name, [*flags, *STRIPPED])
        return self.made[key]

    def _link(self, name: str, flags: List[str]) -> Path:
        source, in_rust = PROGRAMS / (name + ".c"), PROGRAMS / "rust" / (name + ".rs")
        if in_rust.exists():
            if not shutil.which("rustc"):
                pytest.skip("rustc is not installed, so %s cannot be built" % name)
            return self._make("", name, flags, ["rustc", "-O", "-g", "-A", "warnings", "-C", "link-args=" + " ".join(flags), str(in_rust)])
        compiler = ["gcc", "-std=gnu11"]
        if not source.exists():
            source, compiler = PROGRAMS / (name + ".cpp"), ["g++", "-std=gnu++17"]
        if not shutil.which(compiler[0]):
            pytest.skip("%s is not installed, so %s cannot be built" % (compiler[0], name))
        command = [*compiler, "-O1", "-g", "-fno-builtin-malloc", "-fno-builtin-free", "-Wall", "-Wextra"]
        package = package_flags(PACKAGES.get(name))
        compiled = [flag for flag in flags if not flag.startswith(LINKING)]
        made = self._make(".o", name, compiled, [*command, *compiled, *package, "-pthread", "-c", str(source)])
        return self._make("", name, flags, [*command, *flags, *package, str(made), "-pthread"])

    def build_by(self, *command: str, name: str) -> Path:
        """The executable that exactly this compiler's command makes of tests/programs/NAME; skips where there is none, or it lacks a flag."""
        if not shutil.which(command[0]):
            pytest.skip("%s is not installed, so %s cannot be built" % (command[0], name))
        folder = self.folder / ("by-%08x" % zlib.crc32(" ".join(command).encode()))
        folder.mkdir(exist_ok=True)
        try:
            return compile_once(folder / Path(name).stem, [*command, str(PROGRAMS / name)])
        except AssertionError as error:
            if any(words in str(error) for words in ("unrecognized", "unknown", "cannot find", "not supported")):
                pytest.skip(str(error).strip().splitlines()[-1])
            raise

    def _make(self, end: str, name: str, flags: Sequence[str], command: List[str]) -> Path:
        path = self.folder / ("-".join([os.path.basename(name)] + [flag.strip("-").replace("/", "_") for flag in flags]) + end)
        return compile_once(path, command)


class Process:
    """A test program at rest in the state it was asked for."""

    def __init__(self, command: Sequence[str], folder: Path, env: Dict[str, str], record: Path) -> None:
        self.folder = folder
        self.record_path = record
        self.executable = command[0]
        self.stderr_path = folder / "stderr"
        self._core = None  # type: Optional[Path]
        self.told: Dict[str, Any] = {}
        environment = {key: value for key, value in os.environ.items() if not key.startswith(("GLIBC_TUNABLES", "MALLOC_", "LD_PRELOAD"))}
        environment.update(env)
        with open(self.stderr_path, "wb") as errors:
            self.popen = kernelcore.start(
                command, cwd=folder, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, start_new_session=True
            )
        self.pid = self.popen.pid

    def wait_ready(self, what: bytes = b"ready\n") -> None:
        """Wait for the program to say that it is ready."""
        got = b""
        while not got.endswith(what):
            if not select.select([self.popen.stdout], [], [], READY_SECONDS)[0]:
                raise AssertionError("%s is not ready after %d s" % (self.executable, READY_SECONDS))
            piece = os.read(self.popen.stdout.fileno(), 4096)
            if not piece:
                raise AssertionError("%s ended with %s: %s" % (self.executable, self.popen.wait(), self.stderr_path.read_text()))
            got += piece

    def send(self, text: bytes) -> None:
        """Write to its standard input."""
        self.popen.stdin.write(text)
        self.popen.stdin.flush()

    def command(self, byte: bytes) -> None:
        """Make the program act, and wait until it has."""
        self.send(byte)
        self.wait_ready()

    def record(self) -> bytes:
        """What the program recorded."""
        return self.record_path.read_bytes()

    def words(self) -> Tuple[int, ...]:
        """The record as 64-bit words."""
        data = self.record()
        return struct.unpack("<%dQ" % (len(data) // 8), data[: len(data) // 8 * 8])

    def core(self) -> Path:
        """Make the process a kernel core, once; skips with the reason where the kernel writes none."""
        if self._core is None:
            try:
                self._core = Path(kernelcore.take(self.popen, str(self.folder / "the.core")))
            except kernelcore.NoCore as none:
                pytest.skip(str(none))
        return self._core

    def target(self, kind: str) -> List[str]:
        """Options that choose this process: as it lives, or as a core of it."""
        return ["--pid", str(self.pid)] if kind == "live" else ["--core", str(self.core())]

    def smaps_rollup(self, key: str) -> int:
        """One line of smaps_rollup, in bytes."""
        for line in Path("/proc/%d/smaps_rollup" % self.pid).read_text().splitlines():
            if line.startswith(key + ":"):
                return int(line.split()[1]) * 1024
        raise KeyError(key)

    def own_pages(self) -> Dict[int, bool]:
        """Every present page of private writable memory: address -> whether it belongs to this process alone (pagemap bit 56)."""
        page = resource.getpagesize()
        pages = {}  # type: Dict[int, bool]
        with open("/proc/%d/maps" % self.pid) as maps, open("/proc/%d/pagemap" % self.pid, "rb", buffering=0) as pagemap:
            for line in maps:
                fields = line.split()
                if fields[1][:2] != "rw" or fields[1][3] != "p":
                    continue
                start, end = (int(part, 16) for part in fields[0].split("-"))
                data = os.pread(pagemap.fileno(), (end - start) // page * 8, start // page * 8)
                for number, entry in enumerate(struct.unpack("<%dQ" % (len(data) // 8), data)):
                    if entry >> 63:
                        pages[start + number * page] = bool(entry >> 56 & 1)
        return pages

    def end(self) -> None:
        """End the process, if it lives."""
        if self.popen.poll() is None:
            self.popen.kill()
        self.popen.wait()
        for stream in (self.popen.stdin, self.popen.stdout):
            if stream:
                try:
                    stream.close()
                except OSError:
                    pass


class Stage:
    """Starts test programs; ends them, and removes their cores, at the end of the test."""

    def __init__(self, builder: Builder) -> None:
        self.builder = builder
        self.processes = []  # type: List[Process]
        self.folders = []  # type: List[str]

    def start(self, name: str, *arguments: str, env: Optional[Dict[str, str]] = None, flags: Sequence[str] = ()) -> Process:
        """tests/programs/NAME.c with a record and these arguments, ready."""
        executable = self.builder.build(name, *flags)
        folder = self.folder()
        record = folder / "record"
        return self.spawn_ready([str(executable), str(record), *arguments], folder, env, record)

    def spawn(
        self, command: Sequence[str], folder: Optional[Path] = None, env: Optional[Dict[str, str]] = None, record: Optional[Path] = None
    ) -> Process:
        """Any program; the caller waits for it to be ready."""
        folder = folder or self.folder()
        process = Process(command, folder, env or {}, record or folder / "record")
        self.processes.append(process)
        return process

    def spawn_ready(
        self, command: Sequence[str], folder: Optional[Path] = None, env: Optional[Dict[str, str]] = None, record: Optional[Path] = None
    ) -> Process:
        """Any program that says when it is ready."""
        process = self.spawn(command, folder, env, record)
        process.wait_ready()
        return process

    def spawn_text(self, name: str, text: str, command: Sequence[str], env: Optional[Dict[str, str]] = None) -> Process:
        """A program of this text, started in a folder of its own where that lies; skips where its interpreter is not here."""
        need(command[0])
        folder = self.folder()
        (folder / name).write_text(text, encoding="utf-8")
        return self.spawn_ready(command, folder, env)

    def folder(self) -> Path:
        """A new folder that is gone after the test."""
        self.folders.append(tempfile.mkdtemp(prefix="gdbheapx-"))
        return Path(self.folders[-1])

    def close(self) -> None:
        """End and remove everything."""
        for process in self.processes:
            process.end()
        for folder in self.folders:
            shutil.rmtree(folder, ignore_errors=True)


class Lasting:
    """Processes at rest that the tests of a module only read: whoever asks first starts them, one for each kind."""

    def __init__(self, stage: Stage) -> None:
        self.stage = stage
        self.made: Dict[Tuple[object, ...], Process] = {}

    def of(self, kind: str, start: Callable[..., Process], *arguments: str) -> Process:
        """What start(stage, *arguments) gave the first time."""
        key = (kind, start, arguments)
        if key not in self.made:
            self.made[key] = start(self.stage, *arguments)
        return self.made[key]
