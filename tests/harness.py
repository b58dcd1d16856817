"""What integration tests stand on: programs built once, processes that say when they are ready, kernel cores, and the tool itself.

A test never sleeps: it waits for a byte from the program, or for a process to end.
"""

import json
import os
import resource
import select
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any, Dict, Iterable, List, NamedTuple, Optional, Sequence, Tuple

import pytest

import gdbheapx.glibc.codes
import gdbheapx.jemalloc.codes  # noqa: F401  (each allocator registers its codes)
from gdbheapx.problems import KNOWN

ROOT = Path(__file__).resolve().parent.parent
sys.path.append(str(ROOT / "tools"))

import kernelcore  # noqa: E402  (its folder must be on the path first)

PROGRAMS = ROOT / "tests" / "programs"
GDBINIT = ROOT / "gdbheapx" / "gdbinit.py"
GDB = os.environ.get("GDBHEAPX_TEST_GDB", "gdb")

READY_SECONDS = 60
"""A program that is not ready by then has failed."""
TOOL_SECONDS = 120
"""A run of the tool that is not done by then hangs: that is a failure of its own."""


class Hang(AssertionError):
    """The tool did not end in time."""


# ---------------------------------------------------------------------------------------------------- programs


class Builder:
    """Compiles test programs once a session."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.made = {}  # type: Dict[Tuple[str, Tuple[str, ...]], Path]

    def build(self, name: str, *flags: str) -> Path:
        """The executable made of NAME.c, in tests/programs unless NAME is a path; skips if there is no compiler."""
        key = (name, flags)
        if key not in self.made:
            if not shutil.which("gcc"):
                pytest.skip("gcc is not installed, so the test programs cannot be built")
            made = self.folder / ("-".join([os.path.basename(name)] + [flag.strip("-") for flag in flags]))
            source = PROGRAMS / (name + ".c")
            command = [
                "gcc",
                "-std=gnu11",
                "-O1",
                "-g",
                "-fno-builtin-malloc",
                "-fno-builtin-free",
                "-Wall",
                "-Wextra",
                *flags,
                "-o",
                str(made),
                str(source),
                "-pthread",
            ]
            done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True)
            assert done.returncode == 0, done.stderr
            self.made[key] = made
        return self.made[key]


# ---------------------------------------------------------------------------------------------------- processes


class Process:
    """A test program at rest in the state it was asked for."""

    def __init__(self, command: Sequence[str], folder: Path, env: Dict[str, str], record: Path) -> None:
        self.folder = folder
        self.record_path = record
        self.executable = command[0]
        self.stderr_path = folder / "stderr"
        self._core = None  # type: Optional[Path]
        environment = {key: value for key, value in os.environ.items() if not key.startswith(("GLIBC_TUNABLES", "MALLOC_", "LD_PRELOAD"))}
        environment.update(env)
        with open(self.stderr_path, "wb") as errors:
            self.popen = kernelcore.start(
                command, cwd=folder, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, start_new_session=True
            )
        self.pid = self.popen.pid

    def wait_ready(self, what: bytes = b"ready\n") -> None:
        """Wait for the program to say that it is ready."""
        assert self.popen.stdout
        got = b""
        while not got.endswith(what):
            if not select.select([self.popen.stdout], [], [], READY_SECONDS)[0]:
                raise AssertionError("%s is not ready after %d s" % (self.executable, READY_SECONDS))
            piece = os.read(self.popen.stdout.fileno(), 4096)
            if not piece:
                raise AssertionError("%s ended with %s: %s" % (self.executable, self.popen.wait(), self.stderr_path.read_text()))
            got += piece

    def command(self, byte: bytes) -> None:
        """Make the program act, and wait until it has."""
        assert self.popen.stdin
        self.popen.stdin.write(byte)
        self.popen.stdin.flush()
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
        process = self.spawn([str(executable), str(record), *arguments], folder, env, record)
        process.wait_ready()
        return process

    def spawn(
        self, command: Sequence[str], folder: Optional[Path] = None, env: Optional[Dict[str, str]] = None, record: Optional[Path] = None
    ) -> Process:
        """Any program; the caller waits for it to be ready."""
        folder = folder or self.folder()
        process = Process(command, folder, env or {}, record or folder / "record")
        self.processes.append(process)
        return process

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


# ---------------------------------------------------------------------------------------------------- the tool


class Outcome(NamedTuple):
    """One run of the tool."""

    code: int
    stdout: bytes
    stderr: str

    @property
    def envelope(self) -> Dict[str, Any]:
        """The JSON document on standard output."""
        try:
            envelope = json.loads(self.stdout)
        except ValueError:
            raise AssertionError(
                "no JSON on standard output: %r\nexit code %d, standard error: %s" % (self.stdout[:2000], self.code, self.stderr[-2000:])
            ) from None
        check_envelope(envelope)
        return envelope

    @property
    def data(self) -> Any:
        """The answer, which must be a whole one."""
        envelope = self.envelope
        assert self.code == 0 and envelope["partial"] is False, "exit code %d, problems %s, %s" % (
            self.code,
            envelope["problems"],
            self.stderr[-2000:],
        )
        return envelope["data"]


def check_envelope(envelope: Dict[str, Any]) -> None:
    """The envelope is as the contract says."""
    assert envelope["schema"] == "gdbheapx/1"
    for key, kind in (("command", str), ("tool", dict), ("target", dict), ("allocators", list), ("partial", bool), ("problems", list)):
        assert isinstance(envelope[key], kind), key
    assert "data" in envelope
    assert {"version", "gdb", "python", "kernel"} <= set(envelope["tool"])
    assert envelope["tool"]["kernel"] in ("c", "python")
    assert {"kind", "pid", "executable", "core", "stopped_ms", "swapped_in_bytes"} <= set(envelope["target"])
    assert envelope["target"]["kind"] == "live" or envelope["target"]["swapped_in_bytes"] is None
    for problem in envelope["problems"]:
        assert {"where", "what", "hint"} <= set(problem)
        assert problem["what"] and problem["code"] in KNOWN


class Asked(NamedTuple):
    """What a command answered in this interpreter, without gdb."""

    code: int
    text: str
    line: Optional[str]
    """The error, where the code is 1 or 2."""

    @property
    def envelope(self) -> Dict[str, Any]:
        """Its JSON."""
        found = json.loads(self.text)
        check_envelope(found)
        return dict(found)

    def problem(self, code: str) -> Dict[str, Any]:
        """The first problem with this code."""
        found = [one for one in self.envelope["problems"] if one["code"] == code]
        assert found, (code, self.envelope["problems"])
        return dict(found[0])


def tool_command() -> List[str]:
    """The shell door: the installed entry point beside this Python, else the checkout's module."""
    installed = Path(sys.executable).parent / "gdbheapx"
    if installed.exists():
        return [str(installed)]
    return [sys.executable, "-m", "gdbheapx.cli"]


def tool_environment(extra: Optional[Dict[str, str]] = None) -> Dict[str, str]:
    """The environment that the tool runs in."""
    environment = dict(os.environ)
    environment["PYTHONPATH"] = str(ROOT)
    environment.update(extra or {})
    return environment


def run(command: Sequence[str], env: Optional[Dict[str, str]] = None, seconds: float = TOOL_SECONDS, cwd: Optional[Path] = None) -> Outcome:
    """Run a command to its end, in a group of its own; raises Hang when it does not end."""
    process = subprocess.Popen(
        command, env=tool_environment(env), cwd=cwd, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True
    )
    try:
        stdout, stderr = process.communicate(timeout=seconds)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        stdout, stderr = process.communicate()
        raise Hang("%s did not end in %s s; so far %r %r" % (" ".join(command), seconds, stdout[-500:], stderr[-500:])) from None
    text = stderr.decode(errors="replace")
    assert "Traceback (most recent call last)" not in text, text[-4000:]
    return Outcome(process.returncode, stdout, text)


def heapx(target: Sequence[str], *arguments: str, env: Optional[Dict[str, str]] = None, seconds: float = TOOL_SECONDS) -> Outcome:
    """Run a command through the shell door."""
    return run([*tool_command(), *target, *arguments], env=env, seconds=seconds)


def in_gdb(target: Sequence[str], commands: Iterable[str], env: Optional[Dict[str, str]] = None, seconds: float = TOOL_SECONDS) -> Outcome:
    """Run gdb commands inside one stock gdb that sourced gdbinit.py."""
    options = {"--pid": "-p", "--core": "-c"}
    chosen = [options.get(word, word) for word in target]
    script = [word for command in commands for word in ("-ex", command)]
    return run([GDB, "-nx", "-q", "-batch", "-iex", "set auto-load no", *chosen, "-x", str(GDBINIT), *script], env=env, seconds=seconds)


def answers(target: Sequence[str], folder: Path, *commands: str, env: Optional[Dict[str, str]] = None) -> List[Dict[str, Any]]:
    """Several commands' envelopes from one gdb (one attach), by `heapx COMMAND --json -o FILE`."""
    files = [folder / ("answer-%d" % number) for number in range(len(commands))]
    outcome = in_gdb(target, ["heapx %s --json -o %s" % pair for pair in zip(commands, files)], env=env)
    envelopes = []
    for name, path in zip(commands, files):
        assert path.exists(), "%s wrote nothing: %s" % (name, outcome.stderr[-2000:])
        envelopes.append(json.loads(path.read_text()))
        check_envelope(envelopes[-1])
        path.unlink()
    return envelopes


# ---------------------------------------------------------------------------------------------------- what must hold

FIELDS = ("arena", "ordblks", "smblks", "hblks", "hblkhd", "usmblks", "fsmblks", "uordblks", "fordblks", "keepcost")
"""mallinfo2's, in the order of the struct."""

PARTS = ("used_bytes", "tcache_bytes", "fast_bytes", "free_bytes", "top_bytes", "overhead_bytes", "unparsed_bytes")


def glibc_arenas(data: Dict[str, Any]) -> List[Dict[str, Any]]:
    """The glibc arenas of an `arenas` answer."""
    return [arena for arena in data["arenas"] if arena["allocator"].startswith("glibc")]


def check_identity(data: Dict[str, Any], unparsed: bool = False) -> None:
    """In each arena, and in the totals, the parts add up to system, to the byte."""
    arenas = glibc_arenas(data)
    assert arenas
    for arena in arenas:
        assert arena["system_bytes"] == sum(arena[part] for part in PARTS), arena
        if not unparsed:
            assert arena["unparsed_bytes"] == 0, arena
        assert arena["foreign_bytes"] <= arena["overhead_bytes"]
        assert arena["largest_free_bytes"] <= arena["free_bytes"]
        assert arena["reclaimable_bytes"] <= arena["free_bytes"] + arena["fast_bytes"] + arena["top_bytes"]
    for allocator, totals in data["totals"].items():
        own = [arena for arena in arenas if arena["allocator"] == allocator]
        if own:
            for part in PARTS + ("system_bytes", "used_chunks", "tcache_chunks", "fast_chunks", "free_chunks"):
                assert totals[part] == sum(arena[part] for arena in own), part


def found_fields(data: Dict[str, Any]) -> Dict[str, int]:
    """mallinfo2's ten fields wherever the answer keeps them."""
    source = data
    for key in ("glibc", "mallinfo2", "mallinfo"):
        if isinstance(source.get(key), dict):
            source = source[key]
    return {key: source[key] for key in FIELDS}
