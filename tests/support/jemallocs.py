"""Where the jemallocs of the tests come from: the system's library, Rust programs; what each version is known for; programs started on them."""

import contextlib
import fcntl
import functools
import hashlib
import lzma
import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any, Dict, Iterator, List, NamedTuple, Optional, Sequence, Tuple

import pytest

from gdbheapx.inferior.elf.file import ElfFile
from tests.support.hidden import STRIPPED
from tests.support.other_machines import i386_flags
from tests.support.paths import PROGRAMS, ROOT
from tests.support.processes import Process, Stage
from tests.support.tool import tool_with_pack

LIBRARY = "libjemalloc.so.2"
CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "gdbheapx" / "rust"
"""Where cargo builds: outside the checkout, so that the next clone on this machine finds it there."""
DEBUG_FILES = ROOT / "tests" / "data" / "jemalloc"
"""Debug files of Debian's libjemalloc2, packed, by build-id."""
CARGO_SECONDS = 900
"""A first build of one crate takes 80 s of processor time."""

Version = Tuple[int, ...]


class Rust(NamedTuple):
    """One build of tests/programs/rust/jemalloc."""

    crate: str
    """The folder of its manifest: tikv-jemallocator's version."""
    features: Tuple[str, ...] = ()
    """The crate's features; without `stats` tikv-jemallocator 0.6 and later have no statistics (0.4 and 0.5 have them regardless)."""
    profile: str = "release"
    """`release` as users have it, without debug information, or `with-debug-info`."""
    lg_vaddr: Optional[int] = None
    """Address bits that jemalloc is configured for, where they are not to be this machine's."""

    @property
    def name(self) -> str:
        parts = [self.crate, *self.features]
        if self.profile != "release":
            parts.append(self.profile)
        if self.lg_vaddr:
            parts.append("vaddr%d" % self.lg_vaddr)
        return "rust-" + "-".join(parts)

    @property
    def unstripped(self) -> Optional["Rust"]:
        """The build that this one is without its debug information, where that is built anyway."""
        other = self._replace(profile="with-debug-info")
        return other if other != self and other.name in RUST else None


VERSIONS = {"0.4": (5, 2, 1), "0.5": (5, 3, 0), "0.6": (5, 3, 0), "0.7": (5, 3, 1)}  # type: Dict[str, Version]
"""tikv-jemallocator's release -> the jemalloc in it."""

RUST = {
    build.name: build
    for build in (
        Rust("0.4"),
        Rust("0.4", ("stats",)),
        Rust("0.5"),
        Rust("0.5", ("stats",)),
        Rust("0.6"),
        Rust("0.6", ("stats",)),
        Rust("0.6", ("stats",), "with-debug-info"),
        Rust("0.7", ("stats",), "with-debug-info"),
        Rust("0.4", ("stats",), lg_vaddr=57),
    )
}
UNKNOWN_LAYOUT = Rust("0.7", ("stats",))
"""jemalloc 5.3.1 without debug information, whose tsd_s is in no pack and no table: read by the layout that its arenas have."""
PROFILING = Rust("0.6", ("profiling", "stats"))

C_WAYS = ("preload", "linked")
"""libjemalloc2 of this system: preloaded into a program that knows nothing of it, or as a library of the program."""

SAME = ("rust-0.4-stats", "rust-0.5-stats", "rust-0.5")
"""The feature changes nothing there: these releases have statistics without it; 0.5 has the same jemalloc, with statistics, as rust-0.6-stats."""

ENV = "GDBHEAPX_JEMALLOCS"
"""Further builds, separated by colons: paths of libjemalloc.so.2 with the public names of malloc, each in a folder that says what it is."""
BUILDS = {path.parent.name: path for path in map(Path, os.environ.get(ENV, "").split(":")) if path.is_file()}
"""They are preloaded, those of i386 into programs of i386; the name of the folder is the way."""

WAYS = C_WAYS + tuple(name for name in RUST if name not in SAME) + tuple(BUILDS)


def pairs(ways: Sequence[str]) -> List[Any]:
    """Kinds and ways: this system's library live and as a core, what differs from it in its layout one way or the other, by turns."""
    found = []
    for number, way in enumerate(ways):
        for kind in ("live", "core") if way == "preload" else ("live", "core")[number % 2 :][:1]:
            found.append(pytest.param(kind, way, id="%s-%s" % (kind, way), marks=[pytest.mark.wild] if way in SAME else []))
    return found


EVERY_PAIR = pairs((*WAYS, *SAME))


def preloads(way: str) -> Dict[str, str]:
    """The environment of a program on jemalloc, or on glibc's malloc."""
    return {"LD_PRELOAD": str(library())} if way == "jemalloc" else {}


def contents(stage: Stage, way: str) -> Process:
    """Blocks that are told by their contents and their owners."""
    return stage.start("contents", env=preloads(way))


def library() -> Path:
    """This system's libjemalloc.so.2; skips if there is none."""
    for folder in sorted(Path("/usr/lib").glob("*-linux-gnu*")):
        if (folder / LIBRARY).exists():
            return folder / LIBRARY
    pytest.skip("libjemalloc2 is not installed")


def debug_directory(folder: Path, debug_files: Path = DEBUG_FILES) -> Path:
    """`folder`, made a debug directory with the debug files of Debian's libjemalloc2, or those of another folder of the test data."""
    for path in debug_files.glob("*.debug.xz"):
        build_id = path.name.split(".")[0]
        plain = folder / ".build-id" / build_id[:2] / (build_id[2:] + ".debug")
        plain.parent.mkdir(parents=True, exist_ok=True)
        plain.write_bytes(lzma.open(path).read())
    return folder


def library_version() -> Version:
    """Its version, as it says itself."""
    return tuple(int(part) for part in said(library())[0].split("-")[0].split("."))


@functools.cache
def said(path: Path) -> Sequence[str]:
    """What a library says of itself: its version, and `1` if it counts what it does."""
    if ElfFile(str(path)).header.word_bytes == 4:  # no Python calls it; how it was built is not asked
        version = re.search(rb"\d+\.\d+\.\d+-\d+-g[0-9a-f]{40}", path.read_bytes())
        assert version is not None, path
        return [version.group().decode(), "1"]
    environment = {"LD_PRELOAD": str(path)}
    return subprocess.run(
        ["/usr/bin/python3", "-I", "-c", SAYING_PROGRAM], env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True
    ).stdout.split()


SAYING_PROGRAM = r"""
import ctypes
def read(name, value):
    ctypes.CDLL(None).mallctl(name, ctypes.byref(value), ctypes.byref(ctypes.c_size_t(ctypes.sizeof(value))), None, ctypes.c_size_t(0))
    return value.value
print(read(b"version", ctypes.c_char_p()).decode(), int(read(b"config.stats", ctypes.c_bool())))
"""


def version(way: str) -> Version:
    """The version of the jemalloc that is there by this way. Commits after a release count as a fourth part."""
    if way in BUILDS:
        release, commits = said(BUILDS[way])[0].split("-")[:2]
        return (*(int(part) for part in release.split(".")), *([int(commits)] if commits != "0" else []))
    return VERSIONS[RUST[way].crate] if way in RUST else library_version()


def has_ticker_bug(way: str) -> bool:
    """Whether a thread that frees first never purges."""
    return (5, 0, 1) <= version(way) < (5, 3, 0)


def has_stats(way: str) -> bool:
    """Whether this build counts what it does."""
    if way in BUILDS:
        return said(BUILDS[way])[1] == "1"
    return way not in RUST or "stats" in RUST[way].features or RUST[way].crate in ("0.4", "0.5")


def has_names(way: str) -> bool:
    """Whether this build has a symbol table, a debug file or a pack: what only variables tell is null without."""
    if way in C_WAYS:
        return shipped_pack().exists()
    return way not in BUILDS or b"\0.symtab\0" in BUILDS[way].read_bytes()


def shipped_pack() -> Path:
    """Where the pack of this system's libjemalloc is, if one is shipped."""
    note = BUILD_ID_NOTE.search(library().read_bytes())
    return ROOT / "gdbheapx" / "packs" / (note.group(1).hex() + ".json")


def build_rust(build: Rust) -> Path:
    """The Rust program, built once for each variant; skips, with the reason, without cargo or its crates."""
    for tool in ("cargo", "make", "gcc"):
        if not shutil.which(tool):
            pytest.skip("%s is not installed, so the Rust programs cannot be built" % tool)
    with locked(CACHE / (build.name + ".lock")):
        return _built(build)


@contextlib.contextmanager
def locked(path: Path) -> Iterator[None]:
    """Tests run several at a time; only one of them builds."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with open(path, "w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _built(build: Rust) -> Path:
    source = PROGRAMS / "rust" / "jemalloc"
    target = CACHE / build.name
    made = target / build.profile / "je_rust"
    inputs = [source / "main.rs", source / build.crate / "Cargo.toml"]
    # By content: a fresh clone's files are all new.
    stamp, checksum = target / "inputs", hashlib.sha256(b"".join(path.read_bytes() for path in inputs)).hexdigest()
    if not made.exists() or not stamp.exists() or stamp.read_text() != checksum:
        if build.unstripped:
            made.parent.mkdir(parents=True, exist_ok=True)
            subprocess.run(["strip", "--strip-debug", "-o", str(made), str(build_rust(build.unstripped))], check=True)
            stamp.write_text(checksum)
            return made
        # The manifest is copied, so that cargo writes its lock file beside the copy.
        folder = CACHE / "sources" / build.name
        (folder / "src").mkdir(parents=True, exist_ok=True)
        for path, name in zip(inputs, ("src/main.rs", "Cargo.toml")):
            shutil.copyfile(path, folder / name)
        # Half of what make compiles is for a library without position-independent code, which no program of cargo takes: it stays empty.
        environment = dict(os.environ, CARGO_TARGET_DIR=str(target), MAKEFLAGS="C_OBJS=")
        if build.lg_vaddr:
            environment["JEMALLOC_SYS_WITH_LG_VADDR"] = str(build.lg_vaddr)
        command = ["cargo", "build", "--quiet", "--ignore-rust-version", "--profile", build.profile]
        if build.features:
            command += ["--features", ",".join(build.features)]
        done = subprocess.run(
            command, cwd=folder, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=CARGO_SECONDS
        )
        if done.returncode != 0 and any(word in done.stdout for word in ("failed to download", "failed to get", "could not connect", "network")):
            pytest.skip("the crates cannot be fetched: " + done.stdout.strip().splitlines()[-1])
        assert done.returncode == 0, done.stdout[-4000:]
        for leftover in target.glob("*/build/tikv-jemalloc-sys-*/out/build/**/*.o"):
            leftover.unlink()  # 200 MB; cargo asks for the library alone
        stamp.write_text(checksum)
    return made


def start(stage: Stage, way: str, program: str, *arguments: str, conf: str = "") -> Process:
    """je_PROGRAM.c with the library, or the Rust program's mode PROGRAM; `conf` is MALLOC_CONF's text."""
    builds = dict(RUST, **{build.name: build for build in (PROFILING, UNKNOWN_LAYOUT)})
    if way in builds:
        build = builds[way]
        executable, folder = build_rust(build), stage.folder()
        if STRIPPED:
            subprocess.run(["strip", *STRIPPED, "-o", str(folder / "je_rust"), str(executable)], check=True)
            executable = folder / "je_rust"
        record = folder / "record"
        process = stage.spawn([str(executable), program, str(record), *arguments], folder, {"_RJEM_MALLOC_CONF": conf}, record)
        process.wait_ready()
        return process
    env = {"MALLOC_CONF": conf}
    flags = ["-Wl,--no-as-needed", "-ldl"]
    if way == "linked":
        if not library().with_name("libjemalloc.so").exists():
            pytest.skip("libjemalloc-dev is not installed")
        flags.append("-ljemalloc")
    else:
        env["LD_PRELOAD"] = str(BUILDS.get(way) or library())
        if ElfFile(env["LD_PRELOAD"]).header.word_bytes == 4:
            flags.extend(i386_flags(stage.builder))
    return stage.start("je_" + program, *arguments, env=env, flags=flags)


def knowing_tool() -> Dict[str, str]:
    """The environment of a copy of the tool with one more bundled pack: the one of unknown_library's copy."""
    known = shipped_pack()
    if not known.exists():
        pytest.skip("no pack of this libjemalloc is shipped")
    unknown = bytes(255 - byte for byte in bytes.fromhex(known.stem)).hex()
    return tool_with_pack(unknown, known.read_text().replace(known.stem, unknown))


def forget_bases(process: Process) -> None:
    """Each arena's own pointer to its base is made null: as if this build had arenas that nobody knows."""
    from gdbheapx.inferior.target import open_elf_target
    from gdbheapx.jemalloc.entry import ALLOCATOR

    (instance,) = ALLOCATOR.find(open_elf_target(pid=process.pid)).located
    target, place = open_elf_target(pid=process.pid), instance.types.place("arena_s", "base")
    assert place is not None
    anchor = instance.symbols.find("arenas")
    with open("/proc/%d/mem" % process.pid, "r+b", buffering=0) as memory:
        for index in range(instance.geometry.narenas):
            arena = target.read_word(anchor.address + 8 * index)
            if arena:
                memory.seek(arena + place.offset)
                memory.write(bytes(8))


BUILD_ID_NOTE = re.compile(rb"\x04\0\0\0\x14\0\0\0\x03\0\0\0GNU\0(.{20})", re.S)


def unknown_library(folder: Path) -> Path:
    """The system's libjemalloc under a build-id that nobody knows."""
    data = library().read_bytes()
    changed = BUILD_ID_NOTE.sub(lambda note: note.group(0)[:-20] + bytes(255 - byte for byte in note.group(1)), data)
    assert changed != data
    copy = folder / "libjemalloc.so.2"
    copy.write_bytes(changed)
    return copy
