"""Runs inside an image, with the checkout on PYTHONPATH: leaves cores with all that is needed to read them elsewhere, or reads what another image left.

core_exchange.py leave FOLDER             FOLDER/CASE.core and its answers; FOLDER/tree: program, libraries, debug files
core_exchange.py read FOLDER HOW          answers from these cores, as JSON on standard output; HOW: tree, none, or another tree's folder
"""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any, Dict, Sequence

from gdbheapx.inferior.elf.file import ElfFile, gnu_build_id_path
from tests.support import kernelcore
from tests.support.bare import doorless

ROOT = Path(__file__).resolve().parent.parent

COMMANDS = (
    *("arenas", "chunks", "chunks --histogram", "bins", "tcache", "malloc-info", "malloc-stats", "tunables", "trim --dry-run"),
    *("report", "check", "leaks --list", "census", "owners --limit 1000", "pins", "export --format folded", "whatis 4096"),
)
"""Every one that reads, but `doctor`, which is about the machine that it runs on, and those that repeat."""
WITHOUT_FILES = ("arenas", "malloc-info")
CASES = {"recorder": (("5", "300", "3"), COMMANDS), "accounts": (("seven",), (*WITHOUT_FILES, "chunks", "bins", "tcache", "report"))}
"""By program, its arguments and what is asked: of the second one, whose lists alone are others, those commands that read them."""
DEBUG = "/usr/lib/debug"


def leave(folder: Path) -> None:
    """Run each program, keep its core and what this image says about it."""
    tree = folder / "tree"
    for name, (arguments, commands) in CASES.items():
        program = tree / "srv" / name
        program.parent.mkdir(parents=True, exist_ok=True)
        source = ROOT / "tests" / "programs" / (name + ".c")
        flags = ["-std=gnu11", "-O1", "-g", "-fno-builtin-malloc", "-fno-builtin-free", "-pthread"]
        subprocess.run(["gcc", *flags, "-o", str(program), str(source)], check=True, stdin=subprocess.DEVNULL)
        shutil.copy(program, "/srv/" + name)  # the process knows it by a path that only this image has
        process = kernelcore.start(["/srv/" + name, str(folder / "record"), *arguments], cwd=folder, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        said = process.stdout.read(6) if process.stdout else b""
        if said != b"ready\n":
            raise SystemExit("%s is not ready: %r" % (name, said))
        keep_files(process.pid, "/srv/" + name, tree)
        core = kernelcore.take(process, str(folder / (name + ".core")))
        (folder / (name + ".json")).write_text(json.dumps(answers(["--core", core], commands)))


def keep_files(pid: int, program: str, tree: Path) -> None:
    """Copy every object that is mapped, and its debug file, to the same place below `tree`, symbolic links as they are."""
    with open("/proc/%d/maps" % pid) as maps:
        paths = {line.split()[5] for line in maps if len(line.split()) > 5 and ".so" in line.split()[5]}
    as_ldd = dict(os.environ, LD_TRACE_LOADED_OBJECTS="1")  # which not every machine has
    listing = subprocess.run([program], env=as_ldd, stdout=subprocess.PIPE, text=True, check=True).stdout
    paths |= {word for word in listing.split() if word.startswith("/")}
    for path in sorted(paths):
        keep(path, tree)
        debug = "%s/%s" % (DEBUG, gnu_build_id_path(ElfFile(path).build_id() or "0000"))
        if os.path.exists(debug):
            keep(debug, tree)


def keep(path: str, tree: Path) -> None:
    """Copy one file; every link on the way to it becomes the same link."""
    place = Path("/")
    parts = list(Path(path).parts[1:])
    while parts:
        place /= parts.pop(0)
        copy = Path(str(tree) + str(place))
        if place.is_symlink():
            target = os.readlink(str(place))
            copy.parent.mkdir(parents=True, exist_ok=True)
            if not copy.is_symlink():
                copy.symlink_to(target)
            keep(os.path.normpath(str(place.parent / target) + "/" + "/".join(parts)), tree)
            return
    copy = Path(str(tree) + str(place))
    copy.parent.mkdir(parents=True, exist_ok=True)
    if not copy.exists():
        shutil.copy2(str(place), str(copy))


def answers(target: Sequence[str], commands: Sequence[str]) -> Dict[str, Any]:
    """For each command: exit code, data, and everything that was told beside them."""
    by_words = {}  # type: Dict[str, Any]
    for command in commands:
        words = [sys.executable, "-m", "gdbheapx", *target, *command.split(), "--json"]
        done = subprocess.run(words, stdin=subprocess.DEVNULL, capture_output=True, text=True, env=dict(os.environ, PYTHONPATH=str(ROOT)))
        try:
            envelope = json.loads(done.stdout)
        except ValueError:
            envelope = {"data": None, "problems": []}
        data = json.loads(doorless(json.dumps(envelope["data"])))  # each reader has the core and its files at paths of its own
        by_words[command] = {"code": done.returncode, "data": data, "problems": envelope["problems"], "stderr": done.stderr}
    return by_words


def read(folder: Path, how: str) -> Dict[str, Any]:
    """What this image says about the cores that another one left; with the wrong files two commands show it."""
    if how == "tree":
        tree = folder / "tree"
        files = ["--sysroot", str(tree), "--debug-dir", str(tree) + DEBUG]
        return {name: answers(["--core", str(folder / (name + ".core")), *files], commands) for name, (_, commands) in CASES.items()}
    other = [] if how == "none" else ["--sysroot", how + "/tree", "--debug-dir", how + "/tree" + DEBUG]
    return {name: answers(["--core", str(folder / (name + ".core")), *other], WITHOUT_FILES) for name in CASES}


def main(words: Sequence[str]) -> int:
    """As the first lines of this file say."""
    if len(words) == 2 and words[0] == "leave":
        leave(Path(words[1]))
    elif len(words) == 3 and words[0] == "read":
        json.dump(read(Path(words[1]), words[2]), sys.stdout)
    else:
        sys.stderr.write(str(__doc__))
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
