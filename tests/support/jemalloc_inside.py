"""libjemalloc-dev's archive inside a program or a library of its own: je_inside.c."""

import shutil
import subprocess
from pathlib import Path
from typing import Dict, NamedTuple, Optional, Sequence, Tuple

import pytest

from tests.support.jemallocs import library, library_version
from tests.support.paths import PROGRAMS
from tests.support.processes import Process, Stage

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
    archive = library().with_name("libjemalloc_pic.a" if pic else "libjemalloc.a")
    for what, is_there in ((str(archive), archive.exists()), ("gcc", shutil.which("gcc")), ("objcopy", shutil.which("objcopy"))):
        if not is_there:
            pytest.skip("%s is not here (libjemalloc-dev, gcc)" % what)
    made = folder / ("%sjemalloc%s.a" % (prefix, "_pic" if pic else ""))
    if not prefix:
        return archive
    listed = subprocess.run(["nm", "-g", "--defined-only", str(archive)], capture_output=True, text=True, check=True).stdout
    names = {line.split()[2] for line in listed.splitlines() if len(line.split()) == 3 and not line.split()[2].startswith("_Z")}
    renamed = ["%s %s%s%s" % (name, prefix, "private_" if name.startswith("je_") else "", name) for name in sorted(names)]
    (folder / "names").write_text("\n".join(renamed) + "\n")
    subprocess.run(["objcopy", "--redefine-syms=%s" % (folder / "names"), str(archive), str(made)], check=True)
    return made


def inside(stage: Stage, how: Inside, megabytes: int, env: Optional[Dict[str, str]] = None) -> Process:
    """je_inside.c with the archive inside it, ready."""
    folder = stage.folder()
    objects = archive(folder, how.prefix, how.library)
    defines = ["-DJE=%s" % how.prefix] * bool(how.prefix) + ["-D%s" % one for one in how.defines]
    undefined = ["-Wl,-u,%s%s" % (how.prefix, name) for name in ("malloc", "free", "mallctl")] if not how.library else []
    common = ["gcc", "-std=gnu11", "-O1", *defines]
    program, loaded = folder / "je_inside", folder / "libinside.so"
    if how.library:
        _compile([*common, "-DJE_LIBRARY", "-fPIC", "-shared", "-Wl,-Bsymbolic", "-o", str(loaded), str(INSIDE), str(objects), *LIBRARIES])
        _compile([*common, "-DJE_LOADER", "-o", str(program), str(INSIDE), "-ldl"])
    else:
        _compile([*common, *["-static"] * how.static, *undefined, "-o", str(program), str(INSIDE), str(objects), *LIBRARIES])
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
