"""What the jemalloc tests stand on: where a jemalloc comes from, the programs' records, and the exceptions when figures are compared."""

import contextlib
import fcntl
import hashlib
import json
import lzma
import os
import shutil
import struct
import subprocess
from pathlib import Path
from typing import Any, Dict, Iterator, NamedTuple, Optional, Sequence, Tuple

import pytest
from harness import PROGRAMS, ROOT, Process, Stage

LIBRARY = "libjemalloc.so.2"
CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "gdbheapx" / "rust"
"""Where cargo builds: outside the checkout, so that the next clone on this machine finds it there."""
DEBUG_FILES = ROOT / "tests" / "data" / "jemalloc"
"""Debug files of Debian's libjemalloc2, packed, by build-id."""
CARGO_SECONDS = 900
"""A first build of one crate takes about a minute on two idle processors, 160 s of their time."""

Version = Tuple[int, ...]

# ---------------------------------------------------------------------------------------------------- where it comes from


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
"""jemalloc 5.3.1 without debug information, of which no pack and no table has the layouts: to be refused in words."""
PROFILING = Rust("0.6", ("profiling", "stats"))

C_WAYS = ("preload", "linked")
"""libjemalloc2 of this system: preloaded into a program that knows nothing of it, or as a library of the program."""

SAME = ("rust-0.4-stats", "rust-0.5-stats")
"""The feature changes nothing there: these releases have statistics without it."""

WAYS = C_WAYS + tuple(name for name in RUST if name not in SAME)
EVERY_WAY = [*WAYS, *(pytest.param(name, marks=pytest.mark.wild) for name in SAME)]


def library() -> Path:
    """This system's libjemalloc.so.2; skips if there is none."""
    for folder in sorted(Path("/usr/lib").glob("*-linux-gnu*")):
        if (folder / LIBRARY).exists():
            return folder / LIBRARY
    pytest.skip("libjemalloc2 is not installed")


def debug_directory(folder: Path) -> Path:
    """`folder`, made a debug directory with the debug files of Debian's libjemalloc2."""
    for path in DEBUG_FILES.glob("*.debug.xz"):
        build_id = path.name.split(".")[0]
        plain = folder / ".build-id" / build_id[:2] / (build_id[2:] + ".debug")
        plain.parent.mkdir(parents=True, exist_ok=True)
        plain.write_bytes(lzma.open(path).read())
    return folder


def library_version() -> Version:
    """Its version, as it says itself."""
    text = subprocess.run(
        ["/usr/bin/python3", "-I", "-c", VERSION_PROGRAM], env={"LD_PRELOAD": str(library())}, stdin=subprocess.DEVNULL, capture_output=True, text=True
    ).stdout
    return tuple(int(part) for part in text.split("-")[0].split("."))


VERSION_PROGRAM = r"""
import ctypes
value, length = ctypes.c_char_p(), ctypes.c_size_t(8)
ctypes.CDLL(None).mallctl(b"version", ctypes.byref(value), ctypes.byref(length), None, ctypes.c_size_t(0))
print(value.value.decode())
"""


def version(way: str) -> Version:
    """The version of the jemalloc that is there by this way."""
    return VERSIONS[RUST[way].crate] if way in RUST else library_version()


def has_ticker_bug(way: str) -> bool:
    """Whether a thread that frees first never purges."""
    return (5, 0, 1) <= version(way) < (5, 3, 0)


def has_stats(way: str) -> bool:
    """Whether this build counts what it does."""
    return way not in RUST or "stats" in RUST[way].features or RUST[way].crate in ("0.4", "0.5")


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
    stamp, wanted = target / "inputs", hashlib.sha256(b"".join(path.read_bytes() for path in inputs)).hexdigest()
    if not made.exists() or not stamp.exists() or stamp.read_text() != wanted:
        if build.unstripped:
            made.parent.mkdir(parents=True, exist_ok=True)
            subprocess.run(["strip", "--strip-debug", "-o", str(made), str(build_rust(build.unstripped))], check=True)
            stamp.write_text(wanted)
            return made
        # The manifest is copied, so that cargo writes its lock file beside the copy.
        folder = CACHE / "sources" / build.name
        (folder / "src").mkdir(parents=True, exist_ok=True)
        for path, name in zip(inputs, ("src/main.rs", "Cargo.toml")):
            shutil.copyfile(path, folder / name)
        environment = dict(os.environ, CARGO_TARGET_DIR=str(target))
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
        stamp.write_text(wanted)
    return made


def start(stage: Stage, way: str, program: str, *arguments: str, conf: str = "") -> Process:
    """je_PROGRAM.c with the library, or the Rust program's mode PROGRAM; `conf` is MALLOC_CONF's text."""
    builds = dict(RUST, **{build.name: build for build in (PROFILING, UNKNOWN_LAYOUT)})
    if way in builds:
        build = builds[way]
        executable = build_rust(build)
        folder = stage.folder()
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
        env["LD_PRELOAD"] = str(library())
    return stage.start("je_" + program, *arguments, env=env, flags=flags)


# ---------------------------------------------------------------------------------------------------- the record

LIVE, CACHED, FREED, REUSED = 1, 2, 3, 4
NO_ARENA = (1 << 64) - 1
JSON_BYTES, WORDS, HEAD_WORDS = 4 << 20, 4096, 5


class Recorded(NamedTuple):
    """A block as the program recorded it."""

    address: int
    usable: int
    requested: int
    arena: Optional[int]
    """By jemalloc's arenas.lookup while it lived."""


class Record(NamedTuple):
    """What a program of je_stage.h left behind."""

    json: Dict[str, Any]
    """Its own malloc_stats_print(..., "J")["jemalloc"]; empty if it printed none."""
    print_buffer: int
    """The address of the text that malloc_stats_print handed over: from 5.3 on a block of jemalloc's own."""
    live: Dict[int, Recorded]
    cached: Dict[int, Recorded]
    freed: Dict[int, Recorded]
    """Addresses of freed blocks that no live and no cached block has."""
    words: Tuple[int, ...]


def read(process: Process) -> Record:
    """The record of a process at rest."""
    data = process.record()
    _, json_bytes, print_buffer, _, count = struct.unpack_from("<5Q", data)
    start_of_json = 8 * (HEAD_WORDS + WORDS)
    text = data[start_of_json : start_of_json + json_bytes]
    fates = {LIVE: {}, CACHED: {}, FREED: {}, REUSED: {}}  # type: Dict[int, Dict[int, Recorded]]
    for place in range(count):
        address, usable, requested, arena, state = struct.unpack_from("<5Q", data, start_of_json + JSON_BYTES + 40 * place)
        fates[state][address] = Recorded(address, usable, requested, None if arena == NO_ARENA else arena)
    live, cached, freed = fates[LIVE], fates[CACHED], fates[FREED]
    assert not set(live) & set(cached), "the record contradicts itself"
    freed = {address: block for address, block in freed.items() if address not in live and address not in cached}
    words = struct.unpack_from("<%dQ" % WORDS, data, 8 * HEAD_WORDS)
    return Record(json.loads(text)["jemalloc"] if text else {}, print_buffer, live, cached, freed, words)


# ---------------------------------------------------------------------------------------------------- one inside the program

INSIDE = PROGRAMS / "je_inside.c"
LIBRARIES = ("-lm", "-ldl", "-pthread")


class Inside(NamedTuple):
    """How libjemalloc-dev's archive is put into je_inside.c."""

    prefix: str = ""
    """Of its public names; private ones get `private_` behind it, as configure does for --with-private-namespace. Empty: names are as they are."""
    static: bool = False
    stripped: bool = True
    library: bool = False
    """In a shared object that the program loads, not in the program."""
    defines: Tuple[str, ...] = ()
    """Further macros of je_inside.c."""
    commits: int = 0
    """What its version text says: made so many commits after its release. One digit."""


def archive(folder: Path, prefix: str, pic: bool) -> Path:
    """libjemalloc.a with its names renamed; skips without it."""
    found = library().with_name("libjemalloc_pic.a" if pic else "libjemalloc.a")
    for what, is_there in ((str(found), found.exists()), ("gcc", shutil.which("gcc")), ("objcopy", shutil.which("objcopy"))):
        if not is_there:
            pytest.skip("%s is not here (libjemalloc-dev, gcc)" % what)
    made = folder / ("%sjemalloc%s.a" % (prefix, "_pic" if pic else ""))
    if not prefix:
        return found
    listed = subprocess.run(["nm", "-g", "--defined-only", str(found)], capture_output=True, text=True, check=True).stdout
    names = {line.split()[2] for line in listed.splitlines() if len(line.split()) == 3 and not line.split()[2].startswith("_Z")}
    renamed = ["%s %s%s%s" % (name, prefix, "private_" if name.startswith("je_") else "", name) for name in sorted(names)]
    (folder / "names").write_text("\n".join(renamed) + "\n")
    subprocess.run(["objcopy", "--redefine-syms=%s" % (folder / "names"), str(found), str(made)], check=True)
    return made


def inside(stage: Stage, how: Inside, megabytes: int, env: Optional[Dict[str, str]] = None) -> Process:
    """je_inside.c with the archive inside it, ready."""
    folder = stage.folder()
    objects = archive(folder, how.prefix, how.library)
    defines = ["-DJE=%s" % how.prefix] * bool(how.prefix) + ["-D%s" % one for one in how.defines]
    wanted = ["-Wl,-u,%s%s" % (how.prefix, name) for name in ("malloc", "free", "mallctl")] if not how.library else []
    common = ["gcc", "-std=gnu11", "-O1", *defines]
    program, loaded = folder / "je_inside", folder / "libinside.so"
    if how.library:
        _compile([*common, "-DJE_LIBRARY", "-fPIC", "-shared", "-Wl,-Bsymbolic", "-o", str(loaded), str(INSIDE), str(objects), *LIBRARIES])
        _compile([*common, "-DJE_LOADER", "-o", str(program), str(INSIDE), "-ldl"])
    else:
        _compile([*common, *["-static"] * how.static, *wanted, "-o", str(program), str(INSIDE), str(objects), *LIBRARIES])
    if how.stripped:  # afterwards: the build-id is that of the file with symbols
        subprocess.run(["strip", "-s", str(loaded if how.library else program)], check=True)
    if how.commits:
        _be_a_snapshot(program, how.commits)
    record = folder / "record"
    room = {"GLIBC_TUNABLES": "glibc.rtld.optional_static_tls=65536"} if how.library else {}  # the archive is built for the initial-exec model
    process = stage.spawn([str(program), str(record), str(megabytes), *[str(loaded)] * how.library], folder, {**room, **(env or {})}, record)
    process.wait_ready()
    return process


def _be_a_snapshot(program: Path, commits: int) -> None:
    """Another version text, as long as its own."""
    data = program.read_bytes()
    text = b".".join(b"%d" % part for part in library_version()) + b"-0-g"
    assert data.count(text) == 1
    program.write_bytes(data.replace(text, text[:-3] + b"%d-g" % commits))


def _compile(command: Sequence[str]) -> None:
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
